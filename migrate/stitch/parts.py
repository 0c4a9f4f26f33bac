"""The views of a text-aware stitch: the kernel of each, and what it adds to a prediction."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from migrate.stitch.base import Arrays, Matrix
from migrate.stitch.text_rows import Sparse, View
from migrate.vectors import Vectors, squared_norms


@dataclass(frozen=True, eq=False)
class Part:
    """A view with the kernel `scale * <x, y>`.

    Attributes
    ----------
    rows : (n, f) sparse or dense, the fit documents in this view
    """

    form: ClassVar[str] = "linear"
    name: str
    rows: Sparse | Vectors
    scale: float = 1.0

    def cross(self, other: NDArray[np.int64]) -> Matrix:
        """The kernel between all fit documents and some of them, (n, m), float64."""
        some = self.rows[other]
        return np.asarray(self.scale * (self.rows @ _dense(some).T), dtype=np.float64)

    def take(self, rows: NDArray[np.int64]) -> Self:
        """With some of the fit documents."""
        return replace(self, rows=self.rows[rows])

    def columns(self, view: View, alpha: Vectors) -> Vectors:
        """`k(x) @ alpha`, (m, r), for the documents of a view: over the features, or the fit documents if fewer."""
        if alpha.shape[1] <= len(alpha):
            return view.dot(self._table(alpha))
        found: Vectors = view.dot(self._fit_documents) @ alpha
        return found

    def diagonal(self, view: View) -> Vectors:
        """`k(x, x)`, (m,)."""
        return np.float32(self.scale) * view.squares()

    def _table(self, alpha: Vectors) -> Vectors:
        """(f, r); kept, since every batch of a translation asks with the same coefficients."""
        if self._kept.get("alpha") is not alpha:
            table = np.asarray(self.rows.T @ (alpha * np.float32(self.scale)), dtype=np.float32)
            self._kept.update(alpha=alpha, table=table)
        return self._kept["table"]

    _kept: dict[str, Vectors] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def _fit_documents(self) -> Vectors:
        """(f, n)."""
        return np.ascontiguousarray(_dense(self.rows).T * np.float32(self.scale))

    def arrays(self) -> Arrays:
        """Scale and rows, under names that begin with the name of the view and its form."""
        found: dict[str, NDArray[Any]] = {"scale": np.array([self.scale], dtype=np.float64)}
        rows: Sparse = self.rows
        if isinstance(rows, np.ndarray):
            found["rows"] = rows
        else:
            found |= {"data": rows.data, "indices": rows.indices.astype(np.int32)}
            found |= {"starts": rows.indptr.astype(np.int64), "width": np.array(rows.shape[1:], dtype=np.int64)}
        return {f"{self.name}/{self.form}/{key}": array for key, array in found.items()}


@dataclass(frozen=True, eq=False)
class GaussianPart(Part):
    """A view with the kernel `scale * exp(-|x - y|² / width)`; rows are of unit length.

    The width is twice their variance, which is the mean squared distance of two of them.
    """

    form: ClassVar[str] = "gaussian"
    width: float = 1.0

    def cross(self, other: NDArray[np.int64]) -> Matrix:
        """The kernel between all fit documents and some of them, (n, m), float64."""
        return self.take(other)._kernel(self.rows).astype(np.float64)

    def columns(self, view: View, alpha: Vectors) -> Vectors:
        """`k(x) @ alpha`, (m, r)."""
        found: Vectors = self._kernel(view.matrix()) @ alpha
        return found

    def diagonal(self, view: View) -> Vectors:
        """`k(x, x)`, (m,)."""
        return np.full(len(view), self.scale, dtype=np.float32)

    def _kernel(self, rows: Vectors) -> Vectors:
        return np.float32(self.scale) * gaussian(rows, np.asarray(self.rows), self.width)

    def arrays(self) -> Arrays:
        """As of any view, with the width of the kernel."""
        return {**super().arrays(), f"{self.name}/{self.form}/bandwidth": np.array([self.width], dtype=np.float64)}


def gaussian(one: Vectors, other: Vectors, width: float) -> Vectors:
    """`exp(-|x - y|² / width)` for rows of (m, p) and (n, p): (m, n), float32."""
    distances = squared_norms(one)[:, None] + squared_norms(other) - 2 * (one @ other.T)
    return np.asarray(np.exp(-np.maximum(distances, 0) / np.float32(width)), dtype=np.float32)


def in_order(parts: Iterable[Part]) -> tuple[Part, ...]:
    """The parts by name: added up in another order, what they predict would differ in the last digit."""
    return tuple(sorted(parts, key=lambda part: part.name))


def restore_parts(arrays: Arrays, n: int) -> tuple[Part, ...]:
    """The parts whose `arrays` are among `arrays`, for `n` fit documents.

    Raises
    ------
    KeyError, ValueError
        An array is missing, or they do not make a matrix of `n` rows.
    """
    names = {key.rpartition("/")[0] for key in arrays if "/" in key}
    return in_order(_restore_part(prefix, arrays, n) for prefix in names)


def _restore_part(prefix: str, arrays: Arrays, n: int) -> Part:
    name, _, form = prefix.rpartition("/")
    scale = float(arrays[f"{prefix}/scale"][0])
    rows = arrays[f"{prefix}/rows"] if f"{prefix}/rows" in arrays else _restore_sparse(prefix, arrays, n)
    if rows.ndim != 2 or rows.shape[0] != n:
        raise ValueError(f"expected {n} rows of {prefix}, found an array of shape {rows.shape}")
    if form == GaussianPart.form:
        width = float(arrays[f"{prefix}/bandwidth"][0])
        if not width > 0:
            raise ValueError(f"expected a Gaussian kernel of some width, found {width}")
        return GaussianPart(name, rows, scale, width)
    return Part(name, rows, scale)


def _restore_sparse(prefix: str, arrays: Arrays, n: int) -> Sparse:
    from scipy.sparse import csr_array

    entries = tuple(arrays[f"{prefix}/{key}"] for key in ("data", "indices", "starts"))
    rows = csr_array(entries, shape=(n, int(arrays[f"{prefix}/width"][0])))
    rows.check_format(full_check=True)
    return rows


def _dense(rows: Sparse | Vectors) -> Vectors:
    return rows if isinstance(rows, np.ndarray) else np.asarray(rows.toarray())
