"""Writes true vectors while a store serves: into the records of a database; those of files are in the cache alone.

Files are never written to: searchers find their true vectors in the embedding cache, and `backfill` writes a new store
with all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from migrate.errors import UsageError
from migrate.live.state import LiveState, text_hash
from migrate.stores.base import Store
from migrate.stores.file_store import as_files
from migrate.stores.updates import UpdatableStore
from migrate.vectors import Document, Vectors


def put_true_vectors(
    state: LiveState, store: Store, documents: Sequence[Document], vectors: Vectors, *, is_written: bool = False
) -> int:
    """Put the true vectors, (n, dim), of some documents into a store; return for how many, as some may be gone.

    They are in the cache already. First the store has them, then the state, which notes which documents have theirs: a
    kill in between costs nothing. A store that `is_written` has been given vectors since it was opened.
    """
    hashes = {document.id: text_hash(document.text) for document in documents}
    if not isinstance(store, UpdatableStore):
        state.documents.mark_true(hashes)
        return len(hashes)
    if store.info.is_copy and not is_written and not store.is_as_opened():
        return 0  # what changed cannot be seen in it
    ids = replace_vectors(store, hashes, vectors)
    state.documents.mark_true({doc_id: hashes[doc_id] for doc_id in ids})
    return len(ids)


def replace_vectors(store: UpdatableStore, hashes: Mapping[str, bytes], vectors: Vectors) -> list[str]:
    """Replace the vectors, (n, dim), of documents that still have texts of these `hashes`; return their ids."""
    now = store.records.documents(list(hashes))
    rows = {doc_id: row for row, doc_id in enumerate(hashes) if doc_id in now}
    rows = {doc_id: row for doc_id, row in rows.items() if text_hash(now[doc_id].text) == hashes[doc_id]}
    ids = list(rows)
    # A text that changed since it was embedded would get the vector of the old one
    store.records.put(ids, vectors[np.array(list(rows.values()), dtype=np.int64)])
    return ids


def require_served(store: Store) -> None:
    """Make sure that true vectors of a store have a place: UsageError if it is neither in files nor in a database."""
    if as_files(store) is None and not isinstance(store, UpdatableStore):
        raise UsageError(
            f"{store.info.location}: stores of the kind {store.info.kind} cannot be completed while they serve; use "
            "two-stage search and `backfill`"
        )
