"""Retention of arms that rank again, by many queries of which only some are ranked by true vectors.

Such an arm ranks N documents by true vectors. Where all documents that are relevant to a query are among these N, the
arm scores no less than a full re-embed does: whatever ranks before a relevant document among the N ranks before it
among all. To know that, nothing is embedded. So for a query let h be 1 where they are among the N and 0 otherwise, A
the score of the arm and F that of the full re-embed. Then A h >= F h, and with g = E[A h] and b = E[F (1 - h)]

    E[A] / E[F] >= g / (g + b),

which grows with g and falls with b. A lower bound of g is of queries drawn at random, whose N documents are embedded;
an upper one of b is of all queries. For b documents are embedded for queries with h = 0 alone: those that are relevant,
and as many near ones as it takes, since F in a pool is no lower than among all (docs/statistics.md). Which those are
may depend on everything seen so far. The error of a bound is shared between both (Bonferroni).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from migrate.audit.arms import ARMS, Arm, Measures, confidence_of_each
from migrate.audit.bounds import RESAMPLES, Bounds, Grouping, ratio_of_means
from migrate.audit.experiment import Experiment
from migrate.audit.measures import CUT, Scores, ndcg
from migrate.audit.outside import rank_rows
from migrate.audit.pool import (
    GrownPool,
    Pool,
    PoolInputs,
    embed_step,
    prove_answers,
    reference_in,
    summary_of,
)
from migrate.audit.query_set import only
from migrate.audit.results import FULL, TOGETHER, TRANSLATED, TWO_STAGE, plan_word, rerank_depths
from migrate.audit.retrieval import first_candidates, search_exactly
from migrate.audit.verdict import Finding
from migrate.display import counted, percent
from migrate.errors import SpendingError

RANKED_SHARE: Final = 0.25
"""Share of the error of a bound, 0-1, that is for the queries that are ranked; the rest is for all."""

_DEPTHS: Final = (0, 10, 20, 50)
"""How many of the translated store's first documents are embedded for a query that an arm loses, step by step."""


def draw_queries(experiment: Experiment) -> Experiment:
    """Return the experiment with the queries that are ranked by true vectors; itself where all are."""
    queries = experiment.query_set.queries
    distinct = len(experiment.query_set.distinct)
    count = experiment.settings.ranked_queries
    if count is None or count >= distinct:
        return experiment
    # By the seed alone, before anything is known of any query; and by texts, as each counts once however often it is
    # repeated
    drawn_texts = np.random.default_rng(experiment.settings.seed).permutation(distinct)[:count]
    rows = np.flatnonzero(np.isin(experiment.query_set.texts, drawn_texts))
    note = f"{count:,} of {distinct:,} queries, drawn at random, are ranked by true vectors"
    stores = {name: replace(searched, queries=searched.queries[rows]) for name, searched in experiment.stores.items()}
    drawn = only(experiment.query_set, [queries[row] for row in rows.tolist()], note)
    return replace(experiment, query_set=drawn, stores=stores)


@dataclass(frozen=True, eq=False)
class LostQueries:
    """The `gains` A h of an arm for ranked queries, (r,), and its `losses` F (1 - h) for all, (c,)."""

    gains: Scores
    losses: Scores


