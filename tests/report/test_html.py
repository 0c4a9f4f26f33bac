"""The page: valid, whole, without network, and shown by a real browser without complaint."""

import re
from dataclasses import replace
from html import escape
from xml.etree import ElementTree

import numpy as np
import pytest
from browser import Question, ask_browser, browse, with_browser
from html_page import Page
from topics import DOCUMENTS, QRELS, QUERIES, SOURCE, audit, make_store, noisy, page_of

from migrate.audit.document import report_of
from migrate.audit.query_set import QuerySet
from migrate.check import Cause, Compatibility, Observation
from migrate.manifest import ModelIdentity
from migrate.report.check import check_sections
from migrate.report.decision import decision_chart
from migrate.report.page import html, notebook_piece, report_page
from migrate.report.sections import TextTable
from migrate.report.svg.charts import (
    Interval,
    Line,
    Point,
    cost_chart,
    difference_chart,
    histogram_chart,
    interval_chart,
    line_chart,
)
from migrate.report.svg.frame import Frame, ticks
from migrate.vectors import Query

STRANGE = " <script>alert('x')</script> & \"quoted\""


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("html")
    queries = [Query(query.id, query.text + STRANGE) for query in QUERIES]
    translated = make_store(folder / "translated", vectors=noisy(3.0))
    np.save(folder / "translated" / "confidence.npy", np.linspace(0.2, 0.99, len(DOCUMENTS)).astype("<f4"))
    return audit(
        translated,
        make_store(folder / "reference"),
        QuerySet(queries, QRELS, "topics"),
        source=make_store(folder / "source", SOURCE),
        source_model=SOURCE,
        two_stage=[50],
    )


@pytest.fixture(scope="module")
def page(report):
    return page_of(report)


def charts(page):
    """The outermost SVG elements."""
    return [ElementTree.fromstring(svg) for svg in re.findall(r'<svg role="img".*?</svg>(?=</div>)', page, re.DOTALL)]


def test_the_verdict_is_said_before_the_chart_and_the_chart_comes_before_the_table(report, page):
    assert page.index("NOT SAFE") < page.index(f"{100 * report.verdict.retention.estimate:.1f} %") < page.index("<svg")
    assert page.index("<svg") < page.index("<table") < page.index('id="where-it-hurts"') < page.index('id="the-arms"')
    assert all(name in page for name in (*(arm.name for arm in report.arms), *report.skipped_arms))


