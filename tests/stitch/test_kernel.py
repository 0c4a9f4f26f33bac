import numpy as np
import pytest
from scipy.sparse import csr_array, random_array
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import DotProduct
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics.pairwise import rbf_kernel

from migrate.stitch.kernel import KernelSystem, combined, leading_directions, spread
from migrate.stitch.text_features import gram

# fewer rows than features, more, and rows that are twice there
SHAPES = [(12, 30), (25, 4), (2, 5), (3, 1)]
PENALTIES = [1e-6, 1e-3, 1.0, 100.0]


def make_rows(n, p, q=3, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, p)) + 2 * rng.normal(size=p)
    return x, x[:, :1] * rng.normal(size=q) + rng.normal(size=(n, q)) + 5


def centre(x):
    """Centred features of some rows."""
    return x - x.mean(axis=0)


def judge_predictions(x, y, asked, penalty):
    """Kernel ridge with a linear kernel on centred data, by scikit-learn."""
    mean = x.mean(axis=0)
    model = KernelRidge(alpha=penalty, kernel="linear").fit(x - mean, y - y.mean(axis=0))
    return model.predict(asked - mean) + y.mean(axis=0)


@pytest.mark.parametrize(("n", "p"), SHAPES)
@pytest.mark.parametrize("penalty", PENALTIES)
def test_predictions_are_those_of_scikit_learn(n, p, penalty):
    x, y = make_rows(n, p)
    asked = make_rows(7, p, seed=9)[0]
    system = KernelSystem(x @ x.T, y)
    solution = system.solve(penalty)
    found = system.mean + (asked @ x.T - system.means) @ solution.alpha
    np.testing.assert_allclose(found, judge_predictions(x, y, asked, penalty), rtol=1e-5, atol=1e-5)
    scale = np.abs(solution.alpha).max()
    np.testing.assert_allclose(solution.alpha.sum(axis=0), 0, atol=1e-6 * scale)


@pytest.mark.parametrize(("n", "p"), SHAPES)
@pytest.mark.parametrize("penalty", PENALTIES)
def test_leave_one_out_residuals_are_those_of_fits_without_the_row(n, p, penalty):
    """For tiny penalties too, where the constant vector, which centring leaves in the null space, would fake them."""
    x, y = make_rows(n, p)
    found = KernelSystem(x @ x.T, y).solve(penalty).residuals
    rows = np.arange(n)
    expected = [y[i] - judge_predictions(x[rows != i], y[rows != i], x[[i]], penalty)[0] for i in rows]
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)


def test_leave_one_out_holds_for_kernels_that_are_not_linear():
    x, y = make_rows(15, 3)
    kernel = rbf_kernel(x, gamma=0.1)
    found = KernelSystem(kernel, y).solve(0.01).residuals
    for i in range(15):
        rest = np.arange(15) != i
        system = KernelSystem(kernel[np.ix_(rest, rest)], y[rest])
        expected = y[i] - system.mean - (kernel[i, rest] - system.means) @ system.solve(0.01).alpha
        np.testing.assert_allclose(found[i], expected, atol=1e-8)


def test_a_shift_of_either_side_changes_nothing():
    x, y = make_rows(12, 4)
    one = KernelSystem(x @ x.T, y).solve(0.1)
    other = KernelSystem((x + 3) @ (x + 3).T, y - 7).solve(0.1)
    np.testing.assert_allclose(one.alpha, other.alpha, atol=1e-8)
    np.testing.assert_allclose(one.residuals, other.residuals, atol=1e-8)


def test_solving_does_not_spoil_the_system():
    x, y = make_rows(12, 4)
    kernel, target = x @ x.T, y.copy()
    system = KernelSystem(kernel.copy(), y)
    first = system.solve(0.1).alpha
    system.solve(10.0)
    np.testing.assert_array_equal(system.solve(0.1).alpha, first)
    np.testing.assert_array_equal(system.gram, kernel)
    np.testing.assert_array_equal(y, target)


def test_equal_rows_are_not_too_much():
    y = make_rows(6, 2)[1]
    solution = KernelSystem(np.ones((6, 6)), y).solve(1e-4)
    expected = y - (y.sum(axis=0) - y) / 5  # the mean of the others
    np.testing.assert_allclose(solution.residuals, expected, atol=1e-8)


def judge_variance(x, asked, penalty):
    """The posterior variance of a Gaussian process on centred features, Rasmussen & Williams 2006, eq. 2.26."""
    x, asked = x - x.mean(axis=0), asked - x.mean(axis=0)
    k = asked @ x.T
    return np.square(asked).sum(axis=1) - np.einsum(
        "ij,ij->i", k, np.linalg.solve(x @ x.T + penalty * np.eye(len(x)), k.T).T
    )


