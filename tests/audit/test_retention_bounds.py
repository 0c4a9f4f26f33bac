"""The bounds of two arrays of scores, for somebody who has nothing else of ours, and the decision by them."""

import numpy as np
import pytest
from paired_scores import make
from scipy.stats import binomtest, ttest_1samp

import migrate
from migrate.audit.bootstrap import Bootstrap
from migrate.audit.bounds import Bounds, Grouping, Outcome, decide, retention_bounds
from migrate.errors import InputError, UsageError


def test_of_right_and_wrong_they_are_those_of_clopper_and_pearson():
    right = [1] * 57 + [0] * 3
    found = retention_bounds(right, [1] * 60, resamples=20_000)
    expected = binomtest(57, 60).proportion_ci(confidence_level=0.9)
    assert found.estimate == 57 / 60
    assert (found.lower, found.upper) == pytest.approx((expected.low, expected.high), abs=0.003)


@pytest.mark.slow
def test_of_many_queries_they_are_where_a_t_test_begins_to_reject():
    arm, full = make(4_000, seed=5)
    found = retention_bounds(arm, full)
    below, above = arm - found.lower * full, arm - found.upper * full
    rejects_more = ttest_1samp([*below, -found.lower], 0, alternative="greater").pvalue
    rejects_less = ttest_1samp([*above, 1], 0, alternative="less").pvalue
    assert (rejects_more, rejects_less) == pytest.approx((0.05, 0.05), abs=0.005)


def test_they_are_those_of_an_audit():
    arm, full = make(120, seed=6)
    topics = np.random.default_rng(0).integers(9, size=120)
    alone, grouped = (
        Bootstrap(seed=3).retention(arm, full),
        Bootstrap(grouping=Grouping(topics), seed=3).retention(arm, full),
    )
    assert retention_bounds(arm.tolist(), full.tolist(), seed=3) == alone
    named = [f"topic {number}" for number in topics]
    assert retention_bounds(arm, full, named, 3) == grouped
    assert grouped.lower < alone.lower


def test_a_full_re_embed_that_finds_nothing_bounds_nothing():
    found = retention_bounds([0.5, 0], [0, 0])
    assert (found.lower, found.upper) == (0, np.inf)
    assert decide(found) is Outcome.INCONCLUSIVE


@pytest.mark.parametrize(
    ("arm", "full", "groups", "told"),
    [
        ([0.5], [0.5, 1], None, "one length"),
        ([[0.5]], [[0.5]], None, "one length"),
        ([0.5, np.nan], [0.5, 1], None, "not between 0 and 1"),
        ([0.5, 1], [0.5, 1.5], None, "not between 0 and 1"),
        ([-0.1, 1], [0.5, 1], None, "not between 0 and 1"),
        ([0.5, 1], [0.5, 1], ["a"], "a label for each"),
    ],
)
def test_what_are_no_scores_of_the_same_queries_is_refused(arm, full, groups, told):
    with pytest.raises(InputError, match=told):
        retention_bounds(arm, full, groups)


@pytest.mark.parametrize(
    ("lower", "upper", "outcome"),
    [(0.95, 0.99, "SAFE"), (0.94, 0.949, "NOT SAFE"), (0.94, 0.95, "INCONCLUSIVE"), (0, np.inf, "INCONCLUSIVE")],
)
def test_the_margin_itself_is_kept(lower, upper, outcome):
    assert migrate.decide(Bounds(0.95, lower, upper), 0.95) == outcome


@pytest.mark.parametrize("margin", [5, 95, -0.1, float("nan")])
def test_a_margin_that_is_no_share_is_refused(margin):
    with pytest.raises(UsageError, match=r"a margin of .* from 0 to 1, such as 0\.95"):
        decide(Bounds(0.99, 0.98, 1.0), margin)


@pytest.mark.parametrize(
    ("scores", "told"),
    [
        (["good"] * 30, "is not a number"),
        (np.full(30, 1j), "is not a number"),
        ([{}] * 30, "is not a number"),
        (np.ma.masked_array(np.ones(30), mask=[True] + [False] * 29), "is masked; leave its query out"),
    ],
)
def test_what_is_no_number_is_no_score(scores, told):
    for pair in ((scores, np.ones(30)), (np.ones(30), scores)):
        with pytest.raises(InputError, match=told):
            retention_bounds(*pair)


def test_a_mask_that_hides_nothing_is_none():
    assert retention_bounds(np.ma.masked_array(np.ones(30)), np.ones(30)).estimate == 1


def test_labels_of_groups_that_cannot_be_compared_are_refused():
    with pytest.raises(InputError, match="labels of groups cannot be compared"):
        retention_bounds(np.ones(30), np.ones(30), groups=[None] * 30)


def test_stores_at_the_margin_are_seldom_called_safe_or_not_safe():
    rng = np.random.default_rng(1)
    lost = rng.random((400, 200)) < 0.05
    outcomes = [decide(retention_bounds(~one, np.ones(200), resamples=400), 0.95) for one in lost]
    assert max(outcomes.count(Outcome.SAFE), outcomes.count(Outcome.NOT_SAFE)) <= 0.05 * 400 + 13  # 3 standard errors
