"""The recommendation: the SAFE option that leaves least to pay, or staying, with the command for it."""

import re
from dataclasses import replace

import numpy as np
import pytest

from migrate.audit.bounds import Bounds, Outcome
from migrate.audit.document import report_of, sentence_of
from migrate.audit.locations import Locations
from migrate.audit.pool import PoolSummary
from migrate.audit.recommendation import options_of, recommend
from migrate.audit.result import AuditedData, AuditResult, Examination
from migrate.audit.results import FULL, STAY, TRANSLATED, ArmResult, Reranking, find_plan
from migrate.audit.verdict import Observations, Scale, Verdict, doubt
from migrate.audit_report.records import Comparison
from migrate.errors import UsageError
from migrate.manifest import Manifest
from migrate.report.decision import decision_chart, decision_rows

TWO_STAGE = "two-stage 50"
SURE, POOR = Bounds(0.98, 0.96, 1.0), Bounds(0.8, 0.75, 0.85)
POOL = PoolSummary(10, 20, 1_000, 5, 200_000, 2.0, 10_000_000, 100.0, ())


def arm(name, usd):
    return ArmResult(name, "", {"nDCG@10": np.full(300, 0.5)}, 0.1, None if usd is None else usd * 1e5, usd)


def figures(text):
    """The shares and amounts that a sentence tells, in order."""
    return re.findall(r"\$[\d.]+|[\d.]+ (?:%|times)", text)


def left_of(made):
    """What each option still costs."""
    return {option.name: option.usd_left for option in options_of(made)}


def without_prices(made, **changes):
    return replace(made, arms=tuple(replace(one, usd=None, **changes) for one in made.arms))


def report(translated=POOR, two_stage=POOR, stay=POOR, outcome=Outcome.NOT_SAFE, **changes):
    costs = {FULL: 100.0, TRANSLATED: 10.0, TWO_STAGE: 15.0, STAY: 0.0}
    made = AuditResult(
        Verdict(outcome, translated, Scale.of(0.95, provisional=False), Observations(300, documents=1_000)),
        tuple(arm(name, usd) for name, usd in costs.items()),
        {name: Comparison(bounds, 1, 1, 1) for name, bounds in ((TRANSLATED, translated), (STAY, stay))},
        AuditedData("test", 1_000, "nDCG@10", tuple(map(str, range(300)))),
        Manifest("report"),
        family={TWO_STAGE: two_stage},
    )
    return replace(made, **changes)


def doubted(text):
    return Examination((doubt(text),))


PLACES = Locations(
    source="old",
    translated="new",
    full="new-full",
    target=("--target", "tfidf:32"),
    audit_again=("audit", "new", "--report=report.json"),
    can_switch=True,
)


def test_a_safe_store_has_been_paid_for():
    made = report(SURE, SURE, outcome=Outcome.SAFE, pool=POOL, is_kept=True, locations=PLACES)
    found = recommend(made)
    assert found.headline.startswith("SAFE: the translated store") and "nothing more to pay" in found.headline
    assert figures(found.headline) == ["98.0 %", "96.0 %", "80.0 %"]
    assert (found.plan, found.remaining) == ("translated", "nothing")
    assert found.command == PLACES.audit_again and "--report" in found.remark, "the proof is not kept yet"
    kept = recommend(replace(made, locations=replace(PLACES, report="report.json")))
    assert (kept.command, kept.remark) == (("switch", "old", "new", "--audit", "report.json"), "")
    other = recommend(replace(made, locations=replace(PLACES, can_switch=False)))
    assert other.command is None and "open new" in other.remark and "tfidf:32" in other.remark


