"""The report of an audit in every form: what its tables, sentences, summary and document hold."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from topics import page_of

from migrate.audit.bounds import Bounds, Outcome
from migrate.audit.diagnostics import Diagnostics
from migrate.audit.document import report_of
from migrate.audit.recommendation import recommend
from migrate.audit.result import AuditedData, AuditResult, Examination
from migrate.audit.results import BM25, FULL, MEAN, STAY, TRANSLATED, ArmResult
from migrate.audit.verdict import Finding, Observations, Scale, Verdict
from migrate.audit_report.records import Comparison, Slice
from migrate.display import AUDIT_SCHEMA
from migrate.facts import as_plain
from migrate.manifest import Manifest, ModelIdentity
from migrate.report.audit import agreement_rows, legend, quality_rows, sentences
from migrate.report.audit_sections import audit_sections
from migrate.report.fit import candidates_rows
from migrate.report.suite import audit_suite
from migrate.report.summary import audit_summary
from migrate.report.terminal import report_text, table
from migrate.stitch.scores import HeldOutScores
from migrate.stitch.select import ScoredStitch, Selection

WIDTH = 100
MEASURES = ("nDCG@10", "recall@100", "MRR@10", "overlap@1", "overlap@10", "overlap@100")
RETENTION = Bounds(0.9231, 0.8761, 0.9712)
GAIN = Bounds(-0.0123, -0.0456, 0.0210)
AS_JSON = {"estimate": 0.9231, "lower": 0.8761, "upper": 0.9712}


def make_report(n=300, *, judged=True, gain=GAIN, retention=RETENTION, margin=0.95, **verdict):
    rng = np.random.default_rng(0)
    measures = MEASURES if judged else ("agreement@10", *MEASURES[3:])
    names = (FULL, TRANSLATED, STAY, BM25, MEAN)
    arms = [ArmResult(name, "", {m: rng.random(n) for m in measures}, 1.5 + i) for i, name in enumerate(names)]
    third = n // 3
    facts = {"outcome": Outcome.INCONCLUSIVE, "queries_needed": 1234, **verdict}
    return AuditResult(
        verdict=Verdict(
            retention=retention,
            scale=Scale(margin, margin, margin, provisional=not judged),
            observations=Observations(n),
            gain_over_stay=gain if judged else None,
            **facts,
        ),
        arms=tuple(arms),
        comparisons={name: Comparison(retention, third, n - 2 * third, third) for name in names[1:]},
        data=AuditedData(
            name="scifact",
            n_documents=5183,
            measure="nDCG@10" if judged else "agreement@10",
            query_ids=tuple(f"q-{row}" for row in range(n)),
        ),
        examination=Examination(findings=(Finding("note", "40 of 150 vectors are true ones"),)),
        manifest=Manifest(kind="report", model=ModelIdentity("x", 3, True), seed=7, details={"resamples": 10}),
    )


def text_of(report):
    """What a terminal shows, with the further lines of a sentence, which begin with two blanks, put back to it."""
    return report_text(audit_sections(report_of(report))).replace("\n  ", " ")


def strict(document):
    """The document after a trip through JSON as the standard has it: no NaN, no Infinity."""
    return json.loads(json.dumps(document, allow_nan=False))


def cells(text, start):
    """The cells of the one line that begins with `start`."""
    (line,) = [line for line in text.splitlines() if line.startswith(start)]
    return line.removeprefix(start).split()


def test_the_document_holds_the_numbers_of_the_report():
    report = make_report(n=30)
    document = strict(report_of(report).document)
    assert document["schema_version"] == AUDIT_SCHEMA == 5
    assert document["kind"] == "audit"
    assert document["verdict"] == {
        "outcome": "INCONCLUSIVE",
        "sentence": report.verdict.sentence,
        "provisional": False,
        "basis": None,
        "safe_from": 0.95,
        "not_safe_below": 0.95,
        "measure": "nDCG@10",
        "measured": "retention",
        "margin": 0.95,
        "retention": AS_JSON,
        "gain_over_stay": {"estimate": -0.0123, "lower": -0.0456, "upper": 0.0210},
        "worse_than_stay": False,
        "better_than_stay": False,
        "queries": 30,
        "groups": 30,
        "counted": "30 queries",
        "queries_needed": 1234,
        "caveats": [],
        "doubts": [],
    }
    assert document["dataset"] == {"name": "scifact", "queries": 30, "documents": 5183}
    assert document["query_ids"] == [f"q-{row}" for row in range(30)]
    assert document["notes"] == ["40 of 150 vectors are true ones"]
    assert document["manifest"]["seed"] == 7
    assert document["manifest"]["model"]["spec"] == "x"
    for found, arm in zip(document["arms"], report.arms, strict=True):
        assert (found["name"], found["meaning"], found["seconds"]) == (arm.name, arm.meaning, arm.seconds)
        assert found["per_query"] == {measure: scores.tolist() for measure, scores in arm.scores.items()}
        assert found["means"] == pytest.approx({m: sum(scores) / 30 for m, scores in arm.scores.items()})


def test_every_arm_but_the_full_re_embed_is_compared_with_it():
    full, *others = report_of(make_report(n=31)).document["arms"]
    assert full["against"] is None
    for arm in others:
        assert arm["against"] == {"standard": FULL, "retention": AS_JSON, "wins": 10, "ties": 11, "losses": 10}


def test_a_bound_without_limit_is_null():
    assert as_plain(Bounds(1.0, 0.0, np.inf)) == {"estimate": 1.0, "lower": 0.0, "upper": None}
    assert as_plain(Bounds(np.inf, -np.inf, np.nan)) == {"estimate": None, "lower": None, "upper": None}
    endless = Bounds(np.inf, -np.inf, np.inf)
    found = strict(report_of(make_report(retention=endless, gain=endless, queries_needed=None)).document)
    assert found["verdict"]["retention"] == found["arms"][1]["against"]["retention"]
    assert found["verdict"]["gain_over_stay"]["upper"] is None


def test_without_judgements_everything_says_what_it_rests_on():
    report = make_report(judged=False)
    document = strict(report_of(report).document)
    assert document["verdict"]["provisional"] is True
    assert document["verdict"]["measure"] == "agreement@10"
    assert document["verdict"]["basis"].startswith("nothing is judged, so this rests on agreement@10")
    assert document["verdict"]["gain_over_stay"] is None
    assert set(document["arms"][0]["means"]) == {"agreement@10", *MEASURES[3:]}
    assert "nDCG" not in table(quality_rows(report_of(report).audit)).splitlines()[0]
    assert "overlap@10" in table(agreement_rows(report_of(report).audit)).splitlines()[0]
    lines = text_of(report).splitlines()
    assert lines[-1].startswith("INCONCLUSIVE (provisional: ")
    assert lines[-1].endswith(report.verdict.sentence)
    assert not any("against staying" in line for line in lines)


def test_agreement_is_never_called_retention():
    part = Slice("topic", "a", 20, 1.0, 0.9, RETENTION)
    report = make_report(judged=False)
    scale = Scale(0.95, safe=0.962, harmful=0.875, provisional=True)
    report = replace(report, verdict=replace(report.verdict, scale=scale))
    diagnostics = Diagnostics(slices=(part, replace(part, value="b")))
    report = replace(report, examination=replace(report.examination, diagnostics=diagnostics))
    document = report_of(report).document
    text = json.dumps({name: document[name] for name in ("verdict", "arms", "options", "slices", "family")})
    assert '"retention"' not in text and text.count('"agreement@10": {"estimate"') >= 1 + 4 + 2 + 2
    verdict = document["verdict"]
    assert (verdict["safe_from"], verdict["not_safe_below"], verdict["margin"]) == (0.962, 0.875, 0.95)
    properties = audit_suite(report_of(report)).properties
    assert properties["agreement@10"] == "0.923100" and properties["agreement@10 lower bound"] == "0.876100"
    assert (properties["SAFE from"], properties["margin"]) == ("0.962", "0.95")
    assert "retention" not in properties
    assert "retention" not in text_of(report).partition("bounds are one-sided")[0], "the tables"
    judged = audit_suite(report_of(make_report())).properties
    assert judged["retention"] == "0.923100" and judged["margin"] == "0.95"


@pytest.mark.slow
@pytest.mark.parametrize("judged", [True, False])
@pytest.mark.parametrize("n", [1, 9_999])
def test_the_audit_table_fits_the_terminal(n, judged):
    report = make_report(n, judged=judged)
    for lines in (
        table(quality_rows(report_of(report).audit)).splitlines(),
        table(agreement_rows(report_of(report).audit)).splitlines(),
    ):
        assert len(lines) in (5, 6)
        assert max(len(line) for line in lines) <= WIDTH
    assert max(len(line) for line in report_text(audit_sections(report_of(report))).splitlines()) <= WIDTH


def test_the_audit_table_shows_each_arm_with_its_means_and_its_comparison():
    report = make_report(n=30)
    quality, likeness = table(quality_rows(report_of(report).audit)), table(agreement_rows(report_of(report).audit))
    assert quality.splitlines()[0].split()[:4] == ["arm", "nDCG@10", "R@100", "MRR@10"]
    assert likeness.splitlines()[0].split()[-3:] == ["overlap@1", "overlap@10", "overlap@100"]
    for arm in report.arms:
        means = [f"{np.mean(arm.scores[measure]):.3f}" for measure in MEASURES]
        against = [] if arm.name == FULL else ["92.3", "%", "87.6-97.1", "%", "10/10/10"]
        assert cells(quality, arm.name) == [*means[:3], *against, f"{arm.seconds:.1f}"]
        assert cells(likeness, arm.name) == means[3:]


def test_the_legend_explains_the_columns_and_arms_that_are_there():
    report = make_report()
    explained = [part.partition(":")[0] for part in legend(report_of(report).audit).split("; ")]
    assert explained[:3] == ["retention", "s", "overlap@k"]
    assert not any(word in legend(report_of(report).audit) for word in ("Mtok", "hybrid", "RBO"))
    arms = [replace(arm, tokens=1e6, scores={**arm.scores, "RBO": arm.scores["overlap@1"]}) for arm in report.arms]
    fused = [replace(arms[1], name=name) for name in ("hybrid", "hybrid, full")]
    explained = legend(report_of(replace(report, arms=(*arms, *fused))).audit)
    words = ("Mtok: million tokens", "RBO: rank-biased overlap", "hybrid: translated and BM25", "hybrid, full: full")
    assert all(word in explained for word in words)
    assert explained in text_of(replace(report, arms=(*arms, *fused))).splitlines()
    assert "retention" not in legend(report_of(make_report(judged=False)).audit)


def test_the_text_ends_with_the_verdict():
    report = make_report(1200)
    lines = text_of(report).splitlines()
    assert lines[0] == "scifact: 1,200 queries, 5,183 documents"
    assert "note: 40 of 150 vectors are true ones" in lines
    assert any("-0.012 nDCG@10 (95 % bounds: -0.046 to +0.021)" in line for line in lines)
    assert lines[-1] == f"INCONCLUSIVE: {report.verdict.sentence}"


def make_candidate(stitch, *, is_control=False, mse=0.0123456):
    return ScoredStitch(stitch, HeldOutScores(0.9876, mse, -12.3456, 0.4321), 123.456, is_control)


def test_the_candidates_table_marks_the_chosen_stitch_and_the_controls():
    controls = [make_candidate(name, is_control=True, mse=123456.7) for name in ("mean", "lowrank:1024", "ridge")]
    selection = Selection("ridge", (make_candidate("procrustes"), make_candidate("ridge"), *controls))
    lines = table(candidates_rows(selection)).splitlines()
    assert [line[:2] for line in lines] == ["  ", "  ", "* ", "  ", "  ", "  "]
    assert lines[2].split() == ["*", "ridge", "0.988", "0.012346", "-12.346", "0.432", "123.46"]
    assert lines[3].startswith("  mean (control)")
    assert max(map(len, lines)) <= WIDTH


def with_slices(report, slices):
    diagnostics = replace(report.examination.diagnostics, slices=tuple(slices))
    return replace(report, examination=replace(report.examination, diagnostics=diagnostics))


def with_further_arms(report, bounds):
    further = [replace(report.arm(BM25), name=name, tokens=1e6) for name in bounds]
    whole, new, *others = report.arms
    arms = (replace(whole, tokens=2e6), replace(new, tokens=1e5), *others, *further)
    return replace(report, family=bounds, arms=arms)


def test_a_way_out_is_recommended_where_enough_queries_bear_it_out():
    bounds = {"two-stage 50": Bounds(0.97, 0.94, 1.0), "two-stage 200": Bounds(0.99, 0.96, 1.0)}
    report = with_further_arms(make_report(), bounds)
    assert [name for name in bounds if report.outcome_of(name) is Outcome.SAFE] == ["two-stage 200"]
    assert f"recommendation: {recommend(report).headline}" in text_of(report).splitlines()
    assert recommend(replace(make_report(5), family=bounds)).plan == FULL, "five queries bear out nothing"


FURTHER = {f"two-stage {depth}": Bounds(0.97, 0.94 + depth / 10_000, 1.0) for depth in (20, 50, 100, 200, 300, 400)}


@pytest.mark.parametrize("width", [60, 100, 160])
def test_a_summary_has_the_verdict_first_and_fits(width):
    caveats = (Finding("caveat", "141 of 283 relevant documents are not in the stores"),) * 5
    report = replace(with_further_arms(make_report(), FURTHER), examination=Examination(caveats))
    lines = audit_summary(report_of(report), width=width, page=Path("out/report.html")).splitlines()
    assert lines[0].startswith("SAFE in two stages, the first")
    assert any(line.startswith("translated alone: INCONCLUSIVE: retention"[:width]) for line in lines)
    assert len(lines) <= 25 and max(map(len, lines)) <= width
    assert all(name in "\n".join(lines) for name in ("translated", "stay with the old", "full re-embed"))
    assert any("out/report.html" in line for line in lines)
    assert "\x1b" not in "".join(lines)


def test_a_summary_is_drawn_against_the_margin():
    report = with_further_arms(make_report(), {"two-stage 200": Bounds(0.99, 0.96, 1.0)})
    lines = audit_summary(report_of(report)).splitlines()
    head = next(line for line in lines if "95 %" in line and "retention" in line and "bounds" not in line)
    rows = {line.split("  ")[0]: line for line in lines if "●" in line}
    at = head.index("95 %")
    assert rows["translated"].index("●") < at < rows["two-stage 200"].index("●")
    assert "yes" in rows["two-stage 200"] and "yes" not in rows["translated"]
    assert "0.90 M tokens" in rows["two-stage 200"] and "2.00 M tokens" in rows["full re-embed"]
    timed = audit_summary(report_of(replace(report, documents_per_s=10.0)))
    assert "M tokens" not in timed and "9 min" in next(line for line in timed.splitlines() if line.startswith("full"))


def test_an_arm_that_could_serve_has_the_same_bounds_in_each_table():
    report = replace(make_report(), family={BM25: Bounds(0.97, 0.94, 1.0)})
    (row,) = [row for row in quality_rows(report_of(report).audit) if row[0] == BM25]
    assert "97.0 %" in row and "94.0-100.0 %" in row
    assert "those of BM25 hold for all of these together" in " ".join(text_of(report).split())


def test_a_summary_stays_readable_when_narrow():
    report = make_report()
    narrow = audit_summary(report_of(report), width=40).splitlines()
    assert max(map(len, narrow)) <= 40 and "●" not in "".join(narrow)
    odd = replace(report, examination=Examination((Finding("caveat", "a name with \x1b[31m in it"),)))
    assert "\x1b[31m" not in audit_summary(report_of(odd))


@pytest.mark.parametrize("outcome", Outcome)
def test_what_belongs_beside_the_verdict_stands_there_in_every_form(outcome):
    caveat = "141 of 283 relevant documents are not in the stores"
    report = replace(make_report(outcome=outcome), examination=Examination((Finding("caveat", caveat),)))
    *_, before, verdict = sentences(report_of(report).audit)
    assert (before, verdict) == (f"caveat: {caveat}", f"{outcome}: {report.verdict.sentence}")
    assert report_of(report).document["verdict"]["caveats"] == [caveat]
    lead = page_of(report).split('<p class="lead">')[1].split("</p>")[0]
    assert caveat in lead
    suite = audit_suite(report_of(report))
    assert suite.cases[0].message.endswith(f"; {caveat}")
    assert caveat in suite.markdown.split("<details>")[0]


def test_columns_and_kinds_that_tell_nothing_are_left_out():
    report = make_report()
    free = replace(report, arms=tuple(replace(arm, tokens=0, usd=None, seconds=1.5) for arm in report.arms))
    head = quality_rows(report_of(free).audit)[0]
    assert "s" in head and not {"Mtok", "usd"} & set(head)
    paid = [replace(arm, tokens=2_000_000, usd=0.04) for arm in report.arms[:1]]
    assert {"Mtok", "usd"} <= set(quality_rows(report_of(replace(free, arms=(*paid, *free.arms[1:]))).audit)[0])
    bounds = Bounds(0.9, 0.8, 1.0)
    slices = [Slice(by, value, 20, 0.5, 0.4, bounds) for by, value in (("topic", "a"), ("topic", "b"), ("shelf", "x"))]
    wide = with_slices(report, slices)
    assert "topic: a" in text_of(wide) and "shelf" not in text_of(wide)
    assert "By topic" in page_of(wide) and "By shelf" not in page_of(wide)
    alone = with_slices(report, slices[2:])
    assert "Kinds of queries" not in page_of(alone) and "kinds of queries" not in text_of(alone)
