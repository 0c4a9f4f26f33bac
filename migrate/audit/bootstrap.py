"""The bounds of an audit: those of `migrate.audit.bounds`, around which are a pool's floor, families and power."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil
from statistics import NormalDist
from typing import Final

import numpy as np
from numpy.typing import NDArray

from migrate.audit.bounds import (
    CONFIDENCE,
    FEWEST_QUERIES,
    RESAMPLES,
    UNGROUPED,
    Bounds,
    Grouping,
    difference_of_means,
    ratio,
    ratio_of_means,
)
from migrate.audit.measures import Scores

FLOOR_SHARE: Final = 0.2
"""Share of the error of an upper bound, 0-1, that is for the floor where there is one; the rest is for queries."""


@dataclass(frozen=True, eq=False)
class Floor:
    """The scores of the full re-embed where only a pool of it was embedded, (n,) each: `expected`, and at `least`.

    Its scores in the pool are what it scores at most. `least` holds on average, with a confidence of its own of
    1 - `FLOOR_SHARE` * (1 - `CONFIDENCE`) (`migrate.audit.outside`).

    Without judgements it `is_share`: what documents outside leave of each query's agreement in the pool, of every arm.
    That agreement is the most that it can be: upper bounds are guaranteed, and the floor is of the lower ones.
    """

    expected: Scores
    least: Scores
    is_share: bool = False

    def likely(self, arm: Scores, full: Scores) -> tuple[Scores, Scores]:
        """Return the scores of an arm and of the full re-embed as they are expected, from those in the pool."""
        if self.is_share:
            return arm * self.expected, full
        return arm, self.expected

    def extreme(self, arm: Scores, full: Scores) -> tuple[Scores, Scores]:
        """Return these scores where documents outside take as much as they may."""
        if self.is_share:
            return arm * self.least, full
        return arm, self.least

    def widen(self, bounds: Bounds, extreme: Bounds) -> Bounds:
        """Return bounds in the pool, those of the `extreme` on the side that the pool does not guarantee."""
        if self.is_share:
            return replace(bounds, lower=extreme.lower)
        return replace(bounds, upper=extreme.upper)


MOST_QUERIES: Final = 100_000
"""More queries than anybody has, so that no number is named beyond this."""

_POWER: Final = 0.8
"""Share of audits that are to be settled, 0-1: as much power as is usual (Cohen 1988)."""


@dataclass(frozen=True, eq=False)
class Bootstrap:
    """The rules by which all bounds of an audit are drawn.

    All scores are between 0 and 1, (n,), in the same order. With a `floor`, scores are those in a pool: one of the
    bounds of retention is then that of these, and the other that of the floor, with the error that the floor leaves.
    """

    grouping: Grouping = UNGROUPED
    seed: int = 0
    resamples: int = RESAMPLES
    confidence: float = CONFIDENCE
    floor: Floor | None = None

    def retention(self, arm: Scores, full: Scores) -> Bounds:
        """Return the mean score of the arm over that of the full re-embed; unknown where that finds nothing."""
        bounds = self._ratio(arm, full, self.confidence)
        if self.floor is None:
            return bounds
        # The floor is wrong in a share of the audits by itself, so queries may be wrong in the rest alone (Bonferroni)
        error_of_queries = (1 - FLOOR_SHARE) * (1 - self.confidence)
        level = 1 - error_of_queries
        # Each side is taken from what guarantees it: queries alone on one, queries and the floor on the other
        wide = self.floor.widen(bounds, self._ratio(*self.floor.extreme(arm, full), level))
        likely = ratio(*self.floor.likely(arm, full))
        return replace(wide, estimate=max(min(likely, wide.upper), wide.lower))

    def _ratio(self, arm: Scores, full: Scores, confidence: float) -> Bounds:
        return ratio_of_means(arm, full, self.grouping, seed=self.seed, resamples=self.resamples, confidence=confidence)

    def family(self, arms: Mapping[str, Scores], full: Scores, *, n_others: int = 0) -> dict[str, Bounds]:
        """Return the retention of several arms, with bounds that hold for all, and for `n_others` that were planned.

        Of k arms that are all at the margin, the best of the k looks better than it is. Each bound here is one of
        confidence 1 - 0.05 / k (Bonferroni; Dunn 1961), so that in 95 % of audits no lower bound lies above its truth,
        and so for the upper ones. How alike the arms are is not used. Arms that may or may not be looked at, by what
        the first of them show, count among the k.
        """
        each = replace(self, confidence=self.confidence_of_each(len(arms) + n_others))
        return {name: each.retention(arm, full) for name, arm in arms.items()}

    def confidence_of_each(self, n_arms: int) -> float:
        """Return the confidence of one bound of a family of so many arms."""
        return 1 - (1 - self.confidence) / max(n_arms, 1)

    def difference(self, arm: Scores, rival: Scores) -> Bounds:
        """Return the mean score of the arm minus that of the other; the imagined query is all won, or all lost."""
        return difference_of_means(
            arm, rival, self.grouping, seed=self.seed, resamples=self.resamples, confidence=self.confidence
        )

    def has_enough(self, n_queries: int) -> bool:
        """Return whether so many queries, or the groups that they are in, are enough for any verdict."""
        n_observations = n_queries
        if self.grouping.groups is not None:
            n_observations = self.grouping.count
        return n_observations >= FEWEST_QUERIES

    def is_less(self, less: Scores, more: Scores) -> bool:
        """Return whether scores are significantly lower than others."""
        return self.difference(more, less).lower > 0

    def queries_needed(self, arm: Scores, full: Scores, margin: float) -> int | None:
        """Return the number of queries with which 80 % of audits would be settled; None for more than `MOST_QUERIES`.

        Holds if these queries are like all others: if retention is what it is here, and its spread and groups too. As
        retention is known to within its bounds only, so is this number; `benchmarks/verdicts.py` prints how many audits
        it settles.

        An audit of n queries says SAFE where the mean of arm - margin * full is above what n queries and the worst-case
        query leave open, NOT SAFE where it is as far below; that mean is taken as normal.
        """
        # Where this has a mean of 0 the store is at the margin.
        # What a group has is what it adds
        above = self.grouping.rows(arm - margin * full)
        if len(above) < 2 or not full.any():
            return None
        each = len(arm) / len(above)
        n = np.unique(np.geomspace(max(len(above) + 1, FEWEST_QUERIES), MOST_QUERIES / each, 400).astype(int))
        size = self.grouping.size
        won = self.grouping.won
        best = won + (size - won) * (1 - margin)
        if (full == 1).all():
            best = size * (1 - margin)
        least = margin * size
        settled = _settled(n, above, least, self.confidence) + _settled(n, -above, best, self.confidence)
        enough = n[settled >= _POWER]
        if not len(enough):
            return None
        needed: int = ceil(enough[0] * each)
        return needed


def _settled(n: NDArray[np.int_], values: Scores, worst: float, confidence: float) -> NDArray[np.float64]:
    """Return the share of audits of n queries or groups that find the mean above 0; an unseen one may be `-worst`."""
    # A mean of so many values is nearly normal, whatever they are (central limit theorem)
    room = values.mean() - _open(n, float(np.mean(values**2)), worst, confidence)
    error = max(float(np.std(values, ddof=1)), 1e-12) / np.sqrt(n)
    return np.array([NormalDist().cdf(z) for z in np.clip(room / error, -40, 40)])


def _open(n: NDArray[np.int_], square: float, worst: float, confidence: float) -> NDArray[np.float64]:
    """Return how far above 0 a mean of n values of this mean `square` has to be for its lower bound to be above 0.

    Of a normal variable with variance n * square, and an exponential one with mean `worst`: the quantile of the sum, by
    its first four cumulants (Cornish & Fisher 1938).
    """
    z = NormalDist().inv_cdf(confidence)
    variance = n * square + worst**2
    # Cumulants of an exponential variable with this mean: worst**2, 2 * worst**3, 6 * worst**4; of a normal one the
    # third and fourth are 0
    skew = 2 * worst**3 / variance**1.5
    excess = 6 * worst**4 / variance**2
    shape = (z**2 - 1) * skew / 6 + (z**3 - 3 * z) * excess / 24 - (2 * z**3 - 5 * z) * skew**2 / 36
    quantile: NDArray[np.float64] = (worst + np.sqrt(variance) * (z + shape)) / n
    return quantile
