import numpy as np
import pytest
from scipy.stats import rankdata, spearmanr
from sklearn.linear_model import LinearRegression

from migrate.report.fit import fit_sentences
from migrate.stitch.base import Prediction, cross_predict
from migrate.stitch.confidence import Confidence, ranks, spearman
from migrate.stitch.registry import new_stitch
from migrate.stitch.scores import HeldOutScores
from migrate.stitch.select import ScoredStitch, Selection
from migrate.vectors import unit_rows

DIM = 8


def make_predictions(n=400, seed=0, noise=0.05):
    """Predictions whose norm and variance tell how near the truth they are, but for some noise; and the truth."""
    rng = np.random.default_rng(seed)
    truth = unit_rows(rng.normal(size=(n, DIM)).astype(np.float32))
    other = rng.normal(size=(n, DIM))
    other -= np.einsum("ij,ij->i", other, truth)[:, None] * truth
    cosine = rng.uniform(0.2, 0.95, size=n)
    direction = cosine[:, None] * truth + np.sqrt(1 - cosine**2)[:, None] * unit_rows(other.astype(np.float32))
    norms = 0.3 + 0.5 * cosine + noise * rng.normal(size=n)
    variance = 1.2 - cosine + noise * rng.normal(size=n)
    return Prediction((direction * norms[:, None]).astype(np.float32), variance.astype(np.float32)), truth, cosine


def of(norm, variance):
    vector = np.zeros((1, DIM), dtype=np.float32)
    vector[0, 2] = norm
    return Prediction(vector, np.array([variance], dtype=np.float32))


@pytest.mark.parametrize("seed", range(3))
def test_ranks_and_their_correlation_are_those_of_scipy(seed):
    rng = np.random.default_rng(seed)
    assert spearman(np.ones(5), np.arange(5.0)) == spearman(np.arange(5.0), np.ones(5)) == 0
    assert spearman(np.ones(1), np.ones(1)) == 0
    values = rng.integers(0, 9, size=40).astype(float)
    np.testing.assert_array_equal(ranks(values), rankdata(values))
    one, other = rng.normal(size=50), rng.normal(size=50)
    for a, b in [(one, other), (one, np.round(one + other)), (np.round(one), np.round(other)), (one, -one)]:
        assert spearman(a, b) == pytest.approx(spearmanr(a, b).statistic, abs=1e-12)


def test_coefficients_are_those_of_a_linear_regression():
    prediction, truth, cosine = make_predictions()
    prior = (2 - cosine + 0.1 * np.random.default_rng(1).normal(size=len(cosine))).astype(np.float32)
    prediction = Prediction(prediction.vectors, prediction.variance, prior)
    found = Confidence.fit(prediction, truth)
    signals = np.column_stack([np.linalg.norm(prediction.vectors, axis=1), prediction.variance, prior])
    judge = LinearRegression().fit(signals, cosine)
    np.testing.assert_allclose(found.coefficients, [judge.intercept_, *judge.coef_], rtol=1e-3)
    np.testing.assert_allclose(found.of(prediction), np.clip(judge.predict(signals), -1, 1), atol=1e-4)


def test_confidence_is_a_cosine():
    found = Confidence.fit(*make_predictions()[:2])
    assert 0.999 < found.of(of(1e6, 0.0))[0] < 1  # 1 is for true vectors
    assert found.of(of(0.0, 1e6)).tolist() == [-1]
    assert found.of(of(0.5, 0.5)).dtype == np.float32
    assert found.of(Prediction(np.empty((0, DIM), np.float32), np.empty(0, np.float32))).shape == (0,)


