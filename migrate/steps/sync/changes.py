"""Changes of a store since another was translated from it: documents added, changed and deleted, by id."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from migrate.embed.rewrite import TRUE_VECTOR
from migrate.errors import StoreError
from migrate.stores.base import BATCH_SIZE, Store
from migrate.stores.confidence import stored_confidence
from migrate.stores.old_checksums import Checksums, stored_sources, vector_checksums
from migrate.vectors import Batch, Document, Progress, Vectors


@dataclass(frozen=True, slots=True)
class ChangeCounts:
    """The numbers of documents of the old store that were added, changed, deleted, and are as they were.

    `changed` are those whose vector in the new store is none of theirs any more; of those in `metadata` it is, but
    something else is not. `metadata` is None where two kinds of stores keep it in different ways.
    """

    added: int
    changed: int
    metadata: int | None
    deleted: int
    unchanged: int

    @property
    def to_embed(self) -> int:
        """The number of documents that get true vectors."""
        return self.added + self.changed


@dataclass(frozen=True, eq=False)
class Changes:
    """The work on each document of the old store, in its order.

    Attributes
    ----------
    counts
        The numbers of documents by what became of them.
    rows
        The row of each document's vector in the new store, (n,), int64, or `TRUE_VECTOR`.
    checksums
        Checksums of the old vectors, (n,), uint64.
    confidence
        Confidence of the new vectors, (n,), float32; 1 for true ones, NaN where nothing is known.
    blank
        True for each document without text, (n,), bool.
    by_texts
        True if documents are compared by their texts alone, as nothing beside the new store notes the old vectors.
    kept
        The number of documents of the new store that the old one has with the same text (or, without texts, vector).
    """

    counts: ChangeCounts
    rows: NDArray[np.int64]
    checksums: Checksums
    confidence: Vectors
    blank: NDArray[np.bool_]
    by_texts: bool
    kept: int

    @property
    def n_true(self) -> int:
        """The number of true vectors of the store that is to be written."""
        return int((self.confidence == 1).sum())


def find_changes(old: Store, new: Store, *, all_true: bool, progress: Progress) -> Changes:
    """Compare the old store with the new one; both are read whole.

    A vector belongs to its document no more where the text is another; or the old vector is, unless the new one is a
    true one, which comes of the text alone. `all_true` says that every one is, whatever stands beside the store.

    Raises StoreError: only one of them has texts, or two documents of one share an id.
    """
    if old.info.has_texts != new.info.has_texts:
        without, with_texts = sorted((old, new), key=lambda store: store.info.has_texts)
        raise StoreError(
            f"{without.info.location}: the store has no texts, and {with_texts.info.location} has; name their column, "
            "or translate again"
        )
    same_kind = old.info.kind == new.info.kind
    # The vectors of the new store are not looked at: those that stay are copied as they are
    new_rows = _read(new, with_vectors=False, progress=progress)
    now = _read(old, with_vectors=True, progress=progress)
    rows = _rows_of(now.ids, new_rows.ids)
    is_there = rows >= 0
    positions = rows[is_there]

    sources = stored_sources(new)
    confidence = stored_confidence(new)
    if all_true:
        confidence = np.ones(new.info.count, np.float32)
    elif confidence is None:
        confidence = np.full(new.info.count, np.nan, np.float32)
    is_other = np.zeros(len(positions), bool)
    if sources is not None:
        is_other = (now.vectors[is_there] != sources[positions]) & (confidence[positions] != 1)
    has_other_text = now.texts[is_there] != new_rows.texts[positions]
    is_changed = has_other_text | is_other
    has_other_metadata = (now.metadata[is_there] != new_rows.metadata[positions]) & ~is_changed

    is_another = has_other_text
    # Without texts, equal vectors show that both are of one corpus
    if sources is not None and not old.info.has_texts:
        is_another = now.vectors[is_there] != sources[positions]
    now_confidence = np.ones(len(rows), np.float32)
    now_confidence[is_there] = np.where(is_changed, np.float32(1), confidence[positions])
    final = rows.copy()
    final[np.flatnonzero(is_there)[is_changed]] = TRUE_VECTOR
    n_changed = int(is_changed.sum())
    n_metadata = None
    # Two kinds keep metadata in ways of their own, and would differ in all of it
    if same_kind:
        n_metadata = int(has_other_metadata.sum())
    counts = ChangeCounts(
        added=len(rows) - len(positions),
        changed=n_changed,
        metadata=n_metadata,
        deleted=new.info.count - len(positions),
        unchanged=len(positions) - n_changed - (n_metadata or 0),
    )
    by_texts = sources is None and not (confidence == 1).all()
    return Changes(
        counts=counts,
        rows=final,
        checksums=now.vectors,
        confidence=now_confidence,
        blank=now.blank,
        by_texts=by_texts,
        kept=int((~is_another).sum()),
    )


@dataclass(frozen=True, slots=True)
class _Records:
    """Hashes of what each document of a store has, (n,); `blank` says whether it has no text.

    Python's own hashes, of 64 bits, which are others in another process: both stores are read in this one.
    """

    ids: NDArray[np.int64]
    texts: NDArray[np.int64]
    metadata: NDArray[np.int64]
    vectors: Checksums
    blank: NDArray[np.bool_]


def _read(store: Store, *, with_vectors: bool, progress: Progress) -> _Records:
    count = store.info.count
    start = 0
    # Hashes of 64 bits in the place of texts, which need not fit into memory
    ids, texts, metadata = (np.zeros(count, np.int64) for _ in range(3))
    vectors = np.zeros(count, np.uint64)
    blank = np.zeros(count, bool)
    for documents, batch in _batches(store, with_vectors=with_vectors):
        progress("compare", start, count)
        rows = slice(start, start + len(documents))
        ids[rows] = [hash(document.id) for document in documents]
        texts[rows] = [hash(document.text) for document in documents]
        metadata[rows] = [hash(_comparable(document.metadata)) for document in documents]
        blank[rows] = [not document.text.strip() for document in documents]
        if batch is not None:
            vectors[rows] = vector_checksums(batch.vectors)
        start += len(documents)
    _refuse_doubles(store, ids)
    return _Records(ids, texts, metadata, vectors, blank)


def _batches(store: Store, *, with_vectors: bool) -> Iterator[tuple[list[Document], Batch | None]]:
    if not store.info.has_texts:
        for batch in store.scan():
            yield [Document(doc_id, "") for doc_id in batch.ids], batch
        return
    documents = store.documents()
    if with_vectors:
        for batch in store.scan():
            yield list(islice(documents, len(batch))), batch
        return
    while chunk := list(islice(documents, BATCH_SIZE)):
        yield chunk, None


def _comparable(value: object) -> Hashable:
    """Return a value that is equal by type as well: 1, 1.0 and True are three; a NaN is another's equal.

    The order of keys, which may be of types that have none, does not matter.
    """
    if isinstance(value, Mapping):
        return frozenset((repr(key), _comparable(item)) for key, item in value.items())
    if isinstance(value, list | tuple):
        return type(value), tuple(map(_comparable, value))
    if isinstance(value, set | frozenset):
        return type(value), frozenset(map(repr, value))
    return repr(value)


def _rows_of(ids: NDArray[np.int64], known_ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the place of each of `ids`, (n,), among `known_ids`, -1 where it is not."""
    if not len(known_ids):
        return np.full(len(ids), TRUE_VECTOR, np.int64)
    order = np.argsort(known_ids, kind="stable")
    # `searchsorted` gives the length for an id that would come after the last
    positions = np.minimum(np.searchsorted(known_ids, ids, sorter=order), len(known_ids) - 1)
    rows = order[positions].astype(np.int64)
    return np.where(known_ids[rows] == ids, rows, TRUE_VECTOR)


def _refuse_doubles(store: Store, ids: NDArray[np.int64]) -> None:
    unique, first, counts = np.unique(ids, return_index=True, return_counts=True)
    if len(unique) < len(ids):
        (doc_id,) = store.ids(first[counts > 1][:1].astype(np.int64))
        raise StoreError(
            f"{store.info.location}: two documents have the id {doc_id!r}, so that changes cannot be told; rename one"
        )
