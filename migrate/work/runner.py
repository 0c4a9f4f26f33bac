"""Runners make shards: in this process, or in several on this machine."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import chain, islice
from typing import Any, ClassVar, Protocol

from migrate.errors import OutputError, UsageError
from migrate.plugins import installed
from migrate.threads import available_cores
from migrate.work.jobs import Pool, Task, Work
from migrate.work.remote import Folder
from migrate.work.shards import Shard


class Runner(Protocol):
    """Does shards."""

    @property
    def is_local(self) -> bool:
        """True if its workers are processes of this machine, which have its files and its devices."""
        ...

    @property
    def sees_files(self) -> bool:
        """True if its workers write to the folder of unfinished work themselves."""
        ...

    @property
    def embeds(self) -> bool:
        """True if it has workers for a model."""
        ...

    def run(self, work: Work, shards: Iterable[Shard]) -> Generator[Shard, None, None]:
        """Make every shard, in any order; each comes as soon as it is durable."""
        ...

    def pool(
        self, task: Callable[[int], Task], *, ahead: int, most: int | None, folder: Folder | None = None
    ) -> AbstractContextManager[Pool]:
        """Start workers that open `task(n)`, n being how many do it at once, `most` at most; `ahead` calls for each.

        They leave what they make in `folder`, where there is one that they see and they have no place of their own.
        """
        ...


@dataclass(frozen=True, slots=True)
class LocalRunner:
    """Does shards on this machine: in one process, or in several where there are enough of them and they are slow.

    `processes` is how many at most; None for one a core.
    """

    processes: int | None = None
    is_local: ClassVar[bool] = True
    sees_files: ClassVar[bool] = True

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
        with LocalRunner(processes).pool(lambda _: task, ahead=1, most=None, folder=work.shards.folder) as pool:
            yield from work.make_by(pool, chain(few, waiting))

    @contextmanager
    def pool(
        self, task: Callable[[int], Task], *, ahead: int, most: int | None, folder: Folder | None = None
    ) -> Iterator[Pool]:
        """Start processes that have opened a task; they end with the context."""
        from joblib.externals.loky import ProcessPoolExecutor

        processes = self.processes or available_cores()
        count = processes if most is None else min(processes, most)
        opened = task(count)
        executor = ProcessPoolExecutor(count, initializer=_offer, initargs=(opened, folder, os.getpid()))
        pool = _LocalPool(opened, folder, executor, ahead * count)
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


class _LocalPool(Pool):
    """Processes of this machine."""

    def __init__(self, task: Task, folder: Folder | None, executor: Any, capacity: int) -> None:
        super().__init__(task, folder)
        self._executor, self._capacity = executor, capacity
        self._starting = threading.Lock()

    @property
    def capacity(self) -> int:
        """Number of calls that are worth having under way."""
        return self._capacity

    def result(self, *arguments: Any) -> Any:
        """Return what a process returns."""
        from joblib.externals.loky.process_executor import ShutdownExecutorError, TerminatedWorkerError

        try:
            return self._started(arguments).result()
        except (TerminatedWorkerError, ShutdownExecutorError, CancelledError) as error:
            raise OutputError(
                "a worker process ended before its work was done, perhaps for lack of memory; "
                "the same command continues"
            ) from error

    def _started(self, arguments: tuple[Any, ...]) -> Future[bytes | str]:
        with self._starting:
            future: Future[bytes | str] = self._executor.submit(_call, arguments)
            # The thread of loky fails if it is shut down while a call is still in its queue
            while not (future.running() or future.done()):
                time.sleep(0.001)
        return future

    def stop(self) -> None:
        """End the processes."""
        with self._starting:
            self._executor.shutdown(wait=False, kill_workers=True)


_offered: list[tuple[Task, Folder | None, int]] = []


def _offer(task: Task, folder: Folder | None, parent: int) -> None:
    """Keep a task in a worker, to be opened by the first call, which can tell what is wrong with it."""
    _offered.append((task, folder, parent))


@cache
def _opened() -> Callable[..., bytes | str]:
    task, folder, _ = _offered[-1]
    return task.open_in(folder)


def _call(arguments: tuple[Any, ...]) -> bytes | str:
    if os.getppid() != _offered[-1][-1]:
        os._exit(1)
    return _opened()(*arguments)
