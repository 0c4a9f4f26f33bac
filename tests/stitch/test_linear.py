import numpy as np
import pytest
from linear_pairs import make_pairs, refitted_predictions
from scipy.linalg import orthogonal_procrustes
from sklearn.linear_model import RidgeCV

from migrate.errors import StitchError
from migrate.stitch.linear import (
    RELATIVE_GRID,
    Identity,
    MeanVector,
    Procrustes,
    Ridge,
    ridge_path,
    ridge_solution,
)

SHAPES = [(50, 8, 5), (9, 8, 5), (8, 8, 3), (12, 30, 5), (3, 6, 4)]
LAMBDAS = np.logspace(-2, 3, 6)


def make_centred(n, p, q):
    return tuple(side.astype(float) - side.mean(axis=0, dtype=float) for side in make_pairs(n, p, q, noise=1.0))


@pytest.mark.parametrize(("p", "q"), [(6, 6), (4, 7), (7, 4)])
def test_procrustes_is_scipys_after_padding_the_shorter_side(p, q):
    x, y = make_pairs(50, p, q)
    centred = [side - side.mean(axis=0, dtype=float) for side in (x, y)]
    x_padded, y_padded = (np.pad(side, [(0, 0), (0, max(p, q) - side.shape[1])]) for side in centred)
    rotation, singular_sum = orthogonal_procrustes(x_padded, y_padded)
    expected = (singular_sum / np.square(x_padded).sum() * rotation)[:p, :q]
    fitted = Procrustes().fit(x, y)
    np.testing.assert_allclose(fitted.matrix_, expected, atol=1e-5)
    np.testing.assert_allclose(fitted.transform(x).mean(axis=0), y.mean(axis=0), atol=1e-5)


def test_procrustes_of_a_single_repeated_vector_is_the_mean():
    x, y = make_pairs(5, 3, 3)
    x[:] = x[0]
    np.testing.assert_allclose(Procrustes().fit(x, y).transform(x), np.tile(y.mean(axis=0), (5, 1)), atol=1e-6)


def test_a_decomposition_that_lapack_gives_up_on_is_done_the_slow_way(monkeypatch):
    """Divide and conquer fails on some matrices of a low rank: that of a real store of 216 documents was one."""
    generator = np.random.default_rng(3)
    x = generator.normal(size=(20, 32)).astype(np.float32)
    y = x @ np.linalg.qr(generator.normal(size=(32, 32)))[0].astype(np.float32)
    usual = Procrustes().fit(x, y).transform(x)

    def give_up(*_, **__):
        raise np.linalg.LinAlgError("SVD did not converge")

    monkeypatch.setattr("numpy.linalg.svd", give_up)
    np.testing.assert_allclose(Procrustes().fit(x, y).transform(x), usual, atol=1e-5)


def brute_overlap(truth, predicted, k=10):
    """Mean share of each row's k true neighbours that the predictions have; true vectors of unit length ask."""
    sides = [side / np.linalg.norm(side, axis=1, keepdims=True) for side in (truth.astype(float), predicted)]
    shares = []
    for own in range(len(truth)):
        similar = [side @ sides[0][own] for side in sides]
        tops = [[row for row in np.argsort(-one).tolist() if row != own][:k] for one in similar]
        shares.append(len(set(tops[0]) & set(tops[1])) / k)
    return np.mean(shares)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "p", "q", "noise", "seed"), [(40, 6, 8, 1.5, 0), (24, 40, 8, 2.0, 1), (30, 12, 5, 3.0, 2)]
)
def test_lambda_is_chosen_by_retrieval_among_left_out_predictions(n, p, q, noise, seed):
    """From the documented grid: units of the mean non-zero eigenvalue of the centred Gram matrix."""
    x, y = make_pairs(n, p, q, noise=noise, seed=seed)
    singular = np.linalg.svd(x.astype(float) - x.mean(axis=0, dtype=float), compute_uv=False)
    grid = RELATIVE_GRID * np.mean(singular[singular > 1e-9 * singular[0]] ** 2)
    losses = []
    for penalty in grid:
        left_out = refitted_predictions(x, y, penalty)
        losses.append((round(1 - brute_overlap(y, left_out), 9), np.square(left_out - y).mean()))
    best = min(range(len(grid)), key=losses.__getitem__)
    by_mse = min(range(len(grid)), key=lambda index: losses[index][1])
    fitted = Ridge().fit(x, y)
    assert fitted.lambda_ == pytest.approx(grid[best], rel=1e-6)
    assert fitted.kind_facts() == {"lambda": fitted.lambda_}
    assert seed != 0 or best != by_mse, "the case must tell retrieval from squared error"


