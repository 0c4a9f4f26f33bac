from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array, issparse, random_array
from sklearn.metrics.pairwise import rbf_kernel

from migrate.stitch.kernel import GaussianPart, KernelPart, in_order, restore_parts
from migrate.stitch.text_features import DenseView, WordView
from migrate.stitch.text_reader import BUCKETS, ngram_counts, split_words
from migrate.vectors import unit_rows

N, M, F = 20, 9, 6
TEXTS = [f"document {row} of {row % 3} cats" for row in range(M)]


def dense_rows(n=N, seed=0):
    return unit_rows(np.random.default_rng(seed).normal(size=(n, F)).astype(np.float32) + 1)


def word_view(texts):
    words = split_words(texts)
    return WordView(words.weights(), ngram_counts(words.words))


def make(form):
    """A part of the form, the view it is asked with, and the kernel as it should be, of rows in float64."""
    if form == "dense":
        return KernelPart("vector", dense_rows(), 0.7), DenseView(dense_rows(M, 1)), lambda a, b: 0.7 * a @ b.T
    if form == "sparse":
        rows = word_view([f"{text} and {row}" for row, text in enumerate(TEXTS * 3)][:N]).matrix()
        return KernelPart("ngrams", rows, 0.7), word_view(TEXTS), lambda a, b: 0.7 * a @ b.T
    part = GaussianPart("vector", dense_rows(), 0.7, width=0.4)
    return part, DenseView(dense_rows(M, 1)), lambda a, b: 0.7 * rbf_kernel(a, b, gamma=1 / 0.4)


def plain(rows):
    return (rows.toarray() if issparse(rows) else rows).astype(np.float64)


FORMS = ["dense", "sparse", "gaussian"]


@pytest.mark.parametrize("form", FORMS)
def test_the_kernel_is_what_it_says(form):
    part, view, kernel = make(form)
    rows, asked = plain(part.rows), plain(view.matrix())
    some = np.array([3, 0, 7])
    np.testing.assert_allclose(part.cross(some), kernel(rows, rows[some]), atol=1e-6)
    assert part.cross(some).dtype == np.float64
    np.testing.assert_allclose(part.diagonal(view), np.diag(kernel(asked, asked)), atol=1e-6)
    fewer = np.array([1, 0])
    np.testing.assert_allclose(part.take(some).cross(fewer), kernel(rows[some], rows[some][fewer]), atol=1e-6)


@pytest.mark.parametrize("columns", [1, N - 1, N, N + 1, 3 * N])
@pytest.mark.parametrize("form", FORMS)
def test_what_a_part_adds_is_the_kernel_times_the_coefficients(form, columns):
    """Over features, or over the fit documents where these are fewer than the coefficients of each."""
    part, view, kernel = make(form)
    alpha = np.random.default_rng(2).normal(size=(N, columns)).astype(np.float32)
    found = part.columns(view, alpha)
    assert (found.shape, found.dtype) == ((M, columns), np.float32)
    np.testing.assert_allclose(found, kernel(plain(view.matrix()), plain(part.rows)) @ alpha, atol=2e-5)


@pytest.mark.parametrize("form", FORMS)
def test_other_coefficients_give_another_answer(form):
    """What is kept between batches belongs to the coefficients it was made of."""
    part, view, _ = make(form)
    one, two = np.random.default_rng(2).normal(size=(2, N, 3)).astype(np.float32)
    first = part.columns(view, one)
    np.testing.assert_array_equal(part.columns(view, one), first)
    assert not np.allclose(part.columns(view, two), first, atol=1e-3)
    np.testing.assert_array_equal(part.columns(view, one), first)
    np.testing.assert_allclose(replace(part, scale=2 * part.scale).columns(view, one), 2 * first, atol=1e-5)


def test_parts_can_be_put_away_and_taken_back():
    parts = [make(form)[0] for form in FORMS]
    parts[2] = replace(parts[2], name="angle")
    arrays = {name: array for part in parts for name, array in part.arrays().items()}
    found = restore_parts({"alpha": np.ones(3), **arrays}, N)
    assert [type(part) for part in found] == [GaussianPart, KernelPart, KernelPart]
    for part, again in zip(in_order(parts), found, strict=True):
        assert (again.name, again.scale) == (part.name, part.scale)
        everyone = np.arange(N)
        assert again.cross(everyone).tobytes() == part.cross(everyone).tobytes()


def test_rows_without_features_keep_their_width():
    part = KernelPart("ngrams", csr_array((N, BUCKETS), dtype=np.float32))
    (again,) = restore_parts(part.arrays(), N)
    assert again.rows.shape == (N, BUCKETS)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("starts", np.array([0, 99])),
        ("starts", np.arange(N + 2)),
        ("indices", np.full(4, F, dtype=np.int32)),
        ("indices", np.full(4, -1, dtype=np.int32)),
        ("width", np.array([2])),
    ],
)
def test_arrays_that_make_no_matrix_are_refused(name, value):
    rows = csr_array(random_array((N, F), density=0.3, rng=0, dtype=np.float32))
    arrays = KernelPart("ngrams", rows).arrays()
    if name == "indices":
        value = np.resize(value, len(rows.indices))
    with pytest.raises(ValueError):
        restore_parts({**arrays, f"ngrams/linear/{name}": value}, N)


def test_the_order_in_which_parts_are_added_up_is_that_of_their_names():
    one, two = KernelPart("a", dense_rows()), KernelPart("b", dense_rows())
    assert in_order([two, one]) == (one, two)
    arrays = {**two.arrays(), **one.arrays()}
    assert [part.name for part in restore_parts(arrays, N)] == ["a", "b"]


@pytest.mark.parametrize("rows", [np.ones((N - 1, F)), np.ones((N + 1, F)), np.ones(N), np.ones((N, F, 1))])
def test_rows_that_are_not_one_a_document_are_refused(rows):
    arrays = {**make("dense")[0].arrays(), "vector/linear/rows": rows.astype(np.float32)}
    with pytest.raises(ValueError, match=f"expected {N} rows"):
        restore_parts(arrays, N)


@pytest.mark.parametrize("width", [0.0, -1.0, np.nan])
def test_a_kernel_without_width_is_refused(width):
    arrays = {**make("gaussian")[0].arrays(), "vector/gaussian/bandwidth": np.array([width])}
    with pytest.raises(ValueError, match="Gaussian kernel of width"):
        restore_parts(arrays, N)


@pytest.mark.parametrize("name", ["scale", "data", "starts", "width"])
def test_an_array_that_is_missing_is_told(name):
    arrays = make("sparse")[0].arrays()
    del arrays[f"ngrams/linear/{name}"]
    with pytest.raises(KeyError):
        restore_parts(arrays, N)
