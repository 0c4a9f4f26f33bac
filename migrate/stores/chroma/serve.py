"""Serves a collection of Chroma: its own search, and single vectors replaced."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from migrate.errors import StoreError, UsageError
from migrate.stores.chroma.client import AT_ONCE, answers
from migrate.stores.serving import Hits, as_hits, check_queries, check_replacements, other_there
from migrate.vectors import Vectors

if TYPE_CHECKING:
    from migrate.stores.chroma.store import ChromaStore


class ChromaServing:
    """Searches a collection and puts vectors into it.

    A folder is searched in the copy that was made of it when it was opened, until vectors are put: from then on the
    store uses the folder itself, which Chroma gives to one process alone.

    Parameters
    ----------
    store
        The collection.
    """

    def __init__(self, store: ChromaStore) -> None:
        # The store has this: a copy is gone with the last reference to it, and not when garbage is collected.
        self._store, self._info = weakref.proxy(store), store.info
        self._taking, self._is_taken = Lock(), store._place.is_remote

    def search(self, queries: Vectors, k: int, where: Any = None) -> list[Hits]:
        """See `Searchable`; `where` is one of Chroma's, such as `{"page": {"$lt": 3}}`."""
        store, queries = self._store, check_queries(self._info, queries)
        if where is not None and not isinstance(where, Mapping):
            raise UsageError(
                f"{self._info.location}: expected a filter of Chroma, such as {{'source': 'a'}}, found "
                f"{type(where).__name__}"
            )
        if k <= 0 or not len(queries):
            return [as_hits((), ()) for _ in queries]
        try:
            with answers(store._place.location, remote=store._place.is_remote):
                response = store.collection.query(
                    query_embeddings=queries, n_results=k, where=dict(where) if where else None, include=["distances"]
                )
        except StoreError as error:
            if where is None or not isinstance(error.__cause__, ValueError):
                raise
            raise UsageError(f"{error}; is the filter right?") from error
        return [
            as_hits(ids, distances if store.space == "l2" else 1 - np.array(distances, np.float64))
            for ids, distances in zip(response["ids"], response["distances"], strict=True)
        ]

    def put_vectors(self, ids: Sequence[str], vectors: Vectors) -> int:
        """See `Updatable`."""
        store, new = self._store, check_replacements(self._info, ids, vectors)
        if store._place.number_of(store.name) != str(store.collection.id):
            raise other_there(self._info)
        with self._taking:
            if not self._is_taken:
                store.collection = store._place.collection_itself(store.name)
                self._is_taken = True
        names, count = list(new), 0
        for first in range(0, len(names), AT_ONCE):
            with answers(store._place.location, remote=store._place.is_remote):
                there = store.collection.get(ids=names[first : first + AT_ONCE], include=[])["ids"]
                if there:
                    store.collection.update(ids=there, embeddings=np.stack([new[doc_id] for doc_id in there]))
            count += len(there)
        return count
