"""Compares nearest neighbours in two spaces: how many are shared, and whether they come in the same order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from migrate.errors import VectorError
from migrate.vectors import Vectors, squared_norms

NEIGHBOURS = 10
"""Neighbours that two spaces are compared by."""

QUERIES = 1_000
"""Documents to compute a measure on where its cost grows with the square of their number."""

_BLOCK = 256
_SPARE = 8  # float32 orders near ties by chance: a few more are looked at in float64


def check_same_documents(a: Vectors, b: Vectors, fewest: int) -> None:
    """Make sure that both sides have a row for each of the same documents, `fewest` at least, or raise VectorError."""
    if len(a) != len(b) or len(a) < fewest:
        raise VectorError(
            f"a comparison needs the vectors of the same {fewest} or more documents on both sides, found "
            f"{len(a)} and {len(b)}; compare more documents"
        )


def some_rows(count: int, *, seed: int, most: int = QUERIES) -> NDArray[np.int64]:
    """Up to `most` of `count` rows, drawn at random, in ascending order."""
    return np.sort(np.random.default_rng(seed).permutation(count)[:most])


@dataclass(frozen=True, slots=True, eq=False)
class Nearest:
    """The nearest other documents of the documents in `query_rows`, (m,): `rows` and Euclidean `distances`, (m, k).

    The nearest come first.
    """

    query_rows: NDArray[np.int64]
    rows: NDArray[np.int64]
    distances: NDArray[np.float64]

    def first(self, k: int) -> Nearest:
        """The k nearest of them."""
        return Nearest(self.query_rows, self.rows[:, :k], self.distances[:, :k])


def find_nearest(vectors: Vectors, k: int, *, query_rows: NDArray[np.int64] | None = None) -> Nearest:
    """The k nearest of all other rows of (n, d) for the rows `query_rows`, or for every row; n - 1 where n is small.

    For rows of unit length the order is that of the cosine.
    """
    query_rows = np.arange(len(vectors)) if query_rows is None else query_rows
    k = min(k, len(vectors) - 1)
    vectors = _around_mean(vectors)
    norms = squared_norms(vectors)
    rows = np.empty((len(query_rows), k), dtype=np.int64)
    distances = np.empty((len(query_rows), k))
    for start in range(0, len(query_rows), _BLOCK):
        block = slice(start, start + _BLOCK)
        rows[block], distances[block] = _nearest_of(vectors, norms, query_rows[block], k)
    return Nearest(query_rows, rows, distances)


def _nearest_of(
    vectors: Vectors, norms: Vectors, query_rows: NDArray[np.int64], k: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    scores = norms - 2 * (vectors[query_rows] @ vectors.T)
    scores[np.arange(len(query_rows)), query_rows] = np.inf
    width = min(k + _SPARE, len(vectors) - 1)
    near = np.sort(np.argpartition(scores, width - 1, axis=1)[:, :width], axis=1)
    differences = vectors[near].astype(np.float64) - vectors[query_rows][:, None]
    exact = np.sqrt(np.einsum("mkd,mkd->mk", differences, differences))
    best = np.argsort(exact, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(near, best, axis=1), np.take_along_axis(exact, best, axis=1)


def nearest_by_cosine(queries: Vectors, documents: Vectors, query_rows: NDArray[np.int64], k: int) -> NDArray[np.int64]:
    """The rows of the k documents, (n, d), that are nearest to each query, (m, d), without its own row, (m,).

    All have unit length; the result, (m, k), or n - 1 where n is small, is in no order.
    """
    documents = _around_mean(documents)
    k = min(k, len(documents) - 1)
    hits = np.empty((len(queries), k), dtype=np.int64)
    for start in range(0, len(queries), _BLOCK):
        block = slice(start, start + _BLOCK)
        scores = queries[block] @ documents.T
        scores[np.arange(len(scores)), query_rows[block]] = -np.inf
        hits[block] = np.argpartition(-scores, k - 1, axis=1)[:, :k]
    return hits


def _around_mean(vectors: Vectors) -> Vectors:
    """The rows minus their mean: neighbours keep their order, and float32 tells those apart that are near."""
    return np.asarray(vectors - vectors.mean(axis=0, dtype=np.float64), dtype=np.float32)


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
