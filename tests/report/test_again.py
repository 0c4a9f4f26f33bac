"""A report from its JSON file: each form of it is the same as when the audit was fresh, and odd files are refused."""

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
from odd_values import changed, places
from pandas.testing import assert_frame_equal
from topics import OF_TARGET, QUESTIONS, SOURCE, UNJUDGED, audit, make_store, noisy, pool

from migrate import load_report
from migrate.audit.document import report_of
from migrate.audit.locations import Locations
from migrate.audit_report.records import audit_in
from migrate.audit_report.report import AuditReport
from migrate.errors import InputError
from migrate.files import json_text
from migrate.outcome import Outcome
from migrate.reading import MalformedError
from migrate.report import notebook  # noqa: F401 - registers the displays
from migrate.report.audit_sections import audit_sections
from migrate.report.page import report_page
from migrate.report.suite import annotation_lines, audit_suite, junit_xml
from migrate.report.summary import audit_summary
from migrate.report.terminal import report_text

PLACES = Locations(
    source="old",
    translated="new",
    full="new-full",
    target=("--target", "tfidf:8"),
    report="report.json",
    can_switch=True,
)
RENDERERS = {
    "the summary": audit_summary,
    "a narrow summary": lambda report: audit_summary(report, width=40, page=Path("page.html")),
    "the terminal": lambda report: report_text(audit_sections(report)),
    "the page": lambda report: report_page(audit_sections(report)),
    "JUnit": lambda report: junit_xml(audit_suite(report)),
    "annotations": lambda report: list(annotation_lines(audit_suite(report))),
    "Markdown": lambda report: audit_suite(report).markdown,
    "a notebook": lambda report: report._repr_html_(),
    "print": str,
    "repr": repr,
    "JSON": lambda report: json_text(report.document),
}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Results of audits of all kinds that reports look different for."""
    folder = tmp_path_factory.mktemp("stores")
    old, full = make_store(folder / "old", SOURCE), make_store(folder / "full")
    new = make_store(folder / "new", vectors=noisy(0.3), manifest=OF_TARGET)
    bad = make_store(folder / "bad", vectors=noisy(3.0), manifest=OF_TARGET)
    judged = audit(new, full, QUESTIONS, two_stage=(20,), source=old, source_model=SOURCE)
    pooled = audit(new, pool(), QUESTIONS, two_stage=(20,), source=old, source_model=SOURCE)
    return {
        "by a full re-embed": judged,
        "of another plan": replace(judged, plan="two-stage 20", locations=PLACES, documents_per_s=20.0),
        "by a pool": replace(pooled, locations=PLACES),
        "unjudged": audit(new, full, UNJUDGED),
        "unjudged, by a pool": audit(new, pool(), UNJUDGED, two_stage=(20,)),
        "of a low margin": audit(new, full, QUESTIONS, margin=0.5),
        "of a bad store": audit(bad, full, QUESTIONS),
        "without a standard": judged.without_standard(),
    }


KINDS = (
    "by a full re-embed",
    "of another plan",
    "by a pool",
    "unjudged",
    "unjudged, by a pool",
    "of a low margin",
    "of a bad store",
    "without a standard",
)


def written(report, folder):
    path = folder / "report.json"
    path.write_text(json_text(report.document))
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_a_report_from_its_file_is_the_fresh_one(kind, results, tmp_path):
    fresh = report_of(results[kind])
    again = load_report(written(fresh, tmp_path))
    for form, render in RENDERERS.items():
        assert render(again) == render(fresh), form


@pytest.mark.parametrize("rows", ["arms", "queries"])
def test_the_tables_of_a_report_from_its_file_are_those_of_the_fresh_one(rows, results, tmp_path):
    fresh = report_of(results["by a full re-embed"])
    assert_frame_equal(load_report(written(fresh, tmp_path)).to_pandas(rows), fresh.to_pandas(rows))


def test_a_report_says_the_same_as_the_result_that_it_is_of(results):
    outcomes = set()
    for result in results.values():
        report = report_of(result)
        assert report.outcome is result.outcome and report.verdict.outcome is result.verdict.outcome
        assert report.verdict.sentence == result.verdict.sentence in report.sentence
        assert report.verdict.retention == result.verdict.retention or not result.verdict.retention.is_known
        assert list(report.audit.family) == list(result.family)
        assert list(report.audit.missing.items()) == list(result.skipped_arms.items())
        outcomes.add(report.outcome)
    assert outcomes == set(Outcome)


ODD = [None, True, -7, 1.5, 1e300, float("nan"), "x", "", [], {}, [1, "a", None], {"a": {"b": 1}}, 10**400]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["of another plan", "by a pool"])
def test_a_report_with_an_odd_part_is_refused_or_shown(kind, results):
    document = json.loads(json_text(report_of(results[kind]).document))
    every = [(path, value) for path in places(document) if path for value in ODD]
    refused = 0
    for path, value in random.Random(0).sample(every, 100):
        try:
            report = AuditReport.of(changed(document, path, value))
        except MalformedError:
            refused += 1
            continue
        for form, render in RENDERERS.items():
            if form != "JSON":
                assert render(report), (path, value)
    assert refused > 30


@pytest.mark.parametrize(
    ("part", "path", "value"),
    [
        ("'store' is missing", ("store",), ...),
        ("'verdict.counted' is missing", ("verdict", "counted"), ...),
        ("'arms[0].means' must be a table, and is 7", ("arms", 0, "means"), 7),
        ("'arms' has no 'full re-embed'", ("arms",), []),
        ("nDCG@10 of 'translated' is no score of each query", ("arms", 1, "per_query", "nDCG@10"), [0.5]),
        ("nDCG@10 of 'translated' is not the mean of", ("arms", 1, "means", "nDCG@10"), 0.99),
        ("1 'query_texts' of 60 queries", ("query_texts",), ["one"]),
        ("'verdict.retention' is missing", ("verdict", "retention"), ...),
        ("a number of nan", ("verdict", "margin"), float("nan")),
        ("'family' has no 'two-stage 7'", ("plan", "name"), "two-stage 7"),
        ("'options' has no 'full re-embed'", ("options",), []),
        ("'calibration.histograms' is empty", ("calibration", "histograms"), {}),
    ],
)
def test_a_report_without_a_part_that_is_shown_is_refused(part, path, value, results):
    document = json.loads(json_text(report_of(results["of another plan"]).document))
    with pytest.raises(MalformedError) as caught:
        audit_in(changed(document, path, value))
    assert part in str(caught.value)


def test_a_part_that_a_later_version_adds_is_left_out(results):
    document = {**report_of(results["unjudged"]).document, "weather": "fine"}
    document["verdict"] = {**document["verdict"], "weather": "fine"}
    assert AuditReport.of(document).sentence == report_of(results["unjudged"]).sentence


@pytest.mark.parametrize(
    ("path", "value", "why"),
    [
        (("verdict", "outcome"), "SAFE", "which its own numbers do not bear"),
        (("schema_version",), 4, "has schema version 4"),
        (("kind",), "fit", "not the report of an audit ('kind' must be one of audit"),
        (("arms",), ..., "not the report of an audit ('arms' is missing)"),
    ],
)
def test_a_file_that_is_no_sound_report_is_refused(path, value, why, results, tmp_path):
    report = report_of(results["of a bad store"])
    assert report.outcome is Outcome.NOT_SAFE
    file = tmp_path / "report.json"
    file.write_text(json.dumps(changed(report.document, path, value)))
    with pytest.raises(InputError) as caught:
        load_report(file)
    assert str(caught.value).startswith(f"{file}: ") and why in str(caught.value)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"nothing\.json: No such file"):
        load_report(tmp_path / "nothing.json")
