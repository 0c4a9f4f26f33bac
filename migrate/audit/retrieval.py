"""Retrieval for an audit: rankings of what each store answers, to one depth, timed."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from migrate.audit.experiment import Experiment, Searchable, can_rerank, depths_asked, reranks_together
from migrate.audit.keys import Names, Rows
from migrate.audit.measures import CUT
from migrate.audit.results import BRIDGE, FULL, STAY, TOGETHER, TRANSLATED, TWO_STAGE
from migrate.search.bm25 import bm25_run
from migrate.search.fusion import RankComparison, reciprocal_rank_fusion
from migrate.search.own_index import Judged, own_index, rank_by_index, setting_of_index
from migrate.search.runs import DEPTH, Rankings, TopK, search, without_self
from migrate.stores.base import SearchSetting, Store
from migrate.stores.serving import as_compared
from migrate.vectors import Batch, Progress, Vectors, check_vectors

_NONE: frozenset[str] = frozenset()

_VECTORS_AT_ONCE = 1 << 28
"""Bytes of true vectors that are read at a time to rank documents again: 256 MiB."""


@dataclass(frozen=True, slots=True)
class TimedRun:
    """A run, and the seconds it took to rank, without embedding."""

    run: Rankings
    seconds: float


@dataclass(frozen=True, eq=False)
class Runs:
    """The answers of the stores of an audit, each asked once.

    `by_store` is what users get of each store: by its own index, the full re-embed by exact search. `exact` is the
    exact search of each. `bm25` is of the words of the translated store's texts, None where nothing needs it.
    `candidates` are the first ids for each query, as many as the deepest arm of the name `two-stage` or `together`
    ranks again.
    """

    by_store: Mapping[str, TimedRun] = field(default_factory=dict)
    exact: Mapping[str, TimedRun] = field(default_factory=dict)
    bm25: TimedRun | None = None
    candidates: Mapping[str, Sequence[Sequence[str]]] = field(default_factory=dict)

    @property
    def full(self) -> Rankings:
        """The run of the full re-embed, or of the pool in its place."""
        return self.by_store[FULL].run

    @property
    def compared(self) -> dict[str, Rankings]:
        """The rankings that the verdict compares: of the full re-embed, the translated store, and of staying."""
        return {name: self.by_store[name].run for name in (FULL, TRANSLATED, STAY) if name in self.by_store}


def search_stores(experiment: Experiment, *, for_pool: bool) -> Runs:
    """Ask every store that is there; `for_pool` says that a pool is to be made of what they find."""
    by_store = {name: search_store(experiment, name) for name in experiment.stores}
    # But for stores that were asked by their own index
    exact = dict(by_store)
    for name in by_store:
        if asks_index(experiment, name):
            exact[name] = search_exactly(experiment, name)
    has_texts = experiment.stores[TRANSLATED].store.info.has_texts
    needs_words = experiment.ranks_words or (has_texts and experiment.query_set.is_judged)
    bm25 = None
    if needs_words:
        bm25 = rank_by_words(experiment)
    candidates = {}
    if depths_asked(experiment) and (for_pool or can_rerank(experiment)):
        candidates = first_candidates(experiment)
    return Runs(by_store, exact, bm25, candidates)


def with_reference(runs: Runs, experiment: Experiment) -> Runs:
    """Return the runs with that of another full re-embed, such as a pool that has grown."""
    full = search_exactly(experiment, FULL)
    return replace(runs, by_store={**runs.by_store, FULL: full}, exact={**runs.exact, FULL: full})


def asks_index(experiment: Experiment, name: str) -> bool:
    """Return whether the store of that name answers by an index of its own."""
    return name in (TRANSLATED, STAY, BRIDGE) and own_index(experiment.stores[name].store) is not None


def search_store(experiment: Experiment, name: str, left_out: Collection[str] = _NONE) -> TimedRun:
    """Return what the store of that name answers, by the query vectors of its model, without some documents.

    What users ask answers by its own index, as it is stored; what stands for all true vectors is searched exactly.
    """
    if asks_index(experiment, name):
        return search_by_index(experiment, name, left_out=left_out)
    return search_exactly(experiment, name, left_out)


def search_by_index(
    experiment: Experiment,
    name: str,
    *,
    effort: int | None = None,
    depths: Sequence[int] = (CUT, DEPTH),
    left_out: Collection[str] = _NONE,
) -> TimedRun:
    """Return what the index of the store of that name finds; `effort` is another value of its setting."""
    searched = experiment.stores[name]
    experiment.progress(f"ask the index of {searched.store.info.name}", 0, None)
    # So that enough are left when a query's own document is dropped
    spare = int(experiment.query_set.exclude_self)
    judged = partial(_judged_as, searched, left_out)
    deep = [depth + spare for depth in depths]
    return _timed(experiment, lambda: _rank_by_index(experiment, name, judged, deep, effort))


def setting_of(experiment: Experiment, name: str) -> SearchSetting | None:
    """Return the setting of the search of the store of that name, with the value that programs set."""
    setting = setting_of_index(experiment.stores[name].store)
    new = setting_of_index(experiment.stores[TRANSLATED].store)
    effort = experiment.settings.search_effort
    # The value is that of the new store's programs: an old store of another kind keeps its own
    if setting is None or new is None or effort is None or setting.name != new.name:
        return setting
    return replace(setting, value=effort, most=max(effort, setting.most))


def _rank_by_index(
    experiment: Experiment, name: str, judged: Judged, depths: Sequence[int], effort: int | None = None
) -> Rankings:
    setting = setting_of(experiment, name)
    if effort is None and setting is not None and experiment.settings.search_effort is not None:
        effort = setting.value
    searched = experiment.stores[name]
    ids = experiment.query_set.query_ids
    index = own_index(searched.store)
    assert index is not None  # noqa: S101 - `asks_index` has said so
    return rank_by_index(index, ids, searched.queries, judged, depths=depths, effort=effort)


def _judged_as(searched: Searchable, left_out: Collection[str], ids: Sequence[str]) -> list[str | None]:
    """Return the document that each id is judged as; an id that the store did not list takes up a place, as here.

    None stands for the documents `left_out`.
    """
    keys = searched.keys
    rows = keys.ids.rows_of(ids)
    documents: list[str | None] = list(ids)
    listed = np.flatnonzero(rows >= 0)
    for position, document in zip(listed.tolist(), keys.documents.take(rows[listed]), strict=True):
        documents[position] = document
        if document in left_out:
            documents[position] = None
    return documents


def search_exactly(experiment: Experiment, name: str, left_out: Collection[str] = _NONE) -> TimedRun:
    """Return the exact search of the store of that name, whatever index it has, without some documents."""
    searched = experiment.stores[name]
    metric = searched.store.info.metric
    batches = _checked(searched.store, experiment.progress)
    judged = _judged(experiment, name, batches, left_out)
    ids = experiment.query_set.query_ids
    return _timed(experiment, lambda: search(judged, ids, searched.queries, metric=metric, depth=experiment.depth))


def _judged(
    experiment: Experiment, name: str, batches: Iterable[Batch], left_out_documents: Collection[str]
) -> Iterator[Batch]:
    """Yield the vectors of all rows with the documents that these are judged as, but for those left out."""
    documents = experiment.stores[name].keys.documents
    left_out = documents.all_rows_of(left_out_documents)
    start = 0
    for batch in batches:
        stop = start + len(batch)
        low, high = np.searchsorted(left_out, (start, stop))
        rows = np.delete(np.arange(start, stop), left_out[low:high] - start)
        vectors = batch.vectors
        if low < high:
            vectors = vectors[rows - start]
        yield Batch(documents.take(rows), _as_compared(experiment, name, vectors))
        start = stop


def _as_compared(experiment: Experiment, name: str, vectors: Vectors) -> Vectors:
    """Return vectors as the store of that name compares them; the full re-embed as the translated one does."""
    if name == FULL:
        name = TRANSLATED
    return as_compared(experiment.stores[name].store.info, vectors)


def _checked(store: Store, progress: Progress) -> Iterator[Batch]:
    done = 0
    stage = f"search {store.info.name}"
    for batch in store.scan():
        progress(stage, done, store.info.count)
        check_vectors(batch.ids, batch.vectors, source=store.info.location)
        done += len(batch)
        yield batch
    progress(stage, done, store.info.count)


def rank_by_words(experiment: Experiment) -> TimedRun:
    """Rank the translated store's texts by words alone."""
    translated = experiment.stores[TRANSLATED]
    names_of = translated.keys.documents.take
    queries = experiment.query_set.queries
    experiment.progress("rank with BM25", 0, None)
    texts = (document.text for document in translated.store.documents())
    return _timed(experiment, lambda: bm25_run(texts, queries, names_of=names_of, depth=experiment.depth))


