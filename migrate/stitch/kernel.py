"""Kernel ridge regression with an intercept: exact leave-one-out for any penalty, and the posterior variance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from migrate.stitch.base import Matrix

_LEAST_SPREAD = 1e-6
"""Of the mean diagonal: what spreads less is rounding, as inner products are taken in float32."""


@dataclass(frozen=True, eq=False)
class Solution:
    """The solution for one penalty.

    Attributes
    ----------
    alpha : (n, q), columns sum to 0: the prediction is `mean + k(x) @ alpha - means @ alpha`
    residuals : (n, q) exact leave-one-out residuals, intercept and all refitted without the row
    """

    alpha: Matrix
    residuals: Matrix


@dataclass(frozen=True, eq=False)
class KernelSystem:
    """A Gram matrix (n, n), not centred, and the targets (n, q).

    The intercept is not penalised. It is solved exactly by centring both sides; that leaves the constant vector in
    the null space of the Gram matrix, where it would fake leave-one-out errors near 0 for small penalties, so its
    share is taken out of the diagonal of the inverse (Rifkin & Lippert 2007, "Notes on regularized least squares",
    for the leave-one-out formula without intercept). That share would be 1/(n λ), in which what is left would drown;
    the constant vector gets the mean eigenvalue first, which changes nothing else.
    """

    gram: Matrix
    target: Matrix

    @cached_property
    def means(self) -> Matrix:
        """Row means of the Gram matrix, (n,)."""
        return np.asarray(self.gram.mean(axis=0))

    @cached_property
    def mean(self) -> Matrix:
        """Mean of the targets, (q,)."""
        return np.asarray(self.target.mean(axis=0))

    @cached_property
    def centred(self) -> Matrix:
        """The Gram matrix of the centred features."""
        return np.asarray(self.gram - self.means - self.means[:, None] + self.means.mean())

    def solve(self, penalty: float) -> Solution:
        """Solve for one penalty λ > 0: one Cholesky factor, one triangular inverse."""
        from scipy.linalg import cho_solve
        from scipy.linalg.lapack import dpotrf, dtrtri

        n = len(self.gram)
        constant = float(np.trace(self.centred)) / n
        shifted = np.array(self.centred + constant / n, order="F")
        shifted[np.diag_indices_from(shifted)] += penalty
        factor, _ = dpotrf(shifted, lower=1, overwrite_a=1, clean=1)
        alpha = cho_solve((factor, True), self.target - self.mean)
        inverse, _ = dtrtri(factor, lower=1)
        diagonal = np.einsum("ij,ij->j", inverse, inverse) - 1 / (n * (constant + penalty))
        return Solution(alpha, alpha / diagonal[:, None])

    def coefficients(self, penalty: float) -> Matrix:
        """The coefficients of `solve` alone, (n, q), at a third of the work."""
        from scipy.linalg import cho_factor, cho_solve

        shifted = self.centred.copy()
        shifted[np.diag_indices_from(shifted)] += penalty
        factor = cho_factor(shifted, lower=True, overwrite_a=True)
        return np.asarray(cho_solve(factor, self.target - self.mean))

    def directions(self, penalty: float, count: int) -> Matrix:
        """Columns D, (n, r), with `k(x) D` giving what the leading directions explain of a document's variance.

        The posterior variance of x is k_c(x, x) - |(k(x) - means) D|², from above: directions beyond the first
        `count` are left out (Rasmussen & Williams 2006, eq. 2.26, up to the noise).
        """
        from sklearn.utils.extmath import randomized_svd

        basis, values, _ = randomized_svd(self.centred, min(count, len(self.gram) - 1), n_iter=2, random_state=0)
        basis -= basis.mean(axis=0)  # directions without variance are any, even the constant one
        return np.asarray(basis / np.sqrt(values + penalty))


def combined(grams: Sequence[Matrix], weights: Sequence[float]) -> Matrix:
    """The weighted sum of Gram matrices; those of weight 0 are not touched."""
    total = np.zeros_like(grams[0])
    for matrix, weight in zip(grams, weights, strict=True):
        if weight:
            total += weight * matrix
    return total


def spread(matrix: Matrix) -> float:
    """Mean diagonal of the centred Gram matrix: what a view is divided by, so that weights mean something.

    1 where the rows are all the same, but for rounding.
    """
    diagonal = float(np.trace(matrix) / len(matrix))
    found = diagonal - float(matrix.mean())
    return found if found > _LEAST_SPREAD * diagonal else 1.0
