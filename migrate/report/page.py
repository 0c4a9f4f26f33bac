"""Results as HTML: pages, each one file without outside parts, and pieces for notebooks.

ElementTree writes the markup, and escapes every text.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from typing import TypeAlias
from xml.etree.ElementTree import Element, tostring

from migrate.report.characters import for_markup

Content: TypeAlias = "str | Element | Iterable[Content] | None"
"""A text that is shown as it is, an element, or several of them; None for nothing."""

_NEWLINE_AFTER = frozenset({"a", "p", "tr", "li", "h1", "h2", "h3", "figure", "section", "header", "style"})


def element(tag: str, *content: Content, **attributes: str | float | None) -> Element:
    """Return an element; `class_` and `stroke_width` stand for `class` and `stroke-width`, None for no attribute.

    >>> tostring(element("circle", cx=1.0, class_="muted")).decode()
    '<circle cx="1" class="muted" />'
    >>> html(element("b", "1 < 2", element("i", "!"), "?", class_=None))
    '<b>1 &lt; 2<i>!</i>?</b>'
    """
    made = Element(tag)
    for name, value in attributes.items():
        if value is not None:
            made.set(name.rstrip("_").replace("_", "-"), value if isinstance(value, str) else f"{value:g}")
    _add(made, content)
    made.tail = "\n" if tag in _NEWLINE_AFTER else None
    return made


def _add(parent: Element, content: Content) -> None:
    if isinstance(content, Element):
        parent.append(content)
    elif isinstance(content, str):
        if len(parent):
            parent[-1].tail = (parent[-1].tail or "") + content
        else:
            parent.text = (parent.text or "") + content
    else:
        for part in content or ():
            _add(parent, part)


def html(*content: Content) -> str:
    """Return the markup of elements."""
    markup = tostring(element("body", *content), encoding="unicode", method="html")
    return for_markup(markup.removeprefix("<body>").removesuffix("</body>"))


def words(text: str) -> list[Content]:
    """Return a text in which `this` is code.

    >>> html(words("type `fit`"))
    'type <code>fit</code>'
    """
    parts = text.split("`")
    return [element("code", part) if place % 2 and place < len(parts) - 1 else part for place, part in enumerate(parts)]


def sentence(text: str) -> list[Content]:
    """Return a text as a sentence, in which `this` is code."""
    return words(f"{text[:1].upper()}{text[1:]}.")


def table(
    rows: Sequence[Sequence[str]], *, marked: Collection[int] = (), text_columns: Collection[int] = ()
) -> Element:
    """Return rows of texts, the first of them the head; `marked` numbers rows that stand out, from 0 below the head."""
    kinds = ["text" if column in text_columns else None for column in range(len(rows[0]))]
    head = [element("th", cell, scope="col", class_=kind) for cell, kind in zip(rows[0], kinds, strict=True)]
    body = [
        element(
            "tr",
            [element("td", cell, class_=kind) for cell, kind in zip(row, kinds, strict=True)],
            class_="marked" if place in marked else None,
        )
        for place, row in enumerate(rows[1:])
    ]
    whole = element("table", element("thead", element("tr", head)), element("tbody", body), class_="sorts")
    return element("div", whole, class_="scroll")


def facts(rows: Iterable[tuple[str, str]]) -> Element:
    """Return names and their values, a row each."""
    lines = [element("tr", element("th", name, scope="row"), element("td", value)) for name, value in rows]
    return element("div", element("table", element("tbody", lines), class_="facts"), class_="scroll")


def figures(rows: Iterable[tuple[str, str]]) -> Element | None:
    """Return names and large figures beside each other; None without any."""
    cells = [element("div", element("dt", name), element("dd", value)) for name, value in rows]
    return element("dl", cells, class_="figures") if cells else None


def items(lines: Iterable[Content], tag: str = "ul") -> Element | None:
    """Return a list of lines; None without any."""
    listed = [element("li", line) for line in lines]
    return element(tag, listed) if listed else None


def note(*content: Content) -> Element:
    """Return a paragraph of small print."""
    return element("p", *content, class_="note")


def stamp(text: str, colour: str) -> Element:
    """Return a verdict in a frame; `colour` is `good`, `bad` or `warn`."""
    return element("span", text, class_=f"stamp {colour}")


def answer_html(answer: str, rows: Sequence[Sequence[str]], further: Iterable[str] = ()) -> str:
    """Return a result as notebooks show it: the answer, the table that it rests on, and what else is to be said."""
    lines = [element("p", words(line)) for line in further]
    return html(element("p", element("strong", words(answer))), table(rows), lines)


@dataclass(frozen=True, slots=True)
class Page:
    """A page that needs no network: `kind` stands above the title, the `lead` below it, then sections by heading."""

    kind: str
    title: str
    lead: Content
    sections: Mapping[str, Content]
    footer: str = ""

    def html(self) -> str:
        """Return the page as one file. Its script is let run by its hash; nothing is loaded."""
        folder = files("migrate.report")
        style, script = (folder.joinpath(f"page.{end}").read_text("utf-8").rstrip("\n") for end in ("css", "js"))
        digest = b64encode(sha256(script.encode()).digest()).decode()
        policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
        head = element(
            "head",
            element("meta", charset="utf-8"),
            element("meta", name="viewport", content="width=device-width, initial-scale=1"),
            element("meta", http_equiv="Content-Security-Policy", content=policy),
            element("title", self.title),
            element("link", rel="icon", href="data:,"),  # without an icon, a browser asks the server for one
            element("style", f"\n{style}\n"),
        )
        links = [element("a", heading, href=f"#{anchor(heading)}") for heading in self.sections]
        nav = element("nav", links, aria_label="Sections") if len(links) > 1 else None
        kind = element("p", self.kind, class_="kind")
        top = element("header", kind, element("h1", self.title), self.lead, nav, class_="top")
        sections = [
            element("section", element("h2", heading), content, id=anchor(heading))
            for heading, content in self.sections.items()
        ]
        footer = element("footer", element("p", self.footer) if self.footer else None)
        body = element("body", top, element("main", sections), footer, element("script", script))
        return f"<!doctype html>\n{html(element('html', head, body, lang='en'))}\n"


def anchor(heading: str) -> str:
    """Return the name that a link to a section has.

    >>> anchor("Where it hurts")
    'where-it-hurts'
    """
    return re.sub(r"[^a-z0-9]+", "-", heading.lower()).strip("-")
