"""Reads documents from Arrow or Parquet: which column is what, and rows in any order in bounded memory.

`ParquetDocuments` are the documents of a plain FAISS store, in a Parquet file beside the index with the columns id,
text and metadata. pyarrow is optional, and imported only when there is such a file.
"""

from __future__ import annotations

import shlex
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from migrate.errors import StoreError, UsageError
from migrate.stores.base import NO_TEXTS
from migrate.stores.binary_reader import FileIdentity, malformed, read_errors
from migrate.stores.documents.base import (
    LOOKED_AT,
    DocumentSource,
    Labels,
    Rows,
    check_count,
    copy_files,
    label_values,
    longest_first,
    match_rows,
    sidecar_files,
    without_texts,
)
from migrate.stores.records import TEXT_NAMES, is_id_name
from migrate.vectors import Document

_ID_NAMES: Final = ("id", "_id", "doc_id")
_LABEL_NAME: Final = "faiss_id"
_ROWS_IN_MEMORY: Final = 16_384
ROWS_PER_BATCH: Final = 1024
_LONGEST_INTEGER: Final = 20


def import_pyarrow(path: Path) -> Any:
    """The pyarrow module with the parts that are used here."""
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.ipc
        import pyarrow.parquet
    except ImportError as error:
        raise UsageError(
            f"{path}: reading this file needs pyarrow, which is not installed; run pip install 'lead-migrate[parquet]'"
        ) from error
    return pyarrow


@contextmanager
def arrow_errors(path: Path, pyarrow: Any) -> Iterator[None]:
    """Turn what pyarrow raises inside into a StoreError, and what the operating system refuses into an OutputError."""
    try:
        with read_errors(path):
            try:
                yield
            except OSError as error:
                # pyarrow also says with an OSError that content is malformed; only the system's own have a number
                if error.errno is not None:
                    raise
                raise _unreadable(path, error) from error
    except (pyarrow.ArrowException, UnicodeError, KeyError, MemoryError) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: BaseException) -> StoreError:
    reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
    return malformed(path, "a readable Arrow or Parquet file", f"another ({reason})")


@dataclass(frozen=True, slots=True)
class Columns:
    """The names of the columns that make a document; `id`, `text` and `label` may be lacking."""

    id: str | None
    text: str | None
    label: str | None
    metadata: tuple[str, ...]
    vectors: tuple[str, ...]

    @property
    def read(self) -> list[str]:
        """The columns that `documents` needs."""
        return [name for name in (self.id, self.text, *self.metadata) if name is not None]


def find_columns(schema: Any, path: Path, asked: Mapping[str, str] = MappingProxyType({})) -> Columns:
    """Tell the columns apart by their names and types, unless `asked` names those of `id` and `text`.

    Columns of vectors or bytes are no metadata: they belong to the index, or are no JSON.
    """
    names = list(schema.names)
    if len(set(names)) < len(names):
        raise malformed(path, "columns with different names", f"{names}"[:200], "name them differently")
    types = {name: str(schema.field(name).type) for name in names}
    strings = [name for name in names if types[name] in ("string", "large_string", "string_view")]
    for option, among in (("id", names), ("text", strings)):
        if option in asked and asked[option] not in among:
            raise malformed(path, f"a column {asked[option]!r} for {option}", ", ".join(among), "name one of these")
    doc_id = asked.get("id") or next((name for name in _ID_NAMES if name in names), None)
    text = asked.get("text") or next((name for name in TEXT_NAMES if name in strings), None)
    remaining = [name for name in strings if name != doc_id and not is_id_name(name)]
    if text is None and len(remaining) == 1:
        text = remaining[0]
    label = _LABEL_NAME if types.get(_LABEL_NAME, "").startswith(("int", "uint")) else None
    vectors = tuple(
        name for name in names if "list" in types[name] and ("float" in types[name] or "double" in types[name])
    )
    left_out = {doc_id, text, label, *vectors, *(name for name in names if "binary" in types[name])}
    return Columns(doc_id, text, label, tuple(name for name in names if name not in left_out), vectors)


