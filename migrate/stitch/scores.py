"""How good predicted vectors are against the true ones: cosine, MSE, R², and retrieval inside the sample."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from migrate.vectors import Vectors, unit_rows

_QUERIES = 1_000
_BLOCK = 256


@dataclass(frozen=True, slots=True)
class HeldOutScores:
    """Scores of predictions for held-out pairs.

    Attributes
    ----------
    cosine : mean cosine between prediction and truth
    mse : mean over rows and columns of the squared difference of the raw prediction
    r2 : 1 - squared error / squared deviation from the mean of the truth, all columns together
    overlap_at_10 : mean share of a document's 10 true neighbours that its predicted neighbours share
    """

    cosine: float
    mse: float
    r2: float
    overlap_at_10: float


def score_predictions(predicted: Vectors, truth: Vectors, *, seed: int = 0) -> HeldOutScores:
    """Score raw predictions, (n, q), against the true vectors, (n, q)."""
    difference = predicted.astype(np.float64) - truth
    squared = float(np.einsum("ij,ij->", difference, difference))
    spread = float(np.square(truth - truth.mean(axis=0, dtype=np.float64)).sum())
    unit_predicted, unit_truth = unit_rows(predicted), unit_rows(truth)
    return HeldOutScores(
        cosine=float(np.einsum("ij,ij->i", unit_predicted, unit_truth).mean(dtype=np.float64)),
        mse=squared / truth.size,
        r2=1 - squared / spread if spread > 0 else 0.0,
        overlap_at_10=float(neighbour_overlap(unit_predicted, unit_truth, seed=seed).mean()),
    )


def neighbour_overlap(predicted: Vectors, truth: Vectors, *, k: int = 10, seed: int = 0) -> NDArray[np.float64]:
    """Share of the true top k that the predictions also have, for up to 1,000 documents taken as queries.

    A document's true vector plays the query, as new queries are embedded by the target model; all other documents
    are ranked once by their true and once by their predicted vectors, both (n, q) of unit length. This is retrieval
    as it will happen, inside the sample. Ties go to the earlier document.
    """
    n = len(truth)
    k = min(k, n - 1)
    queries = np.sort(np.random.default_rng(seed).permutation(n)[:_QUERIES])
    shares = np.empty(len(queries))
    for start in range(0, len(queries), _BLOCK):
        block = queries[start : start + _BLOCK]
        ranked = [_top_others(truth[block] @ side.T, block, k) for side in (truth, predicted)]
        for row, (true_top, predicted_top) in enumerate(zip(*ranked, strict=True)):
            shares[start + row] = len(np.intersect1d(true_top, predicted_top)) / k
    return shares


def _top_others(similarities: Vectors, own: NDArray[np.int64], k: int) -> NDArray[np.int64]:
    """Columns of the k greatest values of each row, without the row's own column."""
    similarities[np.arange(len(own)), own] = -np.inf
    return np.argsort(-similarities, axis=1, kind="stable")[:, :k]
