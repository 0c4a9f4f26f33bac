import numpy as np
import pytest
from scipy.stats import pearsonr
from sklearn.manifold._locally_linear import barycenter_weights
from sklearn.metrics.pairwise import cosine_similarity

from migrate.similarity.neighbours import find_nearest
from migrate.similarity.spaces import local_geometry, reconstruction_weights, relative_orientation
from migrate.vectors import unit_rows


def geometry(a, b, k=10):
    x, y = unit_rows(a), unit_rows(b)
    return local_geometry(x, y, find_nearest(x, k), find_nearest(y, k))


def make(n=90, noise=0.3, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 7)).astype(np.float32)
    return x, (x @ rng.normal(size=(7, 5)) + noise * rng.normal(size=(n, 5))).astype(np.float32)


def test_relative_orientation_is_the_correlation_of_cosines():
    x, y = make()
    above = np.triu_indices(len(x), 1)
    expected = pearsonr(cosine_similarity(x)[above], cosine_similarity(y)[above]).statistic
    assert relative_orientation(x, y) == pytest.approx(expected, abs=1e-6)


def test_weights_are_those_of_scikit_learn():
    x = unit_rows(make(n=600)[0])
    near = find_nearest(x, 4)
    expected = barycenter_weights(x.astype(float), x.astype(float), near.rows, reg=1e-3)
    np.testing.assert_allclose(reconstruction_weights(x, near), expected, rtol=1e-6)


def test_local_geometry_is_the_mean_correlation_of_weights_both_ways():
    x, y = (unit_rows(side) for side in make())
    found = []
    for near in (find_nearest(x, 4).rows, find_nearest(y, 4).rows):
        one, other = (barycenter_weights(s.astype(float), s.astype(float), near, reg=1e-3) for s in (x, y))
        found += [pearsonr(a, b).statistic for a, b in zip(one, other, strict=True)]
    assert geometry(x, y, 4) == pytest.approx(np.mean(found), abs=1e-6)


def test_equal_documents_are_no_obstacle():
    x = np.ones((12, 3), dtype=np.float32)
    assert relative_orientation(x, x) == 0
    assert geometry(x, x) == 1
