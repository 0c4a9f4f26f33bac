"""Nearest neighbours in a space: what two spaces share of them, and the intrinsic dimension that they span."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from migrate.errors import VectorError
from migrate.stitch.nearest import BLOCK, Nearest, around_mean
from migrate.vectors import Vectors

DIMENSION_NEIGHBOURS = 20
"""Neighbours that the dimension near a document is estimated from."""


def check_same_documents(a: Vectors, b: Vectors, fewest: int) -> None:
    """Make sure that both sides have a row for each of the same documents, `fewest` at least, or raise VectorError."""
    if len(a) != len(b) or len(a) < fewest:
        raise VectorError(
            f"a comparison needs the vectors of the same {fewest} or more documents on both sides, and there are "
            f"{len(a)} and {len(b)}; compare more documents"
        )


def some_rows(count: int, *, seed: int) -> NDArray[np.int64]:
    """Return up to 1,000 of `count` rows, drawn at random, ascending: for what costs the square of their number."""
    return np.sort(np.random.default_rng(seed).permutation(count)[:1_000])


def nearest_by_cosine(queries: Vectors, documents: Vectors, query_rows: NDArray[np.int64], k: int) -> NDArray[np.int64]:
    """Return the rows of the k documents, (n, d), nearest to each query, (m, d), without its own row, (m,).

    All have unit length; the result, (m, k), or n - 1 where n is small, is in no order.
    """
    documents = around_mean(documents)
    k = min(k, len(documents) - 1)
    hits = np.empty((len(queries), k), dtype=np.int64)
    for start in range(0, len(queries), BLOCK):
        block = slice(start, start + BLOCK)
        scores = queries[block] @ documents.T
        # Else every document would be its own nearest
        scores[np.arange(len(scores)), query_rows[block]] = -np.inf
        # No order is asked for, which takes less time than sorting
        hits[block] = np.argpartition(-scores, k - 1, axis=1)[:, :k]
    return hits


def neighbour_jaccard(a: Nearest, b: Nearest) -> float:
    """Return the mean Jaccard similarity, 0 to 1, of equally many nearest of the same documents in two spaces.

    Caspari et al. 2024, "Beyond Benchmarks", with documents as queries.
    """
    shared = _same(a, b).any(axis=2).sum(axis=1)
    return float((shared / (2 * a.rows.shape[1] - shared)).mean())


def rank_similarity(a: Nearest, b: Nearest) -> float:
    """Return the mean similarity, 0 to 1, of the ranks of the shared ones of equally many nearest in two spaces.

    Caspari et al. 2024: the mean over documents of Σ 2 / ((1 + |r - s|)(r + s)) / (1 + 1/2 + ... + 1/m)
    for the ranks r and s of the m that are shared; 0 where none is shared.
    """
    ranks = np.arange(1, a.rows.shape[1] + 1)
    weights = 2 / ((1 + np.abs(ranks[:, None] - ranks)) * (ranks[:, None] + ranks))
    same = _same(a, b)
    sums = np.einsum("mij,ij->m", same, weights)
    harmonic = np.concatenate([[1.0], np.cumsum(1 / ranks)])  # 1 where nothing is shared: the sum is 0 there
    return float((sums / harmonic[same.any(axis=2).sum(axis=1)]).mean())


def _same(a: Nearest, b: Nearest) -> NDArray[np.bool_]:
    """Mark where neighbour i of one side is neighbour j of the other, (m, k, k)."""
    return np.asarray(a.rows[:, :, None] == b.rows[:, None, :])


def local_dimensions(near: Nearest) -> NDArray[np.float64]:
    """Return the intrinsic dimension near each query document, (m,), from their k nearest.

    The maximum likelihood estimate of Levina & Bickel 2004, eq. 8, with k - 2 for k - 1, which takes its bias away.
    Copies of a document are left out; where fewer than three others are left, or these are equally far, it is NaN.
    """
    apart = near.distances > 0
    farthest = near.distances[:, -1:]
    logs = np.log(np.divide(farthest, near.distances, where=apart, out=np.ones_like(near.distances)))
    sums = logs.sum(axis=1)
    is_defined = (apart.sum(axis=1) > 2) & (sums > 0)
    dimensions: NDArray[np.float64] = np.divide(
        apart.sum(axis=1) - 2, sums, where=is_defined, out=np.full(len(sums), np.nan)
    )
    return dimensions


def mean_dimension(local: NDArray[np.float64]) -> float:
    """Return the harmonic mean (MacKay & Ghahramani 2005), not dominated by a few large values; NaN of none."""
    defined = local[np.isfinite(local)]
    if not defined.size:
        return float("nan")
    return float(1 / np.mean(1 / defined))


def two_nn_dimension(near: Nearest) -> float:
    """Return the intrinsic dimension of the whole space, from the ratio of the distances to the two nearest documents.

    TwoNN (Facco et al. 2017): the slope through the origin of -log(1 - F(μ)) over log μ, without the tenth of the
    documents with the greatest ratios. Copies of a document count as one. NaN where fewer than two are known.
    """
    first = np.where(near.distances > 0, near.distances, np.inf).min(axis=1)
    second = np.where(near.distances > first[:, None], near.distances, np.inf).min(axis=1)
    has_second = np.isfinite(second)
    ratios = np.sort(second[has_second] / first[has_second])
    count = int(0.9 * len(ratios))
    if count < 2 or ratios[count - 1] <= 1:
        return float("nan")
    x = np.log(ratios[:count])
    y = -np.log1p(-np.arange(1, count + 1) / len(ratios))
    return float((x @ y) / (x @ x))
