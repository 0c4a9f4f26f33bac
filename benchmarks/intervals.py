"""Bounds of the retention of many audits at once: the tool's own, and the usual ones beside it, for `verdicts.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm, t
from simulated_audits import Labels, Table

from migrate.audit.bounds import CONFIDENCE, FEWEST_QUERIES, Grouping, mean_bounds, ratio_bounds, weighted_sums

Sides = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Lower and upper bounds of each audit."""


def own_bounds(
    arm: Table, full: Table, rng: np.random.Generator, resamples: int, confidence: float = CONFIDENCE
) -> Sides:
    """As `Bootstrap.retention` does; the resamples are the same for all audits of a table."""
    audits = arm.shape[1]
    sums, unseen = weighted_sums(np.hstack([arm, full]), seed=int(rng.integers(1 << 32)), resamples=resamples)
    perfect = bool((full == 1).all())
    return ratio_bounds(sums[:, :audits], sums[:, audits:], unseen, confidence, perfect=perfect)


def grouped_bounds(arm: Table, full: Table, groups: Labels, rng: np.random.Generator, resamples: int) -> Sides:
    """As `Bootstrap.retention` does with groups, numbers below n of each query and audit; fewer than 20 say nothing."""
    groupings = [Grouping(own) for own in groups.T]
    audits = len(groupings)
    rows = np.zeros((max(one.count for one in groupings), 2 * audits))
    for audit, one in enumerate(groupings):
        rows[: one.count, [audit, audits + audit]] = one.rows(np.stack([arm[:, audit], full[:, audit]], axis=1))
    sums, unseen = weighted_sums(rows, seed=int(rng.integers(1 << 32)), resamples=resamples)
    lower, upper = np.zeros(audits), np.full(audits, np.inf)
    for audit, one in enumerate(groupings):
        if one.count >= FEWEST_QUERIES:
            own = sums[:, [audit]], sums[:, [audits + audit]]
            (lower[audit],), (upper[audit],) = ratio_bounds(*own, unseen, CONFIDENCE, grouping=one)
    return lower, upper


def own_lower(
    arms: Sequence[Table], full: Table, rng: np.random.Generator, resamples: int, levels: Sequence[float]
) -> Table:
    """Lower bounds of several arms at several levels as `Bootstrap.family` has them, (arms, levels, audits)."""
    sums, unseen = weighted_sums(np.hstack([full, *arms]), seed=int(rng.integers(1 << 32)), resamples=resamples)
    standard, *found = np.split(sums, len(arms) + 1, axis=1)
    return np.stack([np.quantile(one / (standard + unseen[:, None]), 1 - np.array(levels), axis=0) for one in found])


def own_difference(arm: Table, other: Table, rng: np.random.Generator, resamples: int) -> Sides:
    """As `Bootstrap.difference` does."""
    columns = np.hstack([arm - other, np.ones((len(arm), 1))])
    sums, unseen = weighted_sums(columns, seed=int(rng.integers(1 << 32)), resamples=resamples)
    return mean_bounds(sums[:, :-1], sums[:, -1], unseen, CONFIDENCE)


def t_difference(arm: Table, other: Table) -> Sides:
    """Student's t on paired differences."""
    n, gain = len(arm), arm - other
    reach = t.ppf(CONFIDENCE, n - 1) * gain.std(axis=0, ddof=1) / np.sqrt(n)
    return gain.mean(axis=0) - reach, gain.mean(axis=0) + reach


def t_bounds(arm: Table, full: Table) -> Sides:
    """Student's t on arm - retention * full (the delta method; Cochran 1977, eq. 2.39)."""
    n, means = len(arm), full.mean(axis=0)
    ratio = arm.mean(axis=0) / means
    reach = t.ppf(CONFIDENCE, n - 1) * (arm - ratio * full).std(axis=0, ddof=1) / np.sqrt(n) / means
    return ratio - reach, ratio + reach


def bootstrap_bounds(arm: Table, full: Table, rng: np.random.Generator, resamples: int) -> Mapping[str, Sides]:
    """The paired bootstrap by percentiles and by BCa (Efron & Tibshirani 1993, ch. 13 and 14.3).

    `worst query` is the percentile bootstrap of the sample and one worst-case query more.
    """
    counts = _counts(rng, len(arm), resamples)
    ratios = np.sort(_ratios(counts @ arm, counts @ full), axis=0)
    more = _counts(rng, len(arm) + 1, resamples)
    arms, fulls, spare = more[:, :-1] @ arm, more[:, :-1] @ full, more[:, -1:]
    return {
        "percentile": (np.quantile(ratios, 1 - CONFIDENCE, axis=0), np.quantile(ratios, CONFIDENCE, axis=0)),
        "BCa": (_bca(ratios, arm, full, 1 - CONFIDENCE), _bca(ratios, arm, full, CONFIDENCE)),
        "worst query": (
            np.quantile(_ratios(arms, fulls + spare), 1 - CONFIDENCE, axis=0),
            np.quantile(_ratios(arms + spare, fulls), CONFIDENCE, axis=0),
        ),
    }


def _counts(rng: np.random.Generator, n: int, resamples: int) -> Table:
    """How often each query is in each resample, (resamples, n)."""
    drawn = rng.integers(n, size=(resamples, n)) + n * np.arange(resamples)[:, None]
    return np.bincount(drawn.ravel(), minlength=resamples * n).reshape(resamples, n).astype(np.float64)


def _ratios(arm: Table, full: Table) -> Table:
    """A resample in which the full re-embed finds nothing has lost nothing."""
    return np.where(full > 0, arm / np.where(full > 0, full, 1), 1.0)


def _bca(ratios: Table, arm: Table, full: Table, level: float) -> NDArray[np.float64]:
    """The BCa quantile of sorted resamples; the acceleration from the influence of each query on the ratio."""
    estimate = arm.mean(axis=0) / full.mean(axis=0)
    influence = arm - estimate * full
    skew = (influence**3).sum(axis=0) / (6 * np.maximum((influence**2).sum(axis=0), 1e-12) ** 1.5)
    below = (ratios < estimate).mean(axis=0) + (ratios == estimate).mean(axis=0) / 2
    bias = norm.ppf(np.clip(below, 1 / len(ratios), 1 - 1 / len(ratios)))
    shifted = bias + norm.ppf(level)
    rank = (norm.cdf(bias + shifted / (1 - skew * shifted)) * len(ratios)).astype(int)
    picked: NDArray[np.float64] = ratios[np.minimum(rank, len(ratios) - 1), np.arange(len(skew))]
    return picked
