"""Drawing a sample: an order of the store's documents by strategy, and the first distinct texts in it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from migrate.documents import Document
from migrate.errors import StoreError
from migrate.sample.distinct import distinct_texts
from migrate.sample.diverse import far_apart, pool_size
from migrate.sample.query_log import QueryLog, query_log_rows
from migrate.sample.strategies import DIVERSE, RANDOM, choose_strategy
from migrate.stores.base import Store
from migrate.vectors import Progress, check_vectors, no_progress

SAMPLE_SIZE = 1_000


@dataclass(frozen=True, slots=True)
class Sample:
    """Documents of a store: `documents[i]` stands in row `rows[i]`; rows ascend, and no text comes twice.

    `strategy` says how they were chosen; the first hits of a query log are `from_log` of them, the others random.
    """

    rows: NDArray[np.int64]
    documents: tuple[Document, ...]
    strategy: str = RANDOM
    from_log: int = 0


def draw_sample(
    store: Store,
    size: int = SAMPLE_SIZE,
    *,
    strategy: str | None = None,
    query_log: QueryLog | None = None,
    seed: int = 0,
    progress: Progress = no_progress,
) -> Sample:
    """Choose documents with distinct texts, none of them blank; all of these where the store has no more.

    Of a store without texts any documents are chosen, with empty ones, for an embedder that does without.

    `random` takes every document with equal chance. `diverse` takes documents far from each other in the store's
    space, out of a random pool (`migrate.sample.diverse`). `query-log` takes those that the log's queries would find,
    best ranks first, and random ones where the log touches too few (`migrate.sample.query_log`). By default
    the strategy is `query-log` where there is a log, else `random`.

    Raises
    ------
    UsageError
        There is no such strategy, or it does not go with the presence of a log.
    StoreError
        The store has no documents to choose, or the strategy reads texts and there are none.
    VectorError
        The strategy looks at vectors, and one is zero or not finite, or of another dimension than the log's model.
    RemoteError
        A query of the log could not be embedded.
    """
    chosen = choose_strategy(strategy, has_log=query_log is not None)
    order = np.random.default_rng(seed).permutation(store.info.count)
    first = np.empty(0, dtype=np.int64)
    if chosen == DIVERSE:
        order = _diverse_rows(store, order, size, seed=seed, progress=progress)
    elif query_log is not None:
        first = query_log_rows(store, query_log, seed=seed, progress=progress)
        order = np.concatenate([first, order[~np.isin(order, first)]])
    found = sorted(distinct_texts(store, order, size), key=lambda candidate: candidate.row)
    if not found:
        wanted, found_none = (
            ("documents with texts", " that is not blank") if store.info.has_texts else ("documents", "")
        )
        raise StoreError(f"{store.info.path}: expected {wanted} to embed again, found none{found_none}")
    rows = np.array([candidate.row for candidate in found], dtype=np.int64)
    documents = tuple(candidate.document for candidate in found)
    return Sample(rows, documents, chosen, int(np.isin(rows, first).sum()))


def _diverse_rows(
    store: Store, order: NDArray[np.int64], size: int, *, seed: int, progress: Progress
) -> NDArray[np.int64]:
    """Rows of distinct texts that cover the space, chosen out of the first ones in `order`."""
    pool = np.array(
        [found.row for found in distinct_texts(store, order, pool_size(size, store.info.dim))], dtype=np.int64
    )
    pool.sort()
    if len(pool) <= size:
        return pool
    batch = store.take(pool)
    check_vectors(batch.ids, batch.vectors, source=str(store.info.path))
    return pool[far_apart(batch.vectors, size, seed=seed, progress=progress)]
