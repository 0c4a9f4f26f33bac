"""The columns and row groups of files of Parquet, read as one table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from migrate.errors import StoreError
from migrate.stores.base import BATCH_SIZE
from migrate.stores.documents.arrow import arrow_errors, take_ascending
from migrate.stores.parquet.files import LocalFiles, ParquetFile, RemoteFiles
from migrate.vectors import Vectors


class ParquetTable:
    """Files of Parquet as one table: rows are those of the files, in the order of their names.

    `schemas`, `group_rows`, the rows of each row group, and `file_rows` are by file; `count` is that of all rows.
    Raises a StoreError where a file is malformed or unlike the others.
    """

    def __init__(self, files: LocalFiles | RemoteFiles, shards: Sequence[ParquetFile]) -> None:
        self.files = files
        self.shards = shards
        self._cursors: dict[str, tuple[int, list[tuple[int, Any]], Iterator[tuple[int, Any]]]] = {}
        self.schemas: list[Any] = []
        self.group_rows: list[list[int]] = []
        self.file_rows: list[int] = []
        self._groups: list[tuple[int, int]] = []  # numbers of file and group
        sizes: list[int] = []
        for number, shard in enumerate(self.shards):
            with self._opened(shard) as parquet:
                group_rows = [parquet.metadata.row_group(group).num_rows for group in range(parquet.num_row_groups)]
                schema = parquet.schema_arrow
            self.schemas.append(schema)
            self.group_rows.append(group_rows)
            if not schema.equals(self.schemas[0]):
                first, current = ({field.name: str(field) for field in fields} for fields in (self.schemas[0], schema))
                differ = [name for name in {**first, **current} if first.get(name) != current.get(name)]
                which = "another order of columns"
                if differ:
                    which = f"{differ[0]} ({current.get(differ[0], 'lacking')})"
                raise StoreError(
                    f"{self.files.location}: {shard.name} has other columns than {self.shards[0].name}: {which}; write "
                    "them with one schema"
                )
            self._groups += [(number, group) for group in range(len(group_rows))]
            self.file_rows.append(sum(group_rows))
            sizes += group_rows
        self._starts = np.cumsum([0, *sizes])  # first rows of the groups
        self.count = int(self._starts[-1])

    def numbers(self, column: str) -> Vectors:
        """Return a column of numbers, (count,), float32; an empty cell is NaN. A StoreError where there is none."""
        import pyarrow as pa

        if column not in self.schemas[0].names:
            field = None
        else:
            field = self.schemas[0].field(column)
        if field is None or not (pa.types.is_floating(field.type) or pa.types.is_integer(field.type)):
            raise StoreError(f"{self.files.location}: no column {column!r} holds numbers; write the files with one")
        values = np.empty(self.count, np.float32)
        for first, batch in self.slices(column, 0, self.count, BATCH_SIZE):
            values[first : first + batch.num_rows] = batch.column(column).to_numpy(zero_copy_only=False)
        return values

    def whole(self, shard: ParquetFile, rows: int, *, but: str | None = None) -> Iterator[Any]:
        """Yield all columns of a file, some rows at a time; one may be left out if there are others."""
        with self._opened(shard) as parquet:
            names = [name for name in parquet.schema_arrow.names if name != but] or None
            for batch in parquet.iter_batches(rows, columns=names):
                batch.validate(full=True)
                yield batch

    def take(self, rows: NDArray[np.int64], columns: list[str], at_once: int) -> Iterator[tuple[int, Any]]:
        """Yield the rows, which ascend, in batches, each with the place of its first among `rows`."""
        groups = np.unique(np.searchsorted(self._starts, rows, side="right") - 1)
        return take_ascending(self.files.location, self.parts(columns, at_once, groups.tolist()), rows)

    def slices(self, column: str, start: int, stop: int, at_once: int) -> Iterator[tuple[int, Any]]:
        """Yield rows `start` to `stop` of a column, part by part, each with its first row."""
        if start >= stop:
            return
        row, pending, batches = self._cursors.pop(column, (-1, [], iter(())))
        if row != start:
            group = int(np.searchsorted(self._starts, start, side="right")) - 1
            pending = []
            batches = self.parts([column], at_once, range(group, len(self._groups)))
        for first, batch in chain(pending, batches):
            low = max(start - first, 0)
            high = min(stop - first, batch.num_rows)
            if first + high == stop:
                # the next call goes on where this one ends: a row group can only be read from its beginning
                self._cursors[column] = stop, [(stop, batch.slice(high))], batches
            if high > low:
                yield first + low, batch.slice(low, high - low)
            if first + high == stop:
                return

    def parts(self, columns: list[str], at_once: int, groups: Iterable[int] | None = None) -> Iterator[tuple[int, Any]]:
        """Yield columns of some row groups, or of all, in bounded parts, each with its first row."""
        if groups is None:
            groups = range(len(self._groups))
        for number, groups_of_file in groupby(groups, key=lambda group: self._groups[group][0]):
            with self._opened(self.shards[number]) as parquet:
                for group in groups_of_file:
                    first = int(self._starts[group])
                    for batch in parquet.iter_batches(at_once, [self._groups[group][1]], columns=columns):
                        batch.validate(full=True)
                        yield first, batch
                        first += batch.num_rows
                    # The footer of a damaged file may announce more: rows are numbered by it, so all after them would
                    # be others.
                    if first != self._starts[group + 1]:
                        raise ValueError("a row group has fewer rows than it announces")

    @contextmanager
    def _opened(self, shard: ParquetFile) -> Iterator[Any]:
        """Open a file; what pyarrow raises inside is a StoreError that names it."""
        import pyarrow.parquet

        if self.files.is_folder:
            location = f"{self.files.location}/{shard.name}"
        else:
            location = self.files.location
        with self.files.opened(shard) as file, arrow_errors(location):
            # read as a stream: a row group may be larger than the memory
            yield pyarrow.parquet.ParquetFile(file, buffer_size=1 << 20, pre_buffer=False)
