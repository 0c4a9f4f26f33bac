"""The page: valid, whole, without network, and shown by a real browser without complaint."""

import re
import shutil
import subprocess
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
from topics import DOCUMENTS, QRELS, QUERIES, SOURCE, audit, make_store, noisy

from migrate.audit.query_set import QuerySet
from migrate.report.html import audit_page
from migrate.report.page import Section, html_page, html_table
from migrate.report.svg.charts import Interval, Line, difference_chart, histogram_chart, interval_chart, line_chart
from migrate.report.svg.frame import Frame, ticks
from migrate.vectors import Query

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
QUIET = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--enable-logging=stderr",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--window-size=1200,2000",
)  # fmt: skip
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
        source_embedder=SOURCE,
        two_stage=[50],
    )


def charts(page):
    return [ElementTree.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", page, flags=re.DOTALL)]


def test_the_page_says_the_verdict_first(report):
    page = audit_page(report)
    assert page.index("NOT SAFE") < page.index("<svg")
    assert page.index(f"{report.verdict.retention.estimate:.3f}") < page.index("<svg")
    for arm in report.arms:
        assert arm.name in page
    for missing in report.skipped_arms:
        assert missing in page


def test_the_page_needs_no_network_and_runs_no_script(report):
    page = audit_page(report)
    assert not re.search(r"<script|<link[^>]+href=\"(?!data:)|@import|url\(|src=|https?://", page)
    assert "&lt;script&gt;alert" in page
    assert len(page.encode()) < 1_000_000


def test_every_chart_is_valid_and_read_out(report):
    found = charts(audit_page(report))
    assert len(found) >= 8
    for chart in found:
        assert chart.get("role") == "img" and chart.get("aria-label")
        text = ElementTree.tostring(chart, encoding="unicode")
        assert not re.search(r"\b(nan|inf|None)\b", text)


def test_a_provisional_report_has_a_page_too(report, tmp_path):
    translated, reference = (make_store(tmp_path / name, vectors=noisy(scale)) for name, scale in (("t", 1), ("r", 0)))
    page = audit_page(audit(translated, reference, QuerySet(QUERIES, None, "log")))
    assert "provisional" in page and "agreement@10" in page
    assert charts(page)


def test_ten_thousand_queries_stay_under_a_megabyte(report):
    """Every array of a report grows with the queries; what is drawn must not."""
    grown = tuple(
        replace(arm, scores={name: np.resize(values, 10_000) for name, values in arm.scores.items()})
        for arm in report.arms
    )
    assert len(audit_page(replace(report, arms=grown)).encode()) < 1_000_000


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_shows_it_without_complaint(scheme, report, tmp_path):
    path, picture = tmp_path / "report.html", tmp_path / "report.png"
    path.write_text(audit_page(report), encoding="utf-8")
    look = [] if scheme == "light" else ["--blink-settings=preferredColorScheme=0"]

    def browse(*arguments):
        options = [*QUIET, *look, f"--user-data-dir={tmp_path / 'profile'}", *arguments, path.as_uri()]
        return subprocess.run([CHROMIUM, *options], capture_output=True, text=True, timeout=120, check=True)

    shown = browse("--dump-dom")
    assert "NOT SAFE" in shown.stdout and f"{report.verdict.retention.estimate:.3f}" in shown.stdout
    assert "CONSOLE" not in shown.stderr, shown.stderr
    browse(f"--screenshot={picture}")
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size > 20_000, "an empty page is smaller"


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1]), (0.93, 0.97, [0.93, 0.94, 0.95, 0.96, 0.97]), (-3, 7, [-2, 0, 2, 4, 6])],
)
def test_ticks_are_round_and_within(low, high, expected):
    assert ticks(low, high) == pytest.approx(expected)


def test_a_frame_maps_its_corners():
    frame = Frame((0.0, 10.0), (5.0, 6.0), width=200, height=100, left=20, right=10, top=5, bottom=15)
    assert (frame.at_x(0), frame.at_x(10)) == (20, 190)
    assert (frame.at_y(5), frame.at_y(6)) == (85, 5)


def test_intervals_stand_in_the_order_they_are_given_and_endless_bounds_end():
    chart = interval_chart("x", [Interval("a", 0.1, 0.5, np.inf), Interval("b", 0.2, 0.3, 0.4)], margin=0.9, label="l")
    (root,) = charts(chart)
    dots = [node for node in root.iter() if node.tag == "circle"]
    assert float(dots[0].get("cy")) < float(dots[1].get("cy"))
    assert all(0 <= float(node.get("x2")) <= 920 for node in root.iter() if node.tag == "line")


def test_charts_of_one_value_do_not_divide_by_nothing():
    drawn = [
        difference_chart("x", [0.0], label="l"),
        line_chart("x", [Line("one", [(0.3, 0.9)])], x_label="x", y_label="y"),
        histogram_chart("x", [("a", (0.5, 0.5 + 1e-9), (3,))], label="l"),
    ]
    for chart in drawn:
        assert "nan" not in chart and charts(chart)


def test_losses_are_below_the_line():
    (root,) = charts(difference_chart("x", [-0.5, 0.0, 0.25], label="l"))
    bad, good = [node.get("d") for node in root.iter() if node.tag == "path"]
    heights = [[float(y) for y in re.findall(r",([\d.]+)", path)] for path in (bad, good)]
    assert max(heights[0]) > max(heights[1])


def test_a_table_escapes_and_marks():
    assert '<tr class="marked"><td>&lt;b&gt;</td></tr>' in html_table([["h"], ["<b>"]], marked=[0])


def test_a_page_links_its_sections():
    page = html_page("kind", "A <title>", "<p>lead</p>", [Section("One & two", "<p>body</p>")])
    assert '<a href="#one-two">One &amp; two</a>' in page and '<section id="one-two">' in page
    assert "<title>A &lt;title&gt;</title>" in page
