"""A search of a translated store with the new model, that ranks what it finds by true vectors as far as there are any.

    with LiveSearcher("new-store", "openai:text-embedding-3-small") as searcher:
        answer = searcher.search("How do I reset my password?", k=10)

True vectors are those that memory or the cache has, and those that can be embedded within the limits. The others count
by their translated vectors until the worker (`migrate.live.worker`) has embedded them, most wanted first.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
from collections import Counter as Tally
from collections.abc import Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from migrate.embedders import Embedder, Role, load_known
from migrate.embedders.abilities import warm_up
from migrate.embedders.base import Keep, WrappedEmbedder, with_model
from migrate.embedders.cache import UNKNOWN_QUERY, CachedEmbedder
from migrate.errors import LeadMigrateError, RemoteError, UsageError
from migrate.files import default_cache_path
from migrate.live.generation import Generation, Texts, generation_of, model_of, open_generation
from migrate.live.old_store import SEARCHES, Additions, BothFound, OldStore, joined
from migrate.live.state import OLD_STORE, Counter, LiveState, ServedQuery, state_path, text_hash
from migrate.live.true_vectors import LiveVectors, Pause
from migrate.manifest import ModelIdentity
from migrate.search.rerank import estimate_scores, rerank
from migrate.selection.choosers import digest_of
from migrate.stores import open_store
from migrate.stores.base import Store
from migrate.stores.file_store import as_files
from migrate.stores.registry import absolute_location
from migrate.stores.serving import Hits, is_cosine
from migrate.vectors import (
    Batch,
    Document,
    Progress,
    Query,
    Text,
    Vectors,
    as_vectors,
    check_vectors,
    no_progress,
    unit_rows,
)

_log = logging.getLogger(__name__)

_MONITORED: Final = 10
"""Documents of each answer that the monitor sees, even where fewer were asked for."""
_COPY_REST: Final = 20.0
"""A copy of a database serves for at least so many times as long as it took to make."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveLimits:
    """Limits of what a searcher does for a query.

    Attributes
    ----------
    depth : documents of the store that are ranked again; at most these are ever wanted
    max_documents : documents that a query may have embedded; 0 leaves all of them to the worker
    budget : documents that queries may have embedded in all, by all searchers of the store; None for no end. They hear
        of each other every `refresh_s` seconds, and what is under way comes to its end. The worker has its own budget
    max_ms : milliseconds that a query may wait for them; what is late serves the next one
    search_ms : milliseconds that the searches of an old and a new store may take; then the other answers alone
    sampled : the share of queries that is kept for the monitor
    refresh_s : seconds between looks for another store at the location or a changed text of a database, and between
        writes of what was counted
    memory_bytes : true vectors that may be held in memory
    """

    depth: int = 50
    max_documents: int = 8
    budget: int | None = None
    max_ms: float = 200.0
    search_ms: float = 2_000.0
    sampled: float = 0.1
    refresh_s: float = 1.0
    memory_bytes: int = 512 << 20

    def __post_init__(self) -> None:
        least = {"depth": 1, "max_documents": 0, "memory_bytes": 0} | ({} if self.budget is None else {"budget": 0})
        for name, smallest in least.items():
            number = getattr(self, name)
            if not isinstance(number, int) or number < smallest:
                raise UsageError(f"LiveLimits: {name} is {number!r}; give a whole number from {smallest} on")
        is_above_0 = self.refresh_s > 0 and self.search_ms > 0
        if not (self.max_ms >= 0 and is_above_0 and 0 <= self.sampled <= 1):  # also where one is not a number
            raise UsageError(
                f"LiveLimits: max_ms {self.max_ms}, search_ms {self.search_ms}, refresh_s {self.refresh_s} or sampled "
                f"{self.sampled} is out of its range; give max_ms from 0 on, search_ms and refresh_s above 0, and "
                "sampled from 0 to 1"
            )


