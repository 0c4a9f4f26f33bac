"""The audit: every arm answers the same queries, the full re-embed is the standard, the verdict follows."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from migrate.audit.bridge import bridged_store
from migrate.audit.measures import Qrels, Scores, ndcg, overlap, recall, reciprocal_rank
from migrate.audit.model import (
    BM25,
    BRIDGE,
    FULL,
    MEAN,
    MEANINGS,
    STAY,
    TRANSLATED,
    Arm,
    AuditReport,
    Comparison,
    win_tie_loss,
)
from migrate.audit.two_stage import WITHOUT_TWO_STAGE, TwoStage, arm_meaning, arm_name, can_rerank
from migrate.audit.verdict import MARGIN, RESAMPLES, decide, retention_bounds
from migrate.backfill import FILLED_IN
from migrate.cost import price_of
from migrate.documents import Query
from migrate.embedders.base import Embedder
from migrate.errors import InputError, StoreError, VectorError
from migrate.manifest import Manifest
from migrate.search.bm25 import bm25_run
from migrate.search.runs import DEPTH, Run, search, without_self
from migrate.stitch.fitted import FittedStitch
from migrate.stores.base import Store
from migrate.stores.confidence import find_outside
from migrate.vectors import Batch, Progress, Vectors, check_vectors, no_progress

PARENT_FIELD = "parent_id"
"""Metadata field of a chunk that names the document it was cut from."""

Keys = Mapping[str, str]
"""From each id of a store to the document that is judged: the parent of a chunk, else the id itself."""


@dataclass(frozen=True, slots=True)
class Questions:
    """What the arms are asked: queries, their judgements if there are any, and the name of the set.

    `exclude_self` drops a document with the query's own id from every run, for sets that ask with their documents.
    `notes` are what a reader of the report should know of the set.
    """

    queries: Sequence[Query]
    qrels: Qrels | None
    name: str
    exclude_self: bool = False
    notes: tuple[str, ...] = ()

    @property
    def query_ids(self) -> tuple[str, ...]:
        """Ids in the order of all score arrays."""
        return tuple(query.id for query in self.queries)


def audit_store(
    translated: Store,
    reference: Store,
    questions: Questions,
    embedder: Embedder,
    *,
    source: Store | None = None,
    source_embedder: Embedder | None = None,
    bridge: FittedStitch | None = None,
    bm25: bool = True,
    two_stage: Sequence[int] = (),
    price_usd_per_mtok: float | None = None,
    parent_field: str = PARENT_FIELD,
    margin: float = MARGIN,
    seed: int = 0,
    resamples: int = RESAMPLES,
    progress: Progress = no_progress,
) -> AuditReport:
    """Answer the queries with every arm that can be had, and judge the translated store.

    Arms: the full re-embed (`reference`), the translated store, staying with the source model where `source` and
    `source_embedder` are given, asking `source` through the query stitch `bridge` where it is given, BM25 where there
    are texts, and a control that gives all documents one vector. For each N of `two_stage`, the target model ranks the
    translated store's first N again (`migrate.audit.two_stage`).
    Vectors are searched exactly, whatever the index, so that no arm is blamed for its index.

    Raises
    ------
    UsageError
        There is a bridge, but no source.
    StitchError
        The bridge is a stitch for documents, or not fitted on the source for this embedder.
    InputError
        There are no queries, or none of the relevant documents is in the stores.
    StoreError
        The stores do not hold the same documents, or the reference was embedded by another model.
    VectorError
        A store is not of its embedder's dimension, or a vector is zero or not finite.
    RemoteError
        A query could not be embedded.
    """
    if not questions.queries:
        raise InputError(f"{questions.name}: expected queries to audit with, found none")
    _check_same_model(translated, reference)
    stores = {FULL: reference, TRANSLATED: translated}
    embedders = {FULL: embedder, TRANSLATED: embedder}
    if source is not None and source_embedder is not None:
        stores[STAY], embedders[STAY] = source, source_embedder
    if bridge is not None:
        stores[BRIDGE] = bridged_store(bridge, source, embedder.identity)
    keys = {name: document_keys(store, parent_field) for name, store in stores.items()}
    _check_same_documents(stores, keys)
    notes = (*questions.notes, *_coverage(questions, keys[FULL]), *_true_vectors(translated), *_outside(translated))

    vectors = _query_vectors(stores, embedders, questions, progress)
    if bridge is not None:
        vectors[BRIDGE] = bridge.map_queries(vectors[FULL], source=questions.name)

    ask = _Asking(questions, progress)
    answers = {name: partial(ask.search, stores[name], vectors[name], keys[name]) for name in stores}
    if bm25 and translated.info.has_texts:
        answers[BM25] = partial(ask.bm25, translated, keys[TRANSLATED])
    depths = two_stage if two_stage and can_rerank(translated, reference) else ()
    price = price_of(embedder.identity) if price_usd_per_mtok is None else price_usd_per_mtok
    second = ask.two_stage(translated, reference, vectors[FULL], keys[FULL], depths, price)
    answers |= {arm_name(depth): partial(ask.again, second, depth) for depth in second.depths}
    answers[MEAN] = partial(ask.same_vector, keys[TRANSLATED])
    runs = {name: _timed(answer) for name, answer in answers.items()}
    arms = {name: _measure(name, run, runs[FULL][0], questions, seconds) for name, (run, seconds) in runs.items()}
    arms |= {name: _with_cost(arms[name], second, depth) for depth in second.depths for name in [arm_name(depth)]}
    notes = (*notes, *(arm.reranking.sentence for arm in arms.values() if arm.reranking))
    notes = notes if depths or not two_stage else (*notes, WITHOUT_TWO_STAGE)
    n_documents = len(set(keys[FULL].values()))
    return _report(arms, translated, questions, n_documents, notes, margin=margin, seed=seed, resamples=resamples)


def document_keys(store: Store, parent_field: str = PARENT_FIELD) -> Keys:
    """The judged document of each id of a store, in the store's order."""
    if not store.info.has_texts:
        return {doc_id: doc_id for batch in store.batches() for doc_id in batch.ids}
    return {document.id: str(document.metadata.get(parent_field, document.id)) for document in store.documents()}