def fuse(experiment: Experiment, *runs: TimedRun, weights: Sequence[float] | None = None) -> TimedRun:
    """Return runs fused by their ranks; the time is that of all of them and of the fusion."""
    rankings = [timed.run for timed in runs]
    fused = _timed(experiment, lambda: reciprocal_rank_fusion(rankings, depth=experiment.depth, weights=weights))
    return TimedRun(fused.run, sum(timed.seconds for timed in runs) + fused.seconds)


def fuse_stores(experiment: Experiment, runs: Runs) -> TimedRun:
    """Fuse the translated and the source store, each searched by queries of its own model, by their ranks."""
    # As live search begins: what the reference would teach of the old ranks is no part of what the reference judges
    old_weight = weight_of_old(experiment, runs)
    return fuse(experiment, runs.by_store[TRANSLATED], runs.by_store[STAY], weights=(2 - old_weight, old_weight))


def weight_of_old(experiment: Experiment, runs: Runs) -> float:
    """Return the weight, 0-1, of the source store's ranks beside those of the translated one, as live search begins.

    It is from how far both stores agree: what the reference would teach is no part of what the reference judges.
    """
    new = runs.by_store[TRANSLATED].run
    old = runs.by_store[STAY].run
    return RankComparison.of(new, old).weight(experiment.n_documents)


