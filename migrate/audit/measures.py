"""Retrieval measures, one value a query. A query that a run does not answer scores 0."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from math import log2
from typing import Final

import numpy as np
from numpy.typing import NDArray

from migrate.search.runs import DEPTH, Rankings

CUT: Final = 10
"""The k of nDCG@k: the first ten documents of a ranking are the answer that is judged."""

Scores = NDArray[np.float64]
"""One value a query, shape (q,), in the order of the query ids."""

Qrels = Mapping[str, Mapping[str, int]]
"""query_id -> doc_id -> grade; a grade above 0 is relevant, the grade is the gain."""


def ndcg(run: Rankings, qrels: Qrels, query_ids: Sequence[str], k: int) -> Scores:
    """Normalised discounted cumulative gain: gain / log2(rank + 1), over that of the ideal ranking.

    Linear gain, as trec_eval's ndcg_cut (Järvelin & Kekäläinen 2002). 0 for a query without relevant documents.
    """
    values = []
    for query_id in query_ids:
        grades = qrels.get(query_id, {})
        gains = [max(grades.get(doc_id, 0), 0) for doc_id in run.top(query_id, k)]
        values.append(_share(_dcg(gains), ideal_gain(grades, k)))
    return np.array(values)


def ideal_gain(grades: Mapping[str, int], k: int) -> float:
    """Return the discounted cumulative gain of the best ranking that there can be, of documents by their grades."""
    # Negative grades, as TREC has for spam, gain nothing
    return _dcg(sorted((max(grade, 0) for grade in grades.values()), reverse=True)[:k])


def ndcg_at_random(qrels: Qrels, query_ids: Sequence[str], k: int) -> Scores:
    """Return the expected nDCG@k of judged documents in random order; 0 for a query without relevant documents."""
    return np.array([_ndcg_at_random(list(qrels.get(query_id, {}).values()), k) for query_id in query_ids])


def _ndcg_at_random(grades: Sequence[int], k: int) -> float:
    gains = sorted((max(grade, 0) for grade in grades), reverse=True)
    ideal = _dcg(gains[:k])
    if ideal <= 0:
        return 0.0
    mean_gain = sum(gains) / len(gains)
    return _dcg([mean_gain] * min(k, len(gains))) / ideal


def _share(count: float, whole: float) -> float:
    """Return a share, 0-1; 0 of nothing."""
    if not whole:
        return 0.0
    return count / whole


def _dcg(gains: Sequence[float]) -> float:
    return sum(gain / log2(position + 2) for position, gain in enumerate(gains))


def recall(run: Rankings, qrels: Qrels, query_ids: Sequence[str], k: int) -> Scores:
    """Return the share of a query's relevant documents among the first k; 0 for a query without relevant documents."""
    pairs = [(_relevant(qrels, query_id), run.top(query_id, k)) for query_id in query_ids]
    return np.array([_share(len(relevant.intersection(top)), len(relevant)) for relevant, top in pairs])


def reciprocal_rank(run: Rankings, qrels: Qrels, query_ids: Sequence[str], k: int) -> Scores:
    """Return 1 / rank of the first relevant document among the first k, else 0; its mean is MRR@k."""
    pairs = [(_relevant(qrels, query_id), enumerate(run.top(query_id, k), start=1)) for query_id in query_ids]
    return np.array([next((1 / rank for rank, doc in ranks if doc in relevant), 0.0) for relevant, ranks in pairs])


def overlap(run: Rankings, reference: Rankings, query_ids: Sequence[str], k: int) -> Scores:
    """Return the share of the reference's first k that the run's first k has too; 0 where that answers nothing."""
    pairs = [(set(reference.top(query_id, k)), run.top(query_id, k)) for query_id in query_ids]
    return np.array([_share(len(expected.intersection(top)), len(expected)) for expected, top in pairs])


def judged(run: Rankings, qrels: Qrels, query_ids: Sequence[str], k: int) -> Scores:
    """Return the share of the first k documents that are judged, whatever their grade; 0 where there is no document.

    A document that nobody judged counts as not relevant in every other measure, which may wrong a run that finds what
    earlier ones did not: where this is low, or unlike between two runs, their other measures say little.
    """
    pairs = [(qrels.get(query_id, {}), run.top(query_id, k)) for query_id in query_ids]
    return np.array([_share(len(grades.keys() & set(top)), len(top)) for grades, top in pairs])


def rank_biased_overlap(
    run: Rankings, reference: Rankings, query_ids: Sequence[str], *, p: float = 0.9, depth: int = DEPTH
) -> Scores:
    """Return how alike two rankings are, the first places counting most: 1 for equal ones, 0 for nothing in common.

    The overlap of the first d documents, a share of d, is averaged over d with weights falling as p**d, and taken to go
    on as it is where the rankings end (extrapolated; Webber, Moffat & Zobel 2010, eq. 32, for rankings of unlike
    length). With p = 0.9 the first ten places bear 86 % of the weight. 0 where either ranking is empty.
    """
    return np.array([_rbo(run.top(query_id, depth), reference.top(query_id, depth), p) for query_id in query_ids])


def _rbo(first: Sequence[str], second: Sequence[str], p: float) -> float:
    short, long = sorted((first, second), key=len)
    if not short:
        return 0.0
    common = _common(short, long)
    # The names of the paper: s is the length of the shorter ranking, X_d what both share among their first d
    s = len(short)
    x_s = common[s - 1]
    x_l = common[-1]
    total = sum(x_d / d * p**d for d, x_d in enumerate(common, start=1))
    total += sum(x_s * (d - s) / (s * d) * p**d for d in range(s + 1, len(long) + 1))
    return (1 - p) / p * total + ((x_l - x_s) / len(long) + x_s / s) * p ** len(long)


def _common(short: Sequence[str], long: Sequence[str]) -> list[int]:
    """Return how many documents both have among their first d, for each d up to the length of the longer one."""
    rank_of = {doc_id: rank for rank, doc_id in enumerate(short)}
    joining = [0] * len(long)
    for rank, doc_id in enumerate(long):
        if (other_rank := rank_of.get(doc_id)) is not None:
            joining[max(rank, other_rank)] += 1
    return list(accumulate(joining))


def _relevant(qrels: Qrels, query_id: str) -> set[str]:
    return {doc_id for doc_id, grade in qrels.get(query_id, {}).items() if grade > 0}
