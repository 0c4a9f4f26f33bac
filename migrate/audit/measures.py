"""Retrieval measures, one value a query. A query that a run does not answer scores 0."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log2

import numpy as np
from numpy.typing import NDArray

from migrate.search.runs import Run

Scores = NDArray[np.float64]
"""One value a query, shape (q,), in the order of the query ids that were asked about."""

Qrels = Mapping[str, Mapping[str, int]]
"""query_id -> doc_id -> grade; a grade above 0 is relevant, the grade is the gain."""


def ndcg(run: Run, qrels: Qrels, query_ids: Sequence[str], k: int) -> Scores:
    """Normalised discounted cumulative gain: gain / log2(rank + 1), over that of the ideal ranking.

    Linear gain, as trec_eval's ndcg_cut (Järvelin & Kekäläinen 2002). 0 for a query without relevant documents.
    """
    return np.array([_ndcg(run.top(query_id, k), qrels.get(query_id, {}), k) for query_id in query_ids])


def _ndcg(ranking: Sequence[str], grades: Mapping[str, int], k: int) -> float:
    ideal = _dcg(sorted((max(grade, 0) for grade in grades.values()), reverse=True)[:k])
    return _dcg([max(grades.get(doc_id, 0), 0) for doc_id in ranking]) / ideal if ideal > 0 else 0.0


def _dcg(gains: Sequence[int]) -> float:
    return sum(gain / log2(position + 2) for position, gain in enumerate(gains))


def recall(run: Run, qrels: Qrels, query_ids: Sequence[str], k: int) -> Scores:
    """Share of a query's relevant documents among the first k; 0 for a query without relevant documents."""

    def one(query_id: str) -> float:
        relevant = _relevant(qrels, query_id)
        return len(relevant.intersection(run.top(query_id, k))) / len(relevant) if relevant else 0.0

    return np.array([one(query_id) for query_id in query_ids])


def reciprocal_rank(run: Run, qrels: Qrels, query_ids: Sequence[str], k: int) -> Scores:
    """1 / rank of the first relevant document among the first k, else 0; its mean is MRR@k."""

    def one(query_id: str) -> float:
        relevant = _relevant(qrels, query_id)
        ranks = (rank for rank, doc_id in enumerate(run.top(query_id, k), start=1) if doc_id in relevant)
        return 1 / next(ranks, np.inf)

    return np.array([one(query_id) for query_id in query_ids])


def overlap(run: Run, reference: Run, query_ids: Sequence[str], k: int) -> Scores:
    """Share of the reference's first k that the run's first k also has; 0 where the reference answers nothing."""

    def one(query_id: str) -> float:
        wanted = set(reference.top(query_id, k))
        return len(wanted.intersection(run.top(query_id, k))) / len(wanted) if wanted else 0.0

    return np.array([one(query_id) for query_id in query_ids])


def _relevant(qrels: Qrels, query_id: str) -> set[str]:
    return {doc_id for doc_id, grade in qrels.get(query_id, {}).items() if grade > 0}
