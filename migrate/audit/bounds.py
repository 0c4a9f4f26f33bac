"""Bounds of the share of quality that an arm retains, from arrays of scores; `migrate.outcome.decide` decides by them.

A resample gives each query a random weight, the same for all its scores (the Bayesian bootstrap; Rubin 1981). One query
more is imagined, the worst there can be for what the bound is to show: for a lower bound of retention, the full
re-embed answers it perfectly and the arm not at all; for an upper one the other way round, unless the full re-embed
scores 1 for all queries. It stands for rare harm that was not seen, and weighs as much as one real query.

This is Gaffke's bound (2005; Learned-Miller & Thomas 2019, arXiv:1905.06208) for the mean of arm - margin * full,
turned into a bound of the ratio. For scores of 0 and 1 it is the exact bound of Clopper and Pearson. That it holds for
all bounded scores is conjectured, with no exception known; `benchmarks/verdicts.py` counts how often it fails.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import inf
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from migrate.audit.measures import Scores
from migrate.errors import InputError
from migrate.outcome import FEWEST_QUERIES as FEWEST_QUERIES
from migrate.outcome import MARGIN as MARGIN
from migrate.outcome import UNKNOWN as UNKNOWN
from migrate.outcome import Bounds as Bounds
from migrate.outcome import Outcome as Outcome
from migrate.outcome import decide as decide

CONFIDENCE: Final = 0.95
"""Confidence of one bound alone."""

# 500 of them lie beyond a bound, so that its 5 % are from 4.6 to 5.4 % for want of more
RESAMPLES: Final = 10_000

_BLOCK: Final = 1 << 22
"""Weights that are drawn at once: 32 MiB."""


@dataclass(frozen=True, eq=False)
class Grouping:
    """Groups of queries that are one observation each.

    `groups` are numbers, (n,), that queries share which are one observation (`migrate.audit.query_groups`); None where
    each is one. Groups are what is drawn, and the imagined query is a group of `size`; `evenly` says that it may be won
    as a whole, as it may be lost.
    """

    groups: NDArray[np.int64] | None = None
    evenly: bool = False
    _numbers: NDArray[np.int64] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Number the groups in the order in which they come."""
        groups: list[int] = []
        if self.groups is not None:
            groups = self.groups.tolist()
        numbers: dict[int, int] = {}
        of_queries = np.array([numbers.setdefault(group, len(numbers)) for group in groups], dtype=np.int64)
        # Frozen: what is computed from the fields once has no other way in
        object.__setattr__(self, "_numbers", of_queries)

    @property
    def won(self) -> float:
        """The most by which the arm may win in a group that was not seen: kinds are lost as a whole, won one by one."""
        # What is lost in translation is lost for all that ask for it; nothing in a stitch answers what its target
        # cannot
        if self.evenly:
            return self.size
        return 1.0

    def rows(self, scores: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return what is drawn: the sums of scores, (n,) or (n, c), over each group."""
        if self.groups is None:
            return np.asarray(scores, dtype=np.float64)
        sums = np.zeros((self.count, *scores.shape[1:]))
        np.add.at(sums, self._numbers, scores)
        return sums

    def at(self, positions: NDArray[np.int64]) -> Grouping:
        """Return the grouping of some of the queries."""
        if self.groups is None:
            return self
        return replace(self, groups=self.groups[positions])

    @property
    def count(self) -> int:
        """The number of groups; 0 where each query is one."""
        return len(self.sizes)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """The number of queries of each group; none where each query is one."""
        return np.bincount(self._numbers)

    @property
    def size(self) -> float:
        """The number of queries of a group that was not seen: the mean over groups, each by the square of its size.

        `benchmarks/verdicts.py` compares it with other sizes.
        """
        if not self.count:
            return 1.0
        sizes = self.sizes
        # By the square of its size: that is how much each group has to do with how far a mean is off. The largest group
        # alone would make a hundred queries out of one, and the plain mean is too small where the harm is in large
        # groups
        return float((sizes**3).sum() / (sizes**2).sum())


UNGROUPED = Grouping()
"""Queries that are one observation each."""


def retention_bounds(
    arm: ArrayLike,
    full: ArrayLike,
    groups: ArrayLike | None = None,
    seed: int = 0,
    *,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
) -> Bounds:
    """Return the mean score of an arm over that of the full re-embed, with bounds.

    Parameters
    ----------
    arm, full : array_like of float, (n,)
        Scores from 0 to 1, such as nDCG@10, of the same queries in the same order.
    groups : array_like, (n,), optional
        Labels that queries share which are one observation, such as those of one topic; by default each is one.
    seed : int
        Of the resamples: equal input has equal bounds.
    resamples : int
        Random weightings of the queries that are drawn.
    confidence : float
        Of each bound by itself, from 0 to 1.

    Returns
    -------
    Bounds
        Shares of the full re-embed's mean, with 1 for all of it; `UNKNOWN`'s bounds where that finds nothing.

    Raises
    ------
    InputError
        The arrays are not of one length and one dimension, or a score is not between 0 and 1.

    Notes
    -----
    A paired Bayesian bootstrap (Rubin 1981) with one imagined query, or group, that is the worst there can be: the
    bound of Gaffke (2005; Learned-Miller & Thomas 2019, arXiv:1905.06208) for the mean of arm - margin * full, turned
    into one of the ratio. Of scores of 0 and 1, against a full re-embed that is always right, it is that of Clopper
    and Pearson. With fewer than `FEWEST_QUERIES` queries or groups the bounds hold, but hardly ever decide.

    Examples
    --------
    >>> full = [1.0, 0.5, 0.63, 1.0] * 50
    >>> bounds = retention_bounds([0.98, 0.5, 0.63, 1.0] * 50, full)
    >>> print(f"{bounds.estimate:.3f} ({bounds.lower:.3f} to {bounds.upper:.3f})")
    0.994 (0.975 to 1.013)
    >>> decide(bounds, 0.95)
    <Outcome.SAFE: 'SAFE'>
    """
    scores, standard = _scores(arm, full)
    return ratio_of_means(
        scores, standard, _grouping(groups, len(scores)), seed=seed, resamples=resamples, confidence=confidence
    )


def ratio_of_means(
    arm: Scores, full: Scores, grouping: Grouping, *, seed: int, resamples: int, confidence: float
) -> Bounds:
    """Return the mean of an arm's scores over that of the full re-embed, as `retention_bounds` does."""
    estimate = ratio(arm, full)
    if not full.any():
        return Bounds(estimate, 0.0, inf)
    # Both under the same weights: what is common to them, such as hard queries, does not widen the bounds
    rows = grouping.rows(np.column_stack([full, arm]))
    sums, unseen = weighted_sums(rows, seed=seed, resamples=resamples)
    # Where the full re-embed is right for all queries, none is imagined that it fails: the bound is Clopper and
    # Pearson's
    perfect = bool((full == 1).all())
    lower, upper = ratio_bounds(sums[:, 1:], sums[:, :1], unseen, confidence, perfect=perfect, grouping=grouping)
    return Bounds(estimate, float(lower[0]), float(upper[0]))


def difference_of_means(
    arm: Scores, rival: Scores, grouping: Grouping, *, seed: int, resamples: int, confidence: float
) -> Bounds:
    """Return the mean of an arm's scores minus that of another; the imagined query is all won, or all lost."""
    if not len(arm):
        return Bounds(0.0, -inf, inf)
    differences = arm - rival
    rows = grouping.rows(np.column_stack([differences, np.ones(len(arm))]))
    sums, unseen = weighted_sums(rows, seed=seed, resamples=resamples)
    lower, upper = mean_bounds(sums[:, :1], sums[:, 1], grouping.size * unseen, confidence)
    return Bounds(float(differences.mean()), float(lower[0]), float(upper[0]))


def _scores(arm: ArrayLike, full: ArrayLike) -> tuple[Scores, Scores]:
    """Return both as arrays that can be compared query by query."""
    both = [_numbers(scores) for scores in (arm, full)]
    if both[0].ndim != 1 or both[0].shape != both[1].shape:
        shapes = " and ".join(str(scores.shape) for scores in both)
        raise InputError(f"scores of shapes {shapes} are not of the same queries; give two arrays of one length")
    for scores in both:
        if not ((scores >= 0) & (scores <= 1)).all():  # NaN is neither
            raise InputError("a score is not between 0 and 1; divide scores by the best that there can be")
    return both[0], both[1]


def _numbers(scores: ArrayLike) -> Scores:
    """Return scores as an array; what stands under a mask is no score, and a complex number none either."""
    if np.ma.is_masked(scores):
        raise InputError("a score is masked; leave its query out of both arrays")
    if not np.iscomplexobj(scores):
        with suppress(TypeError, ValueError):
            return np.asarray(scores, dtype=np.float64)
    raise InputError("a score is not a number; give one between 0 and 1 for each query")


def _grouping(groups: ArrayLike | None, n: int) -> Grouping:
    if groups is None:
        return UNGROUPED
    labels = np.asarray(groups)
    if labels.shape != (n,):
        raise InputError(f"groups of shape {labels.shape} are not one for each of {n} queries; give a label for each")
    try:
        numbers = np.unique(labels, return_inverse=True)[1]
    except TypeError as error:  # None among them, or numbers beside words
        raise InputError("labels of groups cannot be compared; give all as numbers, or all as words") from error
    return Grouping(numbers)


def weighted_sums(
    scores: NDArray[np.floating], *, seed: int, resamples: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the columns of (n, c) summed under random weights of rows, (resamples, c), and an unseen row's weights.

    Weights are exponential with mean 1: divided by their sum, they are uniform over all weightings (Rubin 1981). Drawn
    in blocks, in bounded memory.
    """
    n, columns = scores.shape
    step = max(_BLOCK // (n + 1), 1)
    if resamples <= step:
        # An audit asks for the same weights again and again, and drawing them takes longer than the sums
        weights = _weights(n + 1, seed, resamples)
        return weights[:, :n] @ scores, weights[:, n]
    # In blocks, as the weights of ten thousand resamples of many queries do not fit into memory
    rng = np.random.default_rng(seed)
    sums = np.empty((resamples, columns))
    unseen = np.empty(resamples)
    for start in range(0, resamples, step):
        weights = rng.standard_exponential((min(step, resamples - start), n + 1))
        sums[start : start + step] = weights[:, :n] @ scores
        unseen[start : start + step] = weights[:, n]
    return sums, unseen


@lru_cache(maxsize=1)
def _weights(n: int, seed: int, resamples: int) -> NDArray[np.float64]:
    weights = np.random.default_rng(seed).standard_exponential((resamples, n))
    weights.flags.writeable = False
    return weights


def ratio_bounds(
    arms: NDArray[np.floating],
    full: NDArray[np.floating],
    unseen: NDArray[np.floating],
    confidence: float,
    *,
    perfect: bool = False,
    grouping: Grouping = UNGROUPED,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return lower and upper bounds of arm / full from their weighted sums, (resamples, k) or (resamples, 1).

    For the upper one the arm answers the unseen query perfectly, and the full re-embed does not unless it is `perfect`.
    """
    most = grouping.size * unseen[:, None]
    won = grouping.won * unseen[:, None]
    # For the lower bound the full re-embed answers the unseen query perfectly, and the arm not at all: without it, rare
    # but total harm would leave no trace in a small sample
    low = arms / (full + most)
    # What arm and full re-embed share moves the ratio towards 1: it is there where that is for the worse
    high = np.maximum((arms + won) / (full + won * perfect), (arms + most) / (full + most - won * (not perfect)))
    return np.quantile(low, 1 - confidence, axis=0), np.quantile(high, confidence, axis=0)


def mean_bounds(
    sums: NDArray[np.floating], weights: NDArray[np.floating], unseen: NDArray[np.floating], confidence: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return bounds of a mean of values between -1 and 1, from weighted sums, (resamples, k), and weights."""
    # The unseen query is all lost, -1, or all won, 1
    most = unseen[:, None]
    total = (weights + unseen)[:, None]
    lower = np.quantile((sums - most) / total, 1 - confidence, axis=0)
    upper = np.quantile((sums + most) / total, confidence, axis=0)
    return lower, upper


def ratio(arm: Scores, full: Scores) -> float:
    """Return the ratio of the means; 1 where both are 0, as nothing was lost, and 0 where there is no query."""
    if not len(arm):
        return 0.0
    if not full.any():
        if arm.any():
            return np.inf
        return 1.0
    return float(arm.mean() / full.mean())
