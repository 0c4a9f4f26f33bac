"""The nearest neighbours of vectors among each other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from migrate.vectors import Vectors, squared_norms

NEIGHBOURS = 10
"""Neighbours that two spaces are compared by."""

BLOCK = 256
"""Queries whose scores are in memory at once."""

_SPARE = 8
"""Documents beyond the k nearest by float32 whose distances are computed in float64."""


@dataclass(frozen=True, slots=True, eq=False)
class Nearest:
    """The nearest other documents of the documents in `query_rows`, (m,): `rows` and Euclidean `distances`, (m, k).

    The nearest come first.
    """

    query_rows: NDArray[np.int64]
    rows: NDArray[np.int64]
    distances: NDArray[np.float64]

    def first(self, k: int) -> Nearest:
        """Return the k nearest of them."""
        return Nearest(self.query_rows, self.rows[:, :k], self.distances[:, :k])


def find_nearest(vectors: Vectors, k: int, *, query_rows: NDArray[np.int64] | None = None) -> Nearest:
    """Return the k nearest of all other rows of (n, d) for the rows `query_rows`, or for every row; n - 1 of few.

    For rows of unit length the order is that of the cosine.
    """
    if query_rows is None:
        query_rows = np.arange(len(vectors))
    k = min(k, len(vectors) - 1)
    vectors = around_mean(vectors)
    norms = squared_norms(vectors)
    rows = np.empty((len(query_rows), k), dtype=np.int64)
    distances = np.empty((len(query_rows), k))
    for start in range(0, len(query_rows), BLOCK):
        block = slice(start, start + BLOCK)
        rows[block], distances[block] = _nearest_of(vectors, norms, query_rows[block], k)
    return Nearest(query_rows, rows, distances)


def _nearest_of(
    vectors: Vectors, norms: Vectors, query_rows: NDArray[np.int64], k: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    scores = norms - 2 * (vectors[query_rows] @ vectors.T)
    # A document is no neighbour of itself
    scores[np.arange(len(query_rows)), query_rows] = np.inf
    # float32 orders near ties by chance: a few more are looked at in float64
    width = min(k + _SPARE, len(vectors) - 1)
    near = np.sort(np.argpartition(scores, width - 1, axis=1)[:, :width], axis=1)
    differences = vectors[near].astype(np.float64) - vectors[query_rows][:, None]
    exact = np.sqrt(np.einsum("mkd,mkd->mk", differences, differences))
    best = np.argsort(exact, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(near, best, axis=1), np.take_along_axis(exact, best, axis=1)


def around_mean(vectors: Vectors) -> Vectors:
    """Return the rows minus their mean: neighbours keep their order, and float32 tells those apart that are near."""
    return np.asarray(vectors - vectors.mean(axis=0, dtype=np.float64), dtype=np.float32)