def first_candidates(experiment: Experiment) -> dict[str, Sequence[Sequence[str]]]:
    """Return the first ids for each query, best first, of the translated store and of both stores."""
    ids = experiment.query_set.query_ids
    depth = max(depths_asked(experiment))
    new = _first_ids(experiment, TRANSLATED, depth)
    candidates: dict[str, Sequence[Sequence[str]]] = {TWO_STAGE: [new.top(query_id, depth) for query_id in ids]}
    if reranks_together(experiment):
        old = _first_ids(experiment, STAY, depth)
        both = reciprocal_rank_fusion([new, old], depth=2 * depth)
        # A document of the source may be gone from the translated store
        listed = {doc_id for top in both.rankings.values() for doc_id in top}
        present = experiment.stores[TRANSLATED].keys.ids.present(listed)
        firsts = (both.rankings.get(query_id, ()) for query_id in ids)
        candidates[TOGETHER] = [[doc_id for doc_id in first if doc_id in present][:depth] for first in firsts]
    return candidates


def _first_ids(experiment: Experiment, name: str, depth: int) -> Rankings:
    """Return the first ids of the store of that name for each query, whatever they are judged as."""
    searched = experiment.stores[name]
    if asks_index(experiment, name):
        listed = partial(_listed, searched.keys.ids)
        return _rank_by_index(experiment, name, listed, depths_asked(experiment))
    batches = (
        replace(batch, vectors=_as_compared(experiment, name, batch.vectors))
        for batch in _checked(searched.store, experiment.progress)
    )
    ids = experiment.query_set.query_ids
    return search(batches, ids, searched.queries, metric=searched.store.info.metric, depth=depth)


