import numpy as np
import pytest
from scipy.linalg import orthogonal_procrustes
from scipy.optimize import minimize_scalar
from scipy.stats import ortho_group
from sklearn.linear_model import LinearRegression
from sklearn.linear_model import Ridge as SklearnRidge

from migrate.errors import StitchError
from migrate.stitch.linear import RELATIVE_GRID, Identity, LowRank, MeanVector, OrdinaryLeastSquares, Procrustes, Ridge
from migrate.vectors import Vectors


def make_pairs(n, p, q, *, noise=0.3, seed=0) -> tuple[Vectors, Vectors]:
    """Related pairs with means away from zero; singular values fall, as those of embeddings do."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, p)) * np.geomspace(2, 0.3, p) + rng.normal(size=p)
    y = x @ rng.normal(size=(p, q)) / np.sqrt(p) + noise * rng.normal(size=(n, q)) + rng.normal(size=q)
    return x.astype(np.float32), y.astype(np.float32)


def squared_error(stitch, x, y):
    return float(np.square(stitch.transform(x).astype(float) - y).sum())


def padded(rows, width):
    return np.pad(rows.astype(float), [(0, 0), (0, width - rows.shape[1])])


def refitted_predictions(x, y, penalty):
    """What scikit-learn's ridge says of each row when it is fitted on all the others."""
    rows = np.arange(len(x))
    fits = (SklearnRidge(penalty).fit(x[rows != i], y[rows != i]) for i in rows)
    return np.array([fit.predict(x[i : i + 1])[0] for i, fit in enumerate(fits)])


def relative_grid(x):
    """The documented grid: units of the mean non-zero eigenvalue of the centred Gram matrix."""
    singular = np.linalg.svd(x - x.mean(axis=0), compute_uv=False)
    singular = singular[singular > 1e-9 * singular[0]]
    return RELATIVE_GRID * np.mean(singular**2)


def test_procrustes_recovers_rotation_scale_and_shift():
    x, _ = make_pairs(40, 6, 6)
    rotation = ortho_group.rvs(6, random_state=3)
    shift = np.arange(6)
    y = (2.5 * x @ rotation + shift).astype(np.float32)
    fitted = Procrustes().fit(x, y)
    np.testing.assert_allclose(fitted.matrix_, 2.5 * rotation, atol=1e-5)
    np.testing.assert_allclose(fitted.offset_, shift, atol=1e-4)
    new = make_pairs(9, 6, 6, seed=5)[0]
    np.testing.assert_allclose(fitted.transform(new), 2.5 * new @ rotation + shift, atol=1e-4)


@pytest.mark.parametrize(("p", "q"), [(6, 6), (4, 7), (7, 4)])
def test_procrustes_is_scipys_after_padding_the_shorter_side(p, q):
    x, y = make_pairs(50, p, q)
    x_centred, y_centred = (padded(rows - rows.astype(float).mean(axis=0), max(p, q)) for rows in (x, y))
    rotation, singular_sum = orthogonal_procrustes(x_centred, y_centred)
    expected = (singular_sum / np.square(x_centred).sum() * rotation)[:p, :q]
    fitted = Procrustes().fit(x, y)
    np.testing.assert_allclose(fitted.matrix_, expected, atol=1e-5)
    np.testing.assert_allclose(fitted.transform(x).mean(axis=0), y.mean(axis=0), atol=1e-5)


@pytest.mark.parametrize(("p", "q"), [(3, 3), (3, 5)])
def test_no_rotation_scale_or_shift_beats_procrustes(p, q):
    x, y = make_pairs(30, p, q)
    fitted = Procrustes().fit(x, y)
    least = squared_error(fitted, x, y)
    best_scale = minimize_scalar(
        lambda s: float(np.square((x - x.mean(axis=0)) @ fitted.matrix_ * s - (y - y.mean(axis=0))).sum())
    )
    assert best_scale.x == pytest.approx(1, abs=1e-4)
    rng = np.random.default_rng(1)
    scale = float(np.linalg.norm(fitted.matrix_[0]))
    for spread in np.geomspace(1e-3, 3, 300):
        near, _ = np.linalg.qr((fitted.matrix_ / scale + spread * rng.normal(size=(p, q))).T)
        near = near.T * np.sign(np.diag(near.T @ fitted.matrix_.T))[:, None]
        other = scale * (1 + spread * rng.normal()) * near
        offset = y.mean(axis=0) - x.mean(axis=0) @ other
        assert np.square(x @ other + offset - y).sum() >= least * (1 - 1e-6)


def test_procrustes_of_a_single_repeated_vector_is_the_mean():
    x, y = make_pairs(5, 3, 3)
    x[:] = x[0]
    np.testing.assert_allclose(Procrustes().fit(x, y).transform(x), np.tile(y.mean(axis=0), (5, 1)), atol=1e-6)


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
    x_centred = x - x.mean(axis=0, dtype=float)
    np.testing.assert_allclose(fitted.transform(x), y, atol=1e-4)
    np.testing.assert_allclose(fitted.matrix_, np.linalg.pinv(x_centred) @ (y - y.mean(axis=0)), atol=1e-4)
    null = np.eye(20) - np.linalg.pinv(x_centred) @ x_centred
    np.testing.assert_allclose(null @ fitted.matrix_, 0, atol=1e-5)


