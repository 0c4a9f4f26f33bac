"""Makes the shards of a job: in this process, or in several of this machine where shards are slow to make."""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from itertools import chain, islice
from pathlib import Path
from typing import Any

from migrate.errors import OutputError
from migrate.locations import known_secrets, remember_secrets
from migrate.threads import available_cores
from migrate.work.jobs import OpenShards, Work
from migrate.work.shards import Shard, ShardFolder

_FEWEST_EACH = 2
"""Shards that a process must have to make: for one, it takes longer to start than it saves."""


def make_shards(work: Work, shards: Iterable[Shard], processes: int | None) -> Generator[Shard, None, None]:
    """Make every shard, by up to `processes` processes (None for one a core); each comes as soon as it is durable.

    One process makes them in order.
    """
    waiting = iter(shards)
    opener = work.job.opener(work) if work.job.spreads else None
    most = processes or available_cores()
    first = [] if opener is None else list(islice(waiting, _FEWEST_EACH * most))
    count = min(most, len(first) // _FEWEST_EACH)
    if opener is None or count < 2:
        yield from work.make_here(chain(first, waiting))
    else:
        yield from _make_in_processes(work, chain(first, waiting), opener, count)


def _make_in_processes(
    work: Work, waiting: Iterator[Shard], opener: OpenShards, count: int
) -> Generator[Shard, None, None]:
    """Let each of `count` processes make a shard at a time, and leave it in the folder of finished shards."""
    from joblib.externals.loky import ProcessPoolExecutor
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    arguments = (opener, work.shards.path, known_secrets(), os.getpid())
    executor = ProcessPoolExecutor(count, initializer=_begin, initargs=arguments)
    flying = dict[Future[str], Shard]()
    try:
        while True:
            # as many as there are processes, so that memory does not grow with the number of shards
            for shard in islice(waiting, count - len(flying)):
                flying[executor.submit(_make, shard)] = shard
            if not flying:
                return
            for future in wait(flying, return_when=FIRST_COMPLETED).done:
                shard = flying.pop(future)
                work.shards.add(shard, future.result())
                yield shard
    except TerminatedWorkerError as error:
        raise OutputError(
            "a worker process ended before its work was done, perhaps for lack of memory; the same command continues"
        ) from error
    finally:
        # loky fails in a thread of its own if it is shut down while a call is still in its queue
        while not all(future.running() or future.done() for future in flying):
            time.sleep(0.001)
        # Whatever a worker still makes is wanted by nobody: the run has ended, well or with an error.
        executor.shutdown(wait=True, kill_workers=True)


_worker: dict[str, Any] = {}
"""What this worker process was given, and what its first shard has opened."""


def _begin(opener: OpenShards, folder: Path, secrets: Mapping[str, Mapping[str, str]], parent: int) -> None:
    """Keep what the shards need. The first of them opens it, so that its error reaches the parent as any other does."""
    remember_secrets(secrets)
    _worker.update(opener=opener, folder=ShardFolder(folder), parent=parent)


def _make(shard: Shard) -> str:
    """Make a shard, and return the name of its file."""
    if os.getppid() != _worker["parent"]:  # which was killed: nobody waits for this
        os._exit(1)
    if "make" not in _worker:
        _worker["make"] = _worker["opener"]()
    name: str = _worker["folder"].write(shard, *_worker["make"](shard))
    return name
