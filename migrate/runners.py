"""Who does the shards of a piece of work: this process, or several on this machine.

A shard is a fixed range of rows. What is done with it is a pure function of the shard and of locations: the same bytes
in any process, in any order, and again if need be. That is all a runner relies on, so another (a cluster's) needs only
`Runner.run`.
"""

from __future__ import annotations

import json
import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from migrate.errors import OutputError
from migrate.threads import available_cores

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, order=True)
class Shard:
    """Rows `start` to `stop`, not included."""

    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class ShardResult:
    """A shard whose bytes are written: `begin` to `end` of `path`. `facts` are what JSON can hold."""

    shard: Shard
    path: Path
    begin: int
    end: int
    facts: Mapping[str, Any] = field(default_factory=dict)


DoShard = Callable[[Shard], ShardResult]


@dataclass(frozen=True, slots=True)
class Made:
    """A shard as it was made elsewhere, to be put into its place; `facts` are what JSON can hold.

    `file` is the name that it is kept under until it is there, if it is; `is_new` says that this run has made it.
    """

    arrays: Mapping[str, NDArray[Any]]
    facts: Mapping[str, Any] = field(default_factory=dict)
    file: str | None = None
    is_new: bool = True

    @property
    def facts_json(self) -> bytes:
        """The facts, always the same bytes for the same ones."""
        return json.dumps(dict(self.facts), sort_keys=True).encode()

    @classmethod
    def of(cls, facts_json: bytes, arrays: Mapping[str, NDArray[Any]]) -> Made:
        """The opposite of `facts_json`."""
        return cls(arrays, json.loads(facts_json))

    def kept_as(self, file: str, *, is_new: bool) -> Made:
        """The same, out of a file."""
        return replace(self, file=file, is_new=is_new)


class RemoteTask(ABC):
    """What another machine does of a task, a pickled copy of this: it sees none of this machine's files.

    `digest` tells what the task makes from what any other makes, in hexadecimal digits.
    """

    digest: str

    @abstractmethod
    def open(self) -> Callable[..., Any]:
        """Open what is needed, once in each thread, and return the function that makes a shard."""

    def name_of(self, *arguments: Any) -> str:
        """A name for what that function makes of these: hexadecimal digits and hyphens."""
        (shard,) = arguments
        return f"{shard.start:012d}-{shard.stop:012d}"


class ShardTask(ABC):
    """What is to be done with each shard."""

    @property
    def is_portable(self) -> bool:
        """Whether a pickled copy can do it in another process, and is so slow that starting one is worth it.

        Work that NumPy does with all cores already is not.
        """
        return False

    @abstractmethod
    def open(self) -> DoShard:
        """Open what is needed, once in each process, and return the function of a shard."""

    def shared(self) -> ShardTask | None:
        """The task such that a pickled copy can do it in another process of this machine; None where none can."""
        return self if self.is_portable else None

    def remote(self) -> RemoteTask | None:
        """What another machine can do of it; None where none can."""
        return None

    def put(self, shard: Shard, made: Made) -> ShardResult:
        """Put into its place what `remote` has made of a shard."""
        raise TypeError(f"{type(self).__name__} is done by one machine alone")


class Pool(Protocol):
    """Workers that have opened one task."""

    @property
    def places(self) -> int:
        """How many calls are worth having under way."""
        ...

    def call(self, *arguments: Any) -> Any:
        """What a worker's function returns; waits for it. For several threads at once.

        Raises
        ------
        LeadMigrateError
            What the worker met; or there is none any more.
        """
        ...

    def release(self, names: Iterable[str]) -> None:
        """Remove the files of what was made and is in its place now."""
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

    def run(self, task: ShardTask, shards: Iterable[Shard]) -> Generator[ShardResult, None, None]:
        """Do every shard, in any order; each result comes as soon as its shard is written."""
        ...

    def pool(self, task: Callable[[int], RemoteTask], *, ahead: int, most: int | None) -> AbstractContextManager[Pool]:
        """Workers that open `task(n)`, n being how many do it at once, `most` at most; `ahead` calls for each."""
        ...


_ENDED = "a worker process ended before its work was done, perhaps for lack of memory; the same command continues"


