"""The scores of a run by the measure that a verdict rests on: by judgements, or by what the reference's vectors say."""

from __future__ import annotations

import numpy as np

from migrate.audit.experiment import Experiment
from migrate.audit.measures import CUT, Scores, ndcg
from migrate.audit.results import FULL
from migrate.audit.retrieval import rank_true_rows
from migrate.audit.unjudged import TopScores, agreement, temperature_of
from migrate.search.runs import Rankings

_TOGETHER = 1_000
"""Queries whose further documents are read at once."""


def deciding_scores(experiment: Experiment, full: Rankings, run: Rankings) -> Scores:
    """Return a run's scores by the measure that a verdict rests on, one for each distinct text, (c,).

    `full` is the run of the full re-embed, or of the pool in its place.
    """
    query_set = experiment.query_set
    if query_set.qrels is not None:
        return query_set.merged(ndcg(run, query_set.qrels, query_set.query_ids, CUT))
    return agreement_scores(experiment, full, run)


def agreement_scores(experiment: Experiment, full: Rankings, run: Rankings) -> Scores:
    """Return a run's agreement@10 with the full re-embed, judged or not, one for each distinct text, (c,)."""
    scores = agreement(true_scores(experiment, full, run), full_scores(experiment, full))
    return experiment.query_set.merged(scores)


def agreement_temperature(experiment: Experiment, full: Rankings) -> float:
    """Return the temperature of agreement (`migrate.audit.unjudged`), by what the full re-embed scores."""
    scores = full_scores(experiment, full)
    return temperature_of(scores[np.isfinite(scores[:, 0])])


def full_scores(experiment: Experiment, full: Rankings) -> TopScores:
    """Return the true scores of the first 10 documents of the full re-embed's own run, as `true_scores` does."""
    sign = 1.0
    if experiment.stores[FULL].store.info.metric == "l2":
        sign = -1.0
    ids = experiment.query_set.query_ids
    scores = np.full((len(ids), CUT), -np.inf)
    for row, query_id in enumerate(ids):
        tops = full.scores[query_id][:CUT]
        scores[row, : len(tops)] = sign * np.array(tops)
    return scores


def true_scores(experiment: Experiment, full: Rankings, run: Rankings) -> TopScores:
    """Return what the reference's vectors score the first 10 documents of a run, in its order, (q, 10).

    Those that the reference ranks high are known from its search, the others are read. A greater score is nearer; a
    document that the reference lacks scores -inf.
    """
    metric = experiment.stores[FULL].store.info.metric
    documents = experiment.stores[FULL].keys.documents
    ids = experiment.query_set.query_ids
    worst = np.inf if metric == "l2" else -np.inf
    scores = np.full((len(ids), CUT), worst)
    for start in range(0, len(ids), _TOGETHER):
        block = range(start, min(start + _TOGETHER, len(ids)))
        ranked_scores = [dict(zip(full.rankings[ids[i]], full.scores[ids[i]], strict=True)) for i in block]
        tops = [run.top(ids[i], CUT) for i in block]
        unknown = [set(top) - scores_of.keys() for top, scores_of in zip(tops, ranked_scores, strict=True)]
        rows: dict[str, list[int]] = {doc_id: [] for doc_id in set().union(*unknown)}
        known_rows = documents.all_rows_of(rows)
        for row, key in zip(known_rows.tolist(), documents.take(known_rows), strict=True):
            rows[key].append(row)
        rows_of = [np.array([row for d in sorted(lacking) for row in rows[d]], dtype=np.int64) for lacking in unknown]
        further = rank_true_rows(experiment, block, rows_of)
        for i, top, scores_of, more in zip(block, tops, ranked_scores, further, strict=True):
            scores_of |= zip(more.rankings[ids[i]], more.scores[ids[i]], strict=True)
            scores[i, : len(top)] = [scores_of.get(doc_id, worst) for doc_id in top]
    if metric == "l2":
        return -scores
    return scores
