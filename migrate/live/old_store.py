"""The store before the migration, which a live searcher asks beside the new one while the old model still answers."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from migrate.errors import LeadMigrateError, StoreError, VectorError
from migrate.live.generation import Texts, is_in_memory, marker_at_rest
from migrate.live.true_vectors import LiveVectors, Pause
from migrate.search.fusion import RankComparison, fuse_old
from migrate.stores import open_store
from migrate.stores.base import Store, StoreInfo, StoreSearcher
from migrate.stores.faiss.search import open_search
from migrate.stores.serving import Hits, is_cosine
from migrate.vectors import Batch, Vectors, unit_rows

_log = logging.getLogger(__name__)

_SEARCHES: Final = 64
"""Searches that may be under way at once, each in a thread of its own."""
_SAMPLE: Final = 1_000
"""Documents of the old store that are looked for in the new one, to know that both are of one corpus."""
_LEAST_SHARED: Final = 0.5
"""The share of them below which a warning says so; of another corpus there is next to none."""


FindVectors = Callable[[Sequence[str]], Batch | None]
"""Returns the vectors that the new store has of some documents, see `Texts.vectors_there`."""


@dataclass(frozen=True)
class _Opened:
    """A store, its search, and what `marker_at_rest` said before it was opened."""

    store: Store
    index: StoreSearcher
    marker: Any


@dataclass(frozen=True)
class Asked:
    """A search that is under way, and until when it is waited for, by the monotonic clock."""

    found: Future[Hits]
    until: float


class OldStore:
    """A store that is searched by queries of its own model, by several threads, each search in one of its own.

    One that fails is left alone for a while.
    """

    def __init__(self, location: str, vectors: LiveVectors, comparison: RankComparison, *, new: FindVectors) -> None:
        self.location = location
        self._vectors = vectors
        self._comparison = comparison
        self._new = new
        self._pool = ThreadPoolExecutor(_SEARCHES, thread_name_prefix="live-old")
        self._pause = Pause()
        self._lock = threading.Lock()
        self._opened: _Opened | None = self._read()

    def _read(self) -> _Opened:
        marker = marker_at_rest(self.location)
        store = open_store(self.location, verify=True)
        info = store.info
        model = self._vectors.embedder.identity
        recorded = None
        if info.manifest is not None:
            recorded = info.manifest.model
        if recorded is not None and recorded.spec != model.spec:
            raise StoreError(
                f"{self.location}: the old store is of {recorded.spec}, and its queries are embedded by {model.spec}; "
                "name the store that was translated, and its own model"
            )
        if model.dim != info.dim:
            raise VectorError(
                f"{self.location}: {model.spec} has {model.dim} dimensions, the vectors of the old store {info.dim}; "
                "name the model that it was built with"
            )
        self._compare_ids(store)
        index = open_search(store)
        index.search(np.ones((1, info.dim), np.float32), 1)  # what is read at the first search is read now
        return _Opened(store, index, marker)

    def _compare_ids(self, store: Store) -> None:
        """Make sure that the new store has documents of the old one."""
        # From all over the store: the first documents may be all that two corpora share
        rows = np.linspace(0, store.info.count - 1, num=min(_SAMPLE, store.info.count)).astype(np.int64)
        ids = store.ids(rows)
        found = self._new(ids)
        if found is None or not ids:  # the new store cannot be read now, which a query will say
            return
        corpus = f"{self.location}: of {len(ids):,} documents of the old store, the new one has {len(found.ids):,}"
        if not len(found.ids):
            raise StoreError(f"{corpus}: it is of another corpus; name the store that was translated")
        if len(found.ids) < _LEAST_SHARED * len(ids):
            _log.warning("%s: what it lacks is not answered with; is it the store that was translated?", corpus)

    def close(self) -> None:
        """Begin no further search."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._vectors.close()

    @property
    def compared(self) -> RankComparison:
        """Comparison of both stores so far."""
        with self._lock:
            return replace(self._comparison)

    def ask(self, query: str, depth: int, where: Any, *, seconds: float) -> Asked | None:
        """Begin to search for the first `depth` documents; None where it has failed a moment ago."""
        if self._opened is None or not self._pause.is_over:
            return None
        try:
            found = self._pool.submit(self._search, query, depth, where)
        except RuntimeError:  # closed meanwhile
            return None
        return Asked(found, time.monotonic() + seconds)

    def _search(self, query: str, depth: int, where: Any) -> Hits:
        vector = self._vectors.of_query(query)
        opened = self._opened
        if opened is None:
            raise StoreError(f"{self.location}: the old store is gone")
        hits = opened.index.search(vector[None], depth, where)[0]
        # Looked at after the search: the store may have been exchanged while it ran
        if not is_in_memory(opened.store) and marker_at_rest(self.location) != opened.marker:
            raise StoreError(f"{self.location}: another store has come to its place")
        return hits

    def answer_of(self, asked: Asked) -> Hits | None:
        """Wait for a search; None where it fails or is late, after which there is a pause."""
        try:
            hits = asked.found.result(max(asked.until - time.monotonic(), 0))
        except Exception as error:
            # Late searches would fill the pool, and every query after them would be late
            asked.found.cancel()
            if self._pause.fail():
                reason = "is late"
                if not isinstance(error, TimeoutError):
                    reason = str(error)
                _log.warning("%s: the new store answers alone: the old one %s", self.location, reason)
            return None
        self._pause.end()
        return hits

    def fuse(
        self, ranking: Sequence[str], both: BothFound, true: Collection[str], *, true_share: float, depth: int
    ) -> list[str]:
        """Return the first documents in the order of their ranks in both stores, and learn how these compare.

        `ranking` are documents that `both` have found, in the order of their scores by the new model; `true` those
        whose true vectors are not in the new store yet. The share of true vectors among all of them, 0-1, is what the
        old ranks lose in weight.
        """
        # The translated vectors are what the old ranks are to make up for, so they do not judge them
        by_true = [doc_id for doc_id in ranking if doc_id in true]
        with self._lock:
            self._comparison.add(both.new, both.old)
            self._comparison.add_true(by_true, both.new, both.old)
            weight = (1 - true_share) * self._comparison.weight(both.count)
        old_ranks = {doc_id: rank for rank, doc_id in enumerate(both.old, start=1)}
        return fuse_old(ranking, old_ranks, weight=weight, depth=depth)

    def refresh(self) -> None:
        """Look for another store at the location, and for the old one after it was gone; raises as a new one does."""
        if not self._pause.is_over:
            return
        try:
            if self._opened is None or marker_at_rest(self.location) != self._opened.marker:
                self._opened = self._read()
        except (LeadMigrateError, OSError):
            self._opened = None
            self._pause.fail()
            raise


