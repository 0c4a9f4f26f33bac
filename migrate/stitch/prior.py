"""What a regression may shrink towards, instead of nothing: a map from another corpus of the same two models.

A stitch that leans on a prior P is fitted to what a share of it leaves over: it predicts share * P(x) and a regression
of the residual. The share, 0 among others, is chosen by retrieval among predictions for pairs that were left out; the
prior has not seen any of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from migrate.stitch.text_features import Matrix
from migrate.vectors import Vectors

SHARES = (0.5, 1.0)
"""How much of a prior is tried, besides nothing."""


@dataclass(frozen=True, eq=False, slots=True)
class AffineMap:
    """`x @ matrix + offset`: a matrix (p, q) and an offset (q,)."""

    matrix: Matrix
    offset: Matrix

    def of(self, vectors: Vectors) -> Matrix:
        """The rows, (m, p), mapped to (m, q), float64."""
        return np.asarray(vectors @ self.matrix + self.offset)
