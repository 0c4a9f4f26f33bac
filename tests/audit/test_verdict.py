import numpy as np
import pytest
from scipy.stats import bootstrap

from migrate.audit.verdict import (
    Bounds,
    Outcome,
    Verdict,
    decide,
    difference_bounds,
    queries_needed,
    retention_bounds,
)


def make(n, *, loss=0.03, noise=0.15, seed=0):
    """Scores of a full re-embed, between 0 and 1 with many zeros, and of an arm that loses `loss` of them."""
    rng = np.random.default_rng(seed)
    full = rng.choice([0, 0.3, 0.5, 0.63, 1], size=n)
    arm = np.where(full > 0, np.clip(full * (1 - loss) + noise * rng.normal(size=n), 0, 1), 0)
    return arm, full


def ratio(arm, full, axis=-1):
    return arm.mean(axis=axis) / full.mean(axis=axis)


def difference(arm, full, axis=-1):
    return arm.mean(axis=axis) - full.mean(axis=axis)


def judged_bounds(statistic, arm, full):
    """Both one-sided 95 % bounds, by scipy."""
    found = bootstrap(
        (arm, full),
        statistic,
        paired=True,
        confidence_level=0.9,
        method="percentile",
        n_resamples=20_000,
        rng=1,
        batch=500,
    )
    return found.confidence_interval.low, found.confidence_interval.high, found.standard_error


@pytest.mark.parametrize(("n", "seed"), [(30, 0), (150, 1), (400, 2)])
def test_bounds_are_those_of_scipys_paired_bootstrap(n, seed):
    arm, full = make(n, seed=seed)
    found = retention_bounds(arm, full, seed=5)
    _, upper, error = judged_bounds(ratio, arm, full)
    lower, _, wide_error = judged_bounds(ratio, np.append(arm, 0), np.append(full, 1))  # one worst-case query
    assert found.estimate == pytest.approx(arm.sum() / full.sum())
    assert found.upper == pytest.approx(upper, abs=0.06 * error)
    assert found.lower == pytest.approx(lower, abs=0.06 * wide_error)
    gain = difference_bounds(arm, full, seed=5)
    lower, upper, error = judged_bounds(difference, arm, full)
    assert gain.estimate == pytest.approx((arm - full).mean())
    assert (gain.lower, gain.upper) == pytest.approx((lower, upper), abs=0.06 * error)


