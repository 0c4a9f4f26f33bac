"""The stitches ols and lowrank: least squares without a penalty, and a ridge of few directions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Self

import numpy as np

from migrate.stitch.affine import AffineMap
from migrate.stitch.base import StretchableStitch, centred, check_pairs
from migrate.stitch.linear import (
    RELATIVE_GRID,
    Affine,
    Ridge,
    RidgePath,
    mapped,
    narrow,
    retrieval_loss,
    ridge_path,
    thin_svd,
)
from migrate.stitch.text_features import Matrix, TextRows
from migrate.vectors import Vectors


class OrdinaryLeastSquares(Affine):
    """Least squares without a penalty; the minimum-norm solution where pairs are fewer than dimensions."""

    kind: ClassVar[str] = "ols"
    cost: ClassVar[int] = 3

    def solve(self, x: Matrix, y: Matrix, mean: Matrix) -> Matrix:
        """The pseudo-inverse of x times y, by a QR decomposition, which is faster than by singular values."""
        from scipy.linalg import lstsq

        # Where NumPy's `lstsq` cuts off too
        least = np.finfo(np.float64).eps * max(x.shape)
        return np.asarray(lstsq(x, y, cond=least, lapack_driver="gelsy", check_finite=False)[0], dtype=np.float64)


class LowRank(StretchableStitch):
    """Ridge whose fitted values are projected on their leading directions (Mukherjee & Zhu 2011).

    Without a rank, powers of two are tried and the one with the least leave-one-out error is kept; the projection
    itself is not left out, which favours no rank by more than a row's share in it.
    """

    kind: ClassVar[str] = "lowrank"
    options: ClassVar[Sequence[str]] = ("lowrank:RANK",)
    cost: ClassVar[int] = 4
    learned: ClassVar[Sequence[str]] = ("down", "up", "offset")
    down_: Vectors
    up_: Vectors
    offset_: Vectors

    @classmethod
    def from_option(cls, option: str | None) -> Self | None:
        """`lowrank`, or `lowrank:RANK` with a rank from 1 on."""
        if option is None:
            return cls()
        if not option.isdecimal() or int(option) == 0:
            return None
        return cls(int(option))

    def __init__(self, rank: int | None = None, penalties: Matrix = RELATIVE_GRID) -> None:
        self.rank = rank
        self.penalties = penalties

    def tuned(self, source: Vectors, target: Vectors, texts: TextRows | None = None) -> Self:
        """One of the same rank with the one penalty that is best for a ridge of these pairs."""
        return type(self)(self.rank, Ridge().tuned(source, target).penalties)

    @property
    def spec(self) -> str:
        """`lowrank`, or `lowrank:RANK`."""
        if self.rank is None:
            return self.kind
        return f"{self.kind}:{self.rank}"

    def fit(self, source: Vectors, target: Vectors, texts: TextRows | None = None) -> Self:
        """Solve the ridge problem and keep the leading directions of what it fits."""
        check_pairs(source, target)
        x, source_mean = centred(source)
        y, target_mean = centred(target)
        path = ridge_path(x, y, loss=retrieval_loss(y, target_mean), relative=self.penalties)
        directions = thin_svd(x @ path.coefficients)[2].T
        up = directions[:, : self._choose_rank(path, y, directions)]
        down = path.coefficients @ up
        self.down_ = down.astype(np.float32)
        self.up_ = up.T.astype(np.float32)
        self.offset_ = (target_mean - (source_mean @ down) @ up.T).astype(np.float32)
        return self

    def _choose_rank(self, path: RidgePath, y: Matrix, directions: Matrix) -> int:
        full = int(directions.shape[1])
        if self.rank is not None:
            return min(self.rank, full)
        # Directions are orthonormal, so the error of rank r splits into what is fitted inside and what is left out.
        inside, energy = (np.square(rows @ directions).sum(axis=0) for rows in (path.loo_residuals, y))
        gain = np.cumsum(inside - energy)
        ranks = [1 << power for power in range(3, 16) if 1 << power < full] + [full]
        return min(ranks, key=lambda rank: float(gain[rank - 1]))

    def transform(self, vectors: Vectors, texts: TextRows | None = None) -> Vectors:
        """Down to the rank, and up to the target dimension."""
        return mapped(vectors @ self.down_, self.up_, self.offset_)

    def affine(self, dim: int) -> AffineMap:
        """Return the product of the way down and the way up."""
        return AffineMap(self.down_.astype(np.float64) @ self.up_, self.offset_.astype(np.float64))

    def stretch(self, spread: AffineMap) -> Self:
        """Multiply the way up and the offset."""
        self.up_ = (self.up_ @ spread.matrix).astype(np.float32)
        self.offset_ = narrow(spread.of(self.offset_))
        return self

    def kind_facts(self) -> dict[str, float]:
        """The rank that was kept."""
        if not hasattr(self, "down_"):
            return {}
        return {"rank": float(self.down_.shape[1])}