def test_what_is_paid_is_not_counted_again():
    made = report(two_stage=SURE, pool=replace(POOL, true_outside=30), is_kept=True)
    assert left_of(made) == pytest.approx({STAY: 0, TRANSLATED: 0, TWO_STAGE: 5.0, FULL: 100 - 2 - 3})
    in_all = {option.name: option.usd for option in options_of(made)}
    assert in_all == {STAY: 0.0, TRANSLATED: 12.0, TWO_STAGE: 17.0, FULL: 100.0}
    lost = left_of(replace(made, is_kept=False))
    assert lost == {STAY: 0, TRANSLATED: 0, TWO_STAGE: 5.0, FULL: 100.0}, "without a cache all is embedded again"


def test_what_a_pool_has_embedded_for_two_stages_is_paid():
    costs = Reranking(50, 0.0, 0.0, 5.0, 2_000.0, 0.02, 0.2, 1_000.0, 0.01)
    arms = [replace(one, reranking=costs) if one.name == TWO_STAGE else one for one in report().arms]
    made = report(two_stage=SURE, pool=POOL, is_kept=True, arms=tuple(arms))
    found = {option.name: (option.usd_left, option.usd) for option in options_of(made)}
    assert found[TWO_STAGE] == pytest.approx((300 * 0.01, 10 + 300 * 0.01 + 2))
    assert left_of(replace(made, is_kept=False))[TWO_STAGE] == 5.0, "without a cache it is embedded again"


def test_two_stages_are_served_while_a_worker_completes_the_store():
    made = report(two_stage=SURE, pool=POOL, is_kept=True, locations=PLACES)
    found = recommend(made)
    assert found.headline.startswith("SAFE in two stages, the first 50 ") and found.headline.endswith(", NOT SAFE")
    assert figures(found.headline) == ["98.0 %", "96.0 %", "$5.00", "80.0 %", "80.0 %"]
    assert (found.plan, found.remaining, found.command) == (TWO_STAGE, "$5.00", ("live", "run", "new"))
    assert found.serving[0] == "from migrate import LiveLimits, LiveSearcher"
    assert "LiveSearcher('new', limits=LiveLimits(depth=50, max_documents=50," in found.serving[1]
    assert "--plan two-stage-50 --report FILE" in found.remark
    locations = replace(PLACES, target=("--target", "openai:own", "--base-url=http://localhost:9/v1"))
    paid = recommend(replace(made, locations=locations))
    assert paid.command[:3] == ("live", "run", "new") and paid.command[-1] == "--yes"
    first, second, _ = paid.serving
    assert first.endswith(", load_embedder")
    assert "LiveSearcher('new', load_embedder('openai:own', base_url='http://localhost:9/v1'), " in second


def test_both_stores_serve_where_nothing_else_is_safe_for_nothing_and_the_old_model_answers():
    made = report(locations=replace(PLACES, old_model="tfidf:8", model=("--target", "tfidf:32")))
    made = replace(made, arms=(*made.arms, arm("together", 10.0)), family={TWO_STAGE: SURE, "together": SURE})
    found = recommend(made)
    assert found.plan == "together" and found.remaining == "nothing"
    assert found.headline.startswith("SAFE as long as tfidf:8 answers too")
    assert found.command == ("live", "run", "new", "--target", "tfidf:32")
    assert found.serving[1].endswith("('new', 'tfidf:32', old='old', old_model='tfidf:8')")
    server = "http://localhost:9/v1"
    by_server = replace(made.locations, target=("--target", "openai:own", f"--base-url={server}"))
    for old_model, asked in (
        ("tfidf:8", "'tfidf:8'"),
        ("openai:old", f"load_embedder('openai:old', base_url={server!r})"),
    ):
        lines = recommend(replace(made, locations=replace(by_server, old_model=old_model))).serving
        assert lines[1].endswith(f", old='old', old_model={asked})"), "the server has the old model too"
    gone = recommend(replace(made, locations=PLACES))
    assert gone.plan == TWO_STAGE, "the old model is gone"
    asked = recommend(replace(made, locations=PLACES, plan="together"))
    assert (asked.plan, asked.command, asked.serving) == ("together", None, ())
    safe = recommend(replace(made, verdict=replace(made.verdict, outcome=Outcome.SAFE, retention=SURE)))
    assert safe.plan == TRANSLATED, "one store is less than two"


