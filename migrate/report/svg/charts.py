"""The charts of a report: intervals, lines with bounds, sorted differences, distributions, a map.

A matrix as an inline picture: a number in every cell, the deeper the shade the more of it. Knows no measure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from numpy.typing import ArrayLike

from migrate.report.svg.frame import Format, Frame, legend, percent, series, short, text

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


_ROW = 26
_MOST_BARS = 600
_CHARACTER = 6.6


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate between bounds, under a name; `marked` stands out."""

    name: str
    lower: float
    estimate: float
    upper: float
    marked: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """Points (x, y), and where they are known the bounds of y at each."""

    name: str
    points: Sequence[tuple[float, float]]
    bounds: Sequence[tuple[float, float]] = ()


def interval_chart(title: str, rows: Sequence[Interval], *, margin: float | None, label: str) -> str:
    """One interval a row, against a margin."""
    top = max(1.05, *(min(row.upper, 2.0) for row in rows))
    left = min(max(len(row.name) for row in rows), 40) * _CHARACTER + 20
    frame = Frame((0.0, top), (0.0, 1.0), height=_ROW * len(rows) + 66, left=left, right=58, top=22)
    return frame.drawing(
        title,
        frame.x_axis(label),
        *(_interval(frame, row, frame.top + _ROW * (place + 0.5)) for place, row in enumerate(rows)),
        frame.upright(margin, f"margin {margin:g}") if margin is not None else "",
    )


def _interval(frame: Frame, row: Interval, y: float) -> str:
    colour = "var(--accent)" if row.marked else "var(--muted)"
    low, middle, high = (frame.at_x(min(value, frame.x[1])) for value in (row.lower, row.estimate, row.upper))
    return (
        f"<g><title>{escape(f'{row.name}: {row.estimate:.3f} ({row.lower:.3f} to {_bound(row.upper)})')}</title>"
        f"{text(frame.left - 10, y + 4, _cut(row.name, 40), anchor='end', bold=row.marked)}"
        f'<line x1="{low:g}" x2="{high:g}" y1="{y:g}" y2="{y:g}" style="stroke:{colour}" '
        f'stroke-width="{4 if row.marked else 2.5}" stroke-linecap="round"/>'
        f'<circle cx="{middle:g}" cy="{y:g}" r="{5.5 if row.marked else 4}" style="fill:{colour}"/>'
        f"{text(frame.width, y + 4, f'{row.estimate:.3f}', anchor='end', bold=row.marked)}</g>"
    )


def _bound(value: float) -> str:
    return f"{value:.3f}" if value < np.inf else "no limit"


def _cut(name: str, width: int) -> str:
    return name if len(name) <= width else name[: width - 1] + "…"


def line_chart(
    title: str,
    lines: Sequence[Line],
    *,
    x_label: str,
    y_label: str,
    level: float | None = None,
    level_label: str = "",
    x_form: Format = short,
) -> str:
    """Lines with bounds, and a level to hold them against."""
    xs = [x for line in lines for x, _ in line.points]
    ys = [y for line in lines for y in [*(y for _, y in line.points), *(b for pair in line.bounds for b in pair)]]
    ys += [] if level is None else [level]
    pad = 0.06 * (max(ys) - min(ys) or 1.0)
    frame = Frame(
        _wide(0.0 if x_form is percent else min(xs), max(xs)), (min(ys) - pad, max(ys) + pad), height=360, top=40
    )
    return frame.drawing(
        title,
        frame.x_axis(x_label, x_form),
        frame.y_axis("" if len(lines) > 1 else y_label),
        *(_line(frame, line, number) for number, line in enumerate(lines)),
        frame.level(level, level_label) if level is not None else "",
        legend(
            [(line.name, series(number)) for number, line in enumerate(lines) if len(lines) > 1], x=frame.left, y=16
        ),
    )


def _wide(low: float, high: float) -> tuple[float, float]:
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _line(frame: Frame, line: Line, number: int) -> str:
    colour = series(number)
    bars = "".join(
        f'<line x1="{frame.at_x(x):g}" x2="{frame.at_x(x):g}" y1="{frame.at_y(low):g}" y2="{frame.at_y(high):g}" '
        f'style="stroke:{colour}" stroke-width="1.5" opacity=".55"/>'
        for (x, _), (low, high) in zip(line.points, line.bounds, strict=False)
    )
    dots = "".join(
        f'<circle cx="{frame.at_x(x):g}" cy="{frame.at_y(y):g}" r="4" style="fill:{colour}">'
        f"<title>{escape(f'{line.name}: {y:.3f}')}</title></circle>"
        for x, y in line.points
        if len(line.points) <= 40
    )
    path = f'<path d="{frame.path(line.points)}" fill="none" style="stroke:{colour}" stroke-width="2"/>'
    return bars + path + dots


