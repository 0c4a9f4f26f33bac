"""Rows of Arrow or Parquet in any order, in bounded memory, and the documents of a Parquet file beside an index.

pyarrow is optional, and imported only when there is such a file.
"""

from __future__ import annotations

import shlex
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from migrate.errors import StoreError
from migrate.files import FileStamp, open_file
from migrate.stores.base import NO_TEXTS
from migrate.stores.binary_reader import malformed, read_errors
from migrate.stores.documents.base import (
    LOOKED_AT,
    DocumentsInfo,
    DocumentSource,
    check_count,
    longest_first,
    sidecar_files,
    without_texts,
)
from migrate.stores.documents.columns import Columns, columns_beside_index
from migrate.stores.documents.matching import IdNumbers, Numbering, match_rows
from migrate.stores.documents.names import is_id_name
from migrate.stores.records import import_client
from migrate.vectors import Document, Vectors

# Arbitrary: rows in no order are read again for each portion, so more memory saves time.
_ROWS_IN_MEMORY: Final = 16_384
# Arbitrary: the texts and metadata of so many documents are in memory at once.
ROWS_PER_BATCH: Final = 1024


@contextmanager
def arrow_errors(path: Any) -> Iterator[None]:
    """Turn what pyarrow raises inside into a StoreError; errors of the operating system pass."""
    import pyarrow

    try:
        yield
    except (OSError, pyarrow.ArrowException, ValueError, KeyError, MemoryError) as error:
        # pyarrow also raises an OSError for malformed content; only one of the system has a number
        if isinstance(error, OSError) and error.errno is not None:
            raise
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise malformed(path, f"no readable Arrow or Parquet file ({reason})") from error


def rows_in_order(
    rows: NDArray[np.int64], read_ascending: Callable[[NDArray[np.int64]], Iterable[dict[str, Any]]]
) -> Iterator[dict[str, Any]]:
    """Yield rows in any order from a reader of ascending ones; the sorting is done in portions."""
    if (rows[1:] > rows[:-1]).all():
        yield from read_ascending(rows)
        return
    for first in range(0, rows.size, _ROWS_IN_MEMORY):
        portion = rows[first : first + _ROWS_IN_MEMORY]
        ascending = np.unique(portion)
        values = dict(zip(ascending.tolist(), read_ascending(ascending), strict=True))
        yield from (values[row] for row in portion.tolist())


def take_ascending(path: Any, batches: Iterable[tuple[int, Any]], rows: NDArray[np.int64]) -> Iterator[tuple[int, Any]]:
    """Take ascending rows out of record batches, each with its first row; no more are read than needed.

    Yields batches of these rows alone, each with the place of its first among `rows`.
    """
    import pyarrow

    # not Table.take, which may copy a whole column to pick a few rows out of several chunks
    done = end = 0
    for first, batch in batches:
        end = first + batch.num_rows
        stop = int(np.searchsorted(rows, end))
        if stop > done:
            yield done, batch.take(pyarrow.array(rows[done:stop] - first))
        done = stop
        if done == rows.size:
            return
    if done < rows.size:
        raise malformed(path, f"has {end} rows, and none of number {int(rows[done])}")


def row_without_vector(lists: Any, dim: int) -> int | None:
    """Return the first row of a column of lists that does not hold `dim` numbers; None where each does."""
    import pyarrow.compute

    lengths = pyarrow.compute.list_value_length(lists).to_numpy(zero_copy_only=False)
    # an empty cell has no length, which is another one too
    bad = np.flatnonzero(lengths != dim)
    values = lists.flatten()
    if not bad.size and values.null_count:
        bad = np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False)) // dim
    if not bad.size:
        return None
    return int(bad[0])


def vectors_of_lists(lists: Any, dim: int) -> Vectors:
    """Return the rows of a column of lists as float32, (n, dim); each has to hold so many numbers."""
    numbers = lists.flatten().to_numpy(zero_copy_only=False).reshape(-1, dim)
    # what is too large becomes infinite, and is refused as that
    with np.errstate(over="ignore", invalid="ignore"):
        return np.ascontiguousarray(numbers, np.float32)


def lists_of_vectors(vectors: Vectors, kind: Any = None) -> Any:
    """Return rows as lists of a type of Arrow; of float32 where none is named."""
    import pyarrow as pa

    if kind is None:
        # A list ends at a place of 32 bits, counted over the numbers of all lists.
        kind = (pa.list_ if vectors.size < 2**31 else pa.large_list)(pa.float32())
    numbers = pa.array(vectors.reshape(-1), pa.float32())
    if pa.types.is_fixed_size_list(kind):
        return pa.FixedSizeListArray.from_arrays(numbers, type=kind)
    is_large = pa.types.is_large_list(kind)
    ends = np.arange(0, vectors.size + 1, vectors.shape[1], dtype=np.int64 if is_large else np.int32)
    return (pa.LargeListArray if is_large else pa.ListArray).from_arrays(pa.array(ends), numbers, type=kind)


