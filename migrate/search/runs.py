"""Runs, the ranked answers to queries, and exact search over streamed vectors. The same for every store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import neg
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from migrate.stores.base import Metric
from migrate.vectors import Batch, Vectors, squared_norms

DEPTH = 100
"""Documents that a run keeps for a query."""

Pairs: TypeAlias = tuple[NDArray[np.intp], NDArray[np.intp]]
"""Numbers of queries, and of the row that goes with each."""


@dataclass(frozen=True)
class Rankings:
    """The ranked documents of each query, best first: at most `DEPTH`, no document twice, ties by doc_id.

    `scores` are those of the ranked documents, as an index gives them: inner products, or squared distances, which
    grow from the first to the last. Without a search of vectors there are none.
    """

    rankings: Mapping[str, tuple[str, ...]]
    scores: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    def top(self, query_id: str, k: int) -> tuple[str, ...]:
        """Return the first k documents; none for a query that was not answered."""
        return self.rankings.get(query_id, ())[:k]


def rank(scored: Iterable[tuple[str, float]], depth: int = DEPTH) -> list[tuple[str, float]]:
    """Return the best `depth` of (doc_id, score): best score of each document, ties by doc_id.

    >>> rank([("b", 1.0), ("a", 1.0), ("c", 2.0), ("c", 0.5)], depth=2)
    [('c', 2.0), ('a', 1.0)]
    """
    best: dict[str, float] = {}
    for doc_id, score in scored:
        if score > best.get(doc_id, -np.inf):
            best[doc_id] = score
    return [(doc_id, best[doc_id]) for doc_id in by_score(best, depth)]


def by_score(scores: Mapping[str, float], depth: int) -> list[str]:
    """Return the first `depth` documents in the order of their scores, the highest first; ties by doc_id."""
    best: Mapping[str, float] = scores
    # Strings take longer to sort than numbers
    if 0 < depth < len(scores):
        least = sorted(scores.values(), reverse=True)[depth - 1]
        best = {doc_id: score for doc_id, score in scores.items() if score >= least}
    # Documents are compared where scores are equal
    pairs = sorted(zip(map(neg, best.values()), best, strict=True))
    return [doc_id for _, doc_id in pairs[:depth]]


class TopK:
    """The nearest documents of each query over a stream of batches, exactly, in bounded memory.

    A float32 matrix product finds the candidates; these few are scored again in float64, row by row, so
    that equal vectors get equal scores wherever they are in the stream, and ties break by doc_id.
    """

    def __init__(self, query_ids: Sequence[str], queries: Vectors, *, metric: Metric, depth: int = DEPTH) -> None:
        self.query_ids = query_ids
        self.queries = queries
        self.metric = metric
        self.depth = depth
        self._exact_queries = queries.astype(np.float64)
        self._query_norms = np.sqrt(squared_norms(queries))
        self._best = [BestDocuments((), np.empty(0)) for _ in query_ids]
        self._floor = np.full(len(query_ids), -np.inf, dtype=np.float32)

    def add(self, keys: Sequence[str], vectors: Vectors) -> None:
        """Take in the next rows, (n, dim): `keys[i]` is the document that row i belongs to."""
        if not len(keys):
            return
        query_rows, rows = self._near(keys, vectors)
        queries, starts = np.unique(query_rows, return_index=True)
        for query, near in zip(queries.tolist(), np.split(rows, starts[1:]), strict=False):  # nothing splits into one
            self._merge(query, keys, vectors, near)

    def _near(self, keys: Sequence[str], vectors: Vectors) -> Pairs:
        """Return the queries and rows, ascending, that may belong together."""
        norms = squared_norms(vectors)
        scores: Vectors = self.queries @ vectors.T
        # What is less the farther a vector is: |q - v|² is |q|² less this
        if self.metric == "l2":
            scores *= 2
            scores -= norms
        floor = np.maximum(self._floor, self._batch_floor(keys, scores)) - self._slack(norms)
        query_rows, rows = np.nonzero(scores >= floor[:, None])
        return query_rows, rows

    def _slack(self, norms: Vectors) -> Vectors:
        """Return by how much rounding may change a score of each query."""
        longest = norms.max()
        largest = self._query_norms * np.sqrt(longest)
        if self.metric == "l2":
            largest = largest + longest
        # In float32 a sum of products is off by a small share of the largest that it can be
        slack: Vectors = 1e-5 * largest
        return slack

    def _batch_floor(self, keys: Sequence[str], scores: Vectors) -> Vectors:
        """Return a score that `depth` documents of the batch reach, for each query; -inf where they are too few."""
        if len(set(keys)) < len(keys):
            order = np.argsort(np.asarray(keys), kind="stable")
            ordered = np.asarray(keys)[order]
            starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
            scores = np.maximum.reduceat(scores[:, order], starts, axis=1)
        width = scores.shape[1]
        if width < self.depth:
            return np.full(len(scores), -np.inf, dtype=np.float32)
        # As many groups as there are documents to find reach the score, each by one document at least.
        # The more groups, here eight times as many, the fewer documents are looked at twice.
        size = max(width // (8 * self.depth), 1)
        groups = width // size
        tops = scores[:, : groups * size].reshape(len(scores), size, groups).max(axis=1)
        return np.partition(tops, groups - self.depth, axis=1)[:, groups - self.depth]

    def _merge(self, query: int, keys: Sequence[str], vectors: Vectors, rows: NDArray[np.intp]) -> None:
        near = vectors[rows].astype(np.float64)
        exact = np.einsum("nd,d->n", near, self._exact_queries[query])
        if self.metric == "l2":
            exact = 2 * exact - np.einsum("nd,nd->n", near, near)
        best = self._best[query].joined([keys[row] for row in rows], exact, self.depth)
        self._best[query] = best
        if len(best.keys) == self.depth:
            self._floor[query] = best.scores[-1]

    def run(self) -> Rankings:
        """Return the best documents so far, as a run."""
        best_by_query = dict(zip(self.query_ids, self._best, strict=True))
        rankings = {query_id: tuple(best.keys) for query_id, best in best_by_query.items()}
        if self.metric == "ip":
            return Rankings(
                rankings, {query_id: tuple(best.scores.tolist()) for query_id, best in best_by_query.items()}
            )
        squares = np.einsum("nd,nd->n", self._exact_queries, self._exact_queries)
        distances = {
            query_id: tuple(np.maximum(square - best.scores, 0).tolist())
            for (query_id, best), square in zip(best_by_query.items(), squares, strict=True)
        }
        return Rankings(rankings, distances)


@dataclass(frozen=True, slots=True)
class BestDocuments:
    """The best documents of one query so far, and their scores, descending; no document twice, ties by doc_id."""

    keys: Sequence[str]
    scores: NDArray[np.float64]

    def joined(self, keys: Sequence[str], scores: NDArray[np.float64], depth: int) -> BestDocuments:
        """Return the best `depth` of these and others."""
        names = [*self.keys, *keys]
        all_scores = np.concatenate([self.scores, scores])
        order = np.argsort(-all_scores, kind="stable")
        ranked = all_scores[order[: depth + 1]]
        first = [names[position] for position in order[:depth]]
        if (ranked[1:] < ranked[:-1]).all() and len(set(first)) == len(first):
            return BestDocuments(first, ranked[:depth])
        # Equal scores are sorted by document, and of the chunks of one document the best counts: both take longer
        pairs = rank(zip(names, all_scores.tolist(), strict=True), depth)
        return BestDocuments([name for name, _ in pairs], np.array([score for _, score in pairs]))


def search(
    batches: Iterable[Batch],
    query_ids: Sequence[str],
    queries: Vectors,
    *,
    metric: Metric,
    depth: int = DEPTH,
) -> Rankings:
    """Rank the documents of batches for each query vector, (q, dim), by exact search; several rows may be of one."""
    top = TopK(query_ids, queries, metric=metric, depth=depth)
    for batch in batches:
        top.add(batch.ids, batch.vectors)
    return top.run()


def without_self(run: Rankings) -> Rankings:
    """Return the run without the document that is the query itself (ArguAna and Quora ask with their own documents)."""
    positions_of = {
        query_id: [i for i, d in enumerate(docs) if d != query_id] for query_id, docs in run.rankings.items()
    }
    return Rankings(
        {query_id: tuple(run.rankings[query_id][i] for i in positions) for query_id, positions in positions_of.items()},
        {query_id: tuple(scores[i] for i in positions_of[query_id]) for query_id, scores in run.scores.items()},
    )
