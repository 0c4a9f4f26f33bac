"""Who makes shards: this process, or several on this machine.

A shard is a pure function of its rows and of locations: the same bytes in any process, in any order, and again if need
be. That is all a runner relies on, so another (a cluster's) needs only `Runner.run`.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, Protocol

from migrate.errors import OutputError
from migrate.threads import available_cores
from migrate.work.shards import Block, Shard, ShardFolder, pack, unpack
from migrate.work.writer import ShardMaker, StoreWriter

_ENDED = "a worker process ended before its work was done, perhaps for lack of memory; the same command continues"


class Task(ABC):
    """Work that any process can do with a pickled copy of this.

    `digest` tells what the task makes from what any other makes, in hexadecimal digits.
    """

    digest: str

    @abstractmethod
    def open(self) -> Callable[..., Any]:
        """Open what is needed, once in each thread, and return the function that makes a shard file.

        It returns the content; or the name, where the file is in its folder.
        """

    def name_of(self, *arguments: Any) -> str:
        """A name for what that function makes of these: hexadecimal digits and hyphens."""
        shard: Shard = arguments[0]
        return shard.name


MakeBlocks = Callable[[Shard], Iterator[Block]]
OpenWriter = Callable[[int], StoreWriter]


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
    """Making shard files in another process: in the folder `work`; None on another machine, which returns them."""

    rows: RowTask
    work: Path | None

    @property
    def digest(self) -> str:  # type: ignore[override]
        """That of the rows."""
        return self.rows.digest

    def open(self) -> Callable[[Shard], bytes | str]:
        """Open what the rows are made from."""
        work = self.work
        blocks, writer = self.rows.open(None if work is None else work / "content")
        shards = _Sink() if work is None else ShardFolder(work / "shards")
        maker = ShardMaker(blocks, writer, shards)

        def make(shard: Shard) -> bytes | str:
            maker(shard)()
            return shards.content if isinstance(shards, _Sink) else shards.name(shard)

        return make


class _Sink(ShardFolder):
    """Keeps the bytes of one file."""

    def __init__(self) -> None:
        super().__init__(Path(os.devnull))
        self.content = b""

    def write(self, shard: Shard, arrays: Any, facts: Any) -> str:
        """Keep them."""
        self.content = b"".join(pack(arrays, facts))
        return ""


@dataclass(frozen=True)
class ShardWork:
    """What a runner is to do.

    Attributes
    ----------
    maker
        Makes shards in this process.
    task
        Says how to make their rows in another; None where only this one can.
    path
        The work folder.
    shards
        The shards that are finished.
    waits
        Whether a shard must be durable before the next is begun, as what it cost is lost otherwise.
    spreads
        Whether it is slow enough for starting processes to be worth it; what NumPy does with all cores is not.
    """

    maker: ShardMaker
    task: Callable[[], RowTask | None]
    path: Path
    shards: ShardFolder
    waits: bool = False
    spreads: bool = False

    def here(self, shards: Iterable[Shard]) -> Generator[Shard, None, None]:
        """Make shards in this process, in order; one is made durable while the next is made."""
        with ThreadPoolExecutor(1) as pool:
            sealed: tuple[Shard, Future[None]] | None = None
            for shard in shards:
                seal = self.maker(shard)
                if sealed is not None:
                    sealed[1].result()
                    yield sealed[0]
                sealed = shard, pool.submit(seal)
                if self.waits:
                    sealed[1].result()
                    yield shard
                    sealed = None
            if sealed is not None:
                sealed[1].result()
                yield sealed[0]

    def take(self, shard: Shard, content: bytes) -> None:
        """Take in a shard file that another machine has made."""
        self.maker.make(shard, iter([unpack(content)]))()


class Pool(Protocol):
    """Workers that have opened one task."""

    @property
    def places(self) -> int:
        """How many calls are worth having under way."""
        ...

    def call(self, *arguments: Any) -> Block:
        """What a worker's function makes; waits for it. For several threads at once.

        Where it came by a file, `file` among its facts is the name, to be released, and `is_new` whether this run has
        made it.

        Raises
        ------
        LeadMigrateError
            What the worker met; or there is none any more.
        """
        ...

    def release(self, names: Iterable[str]) -> None:
        """Remove the files of what is safe now."""
        ...

    def stop(self) -> None:
        """Let calls that wait raise an error; what comes of them is not wanted any more."""
        ...


class Runner(Protocol):
    """Does shards."""

    @property
    def is_local(self) -> bool:
        """Whether its workers are processes of this machine, which have its files and its devices."""
        ...

    @property
    def embeds(self) -> bool:
        """Whether it has workers for a model."""
        ...

    def run(self, work: ShardWork, shards: Iterable[Shard]) -> Generator[Shard, None, None]:
        """Make every shard, in any order; each comes as soon as it is durable."""
        ...

    def pool(self, task: Callable[[int], Task], *, ahead: int, most: int | None) -> AbstractContextManager[Pool]:
        """Workers that open `task(n)`, n being how many do it at once, `most` at most; `ahead` calls for each."""
        ...


@dataclass(frozen=True, slots=True)
class LocalRunner:
    """Does shards on this machine: in one process, or in several where there are enough of them and they are slow.

    Parameters
    ----------
    processes
        How many at most; None for one a core.
    """

    processes: int | None = None

    @property
    def is_local(self) -> bool:
        """They are."""
        return True

    def run(self, work: ShardWork, shards: Iterable[Shard]) -> Generator[Shard, None, None]:
        """Make every shard; in order where one process makes them all.

        Raises
        ------
        OutputError
            A process ended before its shard was done.
        """
        waiting = iter(shards)
        most = self.processes or available_cores()
        task = work.task() if work.spreads else None
        few = list(islice(waiting, 2 * most)) if task is not None else []
        processes = min(most, len(few) // 2)  # a process that does one shard takes longer to start than it saves
        if task is None or processes < 2:
            yield from work.here(chain(few, waiting))
            return
        with _processes(ShardTask(task, work.path), processes, ahead=1) as pool:
            waiting, flying = chain(few, waiting), dict[Future[Any], Shard]()
            while True:
                for shard in islice(waiting, processes - len(flying)):
                    flying[pool.submit(shard)] = shard
                if not flying:
                    return
                done, _ = wait(flying, return_when=FIRST_COMPLETED)
                for future in done:
                    shard = flying.pop(future)
                    work.shards.add(shard, pool.result(future))
                    yield shard

    @property
    def embeds(self) -> bool:
        """Where the user asks for several processes: one uses all cores as it is, or the one device."""
        return self.processes is not None and self.processes > 1

    @contextmanager
    def pool(self, task: Callable[[int], Task], *, ahead: int, most: int | None) -> Iterator[Pool]:
        """Start processes that have opened a task; they end with the context."""
        wanted = self.processes or available_cores()
        count = wanted if most is None else min(wanted, most)
        with _processes(task(count), count, ahead) as pool:
            yield pool


LOCAL = LocalRunner()


@contextmanager
def _processes(task: Task, count: int, ahead: int) -> Iterator[_LocalPool]:
    from joblib.externals.loky import ProcessPoolExecutor

    executor = ProcessPoolExecutor(count, initializer=_offer, initargs=(task, os.getpid()))
    try:
        yield _LocalPool(executor, ahead * count)
    finally:
        executor.shutdown(wait=True, kill_workers=True)


@dataclass(slots=True)
class _LocalPool:
    """Processes of this machine."""

    executor: Any
    places: int

    def call(self, *arguments: Any) -> Block:
        """As of any pool."""
        return unpack(self.result(self.submit(*arguments)))

    def submit(self, *arguments: Any) -> Future[Any]:
        """Hand out a call."""
        with _told():
            future: Future[Any] = self.executor.submit(_call, arguments)
        return future

    def result(self, future: Future[Any]) -> Any:
        """What came of it."""
        with _told():
            return future.result()

    def release(self, names: Iterable[str]) -> None:
        """Nothing is kept in files."""

    def stop(self) -> None:
        """End the processes."""
        self.executor.shutdown(wait=False, kill_workers=True)


@contextmanager
def _told() -> Iterator[None]:
    """Say in one line that a process ended."""
    from joblib.externals.loky.process_executor import ShutdownExecutorError, TerminatedWorkerError

    try:
        yield
    except (TerminatedWorkerError, ShutdownExecutorError, CancelledError) as error:
        raise OutputError(_ENDED) from error


_offered: list[tuple[Task, int]] = []
_functions: list[Callable[..., Any]] = []


def _offer(task: Task, parent: int) -> None:
    """In a worker: it is opened by the first call, which can tell what is wrong with it."""
    _offered.append((task, parent))


def _call(arguments: tuple[Any, ...]) -> Any:
    task, parent = _offered[-1]
    if os.getppid() != parent:
        os._exit(1)
    if not _functions:
        _functions.append(task.open())
    return _functions[-1](*arguments)
