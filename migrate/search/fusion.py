"""Combines two rankings, as hybrid search does with vectors and words."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from migrate.search.runs import DEPTH, Rankings, by_score


def reciprocal_rank_fusion(runs: Sequence[Rankings], *, depth: int = DEPTH) -> Rankings:
    """Score each document by the sum over the runs of 1 / (60 + rank), rank from 1; ties by doc_id.

    60 is what the authors and most search engines take: Cormack, Clarke & Büttcher 2009, "Reciprocal Rank Fusion
    outperforms Condorcet and individual Rank Learning Methods".

    >>> reciprocal_rank_fusion([Rankings({"q": ("a", "b")}), Rankings({"q": ("b", "c")})]).top("q", 3)
    ('b', 'a', 'c')
    """
    rankings = {}
    for query_id in dict.fromkeys(query_id for run in runs for query_id in run.rankings):
        scores: dict[str, float] = {}
        for run in runs:
            for position, doc_id in enumerate(run.rankings.get(query_id, ()), start=1):
                scores[doc_id] = scores.get(doc_id, 0.0) + 1 / (60 + position)
        rankings[query_id] = tuple(by_score(scores)[:depth])
    return Rankings(rankings)


def fuse_untrue(ranking: Sequence[str], old_ranks: Mapping[str, int], true: Collection[str]) -> list[str]:
    """Order documents by the ranks of the new model and of the old one, which counts as far as the new is not sure.

    Each document is given the reciprocal of its rank in the `ranking` by the new model, and of its rank from 1 by the
    old one, if it has one; for those with a `true` vector the new rank counts twice. So what is true is ordered by the
    new model alone.

    >>> fuse_untrue(["a", "b", "c"], {"c": 1, "a": 2}, true=())
    ['a', 'c', 'b']
    >>> fuse_untrue(["a", "b", "c"], {"c": 1, "a": 2}, true={"a", "b", "c"})
    ['a', 'b', 'c']
    """
    scores: dict[str, float] = {}
    for rank, doc_id in enumerate(ranking, start=1):
        other = rank if doc_id in true else old_ranks.get(doc_id)
        scores[doc_id] = 1 / (60 + rank) + (0.0 if other is None else 1 / (60 + other))
    return by_score(scores)