def test_the_page_needs_no_network_and_allows_its_own_script_alone(page):
    read = Page(page)
    assert [attributes["href"] for attributes in read.all("link")] == ["data:,"]
    assert not [found for _, found in read.elements if {"src", "srcset", "action", "onload"} & set(found)]
    assert not re.search(r"@import|url\(|https?://|//[a-z]+\.", page)
    (policy,) = (a["content"] for a in read.all("meta") if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'")
    assert read.all("script") == [{}] and page.count("<script") == 1
    assert {attributes.get("scope") for attributes in read.all("th")} == {"col", "row"}
    assert "&lt;script&gt;alert" in page, "what queries say is shown and not obeyed"
    assert len(page.encode()) < 300_000


def test_ids_are_shown_and_not_obeyed(report):
    hostile = "\"'><img src=x onerror=alert(1)>\x00"
    data = replace(report.data, query_ids=(hostile, *report.data.query_ids[1:]), name=hostile)
    page = page_of(replace(report, data=data))
    assert Page(page).all("img") == []
    assert "&lt;img src=x" in page and "\x00" not in page


def test_every_chart_is_valid_and_read_out(page):
    found = charts(page)
    assert len(found) >= 8
    for chart in found:
        assert chart.get("role") == "img" and chart.get("aria-label")
        assert not re.search(r"\b(nan|inf|None)\b", ElementTree.tostring(chart, encoding="unicode"))


def test_points_and_bars_say_what_they_are(report, page):
    said = re.findall(r"<title>(.*?)</title>", page[page.index("<body>") :])
    difference = report.arm("translated").scores["nDCG@10"] - report.arm("full re-embed").scores["nDCG@10"]
    worst = int(np.argmin(difference))
    name = escape(f"{report.data.query_ids[worst]}, {report.data.query_texts[worst]}"[:40], quote=False)
    assert any(tip.startswith(name) and tip.endswith(f"{difference[worst]:+.3f}") for tip in said)
    bounds = report.comparisons["stay"].retention
    assert f"stay: {100 * bounds.estimate:.1f} % ({100 * bounds.lower:.1f} % to {100 * bounds.upper:.1f} %)" in said


@pytest.mark.slow
def test_ten_thousand_queries_stay_a_small_page(report):
    """Every array of a report grows with the queries; what is drawn must not."""
    arms = (
        replace(arm, scores={name: np.resize(values, 10_000) for name, values in arm.scores.items()})
        for arm in report.arms
    )
    ids, texts = tuple(f"query {number}" for number in range(10_000)), ("a text of some length " * 9,) * 10_000
    data = replace(report.data, query_ids=ids, query_texts=texts)
    assert len(page_of(replace(report, arms=tuple(arms), data=data)).encode()) < 300_000


def test_without_costs_the_arms_are_drawn_first(report):
    page = page_of(replace(report, arms=tuple(replace(arm, usd=None, tokens=None) for arm in report.arms)))
    assert page.index('class="chart intervals"') < page.index('id="where-it-hurts"')
    assert "still to pay" not in page


def test_a_store_that_changes_no_answer_has_no_bars(report, page):
    same = replace(report.arm("translated"), scores=report.arm("full re-embed").scores)
    arms = tuple(same if arm.name == same.name else arm for arm in report.arms)
    assert "Each bar is a query" not in page_of(replace(report, arms=arms)) and "Each bar is a query" in page


@pytest.mark.slow
@with_browser
def test_a_browser_shows_it_in_the_dark_too_without_complaint(report, page, tmp_path):
    path, picture = tmp_path / "report.html", tmp_path / "report.png"
    path.write_text(page, encoding="utf-8")
    dark = "--blink-settings=preferredColorScheme=0"
    shown = browse(tmp_path, path, "--dump-dom", dark, f"--screenshot={picture}")
    assert "NOT SAFE" in shown.stdout and f"{report.verdict.retention.estimate:.3f}" in shown.stdout
    assert "CONSOLE" not in shown.stderr, shown.stderr
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size > 20_000, "an empty page is smaller"


def table_page(values):
    """A page with one table, of a name and a value in each row."""
    rows = [["name", "value"], *([f"n{place}", value] for place, value in enumerate(values))]
    found = Compatibility("store", ModelIdentity("model", 4, True), Cause.COMPATIBLE, "it is", "facts", ())
    table = notebook_piece("answer", TextTable(rows))
    page = report_page(check_sections(found))
    return re.sub(r"<main\b.*</main>", lambda _: f"<main>{table}</main>", page, flags=re.DOTALL)


SORTED = """page => {
  const table = page.querySelector("table"), said = [];
  const column = () => [...table.tBodies[0].rows].map(row => row.cells[1].textContent);
  const head = table.tHead.rows[0].cells[1], button = head.querySelector("button");
  for (let click = 0; click < 3; click++) { button.click(); said.push([head.getAttribute("aria-sort"), column()]); }
  return said;
}"""


FILTERED = """page => {
  const box = page.querySelector("input");
  if (!box) return null;
  box.value = "<B>3 n8";
  box.dispatchEvent(new Event("input"));
  const shown = [...page.querySelectorAll("tbody tr")].filter(row => row.checkVisibility());
  return shown.map(row => row.cells[0].textContent);
}"""

HOVER = """(page, view) => {
  const chart = page.querySelector("figure.chart"), marks = chart.querySelectorAll(".mark"), said = [];
  const tip = page.querySelector("#tip"), look = () => said.push(tip.hidden ? null : tip.textContent);
  look();
  chart.focus(); look();
  chart.dispatchEvent(new view.KeyboardEvent("keydown", {key: "ArrowRight"})); look();
  marks[2].dispatchEvent(new view.PointerEvent("pointerenter")); look();
  marks[2].dispatchEvent(new view.PointerEvent("pointerleave")); look();
  return [said, [...marks].slice(0, 3).map(mark => mark.dataset.tip)];
}"""

CROSSED = """page => {
  const svg = page.querySelector('[aria-label="crowded"]'), box = svg.getBoundingClientRect();
  const edges = shape => shape.getBoundingClientRect();
  const shapes = [...svg.querySelectorAll(".mark line, .mark circle")].map(edges);
  const labels = [...svg.querySelectorAll("text:not(.muted)")].map(label => [label.textContent, edges(label)]);
  const meet = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
  return [
    labels.filter(([name, one]) => shapes.some(shape => meet(one, shape))).map(([name]) => name),
    Math.min(...shapes.map(shape => shape.left)) - box.left,
    box.right - Math.max(...shapes.map(shape => shape.right)),
    labels.length,
  ];
}"""


SIDEWAYS = """page => {
  const root = page.documentElement;
  const buttons = page.querySelectorAll("th button").length;
  return [root.scrollWidth - root.clientWidth, buttons, page.querySelector("table").checkVisibility()];
}"""

NUMBERS = ["2 MB", "-", "$1,000", "300 kB", "-0.5", ""]
ROWS = [f"<b>{place % 5}" for place in range(13)]
AT_ONCE = {"stay": 0, "BM25": 0, "translated": 1, "hybrid, full": 1, "full re-embed": 1} | {
    f"two-stage {n}": 1 for n in (20, 50, 200)
}
SPREAD = {"stay": 0, "BM25": 0, "translated": 0.3, "two-stage 20": 0.4, "two-stage 50": 0.55, "two-stage 200": 0.8} | {
    "full re-embed": 1,
    "hybrid, full": 1,
}


def crowded(report, page, costs):
    """The page, with a chart of arms whose bounds and costs are near each other in the place of its first."""
    kept = (0.94, 0.76, 0.915, 0.925, 1.0, 1.003, 1.0, 1.0)
    points = [
        Point(Interval(name, at - 0.06, at, at + 0.06), cost, "muted")
        for (name, cost), at in zip(costs.items(), kept, strict=True)
    ]
    chart = cost_chart("crowded", points, margin=0.95, x_label="c", y_label="r")
    return page.replace(html(decision_chart(report_of(report).audit).drawing), html(chart.drawing))


def wide_check():
    model = ModelIdentity("m" * 200, 4, True)
    wide = Observation("vectors", False, "x" * 200)
    found = Compatibility("s" * 200, model, Cause.MIXED, "it is " * 20, "facts", (wide,))
    return report_page(check_sections(found))


@pytest.fixture(scope="module")
def answers(report, page, tmp_path_factory):
    """What a browser says of pages, by the name of the question; with scripts, but where it is said."""
    asleep = "allow-same-origin"
    questions = {
        "numbers": Question(table_page(NUMBERS), SORTED),
        "words": Question(table_page(["b", "d10", "a", "d9"]), SORTED),
        "long": Question(table_page(ROWS), FILTERED),
        "short": Question(table_page(ROWS[:-1]), FILTERED),
        "hover": Question(page, HOVER),
        "at once": Question(crowded(report, page, AT_ONCE), CROSSED, width=390),
        "spread": Question(crowded(report, page, SPREAD), CROSSED, width=390),
        "telephone": Question(page, SIDEWAYS, width=390),
        "telephone, check": Question(wide_check(), SIDEWAYS, width=390),
        "telephone, no scripts": Question(page, SIDEWAYS, width=390, sandbox=asleep),
        "telephone, check, no scripts": Question(wide_check(), SIDEWAYS, width=390, sandbox=asleep),
    }
    return ask_browser(tmp_path_factory.mktemp("browser"), questions)


@pytest.mark.slow
@with_browser
def test_heads_sort_numbers_with_units_and_words_and_absent_values_last(answers):
    up, down, back = answers["numbers"]
    assert up == ["ascending", ["-0.5", "$1,000", "300 kB", "2 MB", "-", ""]]
    assert down == ["descending", ["2 MB", "300 kB", "$1,000", "-0.5", "-", ""]]
    assert back == ["none", NUMBERS]
    (_, up), *_ = answers["words"]
    assert up == ["a", "b", "d9", "d10"]


@pytest.mark.slow
@with_browser
def test_a_long_table_has_a_box_that_filters_and_a_short_one_has_none(answers):
    assert answers["long"] == ["n8"]
    assert answers["short"] is None


@pytest.mark.slow
@with_browser
def test_marks_are_explained_on_hover_and_by_the_keyboard(answers):
    said, names = answers["hover"]
    assert said == [None, *names, None]
    assert names[0].startswith("stay: ")


@pytest.mark.slow
@with_browser
@pytest.mark.parametrize("costs", ["at once", "spread"])
def test_no_label_is_crossed_by_a_bar_and_no_bar_leaves_the_chart(costs, answers):
    crossed, left, right, count = answers[costs]
    assert (crossed, count) == ([], 8)
    assert left >= 0 and right >= 0


@pytest.mark.slow
@with_browser
@pytest.mark.parametrize("page_of_it", ["telephone", "telephone, check"])
@pytest.mark.parametrize("scripts", ["", ", no scripts"])
def test_a_telephone_shows_it_without_scrolling_sideways(page_of_it, scripts, answers):
    beyond, buttons, is_shown = answers[page_of_it + scripts]
    assert beyond == 0 and is_shown
    assert bool(buttons) == (not scripts)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1]), (0.93, 0.97, [0.93, 0.94, 0.95, 0.96, 0.97]), (-3, 7, [-2, 0, 2, 4, 6])],
)
def test_ticks_are_round_and_within(low, high, expected):
    assert ticks(low, high) == pytest.approx(expected)
    frame = Frame((low, high), (5.0, 6.0), height=100)
    assert (frame.at_x(low), frame.at_x(high), frame.at_y(5), frame.at_y(6)) == ("0%", "100%", 100, 0)


