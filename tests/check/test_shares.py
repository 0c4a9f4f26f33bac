import pytest
from scipy.stats import binomtest

from migrate.check.comparison import share_of


@pytest.mark.parametrize(("seen", "sampled"), [(1, 32), (9, 32), (31, 32), (3, 7)])
def test_bounds_are_those_of_scipy(seen, sampled):
    judge = binomtest(seen, sampled).proportion_ci(0.95, method="exact")
    found = share_of(seen, sampled, 10**6)
    assert (found.estimate, found.lower, found.upper) == pytest.approx((seen / sampled, judge.low, judge.high))


@pytest.mark.parametrize("sampled", [1, 32, 1_000])
def test_nothing_seen_leaves_what_would_be_missed_once_in_twenty(sampled):
    upper = share_of(0, sampled, 10**6).upper
    assert (1 - upper) ** sampled == pytest.approx(0.05)
    assert share_of(sampled, sampled, 10**6).lower == pytest.approx(1 - upper)


def test_a_sample_of_everything_leaves_no_doubt():
    assert share_of(0, 26, 26).upper == 0
    assert share_of(13, 26, 26).lower == share_of(13, 26, 26).upper == 0.5
