import numpy as np
import pytest
from sklearn.neighbors import NearestNeighbors

from migrate.lab.similarity.neighbours import neighbour_jaccard, rank_similarity
from migrate.stitch.nearest import find_nearest
from migrate.vectors import unit_rows


def make(n=80, seed=0, noise=0.5):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 6)).astype(np.float32)
    return x, np.hstack([x + noise * rng.normal(size=x.shape), rng.normal(size=(n, 2))]).astype(np.float32)


def brute_lists(vectors, k):
    """Nearest first, by cosine, without the document itself."""
    found = NearestNeighbors(n_neighbors=k + 1, metric="cosine", algorithm="brute").fit(vectors.astype(float))
    lists = found.kneighbors(vectors.astype(float), return_distance=False)
    return [[other for other in row if other != own][:k] for own, row in enumerate(lists.tolist())]


def nearest_in_both(x, y, k=10):
    return find_nearest(unit_rows(x), k), find_nearest(unit_rows(y), k)


def plain_rank_similarity(one, other):
    shared = set(one) & set(other)
    if not shared:
        return 0.0
    total = sum(
        2 / ((1 + abs(one.index(d) - other.index(d))) * (one.index(d) + 1 + other.index(d) + 1)) for d in shared
    )
    return total / sum(1 / i for i in range(1, len(shared) + 1))


@pytest.mark.parametrize("k", [1, 5, 10])
def test_both_are_those_of_plain_lists(k):
    x, y = make()
    pairs = list(zip(brute_lists(x, k), brute_lists(y, k), strict=True))
    jaccards = [len(set(a) & set(b)) / len(set(a) | set(b)) for a, b in pairs]
    near = nearest_in_both(x, y, k)
    assert neighbour_jaccard(*near) == pytest.approx(np.mean(jaccards))
    assert rank_similarity(*near) == pytest.approx(np.mean([plain_rank_similarity(a, b) for a, b in pairs]))


def test_nearest_are_those_of_scikit_learn():
    x, _ = make(n=700)
    asked = np.array([3, 699, 250])
    found = find_nearest(x, 12, query_rows=asked)
    distances, rows = NearestNeighbors(n_neighbors=13).fit(x.astype(float)).kneighbors(x[asked].astype(float))
    assert np.array_equal(found.rows, rows[:, 1:])
    np.testing.assert_allclose(found.distances, distances[:, 1:], rtol=1e-6)


@pytest.mark.parametrize("narrow", [1e-3, 1e-4])
def test_vectors_close_together_are_told_apart(narrow):
    """A middle layer of a network: all cosines are nearly 1."""
    rng = np.random.default_rng(0)
    x = unit_rows((rng.normal(size=40) + narrow * rng.normal(size=(900, 40))).astype(np.float32))
    found = find_nearest(x, 10)
    expected = NearestNeighbors(n_neighbors=11, algorithm="kd_tree").fit(x.astype(float)).kneighbors(x.astype(float))
    np.testing.assert_allclose(found.distances, expected[0][:, 1:], rtol=1e-3)


def test_near_ties_are_ordered_as_float64_orders_them():
    rng = np.random.default_rng(0)
    around = unit_rows(rng.normal(size=(60, 30)).astype(np.float32)) * (1 + 5e-8 * np.arange(60)[:, None])
    x = np.vstack([np.zeros((1, 30)), around, -around]).astype(np.float32)
    found = find_nearest(x, 20, query_rows=np.array([0]))
    exact = np.sort(np.linalg.norm(x[1:].astype(float), axis=1))
    np.testing.assert_allclose(found.distances[0], exact[:20], rtol=1e-12)


def test_few_documents_have_few_neighbours_and_equal_vectors_are_at_no_distance():
    x, y = make(n=4)
    assert find_nearest(x, 10).rows.shape == (4, 3)
    assert neighbour_jaccard(*nearest_in_both(x, y)) == 1
    assert (find_nearest(unit_rows(np.repeat(x, 3, axis=0)), 2).distances == 0).all()
