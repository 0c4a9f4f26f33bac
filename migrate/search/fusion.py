"""Combines two rankings, as hybrid search does with vectors and words."""

from __future__ import annotations

from collections.abc import Sequence

from migrate.search.runs import DEPTH, Rankings, rank


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
        rankings[query_id] = tuple(doc_id for doc_id, _ in rank(scores.items(), depth))
    return Rankings(rankings)