def _check_same_model(translated: Store, reference: Store) -> None:
    """Two manifests that name different models contradict each other; vectors from files say nothing of a model."""
    manifests = (translated.info.manifest, reference.info.manifest)
    models = [manifest.model for manifest in manifests if manifest is not None and manifest.model is not None]
    specs = [model.spec for model in models if not model.spec.startswith("file:")]
    if len(set(specs)) > 1:
        raise StoreError(
            f"{reference.info.path}: expected a reference embedded by {specs[0]}, as the translated store says, found "
            f"{specs[1]}; audit against a full re-embed by the same model"
        )


def _coverage(questions: Questions, keys: Keys) -> tuple[str, ...]:
    """What the judgements say of documents that the stores do not hold."""
    relevant = {d for grades in (questions.qrels or {}).values() for d, grade in grades.items() if grade > 0}
    missing = relevant.difference(keys.values())
    if relevant and missing == relevant:
        raise InputError(
            f"{questions.name}: expected judgements of the documents in the stores, found none ({min(relevant)!r} is "
            f"relevant, the stores have {next(iter(keys.values()), 'nothing')!r}); is it the right BEIR set, and "
            "--parent-field the right field?"
        )
    if not missing:
        return ()
    return (f"{len(missing):,} of {len(relevant):,} relevant documents are not in the stores; no arm can find them",)


def _outside(translated: Store) -> tuple[str, ...]:
    found = find_outside(translated)
    return () if found is None else (found.sentence,)


def _true_vectors(translated: Store) -> tuple[str, ...]:
    known = translated.info.manifest
    n_true = known.counts.get("true vectors", 0) if known else 0
    if not n_true:
        return ()
    origin = "" if known and known.details.get(FILLED_IN) else ": the sample the stitch was fitted on"
    return (f"{n_true:,} of {translated.info.count:,} vectors are true ones{origin}",)


def _check_same_documents(stores: Mapping[str, Store], keys: Mapping[str, Keys]) -> None:
    expected = set(keys[FULL].values())
    for name, store in stores.items():
        strange = expected.symmetric_difference(keys[name].values())
        if strange:
            raise StoreError(
                f"{store.info.path}: expected the documents of {stores[FULL].info.path}, found {len(strange)} "
                f"that only one of them has, such as {min(strange)!r}; audit stores of the same corpus"
            )


def _query_vectors(
    stores: Mapping[str, Store], embedders: Mapping[str, Embedder], questions: Questions, progress: Progress
) -> dict[str, Vectors]:
    """The queries as each arm's model embeds them; arms of one model share the vectors, which may cost money."""
    found: dict[int, Vectors] = {}
    for name, embedder in embedders.items():
        if id(embedder) not in found:
            found[id(embedder)] = embedder.embed_queries(questions.queries, progress=progress)
        dim, store = found[id(embedder)].shape[1], stores[name]
        if dim != store.info.dim:
            raise VectorError(
                f"{store.info.path}: expected vectors of dimension {dim}, as {embedder.identity.spec} gives, "
                f"found {store.info.dim}; name the model that the store was built with"
            )
    return {name: found[id(embedder)] for name, embedder in embedders.items()}


