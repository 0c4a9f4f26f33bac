"""How far the truth may lie from what was measured: bounds that hold for rare harm and for few queries as well.

A resample gives each query a random weight, the same for all its scores (the Bayesian bootstrap; Rubin 1981). One query
more is imagined, the worst there can be for what the bound is to show: for a lower bound of retention, the full
re-embed answers it perfectly and the arm not at all. A sample without a bad query says little of rare harm, and its
resamples nothing at all; the imagined query stands for what was not seen. It weighs as much as one real query, so that
it means little among thousands. For an upper bound it is the other way round, unless the full re-embed scores 1 for all
queries, as its overlap with itself does: there is nothing to win then.

This is Gaffke's bound (2005, Three test statistics for a nonparametric one-sided hypothesis on the mean of a
nonnegative variable; Learned-Miller & Thomas 2019, arXiv:1905.06208) for the mean of arm - margin * full, turned into a
bound of the ratio: retention is at least the margin where that mean is not below 0. For scores of 0 and 1 it is the
exact bound of Clopper and Pearson. That it holds for all bounded scores and any number of queries is conjectured, with
no exception known; `benchmarks/verdicts.py` counts how often it fails.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from migrate.audit.measures import Scores

CONFIDENCE = 0.95
"""Of one bound alone."""

RESAMPLES = 10_000

_BLOCK = 1 << 22


@dataclass(frozen=True, slots=True)
class Bounds:
    """An estimate between one-sided bounds, of 95 % unless told otherwise: the truth crosses each in at most 5 %."""

    estimate: float
    lower: float
    upper: float


def retention_bounds(
    arm: Scores, full: Scores, *, seed: int = 0, resamples: int = RESAMPLES, confidence: float = CONFIDENCE
) -> Bounds:
    """Mean score of the arm over mean score of the full re-embed: retention.

    Scores are between 0 and 1, shape (n,), in the same order. Where the full re-embed finds nothing, nothing is known.
    """
    return _retentions([arm], full, seed, resamples, confidence)[0]


def family_bounds(
    arms: Mapping[str, Scores],
    full: Scores,
    *,
    seed: int = 0,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
) -> dict[str, Bounds]:
    """Retention of several arms, with bounds that hold for all of them at once.

    Of k arms that are all at the margin, the best of the k looks better than it is. Each bound here is one of
    confidence 1 - 0.05 / k (Bonferroni; Dunn 1961), so that in 95 % of audits no lower bound lies above its truth, and
    so for the upper ones. How alike the arms are is not used.
    """
    found = _retentions(list(arms.values()), full, seed, resamples, 1 - (1 - confidence) / max(len(arms), 1))
    return dict(zip(arms, found, strict=True))


def difference_bounds(
    arm: Scores, other: Scores, *, seed: int = 0, resamples: int = RESAMPLES, confidence: float = CONFIDENCE
) -> Bounds:
    """Mean score of the arm minus mean score of the other; the imagined query is all won, or all lost."""
    if not len(arm):
        return Bounds(0.0, -np.inf, np.inf)
    sums, unseen = weighted_sums(np.column_stack([arm - other, np.ones(len(arm))]), seed=seed, resamples=resamples)
    lower, upper = mean_bounds(sums[:, :1], sums[:, 1], unseen, confidence)
    return Bounds(float(arm.mean() - other.mean()), float(lower[0]), float(upper[0]))


def weighted_sums(
    scores: NDArray[np.floating], *, seed: int, resamples: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Each column of (n, c) summed under random weights of the rows, (resamples, c), and the weights of an unseen row.

    Weights are exponential with mean 1: divided by their sum, they are uniform over all weightings (Rubin 1981). Drawn
    in blocks, in bounded memory.
    """
    rng = np.random.default_rng(seed)
    n, columns = scores.shape
    sums, unseen = np.empty((resamples, columns)), np.empty(resamples)
    step = max(_BLOCK // (n + 1), 1)
    for start in range(0, resamples, step):
        weights = rng.standard_exponential((min(step, resamples - start), n + 1))
        sums[start : start + step] = weights[:, :n] @ scores
        unseen[start : start + step] = weights[:, n]
    return sums, unseen


def ratio_bounds(
    arms: NDArray[np.floating],
    full: NDArray[np.floating],
    unseen: NDArray[np.floating],
    confidence: float,
    *,
    perfect: bool,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Lower and upper bounds of arm / full from their weighted sums, (resamples, k) or (resamples, 1).

    For the upper one the arm answers the unseen query perfectly, and the full re-embed does not unless it is `perfect`.
    """
    spare = unseen[:, None]
    lower = np.quantile(arms / (full + spare), 1 - confidence, axis=0)
    upper = np.quantile((arms + spare) / (full + spare * perfect), confidence, axis=0)
    return lower, upper


def mean_bounds(
    sums: NDArray[np.floating], weights: NDArray[np.floating], unseen: NDArray[np.floating], confidence: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Lower and upper bounds of a mean of values between -1 and 1, from weighted sums, (resamples, k), and weights."""
    spare, total = unseen[:, None], (weights + unseen)[:, None]
    lower = np.quantile((sums - spare) / total, 1 - confidence, axis=0)
    upper = np.quantile((sums + spare) / total, confidence, axis=0)
    return lower, upper


def _retentions(arms: list[Scores], full: Scores, seed: int, resamples: int, confidence: float) -> list[Bounds]:
    estimates = [_ratio(arm, full) for arm in arms]
    if not full.any():
        return [Bounds(estimate, 0.0, np.inf) for estimate in estimates]
    sums, unseen = weighted_sums(np.column_stack([full, *arms]), seed=seed, resamples=resamples)
    lower, upper = ratio_bounds(sums[:, 1:], sums[:, :1], unseen, confidence, perfect=bool((full == 1).all()))
    return [Bounds(*three) for three in zip(estimates, lower.tolist(), upper.tolist(), strict=True)]


def _ratio(arm: Scores, full: Scores) -> float:
    """Of the means; 1 where both are 0, as nothing was lost, and 0 where no query was asked."""
    if not len(arm):
        return 0.0
    if not full.any():
        return np.inf if arm.any() else 1.0
    return float(arm.mean() / full.mean())
