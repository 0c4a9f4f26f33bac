"""Reports of audits that are read back: each part of one that does not go with the others is refused."""

import json
from dataclasses import replace
from itertools import product
from math import inf, nan

import pytest
from safe_reports import BOUNDS, safe_report
from topics import OF_TARGET, QUESTIONS, UNJUDGED, audit, make_store, noisy, pool

from migrate.audit.document import report_of
from migrate.audit_report import read_audit
from migrate.errors import InputError
from migrate.reading import MalformedError


def bounds(**other):
    return {"retention": {**BOUNDS, **other}}


PLAN = {"name": "two-stage 20", "outcome": "SAFE"}
CONTRADICTIONS = [
    ({"verdict": bounds(lower=0.94)}, "a lower bound of 0.94, where SAFE needs 0.95"),
    ({"verdict": bounds(lower=nan)}, "between the bounds nan and 1.01"),
    ({"verdict": bounds(estimate=nan)}, "nan between the bounds 0.96 and 1.01"),
    ({"verdict": bounds(upper=nan)}, "between the bounds 0.96 and nan"),
    ({"verdict": bounds(lower=inf)}, "between the bounds inf and 1.01"),
    ({"verdict": bounds(estimate=1.2)}, "1.2 between the bounds 0.96 and 1.01"),
    ({"verdict": bounds(estimate=0.9)}, "0.9 between the bounds 0.96 and 1.01"),
    ({"verdict": bounds(lower=-1.0)}, "between the bounds -1.0 and 1.01"),
    ({"verdict": {"margin": 1.5}}, "a margin of 1.5"),
    ({"verdict": {"margin": nan}}, "a margin of nan"),
    ({"verdict": {"margin": 0}}, "a margin of 0"),
    ({"verdict": {"margin": 0.99}}, "SAFE from 0.95 and NOT SAFE below 0.95 by a margin of 0.99"),
    ({"verdict": {"safe_from": nan}}, "SAFE from nan"),
    ({"verdict": {"not_safe_below": 0.97}}, "SAFE from 0.95 and NOT SAFE below 0.97"),
    ({"verdict": {"provisional": True}}, "it rests on retention"),
    ({"verdict": {"measured": "agreement@10", "agreement@10": BOUNDS}}, "it rests on agreement@10"),
    ({"verdict": {"groups": 19}}, "19 independent queries, where a verdict needs 20"),
    ({"verdict": {"queries": 30}}, "38 groups of 30 queries"),
    ({"verdict": {"gain_over_stay": {"estimate": -0.2, "lower": -0.3, "upper": -0.1}}}, "worse than the old store"),
    ({"verdict": {"gain_over_stay": {"estimate": 0.2, "lower": 0.1, "upper": nan}}}, "worse than the old store"),
    ({"verdict": {"outcome": "NOT SAFE"}}, "an upper bound of 1.01, where NOT SAFE is below 0.95"),
    ({"dataset": {"documents": 99}}, "99 documents, where SAFE needs 100"),
    ({"reference": {"doubts": ["the grades look unrelated to the rankings"]}}, "it has doubts"),
    ({"plan": {"name": "translated", "outcome": "NOT SAFE"}}, "the verdict is SAFE"),
    ({"plan": PLAN, "family": {"two-stage 20": {**BOUNDS, "lower": 0.9}}}, "a lower bound of 0.9, where SAFE needs"),
]
MALFORMED = [
    ({"kind": "fit"}, "'kind' must be one of audit"),
    ({"verdict": {"outcome": "safe"}}, "'verdict.outcome' must be one of SAFE, NOT SAFE, INCONCLUSIVE"),
    ({"verdict": {"measured": "agreement@10"}}, "'agreement@10' is missing"),
    ({"verdict": {"retention": {"estimate": 0.99, "lower": 0.96}}}, "'retention.upper' is missing"),
    ({"verdict": {"retention": {**BOUNDS, "lower": None}}}, "'retention.lower' must be a number"),
    ({"verdict": {"margin": None}}, "'verdict.margin' must be a number"),
    ({"plan": PLAN, "family": {}}, "'two-stage 20' is missing"),
    ({"plan": {"name": "translated"}}, "'plan.outcome' is missing"),
]


def written(path, **more):
    path.write_text(json.dumps(safe_report({}, **more)))
    return path


@pytest.mark.parametrize(("more", "why"), CONTRADICTIONS)
def test_a_report_that_its_own_numbers_do_not_bear_is_refused(more, why, tmp_path):
    said = more.get("plan", more.get("verdict", {})).get("outcome", "SAFE")
    with pytest.raises(InputError) as caught:
        read_audit(written(tmp_path / "r.json", **more))
    assert f"says {said}, which its own numbers do not bear (" in str(caught.value) and why in str(caught.value)


@pytest.mark.parametrize(("more", "why"), MALFORMED)
def test_a_report_without_a_part_that_is_looked_at_is_refused(more, why, tmp_path):
    with pytest.raises(MalformedError) as caught:
        read_audit(written(tmp_path / "r.json", **more))
    assert why in str(caught.value)


@pytest.mark.parametrize("version", [4, 6])
def test_a_report_of_another_version_is_refused_whatever_it_holds(version, tmp_path):
    path = tmp_path / "r.json"
    path.write_text(json.dumps({"kind": "audit", "schema_version": version}))
    with pytest.raises(InputError, match=f"has schema version {version}, and this version of lead-migrate reads 5"):
        read_audit(path)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"plan": PLAN},
        {"verdict": {"outcome": "INCONCLUSIVE"}},
        {"verdict": {"outcome": "INCONCLUSIVE", "retention": {"estimate": None, "lower": 0.0, "upper": None}}},
        {"verdict": {"outcome": "NOT SAFE", **bounds(estimate=0.5, lower=0.4, upper=0.6)}},
    ],
)
def test_a_report_that_goes_together_is_read(more, tmp_path):
    assert read_audit(written(tmp_path / "r.json", **more)) == safe_report({}, **more)


SETTINGS = [(0.0, 0.5), (0.3, 0.5), (0.3, 0.95), (3.0, 0.95)]
"""The noise of a translation, and the margin."""

QUICK = {
    (SETTINGS[0], True, "store"),
    (SETTINGS[1], False, "pool"),
    (SETTINGS[2], True, "pool"),
    (SETTINGS[3], False, "store"),
}
"""Each setting once, and each reference both with and without judgements."""


@pytest.mark.parametrize(
    ("setting", "is_judged", "reference"),
    [
        pytest.param(*case, marks=[] if case in QUICK else pytest.mark.slow)
        for case in product(SETTINGS, [True, False], ["store", "pool"])
    ],
)
def test_what_an_audit_writes_is_read(setting, is_judged, reference, tmp_path):
    noise, margin = setting
    questions = QUESTIONS if is_judged else UNJUDGED
    translated = make_store(tmp_path / "translated", vectors=noisy(noise), manifest=OF_TARGET)
    full = make_store(tmp_path / "full") if reference == "store" else pool()
    report = audit(translated, full, questions, margin=margin, two_stage=[20])
    for one in (report, replace(report, plan="two-stage 20")):
        assert (
            read_audit("the report", json.loads(json.dumps(report_of(one).document)))["plan"]["outcome"] == one.outcome
        )
