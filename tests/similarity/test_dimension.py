import numpy as np
import pytest

from migrate.similarity.neighbours import find_nearest, local_dimensions, mean_dimension, two_nn_dimension

pytestmark = pytest.mark.slow


def mean_of(vectors, k=20):
    return mean_dimension(local_dimensions(find_nearest(vectors, k, query_rows=np.arange(1_000))))


def flat(d, n=3_000, ambient=30, seed=0):
    """A Gaussian of d dimensions, turned into more."""
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.normal(size=(ambient, ambient)))[0][:d]
    return (rng.normal(size=(n, d)) @ basis).astype(np.float32)


@pytest.mark.parametrize("d", [1, 2, 5])
def test_a_flat_space_has_its_dimension(d):
    vectors = flat(d)
    assert mean_of(vectors) == pytest.approx(d, rel=0.08)
    assert two_nn_dimension(find_nearest(vectors, 2)) == pytest.approx(d, rel=0.08)


def test_a_curled_sheet_has_two_dimensions():
    rng = np.random.default_rng(0)
    t, height = rng.uniform(4, 14, 4_000), rng.uniform(0, 20, 4_000)
    roll = np.column_stack([t * np.cos(t), height, t * np.sin(t)]).astype(np.float32)
    assert mean_of(roll) == pytest.approx(2, rel=0.1)
    assert two_nn_dimension(find_nearest(roll, 2)) == pytest.approx(2, rel=0.1)


def test_local_dimensions_are_the_formula_row_by_row():
    near = find_nearest(flat(3, n=200), 8)
    expected = [6 / sum(np.log(row[-1] / t) for t in row) for row in near.distances]
    np.testing.assert_allclose(local_dimensions(near), expected)


def test_the_estimate_is_unbiased_for_few_neighbours():
    """In a uniform space of dimension d, the ratios (T_j / T_k)^d are uniform: the closed case of the estimator."""
    rng = np.random.default_rng(0)
    near = find_nearest(rng.uniform(size=(20_000, 2)).astype(np.float32), 5, query_rows=np.arange(0, 20_000, 10))
    assert local_dimensions(near).mean() == pytest.approx(2, rel=0.1)


def test_two_nn_is_the_fit_of_the_paper():
    near = find_nearest(flat(4, n=500), 2)
    mu = np.sort(near.distances[:, 1] / near.distances[:, 0])
    empirical = np.arange(1, 501) / 500
    x, y = np.log(mu[:450]), -np.log(1 - empirical[:450])
    slope = np.linalg.lstsq(x[:, None], y, rcond=None)[0][0]
    assert two_nn_dimension(near) == pytest.approx(slope)


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
