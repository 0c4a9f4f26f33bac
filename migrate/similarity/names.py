"""Short names for stores that are shown side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def distinct_names(paths: Sequence[Path]) -> list[str]:
    """For each path as many of its last parts as tell it from all others, and a number where the path is the same.

    A path may hold what a terminal obeys; a name does not.

    >>> distinct_names([Path("a/store"), Path("b/store")])
    ['a/store', 'b/store']
    >>> distinct_names([Path("a/old"), Path("a/old"), Path("b/new")])
    ['old', 'old (2)', 'new']
    """
    parts = [path.absolute().parts for path in paths]
    different = len(set(parts))
    depth = next(d for d in range(1, 1 + max(map(len, parts))) if len({one[-d:] for one in parts}) == different)
    names = [_printable(str(Path(*one[-depth:]))) for one in parts]
    return [name if names.index(name) == place else _numbered(names, place) for place, name in enumerate(names)]


def _numbered(names: Sequence[str], place: int) -> str:
    return f"{names[place]} ({names[: place + 1].count(names[place])})"


def _printable(name: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in name)
