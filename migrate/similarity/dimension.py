"""The intrinsic dimension of a space: near each document, and as a whole."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from migrate.similarity.neighbours import Nearest

NEIGHBOURS = 20
"""Neighbours that the dimension near a document is estimated from."""


def local_dimensions(near: Nearest) -> NDArray[np.float64]:
    """Intrinsic dimension near each query document, (m,), from their k nearest.

    The maximum likelihood estimate of Levina & Bickel 2004, eq. 8, with k - 2 for k - 1, which takes its bias away.
    Copies of a document are left out; where fewer than three others are left, or these are equally far, it is NaN.
    """
    apart = near.distances > 0
    farthest = near.distances[:, -1:]
    logs = np.log(np.divide(farthest, near.distances, where=apart, out=np.ones_like(near.distances)))
    sums = logs.sum(axis=1)
    is_defined = (apart.sum(axis=1) > 2) & (sums > 0)
    dimensions: NDArray[np.float64] = np.divide(
        apart.sum(axis=1) - 2, sums, where=is_defined, out=np.full(len(sums), np.nan)
    )
    return dimensions


def mean_dimension(local: NDArray[np.float64]) -> float:
    """One figure from many, (m,): the harmonic mean (MacKay & Ghahramani 2005), not dominated by a few large values.

    NaN where all are undefined.
    """
    defined = local[np.isfinite(local)]
    return float(1 / np.mean(1 / defined)) if defined.size else float("nan")


def two_nn_dimension(near: Nearest) -> float:
    """Intrinsic dimension of the space as a whole, from the ratio of the distances to the two nearest documents.

    TwoNN (Facco et al. 2017): the slope through the origin of -log(1 - F(μ)) over log μ, without the tenth of the
    documents with the greatest ratios. Copies of a document count as one. NaN where fewer than two are known.
    """
    first = np.where(near.distances > 0, near.distances, np.inf).min(axis=1)
    second = np.where(near.distances > first[:, None], near.distances, np.inf).min(axis=1)
    has_second = np.isfinite(second)
    ratios = np.sort(second[has_second] / first[has_second])
    kept = int(0.9 * len(ratios))
    if kept < 2 or ratios[kept - 1] <= 1:
        return float("nan")
    x = np.log(ratios[:kept])
    y = -np.log1p(-np.arange(1, kept + 1) / len(ratios))
    return float((x @ y) / (x @ x))
