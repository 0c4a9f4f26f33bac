"""A search of a translated store with the new model, that ranks what it finds by true vectors as far as there are any.

    with LiveSearcher("new-store", "openai:text-embedding-3-small") as searcher:
        answer = searcher.search("How do I reset my password?", k=10)

True vectors are those that memory or the cache has, and those that can be embedded within the limits. The others count
by their translated vectors until the worker (`migrate.live.worker`) has embedded them, most wanted first.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Self

import numpy as np

from migrate.embedders import Embedder, Role, load_known
from migrate.embedders.abilities import warm_up
from migrate.embedders.base import Keep, WrappedEmbedder, with_model
from migrate.embedders.cache import UNKNOWN_QUERY, CachedEmbedder
from migrate.errors import LeadMigrateError, RemoteError, UsageError
from migrate.files import default_cache_path
from migrate.live.counts import Counts
from migrate.live.generation import Generation, generation_of, model_of, open_generation
from migrate.live.old_store import OldStore
from migrate.live.options import LiveLimits
from migrate.live.state import OLD_STORE, LiveState, ServedQuery, state_path
from migrate.live.true_vectors import LiveVectors, Pause
from migrate.live.two_stages import MONITORED, FirstStage, LiveAnswer, second_stage
from migrate.manifest import ModelIdentity
from migrate.search.fusion import RankComparison
from migrate.selection.choosers import digest_of
from migrate.stores import open_store
from migrate.stores.base import Store
from migrate.stores.file_store import as_files
from migrate.stores.registry import absolute_location
from migrate.stores.serving import Hits
from migrate.vectors import Document, Progress, Query, Text, Vectors, as_vectors, check_vectors, no_progress

_log = logging.getLogger(__name__)

_COPY_REST: Final = 20.0
"""A copy of a database serves for at least so many times as long as it took to make."""


@dataclass(frozen=True)
class _Resources:
    """Opened parts of a searcher: the state that it shares, its counts, the model, and the old store beside."""

    state: LiveState
    counts: Counts
    vectors: LiveVectors
    old: OldStore | None = None

    def close(self) -> None:
        """Stop; what is being embedded comes to its end."""
        if self.old is not None:
            self.old.close()
        self.vectors.close()


class LiveSearcher:
    """Answers queries over the store at a location, whichever is there, for all threads of a process.

    A folder, table or collection may be switched under it: the new one is opened beside the old one, which answers
    until then. Make one in each process, after it was forked. A context manager.

    Parameters
    ----------
    location
        Location of a translated store; one that is complete is only searched.
    model
        The model of the store: an embedder, or a spec; None for what the store's manifest says.
    limits
        Limits of what is done for a query.
    old, old_model
        The store before the migration and its model, an embedder or a spec, if that still answers: both stores are
        searched at once, and either answers where the other one fails.
    cache
        The embedding cache of a model that has none yet; None for the user's.

    Raises
    ------
    LeadMigrateError
        There is no store, its model is another or of another dimension, or the state cannot be opened; or so of the old
        store.
    """

    def __init__(
        self,
        location: str | Path,
        model: str | Embedder | None = None,
        *,
        limits: LiveLimits | None = None,
        old: str | Path | None = None,
        old_model: str | Embedder | None = None,
        cache: str | Path | None = None,
    ) -> None:
        self.location = absolute_location(location)
        self.limits = limits or LiveLimits()
        self._lock = threading.Lock()
        self._refreshing = threading.Lock()
        self._marks = -1
        self._copied_until = 0.0
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self._unopened = Pause()
        self._failing = Pause()
        cache_path = default_cache_path() if cache is None else Path(cache).absolute()
        store = open_store(self.location)
        embedder = _embedder(store, model, cache_path)
        state = LiveState(state_path(store))
        counts = Counts(state, budget=self.limits.budget, sampled=self.limits.sampled)
        vectors = LiveVectors(embedder, memory_bytes=self.limits.memory_bytes, count=counts.add)
        self._opened = _Resources(state, counts, vectors)
        try:
            self.generation = self._opened_now()
            if old is not None or old_model is not None:
                beside = self._open_old(old, old_model, cache_path)
                self._opened = replace(self._opened, old=beside)
            warm_up(embedder)
        except BaseException:
            self._opened.close()
            state.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Write down what was counted, and stop; what is being embedded comes to its end."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join()
        self._opened.close()
        # A full disk is no reason to leave a server hanging at its end
        with suppress(LeadMigrateError):
            self._write_down()
        self._opened.state.close()

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
            raise UsageError(f"{self.location}: this searcher was closed; make another")
        self._start_keeping_up()
        opened = self._opened
        # As deep for any k: the monitor compares queries, whatever their callers show
        depth = max(self.limits.depth, k, MONITORED)
        found = self._search_stores(query, depth, where)
        if isinstance(found, Hits):
            opened.counts.add({"queries": 1, "degraded_queries": 1})
            return LiveAnswer(found.ids[:k], found.scores[:k], len(found.ids), self.generation.key, ("old",))
        answer = second_stage(found, limits=self.limits, counts=opened.counts, old_store=opened.old, k=k)
        opened.counts.add({"queries": 1, "degraded_queries": bool(answer.untrue)})
        if where is None:  # a filter hides documents from the monitor
            opened.counts.sample(ServedQuery(found.query, answer.ids, answer.scores, answer.untrue))
        return replace(answer, ids=answer.ids[:k], scores=answer.scores[:k])

    def documents(self, ids: Sequence[str]) -> list[Document]:
        """Return the documents of some ids, in their order, without those that are gone."""
        documents = self.generation.texts.find(ids)
        return [documents[doc_id] for doc_id in ids if doc_id in documents]

    def refresh(self) -> None:
        """Look now for another store at the location, and write down what was counted.

        Raises `StoreError` where it is of a model that queries are not embedded by; one in memory goes on answering.
        """
        with self._refreshing:
            try:
                self._look_again()
                if self._opened.old is not None:
                    self._opened.old.refresh()
            finally:
                self._write_down()

    # Answering.

    def _search_stores(self, query: str | Vectors, depth: int, where: Any) -> FirstStage | Hits:
        """Search the new store, and the old one meanwhile; return what the old one has found if only that answers.

        A vector of the new model says nothing to the old store. That adds nothing to a store of true vectors, for which
        it is asked only once the new model has failed.
        """
        old = self._opened.old
        if old is None or not isinstance(query, str):
            return self._search_new(query, depth, where)
        seconds = self.limits.search_ms / 1000
        is_left_alone = not self._failing.is_over
        beside = None
        if self.generation.is_translated or is_left_alone:
            beside = old.ask(query, depth, where, seconds=seconds)
        # The model has just failed: waiting for it again would make every query as slow as its time-out
        if is_left_alone and beside is not None and (hits := old.answer_of(beside)) is not None:
            return hits
        try:
            found = self._search_new(query, depth, where)
        except Exception as error:
            if isinstance(error, LeadMigrateError) and not isinstance(error, RemoteError):
                raise  # it is about the query or the store
            if self._failing.fail():
                _log.warning("%s: the old store answers alone: %s", self.location, error)
            # It was not asked at once where the new store is complete
            beside = beside or old.ask(query, depth, where, seconds=seconds)
            if beside is None or (hits := old.answer_of(beside)) is None:
                raise
            return hits
        self._failing.end()
        if beside is None:
            return found
        return replace(found, old=old.answer_of(beside))

    def _search_new(self, query: str | Vectors, depth: int, where: Any) -> FirstStage:
        while True:
            generation = self.generation
            vector = self._vector(query)
            hits = generation.index.search(vector[None], depth, where)[0]
            # A database may have been switched before it answered, and switched back since: its vectors would be of
            # another model.
            is_latest = self.generation.index is generation.index
            if generation.is_in_memory or (is_latest and not generation.is_stale()):
                chooser = digest_of(Query("query", query)) if isinstance(query, str) else UNKNOWN_QUERY
                return FirstStage(generation, vector, hits, chooser)
            self.refresh()

    def _vector(self, query: str | Vectors) -> Vectors:
        if isinstance(query, str):
            return self._opened.vectors.of_query(query)
        rows = as_vectors(np.atleast_2d(query), dim=self.generation.store.info.dim, source="the query")
        check_vectors(["query"], rows, source="the query", noun="query")
        vector: Vectors = rows[0]
        return vector

    # Keeping up with the store.

    def _open_old(self, location: str | Path | None, model: str | Embedder | None, cache: Path) -> OldStore:
        """Open the store before the migration, with its model behind a cache."""
        if location is None or model is None:
            raise UsageError("old and old_model go together: the store before the migration, and the model it is of")
        place = absolute_location(location)
        # After a switch both names may lead to one store
        if place == self.location or generation_of(store := open_store(place)) == self.generation.key:
            raise UsageError(f"{place}: old is the new store itself; name the store before the migration")
        recorded = None
        if store.info.manifest is not None:
            recorded = store.info.manifest.model
        embedder = load_known(model, recorded, state=store.folder) if isinstance(model, str) else model
        embedder = _cached(embedder, cache)
        if embedder.identity == self._opened.vectors.embedder.identity:
            raise UsageError(
                f"{place}: old_model is {embedder.identity.spec}, the model of the new store; name the one before the "
                "migration"
            )
        warm_up(embedder)
        # The old store has all its vectors: nothing is embedded of its documents, and nothing counted
        vectors = LiveVectors(embedder, memory_bytes=0, count=lambda _: None)
        compared = RankComparison(**(self._opened.state.value(OLD_STORE) or {}))
        return OldStore(place, vectors, compared, new=lambda ids: self.generation.texts.vectors_there(ids))

    def _opened_now(self) -> Generation:
        """Open the store that is at the location now."""
        started = time.monotonic()
        state = self._opened.state
        marked = state.documents.true()
        generation = open_generation(self.location, self._opened.vectors, valid_s=self.limits.refresh_s)
        state.adopt(generation.vectors.embedder.cache_scope("document"), generation.key)
        if as_files(generation.store) is not None:  # what is true is in the cache, or the files say so
            return generation
        true = state.documents.true()
        if generation.store.info.is_copy:  # what the worker wrote while the copy was made may not be in it
            true = dict(true.items() & marked.items())
            now = time.monotonic()
            self._copied_until = now + max(_COPY_REST * (now - started), self.limits.refresh_s)
        return replace(generation, true_in_store=true)

    def _look_again(self) -> None:
        """Let another store that is at the location by now answer, and take note of true vectors in a database."""
        generation = self.generation
        if generation.is_stale():
            self._open_again()
            return
        if not generation.store.info.is_copy and generation.is_in_memory:
            return
        # Marks are read before the look at the copy: vectors are written first, and marked then.
        state = self._opened.state
        version = state.documents.version
        true = None if version == self._marks else state.documents.true()
        if generation.is_behind():
            # A copy of a database of which something changes every second would be made all the time
            if time.monotonic() >= self._copied_until:
                self._open_again()
        elif true is not None:
            self.generation = replace(generation, true_in_store=true)
            self._marks = version

    def _open_again(self) -> None:
        """Let the store that is there now answer; one that cannot is not read again all the time."""
        if self.generation.is_in_memory and not self._unopened.is_over:
            return
        try:
            self.generation = self._opened_now()
        except LeadMigrateError:
            self._unopened.fail()
            raise
        self._unopened.end()

    def _start_keeping_up(self) -> None:
        with self._lock:
            # A thread does not survive a fork, and servers open a searcher before they fork
            if self._thread is None:  # at the first query, in the process that asks
                self._thread = threading.Thread(target=self._keep_up, name="live-refresh", daemon=True)
                self._thread.start()

    def _keep_up(self) -> None:
        while not self._closed.wait(self.limits.refresh_s):
            try:
                self.refresh()
            except LeadMigrateError as error:
                _log.warning("%s", error)

    def _write_down(self) -> None:
        old = self._opened.old
        self._opened.counts.write_down(self.generation.uncertainties, None if old is None else old.compared)


def found_documents(searcher: LiveSearcher, query: str, k: int, where: Any = None) -> list[tuple[Document, float]]:
    """Return the documents that a searcher finds with their scores, without those that are gone."""
    answer = searcher.search(query, k, where)
    scores = dict(zip(answer.ids, answer.scores.tolist(), strict=True))
    return [(document, scores[document.id]) for document in searcher.documents(answer.ids)]


def nearness(searcher: LiveSearcher, score: float) -> float:
    """Return a score that grows with nearness: the inner product, that of unit vectors for a squared distance."""
    if searcher.generation.store.info.metric == "l2":
        return 1 - score / 2
    return score


def _embedder(store: Store, model: str | Embedder | None, cache: Path) -> Embedder:
    """Return the model by which queries are embedded, behind a cache; None is the store's own."""
    identity = model_of(store)
    # A spec is what the store says; its prefixes and dimension come from there too
    named = identity.spec if model is None else model
    if not isinstance(named, str | Embedder):
        raise UsageError(
            f"{store.info.location}: {model!r} is neither an embedder nor a spec such as "
            "openai:text-embedding-3-small; name the store's own model, or leave it out"
        )
    embedder = load_known(named, identity, state=store.folder) if isinstance(named, str) else named
    return with_model(
        _cached(embedder, cache), lambda inner: _AsNoted(inner, identity) if _is_noted(inner, identity) else inner
    )


def _cached(embedder: Embedder, cache: Path) -> Embedder:
    if embedder.cacheable:
        return CachedEmbedder(embedder, cache)
    return embedder


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
