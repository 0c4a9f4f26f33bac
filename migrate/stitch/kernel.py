"""Kernel ridge regression with an intercept, exact leave-one-out residuals and a posterior variance.

A `KernelPart` is the kernel of one view of the documents; a `KernelSystem` solves for the weighted sum of several.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Final, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from migrate.stitch.base import Arrays
from migrate.stitch.text_features import AnyMatrix, Matrix, Sparse, View
from migrate.threads import one_thread
from migrate.vectors import Vectors, squared_norms

_KERNEL_ROWS: Final = 768
"""Documents whose kernel with the fit documents is in memory at once.

A multiple of what products of matrices do together, so that each row has the same digits in a block of any size.
"""

_ROUNDING: Final = 1e-6
"""Share of the diagonal of a Gram matrix that may be rounding error."""

_FURTHER_DIRECTIONS: Final = 10
"""Directions that a subspace iteration looks for beyond those that are asked for, so that these are exact (Halko et al.
2011, section 4.2)."""

Product: TypeAlias = Callable[[View], Vectors]
"""The product of a kernel and coefficients, (m, r), for the documents of a view; can be pickled."""


@dataclass(frozen=True, eq=False)
class KernelPart:
    """A view with the kernel `scale * <x, y>`.

    Attributes
    ----------
    rows : (n, f) sparse or dense, the fit documents in this view
    shares : where several regressions are averaged: what the coefficients of each are multiplied by in this view, first
        those of the regression over all views
    """

    form: ClassVar[str] = "linear"
    name: str
    rows: Sparse | Vectors
    scale: float = 1.0
    shares: tuple[float, ...] = ()

    def cross(self, rows: NDArray[np.int64]) -> Matrix:
        """The kernel between all fit documents and some of them, (n, m), float64."""
        documents = self.rows[rows]
        return np.asarray(self.scale * (self.rows @ _dense(documents).T), dtype=np.float64)

    def take(self, rows: NDArray[np.int64]) -> Self:
        """With some of the fit documents."""
        return replace(self, rows=self.rows[rows])

    def product(self, alpha: Vectors) -> Product:
        """Return what gives `k(x) @ alpha`, (m, r): over the features, or over the fit documents if they are fewer."""
        if alpha.shape[1] > len(alpha):  # fewer fit documents than columns: two thin products instead of a wide table
            return partial(_times_both, np.ascontiguousarray(_dense(self.rows).T * np.float32(self.scale)), alpha)
        with one_thread():  # so that it is the same wherever the stitch was loaded
            table = np.asarray(self.rows.T @ (alpha * np.float32(self.scale)), dtype=np.float32)
        return partial(_times, table)

    def diagonal(self, view: View) -> Vectors:
        """`k(x, x)`, (m,)."""
        return np.float32(self.scale) * view.squares()

    def arrays(self) -> Arrays:
        """Scale and rows, under names that begin with the name of the view and its form."""
        arrays: dict[str, NDArray[Any]] = {"scale": np.array([self.scale], dtype=np.float64)}
        rows: Sparse = self.rows
        if isinstance(rows, np.ndarray):
            arrays["rows"] = rows
        else:
            arrays |= {"data": rows.data, "indices": rows.indices.astype(np.int32)}
            arrays |= {"starts": rows.indptr.astype(np.int64), "width": np.array(rows.shape[1:], dtype=np.int64)}
        if self.shares:
            arrays["shares"] = np.array(self.shares, dtype=np.float64)
        return {f"{self.name}/{self.form}/{key}": array for key, array in arrays.items()}


@dataclass(frozen=True, eq=False)
class GaussianPart(KernelPart):
    """A view with the kernel `scale * exp(-|x - y|² / width)`; rows are of unit length.

    The width is twice their variance, which is the mean squared distance of two of them.
    """

    form: ClassVar[str] = "gaussian"
    width: float = field(default=1.0, kw_only=True)

    def cross(self, rows: NDArray[np.int64]) -> Matrix:
        """The kernel between all fit documents and some of them, (n, m), float64."""
        return self.take(rows).among(np.asarray(self.rows)).astype(np.float64)

    def product(self, alpha: Vectors) -> Product:
        """Return what gives `k(x) @ alpha`, (m, r)."""
        return partial(_times_kernel, self, alpha)

    def diagonal(self, view: View) -> Vectors:
        """`k(x, x)`, (m,)."""
        return np.full(len(view), self.scale, dtype=np.float32)

    def among(self, rows: Vectors) -> Vectors:
        """Return the kernel between rows, (m, f), and the fit documents, (m, n)."""
        kernel = gaussian(rows, np.asarray(self.rows), self.width)
        kernel *= np.float32(self.scale)
        return kernel

    def arrays(self) -> Arrays:
        """Return the arrays of any view, and the width of the kernel."""
        return {**super().arrays(), f"{self.name}/{self.form}/bandwidth": np.array([self.width], dtype=np.float64)}


def _times(table: Vectors, view: View) -> Vectors:
    """The view times a table, (f, r)."""
    return view.dot(table)


def _times_both(documents: Vectors, alpha: Vectors, view: View) -> Vectors:
    """The view times the fit documents, (f, n), and these times `alpha`, (n, r)."""
    product: Vectors = view.dot(documents) @ alpha
    return product


def _times_kernel(kernel_part: GaussianPart, alpha: Vectors, view: View) -> Vectors:
    """The kernel of the view, block by block, times `alpha`, (n, r)."""
    rows = view.matrix()
    products = np.empty((len(view), alpha.shape[1]), np.float32)
    # By blocks: the kernel of a whole batch with the fit documents would not fit into the processor's cache
    for start in range(0, len(rows), _KERNEL_ROWS):
        block = slice(start, start + _KERNEL_ROWS)
        np.matmul(kernel_part.among(rows[block]), alpha, out=products[block])
    return products


def gaussian(x: Vectors, y: Vectors, width: float) -> Vectors:
    """`exp(-|x - y|² / width)` for rows of (m, p) and (n, p): (m, n), float32."""
    kernel: Vectors = x @ y.T
    kernel *= 2
    np.subtract(squared_norms(x)[:, None] + squared_norms(y), kernel, out=kernel)
    np.maximum(kernel, 0, out=kernel)  # rounding takes the distance of a row to itself below 0
    kernel /= -np.float32(width)
    return np.exp(kernel, out=kernel)


def in_order(kernel_parts: Iterable[KernelPart]) -> tuple[KernelPart, ...]:
    """The parts sorted by name, so that their sum is the same to the last digit."""
    return tuple(sorted(kernel_parts, key=lambda kernel_part: kernel_part.name))


def restore_parts(arrays: Arrays, n: int) -> tuple[KernelPart, ...]:
    """The parts whose `arrays` are among `arrays`, for `n` fit documents."""
    names = {key.rpartition("/")[0] for key in arrays if "/" in key}
    return in_order(_restore_part(prefix, arrays, n) for prefix in names)


def _restore_part(prefix: str, arrays: Arrays, n: int) -> KernelPart:
    name, _, form = prefix.rpartition("/")
    scale = float(arrays[f"{prefix}/scale"][0])
    rows: Sparse | Vectors = _restore_rows(prefix, arrays, n)
    if rows.ndim != 2 or rows.shape[0] != n:
        raise ValueError(f"an array of shape {rows.shape} for {n} rows of {prefix}")
    shares = tuple(arrays.get(f"{prefix}/shares", np.empty(0)).tolist())
    if form == GaussianPart.form:
        width = float(arrays[f"{prefix}/bandwidth"][0])
        if not width > 0:
            raise ValueError(f"a Gaussian kernel of width {width}")
        return GaussianPart(name, rows, scale, shares, width=width)
    return KernelPart(name, rows, scale, shares)


def _restore_rows(prefix: str, arrays: Arrays, n: int) -> Sparse | Vectors:
    if f"{prefix}/rows" in arrays:
        return arrays[f"{prefix}/rows"]
    from scipy.sparse import csr_array

    entries = tuple(arrays[f"{prefix}/{key}"] for key in ("data", "indices", "starts"))
    rows = csr_array(entries, shape=(n, int(arrays[f"{prefix}/width"][0])))
    rows.check_format(full_check=True)
    return rows


def _dense(rows: Sparse | Vectors) -> Vectors:
    if isinstance(rows, np.ndarray):
        return rows
    return np.asarray(rows.toarray())


@dataclass(frozen=True, eq=False)
class Solution:
    """The solution for one penalty: `alpha`, (n, q), and exact leave-one-out `residuals`, (n, q), all refitted.

    Columns of alpha sum to 0: the prediction is `mean + k(x) @ alpha - means @ alpha`.
    """

    alpha: Matrix
    residuals: Matrix


@dataclass(frozen=True, eq=False, slots=True)
class KernelSystem:
    """A Gram matrix (n, n), not centred, and the targets (n, q), both float64; or float32, for a search.

    The intercept is not penalised. It is solved exactly by centring both sides; that leaves the constant vector in
    the null space of the Gram matrix, where it would fake leave-one-out errors near 0 for small penalties, so its
    share is taken out of the diagonal of the inverse (Rifkin & Lippert 2007, "Notes on regularized least squares",
    for the leave-one-out formula without intercept). That share would be 1/(n λ), in which what is left would drown;
    the constant vector gets the mean eigenvalue first, which changes nothing else.

    Attributes
    ----------
    means : (n,), row means of the Gram matrix
    mean : (q,), mean of the targets
    centred : (n, n), the Gram matrix of the centred features
    """

    gram: AnyMatrix
    target: AnyMatrix
    means: AnyMatrix
    mean: AnyMatrix
    centred: AnyMatrix

    @classmethod
    def of(cls, gram: AnyMatrix, target: AnyMatrix) -> Self:
        """Centre both sides."""
        return cls(gram, target, np.asarray(gram.mean(axis=0)), np.asarray(target.mean(axis=0)), centre(gram))

    def solve(self, penalty: float) -> Solution:
        """Solve for one penalty λ > 0: one Cholesky factor, one triangular inverse.

        In the precision of the Gram matrix; where λ drowns in the rounding error of float32, in float64.
        """
        from scipy.linalg import get_lapack_funcs

        n = len(self.gram)
        factorise, invert, substitute = get_lapack_funcs(("potrf", "trtri", "potrs"), (self.gram,))
        constant = float(np.trace(self.centred)) / n
        shifted = np.array(self.centred + constant / n, order="F")
        shifted[np.diag_indices_from(shifted)] += penalty
        factor, failed = factorise(shifted, lower=1, overwrite_a=1, clean=1)
        # A small penalty drowns in the rounding of float32, and the matrix is not positive definite any more
        if failed and self.gram.dtype != np.float64:
            return KernelSystem.of(self.gram.astype(np.float64), self.target.astype(np.float64)).solve(penalty)
        alpha, _ = substitute(factor, self.target - self.mean, lower=1)
        inverse, _ = invert(factor, lower=1)
        diagonal = np.einsum("ij,ij->j", inverse, inverse) - 1 / (n * (constant + penalty))
        return Solution(alpha, alpha / diagonal[:, None])

    def coefficients(self, penalty: float) -> Matrix:
        """The coefficients of `solve` alone, (n, q), at a third of the work."""
        from scipy.linalg import cho_factor, cho_solve

        shifted = self.centred.copy()
        shifted[np.diag_indices_from(shifted)] += penalty
        factor = cho_factor(shifted, lower=True, overwrite_a=True)
        return np.asarray(cho_solve(factor, self.target - self.mean))

    def directions(self, penalty: float, count: int) -> Matrix:
        """Columns D, (n, r), with `k(x) D` giving what the leading directions explain of a document's variance.

        The posterior variance of x is k_c(x, x) - |(k(x) - means) D|², from above: directions beyond the first
        `count` are left out (Rasmussen & Williams 2006, eq. 2.26, up to the noise).
        """
        basis, values = leading_directions(self.centred, min(count, len(self.gram) - 1), rounds=2)
        basis -= basis.mean(axis=0)  # directions without variance are any, even the constant one
        return np.asarray(basis / np.sqrt(values + penalty))


def leading_directions(
    matrix: Sparse | AnyMatrix, count: int, *, rounds: int, seed: int = 0
) -> tuple[AnyMatrix, AnyMatrix]:
    """The leading right singular vectors of (n, f), f x `count`, and their singular values, about.

    Subspace iteration from random vectors (Halko, Martinsson & Tropp 2011, algorithm 4.4). scikit-learn's
    `randomized_svd` takes longer to import than this takes.
    """
    n, f = matrix.shape
    width = min(count + _FURTHER_DIRECTIONS, n, f)
    basis = matrix.T @ np.random.default_rng(seed).standard_normal((n, width), dtype=matrix.dtype)
    for _ in range(rounds):
        basis = matrix.T @ np.linalg.qr(matrix @ basis)[0]
    basis = np.linalg.qr(basis)[0]
    _, values, rotation = np.linalg.svd(matrix @ basis, full_matrices=False)
    return basis @ rotation[:count].T, values[:count]


def centre(gram: AnyMatrix) -> AnyMatrix:
    """The Gram matrix of centred features, from that of the features, (n, n)."""
    means = gram.mean(axis=0)
    return np.asarray(gram - means - means[:, None] + means.mean())


def combined(grams: Sequence[AnyMatrix], weights: Sequence[float]) -> AnyMatrix:
    """The weighted sum of Gram matrices; those of weight 0 are not touched."""
    total = np.zeros_like(grams[0])
    for matrix, weight in zip(grams, weights, strict=True):
        if weight:
            total += weight * matrix
    return total


def spread(matrix: Matrix) -> float:
    """Mean diagonal of the centred Gram matrix: what a view is divided by, so that weights mean something.

    1 where all rows are the same, up to rounding.
    """
    diagonal = float(np.trace(matrix) / len(matrix))
    variance = diagonal - float(matrix.mean())
    # A smaller share is rounding error, since inner products are computed in float32
    if variance <= _ROUNDING * diagonal:
        return 1.0
    return variance
