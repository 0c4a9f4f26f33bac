"""Pools ranked again by true vectors."""

import numpy as np
import pytest

from migrate.search.rerank import rerank
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
        found = rerank(query, keys, scores, true, vectors[true], metric=metric, kept=min(kept, n))
        assert [key for key, _ in found] == [key for key, _ in expected]
        sign = 1 if metric == "ip" else -1
        shown = [max(sign * value, 0) if metric == "l2" else value for _, value in expected]
        np.testing.assert_allclose([score for _, score in found], shown, atol=1e-5)
