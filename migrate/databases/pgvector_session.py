"""Connections to a PostgreSQL server, and the table in which files lie beside the stores of a schema."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from migrate.databases.pgvector_table import quoted, sql
from migrate.locations import secrets_of
from migrate.manifest import MANIFEST_NAME, parse_manifest
from migrate.stores.added_fields import REMOVED_NOTE, UNFINISHED, AddedField, note_was_removed
from migrate.stores.records import import_client
from migrate.stores.serving import ConnectionPool

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.sql import Composed

FILES: Final = "lead_migrate_files"
"""The table of what lies beside stores: name of the store, name of the file, content."""
PATIENCE: Final = "10s"
"""How long a transaction that changes a table waits for others, as more wait behind it."""


class Session:
    """The connections of one driver; `location` is for messages."""

    def __init__(self, location: str, url: str) -> None:
        self.location = location
        self.pool: ConnectionPool[Connection[Any]] = ConnectionPool(
            lambda: connect(url), lambda connection: connection.execute("SELECT 1")
        )
        self._held: Connection[Any] | None = None

    @contextmanager
    def connected(self) -> Iterator[Connection[Any]]:
        """Yield a connection for this thread: that of `transaction`, if there is one."""
        if self._held is not None:
            yield self._held
            return
        with self.pool.connection() as connection:
            yield connection

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Hold a transaction, which all that is asked meanwhile is part of; for drivers that one thread uses."""
        with self.connected() as connection, connection.transaction():
            outer = self._held
            self._held = connection
            try:
                yield
            finally:
                self._held = outer

    def ask(self, question: Any, values: Sequence[Any] | Mapping[str, Any] = ()) -> list[Any]:
        """Return all rows of an answer; none if it has no rows."""
        with self.connected() as connection:
            cursor = connection.execute(question, values or None)
            return cursor.fetchall() if cursor.description else []

    def ask_binary(self, question: Composed) -> list[Any]:
        """Return all rows of an answer, in which vectors are as pgvector sends them."""
        with self.connected() as connection, connection.cursor(binary=True) as cursor:
            return cursor.execute(question).fetchall()

    def copy_in(self, table: Sequence[str], columns: int, rows: Iterable[tuple[bytes | None, ...]]) -> None:
        """Fill a table by the binary form of COPY, with fields as the types receive them."""
        copying = sql("COPY {} FROM STDIN (FORMAT BINARY)", table)
        with self.connected() as connection, connection.cursor() as cursor, cursor.copy(copying) as copy:
            copy.set_types(["bytea"] * columns)
            for row in rows:
                copy.write_row(row)

    def wait_for_locks(self) -> None:
        """Let a transaction that changes a table give up soon, as others wait behind it."""
        self.ask("SELECT set_config('lock_timeout', %s, true)", [PATIENCE])

    def files(self, schema: str, condition: str, *values: str) -> list[tuple[str, bytes]]:
        """Return files that lie beside stores, by name."""
        if not self._has_files(schema):
            return []
        question = sql(
            "SELECT name, content FROM {} WHERE {condition} ORDER BY 1", (schema, FILES), condition=condition
        )
        return self.ask(question, values)

    def _has_files(self, schema: str) -> bool:
        return self.ask("SELECT to_regclass(%s)", [quoted((schema, FILES))]) != [(None,)]

    def write_files(self, schema: str, store: str, files: Mapping[str, bytes], *, keeps_others: bool = True) -> None:
        """Put files beside a store; delete all that are there first, or those of the same names (`keeps_others`)."""
        table = (schema, FILES)
        with self.transaction():
            columns = "(store text, name text, content bytea NOT NULL, PRIMARY KEY (store, name))"
            self.ask(sql("CREATE TABLE IF NOT EXISTS {} {columns}", table, columns=columns))
            deletion = sql("DELETE FROM {} WHERE store = %s AND (name = ANY(%s) OR %s)", table)
            self.ask(deletion, [store, list(files), not keeps_others])
            for name, content in files.items():
                self.ask(sql("INSERT INTO {} VALUES (%s, %s, %s)", table), [store, name, content])

    def added(self, schema: str, table: str) -> dict[str, AddedField]:
        """Return the columns that were added to a table, by their manifests, which lie beside stores."""
        if not self._has_files(schema):
            return {}
        question = sql(
            "SELECT store, name, content FROM {} WHERE starts_with(store, %s) AND name = ANY(%s) ORDER BY 1, 2",
            (schema, FILES),
        )
        added = {}
        files = self.ask(question, [f"{table}.", [MANIFEST_NAME, UNFINISHED, REMOVED_NOTE]])
        for store, name, content in files:
            column = store[len(table) + 1 :]
            if name == REMOVED_NOTE:
                raise note_was_removed(self.location, column)
            manifest = parse_manifest(content, "store", Path(f"{FILES} of {self.location}", name))
            if manifest.store.added_beside is not None:
                added[column] = AddedField(manifest, is_complete=name == MANIFEST_NAME)
        return added


def connect(url: str) -> Connection[Any]:
    """Return a connection that commits each statement; rows that are hidden from this user are an error for it."""
    psycopg = import_client("psycopg", "pgvector")
    password = secrets_of(f"pgvector:{url}").get("password")
    connection: Connection[Any] = psycopg.connect(
        url, autocommit=True, connect_timeout=10, application_name="lead-migrate", password=password or None
    )
    connection.execute("SET row_security = off; SET client_encoding = 'UTF8'")
    return connection
