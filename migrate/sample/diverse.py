"""Diverse rows: documents that together cover the old space, the crowded parts and the thin ones alike."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from migrate.vectors import Progress, Vectors, no_progress, unit_rows

_POOL_SHARE = 20
_POOL_ROWS = 10_000, 100_000
_POOL_BYTES = 128 << 20


def pool_size(size: int, dim: int) -> int:
    """How many documents to choose `size` from: 20 times as many, but 10,000 at least and 100,000 or 128 MiB at most.

    The choice reads the whole pool for every document it takes. It is never fewer than `size`.
    """
    least, most = _POOL_ROWS
    return max(size, min(max(_POOL_SHARE * size, least), most, _POOL_BYTES // (4 * dim)))


def far_apart(vectors: Vectors, size: int, *, seed: int = 0, progress: Progress = no_progress) -> NDArray[np.int64]:
    """Choose `size` of the rows of (n, dim), n >= size, each far from those before; shape (size,), none twice.

    A randomised k-centre: where Gonzalez (1985) takes the farthest row, each row is drawn here with a chance in
    proportion to its squared distance from the nearest chosen one (Arthur and Vassilvitskii 2007, "k-means++: the
    advantages of careful seeding"). The farthest rows are the odd ones out, from which a stitch learns least.
    Distances are between unit vectors, so that long vectors are not favoured.
    """
    directions = unit_rows(vectors)
    rng = np.random.default_rng(seed)
    chosen = np.empty(size, dtype=np.int64)
    left = np.ones(len(vectors), dtype=bool)
    nearest = np.full(len(vectors), 4.0)  # squared distance to the nearest chosen row; none is farther than this
    for place in range(size):
        progress("choose a diverse sample", place, size)
        row = _drawn(np.where(left, nearest, 0), left, rng.random())
        chosen[place], left[row] = row, False
        # einsum, for BLAS may sum in another order with another number of threads, and so draw other rows
        np.minimum(nearest, np.maximum(2 - 2 * np.einsum("nd,d->n", directions, directions[row]), 0), out=nearest)
    return chosen


def _drawn(weights: NDArray[np.float64], left: NDArray[np.bool_], chance: float) -> int:
    """A row in proportion to its weight; any that is left where all that are left have none, being copies."""
    if not weights.any():
        weights = left.astype(np.float64)
    rows = np.flatnonzero(weights)
    sums = weights[rows].cumsum()
    place = sums.searchsorted(chance * sums[-1], side="right")
    return int(rows[min(place, len(rows) - 1)])  # rounding may take it past the end
