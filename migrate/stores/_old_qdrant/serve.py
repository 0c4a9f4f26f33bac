"""Serves a collection of Qdrant: its own search, and single vectors replaced."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from migrate.errors import StoreError, UsageError
from migrate.stores.qdrant.client import AT_ONCE, answers
from migrate.stores.serving import Hits, as_hits, check_queries, check_replacements, other_there
from migrate.vectors import Vectors

if TYPE_CHECKING:
    from migrate.stores.qdrant.store import QdrantStore

_FLOATS: Final = ("float32", "float16")


class QdrantServing:
    """Searches a collection and puts vectors into it.

    A folder of the local mode is searched in the copy that was made of it when it was opened, until vectors are put:
    from then on the store uses the folder itself, which the client locks for one process alone. Its threads take turns,
    as the local mode knows none.

    Parameters
    ----------
    store
        The collection.
    """

    def __init__(self, store: QdrantStore) -> None:
        # The store has this: a copy is gone with the last reference to it, and not when garbage is collected.
        self._store, self._info = weakref.proxy(store), store.info
        self._lock = Lock()
        self._is_taken = store.place.is_remote

    def search(self, queries: Vectors, k: int, where: Any = None) -> list[Hits]:
        """See `Searchable`; `where` is a `Filter` of qdrant-client, or what makes one, `{"must": [...]}`."""
        store, queries = self._store, check_queries(self._info, queries)
        chosen = self._filter(where)
        if k <= 0 or not len(queries):
            return [as_hits((), ()) for _ in queries]
        requests = [
            store.models.QueryRequest(
                query=query.tolist(),
                using=store.vector or None,
                filter=chosen,
                limit=k,
                with_payload=False if store.id_field is None else [store.id_field],
            )
            for query in queries
        ]
        with self._alone(), answers(store.place):
            responses = store.place.client.query_batch_points(store.name, requests)
        is_l2 = self._info.metric == "l2"  # the distance itself, where its square is wanted
        hits = []
        for response in responses:
            scores = np.array([point.score for point in response.points], np.float64)
            hits.append(as_hits([store.id_of(point) for point in response.points], scores**2 if is_l2 else scores))
        return hits

    def put_vectors(self, ids: Sequence[str], vectors: Vectors) -> int:
        """See `Updatable`."""
        store, new, count = self._store, check_replacements(self._info, ids, vectors), 0
        if (kind := store.params.datatype) is not None and kind.value not in _FLOATS:
            raise StoreError(f"{self._info.location}: vectors are kept as {kind.value}, which cannot hold new ones")
        names = list(new)
        if store.place.number_of(store.name) != store.number:
            raise other_there(self._info)
        with self._alone():
            if not self._is_taken:
                store.place.take_itself()
                self._is_taken = True
            for first in range(0, len(names), AT_ONCE):
                count += self._put({doc_id: new[doc_id] for doc_id in names[first : first + AT_ONCE]})
        return count

    def _put(self, new: Mapping[str, Vectors]) -> int:
        store, make = self._store, self._store.models.PointVectors
        points = []
        for doc_id, point in store.retrieve(list(new), payload=False, vectors=True):
            if store.vector_of(point) is not None:
                vector = new[doc_id].tolist()
                points.append(make(id=point.id, vector={store.vector: vector} if store.vector else vector))
        if points:
            with answers(store.place):
                store.place.client.update_vectors(store.collection, points, wait=True)
        return len(points)

    def _alone(self) -> AbstractContextManager[Any]:
        return nullcontext() if self._store.place.is_remote else self._lock

    def _filter(self, where: Any) -> Any:
        kind = self._store.models.Filter
        if where is None or isinstance(where, kind):
            return where
        try:
            return kind(**where)
        except (TypeError, ValueError) as error:
            raise UsageError(
                f"{self._info.location}: expected a Filter of Qdrant, found {type(where).__name__}; import it from "
                "qdrant_client.models"
            ) from error
