"""Nearest neighbours in two spaces: how many they share, and whether in the same order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from migrate.similarity.matching import check_same_documents, some_rows
from migrate.vectors import Vectors, squared_norms, unit_rows

NEIGHBOURS = 10
"""Neighbours that two spaces are compared by."""

_BLOCK = 256
_SPARE = 8  # float32 orders near ties by chance: a few more are looked at in float64


@dataclass(frozen=True, slots=True, eq=False)
class Nearest:
    """The nearest other documents of some: `asked` (m,), and for each `rows` and Euclidean `distances`, (m, k).

    The nearest stand first.
    """

    asked: NDArray[np.int64]
    rows: NDArray[np.int64]
    distances: NDArray[np.float64]

    def first(self, k: int) -> Nearest:
        """The k nearest of them."""
        return Nearest(self.asked, self.rows[:, :k], self.distances[:, :k])


def find_nearest(vectors: Vectors, k: int, *, asked: NDArray[np.int64] | None = None) -> Nearest:
    """The k nearest of all other rows of (n, d) for the rows `asked`, or for every row; n - 1 where n is small.

    For rows of unit length the order is that of the cosine.
    """
    asked = np.arange(len(vectors)) if asked is None else asked
    k = min(k, len(vectors) - 1)
    vectors = _around_mean(vectors)
    norms = squared_norms(vectors)
    rows = np.empty((len(asked), k), dtype=np.int64)
    distances = np.empty((len(asked), k))
    for start in range(0, len(asked), _BLOCK):
        block = slice(start, start + _BLOCK)
        rows[block], distances[block] = _nearest_of(vectors, norms, asked[block], k)
    return Nearest(asked, rows, distances)


def _nearest_of(
    vectors: Vectors, norms: Vectors, own: NDArray[np.int64], k: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    scores = norms - 2 * (vectors[own] @ vectors.T)
    scores[np.arange(len(own)), own] = np.inf
    width = min(k + _SPARE, len(vectors) - 1)
    near = np.sort(np.argpartition(scores, width - 1, axis=1)[:, :width], axis=1)
    differences = vectors[near].astype(np.float64) - vectors[own][:, None]
    exact = np.sqrt(np.einsum("mkd,mkd->mk", differences, differences))
    best = np.argsort(exact, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(near, best, axis=1), np.take_along_axis(exact, best, axis=1)


def found_by_cosine(queries: Vectors, documents: Vectors, own: NDArray[np.int64], k: int) -> NDArray[np.int64]:
    """The rows of the k documents, (n, d), that are nearest to each query, (m, d), but for its `own` row, (m,).

    All have unit length; the found ones, (m, k), or n - 1 where n is small, are in no order.
    """
    documents = _around_mean(documents)
    k = min(k, len(documents) - 1)
    found = np.empty((len(queries), k), dtype=np.int64)
    for start in range(0, len(queries), _BLOCK):
        block = slice(start, start + _BLOCK)
        scores = queries[block] @ documents.T
        scores[np.arange(len(scores)), own[block]] = -np.inf
        found[block] = np.argpartition(-scores, k - 1, axis=1)[:, :k]
    return found


def _around_mean(vectors: Vectors) -> Vectors:
    """The rows minus their mean: neighbours keep their order, and float32 tells those apart that are near."""
    return np.asarray(vectors - vectors.mean(axis=0, dtype=np.float64), dtype=np.float32)


def neighbour_jaccard(a: Vectors, b: Vectors, k: int = NEIGHBOURS, *, seed: int = 0) -> float:
    """Mean Jaccard similarity of the k nearest documents, by cosine, in two spaces, (n, p) and (n, q): 0 to 1.

    Caspari et al. 2024, "Beyond Benchmarks", with documents as queries: up to 1,000 drawn by `seed`.
    """
    return jaccard_of(*_nearest_in_both(a, b, k, seed=seed))


def rank_similarity(a: Vectors, b: Vectors, k: int = NEIGHBOURS, *, seed: int = 0) -> float:
    """Mean similarity of the ranks that shared ones of the k nearest documents have in two spaces: 0 to 1.

    Caspari et al. 2024: the mean over documents of Σ 2 / ((1 + |r - s|)(r + s)) / (1 + 1/2 + ... + 1/m)
    for the ranks r and s of the m that are shared; 0 where none is. Documents are asked as in `neighbour_jaccard`.
    """
    return rank_similarity_of(*_nearest_in_both(a, b, k, seed=seed))


def jaccard_of(one: Nearest, other: Nearest) -> float:
    """`neighbour_jaccard` from neighbours that are known, of the same documents and equally many."""
    shared = _same(one, other).any(axis=2).sum(axis=1)
    return float((shared / (2 * one.rows.shape[1] - shared)).mean())


def rank_similarity_of(one: Nearest, other: Nearest) -> float:
    """`rank_similarity` from neighbours that are known, of the same documents and equally many."""
    ranks = np.arange(1, one.rows.shape[1] + 1)
    weights = 2 / ((1 + np.abs(ranks[:, None] - ranks)) * (ranks[:, None] + ranks))
    same = _same(one, other)
    sums = np.einsum("mij,ij->m", same, weights)
    harmonic = np.concatenate([[1.0], np.cumsum(1 / ranks)])  # 1 where nothing is shared: the sum is 0 there
    return float((sums / harmonic[same.any(axis=2).sum(axis=1)]).mean())


def _same(one: Nearest, other: Nearest) -> NDArray[np.bool_]:
    """Whether neighbour i of one side is neighbour j of the other, (m, k, k)."""
    return np.asarray(one.rows[:, :, None] == other.rows[:, None, :])


def _nearest_in_both(a: Vectors, b: Vectors, k: int, *, seed: int) -> tuple[Nearest, Nearest]:
    check_same_documents(a, b, 2)
    asked = some_rows(len(a), seed=seed)
    return find_nearest(unit_rows(a), k, asked=asked), find_nearest(unit_rows(b), k, asked=asked)
