import numpy as np
import pytest
from scipy.stats import spearmanr

from migrate.stitch.base import Pairing, Prediction, cross_predict
from migrate.stitch.confidence import Confidence
from migrate.stitch.reach import DIRECTIONS, Reach
from migrate.stitch.registry import new_stitch
from migrate.vectors import unit_rows


def make_rows(n, p, seed=0):
    """Rows that spread less and less along their axes, away from the origin."""
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(n, p)) * np.linspace(3, 0.1, p) + 5).astype(np.float32)


@pytest.mark.parametrize(("n", "p", "unit"), [(60, 12, 1), (20, 40, 1), (41, 40, 1), (60, 12, 1e-6), (60, 12, 1e6)])
def test_what_is_left_of_the_variance_is_the_leverage_times_the_penalty(n, p, unit):
    x, asked = (rows * np.float32(unit) for rows in (make_rows(n, p), make_rows(30, p, seed=1)))
    centred, new = x - x.mean(axis=0, dtype=float), asked - x.mean(axis=0, dtype=float)
    gram = centred.T @ centred
    penalty = 0.03 * np.trace(gram) / min(n - 1, p)
    scale = np.square(centred).sum(axis=1).mean()
    leverage = np.einsum("ij,jk,ik->i", new, np.linalg.inv(gram + penalty * np.eye(p)), new)
    variance, prior = Reach.fit(x).of(asked)
    np.testing.assert_allclose(variance, penalty * leverage / scale, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(prior, np.square(new).sum(axis=1) / scale, rtol=1e-4)


def test_of_many_dimensions_the_leading_directions_are_kept():
    x, asked = make_rows(200, DIRECTIONS + 30), make_rows(30, DIRECTIONS + 30, seed=1)
    found = Reach.fit(x)
    assert found.directions.shape == (DIRECTIONS + 30, DIRECTIONS)
    variance, prior = found.of(asked)
    assert (variance > 0).all() and (variance < prior).all()


@pytest.mark.parametrize("rows", [np.ones((5, 3), np.float32), np.eye(1, 3, dtype=np.float32)])
def test_a_sample_without_spread_has_a_reach(rows):
    variance, prior = Reach.fit(rows).of(rows)
    np.testing.assert_array_equal(variance, 0)
    np.testing.assert_array_equal(prior, 0)


def make_pairs(n, seed=0):
    """Documents that a model of few dimensions sees less of, the more there is in them besides."""
    rng = np.random.default_rng(seed)
    noise = rng.uniform(0.1, 3, size=(n, 1)) * rng.normal(size=(n, 100))
    hidden = rng.normal(size=(n, 20)) @ np.random.default_rng(9).normal(size=(20, 100))
    y = unit_rows((hidden + 2 * noise)[:, :50].astype(np.float32))
    return Pairing(unit_rows((hidden + noise)[:, 30:].astype(np.float32)), y)


@pytest.mark.slow
@pytest.mark.parametrize("spec", ["procrustes", "ridge"])
def test_stitches_of_vectors_alone_know_their_good_predictions_by_it(spec):
    pairs, asked = make_pairs(300), make_pairs(500, seed=1)
    stitch = new_stitch(spec).tuned(pairs.source, pairs.target)
    crossed = cross_predict(stitch, pairs)
    found = pairs.fit(stitch).predict(asked.source)
    cosine = np.einsum("ij,ij->i", unit_rows(found.vectors), asked.target)
    known = Confidence.fit(crossed, pairs.target)
    judged = known.of(found)
    by_norm = Confidence.fit(Prediction(crossed.vectors), pairs.target).of(Prediction(found.vectors))
    with_it, without = (spearmanr(one, cosine).statistic for one in (judged, by_norm))
    assert with_it > 0.6 and with_it > without + 0.05
    assert known.spearman == pytest.approx(with_it, abs=0.1)
    assert judged.mean() == pytest.approx(cosine.mean(), abs=0.05)