def brute_overlaps(truth, predicted, k):
    """Share of each row's k true neighbours that the predictions have; queries are the true vectors, of unit length."""
    shares = []
    for own in range(len(truth)):
        others = [row for row in range(len(truth)) if row != own]
        unit = {name: m / np.linalg.norm(m, axis=1, keepdims=True) for name, m in (("t", truth), ("p", predicted))}
        tops = [set(sorted(others, key=lambda row: -unit["t"][own] @ side[row])[:k]) for side in unit.values()]
        shares.append(len(tops[0] & tops[1]) / k)
    return np.array(shares)


@pytest.mark.parametrize(
    ("n", "p", "q", "noise", "seed"), [(40, 6, 8, 1.5, 0), (24, 40, 8, 2.0, 1), (30, 12, 5, 3.0, 2)]
)
def test_lambda_is_chosen_by_retrieval_among_left_out_predictions(n, p, q, noise, seed):
    x, y = make_pairs(n, p, q, noise=noise, seed=seed)
    grid = relative_grid(x.astype(float))
    losses = []
    for penalty in grid:
        left_out = refitted_predictions(x.astype(float), y.astype(float), penalty)
        overlap = brute_overlaps(y.astype(float), left_out, 10).mean()
        losses.append((round(1 - overlap, 9), np.square(left_out - y).mean()))
    best = min(range(len(grid)), key=losses.__getitem__)
    by_mse = min(range(len(grid)), key=lambda index: losses[index][1])
    fitted = Ridge().fit(x, y)
    assert fitted.lambda_ == pytest.approx(grid[best], rel=1e-6)
    assert fitted.facts() == {"lambda": fitted.lambda_}
    assert seed != 0 or best != by_mse, "the case must tell retrieval from squared error"


@pytest.mark.parametrize(("n", "p"), [(60, 8), (12, 30)])
def test_ridge_is_scikit_learns_at_the_lambda_it_chose(n, p):
    x, y = make_pairs(n, p, 5)
    fitted = Ridge().fit(x, y)
    expected = SklearnRidge(fitted.lambda_).fit(x.astype(float), y.astype(float))
    np.testing.assert_allclose(fitted.matrix_, expected.coef_.T, atol=1e-4)
    np.testing.assert_allclose(fitted.offset_, expected.intercept_, atol=1e-4)


@pytest.mark.parametrize(("n", "p", "q"), [(80, 12, 10), (15, 30, 10), (6, 9, 12)])
@pytest.mark.parametrize("rank", [1, 3])
def test_lowrank_is_ridge_projected_on_its_leading_directions(n, p, q, rank):
    x, y = make_pairs(n, p, q)
    ridge = SklearnRidge(Ridge().fit(x, y).lambda_).fit(x.astype(float), y.astype(float))
    fitted_values = ridge.predict(x.astype(float)) - y.mean(axis=0, dtype=float)
    left, singular, right = np.linalg.svd(fitted_values, full_matrices=False)
    expected = (left[:, :rank] * singular[:rank]) @ right[:rank] + y.mean(axis=0)
    fitted = LowRank(rank).fit(x, y)
    np.testing.assert_allclose(fitted.transform(x), expected, atol=1e-4)
    new = make_pairs(7, p, q, seed=9)[0]
    projected = (ridge.predict(new) - y.mean(axis=0)) @ right[:rank].T @ right[:rank] + y.mean(axis=0)
    np.testing.assert_allclose(fitted.transform(new), projected, atol=1e-4)
    assert fitted.facts() == {"rank": rank}


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
    left_out = refitted_predictions(x.astype(float), y.astype(float), penalty) - mean
    fit = SklearnRidge(penalty).fit(x.astype(float), y.astype(float)).predict(x.astype(float)) - mean
    directions = np.linalg.svd(fit, full_matrices=False)[2]
    full = len(directions)
    errors = {
        rank: np.square(y - mean - left_out @ directions[:rank].T @ directions[:rank]).sum()
        for rank in {min(2**power, full) for power in range(3, 10)}
    }
    assert LowRank().fit(x, y).facts() == {"rank": min(errors, key=errors.__getitem__)}


def test_lowrank_takes_no_more_ranks_than_there_are():
    x, y = make_pairs(40, 6, 5)
    fitted = LowRank(99).fit(x, y)
    assert fitted.facts() == {"rank": 5}
    assert fitted.spec == "lowrank:99"
    np.testing.assert_allclose(fitted.transform(x), Ridge().fit(x, y).transform(x), atol=1e-4)


def test_mean_gives_every_document_the_mean_target_and_identity_changes_nothing():
    x, y = make_pairs(30, 4, 6)
    found = MeanVector().fit(x, y).transform(x[:3])
    np.testing.assert_allclose(found, np.tile(y.astype(float).mean(axis=0), (3, 1)), rtol=1e-5)
    assert np.array_equal(Identity().fit(x, x).transform(x), x)
    with pytest.raises(StitchError, match="they are 4 and 6"):
        Identity().fit(x, y)


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
