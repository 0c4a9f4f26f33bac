"""The distance of an old vector from the sample: the variance of stitches that have none of their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from migrate.vectors import Vectors, squared_norms

DIRECTIONS = 64
"""Leading directions that a variance is made of: a sixth of the work of a map between 384 dimensions."""

_RELATIVE_PENALTY = 0.03
"""Penalty in units of the mean non-zero eigenvalue, as λ of ridge; between 0.001 and 0.1 it hardly matters."""

_LEAST_EIGENVALUE = 1e-10
"""Share of the total variance below which an eigenvalue is rounding error."""


@dataclass(frozen=True, eq=False, slots=True)
class Reach:
    """The posterior variance of linear regression at an old vector: its leverage, without the noise term.

    With z the centred vector and λ the penalty, |z|² is the variance before any pair is seen, and
    λ zᵀ(XᵀX + λI)⁻¹z = |z|² - Σ eᵢ/(eᵢ + λ) (vᵢᵀz)² what the pairs leave of it (Rasmussen & Williams 2006, eq. 2.11).
    Of the eigenvectors vᵢ the first `DIRECTIONS` are kept, so that it errs above.

    Attributes
    ----------
    mean : (p,) float32, mean of the sample
    directions : (p, r) float32, eigenvectors of the centred sample, each times the root of e/(e + λ)
    scale : (1,) float32, mean |z|² over the sample, which is the unit of both variances
    """

    mean: Vectors
    directions: Vectors
    scale: Vectors

    @classmethod
    def fit(cls, source: Vectors) -> Self:
        """Learn the region of the sample, (n, p), n >= 1."""
        from scipy.linalg import eigh

        n, p = source.shape
        rows = source.astype(np.float64)
        mean = rows.mean(axis=0)
        rows -= mean
        primal = n > p
        gram = rows.T @ rows if primal else rows @ rows.T  # the smaller of the two, of the same eigenvalues
        size = len(gram)
        values, vectors = eigh(gram, subset_by_index=(max(size - DIRECTIONS, 0), size - 1))
        total = float(np.trace(gram))
        significant = values > _LEAST_EIGENVALUE * total
        values = values[significant]
        basis = vectors[:, significant]
        if not primal:
            basis = rows.T @ (basis / np.sqrt(values))
        penalty = _RELATIVE_PENALTY * total / max(min(n - 1, p), 1)
        shrunken = basis * np.sqrt(values / (values + penalty))
        scale = np.array([total / n or 1.0])
        # in the order of what is loaded again: a product of another order differs in the last bit
        directions = np.ascontiguousarray(shrunken, dtype=np.float32)
        return cls(mean.astype(np.float32), directions, scale.astype(np.float32))

    def of(self, vectors: Vectors) -> tuple[Vectors, Vectors]:
        """Return the rest that the pairs leave of the variance at vectors, (m, p), and all of it: (m,) each."""
        # one product with the mean as a last column is faster than centring all rows first
        along: Vectors = vectors @ np.column_stack([self.directions, self.mean])
        inside = along[:, :-1]
        inside -= self.mean @ self.directions
        squares: Vectors = squared_norms(vectors) - 2 * along[:, -1] + self.mean @ self.mean
        prior = np.divide(squares.clip(0), self.scale, dtype=np.float32)
        explained: Vectors = squared_norms(inside) / self.scale
        return prior - explained, prior

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays to save."""
        return {f"reach.{name}": getattr(self, name) for name in self.__dataclass_fields__}

    @classmethod
    def restore(cls, arrays: Mapping[str, NDArray[Any]]) -> Self | None:
        """Take back what `arrays` gave; None where a stitch was saved without."""
        names = [f"reach.{name}" for name in cls.__dataclass_fields__]
        if not any(name in arrays for name in names):
            return None
        mean, directions, scale = (arrays[name] for name in names)
        if directions.shape[:1] != mean.shape or scale.shape != (1,) or not scale[0] > 0:
            raise ValueError(f"mean {mean.shape}, directions {directions.shape} and scale {scale.shape} of a reach")
        return cls(mean, directions, scale)
