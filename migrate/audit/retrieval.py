"""Retrieval for an audit: every arm's ranking to one depth, timed; what arms share is computed once."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from migrate.audit.measures import Scores, ndcg
from migrate.audit.query_set import Keys, QuerySet
from migrate.audit.reference import ReferenceProof
from migrate.audit.results import DEPTHS, FULL, TRANSLATED, ArmCost, Evaluation, Reranking
from migrate.audit.unjudged import TopScores, agreement, temperature_of
from migrate.audit.verdict import CONFIDENCE, Finding, Floor
from migrate.cost import Tally, usd_of
from migrate.embedders.prefix import first_of
from migrate.embedders.tokens import TokenCounter
from migrate.search.bm25 import bm25_run
from migrate.search.fusion import reciprocal_rank_fusion
from migrate.search.rerank import rerank
from migrate.search.runs import DEPTH, Run, TopK, search, without_self
from migrate.stores.all_true import TRUE
from migrate.stores.base import Store
from migrate.vectors import Batch, Document, Vectors, check_vectors

if TYPE_CHECKING:
    from migrate.audit.step import Audit

_FIRST = 10
_READ = 2_000
"""Texts to count the tokens of, for a free model."""
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
    """The inputs of an audit that have been checked, with the queries embedded, and the rankings for these.

    `stores`, `keys` (the document that each id is judged as) and `vectors` (of the queries, (q, dim)) are by the name
    of the arm that searches the store. `documents` are those of the translated store, None without BM25. `proof` is how
    the reference was shown to be one, whose doubts are among the `findings`.

    Searches are exact, and each store is searched once, without the documents `left_out`. BM25 runs once too; the time
    of a run that others use counts for each of them.

    Where a pool stands for the full re-embed, that one's store is not there until the pool has grown; it is `in_pool`
    then, unless the pool came to be the whole store, and has the first `pool_depth` documents of the translated store
    for every query.
    """

    audit: Audit
    query_set: QuerySet
    tally: Tally
    stores: Mapping[str, Store]
    keys: Mapping[str, Keys]
    vectors: Mapping[str, Vectors]
    documents: Sequence[Document] | None = None
    findings: tuple[Finding, ...] = ()
    proof: ReferenceProof | None = None
    in_pool: bool = False
    pool_depth: int | None = None
    left_out: Collection[str] = frozenset()
    _runs: dict[str, TimedRun] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def n_documents(self) -> int:
        """Documents that are judged; one that was cut into chunks counts once."""
        return len(set(self.keys[TRANSLATED].values()).difference(self.left_out))

    @property
    def asked_depths(self) -> list[int]:
        """The depths of two-stage arms, without those that would embed the whole store."""
        depths = DEPTHS if self.audit.stages is None else self.audit.stages
        return [depth for depth in sorted(set(depths)) if depth < self.stores[TRANSLATED].info.count]

    @property
    def rerank_depths(self) -> list[int]:
        """The `asked_depths` that do not go beyond the pool."""
        return [depth for depth in self.asked_depths if self.pool_depth is None or depth <= self.pool_depth]

    @property
    def true_share(self) -> float:
        """The share, 0-1, of the translated store's documents that have true vectors."""
        info = self.stores[TRANSLATED].info
        return (info.manifest.counts.get(TRUE, 0) if info.manifest else 0) / info.count

    @property
    def bridge_share(self) -> float:
        """The size of the bridge's sample as a share of the translated store's documents."""
        bridge = self.audit.bridge_stitch
        pairs = bridge.manifest.counts.get("pairs", 0) if bridge else 0
        return pairs / self.stores[TRANSLATED].info.count

    def cost_of_share(self, share: float) -> ArmCost:
        """The cost to embed a share, 0-1, of all documents; not known where there are no texts to count."""
        if self._tokens is None:
            return ArmCost()
        return ArmCost(share * self._tokens, usd_of(share * self._tokens, self.tally.price))

    @cached_property
    def counter(self) -> TokenCounter:
        """Counts the first tokens of documents."""
        return self.audit.embedder.loaded_profile().counter

    def cost_of_first(self, tokens: int) -> ArmCost:
        """The cost to embed the first tokens of every document."""
        store, tally = self.stores[TRANSLATED], self.tally
        if not store.info.has_texts:
            return ArmCost()
        documents = store.documents() if self.documents is None else self.documents
        cost = tally.cost(first_of(documents, self.counter, tokens))
        return ArmCost(float(cost.tokens), cost.usd)

    @cached_property
    def _tokens(self) -> float | None:
        """Tokens of all texts, each once; for a free model from some, evenly spread, where they are not in memory."""
        store, tally = self.stores[TRANSLATED], self.tally
        if not store.info.has_texts:
            return None
        if self.documents is not None or tally.target.is_api:
            return float(tally.cost(store.documents() if self.documents is None else self.documents).tokens)
        rows = np.unique(np.linspace(0, store.info.count - 1, min(_READ, store.info.count)).astype(np.int64))
        return float(np.mean(tally.tokens(list(store.documents(rows))))) * store.info.count

    def search(self, name: str) -> TimedRun:
        """Exact search of the store of that name in `self.stores`, by the query vectors of its model."""
        if name not in self._runs:
            store, keys = self.stores[name], self.keys[name]
            self._runs[name] = self.search_batches(name, self._checked(store, keys))
        return self._runs[name]

    def search_batches(self, name: str, batches: Iterable[Batch]) -> TimedRun:
        """Exact search of other vectors, as they come, in the place of those of the store of that name."""
        depth = self.depth
        key, metric, queries = self.keys[name].__getitem__, self.stores[name].info.metric, self.vectors[name]
        ids = self.query_set.query_ids
        return self._timed(lambda: search(batches, ids, queries, metric=metric, key=key, depth=depth))

    def _checked(self, store: Store, keys: Keys) -> Iterator[Batch]:
        done, stage = 0, f"search {store.info.name}"
        for batch in store.scan():
            self.audit.progress(stage, done, store.info.count)
            check_vectors(batch.ids, batch.vectors, source=store.info.location)
            yield _without(batch, keys, self.left_out) if self.left_out else batch
            done += len(batch)
        self.audit.progress(stage, done, store.info.count)

    def over(self, **changes: Any) -> Retriever:
        """Return one whose full re-embed is another: it keeps all other rankings."""
        other = replace(self, **changes)
        other._runs.update({name: run for name, run in self._runs.items() if name != FULL})
        vars(other).update({name: vars(self)[name] for name in ("bm25", "candidates") if name in vars(self)})
        return other

    @cached_property
    def bm25(self) -> TimedRun:
        """Words alone, of the translated store's texts, which are read where they are not in memory."""
        documents, queries = self.documents, self.query_set.queries
        if documents is None:
            documents = list(self.stores[TRANSLATED].documents())
        key = self.keys[TRANSLATED].__getitem__
        self.audit.progress("rank with BM25", 0, None)
        return self._timed(lambda: bm25_run(documents, queries, key=key, depth=self.depth))

    def fuse(self, *runs: TimedRun) -> TimedRun:
        """Runs fused by their ranks; the time is that of all of them and of the fusion."""
        fused = self._timed(lambda: reciprocal_rank_fusion([timed.run for timed in runs], depth=self.depth))
        return TimedRun(fused.run, sum(timed.seconds for timed in runs) + fused.seconds)

    @cached_property
    def candidates(self) -> Sequence[Sequence[str]]:
        """The translated store's first ids for each query, best first, as many as the deepest two-stage arm reranks."""
        depth = max(self.asked_depths, default=0)
        if not depth:
            return [()] * len(self.query_set.queries)
        store, vectors, ids = self.stores[TRANSLATED], self.vectors[TRANSLATED], self.query_set.query_ids
        batches = self._checked(store, self.keys[TRANSLATED])
        run = search(batches, ids, vectors, metric=store.info.metric, depth=depth)
        return [run.top(query_id, depth) for query_id in ids]

    @cached_property
    def _candidate_rows(self) -> list[NDArray[np.int64]]:
        """The rows of the candidates in the reference."""
        ids = (doc_id for batch in self.stores[FULL].scan() for doc_id in batch.ids)
        row_of = {doc_id: row for row, doc_id in enumerate(ids)}
        depth = max(self.rerank_depths)
        return [np.array([row_of[doc_id] for doc_id in own[:depth]], dtype=np.int64) for own in self.candidates]

    def rerank(self, depth: int) -> TimedRun:
        """Rank the translated store's first `depth` documents of each query by their true vectors."""
        return self._timed(lambda: self._reranked(depth))

    def _reranked(self, depth: int) -> Run:
        count = len(self._candidate_rows)
        step = max(_BLOCK_BYTES // (4 * self.stores[FULL].info.dim * depth), 1)
        rankings: dict[str, tuple[str, ...]] = {}
        for start in range(0, count, step):
            self.audit.progress(f"rank {depth} again", start, count)
            rankings |= self._reranked_block(range(start, min(start + step, count)), depth)
        return Run(rankings)

    def _reranked_block(self, numbers: range, depth: int) -> dict[str, tuple[str, ...]]:
        """Return the rankings of some queries; what several of them retrieve is read once."""
        reference = self.stores[FULL]
        wanted = [self._candidate_rows[number][:depth] for number in numbers]
        rows = np.unique(np.concatenate(wanted))
        batch = reference.get(rows)
        check_vectors(batch.ids, batch.vectors, source=reference.info.location)
        rankings: dict[str, tuple[str, ...]] = {}
        for number, own in zip(numbers, wanted, strict=True):
            places = np.searchsorted(rows, own)
            best = rerank(
                self.vectors[FULL][number],
                [self.keys[FULL][batch.ids[place]] for place in places],
                np.zeros(len(own)),
                np.arange(len(own)),
                batch.vectors[places],
                metric=reference.info.metric,
                kept=self.depth,
            )
            rankings[self.query_set.query_ids[number]] = tuple(key for key, _ in best)
        return rankings

    def reranking(self, depth: int) -> Reranking:
        """Return what a two-stage arm embeds."""
        tally, count = self.tally, len(self._candidate_rows)
        embedded, times = np.unique(np.concatenate([rows[:depth] for rows in self._candidate_rows]), return_counts=True)
        tokens = tally.cost(self.stores[FULL].documents(embedded)).tokens
        first, each = tokens / len(embedded) * depth, tokens / count
        further = each * float((times == 1).mean())
        return Reranking(
            depth,
            first,
            usd_of(first, tally.price),
            len(embedded) / count,
            each,
            usd_of(each, tally.price),
            len(embedded) / self.stores[TRANSLATED].info.count,
            further,
            usd_of(further, tally.price),
        )

    def deciding_scores(self, run: Run) -> Scores:
        """A run's scores by the measure that a verdict rests on, one for each distinct text, (c,)."""
        query_set = self.query_set
        if query_set.qrels is not None:
            return query_set.merged(ndcg(run, query_set.qrels, query_set.query_ids, _FIRST))
        return self.agreement(run)

    def agreement(self, run: Run) -> Scores:
        """A run's agreement@10 with the full re-embed, judged or not, one for each distinct text, (c,)."""
        return self.query_set.merged(agreement(self.true_scores(run), self._full_scores))

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
        full, metric = self.search(FULL).run, self.stores[FULL].info.metric
        ids = self.query_set.query_ids
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
        reference = self.stores[FULL]
        every = set().union(*wanted)
        if not every:
            yield from ({} for _ in block)
            return
        rows = [row for row, key in enumerate(self.keys[FULL].values()) if key in every]
        batch = reference.get(np.array(rows, dtype=np.int64))
        keys = [self.keys[FULL][doc_id] for doc_id in batch.ids]
        places: dict[str, list[int]] = {}
        for place, key in enumerate(keys):
            places.setdefault(key, []).append(place)
        for i, own in zip(block, wanted, strict=True):
            query_id, vector = self.query_set.query_ids[i], self.vectors[FULL][i : i + 1]
            top = TopK([query_id], vector, metric=reference.info.metric, depth=max(len(own), 1))
            near = [place for doc_id in own for place in places.get(doc_id, ())]
            top.add([keys[place] for place in near], batch.vectors[near])
            run = top.run()
            yield dict(zip(run.rankings[query_id], run.scores[query_id], strict=True))

    def evaluation(
        self, floor: Floor | None = None, *, limited: bool = False, confidence: float = CONFIDENCE
    ) -> Evaluation:
        """Return the rules by which these rankings are judged."""
        audit = self.audit
        return Evaluation(
            self.query_set,
            audit.margin,
            audit.seed,
            audit.resamples,
            self.n_documents,
            confidence,
            floor,
            limited,
        )

    def rank_by_id(self) -> TimedRun:
        """The same documents for every query: the first by doc_id."""
        keys = set(self.keys[TRANSLATED].values())
        ids = self.query_set.query_ids
        return self._timed(lambda: Run(dict.fromkeys(ids, tuple(heapq.nsmallest(self.depth, keys)))))

    def rank_at_random(self) -> TimedRun:
        """Documents drawn at random for each query."""
        return self._timed(lambda: self._drawn(sorted(set(self.keys[TRANSLATED].values()))))

    def _drawn(self, names: Sequence[str]) -> Run:
        rng = np.random.default_rng(self.audit.seed)
        size, query_ids = min(self.depth, len(names)), self.query_set.query_ids
        draws = (rng.choice(len(names), size, replace=False) for _ in query_ids)
        return Run({q: tuple(names[i] for i in draw) for q, draw in zip(query_ids, draws, strict=True)})

    @property
    def depth(self) -> int:
        """Documents to retrieve, so that enough are left when a query's own is dropped."""
        return DEPTH + self.query_set.exclude_self

    def _timed(self, answer: Callable[[], Run]) -> TimedRun:
        started = time.perf_counter()
        run = answer()
        seconds = time.perf_counter() - started
        return TimedRun(without_self(run) if self.query_set.exclude_self else run, seconds)


def _without(batch: Batch, keys: Keys, left_out: Collection[str]) -> Batch:
    kept = [row for row, doc_id in enumerate(batch.ids) if keys[doc_id] not in left_out]
    return Batch([batch.ids[row] for row in kept], batch.vectors[kept])
