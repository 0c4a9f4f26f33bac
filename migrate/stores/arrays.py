"""Stores that are arrays: a .npy of vectors with a docs.jsonl beside it, or a Parquet file with a column of vectors.

Row i of the vectors belongs to line or row i of the documents. Vectors are read by position, never mapped into memory
(a map kills the process if the file is cut) and never unpickled. Neither layout says how vectors are compared:
inner product is assumed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from migrate.errors import StoreError, UsageError
from migrate.files import FileStamp, output_errors, require_room
from migrate.manifest import find_manifest
from migrate.stores.base import BATCH_SIZE, FROM_THE_START, KindSupport, Resume, StoreInfo, StoreWriter
from migrate.stores.binary_reader import FileIdentity, malformed, read_errors, read_exactly
from migrate.stores.confidence import CONFIDENCE_NAME
from migrate.stores.documents.arrow import ParquetDocuments, arrow_errors, find_columns, import_pyarrow
from migrate.stores.documents.base import DocumentSource, LabelsOnly, LazyIds
from migrate.stores.documents.jsonl import DOCS_NAME, JsonlDocuments
from migrate.stores.file_store import FileStore
from migrate.stores.row_file import RowFile
from migrate.stores.sources import SOURCES_NAME
from migrate.vectors import Batch, Document, Vectors

_FLOAT_BYTES: Final = 4
_PART_BYTES: Final = 16 << 20
_NPY: Final = ".npy"
_PARQUET: Final = ".parquet"
_VECTOR_NAMES: Final = ("vector", "vectors", "embedding", "embeddings")
_ROUNDED: Final = "the vectors are {}, read as float32"
_NO_METRIC: Final = "arrays do not say how they are compared: inner product is assumed"


class _VectorFile(Protocol):
    """A file of vectors; `dtype` names their element type, `layout` says in a word what they are."""

    path: Path
    count: int
    dim: int
    dtype: str
    layout: str

    def batches(self, start: int, stop: int, batch_size: int) -> Iterator[tuple[int, Vectors]]: ...

    def get(self, rows: NDArray[np.int64]) -> Vectors: ...

    def documents(self) -> DocumentSource: ...

    def writer(self, path: Path, dim: int, resume: Resume, documents: DocumentSource) -> StoreWriter: ...


class ArraysKind:
    """Arrays of vectors, as the registry knows them."""

    name = "arrays"
    support = KindSupport(
        "`.npy`, Parquet",
        ("FILE", "FOLDER"),
        "parquet",
        "ids, texts, every column of Parquet",
        "no index; compares by inner product",
    )

    def recognises(self, path: Path) -> bool:
        """Whether it is a .npy or Parquet file, or a folder with exactly one that holds vectors."""
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
            It is a Parquet file, and pyarrow is not installed.
        OutputError
            The operating system refused.
        """
        path = Path(location)
        if path.is_file():
            return ArrayStore(path, path)
        if not path.is_dir():
            raise StoreError(f"{path}: expected a store, found no such file or folder; check the path")
        files = _vector_files(path)
        if len(files) != 1:
            names = f"{len(files)} ({', '.join(file.name for file in files[:8])})" if files else "none"
            raise StoreError(
                f"{path}: expected one .npy or .parquet file of vectors, found {names}; give the file itself"
            )
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
        self._file = file = _open_vectors(index)
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
            index_type=f"{file.layout} of {file.dtype}",
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

    def documents(self, rows: NDArray[np.int64] | None = None) -> Iterator[Document]:
        """The documents of some rows, or of all."""
        return self._documents.documents(range(self.info.count) if rows is None else np.asarray(rows, np.int64))

    def destination(self, location: Path, dim: int, resume: Resume = FROM_THE_START) -> StoreWriter:
        """A writer of the same layout, under the same file names; the vectors are float32.

        Raises
        ------
        OutputError
            The disk has no room for the vectors.
        """
        path = location / self.index_path.name
        require_room(path, (self.info.count - resume.rows) * dim * _FLOAT_BYTES)
        return self._file.writer(path, dim, resume, self._documents)


def _vector_files(folder: Path) -> list[Path]:
    """The files of a folder that hold vectors."""
    with read_errors(folder):
        files = sorted(file for file in folder.iterdir() if not file.name.startswith(".") and file.is_file())
    files = [file for file in files if file.name not in (CONFIDENCE_NAME, SOURCES_NAME)]
    return [file for file in files if _is_array(file) and _has_vectors(file)]


def _is_array(file: Path) -> bool:
    magic = {_NPY: b"\x93NUMPY", _PARQUET: b"PAR1"}.get(file.suffix)
    if magic is None or not file.is_file():
        return False
    with read_errors(file), file.open("rb") as opened:
        return opened.read(len(magic)) == magic


def _has_vectors(file: Path) -> bool:
    try:
        _open_vectors(file)
    except StoreError:
        return False
    except UsageError:  # without pyarrow nobody can say; opening it says what to install
        return True
    return True


