import numpy as np
import pytest
from scipy.optimize import brentq
from sklearn.metrics import mean_squared_error, r2_score
from sklearn.metrics.pairwise import cosine_similarity

from migrate.manifest import Manifest
from migrate.stitch.base import Pairing
from migrate.stitch.fitted import FittedStitch, TrueVectors
from migrate.stitch.linear import Ridge
from migrate.stitch.scores import Neighbours, Sphere, score_predictions
from migrate.stitch.select import Selection
from migrate.vectors import Batch, unit_rows


def make(n, q=6, noise=1.0, seed=0):
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=(n, q)) + rng.normal(size=q)
    return (truth + noise * rng.normal(size=(n, q))).astype(np.float32), truth.astype(np.float32)


def scored(predicted, truth):
    return score_predictions(predicted, truth, Neighbours(truth).overlap(predicted))


def brute_overlap(predicted, truth, query, k):
    others = [row for row in range(len(truth)) if row != query]
    tops = [sorted(others, key=lambda row: -(truth[query] @ side[row]))[:k] for side in (truth, predicted)]
    return len(set(tops[0]) & set(tops[1])) / k


@pytest.mark.parametrize("noise", [0.01, 1.0, 30.0])
def test_cosine_error_and_r2_are_those_of_scikit_learn(noise):
    predicted, truth = make(50, noise=noise)
    found = scored(predicted, truth)
    assert found.cosine == pytest.approx(np.diag(cosine_similarity(predicted, truth)).mean(), abs=1e-6)
    assert found.mse == pytest.approx(mean_squared_error(truth.astype(float), predicted), rel=1e-6)
    assert found.r2 == pytest.approx(
        r2_score(truth.astype(float), predicted, multioutput="variance_weighted"), rel=1e-5
    )


def test_the_mean_and_constants_explain_nothing_and_perfect_predictions_everything():
    _, truth = make(50)
    assert scored(np.tile(truth.mean(axis=0), (50, 1)), truth).r2 == pytest.approx(0, abs=1e-6)
    constant = np.ones((5, 3), dtype=np.float32)
    assert scored(constant + 1, constant).r2 == 0
    found = scored(truth.copy(), truth)
    assert (found.mse, found.r2, found.overlap_at_10) == (0, 1, 1)
    assert found.cosine == pytest.approx(1)


@pytest.mark.slow
@pytest.mark.parametrize("n", [2, 5, 11, 40, 300])
def test_overlap_is_that_of_sets_of_neighbours(n):
    predicted, truth = (unit_rows(rows) for rows in make(n))
    neighbours = Neighbours(truth)
    expected = [
        brute_overlap(predicted.astype(float), truth.astype(float), q, min(10, n - 1)) for q in neighbours.query_rows
    ]
    assert neighbours.query_rows.tolist() == list(range(n))
    np.testing.assert_allclose(neighbours.overlap(predicted), expected)
    first = neighbours.overlap(predicted)
    assert (neighbours.overlap(truth) == 1).all()
    np.testing.assert_array_equal(neighbours.overlap(predicted), first)  # judging one does not change the next
    assert scored(*make(n)).overlap_at_10 == pytest.approx(first.mean())


def test_of_many_documents_a_thousand_are_asked_about():
    predicted, truth = (unit_rows(rows) for rows in make(1_300, noise=0.5))
    first, again, other = (Neighbours(truth, seed=seed) for seed in (1, 1, 2))
    assert len(set(first.query_rows.tolist())) == 1_000
    assert np.array_equal(first.query_rows, again.query_rows)
    assert not np.array_equal(first.query_rows, other.query_rows)
    found = first.overlap(predicted)
    for position in range(0, 1_000, 97):
        assert found[position] == brute_overlap(predicted, truth, first.query_rows[position], 10)


def test_neighbours_are_told_apart_where_all_vectors_lie_close_together():
    """Cosines of 0.9999999: their differences are near what float32 can hold."""
    rng = np.random.default_rng(4)
    direction = np.ones(32) / np.sqrt(32)
    wide = direction * 3000 + rng.normal(size=(200, 32))
    moved = wide + 0.3 * rng.normal(size=wide.shape)
    truth, predicted = (
        (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32) for rows in (wide, moved)
    )
    exact = [brute_overlap(predicted.astype(float), truth.astype(float), query, 10) for query in range(200)]
    assert Neighbours(truth).overlap(predicted).mean() == pytest.approx(np.mean(exact), abs=0.005)


