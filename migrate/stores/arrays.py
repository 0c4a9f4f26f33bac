"""Stores that are arrays: a .npy of vectors with a docs.jsonl beside it.

Row i of the vectors belongs to line i of the documents. Vectors are read by position, never mapped into memory (a map
kills the process if the file is cut) and never unpickled. The file does not say how vectors are compared: inner product
is assumed.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from migrate.errors import StoreError, UsageError
from migrate.files import FileStamp
from migrate.manifest import find_manifest
from migrate.stores.base import BATCH_SIZE, KindSupport, StoreInfo
from migrate.stores.binary_reader import FileIdentity, malformed, read_errors, read_exactly
from migrate.stores.confidence import CONFIDENCE_NAME
from migrate.stores.documents.base import DocumentSource, LabelsOnly, LazyIds
from migrate.stores.documents.jsonl import DOCS_NAME, JsonlDocuments
from migrate.stores.file_store import FileStore
from migrate.stores.sources import SOURCES_NAME
from migrate.vectors import Batch, Document, Vectors
from migrate.work.shards import Rows
from migrate.work.writer import FlatFileWriter, StoreWriter

_NPY: Final = ".npy"
_MAGIC: Final = b"\x93NUMPY"
_ROUNDED: Final = "the vectors are {}, read as float32"
_NO_METRIC: Final = "arrays do not say how they are compared: inner product is assumed"


class ArraysKind:
    """Arrays of vectors, as the registry knows them."""

    name = "arrays"
    support = KindSupport(
        "`.npy`",
        ("FILE", "FOLDER"),
        "",
        "ids, texts",
        "no index; compares by inner product",
    )

    def recognises(self, path: Path) -> bool:
        """Whether it is a .npy file, or a folder with exactly one that holds vectors."""
        if path.is_dir():
            return len(_vector_files(path)) == 1
        return _is_array(path)

    def open(self, location: str) -> ArrayStore:
        """Open a file of vectors, or a folder with exactly one.

        Raises
        ------
        StoreError
            There is none, or more than one; or it is malformed, or does not match its documents.
        UsageError
            It is a file of Parquet.
        OutputError
            The operating system refused.
        """
        path = Path(location)
        if path.is_file():
            if path.suffix == ".parquet":
                raise UsageError(f"{path}: expected a .npy file, found Parquet; say parquet:{path}")
            return ArrayStore(path, path)
        if not path.is_dir():
            raise StoreError(f"{path}: expected a store, found no such file or folder; check the path")
        files = _vector_files(path)
        if len(files) != 1:
            names = f"{len(files)} ({', '.join(file.name for file in files[:8])})" if files else "none"
            raise StoreError(f"{path}: expected one .npy file of vectors, found {names}; give the file itself")
        return ArrayStore(path, files[0])


class ArrayStore(FileStore):
    """A store of arrays.

    Parameters
    ----------
    path
        What the user gave: a folder or a file.
    index
        The file of vectors.

    Raises
    ------
    StoreError
        The vectors or the documents are malformed, or do not match.
    """

    def __init__(self, path: Path, index: Path) -> None:
        self.index_path = index
        self._file = file = _NpyFile(index)
        self._documents = documents = file.documents()
        files = dict.fromkeys((index, *((documents.file,) if documents.file else ()), *documents.also_read))
        self.stamps = tuple(FileStamp.of(file) for file in files)
        converted = () if file.dtype == "float32" else (_ROUNDED.format(file.dtype),)
        own = {} if documents.file in (None, index) else {"documents_file": documents.file.name}
        manifest = find_manifest(index.parent, "store")
        is_own = manifest is not None and manifest.store.index == index.name
        foreign = f"the manifest in the folder is not of {index.name}; it is ignored"
        self.info = StoreInfo(
            location=str(path),
            kind=ArraysKind.name,
            index_type=f"array of {file.dtype}",
            count=file.count,
            dim=file.dim,
            metric="ip",
            exact=True,
            has_texts=documents.has_texts,
            manifest=manifest if is_own else None,
            notes=(_NO_METRIC, *converted, *documents.notes, *((foreign,) if manifest and not is_own else ())),
            details={
                "index": index.name,
                "index_bytes": index.stat().st_size,
                "documents": documents.kind,
                **own,
            },
        )

    def scan(self, start: int = 0, stop: int | None = None, *, batch_size: int = BATCH_SIZE) -> Iterator[Batch]:
        """The vectors of rows `start` to `stop` with their ids; valid until the next batch is asked for."""
        last = self.info.count if stop is None else min(stop, self.info.count)
        for first, vectors in self._file.batches(start, last, batch_size):
            rows = range(first, first + len(vectors))
            yield Batch(LazyIds(len(rows), partial(self._documents.ids, rows)), vectors)

    def get(self, rows: NDArray[np.int64]) -> Batch:
        """The vectors and ids of some rows."""
        rows = np.asarray(rows, np.int64)
        if rows.size and not 0 <= rows.min() <= rows.max() < self.info.count:
            raise IndexError(f"rows {rows.min()} to {rows.max()} asked for, 0 to {self.info.count - 1} are there")
        return Batch(self._documents.ids(rows), self._file.get(rows))

    def ids(self, rows: range | NDArray[np.int64]) -> list[str]:
        """Return the ids of some rows."""
        return self._documents.ids(rows)

    def documents(self, rows: NDArray[np.int64] | None = None) -> Iterator[Document]:
        """The documents of some rows, or of all."""
        return self._documents.documents(range(self.info.count) if rows is None else np.asarray(rows, np.int64))

    def destination(self, location: Path, dim: int) -> StoreWriter:
        """A writer of the same layout, under the same file names; the vectors are float32."""
        return _NpyWriter(location / self.index_path.name, dim, self.info.count, self._documents)


def _vector_files(folder: Path) -> list[Path]:
    """The files of a folder that hold vectors."""
    with read_errors(folder):
        files = sorted(file for file in folder.iterdir() if not file.name.startswith(".") and file.is_file())
    files = [file for file in files if file.name not in (CONFIDENCE_NAME, SOURCES_NAME)]
    return [file for file in files if _is_array(file) and _has_vectors(file)]


def _is_array(file: Path) -> bool:
    if file.suffix != _NPY or not file.is_file():
        return False
    with read_errors(file), file.open("rb") as opened:
        return opened.read(len(_MAGIC)) == _MAGIC


def _has_vectors(file: Path) -> bool:
    try:
        _NpyFile(file)
    except StoreError:
        return False
    return True


class _NpyFile:
    """A .npy of shape (n, dim), in C order, of floats."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with read_errors(path), path.open("rb") as file:
            self._identity = FileIdentity.of(file.fileno())
            shape, in_columns, dtype = _npy_header(path, file)
            self._offset = file.tell()
        if len(shape) != 2 or dtype.kind != "f" or dtype.itemsize not in (2, 4, 8) or not shape[1]:
            raise malformed(
                path, "an array (n, dim) of floats", f"one {shape} of {dtype}", "save the vectors with np.save"
            )
        if in_columns:
            raise malformed(path, "rows one after another", "Fortran order", "save np.ascontiguousarray(vectors)")
        self.count, self.dim = shape
        self.dtype, self._dtype = dtype.name, dtype
        self._row_bytes = self.dim * dtype.itemsize
        expected = self._offset + self.count * self._row_bytes
        if self._identity.size != expected:
            raise malformed(path, f"{expected} bytes", f"{self._identity.size}")

    def batches(self, start: int, stop: int, batch_size: int) -> Iterator[tuple[int, Vectors]]:
        with read_errors(self.path), self.path.open("rb", buffering=0) as file:
            self._identity.check(self.path, file.fileno())
            for first in range(start, stop, batch_size):
                yield first, self._read(file.fileno(), first, min(batch_size, stop - first))
            self._identity.check(self.path, file.fileno())

    def get(self, rows: NDArray[np.int64]) -> Vectors:
        vectors = np.empty((rows.size, self.dim), np.float32)
        with read_errors(self.path), self.path.open("rb", buffering=0) as file:
            self._identity.check(self.path, file.fileno())
            for place, row in enumerate(rows.tolist()):
                vectors[place] = self._read(file.fileno(), row, 1)
        return vectors

    def documents(self) -> DocumentSource:
        docs = self.path.with_name(DOCS_NAME)
        return JsonlDocuments(docs, None, self.count, in_order=True) if docs.exists() else LabelsOnly(None, self.path)

    def _read(self, descriptor: int, first: int, count: int) -> Vectors:
        numbers = np.empty((count, self.dim), self._dtype)
        if count:
            target = numbers.reshape(-1).view(np.uint8).data
            read_exactly(self.path, descriptor, target, self._offset + first * self._row_bytes)
        return _as_float32(numbers)


def _npy_header(path: Path, file: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    try:
        version = np.lib.format.read_magic(file)
        if version not in readers:
            raise malformed(path, "a .npy of version 1 or 2", f"version {version}", "save it with np.save")
        shape, in_columns, dtype = readers[version](file)
    except (ValueError, SyntaxError, TypeError, EOFError, RecursionError, MemoryError) as error:
        raise malformed(path, "a NumPy array", f"another file ({str(error)[:80]})") from error
    return shape, in_columns, dtype


def _as_float32(numbers: NDArray[Any]) -> Vectors:
    with np.errstate(over="ignore", invalid="ignore"):  # what is too large becomes infinite, and is refused as that
        return np.ascontiguousarray(numbers, np.float32)


class _NpyWriter(FlatFileWriter):
    """Rows go straight to their place."""

    def __init__(self, path: Path, dim: int, count: int, documents: DocumentSource) -> None:
        super().__init__(path, _npy_head(count, dim), dim, count)
        self._documents = documents

    def finish(self, rows: Rows) -> None:
        self.finish_file(rows.count)
        self._documents.write(self.path.parent)


def _npy_head(count: int, dim: int) -> bytes:
    head = BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": "<f4", "fortran_order": False, "shape": (count, dim)})
    return head.getvalue()
