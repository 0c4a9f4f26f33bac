"""Parts of a Parquet store, and the function by which a process of an engine translates one."""

from __future__ import annotations

import json
import platform
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

from migrate import __version__, errors
from migrate.batch import BatchFunction
from migrate.digests import digits_of, hash_file
from migrate.errors import LeadMigrateError, RemoteError, UsageError
from migrate.files import let_others_read
from migrate.stores.parquet.files import SUFFIX, LocalFiles, ParquetFile, RemoteFiles
from migrate.stores.parquet.store import ParquetStore

ID: Final = "id"
VECTOR: Final = "vector"
TEXT: Final = "text"
RANGE_BYTES: Final = 64 << 20
"""Bytes of old or new vectors from which on row groups are a part of their own."""


@dataclass(frozen=True, slots=True)
class RowRange:
    """Rows `start` to `stop`, not included, of a file, and the row groups that they lie in.

    `groups_start` is the first row of the first of these groups, `first_row` that of the file in the store.
    """

    number: int
    file: ParquetFile
    first_row: int
    start: int
    stop: int
    groups: tuple[int, ...]
    groups_start: int

    def __len__(self) -> int:
        return self.stop - self.start

    @property
    def name(self) -> str:
        """The beginning of the name of its file."""
        return f"part-{self.number:06d}"


def row_ranges_of(store: ParquetStore, rows: int, row_bytes: int) -> list[RowRange]:
    """Return the parts of a store: row groups of a file that follow each other.

    They begin and end with batches of `rows` documents, counted from the beginning of each file as `translate` counts
    them, since products of other batches differ in the last digits.
    """
    row_ranges: list[RowRange] = []
    first_row = 0
    for shard, counts in zip(store.shards, store.table.group_rows, strict=True):
        # other processes are in folders of their own
        file = replace(shard, path=str(Path(shard.path).absolute())) if store.files.path is not None else shard
        ends = list(accumulate(counts))
        start = 0
        for end in ends:
            stop = min(-(-end // rows) * rows, ends[-1])
            is_large = (stop - start) * row_bytes >= RANGE_BYTES
            if stop == start or not (is_large or end == ends[-1]):
                continue
            groups = [number for number, count in enumerate(counts) if start < ends[number] < stop + count]
            groups_start = ends[groups[0]] - counts[groups[0]]
            row_ranges.append(RowRange(len(row_ranges), file, first_row, start, stop, tuple(groups), groups_start))
            start = stop
        first_row += sum(counts)
    return row_ranges


@dataclass(frozen=True)
class RangeFunction:
    """Translates a part of the files of a store, and puts a file with its vectors into `folder`; can be pickled.

    `columns` are those of the store that are read, by what the batch function calls them.
    """

    function: BatchFunction
    files: LocalFiles | RemoteFiles
    columns: dict[str, str]
    folder: RemoteFiles
    version: str = __version__

    def __call__(self, row_range: RowRange) -> str:
        """Return the name of the file, or the error, as JSON: each engine wraps errors that are raised in its own."""
        host = platform.node()
        try:
            if self.version != __version__:
                raise UsageError(
                    f"the worker on {host} has lead-migrate {__version__}, and this is {self.version}; install one "
                    "version on all machines"
                )
            return json.dumps({"file": self._make(row_range)})
        except LeadMigrateError as error:
            return json.dumps({"error": type(error).__name__, "message": str(error)})
        except OSError as error:
            message = f"the worker on {host} cannot go on: {error}; have it see the same files as this machine"
            return json.dumps({"error": RemoteError.__name__, "message": message})

    def _make(self, row_range: RowRange) -> str:
        import pyarrow.parquet

        folder = self.folder.path
        if folder is not None and not folder.is_dir():
            raise UsageError(
                f"{folder}: the worker on {platform.node()} sees no such folder; let all machines share it, or write "
                "to object storage"
            )
        with tempfile.NamedTemporaryFile(prefix=".part-", dir=folder, delete=False) as file:
            path = Path(file.name)
        try:
            writer: Any = None
            for batch in self._batches(row_range):
                translated = self.function(batch)
                if writer is None:
                    writer = pyarrow.parquet.ParquetWriter(path, translated.schema)
                writer.write_table(translated)
            # Before the hash: the footer is written by it.
            writer.close()
            name = f"{row_range.name}-{digits_of(hash_file(path))}{SUFFIX}"
            if folder is None:
                self.folder.put(path, name)
            else:
                let_others_read(path)
                # Last: whatever has such a name counts as finished.
                path.rename(folder / name)
            return name
        finally:
            path.unlink(missing_ok=True)

    def _batches(self, row_range: RowRange) -> Iterator[Any]:
        """Yield the documents of a part, as many at once as `translate` takes."""
        import pyarrow as pa

        rows = self.function.rows
        waiting = []
        count = 0
        for table in self._tables(row_range):
            waiting.append(table)
            count += len(table)
            while count >= rows:
                together = pa.concat_tables(waiting)
                yield together.slice(0, rows)
                waiting = [together.slice(rows)]
                count -= rows
        if count:
            yield pa.concat_tables(waiting)

    def _tables(self, row_range: RowRange) -> Iterator[Any]:
        """Yield the documents of a part as they are read."""
        import pyarrow as pa
        import pyarrow.parquet

        names = list(self.columns.values())
        with self.files.opened(row_range.file) as file:
            # read as a stream: a row group may be larger than the memory
            parquet = pyarrow.parquet.ParquetFile(file, buffer_size=1 << 20, pre_buffer=False)
            row = row_range.groups_start
            for batch in parquet.iter_batches(self.function.rows, list(row_range.groups), columns=names):
                low = max(row_range.start - row, 0)
                high = min(row_range.stop - row, batch.num_rows)
                if low < high:
                    inside = batch.slice(low, high - low)
                    columns = {name: inside.column(column) for name, column in self.columns.items()}
                    if ID not in columns:  # ids are the numbers of the rows
                        first = row_range.first_row + row + low
                        columns[ID] = pa.array([str(number) for number in range(first, first + len(inside))])
                    yield pa.table(columns)
                row += batch.num_rows
                if row >= row_range.stop:
                    return


def file_of(result: str) -> str:
    """Return the name of the file that a process has made; raises the error that it met."""
    content = json.loads(result)
    if "file" in content:
        return str(content["file"])
    raise getattr(errors, content["error"])(content["message"])


def files_by_number(names: Iterable[str], row_ranges: Sequence[RowRange]) -> dict[int, list[str]]:
    """Return the names of finished files by the number of their part; a part that was tried twice may have two."""
    by_name = {row_range.name: row_range.number for row_range in row_ranges}
    files: dict[int, list[str]] = {}
    for name in sorted(names):
        part_name, _, digits = name.removesuffix(SUFFIX).rpartition("-")
        if name.endswith(SUFFIX) and len(digits) == 64 and part_name in by_name:
            files.setdefault(by_name[part_name], []).append(name)
    return files