@dataclass(frozen=True)
class BothFound:
    """The ids that the new and the old store have found for a query, best first, and how many documents there are."""

    new: Sequence[str]
    old: Sequence[str]
    count: int


def joined(info: StoreInfo, texts: Texts, query: Vectors, hits: Hits, old: Sequence[str], *, depth: int) -> Hits:
    """Return the first `depth` documents of both stores, by the sum of reciprocal ranks; `hits` are of the new one.

    All have a score of the new store; of documents that only the `old` one has found, it is that of their vector in the
    new one. `query`, (dim,), is of the new model, of unit length where the store compares by cosine. Documents that the
    new store lacks are left out, and the next ones come up. Of equals, those of the new store come first.
    """
    summed: dict[str, float] = {}
    for ids in (hits.ids, old):
        for rank, doc_id in enumerate(ids, start=1):
            summed[doc_id] = summed.get(doc_id, 0.0) + 1 / (60 + rank)
    order = sorted(summed, key=summed.__getitem__, reverse=True)
    scores: dict[str, float] = dict(zip(hits.ids, hits.scores.tolist(), strict=True))
    for candidates in (order[:depth], order):  # the next ones come up where some are not in the new store
        if all(doc_id in scores for doc_id in order[:depth]):
            break
        scores |= _scores(info, texts, query, [doc_id for doc_id in candidates if doc_id not in scores])
    first = [doc_id for doc_id in order if doc_id in scores][:depth]
    return Hits(tuple(first), np.array([scores[doc_id] for doc_id in first], np.float32))


def _scores(info: StoreInfo, texts: Texts, query: Vectors, ids: Sequence[str]) -> dict[str, float]:
    """Return the scores of documents by their vectors in the new store, as far as it has them."""
    batch = texts.vectors_there(ids)
    if batch is None or not len(batch):
        return {}
    rows = unit_rows(batch.vectors) if is_cosine(info) else batch.vectors
    near = rows.astype(np.float64) @ query.astype(np.float64)
    if info.metric == "l2":
        near = float(query @ query) - 2 * near + np.einsum("nd,nd->n", rows, rows)
    return dict(zip(batch.ids, near.tolist(), strict=True))