def test_intervals_stand_in_the_order_they_are_given_and_endless_bounds_end():
    chart = interval_chart("x", [Interval("a", 0.1, 0.5, np.inf), Interval("b", 0.2, 0.3, 0.4)], margin=0.9, label="l")
    assert [row.name for row, _ in chart.rows] == ["a", "b"]
    for _, drawing in chart.rows:
        assert all(0 <= float(node.get("x2").rstrip("%")) <= 100 for node in drawing.iter("line"))


def labels(chart):
    return [node for node in chart.drawing.iter("text") if node.get("class") is None]


def test_labels_of_options_of_one_cost_do_not_cover_each_other():
    points = [Point(Interval(f"option {n}", 0.9, 0.95 + n / 1000, 1.0), 5.0, "good") for n in range(4)]
    chart = cost_chart("x", [Point(Interval("stay", 0.5, 0.6, 0.7), 0.0, "muted"), *points], margin=0.95, x_label="c",
                       y_label="r")  # fmt: skip
    heights = sorted(float(label.get("y")) for label in labels(chart) if label.text.startswith("option"))
    assert len(heights) == 4 and min(np.diff(heights)) >= 15
    assert ("SAFE needs at least 0.95", "level") in chart.legend
    points = [Point(Interval(name, 0.5, 0.6, 0.7), cost, "muted") for name, cost in (("left", 0.0), ("right", 9.0))]
    chart = cost_chart("x", points, margin=0.95, x_label="c", y_label="r")
    sides = {label.text: label.get("text-anchor") for label in labels(chart)}
    assert sides == {"left": "start", "right": "end"}, "a name is written where there is room"