@dataclass(frozen=True, eq=False)
class Inclusion:
    """The arms that rank again, by name, judged by all queries; groups are those of ranked ones and of all."""

    arms: Mapping[str, LostQueries]
    ranked: Grouping
    every: Grouping
    seed: int

    def retention(self, name: str, confidence: float) -> Bounds:
        """Return what an arm keeps, at least and as a cautious estimate; of how much it keeps at most nothing."""
        arm = self.arms[name]
        return bounds_of_lost(arm.gains, arm.losses, self.ranked, self.every, seed=self.seed, confidence=confidence)

    def narrow(self, experiment: Experiment, measures: Measures) -> Measures:
        """Return the measures with the lower bounds that all queries give of the arms that rank again."""
        confidence = confidence_of_each(experiment, measures.family)
        narrowed = {name: self._narrowed(name, measures.family[name], confidence) for name in self.arms}
        return replace(measures, family={**measures.family, **narrowed})

    def _narrowed(self, name: str, bounds: Bounds, confidence: float) -> Bounds:
        found = self.retention(name, confidence)
        return Bounds(min(found.estimate, bounds.upper), min(found.lower, bounds.upper), bounds.upper)

    @property
    def finding(self) -> Finding:
        """A note on what this rests on."""
        first = next(iter(self.arms.values()))
        n_all = len(first.losses)
        n_ranked = len(first.gains)
        lost = ", ".join(f"{name} {percent(float(arm.losses.mean()))}" for name, arm in self.arms.items())
        return Finding(
            "note",
            f"lower bounds of arms that rank again are by {counted(n_all, 'query', 'queries')}, of which {n_ranked:,}, "
            f"drawn at random, are ranked by true vectors, as are all other figures; of nDCG@10 at most this is lost "
            f"where the first documents lack a relevant one: {lost}",
        )


def bounds_of_lost(
    gains: Scores,
    losses: Scores,
    ranked: Grouping,
    every: Grouping,
    *,
    seed: int,
    confidence: float,
    resamples: int = RESAMPLES,
) -> Bounds:
    """Return retention of an arm from A h of ranked queries, (r,), and F (1 - h) of all, (c,); see the module."""

    def mean(scores: Scores, grouping: Grouping, error: float) -> Bounds:
        perfect = np.ones(len(scores))
        return ratio_of_means(scores, perfect, grouping, seed=seed, resamples=resamples, confidence=1 - error)

    error = 1 - confidence
    gain = mean(gains, ranked, RANKED_SHARE * error)
    # A lower bound of what is not lost is an upper one of what is
    not_lost = mean(1 - losses, every, (1 - RANKED_SHARE) * error)
    estimate = _kept(gain.estimate, 1 - not_lost.estimate)
    return Bounds(estimate, _kept(gain.lower, 1 - not_lost.lower), np.inf)


def _kept(gain: float, loss: float) -> float:
    if gain + loss == 0:
        return 0.0
    return gain / (gain + loss)


def look_for_relevant(state: GrownPool, every: Experiment) -> tuple[GrownPool, Inclusion | None]:
    """Judge the arms that rank again by `every` query, and embed what that takes; None where there is no such arm.

    Stops as soon as the planned arm, or the deepest, is SAFE.
    """
    experiment = state.evidence.experiment
    runs = state.evidence.runs
    arms = [arm for arms_of in ARMS for arm in arms_of(experiment, runs) if isinstance(arm, Arm) and arm.is_alternative]
    # Which documents an arm of somebody's own ranks for the other queries is not known
    reranking = [arm for arm in arms if arm.reranked is not None and rerank_depths(arm.name)]
    if not reranking or experiment.pool_depth is None:
        return state, None
    confidence = confidence_of_each(experiment, [arm.name for arm in arms])
    inputs = replace(state.inputs, experiment=every)
    found = _found_by(reranking, every)
    gains = {arm.name: _gains(arm, experiment, found[arm.name], every) for arm in reranking}
    planned = next((arm.name for arm in reranking if plan_word(arm.name) == plan_word(every.settings.plan)), None)
    # Where no arm is planned, the deepest: if that is not SAFE, no other one is
    decisive = planned or max(reranking, key=_depth).name
    pool = state.pool
    inclusion = _judged(state, inputs, pool, gains, found)
    stopped = state.summary.stopped
    try:
        for depth in _DEPTHS:
            if inclusion.retention(decisive, confidence).lower >= every.settings.margin:
                break
            pool = _deepened(inputs, pool, ~found[decisive], depth)
            inclusion = _judged(state, inputs, pool, gains, found)
    except SpendingError as error:
        stopped = str(error)
    prove_answers(inputs, pool)
    summary = replace(summary_of(inputs, pool), stopped=stopped)
    return replace(state, pool=pool, summary=summary), inclusion


