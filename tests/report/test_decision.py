"""The decision: the SAFE option that leaves least to pay, or staying; the first next step says the same."""

from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest

from migrate.audit.options import options_of
from migrate.audit.pool import PoolSummary
from migrate.audit.report import AuditReport
from migrate.audit.results import FULL, STAY, TRANSLATED, ArmResult, Comparison
from migrate.audit.verdict import Bounds, Outcome, Verdict
from migrate.manifest import Manifest
from migrate.report.decision import decision_chart, decision_rows

TWO_STAGE = "two-stage 50"
SURE, POOR = Bounds(0.98, 0.96, 1.0), Bounds(0.8, 0.75, 0.85)
POOL = PoolSummary(10, 20, 1_000, 5, 200_000, 2.0, 10_000_000, 100.0, ())


def arm(name, usd):
    return ArmResult(name, "", {"nDCG@10": np.full(300, 0.5)}, 0.1, None if usd is None else usd * 1e5, usd)


def report(translated=POOR, two_stage=POOR, stay=POOR, outcome=Outcome.NOT_SAFE, **changes):
    costs = {FULL: 100.0, TRANSLATED: 10.0, TWO_STAGE: 15.0, STAY: 0.0}
    made = AuditReport(
        Verdict(outcome, translated, 0.95, 300, None, None, False, n_documents=1_000),
        tuple(arm(name, usd) for name, usd in costs.items()),
        {name: Comparison(bounds, 1, 1, 1) for name, bounds in ((TRANSLATED, translated), (STAY, stay))},
        "nDCG@10",
        tuple(map(str, range(300))),
        1_000,
        "test",
        (),
        Manifest("report"),
        family={TWO_STAGE: two_stage},
    )
    return replace(made, **changes)


def test_a_safe_store_has_been_paid_for():
    made = report(SURE, SURE, outcome=Outcome.SAFE, pool=POOL, is_kept=True)
    assert decision(made) == (
        "the cheapest option that is SAFE: `translated` (retention 0.980, at least 0.960; nothing more to pay, $12.00 "
        "in all); a full re-embed would cost $98.00 more"
    )
    assert list(advice(made)) == [
        "replace the old store by the translated one, and embed queries with the target model from then on"
    ]


def test_what_is_paid_is_not_counted_again():
    made = report(two_stage=SURE, pool=replace(POOL, true_outside=30), is_kept=True)
    left = {option.name: option.usd_left for option in options_of(made)}
    assert left == pytest.approx({STAY: 0, TRANSLATED: 0, TWO_STAGE: 5.0, FULL: 100 - 2 - 3})
    assert {option.name: option.usd for option in options_of(made)} == {
        STAY: 0.0,
        TRANSLATED: 12.0,
        TWO_STAGE: 17.0,
        FULL: 100.0,
    }
    lost = {option.name: option.usd_left for option in options_of(replace(made, is_kept=False))}
    assert lost == {STAY: 0, TRANSLATED: 0, TWO_STAGE: 5.0, FULL: 90.0}, "without a cache the sample alone is kept"


def test_another_arm_is_named_with_what_it_still_costs():
    made = report(two_stage=SURE, pool=POOL, is_kept=True)
    assert decision(made) == (
        "the cheapest option that is SAFE: `two-stage 50` (retention 0.980, at least 0.960; $5.00 more, $17.00 in "
        "all); a full re-embed would cost $98.00 more"
    )
    assert next(iter(advice(made))).startswith("serve by `two-stage 50` (retention 0.980, at least 0.960 with 95 %")


def test_first_tokens_are_paid_for_where_a_cache_keeps_them():
    made = report(pool=POOL, is_kept=True)
    made = replace(made, arms=(*made.arms, arm("prefix:24", 6.0)), family={"prefix:24": SURE})
    assert decision(made) == (
        "the cheapest option that is SAFE: `prefix:24` (retention 0.980, at least 0.960; nothing more to pay, $8.00 in "
        "all); a full re-embed would cost $98.00 more"
    )
    assert next(iter(advice(made))).endswith("; `embed` with `--prefix 24` makes that store")
    lost = {option.name: option.usd_left for option in options_of(replace(made, is_kept=False))}
    assert lost["prefix:24"] == 6.0


def test_a_reference_that_is_there_is_to_be_used():
    made = report(SURE, SURE, outcome=Outcome.SAFE, reference_at="full")
    assert {option.left for option in options_of(made)} == {0.0}
    assert decision(made) == (
        "use the reference itself: the full re-embed is there, and nothing more is to be paid; SAFE too: `translated`, "
        "`two-stage 50`"
    )
    (step,) = advice(made)
    assert step.startswith("replace the old store by the full re-embed that it was compared with")