def test_charts_of_one_value_do_not_divide_by_nothing():
    drawn = [
        difference_chart("x", [0.0], ["q"], label="l"),
        line_chart("x", [Line("one", [(0.3, 0.9)])], x_label="x", y_label="y"),
        histogram_chart("x", [("a", (0.5, 0.5 + 1e-9), (3,))], label="l"),
        cost_chart("x", [Point(Interval("a", 1.0, 1.0, 1.0), 0.0, "good")], margin=1.0, x_label="c", y_label="r"),
    ]
    for chart in drawn:
        assert "nan" not in html(chart.drawing)


def test_losses_are_below_the_line():
    chart = difference_chart("x", [0.25, -0.5, 0.0], ["gains", "loses", "stays"], label="l")
    bars = {bar[0].text: bar for bar in chart.drawing.iter("rect")}
    assert set(bars) == {"loses: -0.500", "gains: +0.250"}
    middle = float(bars["loses: -0.500"].get("y"))
    gain = bars["gains: +0.250"]
    assert float(gain.get("y")) + float(gain.get("height")) == pytest.approx(middle)


def test_of_too_many_bars_the_drawn_ones_are_queries_of_their_own():
    values = np.linspace(-1, 1, 10_000)
    chart = difference_chart("x", values, [f"q{n}" for n in range(10_000)], label="l")
    said = [bar[0].text for bar in chart.drawing.iter("rect")]
    assert len(said) == 400 and said[0] == "q0: -1.000" and said[-1] == "q9999: +1.000"
