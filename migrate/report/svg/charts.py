"""The charts of a report: intervals, points with bounds, lines, sorted differences, distributions, a map."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log10
from xml.etree.ElementTree import Element

import numpy as np
from numpy.typing import ArrayLike

from migrate.report.page import element
from migrate.report.svg.frame import Chart, Format, Frame, axis_percent, dashes, mark, power_of_ten, series, short, text

_HIGHEST = 1.5
"""Retention above is drawn at the edge: a bound without limit would flatten everything else."""

_NARROWEST = 270.0
"""Pixels of the narrowest plot whose labels must not cover each other."""

_CHARACTER = 7.0
"""Pixels of a character of a label, about."""

_LINE = 15.0
"""Pixels of a line of text."""

_NEAR = 1.0
"""Per cent of the width below which costs are about one."""

_APART = 11.0
"""Pixels that points of about one cost stand apart."""

_LABEL_GAP = 6.0
"""Pixels between a point and its label."""

_ASCENT = 11.0
_DESCENT = 4.0
"""Pixels of a label above and below its baseline."""

_MOST_BARS = 400
"""Bars of differences: more cannot be told apart."""

_MOST_POINTS = 160
"""Points of a line: more make the same line."""

_MOST_MARKS = 40
"""Points of a line up to which each has a mark to point at."""

_KINDS = {"good": "SAFE", "muted": "not shown to be SAFE", "other": "no plan of its own"}
"""Classes of points on the page, and what they mean."""


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate between bounds, under a name; `marked` stands out, and `figure` puts a value into words."""

    name: str
    lower: float
    estimate: float
    upper: float
    marked: bool = False
    figure: Format = "{:.3f}".format

    @property
    def description(self) -> str:
        """For whoever points at it."""
        upper = "no limit"
        if self.upper < np.inf:
            upper = self.figure(self.upper)
        return f"{self.name}: {self.figure(self.estimate)} ({self.figure(self.lower)} to {upper})"


@dataclass(frozen=True, slots=True)
class IntervalChart:
    """A drawing for each row, which has its name and figure beside it, and one for the axis below them."""

    name: str
    rows: Sequence[tuple[Interval, Element]]
    axis: Element
    label: str

    def figure(self) -> Element:
        """Return the chart as a part of a page."""
        shapes = []
        for row, drawing in self.rows:
            marked = ""
            if row.marked:
                marked = " marked"
            shapes.append(element("span", row.name, class_=f"name{marked}"))
            shapes.append(element("span", row.figure(row.estimate), class_=f"value{marked}"))
            shapes.append(element("div", drawing, class_="bar"))
        axis = element("div", self.axis, class_="bar scale")
        label = element("p", self.label, class_="axis across")
        return element("figure", shapes, axis, label, class_="chart intervals", aria_label=self.name)


@dataclass(frozen=True, slots=True)
class Point:
    """An interval of quality at a cost. `kind` is one of `_KINDS`."""

    interval: Interval
    cost: float
    kind: str


@dataclass(frozen=True, slots=True)
class Line:
    """Points (x, y), and where they are known the bounds of y at each."""

    name: str
    points: Sequence[tuple[float, float]]
    bounds: Sequence[tuple[float, float]] = ()


def interval_chart(
    name: str, rows: Sequence[Interval], *, margin: float, label: str, form: Format = short
) -> IntervalChart:
    """Draw one interval a row, against a margin."""
    # Always a little above 1, so that the full re-embed's own line is seen; bounds without limit end at 2
    top = max([1.05, *(min(row.upper, 2.0) for row in rows)])
    foot = min([*(row.lower for row in rows), margin])
    span = (max(foot - 0.1 * (top - foot), 0.0), top)
    frame = Frame(span, height=26.0)
    x = frame.at_x(margin)
    line = element("line", class_="level", x1=x, x2=x, y1=-4, y2=frame.height + 4)
    # Nothing is drawn of what has no height
    axis = Frame(span, height=1.0)
    note = text(x, 34.0, f"margin {form(margin)}", anchor="middle")
    drawings = [(row, frame.drawing(row.description, line, _interval(frame, row))) for row in rows]
    return IntervalChart(name, drawings, axis.drawing("axis", *axis.x_axis(form), note), label)


def _interval(frame: Frame, row: Interval) -> Element:
    low, middle, high = (frame.at_x(min(value, frame.x[1])) for value in (row.lower, row.estimate, row.upper))
    y = frame.height / 2
    kind = "muted"
    stroke_width = 2.5
    radius = 4.0
    if row.marked:
        kind = "accent"
        stroke_width = 4.0
        radius = 5.5
    line = element("line", class_=kind, x1=low, x2=high, y1=y, y2=y, stroke_width=stroke_width)
    return mark(row.description, line, element("circle", class_=kind, cx=middle, cy=y, r=radius))