def _open_vectors(path: Path) -> _VectorFile:
    return _ParquetColumn(path) if path.suffix == _PARQUET else _NpyFile(path)


class _NpyFile:
    """A .npy of shape (n, dim), in C order, of floats."""

    layout = "array"

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

    def writer(self, path: Path, dim: int, resume: Resume, documents: DocumentSource) -> StoreWriter:
        return _NpyWriter(path, dim, self.count, resume, documents)

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


class _NpyWriter(StoreWriter):
    """Rows go straight to their place."""

    def __init__(self, path: Path, dim: int, count: int, resume: Resume, documents: DocumentSource) -> None:
        self.rows = RowFile(path, _npy_head(count, dim), dim, count, resume.finished)
        self._documents = documents

    def finish(self) -> None:
        self.rows.finish()
        self._documents.write(self.rows.path.parent)


def _npy_head(count: int, dim: int) -> bytes:
    head = BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": "<f4", "fortran_order": False, "shape": (count, dim)})
    return head.getvalue()


class _ParquetColumn:
    """A column of vectors in a Parquet file: lists of floats, all of one length, none of them empty cells."""

    layout = "column"

    def __init__(self, path: Path) -> None:
        self.path = path
        self._pyarrow = pyarrow = import_pyarrow(path)
        with arrow_errors(path, pyarrow), path.open("rb") as opened:
            self._identity = FileIdentity.of(opened.fileno())
            parquet = pyarrow.parquet.ParquetFile(opened)
            self.column = _vector_column(path, find_columns(parquet.schema_arrow, path).vectors)
            self.count = parquet.metadata.num_rows
            groups = [parquet.metadata.row_group(group).num_rows for group in range(parquet.num_row_groups)]
            self._type = parquet.schema_arrow.field(self.column).type
        self._starts = np.cumsum([0, *groups])
        self.dtype = {"halffloat": "float16", "float": "float32", "double": "float64"}[str(self._type.value_type)]
        self.dim = self._dimension()

    def _dimension(self) -> int:
        if self._pyarrow.types.is_fixed_size_list(self._type):
            return int(self._type.list_size)
        if not self.count:
            raise malformed(self.path, f"vectors in column {self.column}", "no rows", "write the documents again")
        with self._opened() as parquet, arrow_errors(self.path, self._pyarrow):
            first = next(parquet.iter_batches(1, columns=[self.column])).column(0)
        if first.null_count or not len(first[0]):
            raise self._bad_row(0)
        return len(first[0])

    def batches(self, start: int, stop: int, batch_size: int) -> Iterator[tuple[int, Vectors]]:
        """Batches of Parquet end where row groups do; ours are filled up from several."""
        if start >= stop:
            return
        group = int(np.searchsorted(self._starts, start, side="right")) - 1
        buffer = np.empty((min(batch_size, stop - start), self.dim), np.float32)
        first, filled = start, 0
        for place, vectors in self._parts(range(group, len(self._starts) - 1)):
            rest = vectors[max(start - place, 0) : max(stop - place, 0)]
            while len(rest):
                size = min(batch_size, stop - first)
                taken = min(len(rest), size - filled)
                buffer[filled : filled + taken] = rest[:taken]
                rest, filled = rest[taken:], filled + taken
                if filled == size:
                    yield first, buffer[:size]
                    first, filled = first + size, 0
            if first >= stop:
                return

    def get(self, rows: NDArray[np.int64]) -> Vectors:
        vectors = np.empty((rows.size, self.dim), np.float32)
        groups = np.unique(np.searchsorted(self._starts, rows, side="right") - 1)
        order = np.argsort(rows, kind="stable")
        ascending = rows[order]
        for place, part in self._parts(groups.tolist()):
            low, high = np.searchsorted(ascending, (place, place + len(part)))
            vectors[order[low:high]] = part[ascending[low:high] - place]
        return vectors

    def documents(self) -> DocumentSource:
        return _OwnColumns(self.path, self.count, self.column)

    def writer(self, path: Path, dim: int, resume: Resume, documents: DocumentSource) -> StoreWriter:
        return _ParquetWriter(self, path, dim, resume)

    def _parts(self, groups: Any) -> Iterator[tuple[int, Vectors]]:
        """First row and vectors of one part of the column after another."""
        rows = max(_PART_BYTES // (_FLOAT_BYTES * self.dim), 1)
        with self._opened() as parquet:
            for group in groups:
                place = int(self._starts[group])
                with arrow_errors(self.path, self._pyarrow):
                    for batch in parquet.iter_batches(rows, row_groups=[group], columns=[self.column]):
                        yield place, self._vectors(batch, place)
                        place += batch.num_rows

    def _vectors(self, batch: Any, place: int) -> Vectors:
        batch.validate(full=True)
        column = batch.column(0)
        lengths = self._pyarrow.compute.list_value_length(column).to_numpy(zero_copy_only=False)
        bad = np.flatnonzero(lengths != self.dim)
        if bad.size:  # an empty cell has no length, which is another one too
            raise self._bad_row(place + int(bad[0]))
        values = column.flatten()
        if values.null_count:
            row = int(np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))[0]) // self.dim
            raise self._bad_row(place + row)
        return _as_float32(values.to_numpy(zero_copy_only=False).reshape(-1, self.dim))

    def _bad_row(self, row: int) -> StoreError:
        length = f"of {self.dim} numbers" if hasattr(self, "dim") else "of numbers"
        return malformed(
            self.path, f"a vector {length} in each row of column {self.column}", f"none in row {row}", "remove the row"
        )

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        """The Parquet file, unchanged since it was first looked at."""
        with read_errors(self.path), self.path.open("rb") as file:
            self._identity.check(self.path, file.fileno())
            with arrow_errors(self.path, self._pyarrow):
                parquet = self._pyarrow.parquet.ParquetFile(file)
            yield parquet

    def write(self, path: Path, dim: int, rows: BinaryIO) -> None:
        """Write the file again at `path`, with the float32 rows of a file in place of the vectors; in bounded parts."""
        pyarrow = self._pyarrow
        with self._opened() as parquet, output_errors(path):
            schema = self._schema_for(parquet.schema_arrow, dim)
            place = schema.get_field_index(self.column)
            with pyarrow.parquet.ParquetWriter(path, schema) as writer:
                for batch in parquet.iter_batches(max(_PART_BYTES // (_FLOAT_BYTES * dim), 1)):
                    columns = batch.columns
                    numbers = np.fromfile(rows, "<f4", batch.num_rows * dim)
                    columns[place] = self._lists(numbers, dim, schema.field(place).type)
                    writer.write_batch(pyarrow.RecordBatch.from_arrays(columns, schema=schema))

    def _schema_for(self, schema: Any, dim: int) -> Any:
        pyarrow, place = self._pyarrow, schema.get_field_index(self.column)
        value = self._type.value_field.with_type(pyarrow.float32())
        if pyarrow.types.is_fixed_size_list(self._type):
            new = pyarrow.list_(value, dim)
        else:
            new = (pyarrow.large_list if pyarrow.types.is_large_list(self._type) else pyarrow.list_)(value)
        # `datasets` notes the length of the lists there, and would refuse another one
        metadata = {key: text for key, text in (schema.metadata or {}).items() if key != b"huggingface"}
        return schema.set(place, schema.field(place).with_type(new)).with_metadata(metadata)

    def _lists(self, numbers: NDArray[np.float32], dim: int, kind: Any) -> Any:
        pyarrow = self._pyarrow
        if pyarrow.types.is_fixed_size_list(kind):
            return pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(numbers), type=kind)
        is_large = pyarrow.types.is_large_list(kind)
        ends = np.arange(0, numbers.size + 1, dim, dtype=np.int64 if is_large else np.int32)
        lists = pyarrow.LargeListArray if is_large else pyarrow.ListArray
        return lists.from_arrays(pyarrow.array(ends), pyarrow.array(numbers), type=kind)


def _vector_column(path: Path, names: tuple[str, ...]) -> str:
    """The column of vectors: the only one, or the one with a name that says so."""
    named = [name for name in _VECTOR_NAMES if name in names]
    if len(names) == 1 or named:
        return named[0] if named else names[0]
    shown = ", ".join(names) or "none"
    advice = "call the one to be moved vector" if names else "add a column of lists of floats"
    raise malformed(path, "one column of vectors", shown, advice)


class _OwnColumns(ParquetDocuments):
    """The other columns of the file that holds the vectors; they are written with these."""

    def __init__(self, path: Path, count: int, column: str) -> None:
        super().__init__(path, None, count, in_order=True)
        others = [name for name in self._columns.vectors if name != column]
        self.notes = tuple(f"column {name} also holds vectors; a new store has them as they are" for name in others)
        self.kind = f"{self.kind}, vectors: {column}"

    def write(self, folder: Path) -> None:
        """Nothing to write: the documents are in the file of vectors."""


class _ParquetWriter(StoreWriter):
    """Rows wait in a file of their own until all are there; the Parquet file is then written with them."""

    def __init__(self, source: _ParquetColumn, path: Path, dim: int, resume: Resume) -> None:
        self._source, self._path, self._dim = source, path, dim
        self._rows_stay = resume.scratch is not None
        waiting = (resume.scratch or path.parent) / f".{path.name}.rows"
        self.rows = RowFile(waiting, b"", dim, source.count, resume.finished)

    def finish(self) -> None:
        self.rows.finish()
        with read_errors(self.rows.path), self.rows.path.open("rb") as rows:
            self._source.write(self._path, self._dim, rows)
        if not self._rows_stay:
            with output_errors(self.rows.path):
                self.rows.path.unlink()
