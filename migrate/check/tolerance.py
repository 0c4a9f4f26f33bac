"""How near a stored vector must be to one made anew to be the same, by what the index has kept of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from migrate.stores.base import StoreInfo
from migrate.vectors import Vectors, squared_norms

EXACT: Final = 1e-3
"""Two stores that others had made were off by less than 1e-6; a prefix moved the vector of a text by 2e-3 or more."""

_SCALAR: Final = {"SQfp16": EXACT, "SQbf16": EXACT, "SQ8": 2e-3, "SQ6": 5e-3, "SQ4": 2e-2}
"""Measured on 5,183 unit vectors of 384 dimensions: the worst lost 6e-4 with SQ6, 1e-2 with SQ4, else below 5e-5."""

_SLACK: Final = 0.07
_STRAYING: Final = 0.3
_LOOSE: Final = 5e-3
_PLAIN = re.compile(r"Flat|SQ\w+|IVF.*|IDMap2?|HNSW.*")


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far below 1 a cosine may be; `coded` where it is counted from what the code of an index leaves of a vector.

    A code that stores the mean of what it stands for has, on average, cos(x, x') = |x'| / |x|: a vector reconstructed
    from a product or residual quantizer is as much too short as it is off. So the norm says which cosine to expect.
    """

    allowed: float
    coded: bool = False

    @property
    def loose(self) -> bool:
        """Whether it may hide what a prefix changes, so that ways of embedding must be compared with each other."""
        return self.allowed > _LOOSE

    def least(self, stored: Vectors, fresh: Vectors) -> NDArray[np.float64]:
        """The least cosine at which each row of `stored`, (n, dim), is the same as that of `fresh`; shape (n,)."""
        if not self.coded:
            return np.full(len(stored), 1 - self.allowed)
        expected = np.sqrt(squared_norms(stored).astype(np.float64) / squared_norms(fresh))
        expected = np.minimum(expected, 1 / expected)
        # The coarser the code, the more single vectors stray from what it does on average
        least: NDArray[np.float64] = expected - self.allowed - _STRAYING * (1 - expected)
        return least


def tolerance_of(info: StoreInfo) -> Tolerance:
    """The tolerance for a store, by the kind of its index."""
    if info.exact:
        return Tolerance(EXACT)
    parts = str(info.details.get("factory", "")).split(",")
    if all(_PLAIN.fullmatch(part) for part in parts) and parts[-1] in _SCALAR:
        return Tolerance(_SCALAR[parts[-1]])
    return Tolerance(_SLACK, coded=True)
