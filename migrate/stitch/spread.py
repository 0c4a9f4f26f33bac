"""Gives predictions the spread of true vectors, direction by direction.

A regression shrinks most what it predicts worst, which are the finer distinctions: directions of the target space in
which documents differ little. Documents are alike in them, so that their neighbours hardly notice; queries are more
specific, and do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from migrate.stitch.text_features import Matrix
from migrate.vectors import Vectors

_LEAST_VARIANCE = 1e-6
"""Of the greatest: directions with less hold rounding errors."""

_LIMIT = 10.0

_BEYOND = 1.25
"""The power of the stretch. More of it gains nDCG@10 and loses overlap@10; up to here hardly any of the latter."""


@dataclass(frozen=True, eq=False, slots=True)
class Spread:
    """The affine map `x @ matrix + offset` that stretches held-out predictions along the target's principal directions.

    Along each they get the standard deviation that the true vectors have there, about the same mean, and a little more:
    queries ask for what tells documents apart. Where predictions are right it changes nothing.

    Attributes
    ----------
    matrix : (q, q)
    offset : (q,)
    """

    matrix: Matrix
    offset: Matrix

    @classmethod
    def fit(cls, predicted: Vectors, truth: Vectors) -> Self:
        """Learn from predictions for pairs that they were not fitted on, (n, q), and their true vectors, (n, q)."""
        true = truth.astype(np.float64)
        mean = true.mean(axis=0)
        true -= mean
        variances, directions = _principal(true)
        found = np.square((predicted - mean) @ directions).sum(axis=0)
        shortfall = np.sqrt(variances / np.maximum(found, variances / _LIMIT**2))
        stretch = np.clip(shortfall**_BEYOND, 1 / _LIMIT, _LIMIT)
        matrix = np.eye(len(mean)) + (directions * (stretch - 1)) @ directions.T
        return cls(matrix, mean - mean @ matrix)

    def of(self, vectors: Vectors) -> Vectors:
        """The vectors, (m, q), stretched."""
        return np.asarray(vectors @ self.matrix + self.offset, dtype=np.float32)


def _principal(centred: Matrix) -> tuple[Matrix, Matrix]:
    """The variances along the principal directions of some rows, (r,), times their number, and the directions, (q, r).

    By the smaller one of the two Gram matrices, which have the same eigenvalues: few pairs of many dimensions are
    quick.
    """
    few = len(centred) < centred.shape[1]
    variances, directions = np.linalg.eigh(centred @ centred.T if few else centred.T @ centred)
    kept = variances > _LEAST_VARIANCE * max(float(variances[-1]), np.finfo(float).tiny)
    variances, directions = variances[kept], directions[:, kept]
    return variances, centred.T @ (directions / np.sqrt(variances)) if few else directions
