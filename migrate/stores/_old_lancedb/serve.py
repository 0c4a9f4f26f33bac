"""Serves a table of LanceDB: its own search, with the index where there is one, and single vectors replaced."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from migrate.errors import StoreError, UsageError
from migrate.stores.lancedb.client import SWITCHED, answers, as_column, client, is_lossy
from migrate.stores.serving import Hits, as_hits, check_queries, check_replacements, other_there
from migrate.vectors import Vectors

if TYPE_CHECKING:
    from migrate.stores.lancedb.store import LanceStore

_SEEN_WITHIN: Final = timedelta(seconds=1)
"""When what another process writes is seen."""
_SCATTERED: Final = 0.02
_LEAST_SCATTERED: Final = 3_000
_KEPT: Final = timedelta(days=36_500)


class LanceServing:
    """Searches the newest version of a table, or the one that the location names, and puts vectors into it.

    Parameters
    ----------
    store
        The table.
    """

    def __init__(self, store: LanceStore) -> None:
        self._store, self._info = store, store.info
        # rows that are numbered keep their numbers in one version alone
        self._is_fixed = store.id_column is None or store.asked_version is not None
        self._table, self._scattered = store.table, 0
        if not self._is_fixed:
            with answers(self._info.location):
                database = client().connect(str(store.path), read_consistency_interval=_SEEN_WITHIN)
                self._table = database.open_table(store.name)

    def search(self, queries: Vectors, k: int, where: Any = None) -> list[Hits]:
        """See `Searchable`; `where` is a condition in SQL."""
        if where is not None and not isinstance(where, str):
            raise UsageError(
                f'{self._info.location}: expected a filter in SQL, such as "page < 3", rows {type(where).__name__}'
            )
        queries = check_queries(self._info, queries)
        if k <= 0:
            return [as_hits((), ()) for _ in queries]
        return [self._nearest(query, k, where) for query in queries]

    def put_vectors(self, ids: Sequence[str], vectors: Vectors) -> int:
        """See `Updatable`: all of them in one version. LanceDB moves the rows to the end of the table.

        Each call leaves a file more to search; when some share of the table lies in such files they are made one, with
        no version deleted.
        """
        import pyarrow as pa

        store, new = self._store, check_replacements(self._info, ids, vectors)
        if self._is_fixed:
            what = "a table without a column of ids" if store.id_column is None else "an older version"
            raise StoreError(f"{self._info.location}: vectors cannot be put into {what}; open the table by its ids")
        kept = [doc_id for doc_id in new if store.is_possible_id(doc_id)]
        if not kept:
            return 0
        kind, key = (store.schema.field(name).type for name in (store.vector, store.id_column))
        rows = np.stack([new[doc_id] for doc_id in kept])
        _refuse_overflow(self._info.location, kept, rows, kind)
        keys = pa.array(kept if pa.types.is_string(key) or pa.types.is_large_string(key) else map(int, kept), key)
        columns = {store.id_column: keys, store.vector: as_column(pa, rows, kind, np.ones(len(rows), np.bool_))}
        with answers(self._info.location):
            self._table.checkout_latest()
            if _switched(self._table.schema) != _switched(store.schema):
                raise other_there(self._info)
            merge = self._table.merge_insert(store.id_column)
            merge = merge.when_matched_update_all(where=f"target.{store.quoted_vector} IS NOT NULL")
            count = int(merge.execute(pa.table(columns)).num_updated_rows)
        self._scattered += count
        if self._scattered >= max(_SCATTERED * self._info.count, _LEAST_SCATTERED):
            self._scattered = 0
            with suppress(Exception):  # another program may commit meanwhile; it is done the next time
                self._table.optimize(cleanup_older_than=_KEPT)
        return count

    def _nearest(self, query: Vectors, k: int, where: str | None) -> Hits:
        store = self._store
        try:
            with answers(self._info.location):
                search = self._table.search(query, vector_column_name=store.vector, query_type="vector")
                search = search.distance_type({"ip": "dot"}.get(store.distance, store.distance))
                if store.index is not None and is_lossy(store.index[0]):
                    search = search.refine_factor(1)  # the scores are then those of whole vectors
                search = search if where is None else search.where(where, prefilter=True)
                columns = ["_distance", *([store.id_column] if store.id_column else [])]
                rows = search.with_row_id(store.id_column is None).select(columns).limit(k).to_arrow()
        except StoreError as error:
            if where is None:
                raise
            raise UsageError(f"{error}; is the filter right?") from error
        if store.id_column is None:
            numbers = rows["_rowid"].to_numpy()
            ids = list(map(str, self._order[np.searchsorted(self._row_ids, numbers, sorter=self._order)].tolist()))
        else:
            ids = list(map(str, rows[store.id_column].to_pylist()))
        distances = rows["_distance"].to_numpy().astype(np.float64)
        return as_hits(ids, distances if store.distance == "l2" else 1 - distances)

    @cached_property
    def _row_ids(self) -> NDArray[Any]:
        """LanceDB's own id of each row of the version."""
        with answers(self._info.location):
            rows = self._table.search().with_row_id(True).select([self._store.vector]).to_batches()
            return np.concatenate([batch.column(batch.schema.get_field_index("_rowid")) for batch in rows])

    @cached_property
    def _order(self) -> NDArray[np.intp]:
        return np.argsort(self._row_ids)


def _switched(schema: Any) -> Any:
    """The switch that a version came by."""
    return (schema.metadata or {}).get(SWITCHED)


def _refuse_overflow(location: str, ids: Sequence[str], vectors: Vectors, kind: Any) -> None:
    with np.errstate(over="ignore"):
        beyond = ~np.isfinite(vectors.astype(kind.value_type.to_pandas_dtype())).all(axis=1)
    if beyond.any():
        raise StoreError(
            f"{location}: expected numbers that {kind.value_type} holds, rows larger ones for document "
            f"{ids[int(beyond.argmax())]!r}; nothing was written"
        )
