"""The documents of a plain FAISS store in a Parquet file beside the index: columns id, text, and metadata."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from migrate.errors import StoreError
from migrate.stores.arrow import (
    ROWS_PER_BATCH,
    ArrowIds,
    arrow_errors,
    find_columns,
    import_pyarrow,
    take_ascending,
)
from migrate.stores.arrow_docs import ArrowDocuments, check_count
from migrate.stores.companions import companions, copy_files
from migrate.stores.cursor import FileIdentity
from migrate.stores.labels import Labels
from migrate.stores.row_match import match_rows


def has_parquet(index: Path) -> bool:
    """Whether a Parquet file lies beside an index."""
    return bool(companions(index, "*.parquet"))


class ParquetDocuments(ArrowDocuments):
    """Rows of a Parquet file, matched as `match_rows` says; ids are held in memory, texts are streamed.

    Parameters
    ----------
    index
        The FAISS file.
    labels
        The label of each row.
    count
        How many rows the index has.

    Raises
    ------
    StoreError
        There is more than one Parquet file, it is malformed, or does not match the index.
    UsageError
        pyarrow is not installed.
    """

    def __init__(self, index: Path, labels: Labels, count: int) -> None:
        files = companions(index, "*.parquet")
        if len(files) > 1:
            names = ", ".join(file.name for file in files[:3])
            raise StoreError(f"{index.parent}: expected one Parquet file, found {len(files)} ({names}); keep one")
        self.file = self._path = files[0]
        self._pyarrow = import_pyarrow(self._path)
        with arrow_errors(self._path, self._pyarrow), self._path.open("rb") as opened:
            self._identity = FileIdentity.of(opened.fileno())
            parquet = self._pyarrow.parquet.ParquetFile(opened)
            check_count(self._path, count, parquet.metadata.num_rows)
            self._columns = columns = find_columns(parquet.schema_arrow, self._path)
            wanted = [name for name in (columns.id, columns.label) if name is not None]
            table = parquet.read(columns=wanted)
        named = dict(zip(table.column_names, table.columns, strict=True))
        self._ids = ArrowIds(named.get(columns.id), count, self._path, self._pyarrow)
        faiss_ids = self._integers(named.get(columns.label))
        self._places, matched = match_rows(self._path, labels, count, self._ids.values(), faiss_ids)
        self._describe(f"{self._path.name}, {matched}")

    def _integers(self, column: Any) -> NDArray[np.int64] | None:
        if column is None or column.null_count:
            return None
        with arrow_errors(self._path, self._pyarrow):
            integers: NDArray[np.int64] = column.cast(self._pyarrow.int64()).to_numpy()
            return integers

    def _read(self, places: NDArray[np.int64]) -> Iterator[dict[str, Any]]:
        with arrow_errors(self._path, self._pyarrow), self._path.open("rb") as opened:
            self._identity.check(self._path, opened.fileno())
            parquet = self._pyarrow.parquet.ParquetFile(opened)
            batches = parquet.iter_batches(ROWS_PER_BATCH, columns=self._columns.read)
            yield from take_ascending(self._path, batches, places, self._pyarrow)

    def write(self, folder: Path) -> None:
        """Copy the file byte for byte."""
        copy_files([self._path], folder)
