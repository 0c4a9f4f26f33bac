"""Search in memory: by an index of FAISS as it lies in its file, or exactly, by a flat one made of a store's vectors.

An index is read here by the process itself, which is faster than the guarded one of `worker.py`; the store has been
opened by then, and so its file has been read once without harm.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from migrate.errors import StoreError, UsageError
from migrate.files import refuse_endless
from migrate.stores.base import Hits, Store
from migrate.stores.serving import as_compared, as_fields, as_hits, check_queries
from migrate.vectors import Vectors, squared_norms

_NOT_FOUND: Final = -1


class IndexSearch:
    """An index of FAISS in memory that searches a store; FAISS lets several threads search at once.

    `ids` and `labels` are of each row; labels are None where they are the numbers of the rows.
    """

    def __init__(self, store: Store, index: Any, ids: Sequence[str], labels: NDArray[np.int64] | None) -> None:
        self._store, self._index, self._ids, self._labels = store, index, ids, labels
        self._order = None if labels is None else np.argsort(labels)
        self._lock = Lock()
        self._rows_by: dict[str, dict[str, NDArray[np.int64]]] = {}

    def search(self, queries: Vectors, k: int, where: Any = None) -> list[Hits]:
        """Search as `Store.search`; `where` is a mapping of metadata to values."""
        queries = as_compared(self._store.info, check_queries(self._store.info, queries))
        fields = as_fields(self._store.info, where)
        chosen = self._rows_with(fields) if fields else None
        most = min(k, self._store.info.count if chosen is None else len(chosen))
        if most <= 0 or not len(queries):
            return [as_hits((), ()) for _ in queries]
        scores, labels = self._nearest(queries, most, chosen)
        rows = self._rows_of(labels)
        hits = []
        for query, positions, values in zip(queries, rows, scores, strict=True):
            valid = positions >= 0
            if chosen is not None and valid.sum() < most:  # an approximate index looks at too few that pass
                positions, values = self._exactly(query, chosen, most)
                valid = positions >= 0
            hits.append(as_hits([self._ids[row] for row in positions[valid].tolist()], values[valid]))
        return hits

    def held_vectors(self, rows: NDArray[np.int64]) -> Vectors | None:
        """Return the vectors of some rows, in their order, as they are compared; None where the index keeps none."""
        import faiss

        index, labels = self._inner
        if not isinstance(index, faiss.IndexFlat | faiss.IndexHNSWFlat):
            return None
        vectors: Vectors = index.reconstruct_batch(rows if labels is None else labels[rows])
        return vectors

    @cached_property
    def _inner(self) -> tuple[Any, NDArray[np.int64] | None]:
        """The index of its own class, inside an IDMap if there is one, and what it knows rows by; None for rows."""
        import faiss

        index = faiss.downcast_index(self._index)  # `self._index` goes on owning the memory
        if isinstance(index, faiss.IndexIDMap):  # the index inside knows rows alone
            return faiss.downcast_index(index.index), None
        return index, self._labels

    def _rows_of(self, labels: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the row of each label, of any shape; -1 where the index found none."""
        return rows_of(labels, self._labels, self._order)

    def _nearest(self, queries: Vectors, k: int, chosen: NDArray[np.int64] | None) -> tuple[Any, NDArray[np.int64]]:
        if chosen is None:
            scores, labels = self._index.search(queries, k)
            return scores, labels
        import faiss

        index, known_by = self._inner
        selected = chosen if known_by is None else known_by[chosen]
        selector = faiss.IDSelectorBatch(np.ascontiguousarray(selected, np.int64))
        scores, labels = index.search(queries, k, params=self._parameters(index, selector))
        if known_by is None and self._labels is not None:
            labels = np.where(labels == _NOT_FOUND, _NOT_FOUND, self._labels[labels])
        return scores, labels

    def _parameters(self, index: Any, selector: Any) -> Any:
        import faiss

        if isinstance(index, faiss.IndexIVF):
            return faiss.SearchParametersIVF(sel=selector, nprobe=index.nprobe)
        if isinstance(index, faiss.IndexHNSW):
            return faiss.SearchParametersHNSW(sel=selector, efSearch=index.hnsw.efSearch)
        if isinstance(index, faiss.IndexFlat):
            return faiss.SearchParameters(sel=selector)
        raise UsageError(
            f"{self._store.info.location}: an index {type(index).__name__} cannot be filtered: search without `where`"
        )

    def _exactly(self, query: Vectors, chosen: NDArray[np.int64], k: int) -> tuple[NDArray[np.int64], Any]:
        vectors = as_compared(self._store.info, self._store.get(chosen).vectors)
        if self._store.info.metric == "ip":
            scores = vectors @ query
            best = np.argsort(-scores, kind="stable")[:k]
        else:
            scores = squared_norms(vectors - query)
            best = np.argsort(scores, kind="stable")[:k]
        return chosen[best], scores[best]

    def _rows_with(self, fields: Mapping[str, Any]) -> NDArray[np.int64]:
        """Return the rows whose metadata have all these values, ascending."""
        if not self._store.info.has_texts:
            raise UsageError(f"{self._store.info.location}: the store has no metadata to filter by")
        rows: NDArray[np.int64] | None = None
        for name, value in fields.items():
            same = self._rows_by_value(name).get(_key(value), np.empty(0, np.int64))
            rows = same if rows is None else np.intersect1d(rows, same, assume_unique=True)
        return np.empty(0, np.int64) if rows is None else rows

    def _rows_by_value(self, name: str) -> dict[str, NDArray[np.int64]]:
        """Return the rows of each value of a name: read when it is first needed, and held in memory."""
        with self._lock:
            if name not in self._rows_by:
                rows: dict[str, list[int]] = {}
                for row, document in enumerate(self._store.documents()):
                    if name in document.metadata:
                        rows.setdefault(_key(document.metadata[name]), []).append(row)
                if not rows and self._store.info.count:
                    location = self._store.info.location
                    raise UsageError(f"{location}: no document has metadata called {name!r} to filter by")
                if len(self._rows_by) >= 32:
                    self._rows_by.clear()
                self._rows_by[name] = {value: np.array(positions, np.int64) for value, positions in rows.items()}
            return self._rows_by[name]


