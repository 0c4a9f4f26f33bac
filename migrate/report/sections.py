"""A result for people, as plain data: one description that a terminal, a page and a notebook show each in its way."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias
from xml.etree.ElementTree import Element

Block: TypeAlias = (
    "str | TextTable | Facts | Figures | Listed | Heading | Note | Either | Element | Iterable[Block] | None"
)
"""A part of a report: a sentence without its full stop, data, or several; an element is for pages alone."""


@dataclass(frozen=True, slots=True)
class TextTable:
    """Rows of texts, the first of them the head; `marked` rows stand out, numbered from 0 below the head."""

    rows: Sequence[Sequence[str]]
    marked: Collection[int] = ()
    text_columns: Collection[int] = ()


@dataclass(frozen=True, slots=True)
class Facts:
    """Names and their values, a row each."""

    rows: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Figures:
    """Names and large figures, side by side; for pages alone."""

    rows: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Listed:
    """Lines of a list."""

    lines: Sequence[str]


@dataclass(frozen=True, slots=True)
class Heading:
    """The heading of a part of a section."""

    text: str


@dataclass(frozen=True, slots=True)
class Note:
    """A sentence of small print."""

    text: str


@dataclass(frozen=True, slots=True)
class Either:
    """A part for pages, such as a chart, and another that a terminal shows in its stead."""

    page: Block
    terminal: Block = None


def parts_of(block: Block) -> Iterator[Block]:
    """Yield one by one the parts that are text: of each `Either`, that of a terminal."""
    match block:
        case Either():
            yield from parts_of(block.terminal)
        case None | str() | TextTable() | Facts() | Figures() | Listed() | Heading() | Note() | Element():
            yield block
        case _:
            for item in block:
                yield from parts_of(item)


@dataclass(frozen=True, slots=True)
class Report:
    """A result: `kind` stands above the title of a page, the `lead` below it, then sections by heading.

    A terminal shows the lead, the sections and, last, where it stays in sight, the `closing`.
    """

    kind: str
    title: str
    lead: Block
    sections: Mapping[str, Block]
    closing: Block = None
    footer: str = ""
