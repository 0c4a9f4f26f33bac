"""Two tables that trade names in one transaction, with what lies beside them, and a record of it in the database."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, Final

from migrate.errors import StoreError, UsageError
from migrate.files import reach
from migrate.stores.pgvector.catalog import FILES, STAGING, connect, exists, server_errors, sql
from migrate.stores.pgvector.store import PgvectorStore, write_files
from migrate.stores.switching import RECORD_SHAPE, Exchange, Record, moved, others, read_noted, unfinished

if TYPE_CHECKING:
    from psycopg import Connection

_RECORD: Final = "switch.json"
_SHAPE: Final = {"tables": tuple[str, str], "old": int, "new": int, "record": RECORD_SHAPE}
_PATIENCE: Final = "10s"
_DEPENDENT: Final = """
SELECT DISTINCT v.relkind = 'm', v.oid::regclass::text FROM pg_depend d
JOIN pg_rewrite r ON r.oid = d.objid AND d.classid = 'pg_rewrite'::regclass
JOIN pg_class v ON v.oid = r.ev_class WHERE d.refobjid = %(oid)s AND v.oid <> %(oid)s
"""
_REFERRING: Final = """
SELECT conname, conrelid::regclass::text FROM pg_constraint
WHERE contype = 'f' AND confrelid = %(oid)s AND conrelid <> %(oid)s
"""


class PgvectorExchange(Exchange):
    """Two tables of one schema.

    Indexes, grants and policies belong to the tables, and go with them. Which table is which is told by the numbers
    that the server knows them by.

    Parameters
    ----------
    location
        The old store's.
    url
        The server.
    schema, column
        Where the tables are, and the column of vectors of both.
    old, new
        Names of the tables.
    """

    def __init__(self, location: str, url: str, schema: str, column: str, old: str, new: str) -> None:
        self.location, self.url = location, url
        self.schema, self.column, self.old, self.new = schema, column, old, new

    @classmethod
    def of(cls, old: PgvectorStore, new: PgvectorStore) -> PgvectorExchange:
        """See `Switchable.exchange`."""
        location, old_table, new_table = old.info.location, old.table, new.table
        with server_errors(location):
            here, there = (store.connection.execute(_DATABASE).fetchone() for store in (old, new))
            if here != there or old_table.schema != new_table.schema or old_table.column != new_table.column:
                raise UsageError(
                    f"{new.info.location}: expected a table in schema {old_table.schema} of the same database with a "
                    f"column {old_table.column}, found another; tables trade names within a schema"
                )
            if old_table.oid == new_table.oid:
                raise UsageError(f"{new.info.location}: this is the old table itself; name the new one")
            lacking = [name for name in old_table.types if name not in new_table.types]
            if lacking:
                raise UsageError(
                    f"{new.info.location}: expected all columns of {old_table.name}, found none called "
                    f"{', '.join(lacking)}; translate into a copy of the table"
                )
            rows, kept = (_count(store) for store in (old, new))
            if rows != kept:
                raise UsageError(
                    f"{new.info.location}: expected as many rows as in {old_table.name}, {rows:,}, found {kept:,}; the "
                    "others, such as those of other collections, would step aside with the table"
                )
            for sentence in _dependents(old.connection, old_table.oid):
                raise UsageError(
                    f"{location}: {sentence}, and would go on with the old table under another name; drop it, switch, "
                    "and make it again"
                )
        return cls(location, old.address.place, old_table.schema, old_table.column, old_table.name, new_table.name)

    @classmethod
    def at(cls, store: PgvectorStore) -> PgvectorExchange | None:
        """See `Switchable.exchanged`."""
        table = store.table
        made = cls(store.info.location, store.address.place, table.schema, table.column, table.name, "")
        with server_errors(store.info.location):
            noted = made._noted(store.connection)
        if noted is None:
            return None
        made.new = noted["tables"][1]
        return made

    def record(self) -> Record | None:
        """What the database has noted."""
        with self._connected() as connection:
            noted = self._noted(connection)
        return None if noted is None else noted["record"]

    def switch(self, record: Record) -> None:
        """Trade names, and note it, in one transaction."""
        with self._connected() as connection, self._alone(connection, before=self._check):
            if self._noted(connection) is not None:
                return
            noted = {
                "tables": [self.old, self.new],
                "old": self._oid(connection, self.old),
                "new": self._oid(connection, self.new),
                "record": dict(record),
            }
            self._trade(connection)
            write_files(connection, self.schema, self._key, {_RECORD: json.dumps(noted).encode()})
            reach("noted")
        reach("exchanged")

    def rollback(self) -> None:
        """Trade names again, and remove the record, in one transaction."""
        with self._connected() as connection, self._alone(connection):
            if self._expected(connection) is None:
                return
            self._trade(connection)
            self._remove_record(connection)
            reach("noted")
        reach("exchanged")

    def forget(self) -> None:
        """Drop the table that stepped aside, what lies beside it, and the record, in one transaction."""
        with self._connected() as connection, self._alone(connection):
            if self._expected(connection) is None:
                raise unfinished(self.location)
            connection.execute(sql("DROP TABLE {}", (self.schema, self.new)))
            connection.execute(sql("DELETE FROM {} WHERE store = %s", (self.schema, FILES)), [self._beside(self.new)])
            self._remove_record(connection)
            reach("noted")
        reach("exchanged")

    @contextmanager
    def _connected(self) -> Iterator[Connection[Any]]:
        with closing(connect(self.url)) as connection, server_errors(self.location):
            yield connection

    def _check(self, connection: Connection[Any]) -> None:
        """Make sure that the tables are what they were, while they can be read and nobody writes to them."""
        if self._noted(connection) is not None:
            return
        for name in (self.old, self.new):
            if (old := switched_with(connection, self.schema, name)) is not None:
                raise moved(f"{self.schema}.{name}", f"{self.schema}.{old}")
        self.check()

    @contextmanager
    def _alone(
        self, connection: Connection[Any], before: Callable[[Connection[Any]], None] | None = None
    ) -> Iterator[None]:
        """A transaction that holds both tables, and does not keep others waiting behind it for long."""
        import psycopg

        try:
            with connection.transaction():
                connection.execute("SELECT set_config('lock_timeout', %s, true)", [_PATIENCE])
                paths = [(self.schema, name) for name in sorted({self.old, self.new})]
                if before is not None:
                    connection.execute(sql("LOCK TABLE {}, {} IN SHARE ROW EXCLUSIVE MODE", *paths))
                    before(connection)
                connection.execute(sql("LOCK TABLE {}, {} IN ACCESS EXCLUSIVE MODE", *paths))
                yield
        except psycopg.errors.LockNotAvailable as error:
            raise StoreError(
                f"{self.location}: another transaction held the tables for {_PATIENCE}; nothing was done: run again "
                "when it is over"
            ) from error

    def _trade(self, connection: Connection[Any]) -> None:
        between = f"{STAGING}switching"
        for name, other in ((self.old, between), (self.new, self.old), (between, self.new)):
            connection.execute(sql("ALTER TABLE {} RENAME TO {}", (self.schema, name), other))
            if exists(connection, self.schema, FILES):
                move = sql("UPDATE {} SET store = %s WHERE store = %s", (self.schema, FILES))
                connection.execute(move, [self._beside(other), self._beside(name)])

    def _expected(self, connection: Connection[Any]) -> dict[str, Any] | None:
        """What was noted, once both tables are those that it is of."""
        noted = self._noted(connection)
        if noted is not None and (noted["old"], noted["new"]) != (
            self._oid(connection, self.new),
            self._oid(connection, self.old),
        ):
            raise others(self.location)
        return noted

    def _noted(self, connection: Connection[Any]) -> dict[str, Any] | None:
        if not exists(connection, self.schema, FILES):
            return None
        question = sql("SELECT content FROM {} WHERE store = %s AND name = %s", (self.schema, FILES))
        row = connection.execute(question, [self._key, _RECORD]).fetchone()
        return None if row is None else read_noted(bytes(row[0]), self.location, _SHAPE)

    def _remove_record(self, connection: Connection[Any]) -> None:
        connection.execute(sql("DELETE FROM {} WHERE store = %s", (self.schema, FILES)), [self._key])

    def _oid(self, connection: Connection[Any], name: str) -> int | None:
        question = "SELECT to_regclass(format('%%I.%%I', %s::text, %s::text))::oid"
        row = connection.execute(question, [self.schema, name]).fetchone()
        return None if row is None else row[0]

    def _beside(self, table: str) -> str:
        return f"{table}.{self.column}"

    @property
    def _key(self) -> str:
        return f"switch of {self._beside(self.old)}"


_DATABASE: Final = "SELECT current_database(), pg_postmaster_start_time()"


def switched_with(connection: Connection[Any], schema: str, table: str) -> str | None:
    """The old table of the noted switch that a table is of; None where it is of none."""
    if not exists(connection, schema, FILES):
        return None
    question = sql("SELECT content FROM {} WHERE name = %s", (schema, FILES))
    noted = (
        read_noted(bytes(content), schema, {"tables": tuple[str, str]})
        for (content,) in connection.execute(question, [_RECORD])
    )
    return next((one["tables"][0] for one in noted if table in one["tables"]), None)


def _count(store: PgvectorStore) -> int:
    """All rows of the table, those that are no documents of the store too."""
    row = store.connection.execute(sql("SELECT count(*) FROM {}", store.table.path)).fetchone()
    return int((row or (0,))[0])


def _dependents(connection: Connection[Any], oid: int) -> Iterator[str]:
    """What points at a table by its number instead of its name."""
    of: Mapping[str, int] = {"oid": oid}
    for is_kept, name in connection.execute(_DEPENDENT, of).fetchall():
        yield f"{'materialized view' if is_kept else 'view'} {name} reads it"
    for name, table in connection.execute(_REFERRING, of).fetchall():
        yield f"foreign key {name} of {table} points at it"
