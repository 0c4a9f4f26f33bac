from dataclasses import replace

import numpy as np
import pytest
from paired_scores import judge, make

from migrate.audit.bootstrap import Bootstrap, Floor
from migrate.audit.bounds import Bounds, Outcome
from migrate.audit.query_set import QuerySet
from migrate.audit.results import FULL, TRANSLATED, ArmResult
from migrate.audit.rules import Rules, Settings
from migrate.audit.verdict import Finding, Observations, Scale, Verdict, doubt, verdict_of
from migrate.vectors import Query

JUDGED = Scale.of(0.9, provisional=False)
HUNDRED = Observations(100)


@pytest.mark.parametrize(
    ("n", "margin", "outcome"),
    [
        (1, 0.95, Outcome.INCONCLUSIVE),
        (20, 0.95, Outcome.INCONCLUSIVE),
        (50, 0.95, Outcome.INCONCLUSIVE),
        (50, 0.5, Outcome.SAFE),
        (300, 0.95, Outcome.SAFE),
        (300, 0.999, Outcome.INCONCLUSIVE),
        (2000, 0.95, Outcome.SAFE),
    ],
)
def test_a_sample_without_harm_is_safe_only_if_it_is_large_enough(n, margin, outcome):
    scores = np.ones(n)
    verdict = judge(scores, scores, margin=margin, resamples=2000)
    assert verdict.outcome is outcome
    assert verdict.retention.lower < verdict.retention.estimate == verdict.retention.upper == 1


def test_scores_are_of_judgements_and_the_margin_is_95_percent_where_nothing_else_is_said():
    verdict = verdict_of(np.ones(100), np.ones(100))
    assert (verdict.outcome, verdict.scale.safe, verdict.scale.provisional) == (Outcome.SAFE, 0.95, False)
    assert (verdict.confidence, verdict.observations.documents, verdict.gain_over_stay) == (0.95, None, None)


def test_the_floor_of_a_pool_is_under_the_scores_in_it_alone():
    queries = [Query(f"q{number}", f"text {number}") for number in range(120)]
    settings = Settings(plan="x", margin=0.95, seed=4, stages=(), slices=(), pool_depth=None)
    arm, full = make(120, loss=0.01, noise=0.02)
    floor = Floor(full * 0.9, full * 0.8)
    query_set = QuerySet(queries, {query.id: {"d": 1} for query in queries}, "x")
    rules = Rules(query_set, settings, 1_000, floor=floor)
    pooled, plain = Bootstrap(seed=4, floor=floor), Bootstrap(seed=4)
    assert rules.verdict(arm, full).retention == pooled.retention(arm, full) != plain.retention(arm, full)
    assert rules.bootstrap().retention(arm, full) == plain.retention(arm, full)
    arms = {name: ArmResult(name, "", {"nDCG@10": scores}, 0.0) for name, scores in ((TRANSLATED, arm), (FULL, full))}
    assert rules.compare(arms[TRANSLATED], arms[FULL]).retention == pooled.retention(arm, full)
    assert rules.compare(arms[FULL], arms[TRANSLATED]).retention == plain.retention(full, arm)


@pytest.mark.slow
def test_rare_total_harm_is_seldom_called_safe():
    """The truth is exactly at the margin: 5 % of all queries lose everything. A plain bootstrap says SAFE far more."""
    rng = np.random.default_rng(7)
    full = np.ones(300)
    arms = (rng.random((200, 300)) >= 0.05).astype(float)
    outcomes = [judge(arm, full, resamples=1000, seed=number).outcome for number, arm in enumerate(arms)]
    assert outcomes.count(Outcome.SAFE) <= 16
    assert outcomes.count(Outcome.NOT_SAFE) <= 16
    assert outcomes.count(Outcome.INCONCLUSIVE) > 140


