"""What a text-aware stitch reads of some documents: weighted words, and what each view sees in a word."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from migrate.vectors import Vectors, squared_norms, unit_rows

Sparse: TypeAlias = Any
"""A `scipy.sparse.csr_array` of float32."""

_BLOCK = 2_048


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
        """The view of some of the documents."""
        return WordView(self.weights[rows], self.features, self.basis)

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

    def __len__(self) -> int:
        return min((len(view) for view in self.views.values()), default=0)

    def take(self, rows: NDArray[np.int64]) -> TextRows:
        """Those of some of the documents."""
        return TextRows({name: view.take(rows) for name, view in self.views.items()})


def _lengths(terms: Sparse) -> Vectors:
    """Lengths of the rows of a sparse matrix."""
    return np.sqrt(np.asarray(terms.multiply(terms).sum(axis=1), dtype=np.float32).ravel())
