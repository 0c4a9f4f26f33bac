"""What lies outside a pool where nothing is judged: how much agreement@10 documents without true vectors may take away.

Agreement of a query is R / P, where P are the discounted gains of the full re-embed's first ten documents
(`migrate.audit.unjudged`). The arm's own ten are in the pool, so R is exact; P is what it is in the pool, and others
outside can only raise it. By how much one of a true score s does so alone is plain (`Room`). Several together raise it
by no more than the sum: documents are assigned to ranks, and the value of the best assignment is submodular (Shapley
1962). How many documents outside have a score of at least s is expected by the errors of the sample
(`migrate.audit.outside`). What is summed are logarithms, log(1 + rise / P): they grow no faster than the score does, so
that their mean exists for errors with an exponential tail, where that of the gains does not; and as exp is convex, the
mean share of agreement that is kept is no less than exp(-mean) (Jensen).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from migrate.audit.outside import CUT, ErrorTail, Lately, Outside, loss_ratio
from migrate.audit.query_set import QuerySet
from migrate.audit.unjudged import TopScores
from migrate.audit.verdict import CONFIDENCE, Remainder
from migrate.search.runs import Run
from migrate.stores.base import Metric

_DISCOUNTS = 1 / np.log2(np.arange(CUT) + 2)
_DROPS = _DISCOUNTS - np.append(_DISCOUNTS[1:], 0)

_STEPS = 4
"""Steps of the sum over scores to each unit of temperature, where gains matter most; and beyond, in all:"""
_BEYOND = 32
_MOST_STEPS = 200
_LOWEST = 10.0
"""A score that is so many units of temperature below the last of a short ranking gains next to nothing."""
_REACH = 10
"""So many mean excesses beyond the largest error nothing is expected any more."""
_EXPONENT = 600.0
_NEXT_TO_NOTHING = 1e-9


@dataclass(frozen=True, eq=False)
class Room:
    """The first ten documents of the full re-embed in a pool, and what one more of a given score would add to them.

    `tops` are their true scores, (10,), best first, a greater one nearer; -inf where they are fewer.
    """

    tops: NDArray[np.float64]
    temperature: float

    def taken(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """log(1 + rise / P) for a document of each true score, alone; 0 for one that is not among the first ten."""
        ranks = np.searchsorted(-self.tops, -scores, side="left")
        inside = np.minimum(ranks, CUT - 1)
        rises = _DISCOUNTS[inside] * self._gains(scores) - self._displaced[inside]
        return np.log1p(np.where(ranks < CUT, np.maximum(rises, 0), 0) / self.possible)

    @cached_property
    def possible(self) -> float:
        """P, the discounted gains of the ten, in units of the gain of the first."""
        return float(_DISCOUNTS @ self._gains(self.tops))

    @cached_property
    def _displaced(self) -> NDArray[np.float64]:
        """What those from each rank on lose by moving down one."""
        lost: NDArray[np.float64] = np.cumsum((_DROPS * self._gains(self.tops))[::-1])[::-1]
        return lost

    def _gains(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        gains: NDArray[np.float64] = np.exp(np.minimum((scores - self.tops[0]) / self.temperature, _EXPONENT))
        return gains

    def grid(self, highest: float) -> NDArray[np.float64]:
        """Scores to sum over: from the tenth on finely, from a little above the first to the `highest` coarsely."""
        last = max(self.tops[-1], self.tops[np.isfinite(self.tops)].min() - _LOWEST * self.temperature)
        first = self.tops[0] + 2 * self.temperature
        steps = int(np.clip((first - last) / self.temperature * _STEPS, 2, _MOST_STEPS))
        beyond = first + (max(highest, first) - first) * np.linspace(0, 1, _BEYOND + 1)[1:] ** 2
        return np.concatenate([np.linspace(last, first, steps), beyond])

    def share_lost(self, grid: NDArray[np.float64], expected: NDArray[np.float64]) -> float:
        """The share of agreement that is lost where `expected` documents are to have at least each score of a grid."""
        taken = self.taken(grid)
        return float(-np.expm1(-(taken[0] * expected[0] + np.diff(taken) @ expected[:-1])))


def tops_of(run: Run, query_id: str, metric: Metric, without: frozenset[str] = frozenset()) -> TopScores:
    """The true scores of the first ten documents of a run for a query, (10,), but some of them."""
    sign = 1.0 if metric == "ip" else -1.0
    ranked = zip(run.rankings.get(query_id, ()), run.scores.get(query_id, ()), strict=True)
    scores = [sign * score for doc_id, score in ranked if doc_id not in without][:CUT]
    return np.array([*scores, *[-np.inf] * (CUT - len(scores))])


def _highest(tail: ErrorTail, tops: NDArray[np.floating]) -> float:
    """A true score that documents of the translated scores `tops` are not expected to exceed."""
    return float(tops.max() + tail.reach(_REACH)) if len(tops) else -np.inf


@dataclass(frozen=True, eq=False)
class OutsideUnjudged(Outside):
    """The documents outside a pool, and what they may take from agreement@10 at a `temperature`."""

    temperature: float

    def losses(self, run: Run, query_set: QuerySet) -> NDArray[np.float64]:
        """What errors predict of the share of each query's agreement that documents outside take, (q,)."""
        return np.array([self._share(run, query_id) for query_id in query_set.query_ids])

    def _share(self, run: Run, query_id: str) -> float:
        room = Room(tops_of(run, query_id, self.metric), self.temperature)
        bands = [(tail, tops, counts) for tail, tops, counts in self.bands_of(self.places[query_id]) if len(tops)]
        highest = max((_highest(tail, tops) for tail, tops, _ in bands), default=-np.inf)
        if highest == np.inf or not np.isfinite(room.tops[0]):
            return 1.0
        grid = room.grid(highest)
        expected = np.zeros(len(grid))
        for tail, tops, counts in bands:
            near = tail(grid[0] - tops) * counts > _NEXT_TO_NOTHING
            expected += tail(grid[:, None] - tops[near]) @ counts[near]
        return room.share_lost(grid, expected)

    def floor(self, run: Run, query_set: QuerySet) -> Remainder:
        """What is left of each query's agreement in the pool, whatever the arm."""
        losses = self.losses(run, query_set)
        expected, least = (np.clip(1 - ratio * losses, 0, 1) for ratio in (self.ratio, self.most))
        return Remainder(query_set.merged(expected), query_set.merged(least))