def cost_chart(
    name: str, points: Sequence[Point], *, margin: float, x_label: str, y_label: str, y_form: Format = short
) -> Chart:
    """Draw intervals of quality, each at its cost, and the margin as a line."""
    bounds = [min(edge, _HIGHEST) for point in points for edge in (point.interval.lower, point.interval.upper)]
    low = min(*bounds, margin)
    high = max(*bounds, margin)
    # All may be one value, which spans nothing
    pad = 0.06 * (high - low or 1.0)
    frame = Frame(_with_room(points), (low - pad, high + pad), height=340)
    # Options that cost nothing all stand at 0, and would cover each other
    sides = _side_by_side(frame, points)
    labels = _label_heights(frame, points, sides, margin)
    named = [(point, side) for point, side in zip(points, sides, strict=True) if point.interval.name in labels]
    return Chart(
        frame.drawing(
            name,
            *frame.x_axis(),
            *frame.y_axis(y_form),
            frame.level(margin),
            *(_point(frame, point, side[0]) for point, side in zip(points, sides, strict=True)),
            *(_label(frame, point, side, labels[point.interval.name]) for point, side in named),  # above all bars
        ),
        x_label,
        y_label,
        [(name, kind) for kind, name in _KINDS.items() if any(point.kind == kind for point in points)]
        + [(f"SAFE needs at least {y_form(round(margin, 3))}", "level")],
    )


def _with_room(points: Sequence[Point]) -> tuple[float, float]:
    """Return the ends of the axis of costs, so that points beside each other stay within the narrowest plot."""
    # Everything may be free
    reach = max(point.cost for point in points) or 1.0
    near = 2 * _NEAR / 100 * reach
    n_free = sum(abs(point.cost) < near for point in points)
    n_dear = sum(abs(point.cost - reach) < near for point in points)
    left_room = _APART * max(n_free, 1) / 2 + 2
    right_room = _APART * max(n_dear, 1) / 2 + 2
    unit = reach / (_NARROWEST - left_room - right_room)
    return -left_room * unit, reach + right_room * unit


def _side_by_side(frame: Frame, points: Sequence[Point]) -> list[tuple[float, float]]:
    """Return how far from its cost each point stands, and its group's edge: those of about one cost stay apart.

    In pixels; the edge is on the side of the labels.
    """
    sides = []
    for point in points:
        x = frame.across(point.cost)
        group = [neighbour for neighbour in points if abs(frame.across(neighbour.cost) - x) < _NEAR]
        group.sort(key=lambda neighbour: neighbour.interval.estimate)
        reach = _APART * (len(group) - 1) / 2
        rank = next(number for number, neighbour in enumerate(group) if neighbour is point)
        edge = reach
        if _is_right(frame, point):
            edge = -reach
        sides.append((_APART * rank - reach, edge))
    return sides


def _is_right(frame: Frame, point: Point) -> bool:
    """Return whether the label stands to the left of its point, as there is no room to the right."""
    room = (100 - frame.across(point.cost)) / 100 * _NARROWEST
    return room < _CHARACTER * len(point.interval.name) + 2 * _APART


def _label_heights(
    frame: Frame, points: Sequence[Point], sides: Sequence[tuple[float, float]], margin: float
) -> dict[str, float]:
    """Return the height of each label: on the narrowest plot none covers another, a bar or the margin."""
    level = frame.at_y(margin)
    unit = _NARROWEST / 100
    bars = [
        _bar_box(frame, point, unit * frame.across(point.cost) + side)
        for point, (side, _) in zip(points, sides, strict=True)
    ]
    heights = {}
    labelled = [(point, side) for point, (_, side) in zip(points, sides, strict=True)]
    for point, side in sorted(labelled, key=lambda pair: -pair[0].interval.estimate):
        x = unit * frame.across(point.cost) + side
        width = _CHARACTER * len(point.interval.name) + _APART
        # From the point on and not from where the label begins: on a wider plot it is nearer to its point.
        span = (x + _LABEL_GAP, x + width)
        if _is_right(frame, point):
            span = (x - width, x - _LABEL_GAP)
        best = frame.at_y(min(point.interval.estimate, _HIGHEST)) + _DESCENT
        y = _free_height(best, span, bars, level, frame.height)
        heights[point.interval.name] = y
        bars.append((*span, y - _ASCENT, y + _DESCENT))
    return heights


