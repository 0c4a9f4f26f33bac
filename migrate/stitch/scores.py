"""Scores predicted vectors, at the length of true ones, by cosine, MSE, R², and retrieval inside the sample."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from migrate.vectors import Vectors, squared_norms, summarize_norms, unit_rows

_NORMAL = 1.96
"""Standard errors from a mean to each of its 95 % bounds."""

_RULE_OF_THREE = 3
"""What was not seen once in n times is no more than this over n, with 95 % confidence."""

_SAME_LENGTH = 1e-3
"""Difference of the longest and the shortest vector, in units of the mean length, up to which all are of one length."""

_LEAST_SHARE_OF_MEAN = 1 / 2
"""Share of the squared length that is the mean's, from which on predictions are put on the sphere.

It is 0.12 to 0.30 in all-MiniLM-L6-v2 and all-mpnet-base-v2, where nothing is gained, and 0.83 in
multilingual-e5-small.
"""

_MOST_STRETCH = 4
"""The most that a prediction is moved from the mean or towards it: of one that is nearly the mean itself the direction
is chance."""

_NEIGHBOURS = 10
"""Documents that a query is to find."""

_MOST_QUERIES = 1_000
"""Documents that serve as queries."""

_QUERIES_AT_ONCE = 256
"""Queries whose similarities to all documents are in memory at once."""


@dataclass(frozen=True, eq=False, slots=True)
class Sphere:
    """The sphere on which true vectors lie.

    A prediction that is not sure of itself lies nearer to the mean of true vectors than these do. Where that mean is
    most of every vector, scaling it to the common length makes it more of the mean yet, and so near to every query: a
    hub (Radovanović, Nanopoulos & Ivanović 2010). There the prediction is moved straight away from the mean, or towards
    it, up to the sphere; one that is right stays where it is.

    Attributes
    ----------
    mean : (q,) float32, of the true vectors
    radius : their length; None where they are of several, or their mean is too small a part of them to matter
    """

    mean: Vectors
    radius: float | None

    @classmethod
    def fit(cls, truth: Vectors) -> Self:
        """Learn from true vectors, (n, q); of none nothing is known, and their mean is 0."""
        if not len(truth):
            return cls(np.zeros(truth.shape[1], dtype=np.float32), None)
        mean = truth.mean(axis=0, dtype=np.float64).astype(np.float32)
        norms = summarize_norms(truth)
        is_sphere = norms.maximum - norms.minimum <= _SAME_LENGTH * norms.mean
        if is_sphere and mean @ mean >= _LEAST_SHARE_OF_MEAN * norms.mean**2:
            return cls(mean, norms.mean)
        return cls(mean, None)

    def of(self, predicted: Vectors, *, norm: float = 1.0, squares: Vectors | None = None) -> Vectors:
        """Predictions, (m, q), of the length `norm`, float32. The input is not changed.

        `squares` are their squared norms, (m,), where they are known already.
        """
        if self.radius is None:
            if norm == 1:
                return unit_rows(predicted)
            return np.float32(norm) * unit_rows(predicted)
        if squares is None:
            squares = squared_norms(predicted)
        squares = squares.astype(np.float64)
        along = (predicted @ self.mean).astype(np.float64)
        mean = float(self.mean @ self.mean)
        # |mean + s (predicted - mean)| = radius is a s² + 2 b s = c
        a = np.maximum(squares - 2 * along + mean, np.finfo(float).tiny)
        b = along - mean
        c = self.radius**2 - mean
        solution = (np.sqrt(np.maximum(b**2 + a * c, 0)) - b) / a
        stretch = np.clip(solution, 1 / _MOST_STRETCH, _MOST_STRETCH)
        # What was clipped lies beside the sphere, and is scaled to it
        lengths = np.sqrt((1 - stretch) ** 2 * mean + 2 * stretch * (1 - stretch) * along + stretch**2 * squares)
        scale = norm / np.maximum(lengths, np.finfo(float).tiny)
        rows = np.multiply(predicted, (stretch * scale).astype(np.float32)[:, None])
        rows += ((1 - stretch) * scale).astype(np.float32)[:, None] * self.mean
        return rows


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

    @property
    def overlap_half_width(self) -> float:
        """Half the distance between the 95 % bounds of the overlap."""
        return _NORMAL * self.overlap_error


def score_predictions(
    predicted: Vectors, truth: Vectors, shares: NDArray[np.float64], sphere: Sphere | None = None
) -> HeldOutScores:
    """Score raw predictions, (n, q), against the true vectors, (n, q).

    `shares` is `Neighbours.overlap` of the predictions, `sphere` where they are put before cosines are taken, if
    anywhere.
    """
    difference = predicted.astype(np.float64) - truth
    squared = float(np.einsum("ij,ij->", difference, difference))
    spread = float(np.square(truth - truth.mean(axis=0, dtype=np.float64)).sum())
    unit_predicted = unit_rows(predicted) if sphere is None else sphere.of(predicted)
    cosines = np.einsum("ij,ij->i", unit_predicted, unit_rows(truth))
    r2 = 0.0
    if spread > 0:
        r2 = 1 - squared / spread
    return HeldOutScores(
        cosine=float(cosines.mean(dtype=np.float64)),
        mse=squared / truth.size,
        r2=r2,
        overlap_at_10=float(shares.mean()),
        overlap_error=error_of_share(shares),
    )


class Neighbours:
    """Retrieval inside the sample: whether predicted vectors have the neighbours that the true ones have.

    A document's true vector plays the query, as new queries are embedded by the target model; all other documents
    are ranked once by their true vectors and once by their predicted ones. Up to 1,000 documents serve as queries.
    """

    def __init__(self, truth: Vectors, *, seed: int = 0) -> None:
        """Find the true neighbours by the cosines of true vectors, (n, q)."""
        n = len(truth)
        self.k = min(_NEIGHBOURS, n - 1)
        self.seed = seed
        self.truth = unit_rows(truth)
        self.sphere = Sphere.fit(truth)
        self.query_rows = np.sort(np.random.default_rng(seed).permutation(n)[:_MOST_QUERIES])
        # Found once, for all candidates: only their own neighbours differ
        tops = [_top(similarities, self.k) for _, similarities in self._similarities(self.truth)]
        self._true = np.concatenate(tops)

    def overlap(self, predicted: Vectors, queries: Vectors | None = None) -> NDArray[np.float64]:
        """Share of the true top k that raw predictions, (n, q), also have on the sphere; one value a query.

        The queries are the true vectors of the documents. With `queries`, (n, q), `predicted` are vectors of documents,
        both of unit length and in one other space.
        """
        if queries is None:
            # As a translated store has them
            predicted = self.sphere.of(predicted)
        shares = np.empty(len(self.query_rows))
        for start, similarities in self._similarities(predicted, queries):
            true = self._true[start : start + len(similarities)]
            shares[start : start + len(similarities)] = _hits(similarities, true, self.k).mean(axis=1)
        return shares

    def closeness(self, predicted: Vectors) -> NDArray[np.float64]:
        """Cosine of raw predictions, (n, q), on the sphere with the true vectors; one value a query.

        Both sides are centred, since what all documents have in common changes no order of them.
        """
        found = self.sphere.of(predicted).astype(np.float64)
        found -= found.mean(axis=0)
        true = self.truth.astype(np.float64)
        true -= true.mean(axis=0)
        products = np.einsum("ij,ij->i", found, true)
        lengths = np.linalg.norm(found, axis=1) * np.linalg.norm(true, axis=1)
        # A prediction that is the mean points nowhere
        cosines = products / np.maximum(lengths, np.finfo(np.float32).tiny)
        # float32 has no more digits, and rounding errors are not to decide between equally good stitches
        return np.asarray(cosines[self.query_rows].round(6))

    def _similarities(self, documents: Vectors, queries: Vectors | None = None) -> Iterator[tuple[int, Vectors]]:
        """Blocks of queries: where the block starts, and how similar each query is to each document but itself."""
        if queries is None:
            queries = self.truth
        # The common mean changes no order, but costs precision where it dominates.
        documents = (documents - documents.mean(axis=0, dtype=np.float64)).astype(np.float32)
        for start in range(0, len(self.query_rows), _QUERIES_AT_ONCE):
            rows = self.query_rows[start : start + _QUERIES_AT_ONCE]
            similarities = queries[rows] @ documents.T
            similarities[np.arange(len(rows)), rows] = -np.inf
            yield start, similarities


def _top(similarities: Vectors, k: int) -> NDArray[np.int64]:
    """The k best documents of each query, (m, k), in any order; `similarities` are (m, n)."""
    return np.argpartition(-similarities, k - 1, axis=1)[:, :k]


def _hits(similarities: Vectors, true: NDArray[np.int64], k: int) -> NDArray[np.bool_]:
    """Return which of the documents `true`, (m, j), are among the k best of each query.

    The k-th best similarity decides that, and is found in half the time of the k best documents. Only where others are
    as similar as the k-th best does it not say which of them are among the k.
    """
    n = similarities.shape[1]
    least = np.partition(similarities, n - k, axis=1)[:, n - k, None]
    hits = np.take_along_axis(similarities, true, axis=1) >= least
    for row in np.flatnonzero(np.count_nonzero(similarities >= least, axis=1) > k):
        hits[row] = np.isin(true[row], _top(similarities[[row]], k))
    return hits


def standard_error(values: NDArray[np.float64]) -> float:
    """Standard error of the mean of some values, (n,); 0 for fewer than two."""
    if len(values) < 2:
        return 0.0
    return float(values.std(ddof=1) / np.sqrt(len(values)))


def error_of_share(shares: NDArray[np.float64]) -> float:
    """Standard error of the mean of some shares, (n,), 0-1, never 0.

    Where all are the same they do not show how far off others are: the bounds are 3 / n from them then, as far as the
    share of what was not seen once in n times may be (Hanley & Lippman-Hand 1983).
    """
    if np.ptp(shares):
        return standard_error(shares)
    return _RULE_OF_THREE / _NORMAL / len(shares)