@dataclass(frozen=True, slots=True, eq=False)
class LiveAnswer:
    """The documents that answer a query, best first, with their scores, (n,), by the metric of the store.

    `untrue` counts the documents that were ranked without a true vector, of the pool, and `generation` names the
    store that answered: index, texts and query model were those of one. `answered_by` has `new`, `old` or both stores:
    where both have answered, documents are in the order of their ranks in both, and where the old one did alone, scores
    are its own.
    """

    ids: tuple[str, ...]
    scores: NDArray[np.float32]
    untrue: int
    generation: str
    answered_by: tuple[str, ...] = ("new",)


@dataclass
class _Buffer:
    """Counts since they were last written down; `pools` are those of queries, which are counted as wanted then."""

    counts: Tally[Counter] = field(default_factory=Tally)
    wanted: Tally[str] = field(default_factory=Tally)
    pools: list[tuple[Sequence[str], NDArray[np.intp]]] = field(default_factory=list)
    choosers: set[str] = field(default_factory=set)
    queries: list[ServedQuery] = field(default_factory=list)


@dataclass(frozen=True)
class _Untrue:
    """The documents of a pool without a true vector in the store, in the order of the pool.

    `query`, (dim,), is of unit length where the store compares by cosine; `scores`, (n,), are by the store's vectors.
    """

    generation: Generation
    query: Vectors
    ids: tuple[str, ...]
    digests: Sequence[bytes | None]
    scores: NDArray[np.floating]

    def missing(self, present: NDArray[np.intp], scores: NDArray[np.floating] | None = None) -> dict[str, bytes]:
        """Return those with a text and no vector at hand, by id, the best `scores` first if they are given."""
        at_hand, order = set(present.tolist()), range(len(self.ids))
        if scores is not None:
            order = np.argsort(scores if self.generation.store.info.metric == "l2" else -scores, kind="stable").tolist()
        ids, digests = self.ids, self.digests
        return {ids[row]: digest for row in order if row not in at_hand and (digest := digests[row]) is not None}

    def estimates(self, present: NDArray[np.intp], true: Vectors) -> NDArray[np.floating]:
        """Return the scores, (n,), in which those at the places `present` count by their true vectors."""
        if not len(present) or (translated := self._translated) is None:
            return self.scores
        info = self.generation.store.info
        rows = unit_rows(true) if is_cosine(info) else true
        return estimate_scores(self.query, self.scores, translated, present, rows, metric=info.metric)

    @cached_property
    def _translated(self) -> Vectors | None:
        return self.generation.texts.vectors(self.ids)


_Found = tuple[Generation, Vectors, Hits]
Models = str | Embedder | Sequence[str | Embedder] | None


