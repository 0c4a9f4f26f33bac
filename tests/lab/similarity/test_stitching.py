import numpy as np
import pytest
from scipy.stats import entropy
from sklearn.dummy import DummyRegressor
from sklearn.linear_model import LinearRegression
from sklearn.metrics import mean_absolute_error, mean_squared_error, r2_score
from sklearn.metrics.pairwise import cosine_similarity

from migrate.errors import UsageError, VectorError
from migrate.lab.similarity.stitching import check_stitch, halves, judge_stitching
from migrate.lab.stitches.mlp import Mlp
from migrate.stitch.linear import Ridge


def make(n=240, noise=0.2, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 8)).astype(np.float32)
    return x, (x @ rng.normal(size=(8, 5)) + 2 + noise * rng.normal(size=(n, 5))).astype(np.float32)


def test_no_document_is_fitted_and_judged():
    for count in (4, 7, 240, 9_001):
        known, asked = halves(count, seed=3)
        assert not set(known.tolist()) & set(asked.tolist())
        assert len(known) == min(count // 2, 2_000) and len(asked) == min(count - count // 2, 2_000)


def test_figures_are_those_of_scikit_learn_on_the_held_out_half():
    x, y = make()
    known, asked = halves(len(x), seed=1)
    predicted, truth = Ridge().fit(x[known], y[known]).transform(x[asked]), y[asked].astype(float)
    mean = DummyRegressor().fit(x[known], y[known]).predict(x[asked])
    found = judge_stitching(x, y, seed=1)
    assert found.stitch.mse == pytest.approx(mean_squared_error(truth, predicted), rel=1e-5)
    assert found.stitch.mae == pytest.approx(mean_absolute_error(truth, predicted), rel=1e-5)
    assert found.stitch.r2 == pytest.approx(r2_score(truth, predicted, multioutput="variance_weighted"), rel=1e-5)
    assert found.stitch.spread == pytest.approx(np.trace(np.cov(predicted.T)) / np.trace(np.cov(truth.T)), rel=1e-5)
    share = mean_absolute_error(truth, predicted) / mean_absolute_error(truth, mean)
    assert found.mae_explained == pytest.approx(1 - share, rel=1e-5)
    assert found.mean.spread == pytest.approx(0, abs=1e-9) and found.random.spread == pytest.approx(1, abs=0.2)
    assert found.mean_norm == pytest.approx(np.linalg.norm(mean[0]), rel=1e-5)
    assert (found.fitted_on, found.judged_on) == (120, 120)
    assert judge_stitching(x, np.ones_like(y)).mae_explained is None


def test_the_penalty_is_the_share_of_neighbours_that_is_missed():
    x, y = make()
    found = judge_stitching(x, y)
    assert 0 < found.stitch.penalty == 1 - found.stitch.overlap_at_10 < found.random.penalty
    assert found.identity is None, "there is none without equal dimensions"
    same = judge_stitching(y, y).identity
    assert (same.mse, same.penalty) == (0, 0)


@pytest.mark.parametrize("narrow", [1.0, 3e-3])
def test_neighbours_are_those_that_float64_finds_even_where_all_vectors_are_alike(narrow):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 30)).astype(np.float32)
    y = (rng.normal(size=40) + narrow * (x @ rng.normal(size=(30, 40)))).astype(np.float32)
    y /= np.linalg.norm(y, axis=1, keepdims=True)
    known, asked = halves(300, seed=0)
    predicted = Ridge().fit(x[known], y[known]).transform(x[asked])
    likeness = [cosine_similarity(y[asked].astype(float), side.astype(float)) for side in (y[asked], predicted)]
    for one in likeness:
        np.fill_diagonal(one, -1)
    tops = [np.argsort(-one, axis=1)[:, :10] for one in likeness]
    expected = np.mean([len(set(a) & set(b)) / 10 for a, b in zip(*(top.tolist() for top in tops), strict=True)])
    assert judge_stitching(x, y).stitch.overlap_at_10 == pytest.approx(expected, abs=2e-3)


