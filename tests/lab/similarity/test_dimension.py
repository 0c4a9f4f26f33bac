import warnings

import numpy as np
import pytest

from migrate.lab.similarity.neighbours import local_dimensions, mean_dimension, two_nn_dimension
from migrate.stitch.nearest import find_nearest

pytestmark = pytest.mark.slow


def mean_of(vectors, k=20):
    return mean_dimension(local_dimensions(find_nearest(vectors, k, query_rows=np.arange(1_000))))


def flat(d, n=3_000, ambient=30, seed=0):
    """A Gaussian of d dimensions, turned into more."""
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.normal(size=(ambient, ambient)))[0][:d]
    return (rng.normal(size=(n, d)) @ basis).astype(np.float32)


def test_estimates_are_those_of_scikit_dimension():
    """Where the dimension is 2 in places and 6 in others; TwoNN leaves out the tenth of the greatest ratios."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        skdim = pytest.importorskip("skdim")
    rng = np.random.default_rng(0)
    of_two = np.pad(rng.normal(size=(100, 2)), ((0, 0), (0, 6)))
    of_six = np.pad(rng.normal(size=(100, 6)), ((0, 0), (2, 0))) + 20
    vectors = np.vstack([of_two, of_six]).astype(np.float32)
    found = local_dimensions(find_nearest(vectors, 20))
    model = skdim.id.MLE(unbiased=True).fit(vectors.astype(float), n_neighbors=20, comb="mle")
    np.testing.assert_allclose(found, model.dimension_pw_, rtol=1e-4)
    assert mean_dimension(found) == pytest.approx(model.dimension_, rel=1e-4)
    model = skdim.id.TwoNN(discard_fraction=0.1).fit(vectors.astype(float))
    assert two_nn_dimension(find_nearest(vectors, 2)) == pytest.approx(model.dimension_, rel=1e-4)


def test_copies_do_not_count():
    vectors = flat(2, n=1_500)
    doubled = np.vstack([vectors, vectors])
    once = two_nn_dimension(find_nearest(vectors, 2))
    assert two_nn_dimension(find_nearest(doubled, 5)) == pytest.approx(once, rel=2e-3)
    assert mean_of(doubled, 30) == pytest.approx(2, rel=0.15)


def test_of_equal_documents_nothing_is_known():
    near = find_nearest(np.ones((12, 3), dtype=np.float32), 5)
    assert np.isnan(local_dimensions(near)).all()
    assert np.isnan(mean_dimension(local_dimensions(near)))
    assert np.isnan(two_nn_dimension(near))
