"""Predictions at the length of true vectors; for models all of whose vectors point the same way, about their mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from migrate.vectors import Vectors, squared_norms, summarize_norms, unit_rows

_DOMINANT = 0.5
"""Share of the squared length of true vectors that their mean has, from which on it counts. It is 0.12 to 0.30 in
all-MiniLM-L6-v2 and all-mpnet-base-v2, where nothing is gained, and 0.83 in multilingual-e5-small."""

_EQUAL = 1e-3
"""Relative difference of lengths up to which vectors lie on a sphere."""

_MOST = 4.0
"""What the deviation from the mean is stretched or shrunk by at most: of a prediction that is nearly the mean itself
the direction is chance."""


@dataclass(frozen=True, eq=False, slots=True)
class Sphere:
    """Where true vectors lie.

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
        is_sphere = norms.maximum - norms.minimum <= _EQUAL * norms.mean
        return cls(mean, norms.mean if is_sphere and mean @ mean >= _DOMINANT * norms.mean**2 else None)

    def of(self, predicted: Vectors, *, norm: float = 1.0, squares: Vectors | None = None) -> Vectors:
        """Predictions, (m, q), of the length `norm`, float32. The input is not changed.

        `squares` are their squared norms, (m,), where they are known already.
        """
        if self.radius is None:
            return unit_rows(predicted) if norm == 1 else np.float32(norm) * unit_rows(predicted)
        squares = (squared_norms(predicted) if squares is None else squares).astype(np.float64)
        along, mean = (predicted @ self.mean).astype(np.float64), float(self.mean @ self.mean)
        # |mean + s (predicted - mean)| = radius is a s² + 2 b s = c
        a, b, c = np.maximum(squares - 2 * along + mean, np.finfo(float).tiny), along - mean, self.radius**2 - mean
        stretch = np.clip((np.sqrt(np.maximum(b**2 + a * c, 0)) - b) / a, 1 / _MOST, _MOST)
        lengths = np.sqrt((1 - stretch) ** 2 * mean + 2 * stretch * (1 - stretch) * along + stretch**2 * squares)
        scale = norm / np.maximum(lengths, np.finfo(float).tiny)
        rows = np.multiply(predicted, (stretch * scale).astype(np.float32)[:, None])
        rows += ((1 - stretch) * scale).astype(np.float32)[:, None] * self.mean
        return rows
