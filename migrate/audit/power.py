"""How many queries an audit needs before it can say SAFE or NOT SAFE."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from migrate.audit.bounds import CONFIDENCE
from migrate.audit.measures import Scores

FEWEST_QUERIES = 20
"""Fewer queries than this are INCONCLUSIVE, whatever they show: resamples of a handful repeat the handful."""

MOST_QUERIES = 100_000

POWER = 0.8
"""Share of audits that are to be settled (Cohen 1988)."""

_NORMAL = NormalDist()


def queries_needed(arm: Scores, full: Scores, margin: float, *, confidence: float = CONFIDENCE) -> int | None:
    """Number of queries with which 80 % of audits would be settled, or None for more than `MOST_QUERIES`.

    Holds if these queries are like all others: if retention is what it is here, and its spread too. As retention is
    known to within its bounds only, so is this number; `benchmarks/verdicts.py` prints how many audits it settles.

    An audit of n queries says SAFE where the mean of arm - margin * full is above what n queries and the worst-case
    query leave open, NOT SAFE where it is as far below (`migrate.audit.bounds`); that mean is taken as normal.
    """
    if len(arm) < 2 or not full.any():
        return None
    above = arm - margin * full
    n = np.unique(np.geomspace(max(len(arm) + 1, FEWEST_QUERIES), MOST_QUERIES, 400).astype(int))
    best = 1 - margin if (full == 1).all() else 1.0
    settled = _settled(n, above, margin, confidence) + _settled(n, -above, best, confidence)
    enough = n[settled >= POWER]
    return int(enough[0]) if len(enough) else None


def _settled(n: NDArray[np.int_], values: Scores, worst: float, confidence: float) -> NDArray[np.float64]:
    """Share of audits of n queries that find the mean of `values` above 0; an unseen value may be `-worst`."""
    room = values.mean() - _open(n, float(np.mean(values**2)), worst, confidence)
    error = max(float(np.std(values, ddof=1)), 1e-12) / np.sqrt(n)
    return np.array([_NORMAL.cdf(z) for z in np.clip(room / error, -40, 40)])


def _open(n: NDArray[np.int_], square: float, worst: float, confidence: float) -> NDArray[np.float64]:
    """How far above 0 a mean of n values has to be, their mean square being `square`, for its lower bound to be above.

    Of a normal variable with variance n * square, and an exponential one with mean `worst`: the quantile of the sum, by
    its first four cumulants (Cornish & Fisher 1938).
    """
    z = _NORMAL.inv_cdf(confidence)
    variance = n * square + worst**2
    skew, excess = 2 * worst**3 / variance**1.5, 6 * worst**4 / variance**2
    shape = (z**2 - 1) * skew / 6 + (z**3 - 3 * z) * excess / 24 - (2 * z**3 - 5 * z) * skew**2 / 36
    quantile: NDArray[np.float64] = (worst + np.sqrt(variance) * (z + shape)) / n
    return quantile
