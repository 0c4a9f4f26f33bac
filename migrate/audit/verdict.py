"""SAFE, NOT SAFE or INCONCLUSIVE: a non-inferiority test on the share of quality that an arm retains."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from migrate.audit.measures import Scores

MARGIN = 0.95
CONFIDENCE = 0.95
RESAMPLES = 10_000
FEWEST_QUERIES = 20
"""Fewer queries than this are INCONCLUSIVE, whatever they show: resamples of a handful repeat the handful."""

MOST_QUERIES = 100_000

_BLOCK = 1 << 22
_PSEUDO_QUERIES = 1


class Outcome(StrEnum):
    """What an audit says."""

    SAFE = "SAFE"
    NOT_SAFE = "NOT SAFE"
    INCONCLUSIVE = "INCONCLUSIVE"


@dataclass(frozen=True, slots=True)
class Bounds:
    """An estimate between one-sided 95 % bounds: each bound alone is crossed by the truth in 5 % of audits."""

    estimate: float
    lower: float
    upper: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome with the numbers it rests on.

    `gain_over_stay` is the difference of mean scores, arm minus stay, where staying is possible.
    `queries_needed` is an estimate for an inconclusive verdict: None where even 100,000 would not settle it.
    A `provisional` verdict rests on overlap@10 with the full re-embed, for want of judgements.
    """

    outcome: Outcome
    retention: Bounds
    margin: float
    n_queries: int
    gain_over_stay: Bounds | None
    queries_needed: int | None
    provisional: bool

    @property
    def worse_than_stay(self) -> bool:
        """Whether the arm is significantly worse than staying with the source model."""
        enough = self.n_queries >= FEWEST_QUERIES
        return enough and self.gain_over_stay is not None and self.gain_over_stay.upper < 0

    @property
    def sentence(self) -> str:
        """The verdict in words."""
        bounds = self.retention
        span = f"retention {bounds.estimate:.3f}, 95 % bounds {bounds.lower:.3f} to {bounds.upper:.3f}"
        if self.worse_than_stay:
            return f"{span}; the translated store answers significantly worse than the source store does today"
        if self.outcome is Outcome.SAFE:
            return f"{span}: at least the margin of {self.margin:g}"
        if self.outcome is Outcome.NOT_SAFE:
            return f"{span}: below the margin of {self.margin:g}"
        if self.n_queries < FEWEST_QUERIES:
            return f"{span}; {self.n_queries} queries are too few for a verdict, at least {FEWEST_QUERIES} are needed"
        needed = f"about {self.queries_needed:,}" if self.queries_needed else f"more than {MOST_QUERIES:,}"
        return f"{span}: the margin of {self.margin:g} lies between; {needed} queries would settle it"


def decide(
    arm: Scores,
    full: Scores,
    stay: Scores | None = None,
    *,
    margin: float = MARGIN,
    seed: int = 0,
    resamples: int = RESAMPLES,
    provisional: bool = False,
) -> Verdict:
    """Judge an arm against the full re-embed, and against staying where that is possible.

    All scores are one value a query, shape (n,), between 0 and 1, in the same order.
    """
    retention = retention_bounds(arm, full, seed=seed, resamples=resamples)
    gain = None if stay is None else difference_bounds(arm, stay, seed=seed, resamples=resamples)
    outcome = _outcome(retention, gain, margin) if len(arm) >= FEWEST_QUERIES else Outcome.INCONCLUSIVE
    needed = queries_needed(arm, full, margin) if outcome is Outcome.INCONCLUSIVE else None
    return Verdict(outcome, retention, margin, len(arm), gain, needed, provisional)


def _outcome(retention: Bounds, gain: Bounds | None, margin: float) -> Outcome:
    if retention.upper < margin or (gain is not None and gain.upper < 0):
        return Outcome.NOT_SAFE
    return Outcome.SAFE if retention.lower >= margin else Outcome.INCONCLUSIVE


