import numpy as np
import pytest
from sklearn.linear_model import Ridge, RidgeCV

from migrate.stitch.linear import RELATIVE_GRID, ridge_path, ridge_solution

SHAPES = [(50, 8, 5), (9, 8, 5), (8, 8, 3), (12, 30, 5), (3, 6, 4)]
LAMBDAS = np.logspace(-2, 3, 6)


def make_pairs(n, p, q, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, p)) + rng.normal(size=p)
    return x, x @ rng.normal(size=(p, q)) / 3 + rng.normal(size=(n, q)) + rng.normal(size=q)


def centred(rows):
    return rows - rows.mean(axis=0)


def refitted_residuals(x, y, penalty):
    """Leave one out, in earnest: means and coefficients are fitted anew without each row."""
    rows = np.arange(len(x))
    fits = (Ridge(penalty).fit(x[rows != i], y[rows != i]) for i in rows)
    return np.array([y[i] - fit.predict(x[i : i + 1])[0] for i, fit in enumerate(fits)])


@pytest.mark.parametrize(("n", "p", "q"), SHAPES)
def test_leave_one_out_errors_are_those_of_fits_without_the_row(n, p, q):
    x, y = make_pairs(n, p, q)
    path = ridge_path(centred(x), centred(y), LAMBDAS)
    residuals = [refitted_residuals(x, y, penalty) for penalty in LAMBDAS]
    np.testing.assert_allclose(path.loo_mse, [np.square(rest).mean() for rest in residuals], rtol=1e-7)
    assert path.best == np.argmin([np.square(rest).mean() for rest in residuals])
    np.testing.assert_allclose(path.loo_residuals, residuals[path.best], atol=1e-8)


@pytest.mark.parametrize(("n", "p", "q"), SHAPES)
def test_coefficients_and_errors_are_those_of_scikit_learn(n, p, q):
    x, y = make_pairs(n, p, q)
    path = ridge_path(centred(x), centred(y), LAMBDAS)
    judge = RidgeCV(LAMBDAS, store_cv_results=True, scoring=None).fit(x, y)
    np.testing.assert_allclose(path.loo_mse, judge.cv_results_.mean(axis=(0, 1)), rtol=1e-6)
    assert path.best_lambda == judge.alpha_
    np.testing.assert_allclose(path.coefficients, judge.coef_.T, atol=1e-8)


@pytest.mark.parametrize(("n", "p"), [(12, 30), (10, 10), (11, 10)])
def test_a_tiny_lambda_does_not_fake_a_tiny_error(n, p):
    """With n < d a fit can meet every pair; the pair that is left out is another matter."""
    rng = np.random.default_rng(4)
    x, y = rng.normal(size=(n, p)), rng.normal(size=(n, 4))  # nothing to learn
    lambdas = RELATIVE_GRID[0] * np.array([1e-6, 1e-3, 1]) * np.square(centred(x)).sum() / (n - 1)
    path = ridge_path(centred(x), centred(y), lambdas)
    expected = [np.square(refitted_residuals(x, y, penalty)).mean() for penalty in lambdas]
    np.testing.assert_allclose(path.loo_mse, expected, rtol=1e-3)
    assert path.loo_mse.min() > np.var(y)


def test_the_default_grid_is_in_units_of_the_mean_eigenvalue():
    for n, p in [(40, 6), (6, 40)]:
        x, y = make_pairs(n, p, 3)
        unit = np.square(centred(x)).sum() / min(n - 1, p)
        for scale in (1.0, 1e-3, 1e3):
            path = ridge_path(scale * centred(x), centred(y))
            np.testing.assert_allclose(path.lambdas, RELATIVE_GRID * unit * scale**2)


@pytest.mark.parametrize(("n", "p"), [(40, 6), (6, 40)])
def test_a_loss_of_ones_own_decides_and_sees_the_residuals_of_each_lambda(n, p):
    x, y = make_pairs(n, p, 3)
    seen = []

    def loss(residuals):
        seen.append(residuals.copy())
        return float(len(seen) != 3)

    path = ridge_path(centred(x), centred(y), LAMBDAS, loss=loss)
    assert path.best == 2
    assert path.best_lambda == LAMBDAS[2]
    for penalty, residuals in zip(LAMBDAS, seen, strict=True):
        np.testing.assert_allclose(residuals, refitted_residuals(x, y, penalty), atol=1e-7)
    np.testing.assert_array_equal(path.loo_residuals, seen[2])
    np.testing.assert_allclose(path.coefficients, Ridge(LAMBDAS[2]).fit(x, y).coef_.T, atol=1e-8)


def test_lambdas_that_lose_the_same_are_told_apart_by_their_error():
    x, y = make_pairs(40, 6, 3)
    plain = ridge_path(centred(x), centred(y), LAMBDAS)
    assert ridge_path(centred(x), centred(y), LAMBDAS, loss=lambda residuals: 0.5).best == plain.best


def test_of_equal_lambdas_the_larger_is_taken():
    x, _ = make_pairs(20, 4, 1)
    path = ridge_path(centred(x), np.zeros((20, 3)))  # nothing to predict: every λ is right
    assert path.best == len(RELATIVE_GRID) - 1
    assert not path.loo_mse.any()


@pytest.mark.parametrize(("n", "p"), [(20, 4), (4, 20), (2, 5), (2, 1)])
def test_equal_rows_are_not_too_much(n, p):
    y = centred(make_pairs(n, p, 3)[1])
    path = ridge_path(np.zeros((n, p)), y)
    assert not path.coefficients.any()
    np.testing.assert_allclose(path.loo_mse, np.square(y * n / (n - 1)).mean())


@pytest.mark.parametrize(("n", "p", "q"), SHAPES)
def test_one_penalty_gives_the_coefficients_of_the_path(n, p, q):
    x, y = map(centred, make_pairs(n, p, q))
    for relative in RELATIVE_GRID[[0, 6, 12]]:
        path = ridge_path(x, y, relative=np.array([relative]))
        penalty, coefficients = ridge_solution(x, y, float(relative))
        assert penalty == pytest.approx(path.best_lambda)
        np.testing.assert_allclose(coefficients, path.coefficients, atol=1e-7)