def _key(value: Any) -> str:
    """Return a value as a key: what JSON holds alike is alike."""
    return json.dumps(value, sort_keys=True, default=str)


def rows_of(
    found: NDArray[np.int64], labels: NDArray[np.int64] | None, order: NDArray[np.int64] | None = None
) -> NDArray[np.int64]:
    """Return the row of each label that an index found, of any shape; -1 where it found none.

    `labels` are those of all rows, None where they are the numbers of the rows, and `order` is what sorts them.
    """
    if labels is None or not labels.size:
        return found
    order = np.argsort(labels) if order is None else order
    positions = np.minimum(np.searchsorted(labels, found, sorter=order), labels.size - 1)
    is_known = (found != _NOT_FOUND) & (labels[order[positions]] == found)
    return np.where(is_known, order[positions], _NOT_FOUND)


def search_of_file(store: Store, path: Path, ids: Sequence[str], labels: NDArray[np.int64] | None) -> IndexSearch:
    """Return the search of a store by the index in its file."""
    import faiss

    try:
        refuse_endless(path)
        index = faiss.read_index(str(path))
    except RuntimeError as error:
        raise StoreError(f"{path}: FAISS cannot read the index ({str(error).splitlines()[0][:200]})") from error
    return IndexSearch(store, index, ids, labels)


def open_search(store: Store) -> Store | IndexSearch:
    """Return the search of a store: its own, or an exact one over its vectors, which are then held in memory.

    Of a store without a search of its own, `where` is a mapping of metadata to values. What is written to such a store
    later is not seen.
    """
    if store.searches:
        return store
    import faiss

    index = (faiss.IndexFlatIP if store.info.metric == "ip" else faiss.IndexFlatL2)(store.info.dim)
    ids: list[str] = []
    for batch in store.scan():
        index.add(as_compared(store.info, batch.vectors))
        ids += batch.ids
    return IndexSearch(store, index, ids, None)
