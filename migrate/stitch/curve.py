"""The learning curve: what the pairs have bought so far, and what more of them would buy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from migrate.stitch.base import Stitch
from migrate.stitch.pairing import FOLDS, Pairing, cross_predict
from migrate.stitch.scores import Neighbours
from migrate.vectors import unit_rows

MORE = 1_000

_SHARES = (0.25, 0.5)
_FEWEST = 40
_RESAMPLES = 1_000


@dataclass(frozen=True, slots=True)
class LearningCurve:
    """Held-out overlap@10, `overlap[i]`, after fitting on `pairs[i]` pairs, always over the same documents.

    `gain` is what the next `MORE` pairs can be expected to add to the last of them, within `low` and `high` (95 %,
    a bootstrap over documents).
    """

    pairs: tuple[int, ...]
    overlap: tuple[float, ...]
    gain: float
    low: float
    high: float


def learning_curve(
    stitch: Stitch,
    pairs: Pairing,
    shares: NDArray[np.float64],
    neighbours: Neighbours,
    *,
    n_pairs: int | None = None,
    seed: int = 0,
) -> LearningCurve | None:
    """Fit on a quarter and a half of the pairs too, and go on from there; None for fewer than 40 pairs.

    `shares` is the overlap@10 of each document that `neighbours` asks about, from all pairs. Where these are some of
    `n_pairs` that the stitch will learn from, the gain is what comes on top of those. Each doubling is taken
    to gain as much less than the one before as the last doubling did, which is a power law in the number of pairs.
    """
    if len(pairs) < _FEWEST:
        return None
    smaller = [cross_predict(stitch, pairs, share=share, seed=seed, with_variance=False).vectors for share in _SHARES]
    steps = np.column_stack([*(neighbours.overlap(unit_rows(one)) for one in smaller), shares])
    learned_from = (1 - 1 / FOLDS) * len(pairs)
    there = n_pairs or len(pairs)
    known, wanted = (float(np.log2(count / len(pairs))) for count in (there, there + MORE))
    draws = np.random.default_rng(seed).integers(len(steps), size=(_RESAMPLES, len(steps)))
    gains = [_gain_between(steps[draw].mean(axis=0), known, wanted) for draw in draws]
    low, high = np.percentile(gains, [2.5, 97.5]).tolist()
    return LearningCurve(
        tuple(round(share * learned_from) for share in (*_SHARES, 1)),
        tuple(steps.mean(axis=0).tolist()),
        _gain_between(steps.mean(axis=0), known, wanted),
        low,
        high,
    )


def _gain_between(overlap: NDArray[np.float64], known: float, wanted: float) -> float:
    """What the doublings from `known` to `wanted` add."""
    return _gain(overlap, wanted) - _gain(overlap, known)


def _gain(overlap: Sequence[float] | NDArray[np.float64], doublings: float) -> float:
    """What so many further doublings add, from the overlap at a quarter, a half and all of the pairs."""
    before, last = overlap[1] - overlap[0], overlap[2] - overlap[1]
    if last <= 0:
        return 0.0
    ratio = min(last / before, 1.0) if before > 0 else 1.0
    steps = doublings if ratio > 1 - 1e-6 else (1 - ratio**doublings) / (1 - ratio)
    return float(min(last * ratio * steps, 1 - overlap[2]))