def calibrate_unjudged(
    run: Run,
    lately: Sequence[Lately],
    query_set: QuerySet,
    metric: Metric,
    temperature: float,
    *,
    seed: int,
    resamples: int,
    error: float = 1 - CONFIDENCE,
) -> tuple[float, float]:
    """As `migrate.audit.outside.calibrate`, of the share of agreement that the last documents of a pool took."""
    tail = ErrorTail.of(np.concatenate([np.empty(0), *(part.true - part.translated for part in lately)]))
    observed, predicted = np.zeros(len(lately)), np.zeros(len(lately))
    for place, (query_id, part) in enumerate(zip(query_set.query_ids, lately, strict=True)):
        before = Room(tops_of(run, query_id, metric, part.documents), temperature)
        if not len(part.true) or not np.isfinite(before.tops[0]):
            continue
        grid = before.grid(_highest(tail, part.translated))
        predicted[place] = before.share_lost(grid, tail(grid[:, None] - part.translated).sum(axis=1))
        now = Room(tops_of(run, query_id, metric), temperature)
        raised = np.exp(min((now.tops[0] - before.tops[0]) / temperature, _EXPONENT))  # P is in units of the first gain
        observed[place] = 1 - before.possible / (now.possible * raised)
    return loss_ratio(observed, predicted, query_set, seed=seed, resamples=resamples, error=error)
