"""The views of documents that text-aware stitches read: words times features of words, terms, or dense vectors."""

from __future__ import annotations

from collections.abc import Collection, Mapping
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

AnyMatrix: TypeAlias = NDArray[Any]
"""A matrix of float32 or float64, as the caller chooses."""

_BLOCK = 2_048
"""Documents whose product with the features of words is in memory at once."""

_COLUMNS = 8_192
"""Columns of a sparse matrix that are dense in memory at once."""


@dataclass(frozen=True, eq=False)
class WordView:
    """One view of m documents, (m, f): the weighted sum of the features of their words, rows of unit length.

    Kept as factors, since there are far fewer words than features of words: `weights`, (m, w), says how much of each
    word a document has, `features`, (w, f), what is in a word. A document without any feature is a row of zeros.
    """

    weights: Sparse
    features: Sparse

    def __len__(self) -> int:
        return int(self.weights.shape[0])

    def take(self, rows: NDArray[np.int64]) -> WordView:
        """The view of some of the documents, and of their words alone."""
        weights = self.weights[rows]
        is_used = np.zeros(weights.shape[1], dtype=bool)
        is_used[weights.indices] = True
        used = np.flatnonzero(is_used)
        return WordView(weights[:, used], self.features[used])

    def matrix(self) -> Sparse:
        """The view itself, (m, f), sparse."""
        return unit_terms(self.weights @ self.features)

    def dot(self, table: Vectors) -> Vectors:
        """The view times a table, (f, r): word by word first, document by document then."""
        product: Vectors = self.weights @ (self.features @ table)
        product /= np.where(self._norms > 0, self._norms, 1)[:, None]
        return product

    def squares(self) -> Vectors:
        """Squared lengths of the rows, (m,): 1, but 0 for a document without any feature."""
        return np.asarray(self._norms > 0, dtype=np.float32)

    # The dearest product of a batch, which two questions need, and none for a view without a weight in the stitch
    @cached_property
    def _norms(self) -> Vectors:
        """Lengths of the rows before they are brought to 1, by blocks: the product has many terms a document."""
        starts = range(0, len(self), _BLOCK)
        norms = [_lengths(self.weights[start : start + _BLOCK] @ self.features) for start in starts]
        return np.concatenate([*norms, np.empty(0, dtype=np.float32)])


@dataclass(frozen=True, eq=False)
class TermView:
    """One view of m documents, (m, f), by their terms, (m, t), sparse: the terms themselves, or `basis`, (t, f).

    The basis says what each term means, and the rows are the weighted sums of that, of unit length. A document without
    any term is a row of zeros.
    """

    terms: Sparse
    basis: Vectors | None = None

    def __len__(self) -> int:
        return int(self.terms.shape[0])

    def take(self, rows: NDArray[np.int64]) -> TermView:
        """The view of some of the documents."""
        return TermView(self.terms[rows], self.basis)

    def matrix(self) -> Sparse | Vectors:
        """The view itself, (m, f): sparse where there is no basis."""
        return self._rows

    def dot(self, table: Vectors) -> Vectors:
        """The view times a table, (f, r)."""
        product: Vectors = self._rows @ table
        return product

    def squares(self) -> Vectors:
        """Squared lengths of the rows, (m,): 1, but 0 for a document without any term."""
        if self.basis is None:
            return np.asarray(_lengths(self._rows) > 0, dtype=np.float32)
        return np.asarray(squared_norms(self._rows) > 0, dtype=np.float32)

    # Once for all that is asked of the view, and never for one without a weight in the stitch
    @cached_property
    def _rows(self) -> Any:
        if self.basis is None:
            return unit_terms(self.terms)
        return unit_rows(self.terms @ self.basis)


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


View: TypeAlias = WordView | TermView | DenseView


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
        """Return the texts of some of the documents."""
        return TextRows({name: view.take(rows) for name, view in self.views.items()})

    def without(self, names: Collection[str]) -> TextRows:
        """The same documents without some of the views."""
        fewer = TextRows({name: view for name, view in self.views.items() if name not in names})
        fewer._grams.update({name: gram for name, gram in self._grams.items() if name not in names})
        return fewer


def unit_terms(terms: Sparse) -> Sparse:
    """The rows of a sparse matrix divided by their lengths; a row of zeros stays as it is."""
    lengths = _lengths(terms)
    scaled = terms.data / np.repeat(np.where(lengths > 0, lengths, 1), np.diff(terms.indptr))
    return type(terms)((scaled, terms.indices, terms.indptr), shape=terms.shape)


def _lengths(terms: Sparse) -> Vectors:
    """Lengths of the rows of a sparse matrix."""
    lengths = np.zeros(terms.shape[0], dtype=np.float32)
    is_filled = np.diff(terms.indptr) > 0  # `reduceat` takes an empty range for one of a single entry
    if is_filled.any():
        lengths[is_filled] = np.add.reduceat(np.square(terms.data), terms.indptr[:-1][is_filled])
    return np.sqrt(lengths)


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
    # A feature of one document adds to its own square alone; most n-grams are such
    lone = columns[:, np.flatnonzero(counts == 1)]
    products[np.diag_indices_from(products)] += np.bincount(lone.indices, lone.data**2, minlength=len(products))
    return products
