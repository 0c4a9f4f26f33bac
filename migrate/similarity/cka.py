"""Centred kernel alignment of two spaces, unbiased and in minibatches, and the distance that it gives."""

from __future__ import annotations

import numpy as np

from migrate.errors import VectorError
from migrate.similarity.rows import check_same_documents
from migrate.stitch.base import Matrix
from migrate.vectors import Vectors

BATCH_SIZE = 256
"""Documents per minibatch, as Nguyen, Raghu & Kornblith have it."""

FEWEST = 4
"""Documents that the unbiased estimator needs at least."""


def unbiased_hsic(one: Matrix, other: Matrix) -> float:
    """Unbiased estimate of the Hilbert-Schmidt independence criterion from two Gram matrices, (n, n), n >= 4.

    Song et al. 2012; HSIC₁ in Nguyen, Raghu & Kornblith 2021, eq. 3. The diagonals are left out.
    """
    n = len(one)
    k, l = _without_diagonal(one), _without_diagonal(other)  # noqa: E741 - the letters of the formula
    k_sums, l_sums = k.sum(axis=0), l.sum(axis=0)
    total = np.einsum("ij,ij->", k, l)
    total += k_sums.sum() * l_sums.sum() / ((n - 1) * (n - 2))
    total -= 2 / (n - 2) * (k_sums @ l_sums)
    return float(total) / (n * (n - 3))


def linear_cka(a: Vectors, b: Vectors, *, batch_size: int = BATCH_SIZE, seed: int = 0) -> float:
    """Linear CKA of two spaces, (n, p) and (n, q), row i of both for one document.

    The mean unbiased HSIC of both sides over random minibatches, divided by the geometric mean of that of each with
    itself (Nguyen, Raghu & Kornblith 2021, eq. 2). 1: alike up to rotation, scale and shift; about 0, and so by
    chance below: unlike. A minibatch has `batch_size` documents or a few more, so that none is left out; with
    `batch_size` n it is the full-batch figure. A space without any spread has 0.

    Raises
    ------
    VectorError
        The two differ in length, or there are fewer than 4 documents.
    """
    check_same_documents(a, b, FEWEST)
    if batch_size < FEWEST:
        raise VectorError(f"expected minibatches of at least {FEWEST} documents, found {batch_size}")
    means = [side.mean(axis=0, dtype=np.float64) for side in (a, b)]
    order = np.random.default_rng(seed).permutation(len(a))
    sums = np.zeros(3)
    for rows in np.array_split(order, max(len(a) // batch_size, 1)):
        x, y = a[rows] - means[0], b[rows] - means[1]
        k, l = x @ x.T, y @ y.T  # noqa: E741
        sums += unbiased_hsic(k, l), unbiased_hsic(k, k), unbiased_hsic(l, l)
    both, one, other = sums.tolist()
    return float(both / np.sqrt(one * other)) if one > 0 and other > 0 else 0.0


def cka_distance(cka: float) -> float:
    """The angle arccos(CKA) in radians, from 0 (alike) to about π/2 (unlike): Williams et al. 2021.

    With the unbiased estimator it is a metric in the limit of many documents only.
    """
    return float(np.arccos(np.clip(cka, -1, 1)))


def _without_diagonal(gram: Matrix) -> Matrix:
    copy = gram.copy()
    np.fill_diagonal(copy, 0)
    return copy
