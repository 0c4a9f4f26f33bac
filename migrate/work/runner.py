"""Who makes shards: this process, or several on this machine.

A shard is a pure function of its rows and of locations: the same bytes in any process, in any order, and again if need
be. That is all a runner relies on, so another (a cluster's) needs only a `Pool`.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final, Protocol

from migrate.errors import OutputError
from migrate.threads import available_cores
from migrate.work.shards import Block, Shard, ShardFolder, pack, unpack
from migrate.work.writer import OpenWriter, make_shard

_MOST_CALLS: Final = 1024
_LOOK_S: Final = 1.0


class Task(ABC):
    """Work that any process can do with a pickled copy of this.

    `digest` tells what the task makes from what any other makes, in hexadecimal digits.
    """

    digest: str

    @abstractmethod
    def open(self) -> Callable[..., bytes]:
        """Open what is needed, once in each thread, and return the function that makes the content of a shard file."""

    def name_of(self, *arguments: Any) -> str:
        """Return a name for what that function makes of these: hexadecimal digits and hyphens."""
        shard: Shard = arguments[0]
        return shard.name


MakeBlocks = Callable[[Shard], Iterator[Block]]


class RowTask(ABC):
    """The rows of a store as any process can make them, with a pickled copy of this."""

    digest: str

    @abstractmethod
    def open(self, content: Path | None) -> tuple[MakeBlocks, OpenWriter]:
        """Open what is needed, and return the function that makes the rows of a shard, and the writer of a dimension.

        `content` is the folder that becomes the store; None on another machine, whose writer takes no parts but those
        that go elsewhere.
        """


@dataclass(frozen=True)
class ShardTask(Task):
    """Making shard files in another process; it writes them into the folder `work`, and returns their names alone.

    Without that folder, on another machine, it returns their content.
    """

    rows: RowTask
    work: Path | None

    @property
    def digest(self) -> str:  # type: ignore[override]
        """That of the rows."""
        return self.rows.digest

    def open(self) -> Callable[[Shard], bytes]:
        """Open what the rows are made from."""
        blocks, writer = self.rows.open(None if self.work is None else self.work / "content")
        shards = None if self.work is None else ShardFolder(self.work / "shards")

        def keep(shard: Shard, arrays: Any, facts: Any) -> bytes:
            if shards is None:
                return b"".join(pack(arrays, facts))
            return b"".join(pack({}, {"shard_file": shards.write(shard, arrays, facts)}))

        def make(shard: Shard) -> bytes:
            content: bytes = make_shard(shard, blocks(shard), writer, keep)()
            return content

        return make


class Pool(Protocol):
    """Workers that have opened one task."""

    @property
    def places(self) -> int:
        """The number of calls that are worth having under way."""
        ...

    def call(self, *arguments: Any) -> Block:
        """Return what a worker's function makes, which is waited for; raises what the worker met."""
        ...

    def release(self, files: Iterable[str]) -> None:
        """Remove shared files whose content is safe now."""
        ...

    def stop(self) -> None:
        """Let calls that wait raise an error: they are not wanted any more."""
        ...


@dataclass(frozen=True)
class ShardWork:
    """The shards that a runner is to make, of `blocks` for a `writer`, in this process or by a `task` in another.

    `task` returns None where only this process can make them. A shard that `waits` is durable before the next is begun,
    as what it cost is lost otherwise. Work that `spreads` is slow enough for starting processes to be worth it.
    """

    blocks: MakeBlocks
    writer: OpenWriter
    task: Callable[[], RowTask | None]
    path: Path
    shards: ShardFolder
    waits: bool = False
    spreads: bool = False

    def here(self, shards: Iterable[Shard]) -> Generator[Shard, None, None]:
        """Make shards in this process, in order; one is made durable while the next is made."""
        with ThreadPoolExecutor(1) as thread:
            sealed: tuple[Shard, Future[Any]] | None = None
            for shard in shards:
                seal = make_shard(shard, self.blocks(shard), self.writer, self.shards.write)
                if sealed is not None:
                    sealed[1].result()
                    yield sealed[0]
                sealed = shard, thread.submit(seal)
                if self.waits:
                    sealed[1].result()
                    yield shard
                    sealed = None
            if sealed is not None:
                sealed[1].result()
                yield sealed[0]

    def spread(self, pool: Pool, shards: Iterable[Shard]) -> Generator[Shard, None, None]:
        """Have the workers of a pool make shards, in any order; each comes as soon as it is durable here."""
        waiting, flying = iter(shards), dict[Future[Block], Shard]()
        with ThreadPoolExecutor(_MOST_CALLS) as threads:
            try:
                while True:
                    # no more than keep the workers busy, so that memory does not grow with the number of shards
                    for shard in islice(waiting, max(pool.places - len(flying), 0 if flying else 1)):
                        flying[threads.submit(pool.call, shard)] = shard
                    if not flying:
                        return
                    for future in wait(flying, _LOOK_S, FIRST_COMPLETED).done:
                        shard, block = flying.pop(future), future.result()
                        if (name := block.facts.get("shard_file")) is not None:
                            self.shards.add(shard, name)
                        else:
                            make_shard(shard, [block], self.writer, self.shards.write)()
                        yield shard
                        if block.file is not None:
                            pool.release([block.file])
            finally:
                pool.stop()


