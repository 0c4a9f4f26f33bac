from dataclasses import replace

import pytest

from migrate.check import Agreement, Cause, Compatibility, Example, Observation, Trial
from migrate.check.comparison import Share
from migrate.manifest import ModelIdentity
from migrate.report.check import check_document, check_sections
from migrate.report.page import report_page
from migrate.report.terminal import report_text

LONG = "Represent this sentence for searching relevant passages, whatever they are about: "


@pytest.fixture
def found():
    """A finding in which everything is as long as can be."""
    trials = tuple(Trial(Cause.OTHER_PREFIX, f"with the prefix {LONG!r}", 32, n, 0.1 * n) for n in range(9))
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
    assert "sampled texts were embedded again in 9 other ways; the nearest are" in lines
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
