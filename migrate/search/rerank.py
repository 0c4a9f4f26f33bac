"""Ranks a pool of documents again by their true vectors: what a live searcher serves, and two-stage arms judge."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from migrate.search.runs import rank
from migrate.stores.base import Metric
from migrate.vectors import Vectors


def rerank(
    query: Vectors,
    keys: Sequence[str],
    scores: NDArray[np.floating],
    true_places: NDArray[np.intp],
    true_vectors: Vectors,
    *,
    metric: Metric,
    kept: int,
) -> list[tuple[str, float]]:
    """The best `kept` documents of a pool and their scores, best first; no document twice, ties by key.

    A document with a true vector is scored by it, any other as the store has scored it: true and translated vectors
    are of one length, and their scores are best left as they are (`benchmarks/beside.py`).

    Parameters
    ----------
    query
        (dim,), by the target model.
    keys, scores
        The pool, (n,), with the scores of the store: inner products, or squared distances.
    true_places, true_vectors
        (m,) places in the pool, and (m, dim) the true vectors of the documents there.
    kept
        How many.
    """
    exact_query = query.astype(np.float64)
    # Squared distances become 2qd - dd, which grows with nearness as an inner product does.
    square = float(exact_query @ exact_query) if metric == "l2" else 0.0
    nearness = square - np.asarray(scores, np.float64) if metric == "l2" else np.array(scores, np.float64)
    true = true_vectors.astype(np.float64)
    exact = np.einsum("nd,d->n", true, exact_query)
    if metric == "l2":
        exact = 2 * exact - np.einsum("nd,nd->n", true, true)
    nearness[true_places] = exact
    nearness = np.fmax(nearness, -np.inf)  # what is not a number is nowhere
    count = kept + len(keys) - len(set(keys))
    if count < len(keys):  # the others cannot be among the best; sorting them costs more than all the rest
        chosen = np.flatnonzero(nearness >= np.partition(nearness, -count)[-count])
        keys, nearness = [keys[place] for place in chosen.tolist()], nearness[chosen]
    best = rank(zip(keys, nearness.tolist(), strict=True), kept)
    return [(key, max(square - near, 0.0)) for key, near in best] if metric == "l2" else best