def test_controls_explain_nothing():
    x, y = make(n=4_000)
    found = judge_stitching(x, y)
    assert found.mean.r2 == pytest.approx(0, abs=0.01)
    assert found.random.r2 == pytest.approx(-1, abs=0.05)  # twice the variance, drawn independently
    assert found.random.overlap_at_10 < 0.05


@pytest.mark.parametrize(
    ("n", "p", "q", "rank"), [(400, 12, 30, 12), (400, 30, 12, 30), (40, 30, 12, 30), (24, 30, 26, 30), (400, 6, 6, 2)]
)
def test_the_spectrum_is_that_of_the_whole_matrix(n, p, q, rank):
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(n, p)) + 1).astype(np.float32)
    noise = rng.normal(size=(n, q)) if rank >= p else 0
    y = (x @ rng.normal(size=(p, rank)) @ rng.normal(size=(rank, q)) + noise).astype(np.float32)
    known, _ = halves(n, seed=0)
    values = np.linalg.svd(Ridge().fit(x[known], y[known]).matrix_.astype(float), compute_uv=False)
    found = judge_stitching(x, y)
    count = min(len(known), p, q)
    assert len(found.singular_values) == count
    np.testing.assert_allclose(found.singular_values, values[:count], rtol=1e-5, atol=1e-6 * values[0])
    assert (values[count:] < 1e-6 * values[0]).all()
    assert found.effective_rank == pytest.approx(np.exp(entropy(values)), rel=1e-4)
    assert 1 < found.effective_rank < rank + 0.01


def test_four_documents_are_needed():
    x, y = make()
    with pytest.raises(VectorError, match="same 4 or more"):
        judge_stitching(x[:3], y[:3])


def test_ols_is_that_of_scikit_learn():
    x, y = make(n=300)
    known, asked = halves(len(x), seed=0)
    model = LinearRegression().fit(x[known].astype(float), y[known])
    found = judge_stitching(x, y, stitch="ols")
    assert found.stitch.r2 == pytest.approx(
        r2_score(y[asked], model.predict(x[asked]), multioutput="variance_weighted"), rel=1e-5
    )
    np.testing.assert_allclose(found.singular_values, np.linalg.svd(model.coef_, compute_uv=False), rtol=1e-4)
    assert found.bias_norm == pytest.approx(np.linalg.norm(model.intercept_), rel=1e-4)
    assert found.spec == "ols"


@pytest.mark.slow
@pytest.mark.usefixtures("short_training")
def test_a_network_has_the_spectra_of_its_layers_and_its_loss_curve():
    x, y = make(n=120)
    known, _ = halves(len(x), seed=0)
    network = Mlp(2).fit(x[known], y[known])
    found = judge_stitching(x, y, stitch="mlp:2")
    assert len(found.layers) == 2
    for layer, own in zip(network.layers_, found.layers, strict=True):
        expected = np.linalg.svd(layer.weights.astype(float), compute_uv=False)
        np.testing.assert_allclose(own.singular_values, expected, rtol=1e-5)
        assert own.bias_norm == pytest.approx(np.linalg.norm(layer.biases), rel=1e-5)
    np.testing.assert_array_equal(np.array(found.loss_curve, dtype=np.float32), network.loss_curve_)
    assert (found.singular_values, found.bias_norm, found.effective_rank) == ((), None, None)
    single = judge_stitching(x, y, stitch="mlp:1")
    assert single.bias_norm is not None and len(single.singular_values) == 5


@pytest.mark.parametrize(
    "spec", ["auto", "text", "ridge+text", "prefix", "adjoint", "identity", "mean", "mlp", "mlp:8", ""]
)
def test_stitches_that_no_two_spaces_can_have_are_refused(spec):
    with pytest.raises(UsageError, match="stitches of vectors alone"):
        check_stitch(spec)
