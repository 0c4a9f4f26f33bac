import numpy as np
import pytest
from scipy.optimize import brentq

from migrate.manifest import Manifest
from migrate.stitch.base import Pairing
from migrate.stitch.fitted import FittedStitch, TrueVectors
from migrate.stitch.linear import Ridge
from migrate.stitch.scores import Neighbours, Sphere
from migrate.stitch.select import Selection
from migrate.vectors import Batch, unit_rows


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


def test_predictions_that_shrink_are_no_hubs_any_more():
    """Half of the predictions are shrunk: scaled to unit length they win queries that are not theirs."""
    truth = narrow(400)
    share = np.where(np.arange(400) % 2, 1.0, 0.3)[:, None].astype(np.float32)
    mean = truth.mean(axis=0)
    neighbours = Neighbours(truth)
    assert neighbours.overlap(mean + share * (truth - mean)).mean() > 0.95
    scaled = unit_rows(mean + share * (truth - mean))
    wins = np.argsort(-(truth @ scaled.T), axis=1)[:, :10] % 2
    assert (wins == 0).mean() > 0.9


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
