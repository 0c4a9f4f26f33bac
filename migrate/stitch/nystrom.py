"""More pairs than can be solved exactly: coefficients for some of them, the landmarks, fitted to all."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from migrate.stitch.base import Matrix
from migrate.stitch.parts import Part

LANDMARKS = 4_000

_JITTER = 1e-8


def draw_landmarks(n: int, count: int = LANDMARKS) -> NDArray[np.int64]:
    """Rows of the landmarks among n pairs, ascending; drawn at random, always the same."""
    return np.sort(np.random.default_rng(0).permutation(n)[:count])


def solve_on_landmarks(
    parts: Sequence[Part], landmarks: NDArray[np.int64], target: Matrix, penalty: float
) -> tuple[Matrix, Matrix]:
    """Coefficients of the landmarks, (m, q), and the means of the kernel to each, (m,).

    The subset of regressors (Rasmussen & Williams 2006, eq. 8.11): minimises the squared error over all n pairs plus
    λ times the norm of the function, among functions of the landmarks; the intercept is free.
    """
    from scipy.linalg import cho_factor, cho_solve

    cross = np.asarray(np.sum([part.cross(landmarks) for part in parts], axis=0))
    means = cross.mean(axis=0)
    among = cross[landmarks].copy()
    cross -= means
    system = cross.T @ cross + penalty * among
    system[np.diag_indices_from(system)] += _JITTER * np.trace(system) / len(system)
    alpha = cho_solve(cho_factor(system, lower=True, overwrite_a=True), cross.T @ (target - target.mean(axis=0)))
    return alpha, means
