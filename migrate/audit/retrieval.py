"""Answering the questions of an audit: one way each, all to one depth, each timed."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from migrate.audit.query_set import Keys, Questions
from migrate.audit.two_stage import TwoStage
from migrate.search.bm25 import bm25_run
from migrate.search.fusion import reciprocal_rank_fusion
from migrate.search.runs import DEPTH, Run, search, without_self
from migrate.stores.base import Metric, Store
from migrate.vectors import Batch, Document, Progress, Vectors, check_vectors


@dataclass(frozen=True, slots=True)
class Answered:
    """A run, and the seconds it took to rank, without embedding."""

    run: Run
    seconds: float


@dataclass(frozen=True)
class Asking:
    """One way each of answering the questions."""

    questions: Questions
    progress: Progress
    seed: int

    def search(
        self, store: Store, queries: Vectors, keys: Keys, *, left_out: Collection[str] = frozenset()
    ) -> Answered:
        """Exact search of a store, without the documents `left_out`.

        Raises
        ------
        VectorError
            A vector of the store is zero or not finite.
        """
        return self.batches(self._checked(store, keys, left_out), queries, keys, store.info.metric)

    def batches(self, batches: Iterable[Batch], queries: Vectors, keys: Keys, metric: Metric) -> Answered:
        """Exact search of vectors as they come."""
        ids, depth = self.questions.query_ids, self.depth
        return self._timed(lambda: search(batches, ids, queries, metric=metric, key=keys.__getitem__, depth=depth))

    def _checked(self, store: Store, keys: Keys, left_out: Collection[str]) -> Iterator[Batch]:
        done, stage = 0, f"search {store.info.location.name}"
        for batch in store.scan():
            self.progress(stage, done, store.info.count)
            check_vectors(batch.ids, batch.vectors, source=str(store.info.location))
            yield _without(batch, keys, left_out) if left_out else batch
            done += len(batch)
        self.progress(stage, done, store.info.count)

    def bm25(self, documents: Sequence[Document], keys: Keys) -> Answered:
        """Words alone."""
        self.progress("rank with BM25", 0, None)
        return self._timed(lambda: bm25_run(documents, self.questions.queries, key=keys.__getitem__, depth=self.depth))

    def hybrid(self, vectors: Answered, words: Answered) -> Answered:
        """Vectors and words, fused; the time is that of both and of the fusion."""
        fused = self._timed(lambda: reciprocal_rank_fusion([vectors.run, words.run], depth=self.depth))
        return Answered(fused.run, vectors.seconds + words.seconds + fused.seconds)

    def again(self, second: TwoStage, depth: int) -> Answered:
        """The first `depth` documents, ranked anew."""
        return self._timed(lambda: second.run(depth))

    def one_vector(self, keys: Keys) -> Answered:
        """All documents tie for every query, so that the doc_id alone decides."""
        return self._timed(
            lambda: Run(dict.fromkeys(self.questions.query_ids, tuple(heapq.nsmallest(self.depth, set(keys.values())))))
        )

    def at_random(self, keys: Keys) -> Answered:
        """Documents drawn anew for each query."""
        return self._timed(lambda: self._drawn(sorted(set(keys.values()))))

    def _drawn(self, names: Sequence[str]) -> Run:
        rng = np.random.default_rng(self.seed)
        size = min(self.depth, len(names))
        draws = (rng.choice(len(names), size, replace=False) for _ in self.questions.queries)
        return Run({q: tuple(names[i] for i in draw) for q, draw in zip(self.questions.query_ids, draws, strict=True)})

    @property
    def depth(self) -> int:
        """Documents to find, so that enough are left when a query's own is dropped."""
        return DEPTH + self.questions.exclude_self

    def _timed(self, answer: Callable[[], Run]) -> Answered:
        started = time.perf_counter()
        run = answer()
        seconds = time.perf_counter() - started
        return Answered(without_self(run) if self.questions.exclude_self else run, seconds)


def _without(batch: Batch, keys: Keys, left_out: Collection[str]) -> Batch:
    kept = [row for row, doc_id in enumerate(batch.ids) if keys[doc_id] not in left_out]
    return Batch([batch.ids[row] for row in kept], batch.vectors[kept])
