"""Results as HTML: pages, each one file without outside parts, and pieces for notebooks.

ElementTree writes the markup, and escapes every text.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable
from hashlib import sha256
from importlib.resources import files
from typing import TypeAlias
from xml.etree.ElementTree import Element, tostring

from migrate.report.characters import for_markup
from migrate.report.sections import Block, Either, Facts, Figures, Heading, Listed, Note, Report, TextTable

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
    node = Element(tag)
    for name, value in attributes.items():
        if isinstance(value, str):
            node.set(_attribute(name), value)
        elif value is not None:
            node.set(_attribute(name), f"{value:g}")
    _add(node, content)
    if tag in _NEWLINE_AFTER:
        node.tail = "\n"
    return node


def _attribute(name: str) -> str:
    return name.rstrip("_").replace("_", "-")


def _add(parent: Element, content: Content) -> None:
    # ElementTree keeps a text with the element before it, and the first one with the parent
    if isinstance(content, Element):
        parent.append(content)
    elif isinstance(content, str):
        if len(parent):
            parent[-1].tail = (parent[-1].tail or "") + content
        else:
            parent.text = (parent.text or "") + content
    else:
        for item in content or ():
            _add(parent, item)


def html(*content: Content) -> str:
    """Return the markup of elements."""
    # As HTML, where XML would close an empty <script/> in a way that browsers do not read.
    # One element has to hold the pieces, as only a tree is written; its own tags are cut off again
    markup = tostring(element("body", *content), encoding="unicode", method="html")
    # ElementTree escapes `<` and `&`, and writes control characters as they are
    return for_markup(markup.removeprefix("<body>").removesuffix("</body>"))


def with_code(text: str) -> list[Content]:
    """Return a text in which `this` is code.

    >>> html(with_code("type `fit`"))
    'type <code>fit</code>'
    """
    pieces: list[Content] = list(text.split("`"))
    # A mark that nothing closes opens no code
    for number in range(1, len(pieces) - 1, 2):
        pieces[number] = element("code", pieces[number])
    return pieces


def sentence(text: str) -> list[Content]:
    """Return a text as a sentence, in which `this` is code."""
    return with_code(f"{text[:1].upper()}{text[1:]}.")


def content(block: Block) -> Content:
    """Return a part of a report as markup; nothing for tables and lists of nothing."""
    match block:
        case None | Element():
            return block
        case str():
            return element("p", sentence(block))
        case TextTable():
            return _table(block)
        case Facts():
            lines = [
                element("tr", element("th", name, scope="row"), element("td", value)) for name, value in block.rows
            ]
            return element("div", element("table", element("tbody", lines), class_="facts"), class_="scroll")
        case Figures():
            return _figures(block)
        case Listed():
            return items(map(with_code, block.lines))
        case Heading():
            return element("h3", block.text)
        case Note():
            return note(sentence(block.text))
        case Either():
            return content(block.page)
        case _:
            return map(content, block)


def _figures(figures: Figures) -> Element | None:
    if not figures.rows:
        return None
    cells = [element("div", element("dt", name), element("dd", value)) for name, value in figures.rows]
    return element("dl", cells, class_="figures")


def _table(table: TextTable) -> Element:
    head, *body = table.rows
    kinds: list[str | None] = [None] * len(head)
    for column in table.text_columns:
        kinds[column] = "text"
    heads = [element("th", cell, scope="col", class_=kind) for cell, kind in zip(head, kinds, strict=True)]
    rows = []
    for number, row in enumerate(body):
        # The first cell names the row
        line = element("tr", element("th", row[0], scope="row", class_=kinds[0]))
        line.extend(element("td", cell, class_=kind) for cell, kind in zip(row[1:], kinds[1:], strict=True))
        if number in table.marked:
            line.set("class", "marked")
        rows.append(line)
    whole = element("table", element("thead", element("tr", heads)), element("tbody", rows), class_="sorts")
    return element("div", whole, class_="scroll")


def items(lines: Iterable[Content], tag: str = "ul") -> Element | None:
    """Return a list of lines; None without any."""
    listed = [element("li", line) for line in lines]
    if not listed:
        return None
    return element(tag, listed)


def note(*content: Content) -> Element:
    """Return a paragraph of small print."""
    return element("p", *content, class_="note")


def stamp(text: str, colour: str) -> Element:
    """Return a verdict in a frame; `colour` is `good`, `bad` or `warn`."""
    return element("span", text, class_=f"stamp {colour}")


def notebook_piece(answer: str, *blocks: Block) -> str:
    """Return a result as notebooks show it: the answer, and what it rests on."""
    return html(element("p", element("strong", with_code(answer))), *map(content, blocks))


def report_page(report: Report) -> str:
    """Return a report as one file that needs no network. Its script is let run by its hash; nothing is loaded."""
    folder = files("migrate.report")
    style, script = (folder.joinpath(f"page.{end}").read_text("utf-8").rstrip("\n") for end in ("css", "js"))
    # Allowed by its hash alone: a text of a store that came to be markup could run nothing
    digest = b64encode(sha256(script.encode()).digest()).decode()
    # Styles cannot go by their hash: those of the charts stand in attributes
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("title", report.title),
        # Without an icon, a browser asks the server for one
        element("link", rel="icon", href="data:,"),
        element("style", f"\n{style}\n"),
    )
    sections = {
        heading: element("section", element("h2", heading), content(block), id=anchor(heading))
        for heading, block in report.sections.items()
    }
    for section in sections.values():
        _name_tables(section)
    # A section that has nothing but its heading is left out, and no link leads to it
    shown = {heading: section for heading, section in sections.items() if len(section) > 1}
    links = [element("a", heading, href=f"#{anchor(heading)}") for heading in shown]
    nav = None
    if len(links) > 1:
        nav = element("nav", links, aria_label="Sections")
    kind = element("p", report.kind, class_="kind")
    top = element("header", kind, element("h1", report.title), content(report.lead), nav, class_="top")
    footer = element("footer")
    if report.footer:
        footer.append(element("p", report.footer))
    # The script comes last, when the tables that it makes sortable are there
    skip = element("a", "Skip to the sections", href="#content", class_="skip")
    main = element("main", list(shown.values()), id="content", tabindex="-1")
    body = element("body", skip, top, main, footer, element("script", script))
    return f"<!doctype html>\n{html(element('html', head, body, lang='en'))}\n"


def _name_tables(section: Element) -> None:
    """Name each table, and what scrolls it, by the heading or summary above it, for those who hear the page."""
    name = ""
    for part in list(section.iter()):
        if part.tag in ("h2", "h3", "h4", "summary"):
            name = " ".join("".join(part.itertext()).split())
        elif part.tag == "table" and part.find("caption") is None:
            part.insert(0, element("caption", name))
        elif part.get("class") == "scroll":
            # Without a stop of the keyboard, it scrolls for who has a mouse alone
            part.attrib.update({"role": "group", "aria-label": name, "tabindex": "0"})


def anchor(heading: str) -> str:
    """Return the name that a link to a section has.

    >>> anchor("Where it hurts")
    'where-it-hurts'
    """
    return re.sub(r"[^a-z0-9]+", "-", heading.lower()).strip("-")
