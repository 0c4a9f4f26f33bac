"""The area under the ROC curve, by scikit-learn; its bounds, by the bootstrap and by how often they hold."""

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.metrics import roc_auc_score

from migrate.lab.labels.roc import auc, auc_difference


@pytest.fixture
def scored():
    rng = np.random.default_rng(0)
    positive = rng.random(300) < 0.3
    first = np.round(rng.normal(size=300) + positive, 1)  # with ties
    return first, first + rng.normal(size=300), positive


def resampled(measure, positive, count=200):
    """Standard deviation of a measure over resamples of each class."""
    rng, classes = np.random.default_rng(1), [np.flatnonzero(positive == value) for value in (True, False)]
    return np.std([measure(np.concatenate([rng.choice(rows, len(rows)) for rows in classes])) for _ in range(count)])


def gain(first, second, positive):
    return roc_auc_score(positive, first) - roc_auc_score(positive, second)


def test_the_area_is_that_of_scikit_learn(scored):
    first, second, positive = scored
    assert auc(first, positive).estimate == pytest.approx(roc_auc_score(positive, first))
    assert auc_difference(first, second, positive).estimate == pytest.approx(gain(first, second, positive))


@pytest.mark.slow
def test_the_bounds_are_as_wide_as_the_bootstrap_says(scored):
    first, second, positive = scored
    one, both = auc(first, positive), auc_difference(first, second, positive)
    deviation = resampled(lambda rows: roc_auc_score(positive[rows], first[rows]), positive)
    assert one.upper - one.estimate == pytest.approx(norm.ppf(0.95) * deviation, rel=0.1)
    lead = resampled(lambda rows: gain(first[rows], second[rows], positive[rows]), positive)
    assert both.estimate - both.lower == pytest.approx(norm.ppf(0.95) * lead, rel=0.1)


@pytest.mark.slow
def test_the_lower_bound_is_crossed_in_about_one_of_twenty():
    rng, truth, crossed = np.random.default_rng(2), norm.cdf(1 / np.sqrt(2)), 0
    for _ in range(1_000):
        scores = np.concatenate([rng.normal(size=40) + 1, rng.normal(size=60)])
        crossed += auc(scores, np.arange(100) < 40).lower > truth
    assert 25 <= crossed <= 90


def test_a_perfect_area_is_not_certain():
    scores, positive = np.arange(20.0), np.arange(20) >= 10
    bounds = auc(scores, positive)
    assert bounds.estimate == 1 and bounds.lower == pytest.approx(0.05**0.1)
