"""An arm is one function and one line in a list: the audit and every report take it from there."""

import json
from pathlib import Path

import pytest
from topics import QUESTIONS, Topics, audit, make_store, noisy, page_of, shown

from migrate.audit import arms as arms_module
from migrate.audit.arms import ARMS, Arm, Skipped
from migrate.audit.bounds import Outcome
from migrate.audit.document import report_of
from migrate.audit.recommendation import recommend
from migrate.audit.results import FULL, TRANSLATED
from migrate.errors import UsageError
from migrate.report.audit_sections import audit_sections
from migrate.report.terminal import report_text
from migrate.steps.base import RunContext

MEANING = "the first ten of the full re-embed, worst first"


def documented():
    """The arm that docs/developers/adding.md shows: the first ten of the full re-embed, worst first."""
    page = (Path(__file__).parents[2] / "docs" / "developers" / "adding.md").read_text()
    module = {}
    exec(page.split("```python\n")[1].split("```")[0], module)
    return module["reverse"]


reverse = documented()


def telepathy(_experiment, _runs):
    yield Skipped("telepathy", "needs a gift")


def oracle(_experiment, runs):
    """An alternative of somebody's own, which answers as the full re-embed does and embeds nothing."""
    yield Arm(
        "oracle",
        "a full re-embed for nothing",
        lambda: runs.by_store[FULL],
        is_alternative=True,
    )


def control(_experiment, runs):
    """An arm to be compared with, which could not serve."""
    yield Arm("control", "the same again", lambda: runs.by_store[TRANSLATED])


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    folder = tmp_path_factory.mktemp("arms")
    return make_store(folder / "translated", vectors=noisy(0.5)), make_store(folder / "reference")


def test_a_new_arm_is_in_every_form_of_the_report(stores, monkeypatch):
    monkeypatch.setattr(arms_module, "ARMS", [*ARMS, reverse])
    report = audit(*stores, price=2.0)
    assert [arm.name for arm in report.arms][-1] == "reverse"
    full, turned = (report.arm(name) for name in (FULL, "reverse"))
    assert 0 < turned.mean("nDCG@10") < full.mean("nDCG@10")
    assert report.comparisons["reverse"].losses > report.comparisons["reverse"].wins
    assert (turned.tokens, turned.usd) == (full.tokens / 2, full.usd / 2)
    lines = report_text(audit_sections(report_of(report))).splitlines()
    (line,) = [line for line in lines if line.startswith("reverse ") and "-" in line and "%" in line]
    assert f"{turned.mean('nDCG@10'):.3f}" in line
    (entry,) = [arm for arm in json.loads(json.dumps(report_of(report).document))["arms"] if arm["name"] == "reverse"]
    assert entry["meaning"] == MEANING and len(entry["per_query"]["nDCG@10"]) == len(QUESTIONS.queries)
    assert "reverse" in page_of(report) and MEANING in page_of(report)


def test_an_arm_says_what_it_needs(stores, monkeypatch):
    monkeypatch.setattr(arms_module, "ARMS", [*ARMS, telepathy])
    report = audit(*stores)
    assert "telepathy" not in {arm.name for arm in report.arms}
    assert report_of(report).document["missing"]["telepathy"] == "needs a gift"
    assert "telepathy needs a gift" in shown(report)
    assert "<b>telepathy</b> needs a gift" in page_of(report)


def test_an_alternative_of_ones_own_is_recommended_without_a_command_that_makes_another_store(stores, monkeypatch):
    monkeypatch.setattr(arms_module, "ARMS", [*ARMS, oracle])
    found = recommend(audit(*stores, plan="oracle", margin=0.85))
    assert found.headline.startswith("SAFE: the oracle keeps 100.0 %")
    assert (found.plan, found.command) == ("oracle", None)
    assert "oracle" in found.remark


def test_the_audit_knows_which_plans_there_are(stores, monkeypatch):
    monkeypatch.setattr(arms_module, "ARMS", [*ARMS, oracle, telepathy, reverse])
    report = audit(*stores, plan="oracle", margin=0.85)
    assert (report.plan, report.outcome, report.verdict.outcome) == ("oracle", Outcome.SAFE, Outcome.INCONCLUSIVE)
    for plan in ("reverse", "telepathy"):  # no alternative, or no arm
        with pytest.raises(UsageError, match=r"'(reverse|telepathy)'.* translated, oracle$"):
            audit(*stores, plan=plan)
    with pytest.raises(UsageError, match=r"'telepathy'.*\(telepathy needs a gift\)"):
        audit(*stores, plan="telepathy")
    for plan, said in (
        ("orcale", "did you mean oracle"),
        (f"two-stage-{'9' * 5000}", "name one such as"),
        ("", "name one such as"),
    ):
        with pytest.raises(UsageError, match=f"there is no plan '.*'; {said}"):
            audit(*stores, plan=plan)


@pytest.mark.parametrize("reference", ["pool", "build"])
@pytest.mark.parametrize(
    ("plan", "event"),
    [
        ("orcale", r"there is no plan 'orcale'; did you mean oracle\?"),
        ("control", "'control' is not an arm of this audit; name one of translated, oracle"),
    ],
)
def test_what_is_no_plan_among_arms_of_ones_own_is_refused_before_anything_is_embedded(
    stores, monkeypatch, reference, plan, event
):
    monkeypatch.setattr(arms_module, "ARMS", [*ARMS, oracle, control])
    model = Topics()
    with pytest.raises(UsageError, match=event):
        audit(stores[0], {"reference": reference}, embedder=model, plan=plan)
    assert not model.asked


def test_each_store_is_searched_once_and_words_are_ranked_once(stores):
    stages = []
    audit(*stores, context=RunContext(progress=lambda *stage: stages.append(stage)))
    assert ("search reference", 150, 150) in stages
    assert all(total is None or 0 <= done <= total for _, done, total in stages)
    starts = [stage for stage, done, _ in stages if done == 0 and ("search" in stage or "BM25" in stage)]
    assert sorted(starts) == ["rank with BM25", "search reference", "search translated"]


def test_what_is_skipped_has_a_reason_in_the_order_of_the_arms(stores):
    report = audit(*stores)
    assert list(report.skipped_arms) == ["stay", "bridge", "two-stage", "together"]
    assert [arm.name for arm in report.arms] == [FULL, "translated", "hybrid", "hybrid, full", "BM25", "mean", "random"]
