"""One description of a result, shown by a terminal, a page, a notebook and a summary of CI."""

from html_page import Page

from migrate.report.page import element, notebook_piece, report_page
from migrate.report.sections import Either, Facts, Figures, Heading, Listed, Note, Report, TextTable
from migrate.report.suite import as_markdown
from migrate.report.terminal import as_text, report_text, table

ROWS = [["arm", "score"], ["<b>|x", "0.5"]]
REPORT = Report(
    kind="kind of page",
    title="a title",
    lead=Either(element("p", "only on the page"), "only on the terminal"),
    sections={
        "Figures": [TextTable(ROWS, marked=[0]), Facts([("seed", "7")]), Note("small `print`"), ["one", "two"]],
        "Drawn": [Either(element("figure", "a chart"), TextTable([["x", "y"], ["1", "2"]])), Figures([("n", "3")])],
        "For pages": [Heading("heading of nothing"), element("p", "prose")],
        "For terminals": [Either(None, Listed(["a line"]))],
        "Nothing": None,
    },
    closing="the answer",
)


def test_a_terminal_has_tables_in_the_place_of_charts_and_the_answer_last():
    assert report_text(REPORT).split("\n\n") == [
        "only on the terminal",
        "Figures\narm    score\n<b>|x    0.5",
        "seed  7",
        "small `print`",
        "one\ntwo",
        "Drawn\nx  y\n1  2",
        "For terminals\na line",
        "the answer",
    ]


def test_a_page_has_charts_and_links_the_sections_that_it_has():
    text = report_page(REPORT)
    page = Page(text)
    assert [link for link in page.links if link.startswith("#")] == ["#content", "#figures", "#drawn", "#for-pages"]
    assert page.tables == [[["arm", "score"], ["<b>|x", "0.5"]], [["seed", "7"]]]
    assert "<figure>a chart</figure>" in text and '<p class="note">Small <code>print</code>.</p>' in text
    assert "<b>|x" not in text and "only on the terminal" not in text and "a line" not in text


def test_notebooks_and_summaries_show_the_same_blocks():
    blocks = ["a caveat", TextTable(ROWS), Listed(["a note", "another"])]
    shown = notebook_piece("it is <so>", *blocks)
    assert shown.startswith("<p><strong>it is &lt;so&gt;</strong></p>\n<p>A caveat.</p>\n<div")
    assert "&lt;b&gt;|x</th><td>0.5</td>" in shown and "<li>another</li>" in shown
    table = "| arm | score |\n|---|---:|\n| <b>\\|x | 0.5 |"
    assert as_markdown(*blocks).split("\n\n") == ["a caveat", table, "- a note\n- another"]


def test_texts_go_on_in_further_lines_and_characters_of_east_asia_are_wide():
    rows = [["name", "n", "what"], ["a", "1", "word " * 9], ["模型", "22", "-"]]
    assert table(rows, left=[2], width=30).splitlines() == [
        "name   n  what",
        "a      1  word word word word",
        "          word word word word",
        "          word",
        "模型  22  -",
    ]
    assert len(as_text("word " * 30, width=40).splitlines()) == 5
    assert "\x1b" not in as_text("\x1b[31m", Facts([("a", "\x1b[31m")]), Listed(["\x1b[31m"]), TextTable([["\x1b[0m"]]))
