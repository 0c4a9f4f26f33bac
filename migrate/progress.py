"""Reports of how far a step has come; imports no library, as the fields of steps have them."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int | None], None]
"""Called as progress(stage, done, total); total is None where it is not known."""


def no_progress(stage: str, done: int, total: int | None) -> None:
    """Report nothing."""
