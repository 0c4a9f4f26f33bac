"""Reports as plain text that fits 100 columns."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from itertools import zip_longest
from math import isfinite
from textwrap import fill
from textwrap import wrap as wrap_text
from unicodedata import east_asian_width

from migrate.display import dollars
from migrate.report.characters import printable
from migrate.report.sections import Block, Facts, Heading, Listed, Note, Report, TextTable, parts_of

_GAP = "  "
"""Between the columns of a table."""

_NARROWEST = 10
"""Columns that a text keeps, however wide the others are."""

WIDTH = 100
"""Columns of a terminal that everything fits into."""


def number(value: float | None) -> str:
    """Return a figure in few characters; a dash where there is none.

    >>> [number(value) for value in (0.71788, -0.00064, 123.45, -12345.6, None)]
    ['0.718', '-0.00064', '123.5', '-1.2e+04', '-']
    """
    if value is None or not isfinite(value):
        return "-"
    size = abs(value)
    if 0 < size < 0.01 or size >= 10_000:
        return f"{value:.2g}"
    if size < 10:
        return f"{value:.3f}"
    return f"{value:.1f}"


def figure_or_dash(value: float | None, form: str) -> str:
    """Return a figure in the form of a format; a dash where there is none.

    >>> figure_or_dash(1234.5, ",.2f"), figure_or_dash(None, ",.2f")
    ('1,234.50', '-')
    """
    if value is None:
        return "-"
    return f"{value:{form}}"


def price_or_dash(usd: float | None) -> str:
    """Return a price; a dash where none is known."""
    if usd is None:
        return "-"
    return dollars(usd)


def paragraphs(*texts: str) -> str:
    """Join the parts that are not empty, a blank line between them."""
    return "\n\n".join(filter(None, texts))


def report_text(report: Report) -> str:
    """Return a report as lines: its lead, its sections, and what is said last."""
    # A section of nothing has no heading either
    sections = [f"{heading}\n{text}" for heading, block in report.sections.items() if (text := as_text(block))]
    return paragraphs(as_text(report.lead), *sections, as_text(report.closing))


def as_text(*blocks: Block, width: int = WIDTH) -> str:
    """Return parts of a report, a blank line between them but for sentences; a heading of nothing is left out."""
    text = ""
    previous: Block = None
    heading = ""
    for block in parts_of(blocks):
        if isinstance(block, Heading):
            heading = f"{block.text}\n"
        elif shown := _shown(block, width):
            # Sentences that belong together follow each other; all else has a blank line before it
            are_sentences = isinstance(previous, str) and isinstance(block, str)
            if text and are_sentences and not heading:
                text += "\n"
            elif text:
                text += "\n\n"
            text += heading + shown
            previous = block
            heading = ""
    return text


def _shown(block: Block, width: int) -> str:
    match block:
        case str():
            return wrap(printable(block), width)
        case Note():
            return wrap(printable(block.text), width)
        case Listed():
            return "\n".join(wrap(printable(line), width) for line in block.lines)
        case TextTable():
            return table(block.rows, left=block.text_columns, width=width)
        case Facts():
            return facts_text(block.rows)
        case _:
            return ""


def facts_text(rows: Sequence[tuple[str, str]]) -> str:
    """Return names and their values, one below the other."""
    width = max((len(name) for name, _ in rows), default=0)
    return "\n".join(
        fill(
            f"{name:{width}}  {printable(value)}",
            WIDTH,
            subsequent_indent=" " * (width + 2),
            # Locations and commands are copied from here, and are of no use in two pieces
            break_long_words=False,
            break_on_hyphens=False,
        )
        for name, value in rows
    )


def cut(text: str, width: int = WIDTH) -> str:
    """Return the beginning of a text that is longer.

    >>> cut("a text of some length", 8)
    'a text…'
    """
    if len(text) <= width:
        return text
    return f"{text[: width - 1].rstrip()}…"


def table(rows: Sequence[Sequence[str]], *, left: Collection[int] = (), width: int = WIDTH) -> str:
    """Align columns as wide as their widest cell, the first and those of `left` to the left, the others to the right.

    Where there is more than fits, texts of columns in `left` go on in further lines.

    >>> print(table([["arm", "score"], ["stay", "0.5"]]))
    arm   score
    stay    0.5
    """
    # Ids and texts of a store may hold what a terminal obeys
    cells = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(_columns, column)) for column in zip(*cells, strict=True)]
    gaps = len(_GAP) * (len(widths) - 1)
    # Column by column, the widest first, as only texts can go on in another line
    while left and sum(widths) + gaps > width and max(widths[index] for index in left) > _NARROWEST:
        widths[max(left, key=widths.__getitem__)] -= 1
    lines = []
    for row in cells:
        lines_of = [_wrapped(cell, widths[index], wraps=index in left) for index, cell in enumerate(row)]
        for line in zip_longest(*lines_of, fillvalue=""):
            sides = [_aligned(cell, widths[index], to_left=index in (0, *left)) for index, cell in enumerate(line)]
            lines.append(_GAP.join(sides).rstrip())
    return "\n".join(lines)


def _aligned(cell: str, room: int, *, to_left: bool) -> str:
    """Return a cell as wide as its column; `str.ljust` would count wide characters as one."""
    blank = " " * (room - _columns(cell))
    if to_left:
        return cell + blank
    return blank + cell


def _columns(text: str) -> int:
    """Return the columns of a terminal that a text takes: characters of East Asia are wide."""
    # Nearly all are, and a look at each character takes long
    if text.isascii():
        return len(text)
    return sum(1 + (east_asian_width(char) in "WF") for char in text)


def _wrapped(text: str, columns: int, *, wraps: bool) -> list[str]:
    """Return the lines of a cell; one line unless it `wraps`, whatever its length."""
    text_columns = _columns(text)
    if not wraps or text_columns <= columns:
        return [text]
    # textwrap counts characters, of which as many fit as the text has for each column on average
    characters = max(columns * len(text) // text_columns, 1)
    return wrap_text(text, characters)


def filled_columns(rows: Sequence[Sequence[str]], *, costs: Collection[str] = ()) -> list[list[str]]:
    """Return the rows without empty columns: those without any value, and those under `costs` with nothing but zeros.

    >>> filled_columns([["arm", "score", "R", "$"], ["stay", "0.0", "-", "0.0"], ["full", "0.0", "", "-"]], costs=["$"])
    [['arm', 'score'], ['stay', '0.0'], ['full', '0.0']]
    """
    head, *body = rows
    filled = []
    for column, name in enumerate(head):
        nothing = "-"
        if name in costs:
            nothing = "-$0.,"
        if column == 0 or not body or any(row[column].strip(nothing) for row in body):
            filled.append(column)
    return [[row[column] for column in filled] for row in rows]


def wrap(sentence: str, width: int = WIDTH) -> str:
    """Return a sentence in lines that fit, the later ones indented; none ends within a name, an option or a quantity.

    >>> print(wrap("keeps 86.2 %", 11))
    keeps
      86.2 %
    """
    # A space that textwrap does not know as one keeps a number with its unit
    kept_together = re.sub(r"(?<=\d) (?=%|M tokens)", "\0", sentence)
    return fill(kept_together, width, subsequent_indent="  ", break_on_hyphens=False).replace("\0", " ")
