"""The frame of a chart: a scale each way, gridlines, labels. Colours are the page's own (`page.css`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from math import floor, log10

_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)

Format = Callable[[float], str]


def short(value: float) -> str:
    """A number as an axis shows it.

    >>> short(0.25), short(1200.0)
    ('0.25', '1,200')
    """
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.6g}"


def percent(value: float) -> str:
    """A share as an axis shows it.

    >>> percent(0.3)
    '30%'
    """
    return f"{value:.0%}"


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers between two, about `count` of them.

    >>> ticks(0.0, 1.0)
    [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    """
    if not high > low:
        return [low]
    rough = (high - low) / count
    unit = 10 ** floor(log10(rough))
    step = next(size * unit for size in _STEPS if size * unit >= rough * 0.999)
    first = -floor(-low / step + 1e-9)
    return [round(n * step, 12) for n in range(int(first), floor(high / step + 1e-9) + 1)]


@dataclass(frozen=True, slots=True)
class Frame:
    """A plane of `width` x `height` with margins; `x` and `y` are what its edges stand for."""

    x: tuple[float, float]
    y: tuple[float, float]
    width: float = 920
    height: float = 340
    left: float = 56
    right: float = 16
    top: float = 14
    bottom: float = 40

    def at_x(self, value: float) -> float:
        """Where a value stands from the left, in pixels."""
        low, high = self.x
        return round(self.left + (value - low) / (high - low) * (self.width - self.left - self.right), 2)

    def at_y(self, value: float) -> float:
        """Where a value stands from the top, in pixels."""
        low, high = self.y
        return round(
            self.height - self.bottom - (value - low) / (high - low) * (self.height - self.top - self.bottom), 2
        )

    def path(self, points: Sequence[tuple[float, float]]) -> str:
        """A line through points, as the `d` of a path."""
        return "M" + "L".join(f"{self.at_x(x):g},{self.at_y(y):g}" for x, y in points)

    def x_axis(self, label: str, form: Format = short) -> str:
        """Gridlines, numbers and the name of the horizontal axis."""
        foot = self.height - self.bottom
        lines = "".join(
            f'<line class="grid" x1="{self.at_x(v):g}" x2="{self.at_x(v):g}" y1="{self.top:g}" y2="{foot:g}"/>'
            f'<text class="muted" x="{self.at_x(v):g}" y="{foot + 15:g}" text-anchor="middle">{form(v)}</text>'
            for v in ticks(*self.x)
        )
        middle = (self.left + self.width - self.right) / 2
        return f"{lines}{text(middle, self.height - 6, label, anchor='middle', muted=True)}"

    def y_axis(self, label: str, form: Format = short) -> str:
        """Gridlines, numbers and the name of the vertical axis, which stands above them."""
        edge = self.width - self.right
        lines = "".join(
            f'<line class="grid" x1="{self.left:g}" x2="{edge:g}" y1="{self.at_y(v):g}" y2="{self.at_y(v):g}"/>'
            f'<text class="muted" x="{self.left - 8:g}" y="{self.at_y(v) + 4:g}" text-anchor="end">{form(v)}</text>'
            for v in ticks(*self.y)
        )
        return f"{lines}{text(self.left, self.top - 4, label, muted=True)}"

    def upright(self, value: float, label: str = "") -> str:
        """A dashed line from top to bottom, such as a margin."""
        x = self.at_x(value)
        return (
            f'<line x1="{x:g}" x2="{x:g}" y1="{self.top:g}" y2="{self.height - self.bottom:g}" '
            f'style="stroke:var(--bad)" stroke-dasharray="4 3"/>{text(x, self.top - 3, label, anchor="middle")}'
        )

    def level(self, value: float, label: str = "") -> str:
        """A dashed line from left to right."""
        y = self.at_y(value)
        edge = self.width - self.right
        return (
            f'<line x1="{self.left:g}" x2="{edge:g}" y1="{y:g}" y2="{y:g}" style="stroke:var(--bad)" '
            f'stroke-dasharray="4 3"/>{text(edge, y - 4, label, anchor="end")}'
        )

    def drawing(self, title: str, *parts: str) -> str:
        """The chart; `title` is what it is read out as."""
        return (
            f'<svg viewBox="0 0 {self.width:g} {self.height:g}" role="img" aria-label="{escape(title)}">'
            f"{''.join(parts)}</svg>"
        )


def text(x: float, y: float, words: str, *, anchor: str = "start", muted: bool = False, bold: bool = False) -> str:
    """A label; nothing for no words."""
    kind, weight = (' class="muted"' if muted else ""), (' font-weight="650"' if bold else "")
    return f'<text{kind}{weight} x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(words)}</text>' if words else ""


def legend(names: Sequence[tuple[str, str]], *, x: float, y: float) -> str:
    """Names with the colours they have, in a row."""
    parts, at = [], x
    for name, colour in names:
        parts.append(f'<rect x="{at:g}" y="{y - 9:g}" width="10" height="10" rx="2" style="fill:{colour}"/>')
        parts.append(text(at + 15, y, name))
        at += 15 + 7.2 * len(name) + 18
    return "".join(parts)


def series(number: int) -> str:
    """The colour of a series, from 0."""
    return f"var(--series-{number % 6 + 1})"