def plain_lists(column: Any) -> Any:
    """Return a column of tensors as the lists that it is stored as, any other as it is."""
    return getattr(column, "storage", column)


def lists_in(column: Any) -> Any:
    """Return a column of lists in one piece, those of tensors too; None where it does not hold lists of numbers."""
    import pyarrow as pa

    if isinstance(column, pa.ChunkedArray):
        lists = column.combine_chunks()
    else:
        lists = column
    lists = plain_lists(lists)
    kind = lists.type
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    is_numeric = is_list and (pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type))
    if not is_numeric:
        return None
    return lists


def replace_vectors(batch: Any, ids: str, vectors: Mapping[str, Vectors], numbers: Mapping[str, NDArray[Any]]) -> Any:
    """Return a table or a record batch of the ids of one, and columns of vectors and of numbers."""
    import pyarrow as pa

    columns = {name: lists_of_vectors(rows) for name, rows in vectors.items()}
    columns |= {name: pa.array(values) for name, values in numbers.items()}
    # which is of the columns that are gone
    replaced = batch.select([ids]).replace_schema_metadata(None)
    for name, column in columns.items():
        replaced = replaced.append_column(name, column)
    return replaced


def map_streams(path: Path, files: Iterable[Path]) -> Any:
    """Return the rows of files of record batches, which are mapped into memory; `path` names what lists them."""
    import pyarrow.ipc

    tables = []
    for file in files:
        with read_errors(file), arrow_errors(file):
            table = pyarrow.ipc.open_stream(pyarrow.memory_map(str(file))).read_all()
            # offsets out of the file would be followed blindly later
            table.validate(full=True)
            tables.append(table)
    with arrow_errors(path):
        return pyarrow.concat_tables(tables)


class ArrowDocuments(DocumentSource):
    """Base of Parquet files and datasets; a subclass sets these fields and reads the rows.

    `_ids` is a column of texts, None where ids are row numbers.
    """

    _path: Path
    """The file or folder that errors name."""
    _columns: Columns
    _ids: Any

    @abstractmethod
    def _batches(self) -> Iterator[Any]:
        """Yield batches of all rows in order, with the columns that documents need."""

    def _described(self, layout: str, **facts: Any) -> DocumentsInfo:
        """Return what is known of the documents, of this layout, by their columns, and further `facts`."""
        columns = self._columns
        names = ", ".join(columns.vectors)
        note = f"{self._path.name} also holds vectors ({names}); a new store has them as they are, untranslated"
        return DocumentsInfo(
            layout,
            file=self._path,
            fields=f", text: {columns.text or 'none'}, ids: {columns.id or 'row numbers'}",
            no_texts="" if columns.text else f"{self._path}: no column holds the texts; name one of them text",
            notes=(note,) if names else (),
            **facts,
        )

    def _read(self, positions: NDArray[np.int64]) -> Iterator[dict[str, Any]]:
        """Yield the rows at ascending places."""

        def parts() -> Iterator[tuple[int, Any]]:
            first = 0
            for batch in self._batches():
                batch.validate(full=True)
                yield first, batch
                first += batch.num_rows

        with read_errors(self._path), arrow_errors(self._path):
            for _, batch in take_ascending(self._path, parts(), positions):
                yield from batch.to_pylist()

    def _ids_at(self, positions: NDArray[np.int64]) -> list[str]:
        if self._ids is None:
            ids = positions.tolist()
        else:
            ids = self._ids.take(positions).to_pylist()
        return list(map(str, ids))

    def _documents_at(self, positions: NDArray[np.int64]) -> Iterator[Document]:
        """Return documents; metadata are the other columns, without empty cells."""
        return map(self._document, positions.tolist(), rows_in_order(positions, self._read))

    def _document(self, position: int, row: dict[str, Any]) -> Document:
        columns = self._columns
        if columns.id is None:
            doc_id = position
        else:
            doc_id = row[columns.id]
        metadata = {name: row[name] for name in columns.others if row[name] is not None}
        return Document(str(doc_id), row[columns.text or ""] or "", metadata)