def retention_bounds(arm: Scores, full: Scores, *, seed: int = 0, resamples: int = RESAMPLES) -> Bounds:
    """Mean score of the arm over mean score of the full re-embed, with percentile bounds of the paired bootstrap.

    Queries are drawn with replacement, both scores of a query together (Efron & Tibshirani 1993, ch. 13). The lower
    bound is drawn from the sample with one worst-case query added: the full re-embed answers it perfectly and the
    arm not at all. Without it, harm that is rare but total goes unseen: no bad query is in the sample, and the
    resamples of a sample without harm show none.
    """
    estimate = _ratio(float(arm.mean()), float(full.mean())) if len(arm) else 0.0
    if not len(arm) or not full.any():
        return Bounds(estimate, 0.0, np.inf)
    pseudo_arm, pseudo_full = np.zeros(_PSEUDO_QUERIES), np.ones(_PSEUDO_QUERIES)
    pessimist = _resampled_means(np.append(arm, pseudo_arm), np.append(full, pseudo_full), seed, resamples)
    plain = _resampled_means(arm, full, seed, resamples)
    lower = np.quantile(_ratios(pessimist), 1 - CONFIDENCE)
    return Bounds(estimate, float(lower), float(np.quantile(_ratios(plain), CONFIDENCE)))


def difference_bounds(arm: Scores, other: Scores, *, seed: int = 0, resamples: int = RESAMPLES) -> Bounds:
    """Mean score of the arm minus mean score of the other, with percentile bounds of the paired bootstrap."""
    if not len(arm):
        return Bounds(0.0, -np.inf, np.inf)
    means = _resampled_means(arm, other, seed, resamples)
    lower, upper = np.quantile(means[0] - means[1], [1 - CONFIDENCE, CONFIDENCE])
    return Bounds(float(arm.mean() - other.mean()), float(lower), float(upper))


def queries_needed(arm: Scores, full: Scores, margin: float) -> int | None:
    """How many queries like these would settle the verdict, or None for more than `MOST_QUERIES`.

    The standard error of the ratio (delta method; Cochran 1977, eq. 2.39) shrinks with the root of the number of
    queries, and the weight of the worst-case query with the number itself.
    """
    mean = float(full.mean()) if len(full) else 0.0
    if mean == 0 or len(arm) < 2:
        return None
    ratio = float(arm.mean()) / mean
    spread = float(np.std(arm - ratio * full, ddof=1)) / mean
    for n in np.unique(np.geomspace(max(len(arm) + 1, FEWEST_QUERIES), MOST_QUERIES, 400).astype(int)):
        # The worst-case query is drawn about once a resample, more or less often with a variance of its own.
        weight = 1 / (n * mean)
        lower = ratio * (1 - weight) - 1.645 * np.hypot(spread / np.sqrt(n), weight)
        if lower >= margin or ratio + 1.645 * spread / np.sqrt(n) < margin:
            return int(n)
    return None


def _resampled_means(first: Scores, second: Scores, seed: int, resamples: int) -> NDArray[np.float64]:
    """Means of both over the same resampled queries, shape (2, resamples), in blocks of bounded memory."""
    rng = np.random.default_rng(seed)
    n = len(first)
    out = np.empty((2, resamples))
    step = max(_BLOCK // n, 1)
    for start in range(0, resamples, step):
        draws = rng.integers(n, size=(min(step, resamples - start), n))
        out[0, start : start + step] = first[draws].mean(axis=1)
        out[1, start : start + step] = second[draws].mean(axis=1)
    return out


def _ratios(means: NDArray[np.float64]) -> NDArray[np.float64]:
    """Ratio of the two rows; 1 where both are 0, as nothing was lost, and infinite where only the second is."""
    both_zero = (means[0] == 0) & (means[1] == 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(both_zero, 1.0, means[0] / means[1])


def _ratio(numerator: float, denominator: float) -> float:
    return numerator / denominator if denominator else (1.0 if numerator == 0 else np.inf)
