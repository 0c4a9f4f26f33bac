"""The frame of a chart: a scale each way, gridlines, marks. Colours are the page's own (`page.css`).

A place across is in per cent of the width and a place down in pixels, so that a chart is as wide as its box and its
text keeps its size on any screen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import floor, log10
from xml.etree.ElementTree import Element

from migrate.report.page import element

Format = Callable[[float], str]


@dataclass(frozen=True, slots=True)
class Chart:
    """A drawing, and what stands around it as text that wraps: names of its axes, and of its colours by class."""

    drawing: Element
    x_label: str = ""
    y_label: str = ""
    legend: Sequence[tuple[str, str]] = ()

    def figure(self) -> Element:
        """Return the chart as a part of a page."""
        kinds = ["chart"]
        shapes = []
        if self.legend:
            colours = [element("span", element("i", class_=kind), name) for name, kind in self.legend]
            shapes.append(element("p", colours, class_="legend"))
        if self.y_label:
            kinds.append("numbered")
            shapes.append(element("p", self.y_label, class_="axis"))
        shapes.append(element("div", self.drawing, class_="plot"))
        if self.x_label:
            kinds.append("named")
            shapes.append(element("p", self.x_label, class_="axis across"))
        return element("figure", shapes, class_=" ".join(kinds), aria_label=self.drawing.get("aria-label"))


def short(value: float) -> str:
    """Return a number as an axis shows it.

    >>> short(0.25), short(1200.0)
    ('0.25', '1,200')
    """
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.6g}"


def axis_percent(value: float) -> str:
    """Return a share as an axis shows it.

    >>> axis_percent(0.3), axis_percent(0.925)
    ('30 %', '92.5 %')
    """
    return f"{100 * value:.4g} %"


def power_of_ten(value: float) -> str:
    """Return a logarithm as the axis of a logarithmic scale shows it.

    >>> power_of_ten(-2), power_of_ten(-0.5)
    ('0.01', '0.32')
    """
    return f"{10**value:.2g}"


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Return round numbers between two, about `count` of them.

    >>> ticks(0.0, 1.0)
    [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    """
    if not high > low:
        return [low]
    rough = (high - low) / count
    # Numbers that people count in: 1, 2, 2.5 and 5 times a power of ten
    unit = 10 ** floor(log10(rough))
    # A little less will do: an end that is a round number but for rounding keeps its tick
    step = next(size * unit for size in (1.0, 2.0, 2.5, 5.0, 10.0) if size * unit >= rough * 0.999)
    # 0.3 / 0.1 is a little less than 3 in floating point: without the allowance the last tick is lost
    first = -floor(-low / step + 1e-9)
    last = floor(high / step + 1e-9)
    return [round(n * step, 12) for n in range(first, last + 1)]


def mark(name: str, *shapes: Element, at: str = "0%") -> Element:
    """Return shapes that say what they are when they are pointed at. Shapes at one place have x in pixels from it."""
    # What stands to the left of the place has a negative x, which an inner `svg` cuts off by default
    return element("svg", element("title", name), *shapes, class_="mark", x=at, overflow="visible")


def text(x: str | float, y: float, label: str, *, anchor: str = "start", muted: bool = False) -> Element:
    """Return a label."""
    kind = None
    if muted:
        kind = "muted"
    return element("text", label, x=x, y=y, text_anchor=anchor, class_=kind)


@dataclass(frozen=True, slots=True)
class Frame:
    """A plane `height` pixels high; `x` and `y` are what its edges stand for. Numbers of axes stand outside of it."""

    x: tuple[float, float]
    y: tuple[float, float] = (0.0, 1.0)
    height: float = 300

    def across(self, value: float) -> float:
        """Return how far from the left a value stands, in per cent of the width."""
        low, high = self.x
        return round(100 * (value - low) / (high - low), 2)

    def at_x(self, value: float) -> str:
        """Return the same as SVG has it."""
        return f"{self.across(value):g}%"

    def at_y(self, value: float) -> float:
        """Return how far from the top a value stands, in pixels."""
        low, high = self.y
        return round(self.height * (1 - (value - low) / (high - low)), 2)

    def path(
        self, points: Sequence[tuple[float, float]], *, closed: bool = False, **attributes: str | float
    ) -> Element:
        """Return a line through points. It is stretched with the width, but its stroke is not."""
        steps = "M" + "L".join(f"{self.across(x):g},{self.at_y(y):g}" for x, y in points)
        if closed:
            steps += "Z"
        # Stretched in one direction alone, a stroke would be wider here than there
        line = element("path", d=steps, vector_effect="non-scaling-stroke", **attributes)
        return element(
            "svg", line, viewBox=f"0 0 100 {self.height:g}", preserveAspectRatio="none", height=self.height,
            overflow="visible",
        )  # fmt: skip

    def x_axis(self, form: Format = short) -> list[Element]:
        """Return upright gridlines, with numbers below."""
        lines = []
        for value in ticks(*self.x):
            x = self.at_x(value)
            lines.append(element("line", class_="grid", x1=x, x2=x, y1=0, y2=self.height))
            lines.append(text(x, self.height + 17, form(value), anchor="middle", muted=True))
        return lines

    def y_axis(self, form: Format = short) -> list[Element]:
        """Return level gridlines, with numbers to the left."""
        lines = []
        for value in ticks(*self.y):
            y = self.at_y(value)
            lines.append(element("line", class_="grid", x1="0%", x2="100%", y1=y, y2=y))
            lines.append(text(-8.0, y + 4, form(value), anchor="end", muted=True))
        return lines

    def level(self, value: float) -> Element:
        """Return a dashed line from left to right, such as a margin."""
        y = self.at_y(value)
        return element("line", class_="level", x1="0%", x2="100%", y1=y, y2=y)

    def drawing(self, name: str, *shapes: Element) -> Element:
        """Return the chart; `name` is what it is read out as."""
        return element("svg", *shapes, role="img", aria_label=name, width="100%", height=self.height)


def series(number: int) -> str:
    """Return the colour of a series, from 0."""
    return f"var(--series-{number % 6 + 1})"


def dashes(number: int) -> str:
    """Return the dashes of the line of a series, from 0: colours come back after six."""
    return ("", "6 3", "2 3")[number // 6 % 3]
