"""The statistics of verdicts, judged by those of scipy and statsmodels."""

import numpy as np
import pytest
from paired_scores import alternating, make
from scipy.stats import binom, binomtest, ecdf, expon, exponnorm, norm, ttest_1samp

from migrate.audit.bootstrap import Bootstrap
from migrate.audit.bounds import Grouping, Outcome
from migrate.audit.findings import sampled
from migrate.audit.outside import ErrorTail
from migrate.audit.verdict import verdict_of
from migrate.selection.model_match import ASKED_AGAIN, SPOT_CHECKS

statsmodels = pytest.importorskip("statsmodels.api", reason="the extra `test` has it")

N = 4_000


def deficits(arm, full, retention):
    """Where retention is this much, the mean of these is 0 (Fieller 1954)."""
    return arm - retention * full


def chance_of_less(arm, full, retention):
    """How likely so much is where it is no more, by a t test of all queries and of one that the arm has lost."""
    return ttest_1samp([*deficits(arm, full, retention), -retention], 0, alternative="greater").pvalue


def test_a_t_test_of_the_deficit_rejects_what_lies_beyond_a_bound():
    arm, full = make(N, seed=21)
    found = Bootstrap(seed=3).retention(arm, full)
    above = ttest_1samp([*deficits(arm, full, found.upper), 1], 0, alternative="less").pvalue
    assert (chance_of_less(arm, full, found.lower), above) == pytest.approx((0.05, 0.05), abs=0.005)


def clustered(values, groups):
    """The mean of values over its standard error, which allows for groups."""
    fitted = statsmodels.OLS(values, np.ones(len(values))).fit(cov_type="cluster", cov_kwds={"groups": groups})
    return fitted.tvalues[0]


