"""Retention of a plan that ranks again, by many queries of which only some are ranked by true vectors.

Such a plan ranks N documents by true vectors. A relevant document that is among these N ranks no lower than in a full
re-embed: whatever ranks before it among the N ranks before it among all. To know that it is there, nothing is embedded.
So let A be the score of the plan for a query, F that of the full re-embed, and L the part of F that is from relevant
documents which are not among the N. Then A >= F - L, and with g = E[A] and b = E[L]

    E[A] / E[F] >= g / (g + b),

which grows with g and falls with b. A lower bound of g is of queries drawn at random, whose N documents are embedded;
an upper one of b is of all queries. For b the relevant documents that are missing are embedded, and as many near ones
as it takes: the rank of a document among those that are embedded is no lower than among all, and L no less
(docs/statistics.md). Which those are may depend on everything seen so far. The error of a bound is shared between both
(Bonferroni).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace
from math import log2
from typing import Final

import numpy as np

from migrate.audit.arms import ARMS, Arm, Measures, Skipped
from migrate.audit.bootstrap import Bootstrap
from migrate.audit.bounds import (
    CONFIDENCE,
    FEWEST_QUERIES,
    RESAMPLES,
    UNGROUPED,
    Bounds,
    Grouping,
    Outcome,
    ratio_of_means,
)
from migrate.audit.experiment import Experiment, could_serve_both
from migrate.audit.keys import Names, Rows
from migrate.audit.measures import CUT, Scores, ideal_gain, ndcg
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
from migrate.audit.results import FULL, TRANSLATED, find_plan
from migrate.audit.retrieval import Runs, first_candidates, search_exactly
from migrate.audit.verdict import Finding, Verdict, doubt
from migrate.display import counted, percent
from migrate.errors import SpendingError

RANKED_SHARE: Final = 0.25
"""Share of the error of a bound, 0-1, that is for the queries that are ranked; the rest is for all."""

_DEPTHS: Final = (0, 5, 10, 20, 50)
"""How many of the plan's first documents are embedded for a query that may lose, step by step."""

_HARDLY_ANY: Final = 0.2
"""Relevant documents that are missing, to those that true vectors do not rank first, below which they were chosen.

Of docstrings, each sought by its first line, it is .3 and more. Where several documents are relevant to a query, most
of what is left out of the first ten is among the first hundred, whoever has judged it.
"""

_FEWEST_MISSING: Final = 5
"""Queries for which something has to be missing: judgements that never show a loss may not be able to (ICH E10)."""


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
class Inclusion:
    """The judgement of the plan, an arm by name, by all queries.

    `gains` are its scores A for ranked queries, (r,), and `losses` are L at most for all queries, (c,); the groupings
    are theirs. `outside` is the share of its relevant documents that each query lacks among the plan's first, (c,).
    For queries with one relevant document, `missed` says of all of them if it is lacking, (m,), and `unranked` of those
    that are ranked if true vectors do not rank it among the first ten, (u,).
    """

    name: str
    gains: Scores
    losses: Scores
    ranked: Grouping
    every: Grouping
    seed: int
    confidence: float
    outside: Scores
    missed: Scores
    unranked: Scores

    @property
    def retention(self) -> Bounds:
        """The share that the plan keeps, at least and as a cautious estimate; nothing of how much it keeps at most."""
        return bounds_of_lost(
            self.gains, self.losses, self.ranked, self.every, seed=self.seed, confidence=self.confidence
        )

    def narrow(self, measures: Measures) -> Measures:
        """Return the measures with the bounds of the plan, and no other arm that could serve in its place.

        What others keep is known by the ranked queries alone, which are too few to tell what speaks against them.
        """
        ranked = measures.family[self.name]
        by_all = self.retention
        bounds = Bounds(min(by_all.estimate, ranked.upper), min(by_all.lower, ranked.upper), ranked.upper)
        return replace(measures, family={self.name: bounds})

    def without_others(self, verdict: Verdict) -> Verdict:
        """Return the verdict on the translated store alone, which so few queries do not judge."""
        if verdict.worse_than_stay:
            return verdict
        remedy = f"{len(self.gains):,} ranked queries judge {self.name} alone: leave `--ranked-queries` out"
        return replace(verdict, outcome=Outcome.INCONCLUSIVE, remedy=remedy, queries_needed=None)

    @property
    def findings(self) -> list[Finding]:
        """A note on what this rests on, and a doubt where judgements seem to be made from what the store finds."""
        n_queries = counted(len(self.losses), "query", "queries")
        note = Finding(
            "note",
            f"{self.name} is judged by {n_queries}, of which {len(self.gains):,}, drawn at random, are ranked by true "
            f"vectors, as for all other figures; {percent(float(self.outside.mean()))} of the relevant documents are "
            f"missing among its first, at most {percent(float(self.losses.mean()))} of nDCG@10",
        )
        caveat = Finding(
            "caveat",
            f"{len(self.gains):,} ranked queries are too few to see that some judgements were made from what a store "
            "finds, such as clicks; leave `--ranked-queries` out where they may be",
        )
        return [note, caveat, *self._doubts()]

    def _doubts(self) -> Iterator[Finding]:
        """Yield doubts where the judgements seem to be made from what the store finds, so that they show no loss."""
        n_missing = int((self.outside > 0).sum())
        if n_missing < _FEWEST_MISSING:
            yield doubt(
                f"relevant documents are missing among the first of {self.name} for {n_missing:,} of "
                f"{len(self.outside):,} queries, which is too few to tell a plan that loses nothing from judgements "
                "that were made from what the store finds: give more queries, or leave `--ranked-queries` out"
            )
        elif self._is_selected:
            yield doubt(
                f"{percent(float(self.missed.mean()))} of the relevant documents are missing among the first of "
                f"{self.name}, though true vectors leave {percent(float(self.unranked.mean()))} out of the first ten: "
                "the judgements seem to be made from what the store finds, and cannot show what it does not"
            )

    @property
    def _is_selected(self) -> bool:
        """Return whether hardly any relevant document is missing, though the model does not rank all of them first."""
        if len(self.unranked) < FEWEST_QUERIES:
            return False
        missed = _mean(self.missed, UNGROUPED, seed=self.seed, confidence=CONFIDENCE)
        unranked = _mean(self.unranked, UNGROUPED, seed=self.seed, confidence=CONFIDENCE)
        return missed.upper < _HARDLY_ANY * unranked.lower


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
    """Return retention of an arm from A of ranked queries, (r,), and L of all, (c,); see the module."""
    error = 1 - confidence
    gain = _mean(gains, ranked, seed=seed, confidence=1 - RANKED_SHARE * error, resamples=resamples)
    lost_level = 1 - (1 - RANKED_SHARE) * error
    # A lower bound of what is not lost is an upper one of what is
    not_lost = _mean(1 - losses, every, seed=seed, confidence=lost_level, resamples=resamples)
    estimate = _share_retained(gain.estimate, 1 - not_lost.estimate)
    return Bounds(estimate, _share_retained(gain.lower, 1 - not_lost.lower), np.inf)


