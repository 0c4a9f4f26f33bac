"""Reads files of Parquet as a store, wherever they lie.

Rows are those of the files, in the order of their names. All columns but the vectors go into a new store as Arrow has
them, with types, nulls, order and the schema's metadata, file by file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain, groupby
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from migrate.errors import StoreError, UsageError
from migrate.files import cache_folder, canonical_json
from migrate.manifest import Manifest, find_manifest
from migrate.stores.base import (
    BATCH_SIZE,
    Store,
    StoreInfo,
)
from migrate.stores.binary_reader import malformed
from migrate.stores.documents.arrow import rows_in_order
from migrate.stores.documents.base import LazyIds
from migrate.stores.parquet.columns import choose_columns, own_options, to_document
from migrate.stores.parquet.files import (
    LocalFiles,
    ParquetFile,
    RemoteFiles,
    local_path,
)
from migrate.stores.records import Distance, read_metric
from migrate.vectors import Batch, Document, Vectors

NAME: Final = "parquet"
_DISTANCES: Final[Mapping[str, Distance]] = {"l2": "l2", "cosine": "cosine", "dot": "ip", "ip": "ip"}
_FLOAT_BYTES: Final = 4
_PART_BYTES: Final = 16 << 20
_BUFFER_BYTES: Final = 1 << 20
_DOCUMENTS_AT_ONCE: Final = 1_024
_SAMPLE: Final = 64


class ParquetStore(Store):
    """Files of rows, wherever they lie.

    Parameters
    ----------
    location
        What opens it again.
    files
        Where the files are.
    options
        Which columns are vector, id, text and metadata; the distance.

    Raises
    ------
    StoreError
        A file is malformed, or unlike the others; a column is not there or not the only choice; two ids are the same.
    """

    def __init__(self, location: str, files: LocalFiles | RemoteFiles, options: Mapping[str, str]) -> None:
        self.files = files
        self.shards = files.find()
        self._texts: str | None = None
        self._cursors: dict[tuple[str, ...], dict[int, Iterator[tuple[int, Any]]]] = {}
        self._read_footers()
        self.asked = {**own_options(self.schema), **options}
        self.columns = choose_columns(files.location, self.schema, self.asked)
        self.dim = self._dimension()
        self._check_ids()
        distance = self.asked.get("distance")
        if distance is not None and distance not in _DISTANCES:
            raise UsageError(f"{files.location}: expected distance l2, cosine or dot, found {distance!r}")
        sample = next(self._vectors(0, min(_SAMPLE, self.count)), np.empty((0, self.dim), np.float32))
        metric, remarks = read_metric(None if distance is None else _DISTANCES[distance], sample)
        manifest, notes = self._find_manifest()
        self.info = StoreInfo(
            location,
            NAME,
            f"column of {self.columns.element}",
            self.count,
            self.dim,
            metric,
            True,
            self.columns.text is not None,
            manifest,
            (*remarks, *self.columns.notes, *notes),
            {
                "files": len(self.shards),
                "bytes": sum(file.size for file in self.shards),
                "row groups": len(self._groups),
                **self.columns.chosen,
            },
        )

    def _find_manifest(self) -> tuple[Manifest | None, tuple[str, ...]]:
        """The manifest that is of these files, and what is to be said of it."""
        manifest = None if self.folder is None else find_manifest(self.folder, "store")
        return manifest, ()

    def scan(self, start: int = 0, stop: int | None = None, *, batch_size: int = BATCH_SIZE) -> Iterator[Batch]:
        """The vectors of rows `start` to `stop` with their ids; valid until the next batch is asked for."""
        stop = self.count if stop is None else min(stop, self.count)
        if start >= stop:
            return
        buffer = np.empty((min(batch_size, stop - start), self.dim), np.float32)
        first, filled = start, 0
        for vectors in self._vectors(start, stop):
            unwritten = vectors
            while len(unwritten):
                size = min(batch_size, stop - first)
                taken = min(len(unwritten), size - filled)
                buffer[filled : filled + taken] = unwritten[:taken]
                unwritten, filled = unwritten[taken:], filled + taken
                if filled == size:
                    rows = range(first, first + size)
                    yield Batch(LazyIds(size, partial(self.ids, rows)), buffer[:size])
                    first, filled = first + size, 0

    def get(self, rows: NDArray[np.int64]) -> Batch:
        """The vectors and ids of some rows."""
        rows = self._checked(rows)
        vectors = np.empty((rows.size, self.dim), np.float32)
        order = np.argsort(rows, kind="stable")
        ascending = rows[order]
        for first, batch in self._holding(ascending, [self.columns.vector], self._part_rows):
            low, high = np.searchsorted(ascending, (first, first + batch.num_rows))
            if high > low:
                part = self._matrix(batch.column(self.columns.vector), first)
                vectors[order[low:high]] = part[ascending[low:high] - first]
        return Batch(self.ids(rows), vectors)

    def documents(self, rows: NDArray[np.int64] | None = None) -> Iterator[Document]:
        """The documents of some rows, or of all."""
        if not self.info.has_texts:
            raise StoreError(f"{self.files.location}: no column holds the texts; say #?text=COLUMN, if one does")
        rows = np.arange(self.count) if rows is None else self._checked(rows)
        found = rows_in_order(rows, partial(self._records, self.columns.documents))
        return (
            to_document(self.files.location, row, fields, self.columns)
            for row, fields in zip(rows.tolist(), found, strict=True)
        )

    def ids(self, rows: range | NDArray[np.int64]) -> list[str]:
        """The ids of some rows."""
        column = self.columns.id
        if column is None:
            return [str(row) for row in (rows if isinstance(rows, range) else rows.tolist())]
        if isinstance(rows, range):
            parts = self._slices((column,), rows.start, rows.stop, BATCH_SIZE)
            return [str(value) for _, batch in parts for value in batch.column(column).to_pylist()]
        return [str(fields[column]) for fields in rows_in_order(rows, partial(self._records, [column]))]

    def whole(self, shard: ParquetFile, rows: int) -> Iterator[Any]:
        """All columns of a file, some rows at a time."""
        with self._opened(shard) as parquet, self._answers(shard):
            for batch in parquet.iter_batches(rows):
                batch.validate(full=True)
                yield batch

    def rows_of(self, shard: ParquetFile) -> int:
        """How many rows a file has."""
        number = self.shards.index(shard)
        own = [place for place, (of, _) in enumerate(self._groups) if of == number]
        return int(self._starts[own[-1] + 1] - self._starts[own[0]]) if own else 0

    def schema_of(self, shard: ParquetFile) -> Any:
        """The columns of a file, with its own metadata."""
        with self._opened(shard) as parquet, self._answers(shard):
            return parquet.schema_arrow

    def _versions(self) -> tuple[Any, ...]:
        return tuple(shard.version for shard in self.shards)

    def _texts_sha256(self) -> str:
        """Of the texts, and not of the files they are in; read once, as files that change are refused."""
        if self._texts is None:
            self._texts = Store._texts_sha256(self)
        return self._texts

    @property
    def _part_rows(self) -> int:
        return max(_PART_BYTES // (_FLOAT_BYTES * self.dim), 1)

    def _read_footers(self) -> None:
        """Columns and row groups; `_starts` are the first rows of all groups, `_groups` which file each is of."""
        self._groups: list[tuple[int, int]] = []
        sizes: list[int] = []
        for number, shard in enumerate(self.shards):
            with self._opened(shard) as parquet, self._answers(shard):
                schema, footer = parquet.schema_arrow, parquet.metadata
                own = [footer.row_group(group).num_rows for group in range(parquet.num_row_groups)]
            if number == 0:
                self.schema = schema
            elif not schema.equals(self.schema):
                raise StoreError(_unlike(self.files.location, shard.name, self.shards[0].name, schema, self.schema))
            self._groups += [(number, group) for group in range(len(own))]
            sizes += own
        self._starts = np.cumsum([0, *sizes])
        self.count = int(self._starts[-1])

    def _dimension(self) -> int:
        import pyarrow as pa

        kind = self.schema.field(self.columns.vector).type
        if pa.types.is_fixed_size_list(kind):
            return int(kind.list_size)
        if not self.count:
            raise StoreError(
                f"{self.files.location}: expected vectors in column {self.columns.vector}, found no rows; write the "
                "documents again"
            )
        _, batch = next(self._parts([self._group_of(0)], [self.columns.vector], 1))
        first = batch.column(self.columns.vector)
        if first.null_count or not len(first[0]):
            raise self._bad_row(0, "of numbers")
        return len(first[0])

    def _check_ids(self) -> None:
        """Refuse an id that two rows share; ids are read for it when the files are first opened as they are."""
        column = self.columns.id
        if column is None:
            return
        place = str(local_path(self.files.location).absolute()) if self.folder else self.files.location
        digest = hashlib.sha256(canonical_json([place, column, self._versions()]).encode()).hexdigest()
        checked = cache_folder() / "ids" / f"{digest}.checked"
        if checked.exists():
            return
        # Eight bytes a row: the ids themselves may not fit into memory. Equal hashes are only a suspicion.
        hashes = np.sort(np.fromiter(map(hash, self._stream_ids()), np.int64, self.count))
        suspects = {*hashes[1:][hashes[1:] == hashes[:-1]].tolist()}
        seen: set[str] = set()
        for doc_id in self._stream_ids() if suspects else ():
            if hash(doc_id) in suspects and doc_id in seen:
                raise StoreError(
                    f"{self.files.location}: duplicate id {doc_id!r} in column {column}; remove one of the rows, or "
                    "say #?id=COLUMN for another column"
                )
            if hash(doc_id) in suspects:
                seen.add(doc_id)
        with suppress(OSError):  # without a cache they are read again the next time
            checked.parent.mkdir(parents=True, exist_ok=True)
            checked.touch()

    def _stream_ids(self) -> Iterator[str]:
        for first, batch in self._parts(range(len(self._groups)), [str(self.columns.id)], BATCH_SIZE):
            column = batch.column(str(self.columns.id))
            if column.null_count:
                row = first + int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
                raise StoreError(
                    f"{self.files.location}: expected an id in each row of column {self.columns.id}, found none in row "
                    f"{row}; say #?id=COLUMN for another"
                )
            yield from map(str, column.to_pylist())

    def _checked(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        rows = np.asarray(rows, np.int64)
        if rows.size and not 0 <= rows.min() <= rows.max() < self.count:
            raise IndexError(f"rows {rows.min()} to {rows.max()} asked for, 0 to {self.count - 1} are there")
        return rows

    def _group_of(self, row: int) -> int:
        return int(np.searchsorted(self._starts, row, side="right")) - 1

    def _vectors(self, start: int, stop: int) -> Iterator[Vectors]:
        for first, batch in self._slices((self.columns.vector,), start, stop, self._part_rows):
            yield self._matrix(batch.column(self.columns.vector), first)

    def _records(self, columns: Sequence[str], rows: NDArray[np.int64]) -> Iterator[dict[str, Any]]:
        """The rows, which ascend, as values of Python."""
        import pyarrow as pa

        for first, batch in self._holding(rows, columns, _DOCUMENTS_AT_ONCE):
            low, high = np.searchsorted(rows, (first, first + batch.num_rows))
            if high > low:
                with self._answers(None):
                    found = batch.take(pa.array(rows[low:high] - first)).to_pylist()
                yield from found

    def _holding(self, rows: NDArray[np.int64], columns: Sequence[str], at_once: int) -> Iterator[tuple[int, Any]]:
        """Parts of all row groups that have one of the rows, which ascend, up to the last row."""
        groups = np.unique(np.searchsorted(self._starts, rows, side="right") - 1)
        for first, batch in self._parts(groups.tolist(), columns, at_once):
            yield first, batch
            if first + batch.num_rows > rows[-1]:
                return

    def _slices(self, columns: tuple[str, ...], start: int, stop: int, at_once: int) -> Iterator[tuple[int, Any]]:
        """Rows `start` to `stop`, part by part, each with its first row.

        Where the last call ended, the next one goes on: a row group can only be read from its beginning.
        """
        if start >= stop:
            return
        waiting = self._cursors.setdefault(columns, {})
        parts = waiting.pop(start, None)
        if parts is None:
            parts = self._parts(range(self._group_of(start), len(self._groups)), columns, at_once)
        for first, batch in parts:
            low, high = max(start - first, 0), min(stop - first, batch.num_rows)
            if high < batch.num_rows:
                parts = chain([(first + high, batch.slice(high))], parts)
            if first + high == stop:
                waiting.clear()
                waiting[stop] = parts
            if high > low:
                yield first + low, batch.slice(low, high - low)
            if first + high == stop:
                return

    def _parts(self, groups: Iterable[int], columns: Sequence[str], at_once: int) -> Iterator[tuple[int, Any]]:
        """Columns of some row groups, in bounded parts, each with its first row."""
        for number, own in groupby(groups, key=lambda group: self._groups[group][0]):
            shard = self.shards[number]
            with self._opened(shard) as parquet, self._answers(shard):
                for group in own:
                    place = int(self._starts[group])
                    for batch in parquet.iter_batches(at_once, [self._groups[group][1]], columns=[*columns]):
                        batch.validate(full=True)
                        yield place, batch
                        place += batch.num_rows

    def _matrix(self, column: Any, first: int) -> Vectors:
        """Rows of float32; the first of them is row `first`."""
        import pyarrow.compute

        lengths = pyarrow.compute.list_value_length(column).to_numpy(zero_copy_only=False)
        bad = np.flatnonzero(lengths != self.dim)
        if bad.size:  # an empty cell has no length, which is another one too
            raise self._bad_row(first + int(bad[0]), f"of {self.dim} numbers")
        values = column.flatten()
        if values.null_count:
            row = int(np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))[0]) // self.dim
            raise self._bad_row(first + row, f"of {self.dim} numbers")
        numbers = values.to_numpy(zero_copy_only=False).reshape(-1, self.dim)
        with np.errstate(over="ignore", invalid="ignore"):  # what is too large becomes infinite, and is refused as that
            return np.ascontiguousarray(numbers, np.float32)

    def _bad_row(self, row: int, length: str) -> StoreError:
        return StoreError(
            f"{self.files.location}: expected a vector {length} in each row of column {self.columns.vector}, found "
            f"none in row {row}; remove the row"
        )

    @contextmanager
    def _opened(self, shard: ParquetFile) -> Iterator[Any]:
        import pyarrow.parquet

        with self.files.opened(shard) as file:
            with self._answers(shard):
                # read as a stream: a row group may be larger than the memory
                parquet = pyarrow.parquet.ParquetFile(file, buffer_size=_BUFFER_BYTES, pre_buffer=False)
            yield parquet

    @contextmanager
    def _answers(self, shard: ParquetFile | None) -> Iterator[None]:
        """Turn what pyarrow raises inside into a StoreError; what the operating system refuses passes."""
        import pyarrow as pa

        try:
            yield
        except OSError as error:
            # pyarrow also says with an OSError that content is malformed; only the system's own have a number
            if error.errno is not None:
                raise
            raise self._unreadable(shard, error) from error
        except (pa.ArrowException, ValueError, KeyError, MemoryError) as error:
            raise self._unreadable(shard, error) from error

    def _unreadable(self, shard: ParquetFile | None, error: BaseException) -> StoreError:
        place = Path(shard.path) if shard and isinstance(self.files, LocalFiles) else self._name(shard)
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        return malformed(place, "a readable Arrow or Parquet file", f"another ({reason})")

    def _name(self, shard: ParquetFile | None) -> Any:
        place = self.files.location
        return f"{place}/{shard.name}" if shard and self.files.is_folder else place


def _unlike(location: str, name: str, first: str, schema: Any, expected: Any) -> str:
    """Which column of a file is not as in the first one."""
    columns_here, theirs = ({field.name: str(field) for field in each_schema} for each_schema in (schema, expected))
    differ = [column for column in {**theirs, **columns_here} if columns_here.get(column) != theirs.get(column)]
    what = f"{differ[0]} ({columns_here.get(differ[0], 'lacking')})" if differ else "another order of columns"
    return (
        f"{location}: expected the same columns in all files, found in {name} other ones than in {first}: {what}; "
        "write them with one schema"
    )
