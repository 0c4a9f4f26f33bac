"""Pages for everybody: headings, names and tables for who hears them, stops of the keyboard, contrast of colours."""

import re
from importlib.resources import files
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from html_page import Page
from test_report import make_report

from migrate.audit.bounds import Outcome
from migrate.audit.diagnostics import Diagnostics
from migrate.audit.document import report_of
from migrate.audit_report.records import Histogram, Option, Slice, Threshold, ThresholdTable
from migrate.audit_report.report import AuditReport
from migrate.facts import as_plain
from migrate.outcome import Bounds
from migrate.report.audit_sections import audit_sections
from migrate.report.page import report_page

BOUNDS = Bounds(0.9, 0.85, 0.95)
KINDS = ("few", "many")
TABLE = ThresholdTable(
    ("ip", "ip"),
    (Threshold(0.3, 0.5, 0.4, 0.6, 0.6, 0.41),),
    {"stay": Histogram((0.0, 0.5, 1.0), (3, 4)), "translated": Histogram((0.0, 0.6, 1.0), (5, 2))},
)
SPENDING = {
    "model": "openai:m",
    "role": "target",
    "estimated_tokens": 20_000,
    "estimated_usd": 0.4,
    "tokens": 18_000,
    "usd": 0.36,
}


def option(name, usd_left, *, is_safe):
    return as_plain(Option(name, BOUNDS, 900_000.0, 18.0, usd_left * 50_000, usd_left, is_safe))


def page_of(outcome=Outcome.NOT_SAFE, *, is_continued=False, spending=(SPENDING,), safe=("full re-embed",), **verdict):
    """The page of a run, with every kind of chart and table."""
    result = make_report(outcome=outcome, **verdict)
    slices = tuple(Slice("words", value, 50, 0.6, 0.5, BOUNDS) for value in KINDS)
    document = report_of(result).document
    options = [option(name, 7.5, is_safe=name in safe) for name in ("full re-embed", "two-stage 50", "translated")]
    migration = {"source": "my-store", "is_continued": is_continued, "spending": list(spending)}
    diagnostics = as_plain(Diagnostics((), slices, TABLE, ()))
    whole = {**document, **diagnostics, "options": options, "migration": migration}
    return report_page(audit_sections(AuditReport.of(whole)))


@pytest.fixture(scope="module")
def text():
    return page_of()


@pytest.fixture(scope="module")
def tree(text):
    """The page as a tree; what HTML leaves open is closed for the parser."""
    closed = re.sub(r"(<(?:meta|link|input|br)\b[^>]*?)/?>", r"\1/>", text.removeprefix("<!doctype html>"))
    return ElementTree.fromstring(re.sub(r"<(style|script)>.*?</\1>", "", closed, flags=re.DOTALL))


def said(element):
    return " ".join("".join(element.itertext()).split())


def test_headings_leave_out_no_level(tree):
    levels = [int(part.tag[1]) for part in tree.iter() if re.fullmatch("h[1-6]", part.tag)]
    assert levels.count(1) == 1 and levels[0] == 1
    assert all(below - above <= 1 for above, below in pairwise(levels))
    assert all(said(part) for part in tree.iter() if re.fullmatch("h[1-6]", part.tag))


def test_landmarks_and_a_link_past_the_links(tree):
    assert tree.get("lang") == "en"
    body = tree.find("body")
    assert [part.tag for part in body if part.tag != "script"] == ["a", "header", "main", "footer"]
    assert body.find("header/nav").get("aria-label")
    names = [part.get("id") for part in tree.iter() if part.get("id")]
    assert len(names) == len(set(names))
    links = [part.get("href").removeprefix("#") for part in body.iter("a")]
    assert links[0] == body.find("main").get("id")
    assert set(links) <= set(names)


def test_every_table_has_a_caption_and_heads(tree):
    tables = list(tree.iter("table"))
    assert len(tables) >= 7
    for table in tables:
        assert said(table.find("caption"))
        assert all(head.get("scope") in ("col", "row") for head in table.iter("th"))
        assert all(row.find("th").get("scope") == "row" for row in table.iter("tbody") for row in row)


def test_every_drawing_has_a_name_and_what_scrolls_is_a_stop_of_the_keyboard(tree):
    figures = list(tree.iter("figure"))
    assert len(figures) >= 4
    for figure in figures:
        assert figure.get("aria-label")
        drawings = [drawing for part in figure.iter("div") for drawing in part.findall("svg")]
        assert drawings and all(drawing.get("role") == "img" and drawing.get("aria-label") for drawing in drawings)
    scrolling = [part for part in tree.iter("div") if part.get("class") == "scroll"]
    assert len(scrolling) == len(list(tree.iter("table")))
    assert all(part.get("tabindex") == "0" and part.get("role") and part.get("aria-label") for part in scrolling)


