"""Documents of an index saved by Hugging Face `datasets`: the dataset beside the index or below it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from migrate.errors import StoreError
from migrate.files import output_errors, sync_path
from migrate.reading import read_table
from migrate.stores.binary_reader import malformed, read_errors
from migrate.stores.documents.arrow import ROWS_PER_BATCH, ArrowDocuments, check_ids, map_streams
from migrate.stores.documents.base import check_count, check_numbered, copy_files, json_errors
from migrate.stores.documents.columns import columns_beside_index
from migrate.stores.documents.matching import Labels
from migrate.stores.records import import_client

_STATE: Final = "state.json"
_INFO: Final = "dataset_info.json"
_AGAIN: Final = "save the dataset again"


def find_datasets(folder: Path) -> list[Path]:
    """Return the datasets in a folder: itself, or folders in it."""
    with read_errors(folder):
        below = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    return [path for path in (folder, *below) if (path / _STATE).is_file() and (path / _INFO).is_file()]


class DatasetDocuments(ArrowDocuments):
    """Rows of a dataset; row i belongs to label i, as in `datasets` itself. The files are mapped into memory."""

    def __init__(self, index: Path, labels: Labels, count: int) -> None:
        datasets = find_datasets(index.parent)
        if len(datasets) > 1:
            names = ", ".join(path.name for path in datasets[:3])
            raise StoreError(f"{index.parent}: has {len(datasets)} datasets ({names}); keep one")
        self._index = index
        self._dataset = datasets[0]
        self._path = self._dataset / _STATE
        import_client("pyarrow", "parquet")
        self._data_files = _data_files(self._path)
        self._table = map_streams(self._path, self._data_files)
        check_count(self._dataset, count, self._table.num_rows)
        self.positions = check_numbered(index, labels, count, "the rows of the dataset are")
        self._columns = columns = columns_beside_index(self._table.schema, self._dataset)
        self._ids = columns.id and check_ids(self._table.column(columns.id), self._dataset)
        self.info = self._described("dataset, by row", also_read=tuple(self._data_files), format="huggingface")

    def _batches(self) -> Iterator[Any]:
        yield from self._table.select(self._columns.documents).to_batches(ROWS_PER_BATCH)

    def write(self, folder: Path) -> None:
        """Copy the dataset's files byte for byte, to the same place."""
        # The new store is opened as the old one, so its dataset lies beside the index or below it, as there.
        is_unpacked = self._dataset == self._index.parent
        if is_unpacked:
            target = folder
        else:
            target = folder / self._dataset.name
        with output_errors(target):
            target.mkdir(exist_ok=True)
        copy_files([*self._data_files, self._path, self._dataset / _INFO], target)
        with output_errors(target):
            sync_path(target)
        super().write(folder)


def _data_files(path: Path) -> list[Path]:
    with json_errors(path):
        state = read_table(path)
    if state.get("_indices_data_files"):
        raise malformed(
            path, "the dataset has a list of indices, by which its rows lie in another order", "flatten_indices first"
        )
    files = state.get("_data_files")
    if not isinstance(files, list) or not files:
        raise malformed(path, 'there is no list "_data_files"', _AGAIN)
    data_files = []
    for entry in files:
        if not isinstance(entry, dict):
            name = None
        else:
            name = entry.get("filename")
        # a name with folders in it could lead out of the dataset, and a new store would be written there
        if not isinstance(name, str) or name in ("", "..") or Path(name).name != name:
            raise malformed(path, f"{name!r:.80} is not the name of a file in the same folder", _AGAIN)
        data_files.append(path.with_name(name))
        with read_errors(path):
            if not data_files[-1].is_file():
                raise malformed(path.parent, f"the file {name} is missing", "copy the whole folder")
    return data_files