def _mean(scores: Scores, grouping: Grouping, *, seed: int, confidence: float, resamples: int = RESAMPLES) -> Bounds:
    """Return the mean of scores between 0 and 1, with bounds."""
    perfect = np.ones(len(scores))
    return ratio_of_means(scores, perfect, grouping, seed=seed, resamples=resamples, confidence=confidence)


def _share_retained(gain: float, loss: float) -> float:
    if gain + loss == 0:
        return 0.0
    return gain / (gain + loss)


def look_for_relevant(state: GrownPool, every: Experiment) -> tuple[GrownPool, Inclusion | None]:
    """Judge the plan by `every` query, and embed what that takes; None where the pool has come to be the whole store.

    Stops as soon as the plan is SAFE.
    """
    experiment = state.evidence.experiment
    if experiment.pool_depth is None:
        return state, None
    arm = _planned(experiment, state.evidence.runs)
    inputs = replace(state.inputs, experiment=every)
    candidates = _candidates(arm, every)
    missing = _missing(candidates, every)
    pool = state.pool
    lost = _most_lost(inputs, pool, missing)
    inclusion = _judged(state, inputs, arm, missing, lost)
    stopped = state.summary.stopped
    try:
        for depth in _DEPTHS:
            if inclusion.retention.lower >= every.settings.margin:
                break
            firsts = [first[:depth] for first in candidates]
            pool = _deepened(inputs, pool, missing, firsts, np.flatnonzero(lost > 0), depth)
            lost = _most_lost(inputs, pool, missing)
            inclusion = replace(inclusion, losses=every.query_set.merged(lost))
    except SpendingError as error:
        stopped = str(error)
    prove_answers(inputs, pool)
    summary = replace(summary_of(inputs, pool), stopped=stopped)
    return replace(state, pool=pool, summary=summary), inclusion


def _planned(experiment: Experiment, runs: Runs) -> Arm:
    """Return the arm that is the plan."""
    choices = [choice for arms_of in ARMS for choice in arms_of(experiment, runs)]
    arms = {choice.name: choice for choice in choices if isinstance(choice, Arm) and choice.is_alternative}
    skipped = {choice.name: choice.need for choice in choices if isinstance(choice, Skipped)}
    return arms[find_plan(experiment.settings.plan, arms, skipped)]


def _candidates(arm: Arm, every: Experiment) -> list[Rows]:
    """Return the rows that an arm ranks again for each query, in the order in which they are found."""
    ids = every.stores[TRANSLATED].keys.ids
    family, _, depth = arm.name.rpartition(" ")
    return [ids.rows_of(first[: int(depth)]) for first in first_candidates(every)[family]]


