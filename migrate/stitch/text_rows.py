"""What a text-aware stitch reads of some documents: weighted words, and what each view sees in a word."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from migrate.vectors import Vectors

Sparse: TypeAlias = Any
"""A `scipy.sparse.csr_array` of float32."""


@dataclass(frozen=True, eq=False)
class WordView:
    """One view of m documents, (m, f): the weighted sum of what it sees in their words, brought to unit length.

    Kept as two factors, since there are far fewer words than features of words: `weights`, (m, w), says how much of
    each word a document has, and `features`, (w, f), sparse or dense, what a word is made of. `norms`, (m,), are the
    lengths of the products; a document without any feature has norm 1.
    """

    weights: Sparse
    features: Sparse | Vectors
    norms: Vectors

    def __len__(self) -> int:
        return int(self.weights.shape[0])

    @property
    def width(self) -> int:
        """Number of features, f."""
        return int(self.features.shape[1])

    def take(self, rows: NDArray[np.int64]) -> WordView:
        """The view of some of the documents."""
        return WordView(self.weights[rows], self.features, self.norms[rows])

    @cached_property
    def matrix(self) -> Sparse | Vectors:
        """The view itself, (m, f), rows of unit length."""
        product = self.weights @ self.features
        if isinstance(product, np.ndarray):
            return np.divide(product, self.norms[:, None], dtype=np.float32)
        return _divided_rows(product, self.norms)

    def dot(self, table: Vectors) -> Vectors:
        """The view times a dense table, (f, r): word by word first, document by document then."""
        product: Vectors = self.weights @ (self.features @ table)
        product /= self.norms[:, None]
        return product


@dataclass(frozen=True, eq=False)
class DenseView:
    """A view of m documents by an embedding model: `matrix`, (m, f), rows of unit length."""

    matrix: Vectors

    def __len__(self) -> int:
        return len(self.matrix)

    @property
    def width(self) -> int:
        """Dimension of the model, f."""
        return int(self.matrix.shape[1])

    def take(self, rows: NDArray[np.int64]) -> DenseView:
        """The view of some of the documents."""
        return DenseView(self.matrix[rows])

    def dot(self, table: Vectors) -> Vectors:
        """The view times a dense table, (f, r)."""
        product: Vectors = self.matrix @ table
        return product


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


def _divided_rows(matrix: Sparse, divisors: Vectors) -> Sparse:
    """The rows of a CSR matrix divided by a number each."""
    matrix.data /= np.repeat(divisors, np.diff(matrix.indptr))
    return matrix