@pytest.mark.parametrize(("paid", "plan"), [(0.98, FULL), (0.9, TWO_STAGE)])
def test_what_little_is_left_is_embedded_rather_than_served_in_two_stages(paid, plan):
    pool = replace(POOL, tokens=round(paid * 1e7), usd=None, full_usd=None)
    found = recommend(without_prices(report(two_stage=SURE, pool=pool, is_kept=True, locations=PLACES)))
    assert found.plan == plan
    assert found.command[0] == ("reembed" if plan == FULL else "live")


def test_the_cost_beside_a_full_reembed_is_that_of_the_command():
    locations = replace(PLACES, can_serve=False)
    found = recommend(report(two_stage=SURE, locations=locations))
    assert found.headline.startswith("SAFE in two stages, the first 50 ")
    assert figures(found.headline)[:3] == ["98.0 %", "96.0 %", "$100.00"]
    assert (found.plan, found.command[0], found.left_usd) == (TWO_STAGE, "reembed", 100.0)
    both = replace(arm("together 50", 10.0), reranking=report(two_stage=SURE).arm(TWO_STAGE).reranking)
    made = report(locations=replace(locations, old_model="tfidf:8"))
    found = recommend(replace(made, arms=(*made.arms, both), family={"together 50": SURE}, plan="together 50"))
    assert "a full re-embed ($100.00) is as good; " in found.headline
    assert (found.plan, found.command[0], found.serving) == ("together 50", "reembed", ())


def test_a_plan_that_was_asked_for_is_judged_and_switched_to():
    made = report(two_stage=SURE, pool=POOL, is_kept=True, locations=replace(PLACES, report="report.json"))
    judged = replace(made, plan="two-stage 50")
    assert (made.outcome, judged.outcome) == (Outcome.NOT_SAFE, Outcome.SAFE)
    assert sentence_of(judged).startswith("SAFE: two-stage 50, retention 98.0 %")
    assert "translated alone: NOT SAFE" in sentence_of(judged)
    assert recommend(judged).command == ("switch", "old", "new", "--audit", "report.json")
    assert "LiveSearcher('old'" in recommend(judged).serving[1], "where it answers after the switch"
    with pytest.raises(UsageError, match=r"'two-stage-20' .* translated, two-stage-50"):
        find_plan("two-stage-20", (TRANSLATED, *made.family), {})


@pytest.mark.parametrize(
    ("bounds", "outcome"),
    [(Bounds(0.8, 0.7, 0.94), Outcome.NOT_SAFE), (Bounds(0.94, 0.9, 0.96), Outcome.INCONCLUSIVE)],
)
def test_another_plan_has_an_outcome_of_its_own(bounds, outcome):
    assert report(two_stage=bounds).outcome_of("two-stage 50") is outcome


def test_a_reference_that_is_there_is_to_be_used():
    made = report(SURE, SURE, outcome=Outcome.SAFE, reference_at="full", locations=PLACES)
    assert {option.remaining for option in options_of(made)} == {0.0}
    found = recommend(made)
    assert found.headline.startswith("SAFE: the full re-embed ") and found.headline.endswith(" 98.0 %, SAFE")
    assert "nothing more to pay" in found.headline and figures(found.headline) == ["80.0 %", "98.0 %"]
    assert found.command == ("switch", "old", "full")


@pytest.mark.parametrize("changes", [{}, {"pool": replace(POOL, documents=1_000)}])
def test_a_full_reembed_that_is_in_the_cache_costs_nothing_more(changes):
    found = recommend(report(SURE, outcome=Outcome.SAFE, is_kept=True, locations=PLACES, **changes))
    assert found.headline.startswith("re-embed: ") and "nothing more to pay" in found.headline
    assert found.command == ("reembed", "old", "--target", "tfidf:32", "-o", "new-full")