def test_behind_each_chart_is_a_table(text):
    tables = {tuple(rows[0][:2]): rows[1:] for rows in Page(text).tables if rows[0]}
    assert [row[0] for row in tables["option", "retention"]] == ["full re-embed", "two-stage 50", "translated"]
    assert {"translated", "stay"} <= {row[0] for row in tables["arm", "nDCG@10"]}
    assert tables["words", "queries"] == [[kind, "50", "0.600", "0.500", "90.0 %", "85.0-95.0 %"] for kind in KINDS]
    assert tables["arm", "from"] == [
        ["stay", "0.000", "0.500", "3"],
        ["stay", "0.500", "1.000", "4"],
        ["translated", "0.000", "0.600", "5"],
        ["translated", "0.600", "1.000", "2"],
    ]


def colours():
    """The colours of a page by name, of the light look and of the dark one; red, green, blue and opacity, 0-1."""
    style = files("migrate.report").joinpath("page.css").read_text("utf-8")
    blocks = re.findall(r":root \{(.*?)\}", style, re.DOTALL)
    light, dark, paper = (dict(re.findall(r"--([\w-]+): (#\w+)", block)) for block in blocks)
    return {"light": light, "dark": light | dark, "print": light | paper}


def channels(code):
    digits = code[1:]
    if len(digits) < 6:
        digits = "".join(digit * 2 for digit in digits)
    return [int(digits[at : at + 2], 16) / 255 for at in range(0, len(digits), 2)]


def over(colour, ground):
    """A colour that lets its ground through."""
    *solid, opacity = colour
    return [opacity * above + (1 - opacity) * below for above, below in zip(solid, ground, strict=True)]


def contrast(first, second):
    """The contrast ratio of two colours, by WCAG 2.2."""

    def luminance(colour):
        linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in colour]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("look", ["light", "dark", "print"])
def test_texts_and_lines_stand_out_from_what_is_behind_them(look):
    named = {name: channels(code) for name, code in colours()[look].items()}
    card = named["card"]
    grounds = [named["paper"], card, named["soft"], over(named["marked"], card)]
    for name in ("ink", "muted", "accent", "good", "bad", "warn"):
        assert min(contrast(named[name], ground) for ground in grounds) >= 4.5, name
    # The deepest shade of the cells of a matrix
    assert contrast(named["ink"], over([*named["accent"], 0.5], card)) >= 4.5
    assert contrast(named["ink"], named["paper"]) >= 4.5, "the box that explains marks"
    for number in range(1, 7):
        assert contrast(named[f"series-{number}"], card) >= 3, number


def section(text, name):
    found = re.search(rf'<section id="{name}">(.*?)</section>', text, re.DOTALL)
    return found and " ".join(re.sub("<[^>]*>", " ", found[1]).split())


def test_the_page_of_a_run_names_what_was_moved_and_what_it_cost(text):
    told = section(text, "the-migration")
    assert "old store my-store old model not named (--source-model) new store" in told
    assert "estimated, openai:m 20,000 $0.4000 spent, openai:m 18,000 $0.3600" in told
    assert "full re-embed from the start 900,000 $18.00 full re-embed from here 375,000 $7.50" in told
    assert "continued" not in told
    assert "continued an earlier one" in section(page_of(is_continued=True), "the-migration")
    assert "no model of this run costs money" in section(page_of(spending=()), "the-migration").lower()


@pytest.mark.parametrize(
    ("outcome", "safe", "told"),
    [
        (Outcome.SAFE, ["translated"], None),
        (Outcome.NOT_SAFE, ["full re-embed", "two-stage 50"], "two-stage 50 85.0 % $7.50"),
        (Outcome.NOT_SAFE, [], "No way to go on is shown to be SAFE"),
        (Outcome.INCONCLUSIVE, ["full re-embed"], "About 1,234 queries like these, in place of 300, would settle"),
    ],
)
def test_what_it_would_take_is_there_where_it_is_not_safe(outcome, safe, told):
    found = section(page_of(outcome, safe=safe), "what-it-would-take")
    if told is None:
        assert found is None
    else:
        assert told in found


def test_an_audit_that_is_of_no_run_says_nothing_of_one():
    page = report_page(audit_sections(report_of(make_report())))
    assert section(page, "the-migration") is None and section(page, "what-it-would-take") is None