def test_figures_tell_how_good_it_is_on_documents_of_the_same_kind():
    """They are measured on pairs that the coefficients are not of: a second draw gives the same."""
    found = Confidence.fit(*make_predictions()[:2])
    prediction, _, cosine = make_predictions(seed=1, n=4000)
    judged = found.of(prediction)
    assert found.spearman == pytest.approx(spearmanr(judged, cosine).statistic, abs=0.05)
    error = 2 - 2 * cosine
    worst = np.argsort(judged)[:400]
    assert found.worst_share == pytest.approx(error[worst].sum() / error.sum(), abs=0.05)
    assert found.worst_share > 0.15
    assert found.usual == pytest.approx(np.median(judged), abs=0.05)
    assert found.lowest == pytest.approx(np.percentile(judged, 1), abs=0.05)


@pytest.mark.parametrize("n", [6, 12, 40])
def test_figures_promise_nothing_where_there_is_nothing(n):
    """Coefficients fitted to noise would look good on the pairs that they are of."""
    honest, flattered = [], []
    for seed in range(80):
        rng = np.random.default_rng(seed)
        truth = rng.normal(size=(n, DIM)).astype(np.float32)
        prediction = Prediction(rng.normal(size=(n, DIM)).astype(np.float32), rng.normal(size=n).astype(np.float32))
        found = Confidence.fit(prediction, truth)
        honest.append(found.spearman)
        cosine = np.einsum("ij,ij->i", unit_rows(prediction.vectors), unit_rows(truth))
        flattered.append(spearmanr(found.of(prediction), cosine).statistic)
    assert np.mean(honest) < 0.1
    assert np.mean(flattered) > np.mean(honest) + 0.1


def test_a_stitch_without_a_variance_is_judged_by_the_norm():
    prediction, truth, _ = make_predictions()
    found = Confidence.fit(Prediction(prediction.vectors), truth)
    assert found.coefficients[2:] == (0, 0)
    assert found.spearman > 0.8
    np.testing.assert_array_equal(found.of(prediction), found.of(Prediction(prediction.vectors)))


def test_perfect_predictions_leave_no_error_to_share():
    truth = make_predictions()[1]
    found = Confidence.fit(Prediction(truth.copy()), truth)
    assert 0 <= found.worst_share <= 1
    np.testing.assert_allclose(found.of(Prediction(truth)), 1, atol=1e-5)
    assert found.usual == pytest.approx(1, abs=1e-5)


def test_documents_of_another_kind_are_trusted_less(make_world):
    world, rng = make_world(200), np.random.default_rng(1)
    both = np.hstack([world.wordy, world.hidden])
    y = unit_rows((both @ rng.normal(size=(24, 16))).astype(np.float32))
    x = (both[:, 6:] @ rng.normal(size=(18, 20))).astype(np.float32)
    pairs = world.pairing(x, y)
    stitch = new_stitch("ridge+text").tuned(x, y, pairs.texts)
    crossed, fitted = cross_predict(stitch, pairs), pairs.fit(stitch)
    known = Confidence.fit(crossed, y)
    assert known.spearman > 0.2
    noise = ["".join(chr(letter) for letter in rng.integers(0x4E00, 0x9F00, size=30)) for _ in range(50)]
    foreign = known.of(fitted.predict(np.tile(x.mean(axis=0), (50, 1)), world.reader.read(noise)))
    like = known.of(fitted.predict(x[:50], world.reader.read(make_world(50, seed=9).texts)))
    inside = known.of(crossed)
    assert foreign.mean() < inside.mean() - 0.1
    assert foreign.mean() < like.mean()
    assert (foreign < known.usual).all()


@pytest.mark.parametrize(("noise", "usable"), [(0.05, True), (100.0, False)])
def test_fit_says_whether_the_confidence_is_to_be_used(noise, usable):
    found = Confidence.fit(*make_predictions(noise=noise)[:2])
    scores = HeldOutScores(0.5, 0.1, 0.1, 0.4)
    selection = Selection("ridge", (ScoredStitch("ridge", scores),), found)
    (said,) = [line for line in fit_sentences(selection) if "confidence" in line]
    assert found.is_usable is usable is (found.spearman >= 0.2)
    assert ("is not to be used" in said) is not usable and f"Spearman {found.spearman:.2f}" in said
