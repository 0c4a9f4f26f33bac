from dataclasses import replace

import pytest
from schema import check_document as check_against_schema

from migrate.check import (
    Agreement,
    Cause,
    Compatibility,
    Example,
    JudgedRetention,
    LargerSample,
    Observation,
    Repair,
    RetrievalCost,
    Trial,
)
from migrate.check.comparison import Share
from migrate.manifest import ModelIdentity
from migrate.report.check import check_document, check_sections
from migrate.report.page import report_page
from migrate.report.suite import check_suite
from migrate.report.terminal import report_text

LONG = "Represent this sentence for searching relevant passages, whatever they are about: "


@pytest.fixture
def found():
    """A finding in which everything is as long as can be."""
    trials = tuple(Trial(Cause.DOUBLED_PREFIX, f"with the prefix {LONG!r}", 32, n, 0.1 * n) for n in range(9))
    return Compatibility(
        "store",
        ModelIdentity("sentence-transformers:" + "m" * 60, 384, True),
        Cause.MIXED,
        "a part of the store is of another model; " * 4,
        "sample",
        (
            Observation("dimension", True, "384, as the model's"),
            Observation("vectors", False, "as such a thing may be " * 9),
        ),
        Agreement(32, 20, Share(0.375, 0.21, 0.56), 1e-3, 0.98, 0.1),
        trials,
        (Example("id\x1b[31m" + "x" * 80, 123_456_789, -0.5, f"embedded with {LONG!r}"),),
        ("a note " * 30,),
    )


def test_the_text_fits_obeys_no_id_and_shows_the_ways_that_came_nearest_best_first(found):
    text = report_text(check_sections(found))
    lines = text.split("\n")
    assert max(map(len, lines)) <= 100
    assert "\x1b" not in text and "\\x1b[31m" in text
    assert "sampled texts were embedded again in 9 other ways" in text
    assert [line.split()[-3] for line in lines if line.startswith("with the prefix")] == ["8", "7", "6", "5", "4"]


def test_the_document_holds_everything(found):
    document = check_document(found)
    assert (document["kind"], document["cause"], document["compatible"]) == ("check", "mixed store", False)
    assert len(document["trials"]) == 9 and document["figures"]["disagreeing"]["upper"] == 0.56
    assert [finding["name"] for finding in document["findings"]] == ["dimension", "vectors"]


def test_the_page_says_the_answer_and_obeys_no_id(found):
    hostile = replace(found, examples=(Example("<img src=x>", 1, 0.5, "a <b>"),), store="<script>")
    page = report_page(check_sections(hostile))
    assert f"The vectors are not those of {found.model.spec}" in page
    assert page.index("mixed store") < page.index("<table")
    assert "<img" not in page and "&lt;img src=x&gt;" in page and page.count("<script") == 1
    assert all(trial.meaning in page for trial in found.trials)
    assert len(page) < 300_000
    compatible = report_page(check_sections(replace(found, cause=Cause.COMPATIBLE, examples=())))
    assert f"The vectors are those of {found.model.spec}" in compatible
    assert "What would explain it" not in compatible and "Documents that disagree" not in compatible


def test_the_cost_in_retrieval_is_told_with_the_figures_of_the_document(found):
    cost = RetrievalCost(
        200,
        5_000,
        Share(0.412, 0.39, 0.434),
        10 / 199,
        JudgedRetention(24, Share(0.9, 0.7, float("inf"))),
        Repair("ridge", Share(0.981, 0.975, 0.987), "most"),
        LargerSample(1_000, 800, 91_764, 0.0018),
    )
    near = replace(found, retrieval=cost)
    lines = " ".join(report_text(check_sections(near)).split())
    assert "overlap@10 0.412 (95 % bounds: 0.390 to 0.434)" in lines and "200 sampled documents" in lines
    assert "among all 5,000" in lines and "it may be lower" in lines
    assert "0.900 (95 % bounds: 0.700 to no limit) of nDCG@10" in lines and "24 judged queries" in lines
    assert "0.412 as stored, 0.981" in lines and "0.975 to 0.987" in lines
    assert "800 more texts, about 91,764 tokens, $0.0018" in lines
    assert "overlap@10 0.412" in report_page(check_sections(near)) and "overlap@10 0.412" in check_suite(near).markdown
    document = check_document(near)
    check_against_schema(document)
    assert document["retrieval"]["repair"]["repairs"] == "most"
    assert document["retrieval"]["judged"]["retention"]["upper"] is None

    unhelped = replace(
        cost, documents=5_000, larger=None, judged=JudgedRetention(3), repair=replace(cost.repair, repairs="none")
    )
    lines = " ".join(report_text(check_sections(replace(found, retrieval=unhelped))).split())
    assert "no linear stitch repairs it" in lines and "it may be lower" not in lines and "larger" not in lines
    assert "3 judged queries" in lines and "too few" in lines