def test_bounds_lie_around_the_estimate_and_depend_on_the_seed_alone():
    arm, full = make(100)
    first, again, other = (retention_bounds(arm.copy(), full.copy(), seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert first.lower < first.estimate < first.upper
    assert abs(first.lower - other.lower) < 0.01


def test_many_queries_are_resampled_in_pieces_with_the_same_meaning():
    arm, full = make(30_000, noise=0.3)
    found = difference_bounds(arm, full, resamples=400)
    error = np.std(arm - full) / np.sqrt(30_000)
    assert found.lower == pytest.approx(found.estimate - 1.645 * error, abs=0.35 * error)
    assert found.upper == pytest.approx(found.estimate + 1.645 * error, abs=0.35 * error)


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
    verdict = decide(scores, scores, margin=margin, resamples=2000)
    assert verdict.outcome is outcome
    assert verdict.retention.estimate == verdict.retention.upper == 1
    assert verdict.retention.lower < 1


def test_rare_total_harm_is_seldom_called_safe():
    """The truth is exactly at the margin: 5 % of all queries lose everything. A plain bootstrap says SAFE far more."""
    rng = np.random.default_rng(7)
    full = np.ones(300)
    arms = (rng.random((200, 300)) >= 0.05).astype(float)
    outcomes = [decide(arm, full, resamples=1000, seed=number).outcome for number, arm in enumerate(arms)]
    assert outcomes.count(Outcome.SAFE) <= 16
    assert outcomes.count(Outcome.NOT_SAFE) <= 30
    assert outcomes.count(Outcome.INCONCLUSIVE) > 140


@pytest.mark.parametrize(("n", "share"), [(60, 0.05), (120, 0.05)])
def test_few_queries_without_a_bad_one_do_not_hide_rare_harm(n, share):
    rng = np.random.default_rng(8)
    arms = (rng.random((500, n)) >= share).astype(float)
    safe = [decide(arm, np.ones(n), resamples=300, seed=i).outcome is Outcome.SAFE for i, arm in enumerate(arms)]
    assert sum(safe) <= 40


@pytest.mark.parametrize(
    ("loss", "n", "outcome"),
    [(0.0, 600, Outcome.SAFE), (0.3, 200, Outcome.NOT_SAFE), (0.05, 200, Outcome.INCONCLUSIVE)],
)
def test_the_outcome_follows_the_loss(loss, n, outcome):
    arm, full = make(n, loss=loss, noise=0.05)
    verdict = decide(arm, full, resamples=2000)
    assert verdict.outcome is outcome
    assert (verdict.n_queries, verdict.margin, verdict.provisional) == (n, 0.95, False)
    assert (verdict.queries_needed is None) == (outcome is not Outcome.INCONCLUSIVE)


def test_an_arm_that_is_significantly_worse_than_staying_is_not_safe():
    full = np.full(400, 0.6)
    arm, stay = full.copy(), np.full(400, 0.7)
    assert decide(arm, full, resamples=1000).outcome is Outcome.SAFE
    verdict = decide(arm, full, stay, resamples=1000)
    assert verdict.outcome is Outcome.NOT_SAFE
    assert verdict.worse_than_stay
    assert verdict.gain_over_stay.estimate == pytest.approx(-0.1)
    assert "significantly worse than the source store" in verdict.sentence


def test_an_arm_that_may_be_as_good_as_staying_is_judged_by_its_retention():
    arm, full = make(600, loss=0, noise=0.02)
    rng = np.random.default_rng(1)
    stay = np.clip(arm + 0.2 * rng.choice([-1, 1], size=600), 0, 1)
    stay += arm.mean() - stay.mean() + 0.003
    verdict = decide(arm, full, stay, resamples=2000)
    assert verdict.gain_over_stay.estimate == pytest.approx(-0.003)
    assert verdict.gain_over_stay.lower < -0.003 < 0 < verdict.gain_over_stay.upper
    assert not verdict.worse_than_stay
    assert verdict.outcome is Outcome.SAFE


def test_queries_are_paired():
    """The same scores in another order are a noisier comparison."""
    arm, full = make(300, loss=0, noise=0.02)
    shuffled = np.random.default_rng(0).permutation(arm)
    paired, unpaired = retention_bounds(arm, full), retention_bounds(shuffled, full)
    assert paired.estimate == pytest.approx(unpaired.estimate)
    assert unpaired.upper - unpaired.estimate > 4 * (paired.upper - paired.estimate)


@pytest.mark.parametrize(
    ("arm", "full", "estimate"), [([0, 0], [0, 0], 1.0), ([0.5, 0], [0, 0], np.inf), ([], [], 0.0)]
)
def test_where_the_full_re_embed_finds_nothing_nothing_is_settled(arm, full, estimate):
    verdict = decide(np.array(arm, dtype=float), np.array(full, dtype=float), resamples=200)
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert verdict.retention == Bounds(estimate, 0.0, np.inf)
    assert verdict.queries_needed is None
    assert "too few for a verdict" in verdict.sentence


def test_a_full_re_embed_that_answers_one_query_in_many_settles_nothing():
    full = np.zeros(50)
    full[3] = 1
    verdict = decide(full.copy(), full, resamples=500)
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert np.isfinite(verdict.retention.lower)
    assert not np.isnan(verdict.retention.upper)


def test_provisional_verdicts_say_so():
    assert decide(np.ones(9), np.ones(9), resamples=100, provisional=True).provisional


@pytest.mark.parametrize(
    ("outcome", "needed", "said"),
    [
        (Outcome.SAFE, None, "at least the margin of 0.9"),
        (Outcome.NOT_SAFE, None, "below the margin of 0.9"),
        (Outcome.INCONCLUSIVE, 12_345, "about 12,345 queries would settle it"),
        (Outcome.INCONCLUSIVE, None, "more than 100,000 queries would settle it"),
    ],
)
def test_the_sentence_says_what_was_found(outcome, needed, said):
    verdict = Verdict(outcome, Bounds(0.912, 0.8, 1.25), 0.9, 100, None, needed, False)
    assert said in verdict.sentence
    assert "retention 0.912, 95 % bounds 0.800 to 1.250" in verdict.sentence


def alternating(n, retained, spread):
    """Scores that retain `retained` exactly, half of the queries `spread` more and half of them less."""
    full = np.repeat([0.3, 0.5, 0.63, 1], n // 4)
    return full * (retained + spread * np.tile([-1, 1], n // 2)), full


@pytest.mark.parametrize("spread", [0.1, 0.3])
def test_the_nearer_the_margin_the_more_queries_are_needed(spread):
    above = [queries_needed(*alternating(40, retained, spread), 0.9) for retained in (0.99, 0.96, 0.94, 0.92, 0.91)]
    below = [queries_needed(*alternating(40, retained, spread), 0.9) for retained in (0.7, 0.84, 0.86, 0.88, 0.89)]
    for needed in (above, below):
        assert needed == sorted(needed)
        assert needed[-1] > 3 * needed[-3]
    assert queries_needed(*alternating(40, 0.9, spread), 0.9) is None


def test_the_more_queries_differ_the_more_are_needed():
    needed = [queries_needed(*alternating(40, 0.93, spread), 0.9) for spread in (0.01, 0.1, 0.2, 0.4)]
    assert needed == sorted(set(needed))


@pytest.mark.parametrize(("retained", "spread"), [(0.97, 0.05), (0.97, 0.15), (0.97, 0.3), (0.91, 0.3)])
def test_about_as_many_queries_as_estimated_settle_the_verdict(retained, spread):
    needed = queries_needed(*alternating(40, retained, spread), 0.94)
    assert 60 < needed < 5_000
    rng = np.random.default_rng(3)

    def settled(n):
        fulls = (rng.choice([0.3, 0.5, 0.63, 1], size=n) for _ in range(60))
        scores = ((full * (retained + spread * rng.choice([-1, 1], size=n)), full) for full in fulls)
        verdicts = [decide(*pair, margin=0.94, resamples=300, seed=i) for i, pair in enumerate(scores)]
        return sum(verdict.outcome is not Outcome.INCONCLUSIVE for verdict in verdicts) / 60

    assert settled(needed // 3) < 0.4
    assert settled(3 * needed) > 0.8


def test_an_inconclusive_audit_asks_for_more_queries_than_it_had():
    rng = np.random.default_rng(7)
    full = rng.choice([0, 0.3, 0.5, 0.63, 1], size=300)
    arm = np.clip(full * 0.975 + 0.1 * rng.normal(size=300), 0, 1)
    verdict = decide(arm, full, resamples=500, seed=7, margin=0.975)
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert verdict.queries_needed > 300


@pytest.mark.parametrize("n", [1, 2, 5, 19])
def test_a_handful_of_queries_is_inconclusive_whatever_it_shows(n):
    lost = decide(np.zeros(n), np.ones(n), np.ones(n), resamples=200)
    assert lost.outcome is Outcome.INCONCLUSIVE and not lost.worse_than_stay
    assert f"{n} queries are too few" in lost.sentence


def test_twenty_lost_queries_are_not_safe():
    assert decide(np.zeros(20), np.ones(20), resamples=200).outcome is Outcome.NOT_SAFE
