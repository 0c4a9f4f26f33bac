"""Affine maps, and the one that stretches predictions.

A regression shrinks most what it predicts worst, which are the finer distinctions: directions of the target space in
which documents differ little. Documents are alike in them, so that their neighbours hardly notice; queries are more
specific, and do. So `fit_spread` gives predictions the spread of true vectors, direction by direction.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from migrate.stitch.text_features import Matrix
from migrate.vectors import Vectors

_MOST_STRETCH = 10.0
"""The most that a direction is stretched or shrunk."""

_STRETCH_POWER = 1.25
"""A higher power gains nDCG@10 and loses overlap@10; up to here hardly any of the latter."""

_STRETCHED = 300
"""Pairs from which on all of it is; below, the power is less by as much as they are fewer. The weakest directions are
stretched most, and few pairs do not show how far."""

_LEAST_VARIANCE = 1e-6
"""Share of the largest variance below which a direction is rounding error."""


@dataclass(frozen=True, eq=False, slots=True)
class AffineMap:
    """`x @ matrix + offset`: a matrix (p, q) and an offset (q,)."""

    matrix: Matrix
    offset: Matrix

    def of(self, vectors: Vectors) -> Matrix:
        """Return the rows, (m, p), mapped to (m, q), float64."""
        return np.asarray(vectors @ self.matrix + self.offset)


def fit_spread(predicted: Vectors, truth: Vectors) -> AffineMap:
    """Fit the map that stretches held-out predictions, (n, q), along the principal directions of true vectors, (n, q).

    Along each they get the standard deviation that the true vectors have there, about the same mean, and a little more:
    queries ask for what tells documents apart. Where predictions are right it changes nothing. By few pairs they
    are stretched less.
    """
    true = truth.astype(np.float64)
    mean = true.mean(axis=0)
    true -= mean
    variances, directions = _principal(true)
    spread = np.square((predicted - mean) @ directions).sum(axis=0)
    # Bounded, so that a direction of which nothing is predicted is not blown up from noise
    shortfall = np.sqrt(variances / np.maximum(spread, variances / _MOST_STRETCH**2))
    power = _STRETCH_POWER * min(len(truth) / _STRETCHED, 1)
    stretch = np.clip(shortfall**power, 1 / _MOST_STRETCH, _MOST_STRETCH)
    matrix = np.eye(len(mean)) + (directions * (stretch - 1)) @ directions.T
    return AffineMap(matrix, mean - mean @ matrix)


def _principal(centred: Matrix) -> tuple[Matrix, Matrix]:
    """Return the variances along the principal directions of rows, (r,), times their number, and these, (q, r).

    By the smaller one of the two Gram matrices, which have the same eigenvalues: few pairs of many dimensions are
    quick.
    """
    is_wide = len(centred) < centred.shape[1]
    gram = centred @ centred.T if is_wide else centred.T @ centred
    variances, vectors = np.linalg.eigh(gram)
    # Directions with less hold rounding errors
    significant = variances > _LEAST_VARIANCE * max(float(variances[-1]), np.finfo(float).tiny)
    variances = variances[significant]
    vectors = vectors[:, significant]
    if is_wide:
        return variances, centred.T @ (vectors / np.sqrt(variances))
    return variances, vectors
