"""Ridge regression for many λ from one decomposition, with the exact leave-one-out error of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from migrate.stitch.base import Matrix

RELATIVE_GRID = np.logspace(-4, 2, 13)
"""The default λ grid, in units of the mean non-zero eigenvalue of the centred Gram matrix."""


@dataclass(frozen=True)
class RidgePath:
    """Ridge solutions over a λ grid, for centred pairs X (n, p) and Y (n, q).

    The intercept is not penalised: centring solves it exactly, and it puts 1/n into the leverage of every row. The
    leave-one-out residual of a linear smoother is r_i / (1 - h_ii), exactly (Allen 1974, PRESS; Hastie, Tibshirani &
    Friedman 2009, eq. 7.64); means and all are refitted without row i.

    Attributes
    ----------
    lambdas : (l,)
    loo_mse : (l,) mean over rows and target columns of the squared leave-one-out residual
    best : index of the λ with the least loss
    coefficients : (p, q) of the best λ
    loo_residuals : (n, q) of the best λ
    """

    lambdas: Matrix
    loo_mse: Matrix
    best: int
    coefficients: Matrix
    loo_residuals: Matrix

    @property
    def best_lambda(self) -> float:
        """The λ with the least leave-one-out loss."""
        return float(self.lambdas[self.best])


Loss = Callable[[Matrix], float]
"""What a λ is judged by: a number from the leave-one-out residuals, (n, q); less is better."""


def mean_square(residuals: Matrix) -> float:
    """Mean over rows and columns of the squared residual."""
    return float(np.einsum("ij,ij->", residuals, residuals)) / residuals.size


def ridge_path(
    x: Matrix, y: Matrix, lambdas: Matrix | None = None, *, loss: Loss = mean_square, relative: Matrix = RELATIVE_GRID
) -> RidgePath:
    """Solve the ridge problem for each λ and keep the one with the least `loss`, then with the least MSE.

    Without `lambdas` these are `relative` ones, in units of the mean non-zero eigenvalue.

    `x`, (n, p), and `y`, (n, q), are centred, n >= 2. One symmetric eigendecomposition, of XᵀX where n > p and of XXᵀ
    otherwise, serves all λ.
    """
    solve = _primal if len(x) > x.shape[1] else _dual
    return solve(x, y, _Grid(lambdas, relative), loss)


@dataclass(frozen=True)
class _Grid:
    """The λs to try, as they are or in units of the mean non-zero eigenvalue."""

    lambdas: Matrix | None
    relative: Matrix

    def of(self, eigenvalues: Matrix, rank: int) -> Matrix:
        if self.lambdas is not None:
            return np.asarray(self.lambdas, dtype=np.float64)
        scale = eigenvalues.sum() / max(rank, 1)
        return np.asarray(self.relative, dtype=np.float64) * (scale if scale > 0 else 1.0)


def _primal(x: Matrix, y: Matrix, lambdas: _Grid, loss: Loss) -> RidgePath:
    n, p = x.shape
    eigenvalues, basis = np.linalg.eigh(x.T @ x)
    eigenvalues = np.maximum(eigenvalues, 0)
    scores = x @ basis
    moments = scores.T @ y
    squares = scores**2
    grid = lambdas.of(eigenvalues, min(n - 1, p))

    def residuals(penalty: float) -> Matrix:
        shrink = 1 / (eigenvalues + penalty)
        slack = 1 - 1 / n - squares @ shrink
        rest: Matrix = scores @ (moments * -shrink[:, None])
        rest += y
        rest /= slack[:, None]
        return rest

    loo_mse, best, kept = _search(grid, residuals, loss)
    coefficients = basis @ (moments / (eigenvalues + grid[best])[:, None])
    return RidgePath(grid, loo_mse, best, coefficients, kept)


def _dual(x: Matrix, y: Matrix, lambdas: _Grid, loss: Loss) -> RidgePath:
    n, p = x.shape
    eigenvalues, basis = np.linalg.eigh(x @ x.T)
    eigenvalues = np.maximum(eigenvalues, 0)
    moments = basis.T @ y
    squares = basis**2
    grid = lambdas.of(eigenvalues, min(n - 1, p))

    def residuals(penalty: float) -> Matrix:
        # Both parts of the quotient vanish with λ, so neither may be a difference of larger numbers: I - H is
        # written with the factors λ/(e+λ). The constant vector has eigenvalue 0 and factor 1, but belongs to the
        # intercept: its 1/n leaves the denominator, and it is orthogonal to the centred y.
        keep = penalty / (eigenvalues + penalty)
        slack = squares @ keep - 1 / n
        rest: Matrix = basis @ (moments * keep[:, None])
        rest /= slack[:, None]
        return rest

    loo_mse, best, kept = _search(grid, residuals, loss)
    coefficients = x.T @ (basis @ (moments / (eigenvalues + grid[best])[:, None]))
    return RidgePath(grid, loo_mse, best, coefficients, kept)


def _search(grid: Matrix, residuals: Callable[[float], Matrix], loss: Loss) -> tuple[Matrix, int, Matrix]:
    """Leave-one-out MSE of each λ, the index of the best, and its residuals; ties go to the larger λ."""
    loo_mse = np.empty(len(grid))
    best, best_loss = 0, (np.inf, np.inf)
    kept = np.empty(0)
    for index, penalty in enumerate(grid):
        rest = residuals(float(penalty))
        loo_mse[index] = mean_square(rest)
        found = (loss(rest), float(loo_mse[index]))
        if found <= best_loss:
            best, best_loss, kept = index, found, rest
    return loo_mse, best, kept
