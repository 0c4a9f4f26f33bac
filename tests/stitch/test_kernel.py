from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import DotProduct
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics.pairwise import rbf_kernel

from migrate.stitch.kernel import (
    GaussianPart,
    KernelPart,
    KernelSystem,
    restore_parts,
)
from migrate.stitch.kernel_ridge import draw_landmarks, solve_on_landmarks
from migrate.stitch.text_features import DenseView, WordView
from migrate.stitch.text_reader import BUCKETS, ngram_counts, split_words
from migrate.vectors import unit_rows

# fewer rows than features, more, and rows that are twice there
SHAPES = [(12, 30), (25, 4), (2, 5), (3, 1)]
PENALTIES = [1e-6, 1e-3, 1.0, 100.0]


def make_rows(n, p, q=3, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, p)) + 2 * rng.normal(size=p)
    return x, x[:, :1] * rng.normal(size=q) + rng.normal(size=(n, q)) + 5


def judge_predictions(x, y, asked, penalty):
    """Kernel ridge with a linear kernel on centred data, by scikit-learn."""
    mean = x.mean(axis=0)
    model = KernelRidge(alpha=penalty, kernel="linear").fit(x - mean, y - y.mean(axis=0))
    return model.predict(asked - mean) + y.mean(axis=0)


@pytest.mark.parametrize(("n", "p"), SHAPES)
@pytest.mark.parametrize("penalty", PENALTIES)
def test_predictions_and_leave_one_out_residuals_are_those_of_scikit_learn(n, p, penalty):
    """For tiny penalties too, where the constant vector, which centring leaves in the null space, would fake them."""
    x, y = make_rows(n, p)
    asked = make_rows(7, p, seed=9)[0]
    system = KernelSystem.of(x @ x.T, y)
    solution = system.solve(penalty)
    found = system.mean + (asked @ x.T - system.means) @ solution.alpha
    np.testing.assert_allclose(found, judge_predictions(x, y, asked, penalty), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(solution.alpha.sum(axis=0), 0, atol=1e-6 * np.abs(solution.alpha).max())
    rows = np.arange(n)
    expected = [y[i] - judge_predictions(x[rows != i], y[rows != i], x[[i]], penalty)[0] for i in rows]
    np.testing.assert_allclose(solution.residuals, expected, rtol=1e-3, atol=1e-4)


def variance(system, cross, own, directions):
    """As a stitch works it out: from the kernel between the asked and the fit documents, not centred."""
    prior = own + system.means.mean() - 2 * cross.mean(axis=1)
    return prior - np.square((cross - system.means) @ directions).sum(axis=1)


@pytest.mark.parametrize(("n", "p"), [(12, 30), (25, 4), (2, 5), (30, 1)])
@pytest.mark.parametrize("penalty", [1e-3, 0.1, 10.0])
def test_all_directions_give_the_posterior_variance_of_scikit_learns_gaussian_process(n, p, penalty):
    """With fewer features than rows too: directions without variance must not take the constant vector in."""
    x, y = make_rows(n, p)
    asked = make_rows(7, p, seed=9)[0]
    system = KernelSystem.of(x @ x.T, y)
    found = variance(system, asked @ x.T, np.square(asked).sum(axis=1), system.directions(penalty, n))
    mean = x.mean(axis=0)
    process = GaussianProcessRegressor(DotProduct(0.0, "fixed"), alpha=penalty, optimizer=None).fit(x - mean, y[:, 0])
    expected = np.square(process.predict(asked - mean, return_std=True)[1])
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def make_parts(n=80):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 5)).astype(np.float32) + 1
    target = np.sin(x[:, :3].astype(np.float64)) + x[:, 1:4] + 4
    return [KernelPart("one", x, 0.3), GaussianPart("two", unit_rows(x), 0.8, width=0.5)], target


def test_coefficients_of_some_landmarks_are_the_best_there_are():
    """Least squares over all pairs, with the norm of the function as a penalty and a free intercept."""
    penalty, rows, (parts, target) = 0.05, draw_landmarks(80, 30), make_parts()
    one, two = (part.rows.astype(np.float64) for part in parts)
    gram = 0.3 * one @ one.T + 0.8 * rbf_kernel(two, gamma=1 / 0.5)
    cross, among = gram[:, rows], gram[np.ix_(rows, rows)]
    solved = solve_on_landmarks(parts, rows, target, penalty)

    def cost(coefficients):
        fitted = (cross - cross.mean(axis=0)) @ coefficients + target.mean(axis=0)
        return np.square(target - fitted).sum() + penalty * np.trace(coefficients.T @ among @ coefficients)

    np.testing.assert_allclose(solved.means, cross.mean(axis=0), atol=1e-6)
    root = np.linalg.cholesky(among + 1e-10 * np.eye(30)).T
    stacked = np.vstack([cross - cross.mean(axis=0), np.sqrt(penalty) * root])
    wanted = np.vstack([target - target.mean(axis=0), np.zeros((30, 3))])
    best = np.linalg.lstsq(stacked, wanted, rcond=None)[0]
    assert cost(solved.coefficients) == pytest.approx(cost(best), rel=1e-4)


def test_landmarks_that_are_the_same_are_no_failure():
    parts, target = make_parts()
    same = [part.take(np.zeros(80, dtype=np.int64)) for part in parts]
    solved = solve_on_landmarks(same, np.arange(20), target, 0.05)
    assert np.isfinite(solved.coefficients).all()


def word_view(texts):
    words = split_words(texts)
    return WordView(words.weights(), ngram_counts(words.words))


TEXTS = [f"document {row} of {row % 3} cats" for row in range(9)]
ROWS, ASKED = (unit_rows(np.random.default_rng(n).normal(size=(n, 6)).astype(np.float32) + 1) for n in (20, 9))
PARTS = {
    "dense": (KernelPart("vector", ROWS, 0.7), DenseView(ASKED)),
    "gaussian": (GaussianPart("vector", ROWS, 0.7, width=0.4), DenseView(ASKED)),
    "sparse": (KernelPart("ngrams", word_view((TEXTS * 3)[:20]).matrix(), 0.7), word_view(TEXTS)),
}


@pytest.mark.parametrize("form", PARTS)
def test_other_coefficients_give_another_answer(form):
    """A product belongs to the coefficients it was made of."""
    part, view = PARTS[form]
    one, two = np.random.default_rng(2).normal(size=(2, 20, 3)).astype(np.float32)
    first = part.product(one)(view)
    np.testing.assert_array_equal(part.product(one)(view), first)
    assert not np.allclose(part.product(two)(view), first, atol=1e-3)
    np.testing.assert_array_equal(part.product(one)(view), first)
    np.testing.assert_allclose(replace(part, scale=2 * part.scale).product(one)(view), 2 * first, atol=1e-5)


def test_rows_without_features_keep_their_width():
    part = KernelPart("ngrams", csr_array((20, BUCKETS), dtype=np.float32))
    (again,) = restore_parts(part.arrays(), 20)
    assert again.rows.shape == (20, BUCKETS)


@pytest.mark.parametrize("width", [0.0, -1.0, np.nan])
def test_a_kernel_without_width_is_refused(width):
    arrays = {**PARTS["gaussian"][0].arrays(), "vector/gaussian/bandwidth": np.array([width])}
    with pytest.raises(ValueError, match="Gaussian kernel of width"):
        restore_parts(arrays, 20)
