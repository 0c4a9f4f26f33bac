"""Scores predicted vectors against the true ones: cosine, MSE, R², and retrieval inside the sample."""

from __future__ import annotations

from collections.abc import Iterator
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
    overlap_error : standard error of that mean over documents
    """

    cosine: float
    mse: float
    r2: float
    overlap_at_10: float
    overlap_error: float = 0.0


def score_predictions(
    predicted: Vectors, truth: Vectors, *, seed: int = 0, shares: NDArray[np.float64] | None = None
) -> HeldOutScores:
    """Score raw predictions, (n, q), against the true vectors, (n, q).

    `shares` is `Neighbours.overlap` of the predictions, where it has been computed already.
    """
    difference = predicted.astype(np.float64) - truth
    squared = float(np.einsum("ij,ij->", difference, difference))
    spread = float(np.square(truth - truth.mean(axis=0, dtype=np.float64)).sum())
    unit_predicted, unit_truth = unit_rows(predicted), unit_rows(truth)
    if shares is None:
        shares = Neighbours(unit_truth, seed=seed).overlap(unit_predicted)
    return HeldOutScores(
        cosine=float(np.einsum("ij,ij->i", unit_predicted, unit_truth).mean(dtype=np.float64)),
        mse=squared / truth.size,
        r2=1 - squared / spread if spread > 0 else 0.0,
        overlap_at_10=float(shares.mean()),
        overlap_error=float(shares.std(ddof=1) / np.sqrt(len(shares))),
    )


class Neighbours:
    """Retrieval inside the sample: whether predicted vectors have the neighbours that the true ones have.

    A document's true vector plays the query, as new queries are embedded by the target model; all other documents
    are ranked once by their true vectors and once by their predicted ones. Up to 1,000 documents serve as queries.
    """

    def __init__(self, truth: Vectors, *, k: int = 10, seed: int = 0) -> None:
        """Find the true neighbours; `truth` is (n, q) with rows of unit length."""
        n = len(truth)
        self.k = min(k, n - 1)
        self.truth = truth
        self.query_rows = np.sort(np.random.default_rng(seed).permutation(n)[:_QUERIES])
        self._true = np.zeros((len(self.query_rows), n), dtype=bool)
        for start, top in self._tops(truth):
            np.put_along_axis(self._true[start : start + len(top)], top, True, axis=1)

    def overlap(self, predicted: Vectors, queries: Vectors | None = None) -> NDArray[np.float64]:
        """Share of the true top k that the predictions, (n, q) of unit length, also have; one value a query.

        The queries are the documents' true vectors, or `queries` in the space of `predicted`, (n, q).
        """
        shares = np.empty(len(self.query_rows))
        for start, top in self._tops(predicted, queries):
            hits = np.take_along_axis(self._true[start : start + len(top)], top, axis=1)
            shares[start : start + len(top)] = hits.mean(axis=1)
        return shares

    def _tops(self, documents: Vectors, queries: Vectors | None = None) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """Blocks of queries: where the block starts, and the k best documents of each query but itself."""
        queries = self.truth if queries is None else queries
        # The common mean changes no order, but costs precision where it dominates.
        documents = (documents - documents.mean(axis=0, dtype=np.float64)).astype(np.float32)
        for start in range(0, len(self.query_rows), _BLOCK):
            rows = self.query_rows[start : start + _BLOCK]
            similarities = queries[rows] @ documents.T
            similarities[np.arange(len(rows)), rows] = -np.inf
            yield start, np.argpartition(-similarities, self.k - 1, axis=1)[:, : self.k]


def standard_error(values: NDArray[np.float64]) -> float:
    """Standard error of the mean of some values, (n,); 0 for fewer than two."""
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0