def variance(system, cross, own, directions):
    """As a stitch works it out: from the kernel between the asked and the fit documents, not centred."""
    prior = own + system.means.mean() - 2 * cross.mean(axis=1)
    return prior - np.square((cross - system.means) @ directions).sum(axis=1)


@pytest.mark.parametrize(("n", "p"), [(12, 30), (25, 4), (2, 5), (30, 1)])
@pytest.mark.parametrize("penalty", [1e-3, 0.1, 10.0])
def test_all_directions_give_the_posterior_variance(n, p, penalty):
    """With fewer features than rows too: directions without variance must not take the constant vector in."""
    x, y = make_rows(n, p)
    asked = make_rows(7, p, seed=9)[0]
    system = KernelSystem(x @ x.T, y)
    found = variance(system, asked @ x.T, np.square(asked).sum(axis=1), system.directions(penalty, n))
    np.testing.assert_allclose(found, judge_variance(x, asked, penalty), rtol=1e-4, atol=1e-5)


def test_the_posterior_variance_is_that_of_scikit_learns_gaussian_process():
    """Where the mean of the kernel is 0 already; both sides of each row make it so."""
    x = make_rows(6, 3)[0]
    x = np.vstack([x, -x])
    asked = make_rows(5, 3, seed=9)[0]
    features = np.hstack([np.sin(x), x])  # odd in x, so that centring changes nothing
    system = KernelSystem(features @ features.T, x)
    asked_features = np.hstack([np.sin(asked), asked])
    own = np.square(asked_features).sum(axis=1)
    found = variance(system, asked_features @ features.T, own, system.directions(0.3, 12))
    process = GaussianProcessRegressor(DotProduct(0.0, "fixed"), alpha=0.3, optimizer=None).fit(features, x[:, 0])
    np.testing.assert_allclose(found, np.square(process.predict(asked_features, return_std=True)[1]), atol=1e-6)


def test_fewer_directions_explain_less():
    x, y = make_rows(30, 10)
    asked = make_rows(7, 10, seed=9)[0]
    system = KernelSystem(x @ x.T, y)
    own = np.square(asked).sum(axis=1)
    found = [variance(system, asked @ x.T, own, system.directions(0.1, count)) for count in (1, 3, 29)]
    assert (found[0] > found[1]).all() and (found[1] > found[2]).all()
    np.testing.assert_array_equal(system.directions(0.1, 5), system.directions(0.1, 5))


def test_products_of_sparse_rows_are_those_of_dense_ones(monkeypatch):
    monkeypatch.setattr("migrate.stitch.text_features._COLUMNS", 7)
    for density in (0.0, 0.02, 0.5):
        rows = csr_array(random_array((23, 60), density=density, rng=0, dtype=np.float32))
        dense = rows.toarray().astype(float)
        np.testing.assert_allclose(gram(rows), dense @ dense.T, atol=1e-6)
        np.testing.assert_allclose(gram(rows.toarray()), dense @ dense.T, atol=1e-6)
        assert gram(rows).dtype == gram(rows.toarray()).dtype == np.float64


def test_a_sum_of_kernels_is_weighted():
    one, two, broken = np.eye(3), np.ones((3, 3)), np.full((3, 3), np.nan)
    np.testing.assert_array_equal(combined([one, two, broken], [2.0, 0.5, 0.0]), 2 * one + 0.5 * two)
    np.testing.assert_array_equal(one, np.eye(3))


def test_spread_is_the_mean_diagonal_of_the_centred_kernel():
    x = make_rows(20, 5)[0]
    assert spread(x @ x.T) == pytest.approx(np.square(centre(x)).sum() / 20)
    assert spread(x @ x.T + 100) == pytest.approx(spread(x @ x.T))


@pytest.mark.parametrize("value", [0.0, 1.0, 1 / 3, 1e6])
def test_what_does_not_spread_is_not_blown_up(value):
    """Rounding leaves a spread just above 0, by which nothing may be divided."""
    rows = np.full((50, 7), value, dtype=np.float32)
    assert spread(gram(rows)) == 1
    for seed in range(5):
        noisy = gram(rows) * (1 + 1e-7 * np.random.default_rng(seed).normal(size=(50, 50)))
        assert spread(noisy) == 1


def test_leading_directions_are_those_of_an_exact_decomposition():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(80, 50)) * 0.8 ** np.arange(50)
    expected_values, expected = np.linalg.svd(rows, full_matrices=False)[1:]
    for matrix, tolerance in ((rows, 1e-6), (csr_array(rows.astype(np.float32)), 1e-3)):
        directions, values = leading_directions(matrix, 5, rounds=4)
        np.testing.assert_allclose(values, expected_values[:5], rtol=tolerance)
        np.testing.assert_allclose(np.abs(expected[:5] @ directions), np.eye(5), atol=10 * tolerance)
    few, _ = leading_directions(rows[:, :3], 5, rounds=1)
    assert few.shape == (3, 3)
