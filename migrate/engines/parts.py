"""Parts of a Parquet store, and the function by which a process of an engine translates one."""

from __future__ import annotations

import hashlib
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
from migrate.errors import LeadMigrateError, RemoteError, UsageError
from migrate.stores.parquet.files import SUFFIX, LocalFiles, ParquetFile, RemoteFiles
from migrate.stores.parquet.store import ParquetStore

ID: Final = "id"
VECTOR: Final = "vector"
TEXT: Final = "text"
PART_BYTES: Final = 64 << 20
"""Bytes of old or new vectors from which on row groups are a part of their own."""


@dataclass(frozen=True, slots=True)
class Part:
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


def parts_of(store: ParquetStore, rows: int, row_bytes: int) -> list[Part]:
    """Return the parts of a store: row groups of a file that follow each other.

    They begin and end with batches of `rows` documents, counted from the beginning of each file as `translate` counts
    them, since products of other batches differ in the last digits.
    """
    parts: list[Part] = []
    first_row = 0
    for shard, counts in zip(store.shards, store.group_rows, strict=True):
        # other processes are in folders of their own
        file = replace(shard, path=str(Path(shard.path).absolute())) if store.files.path is not None else shard
        ends = list(accumulate(counts))
        start = 0
        for end in ends:
            stop = min(-(-end // rows) * rows, ends[-1])
            is_large = (stop - start) * row_bytes >= PART_BYTES
            if stop == start or not (is_large or end == ends[-1]):
                continue
            groups = [number for number, count in enumerate(counts) if start < ends[number] < stop + count]
            groups_start = ends[groups[0]] - counts[groups[0]]
            parts.append(Part(len(parts), file, first_row, start, stop, tuple(groups), groups_start))
            start = stop
        first_row += sum(counts)
    return parts


@dataclass(frozen=True)
class PartFunction:
    """Translates a part of the files of a store, and puts a file with its vectors to `made`; can be pickled.

    `columns` are those of the store that are read, by what the batch function calls them.
    """

    function: BatchFunction
    files: LocalFiles | RemoteFiles
    columns: dict[str, str]
    made: RemoteFiles
    version: str = __version__

    def __call__(self, part: Part) -> str:
        """Return the name of the file, or the error, as JSON: each engine wraps errors that are raised in its own."""
        host = platform.node()
        try:
            if self.version != __version__:
                raise UsageError(
                    f"the worker on {host} has lead-migrate {__version__}, and this is {self.version}; install one "
                    "version on all machines"
                )
            return json.dumps({"file": self._make(part)})
        except LeadMigrateError as error:
            return json.dumps({"error": type(error).__name__, "message": str(error)})
        except OSError as error:
            message = f"the worker on {host} cannot go on: {error}; have it see the same files as this machine"
            return json.dumps({"error": RemoteError.__name__, "message": message})

    def _make(self, part: Part) -> str:
        import pyarrow.parquet

        folder = self.made.path
        if folder is not None and not folder.is_dir():
            raise UsageError(
                f"{folder}: the worker on {platform.node()} sees no such folder; let all machines share it, or write "
                "to object storage"
            )
        with tempfile.NamedTemporaryFile(prefix=".part-", dir=folder, delete=False) as file:
            path = Path(file.name)
        try:
            writer: Any = None
            for batch in self._batches(part):
                translated = self.function(batch)
                if writer is None:
                    writer = pyarrow.parquet.ParquetWriter(path, translated.schema)
                writer.write_table(translated)
            writer.close()
            with path.open("rb") as content:
                sha256 = hashlib.file_digest(content, "sha256").hexdigest()
            name = f"{part.name}-{sha256}{SUFFIX}"
            if folder is None:
                self.made.put(path, name)
            else:
                path.chmod(0o644)
                path.rename(folder / name)
            return name
        finally:
            path.unlink(missing_ok=True)

    def _batches(self, part: Part) -> Iterator[Any]:
        """Yield the documents of a part, as many at once as `translate` takes."""
        import pyarrow as pa

        rows = self.function.rows
        waiting = []
        count = 0
        for table in self._tables(part):
            waiting.append(table)
            count += len(table)
            while count >= rows:
                together = pa.concat_tables(waiting)
                yield together.slice(0, rows)
                waiting = [together.slice(rows)]
                count -= rows
        if count:
            yield pa.concat_tables(waiting)

    def _tables(self, part: Part) -> Iterator[Any]:
        """Yield the documents of a part as they are read."""
        import pyarrow as pa
        import pyarrow.parquet

        names = list(self.columns.values())
        with self.files.opened(part.file) as file:
            # read as a stream: a row group may be larger than the memory
            parquet = pyarrow.parquet.ParquetFile(file, buffer_size=1 << 20, pre_buffer=False)
            row = part.groups_start
            for batch in parquet.iter_batches(self.function.rows, list(part.groups), columns=names):
                low = max(part.start - row, 0)
                high = min(part.stop - row, batch.num_rows)
                if low < high:
                    inside = batch.slice(low, high - low)
                    columns = {name: inside.column(column) for name, column in self.columns.items()}
                    if ID not in columns:  # ids are the numbers of the rows
                        first = part.first_row + row + low
                        columns[ID] = pa.array([str(number) for number in range(first, first + len(inside))])
                    yield pa.table(columns)
                row += batch.num_rows
                if row >= part.stop:
                    return


def file_of(answer: str) -> str:
    """Return the name of the file that a process has made; raises the error that it met."""
    content = json.loads(answer)
    if "file" in content:
        return str(content["file"])
    raise getattr(errors, content["error"])(content["message"])


def made_of(names: Iterable[str], parts: Sequence[Part]) -> dict[int, list[str]]:
    """Return the names of finished files by the number of their part; a part that was tried twice may have two."""
    by_name = {part.name: part.number for part in parts}
    made: dict[int, list[str]] = {}
    for name in sorted(names):
        part_name, _, sha256 = name.removesuffix(SUFFIX).rpartition("-")
        if name.endswith(SUFFIX) and len(sha256) == 64 and part_name in by_name:
            made.setdefault(by_name[part_name], []).append(name)
    return made
