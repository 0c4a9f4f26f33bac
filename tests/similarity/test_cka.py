import numpy as np
import pytest

from migrate.errors import VectorError
from migrate.similarity.spaces import biased_cka, chance_cka, cka_distance, linear_cka, unbiased_hsic


def make(n=60, p=8, q=5, seed=0):
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
    x, y = (side[:9].astype(float) for side in make())
    assert unbiased_hsic(x @ x.T, y @ y.T) == pytest.approx(hsic_by_sums(x @ x.T, y @ y.T), rel=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_full_batch_cka_is_that_of_explicit_gram_matrices_and_minibatches_estimate_it(seed):
    x, y = make(n=50 + seed, seed=seed)
    assert linear_cka(x, y, batch_size=len(x)) == pytest.approx(full_batch_cka(x, y), abs=1e-6)
    x, y = make(n=900, seed=seed)
    assert linear_cka(x, y, batch_size=100) == pytest.approx(full_batch_cka(x, y), abs=0.01)


@pytest.mark.parametrize(("n", "batch_size"), [(60, 10), (61, 10), (67, 13), (60, 4)])
def test_minibatches_are_a_plain_loop_over_the_shuffled_documents(n, batch_size):
    x, y = make(n=n)
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
    x, y = make()
    assert linear_cka(x, np.ones_like(x)) == 0, "a space without spread is like nothing"
    with pytest.raises(VectorError, match="found 60 and 59"):
        linear_cka(x, y[:-1])
    with pytest.raises(VectorError, match="same 4 or more"):
        linear_cka(x[:3], y[:3])
    with pytest.raises(VectorError, match="minibatches"):
        linear_cka(x, y, batch_size=3)


@pytest.mark.parametrize(("n", "p", "q"), [(60, 8, 5), (20, 40, 30), (20, 40, 5)])
def test_biased_cka_is_that_of_centred_gram_matrices(n, p, q):
    """Kornblith et al. 2019, eq. 3 and 4: tr(KHLH) over the root of tr(KHKH) tr(LHLH)."""
    x, y = make(n=n, p=p, q=q)
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
