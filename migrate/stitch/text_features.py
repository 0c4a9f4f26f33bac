"""The views of documents that text-aware stitches read: weighted words times features of words, or dense vectors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from migrate.vectors import Vectors, squared_norms, unit_rows

Sparse: TypeAlias = Any
"""A `scipy.sparse.csr_array` of float32."""

Matrix: TypeAlias = NDArray[np.float64]
"""Working precision of the fits: Gram matrices square the condition number, float32 would not do."""

_BLOCK = 2_048
_COLUMNS = 8_192


@dataclass(frozen=True, eq=False)
class WordView:
    """One view of m documents, (m, f): the weighted sum of what it sees in their words, rows of unit length.

    Kept as factors, since there are far fewer words than features of words: `weights`, (m, w), says how much of each
    word a document has, `features`, (w, t), what terms a word is made of, and `basis`, (t, f), what a term means;
    without one the terms are the features. A document without any feature is a row of zeros.
    """

    weights: Sparse
    features: Sparse
    basis: Vectors | None = None

    def __len__(self) -> int:
        return int(self.weights.shape[0])

    def take(self, rows: NDArray[np.int64]) -> WordView:
        """The view of some of the documents, and of their words alone."""
        weights = self.weights[rows]
        used = np.unique(weights.indices)
        return WordView(weights[:, used], self.features[used], self.basis)

    def matrix(self) -> Sparse | Vectors:
        """The view itself, (m, f): sparse where there is no basis."""
        terms = self.weights @ self.features
        if self.basis is not None:
            return unit_rows(terms @ self.basis)
        lengths = _lengths(terms)
        terms.data /= np.repeat(np.where(lengths > 0, lengths, 1), np.diff(terms.indptr))
        return terms

    def dot(self, table: Vectors) -> Vectors:
        """The view times a table, (f, r): word by word first, document by document then."""
        terms = table if self.basis is None else self.basis @ table
        product: Vectors = self.weights @ (self.features @ terms)
        product /= np.where(self._norms > 0, self._norms, 1)[:, None]
        return product

    def squares(self) -> Vectors:
        """Squared lengths of the rows, (m,): 1, but 0 for a document without any feature."""
        return np.asarray(self._norms > 0, dtype=np.float32)

    @cached_property
    def _norms(self) -> Vectors:
        """Lengths of the rows before they are brought to 1, by blocks: the product has many terms a document."""
        starts = range(0, len(self), _BLOCK)
        return np.concatenate([self._block_norms(start) for start in starts] or [np.empty(0, dtype=np.float32)])

    def _block_norms(self, start: int) -> Vectors:
        terms = self.weights[start : start + _BLOCK] @ self.features
        if self.basis is None:
            return _lengths(terms)
        return np.sqrt(squared_norms(terms @ self.basis))


@dataclass(frozen=True, eq=False)
class DenseView:
    """A view of m documents by an embedding model, (m, f)."""

    rows: Vectors

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, rows: NDArray[np.int64]) -> DenseView:
        """The view of some of the documents."""
        return DenseView(self.rows[rows])

    def matrix(self) -> Vectors:
        """The view itself, (m, f)."""
        return self.rows

    def dot(self, table: Vectors) -> Vectors:
        """The view times a table, (f, r)."""
        product: Vectors = self.rows @ table
        return product

    def squares(self) -> Vectors:
        """Squared lengths of the rows, (m,)."""
        return squared_norms(self.rows)


View: TypeAlias = WordView | DenseView


@dataclass(frozen=True, eq=False)
class TextRows:
    """The texts of m documents as the views see them, by the name of the view."""

    views: Mapping[str, View]
    _grams: dict[str, Matrix] = field(default_factory=dict, init=False, repr=False)

    def gram(self, name: str) -> Matrix:
        """All inner products in a view, (m, m), float64; cached, since several stitches and all their folds use it."""
        if name not in self._grams:
            self._grams[name] = gram(self.views[name].matrix())
        return self._grams[name]

    def __len__(self) -> int:
        return min((len(view) for view in self.views.values()), default=0)

    def take(self, rows: NDArray[np.int64]) -> TextRows:
        """Those of some of the documents."""
        return TextRows({name: view.take(rows) for name, view in self.views.items()})


def _lengths(terms: Sparse) -> Vectors:
    """Lengths of the rows of a sparse matrix."""
    return np.sqrt(np.asarray(terms.multiply(terms).sum(axis=1), dtype=np.float32).ravel())


def gram(matrix: Sparse | Vectors) -> Matrix:
    """All inner products of the rows of (n, f), float64.

    Sparse rows are made dense by blocks of columns: a product of matrices runs a hundred times faster than a sparse
    one when the common n-grams are in nearly every row.
    """
    if isinstance(matrix, np.ndarray):
        return np.asarray(matrix @ matrix.T, dtype=np.float64)
    columns = matrix.tocsc()
    counts = np.diff(columns.indptr)
    shared = columns[:, np.flatnonzero(counts > 1)]
    products = np.zeros((matrix.shape[0], matrix.shape[0]))
    for start in range(0, shared.shape[1], _COLUMNS):
        block = shared[:, start : start + _COLUMNS].toarray()
        products += block @ block.T
    lone = columns[:, np.flatnonzero(counts == 1)]
    products[np.diag_indices_from(products)] += np.bincount(lone.indices, lone.data**2, minlength=len(products))
    return products
