"""Confidence in translated vectors: the cosine to expect with true ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from migrate.stitch.base import Prediction
from migrate.stitch.scores import Sphere
from migrate.stitch.text_features import Matrix
from migrate.stores.confidence import LEAST_SPEARMAN
from migrate.vectors import Vectors, squared_norms, unit_rows

_WORST = 0.1
"""The share of the least confident pairs whose error is told."""


@dataclass(frozen=True, slots=True)
class Confidence:
    """The expected cosine as a linear function of a prediction's norm and variances.

    A raw prediction far from the sample shrinks towards the mean, so its norm is small and its posterior variance,
    which for a stitch of vectors alone is the leverage (`migrate.stitch.reach`), is large. All cost next to
    nothing. The coefficients are fitted on predictions for held-out pairs.

    Attributes
    ----------
    coefficients : constant, of the norm, of the variance and of the prior variance (0 where the stitch has none);
        stitches that were saved before there was a prior have three
    spearman : rank correlation of the confidence with the true cosine, on held-out pairs
    worst_share : share of the squared error that the least confident tenth of held-out pairs has
    lowest, usual : the 1st and the 50th percentile on held-out pairs: documents below `lowest` are outside the sample
    """

    coefficients: tuple[float, ...]
    spearman: float
    worst_share: float
    lowest: float
    usual: float

    @classmethod
    def fit(cls, prediction: Prediction, truth: Vectors) -> Self:
        """Learn from predictions for held-out pairs, (n, q), and their true vectors, (n, q).

        The quality is measured on each half of the pairs with coefficients fitted on the other half.
        """
        cosine = _cosines(prediction.vectors, truth)
        signals = _signals(prediction)
        # Judged by coefficients of the other half: on the pairs that they were fitted on they would look too good
        half = np.random.default_rng(0).permutation(len(cosine)) % 2 == 0
        judged = np.empty(len(cosine))
        for fold in (half, ~half):
            judged[fold] = signals[fold] @ _least_squares(signals[~fold], cosine[~fold])
        error = np.maximum(2 - 2 * cosine, 0)  # rounding takes a cosine beyond 1
        n_worst = max(round(_WORST * len(error)), 1)
        worst = np.argsort(judged, kind="stable")[:n_worst]
        coefficients = tuple(_least_squares(signals, cosine).tolist())
        lowest, usual = np.percentile(judged, [1, 50]).tolist()
        share = 0.0
        if error.sum() > 0:
            share = float(error[worst].sum() / error.sum())
        return cls(coefficients, spearman(judged, cosine), share, lowest, usual)

    @property
    def is_usable(self) -> bool:
        """True if it tells good predictions from bad ones: see `LEAST_SPEARMAN`."""
        return self.spearman >= LEAST_SPEARMAN

    def of(self, prediction: Prediction, squares: Vectors | None = None) -> Vectors:
        """The expected cosine of each prediction, (m,), float32, from -1 to just below 1, which true vectors have.

        `squares` are the squared norms of its vectors, (m,), where they are known already.
        """
        # Stitches that were saved before there was a prior have three coefficients
        signals = _signals(prediction, squares)[:, : len(self.coefficients)]
        cosines = signals @ np.array(self.coefficients)
        # A confidence of 1 is how stores mark a true vector
        below_one = np.nextafter(np.float32(1), np.float32(0))
        return np.asarray(np.clip(cosines.astype(np.float32), np.float32(-1), below_one))


def _signals(prediction: Prediction, squares: Vectors | None = None) -> Matrix:
    """Constant, norm, variance and prior variance of each prediction, (m, 4)."""
    if squares is None:
        squares = squared_norms(prediction.vectors)
    norms = np.sqrt(squares.astype(np.float64))
    signals = [np.ones(len(norms)), norms]
    for values in (prediction.variance, prediction.prior):
        if values is None:
            signals.append(np.zeros(len(norms)))
        else:
            signals.append(values.astype(np.float64))
    return np.column_stack(signals)


def _least_squares(signals: Matrix, cosine: Matrix) -> Matrix:
    return np.asarray(np.linalg.lstsq(signals, cosine, rcond=None)[0])


def _cosines(predicted: Vectors, truth: Vectors) -> Matrix:
    return np.asarray(np.einsum("ij,ij->i", Sphere.fit(truth).of(predicted), unit_rows(truth)), dtype=np.float64)


def ranks(values: Matrix) -> Matrix:
    """Ranks of a series, (n,), from 1; equal values share the mean of theirs.

    As `scipy.stats.rankdata`, which takes half a second to import.
    """
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2)[inverse])


def spearman(x: Matrix, y: Matrix) -> float:
    """Spearman's rank correlation of two series, (n,); 0 where one of them is constant."""
    x_ranks = ranks(x)
    x_ranks -= x_ranks.mean()
    y_ranks = ranks(y)
    y_ranks -= y_ranks.mean()
    scale = float(np.sqrt((x_ranks @ x_ranks) * (y_ranks @ y_ranks)))
    if not scale > 0:
        return 0.0
    return float(x_ranks @ y_ranks) / scale
