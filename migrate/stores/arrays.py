"""Stores that are arrays: a .npy of vectors with a docs.jsonl or another file of documents beside it.

Row i of the vectors belongs to document i of the file, unless its ids may be the numbers of rows: see `pairing.py`.
Nothing is unpickled.
"""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from types import MappingProxyType

import numpy as np

from migrate.errors import StoreError, UsageError
from migrate.files import FileStamp, open_file
from migrate.locations import Address, options_text
from migrate.stores.base import KindSupport, StoreInfo
from migrate.stores.binary_reader import RowFile, malformed, read_errors
from migrate.stores.confidence import CONFIDENCE_NAME
from migrate.stores.documents.beside import documents_beside
from migrate.stores.documents.by_row import files_by_row, notes_beside
from migrate.stores.documents.matching import ROWS_OPTION, Numbering
from migrate.stores.file_store import RowFileStore, only_file, own_manifest, with_documents
from migrate.stores.old_checksums import SOURCES_NAME
from migrate.stores.pairing import settle_rows
from migrate.stores.records import check_options
from migrate.work.writer import FlatFileWriter, StoreWriter


class ArraysKind:
    """Arrays of vectors, as the registry knows them."""

    name = "arrays"
    support = KindSupport(
        "`.npy`", ("FILE", "FOLDER"), "", "ids, texts, metadata", "no index; compares by inner product"
    )

    def recognises(self, path: Path) -> bool:
        """Return True for a .npy file, or a folder with exactly one that holds vectors."""
        if path.is_dir():
            return len(_vector_files(path)) == 1
        return _is_array(path)

    def open(self, location: str) -> ArrayStore:
        """Open a file of vectors, or a folder with exactly one; `PATH#?rows=id` takes the ids for numbers of rows.

        `PATH#?text=FIELD&id=FIELD` names what a file beside it has.

        Raises a StoreError where there is none, or more than one; or it is malformed, or does not match its documents.
        """
        address = Address.of_path(location)
        check_options(f"{self.name}:{location}", address.options, ("text", "id", ROWS_OPTION))
        path = Path(address.place)
        if path.is_file():
            # Earlier versions read Parquet by this kind too, so manifests and scripts may still name it.
            if path.suffix == ".parquet":
                raise UsageError(f"{path} is a Parquet file, not .npy; say parquet:{path}")
            return ArrayStore(path, path, address.options)
        return ArrayStore(path, only_file(path, _vector_files, ".npy files of vectors"), address.options)


class ArrayStore(RowFileStore):
    """A store of arrays: `path` is what the user gave, `index` the file of vectors, `fields` are of its location.

    `fields` are the options of its location: the fields of a file beside it that are `text` and `id`, and how its
    records belong to `rows`; those of the manifest count too.

    Raises a StoreError where the vectors or the documents are malformed, or do not match.
    """

    def __init__(self, path: Path, index: Path, fields: Mapping[str, str] = MappingProxyType({})) -> None:
        super().__init__(index)
        self._file = array = _read_header(index)
        manifest, foreign = own_manifest(index)
        options = {**((manifest and manifest.store.fields) or {}), **fields}
        named = {name: field for name, field in options.items() if name != ROWS_OPTION}
        rows = Numbering(labels=None, added=None, count=array.count, is_index=False)
        documents = self.source = documents_beside(index, rows, named, kind=ArraysKind.name)
        settled = settle_rows(
            documents,
            array,
            f"{ArraysKind.name}:{path}" + (f"#{options_text(named)}" if named else ""),
            requested=options.get(ROWS_OPTION),
        )
        self.named_fields = {**named, **settled}
        documents.by_row = files_by_row(index, array.count, (documents.info.file,))
        # All that a copy has: a change of any of them is a change of the store.
        files = (index, documents.info.file, *documents.by_row)
        self.stamps = tuple(FileStamp.of(file) for file in files if file is not None)
        notes = ["arrays do not say how they are compared: inner product is assumed"]
        if array.dtype.name != "float32":
            notes.append(f"the vectors are {array.dtype.name}, read as float32")
        notes += [*documents.info.notes, *notes_beside(index, documents.by_row, ()), *foreign]
        self.info = StoreInfo(
            location=str(path),
            kind=ArraysKind.name,
            index_type=f"array of {array.dtype.name}",
            count=array.count,
            dim=array.dim,
            metric="ip",
            exact=True,
            has_texts=documents.info.has_texts,
            manifest=manifest,
            unread_by_row=tuple(file.name for file in documents.by_row),
            notes=tuple(notes),
            details={
                "index": index.name,
                "index_bytes": index.stat().st_size,
                "documents": documents.info.kind,
                **({} if documents.info.file is None else {"documents_file": documents.info.file.name}),
            },
        )

    def destination(self, location: Path, dim: int) -> StoreWriter:
        """Return a writer of the same layout, under the same file names; the vectors are float32."""
        head = BytesIO()
        header = {"descr": "<f4", "fortran_order": False, "shape": (self.info.count, dim)}
        np.lib.format.write_array_header_1_0(head, header)
        path = location / self.index_path.name
        return FlatFileWriter(path, head.getvalue(), dim, self.info.count, with_documents(self.source, location))


def _vector_files(folder: Path) -> list[Path]:
    """Return the files of a folder that hold vectors."""
    vector_files = []
    with read_errors(folder):
        files = sorted(folder.iterdir())
    for file in files:
        if not file.name.startswith(".") and file.name not in (CONFIDENCE_NAME, SOURCES_NAME) and _is_array(file):
            try:
                _read_header(file)
            # Another `.npy` may be anything, labels for example: it does not keep the one of vectors from being found.
            except StoreError:
                continue
            vector_files.append(file)
    return vector_files


def _is_array(file: Path) -> bool:
    if file.suffix != ".npy" or not file.is_file():
        return False
    with read_errors(file), open_file(file) as opened:
        return opened.read(6) == b"\x93NUMPY"


def _read_header(path: Path) -> RowFile:
    """Return the header of a file of vectors, held against the size of the file."""
    # Version 3 differs in the names of fields alone, which an array of floats has none of.
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    with read_errors(path), open_file(path) as file:
        stamp = FileStamp.of(path, file.fileno())
        try:
            version = np.lib.format.read_magic(file)
            if version not in readers:
                raise malformed(path, f"a .npy of version {version}, and 1 and 2 are read", "save it with np.save")
            shape, in_columns, dtype = readers[version](file)
        # NumPy reads the header as a literal of Python, and a hostile one may raise any of these there.
        except (ValueError, SyntaxError, TypeError, EOFError, RecursionError, MemoryError) as error:
            raise malformed(path, f"no NumPy array ({str(error)[:80]})") from error
        offset = file.tell()
    if len(shape) != 2 or dtype.kind != "f" or dtype.itemsize not in (2, 4, 8) or not shape[1]:
        raise malformed(path, f"an array {shape} of {dtype}, not (n, dim) of floats", "save the vectors with np.save")
    if in_columns:
        raise malformed(path, "an array in Fortran order", "save np.ascontiguousarray(vectors)")
    # A header may claim any number of rows: it is believed only where the file is just as long.
    size = offset + shape[0] * shape[1] * dtype.itemsize
    if stamp.size != size:
        raise malformed(path, f"has {stamp.size} bytes in place of {size}")
    return RowFile(stamp, np.array([[offset, shape[0]]]), shape[1], dtype)