def check_ids(column: Any, count: int, path: Path, pyarrow: Any) -> Any:
    """Return a column of ids as one of texts, which takes less memory than they do in Python."""
    kind = str(column.type)
    if not kind.startswith(("string", "large_string", "int", "uint")):
        raise malformed(path, "ids that are texts or integers", kind, "convert the column")
    if column.null_count:
        raise malformed(path, "an id for each row", f"{column.null_count} rows without", "give each row an id")
    column = column.cast(pyarrow.large_string()).combine_chunks()
    if repetitions := count - pyarrow.compute.count_distinct(column).as_py():
        raise malformed(path, "a different id for each row", f"{repetitions} repetitions", "give each row its own id")
    return column


def rows_in_order(
    places: NDArray[np.int64], read_ascending: Callable[[NDArray[np.int64]], Iterable[dict[str, Any]]]
) -> Iterator[dict[str, Any]]:
    """Rows in any order from a reader that wants its places ascending; the sorting is done in portions."""
    if not places.size or (places[1:] > places[:-1]).all():
        yield from read_ascending(places)
        return
    for first in range(0, places.size, _ROWS_IN_MEMORY):
        portion = places[first : first + _ROWS_IN_MEMORY]
        ascending = np.unique(portion)
        rows = dict(zip(ascending.tolist(), read_ascending(ascending), strict=True))
        yield from (rows[place] for place in portion.tolist())


def take_ascending(
    path: Path, batches: Iterable[Any], places: NDArray[np.int64], pyarrow: Any
) -> Iterator[dict[str, Any]]:
    """The rows at ascending places of a row of record batches; no more batches are read than needed.

    Not `Table.take`: it may copy a whole column to pick a few rows out of several chunks.
    """
    done = first = 0
    for batch in batches:
        last = int(np.searchsorted(places, first + batch.num_rows))
        if last > done:
            batch.validate(full=True)
            yield from batch.take(pyarrow.array(places[done:last] - first)).to_pylist()
        done, first = last, first + batch.num_rows
        if done == places.size:
            return
    if done < places.size:
        raise malformed(path, f"a row {int(places[done])}", f"{first} rows")


class ArrowDocuments(DocumentSource):
    """Base of Parquet files and datasets; a subclass sets these fields, reads the rows, and calls `_describe`.

    `_ids` is a column of texts, None where ids are row numbers; `_places` are the places of the rows' documents, None
    where row i is document i.
    """

    _path: Path
    _pyarrow: Any
    _columns: Columns
    _ids: Any
    _places: Labels

    @abstractmethod
    def _batches(self) -> Iterator[Any]:
        """Batches of all rows in order, with the columns that documents need."""

    def _describe(self, kind: str) -> None:
        columns = self._columns
        self.kind = f"{kind}, text: {columns.text or 'none'}, ids: {columns.id or 'row numbers'}"
        self.has_texts = columns.text is not None
        names = ", ".join(columns.vectors)
        note = f"{self._path.name} also holds vectors ({names}); a new store has them as they are, untranslated"
        self.notes = (note,) if names else ()

    def _read(self, places: NDArray[np.int64]) -> Iterator[dict[str, Any]]:
        """The rows at ascending places."""
        with arrow_errors(self._path, self._pyarrow):
            yield from take_ascending(self._path, self._batches(), places, self._pyarrow)

    def ids(self, rows: Rows) -> list[str]:
        """The ids of some rows."""
        places = label_values(self._places, rows)
        found = places if self._ids is None else self._ids.take(places).to_pylist()
        return list(map(str, found))

    def documents(self, rows: Rows) -> Iterator[Document]:
        """The documents of some rows; metadata are the other columns, without vectors and bytes, and empty cells."""
        if not self.has_texts:
            raise StoreError(f"{self._path}: no column holds the texts; name one of them text")
        places = label_values(self._places, rows)
        return map(self._document, places, rows_in_order(places, self._read))

    def _document(self, place: int, row: dict[str, Any]) -> Document:
        columns = self._columns
        doc_id = place if columns.id is None else row[columns.id]
        metadata = {name: row[name] for name in columns.metadata if row[name] is not None}
        return Document(str(doc_id), row[columns.text or ""] or "", metadata)


