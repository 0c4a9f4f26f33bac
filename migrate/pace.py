"""A pace: a command works for a share of the time and rests in between, for the programs that ask the same store."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, TypeVar

_Piece = TypeVar("_Piece")

_LONGEST_S: Final = 10.0
"""Seconds of work that are rested for at most: a process that was stopped for hours goes on."""
LEAST: Final = 0.001
"""The smallest share that is a pace."""


class _Pace:
    """The share of the time, 0 to 1, in which a command works."""

    def __init__(self, share: float) -> None:
        self._rest_for_work = 1 / share - 1
        self._resumed = time.monotonic()

    def rest(self) -> None:
        """Sleep as long as the work since the last rest asks for."""
        worked = time.monotonic() - self._resumed
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


def has_pace() -> bool:
    """Return whether a pace is kept."""
    return _pace.get() is not None


def with_rests(pieces: Iterable[_Piece]) -> Iterator[_Piece]:
    """Return the pieces of a work, under a pace with a rest after each, in whichever thread they are asked for."""
    pace = _pace.get()
    if pace is None:
        return iter(pieces)
    # Handed over, as a thread that asks for the pieces has a context of its own, without the pace.
    return _resting(pieces, pace)


def _resting(pieces: Iterable[_Piece], pace: _Pace) -> Iterator[_Piece]:
    for piece in pieces:
        yield piece
        pace.rest()
