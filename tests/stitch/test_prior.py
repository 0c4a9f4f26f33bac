import numpy as np
import pytest
from scipy.stats import ortho_group

from migrate.stitch.base import Pairing
from migrate.stitch.kernel_ridge import RidgeText
from migrate.stitch.linear import RELATIVE_GRID, Ridge
from migrate.stitch.prior import AffineMap
from migrate.stitch.registry import new_stitch
from migrate.stitch.select import select_stitch, tune
from migrate.stitch.view_weights import Weighing

pytestmark = pytest.mark.slow

P, Q = 30, 20


def make_pairs(n, seed=1, noise=0.3):
    rng = np.random.default_rng(seed)
    matrix = np.random.default_rng(0).normal(size=(P, Q)) / np.sqrt(P)
    x = rng.normal(size=(n, P)) + 0.5
    return Pairing(x.astype(np.float32), (x @ matrix + 0.2 + noise * rng.normal(size=(n, Q))).astype(np.float32))


@pytest.fixture(scope="module")
def prior():
    """What was learned from many other pairs of the same two models."""
    pairs = make_pairs(2_000, seed=7)
    return new_stitch("ridge").fit(pairs.source, pairs.target).affine(P)


def shrunk_matrix(pairs, prior, share, relative, count):
    """The closed form; the penalty is relative to the spread of the source over so many."""
    x, y = (rows.astype(np.float64) - rows.mean(axis=0, dtype=np.float64) for rows in (pairs.source, pairs.target))
    penalty = relative * np.square(x).sum() / count
    return np.linalg.solve(x.T @ x + penalty * np.eye(P), x.T @ y + penalty * share * prior.matrix)


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_ridge_shrinks_towards_the_prior_as_the_closed_form_says(prior, share):
    pairs, relative = make_pairs(25), RELATIVE_GRID[6:7]
    stitch = Ridge(relative, share)
    stitch.prior = prior
    stitch.fit(pairs.source, pairs.target)
    matrix = shrunk_matrix(pairs, prior, share, relative[0], min(len(pairs) - 1, P))
    np.testing.assert_allclose(stitch.matrix_, matrix, atol=1e-5)
    offset = pairs.target.mean(axis=0) - pairs.source.mean(axis=0) @ matrix
    np.testing.assert_allclose(stitch.offset_, offset, atol=1e-5)


def test_the_kernel_stitch_of_the_old_vector_alone_is_that_ridge(prior, make_world):
    world, pairs = make_world(25), make_pairs(25)
    texts = world.reader.read(world.texts)
    stitch = RidgeText(Weighing({"vector": 1.0}, 0.1, 0.0, share=0.5))
    stitch.prior = prior
    stitch.fit(pairs.source, pairs.target, texts)
    matrix = shrunk_matrix(pairs, prior, 0.5, 0.1, len(pairs))
    expected = (pairs.source - pairs.source.mean(axis=0)) @ matrix + pairs.target.mean(axis=0)
    np.testing.assert_allclose(stitch.transform(pairs.source, texts), expected, atol=1e-4)
    again = RidgeText().restore_saved(stitch.saved())
    np.testing.assert_array_equal(again.transform(pairs.source, texts), stitch.transform(pairs.source, texts))


@pytest.mark.parametrize("spec", ["ridge", "ridge+text"])
@pytest.mark.parametrize("n", [40, 160])
def test_a_random_prior_gets_no_weight(make_world, spec, n):
    world, pairs = make_world(n), make_pairs(n)
    pairs = world.pairing(pairs.source, pairs.target)
    rng = np.random.default_rng(3)
    random = AffineMap(rng.normal(size=(P, Q)) / np.sqrt(P), rng.normal(size=Q))
    leaned, plain = (pairs.fit(tune(spec, pairs, prior=one)[0]) for one in (random, None))
    np.testing.assert_array_equal(
        leaned.transform(pairs.source, pairs.texts), plain.transform(pairs.source, pairs.texts)
    )


def test_selection_hands_the_prior_to_its_candidates(prior):
    pairs = make_pairs(60)
    leaned, plain = (select_stitch(pairs, specs=["ridge"], prior=one).best.scores for one in (prior, None))
    assert leaned.overlap_at_10 > plain.overlap_at_10 + 0.02


@pytest.mark.parametrize("spec", ["identity", "procrustes", "ridge"])
def test_a_linear_stitch_is_its_matrix(spec):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(50, 8)).astype(np.float32)
    y = (x @ ortho_group.rvs(8, random_state=0) + 1).astype(np.float32)
    stitch = new_stitch(spec).fit(x, y)
    np.testing.assert_allclose(stitch.affine(8).of(x), stitch.transform(x), atol=1e-5)
    assert new_stitch("mean").fit(x, y).affine(8) is None