@pytest.mark.parametrize("changes", [{}, {"pool": replace(POOL, documents=1_000)}])
def test_a_full_reembed_that_is_in_the_cache_costs_nothing_more(changes):
    made = report(SURE, outcome=Outcome.SAFE, is_kept=True, **changes)
    assert decision(made).startswith("make it a full re-embed: every text is embedded already, and in the cache")
    (step,) = advice(made)
    assert "`backfill STORE --from-cache`" in step


def test_without_a_safe_option_a_full_reembed_is_left():
    made = report(pool=POOL, is_kept=True)
    assert decision(made) == "embed the whole store again, $98.00 more, $100.00 in all: no other option is SAFE"
    step, *others = advice(made)
    assert step == "embed the whole store again" and all(other.startswith("or ") for other in others)
    unsure = report(Bounds(0.95, 0.9, 1.0), outcome=Outcome.INCONCLUSIVE)
    assert decision(unsure).endswith(": no other option is shown to be SAFE")


def test_an_option_that_costs_as_much_as_a_full_reembed_is_none():
    dear = replace(POOL, usd=97.0, tokens=9_700_000)
    made = report(two_stage=SURE, pool=dear, is_kept=True)
    assert decision(made) == (
        "embed the whole store again, $3.00 more, $100.00 in all: `two-stage 50`, which is SAFE too, would cost no less"
    )
    assert next(option for option in options_of(made) if option.name == TWO_STAGE).usd == 100.0


def test_an_old_model_that_answers_as_well_is_kept():
    made = report(SURE, stay=Bounds(1.2, 1.1, 1.3), outcome=Outcome.SAFE, reference_at="full")
    assert decision(made).startswith("stay: the old model answers as well")
    assert list(advice(made)) == ["stay with the source store"]


def test_staying_is_named_where_it_keeps_the_margin():
    made = report(SURE, stay=Bounds(0.99, 0.96, 1.1), outcome=Outcome.SAFE, pool=POOL, is_kept=True)
    assert decision(made).endswith(
        "; staying keeps the margin too (retention 0.990, at least 0.960), and costs nothing"
    )


@pytest.mark.parametrize("made", [report(SURE, outcome=Outcome.INCONCLUSIVE, doubts=("odd",))])
def test_doubts_decide_nothing(made):
    assert decision(made) == "" and list(advice(made)) == []


def test_unknown_prices_are_left_out():
    free = tuple(replace(one, usd=None) for one in report().arms)
    assert decision(report(SURE, outcome=Outcome.SAFE, arms=free)) == (
        "the cheapest option that is SAFE: `translated` (retention 0.980, at least 0.960; nothing more to pay, 1.00 "
        "Mtok in all); a full re-embed would cost 9.00 Mtok more"
    )
    unknown = tuple(replace(one, usd=None, tokens=None) for one in report().arms)
    assert decision_chart(report(arms=unknown)) is None


def test_the_table_has_every_option_in_the_order_of_cost():
    head, *rows = decision_rows(report(two_stage=SURE))
    assert head == ["option", "retention", "bounds", "usd in all", "usd still to pay", "SAFE"]
    assert [row[0] for row in rows] == ["stay", "translated", "two-stage 50", "full re-embed"]
    assert rows[-1][3:] == ["100.0000", "90.0000", "yes"]


def test_the_chart_has_every_arm_that_is_held_against_the_full_reembed():
    """With what it costs; controls, and what is held against another standard, have no place there."""
    made = report(two_stage=SURE)
    further = {
        "BM25": Comparison(POOR, 1, 1, 1),
        "mean": Comparison(POOR, 1, 1, 1),
        "hybrid": Comparison(SURE, 1, 1, 1, "hybrid, full"),
    }
    made = replace(
        made,
        arms=(*made.arms, *(arm(name, 0.0) for name in further)),
        comparisons={**made.comparisons, **further},
    )
    chart = decision_chart(made)
    labels = {node.text for node in ElementTree.fromstring(chart.drawing).iter("text") if node.get("class") is None}
    assert labels == {"stay", "translated", "two-stage 50", "full re-embed", "BM25"}
    assert chart.x_label == "cost in all, what is paid already included, US dollars"
    assert ("SAFE from 0.95", "level") in chart.legend
