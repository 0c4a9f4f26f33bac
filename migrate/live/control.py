"""The control of a worker from outside: pause and the end.

It is kept in the state of the store, which the worker reads between batches, so that it outlives both sides.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Final

from migrate.errors import LockedError
from migrate.files import output_lock
from migrate.live.state import STOP, LiveState, WorkerFacts

COMMAND: Final = "own command as it was typed"
"""Under this name are the options by which the worker is started again, a list of words."""

PATIENCE_S: Final = 60.0
"""Seconds to wait for a worker that is asked to pause or to end: it does after the batch at hand."""

_PAUSED_AT: Final = "paused at"
_OBEYED: Final = "own pause that is obeyed"


def paused_at(state: LiveState) -> float | None:
    """Return the time of the pause that was asked for; None where there is none."""
    at: float | None = state.value(_PAUSED_AT)
    return at


def as_iso(at: float | None) -> str | None:
    """Return a time as ISO 8601 has it."""
    if at is None:
        return None
    return dt.datetime.fromtimestamp(at, dt.UTC).isoformat(timespec="seconds")


def note_obeyed(state: LiveState, at: float | None) -> None:
    """Note that the worker goes by this pause, or by none, from now on."""
    state.note(_OBEYED, at)


def worker_lock(state: LiveState) -> AbstractContextManager[object]:
    """Return the lock that the one worker of a store holds; entering raises LockedError while another has it."""
    return output_lock(state.path.with_name("worker"))


@contextmanager
def only_worker(state: LiveState, location: str) -> Iterator[None]:
    """Be the one worker of a store; who looks if there is one holds its lock for a moment, and is waited for."""
    deadline = time.monotonic() + 1.0
    with ExitStack() as stack:
        while True:
            try:
                stack.enter_context(worker_lock(state))
                break
            except LockedError:
                if time.monotonic() > deadline:
                    pid = WorkerFacts.kept_in(state).pid
                    raise LockedError(
                        f"{location}: another worker is running (process {pid}); `lead-migrate live stop` ends it"
                    ) from None
            time.sleep(0.02)
        yield


def is_running(state: LiveState) -> bool:
    """Tell if a worker holds the lock of a store."""
    try:
        # The lock goes with the process, however that ends; a note in the state would stay
        with worker_lock(state):
            return False
    except LockedError:
        return True


def stop_worker(state: LiveState) -> bool:
    """Ask the worker to come to an end, and wait for it; return whether it did in time."""
    state.note(STOP, True)
    return _wait_for(lambda: not is_running(state))


def pause_worker(state: LiveState) -> bool:
    """Ask the worker to pause, and wait until it has; return whether it did in time.

    One that is started later waits too, until `resume_worker`.
    """
    with state.transaction():
        # Two who pause at once make one pause, since the first
        if paused_at(state) is None:
            state.note(_PAUSED_AT, time.time())
    return _wait_for(lambda: state.value(_OBEYED) == paused_at(state) or not is_running(state))


def resume_worker(state: LiveState) -> bool:
    """End a pause; return whether there was one."""
    with state.transaction():
        was_paused = paused_at(state) is not None
        state.note(_PAUSED_AT, None)
    return was_paused


def _wait_for(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True
