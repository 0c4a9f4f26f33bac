"""A matrix as an inline picture: a number in every cell, the deeper the shade the more of it. Knows no measure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

_CELL_WIDTH, _CELL_HEIGHT = 58, 34
_LETTER = 6.6
_LONGEST = 18
_SLOPE = 35
_FAINTEST, _DEEPEST = 0.05, 0.55
"""Opacity of the shade. At the deepest the ink of a number is still read, in light and in dark."""

Matrix = Sequence[Sequence[float | None]]
Show = Callable[[float], str]


@dataclass(frozen=True, slots=True)
class Shading:
    """The value that is shaded faintest and the one that is shaded deepest, and what deeper means."""

    faintest: float
    deepest: float
    deeper: str

    def share(self, value: float) -> float:
        """How far a value lies from the faintest, 0, to the deepest, 1."""
        span = self.deepest - self.faintest
        return min(max((value - self.faintest) / span, 0), 1) if span else 0.0

    def opacity(self, value: float) -> float:
        """The shade of a value."""
        return _FAINTEST + (_DEEPEST - _FAINTEST) * self.share(value)


def heat_map(title: str, names: Sequence[str], matrix: Matrix, shading: Shading, show: Show) -> str:
    """An SVG element: a row and a column for each name, in that order. The diagonal is not shaded; None is a dash."""
    short = [shorten(name, _LONGEST) for name in names]
    left = _LETTER * max(map(len, short)) + 12
    top = 0.62 * _LETTER * max(map(len, short)) + 18
    grid = _CELL_WIDTH * len(names), _CELL_HEIGHT * len(names)
    width, height = left + grid[0] + 0.5 * top + 12, top + grid[1] + 44
    cells = "".join(
        _cell(left + _CELL_WIDTH * column, top + _CELL_HEIGHT * row, f"{names[row]} → {names[column]}", value, shading,
              show, own=row == column)
        for row, values in enumerate(matrix)
        for column, value in enumerate(values)
    )  # fmt: skip
    return (
        f'<svg viewBox="0 0 {width:.0f} {height:.0f}" style="max-width:{width:.0f}px" role="img" '
        f'aria-label="{escape(title)}">{_heads(short, left, top)}{cells}'
        f"{_legend(left, top + grid[1] + 16, shading, show)}</svg>"
    )


def shorten(name: str, longest: int) -> str:
    """The name, without its middle where it is longer than that.

    >>> shorten("a-very-long-name", 9)
    'a-ve…name'
    """
    if len(name) <= longest:
        return name
    tail = (longest - 1) // 2
    return f"{name[: longest - 1 - tail]}…{name[-tail:]}"


def _heads(names: Sequence[str], left: float, top: float) -> str:
    parts = []
    for place, name in enumerate(names):
        x, y = left + _CELL_WIDTH * (place + 0.5), top + _CELL_HEIGHT * (place + 0.5)
        parts.append(f'<text x="{left - 8:.1f}" y="{y + 4:.1f}" text-anchor="end">{escape(name)}</text>')
        parts.append(
            f'<text x="{x:.1f}" y="{top - 8:.1f}" transform="rotate(-{_SLOPE} {x:.1f} {top - 8:.1f})">'
            f"{escape(name)}</text>"
        )
    return "".join(parts)


def _cell(x: float, y: float, pair: str, value: float | None, shading: Shading, show: Show, *, own: bool) -> str:
    shown = "–" if value is None else show(value)
    opacity = 0.0 if own or value is None else shading.opacity(value)
    kind = ' class="muted"' if own or value is None else ""
    return (
        f"<g><title>{escape(pair)}: {shown}</title>"
        f'<rect x="{x + 1:.1f}" y="{y + 1:.1f}" width="{_CELL_WIDTH - 2}" height="{_CELL_HEIGHT - 2}" rx="3" '
        f'fill="var(--accent)" fill-opacity="{opacity:.3f}" stroke="var(--line)"/>'
        f'<text{kind} x="{x + _CELL_WIDTH / 2:.1f}" y="{y + _CELL_HEIGHT / 2 + 4:.1f}" text-anchor="middle">'
        f"{shown}</text></g>"
    )


def _legend(x: float, y: float, shading: Shading, show: Show) -> str:
    low, high = show(shading.faintest), show(shading.deepest)
    start = x + _LETTER * len(low) + 8
    steps = "".join(
        f'<rect x="{start + 14 * step:.1f}" y="{y:.1f}" width="14" height="12" fill="var(--accent)" '
        f'fill-opacity="{_FAINTEST + (_DEEPEST - _FAINTEST) * step / 5:.3f}"/>'
        for step in range(6)
    )
    return (
        f'<g class="legend"><text class="muted" x="{x:.1f}" y="{y + 10:.1f}">{low}</text>{steps}'
        f'<text class="muted" x="{start + 92:.1f}" y="{y + 10:.1f}">{high}, {escape(shading.deeper)}</text></g>'
    )