def has_parquet(index: Path) -> bool:
    """Return whether there is a Parquet file beside an index."""
    return bool(sidecar_files(index, "*.parquet"))


class ParquetDocuments(ArrowDocuments):
    """Rows of the Parquet file beside an index, matched as `match_rows` says; ids are in memory, texts are streamed.

    Parameters
    ----------
    index
        The FAISS file.
    labels
        The label of each row.
    count
        How many rows the index has.
    asked
        The columns that are named for `id` and `text`.

    Raises
    ------
    StoreError
        There are several files; or it is malformed, or not of this index.
    """

    def __init__(self, index: Path, labels: Labels, count: int, asked: Mapping[str, str]) -> None:
        files = sidecar_files(index, "*.parquet")
        if len(files) > 1:
            names = ", ".join(file.name for file in files[:3])
            raise StoreError(f"{index.parent}: has {len(files)} Parquet files ({names}); keep one")
        self.file = self._path = files[0]
        self._pyarrow = pyarrow = import_pyarrow(self._path)
        with arrow_errors(self._path, pyarrow), self._path.open("rb") as opened:
            self._identity = FileIdentity.of(opened.fileno())
            parquet = pyarrow.parquet.ParquetFile(opened)
            check_count(self._path, count, parquet.metadata.num_rows)
            columns = find_columns(parquet.schema_arrow, self._path, asked)
            self._columns = columns = columns if columns.id else _with_id(columns, parquet, pyarrow)
            table = parquet.read(columns=[name for name in (columns.id, columns.label) if name is not None])
            named = dict(zip(table.column_names, table.columns, strict=True))
            label = named.get(columns.label)
            faiss_ids = None if label is None or label.null_count else label.cast(pyarrow.int64()).to_numpy()
        self._ids = None if columns.id is None else check_ids(named[columns.id], count, self._path, pyarrow)
        self._places, matched = match_rows(self._path, labels, count, _integers(self._ids), faiss_ids)
        self._describe(f"{self._path.name}, {matched}")
        if columns.id is None and columns.metadata:
            location = shlex.quote(f"faiss:{index}#?id={columns.metadata[0]}")
            self.notes = (*self.notes, f"ids are row numbers; another column is named as in {location}")
        if columns.text is None:
            rows = list(self._read(np.arange(min(count, LOOKED_AT))))
            example = next(iter(longest_first(columns.metadata, rows)), "COLUMN")
            self.notes = (*self.notes, f"{NO_TEXTS}{without_texts(self._path, columns.metadata, index, example)}")

    def _batches(self) -> Iterator[Any]:
        with self._path.open("rb") as opened:
            self._identity.check(self._path, opened.fileno())
            parquet = self._pyarrow.parquet.ParquetFile(opened)
            yield from parquet.iter_batches(ROWS_PER_BATCH, columns=self._columns.read)

    def write(self, folder: Path) -> None:
        """Copy the file byte for byte."""
        copy_files([self._path], folder)


def _with_id(columns: Columns, parquet: Any, pyarrow: Any) -> Columns:
    """The columns with the first that has another text or integer in each row, and a name as of ids, as the ids."""
    for name in columns.metadata:
        kind = str(parquet.schema_arrow.field(name).type)
        if not (is_id_name(name) and kind.startswith(("string", "large_string", "int", "uint"))):
            continue
        column = parquet.read(columns=[name]).column(name)
        if not column.null_count and pyarrow.compute.count_distinct(column).as_py() == len(column):
            return replace(columns, id=name, metadata=tuple(other for other in columns.metadata if other != name))
    return columns


def _integers(column: Any) -> NDArray[np.int64] | None:
    """Return ids as integers where each writes one out as `str` would, else None."""
    if column is None or not len(column):
        return None
    try:
        ids = column.to_pylist()
        numbers = [int(doc_id) for doc_id in ids if len(doc_id) <= _LONGEST_INTEGER]
        values = np.array(numbers, np.int64)
    except (ValueError, OverflowError):
        return None
    return values if list(map(str, numbers)) == ids else None
