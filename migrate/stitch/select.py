"""Which stitch: every candidate is judged on pairs it was not fitted on, by the retrieval it would give."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from migrate.stitch.base import Stitch, check_pairs
from migrate.stitch.confidence import Confidence
from migrate.stitch.curve import LearningCurve, learning_curve
from migrate.stitch.kinds import KINDS, new_stitch
from migrate.stitch.linear import Identity, Mean
from migrate.stitch.pairing import Pairing, cross_predict
from migrate.stitch.scores import HeldOutScores, Neighbours, score_predictions
from migrate.vectors import Progress, Vectors, no_progress, unit_rows

AUTO = "auto"
"""Among specs: all that suit the pairs."""

AUTO_CANDIDATES = ("identity", "procrustes", "ols", "lowrank", "ridge", "ridge+text")
"""What `auto` chooses from, the cheaper to use first."""

_CHEAPEST_FIRST = (
    "identity", "mean", "procrustes", "ols", "lowrank", "ridge", "mlp", "kernel", "text", "ridge+text", "kernel+text",
)  # fmt: skip
"""Kinds, the cheaper to use first: what is read of a document counts for more than the arithmetic."""

TEXT_CONTROL = "text"

LARGEST_JUDGED = 2_000
"""Pairs that candidates are judged on: their differences are plain by then, and the time goes with the cube."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One row of the table that `fit` prints."""

    stitch: str
    scores: HeldOutScores
    fit_s: float = field(default=0.0, compare=False)
    is_control: bool = False


@dataclass(frozen=True, slots=True)
class Selection:
    """The candidates as they were judged, and which was taken; of that one the confidence and the learning curve.

    `stitch` is the chosen one, tuned but not fitted, where the choice was made in this process.
    """

    chosen: str
    candidates: tuple[Candidate, ...]
    confidence: Confidence | None = None
    curve: LearningCurve | None = None
    stitch: Stitch | None = field(default=None, compare=False, repr=False)

    @property
    def best(self) -> Candidate:
        """The row of the chosen one."""
        return next(row for row in self.candidates if row.stitch == self.chosen)


@dataclass(frozen=True, eq=False)
class _Judged:
    """A candidate, how its predictions for held-out pairs did, and query by query what of the true top 10 they find."""

    row: Candidate
    stitch: Stitch
    shares: NDArray[np.float64]


def applicable(pairs: Pairing) -> list[str]:
    """The specs `auto` may choose from for these pairs."""
    same_dim = pairs.source.shape[1] == pairs.target.shape[1]
    usable = [spec for spec in AUTO_CANDIDATES if same_dim or spec != Identity.kind]
    return [spec for spec in usable if pairs.texts is not None or not KINDS[spec].reads_texts]


def candidates(specs: Sequence[str], automatic: Sequence[str]) -> list[str]:
    """The specs to choose from, each once: those that are named, and for `auto` or none at all those of `automatic`.

    >>> candidates(["mean", "auto", "mean"], ["ols", "ridge"])
    ['ols', 'ridge', 'mean']
    """
    wanted = [*automatic, *specs] if AUTO in specs or not specs else specs
    return [spec for spec in dict.fromkeys(wanted) if spec != AUTO]


def _cost_of_use(spec: str) -> int:
    kind = spec.partition(":")[0]
    return _CHEAPEST_FIRST.index(kind) if kind in _CHEAPEST_FIRST else len(_CHEAPEST_FIRST)


def select_stitch(
    pairs: Pairing, *, specs: Sequence[str] = (), seed: int = 0, progress: Progress = no_progress
) -> Selection:
    """Cross-validate stitches and choose one.

    The candidates are `specs`, and all that apply for `auto` among them or where there are none. Each fold's
    predictions come from a stitch that has not seen the fold; put together they cover the sample, so that retrieval is
    judged over all n documents. The best overlap@10 wins, but of candidates that stand less than one standard error of
    the paired difference behind it, the one that is cheapest to use is taken (Breiman et al. 1984, the
    one-standard-error rule).

    Controls stand in the table and are never chosen unless asked for: `mean`; `random`, which hands every document
    the true vector of another; and, where there are texts, `text`, which shows what the old vectors are worth.

    Raises
    ------
    StitchError
        Fewer than two pairs, or no texts for a stitch that reads them.
    UsageError
        A spec that is no stitch.
    """
    check_pairs(pairs.source, pairs.target)
    n_pairs = len(pairs)
    if n_pairs > LARGEST_JUDGED:
        pairs = pairs.take(np.sort(np.random.default_rng(seed).permutation(len(pairs))[:LARGEST_JUDGED]))
    wanted = sorted(candidates(specs, applicable(pairs)), key=_cost_of_use)
    neighbours = Neighbours(unit_rows(pairs.target), seed=seed)
    judged = [_judge(spec, pairs, neighbours, seed=seed) for spec in _reporting(wanted, progress)]
    chosen = _cheapest_of_the_best(judged)
    controls = [spec for spec in (TEXT_CONTROL, Mean.kind) if spec not in wanted]
    controls = [spec for spec in controls if pairs.texts is not None or not KINDS[spec].reads_texts]
    table = [one.row for one in judged]
    table += [_judge(spec, pairs, neighbours, seed=seed, is_control=True).row for spec in controls]
    table.append(_random_control(pairs.target, seed=seed))
    progress("fit candidates", len(wanted), len(wanted))
    confidence = Confidence.fit(cross_predict(chosen.stitch, pairs, seed=seed), pairs.target)
    curve = learning_curve(chosen.stitch, pairs, chosen.shares, neighbours, n_pairs=n_pairs, seed=seed)
    return Selection(chosen.row.stitch, tuple(table), confidence, curve, chosen.stitch)


def _reporting(specs: Sequence[str], progress: Progress) -> Sequence[str]:
    for done, _ in enumerate(specs):
        progress("fit candidates", done, len(specs))
    return specs


def _judge(spec: str, pairs: Pairing, neighbours: Neighbours, *, seed: int, is_control: bool = False) -> _Judged:
    started = time.perf_counter()
    stitch = new_stitch(spec).tuned(pairs.source, pairs.target, pairs.texts)
    vectors = cross_predict(stitch, pairs, seed=seed, with_variance=False).vectors
    elapsed = time.perf_counter() - started
    shares = neighbours.overlap(unit_rows(vectors))
    scores = score_predictions(vectors, pairs.target, shares=shares)
    return _Judged(Candidate(spec, scores, elapsed, is_control), stitch, shares)


def _cheapest_of_the_best(judged: Sequence[_Judged]) -> _Judged:
    best = max(judged, key=lambda one: (one.row.scores.overlap_at_10, -one.row.scores.mse))
    for one in judged:
        behind = best.shares - one.shares
        if behind.mean() <= _standard_error(behind):
            return one
    return best


def _standard_error(values: NDArray[np.float64]) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0


def _random_control(target: Vectors, *, seed: int) -> Candidate:
    shift = np.random.default_rng(seed).permutation(len(target))
    predicted = np.empty_like(target)
    predicted[shift] = target[np.roll(shift, 1)]  # one cycle: nobody keeps the own vector
    return Candidate("random", score_predictions(predicted, target, seed=seed), 0.0, True)