@dataclass(frozen=True)
class _Asking:
    """One way each of answering the questions."""

    questions: Questions
    progress: Progress

    def search(self, store: Store, queries: Vectors, keys: Keys) -> Run:
        found = search(
            self._checked(store),
            self.questions.query_ids,
            queries,
            metric=store.info.metric,
            key=keys.__getitem__,
            depth=self._depth,
        )
        return self._finished(found)

    def _checked(self, store: Store) -> Iterator[Batch]:
        done = 0
        for batch in store.batches():
            self.progress(f"search {store.info.path.name}", done, store.info.count)
            check_vectors(batch.ids, batch.vectors, source=str(store.info.path))
            yield batch
            done += len(batch)
        self.progress(f"search {store.info.path.name}", done, store.info.count)

    def bm25(self, store: Store, keys: Keys) -> Run:
        self.progress("rank with BM25", 0, None)
        documents = list(store.documents())
        return self._finished(bm25_run(documents, self.questions.queries, key=keys.__getitem__, depth=self._depth))

    def two_stage(
        self,
        translated: Store,
        reference: Store,
        queries: Vectors,
        keys: Keys,
        depths: Sequence[int],
        price: float | None,
    ) -> TwoStage:
        return TwoStage(
            translated,
            reference,
            self.questions.query_ids,
            queries,
            depths=depths,
            keys=keys,
            kept=self._depth,
            price_usd_per_mtok=price,
            progress=self.progress,
        )

    def again(self, second: TwoStage, depth: int) -> Run:
        return self._finished(second.run(depth))

    def same_vector(self, keys: Keys) -> Run:
        """All documents tie for every query, so that the doc_id alone decides."""
        first = tuple(heapq.nsmallest(self._depth, set(keys.values())))
        return self._finished(Run(dict.fromkeys(self.questions.query_ids, first)))

    @property
    def _depth(self) -> int:
        return DEPTH + self.questions.exclude_self

    def _finished(self, run: Run) -> Run:
        return without_self(run) if self.questions.exclude_self else run


def _timed(answer: Callable[[], Run]) -> tuple[Run, float]:
    started = time.perf_counter()
    return answer(), time.perf_counter() - started


def _measure(name: str, run: Run, full: Run, questions: Questions, seconds: float) -> Arm:
    ids, qrels = questions.query_ids, questions.qrels
    scores: dict[str, Scores] = {}
    if qrels is not None:
        scores["nDCG@10"] = ndcg(run, qrels, ids, 10)
        scores["recall@100"] = recall(run, qrels, ids, 100)
        scores["MRR@10"] = reciprocal_rank(run, qrels, ids, 10)
    scores |= {f"overlap@{k}": overlap(run, full, ids, k) for k in (1, 10, 100)}
    return Arm(name, MEANINGS.get(name, ""), scores, seconds)


def _with_cost(arm: Arm, second: TwoStage, depth: int) -> Arm:
    return replace(arm, meaning=arm_meaning(depth), reranking=second.cost(depth))


def _report(
    arms: Mapping[str, Arm],
    translated: Store,
    questions: Questions,
    n_documents: int,
    notes: tuple[str, ...],
    *,
    margin: float,
    seed: int,
    resamples: int,
) -> AuditReport:
    measure = "overlap@10" if questions.qrels is None else "nDCG@10"
    full = arms[FULL].scores[measure]
    verdict = decide(
        arms[TRANSLATED].scores[measure],
        full,
        arms[STAY].scores[measure] if STAY in arms and questions.qrels is not None else None,
        margin=margin,
        seed=seed,
        resamples=resamples,
        provisional=questions.qrels is None,
    )
    comparisons = {
        name: Comparison(
            retention_bounds(arm.scores[measure], full, seed=seed, resamples=resamples),
            *win_tie_loss(arm.scores[measure], full),
        )
        for name, arm in arms.items()
        if name != FULL
    }
    known = translated.info.manifest
    manifest = Manifest(
        kind="report",
        model=known.model if known else None,
        source_model=known.source_model if known else None,
        seed=seed,
        counts={"queries": len(questions.queries), "documents": n_documents},
        details={"dataset": questions.name, "resamples": resamples},
    )
    return AuditReport(
        verdict=verdict,
        arms=tuple(arms.values()),
        comparisons=comparisons,
        measure=measure,
        query_ids=questions.query_ids,
        n_documents=n_documents,
        dataset=questions.name,
        notes=notes,
        manifest=manifest,
    )
