"""A pace: a command works for a share of the time and rests in between, for the programs that ask the same store."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from typing import Final, TypeVar

_Item = TypeVar("_Item")

_REQUEST_S: Final = 0.01
"""Seconds that a request is to take under a pace, about: a query waits for one of them at most."""
_SMALLEST: Final = 1 / 1_024
_LONGEST_S: Final = 10.0
"""Seconds of work that are rested for at most: a process that was stopped for hours goes on."""
LEAST: Final = 0.001
"""The smallest share that is a pace."""


class _Pace:
    """The share of the time, 0 to 1, in which a command works; `size` of usual requests are as long as they may be."""

    def __init__(self, share: float) -> None:
        self._rest_for_work, self.size = 1 / share - 1, 1 / 16
        self._resumed = time.monotonic()

    def rest(self) -> None:
        """Sleep as long as the work since the last rest asks for; after a long one, requests become smaller."""
        worked = time.monotonic() - self._resumed
        if worked > 2 * _REQUEST_S:
            self.size = max(self.size / 2, _SMALLEST)
        elif _REQUEST_S / 20 < worked < _REQUEST_S / 2:  # less is what others have rested for
            self.size = min(self.size * 2, 1)
        time.sleep(min(worked, _LONGEST_S) * self._rest_for_work)
        self._resumed = time.monotonic()


_pace: ContextVar[_Pace | None] = ContextVar("pace", default=None)


@contextmanager
def keep_pace(share: float | None) -> Iterator[None]:
    """Let what is done within rest for a part of the time, in this thread; None is for no pace."""
    if share is None:
        yield
        return
    token = _pace.set(_Pace(share))
    try:
        yield
    finally:
        _pace.reset(token)


def rest_for_pace() -> None:
    """Rest, under a pace; called after each part of a work, however small."""
    if (pace := _pace.get()) is not None:
        pace.rest()


def has_pace() -> bool:
    """Return whether a pace is kept."""
    return _pace.get() is not None


def rows_at_once(most: int) -> int:
    """Return how many rows to read or to write in one request: `most`, or as few as a pace asks for now."""
    pace = _pace.get()
    return most if pace is None else max(int(most * pace.size), 1)


def with_this_pace(items: Iterable[_Item]) -> Iterator[_Item]:
    """Return an iterator whose items are made at the pace of today's caller, whichever thread asks for them."""
    context, iterator = copy_context(), iter(items)
    return iter(lambda: context.run(next, iterator, None), None)