def _free_height(
    best: float,
    span: tuple[float, float],
    bars: Sequence[tuple[float, float, float, float]],
    level: float,
    height: float,
) -> float:
    """Return the height nearest to the best at which a label from side to side covers neither a bar nor the level.

    Bars are left, right, upper and lower edges; where nothing is free, the best height has to do.
    """
    left, right = span
    # What it must not cover, as upper and lower edges; the level takes half a line on either side
    covered = [(top, foot) for start, end, top, foot in bars if left < end and start < right]
    for step in range(round(height)):
        for y in (best + step, best - step):
            is_off_level = abs(y - _DESCENT - level) >= _LINE / 2
            is_off_bars = not any(y - _ASCENT < foot and top < y + _DESCENT for top, foot in covered)
            if _LINE <= y <= height and is_off_level and is_off_bars:
                return y
    return best


def _bar_box(frame: Frame, point: Point, x: float) -> tuple[float, float, float, float]:
    """Return the left, right, upper and lower edge of a point with its bounds, around a place on the narrowest plot."""
    row = point.interval
    high, middle, low = (frame.at_y(min(value, _HIGHEST)) for value in (row.upper, row.estimate, row.lower))
    return x - 5, x + 5, min(high - 3, middle - 5), max(low + 3, middle + 5)


def _point(frame: Frame, point: Point, x: float) -> Element:
    row = point.interval
    low, middle, high = (frame.at_y(min(value, _HIGHEST)) for value in (row.lower, row.estimate, row.upper))
    shapes = [
        element("line", class_=point.kind, x1=x, x2=x, y1=low, y2=high, stroke_width=2.0),
        element("circle", class_=point.kind, cx=x, cy=middle, r=5.0),
    ]
    return mark(row.description, *shapes, at=frame.at_x(point.cost))


def _label(frame: Frame, point: Point, sides: tuple[float, float], y: float) -> Element:
    x, edge = sides
    middle = frame.at_y(min(point.interval.estimate, _HIGHEST))
    side = 1
    anchor = "start"
    if _is_right(frame, point):
        side = -1
        anchor = "end"
    shapes = [text(edge + 11 * side, y, point.interval.name, anchor=anchor)]
    # Far from its point, it needs something that leads there
    if abs(y - _DESCENT - middle) > _LINE / 2:
        shapes.append(element("line", class_="lead", x1=x, x2=edge + 9 * side, y1=middle, y2=y - _DESCENT))
    return element("svg", *shapes, x=frame.at_x(point.cost), overflow="visible")


def line_chart(
    name: str,
    lines: Sequence[Line],
    *,
    x_label: str,
    y_label: str,
    level: float | None = None,
    level_label: str = "",
    x_form: Format = short,
    y_form: Format = short,
) -> Chart:
    """Draw lines with bounds, and a level to hold them against."""
    xs = [x for line in lines for x, _ in line.points]
    ys = [y for line in lines for y in [*(y for _, y in line.points), *(b for pair in line.bounds for b in pair)]]
    if level is not None:
        ys.append(level)
    # A level line has a height of nothing
    pad = 0.06 * (max(ys) - min(ys) or 1.0)
    first_x = min(xs)
    # A share of something begins with nothing
    if x_form is axis_percent:
        first_x = 0.0
    frame = Frame(_wide(first_x, max(xs)), (min(ys) - pad, max(ys) + pad))
    shapes = [shape for number, line in enumerate(lines) for shape in _line(frame, line, number, x_form, y_form)]
    names = []
    if len(lines) > 1:
        names = _legend([line.name for line in lines])
    if level is not None:
        shapes.append(frame.level(level))
        names.append((level_label, "level"))
    return Chart(frame.drawing(name, *frame.x_axis(x_form), *frame.y_axis(y_form), *shapes), x_label, y_label, names)


def spectra(values: Mapping[str, Sequence[float]]) -> Chart | None:
    """Draw a line for each series, its values in units of its first, by logarithm; what is below 10⁻⁴ is left out.

    None where nothing is above.
    """
    lines = []
    for label, ranked in values.items():
        points = [
            (float(rank), log10(value / ranked[0]))
            for rank, value in enumerate(ranked, 1)
            if value > ranked[0] * 1e-4 > 0
        ]
        if points:
            lines.append(Line(label, thinned(points)))
    if not lines:
        return None
    return line_chart(
        "singular values of the stitches",
        lines,
        x_label="singular value, by rank",
        y_label="share of the greatest",
        y_form=power_of_ten,
    )


def thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return some of the points, the last one always."""
    every = max(len(points) // _MOST_POINTS, 1)
    return [*points[:-1:every], *points[-1:]]


def _legend(names: Sequence[str]) -> list[tuple[str, str]]:
    return [(name, f"series-{number % 6 + 1}") for number, name in enumerate(names)]


def _wide(low: float, high: float) -> tuple[float, float]:
    if high > low:
        return low, high
    return low - 0.5, high + 0.5


def _line(frame: Frame, line: Line, number: int, x_form: Format, y_form: Format) -> list[Element]:
    colour = f"stroke:{series(number)}"
    bars = [
        element("line", x1=frame.at_x(x), x2=frame.at_x(x), y1=frame.at_y(low), y2=frame.at_y(high), style=colour,
                stroke_width=1.5, opacity=0.55)
        for (x, _), (low, high) in zip(line.points, line.bounds, strict=False)
    ]  # fmt: skip
    path = frame.path(line.points, fill="none", style=colour, stroke_width=2.0, stroke_dasharray=dashes(number))
    drawn = [*bars, mark(line.name, path)]
    # More marks than these lie on top of each other
    if len(line.points) <= _MOST_MARKS:
        drawn += [
            mark(
                f"{line.name}: {y_form(round(y, 3))} at {x_form(x)}",
                element("circle", cx=0, cy=frame.at_y(y), r=4.0, style=f"fill:{series(number)}"),
                at=frame.at_x(x),
            )
            for x, y in line.points
        ]
    return drawn


def difference_chart(name: str, values: ArrayLike, names: Sequence[str], *, label: str) -> Chart:
    """Draw differences from the least to the greatest, losses below the line and gains above it; (n,), n >= 1.

    Of more than can be told apart, as many as can be are drawn, evenly from the order.
    """
    differences = np.asarray(values, dtype=float)
    order = np.argsort(differences, kind="stable")
    if len(order) > _MOST_BARS:
        order = order[np.linspace(0, len(order) - 1, _MOST_BARS).round().astype(int)]
    # Small differences are not to fill the chart as if they were large
    reach = (min(float(differences.min()), -0.1), max(float(differences.max()), 0.1))
    frame = Frame((0.0, float(len(order))), reach, height=240)
    bars = [
        _bar(frame, position, float(differences[row]), f"{names[row]}: {differences[row]:+.3f}")
        for position, row in enumerate(order)
        if differences[row]
    ]
    line = element("line", class_="axis", x1="0%", x2="100%", y1=frame.at_y(0), y2=frame.at_y(0))
    axis = frame.y_axis(_signed)
    return Chart(frame.drawing(name, *axis, *bars, line), y_label=label)


def _signed(value: float) -> str:
    if not value:
        return "0"
    return f"{value:+g}"


def _bar(frame: Frame, position: int, value: float, label: str) -> Element:
    top, foot = sorted((frame.at_y(value), frame.at_y(0)))
    # Without gaps where browsers round
    width = f"{100 / frame.x[1] + 0.05:.3g}%"
    kind = "mark good"
    if value < 0:
        kind = "mark bad"
    return element(
        "rect",
        element("title", label),
        class_=kind,
        x=frame.at_x(position),
        width=width,
        y=top,
        height=max(foot - top, 1.0),
    )


def histogram_chart(name: str, rows: Sequence[tuple[str, Sequence[float], Sequence[int]]], *, label: str) -> Chart:
    """Draw distributions over one axis: name, edges (b + 1,), counts (b,) each; areas are made equal."""
    # By the width of the bins too, as two stores have scores of different ranges
    shares = [np.array(counts) / max(sum(counts), 1) / np.diff(edges) for _, edges, counts in rows]
    low = min(edges[0] for _, edges, _ in rows)
    high = max(edges[-1] for _, edges, _ in rows)
    highest = float(max(share.max() for share in shares))
    frame = Frame(_wide(low, high), (0.0, highest * 1.05), height=190)
    areas = [
        mark(name, _steps(frame, edges, share, number))
        for number, ((name, edges, _), share) in enumerate(zip(rows, shares, strict=True))
    ]
    return Chart(frame.drawing(name, *frame.x_axis(), *areas), label, legend=_legend([name for name, *_ in rows]))


def _steps(frame: Frame, edges: Sequence[float], heights: np.ndarray, number: int) -> Element:
    steps = [(x, float(y)) for index, y in enumerate(heights) for x in (edges[index], edges[index + 1])]
    colour = f"fill:{series(number)};stroke:{series(number)}"
    return frame.path(
        [(edges[0], 0.0), *steps, (edges[-1], 0.0)], closed=True, style=colour, fill_opacity=0.22, stroke_width=1.5
    )
