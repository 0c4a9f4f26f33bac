"""Retrieval for an audit: every arm's ranking to one depth, timed; what arms share is computed once."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from migrate.audit.bootstrap import Floor
from migrate.audit.keys import Keys, Rows
from migrate.audit.measures import CUT, Scores, ndcg
from migrate.audit.query_set import QuerySet
from migrate.audit.reference import ReferenceProof
from migrate.audit.results import (
    BM25,
    BRIDGE,
    FULL,
    STAY,
    TOGETHER,
    TRANSLATED,
    TWO_STAGE,
    TWO_STAGE_DEPTHS,
    ArmCost,
    Reranking,
    plan_word,
)
from migrate.audit.rules import Rules, Settings
from migrate.audit.unjudged import TopScores, agreement, temperature_of
from migrate.audit.verdict import Finding
from migrate.check.comparison import spread
from migrate.cost import Tally, usd_of
from migrate.embedders.base import Embedder
from migrate.search.bm25 import bm25_run
from migrate.search.fusion import RankComparison, reciprocal_rank_fusion
from migrate.search.own_index import Judged, rank_by_index
from migrate.search.runs import DEPTH, Rankings, TopK, search, without_self
from migrate.stores.all_true import TRUE
from migrate.stores.base import SearchSetting, Store
from migrate.stores.serving import as_compared
from migrate.vectors import Batch, Progress, Vectors, check_vectors, no_progress

_READ = 2_000
"""Texts to count the tokens of, for a free model."""


@dataclass(frozen=True, slots=True)
class TimedRun:
    """A run, and the seconds it took to rank, without embedding."""

    run: Rankings
    seconds: float


@dataclass(frozen=True, eq=False)
class Retriever:
    """The inputs of an audit that have been checked, with the queries embedded, and the rankings for these.

    `embedder` is the target model. `stores`, `keys` (the document that each row is judged as) and `vectors` (of the
    queries, (q, dim)) are by the name of the arm that searches the store. `ranks_words` says that there are arms of
    words, and `n_bridged` how many documents the bridge was fitted on. `proof` is how the reference was shown to be
    one, whose doubts are among the `findings`.

    The stores that are asked answer by their own index, the full re-embed exactly. Each is searched once, without the
    documents `left_out`. BM25 runs once too; the time of a run that others use counts for each of them.

    `old_answers` says that the source's model embeds new queries, as a file of vectors does not: what needs it could
    serve, and stands among the alternatives.

    Where a pool stands for the full re-embed, that one's store is not there until the pool has grown; it is `in_pool`
    then, unless the pool came to be the whole store, and has the first `pool_depth` documents of the translated store
    for every query.
    """

    settings: Settings
    query_set: QuerySet
    embedder: Embedder
    tally: Tally
    stores: Mapping[str, Store]
    keys: Mapping[str, Keys]
    vectors: Mapping[str, Vectors]
    ranks_words: bool = False
    n_bridged: int = 0
    findings: tuple[Finding, ...] = ()
    proof: ReferenceProof | None = None
    in_pool: bool = False
    pool_depth: int | None = None
    left_out: Collection[str] = frozenset()
    old_answers: bool = False
    progress: Progress = no_progress
    _token_counts: list[float] = field(default_factory=list, repr=False)  # shared with copies
    _runs: dict[str, TimedRun] = field(default_factory=dict, init=False, repr=False)

    def in_a_pool(self, pool: Store, keys: Keys, proof: ReferenceProof, depth: int, *, is_whole: bool) -> Retriever:
        """Return one with a pool in the place of the full re-embed, which keeps all other rankings."""
        pooled = replace(
            self,
            stores={**self.stores, FULL: pool},
            keys={**self.keys, FULL: keys},
            proof=proof,
            findings=(*self.findings, *proof.findings),
            pool_depth=depth,
            in_pool=not is_whole,
        )
        pooled._runs.update(self._runs)
        pooled._runs.pop(FULL, None)
        return pooled

    def noting(self, *findings: Finding) -> Retriever:
        """Return one with more findings, which keeps all rankings."""
        retriever = replace(self, findings=(*self.findings, *findings))
        retriever._runs.update(self._runs)
        return retriever

    def rules(self, floor: Floor | None = None) -> Rules:
        """Return the rules by which the rankings are judged; `floor` is that of a pool."""
        return Rules(self.query_set, self.settings, self.n_documents, floor)

    @property
    def n_documents(self) -> int:
        """The number of documents that are judged; one that was cut into chunks is there once."""
        return self.keys[TRANSLATED].documents.distinct - len(self.left_out)

    def rows(self, name: str, documents: Iterable[str]) -> dict[str, int]:
        """Return the first row of each of some documents in the store of that name, in the order of the rows."""
        different = list(dict.fromkeys(documents))
        rows = self.keys[name].documents.rows_of(different)
        return {different[at]: int(rows[at]) for at in np.argsort(rows).tolist() if rows[at] >= 0}

    def texts(self, documents: Sequence[str]) -> dict[str, str]:
        """Return the texts of some documents of the translated store; none where it has none."""
        store, rows = self.stores[TRANSLATED], self.rows(TRANSLATED, documents)
        if not store.info.has_texts or not rows:
            return {}
        order = np.array(list(rows.values()), dtype=np.int64)
        return dict(zip(rows, (document.text for document in store.documents(order)), strict=True))

    @property
    def compared(self) -> dict[str, Rankings]:
        """The rankings that the verdict compares: of the full re-embed, the translated store, and of staying."""
        return {name: self.search(name).run for name in (FULL, TRANSLATED, STAY) if name in self.stores}

    @cached_property
    def subjects(self) -> Mapping[str, str]:
        """The one document that says what a query is about: its relevant document that the full re-embed ranks first.

        Where it retrieves none of them, the relevant one of the highest grade; without judgements, its first document.
        A query without relevant documents has none.
        """
        present, subjects = self.keys[FULL].documents.present(self.query_set.relevant), {}
        for query_id in self.query_set.query_ids:
            ranking = self.search(FULL).run.rankings.get(query_id, ())
            grades = {d: grade for d, grade in self.query_set.grades(query_id).items() if grade > 0 and d in present}
            if self.query_set.is_judged:
                ranking = tuple(d for d in ranking if d in grades)
            best = next(iter(ranking), None) or max(sorted(grades), key=grades.__getitem__, default=None)
            if best is not None:
                subjects[query_id] = best
        return subjects

    @cached_property
    def has_same_ids(self) -> bool:
        """True where translated store and reference hold the same ids, not only chunks of the same documents."""
        return self.keys[TRANSLATED].has_ids_of(self.keys[FULL])

    @property
    def asked_depths(self) -> list[int]:
        """The depths of two-stage arms, without those that would embed the whole store."""
        depths = TWO_STAGE_DEPTHS if self.settings.stages is None else self.settings.stages
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

    def cost_of_share(self, share: float) -> ArmCost:
        """Return the cost to embed a share, 0-1, of all documents; not known where there are no texts to count."""
        if self._tokens is None:
            return ArmCost()
        return ArmCost(share * self._tokens, usd_of(share * self._tokens, self.tally.price))

    @property
    def _tokens(self) -> float | None:
        """Tokens of all texts, each once; for a free model from some, evenly spread, where words are not ranked."""
        store, tally = self.stores[TRANSLATED], self.tally
        if not store.info.has_texts:
            return None
        if not self._token_counts:
            rows = spread(store.info.count, _READ)
            if self.ranks_words or tally.target.is_api:
                self._token_counts.append(float(tally.cost(store.documents()).tokens))
            else:
                mean = np.mean(tally.tokens(list(store.documents(rows))))
                self._token_counts.append(float(mean) * store.info.count)
        return self._token_counts[0]

    def search(self, name: str) -> TimedRun:
        """Return what the store of that name answers, by the query vectors of its model.

        What users ask answers by its own index, as it is stored; what stands for all true vectors is searched exactly.
        """
        return self._once(name, lambda: self.by_index(name)) if self.asks_index(name) else self.exactly(name)

    def exactly(self, name: str) -> TimedRun:
        """Return the exact search of the store of that name, whatever index it has."""
        key = f"{name}, exactly" if self.asks_index(name) else name
        return self._once(key, lambda: self.search_batches(name, self._checked(name)))

    def asks_index(self, name: str) -> bool:
        """Return whether the store of that name answers by an index of its own."""
        return name in (TRANSLATED, STAY, BRIDGE) and self.stores[name].has_own_index

    def by_index(self, name: str, *, effort: int | None = None, depths: Sequence[int] = (CUT, DEPTH)) -> TimedRun:
        """Return what the index of the store of that name finds; `effort` is another value of its setting."""
        self.progress(f"ask the index of {self.stores[name].info.name}", 0, None)
        spare = int(self.query_set.exclude_self)  # so that enough are left when a query's own document is dropped
        judged = partial(self._judged_as, name)
        deep = [depth + spare for depth in depths]
        return self._timed(lambda: self._rank_by_index(name, judged, deep, effort))

    def setting(self, name: str) -> SearchSetting | None:
        """Return the setting of the search of the store of that name, with the value that programs set."""
        setting, new = self.stores[name].setting, self.stores[TRANSLATED].setting
        effort = self.settings.search_effort
        if setting is None or new is None or effort is None or setting.name != new.name:
            return setting
        return replace(setting, value=effort, most=max(effort, setting.most))

    def _rank_by_index(self, name: str, judged: Judged, depths: Sequence[int], effort: int | None = None) -> Rankings:
        setting = self.setting(name)
        if effort is None and setting is not None and self.settings.search_effort is not None:
            effort = setting.value
        ids, vectors = self.query_set.query_ids, self.vectors[name]
        return rank_by_index(self.stores[name], ids, vectors, judged, depths=depths, effort=effort)

    def _judged_as(self, name: str, ids: Sequence[str]) -> list[str | None]:
        """Return the document that each id is judged as; an id that the store did not list takes up a place, as here.

        None stands for the documents `left_out`.
        """
        keys = self.keys[name]
        rows = keys.ids.rows_of(ids)
        documents: list[str | None] = list(ids)
        listed = np.flatnonzero(rows >= 0)
        for position, document in zip(listed.tolist(), keys.documents.take(rows[listed]), strict=True):
            documents[position] = None if document in self.left_out else document
        return documents

    def _once(self, name: str, answer: Callable[[], TimedRun]) -> TimedRun:
        if name not in self._runs:
            self._runs[name] = answer()
        return self._runs[name]

    def search_batches(self, name: str, batches: Iterable[Batch]) -> TimedRun:
        """Return the exact search of other vectors, as they come, in the place of those of the store of that name."""
        depth, judged, metric = self.depth, self._judged(name, batches), self.stores[name].info.metric
        ids, queries = self.query_set.query_ids, self.vectors[name]
        return self._timed(lambda: search(judged, ids, queries, metric=metric, depth=depth))

    def _judged(self, name: str, batches: Iterable[Batch]) -> Iterator[Batch]:
        """Yield the vectors of all rows with the documents that these are judged as, but for those left out."""
        documents, start = self.keys[name].documents, 0
        left_out = documents.all_rows_of(self.left_out)
        for batch in batches:
            stop = start + len(batch)
            low, high = np.searchsorted(left_out, (start, stop))
            rows = np.delete(np.arange(start, stop), left_out[low:high] - start)
            vectors = batch.vectors if low == high else batch.vectors[rows - start]
            yield Batch(documents.take(rows), self._as_compared(name, vectors))
            start = stop

    def _as_compared(self, name: str, vectors: Vectors) -> Vectors:
        """Return vectors as the store of that name compares them; the full re-embed as the translated one does."""
        return as_compared(self.stores[TRANSLATED if name == FULL else name].info, vectors)

    def _checked(self, name: str) -> Iterator[Batch]:
        store = self.stores[name]
        done, stage = 0, f"search {store.info.name}"
        for batch in store.scan():
            self.progress(stage, done, store.info.count)
            check_vectors(batch.ids, batch.vectors, source=store.info.location)
            done += len(batch)
            yield batch
        self.progress(stage, done, store.info.count)

    @property
    def bm25(self) -> TimedRun:
        """Words alone, of the translated store's texts."""
        return self._once(BM25, self._ranked_by_words)

    def _ranked_by_words(self) -> TimedRun:
        store, names_of = self.stores[TRANSLATED], self.keys[TRANSLATED].documents.take
        self.progress("rank with BM25", 0, None)
        texts = (document.text for document in store.documents())
        return self._timed(lambda: bm25_run(texts, self.query_set.queries, names_of=names_of, depth=self.depth))

    def fuse(self, *runs: TimedRun, weights: Sequence[float] | None = None) -> TimedRun:
        """Return runs fused by their ranks; the time is that of all of them and of the fusion."""
        rankings = [timed.run for timed in runs]
        fused = self._timed(lambda: reciprocal_rank_fusion(rankings, depth=self.depth, weights=weights))
        return TimedRun(fused.run, sum(timed.seconds for timed in runs) + fused.seconds)

    @property
    def reranks_together(self) -> bool:
        """True where arms rank the first documents of both stores again: they are asked for, as they embed more."""
        return STAY in self.stores and bool(self.settings.stages)

    @property
    def could_serve_both(self) -> bool:
        """True where both stores could serve together, or the plan says that they do."""
        return STAY in self.stores and (self.old_answers or plan_word(self.settings.plan).startswith(TOGETHER))

    def together(self) -> TimedRun:
        """Fuse the translated and the source store, each searched by queries of its own model, by their ranks."""
        return self.fuse(
            self.search(TRANSLATED), self.search(STAY), weights=(2 - self.weight_of_old, self.weight_of_old)
        )

    @cached_property
    def weight_of_old(self) -> float:
        """The weight, 0-1, of the source store's ranks beside those of the translated one, as live search begins.

        It is from how far both stores agree: what the reference would teach is no part of what the reference judges.
        """
        new, old = (self.search(name).run for name in (TRANSLATED, STAY))
        return RankComparison.of(new, old).weight(self.n_documents)

    def candidates(self, name: str) -> Sequence[Sequence[str]]:
        """Return the first ids for each query, best first, as many as the deepest arm of that name reranks.

        `name` is `two-stage`, for those of the translated store, or `together`, for those of both stores.
        """
        depth, ids = max(self.asked_depths, default=0), self.query_set.query_ids
        if not depth:
            return [()] * len(ids)

        def first_of(store: str) -> TimedRun:
            if self.asks_index(store):
                listed = partial(self._listed, store)
                return TimedRun(self._rank_by_index(store, listed, self.asked_depths), 0.0)
            metric, vectors = self.stores[store].info.metric, self.vectors[store]
            batches = (
                replace(batch, vectors=self._as_compared(store, batch.vectors)) for batch in self._checked(store)
            )
            return TimedRun(search(batches, ids, vectors, metric=metric, depth=depth), 0.0)

        def first_of_both() -> TimedRun:
            runs = [self._once(TWO_STAGE, partial(first_of, TRANSLATED)).run, first_of(STAY).run]
            fused = reciprocal_rank_fusion(runs, depth=2 * depth).rankings.items()
            # A document of the source may be gone from the translated store
            present = self.keys[TRANSLATED].ids.present({doc_id for _, top in fused for doc_id in top})
            return TimedRun(Rankings({q: tuple(d for d in top if d in present) for q, top in fused}), 0.0)

        run = self._once(name, partial(first_of, TRANSLATED) if name == TWO_STAGE else first_of_both).run
        return [run.top(query_id, depth) for query_id in ids]

    def _listed(self, name: str, ids: Sequence[str]) -> list[str | None]:
        """Return ids as they are; None for one that the store did not list."""
        rows = self.keys[name].ids.rows_of(ids)
        return [doc_id if row >= 0 else None for doc_id, row in zip(ids, rows.tolist(), strict=True)]

    def can_rerank(self, name: str, depth: int) -> bool:
        """Return whether the reference has the first `depth` candidates of every query."""
        return all((rows >= 0).all() for rows in self._candidate_rows(name, depth))

    def _candidate_rows(self, name: str, depth: int) -> list[NDArray[np.int64]]:
        """Return the rows of the first `depth` candidates of each query in the reference; -1 for one that it lacks."""
        return [self.keys[FULL].ids.rows_of(first[:depth]) for first in self.candidates(name)]

    def rerank(self, depth: int, name: str) -> TimedRun:
        """Rank the first `depth` candidates of each query by their true vectors."""
        return self._timed(lambda: self._reranked(self._candidate_rows(name, depth), depth))

    def _reranked(self, rows_of: Sequence[NDArray[np.int64]], depth: int) -> Rankings:
        count = len(rows_of)
        step = max((1 << 28) // (4 * self.stores[FULL].info.dim * depth), 1)  # queries to 256 MiB of vectors
        rankings: dict[str, tuple[str, ...]] = {}
        for start in range(0, count, step):
            self.progress(f"rank {depth} again", start, count)
            block = range(start, min(start + step, count))
            for run in self._ranked(block, [rows_of[number] for number in block]):
                rankings |= run.rankings
        return Rankings(rankings)

    def _ranked(self, block: range, rows_of: Sequence[NDArray[np.int64]]) -> Iterator[Rankings]:
        """Yield for each query of a block some rows of the reference, ranked; what several queries ask is read once."""
        reference, documents = self.stores[FULL], self.keys[FULL].documents
        rows = np.unique(np.concatenate(rows_of))
        batch = reference.get(rows) if len(rows) else Batch([], np.empty((0, reference.info.dim), np.float32))
        check_vectors(batch.ids, batch.vectors, source=reference.info.location)
        for number, query_rows in zip(block, rows_of, strict=True):
            query_id, vector = self.query_set.query_ids[number], self.vectors[FULL][number : number + 1]
            top = TopK([query_id], vector, metric=reference.info.metric, depth=self.depth)
            positions = np.searchsorted(rows, query_rows)
            top.add(documents.take(query_rows), self._as_compared(FULL, batch.vectors[positions]))
            yield top.run()

    def reranking(self, depth: int, name: str) -> Reranking:
        """Return what an arm embeds that ranks the first `depth` candidates of each query again."""
        rows_of = self._candidate_rows(name, depth)
        price, count = self.tally.price, len(rows_of)
        embedded, times = np.unique(np.concatenate(rows_of), return_counts=True)
        tokens = self.tally.cost(self.stores[FULL].documents(embedded)).tokens
        first, each = tokens / len(embedded) * depth, tokens / count
        further = each * float((times == 1).mean())
        return Reranking(
            depth,
            first,
            usd_of(first, price),
            len(embedded) / count,
            each,
            usd_of(each, price),
            len(embedded) / self.stores[TRANSLATED].info.count,
            further,
            usd_of(further, price),
        )

    def rank_by_id(self) -> TimedRun:
        """Return the same documents for every query: the first by doc_id."""
        first = tuple(self.keys[TRANSLATED].documents.take(self._ordered_rows[: self.depth]))
        return self._timed(lambda: Rankings(dict.fromkeys(self.query_set.query_ids, first)))

    def rank_at_random(self) -> TimedRun:
        """Return documents drawn at random for each query."""
        return self._timed(self._drawn)

    def _drawn(self) -> Rankings:
        rng, rows, query_ids = np.random.default_rng(self.settings.seed), self._ordered_rows, self.query_set.query_ids
        documents, size = self.keys[TRANSLATED].documents, min(self.depth, len(rows))
        draws = (rng.choice(len(rows), size, replace=False) for _ in query_ids)
        return Rankings({q: tuple(documents.take(rows[draw])) for q, draw in zip(query_ids, draws, strict=True)})

    @cached_property
    def _ordered_rows(self) -> Rows:
        """A row of each document that is judged, in the order of the documents."""
        documents = self.keys[TRANSLATED].documents
        rows = documents.in_order()
        return rows[~np.isin(rows, documents.all_rows_of(self.left_out))] if self.left_out else rows

    @property
    def depth(self) -> int:
        """Documents to retrieve, so that enough are left when a query's own is dropped."""
        return DEPTH + self.query_set.exclude_self

    def _timed(self, answer: Callable[[], Rankings]) -> TimedRun:
        started = time.perf_counter()
        run = answer()
        seconds = time.perf_counter() - started
        return TimedRun(without_self(run) if self.query_set.exclude_self else run, seconds)

    def deciding_scores(self, run: Rankings) -> Scores:
        """Return a run's scores by the measure that a verdict rests on, one for each distinct text, (c,)."""
        query_set = self.query_set
        if query_set.qrels is not None:
            return query_set.merged(ndcg(run, query_set.qrels, query_set.query_ids, CUT))
        return self.agreement(run)

    def agreement(self, run: Rankings) -> Scores:
        """Return a run's agreement@10 with the full re-embed, judged or not, one for each distinct text, (c,)."""
        return self.query_set.merged(agreement(self.true_scores(run), self._full_scores))

    @property
    def temperature(self) -> float:
        """The temperature of agreement (`migrate.audit.unjudged`), by what the full re-embed scores."""
        full = self._full_scores
        return temperature_of(full[np.isfinite(full[:, 0])])

    @cached_property
    def _full_scores(self) -> TopScores:
        return self.true_scores(self.search(FULL).run)

    def true_scores(self, run: Rankings) -> TopScores:
        """Return what the reference's vectors score the first 10 documents of a run, in its order, (q, 10).

        Those that the reference ranks high are known from its search, the others are read. A greater score is nearer; a
        document that the reference lacks scores -inf.
        """
        full, metric, documents = self.search(FULL).run, self.stores[FULL].info.metric, self.keys[FULL].documents
        ids = self.query_set.query_ids
        worst = np.inf if metric == "l2" else -np.inf
        scores = np.full((len(ids), CUT), worst)
        together = 1_000  # queries whose further documents are read at once
        for start in range(0, len(ids), together):
            block = range(start, min(start + together, len(ids)))
            full_scores = [dict(zip(full.rankings[ids[i]], full.scores[ids[i]], strict=True)) for i in block]
            tops = [run.top(ids[i], CUT) for i in block]
            unknown = [set(top) - scores_of.keys() for top, scores_of in zip(tops, full_scores, strict=True)]
            rows: dict[str, list[int]] = {doc_id: [] for doc_id in set().union(*unknown)}
            known_rows = documents.all_rows_of(rows)
            for row, key in zip(known_rows.tolist(), documents.take(known_rows), strict=True):
                rows[key].append(row)
            rows_of = [
                np.array([row for d in sorted(scores_of) for row in rows[d]], dtype=np.int64) for scores_of in unknown
            ]
            for i, top, scores_of, more in zip(block, tops, full_scores, self._ranked(block, rows_of), strict=True):
                scores_of |= zip(more.rankings[ids[i]], more.scores[ids[i]], strict=True)
                scores[i, : len(top)] = [scores_of.get(doc_id, worst) for doc_id in top]
        return -scores if metric == "l2" else scores
