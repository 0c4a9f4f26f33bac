"""Jobs that write a store from shards, and work on one of them: what is finished, and how the rest is made.

A shard is a pure function of its rows and of locations: the same bytes in any process, in any order, and again if need
be. That is all a runner relies on, so another (a cluster's) needs only a `Pool`.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from migrate.errors import OutputError, StoreError, UsageError
from migrate.files import canonical_json, hidden_sibling, require_room
from migrate.version import __version__
from migrate.work.remote import Folder
from migrate.work.rows import Rows
from migrate.work.shards import VECTORS, Block, Shard, ShardFolder, pack, shards_of, unpack, write_values
from migrate.work.writer import OpenWriter, StoreWriter, make_shard

Facts = Mapping[str, Any]
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
        content = {"command": self.command, "source": self.source, "options": {**self.options, "tool": __version__}}
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


class Task(ABC):
    """Work that any process can do with a pickled copy of this.

    `digest` tells what the task makes from what any other makes, in hexadecimal digits.
    """

    digest: str

    @abstractmethod
    def open(self) -> Callable[..., Sequence[memoryview]]:
        """Open what is needed, once in each thread, and return the function that makes the content of a shard file."""

    def open_in(self, folder: Folder | None) -> Callable[..., bytes | str]:
        """Open it for a folder; the function leaves there what it makes, and returns the file's name.

        Without a folder it returns the content.
        """
        make = self.open()

        def make_file(*arguments: Any) -> bytes | str:
            pieces = make(*arguments)
            return b"".join(pieces) if folder is None else folder.write_hashed(self.name_of(*arguments), pieces)

        return make_file

    def name_of(self, *arguments: Any) -> str:
        """Return a name for what that function makes of these: hexadecimal digits and hyphens."""
        shard: Shard = arguments[0]
        return shard.name


def shard_maker(
    blocks: Callable[[Shard], Iterator[Block]], open_writer: OpenWriter
) -> Callable[[Shard], Sequence[memoryview]]:
    """Return the function by which a task makes shards, of the rows that `blocks` makes.

    On a machine that does not have the files of the output, the writer takes no parts but those that go to where every
    machine can write.
    """

    def make(shard: Shard) -> Sequence[memoryview]:
        return pack(*make_shard(shard, blocks(shard), open_writer)())

    return make


class Pool(ABC):
    """Workers that have opened one task: they leave what they make in `folder`, or send it where there is none.

    `found` are the files that an earlier run has left there, by what `Task.name_of` calls them.
    """

    def __init__(self, task: Task, folder: Folder | None) -> None:
        self.task, self.folder = task, folder
        self.found = {} if folder is None else folder.find_hashed()

    @property
    @abstractmethod
    def capacity(self) -> int:
        """The number of calls that are worth having under way."""

    @abstractmethod
    def result(self, *arguments: Any) -> Any:
        """Return what a worker's function returns, which is waited for; raises what the worker met."""

    @abstractmethod
    def stop(self) -> None:
        """Let calls that wait raise an error: they are not wanted any more."""

    def call(self, *arguments: Any) -> Block:
        """Return what a worker makes; a file is made again if it is damaged, and stays until it is released."""
        if self.folder is None:
            return unpack(self.result(*arguments))
        name, is_new = self.found.pop(self.task.name_of(*arguments), None), False
        for _ in range(3):
            if name is None:
                name, is_new = str(self.result(*arguments)), True
            if (content := self.folder.read_hashed(name)) is not None:
                return replace(unpack(content), file=name, is_new=is_new)
            self.folder.remove(name)
            name = None
        raise OutputError(f"{self.folder.named}: what is written there is not what is read; use another place")

    def release(self, files: Iterable[str]) -> None:
        """Remove files whose content is safe now."""
        for name in files:
            if self.folder is not None:
                self.folder.remove(name)