@pytest.mark.parametrize(
    ("loss", "n", "outcome"),
    [(0.0, 600, Outcome.SAFE), (0.3, 200, Outcome.NOT_SAFE), (0.05, 200, Outcome.INCONCLUSIVE)],
)
def test_the_outcome_follows_the_loss(loss, n, outcome):
    arm, full = make(n, loss=loss, noise=0.05)
    verdict = judge(arm, full, resamples=2000)
    assert verdict.outcome is outcome
    assert (verdict.observations.queries, verdict.scale.safe, verdict.scale.provisional) == (n, 0.95, False)
    assert (verdict.queries_needed is None) == (outcome is not Outcome.INCONCLUSIVE)


def test_an_arm_that_is_significantly_worse_than_staying_is_not_safe():
    full = np.full(400, 0.6)
    arm, stay = full.copy(), np.full(400, 0.7)
    assert judge(arm, full, resamples=1000).outcome is Outcome.SAFE
    verdict = judge(arm, full, stay, resamples=1000)
    assert verdict.outcome is Outcome.NOT_SAFE
    assert verdict.worse_than_stay
    assert verdict.gain_over_stay.estimate == pytest.approx(-0.1)
    assert "significantly worse than the source store" in verdict.sentence


def test_an_arm_that_is_significantly_better_than_staying_is_told():
    arm, full = make(300, loss=0, noise=0.02)
    assert judge(arm, full, 0.8 * full, resamples=500).better_than_stay
    assert not judge(arm, full, arm, resamples=500).better_than_stay
    assert not judge(arm, full, resamples=500).better_than_stay
    assert not judge(arm[:19], full[:19], np.zeros(19), resamples=500).better_than_stay


@pytest.mark.parametrize("won", [0.02, 0.98])
def test_an_arm_that_is_as_good_as_staying_is_seldom_called_better_or_worse(won):
    """Few queries win much and many lose little, or the other way round: a t test is wrong in up to half of these."""
    rng = np.random.default_rng(9)
    stay, few = np.full(50, 0.5), min(won, 1 - won)
    wins, loses = (0.4, -0.4 * few / (1 - few)) if won < 0.5 else (0.4 * few / (1 - few), -0.4)
    arms = stay + np.where(rng.random((200, 50)) < won, wins, loses)
    verdicts = [judge(arm, np.ones(50), stay, resamples=400, seed=i) for i, arm in enumerate(arms)]
    assert sum(verdict.worse_than_stay for verdict in verdicts) <= 16
    assert sum(verdict.better_than_stay for verdict in verdicts) <= 16


def test_an_arm_that_may_be_as_good_as_staying_is_judged_by_its_retention():
    arm, full = make(600, loss=0, noise=0.02)
    rng = np.random.default_rng(1)
    stay = np.clip(arm + 0.2 * rng.choice([-1, 1], size=600), 0, 1)
    stay += arm.mean() - stay.mean() + 0.003
    verdict = judge(arm, full, stay, resamples=2000)
    assert verdict.gain_over_stay.estimate == pytest.approx(-0.003)
    assert verdict.gain_over_stay.lower < -0.003 < 0 < verdict.gain_over_stay.upper
    assert not verdict.worse_than_stay
    assert verdict.outcome is Outcome.SAFE


@pytest.mark.parametrize(
    ("arm", "full", "estimate"), [([0, 0], [0, 0], 1.0), ([0.5, 0], [0, 0], np.inf), ([], [], 0.0)]
)
def test_where_the_full_re_embed_finds_nothing_nothing_is_settled(arm, full, estimate):
    verdict = judge(np.array(arm, dtype=float), np.array(full, dtype=float), resamples=200)
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert verdict.retention == Bounds(estimate, 0.0, np.inf)
    assert verdict.queries_needed is None
    assert "too few for a verdict" in verdict.sentence


def test_a_full_re_embed_that_answers_one_query_in_many_settles_nothing():
    full = np.zeros(50)
    full[3] = 1
    verdict = judge(full.copy(), full, resamples=500)
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert np.isfinite(verdict.retention.lower) and not np.isnan(verdict.retention.upper)


