"""The map that a kernel ridge regression has learned: coefficients of the fit documents, view by view."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from migrate.stitch.affine import AffineMap
from migrate.stitch.base import Arrays, Prediction
from migrate.stitch.kernel import KernelPart, KernelSystem, Product, in_order, restore_parts
from migrate.stitch.reach import DIRECTIONS
from migrate.stitch.text_features import Matrix, View
from migrate.stitch.view_weights import Weighing
from migrate.vectors import Vectors, squared_norms


@dataclass(frozen=True, slots=True, eq=False)
class Solved:
    """The solution of one regression: coefficients, (n, q), and the mean of the kernel to each fit document, (n,)."""

    coefficients: Matrix
    means: Matrix


@dataclass(eq=False)
class KernelMap:
    """Coefficients of n fit documents in all views, for q dimensions and a variance of r directions.

    Attributes
    ----------
    mean : (p,) float32, mean of the old vectors
    alpha : (n, q + 1 + r) float32, coefficients of the fit documents: of the prediction, of the mean of the kernel
        over them, and of the directions that explain the variance
    offset : (q + 1 + r,) float32, to be added to `k(x) @ alpha`; at q what makes the variance of the mean
    companions : (c, n, q) float32, coefficients of the prediction of each companion
    dim : q
    parts : the views, with the fit documents as they see them
    products : what multiplies the parts with their coefficients; made by the first prediction, since a stitch that is
        only loaded, saved or shown needs none
    """

    mean: Vectors
    alpha: Vectors
    offset: Vectors
    companions: Vectors
    dim: int
    parts: tuple[KernelPart, ...]
    products: tuple[Product, ...] | None = field(default=None, init=False, repr=False)

    @classmethod
    def of(
        cls,
        mean: Vectors,
        parts: Sequence[KernelPart],
        weighing: Weighing,
        system: KernelSystem,
        solved: Sequence[Solved],
        penalty: float,
    ) -> Self:
        """Put the columns of the prediction, of the mean and of the directions side by side.

        `solved` are the regressions of `weighing`, the own one first and then each companion.
        """
        directions = system.directions(penalty, DIRECTIONS)
        own = solved[0].coefficients
        n_documents, dim = own.shape
        mean_of_kernel = np.full((n_documents, 1), 1 / n_documents)
        companions = np.array([companion.coefficients for companion in solved[1:]], dtype=np.float32)
        shifts = [
            share * (regression.means @ regression.coefficients)
            for (share, _), regression in zip(weighing.regressions, solved, strict=True)
        ]
        shift = np.sum(shifts, axis=0)
        offset = np.r_[system.mean - shift, system.means.mean(), -system.means @ directions]
        return cls(
            mean=mean,
            alpha=np.hstack([own, mean_of_kernel, directions]).astype(np.float32),
            offset=offset.astype(np.float32),
            companions=companions.reshape(-1, n_documents, dim),
            dim=dim,
            parts=in_order(parts),
        )

    def predict(self, views: Mapping[str, View], count: int) -> Prediction:
        """Return the vectors of `count` documents and their posterior variance, in units of the prior's.

        The noise is no part of that variance.
        """
        columns = np.zeros((count, self.alpha.shape[1]), dtype=np.float32)
        prior = np.zeros(count, dtype=np.float32)
        products = self.products
        if products is None:
            # Assigned as a whole, since several threads predict at once: a list that grew here would be read half full
            products = self.products = self._products()
        for kernel, product in zip(self.parts, products, strict=True):
            columns += product(views[kernel.name])
            prior += kernel.diagonal(views[kernel.name])
        q = self.dim
        # |x - mean|² in the space of the kernel: k(x, x), less twice the mean of k(x, ·), plus the mean of k(·, ·)
        prior += self.offset[q] - 2 * columns[:, q]
        explained = squared_norms(columns[:, q + 1 :] + self.offset[q + 1 :])
        predicted = np.ascontiguousarray(columns[:, :q] + self.offset[:q])
        return Prediction(predicted, prior - explained)

    def _products(self) -> tuple[Product, ...]:
        """Return what multiplies each part with its coefficients, (n, q + 1 + r), averaged over the regressions."""
        q = self.dim
        products = []
        for kernel in self.parts:
            mixed = self.alpha
            if kernel.shares:
                mixed = mixed.copy()
                mixed[:, :q] *= np.float32(kernel.shares[0])
                for share, alpha in zip(kernel.shares[1:], self.companions, strict=True):
                    mixed[:, :q] += np.float32(share) * alpha
            products.append(kernel.product(mixed))
        return tuple(products)

    def stretched(self, spread: AffineMap) -> KernelMap:
        """Return the map with that of `spread` behind it, multiplied into coefficients and offset."""
        q = self.dim
        return KernelMap(
            mean=self.mean,
            alpha=np.hstack([(self.alpha[:, :q] @ spread.matrix).astype(np.float32), self.alpha[:, q:]]),
            offset=np.r_[spread.of(self.offset[:q]).astype(np.float32), self.offset[q:]],
            companions=(self.companions @ spread.matrix).astype(np.float32),
            dim=q,
            parts=self.parts,
        )

    def arrays(self) -> Arrays:
        """Return coefficients, offset, mean, and what each view saw of the fit documents."""
        arrays = {"alpha": self.alpha, "offset": self.offset, "mean": self.mean}
        arrays["dim"] = np.array([self.dim], dtype=np.int64)
        if len(self.companions):
            arrays["companions"] = self.companions
        for kernel in self.parts:
            arrays |= kernel.arrays()
        return arrays

    @classmethod
    def restore(cls, arrays: Arrays) -> Self:
        """Restore what `arrays` returned; ValueError where the arrays do not go together."""
        alpha = arrays["alpha"]
        offset = arrays["offset"]
        mean = arrays["mean"]
        dim = int(arrays["dim"][0])
        parts = restore_parts(arrays, len(alpha))
        none = np.empty((0, len(alpha), dim), dtype=np.float32)
        companions = arrays.get("companions", none)
        allowed_shares = {1 + len(companions)}
        if not len(companions):
            allowed_shares.add(0)
        if companions.shape[1:] != none.shape[1:] or not {len(kernel.shares) for kernel in parts} <= allowed_shares:
            raise ValueError(f"coefficients of companions {companions.shape} that views do not share")
        if offset.shape != alpha.shape[1:] or not 0 < dim < len(offset):
            raise ValueError(f"coefficients {alpha.shape}, offset {offset.shape} for {dim} dimensions")
        return cls(mean=mean, alpha=alpha, offset=offset, companions=companions, dim=dim, parts=parts)
