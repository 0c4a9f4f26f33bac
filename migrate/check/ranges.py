"""Says where in a store the sampled documents agree: a part that was added later stands in rows of its own."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_MOST = 4


def describe_rows(rows: NDArray[np.int64], agreeing: NDArray[np.bool_]) -> str:
    """Runs of ascending rows, (n,), that agree or do not, if these are few.

    >>> describe_rows(np.array([0, 3, 7, 9]), np.array([True, True, False, False]))
    'rows 0 to 3 agree, 7 to 9 do not'
    """
    starts = np.flatnonzero(np.r_[True, agreeing[1:] != agreeing[:-1]])
    if len(starts) > _MOST:
        return "the rows that agree and those that do not lie scattered"
    ends = np.r_[starts[1:], len(rows)] - 1
    return "rows " + ", ".join(
        f"{_span(int(rows[start]), int(rows[end]))} {'agree' if agreeing[start] else 'do not'}"
        for start, end in zip(starts, ends, strict=True)
    )


def _span(first: int, last: int) -> str:
    return f"{first}" if first == last else f"{first} to {last}"
