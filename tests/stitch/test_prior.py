import numpy as np
import pytest
from scipy.stats import ortho_group

from migrate.stitch.affine import AffineMap
from migrate.stitch.base import Pairing
from migrate.stitch.linear import RELATIVE_GRID, Ridge
from migrate.stitch.registry import new_stitch
from migrate.stitch.select import select_stitch

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
    stitch = Ridge(relative, prior=prior, share=share).fit(pairs.source, pairs.target)
    matrix = shrunk_matrix(pairs, prior, share, relative[0], min(len(pairs) - 1, P))
    np.testing.assert_allclose(stitch.matrix_, matrix, atol=1e-5)
    offset = pairs.target.mean(axis=0) - pairs.source.mean(axis=0) @ matrix
    np.testing.assert_allclose(stitch.offset_, offset, atol=1e-5)


@pytest.mark.parametrize("n", [20, 40, 80, 160])
def test_a_random_prior_gets_no_weight(n):
    for seed in range(20):
        pairs, rng = make_pairs(n, seed=seed), np.random.default_rng(1_000 + seed)
        random = AffineMap(rng.normal(size=(P, Q)) / np.sqrt(P), rng.normal(size=Q))
        leaned, plain = (Ridge(prior=one).tuned(pairs.source, pairs.target) for one in (random, None))
        assert leaned.share == 0, seed
        assert leaned.penalties == plain.penalties


def test_a_prior_of_the_same_map_is_leaned_on_and_helps(prior):
    pairs = make_pairs(60)
    leaning = Ridge(prior=prior).tuned(pairs.source, pairs.target)
    leaned, plain = (select_stitch(pairs, specs=["ridge"], tuned=tuned) for tuned in ({"ridge": leaning}, {}))
    assert leaning.share > 0 and leaned.stitch.share == leaning.share
    assert leaned.best.scores.overlap_at_10 > plain.best.scores.overlap_at_10 + 0.02


@pytest.mark.parametrize("spec", ["identity", "procrustes", "ridge"])
def test_a_linear_stitch_is_its_matrix(spec):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(50, 8)).astype(np.float32)
    y = (x @ ortho_group.rvs(8, random_state=0) + 1).astype(np.float32)
    stitch = new_stitch(spec).fit(x, y)
    np.testing.assert_allclose(stitch.affine(8).of(x), stitch.transform(x), atol=1e-5)
    assert new_stitch("mean").fit(x, y).affine(8) is None
