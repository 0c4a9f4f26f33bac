"""The decision: the cheapest option that is SAFE, or staying, or a full re-embed."""

from dataclasses import replace

import numpy as np
import pytest

from migrate.audit.options import options_of
from migrate.audit.pool import PoolSummary
from migrate.audit.report import AuditReport
from migrate.audit.results import FULL, STAY, TRANSLATED, ArmResult, Comparison
from migrate.audit.verdict import Bounds, Outcome, Verdict
from migrate.manifest import Manifest
from migrate.report.decision import decision, decision_section

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


def test_a_safe_store_is_the_cheapest_option():
    assert decision(report(SURE, SURE, outcome=Outcome.SAFE)) == (
        "the cheapest option that is SAFE: `translated` (retention 0.980, at least 0.960, $10.00); a full re-embed "
        "costs $100.00"
    )


def test_another_arm_is_named_with_its_proof():
    assert decision(report(two_stage=SURE, pool=POOL)) == (
        "the cheapest option that is SAFE: `two-stage 50` (retention 0.980, at least 0.960, $17.00, the proof "
        "included); a full re-embed costs $100.00"
    )


def test_without_a_safe_option_a_full_reembed_is_left():
    assert decision(report()) == "embed the whole store again, $100.00: no other option is SAFE"
    unsure = report(Bounds(0.95, 0.9, 1.0), outcome=Outcome.INCONCLUSIVE)
    assert decision(unsure) == "embed the whole store again, $100.00: no other option is shown to be SAFE"


def test_an_option_that_costs_as_much_as_a_full_reembed_is_none():
    dear = replace(POOL, usd=99.0, tokens=9_900_000)
    said = decision(report(two_stage=SURE, pool=dear))
    assert said.startswith("embed the whole store again: that costs no more than `two-stage 50`, which is SAFE too")
    assert next(option for option in options_of(report(pool=dear)) if option.name == TWO_STAGE).usd == 100.0


def test_an_old_model_that_answers_better_is_kept():
    assert decision(report(stay=Bounds(1.2, 1.1, 1.3))).startswith("stay: the old model answers better")


@pytest.mark.parametrize("made", [report(SURE, outcome=Outcome.INCONCLUSIVE, doubts=("odd",))])
def test_doubts_decide_nothing(made):
    assert decision(made) == ""


def test_unknown_prices_are_left_out():
    free = tuple(replace(one, usd=None) for one in report().arms)
    assert decision(report(SURE, outcome=Outcome.SAFE, arms=free)) == (
        "the cheapest option that is SAFE: `translated` (retention 0.980, at least 0.960, 1.00 Mtok); a full re-embed "
        "costs 10.00 Mtok"
    )
    unknown = tuple(replace(one, usd=None, tokens=None) for one in report().arms)
    assert decision_section(report(arms=unknown)) is None


def test_the_section_has_every_option_in_the_order_of_cost():
    section = decision_section(report(two_stage=SURE))
    assert section.heading == "Quality and cost"
    names = ["stay", "translated", "two-stage 50", "full re-embed"]
    places = [section.body.index(f"<td>{name}</td>") for name in names]
    assert places == sorted(places)