@pytest.mark.slow
@pytest.mark.parametrize(("n", "p", "q"), SHAPES)
def test_a_path_has_the_errors_and_coefficients_of_scikit_learn(n, p, q):
    x, y = make_centred(n, p, q)
    path = ridge_path(x, y, LAMBDAS)
    residuals = [y - refitted_predictions(x, y, penalty) for penalty in LAMBDAS]
    errors = [np.square(rest).mean() for rest in residuals]
    np.testing.assert_allclose(path.loo_mse, errors, rtol=1e-6)
    np.testing.assert_allclose(path.loo_residuals, residuals[np.argmin(errors)], atol=1e-8)
    judge = RidgeCV(LAMBDAS, store_cv_results=True, scoring=None).fit(x, y)
    np.testing.assert_allclose(path.loo_mse, judge.cv_results_.mean(axis=(0, 1)), rtol=1e-6)
    assert path.best_lambda == judge.alpha_ == LAMBDAS[path.best]
    np.testing.assert_allclose(path.coefficients, judge.coef_.T, atol=1e-8)


@pytest.mark.parametrize(("n", "p", "q"), SHAPES)
def test_one_penalty_gives_the_coefficients_of_the_path(n, p, q):
    x, y = make_centred(n, p, q)
    for relative in RELATIVE_GRID[[0, 6, 12]]:
        path = ridge_path(x, y, relative=np.array([relative]))
        penalty, coefficients = ridge_solution(x, y, float(relative))
        assert penalty == pytest.approx(path.best_lambda)
        np.testing.assert_allclose(coefficients, path.coefficients, atol=1e-7)


@pytest.mark.parametrize(("n", "p"), [(12, 30), (10, 10), (11, 10)])
def test_a_tiny_lambda_does_not_fake_a_tiny_error(n, p):
    """With n < d a fit can meet every pair; the pair that is left out is another matter."""
    rng = np.random.default_rng(4)
    x, y = rng.normal(size=(n, p)), rng.normal(size=(n, 4))  # nothing to learn
    x, y = x - x.mean(axis=0), y - y.mean(axis=0)
    lambdas = RELATIVE_GRID[0] * np.array([1e-6, 1e-3, 1]) * np.square(x).sum() / (n - 1)
    path = ridge_path(x, y, lambdas)
    expected = [np.square(y - refitted_predictions(x, y, penalty)).mean() for penalty in lambdas]
    np.testing.assert_allclose(path.loo_mse, expected, rtol=1e-3)
    assert path.loo_mse.min() > np.var(y)


def test_lambdas_that_lose_the_same_are_told_apart_by_their_error_and_then_by_their_size():
    x, y = make_centred(40, 6, 3)
    assert ridge_path(x, y, LAMBDAS, loss=lambda residuals: 0.5).best == ridge_path(x, y, LAMBDAS).best
    path = ridge_path(x, np.zeros((40, 3)))  # nothing to predict: every λ is right
    assert path.best == len(RELATIVE_GRID) - 1
    assert not path.loo_mse.any()


@pytest.mark.parametrize(("n", "p"), [(20, 4), (4, 20), (2, 5), (2, 1)])
def test_equal_rows_are_not_too_much(n, p):
    y = make_centred(n, p, 3)[1]
    path = ridge_path(np.zeros((n, p)), y)
    assert not path.coefficients.any()
    np.testing.assert_allclose(path.loo_mse, np.square(y * n / (n - 1)).mean())


def test_mean_gives_every_document_the_mean_target_and_identity_changes_nothing():
    x, y = make_pairs(30, 4, 6)
    found = MeanVector().fit(x, y).transform(x[:3])
    np.testing.assert_allclose(found, np.tile(y.astype(float).mean(axis=0), (3, 1)), rtol=1e-5)
    assert np.array_equal(Identity().fit(x, x).transform(x), x)
    with pytest.raises(StitchError, match="they are 4 and 6"):
        Identity().fit(x, y)