def difference_chart(title: str, values: ArrayLike, *, label: str) -> str:
    """Differences from the least to the greatest, losses below the line and gains above it; (n,), n >= 1."""
    ordered = np.sort(np.asarray(values, dtype=float))
    if len(ordered) > _MOST_BARS:
        ordered = np.quantile(ordered, np.linspace(0, 1, _MOST_BARS))
    reach = float(max(np.abs(ordered).max(), 0.1))
    frame = Frame((0.0, float(len(ordered))), (-reach, reach), height=280, top=24, bottom=14)
    half = (frame.at_y(0) - frame.top), frame.at_y(0)
    parts = (_area(frame, ordered, sign, colour) for sign, colour in ((-1, "var(--bad)"), (1, "var(--good)")))
    line = f'<line class="axis" x1="{frame.left}" x2="{frame.width - frame.right}" y1="{half[1]}" y2="{half[1]}"/>'
    return frame.drawing(title, frame.y_axis(label, lambda v: f"{v:+g}" if v else "0"), *parts, line)


def _area(frame: Frame, ordered: np.ndarray, sign: int, colour: str) -> str:
    shown = np.maximum(sign * ordered, 0) * sign
    steps = [(x, float(y)) for place, y in enumerate(shown) for x in (float(place), float(place + 1))]
    closed = [(0.0, 0.0), *steps, (float(len(shown)), 0.0)]
    return f'<path d="{frame.path(closed)}Z" style="fill:{colour}" opacity=".8"/>'


def histogram_chart(title: str, rows: Sequence[tuple[str, Sequence[float], Sequence[int]]], *, label: str) -> str:
    """Distributions over one axis: name, edges (b + 1,), counts (b,) each; areas are made equal."""
    shares = [np.array(counts) / max(sum(counts), 1) / np.diff(edges) for _, edges, counts in rows]
    low, high = min(edges[0] for _, edges, _ in rows), max(edges[-1] for _, edges, _ in rows)
    frame = Frame(
        _wide(low, high), (0.0, float(max(share.max() for share in shares)) * 1.05), height=260, left=16, top=34
    )
    parts = (
        _steps(frame, edges, share, number)
        for number, ((_, edges, _), share) in enumerate(zip(rows, shares, strict=True))
    )
    names = legend([(name, series(number)) for number, (name, _, _) in enumerate(rows)], x=frame.left, y=16)
    return frame.drawing(title, frame.x_axis(label), *parts, names)


def _steps(frame: Frame, edges: Sequence[float], heights: np.ndarray, number: int) -> str:
    steps = [(x, float(y)) for place, y in enumerate(heights) for x in (edges[place], edges[place + 1])]
    closed = [(edges[0], 0.0), *steps, (edges[-1], 0.0)]
    return (
        f'<path d="{frame.path(closed)}Z" style="fill:{series(number)};stroke:{series(number)}" '
        'fill-opacity=".22" stroke-width="1.5"/>'
    )


def map_chart(
    title: str,
    clouds: Sequence[tuple[str, Sequence[tuple[float, float]]]],
    arrows: Sequence[tuple[str, tuple[float, float], tuple[float, float]]],
) -> str:
    """Clouds of places, and named arrows from one place to another."""
    places = np.array([place for _, cloud in clouds for place in cloud] + [p for _, *ends in arrows for p in ends])
    (left, low), (right, high) = places.min(axis=0), places.max(axis=0)
    frame = Frame(_wide(left, right), _wide(low, high), height=560, left=10, right=10, top=34, bottom=10)
    dots = (
        f'<g style="fill:{series(number)}" fill-opacity=".45">'
        + "".join(f'<circle cx="{frame.at_x(x):.1f}" cy="{frame.at_y(y):.1f}" r="2.4"/>' for x, y in cloud)
        + "</g>"
        for number, (_, cloud) in enumerate(clouds)
    )
    moves = "".join(
        f'<line x1="{frame.at_x(a[0]):.1f}" y1="{frame.at_y(a[1]):.1f}" x2="{frame.at_x(b[0]):.1f}" '
        f'y2="{frame.at_y(b[1]):.1f}" style="stroke:var(--bad)" stroke-width="1.6"><title>{escape(name)}</title></line>'
        f'<circle cx="{frame.at_x(b[0]):.1f}" cy="{frame.at_y(b[1]):.1f}" r="3.4" style="fill:var(--bad)"/>'
        for name, a, b in arrows
    )
    names = [(name, series(number)) for number, (name, _) in enumerate(clouds)]
    names += [("moved most", "var(--bad)")] if arrows else []
    return frame.drawing(title, *dots, moves, legend(names, x=frame.left, y=16))
