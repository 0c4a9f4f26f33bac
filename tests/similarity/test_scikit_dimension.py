"""Intrinsic dimensions against those of scikit-dimension, where it is installed."""

import warnings

import numpy as np
import pytest

from migrate.similarity.neighbours import find_nearest, local_dimensions, mean_dimension, two_nn_dimension

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    skdim = pytest.importorskip("skdim")


@pytest.fixture(scope="module")
def vectors():
    """Places where the dimension is 2, and others where it is 6."""
    rng = np.random.default_rng(0)
    flat = np.pad(rng.normal(size=(250, 2)), ((0, 0), (0, 6)))
    full = np.pad(rng.normal(size=(250, 6)), ((0, 0), (2, 0))) + 20
    return np.vstack([flat, full]).astype(np.float32)


def test_local_dimensions_are_those_of_scikit_dimension(vectors):
    near = find_nearest(vectors, 20)
    model = skdim.id.MLE(unbiased=True).fit(vectors.astype(float), n_neighbors=20, comb="mle")
    np.testing.assert_allclose(local_dimensions(near), model.dimension_pw_, rtol=1e-4)
    assert mean_dimension(local_dimensions(near)) == pytest.approx(model.dimension_, rel=1e-4)


def test_two_nn_is_that_of_scikit_dimension(vectors):
    """Both fit the line of the paper without the tenth of the greatest ratios."""
    found = two_nn_dimension(find_nearest(vectors, 2))
    assert found == pytest.approx(skdim.id.TwoNN(discard_fraction=0.1).fit(vectors.astype(float)).dimension_, rel=1e-4)
