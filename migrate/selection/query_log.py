"""Chooses documents by a query log: those that its queries find, the best ranks first.

These queries do not judge (`migrate.selection.choosers`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np
from numpy.typing import NDArray

from migrate.embedders.base import Embedder
from migrate.errors import UsageError, VectorError
from migrate.files import sha256_json
from migrate.search.bm25 import bm25_run
from migrate.search.runs import DEPTH, Rankings, TopK
from migrate.stores.base import Metric, Store
from migrate.vectors import Progress, Query, Vectors, check_vectors, no_progress

MOST_QUERIES = 5_000
"""Queries of a log that are looked up: the most frequent ones."""

BM25_POOL = 20_000
"""Documents that BM25 ranks, drawn at random from a larger store: it holds every word of them in memory."""

_QUERY_BLOCK = 500


@dataclass(frozen=True, slots=True)
class QueryLog:
    """The queries of users, the most frequent first, and the model of the store's own space if it is available."""

    queries: Sequence[Query]
    embedder: Embedder | None = None

    @property
    def looked_up(self) -> Sequence[Query]:
        """The queries that choose documents: the most frequent ones."""
        return self.queries[:MOST_QUERIES]

    def digest(self) -> str:
        """SHA-256 of all that the choice of rows depends on besides the store."""
        model = None
        if self.embedder is not None:
            model = self.embedder.cache_scope("query")
        return sha256_json([model, [[query.id, query.text] for query in self.queries]])


def query_log_rows(
    store: Store,
    log: QueryLog,
    *,
    depth: int = DEPTH,
    seed: int = 0,
    progress: Progress = no_progress,
) -> NDArray[np.int64]:
    """Return the rows that the log's queries would find, in order of worth: every first hit, then every second ...

    Each query, of the first 5,000, has two rankings: the store's vectors, searched exactly where the log has an
    embedder, and its texts by BM25, where it has texts (at most 20,000 of them, drawn at random). Within a rank the
    order is that of the queries, the vectors' hit before the words'. Ties break by row. No row comes twice, but a text
    may. All are among the first `depth` of a ranking.

    Raises UsageError: the log is empty. VectorError: the embedder is of another dimension than the store, or a vector
    of the store is zero or not finite. StoreError: the log has no embedder, and the store has no texts. RemoteError: a
    query could not be embedded.
    """
    if not log.queries:
        raise UsageError("the query log has no queries; leave it out, or give it queries")
    queries = log.looked_up
    methods: list[list[list[int]]] = []
    if log.embedder is not None:
        methods.append(_by_vectors(store, _query_vectors(store, log.embedder, queries, progress), depth, progress))
    if store.info.has_texts or log.embedder is None:
        methods.append(_by_words(store, queries, depth, seed=seed, progress=progress))
    # The vectors' hit of a query before its words' hit
    rankings = [ranking for of_query in zip(*methods, strict=True) for ranking in of_query]
    return np.fromiter(rank_by_rank(rankings), dtype=np.int64)


def rank_by_rank(rankings: Sequence[Sequence[int]]) -> Iterator[int]:
    """Yield all first entries, then all second ones, and so on; none comes twice.

    >>> list(rank_by_rank([[3, 1, 2], [3, 5], [4, 3]]))
    [3, 4, 1, 5, 2]
    """
    ranked: set[int] = set()
    for hits in zip_longest(*rankings):
        for row in hits:
            if row is not None and row not in ranked:
                ranked.add(row)
                yield row


def _query_vectors(store: Store, embedder: Embedder, queries: Sequence[Query], progress: Progress) -> Vectors:
    vectors = embedder.embed_queries(queries, progress=progress)
    if vectors.shape[1] != store.info.dim:
        raise VectorError(
            f"{store.info.location}: the store has {store.info.dim} dimensions, and {embedder.identity.spec} gives "
            f"{vectors.shape[1]}; name the model that the store was built with"
        )
    return vectors


def _by_vectors(store: Store, queries: Vectors, depth: int, progress: Progress) -> list[list[int]]:
    nearest = NearestRows(queries, store.info.metric, depth)
    for batch in store.scan():
        progress("search the query log", nearest.count, store.info.count)
        check_vectors(batch.ids, batch.vectors, source=store.info.location)
        nearest.add(batch.vectors)
    return nearest.rankings()


class NearestRows:
    """The rows of a store that are nearest to each of some queries, (m, dim), of vectors that come in their order.

    Queries are searched in blocks, to bound memory. `count` is the number of rows so far.
    """

    def __init__(self, queries: Vectors, metric: Metric, depth: int = DEPTH) -> None:
        names = [str(number) for number in range(len(queries))]
        blocks = [slice(start, start + _QUERY_BLOCK) for start in range(0, len(queries), _QUERY_BLOCK)]
        self._tops = [TopK(names[block], queries[block], metric=metric, depth=depth) for block in blocks]
        self.count = 0

    def add(self, vectors: Vectors) -> None:
        """Take in the next rows, (n, dim)."""
        keys = [_key(row) for row in range(self.count, self.count + len(vectors))]
        for top in self._tops:
            top.add(keys, vectors)
        self.count += len(vectors)

    def rankings(self) -> list[list[int]]:
        """Return the rows nearest to each query, best first, ties by row."""
        return [rows for top in self._tops for rows in _rows(top.run())]


def _by_words(store: Store, queries: Sequence[Query], depth: int, *, seed: int, progress: Progress) -> list[list[int]]:
    progress("rank the query log with BM25", 0, None)
    rows = np.sort(np.random.default_rng(seed).permutation(store.info.count)[:BM25_POOL])
    texts = (document.text for document in store.documents(rows))
    # A log's ids may repeat, and a ranking has one answer for each id
    numbered = [Query(str(number), query.text) for number, query in enumerate(queries)]

    def names_of(span: range) -> list[str]:
        return [_key(row) for row in rows[span.start : span.stop].tolist()]

    return _rows(bm25_run(texts, numbered, names_of=names_of, depth=depth))


def _key(row: int) -> str:
    """Return a row as the documents of a run are named; these sort as the rows do."""
    return f"{row:015}"


def _rows(run: Rankings) -> list[list[int]]:
    return [[int(key) for key in keys] for keys in run.rankings.values()]
