import numpy as np
import pytest
from scipy.stats import ortho_group
from sklearn.decomposition import PCA

from migrate.stitch.affine import fit_spread
from migrate.stitch.base import Pairing, cross_predict
from migrate.stitch.registry import new_stitch
from migrate.stitch.select import tune
from migrate.vectors import unit_rows

KINDS = ["procrustes", "ridge", "ridge+near", "text", "ridge+text"]


def shrunken(n=300, q=12, seed=0):
    """True vectors, and predictions that know less and less of their principal directions."""
    rng = np.random.default_rng(seed)
    rotation = ortho_group.rvs(q, random_state=seed)
    scale = np.geomspace(1, 0.05, q)
    truth = rng.normal(size=(n, q)) * scale @ rotation + rng.normal(size=q)
    known = (truth - truth.mean(axis=0)) @ rotation.T * np.linspace(1, 0.2, q) @ rotation
    return (known + truth.mean(axis=0)).astype(np.float32), truth.astype(np.float32)


@pytest.mark.parametrize(
    ("n", "q", "power"),
    [(600, 12, 1.25), (300, 12, 1.25), (240, 12, 1), (240, 400, 1), (120, 12, 0.5), (15, 40, 0.0625)],
)
def test_predictions_get_a_little_more_than_the_deviations_of_the_truth_but_those_of_few_pairs_less(n, q, power):
    predicted, truth = shrunken(n, q)
    stretched = fit_spread(predicted, truth).of(predicted)
    judge = PCA(min(n - 1, q)).fit(truth)
    before, after, goal = (judge.transform(rows).std(axis=0) for rows in (predicted, stretched, truth))
    np.testing.assert_allclose(after / before, np.clip((goal / before) ** power, 0.1, 10), rtol=0.02)
    assert (before[4:] < 0.8 * goal[4:]).all() or n < q
    np.testing.assert_allclose(stretched.mean(axis=0), truth.mean(axis=0), atol=1e-4)


@pytest.mark.parametrize("n", [2, 5])
def test_directions_that_the_sample_does_not_know_are_left_alone(n):
    predicted, truth = shrunken(n)
    spread = fit_spread(predicted, truth)
    assert np.isfinite(spread.matrix).all() and np.linalg.matrix_rank(spread.matrix - np.eye(12), tol=1e-9) < n
    assert np.abs(np.linalg.eigvalsh(spread.matrix)).max() < 10.001


def test_a_constant_truth_gives_no_nan():
    truth = np.ones((5, 3), dtype=np.float32)
    np.testing.assert_allclose(fit_spread(truth * 2, truth).matrix, np.eye(3))


@pytest.mark.parametrize("spec", KINDS)
def test_a_stretched_stitch_predicts_what_its_predictions_stretched_are(make_world, spec):
    world = make_world(60)
    pairs = world.pairing(world.hidden, unit_rows(world.hidden @ ortho_group.rvs(12, random_state=0) + world.wordy))
    tuned, held_out = tune(spec, pairs)
    np.testing.assert_array_equal(held_out, cross_predict(tuned, pairs, with_variance=False).vectors)
    stretched = pairs.fit(tuned)
    spread, tuned.spread = tuned.spread, None
    plain = pairs.fit(tuned)
    found, expected = (one.predict(pairs.source[:9], pairs.texts.take(np.arange(9))) for one in (stretched, plain))
    np.testing.assert_allclose(found.vectors, spread.of(expected.vectors), atol=1e-4)
    np.testing.assert_allclose(found.variance, expected.variance, atol=1e-6)


@pytest.mark.parametrize("spec", ["identity", "mean"])
def test_what_learns_no_map_is_not_stretched(make_world, spec):
    world = make_world(40)
    pairs = Pairing(world.hidden, world.wordy)
    tuned, held_out = tune(spec, pairs)
    np.testing.assert_array_equal(held_out, cross_predict(new_stitch(spec), pairs, with_variance=False).vectors)
    plain = new_stitch(spec).fit(pairs.source, pairs.target)
    np.testing.assert_array_equal(pairs.fit(tuned).transform(pairs.source), plain.transform(pairs.source))
