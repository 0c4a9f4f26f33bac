import numpy as np
import pytest
from sklearn.metrics.pairwise import rbf_kernel

from migrate.stitch.kernel import GaussianPart, KernelPart
from migrate.stitch.kernel_ridge import draw_landmarks, solve_on_landmarks
from migrate.vectors import unit_rows

N, PENALTY = 80, 0.05


def make_parts(seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(N, 5)).astype(np.float32) + 1
    unit = unit_rows(x)
    target = np.sin(x[:, :3].astype(np.float64)) + x[:, 1:4] + 4
    return [KernelPart("one", x, 0.3), GaussianPart("two", unit, 0.8, width=0.5)], target


def judge_gram(parts):
    one, two = (part.rows.astype(np.float64) for part in parts)
    return 0.3 * one @ one.T + 0.8 * rbf_kernel(two, gamma=1 / 0.5)


def test_coefficients_of_some_landmarks_are_the_best_there_are():
    """Least squares over all pairs, with the norm of the function as a penalty and a free intercept."""
    parts, target = make_parts()
    rows = draw_landmarks(N, 30)
    gram = judge_gram(parts)
    cross, among = gram[:, rows], gram[np.ix_(rows, rows)]
    alpha, means = solve_on_landmarks(parts, rows, target, PENALTY)

    def cost(coefficients):
        fitted = (cross - cross.mean(axis=0)) @ coefficients + target.mean(axis=0)
        return np.square(target - fitted).sum() + PENALTY * np.trace(coefficients.T @ among @ coefficients)

    np.testing.assert_allclose(means, cross.mean(axis=0), atol=1e-6)
    root = np.linalg.cholesky(among + 1e-10 * np.eye(30)).T
    stacked = np.vstack([cross - cross.mean(axis=0), np.sqrt(PENALTY) * root])
    wanted = np.vstack([target - target.mean(axis=0), np.zeros((30, 3))])
    best = np.linalg.lstsq(stacked, wanted, rcond=None)[0]
    assert cost(alpha) == pytest.approx(cost(best), rel=1e-4)


def test_landmarks_that_are_the_same_are_no_failure():
    parts, target = make_parts()
    same = [part.take(np.zeros(N, dtype=np.int64)) for part in parts]
    alpha, _ = solve_on_landmarks(same, np.arange(20), target, PENALTY)
    assert np.isfinite(alpha).all()
