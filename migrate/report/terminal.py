"""Tables and sentences as plain text that fits 100 columns."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from io import StringIO
from math import isfinite
from textwrap import fill
from typing import TYPE_CHECKING

from migrate.report.characters import printable
from migrate.stitch.select import Selection

if TYPE_CHECKING:
    from rich.console import RenderableType

WIDTH = 100
"""Columns of a terminal that everything fits into."""

_UNLIMITED = 10_000


def number(value: float | None) -> str:
    """A figure in few characters; a dash where there is none.

    >>> [number(value) for value in (0.71788, -0.00064, 123.45, -12345.6, None)]
    ['0.718', '-0.00064', '123.5', '-1.2e+04', '-']
    """
    if value is None or not isfinite(value):
        return "-"
    size = abs(value)
    if 0 < size < 0.01 or size >= 10_000:
        return f"{value:.2g}"
    return f"{value:.3f}" if size < 10 else f"{value:.1f}"


def paragraphs(*parts: str) -> str:
    """Join the parts that are not empty, a blank line between them."""
    return "\n\n".join(filter(None, parts))


def wrapped(sentences: Iterable[str]) -> str:
    """Return sentences in lines that fit, each on a new one."""
    return "\n".join(map(wrap, sentences))


def cut(text: str, width: int = WIDTH) -> str:
    """Return the beginning of a text that is longer.

    >>> cut("a text of some length", 8)
    'a text…'
    """
    return text if len(text) <= width else f"{text[: width - 1].rstrip()}…"


def table(rows: Sequence[Sequence[str]], *, left: Collection[int] = ()) -> str:
    """Align columns as wide as their widest cell, the first and those of `left` to the left, the others to the right.

    >>> print(table([["arm", "score"], ["stay", "0.5"]]))
    arm   score
    stay    0.5
    """
    from rich.table import Table
    from rich.text import Text

    head, *body = [[Text(printable(cell)) for cell in row] for row in rows]
    lines = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="none")
    for place, cell in enumerate(head):
        lines.add_column(cell, justify="right" if place and place not in left else "left", no_wrap=True)
    for row in body:
        lines.add_row(*row)
    return printed([lines], _UNLIMITED)


def printed(parts: Iterable[RenderableType], width: int, *, in_colour: bool = False) -> str:
    """What rich prints on so many columns, without blanks at the ends of lines."""
    from rich.console import Console

    console = Console(
        file=StringIO(),
        width=width,
        force_terminal=in_colour,
        color_system="standard" if in_colour else None,
        no_color=not in_colour,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )
    with console.capture() as captured:
        for part in parts:
            console.print(part)
    return "\n".join(line.rstrip() for line in captured.get().rstrip("\n").split("\n"))


def filled_columns(rows: Sequence[Sequence[str]], *, costs: Collection[str] = ()) -> list[list[str]]:
    """The rows without empty columns: those without any value, and those under `costs` with nothing but zeros.

    >>> filled_columns([["arm", "score", "R", "$"], ["stay", "0.0", "-", "0.0"], ["full", "0.0", "", "-"]], costs=["$"])
    [['arm', 'score'], ['stay', '0.0'], ['full', '0.0']]
    """
    head, *body = rows
    kept = [
        column
        for column, name in enumerate(head)
        if not column or not body or any(_has_value(row[column], zero_counts=name not in costs) for row in body)
    ]
    return [[row[column] for column in kept] for row in rows]


def _has_value(cell: str, *, zero_counts: bool) -> bool:
    return cell.strip("-" if zero_counts else "-$0.,") != ""


def candidates_table(selection: Selection) -> str:
    """The rows of `candidates_rows`, aligned."""
    head, *rows = candidates_rows(selection)
    return table([["  " + head[0], *head[1:]], *rows])


def candidates_rows(selection: Selection) -> list[list[str]]:
    """The stitches as they were judged on held-out pairs; the chosen one is marked, controls stand last."""
    head = ["stitch", "cosine", "MSE", "R²", "overlap@10", "fit s"]
    rows = [
        [
            f"{'*' if row.stitch == selection.chosen and not row.is_control else ' '} {row.stitch}"
            + (" (control)" if row.is_control else ""),
            f"{row.scores.cosine:.3f}",
            f"{row.scores.mse:.6f}",
            f"{row.scores.r2:.3f}",
            f"{row.scores.overlap_at_10:.3f}",
            f"{row.fit_s:.2f}",
        ]
        for row in selection.candidates
    ]
    return [head, *rows]


def wrap(sentence: str, width: int = WIDTH) -> str:
    """A sentence in lines that fit, the later ones indented; none ends within a name or an option."""
    return fill(sentence, width, subsequent_indent="  ", break_on_hyphens=False)