def test_without_a_safe_option_a_full_reembed_is_left_which_costs_time_or_money():
    made = report(pool=POOL, is_kept=True, documents_per_s=5.0)
    assert recommend(without_prices(made)).remaining == "3 min", "980 of 1,000 documents are left"
    found = recommend(report(pool=POOL, is_kept=True))
    assert found.headline.startswith("re-embed, $98.00 more: ")
    assert found.command is None, "nobody knows where the stores are"


def test_two_stages_that_cost_as_much_as_a_full_reembed_serve_before_it_is_paid():
    dear = replace(POOL, usd=97.0, tokens=9_700_000)
    made = report(two_stage=SURE, pool=dear, is_kept=True)
    assert recommend(made).headline.startswith("SAFE in two stages, the first 50 ")
    cheap = report(two_stage=SURE, pool=replace(dear, usd=99.0, tokens=9_900_000), is_kept=True)
    assert recommend(cheap).headline.startswith("re-embed, $1.00 more: two-stage 50 is SAFE too")
    assert next(option for option in options_of(made) if option.name == TWO_STAGE).usd == 100.0


def test_an_old_model_that_answers_as_well_is_kept():
    found = recommend(report(SURE, stay=Bounds(1.2, 1.1, 1.3), outcome=Outcome.SAFE, reference_at="full"))
    assert found.headline.startswith("stay: ") and figures(found.headline)[:2] == ["120.0 %", "110.0 %"]
    assert "staying" not in found.headline
    assert (found.plan, found.command) == (STAY, None)
    many = recommend(report(stay=Bounds(34.2, 20.1, 60.0), outcome=Outcome.NOT_SAFE))
    assert many.headline.startswith("stay: ") and figures(many.headline)[:2] == ["34.2 times", "20.1 times"]


def test_staying_is_named_where_it_keeps_the_margin():
    found = recommend(report(SURE, stay=Bounds(0.99, 0.96, 1.1), outcome=Outcome.SAFE, pool=POOL, is_kept=True))
    assert figures(found.headline)[-2:] == ["99.0 %", "96.0 %"] and found.headline.endswith("costs nothing")
    assert found.plan == TRANSLATED
    made = report(stay=Bounds(1.015, 0.956, 1.1))
    assert next(option for option in options_of(made) if option.name == STAY).is_safe
    headline = recommend(made).headline
    assert "no other way to the new model is shown to be SAFE; staying keeps 101.5 % (at least 95.6 %)" in headline


def test_with_a_doubt_nothing_is_recommended_but_staying():
    found = recommend(report(SURE, outcome=Outcome.INCONCLUSIVE, examination=doubted("odd")))
    assert (found.plan, found.command) == (None, None)
    assert found.headline == "nothing is shown to be SAFE; clear up first: odd"
    stay = recommend(report(POOR, stay=Bounds(1.2, 1.1, 1.3), examination=doubted("the full re-embed looks wrong")))
    assert (stay.plan, stay.command) == (STAY, None)
    assert stay.remark.endswith("not to be trusted: the full re-embed looks wrong")
    assert recommend(report(POOR, stay=Bounds(0.99, 0.96, 1.1), examination=doubted("it looks wrong"))).plan is None


AUDIT = ("audit", "new")
POOLED = (*AUDIT, "--reference=pool")
OF_TARGET = "--target=tfidf:32"
BEIR = "--judged=judged"
BUILT = (*AUDIT, "--reference=build", BEIR)