class Runner(Protocol):
    """Does shards."""

    @property
    def is_local(self) -> bool:
        """True if its workers are processes of this machine, which have its files and its devices."""
        ...

    @property
    def embeds(self) -> bool:
        """True if it has workers for a model."""
        ...

    def run(self, work: ShardWork, shards: Iterable[Shard]) -> Generator[Shard, None, None]:
        """Make every shard, in any order; each comes as soon as it is durable."""
        ...

    def pool(self, task: Callable[[int], Task], *, ahead: int, most: int | None) -> AbstractContextManager[Pool]:
        """Start workers that open `task(n)`, n being how many do it at once, `most` at most; `ahead` calls for each."""
        ...


@dataclass(frozen=True, slots=True)
class LocalRunner:
    """Does shards on this machine: in one process, or in several where there are enough of them and they are slow.

    `processes` is how many at most; None for one a core.
    """

    processes: int | None = None

    @property
    def is_local(self) -> bool:
        """They are."""
        return True

    @property
    def embeds(self) -> bool:
        """True if the user asks for several processes: one uses all cores as it is, or the one device."""
        return self.processes is not None and self.processes > 1

    def run(self, work: ShardWork, shards: Iterable[Shard]) -> Generator[Shard, None, None]:
        """Make every shard; in order where one process makes them all."""
        waiting = iter(shards)
        most = self.processes or available_cores()
        task = work.task() if work.spreads else None
        few = list(islice(waiting, 2 * most)) if task is not None else []
        processes = min(most, len(few) // 2)  # a process that does one shard takes longer to start than it saves
        if task is None or processes < 2:
            yield from work.here(chain(few, waiting))
            return
        with LocalRunner(processes).pool(lambda _: ShardTask(task, work.path), ahead=1, most=None) as pool:
            yield from work.spread(pool, chain(few, waiting))

    @contextmanager
    def pool(self, task: Callable[[int], Task], *, ahead: int, most: int | None) -> Iterator[Pool]:
        """Start processes that have opened a task; they end with the context."""
        from joblib.externals.loky import ProcessPoolExecutor

        processes = self.processes or available_cores()
        count = processes if most is None else min(processes, most)
        executor = ProcessPoolExecutor(count, initializer=_offer, initargs=(task(count), os.getpid()))
        try:
            yield _LocalPool(executor, ahead * count)
        finally:
            executor.shutdown(wait=True, kill_workers=True)


LOCAL = LocalRunner()


@dataclass(slots=True)
class _LocalPool:
    """Processes of this machine."""

    executor: Any
    places: int

    def call(self, *arguments: Any) -> Block:
        """As of any pool."""
        from joblib.externals.loky.process_executor import ShutdownExecutorError, TerminatedWorkerError

        try:
            return unpack(self.executor.submit(_call, arguments).result())
        except (TerminatedWorkerError, ShutdownExecutorError, CancelledError) as error:
            raise OutputError(
                "a worker process ended before its work was done, perhaps for lack of memory; "
                "the same command continues"
            ) from error

    def release(self, files: Iterable[str]) -> None:
        """Nothing is kept in files."""

    def stop(self) -> None:
        """End the processes."""
        self.executor.shutdown(wait=False, kill_workers=True)


_offered: list[tuple[Task, int]] = []


def _offer(task: Task, parent: int) -> None:
    """In a worker: it is opened by the first call, which can tell what is wrong with it."""
    _offered.append((task, parent))


@cache
def _opened() -> Callable[..., bytes]:
    return _offered[-1][0].open()


def _call(arguments: tuple[Any, ...]) -> bytes:
    if os.getppid() != _offered[-1][1]:
        os._exit(1)
    return _opened()(*arguments)
