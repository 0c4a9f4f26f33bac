"""Reports of how far a step has come; imports no library, as the fields of steps have them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

_Piece = TypeVar("_Piece")

Progress = Callable[[str, int, int | None], None]
"""Called as progress(stage, done, total); total is None where it is not known."""


def no_progress(stage: str, done: int, total: int | None) -> None:
    """Report nothing."""


_listener: ContextVar[Progress] = ContextVar("progress", default=no_progress)


@contextmanager
def heard_by(progress: Progress) -> Iterator[None]:
    """Let `progress` hear, in this thread, of work that no callback is handed to."""
    token = _listener.set(progress)
    try:
        yield
    finally:
        _listener.reset(token)


def note_progress(stage: str, done: int, total: int | None) -> None:
    """Report a stage far below whoever shows it, such as hashing a file; nobody hears of it in a program of others."""
    _listener.get()(stage, done, total)


def count_pieces(
    pieces: Iterable[_Piece], stage: str, total: int | None, size: Callable[[_Piece], int]
) -> Iterator[_Piece]:
    """Yield the pieces of a work, and report before each how much of it came before."""
    done = 0
    note_progress(stage, done, total)
    for piece in pieces:
        yield piece
        done += size(piece)
        note_progress(stage, done, total)


@contextmanager
def one_step(stage: str) -> Iterator[None]:
    """Report work that cannot be counted, such as loading a model: when it begins, and when it has ended."""
    note_progress(stage, 0, None)
    yield
    note_progress(stage, 1, 1)