def check_ids(column: Any, path: Path) -> Any:
    """Return a column of ids as one of texts, which takes less memory than they do in Python."""
    import pyarrow
    import pyarrow.compute

    if column.null_count:
        raise malformed(path, f"{column.null_count} rows have no id", "give each row an id")
    # `large`, as the offsets of one `string` array end at 2 GiB of text.
    column = column.cast(pyarrow.large_string()).combine_chunks()
    if repetitions := len(column) - pyarrow.compute.count_distinct(column).as_py():
        raise malformed(path, f"ids are repeated ({repetitions} repetitions)", "give each row its own id")
    return column


class ParquetDocuments(ArrowDocuments):
    """Rows of the Parquet file beside an index, matched as `match_rows` says.

    Ids are in memory, texts are streamed. `kind` is that of the store in messages. Raises a StoreError where there are
    several files, or the one is malformed or not of this index.
    """

    def __init__(
        self,
        index: Path,
        rows: Numbering,
        named: Mapping[str, str],
        *,
        kind: str = "faiss",
    ) -> None:
        location = f"{kind}:{index}"
        files = sidecar_files(index, "*.parquet")
        if len(files) > 1:
            names = ", ".join(file.name for file in files[:3])
            raise StoreError(f"{index.parent}: has {len(files)} Parquet files ({names}); keep one")
        self._path = files[0]
        import_client("pyarrow", "parquet")
        with read_errors(self._path), arrow_errors(self._path), open_file(self._path) as opened:
            import pyarrow.parquet

            self._stamp = FileStamp.of(self._path, opened.fileno())
            parquet = pyarrow.parquet.ParquetFile(opened)
            check_count(self._path, rows.count, parquet.metadata.num_rows)
            columns = columns_beside_index(parquet.schema_arrow, self._path, named)
            self._columns = columns = columns if columns.id else _with_id(columns, parquet)
            table = parquet.read(columns=[name for name in (columns.id, columns.label) if name is not None])
            if columns.label is None:
                label = None
            else:
                label = table.column(columns.label)
            if label is None or label.null_count:
                faiss_ids = None
            else:
                faiss_ids = label.cast(pyarrow.int64()).to_numpy()
        if columns.id is None:
            self._ids = None
        else:
            self._ids = check_ids(table.column(columns.id), self._path)
        with arrow_errors(self._path):
            numbers = _numbers(self._ids)
        self.readings = match_rows(self._path, rows, numbers, faiss_ids)
        likeliest = next(iter(self.readings.values()))
        self.positions = likeliest.positions
        info = self._described(self._path.name, copied=(self._path,), matched=likeliest.by)
        self.info = replace(info, notes=(*info.notes, *self._remarks(location, rows.count)))

    def _remarks(self, location: str, count: int) -> Iterator[str]:
        """Say how columns are named where none was found for the ids, or the texts."""
        columns = self._columns
        if columns.id is None and columns.others:
            example = shlex.quote(f"{location}#?id={columns.others[0]}")
            yield f"ids are row numbers; another column is named as in {example}"
        if columns.text is None:
            first = list(self._read(np.arange(min(count, LOOKED_AT))))
            strings = [name for name in columns.others if any(isinstance(row[name], str) for row in first)]
            yield f"{NO_TEXTS}{without_texts(self._path, columns.others, location, longest_first(strings, first))}"

    def _batches(self) -> Iterator[Any]:
        import pyarrow.parquet

        with open_file(self._path) as opened:
            self._stamp.check(opened.fileno())
            parquet = pyarrow.parquet.ParquetFile(opened)
            yield from parquet.iter_batches(ROWS_PER_BATCH, columns=self._columns.documents)


def _with_id(columns: Columns, parquet: Any) -> Columns:
    """Return the columns with the first as ids that has a name as of ids and another text or integer in each row."""
    import pyarrow.compute

    for name in columns.others:
        kind = str(parquet.schema_arrow.field(name).type)
        if not (is_id_name(name) and kind.startswith(("string", "large_string", "int", "uint"))):
            continue
        column = parquet.read(columns=[name]).column(name)
        if not column.null_count and pyarrow.compute.count_distinct(column).as_py() == len(column):
            return replace(columns, id=name, others=tuple(name_of for name_of in columns.others if name_of != name))
    return columns


def _numbers(column: Any) -> IdNumbers:
    """Return the numbers that a column of ids holds; without one, ids are numbers of rows."""
    numbers = IdNumbers()
    count = 0 if column is None else len(column)
    for first in range(0, count, _ROWS_IN_MEMORY):
        for doc_id in column.slice(first, _ROWS_IN_MEMORY).to_pylist():
            numbers.add(doc_id)
    return numbers
