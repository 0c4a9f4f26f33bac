"""Draws the sample: orders the store's documents by a strategy and takes the first distinct texts.

The strategies are `random`, `diverse` (documents spread over the old space) and `query-log`. Blank texts are left out
and each text is taken once; in a store without texts any document will do.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from migrate.errors import StoreError, UsageError
from migrate.selection.query_log import QueryLog, query_log_rows
from migrate.stores.base import Store
from migrate.vectors import Document, Progress, Vectors, check_vectors, no_progress, unit_rows

RANDOM = "random"
DIVERSE = "diverse"
QUERY_LOG = "query-log"

STRATEGIES = (RANDOM, DIVERSE, QUERY_LOG)
"""Names for `strategy` of a fit."""

_BLOCK = 1_024
"""Documents that are read at a time."""

_ID_BLOCK = 65_536
"""Ids that are read at a time."""

_TIMES_AS_MANY = 20
_SMALLEST_POOL = 10_000
_LARGEST_POOL = 100_000
_POOL_BYTES = 128 << 20
"""Documents to choose a diverse sample from, and bytes of their vectors: each step of the choice reads them all."""

SAMPLE_SIZE = 1_000

MOST_PAIRS = 20_000
"""The most pairs to fit a stitch on, drawn at random from more: the linear systems take about 1.5 GB of memory for so
many. Every true vector that was paid for is kept anyway."""


def choose_strategy(strategy: str | None, *, has_log: bool) -> str:
    """Return the named strategy; by default `query-log` where there is a log, else `random`."""
    if not strategy:
        strategy = RANDOM
        if has_log:
            strategy = QUERY_LOG
    check_choice("strategy", strategy, STRATEGIES, has_log=has_log)
    return strategy


def check_choice(name: str, chosen: str, options: Sequence[str], *, has_log: bool) -> None:
    """Make sure that what the option `name` takes is one of `options`, and goes with a query log or without."""
    if chosen not in options:
        raise UsageError(f"unknown {name} {chosen!r}; choose one of {', '.join(options)}")
    if chosen == QUERY_LOG and not has_log:
        raise UsageError(f"the {name} {QUERY_LOG} needs a query log; name it with --query-log FILE")
    if chosen != QUERY_LOG and has_log:
        raise UsageError(f"the {name} {chosen} does not read a query log; leave out --query-log or --{name}")


def pool_size(size: int, dim: int) -> int:
    """Return how many documents to choose `size` from: 20 times as many, 10,000 at least, 100,000 or 128 MiB at most.

    It is never fewer than `size`.
    """
    bytes_per_vector = 4 * dim
    usual_size = max(_TIMES_AS_MANY * size, _SMALLEST_POOL)
    return max(size, min(usual_size, _LARGEST_POOL, _POOL_BYTES // bytes_per_vector))


def far_apart(vectors: Vectors, size: int, *, seed: int = 0, progress: Progress = no_progress) -> NDArray[np.int64]:
    """Choose `size` of the rows of (n, dim), n >= size, each far from those before; shape (size,), none twice.

    A randomised k-centre: where Gonzalez (1985) takes the farthest row, each row is drawn here with a chance in
    proportion to its squared distance from the nearest chosen one (Arthur and Vassilvitskii 2007, "k-means++: the
    advantages of careful seeding"). The farthest rows are the odd ones out, from which a stitch learns least.
    Distances are between unit vectors, so that long vectors are not favoured.
    """
    directions = unit_rows(vectors)
    rng = np.random.default_rng(seed)
    chosen = np.empty(size, dtype=np.int64)
    available = np.ones(len(vectors), dtype=bool)
    # Squared distance to the nearest chosen row; none is farther than this
    nearest = np.full(len(vectors), 4.0)
    for step in range(size):
        progress("choose a diverse sample", step, size)
        row = _drawn(np.where(available, nearest, 0), available, rng.random())
        chosen[step] = row
        available[row] = False
        # einsum, for BLAS may sum in another order with another number of threads, and so draw other rows
        np.minimum(nearest, np.maximum(2 - 2 * np.einsum("nd,d->n", directions, directions[row]), 0), out=nearest)
    return chosen


def _drawn(weights: NDArray[np.float64], available: NDArray[np.bool_], chance: float) -> int:
    """Draw a row in proportion to its weight; any remaining row where all weights are 0, as among copies."""
    if not weights.any():
        weights = available.astype(np.float64)
    rows = np.flatnonzero(weights)
    sums = weights[rows].cumsum()
    position = sums.searchsorted(chance * sums[-1], side="right")
    # Rounding may take it past the end
    return int(rows[min(position, len(rows) - 1)])


def random_order(store: Store, *seeds: int) -> NDArray[np.int64]:
    """Return all rows of a store in an order that the seeds and the ids draw, shape (count,).

    It is the same documents in the same order however the rows of the store are ordered, unless its ids are numbers of
    rows. Ids are read in blocks, and no vectors; 16 bytes a row are kept.
    """
    key = np.array(seeds, "<i8").tobytes()
    # By a hash of each id: the same documents are drawn however the rows are ordered, as an IVF index orders them by
    # lists
    keys = np.empty(store.info.count, np.uint64)
    for start in range(0, len(keys), _ID_BLOCK):
        ids = store.ids(range(start, min(start + _ID_BLOCK, len(keys))))
        digests = (hashlib.blake2b(doc_id.encode(errors="surrogatepass"), digest_size=8, key=key) for doc_id in ids)
        keys[start : start + len(ids)] = np.frombuffer(b"".join(digest.digest() for digest in digests), "<u8")
    return np.argsort(keys, kind="stable")


class DocumentRow(NamedTuple):
    """A document and its row."""

    row: int
    document: Document


def distinct_texts(store: Store, order: NDArray[np.int64], count: int) -> Iterator[DocumentRow]:
    """Yield the first `count` documents in `order` with a text that is neither blank nor that of one before.

    Texts are read in blocks, no further than needed, and remembered by hash: a store may hold more of them than
    memory does. Of a store without texts, the first `count` documents with an empty one.
    """
    if not store.info.has_texts:
        rows = order[:count]
        return map(DocumentRow, rows.tolist(), known_documents(store, rows))
    return islice(_distinct(store, order, min(count, _BLOCK)), count)


def find_copies(store: Store, documents: Sequence[Document]) -> dict[str, int]:
    """Return other documents of a store with exactly the text of one of `documents`: their ids, and its place.

    Reads every text of the store and keeps none in memory. A store without texts has no copies.
    """
    if not store.info.has_texts:
        return {}
    row_of = {text_digest(document.text): row for row, document in enumerate(documents)}
    sampled = {document.id for document in documents}
    matches = ((document.id, row_of.get(text_digest(document.text))) for document in store.documents())
    return {doc_id: row for doc_id, row in matches if row is not None and doc_id not in sampled}


def text_digest(text: str) -> bytes:
    """Return a hash of a text, 16 bytes."""
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()


def _distinct(store: Store, order: NDArray[np.int64], block: int) -> Iterator[DocumentRow]:
    digests: set[bytes] = set()
    for start in range(0, len(order), block):
        rows = order[start : start + block]
        for row, document in zip(rows.tolist(), store.documents(rows), strict=True):
            digest = text_digest(document.text)
            if document.text.strip() and digest not in digests:
                digests.add(digest)
                yield DocumentRow(row, document)


def known_documents(store: Store, rows: NDArray[np.int64]) -> Iterator[Document]:
    """Yield the documents of some rows, in their order; of a store without texts their ids, with empty texts."""
    if store.info.has_texts:
        return store.documents(rows)
    blocks = (rows[start : start + _BLOCK] for start in range(0, len(rows), _BLOCK))
    return (Document(doc_id, "") for block in blocks for doc_id in store.get(block).ids)


@dataclass(frozen=True, slots=True)
class Sample:
    """Documents of a store: `documents[i]` is in row `rows[i]`; rows ascend, and no text occurs twice.

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
    paid: Collection[str] = (),
    holds: Callable[[Document], bool] | None = None,
    seed: int = 0,
    progress: Progress = no_progress,
) -> Sample:
    """Choose documents with distinct texts, none of them blank; all of these where the store has no more.

    Of a store without texts any documents are chosen, with empty ones, for an embedder that does without.

    `random` takes every document with equal chance. `diverse` takes documents far from each other in the store's
    space, out of a random pool (`migrate.selection.sample`). `query-log` takes those that the log's queries would find,
    best ranks first, and random ones where the log touches too few (`migrate.selection.query_log`). By default
    the strategy is `query-log` where there is a log, else `random`. Documents whose ids are in `paid` come before all
    others: those of an earlier sample, whose vectors are in the cache. Where `holds` is True of some documents, as of
    those in a file of vectors, no others are chosen.

    Raises UsageError: there is no such strategy, or it does not go with the presence of a log. StoreError: the store
    has no documents to choose, or the strategy reads texts and there are none. VectorError: the strategy looks at
    vectors, and one is zero or not finite, or of another dimension than the log's model. RemoteError: a query of the
    log could not be embedded.
    """
    chosen = choose_strategy(strategy, has_log=query_log is not None)
    order = random_order(store, seed)
    first = np.empty(0, dtype=np.int64)
    if chosen == DIVERSE:
        order = _diverse_rows(store, order, size, seed=seed, progress=progress)
    elif query_log is not None:
        first = query_log_rows(store, query_log, seed=seed, progress=progress)
        order = np.concatenate([first, order[~np.isin(order, first)]])
    # Their vectors are in the cache, so that they cost nothing
    if paid:
        paid_rows = _rows_of(store, paid)
        order = np.concatenate([paid_rows, order[~np.isin(order, paid_rows)]])
    drawn: Iterable[DocumentRow] = ()
    if holds is not None:
        held = (candidate for candidate in distinct_texts(store, order, len(order)) if holds(candidate.document))
        drawn = list(islice(held, size))
    # A file that holds none of them is the wrong one, which it says itself
    candidates = sorted(drawn or distinct_texts(store, order, size), key=lambda candidate: candidate.row)
    if not candidates:
        if store.info.has_texts:
            raise StoreError(f"{store.info.location}: all its texts are blank, so there is nothing to embed")
        raise StoreError(f"{store.info.location}: holds no documents, so there is nothing to embed")
    rows = np.array([candidate.row for candidate in candidates], dtype=np.int64)
    documents = tuple(candidate.document for candidate in candidates)
    return Sample(rows, documents, chosen, int(np.isin(rows, first).sum()))


def _rows_of(store: Store, ids: Collection[str]) -> NDArray[np.int64]:
    """Return the rows of some documents, ascending; ids that the store lacks are left out."""
    ids_paid = frozenset(ids)
    rows: list[int] = []
    start = 0
    for batch in store.scan():
        rows += [start + position for position, doc_id in enumerate(batch.ids) if doc_id in ids_paid]
        start += len(batch)
    return np.array(rows, dtype=np.int64)


def _diverse_rows(
    store: Store, order: NDArray[np.int64], size: int, *, seed: int, progress: Progress
) -> NDArray[np.int64]:
    """Return rows of distinct texts that cover the space, chosen out of the first ones in `order`."""
    pool = np.array(
        [candidate.row for candidate in distinct_texts(store, order, pool_size(size, store.info.dim))], dtype=np.int64
    )
    pool.sort()
    if len(pool) <= size:
        return pool
    batch = store.get(pool)
    check_vectors(batch.ids, batch.vectors, source=store.info.location)
    return pool[far_apart(batch.vectors, size, seed=seed, progress=progress)]