def _missing(candidates: Sequence[Rows], every: Experiment) -> list[set[str]]:
    """Return the relevant documents of each query that are not among the candidates, with all of their chunks."""
    documents = every.stores[TRANSLATED].keys.documents
    missing = []
    for query_id, rows in zip(every.query_set.query_ids, candidates, strict=True):
        candidate_rows = set(rows.tolist())
        relevant = documents.present(every.query_set.relevant_to(query_id))
        # All chunks of it: the one that is nearest by true vectors may be any
        missing.append(
            {doc for doc in relevant if not candidate_rows.issuperset(documents.all_rows_of([doc]).tolist())}
        )
    return missing


def _confidence(experiment: Experiment) -> float:
    """Return the confidence of the plan's bounds, whatever depth it was picked for, and of whatever kind it is.

    A deeper plan of a kind misses no more, so that its bound is no lower, but for the little that A may fall: as where
    the deepest is tested first and the next only where that is SAFE, no depth costs confidence (fixed sequence; Maurer,
    Hothorn & Lehmacher 1995). Two stages and both stores together are two kinds (Bonferroni).
    """
    n_kinds = 1 + could_serve_both(experiment)
    return Bootstrap().confidence_of_each(n_kinds)


def _judged(state: GrownPool, inputs: PoolInputs, arm: Arm, missing: Sequence[Set[str]], lost: Scores) -> Inclusion:
    """Return what all queries say, where each loses as much as `lost`, (q,), at most."""
    experiment = state.evidence.experiment
    ranked = experiment.query_set
    every = inputs.experiment.query_set
    full = state.evidence.runs.full
    outside = np.array(
        [
            _share(lacking, every.relevant_to(query_id))
            for query_id, lacking in zip(every.query_ids, missing, strict=True)
        ]
    )
    documents = experiment.stores[TRANSLATED].keys.documents
    one_each = {query.id: _only(documents, every.relevant_to(query.id)) for query in every.distinct}
    missed = [
        bool(lacking) for query_id, lacking in zip(every.query_ids, missing, strict=True) if one_each.get(query_id)
    ]
    unranked = [
        one_each[query.id] not in full.top(query.id, CUT) for query in ranked.distinct if one_each.get(query.id)
    ]
    return Inclusion(
        arm.name,
        gains=ranked.merged(ndcg(arm.rank().run, ranked.qrels or {}, ranked.query_ids, CUT)),
        losses=every.merged(lost),
        ranked=ranked.grouping,
        every=every.grouping,
        seed=experiment.settings.seed,
        confidence=_confidence(experiment),
        outside=every.merged(outside),
        missed=np.array(missed, dtype=np.float64),
        unranked=np.array(unranked, dtype=np.float64),
    )


def _only(documents: Names, relevant: Set[str]) -> str | None:
    """Return the one relevant document that is in the store; None where there are none or several."""
    present = documents.present(relevant)
    if len(present) != 1:
        return None
    return next(iter(present))


def _share(lacking: Set[str], documents: Set[str]) -> float:
    if not documents:
        return 0.0
    return len(lacking) / len(documents)


def _most_lost(inputs: PoolInputs, pool: Pool, missing: Sequence[Set[str]]) -> Scores:
    """Return L at most, (q,): by ranks in the pool, and the first rank for a document that it does not have whole."""
    reference, _ = reference_in(inputs, pool)
    every = inputs.experiment
    run = search_exactly(replace(every, stores={**every.stores, FULL: reference}), FULL).run
    documents = every.stores[TRANSLATED].keys.documents
    lost = np.zeros(len(missing))
    for number, query_id in enumerate(every.query_set.query_ids):
        grades = every.query_set.grades(query_id)
        rank_of = {document: rank for rank, document in enumerate(run.top(query_id, CUT), start=1)}
        for document in missing[number]:
            is_whole = (pool.vector_row[documents.all_rows_of([document])] >= 0).all()
            rank = 1
            if is_whole:
                rank = rank_of.get(document, 0)
            if rank:
                lost[number] += grades[document] / log2(rank + 1)
        if missing[number]:
            lost[number] = min(lost[number] / ideal_gain(grades, CUT), 1)
    return lost


def _deepened(
    inputs: PoolInputs, pool: Pool, missing: Sequence[Set[str]], firsts: Sequence[Rows], losing: Rows, depth: int
) -> Pool:
    """Embed what is missing for the queries that may lose by it, and their first documents, `depth` of them."""
    queries = losing.tolist()
    documents = set().union(*(missing[number] for number in queries))
    relevant = inputs.translated.keys.documents.all_rows_of(documents)
    rows = np.unique(np.concatenate([relevant, *(firsts[number] for number in queries)]))
    return embed_step(inputs, pool, rows[rows >= 0], depth, len(queries))
