import numpy as np
import pytest
from paired_scores import make
from scipy.stats import binomtest, bootstrap

from migrate.audit.bootstrap import Bootstrap
from migrate.audit.bounds import weighted_sums


def ratio(arm, full, axis=-1):
    return arm.mean(axis=axis) / full.mean(axis=axis)


def difference(arm, full, axis=-1):
    return arm.mean(axis=axis) - full.mean(axis=axis)


def dirichlet_bounds(arm, full, statistic, worst, best):
    """Both bounds from weights that are drawn as such, of the sample with one more query, which is imagined."""
    weights = np.random.default_rng(11).dirichlet(np.ones(len(arm) + 1), size=20_000)

    def resampled(extra):
        return statistic(*(weights @ np.append(scores, one) for scores, one in zip((arm, full), extra, strict=True)))

    return np.quantile(resampled(worst), 0.05), np.quantile(resampled(best), 0.95)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "seed"), [(30, 0), (150, 1), (400, 2)])
def test_bounds_are_quantiles_over_all_weightings_of_the_queries_and_an_imagined_one(n, seed):
    arm, full = make(n, seed=seed)
    found, gain = Bootstrap(seed=5).retention(arm, full), Bootstrap(seed=5).difference(arm, full)
    assert found.estimate == pytest.approx(arm.sum() / full.sum())
    assert gain.estimate == pytest.approx((arm - full).mean())
    for bounds, statistic in ((found, np.divide), (gain, np.subtract)):
        expected = dirichlet_bounds(arm, full, statistic, (0, 1), (1, 0))
        assert (bounds.lower, bounds.upper) == pytest.approx(expected, abs=0.04 * (bounds.upper - bounds.lower))


@pytest.mark.parametrize(("n", "right"), [(20, 20), (60, 57), (300, 285), (300, 40), (20, 0)])
def test_bounds_of_right_and_wrong_are_those_of_clopper_and_pearson(n, right):
    found = Bootstrap(seed=3, resamples=20_000).retention((np.arange(n) < right).astype(float), np.ones(n))
    expected = binomtest(right, n).proportion_ci(confidence_level=0.9)
    tolerance = 0.02 * (expected.high - expected.low)
    assert (found.lower, found.upper) == pytest.approx((expected.low, expected.high), abs=tolerance)


def test_nothing_is_won_over_a_full_re_embed_that_is_always_right():
    assert Bootstrap().retention(np.ones(30), np.ones(30)).upper == 1
    assert Bootstrap().retention(np.full(30, 0.9), np.ones(30)).upper < 1
    assert Bootstrap().retention(np.ones(30), np.append(np.ones(29), 0.99)).upper > 1


@pytest.mark.slow
@pytest.mark.parametrize("statistic", [ratio, difference])
def test_among_many_queries_bounds_are_those_of_scipys_paired_bootstrap(statistic):
    arm, full = make(4_000, seed=3)
    found = getattr(Bootstrap(resamples=4_000), "retention" if statistic is ratio else "difference")(arm, full)
    theirs = bootstrap(
        (arm, full), statistic, paired=True, confidence_level=0.9, method="BCa", n_resamples=4_000, rng=1, batch=100
    )
    error, interval = theirs.standard_error, theirs.confidence_interval
    # The imagined query is one of 4,001
    assert found.lower == pytest.approx(interval.low, abs=0.2 * error + 1 / 2_000)
    assert found.upper == pytest.approx(interval.high, abs=0.2 * error + 1 / 2_000)
    assert found.lower < interval.low < interval.high < found.upper


def test_bounds_lie_around_the_estimate_and_depend_on_the_seed_alone():
    arm, full = make(100)
    first, again, other = (Bootstrap(seed=seed).retention(arm.copy(), full.copy()) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert first.lower < first.estimate < first.upper
    assert abs(first.lower - other.lower) < 0.01


def test_weights_are_the_same_in_pieces_and_at_once(monkeypatch):
    scores = np.random.default_rng(0).random((50, 3))
    whole, unseen = weighted_sums(scores, seed=4, resamples=100)
    monkeypatch.setattr("migrate.audit.bounds._BLOCK", 51 * 7)
    pieces, unseen_pieces = weighted_sums(scores, seed=4, resamples=100)
    assert pieces == pytest.approx(whole)
    assert unseen_pieces.tolist() == unseen.tolist()


def test_bounds_of_a_family_are_bounds_of_each_arm_with_the_risk_shared_out():
    full = make(200)[1]
    arms = {f"arm {seed}": make(200, seed=0, noise=0.1 * seed)[0] for seed in range(1, 6)}
    found = Bootstrap(seed=2).family(arms, full)
    assert list(found) == list(arms)
    for name, arm in arms.items():
        alone = Bootstrap(seed=2).retention(arm, full)
        assert found[name].estimate == alone.estimate
        assert found[name].lower < alone.lower and alone.upper < found[name].upper
        shared = Bootstrap(seed=2, confidence=0.99).retention(arm, full)
        assert (found[name].lower, found[name].upper) == pytest.approx((shared.lower, shared.upper))
    one = Bootstrap(seed=2).family({"only": arm}, full)["only"]
    assert (one.estimate, one.lower, one.upper) == pytest.approx((alone.estimate, alone.lower, alone.upper))
    assert Bootstrap().family({}, full) == {}


def test_the_best_of_many_arms_at_the_margin_is_seldom_above_it():
    rng = np.random.default_rng(4)
    full = np.ones(300)
    above = {"family": 0, "alone": 0}
    for audit in range(60):
        arms = {str(i): (rng.random(300) >= 0.05).astype(float) for i in range(6)}
        family = Bootstrap(seed=audit, resamples=400).family(arms, full)
        alone = (Bootstrap(seed=audit, resamples=400).retention(arm, full) for arm in arms.values())
        above["family"] += any(bounds.lower >= 0.95 for bounds in family.values())
        above["alone"] += any(bounds.lower >= 0.95 for bounds in alone)
    assert above["family"] <= 8
    assert above["alone"] >= 8
