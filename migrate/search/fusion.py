"""Combines two rankings, as hybrid search does with vectors and words."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from migrate.search.runs import DEPTH, Rankings, by_score

_FIRST: Final = 10
"""Documents whose vectors say how sure the new model is."""


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
        rankings[query_id] = tuple(by_score(scores, depth))
    return Rankings(rankings)


def fuse_untrue(
    ranking: Sequence[str], old_ranks: Mapping[str, int], true: Collection[str], *, depth: int = DEPTH
) -> list[str]:
    """Return the first `depth` by the ranks of the new model and of the old, which counts while the new is not sure.

    Each document is given the reciprocals of its rank in the `ranking` by the new model, and of its rank from 1 by the
    old one, if it has one. The share of documents with `true` vectors among the first ten by the new model goes from
    the weight of the old ranks to that of the new: where all ten are true, the new model orders alone
    (`benchmarks/fading.py`).

    >>> fuse_untrue(["a", "b", "c"], {"c": 1, "a": 2}, true=())
    ['a', 'c', 'b']
    >>> fuse_untrue(["a", "b", "c"], {"c": 1, "a": 2}, true={"a", "b", "c"})
    ['a', 'b', 'c']
    """
    first = ranking[:_FIRST]
    sure = sum(doc_id in true for doc_id in first) / max(len(first), 1)
    scores = {doc_id: (1 + sure) / (60 + rank) for rank, doc_id in enumerate(ranking, start=1)}
    if sure < 1:
        for doc_id in scores.keys() & old_ranks.keys():
            scores[doc_id] += (1 - sure) / (60 + old_ranks[doc_id])
    return by_score(scores, depth)