@pytest.mark.slow
def test_bounds_of_groups_are_those_of_a_regression_with_clustered_errors():
    rng = np.random.default_rng(4)
    groups = rng.integers(N // 5, size=N)
    full = rng.choice([0.3, 0.5, 0.63, 1], size=N)
    arm = full * rng.uniform(0.4, 1, size=N // 5)[groups]  # a group loses together
    found = Bootstrap(grouping=Grouping(groups)).retention(arm, full)
    each = Bootstrap().retention(arm, full)
    sizes = np.bincount(groups)
    size = round((sizes**3).sum() / (sizes**2).sum())  # of the imagined group, which is lost as a whole, or won once
    lost, won = np.full(size, -found.lower), np.append(np.full(size - 1, 1 - found.upper), 1)
    with_another = np.append(groups, np.full(size, N))
    below = clustered(np.append(deficits(arm, full, found.lower), lost), with_another)
    above = clustered(np.append(deficits(arm, full, found.upper), won), with_another)
    assert (below, above) == pytest.approx((1.645, -1.645), abs=0.05)
    assert clustered(deficits(arm, full, each.lower), groups) < 1, "queries taken for independent ones"


@pytest.mark.slow
def test_bounds_of_a_family_are_corrected_as_bonferroni_does():
    from statsmodels.stats.multitest import multipletests

    full = make(N, seed=7)[1]
    arms = {name: make(N, seed=7, loss=loss)[0] for name, loss in (("a", 0.01), ("b", 0.03), ("c", 0.05))}
    found = Bootstrap().family(arms, full, n_others=2)
    chances = [chance_of_less(arm, full, found[name].lower) for name, arm in arms.items()]
    corrected = multipletests([*chances, 1, 1], method="bonferroni")[1][:3]
    assert corrected == pytest.approx([0.05] * 3, abs=0.01)


@pytest.mark.parametrize("confidence", [0.9, 0.95, 1 - 0.05 / 6])
@pytest.mark.parametrize(("retained", "margin"), [(1.0, 0.95), (0.97, 0.95), (0.7, 0.5), (0.9, 0.95), (0.93, 0.99)])
@pytest.mark.parametrize("right", [0.5, 1.0])
def test_queries_that_all_lose_alike_are_enough_where_the_exact_quantile_is_passed(right, retained, margin, confidence):
    """Nothing is left to chance but weights: their sum is about normal, and the imagined query is exponential.

    Nothing is won over a full re-embed that is always right.
    """
    full = np.full(40, right)
    needed = Bootstrap(confidence=confidence).queries_needed(retained * full, full, margin)
    each = (retained - margin) * right
    worst = margin if retained > margin else 1.0 if right < 1 else 1 - margin
    n = np.arange(41, 4_000)
    spread = abs(each) * np.sqrt(n)
    enough = exponnorm.cdf(abs(each) * n, worst / spread, scale=spread) > confidence
    assert needed == pytest.approx(n[enough][0], rel=0.06, abs=2)


@pytest.mark.parametrize(("retained", "spread"), [(0.93, 0.3), (0.915, 0.2), (0.88, 0.3)])
@pytest.mark.parametrize("confidence", [0.95, 0.99])
def test_queries_that_differ_much_are_as_many_as_the_power_of_a_t_test_asks_for(retained, spread, confidence):
    """Of so many the imagined query is next to nothing, and some queries are added for it."""
    from statsmodels.stats.power import TTestPower

    arm, full = alternating(400, retained, spread)
    values = deficits(arm, full, 0.9)
    effect = abs(values.mean()) / values.std(ddof=1)
    theirs = TTestPower().solve_power(effect, alpha=1 - confidence, power=0.8, alternative="larger")
    needed = Bootstrap(confidence=confidence).queries_needed(arm, full, 0.9)
    assert 1 <= needed / theirs < 1.25


def test_beyond_its_largest_tenth_the_tail_of_errors_is_the_exponential_one_that_fits_best():
    errors = np.random.default_rng(8).gumbel(scale=0.1, size=1_000)
    tail, start = ErrorTail.of(errors), np.sort(errors)[-101]
    _, scale = expon.fit(errors[errors > start] - start, floc=0)
    beyond = start + np.linspace(0.001, 1, 50)
    counted = ecdf(errors).sf.evaluate(beyond - 1e-12)
    assert tail(beyond) == pytest.approx(np.maximum(counted, 0.1 * expon.sf(beyond, start, scale)), abs=1e-9)
    assert tail.reach(10) == pytest.approx(errors.max() + 10 * scale)


@pytest.mark.parametrize(("n_true", "lucky"), [(100, 21), (100, 30), (50, 26), (350, 40)])
def test_more_relevant_documents_in_the_sample_than_by_luck_are_doubted(n_true, lucky):
    relevant = [f"d{row}" for row in range(400 - lucky - 20, 400 - lucky - 20 + 40)]
    true = {f"d{row}" for row in range(n_true)} - set(relevant) | set(relevant[:lucky])
    chance = binom.sf(lucky - 1, 40, len(true) / 400)
    found = sampled(set(relevant), true, 400, is_safe_without=False)
    assert bool(found) == (lucky > 20 and chance < 0.01)


def test_as_many_documents_are_embedded_again_as_show_that_less_than_nine_percent_differ():
    sound = binomtest(SPOT_CHECKS, SPOT_CHECKS, alternative="greater").proportion_ci(0.95).low
    fewer = binomtest(SPOT_CHECKS - 1, SPOT_CHECKS - 1, alternative="greater").proportion_ci(0.95).low
    assert fewer < 0.91 < sound
    assert binom.pmf(ASKED_AGAIN, ASKED_AGAIN, [0.5, 0.9]) == pytest.approx([0.004, 0.43], abs=5e-4)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "harmed"), [(60, 0.5), (200, 0.2), (600, 0.04)])
def test_scores_between_0_and_1_at_the_margin_are_seldom_called_safe_or_not_safe(n, harmed):
    """Some queries lose most, the others nothing or little; the truth is the margin itself."""
    rng = np.random.default_rng(9)
    trials = 300
    shape = (trials, n)
    full = np.where(rng.random(shape) < 0.2, 0, rng.beta(2, 1.5, size=shape))
    left = rng.beta(0.3, 1.7, size=shape)  # 15 % on average of what a harmed query had
    arm = full * np.where(rng.random(shape) < harmed, left, 1 + rng.uniform(-0.05, 0.05, size=shape))
    arm, margin = np.minimum(arm, 1), 1 - 0.85 * harmed
    outcomes = [
        verdict_of(*pair, margin=margin, bootstrap=Bootstrap(seed=number, resamples=400)).outcome
        for number, pair in enumerate(zip(arm, full, strict=True))
    ]
    most = trials * 0.05 + norm.ppf(0.999) * np.sqrt(trials * 0.05 * 0.95)
    assert outcomes.count(Outcome.SAFE) <= most
    assert outcomes.count(Outcome.NOT_SAFE) <= most
    assert len(set(outcomes)) > 1
