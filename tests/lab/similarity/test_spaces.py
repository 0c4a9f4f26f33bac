import dataclasses
import math

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr
from sklearn.manifold._locally_linear import barycenter_weights
from sklearn.metrics.pairwise import cosine_similarity

from migrate.errors import VectorError
from migrate.lab.similarity.neighbours import (
    local_dimensions,
    mean_dimension,
    neighbour_jaccard,
    rank_similarity,
    some_rows,
)
from migrate.lab.similarity.spaces import (
    biased_cka,
    chance_cka,
    cka_distance,
    compare_spaces,
    linear_cka,
    local_geometry,
    reconstruction_weights,
    relative_orientation,
    unbiased_hsic,
)
from migrate.lab.similarity.stitching import judge_stitching
from migrate.stitch.nearest import find_nearest
from migrate.vectors import unit_rows


def make(n=1_300, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 12)).astype(np.float32)
    return x, (np.tanh(x @ rng.normal(size=(12, 9))) + 0.1 * rng.normal(size=(n, 9))).astype(np.float32)


@pytest.mark.slow
def test_every_figure_is_that_of_its_function():
    x, y = make()
    found = compare_spaces(x, y, seed=4)
    units, asked = [unit_rows(side) for side in (x, y)], some_rows(len(x), seed=4)
    assert len(asked) == 1_000
    wide = [find_nearest(side, 20, query_rows=asked) for side in units]
    dimensions = [local_dimensions(side) for side in wide]
    near = [side.first(10) for side in wide]
    assert found.cka == linear_cka(x, y, seed=4)
    assert found.cka_distance == math.acos(found.cka)
    assert found.jaccard == neighbour_jaccard(*near)
    assert found.rank_similarity == rank_similarity(*near)
    assert found.relative_orientation == relative_orientation(x, y, seed=4)
    assert found.local_geometry == pytest.approx(local_geometry(*units, *near))
    assert found.dimensions == tuple(map(mean_dimension, dimensions))
    assert found.dimension_agreement == pytest.approx(spearmanr(*dimensions).statistic)
    assert found.forth == judge_stitching(x, y, seed=4)
    assert found.back == judge_stitching(y, x, seed=4)
    assert found.documents == 1_300


@pytest.mark.parametrize("n", [4, 5, 12])
def test_few_documents_are_enough(n):
    x, y = make(n=n)
    found = dataclasses.asdict(compare_spaces(x, y))
    assert all(math.isfinite(found[name]) for name in ("cka", "jaccard", "relative_orientation", "local_geometry"))


X, Y = make(n=80)
STRANGE = {
    "all equal": np.ones_like(X),
    "one dimension": X[:, :1] ** 2 + 1,
    "copies": np.repeat(X[:20], 4, axis=0),
    "small": X * np.float32(1e-6),
    "great": X * np.float32(1e6),
}


@pytest.mark.parametrize("kind", STRANGE)
def test_a_strange_space_is_no_obstacle(kind):
    found = compare_spaces(STRANGE[kind], Y)
    for figure in ("cka", "jaccard", "rank_similarity", "relative_orientation", "local_geometry"):
        assert -1 <= getattr(found, figure) <= 1
    assert all(math.isfinite(scores.r2) for way in (found.forth, found.back) for scores in (way.stitch, way.mean))


def make_related(n=60, p=8, q=5, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, p)) + 3
    y = x @ rng.normal(size=(p, q)) + rng.normal(size=(n, q))
    return x.astype(np.float32), y.astype(np.float32)


def hsic_by_sums(k, l):  # noqa: E741
    """The U-statistic of Song et al. 2012 as sums over tuples of different documents, without any matrix identity."""
    n = len(k)
    rows = range(n)
    pairs = sum(k[i, j] * l[i, j] for i in rows for j in rows if i != j)
    triples = sum(k[i, j] * l[i, m] for i in rows for j in rows for m in rows if len({i, j, m}) == 3)
    quads = sum(k[i, j] * l[m, o] for i in rows for j in rows for m in rows for o in rows if len({i, j, m, o}) == 4)
    return pairs / (n * (n - 1)) - 2 * triples / (n * (n - 1) * (n - 2)) + quads / (n * (n - 1) * (n - 2) * (n - 3))


def full_batch_cka(x, y):
    """Unbiased CKA from explicit Gram matrices, centring included, with matrix products as the formula is written."""

    def hsic(k, l):  # noqa: E741
        n = len(k)
        k, l = k - np.diag(np.diag(k)), l - np.diag(np.diag(l))  # noqa: E741
        one = np.ones((n, 1))
        middle = (one.T @ k @ one).item() * (one.T @ l @ one).item() / ((n - 1) * (n - 2))
        return (np.trace(k @ l) + middle - 2 / (n - 2) * (one.T @ k @ l @ one).item()) / (n * (n - 3))

    x, y = x.astype(float), y.astype(float)
    k, l = x @ x.T, y @ y.T  # noqa: E741
    return hsic(k, l) / np.sqrt(hsic(k, k) * hsic(l, l))