def test_of_documents_that_are_equally_similar_no_more_than_k_count():
    predicted, truth = (unit_rows(rows) for rows in make(60))
    predicted[20:] = predicted[20]
    for constant in (predicted, np.ones_like(predicted)):
        shares = Neighbours(truth).overlap(constant)
        assert shares.mean() < 0.5 and shares.max() <= 1
    predicted[20:] = make(60)[0][20:]
    expected = [brute_overlap(unit_rows(predicted), truth, query, 10) for query in range(60)]
    np.testing.assert_allclose(Neighbours(truth).overlap(unit_rows(predicted)), expected)


def narrow(n, dim=32, *, seed=0, length=1.0):
    """Vectors of one length, most of which is their common mean."""
    rows = 3 * np.ones(dim) / np.sqrt(dim) + np.random.default_rng(seed).normal(size=(n, dim)) / np.sqrt(dim)
    return length * unit_rows(rows.astype(np.float32))


def wide(n, dim=32, *, seed=0):
    return unit_rows(np.random.default_rng(seed).normal(size=(n, dim)).astype(np.float32))


@pytest.mark.parametrize("length", [1.0, 10.0])
def test_a_prediction_goes_straight_from_the_mean_to_the_sphere(length):
    truth = narrow(200, length=length)
    sphere = Sphere.fit(truth)
    assert sphere.radius == pytest.approx(length)
    predicted = sphere.mean + 0.6 * (truth - sphere.mean) + 0.02 * length * wide(200, seed=1)
    found = sphere.of(predicted, norm=length)
    for row, prediction in zip(found[:20], predicted.astype(float), strict=False):
        away = prediction - sphere.mean
        s = brentq(lambda s, away=away: np.linalg.norm(sphere.mean + s * away) - length, 0, 100)
        np.testing.assert_allclose(row, sphere.mean + s * away, atol=1e-5 * length)
    np.testing.assert_allclose(sphere.of(truth, norm=length), truth, atol=1e-6 * length)


def test_closeness_is_the_cosine_of_centred_vectors_whatever_all_have_in_common():
    rng = np.random.default_rng(0)
    truth = unit_rows(rng.normal(size=(40, 8)).astype(np.float32))
    predicted = unit_rows(truth + rng.normal(scale=0.3, size=truth.shape).astype(np.float32))
    neighbours = Neighbours(truth)
    sides = [rows - rows.mean(axis=0) for rows in (predicted, truth)]
    expected = np.diag(cosine_similarity(*sides))[neighbours.query_rows]
    np.testing.assert_allclose(neighbours.closeness(predicted), expected, atol=2e-6)
    assert (neighbours.closeness(truth) == 1).all()
    assert (neighbours.closeness(np.ones_like(truth)) == 0).all()  # one vector for all finds nobody


def test_where_the_mean_matters_little_or_lengths_differ_predictions_are_only_scaled():
    predicted = wide(50, seed=2)
    lengths = np.random.default_rng(1).uniform(0.5, 2, size=(50, 1)).astype(np.float32)
    for truth in (wide(50), narrow(50) * lengths):
        assert Sphere.fit(truth).radius is None
        assert np.array_equal(Sphere.fit(truth).of(predicted), unit_rows(predicted))
        np.testing.assert_allclose(np.linalg.norm(Sphere.fit(truth).of(predicted, norm=7), axis=1), 7, rtol=1e-6)


def test_a_prediction_that_is_the_mean_is_not_blown_up():
    sphere = Sphere.fit(narrow(50))
    found = sphere.of(np.tile(sphere.mean, (3, 1)) + np.float32(1e-6))
    np.testing.assert_allclose(found, np.tile(unit_rows(sphere.mean[None]), (3, 1)), atol=1e-4)


def test_a_translation_is_put_on_the_sphere():
    source, target = wide(120, 16), narrow(120)
    stitch = Pairing(source, target).fit(Ridge())
    ids = [str(row) for row in range(120)]
    manifest = Manifest(kind="stitch", details={"direction": "document"})
    fitted = FittedStitch(stitch, 1.0, TrueVectors(ids, target), Selection("ridge", ()), manifest)
    new = wide(30, 16, seed=9)
    found = fitted.translate(Batch([f"new {row}" for row in range(30)], new), source="here").vectors
    np.testing.assert_allclose(found, Sphere.fit(target).of(stitch.transform(new)), atol=1e-6)
    assert not np.allclose(found, unit_rows(stitch.transform(new)), atol=1e-3)
