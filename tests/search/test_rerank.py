"""Pools ranked again by true vectors."""

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF

from migrate.search.rerank import estimate_scores, rerank
from migrate.search.runs import rank


@pytest.mark.parametrize("metric", ["ip", "l2"])
def test_the_best_of_a_pool_are_those_of_the_whole_of_it_sorted(metric):
    """Documents that come twice, scores that are alike, and one that is not a number."""
    rng = np.random.default_rng(4)
    for _ in range(50):
        n, dim, kept = int(rng.integers(1, 60)), 3, int(rng.integers(1, 12))
        query, vectors = rng.integers(-2, 3, dim).astype(np.float32), rng.integers(-2, 3, (n, dim)).astype(np.float32)
        keys = [str(key) for key in rng.integers(0, max(n * 2 // 3, 1), n)]
        scores = rng.integers(-4, 9, n).astype(np.float32)
        scores[rng.random(n) < 0.1] = np.nan
        true = np.flatnonzero(rng.random(n) < 0.5)
        exact = vectors @ query if metric == "ip" else -((vectors - query) ** 2).sum(axis=1)
        nearness = np.where(np.isin(np.arange(n), true), exact, scores if metric == "ip" else -scores)
        expected = rank(zip(keys, nearness.tolist(), strict=True), min(kept, n))
        found = rerank(query, keys, scores, true, vectors[true], metric=metric, depth=min(kept, n))
        assert [key for key, _ in found] == [key for key, _ in expected]
        sign = 1 if metric == "ip" else -1
        shown = [max(sign * value, 0) if metric == "l2" else value for _, value in expected]
        np.testing.assert_allclose([score for _, score in found], shown, atol=1e-5)


@pytest.mark.parametrize("metric", ["ip", "l2"])
def test_errors_are_carried_as_a_gaussian_process_carries_them(metric):
    """The exponential kernel of the cosine is the squared exponential one of unit vectors."""
    rng = np.random.default_rng(5)
    query = rng.standard_normal(8).astype(np.float32)
    vectors, true = rng.standard_normal((2, 30, 8)).astype(np.float32)
    known = np.array([2, 17, 4, 29])
    scores, exact = (
        (rows @ query if metric == "ip" else ((rows - query) ** 2).sum(axis=1)) for rows in (vectors, true)
    )
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    process = GaussianProcessRegressor(RBF(0.2**0.5), alpha=0.05, optimizer=None).fit(
        units[known], (exact - scores)[known]
    )
    expected = scores + process.predict(units)
    expected[known] = exact[known]
    found = estimate_scores(query, scores, vectors, known, true[known], metric=metric)
    np.testing.assert_allclose(found, expected, atol=1e-4)
    np.testing.assert_array_equal(estimate_scores(query, scores, vectors, known[:0], true[:0], metric=metric), scores)
