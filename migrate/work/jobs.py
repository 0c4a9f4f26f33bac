"""Jobs that write a store from shards, and work on one of them: what is finished, and how the rest is made.

A shard is a pure function of its rows and of locations: the same bytes in any process, in any order, and again if need
be.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from migrate.errors import StoreError, UsageError
from migrate.files import beside, canonical_json, hidden_sibling, require_room
from migrate.version import __version__
from migrate.work.rows import Rows
from migrate.work.shards import VECTORS, Block, Shard, ShardFolder, shards_of, write_values
from migrate.work.writer import Arrays, Facts, StoreWriter, make_shard

START_OVER: Final = "to discard the unfinished work and start over, add `restart=True`"


@dataclass(frozen=True, slots=True)
class Configuration:
    """The `source` that is read and the `options` of the work on it, of what JSON can hold.

    `audit` are the further inputs of a run's audit: the same unfinished work goes on with others.
    """

    command: str
    source: Facts = field(default_factory=dict)
    options: Facts = field(default_factory=dict)
    audit: Facts = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return it as the state of unfinished work has it."""
        # The tool too: another version may make other bytes of the same rows, and an output is to be of one piece.
        content = {"command": self.command, "source": self.source, "options": {**self.options, "tool": __version__}}
        # As it will be read from the file, where tuples are lists: it is compared with that.
        read_back: dict[str, Any] = json.loads(canonical_json(content))
        return read_back

    def check(self, begun: Facts, output: object) -> None:
        """Refuse unfinished work of another command, source (StoreError) or options (UsageError)."""
        now = self.as_json()
        if begun["command"] != now["command"]:
            raise UsageError(
                f"{output}: the unfinished work there is of {begun['command']}, not of {now['command']}; {START_OVER}"
            )
        if begun["source"] != now["source"]:
            raise StoreError(
                f"{output}: the unfinished work there was begun with another source, or it changed since; {START_OVER}"
            )
        if differing := changed_names(begun["options"], now["options"]):
            raise UsageError(
                f"{output}: the unfinished work there was begun with other values of {', '.join(differing)}; "
                f"{START_OVER}"
            )


def changed_names(earlier: Facts, now: Facts) -> list[str]:
    """Return the names of the facts that differ."""
    return sorted(name for name in earlier.keys() | now.keys() if earlier.get(name) != now.get(name))


OpenShards = Callable[[], Callable[[Shard], tuple[Arrays, Facts]]]
"""Opens what a job reads and writes, and returns the function that makes the content of a shard's file; picklable."""


class Work:
    """An output in the making, by a job; `path` is its work folder."""

    def __init__(self, output: Path, job: StoreJob) -> None:
        self.output = output
        self.job = job
        self.path = hidden_sibling(output, "work")
        self.content = self.path / "content"
        self.shards = ShardFolder(self.path / "shards")
        self._writer: StoreWriter | None = None

    @property
    def rows(self) -> int:
        """The number of durable rows."""
        return self.shards.rows

    def writer(self, dim: int) -> StoreWriter:
        """Return the writer of this process, for vectors of a dimension."""
        if self._writer is None:
            self._writer = self.job.writer(self, dim)
            # Before the first row is made, as a disk that fills up in the middle costs what was paid until then.
            if self.job.total is not None and self._writer.takes_room:
                require_room(self.output, (self.job.total - self.rows) * dim * 4)
            self._writer.begin()
        return self._writer

    def all_rows(self, dim: int) -> Rows:
        """Return the vectors of all shards; raises a StoreError where some are missing."""
        return self.shards.all_rows(dim, self.job.total)

    def lacking(self, shards: Iterable[Shard]) -> Iterator[Shard]:
        """Return those of some shards that are not durable now."""
        ranges = self.shards.ranges()
        for shard in shards:
            at = bisect_right(ranges, shard.start, key=lambda finished_range: finished_range[0]) - 1
            if at < 0 or shard.stop > ranges[at][1]:
                yield shard

    def make_here(self, shards: Iterable[Shard]) -> Generator[Shard, None, None]:
        """Make shards in this process, in order; one is made durable while the next is made."""

        def keep(shard: Shard, seal: Callable[[], tuple[Arrays, Facts]]) -> Shard:
            self.shards.write(shard, *seal())
            return shard

        with ThreadPoolExecutor(1) as thread:
            sealed: Future[Shard] | None = None
            for shard in shards:
                seal = make_shard(shard, self.job.blocks(shard), self.writer)
                if sealed is not None:
                    yield sealed.result()
                sealed = thread.submit(keep, shard, seal)
                if self.job.waits:
                    yield sealed.result()
                    sealed = None
            if sealed is not None:
                yield sealed.result()

    def write_values(self, order: NDArray[np.int64] | None) -> dict[str, str]:
        """Write what shards have beside vectors, a `.npy` each in `Written.order`; return the hash of each."""
        first = next(iter(self.shards), None)
        names = [] if first is None else [name for name in self.shards.names(first) if name != VECTORS]
        hashes = {}
        for name in names:
            chunks: Iterable[NDArray[Any]] = (self.shards.array(shard, name) for shard in self.shards)
            if order is not None:
                values = self.shards.all_values(name)
                # Arbitrary: only so many are copied into another order at a time.
                chunks = (values[order[part.start : part.stop]] for part in shards_of(len(order), 1 << 20))
            file = f"{name}.npy"
            hashes[file] = write_values(beside(self.content) / file, chunks, self.rows)
        return hashes


class StoreJob(ABC):
    """The rows of a store that one command writes; see `write_store`.

    `stage` names it in reports of progress. With `waits`, a shard is durable before the next is begun, as what it cost
    is lost otherwise. Rows `in_order` come from a stream: what an earlier run has finished after a gap is made again.
    """

    stage: str
    waits: bool = False
    in_order: bool = False

    @property
    def total(self) -> int | None:
        """Number of rows; None where only the end will tell."""
        return None

    @property
    def dim(self) -> int | None:
        """Dimension of the vectors; None where only the first of them will tell."""
        return None

    @property
    def spreads(self) -> bool:
        """True if rows are made so slowly that starting processes is worth it."""
        return False

    @abstractmethod
    def configuration(self) -> Configuration:
        """Return what the store is made from; called when the output is free and locked."""

    @abstractmethod
    def writer(self, work: Work, dim: int) -> StoreWriter:
        """Return the writer of the store in a folder that may hold some of it already."""

    def begin(self, work: Work) -> None:
        """Prepare to make what is left; an error here leaves the unfinished work as it is."""

    @abstractmethod
    def shards(self, work: Work) -> Iterable[Shard]:
        """Return the shards, in order; those that are finished may be left out."""

    @abstractmethod
    def blocks(self, shard: Shard) -> Iterator[Block]:
        """Return the rows of a shard, some at a time, made in this process."""

    def opener(self, work: Work) -> OpenShards | None:
        """Return what makes the same shards in another process; None where only this one can make them."""
        return None

    @abstractmethod
    def finish(self, work: Work, writer: StoreWriter) -> Facts:
        """Complete the store once every shard is there, and return facts that JSON can hold."""

    def note_published(self) -> None:
        """Note what only a store that has its name can tell; called again where a run was killed meanwhile."""
