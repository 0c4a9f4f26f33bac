"""Serves a table of pgvector: its own search, with the index where there is one, and single vectors replaced."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

from migrate.errors import RemoteError, StoreError, UsageError
from migrate.stores.pgvector.catalog import connect, server_errors
from migrate.stores.serving import Hits, Pool, as_fields, as_hits, check_queries, check_replacements, other_there
from migrate.vectors import Vectors

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.sql import Composed

    from migrate.stores.pgvector.store import PgvectorStore

_Answer = TypeVar("_Answer")
_OPERATORS: Final = {"l2": "<->", "ip": "<#>", "cosine": "<=>"}
_MOST_EF: Final = 1_000
_LEAST_EF: Final = 40
_FILTER_STATES: Final = (None, "22P02", "42804", "42883")
"""Of a value that the client, or the column, knows nothing of."""

_HALF: Final = "halfvec"


class PgvectorServing:
    """Searches a table and puts vectors into it, by connections of its own.

    Parameters
    ----------
    store
        The table.
    """

    def __init__(self, store: PgvectorStore) -> None:
        self._store, self._info, self._location = store, store.info, store._location
        url = store.address.place
        self._pool: Pool[Connection[Any]] = Pool(lambda: connect(url))
        self._distance = str(self._info.details.get("distance", self._info.metric))
        self._expression, self._cast, self._method = self._indexed()

    def search(self, queries: Vectors, k: int, where: Any = None) -> list[Hits]:
        """See `Searchable`; `where` maps columns, or fields of the column of JSON, to values."""
        queries = check_queries(self._info, queries)
        condition, values = self._condition(where)
        if k <= 0:
            return [as_hits((), ()) for _ in queries]
        try:
            return self._twice(lambda: self._search(queries, k, condition, values))
        except StoreError as error:
            if not values or getattr(error.__cause__, "sqlstate", None) not in _FILTER_STATES:
                raise
            raise UsageError(f"{error}; give the filter values of the columns' types") from error

    def put_vectors(self, ids: Sequence[str], vectors: Vectors) -> int:
        """See `Updatable`: all of them in one transaction."""
        from psycopg.sql import SQL, Identifier

        store, table = self._store, self._store.table
        new = check_replacements(self._info, ids, vectors)
        kept = store.possible_ids(list(new))
        if not kept:
            return 0
        if table.type == _HALF:
            _refuse_overflow(self._info.location, kept, np.stack([new[doc_id] for doc_id in kept]))
        update = SQL(
            "UPDATE {table} t SET {name} = %s::{type} "
            "WHERE {key} = %s::text::{kind} AND {column} IS NOT NULL AND {where}"
        ).format(
            table=Identifier(*table.path),
            name=Identifier(table.column),
            type=SQL(table.type),
            key=Identifier("t", store.key),
            kind=SQL(table.types[store.key]),
            column=Identifier("t", table.column),
            where=store.where,
        )
        values = [(_as_text(new[doc_id]), doc_id) for doc_id in kept]
        return self._twice(lambda: self._update(update, values))

    def _update(self, update: Composed, values: list[tuple[str, str]]) -> int:
        with (
            server_errors(self._location),
            self._pool.connection() as connection,
            connection.transaction(),
            connection.cursor() as cursor,
        ):
            cursor.executemany(update, values)
            count = cursor.rowcount
            # Nobody renames the table before the end of the transaction.
            oid_row = cursor.execute(
                "SELECT to_regclass(format('%%I.%%I', %s::text, %s::text))::oid::bigint", list(self._store.table.path)
            ).fetchone()
            if oid_row is None or oid_row[0] != self._store.table.oid:
                raise other_there(self._info)
            return count

    def _twice(self, request: Callable[[], _Answer]) -> _Answer:
        """Ask again by a new connection, as the server may have been started again since the old ones were made."""
        try:
            return request()
        except RemoteError:
            self._pool.clear()
            return request()

    def _search(self, queries: Vectors, k: int, condition: Composed, values: list[Any]) -> list[Hits]:
        hits = []
        with server_errors(self._location), self._pool.connection() as connection:
            if self._method == "hnsw":  # it finds no more than that
                most = min(max(k, _LEAST_EF), _MOST_EF)
                connection.execute("SELECT set_config('hnsw.ef_search', %s, false)", [str(most)])
            for query in queries:
                rows = self._nearest(connection, query, k, condition, values)
                if len(rows) < k and self._method is not None:
                    with connection.transaction():  # the index looks at too few, of those that pass or at all
                        connection.execute("SET LOCAL enable_indexscan = off")
                        rows = self._nearest(connection, query, k, condition, values)
                hits.append(as_hits([row[0] for row in rows], self._scores([row[1] for row in rows])))
        return hits

    def _nearest(self, connection: Any, query: Vectors, k: int, condition: Composed, values: list[Any]) -> list[Any]:
        from psycopg.sql import SQL

        operator, cast = SQL(_OPERATORS[self._distance]), SQL(self._cast)
        parts = {"expression": SQL(self._expression), "operator": operator, "cast": cast, "condition": condition}
        question = self._store.select(
            "{key}::text, {expression} {operator} %s::{cast}",
            "{condition} ORDER BY {expression} {operator} %s::{cast} LIMIT %s",
            **parts,
        )
        text = _as_text(query)
        return list(connection.execute(question, [text, *values, text, k]).fetchall())

    def _scores(self, distances: list[float]) -> Any:
        array = np.array(distances, np.float64)
        if self._distance == "l2":
            return array**2
        return -array if self._distance == "ip" else 1 - array

    def _condition(self, where: Any) -> tuple[Composed, list[Any]]:
        from psycopg.sql import SQL, Identifier

        fields, table = as_fields(self._info, where), self._store.table
        nested = self._store.metadata_column()
        condition, values = SQL("").format(), []
        for name, value in fields.items():
            if name in table.types and name != nested:
                words = SQL(" AND {} IS NULL" if value is None else " AND {} = %s").format(Identifier("t", name))
                values += [] if value is None else [value]
            elif nested is not None:
                words = SQL(" AND {}::jsonb @> %s::jsonb").format(Identifier("t", nested))
                values.append(json.dumps({name: value}))
            else:
                raise UsageError(
                    f"{self._info.location}: expected a filter by columns, found {name!r}; there are "
                    f"{', '.join(table.types)}"
                )
            condition += words
        return condition, values

    def _indexed(self) -> tuple[str, str, str | None]:
        """What to order by, so that the index is used: the column, or an expression of it; its type; the method."""
        table, store = self._store.table, self._store
        for index in sorted(table.vector_indexes, key=lambda index: index.method != "hnsw"):
            if index.distance != self._distance:
                continue
            question = "SELECT pg_get_indexdef(%s, 1, true)"
            with server_errors(self._location):
                (words,) = store.connection.execute(question, [index.oid]).fetchone() or ("",)
            if words.strip('"') == table.column or words.startswith((f"{table.column}::", f'"{table.column}"::')):
                words = words.replace("%", "%%")
                cast = _HALF if f"::{_HALF}" in words or table.type == _HALF else "vector"
                return f"({words})", cast, index.method
        quoted = '"' + table.column.replace('"', '""').replace("%", "%%") + '"'
        return f"t.{quoted}", table.type, None


def _as_text(vector: Vectors) -> str:
    return "[" + ",".join(map(repr, vector.tolist())) + "]"


def _refuse_overflow(location: str, ids: Sequence[str], vectors: Vectors) -> None:
    with np.errstate(over="ignore"):
        beyond = ~np.isfinite(vectors.astype(np.float16)).all(axis=1)
    if beyond.any():
        raise StoreError(
            f"{location}: expected numbers that half precision holds, found larger ones for document "
            f"{ids[int(beyond.argmax())]!r}; nothing was written"
        )
