"""Which stitch: every candidate is judged on pairs it was not fitted on, by the retrieval it would give."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from migrate.errors import UsageError
from migrate.stitch.base import Stitch, check_pairs
from migrate.stitch.linear import Identity, LowRank, Mean, OrdinaryLeastSquares, Procrustes, Ridge
from migrate.stitch.mlp import MAX_LAYERS, Mlp
from migrate.stitch.scores import HeldOutScores, score_predictions
from migrate.vectors import Progress, Vectors, no_progress

FOLDS = 5

_KINDS: dict[str, type[Stitch]] = {
    kind.kind: kind for kind in (Identity, Mean, Procrustes, OrdinaryLeastSquares, Ridge, LowRank)
}

AUTO_CANDIDATES = ("identity", "procrustes", "ols", "lowrank", "ridge")
"""What `auto` chooses from, the simpler first: of two that score the same, the earlier is taken."""


def new_stitch(spec: str) -> Stitch:
    """An unfitted stitch from its spec, `KIND`, `lowrank:RANK` or `mlp:LAYERS`.

    Raises
    ------
    UsageError
        No such stitch.
    """
    kind, colon, option = spec.partition(":")
    if kind == LowRank.kind and option.isdecimal() and int(option) > 0:
        return LowRank(int(option))
    if kind == Mlp.kind and option in map(str, range(1, MAX_LAYERS + 1)):
        return Mlp(int(option))
    if kind not in _KINDS or colon:
        known = f"auto, {', '.join(_KINDS)}, lowrank:RANK, mlp:1 to mlp:{MAX_LAYERS}"
        raise UsageError(f"expected a stitch among {known}; found {spec!r}")
    return _KINDS[kind]()


@dataclass(frozen=True, slots=True)
class Candidate:
    """One row of the table that `fit` prints."""

    stitch: str
    scores: HeldOutScores
    fit_s: float = field(default=0.0, compare=False)
    is_control: bool = False


@dataclass(frozen=True, slots=True)
class Selection:
    """The candidates as they were judged, and which was taken."""

    chosen: str
    candidates: tuple[Candidate, ...]


def applicable(source: Vectors, target: Vectors) -> list[str]:
    """The specs `auto` may choose from for these pairs."""
    same_dim = source.shape[1] == target.shape[1]
    return [spec for spec in AUTO_CANDIDATES if same_dim or spec != Identity.kind]


def select_stitch(
    source: Vectors,
    target: Vectors,
    *,
    specs: Sequence[str] = (),
    seed: int = 0,
    progress: Progress = no_progress,
) -> Selection:
    """Cross-validate stitches on pairs, (n, p) and (n, q), and choose by overlap@10, then by MSE.

    Without `specs` all that apply are candidates.

    Each fold's predictions come from a stitch that has not seen the fold; put together they cover the sample, so
    that retrieval is judged over all n documents. Two controls stand in the table and are never chosen unless asked
    for: `mean`, and `random`, which hands every document the true vector of another.

    Raises
    ------
    StitchError
        Fewer than two pairs.
    UsageError
        A spec that is no stitch.
    """
    check_pairs(source, target)
    wanted = list(specs) if specs else applicable(source, target)
    table = [_judge(spec, source, target, seed=seed) for spec in _reporting(wanted, progress)]
    chosen = max(table, key=lambda row: (row.scores.overlap_at_10, -row.scores.mse)).stitch
    controls = [_judge(Mean.kind, source, target, seed=seed, is_control=True)] if Mean.kind not in wanted else []
    controls.append(_random_control(target, seed=seed))
    return Selection(chosen, (*table, *controls))


def _reporting(specs: Sequence[str], progress: Progress) -> Sequence[str]:
    for done, _ in enumerate(specs):
        progress("fit candidates", done, len(specs))
    return specs


def _judge(spec: str, source: Vectors, target: Vectors, *, seed: int, is_control: bool = False) -> Candidate:
    started = time.perf_counter()
    predicted = cross_predict(spec, source, target, seed=seed)
    elapsed = time.perf_counter() - started
    return Candidate(spec, score_predictions(predicted, target, seed=seed), elapsed, is_control)


def cross_predict(spec: str, source: Vectors, target: Vectors, *, folds: int = FOLDS, seed: int = 0) -> Vectors:
    """Predictions for every pair from stitches fitted without its fold, shape (n, q)."""
    predicted = np.empty_like(target)
    for held_out in fold_rows(len(source), folds=folds, seed=seed):
        rest = np.setdiff1d(np.arange(len(source)), held_out)
        if len(rest) < 2:  # two pairs leave one to learn from: all that one pair teaches is its own target
            predicted[held_out] = target[rest].mean(axis=0)
            continue
        predicted[held_out] = new_stitch(spec).fit(source[rest], target[rest]).transform(source[held_out])
    return predicted


def fold_rows(n: int, *, folds: int = FOLDS, seed: int = 0) -> list[NDArray[np.int64]]:
    """Split 0..n-1 at random into `folds` sorted parts of nearly equal size (fewer where n is smaller)."""
    order = np.random.default_rng(seed).permutation(n)
    return [np.sort(part) for part in np.array_split(order, min(folds, n))]


def _random_control(target: Vectors, *, seed: int) -> Candidate:
    shift = np.random.default_rng(seed).permutation(len(target))
    predicted = np.empty_like(target)
    predicted[shift] = target[np.roll(shift, 1)]  # one cycle: nobody keeps the own vector
    return Candidate("random", score_predictions(predicted, target, seed=seed), 0.0, True)
