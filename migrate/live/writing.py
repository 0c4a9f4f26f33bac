"""Writer of true vectors while a store serves: into the records of a database; those of files are in the cache alone.

Files are never written to: searchers find their true vectors in the embedding cache, and `backfill` writes a new store
with all of them.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence

import numpy as np

from migrate.errors import UsageError
from migrate.live.state import LiveState, text_hash
from migrate.stores.base import Store
from migrate.stores.file_store import as_files
from migrate.stores.updates import UpdatableStore
from migrate.vectors import Document, Vectors


class VectorWriter:
    """A writer of true vectors, which notes in the state which documents have them."""

    def __init__(self, state: LiveState) -> None:
        self.state = state
        self._written_to: weakref.ref[Store] | None = None  # a folder that its client locks is free with its store

    def put(self, store: Store, documents: Sequence[Document], vectors: Vectors) -> int:
        """Take the true vectors, (n, dim), of some documents; return for how many, as some may be gone.

        They are in the cache already. First the store has them, then the state: a kill in between costs nothing.
        """
        hashes = {document.id: text_hash(document.text) for document in documents}
        if not isinstance(store, UpdatableStore):
            self.state.documents.mark_true(hashes)
            return len(hashes)
        ids = self.replace(store, hashes, vectors)
        self.state.documents.mark_true({doc_id: hashes[doc_id] for doc_id in ids})
        return len(ids)

    def replace(self, store: UpdatableStore, hashes: Mapping[str, bytes], vectors: Vectors) -> list[str]:
        """Replace the vectors, (n, dim), of documents that still have texts of these `hashes`; return their ids."""
        is_own = self._written_to is not None and self._written_to() is store
        if store.is_copy and not is_own and not store.is_as_opened():
            return []  # what changed cannot be seen in it
        now = store.find_documents(list(hashes))
        rows = {doc_id: row for row, doc_id in enumerate(hashes) if doc_id in now}
        rows = {doc_id: row for doc_id, row in rows.items() if text_hash(now[doc_id].text) == hashes[doc_id]}
        ids = list(rows)
        # A text that changed since it was embedded would get the vector of the old one
        store.put_vectors(ids, vectors[np.array(list(rows.values()), dtype=np.int64)])
        # Weakly: a store that is gone gives its folder free for other processes
        self._written_to = weakref.ref(store)
        return ids


def require_served(store: Store) -> None:
    """Make sure that true vectors of a store have a place: UsageError if it is neither in files nor in a database."""
    if as_files(store) is None and not isinstance(store, UpdatableStore):
        raise UsageError(
            f"{store.info.location}: stores of the kind {store.info.kind} cannot be completed while they serve; use "
            "two-stage search and `backfill`"
        )
