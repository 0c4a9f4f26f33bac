"""Search in memory: by an index of FAISS as it lies in its file, or exactly, by a flat one made of a store's vectors.

An index is read here by the process itself, which is faster than the guarded one of `worker.py`; the store has been
opened by then, and so its file has been read once without harm.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from migrate.errors import StoreError, UsageError
from migrate.files import output_errors, refuse_endless
from migrate.stores.base import Hits, SearchSetting, Store, StoreSearcher
from migrate.stores.child import run_job
from migrate.stores.faiss.reader import read_job
from migrate.stores.faiss.recipe import EXACT
from migrate.stores.frames import LABELS, ROWS
from migrate.stores.serving import as_compared, as_fields, as_hits, check_queries
from migrate.vectors import Vectors, squared_norms

_NOT_FOUND: Final = -1
_MOST_CANDIDATES: Final = 4_096
"""Candidates of a graph that are tried at most: a search of that many is no faster than comparing all."""

_CODE: Final = 'faiss.ParameterSpace().set_index_parameter(index, "NAME", {})'
"""Sets a parameter of an index that lies in another one."""


class IndexSearcher(StoreSearcher):
    """An index of FAISS in memory that searches a store; FAISS lets several threads search at once.

    `ids` and `labels` are of each row; labels are None where they are the numbers of the rows. `_inner` is the index
    inside an IDMap if there is one, as its own class, and `_inner_labels` are what it knows rows by.
    """

    def __init__(self, store: Store, index: Any, ids: Sequence[str], labels: NDArray[np.int64] | None) -> None:
        import faiss

        self.info = store.info
        self._store = store
        self._index = index
        self._ids = ids
        self._labels = labels
        self._inner = faiss.downcast_index(index)  # `index` goes on owning the memory
        self._inner_labels = labels
        if isinstance(self._inner, faiss.IndexIDMap):  # the index inside knows rows alone
            self._inner = faiss.downcast_index(self._inner.index)
            self._inner_labels = None
        if labels is None:
            self._order = None
        else:
            self._order = np.argsort(labels)
        self._lock = Lock()
        self._rows_by: dict[str, dict[str, NDArray[np.int64]]] = {}

    def search(self, queries: Vectors, k: int, where: Any = None) -> list[Hits]:
        """Search as `StoreSearcher.search`; `where` is a mapping of metadata to values."""
        queries = as_compared(self.info, check_queries(self.info, queries))
        fields = as_fields(self.info, where)
        if not fields:
            chosen = None
        else:
            chosen = self._rows_with(fields)
        most = min(k, self.info.count if chosen is None else len(chosen))
        if most <= 0 or not len(queries):
            return [as_hits((), ()) for _ in queries]
        scores, labels = self._nearest(queries, most, chosen)
        rows = self._rows_of(labels)
        hits = []
        for query, positions, values in zip(queries, rows, scores, strict=True):
            valid = positions >= 0
            # an approximate index looks at too few that pass
            if chosen is not None and valid.sum() < most:
                positions, values = self._exactly(query, chosen, most)
                valid = positions >= 0
            hits.append(as_hits([self._ids[row] for row in positions[valid].tolist()], values[valid]))
        return hits

    def held_vectors(self, rows: NDArray[np.int64]) -> Vectors | None:
        """Return the vectors of some rows, in their order, as they are compared; None where the index keeps none."""
        import faiss

        index = self._inner
        labels = self._inner_labels
        if not isinstance(index, faiss.IndexFlat | faiss.IndexHNSWFlat):
            return None
        vectors: Vectors = index.reconstruct_batch(rows if labels is None else labels[rows])
        return vectors

    def _rows_of(self, labels: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the row of each label, of any shape; -1 where the index found none."""
        return rows_of(labels, self._labels, self._order)

    def _nearest(self, queries: Vectors, k: int, chosen: NDArray[np.int64] | None) -> tuple[Any, NDArray[np.int64]]:
        if chosen is None:
            scores, labels = self._index.search(queries, k)
            return scores, labels
        import faiss

        index = self._inner
        known_by = self._inner_labels
        if known_by is None:
            selected = chosen
        else:
            selected = known_by[chosen]
        selector = faiss.IDSelectorBatch(np.ascontiguousarray(selected, np.int64))
        scores, labels = index.search(queries, k, params=self._parameters(index, selector))
        if known_by is None and self._labels is not None:
            labels = np.where(labels == _NOT_FOUND, _NOT_FOUND, self._labels[labels])
        return scores, labels

    def _parameters(self, index: Any, selector: Any) -> Any:
        import faiss

        # Parameters that are given replace those of the index, and have 1 list or 16 candidates unless they say
        # otherwise.
        if isinstance(index, faiss.IndexIVF):
            return faiss.SearchParametersIVF(sel=selector, nprobe=index.nprobe)
        if isinstance(index, faiss.IndexHNSW):
            return faiss.SearchParametersHNSW(sel=selector, efSearch=index.hnsw.efSearch)
        if isinstance(index, faiss.IndexFlat):
            return faiss.SearchParameters(sel=selector)
        raise UsageError(
            f"{self.info.location}: an index {type(index).__name__} cannot be filtered: search without `where`"
        )

    def _exactly(self, query: Vectors, chosen: NDArray[np.int64], k: int) -> tuple[NDArray[np.int64], Any]:
        vectors = as_compared(self.info, self._store.get(chosen).vectors)
        if self.info.metric == "ip":
            scores = vectors @ query
            best = np.argsort(-scores, kind="stable")[:k]
        else:
            scores = squared_norms(vectors - query)
            best = np.argsort(scores, kind="stable")[:k]
        return chosen[best], scores[best]

    def _rows_with(self, fields: Mapping[str, Any]) -> NDArray[np.int64]:
        """Return the rows whose metadata have all these values, ascending."""
        if not self.info.has_texts:
            raise UsageError(f"{self.info.location}: the store has no metadata to filter by")
        rows: NDArray[np.int64] | None = None
        for name, value in fields.items():
            same = self._rows_by_value(name).get(_key(value), np.empty(0, np.int64))
            if rows is None:
                rows = same
            else:
                rows = np.intersect1d(rows, same, assume_unique=True)
        if rows is None:
            return np.empty(0, np.int64)
        return rows

    def _rows_by_value(self, name: str) -> dict[str, NDArray[np.int64]]:
        """Return the rows of each value of a name: read when it is first needed, and held in memory."""
        with self._lock:
            if name not in self._rows_by:
                rows: dict[str, list[int]] = {}
                for row, document in enumerate(self._store.documents()):
                    if name in document.metadata:
                        rows.setdefault(_key(document.metadata[name]), []).append(row)
                if not rows and self.info.count:
                    location = self.info.location
                    raise UsageError(f"{location}: no document has metadata called {name!r} to filter by")
                # Arbitrary: filters by ever other names are not to fill the memory of a process that serves for weeks.
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
    if order is None:
        order = np.argsort(labels)
    positions = np.minimum(np.searchsorted(labels, found, sorter=order), labels.size - 1)
    is_known = (found != _NOT_FOUND) & (labels[order[positions]] == found)
    return np.where(is_known, order[positions], _NOT_FOUND)