def test_hsic_is_the_sum_over_different_documents():
    x, y = (side[:9].astype(float) for side in make_related())
    assert unbiased_hsic(x @ x.T, y @ y.T) == pytest.approx(hsic_by_sums(x @ x.T, y @ y.T), rel=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_full_batch_cka_is_that_of_explicit_gram_matrices_and_minibatches_estimate_it(seed):
    x, y = make_related(n=50 + seed, seed=seed)
    assert linear_cka(x, y, batch_size=len(x)) == pytest.approx(full_batch_cka(x, y), abs=1e-6)
    x, y = make_related(n=900, seed=seed)
    assert linear_cka(x, y, batch_size=100) == pytest.approx(full_batch_cka(x, y), abs=0.01)


@pytest.mark.parametrize(("n", "batch_size"), [(60, 10), (61, 10), (67, 13), (60, 4)])
def test_minibatches_are_a_plain_loop_over_the_shuffled_documents(n, batch_size):
    x, y = make_related(n=n)
    order = np.random.default_rng(5).permutation(n)
    sums, seen = np.zeros(3), 0
    for rows in np.array_split(order, n // batch_size):
        a, b = x[rows].astype(float), y[rows].astype(float)
        k, l = a @ a.T, b @ b.T  # noqa: E741
        sums += [unbiased_hsic(k, l), unbiased_hsic(k, k), unbiased_hsic(l, l)]
        seen += len(rows)
        assert len(rows) >= batch_size
    assert seen == n
    assert linear_cka(x, y, batch_size=batch_size, seed=5) == pytest.approx(
        sums[0] / np.sqrt(sums[1] * sums[2]), abs=1e-6
    )


def test_the_distance_is_an_angle():
    assert cka_distance(0.5) == pytest.approx(np.pi / 3)
    assert cka_distance(1.0) == cka_distance(1 + 1e-9) == 0


def test_documents_must_be_the_same_and_four():
    x, y = make_related()
    assert linear_cka(x, np.ones_like(x)) == 0, "a space without spread is like nothing"
    with pytest.raises(VectorError, match="there are 60 and 59"):
        linear_cka(x, y[:-1])
    with pytest.raises(VectorError, match="same 4 or more"):
        linear_cka(x[:3], y[:3])
    with pytest.raises(VectorError, match="minibatches"):
        linear_cka(x, y, batch_size=3)


@pytest.mark.parametrize(("n", "p", "q"), [(60, 8, 5), (20, 40, 30), (20, 40, 5)])
def test_biased_cka_is_that_of_centred_gram_matrices(n, p, q):
    """Kornblith et al. 2019, eq. 3 and 4: tr(KHLH) over the root of tr(KHKH) tr(LHLH)."""
    x, y = make_related(n=n, p=p, q=q)
    centre = np.eye(n) - 1 / n
    k, l = (centre @ side.astype(float) @ side.T.astype(float) @ centre for side in (x, y))  # noqa: E741
    expected = np.trace(k @ l) / np.sqrt(np.trace(k @ k) * np.trace(l @ l))
    assert biased_cka(x, y) == pytest.approx(expected, abs=1e-6)
    assert biased_cka(x, np.ones_like(x)) == 0


def test_a_gaussian_is_alike_by_the_biased_estimator_alone():
    """Of n documents in d dimensions, independent Gaussians have about d / (n + d), here 1/2, without bias 0."""
    x = np.random.default_rng(5).normal(size=(400, 400)).astype(np.float32)
    chance = chance_cka(x, seed=1)
    assert chance.cka_biased == pytest.approx(0.5, abs=0.02)
    assert chance.cka == pytest.approx(0, abs=0.02)
    assert chance_cka(x, seed=1) == chance


def geometry(a, b, k=10):
    x, y = unit_rows(a), unit_rows(b)
    return local_geometry(x, y, find_nearest(x, k), find_nearest(y, k))


def test_relative_orientation_is_the_correlation_of_cosines():
    x, y = make(n=90)
    above = np.triu_indices(len(x), 1)
    expected = pearsonr(cosine_similarity(x)[above], cosine_similarity(y)[above]).statistic
    assert relative_orientation(x, y) == pytest.approx(expected, abs=1e-6)


def test_weights_are_those_of_scikit_learn():
    x = unit_rows(make(n=600)[0])
    near = find_nearest(x, 4)
    expected = barycenter_weights(x.astype(float), x.astype(float), near.rows, reg=1e-3)
    np.testing.assert_allclose(reconstruction_weights(x, near), expected, rtol=1e-6)


def test_local_geometry_is_the_mean_correlation_of_weights_both_ways():
    x, y = (unit_rows(side) for side in make(n=90))
    found = []
    for near in (find_nearest(x, 4).rows, find_nearest(y, 4).rows):
        one, other = (barycenter_weights(s.astype(float), s.astype(float), near, reg=1e-3) for s in (x, y))
        found += [pearsonr(a, b).statistic for a, b in zip(one, other, strict=True)]
    assert geometry(x, y, 4) == pytest.approx(np.mean(found), abs=1e-6)


def test_equal_documents_are_no_obstacle():
    x = np.ones((12, 3), dtype=np.float32)
    assert relative_orientation(x, x) == 0
    assert geometry(x, x) == 1
