"""Combines two rankings: of vectors and of words, or of a new model and the old one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

from migrate.search.runs import DEPTH, Rankings, by_score

_SMOOTHING: Final = 60
"""Added to each rank, as the authors of the fusion and most search engines do."""

_FIRST: Final = 10
"""Documents of either ranking that are its first ones."""
_AMONG: Final = 50
"""Documents of the new model that the first ones of the old model are looked for among."""
_BEST: Final = 3
"""Documents with the highest scores by true vectors that either model should have among its first ones."""
_FEWEST: Final = 10
"""Documents with true vectors without which the best of them say nothing; what is assumed counts as much."""
_LATEST: Final = 600
"""Documents found after which older ones begin to be forgotten."""
_RECENT: Final = 200
"""Queries that a mean is of, or about that."""


def reciprocal_rank_fusion(
    runs: Sequence[Rankings], *, depth: int = DEPTH, weights: Sequence[float] | None = None
) -> Rankings:
    """Score each document by the sum over the runs of weight / (60 + rank), rank from 1; ties by doc_id.

    Cormack, Clarke & Büttcher 2009, "Reciprocal Rank Fusion outperforms Condorcet and individual Rank Learning
    Methods". All weights are 1 unless they are given.

    >>> reciprocal_rank_fusion([Rankings({"q": ("a", "b")}), Rankings({"q": ("b", "c")})]).top("q", 3)
    ('b', 'a', 'c')
    """
    rankings = {}
    for query_id in dict.fromkeys(query_id for run in runs for query_id in run.rankings):
        scores: dict[str, float] = {}
        for run, weight in zip(runs, weights or [1.0] * len(runs), strict=True):
            for position, doc_id in enumerate(run.rankings.get(query_id, ()), start=1):
                scores[doc_id] = scores.get(doc_id, 0.0) + weight / (_SMOOTHING + position)
        rankings[query_id] = tuple(by_score(scores, depth))
    return Rankings(rankings)


@dataclass(slots=True)
class RankComparison:
    """A comparison of the old model's ranks with those of the translated store, by what true vectors put first.

    The ranks of the one that finds less only spoil the other's. `agreement` is the mean share, 0-1, of the first ten
    documents by the old model that are among the first 50 by the new one; `new_found` and `old_found` are how many of
    the best documents by true vectors either has had among its first ten.
    """

    queries: int = 0
    agreement: float = 0.0
    new_found: float = 0.0
    old_found: float = 0.0

    @classmethod
    def of(cls, new: Rankings, old: Rankings) -> Self:
        """Compare two rankings of the same queries as far as they agree: no true vector is known."""
        comparison = cls()
        for query_id, ranking in new.rankings.items():
            comparison.add(ranking, old.rankings.get(query_id, ()))
        return comparison

    def add(self, new: Sequence[str], old: Sequence[str]) -> None:
        """Count the rankings of a query by the new model and the old one; the latest 200 or so count most."""
        self.queries += 1
        first = old[:_FIRST]
        share = len(set(first).intersection(new[:_AMONG])) / max(len(first), 1)
        self.agreement += (share - self.agreement) / min(self.queries, _RECENT)

    def add_true(self, ranking: Sequence[str], new: Sequence[str], old: Sequence[str]) -> None:
        """Count who has found the best of some documents, ranked by true vectors that neither ranking knew of."""
        if len(ranking) < _FEWEST:
            return
        best = set(ranking[:_BEST])
        self.new_found += len(best.intersection(new[:_FIRST]))
        self.old_found += len(best.intersection(old[:_FIRST]))
        if self.new_found > _LATEST:
            self.new_found /= 2
            self.old_found /= 2

    def weight(self, count: int) -> float:
        """Return the weight, 0-2, of the old model's ranks, in a store of `count` documents; the new one has the rest.

        It rises from 0 where the old model finds half of what the translated store finds to 1 where it finds 0.8, and
        from 1 to 2 where it is the other way round. As long as little is known of that, it is assumed from the
        agreement beyond that of chance, from 0.3 to 0.6.
        """
        chance = min(_AMONG / max(count, 1), 1.0)
        beyond_chance = 1.0
        if chance < 1:
            beyond_chance = (self.agreement - chance) / (1 - chance)
        # A model as good as the new one finds much of what that does, so agreement stands for what true vectors would
        # show as long as few of these are known.
        # From the lower to the upper end of the ramp below, so that with nothing known the weight is from 0 to 1
        assumed = 0.5 + 0.3 * _ramp(beyond_chance, 0.3, 0.6)
        new = self.new_found + _FEWEST
        old = self.old_found + _FEWEST * assumed
        return _ramp(old / new, 0.5, 0.8) + 1 - _ramp(new / old, 0.5, 0.8)


def _ramp(number: float, start: float, end: float) -> float:
    """Return how far a number has come from `start` to `end`, 0-1."""
    return min(max((number - start) / (end - start), 0.0), 1.0)


def fuse_old(ranking: Sequence[str], old_ranks: Mapping[str, int], *, weight: float, depth: int = DEPTH) -> list[str]:
    """Return the first `depth` of a `ranking` by the new model once the ranks of the old one count with a weight, 0-2.

    Each document is given the reciprocals of both ranks, from 1, that of the new one with what is missing to 2.

    >>> fuse_old(["a", "b", "c"], {"c": 1, "a": 2}, weight=1)
    ['a', 'c', 'b']
    >>> fuse_old(["a", "b", "c"], {"c": 1, "a": 2}, weight=0)
    ['a', 'b', 'c']
    """
    if not weight:
        return list(ranking[:depth])
    scores = {doc_id: (2 - weight) / (_SMOOTHING + rank) for rank, doc_id in enumerate(ranking, start=1)}
    for doc_id in scores.keys() & old_ranks.keys():
        scores[doc_id] += weight / (_SMOOTHING + old_ranks[doc_id])
    return by_score(scores, depth)