class FaissSearcher(StoreSearcher):
    """The index in a file of FAISS, which searches the store; `labels` are those of all rows, None for their numbers.

    `search` has it in memory, `search_index` leaves it to a guarded process: its links may be damaged.
    """

    def __init__(self, store: Store, path: Path, labels: NDArray[np.int64] | None) -> None:
        self.info = store.info
        self.has_own_index = self.info.details["factory"] not in EXACT
        self._store = store
        self._path = path
        self._labels = labels
        self._opening = Lock()
        self._opened: IndexSearcher | None = None

    def in_memory(self) -> IndexSearcher:
        """Return the search by the index in memory, which is read the first time."""
        with self._opening:
            if self._opened is None:
                self._opened = self._open()
            return self._opened

    def _open(self) -> IndexSearcher:
        import faiss

        try:
            refuse_endless(self._path)
            index = faiss.read_index(str(self._path))
        except RuntimeError as error:
            reason = str(error).splitlines()[0][:200]
            raise StoreError(f"{self._path}: FAISS cannot read the index ({reason})") from error
        return IndexSearcher(self._store, index, self._store.ids(range(self.info.count)), self._labels)

    def search(self, queries: Vectors, k: int, where: Any = None) -> list[Hits]:
        """Search the index itself, in memory from the first search on; `where` maps metadata to values."""
        return self.in_memory().search(queries, k, where)

    @property
    def setting(self) -> SearchSetting | None:
        """The lists of an IVF index that are looked into, or the candidates of a graph."""
        details = self.info.details
        count = self.info.count
        # else it lies in another index
        is_plain = str(details["factory"]).startswith(("IVF", "HNSW"))
        if "nprobe" in details:
            code = "index.nprobe = {}"
            if not is_plain:
                code = _CODE.replace("NAME", "nprobe")
            return SearchSetting("nprobe", int(details["nprobe"]), int(details["nlist"]), code)
        if "efSearch" in details:
            value = int(details["efSearch"])
            code = "index.hnsw.efSearch = {}"
            if not is_plain:
                code = _CODE.replace("NAME", "efSearch")
            return SearchSetting("efSearch", value, max(value, min(_MOST_CANDIDATES, count)), code)
        return None

    def search_index(self, queries: Vectors, k: int, effort: int | None = None) -> list[Hits]:
        """Search the index in a guarded process."""
        queries = check_queries(self.info, queries)
        path = self._path
        setting = self.setting
        if k <= 0 or not len(queries):
            return [as_hits((), ()) for _ in queries]
        labels = bytearray()
        scores = bytearray()
        with output_errors(Path(tempfile.gettempdir())), tempfile.NamedTemporaryFile() as file:
            file.write(np.ascontiguousarray(queries, "<f4").tobytes())
            file.flush()
            if setting is None or effort is None:
                chosen = None
            else:
                chosen = (setting.name, effort)
            job = read_job("ask", path, queries=file.name, k=k, setting=chosen)
            for tag, content in run_job(path, job, file_bytes=path.stat().st_size):
                labels += content if tag == LABELS else b""
                scores += content if tag == ROWS else b""
        # A process that is killed in the middle has sent whole frames, too few of them.
        if not len(labels) == 2 * len(scores) == 8 * k * len(queries):
            raise StoreError(f"{path}: FAISS did not answer every query; the index is damaged, build it again")
        rows = rows_of(np.frombuffer(labels, "<i8").astype(np.int64, copy=False).reshape(-1, k), self._labels)
        is_found = (rows >= 0) & (rows < self.info.count)
        values = np.frombuffer(scores, "<f4").reshape(-1, k)
        different = np.unique(rows[is_found])
        # Each id is read once: queries that are alike find the same documents.
        names = np.array(self._store.ids(different), object)
        return [
            as_hits(names[np.searchsorted(different, query_rows[is_row])].tolist(), query_scores[is_row])
            for query_rows, query_scores, is_row in zip(rows, values, is_found, strict=True)
        ]


def open_search(store: Store) -> StoreSearcher:
    """Return the search of a store: its own, or an exact one over its vectors, which are then held in memory.

    Of a store without a search of its own, `where` is a mapping of metadata to values. What is written to such a store
    later is not seen.
    """
    searcher = store.searcher()
    if isinstance(searcher, FaissSearcher):
        return searcher.in_memory()
    if searcher is not None:
        return searcher
    import faiss

    index = (faiss.IndexFlatIP if store.info.metric == "ip" else faiss.IndexFlatL2)(store.info.dim)
    ids: list[str] = []
    for batch in store.scan():
        index.add(as_compared(store.info, batch.vectors))
        ids += batch.ids
    return IndexSearcher(store, index, ids, None)
