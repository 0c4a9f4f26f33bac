from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

from migrate.stitch.kernel import GaussianPart, KernelPart, restore_parts
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
    """A part of the form, and the view it is asked with."""
    if form == "sparse":
        rows = word_view([f"{text} and {row}" for row, text in enumerate(TEXTS * 3)][:N]).matrix()
        return KernelPart("ngrams", rows, 0.7), word_view(TEXTS)
    if form == "gaussian":
        return GaussianPart("vector", dense_rows(), 0.7, width=0.4), DenseView(dense_rows(M, 1))
    return KernelPart("vector", dense_rows(), 0.7), DenseView(dense_rows(M, 1))


@pytest.mark.parametrize("form", ["dense", "sparse", "gaussian"])
def test_other_coefficients_give_another_answer(form):
    """What is kept between batches belongs to the coefficients it was made of."""
    part, view = make(form)
    one, two = np.random.default_rng(2).normal(size=(2, N, 3)).astype(np.float32)
    first = part.columns(view, one)
    np.testing.assert_array_equal(part.columns(view, one), first)
    assert not np.allclose(part.columns(view, two), first, atol=1e-3)
    np.testing.assert_array_equal(part.columns(view, one), first)
    np.testing.assert_allclose(replace(part, scale=2 * part.scale).columns(view, one), 2 * first, atol=1e-5)


def test_rows_without_features_keep_their_width():
    part = KernelPart("ngrams", csr_array((N, BUCKETS), dtype=np.float32))
    (again,) = restore_parts(part.arrays(), N)
    assert again.rows.shape == (N, BUCKETS)


@pytest.mark.parametrize("width", [0.0, -1.0, np.nan])
def test_a_kernel_without_width_is_refused(width):
    arrays = {**make("gaussian")[0].arrays(), "vector/gaussian/bandwidth": np.array([width])}
    with pytest.raises(ValueError, match="Gaussian kernel of width"):
        restore_parts(arrays, N)
