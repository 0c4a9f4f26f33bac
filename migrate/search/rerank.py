"""Ranks a pool of documents again by their true vectors: what a live searcher serves, and two-stage arms judge."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from migrate.search.runs import rank
from migrate.stores.base import Metric
from migrate.vectors import Vectors, unit_rows

_REACH = 0.2
"""By how much the cosine of two documents falls until their errors are alike by a factor of e less."""

_OWN = 0.05
"""Part of an error, 0-1, that is a document's own, and is shared with none near it."""


def estimate_scores(
    query: Vectors,
    scores: NDArray[np.floating],
    vectors: Vectors,
    true_places: NDArray[np.intp],
    true_vectors: Vectors,
    *,
    metric: Metric,
) -> NDArray[np.float64]:
    """Estimate the scores, (n,), of documents with translated vectors by their true ones, from those of neighbours.

    Translations of documents that are near each other are wrong alike. The errors of those whose true vectors are known
    are carried to the others by Gaussian process regression with an exponential kernel of the cosine (Rasmussen and
    Williams, Gaussian Processes for Machine Learning, 2006, equation 2.25); its two numbers were chosen on half of the
    queries of SciFact and NFCorpus.

    `query`, (dim,), is of the target model; `scores`, (n,), and `vectors`, (n, dim), are the store's, inner products or
    squared distances; `true_vectors`, (m, dim), those of the documents at `true_places`, (m,).
    """
    if not len(true_places):
        return np.asarray(scores, np.float64)
    exact_query = query.astype(np.float64)
    true = true_vectors.astype(np.float64)
    exact = np.einsum("nd,d->n", true, exact_query)
    if metric == "l2":
        exact = float(exact_query @ exact_query) - 2 * exact + np.einsum("nd,nd->n", true, true)
    errors = exact - np.asarray(scores, np.float64)[true_places]
    units = unit_rows(vectors)
    kernel = np.exp((units @ units[true_places].T - 1) / _REACH).astype(np.float64)
    among = kernel[true_places] + _OWN * np.eye(len(true_places))
    estimates: NDArray[np.float64] = scores + kernel @ np.linalg.solve(among, errors)
    estimates[true_places] = exact
    return estimates


def rerank(
    query: Vectors,
    keys: Sequence[str],
    scores: NDArray[np.floating],
    true_places: NDArray[np.intp],
    true_vectors: Vectors,
    *,
    metric: Metric,
    depth: int,
) -> list[tuple[str, float]]:
    """Return the best `depth` documents of a pool and their scores, best first; no document twice, ties by key.

    A document with a true vector is scored by it, any other as `scores`, (n,), say, the store's or `estimate_scores`:
    true and translated vectors are of one length. Other arguments are as of `estimate_scores`.
    """
    exact_query = query.astype(np.float64)
    true = true_vectors.astype(np.float64)
    exact = np.einsum("nd,d->n", true, exact_query)
    square = 0.0
    nearness = np.array(scores, np.float64)
    if metric == "l2":
        # Squared distances become 2qd - dd, which grows with nearness as an inner product does
        square = float(exact_query @ exact_query)
        nearness = square - nearness
        exact = 2 * exact - np.einsum("nd,nd->n", true, true)
    nearness[true_places] = exact
    # What is not a number is nowhere
    nearness = np.fmax(nearness, -np.inf)
    count = depth + len(keys) - len(set(keys))
    if count < len(keys):
        # The others cannot be among the best; sorting them costs more than all the rest
        chosen = np.flatnonzero(nearness >= np.partition(nearness, -count)[-count])
        keys = [keys[position] for position in chosen.tolist()]
        nearness = nearness[chosen]
    best = rank(zip(keys, nearness.tolist(), strict=True), depth)
    if metric != "l2":
        return best
    return [(key, max(square - near, 0.0)) for key, near in best]