def _depth(arm: Arm) -> int:
    """Return how many documents an arm ranks again for a query."""
    if arm.reranked is None:
        return 0
    return arm.reranked.depth


def _found_by(arms: list[Arm], every: Experiment) -> dict[str, NDArray[np.bool_]]:
    """Return for each arm of which queries, (q,), all relevant documents are among the first that it ranks again."""
    keys = every.stores[TRANSLATED].keys
    query_set = every.query_set
    # All chunks of them: the one that is nearest by true vectors may be any
    relevant = [set(keys.documents.all_rows_of(query_set.relevant_to(query)).tolist()) for query in query_set.query_ids]
    candidates = first_candidates(every)
    found = {}
    for arm in arms:
        family = TWO_STAGE
        if arm.name.startswith(TOGETHER):
            family = TOGETHER
        firsts = [keys.ids.rows_of(first[: _depth(arm)]).tolist() for first in candidates[family]]
        found[arm.name] = np.array([rows.issubset(first) for rows, first in zip(relevant, firsts, strict=True)])
    return found


def _gains(arm: Arm, experiment: Experiment, found: NDArray[np.bool_], every: Experiment) -> Scores:
    """Return A h of the ranked queries, one for each distinct text."""
    is_found = dict(zip(every.query_set.query_ids, found.tolist(), strict=True))
    query_set = experiment.query_set
    scores = ndcg(arm.rank().run, query_set.qrels or {}, query_set.query_ids, CUT)
    return query_set.merged(scores * np.array([is_found[query] for query in query_set.query_ids]))


def _judged(
    state: GrownPool,
    inputs: PoolInputs,
    pool: Pool,
    gains: Mapping[str, Scores],
    found: Mapping[str, NDArray[np.bool_]],
) -> Inclusion:
    """Return what all queries say by the pool as it is now."""
    every = inputs.experiment.query_set
    most = _most_of_full(inputs, pool)
    arms = {name: LostQueries(gains[name], every.merged(most * ~found[name])) for name in gains}
    ranked = state.evidence.experiment.query_set.grouping
    return Inclusion(arms, ranked, every.grouping, inputs.experiment.settings.seed)


def _most_of_full(inputs: PoolInputs, pool: Pool) -> Scores:
    """Return nDCG@10 of the full re-embed at most, (q,): that in the pool, and 1 where it lacks a relevant document."""
    reference, _ = reference_in(inputs, pool)
    every = inputs.experiment
    query_set = every.query_set
    run = search_exactly(replace(every, stores={**every.stores, FULL: reference}), FULL).run
    scores = ndcg(run, query_set.qrels or {}, query_set.query_ids, CUT)
    documents = every.stores[TRANSLATED].keys.documents
    for number, query_id in enumerate(query_set.query_ids):
        rows = documents.all_rows_of(query_set.relevant_to(query_id))
        if (pool.vector_row[rows] < 0).any():
            scores[number] = 1.0
    return scores


def _deepened(inputs: PoolInputs, pool: Pool, is_lost: NDArray[np.bool_], depth: int) -> Pool:
    """Embed what is relevant to the queries that are lost, and their first `depth` documents where F is above 0."""
    every = inputs.experiment
    lost = np.flatnonzero(is_lost & (_most_of_full(inputs, pool) > 0))
    documents: set[str] = set()
    for number in lost.tolist():
        documents.update(every.query_set.relevant_to(every.query_set.query_ids[number]))
    searched = inputs.translated
    near = rank_rows(searched.store, searched.queries[lost], depth, progress=every.progress).rows[:, :depth]
    rows = np.union1d(inputs.translated.keys.documents.all_rows_of(documents), near)
    return embed_step(inputs, pool, rows, depth, len(lost))