def shards_of(count: int, rows: int, start: int = 0) -> Iterator[Shard]:
    """The shards of `count` rows from `start` on, `rows` in each but the last."""
    stop = start + count
    return (Shard(first, min(first + rows, stop)) for first in range(start, stop, rows))


@dataclass(frozen=True, slots=True)
class LocalRunner:
    """Does shards on this machine: in one process, or in several where the task is portable and has enough of them.

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

    def run(self, task: ShardTask, shards: Iterable[Shard]) -> Generator[ShardResult, None, None]:
        """Do every shard; in order where one process does them all.

        Raises
        ------
        OutputError
            A process ended before its shard was done.
        """
        waiting = iter(shards)
        if not task.is_portable:
            yield from map(task.open(), waiting)
            return
        most = self.processes or available_cores()
        few = list(islice(waiting, 2 * most))
        processes = min(most, len(few) // 2)  # a process that does one shard takes longer to start than it saves
        if processes < 2:
            yield from map(task.open(), chain(few, waiting))
            return
        yield from _in_processes(task, chain(few, waiting), processes)

    @property
    def embeds(self) -> bool:
        """Where the user asks for several processes: one uses all cores as it is, or the one device."""
        return self.processes is not None and self.processes > 1

    @contextmanager
    def pool(self, task: Callable[[int], RemoteTask], *, ahead: int, most: int | None) -> Iterator[Pool]:
        """Start processes that have opened a task; they end with the context."""
        from joblib.externals.loky import ProcessPoolExecutor

        wanted = self.processes or available_cores()
        count = wanted if most is None else min(wanted, most)
        executor = ProcessPoolExecutor(count, initializer=_offer, initargs=(task(count), os.getpid()))
        try:
            yield _LocalPool(executor, ahead * count)
        finally:
            executor.shutdown(wait=True, kill_workers=True)


@dataclass(slots=True)
class _LocalPool:
    """Processes of this machine."""

    executor: Any
    places: int

    def call(self, *arguments: Any) -> Any:
        """As of any pool."""
        from joblib.externals.loky.process_executor import ShutdownExecutorError, TerminatedWorkerError

        try:
            return self.executor.submit(_call, arguments).result()
        except (TerminatedWorkerError, ShutdownExecutorError, CancelledError) as error:
            raise OutputError(_ENDED) from error

    def release(self, names: Iterable[str]) -> None:
        """Nothing is kept in files."""

    def stop(self) -> None:
        """End the processes."""
        self.executor.shutdown(wait=False, kill_workers=True)


_offered: list[tuple[RemoteTask, int]] = []
_functions: list[Callable[..., Any]] = []


def _offer(task: RemoteTask, parent: int) -> None:
    """In a worker: it is opened by the first call, which can tell what is wrong with it."""
    _offered.append((task, parent))


def _call(arguments: tuple[Any, ...]) -> Any:
    task, parent = _offered[-1]
    if os.getppid() != parent:
        os._exit(1)
    if not _functions:
        _functions.append(task.open())
    return _functions[-1](*arguments)


def _in_processes(task: ShardTask, shards: Iterable[Shard], processes: int) -> Generator[ShardResult, None, None]:
    from joblib import Parallel, delayed
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    parallel = Parallel(processes, return_as="generator_unordered", pre_dispatch=processes, batch_size=1)
    results = parallel(delayed(_do)(task, shard, os.getpid()) for shard in shards)
    try:
        for result in results:  # noqa: UP028 - "yield from" would close it before the warning is caught
            yield result
    except GeneratorExit:
        with warnings.catch_warnings(action="ignore"):  # breaking off leaves shards undone: nothing to warn of
            results.close()
        raise
    except TerminatedWorkerError as error:
        raise OutputError(_ENDED) from error


_opened: dict[ShardTask, DoShard] = {}
"""Of the task that this process works on; tasks are compared by what they are made of."""


def _do(task: ShardTask, shard: Shard, parent: int) -> ShardResult:
    """In a worker: its parent may be gone, and another run may already do the same work."""
    if os.getppid() != parent:
        os._exit(1)
    if task not in _opened:
        _opened.clear()
        _opened[task] = task.open()
    return _opened[task](shard)
