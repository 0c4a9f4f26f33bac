"""The shell of every HTML page: one file without outside parts, light and dark, fit to print. Not what stands in it.

Findings as values that JSON holds: a dataclass is an object, a number without limit is null.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from html import escape
from importlib.resources import files
from math import isfinite
from typing import Any

import numpy as np

from migrate.report.characters import for_markup


def as_plain(value: Any) -> Any:
    """The value, whatever stands in it, as dictionaries, lists, texts and finite numbers.

    >>> as_plain({"upper": float("inf"), "span": (0.5, np.float32(1))})
    {'upper': None, 'span': [0.5, 1.0]}
    """
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: as_plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, np.ndarray | np.generic):
        return as_plain(value.tolist())
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): as_plain(item) for name, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [as_plain(item) for item in value]
    return value


_CSS = "page.css"
_CODE = re.compile(r"`([^`]+)`")
_SHORT = re.compile(r"[^a-z0-9]+")
_MARKED = ' class="marked"'
_BLANK = "data:,"
"""An icon that is nothing: without one, a browser asks the server for it."""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a page: a heading, and HTML that stands under it as it is."""

    heading: str
    body: str

    @property
    def anchor(self) -> str:
        """What a link to the section names.

        >>> Section("Where it hurts", "").anchor
        'where-it-hurts'
        """
        return _SHORT.sub("-", self.heading.lower()).strip("-")


def html_page(kind: str, title: str, lead: str, sections: Sequence[Section], *, footer: str = "") -> str:
    """A page that needs no network. `kind` and `title` are texts; `lead`, the sections and `footer` are HTML."""
    links = "".join(f'<a href="#{part.anchor}">{escape(part.heading)}</a>' for part in sections)
    bodies = "\n".join(_section(part) for part in sections)
    css = files("migrate.report").joinpath(_CSS).read_text(encoding="utf-8")
    page = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<title>{escape(title)}</title>\n<link rel="icon" href="{_BLANK}">\n<style>\n{css}</style>\n</head>\n<body>\n'
        f'<header class="top"><p class="kind">{escape(kind)}</p><h1>{escape(title)}</h1>\n{lead}\n<nav>{links}</nav>'
        f"</header>\n<main>\n{bodies}\n</main>\n<footer>{footer}</footer>\n</body>\n</html>\n"
    )
    return for_markup(page)


def _section(part: Section) -> str:
    return f'<section id="{part.anchor}">\n<h2>{escape(part.heading)}</h2>\n{part.body}\n</section>'


def html_words(text: str) -> str:
    """A sentence as HTML; what stands between backticks is code.

    >>> html_words("run `a < b`")
    'run <code>a &lt; b</code>'
    """
    return _CODE.sub(r"<code>\1</code>", escape(text))


def html_sentence(words: str) -> str:
    """Words as a sentence of its own, as HTML.

    >>> html_sentence("stay for now")
    'Stay for now.'
    """
    return html_words(f"{words[:1].upper()}{words[1:]}.")


def html_table(rows: Sequence[Sequence[str]], *, marked: Sequence[int] = (), text_columns: Sequence[int] = ()) -> str:
    """A table of texts, its first row the head. `marked` numbers the rows that stand out, from 0 below the head.

    >>> print(html_table([["<arm>"]]))
    <div class="scroll"><table><thead><tr><th>&lt;arm&gt;</th></tr></thead><tbody></tbody></table></div>
    """
    head, *body = rows
    lines = "".join(
        f"<tr{_MARKED if number in marked else ''}>{_cells(row, 'td', text_columns)}</tr>"
        for number, row in enumerate(body)
    )
    return (
        f'<div class="scroll"><table><thead><tr>{_cells(head, "th", text_columns)}</tr></thead>'
        f"<tbody>{lines}</tbody></table></div>"
    )


def _cells(row: Sequence[str], tag: str, text_columns: Sequence[int]) -> str:
    kinds = (' class="text"' if column in text_columns else "" for column in range(len(row)))
    return "".join(f"<{tag}{kind}>{escape(cell)}</{tag}>" for kind, cell in zip(kinds, row, strict=True))