@pytest.mark.parametrize(
    ("about", "again", "command", "without_texts"),
    [
        ("queries", (*POOLED, "--judged=judged:dev"), (*POOLED, "--queries=synthetic"), (*POOLED, "--judged", "DIR")),
        ("queries", (*POOLED, "--queries=synthetic"), (*POOLED, "--judged", "DIR"), (*POOLED, "--judged", "DIR")),
        # A file of vectors cannot embed queries that are made
        ("queries", (*AUDIT, "--target=file:x.npz", BEIR), (*AUDIT, "--target=file:x.npz", "--judged", "DIR"), None),
        ("reference", (*POOLED, OF_TARGET, BEIR), (*AUDIT, OF_TARGET, BEIR, "--reference=build"), ("inspect", "old")),
        # One that was built is not to be built again
        ("reference", BUILT, (*BUILT, "--target", "SPEC"), ("inspect", "old")),
        ("target", (*POOLED, OF_TARGET, BEIR), (*POOLED, BEIR, "--target", "SPEC"), None),
        ("model", (*POOLED, BEIR), ("assess", "old", "--target", "SPEC"), None),
        ("store", (*POOLED, BEIR), ("translate", "old", "STITCH", "-o", "translated"), None),
        # That one held vectors of the new model: it is not the one to translate
        ("source", (*POOLED, BEIR), ("translate", "OLD", "STITCH", "-o", "translated"), None),
        ("groups", (*POOLED, BEIR, "--group-field=user"), (*POOLED, BEIR), None),
    ],
)
def test_a_doubt_leads_on_to_what_clears_it_up(about, again, command, without_texts, tmp_path, monkeypatch):
    """Without texts, `None` for the same: no reference is built, and no query is made from them."""
    monkeypatch.chdir(tmp_path)
    locations = replace(PLACES, audit_again=again)
    examination = Examination((doubt("odd", about), doubt("odder")))
    made = report(SURE, outcome=Outcome.INCONCLUSIVE, examination=examination, locations=locations)
    assert recommend(made).command == command
    bare = recommend(replace(made, locations=replace(locations, has_texts=False))).command
    assert bare == (without_texts or command)


def test_too_small_a_store_is_embedded_again_and_one_of_true_vectors_alone_is_a_full_reembed():
    made = report(SURE, outcome=Outcome.INCONCLUSIVE)
    found = recommend(replace(made, verdict=replace(made.verdict, observations=Observations(300, documents=60))))
    assert found.plan == FULL and "too small to audit" in found.headline
    made = report(POOR, locations=PLACES)
    arms = tuple(replace(one, tokens=1e7, usd=100.0) if one.name == TRANSLATED else one for one in made.arms)
    found = recommend(replace(made, arms=arms))
    assert found.headline.startswith("the store is a full re-embed itself")
    assert found.command == ("switch", "old", "new")


def test_unknown_prices_are_left_out():
    assert recommend(without_prices(report())).remaining == "10.0 M tokens"
    unknown = without_prices(report(), tokens=None)
    assert recommend(unknown).remaining == ""
    assert decision_chart(report_of(unknown).audit) is None


def test_the_table_has_every_option_in_the_order_of_cost():
    head, *rows = decision_rows(report_of(report(two_stage=SURE)).audit)
    assert head == ["option", "retention", "bounds", "total embedding cost", "still to pay", "SAFE"]
    assert [row[0] for row in rows] == ["stay", "translated", "two-stage 50", "full re-embed"]
    assert rows[-1][3:] == ["$100.00", "$100.00", "yes"]


def test_the_chart_has_every_arm_that_is_held_against_the_full_reembed():
    """With what it costs; controls, and what is held against another standard, have no place there."""
    made = report(two_stage=SURE)
    poor, fused = Comparison(POOR, 1, 1, 1), Comparison(SURE, 1, 1, 1, "hybrid, full")
    further = {"BM25": poor, "mean": poor, "hybrid": fused}
    arms = (*made.arms, *(arm(name, 0.0) for name in further))
    made = replace(made, arms=arms, comparisons={**made.comparisons, **further})
    chart = decision_chart(report_of(made).audit)
    labels = {node.text for node in chart.drawing.iter("text") if node.get("class") is None}
    assert labels == {"stay", "translated", "two-stage 50", "full re-embed", "BM25"}
    assert "US dollars" in chart.x_label
    assert ("SAFE needs at least 95 %", "level") in chart.legend
