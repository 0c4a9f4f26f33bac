"""What every measure asks of its two sides, and which of many documents it is taken on."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from migrate.errors import VectorError
from migrate.vectors import Vectors

ASKED = 1_000
"""Documents that a measure is taken on where its cost grows with the square of their number."""


def check_same_documents(a: Vectors, b: Vectors, fewest: int) -> None:
    """Make sure that both sides have a row for each of the same documents, `fewest` at least.

    Raises
    ------
    VectorError
        They have not.
    """
    if len(a) != len(b) or len(a) < fewest:
        raise VectorError(
            f"expected the vectors of the same {fewest} or more documents on both sides, found {len(a)} and {len(b)}; "
            "compare more documents"
        )


def some_rows(count: int, *, seed: int, most: int = ASKED) -> NDArray[np.int64]:
    """Up to `most` of `count` rows, drawn at random, in ascending order."""
    return np.sort(np.random.default_rng(seed).permutation(count)[:most])


def pearson(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """Correlation of two series, (n,); 0 where one of them is constant."""
    x, y = one - one.mean(), other - other.mean()
    scale = float(np.sqrt((x @ x) * (y @ y)))
    return float(x @ y) / scale if scale > 0 else 0.0
