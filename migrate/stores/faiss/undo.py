"""Inverts the transforms that FAISS applies before an index. Runs in the child process only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from migrate.stores.faiss.recipe import Recipe
from migrate.stores.frames import RefusedError

Rows = NDArray[np.float32]

_RIGHT_ANGLES = 2e-4
"""How far products of rows of a rotation may be from 0 and 1. FAISS leaves a millionth, and a ten-thousandth where a
PCA was trained with hardly more vectors than it has axes; a wrong sign among 4,096 numbers a thousandth."""


@dataclass(frozen=True)
class Inverse:
    """The inverse of one transform, whether it brings back every bit, and what to tell."""

    name: str
    recipe: Recipe
    apply: Callable[[Rows], Rows]
    exact: bool
    remark: str | None = None


def invert(transform: Any) -> Inverse:
    """Return the inverse of a transform in an IndexPreTransform."""
    transform = faiss.downcast_VectorTransform(transform)
    name = type(transform).__name__
    if isinstance(transform, faiss.RemapDimensionsTransform):
        return _remap(transform, name)
    if isinstance(transform, faiss.NormalizationTransform):
        remark = "L2norm keeps the direction of a vector and drops its length; the vectors read back are of length 1"
        return Inverse(name, {"kind": "L2norm"}, lambda rows: rows, exact=False, remark=remark)
    if isinstance(transform, faiss.CenteringTransform):
        mean = faiss.vector_to_array(transform.mean).astype(np.float64)
        remark = "the mean was added again, up to the rounding of float32"
        return Inverse(name, {"kind": "Centering"}, lambda rows: _float32(rows + mean), exact=False, remark=remark)
    if isinstance(transform, faiss.LinearTransform):
        return _linear(transform, name)
    raise RefusedError(
        f"{name} cannot be undone, for it scales each vector by a length that is not kept; use an index without it"
    )


def _float32(rows: NDArray[Any]) -> Rows:
    return rows.astype(np.float32)


def _remap(transform: Any, name: str) -> Inverse:
    positions = faiss.vector_to_array(transform.map).astype(np.int64)
    if positions.size != transform.d_out or (positions.size and positions.max() >= transform.d_in):
        raise RefusedError(f"{name} does not have {transform.d_out} places below {transform.d_in}; copy it again")
    selected = np.flatnonzero(positions >= 0)
    complete = np.unique(positions[selected]).size == transform.d_in

    def inverse(rows: Rows) -> Rows:
        back = np.zeros((len(rows), transform.d_in), np.float32)
        back[:, positions[selected]] = rows[:, selected]
        return back

    remark = None if complete else f"{name} drops dimensions; they are read back as zeros"
    return Inverse(name, {"kind": "Pad", "d_out": int(transform.d_out)}, inverse, exact=complete, remark=remark)


def _linear(transform: Any, name: str) -> Inverse:
    """Y = A x + b: undone with the pseudo-inverse, which also undoes whitening."""
    shape = (transform.d_out, transform.d_in)
    matrix = faiss.vector_to_array(transform.A).astype(np.float64)
    offset = faiss.vector_to_array(transform.b).astype(np.float64) if transform.have_bias else np.zeros(shape[0])
    if matrix.size != shape[0] * shape[1] or offset.size != shape[0] or not np.isfinite(matrix).all():
        raise RefusedError(f"the matrix of {name} is not {shape[0]} x {shape[1]} finite numbers; copy it again")
    matrix = matrix.reshape(shape)
    _check_rows(matrix, transform, name)
    recipe, back = _linear_recipe(transform, name), np.linalg.pinv(matrix)
    return Inverse(
        name, recipe, lambda rows: _float32((rows - offset) @ back.T), exact=False, remark=_linear_remark(matrix, name)
    )


def _check_rows(matrix: NDArray[np.float64], transform: Any, name: str) -> None:
    """Make sure that a rotation is one, and that the axes of a PCA are at right angles.

    FAISS looks at the numbers alone: one that a flipped bit has changed makes it another matrix, which it undoes as
    well, to other vectors. Axes that are scaled and then rotated, as `PCAWR` does, keep no such mark.
    """
    scaled = name == "PCAMatrix" and transform.eigen_power != 0
    if scaled and transform.random_rotation:
        return
    rows = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    if scaled:
        rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.finfo(np.float64).tiny)
    errors = np.abs(rows @ rows.T - np.eye(len(rows)))
    rotations = ("PCAMatrix", "OPQMatrix", "RandomRotationMatrix", "ITQMatrix")
    is_rotation = name in rotations or _was_rotation(matrix, errors)
    if is_rotation and (error := float(errors.max(initial=0.0))) > _RIGHT_ANGLES:
        raise RefusedError(
            f"the rows of {name} should be of length 1 and at right angles, but are off by {error:.2g}; "
            "the file is damaged, copy it again"
        )


def _was_rotation(matrix: NDArray[np.float64], errors: NDArray[np.float64]) -> bool:
    """Return whether a dense matrix without a kind, as FAISS writes those of OPQ, is a rotation but for some rows."""
    return bool(np.count_nonzero(matrix) > matrix.size / 2 and (errors > _RIGHT_ANGLES).mean() <= 0.25)


def _linear_remark(matrix: NDArray[np.float64], name: str) -> str:
    d_out, d_in = matrix.shape
    if d_out < d_in:
        return f"{name} projects {d_in} dimensions to {d_out}; what lay outside of these is lost"
    if np.linalg.cond(matrix) > 1e4:
        return f"{name} shrinks some directions so much that they come back blurred"
    return f"{name} is undone up to the rounding of float32"


def _linear_recipe(transform: Any, name: str) -> Recipe:
    kind = {"PCAMatrix": "PCA", "OPQMatrix": "OPQ", "RandomRotationMatrix": "RR"}.get(name, "Linear")
    recipe = {"kind": kind, "d_out": int(transform.d_out), "d_in": int(transform.d_in)}
    if kind == "PCA":
        return {**recipe, "whiten": bool(transform.eigen_power < 0), "rotate": bool(transform.random_rotation)}
    return {**recipe, "M": int(transform.M)} if kind == "OPQ" else recipe
