"""Runners make shards: in this process, or in several on this machine."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import cache
from itertools import chain, islice
from typing import Any, Protocol

from migrate.errors import OutputError, UsageError
from migrate.plugins import installed
from migrate.threads import available_cores
from migrate.work.jobs import Pool, Task, Work
from migrate.work.shards import Block, Shard, unpack


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

    def run(self, work: Work, shards: Iterable[Shard]) -> Generator[Shard, None, None]:
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

    def run(self, work: Work, shards: Iterable[Shard]) -> Generator[Shard, None, None]:
        """Make every shard; in order where one process makes them all."""
        waiting = iter(shards)
        most = self.processes or available_cores()
        task = work.job.task(work.path) if work.job.spreads else None
        few = list(islice(waiting, 2 * most)) if task is not None else []
        processes = min(most, len(few) // 2)  # a process that does one shard takes longer to start than it saves
        if task is None or processes < 2:
            yield from work.make_here(chain(few, waiting))
            return
        with LocalRunner(processes).pool(lambda _: task, ahead=1, most=None) as pool:
            yield from work.make_by(pool, chain(few, waiting))

    @contextmanager
    def pool(self, task: Callable[[int], Task], *, ahead: int, most: int | None) -> Iterator[Pool]:
        """Start processes that have opened a task; they end with the context."""
        from joblib.externals.loky import ProcessPoolExecutor

        processes = self.processes or available_cores()
        count = processes if most is None else min(processes, most)
        executor = ProcessPoolExecutor(count, initializer=_offer, initargs=(task(count), os.getpid()))
        pool = _LocalPool(executor, ahead * count)
        try:
            yield pool
        finally:
            pool.stop()
            executor.shutdown(wait=True, kill_workers=True)


LOCAL = LocalRunner()


def runner_of(name: str | None, *, workers: int | None = None, shards: str | None = None) -> Runner:
    """Return the runner of a name: `local`, or KIND:ADDRESS with a kind of the entry points `lead_migrate.runners`.

    `workers` are the processes of `local`, `shards` is where those of a cluster leave what they have done. Raises a
    UsageError where there is no such runner, or it does not take one of these.
    """
    kind, _, address = (name or "local").partition(":")
    if kind == "local" and not address:
        if shards is not None:
            raise UsageError("--shards goes with a runner of several machines; add --runner dask:ADDRESS")
        return LocalRunner(workers)
    runners = installed("lead_migrate.runners")
    if kind not in runners:
        advice = ": it is not installed, run pip install 'lead-migrate[dask]'" if kind == "dask" else ""
        raise UsageError(f"there is no runner {name!r}; name local, dask:local:N or dask:ADDRESS{advice}")
    if not address:
        raise UsageError(f"--runner {name}: an address is missing, such as dask:local:4 or dask:tcp://HOST:8786")
    if workers is not None:
        raise UsageError("--workers goes with the local runner; a cluster has the workers that it has")
    runner: Runner = runners[kind].load()(address, shards)
    return runner


@dataclass(slots=True)
class _LocalPool:
    """Processes of this machine."""

    executor: Any
    capacity: int
    _starting: threading.Lock = field(default_factory=threading.Lock)

    def call(self, *arguments: Any) -> Block:
        """Return what a process makes."""
        from joblib.externals.loky.process_executor import ShutdownExecutorError, TerminatedWorkerError

        try:
            return unpack(self._started(arguments).result())
        except (TerminatedWorkerError, ShutdownExecutorError, CancelledError) as error:
            raise OutputError(
                "a worker process ended before its work was done, perhaps for lack of memory; "
                "the same command continues"
            ) from error

    def _started(self, arguments: tuple[Any, ...]) -> Future[bytes]:
        with self._starting:
            future: Future[bytes] = self.executor.submit(_call, arguments)
            # The thread of loky fails if it is shut down while a call is still in its queue
            while not (future.running() or future.done()):
                time.sleep(0.001)
        return future

    def release(self, files: Iterable[str]) -> None:
        """Do nothing: there are no files."""

    def stop(self) -> None:
        """End the processes."""
        with self._starting:
            self.executor.shutdown(wait=False, kill_workers=True)


_offered: list[tuple[Task, int]] = []


def _offer(task: Task, parent: int) -> None:
    """Keep a task in a worker, to be opened by the first call, which can tell what is wrong with it."""
    _offered.append((task, parent))


@cache
def _opened() -> Callable[..., bytes]:
    return _offered[-1][0].open()


def _call(arguments: tuple[Any, ...]) -> bytes:
    if os.getppid() != _offered[-1][1]:
        os._exit(1)
    return _opened()(*arguments)