class LiveSearcher:
    """Answers queries over the store at a location, whichever is there, for all threads of a process.

    A folder, table or collection may be switched under it: the new one is opened beside the old one, which answers
    until then. Make one in each process, after it was forked. A context manager.

    Parameters
    ----------
    location
        Location of a translated store; one that is complete is only searched.
    models
        The model of the store: an embedder, or a spec; None for what the store's manifest says. A list of them where a
        store of another model may come to the location, as by a rollback: each query is then embedded by the model of
        the store that answers it.
    limits
        Limits of what is done for a query.
    old, old_model
        The store before the migration and its model, an embedder or a spec, if that still answers: both stores are
        searched at once, and either answers where the other one fails. What the old one adds falls as true vectors
        come; once it is next to nothing, it is asked for few queries, and where the new one fails.
    cache
        The embedding cache of models that have none yet; None for the user's.

    Raises
    ------
    LeadMigrateError
        There is no store, its model is not among the models or of another dimension, or the state cannot be opened; or
        so of the old store.
    """

    def __init__(
        self,
        location: str | Path,
        models: Models = None,
        *,
        limits: LiveLimits | None = None,
        old: str | Path | None = None,
        old_model: str | Embedder | None = None,
        cache: str | Path | None = None,
    ) -> None:
        self.location = absolute_location(location)
        self.limits = limits or LiveLimits()
        cache_path = None if cache is None else Path(cache).absolute()
        self._lock, self._refreshing = threading.Lock(), threading.Lock()
        self._marks, self._copied_until = -1, 0.0
        self._buffer = _Buffer()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self._random = random.Random()  # noqa: S311 - which queries are looked at
        store = open_store(self.location)
        embedders = _embedders(store, model_of(store), models, cache_path)
        self._state = LiveState(state_path(store))
        self._embedded = int(self._state.counters()["embedded_by_queries"])
        self._vectors = {
            embedder.identity: LiveVectors(embedder, memory_bytes=self.limits.memory_bytes, count=self._count)
            for embedder in embedders
        }
        self._pause, self._late, self._unreadable = Pause(), Pause(), Pause()
        self._old: OldStore | None = None
        self._searches = ThreadPoolExecutor(SEARCHES, thread_name_prefix="live-new")
        try:
            self.generation = self._opened()
            if old is not None or old_model is not None:
                self._old = self._old_store(old, old_model, cache_path)
            for embedder in embedders:
                warm_up(embedder)
        except BaseException:
            self._stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @classmethod
    def of(cls, searcher: LiveSearcher | str | Path, models: Models = None, **options: Any) -> LiveSearcher:
        """Return a searcher as it is, or the one of a location."""
        return searcher if isinstance(searcher, LiveSearcher) else cls(searcher, models, **options)

    def close(self) -> None:
        """Write down what was counted, and stop; what is being embedded comes to its end."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join()
        self._stop()

    def _stop(self) -> None:
        self._searches.shutdown(wait=False, cancel_futures=True)
        if self._old is not None:
            self._old.close()
        for vectors in self._vectors.values():
            vectors.close()
        if hasattr(self, "generation"):  # it could be opened
            with suppress(LeadMigrateError):
                self._write_down()
        self._state.close()

    def search(self, query: str | Vectors, k: int = 10, where: Any = None) -> LiveAnswer:
        """Return the best `k` documents for a query: a text, or its vector, (dim,), by the model of the store.

        `where` is a filter, see `Store.search`. Nothing that fails at documents is an error.

        Raises
        ------
        UsageError, VectorError
            `k` is below 1, the filter means nothing, the vector is not of the model, or the searcher is closed.
        InputError, RemoteError
            The query cannot be embedded.
        StoreError
            The store at the location is gone, or of another model.
        """
        if k < 1:
            raise UsageError(f"k must be at least 1, not {k}")
        if self._closed.is_set():
            raise self._closed_error()
        with self._lock:
            if self._thread is None:  # at the first query, in the process that asks
                self._thread = threading.Thread(target=self._keep_up, name="live-refresh", daemon=True)
                self._thread.start()
        started = time.perf_counter()
        depth = max(self.limits.depth, k, _MONITORED)
        found = self._search_stores(query, depth, where)
        if isinstance(found, Hits):
            with self._lock:
                self._buffer.counts.update({"queries": 1, "degraded_queries": 1})
            return LiveAnswer(found.ids[:k], found.scores[:k], len(found.ids), self.generation.key, ("old",))
        (generation, vector, hits), old = found
        answer = self._answer(generation, query, vector, hits, k, old)
        with self._lock:
            counts = self._buffer.counts
            counts["queries"] += 1
            counts["degraded_queries"] += bool(answer.untrue)
            # A filter hides documents from the monitor; queries wait in memory while the state cannot be written to.
            if where is None and len(self._buffer.queries) < 1_000 and self._random.random() < self.limits.sampled:
                self._buffer.queries.append(ServedQuery(vector, answer.ids, answer.scores, answer.untrue))
            counts["query_seconds"] += round(time.perf_counter() - started, 6)  # type: ignore[assignment]
        return replace(answer, ids=answer.ids[:k], scores=answer.scores[:k])

    def _search_new(self, query: str | Vectors, depth: int, where: Any) -> _Found:
        while True:
            generation = self.generation
            vector = self._vector(generation, query)
            hits = generation.index.search(vector[None], depth, where)[0]
            # A database may have been switched before it answered, and switched back since: its vectors would be of
            # another model.
            is_latest = self.generation.index is generation.index
            if generation.is_in_memory or (is_latest and not generation.is_stale()):
                return generation, vector, hits
            self.refresh()

    def _search_stores(self, query: str | Vectors, depth: int, where: Any) -> tuple[_Found, Hits | None] | Hits:
        """Search the new store, and the old one meanwhile; return what the old one has found if only that answers.

        A vector of the new model says nothing to the old store. Where that adds nothing any more, as to a store of true
        vectors, it is asked once the new one has failed.
        """
        store = self._old
        if store is None or not isinstance(query, str):
            return self._search_new(query, depth, where), None
        at_once = self._answers_at_once(query)
        begun, is_left_alone = time.monotonic(), not at_once and not self._late.is_over
        is_wanted = is_left_alone or (self.generation.is_translated and store.is_wanted())
        beside = store.ask(query, depth, where) if is_wanted else None
        found, search, failure = None, None, None
        if at_once:
            found = self._search_new(query, depth, where)
        elif not is_left_alone:
            search = self._begin_search(query, depth, where)
            found, failure = self._await_new(search)
        if found is None and not is_wanted:
            begun, beside = time.monotonic(), store.ask(query, depth, where)
        until = begun + self.limits.search_ms / 1000
        hits = None if beside is None else store.answer_of(beside, until - time.monotonic())
        if found is not None:
            return found, hits
        if hits is not None:
            return hits
        if failure is not None:
            raise failure
        # Neither was in time: it is waited for as if there were no old store
        return (self._search_new(query, depth, where) if search is None else self._result_of(search)), None

    def _answers_at_once(self, query: str) -> bool:
        """Tell if the new store waits for nobody: it is in memory, and so is the vector of the query."""
        generation = self.generation
        return generation.is_in_memory and generation.vectors.knows_query(query)

    def _begin_search(self, query: str | Vectors, depth: int, where: Any) -> Future[_Found]:
        try:
            return self._searches.submit(self._search_new, query, depth, where)
        except RuntimeError:  # closed meanwhile
            raise self._closed_error() from None

    def _await_new(self, search: Future[_Found]) -> tuple[_Found | None, Exception | None]:
        """Return what the new store finds in time, or how its model failed; raises what is about query or store."""
        try:
            found = self._result_of(search, self.limits.search_ms / 1000)
        except Exception as error:
            if isinstance(error, LeadMigrateError) and not isinstance(error, RemoteError):
                raise
            failure = error if search.done() else None
            if self._late.fail():
                reason = "the new one is late" if failure is None else str(error)
                _log.warning("%s: the old store answers alone: %s", self.location, reason)
            return None, failure
        self._late.end()
        return found, None

    def _result_of(self, search: Future[_Found], seconds: float | None = None) -> _Found:
        try:
            return search.result(seconds)
        except CancelledError:
            raise self._closed_error() from None

    def _closed_error(self) -> UsageError:
        return UsageError(f"{self.location}: this searcher was closed; make another")

    async def asearch(self, query: str | Vectors, k: int = 10, where: Any = None) -> LiveAnswer:
        """Search as `search`, in a thread of its own."""
        return await asyncio.to_thread(self.search, query, k, where)

    def documents(self, ids: Sequence[str]) -> list[Document]:
        """Return the documents of some ids, in their order, without those that are gone."""
        documents = self.generation.texts.find(ids)
        return [documents[doc_id] for doc_id in ids if doc_id in documents]

    def scored_documents(self, query: str | Vectors, k: int, where: Any = None) -> list[tuple[Document, float]]:
        """Return the documents of `search` with their scores, without those that are gone."""
        answer = self.search(query, k, where)
        scores = dict(zip(answer.ids, answer.scores.tolist(), strict=True))
        return [(document, scores[document.id]) for document in self.documents(answer.ids)]

    def nearness(self, score: float) -> float:
        """Return a score that grows with nearness: the inner product, that of unit vectors for a squared distance."""
        return 1 - score / 2 if self.generation.store.info.metric == "l2" else score

    def refresh(self) -> None:
        """Look now for another store at the location, and write down what was counted.

        Raises `StoreError` where it is of a model that queries are not embedded by; one in memory goes on answering.
        """
        with self._refreshing:
            try:
                generation = self.generation
                if generation.is_stale():
                    self._open_again()
                elif generation.store.is_copy or not generation.is_in_memory:
                    # Marks are read before the look at the copy: vectors are written first, and marked then.
                    version = self._state.true_version
                    true = None if version == self._marks else self._state.true_documents()
                    if generation.is_behind():
                        if time.monotonic() >= self._copied_until:
                            self._open_again()
                    elif true is not None:
                        self.generation, self._marks = replace(generation, true_in_store=true), version
                if self._old is not None:
                    self._old.refresh()
            finally:
                self._write_down()

    # Answering.

    def _answer(
        self,
        generation: Generation,
        query: str | Vectors,
        vector: Vectors,
        hits: Hits,
        k: int,
        old: Hits | None,
    ) -> LiveAnswer:
        """Rank the first hits of a query by true vectors: those at hand, of the cache, and what may be embedded now.

        The answer has as many documents as the monitor wants to see.
        """
        deadline = time.monotonic() + self.limits.max_ms / 1000
        info, texts = generation.store.info, generation.texts
        vectors, cosine = generation.vectors, is_cosine(info)
        query_vector = unit_rows(vector[None])[0] if cosine else vector
        depth, both = max(self.limits.depth, k), None
        if old is not None and self._old is not None:
            both = BothFound(hits.ids, old.ids, info.count)
            hits = joined(info, texts, query_vector, hits, old.ids, depth=depth)
        pool = hits.ids[:depth]
        scores: NDArray[np.floating] = hits.scores
        hashes = texts.hashes(pool)
        lacking = generation.untrue(pool, hashes)
        ids, digests = [pool[row] for row in lacking.tolist()], [hashes[row] for row in lacking.tolist()]
        chooser = digest_of(Query("query", query)) if isinstance(query, str) else UNKNOWN_QUERY
        self._want(ids, lacking, chooser)
        untrue = _Untrue(generation, query_vector, tuple(ids), digests, hits.scores[lacking])
        present, rows = vectors.in_memory(digests)
        if unasked := vectors.unasked(untrue.missing(present)):
            vectors.look_up(self._documents(texts, unasked), seconds=deadline - time.monotonic())
            present, rows = vectors.in_memory(digests)
        if len(present) < len(ids) and (allowed := self._allowed()):
            best_first = None if both is not None else untrue.estimates(present, rows)  # else by the ranks in both
            accepted = list(vectors.accepted(untrue.missing(present, best_first)).items())
            if chosen := dict(accepted[:allowed]):
                documents = self._documents(texts, chosen)
                vectors.embed(documents, chooser=chooser, seconds=deadline - time.monotonic())
                present, rows = vectors.in_memory(digests)
        if len(present) < len(ids):
            scores = np.array(hits.scores, np.float64)
            scores[lacking] = untrue.estimates(present, rows)
        best = rerank(
            query_vector,
            hits.ids,
            scores,
            lacking[present],
            unit_rows(rows) if cosine else rows,
            metric=info.metric,
            depth=min(max(k, _MONITORED), len(hits.ids)) if both is None else len(hits.ids),
        )
        if both is not None and self._old is not None:
            true = [ids[row] for row in present.tolist()]
            true_share = 1 - (len(ids) - len(true)) / max(len(pool), 1)
            best = self._old.fuse(best, both, true, true_share=true_share, depth=max(k, _MONITORED))
        answered_by = ("new",) if both is None else ("new", "old")
        ranked = np.array([score for _, score in best], np.float32)
        shown = tuple(doc_id for doc_id, _ in best)
        return LiveAnswer(shown, ranked, len(ids) - len(present), generation.key, answered_by)

    def _vector(self, generation: Generation, query: str | Vectors) -> Vectors:
        if isinstance(query, str):
            return generation.vectors.of_query(query)
        if len(self._vectors) > 1:
            raise UsageError(
                f"{self.location}: with several models a query must be a text: its vector would not say which one's"
            )
        rows = as_vectors(np.atleast_2d(query), dim=generation.store.info.dim, source="the query")
        check_vectors(["query"], rows, source="the query", noun="query")
        vector: Vectors = rows[0]
        return vector

    def _want(self, ids: Sequence[str], positions: NDArray[np.intp], chooser: str) -> None:
        """Note documents without a true vector in the store, their places in a pool, and who wants them."""
        with self._lock:
            if ids:
                self._buffer.choosers.add(chooser)
                self._buffer.pools.append((ids, positions))

    def _allowed(self) -> int:
        """Return how many documents a query may have embedded now."""
        most, budget = self.limits.max_documents, self.limits.budget
        with self._lock:
            spent = self._embedded + int(self._buffer.counts["embedded_by_queries"])
        return most if budget is None else max(min(most, budget - spent), 0)

    def _documents(self, texts: Texts, hashes: Mapping[str, bytes]) -> dict[bytes, Document]:
        """Return documents by the hash of their text, as long as that is still their text."""
        try:
            documents = texts.find(list(hashes))
        except LeadMigrateError as error:  # another store has come to its place, which takes a while to open
            if self._unreadable.fail():
                _log.warning("documents are ranked by the vectors of the store: %s", error)
            return {}
        self._unreadable.end()
        return {
            hashes[doc_id]: document
            for doc_id, document in documents.items()
            if text_hash(document.text) == hashes[doc_id]
        }

    # In the background.

    def _old_store(self, location: str | Path | None, model: str | Embedder | None, cache: Path | None) -> OldStore:
        """Open the store before the migration, with its model behind a cache."""
        if location is None or model is None:
            raise UsageError("old and old_model go together: the store before the migration, and the model it is of")
        place = absolute_location(location)
        if place == self.location or generation_of(store := open_store(place)) == self.generation.key:
            raise UsageError(f"{place}: old is the new store itself; name the store before the migration")
        recorded = store.info.manifest.model if store.info.manifest is not None else None
        embedder = load_known(model, recorded, state=store.folder) if isinstance(model, str) else model
        if embedder.cacheable:
            embedder = CachedEmbedder(embedder, cache or default_cache_path())
        if embedder.identity == self.generation.vectors.embedder.identity:
            raise UsageError(
                f"{place}: old_model is {embedder.identity.spec}, the model of the new store; name the one before the "
                "migration"
            )
        warm_up(embedder)
        vectors = LiveVectors(embedder, memory_bytes=0, count=lambda _: None)
        noted = self._state.value(OLD_STORE) or {}
        return OldStore(place, vectors, Additions(**noted), new=self._vectors_there, count=self._count)

    def _vectors_there(self, ids: Sequence[str]) -> Batch | None:
        return self.generation.texts.vectors_there(ids)

    def _opened(self) -> Generation:
        started, marked = time.monotonic(), self._state.true_documents()
        generation = open_generation(self.location, self._vectors, valid_s=self.limits.refresh_s)
        self._state.adopt(generation.vectors.embedder.cache_scope("document"), generation.key)
        if as_files(generation.store) is not None:  # what is true is in the cache, or the files say so
            return generation
        true = self._state.true_documents()
        if generation.store.is_copy:  # what the worker wrote while the copy was made may not be in it
            true = dict(true.items() & marked.items())
            now = time.monotonic()
            self._copied_until = now + max(_COPY_REST * (now - started), self.limits.refresh_s)
        return replace(generation, true_in_store=true)

    def _open_again(self) -> None:
        """Let the store that is there now answer; one that cannot is not read again all the time."""
        if self.generation.is_in_memory and not self._pause.is_over:
            return
        try:
            self.generation = self._opened()
        except LeadMigrateError:
            self._pause.fail()
            raise
        self._pause.end()

    def _keep_up(self) -> None:
        while not self._closed.wait(self.limits.refresh_s):
            try:
                self.refresh()
            except LeadMigrateError as error:
                _log.warning("%s", error)

    def _count(self, counts: Mapping[Counter, float]) -> None:
        with self._lock:
            self._buffer.counts.update(counts)

    def _write_down(self) -> None:
        """Write all that was counted at once, or keep it for the next time."""
        with self._lock:
            buffer, self._buffer = self._buffer, _Buffer()
            self._embedded += int(buffer.counts["embedded_by_queries"])
        uncertainties = self.generation.uncertainties
        new_additions, all_additions = None if self._old is None else self._old.take_counted(), None
        for ids, positions in buffer.pools:
            buffer.wanted.update(dict(zip(ids, (1 / (positions + 1)).tolist(), strict=True)))
        try:
            with self._state.transaction():
                if buffer.wanted:
                    weights = zip(buffer.wanted.values(), uncertainties(buffer.wanted), strict=True)
                    self._state.want(dict(zip(buffer.wanted, weights, strict=True)), buffer.choosers)
                if buffer.queries:
                    self._state.keep_queries(buffer.queries)
                if buffer.counts:
                    self._state.count(buffer.counts)
                if new_additions is not None and new_additions.queries:
                    all_additions = Additions(**(self._state.value(OLD_STORE) or {}))
                    all_additions.include(new_additions)
                    self._state.note(OLD_STORE, asdict(all_additions))
            if self.limits.budget is not None:
                self._embedded = int(self._state.counters()["embedded_by_queries"])
        except BaseException:
            with self._lock:
                self._embedded -= int(buffer.counts["embedded_by_queries"])
                self._buffer.counts.update(buffer.counts)
                self._buffer.wanted.update(buffer.wanted)
                self._buffer.choosers |= buffer.choosers
                self._buffer.queries[:0] = buffer.queries
            if self._old is not None and new_additions is not None:
                self._old.put_back(new_additions)
            raise
        if self._old is not None and all_additions is not None:
            self._old.go_by(all_additions)


def _embedders(store: Store, identity: ModelIdentity, models: Models, cache: Path | None) -> list[Embedder]:
    """Return the models by which queries may be embedded, each behind a cache; `own` is the store's own."""
    named = identity.spec if models is None else models
    listed = [named] if isinstance(named, str | Embedder) else list(named) if isinstance(named, Sequence) else []
    if not listed or not all(isinstance(model, str | Embedder) for model in listed):
        raise UsageError(
            f"{store.info.location}: {models!r} is neither an embedder, nor a spec such as "
            "openai:text-embedding-3-small, nor a list of them; name the store's own model, or leave it out"
        )
    embedders = []
    for model in listed:
        if isinstance(model, str):
            model = load_known(model, identity, state=store.folder)
        if model.cacheable:
            model = CachedEmbedder(model, cache or default_cache_path())
        embedders.append(
            with_model(model, lambda inner: _AsNoted(inner, identity) if _is_noted(inner, identity) else inner)
        )
    return embedders


def _is_noted(model: Embedder, identity: ModelIdentity) -> bool:
    """Tell if a model of an API, which may be out when a server starts, is by its name the store's own."""
    profile = model.profile
    named = (profile.spec, profile.document_prefix, profile.query_prefix)
    return profile.is_api and named == (identity.spec, identity.document_prefix, identity.query_prefix)


class _AsNoted(WrappedEmbedder):
    """A model behind an API that is what the store says: nothing is asked of a server before queries are answered."""

    def __init__(self, embedder: Embedder, model: ModelIdentity) -> None:
        super().__init__(embedder)
        self._model = model

    @property
    def identity(self) -> ModelIdentity:
        return self._model

    def quick_identity(self) -> ModelIdentity:
        return self._model

    def around(self, embedder: Embedder) -> Embedder:
        return _AsNoted(embedder, self._model)

    def embed(self, texts: Sequence[Text], role: Role, *, progress: Progress = no_progress) -> Vectors:
        return self.embedder.embed(texts, role, progress=progress)

    def embed_each(self, texts: Sequence[Text], role: Role, keep: Keep, *, progress: Progress = no_progress) -> None:
        self.embedder.embed_each(texts, role, keep, progress=progress)
