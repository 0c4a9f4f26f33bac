"""The layers of a fitted stitch: singular values and bias norms."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from migrate.lab.stitches.mlp import Mlp
from migrate.stitch.affine import AffineMap
from migrate.stitch.base import Stitch, centred
from migrate.stitch.text_features import Matrix
from migrate.vectors import Vectors


@dataclass(frozen=True, slots=True)
class LayerSpectrum:
    """An affine map, `x @ matrix + bias`: the singular values of its matrix, the greatest first, and its bias's norm.

    `singular_values` of a map that was fitted on few pairs are as many as these span.
    """

    singular_values: tuple[float, ...]
    bias_norm: float

    @property
    def effective_rank(self) -> float:
        """The exponential of the entropy of the singular values' shares (Roy & Vetterli 2007)."""
        values = np.array(self.singular_values)
        shares = values[values > 0] / values.sum()
        if not shares.size:
            return 0.0
        return float(np.exp(-(shares * np.log(shares)).sum()))


def layer_spectra(stitch: Stitch, dim: int, source: Vectors | None = None) -> tuple[LayerSpectrum, ...]:
    """The layers of a fitted stitch from `dim` dimensions, the first one first; none where it is not made of such.

    An affine stitch has one layer, a network several. `source`, (n, p), is what an affine one was fitted on, if that is
    known: with n < p the decomposition is then a smaller one.
    """
    affine = stitch.nearest_affine(dim)
    if affine is None:
        if isinstance(stitch, Mlp):
            return tuple(map(_spectrum, stitch.affine_layers()))
        return ()
    matrix = affine.matrix
    if source is not None and len(source) < len(matrix):
        # It maps nothing outside of what the centred pairs span.
        matrix = np.linalg.qr(centred(source)[0].T)[0].T @ matrix
    return (_spectrum(AffineMap(matrix, affine.offset)),)


def _spectrum(layer: AffineMap) -> LayerSpectrum:
    return LayerSpectrum(_values(layer.matrix), float(np.linalg.norm(layer.offset)))


def _values(matrix: Matrix) -> tuple[float, ...]:
    """Singular values of (p, q), from the greatest, as roots of eigenvalues: below 10⁻⁸ of that is rounding."""
    # Both have the same eigenvalues, and the smaller one takes less time
    if len(matrix) <= matrix.shape[1]:
        gram = matrix @ matrix.T
    else:
        gram = matrix.T @ matrix
    return tuple(np.sqrt(np.maximum(np.linalg.eigvalsh(gram)[::-1], 0)).tolist())
