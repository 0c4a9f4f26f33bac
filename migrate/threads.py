"""Limits the threads of the numerical libraries to the cores of this process, unless the user says otherwise.

BLAS threads wait for each other by spinning. Where other work needs a core, or a container has fewer cores than the
machine, most of their time is waiting: a fit of 1,000 pairs took seven times the processor time with two threads on two
busy cores as with one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, Final

COUNTS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""Variables by which a user says how many threads; the libraries read them when they are loaded."""

SMALL_PAIRS = 2_000
"""A fit of so many pairs is faster with one thread than with several that wait for each other, and always the same."""

_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def available_cores(quota: Path = _QUOTA) -> int:
    """Cores that this process may use: by its affinity, and by the quota of its container; at least 1."""
    # macOS has no such call.
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    try:
        share, period = quota.read_text().split()
        # Rounded down: a thread that the quota stops in the middle keeps all others waiting.
        return max(1, min(cores, int(share) // int(period)))
    except (OSError, ValueError):  # no container, or "max"
        return cores


def limit_threads(environment: MutableMapping[str, str] = os.environ) -> None:
    """Let libraries that are loaded from now on start no more threads than there are cores. For a whole process.

    What the user has set stays as it is.
    """
    if any(environment.get(name) for name in COUNTS):
        return
    cores = str(available_cores())
    for name in COUNTS:
        environment[name] = cores
    environment.setdefault("RAYON_NUM_THREADS", cores)  # of tokenizers
    environment.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")  # sleep soon instead of spinning


def thread_count(environment: Mapping[str, str] = os.environ) -> int:
    """Return how many threads may compute: what a user or `limit_threads` says, else as many as there are cores."""
    firsts = [environment.get(name, "").partition(",")[0] for name in COUNTS]  # OpenMP takes a number for each level
    return max(min([available_cores(), *(int(count) for count in firsts if count.isdecimal())]), 1)


@dataclass
class _OneThread:
    """The number of threads of this process within the limit of one, and the thread count of each library before."""

    lock: Lock = field(default_factory=Lock)
    users: int = 0
    thread_counts: list[tuple[Any, int]] = field(default_factory=list)


_one_thread: Final = _OneThread()


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep the BLAS of NumPy, and of what else is loaded, to one thread within, for the whole process.

    The last of several threads to leave gives it back its number: each of them by itself would give it back another's.
    """
    from threadpoolctl import ThreadpoolController

    with _one_thread.lock:
        if not _one_thread.users:
            libraries = ThreadpoolController().select(user_api="blas").lib_controllers
            _one_thread.thread_counts = [(library, library.get_num_threads()) for library in libraries]
            for library in libraries:
                _set_threads(library, 1)
        _one_thread.users += 1
    try:
        yield
    finally:
        with _one_thread.lock:
            _one_thread.users -= 1
            if not _one_thread.users:
                for library, count in _one_thread.thread_counts:
                    _set_threads(library, count)


def _set_threads(library: Any, count: int) -> None:
    """Set the threads of a library, from any thread: threadpoolctl itself obeys but the first that lives and asked."""
    getattr(library, "_real_set_num_threads", library.set_num_threads)(count)


@contextmanager
def threads_for(pairs: int) -> Iterator[None]:
    """Keep the BLAS to one thread within, where a problem is small: the number that a user gives is the most to use."""
    if pairs > SMALL_PAIRS:
        yield
        return
    import scipy.linalg  # noqa: F401 - it has a BLAS of its own, which is limited only once it is loaded

    with one_thread():
        yield