class Work:
    """An output in the making, by a job; `path` is its work folder.

    With `sees_files`, whoever makes shards writes to that folder; else vectors are sent, and in memory as a whole.
    """

    def __init__(self, output: Path, job: StoreJob, *, sees_files: bool = True) -> None:
        self.output, self.job, self.sees_files = output, job, sees_files
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
            if self.job.total is not None and not self._writer.is_shared:
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

        def keep(shard: Shard, seal: Callable[[], tuple[Any, Any]]) -> Shard:
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

    def make_by(self, pool: Pool, shards: Iterable[Shard]) -> Generator[Shard, None, None]:
        """Have the workers of a pool make shards, in any order; each comes as soon as it is durable here.

        Workers that write to this machine's folder leave it there; of others it is taken in.
        """
        is_here = pool.folder == self.shards.folder
        with ThreadPoolExecutor(1024) as threads:
            try:
                if not is_here and self.job.sends_pieces:
                    yield from self._put_together(pool, threads, list(shards))
                else:
                    yield from self._take_in(pool, threads, shards, is_here=is_here)
            finally:
                pool.stop()
        if not is_here:
            pool.release(pool.found.values())  # of shards that were in their places before

    def _take_in(
        self, pool: Pool, threads: Executor, shards: Iterable[Shard], *, is_here: bool
    ) -> Generator[Shard, None, None]:
        """Take the shards as they come."""
        waiting, flying = iter(shards), dict[Future[Any], Shard]()
        while True:
            # no more than keep the workers busy, so that memory does not grow with the number of shards
            for shard in islice(waiting, max(pool.capacity - len(flying), 0 if flying else 1)):
                flying[threads.submit(pool.result if is_here else pool.call, shard)] = shard
            if not flying:
                return
            for future in wait(flying, 1.0, FIRST_COMPLETED).done:
                shard, content = flying.pop(future), future.result()
                if is_here:
                    self.shards.add(shard, content)
                else:
                    self.shards.write(shard, *make_shard(shard, [content], self.writer)())
                yield shard
                if not is_here and content.file is not None:
                    pool.release([content.file])

    def _put_together(self, pool: Pool, threads: Executor, shards: Sequence[Shard]) -> Generator[Shard, None, None]:
        """Write each shard from the pieces that workers send, in order, so that none is in memory as a whole."""
        waiting = (piece for shard in shards for piece in self.job.pieces(shard))
        flying, files = deque[Future[Block]](), list[str]()

        def next_block() -> Block:
            for piece in islice(waiting, max(pool.capacity - len(flying), 0 if flying else 1)):
                flying.append(threads.submit(pool.call, piece))
            block = flying.popleft().result()
            files.extend([] if block.file is None else [block.file])
            return block

        for shard in shards:
            blocks = (next_block() for _ in self.job.pieces(shard))
            self.shards.write(shard, *make_shard(shard, blocks, self.writer)())
            yield shard
            pool.release(files)
            files.clear()

    def write_values(self, order: NDArray[np.int64] | None) -> dict[str, str]:
        """Write what shards have beside vectors, a `.npy` each in `StoreWriter.order`; return the SHA-256 of each."""
        first = next(iter(self.shards), None)
        names = [] if first is None else [name for name in self.shards.names(first) if name != VECTORS]
        hashes = {}
        for name in names:
            chunks: Iterable[NDArray[Any]] = (self.shards.array(shard, name) for shard in self.shards)
            if order is not None:
                values = self.shards.all_values(name)
                chunks = (values[order[part.start : part.stop]] for part in shards_of(len(order), 1 << 20))
            file = f"{name}.npy"
            hashes[file] = write_values(self.content / file, chunks, self.rows)
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

    sends_pieces: bool = False
    """True if workers that do not see the output send shards in pieces."""

    def pieces(self, shard: Shard) -> Iterable[Shard]:
        """Return the pieces in which a shard is sent, in order."""
        return [shard]

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

    def task(self, work: Path | None) -> Task | None:
        """Return the same for other processes; None where only this one can.

        `work` is the folder of unfinished work if they see it.
        """
        return None

    @abstractmethod
    def finish(self, work: Work, writer: StoreWriter) -> Facts:
        """Complete the store once every shard is there, and return facts that JSON can hold."""

    def note_published(self) -> None:
        """Note what only a store that has its name can tell; called again where a run was killed meanwhile."""
