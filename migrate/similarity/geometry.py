"""The shape of two spaces: cosines between all documents, and how each is put together from its neighbours."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from migrate.similarity.neighbours import NEIGHBOURS, Nearest, find_nearest
from migrate.similarity.rows import check_same_documents, pearson, some_rows
from migrate.vectors import Vectors, unit_rows

_REGULARISATION = 1e-3  # scikit-learn's, relative to the trace of the Gram matrix
_BLOCK = 256


def relative_orientation(a: Vectors, b: Vectors, *, seed: int = 0) -> float:
    """Pearson correlation of the cosines of all pairs of documents in two spaces, (n, p) and (n, q): -1 to 1.

    The comparison of similarity matrices of Kriegeskorte, Mur & Bandettini 2008, on up to 1,000 documents drawn by
    `seed`; 0 where all cosines of a space are the same.
    """
    check_same_documents(a, b, 3)
    rows = some_rows(len(a), seed=seed)
    above = np.triu_indices(len(rows), 1)
    one, other = (unit_rows(side[rows]).astype(np.float64) for side in (a, b))
    return pearson((one @ one.T)[above], (other @ other.T)[above])


def local_geometry(a: Vectors, b: Vectors, k: int = NEIGHBOURS, *, seed: int = 0) -> float:
    """How alike documents are put together from their neighbours in two spaces, (n, p) and (n, q): -1 to 1.

    The mean correlation of the weights that rebuild a document's direction from its k nearest documents in the one
    space and from the same documents in the other, for the neighbours of either space. Up to 1,000 documents drawn
    by `seed`.
    """
    check_same_documents(a, b, 3)
    asked = some_rows(len(a), seed=seed)
    one, other = unit_rows(a), unit_rows(b)
    near = (find_nearest(side, k, asked=asked) for side in (one, other))
    return local_geometry_of(one, other, *near)


def local_geometry_of(a: Vectors, b: Vectors, *both: Nearest) -> float:
    """`local_geometry` of unit rows from neighbours that are known."""
    found = [_agreement(reconstruction_weights(a, near), reconstruction_weights(b, near)) for near in both]
    return float(np.mean(found))


def reconstruction_weights(vectors: Vectors, near: Nearest) -> NDArray[np.float64]:
    """Weights, (m, k), each row with sum 1, that best rebuild documents from `near.rows`: Roweis & Saul 2000, eq. 1.

    As in scikit-learn, 0.001 of the trace of a document's Gram matrix is added to its diagonal.
    """
    weights = np.empty(near.rows.shape)
    for start in range(0, len(near.asked), _BLOCK):
        block = slice(start, start + _BLOCK)
        edges = vectors[near.rows[block]].astype(np.float64) - vectors[near.asked[block]][:, None]
        gram = edges @ edges.transpose(0, 2, 1)
        trace = np.einsum("mkk->m", gram)
        ridge = _REGULARISATION * np.where(trace > 0, trace, 1)
        gram += ridge[:, None, None] * np.eye(gram.shape[1])
        weights[block] = np.linalg.solve(gram, np.ones((*gram.shape[:2], 1)))[:, :, 0]
    weights /= weights.sum(axis=1, keepdims=True)
    return weights


def _agreement(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """Mean over rows of the correlation of weights, (m, k); equal weights agree with equal weights only."""
    x, y = (side - side.mean(axis=1, keepdims=True) for side in (one, other))
    scale = np.sqrt(np.einsum("mk,mk->m", x, x) * np.einsum("mk,mk->m", y, y))
    products = np.einsum("mk,mk->m", x, y)
    same = np.isclose(x, y).all(axis=1)
    return float(np.where(scale > 0, products / np.where(scale > 0, scale, 1), same).mean())
