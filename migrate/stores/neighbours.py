"""Recall@10 by exact search over vectors in blocks; a neighbour as near as the tenth counts. Knows no index."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from migrate.vectors import Vectors, squared_norms

QUERIES: Final = 200
NEIGHBOURS: Final = 10


def query_rows(count: int, queries: int = QUERIES) -> NDArray[np.int64]:
    """Return rows to look up, spread evenly."""
    return np.unique(np.linspace(0, count - 1, min(queries, count)).astype(np.int64))


def tenth_scores(queries: Vectors, blocks: Iterable[Vectors], *, inner_product: bool) -> NDArray[np.float64]:
    """Return the score of the tenth nearest of all vectors to each query, or of the last if there are fewer; (n,)."""
    best = np.empty((len(queries), 0))
    for vectors in blocks:
        both = np.concatenate([best, _scores(queries, vectors, inner_product=inner_product)], axis=1)
        k = min(NEIGHBOURS, both.shape[1])
        best = -np.partition(-both, k - 1, axis=1)[:, :k]
    last: NDArray[np.float64] = best.min(axis=1)
    return last


def share_found(
    queries: Vectors, found: Vectors, known: NDArray[np.bool_], tenth: NDArray[np.float64], *, inner_product: bool
) -> float:
    """Return recall@10.

    Parameters
    ----------
    queries
        (n, dim).
    found
        The vectors that the index found for each, (n, k, dim); anything where it found none.
    known
        Where it found one, (n, k).
    tenth
        From `tenth_scores`.
    inner_product
        Whether more is nearer, or squared distance is asked for.
    """
    pairs = zip(queries, found, strict=True)
    scores = np.stack([_scores(query[None], some, inner_product=inner_product)[0] for query, some in pairs])
    slack = 1e-4 * np.maximum(1, np.abs(tenth))
    return float(((scores >= (tenth - slack)[:, None]) & known).mean())


def _scores(queries: Vectors, vectors: Vectors, *, inner_product: bool) -> NDArray[np.float64]:
    """Return inner products, or negated squared distances: more is nearer."""
    products: NDArray[np.float64] = (queries @ vectors.T).astype(np.float64)
    if inner_product:
        return products
    distances: NDArray[np.float64] = squared_norms(vectors) + squared_norms(queries)[:, None] - 2 * products
    return -distances
