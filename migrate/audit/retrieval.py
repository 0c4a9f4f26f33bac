"""Retrieval for an audit: every arm's ranking to one depth, timed; what arms share is computed once."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from migrate.audit.inputs import PreparedAudit
from migrate.audit.measures import Scores, ndcg
from migrate.audit.query_set import Keys
from migrate.audit.results import FULL, TRANSLATED, Evaluation, Reranking
from migrate.audit.unjudged import TopScores, agreement, temperature_of
from migrate.audit.verdict import CONFIDENCE, Floor
from migrate.cost import usd_of
from migrate.search.bm25 import bm25_run
from migrate.search.fusion import reciprocal_rank_fusion
from migrate.search.rerank import rerank
from migrate.search.runs import DEPTH, Run, TopK, search, without_self
from migrate.stores.base import Store
from migrate.vectors import Batch, Progress, check_vectors, no_progress

_FIRST = 10
_QUERIES = 1_000
"""Queries whose further documents are read together."""
_BLOCK_BYTES = 1 << 28


@dataclass(frozen=True, slots=True)
class TimedRun:
    """A run, and the seconds it took to rank, without embedding."""

    run: Run
    seconds: float


@dataclass(frozen=True, eq=False)
class Retriever:
    """Rankings for the queries of an audit.

    Searches are exact, and each store is searched once, without the documents `left_out`. BM25 runs once too; the time
    of a run that others use counts for each of them.
    """

    inputs: PreparedAudit
    progress: Progress = no_progress
    left_out: Collection[str] = frozenset()
    _runs: dict[str, TimedRun] = field(default_factory=dict, init=False, repr=False)

    def search(self, name: str) -> TimedRun:
        """Exact search of the store of that name in `inputs.stores`, by the query vectors of its model."""
        if name not in self._runs:
            store, keys = self.inputs.stores[name], self.inputs.keys[name]
            self._runs[name] = self.search_batches(name, self._checked(store, keys))
        return self._runs[name]

    def search_batches(self, name: str, batches: Iterable[Batch]) -> TimedRun:
        """Exact search of other vectors, as they come, in the place of those of the store of that name."""
        inputs, depth = self.inputs, self.depth
        key, metric, queries = inputs.keys[name].__getitem__, inputs.stores[name].info.metric, inputs.vectors[name]
        ids = inputs.query_set.query_ids
        return self._timed(lambda: search(batches, ids, queries, metric=metric, key=key, depth=depth))

    def _checked(self, store: Store, keys: Keys) -> Iterator[Batch]:
        done, stage = 0, f"search {store.info.name}"
        for batch in store.scan():
            self.progress(stage, done, store.info.count)
            check_vectors(batch.ids, batch.vectors, source=store.info.location)
            yield _without(batch, keys, self.left_out) if self.left_out else batch
            done += len(batch)
        self.progress(stage, done, store.info.count)

    def over(self, inputs: PreparedAudit) -> Retriever:
        """A retriever of inputs that differ in the full re-embed alone: it keeps all other rankings."""
        other = replace(self, inputs=inputs)
        other._runs.update({name: run for name, run in self._runs.items() if name != FULL})
        vars(other).update({name: vars(self)[name] for name in ("bm25", "candidates") if name in vars(self)})
        return other

    @cached_property
    def bm25(self) -> TimedRun:
        """Words alone, of the translated store's texts, which are read where they are not in memory."""
        documents, queries = self.inputs.documents, self.inputs.query_set.queries
        if documents is None:
            documents = list(self.inputs.stores[TRANSLATED].documents())
        key = self.inputs.keys[TRANSLATED].__getitem__
        self.progress("rank with BM25", 0, None)
        return self._timed(lambda: bm25_run(documents, queries, key=key, depth=self.depth))

    def fuse(self, *runs: TimedRun) -> TimedRun:
        """Runs fused by their ranks; the time is that of all of them and of the fusion."""
        fused = self._timed(lambda: reciprocal_rank_fusion([timed.run for timed in runs], depth=self.depth))
        return TimedRun(fused.run, sum(timed.seconds for timed in runs) + fused.seconds)

    @cached_property
    def candidates(self) -> Sequence[Sequence[str]]:
        """The translated store's first ids for each query, best first, as many as the deepest two-stage arm reranks."""
        inputs, depth = self.inputs, max(self.inputs.asked_depths, default=0)
        if not depth:
            return [()] * len(inputs.query_set.queries)
        store, vectors, ids = inputs.stores[TRANSLATED], inputs.vectors[TRANSLATED], inputs.query_set.query_ids
        batches = self._checked(store, inputs.keys[TRANSLATED])
        run = search(batches, ids, vectors, metric=store.info.metric, depth=depth)
        return [run.top(query_id, depth) for query_id in ids]

    @cached_property
    def _candidate_rows(self) -> list[NDArray[np.int64]]:
        """The rows of the candidates in the reference."""
        ids = (doc_id for batch in self.inputs.stores[FULL].scan() for doc_id in batch.ids)
        row_of = {doc_id: row for row, doc_id in enumerate(ids)}
        depth = max(self.inputs.rerank_depths)
        return [np.array([row_of[doc_id] for doc_id in own[:depth]], dtype=np.int64) for own in self.candidates]

    def rerank(self, depth: int) -> TimedRun:
        """Rank the translated store's first `depth` documents of each query by their true vectors."""
        return self._timed(lambda: self._reranked(depth))

    def _reranked(self, depth: int) -> Run:
        count = len(self._candidate_rows)
        step = max(_BLOCK_BYTES // (4 * self.inputs.stores[FULL].info.dim * depth), 1)
        rankings: dict[str, tuple[str, ...]] = {}
        for start in range(0, count, step):
            self.progress(f"rank {depth} again", start, count)
            rankings |= self._reranked_block(range(start, min(start + step, count)), depth)
        return Run(rankings)

    def _reranked_block(self, numbers: range, depth: int) -> dict[str, tuple[str, ...]]:
        """Return the rankings of some queries; what several of them retrieve is read once."""
        inputs, reference = self.inputs, self.inputs.stores[FULL]
        wanted = [self._candidate_rows[number][:depth] for number in numbers]
        rows = np.unique(np.concatenate(wanted))
        batch = reference.get(rows)
        check_vectors(batch.ids, batch.vectors, source=reference.info.location)
        rankings: dict[str, tuple[str, ...]] = {}
        for number, own in zip(numbers, wanted, strict=True):
            places = np.searchsorted(rows, own)
            best = rerank(
                inputs.vectors[FULL][number],
                [inputs.keys[FULL][batch.ids[place]] for place in places],
                np.zeros(len(own)),
                np.arange(len(own)),
                batch.vectors[places],
                metric=reference.info.metric,
                kept=self.depth,
            )
            rankings[inputs.query_set.query_ids[number]] = tuple(key for key, _ in best)
        return rankings

    def reranking(self, depth: int) -> Reranking:
        """Return what a two-stage arm embeds."""
        inputs, tally, count = self.inputs, self.inputs.tally, len(self._candidate_rows)
        embedded, times = np.unique(np.concatenate([rows[:depth] for rows in self._candidate_rows]), return_counts=True)
        tokens = tally.cost(inputs.stores[FULL].documents(embedded)).tokens
        first, each = tokens / len(embedded) * depth, tokens / count
        further = each * float((times == 1).mean())
        return Reranking(
            depth,
            first,
            usd_of(first, tally.price),
            len(embedded) / count,
            each,
            usd_of(each, tally.price),
            len(embedded) / inputs.stores[TRANSLATED].info.count,
            further,
            usd_of(further, tally.price),
        )

    def deciding_scores(self, run: Run) -> Scores:
        """A run's scores by the measure that a verdict rests on, one for each distinct text, (c,)."""
        query_set = self.inputs.query_set
        if query_set.qrels is not None:
            return query_set.merged(ndcg(run, query_set.qrels, query_set.query_ids, _FIRST))
        return self.agreement(run)

    def agreement(self, run: Run) -> Scores:
        """A run's agreement@10 with the full re-embed, judged or not, one for each distinct text, (c,)."""
        return self.inputs.query_set.merged(agreement(self.true_scores(run), self._full_scores))

    @property
    def temperature(self) -> float:
        """The temperature of agreement (`migrate.audit.unjudged`), by what the full re-embed scores."""
        full = self._full_scores
        return temperature_of(full[np.isfinite(full[:, 0])])

    @cached_property
    def _full_scores(self) -> TopScores:
        return self.true_scores(self.search(FULL).run)

    def true_scores(self, run: Run) -> TopScores:
        """Return what the reference's vectors score the first 10 documents of a run, in its order, (q, 10).

        Those that the reference ranks high are known from its search, the others are read. A greater score is nearer; a
        document that the reference lacks scores -inf.
        """
        full, metric = self.search(FULL).run, self.inputs.stores[FULL].info.metric
        ids = self.inputs.query_set.query_ids
        worst = np.inf if metric == "l2" else -np.inf
        scores = np.full((len(ids), _FIRST), worst)
        for start in range(0, len(ids), _QUERIES):
            block = range(start, min(start + _QUERIES, len(ids)))
            known = [dict(zip(full.rankings[ids[i]], full.scores[ids[i]], strict=True)) for i in block]
            tops = [run.top(ids[i], _FIRST) for i in block]
            others = [[doc_id for doc_id in top if doc_id not in own] for top, own in zip(tops, known, strict=True)]
            for i, top, own, more in zip(block, tops, known, self._scores_of(block, others), strict=True):
                scores[i, : len(top)] = [more.get(doc_id, own.get(doc_id, worst)) for doc_id in top]
        return -scores if metric == "l2" else scores

    def _scores_of(self, block: range, wanted: Sequence[Sequence[str]]) -> Iterator[Mapping[str, float]]:
        """The reference's scores of some documents for each query of a block."""
        inputs, reference = self.inputs, self.inputs.stores[FULL]
        every = set().union(*wanted)
        if not every:
            yield from ({} for _ in block)
            return
        rows = [row for row, key in enumerate(inputs.keys[FULL].values()) if key in every]
        batch = reference.get(np.array(rows, dtype=np.int64))
        keys = [inputs.keys[FULL][doc_id] for doc_id in batch.ids]
        places: dict[str, list[int]] = {}
        for place, key in enumerate(keys):
            places.setdefault(key, []).append(place)
        for i, own in zip(block, wanted, strict=True):
            query_id, vector = inputs.query_set.query_ids[i], inputs.vectors[FULL][i : i + 1]
            top = TopK([query_id], vector, metric=reference.info.metric, depth=max(len(own), 1))
            near = [place for doc_id in own for place in places.get(doc_id, ())]
            top.add([keys[place] for place in near], batch.vectors[near])
            run = top.run()
            yield dict(zip(run.rankings[query_id], run.scores[query_id], strict=True))

    def evaluation(
        self, floor: Floor | None = None, *, limited: bool = False, confidence: float = CONFIDENCE
    ) -> Evaluation:
        """Return the rules by which these rankings are judged."""
        inputs, options = self.inputs, self.inputs.options
        return Evaluation(
            inputs.query_set,
            options.margin,
            options.seed,
            options.resamples,
            inputs.n_documents,
            confidence,
            floor,
            limited,
        )

    def rank_by_id(self) -> TimedRun:
        """The same documents for every query: the first by doc_id."""
        keys = set(self.inputs.keys[TRANSLATED].values())
        ids = self.inputs.query_set.query_ids
        return self._timed(lambda: Run(dict.fromkeys(ids, tuple(heapq.nsmallest(self.depth, keys)))))

    def rank_at_random(self) -> TimedRun:
        """Documents drawn at random for each query."""
        return self._timed(lambda: self._drawn(sorted(set(self.inputs.keys[TRANSLATED].values()))))

    def _drawn(self, names: Sequence[str]) -> Run:
        rng = np.random.default_rng(self.inputs.options.seed)
        size, query_ids = min(self.depth, len(names)), self.inputs.query_set.query_ids
        draws = (rng.choice(len(names), size, replace=False) for _ in query_ids)
        return Run({q: tuple(names[i] for i in draw) for q, draw in zip(query_ids, draws, strict=True)})

    @property
    def depth(self) -> int:
        """Documents to retrieve, so that enough are left when a query's own is dropped."""
        return DEPTH + self.inputs.query_set.exclude_self

    def _timed(self, answer: Callable[[], Run]) -> TimedRun:
        started = time.perf_counter()
        run = answer()
        seconds = time.perf_counter() - started
        return TimedRun(without_self(run) if self.inputs.query_set.exclude_self else run, seconds)


def _without(batch: Batch, keys: Keys, left_out: Collection[str]) -> Batch:
    kept = [row for row, doc_id in enumerate(batch.ids) if keys[doc_id] not in left_out]
    return Batch([batch.ids[row] for row in kept], batch.vectors[kept])