def _listed(names: Names, ids: Sequence[str]) -> list[str | None]:
    """Return ids as they are; None for one that the store did not list."""
    listed: list[str | None] = list(ids)
    for position in np.flatnonzero(names.rows_of(ids) < 0).tolist():
        listed[position] = None
    return listed


def candidate_rows(experiment: Experiment, runs: Runs, name: str, depth: int) -> list[Rows]:
    """Return the rows of the first `depth` candidates of each query in the reference; -1 for one that it lacks."""
    ids = experiment.stores[FULL].keys.ids
    return [ids.rows_of(first[:depth]) for first in runs.candidates[name]]


def rerank(experiment: Experiment, rows_of: Sequence[Rows], depth: int) -> TimedRun:
    """Rank some rows of the reference for each query, `depth` of them, by their true vectors."""
    return _timed(experiment, lambda: _reranked(experiment, rows_of, depth))


def _reranked(experiment: Experiment, rows_of: Sequence[Rows], depth: int) -> Rankings:
    count = len(rows_of)
    dim = experiment.stores[FULL].store.info.dim
    bytes_per_query = 4 * dim * depth
    step = max(_VECTORS_AT_ONCE // bytes_per_query, 1)
    rankings: dict[str, tuple[str, ...]] = {}
    for start in range(0, count, step):
        experiment.progress(f"rank {depth} again", start, count)
        block = range(start, min(start + step, count))
        for run in rank_true_rows(experiment, block, [rows_of[number] for number in block]):
            rankings |= run.rankings
    return Rankings(rankings)


def rank_true_rows(experiment: Experiment, block: range, rows_of: Sequence[NDArray[np.int64]]) -> Iterator[Rankings]:
    """Yield for each query of a block some rows of the reference, ranked; what several queries ask is read once."""
    searched = experiment.stores[FULL]
    reference = searched.store
    # What several queries ask for is read once
    rows = np.unique(np.concatenate(rows_of))
    batch = Batch([], np.empty((0, reference.info.dim), np.float32))
    if len(rows):
        batch = reference.get(rows)
    check_vectors(batch.ids, batch.vectors, source=reference.info.location)
    for number, query_rows in zip(block, rows_of, strict=True):
        query_id = experiment.query_set.query_ids[number]
        vector = searched.queries[number : number + 1]
        top = TopK([query_id], vector, metric=reference.info.metric, depth=experiment.depth)
        positions = np.searchsorted(rows, query_rows)
        top.add(searched.keys.documents.take(query_rows), _as_compared(experiment, FULL, batch.vectors[positions]))
        yield top.run()


def rank_by_id(experiment: Experiment, ordered: Rows) -> TimedRun:
    """Return the same documents for every query: the first by doc_id, by a row of each in their order."""
    first = tuple(experiment.stores[TRANSLATED].keys.documents.take(ordered[: experiment.depth]))
    return _timed(experiment, lambda: Rankings(dict.fromkeys(experiment.query_set.query_ids, first)))


def rank_at_random(experiment: Experiment, ordered: Rows) -> TimedRun:
    """Return documents drawn at random for each query, of which `ordered` has a row each."""

    def draw() -> Rankings:
        rng = np.random.default_rng(experiment.settings.seed)
        query_ids = experiment.query_set.query_ids
        documents = experiment.stores[TRANSLATED].keys.documents
        size = min(experiment.depth, len(ordered))
        draws = (rng.choice(len(ordered), size, replace=False) for _ in query_ids)
        return Rankings({q: tuple(documents.take(ordered[drawn])) for q, drawn in zip(query_ids, draws, strict=True)})

    return _timed(experiment, draw)


def _timed(experiment: Experiment, answer: Callable[[], Rankings]) -> TimedRun:
    # Ranking alone is timed: how long a model takes to embed a query is the same for all arms of it
    started = time.perf_counter()
    run = answer()
    seconds = time.perf_counter() - started
    if experiment.query_set.exclude_self:
        run = without_self(run)
    return TimedRun(run, seconds)
