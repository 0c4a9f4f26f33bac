"""What a regression may shrink towards, instead of nothing: a rotation of the old space, or a map from elsewhere.

A stitch with a base is fitted to what the base leaves over: it predicts B(x) and a regression of the residual. How
much of which base is used, if any, is chosen by retrieval among predictions for pairs that neither the base nor the
regression has seen.

    rotation   Procrustes on the same pairs: right where two models mean the same
    prior      the map of a stitch that was fitted on another corpus of the same two models
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from migrate.stitch.text_features import Matrix
from migrate.vectors import Vectors

ROTATION, PRIOR = "rotation", "prior"

SHARES: Mapping[str, tuple[float, ...]] = {ROTATION: (0.5,), PRIOR: (0.5, 1.0)}
"""How much of a base is tried: all of a rotation was never better than half of it."""

_FOLDS = 5


@dataclass(frozen=True, eq=False, slots=True)
class AffineMap:
    """`x @ matrix + offset`: a matrix (p, q) and an offset (q,)."""

    matrix: Matrix
    offset: Matrix

    def of(self, vectors: Vectors) -> Matrix:
        """The rows, (m, p), mapped to (m, q), float64."""
        return np.asarray(vectors @ self.matrix + self.offset)

    def times(self, share: float) -> AffineMap:
        """A share of all that it maps to."""
        return AffineMap(self.matrix * share, self.offset * share)


def rotation(source: Vectors, target: Vectors) -> AffineMap:
    """Rotation, scale and shift from pairs, (n, p) and (n, q): see `migrate.stitch.linear.Procrustes`."""
    x, y = source.astype(np.float64), target.astype(np.float64)
    source_mean, target_mean = x.mean(axis=0), y.mean(axis=0)
    x -= source_mean
    y -= target_mean
    matrix = rotation_of(x, y)
    return AffineMap(matrix, target_mean - source_mean @ matrix)


def rotation_of(x: Matrix, y: Matrix) -> Matrix:
    """The matrix, (p, q), for centred pairs: scale times U Vᵀ, from the singular value decomposition U S Vᵀ of xᵀy."""
    left, singular, right = np.linalg.svd(x.T @ y, full_matrices=False)
    spread = float(np.einsum("ij,ij->", x, x))
    scale = singular.sum() / spread if spread > 0 else 0.0
    matrix: Matrix = scale * (left @ right)
    return matrix


@dataclass(frozen=True, slots=True)
class Leaning:
    """The base that a stitch leans on, and how much of it."""

    base: str
    share: float


@dataclass(frozen=True, eq=False)
class Bases:
    """The bases that there are for some pairs, (n, p) and (n, q); `saved` is the map from elsewhere."""

    source: Vectors
    target: Vectors
    saved: AffineMap | None = None
    _held_out: dict[str, Matrix] = field(default_factory=dict, init=False, repr=False)

    @property
    def leanings(self) -> list[Leaning]:
        """Those worth trying."""
        names = [ROTATION] if self.saved is None else [ROTATION, PRIOR]
        return [Leaning(name, share) for name in names for share in SHARES[name]]

    def final(self, leaning: Leaning) -> AffineMap:
        """The base itself, learned from all pairs."""
        return self._fit(leaning.base, np.arange(len(self.source))).times(leaning.share)

    def held_out(self, leaning: Leaning) -> Matrix:
        """What it predicts for each pair when it has not seen it, (n, q)."""
        if leaning.base not in self._held_out:
            self._held_out[leaning.base] = self._predict_held_out(leaning.base)
        return self._held_out[leaning.base] * leaning.share

    def without(self, leaning: Leaning, fit_rows: NDArray[np.int64], held_out: NDArray[np.int64]) -> Matrix:
        """What it predicts for the pairs in `held_out` when it has seen those in `fit_rows`."""
        return self._fit(leaning.base, fit_rows).times(leaning.share).of(self.source[held_out])

    def _fit(self, base: str, rows: NDArray[np.int64]) -> AffineMap:
        if base == PRIOR and self.saved is not None:
            return self.saved
        return rotation(self.source[rows], self.target[rows])

    def _predict_held_out(self, base: str) -> Matrix:
        every = np.arange(len(self.source))
        predicted = np.empty(self.target.shape)
        for rows in np.array_split(np.random.default_rng(0).permutation(len(every)), min(_FOLDS, len(every))):
            rest = np.setdiff1d(every, rows)
            predicted[rows] = self._fit(base, rest).of(self.source[rows])
        return predicted
