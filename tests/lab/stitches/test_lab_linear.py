import numpy as np
import pytest
from linear_pairs import make_pairs, refitted_predictions
from scipy.stats import ortho_group
from sklearn.linear_model import LinearRegression
from sklearn.linear_model import Ridge as SklearnRidge

from migrate.lab.stitches.linear import LowRank, OrdinaryLeastSquares
from migrate.stitch.linear import Ridge
from migrate.stitch.registry import new_stitch


@pytest.mark.parametrize(("p", "q"), [(5, 5), (4, 9), (9, 4)])
def test_ols_is_scikit_learns(p, q):
    x, y = make_pairs(60, p, q)
    expected = LinearRegression().fit(x.astype(float), y)
    fitted = OrdinaryLeastSquares().fit(x, y)
    np.testing.assert_allclose(fitted.matrix_, expected.coef_.T, atol=1e-4)
    np.testing.assert_allclose(fitted.offset_, expected.intercept_, atol=1e-4)


def test_ols_of_few_pairs_is_the_solution_of_least_norm():
    x, y = make_pairs(8, 20, 5)
    fitted = OrdinaryLeastSquares().fit(x, y)
    inverse = np.linalg.pinv(x - x.mean(axis=0, dtype=float))
    np.testing.assert_allclose(fitted.transform(x), y, atol=1e-4)
    np.testing.assert_allclose(fitted.matrix_, inverse @ (y - y.mean(axis=0)), atol=1e-4)


@pytest.mark.parametrize(("n", "p", "q"), [(80, 12, 10), (15, 30, 10), (6, 9, 12)])
@pytest.mark.parametrize("rank", [1, 3])
def test_lowrank_is_ridge_projected_on_its_leading_directions(n, p, q, rank):
    x, y = make_pairs(n, p, q)
    ridge = SklearnRidge(Ridge().fit(x, y).lambda_).fit(x.astype(float), y.astype(float))
    mean = y.mean(axis=0, dtype=float)
    leading = np.linalg.svd(ridge.predict(x.astype(float)) - mean, full_matrices=False)[2][:rank]
    fitted = LowRank(rank).fit(x, y)
    for rows in (x, make_pairs(7, p, q, seed=9)[0]):
        expected = (ridge.predict(rows) - mean) @ leading.T @ leading + mean
        np.testing.assert_allclose(fitted.transform(rows), expected, atol=1e-4)
    assert fitted.kind_facts() == {"rank": rank}


@pytest.mark.parametrize(
    ("n", "p", "q", "true_rank"), [(60, 20, 24, 3), (60, 20, 20, 20), (30, 40, 33, 5), (40, 4, 5, 2)]
)
def test_lowrank_keeps_the_rank_with_the_least_leave_one_out_error(n, p, q, true_rank):
    rng = np.random.default_rng(true_rank)
    x = rng.normal(size=(n, p)).astype(np.float32)
    y = x @ rng.normal(size=(p, true_rank)) @ rng.normal(size=(true_rank, q)) + 2 * rng.normal(size=(n, q))
    y = y.astype(np.float32)
    penalty = Ridge().fit(x, y).lambda_
    mean = y.mean(axis=0, dtype=float)
    left_out = refitted_predictions(x, y, penalty) - mean
    fit = SklearnRidge(penalty).fit(x.astype(float), y.astype(float)).predict(x.astype(float)) - mean
    directions = np.linalg.svd(fit, full_matrices=False)[2]
    errors = {
        rank: np.square(y - mean - left_out @ directions[:rank].T @ directions[:rank]).sum()
        for rank in {min(2**power, len(directions)) for power in range(3, 10)}
    }
    assert LowRank().fit(x, y).kind_facts() == {"rank": min(errors, key=errors.__getitem__)}


def test_lowrank_takes_no_more_ranks_than_there_are():
    x, y = make_pairs(40, 6, 5)
    fitted = LowRank(99).fit(x, y)
    assert fitted.kind_facts() == {"rank": 5}
    assert fitted.spec == "lowrank:99"
    np.testing.assert_allclose(fitted.transform(x), Ridge().fit(x, y).transform(x), atol=1e-4)


@pytest.mark.parametrize("spec", ["ols", "lowrank:4"])
def test_a_linear_stitch_is_its_matrix(spec):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(50, 8)).astype(np.float32)
    y = (x @ ortho_group.rvs(8, random_state=0) + 1).astype(np.float32)
    stitch = new_stitch(spec).fit(x, y)
    np.testing.assert_allclose(stitch.affine(8).of(x), stitch.transform(x), atol=1e-5)
