"""Serves a table of sqlite-vec: its own search, and single vectors replaced."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from migrate.errors import UsageError
from migrate.stores.serving import Hits, Pool, as_fields, as_hits, check_queries, check_replacements, other_there
from migrate.stores.sqlite_vec.catalog import connect_to, quoted, sqlite_errors
from migrate.vectors import Vectors

if TYPE_CHECKING:
    from apsw import Connection

    from migrate.stores.sqlite_vec.store import SqliteVecStore

_FUNCTIONS: Final = {"l2": "vec_distance_l2", "cosine": "vec_distance_cosine"}
_MOST: Final = 4_096
"""How many neighbours the table's own search finds."""

_METADATA: Final = "metadata"


class SqliteVecServing:
    """Searches a table and puts vectors into it, by connections of its own.

    Parameters
    ----------
    store
        The table.
    """

    def __init__(self, store: SqliteVecStore) -> None:
        self._store, self._info = store, store.info
        file = store.file
        self._readers: Pool[Connection] = Pool(lambda: connect_to(file))
        self._distance = str(self._info.details["distance"])

    def search(self, queries: Vectors, k: int, where: Any = None) -> list[Hits]:
        """See `Searchable`; `where` maps columns, or fields of a column `metadata` of JSON, to values.

        The table's own search knows no auxiliary columns and at most 4,096 neighbours; beyond that, the distances of
        all rows are sorted.
        """
        queries, store = check_queries(self._info, queries), self._store
        conditions, values, is_own = self._conditions(where)
        if k <= 0:
            return [as_hits((), ()) for _ in queries]
        if self._distance not in _FUNCTIONS:
            raise UsageError(
                f"{self._info.location}: sqlite-vec cannot search by {self._distance}; leave out ?distance="
            )
        key, column = (f"v.{quoted(name)}" for name in (store.table.key, store.column))
        chosen = "".join(f" AND {condition}" for condition in conditions)
        if is_own and k <= _MOST and self._distance == store.table.distances[store.column]:
            question = f"SELECT {key}, distance FROM {store._from} v WHERE {column} MATCH ?1 AND k = ?2{chosen}"  # noqa: S608
        else:
            distance = f"{_FUNCTIONS[self._distance]}({column}, ?1)"
            question = f"SELECT {key}, {distance} d FROM {store._from} v WHERE true{chosen} ORDER BY d LIMIT ?2"  # noqa: S608
        hits = []
        with sqlite_errors(store._where), self._readers.connection() as connection:
            for query in queries:
                rows = list(connection.execute(question, (query.astype("<f4").tobytes(), k, *values)))
                distances = np.array([row[1] for row in rows], np.float64)
                scores = distances**2 if self._distance == "l2" else 1 - distances
                hits.append(as_hits([str(row[0]) for row in rows], scores))
        return hits

    def put_vectors(self, ids: Sequence[str], vectors: Vectors) -> int:
        """See `Updatable`: all of them in one transaction."""
        store = self._store
        new = check_replacements(self._info, ids, vectors)
        keys = store.keys(list(new))
        if not keys:
            return 0
        name, column = quoted(store.table.key), quoted(store.column)
        listed = f"SELECT v.{name} FROM json_each(?) j CROSS JOIN {store._from} v WHERE v.{name} = j.value"  # noqa: S608
        update = f"UPDATE {store._from} SET {column} = ? WHERE {name} = ?"  # noqa: S608
        with sqlite_errors(store._where):
            connection = connect_to(store.file, write=True)
            try:
                connection.execute("BEGIN IMMEDIATE")
                if store.beginning(connection) != store.begins:
                    raise other_there(self._info)
                there = [key for (key,) in connection.execute(listed, (json.dumps(keys, ensure_ascii=False),))]
                connection.executemany(update, ((new[str(key)].astype("<f4").tobytes(), key) for key in there))
                connection.execute("COMMIT")
            finally:
                connection.close()
        return len(there)

    def _conditions(self, where: Any) -> tuple[list[str], list[Any], bool]:
        """What the rows must fulfil, with the values, and whether the table's own search knows the columns."""
        conditions, values, is_own = [], [], True
        table = self._store.table
        for place, (name, value) in enumerate(as_fields(self._info, where).items()):
            if not isinstance(value, str | int | float | bool | None):
                raise UsageError(f"{self._info.location}: expected a text or a number under {name!r} in the filter")
            if name in table.columns and name != _METADATA:
                is_own = is_own and value is not None and not table.is_auxiliary(name)
                column = f"v.{quoted(name)}"
            elif _METADATA in table.columns:
                is_own, path = False, "$." + json.dumps(name, ensure_ascii=False)
                column = f"json_extract(v.{_METADATA}, '{path.replace(chr(39), chr(39) * 2)}')"
            else:
                have = ", ".join(table.columns) or "none"
                raise UsageError(
                    f"{self._info.location}: expected a filter by columns, found {name!r}; there are {have}"
                )
            conditions.append(f"{column} {'=' if is_own else 'IS'} ?{place + 3}")
            values.append(value)
        return conditions, values, is_own
