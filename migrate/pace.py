"""A pace: a command works for a share of the time and rests in between, for the programs that ask the same store."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from typing import Final, TypeVar

_Item = TypeVar("_Item")

_PARTS: Final = 20
"""How many times smaller the requests to a store are under a pace: a query waits for one of them at most."""


class _Pace:
    """The share of the time, 0 to 1, in which a command works."""

    def __init__(self, share: float) -> None:
        self._rest_for_work = 1 / share - 1
        self._resumed = time.monotonic()

    def rest(self) -> None:
        """Sleep as long as the work since the last rest asks for."""
        time.sleep((time.monotonic() - self._resumed) * self._rest_for_work)
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


def rest() -> None:
    """Rest, under a pace; called after each part of a work, however small."""
    if (pace := _pace.get()) is not None:
        pace.rest()


def has_pace() -> bool:
    """Return whether a pace is kept."""
    return _pace.get() is not None


def rows_at_once(most: int) -> int:
    """Return how many rows to read or to write in one request: `most`, fewer under a pace."""
    return max(most // _PARTS, 1) if has_pace() else most


def with_this_pace(items: Iterable[_Item]) -> Iterator[_Item]:
    """Return an iterator whose items are made at the pace of today's caller, whichever thread asks for them."""
    context, iterator = copy_context(), iter(items)
    return iter(lambda: context.run(next, iterator, None), None)