@pytest.mark.parametrize(
    ("outcome", "needed", "said"),
    [
        (Outcome.SAFE, None, "at least the margin of 90 %"),
        (Outcome.NOT_SAFE, None, "below the margin of 90 %"),
        (Outcome.INCONCLUSIVE, 1_100, "about 1,100 queries would settle 8 of 10 audits"),
        (Outcome.INCONCLUSIVE, 1_101, "too close for queries that people judge: it would take about 1,101"),
        (Outcome.INCONCLUSIVE, None, "too close for queries that people judge: it would take more than 100,000"),
    ],
)
def test_the_sentence_says_what_was_found(outcome, needed, said):
    verdict = Verdict(outcome, Bounds(0.912, 0.8, 1.25), JUDGED, HUNDRED, queries_needed=needed)
    assert said in verdict.sentence
    assert "retention 91.2 % (95 % bounds: 80.0-125.0 %)" in verdict.sentence


def test_unjudged_queries_may_be_many():
    judged = Verdict(Outcome.INCONCLUSIVE, Bounds(0.912, 0.8, 1.25), JUDGED, HUNDRED, queries_needed=12_345)
    unjudged = replace(judged, scale=replace(JUDGED, provisional=True))
    assert "too close for queries that people judge" in judged.sentence
    assert "about 12,345 queries would settle 8 of 10" in unjudged.sentence


def test_doubts_take_a_safe_away_and_the_queries_that_would_settle_what_is_open():
    safe = Verdict(Outcome.SAFE, Bounds(0.95, 0.9, 1.0), JUDGED, HUNDRED)
    none = replace(safe, outcome=Outcome.INCONCLUSIVE, queries_needed=900)
    few = replace(none, observations=Observations(5))
    for verdict in (safe, none):
        doubted = verdict.doubted([doubt("odd")])
        assert (doubted.outcome, doubted.queries_needed) == (Outcome.INCONCLUSIVE, None)
        assert "not to be trusted: odd" in doubted.sentence
        assert verdict.doubted([Finding("note", "odd"), Finding("caveat", "odd")]) == verdict
    assert few.doubted([doubt("odd")]) == few
    harmful = replace(safe, outcome=Outcome.NOT_SAFE)
    assert harmful.doubted([doubt("odd")]) == harmful


@pytest.mark.parametrize("n", [1, 2, 5, 19])
def test_a_handful_of_queries_is_inconclusive_whatever_it_shows(n):
    lost = judge(np.zeros(n), np.ones(n), np.ones(n), resamples=200)
    assert lost.outcome is Outcome.INCONCLUSIVE and not lost.worse_than_stay
    assert ("1 query is too few" if n == 1 else f"{n} queries are too few") in lost.sentence
    assert judge(np.zeros(20), np.ones(20), resamples=200).outcome is Outcome.NOT_SAFE


def test_an_arm_whose_gain_over_staying_may_be_nothing_is_not_worse():
    verdict = Verdict(Outcome.SAFE, Bounds(1.0, 0.96, 1.0), JUDGED, HUNDRED, Bounds(-0.1, -0.2, 0.0))
    assert not verdict.worse_than_stay
    assert replace(verdict, gain_over_stay=Bounds(-0.1, -0.2, -1e-9)).worse_than_stay


def test_one_arm_of_several_is_judged_with_more_confidence():
    arm, full = np.append(np.ones(149), 0), np.ones(150)
    alone, one_of_six = (judge(arm, full, 0.9 * full, margin=0.96, confidence=c) for c in (0.95, 1 - 0.05 / 6))
    assert (alone.outcome, one_of_six.outcome) == (Outcome.SAFE, Outcome.INCONCLUSIVE)
    assert "95 % bounds" in alone.sentence and "99.2 % bounds" in one_of_six.sentence
    assert one_of_six.gain_over_stay.lower < alone.gain_over_stay.lower
    eighty = judge(arm, full, margin=0.96, confidence=0.995).queries_needed
    assert eighty > one_of_six.queries_needed
