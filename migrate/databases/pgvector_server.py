"""A server of PostgreSQL: connections, files beside the stores of a schema, tables by its catalog and copies of them.

Of pgvector it knows the types of columns alone; searches, rows and names are in `pgvector.py`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, LiteralString, cast

from migrate.errors import StoreError, UnsupportedStoreError
from migrate.locations import secrets_of
from migrate.manifest import MANIFEST_NAME, parse_manifest
from migrate.stores.added_fields import REMOVED_NOTE, UNFINISHED, AddedField, note_was_removed
from migrate.stores.records import Distance, import_client
from migrate.stores.serving import ConnectionPool

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.sql import Composable, Composed

FILES: Final = "lead_migrate_files"
"""The table of what lies beside stores: name of the store, name of the file, content."""
PATIENCE: Final = "10s"
"""How long a transaction that changes a table waits for others, as more wait behind it."""
_TIMEOUT_S: Final = 10
"""Seconds for a connection; by itself, the client waits as long as the system does, for minutes."""
_STORAGES: Final = {"p": "PLAIN", "e": "EXTERNAL", "m": "MAIN", "x": "EXTENDED"}
"""Ways to store long values, by the letters of the catalog."""
STAGING: Final = "__lead_migrate_"
"""Stands in the names of tables that are not published."""
_LONGEST_NAME: Final = 63
"""Bytes of a name that PostgreSQL keeps."""
VECTORS: Final = "vector|halfvec|sparsevec"
MOST_INDEXED: Final = {"vector": 2_000, "halfvec": 4_000}
"""Dimensions that pgvector indexes at most, as an element of an index must fit a page of 8 KiB."""
"""A pattern of the types of vectors."""
_NAMED: Final = 12
"""Columns that a message names."""
_DEFINITION: Final = re.compile(
    r'(CREATE (?:UNIQUE )?INDEX) (?:"(?:[^"]|"")+"|\S+) ON (?:ONLY )?(?:"(?:[^"]|"")+"|[^\s"])+ (USING .*)', re.DOTALL
)
"""The command of an index as PostgreSQL writes it."""

_COLUMNS: Final = """
SELECT attname, format_type(atttypid, atttypmod), attgenerated <> '' FROM pg_attribute
WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""
_KEY: Final = """
SELECT a.attname FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey)
WHERE i.indrelid = %s AND i.indisprimary
"""
_INDEXES: Final = """
SELECT x.relname AS name, m.amname AS method, pg_get_indexdef(x.oid) AS definition,
    pg_get_indexdef(x.oid, 1, true) AS expression,
    (SELECT coalesce(jsonb_object_agg(option_name, option_value), '{}')
        FROM pg_options_to_table(x.reloptions)) AS options,
    (SELECT min(substring(opcname FROM '^(?:vector|halfvec)_(l2|ip|cosine|l1)_ops$'))
        FROM pg_opclass WHERE oid = ANY(i.indclass::oid[])) AS distance,
    (SELECT pg_get_constraintdef(oid) FROM pg_constraint
        WHERE conindid = x.oid AND contype IN ('p', 'u', 'x')) AS constraint
FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid JOIN pg_am m ON m.oid = x.relam
WHERE i.indrelid = %s ORDER BY x.relname
"""
_REST: Final = """
SELECT format('ALTER TABLE %%s ADD CONSTRAINT %%I %%s', %(new)s::text, conname, pg_get_constraintdef(oid))
FROM pg_constraint WHERE conrelid = %(oid)s AND contype = 'f'
UNION ALL
SELECT format('GRANT %%s ON %%s TO %%s%%s', x.privilege_type, %(new)s::text,
    CASE x.grantee WHEN 0 THEN 'PUBLIC' ELSE x.grantee::regrole::text END,
    CASE WHEN x.is_grantable THEN ' WITH GRANT OPTION' END)
FROM pg_class c, aclexplode(c.relacl) x WHERE c.oid = %(oid)s AND x.grantee <> c.relowner
UNION ALL
SELECT format('GRANT %%s (%%I) ON %%s TO %%s%%s', x.privilege_type, a.attname, %(new)s::text,
    CASE x.grantee WHEN 0 THEN 'PUBLIC' ELSE x.grantee::regrole::text END,
    CASE WHEN x.is_grantable THEN ' WITH GRANT OPTION' END)
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid, aclexplode(a.attacl) x
WHERE c.oid = %(oid)s AND a.attnum > 0 AND NOT a.attisdropped AND x.grantee <> c.relowner
UNION ALL
SELECT format('CREATE POLICY %%I ON %%s AS %%s FOR %%s TO %%s%%s%%s', policyname, %(new)s::text, permissive, cmd,
    (SELECT string_agg(CASE role WHEN 'public' THEN 'PUBLIC' ELSE quote_ident(role) END, ', ') FROM unnest(roles) role),
    ' USING (' || qual || ')', ' WITH CHECK (' || with_check || ')')
FROM pg_policies WHERE format('%%I.%%I', schemaname, tablename)::regclass = %(oid)s::oid::regclass
UNION ALL
SELECT format('ALTER TABLE %%s ENABLE ROW LEVEL SECURITY', %(new)s::text)
FROM pg_class WHERE oid = %(oid)s AND relrowsecurity
UNION ALL
SELECT format('ALTER TABLE %%s FORCE ROW LEVEL SECURITY', %(new)s::text)
FROM pg_class WHERE oid = %(oid)s AND relforcerowsecurity
UNION ALL
SELECT format('COMMENT ON TABLE %%s IS %%L', %(new)s::text, obj_description(%(oid)s::bigint::oid, 'pg_class'))
WHERE obj_description(%(oid)s::bigint::oid, 'pg_class') IS NOT NULL
UNION ALL
SELECT format('ALTER TABLE %%s SET (%%s)', %(new)s::text, array_to_string(reloptions, ', '))
FROM pg_class WHERE oid = %(oid)s AND reloptions IS NOT NULL
UNION ALL
SELECT format('ALTER TABLE %%s SET (%%s)', %(new)s::text,
    (SELECT string_agg('toast.' || option, ', ') FROM unnest(t.reloptions) option))
FROM pg_class c JOIN pg_class t ON t.oid = c.reltoastrelid WHERE c.oid = %(oid)s AND t.reloptions IS NOT NULL
UNION ALL
SELECT format('ALTER TABLE %%s ALTER COLUMN %%I SET STATISTICS %%s', %(new)s::text, attname, attstattarget)
FROM pg_attribute WHERE attrelid = %(oid)s AND attnum > 0 AND NOT attisdropped AND attstattarget >= 0
UNION ALL
SELECT format('ALTER TABLE %%s ALTER COLUMN %%I SET (%%s)', %(new)s::text, attname, array_to_string(attoptions, ', '))
FROM pg_attribute WHERE attrelid = %(oid)s AND attnum > 0 AND NOT attisdropped AND attoptions IS NOT NULL
"""
"""The statements that give a copy what LIKE does not.

Foreign keys, grants on the table and on columns, row security, comment, parameters of the table and of its columns.
"""
_NOT_COPIED: Final = """
SELECT format('rule %%s', rulename) FROM pg_rewrite WHERE ev_class = %(oid)s
UNION ALL
SELECT 'its partitions' FROM pg_class WHERE oid = %(oid)s AND relkind = 'p'
UNION ALL
SELECT format(CASE WHEN c.relispartition THEN 'that it is a partition of %%s' ELSE 'that it inherits %%s' END,
    inhparent::regclass)
FROM pg_inherits JOIN pg_class c ON c.oid = inhrelid WHERE inhrelid = %(oid)s
UNION ALL
SELECT format('that %%s inherits it, whose rows are in the new table', inhrelid::regclass)
FROM pg_inherits JOIN pg_class c ON c.oid = inhparent WHERE inhparent = %(oid)s AND c.relkind <> 'p'
UNION ALL
SELECT 'that it is unlogged' FROM pg_class WHERE oid = %(oid)s AND relpersistence = 'u'
UNION ALL
SELECT format('that it is of type %%s', reloftype::regtype) FROM pg_class WHERE oid = %(oid)s AND reloftype <> 0
UNION ALL
SELECT format('its owner %%s', relowner::regrole) FROM pg_class
WHERE oid = %(oid)s AND relowner <> (SELECT oid FROM pg_roles WHERE rolname = current_user)
UNION ALL
SELECT format('its tablespace %%s', spcname) FROM pg_class c JOIN pg_tablespace s ON s.oid = c.reltablespace
WHERE c.oid = %(oid)s
UNION ALL
SELECT format('its access method %%s', amname) FROM pg_class c JOIN pg_am m ON m.oid = c.relam
WHERE c.oid = %(oid)s AND amname <> current_setting('default_table_access_method')
UNION ALL
SELECT 'its replica identity' FROM pg_class WHERE oid = %(oid)s AND relreplident <> 'd'
UNION ALL
SELECT format('its place in publication %%s', p.pubname)
FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid WHERE r.prrelid = %(oid)s
UNION ALL
SELECT 'its security labels'
WHERE EXISTS (SELECT FROM pg_seclabel WHERE objoid = %(oid)s AND classoid = 'pg_class'::regclass)
UNION ALL
SELECT format('that it is clustered by %%s', indexrelid::regclass) FROM pg_index
WHERE indrelid = %(oid)s AND indisclustered
UNION ALL
SELECT format('that constraint %%s is not valid', conname) FROM pg_constraint
WHERE conrelid = %(oid)s AND contype = 'c' AND NOT convalidated
UNION ALL
SELECT format('the comment of index %%s', x.relname) FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid
WHERE i.indrelid = %(oid)s AND obj_description(x.oid, 'pg_class') IS NOT NULL
UNION ALL
SELECT format('the comment of constraint %%s', conname) FROM pg_constraint
WHERE conrelid = %(oid)s AND contype <> 'c' AND obj_description(oid, 'pg_constraint') IS NOT NULL
UNION ALL
SELECT format('the comment of policy %%s', polname) FROM pg_policy
WHERE polrelid = %(oid)s AND obj_description(oid, 'pg_policy') IS NOT NULL
UNION ALL
SELECT DISTINCT format('the statistics target of index %%s', attrelid::regclass)
FROM pg_index JOIN pg_attribute ON attrelid = indexrelid WHERE indrelid = %(oid)s AND attstattarget >= 0
"""
"""What a copy does not have, in words: neither LIKE nor a statement above gives it."""
_POINTING: Final = """
SELECT conname, conrelid::regclass::text, conrelid <> confrelid FROM pg_constraint
WHERE contype = 'f' AND confrelid = %s
"""


def sql(text: LiteralString, /, *names: str | Sequence[str], **parts: Composable | str) -> Composed:
    """Return a statement: names are quoted in the place of `{}`, a name or a schema and a name; parts are SQL."""
    from psycopg.sql import SQL, Identifier

    paths = ([name] if isinstance(name, str) else name for name in names)
    fragments = {key: SQL(fragment) if isinstance(fragment, str) else fragment for key, fragment in parts.items()}
    return SQL(text).format(*(Identifier(*path) for path in paths), **fragments)


def split_names(name: str) -> tuple[str, ...]:
    """Take `schema.table.column` apart; a name in double quotes may have dots.

    >>> split_names('public."my.table"')
    ('public', 'my.table')
    """
    matches = re.findall(r'"((?:[^"]|"")+)"|([^."]+)', name)
    return tuple(quoted.replace('""', '"') or plain for quoted, plain in matches)


def join_names(names: Sequence[str]) -> str:
    """Write names as a location has them, so that `split_names` takes them apart.

    >>> join_names(["public", "my.table"])
    'public."my.table"'
    """
    return ".".join(name if re.fullmatch("[A-Za-z0-9_-]+", name) else quoted([name]) for name in names)


def quoted(names: Sequence[str]) -> str:
    """Write a name with its schema as a text that PostgreSQL reads."""
    return ".".join('"' + name.replace('"', '""') + '"' for name in names)


class Session:
    """The connections of one driver; `location` is for messages."""

    def __init__(self, location: str, url: str) -> None:
        self.location = location
        self.pool: ConnectionPool[Connection[Any]] = ConnectionPool(
            lambda: connect(url), lambda connection: connection.execute("SELECT 1")
        )
        self._held: Connection[Any] | None = None
        self.snapshot: str | None = None
        """The snapshot that is read, which other transactions may import, within `at_one_moment`."""

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

    @contextmanager
    def at_one_moment(self) -> Iterator[None]:
        """Read everything as it is now, whatever others write meanwhile; for drivers that one thread uses."""
        with self.transaction():
            self.ask("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            # The server may end what is idle in a transaction, as this is while vectors are made
            self.ask("SELECT set_config('idle_in_transaction_session_timeout', '0', true)")
            self.snapshot = self.ask("SELECT pg_export_snapshot()")[0][0]
            try:
                yield
            finally:
                self.snapshot = None

    def ask(self, question: Any, values: Sequence[Any] | Mapping[str, Any] = ()) -> list[Any]:
        """Return all rows of an answer; none if it has no rows."""
        with self.connected() as connection:
            cursor = connection.execute(question, values or None)
            # a statement that answers nothing has no columns
            if cursor.description is None:
                return []
            return cursor.fetchall()

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

    def count(self, table: Sequence[str]) -> int:
        """Return the number of the rows of a table."""
        return int(self.ask(sql("SELECT count(*) FROM {}", table))[0][0])

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
        url, autocommit=True, connect_timeout=_TIMEOUT_S, application_name="lead-migrate", password=password or None
    )
    # a policy would hide rows without a word
    connection.execute("SET row_security = off; SET client_encoding = 'UTF8'")
    return connection


def import_snapshot(snapshot: str) -> Composed:
    """Return the statements by which a transaction reads a snapshot of another one; they come first in it."""
    from psycopg.sql import Literal

    return sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT {id}", id=Literal(snapshot))


def shortened(name: str, ending: str) -> str:
    """Return a name with an ending that PostgreSQL does not cut off."""
    return name.encode()[: _LONGEST_NAME - len(ending.encode())].decode(errors="ignore") + ending


def number_of(session: Session, path: Sequence[str]) -> int | None:
    """Return the number that the server knows a table, an index or a sequence by; None if there is none."""
    ((number,),) = session.ask("SELECT to_regclass(%s)::oid::bigint", [quoted(path)])
    return cast("int | None", number)


@dataclass(frozen=True, slots=True)
class Index:
    """An index of a table: `expression` is what is indexed first, `distance` None unless it compares vectors."""

    name: str
    method: str
    definition: str
    expression: str
    options: dict[str, str]
    distance: str | None
    constraint: str | None


@dataclass(frozen=True, slots=True)
class Table:
    """A table and its column of vectors.

    `dim` is that of the column's type, None if it has none. `types` has the type of each column in words; `generated`
    are those that the server fills in.
    """

    path: tuple[str, str]
    column: str
    type: str
    dim: int | None
    oid: int
    types: dict[str, str]
    generated: frozenset[str]
    key: tuple[str, ...]
    indexes: tuple[Index, ...]

    def columns_of(self, types: str) -> list[str]:
        """Return the columns whose type begins with a word that a pattern matches."""
        return [name for name, kind in self.types.items() if re.match(rf"({types})\b", kind)]

    @property
    def vector_indexes(self) -> list[Index]:
        """The indexes that compare vectors."""
        return [index for index in self.indexes if index.distance is not None]

    def is_of_column(self, index: Index) -> bool:
        """Return whether an index compares the vectors of the column, or of an expression that casts it."""
        expression = index.expression.removeprefix("(")
        names = (self.column, quoted([self.column]))
        return any(expression == name or expression.startswith(f"{name}::") for name in names)

    def indexed_as(self, index: Index) -> str:
        """Return the type that an index of the column compares, which may not be that of the column."""
        cast_to = re.search(r"::(vector|halfvec)\b", index.expression)
        if cast_to is None:
            return self.type
        return cast_to[1]

    def in_halves(self, index: Index, dim: int) -> Index:
        """Return an index of the column as it is for vectors of `dim`: in half precision where it holds no others.

        So pgvector's README advises: the column keeps its precision, and loses nothing but recall.
        """
        if not self.is_of_column(index) or dim <= MOST_INDEXED[self.indexed_as(index)]:
            return index
        key = half_key(self.column, index.distance, dim)
        return replace(index, definition=_with_key(index.definition, key), expression=f"{self.column}::halfvec({dim})")

    def index_remarks(self, dim: int) -> list[str]:
        """Say which indexes `in_halves` changes, and how a query uses them then."""
        changed = [index for index in self.vector_indexes if self.in_halves(index, dim) is not index]
        return [half_remark(f"the index {index.name}", self.column, index.distance, dim) for index in changed]

    @property
    def distance(self) -> Distance | None:
        """The way in which an index compares the vectors."""
        named = next((index.distance for index in self.vector_indexes if self.is_of_column(index)), None)
        if named == "l1":
            raise UnsupportedStoreError(
                f"{self.path[1]}.{self.column}: its index is of l1, which is not searched; say ?distance=l2 to leave "
                "it out of account"
            )
        return cast("Distance | None", named)


def has_halves(session: Session) -> bool:
    """Return whether the server's pgvector knows half precision, as from 0.7 on."""
    return bool(session.ask("SELECT to_regtype('halfvec') IS NOT NULL")[0][0])


def half_key(column: str, distance: str | None, dim: int) -> str:
    """Return what an index in half precision is on."""
    return f"({quoted([column])}::halfvec({dim})) halfvec_{distance}_ops"


def half_remark(name: str, column: str, distance: str | None, dim: int) -> str:
    """Say that an index of a column is in half precision, and how a query uses it."""
    operator = {"l2": "<->", "ip": "<#>", "cosine": "<=>", "l1": "<+>"}[str(distance)]
    return (
        f"{name} is in half precision, as pgvector indexes at most {MOST_INDEXED['vector']:,} dimensions of type "
        f"vector; the vectors keep theirs. A query uses it by: ORDER BY {quoted([column])}::halfvec({dim}) {operator} "
        f"'[...]'::halfvec({dim})"
    )


def _with_key(definition: str, key: str) -> str:
    """Return the definition of an index on one column or expression, on a `key` in its place."""
    start = definition.index("(", definition.index(" USING ")) + 1
    depth = 1
    end = start
    is_quoted = False
    while depth:
        is_quoted ^= definition[end] == '"'
        if not is_quoted:
            depth += {"(": 1, ")": -1}.get(definition[end], 0)
        end += 1
    return f"{definition[:start]}{key}{definition[end - 1 :]}"


def vector_columns(session: Session) -> list[Any]:
    """Return schema, table, column and facts of all columns of vectors that are not of unpublished tables."""
    question = """
        SELECT n.nspname, c.relname, a.attname, t.typname, a.atttypmod, c.oid::bigint, c.relkind::text,
            pg_table_is_visible(c.oid)
        FROM pg_attribute a
        JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
        JOIN pg_type t ON t.oid = a.atttypid
        WHERE t.typname IN ('vector', 'halfvec', 'sparsevec') AND a.attnum > 0 AND NOT a.attisdropped
        AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND c.relpersistence <> 't' AND position(%s IN c.relname) = 0
        ORDER BY 1, 2, 3
    """
    return session.ask(question, [STAGING])


def find_table(
    session: Session, location: str, name: str, column: str | None = None, is_main: Callable[[Any], bool] = bool
) -> Table:
    """Read the table and column that a name means, `[schema.]table[.column]`; else list those that there are.

    The column may be named apart. Where none is, and there are several, it is the one that `is_main` says, of rows of
    `vector_columns`.
    """
    rows = vector_columns(session)
    name_parts = split_names(name)
    meant = [row for row in rows if name_parts in {row[1:2], row[1:3], row[:2], row[:3]}]
    meant = [row for row in meant if column in (None, row[2])]
    # of tables of one name in several schemas, the one that PostgreSQL would find, then the column that was not added
    for is_preferred in (lambda row: row[7], is_main):
        if len(meant) > 1:
            meant = [row for row in meant if is_preferred(row)] or meant
    if len(meant) != 1:
        names = [join_names(row[:3]) for row in meant or rows]
        among = ", ".join(names[:_NAMED]) or "none in this database"
        if len(names) > _NAMED:
            among += f" and {len(names) - _NAMED} more"
        named = name if column is None else f"{name}?vector={column}"
        problem = f"there is no column of vectors {named!r}"
        if meant:
            problem = f"{named!r} could be several columns"
        raise StoreError(f"{location}: {problem}; name one after the #, of {among}")
    schema, table, column_name, kind, size, oid, relkind, _ = meant[0]
    if relkind not in "rp":
        raise UnsupportedStoreError(f"{location}: this is a view or a foreign table; name its table")
    if kind == "sparsevec":
        raise UnsupportedStoreError(f"{location}: a column of sparsevec is not read; name one of vector or halfvec")
    columns = session.ask(_COLUMNS, [oid])
    return Table(
        path=(schema, table),
        column=column_name,
        type=kind,
        # a type without a dimension has a modifier of -1
        dim=size if size > 0 else None,
        oid=oid,
        types={row[0]: row[1] for row in columns},
        generated=frozenset(row[0] for row in columns if row[2]),
        key=tuple(row[0] for row in session.ask(_KEY, [oid])),
        indexes=tuple(Index(*row) for row in session.ask(_INDEXES, [oid])),
    )


def dependents(session: Session, oid: int) -> list[str]:
    """Return what points at a table by its number instead of its name, in words."""
    question = """
        SELECT DISTINCT CASE v.relkind WHEN 'm' THEN 'materialized view' ELSE 'view' END, v.oid::regclass::text
        FROM pg_depend d
        JOIN pg_rewrite r ON r.oid = d.objid AND d.classid = 'pg_rewrite'::regclass
        JOIN pg_class v ON v.oid = r.ev_class WHERE d.refobjid = %(oid)s AND v.oid <> %(oid)s
    """
    sentences = []
    for kind, name in session.ask(question, {"oid": oid}):
        sentences.append(f"{kind} {name} reads it")
    for name, table, is_other in session.ask(_POINTING, [oid]):
        if is_other:
            sentences.append(f"foreign key {name} of {table} points at it")
    return sentences


def create_like(session: Session, source: Table, staging: Sequence[str], dim: int) -> None:
    """Create an empty table like another one, for vectors of another dimension and without its indexes.

    Indexes are built once the rows are there: that is quicker, the lists of an ivfflat are found among the rows, and
    LIKE would give them names of its own.
    """
    session.ask(sql("CREATE TABLE {} (LIKE {} INCLUDING ALL EXCLUDING INDEXES)", staging, source.path))
    # a column whose type says no dimension takes vectors of any
    if source.dim is None:
        return
    kind = f"{source.type}({dim})"
    # a column of a new type is stored as that has it; many change that, as vectors do not compress
    storage = "SELECT attstorage::text FROM pg_attribute WHERE attrelid = %s AND attname = %s"
    ((letter,),) = session.ask(storage, [source.oid, source.column])
    changes = "ALTER COLUMN {} TYPE {kind}, ALTER COLUMN {} SET STORAGE {storage}"
    session.ask(
        sql(f"ALTER TABLE {{}} {changes}", staging, source.column, source.column, kind=kind, storage=_STORAGES[letter])
    )


def copy_rest(session: Session, source: Table, staging: Sequence[str], table: str) -> Iterator[str]:
    """Give a copy `staging`, which has its rows and indexes and will be called `table`, all else.

    Yields what is not copied.
    """
    # asked before, as the new table has foreign keys to itself in the place of the old one's
    pointing = sorted({row[1] for row in session.ask(_POINTING, [source.oid])})
    _copy_sequences(session, source, staging, table)
    statements = [row[0] for row in session.ask(_REST, {"oid": source.oid, "new": quoted(staging)})]
    for statement in statements:
        session.ask(statement)
    if any("ENABLE ROW LEVEL SECURITY" in statement for statement in statements):
        yield "row security is on for the new table too, with the same policies"
    # a function of a trigger may do anything, to other tables too, once for each row that is copied
    triggers = "SELECT tgname FROM pg_trigger WHERE tgrelid = %s AND NOT tgisinternal"
    if names := [row[0] for row in session.ask(triggers, [source.oid])]:
        yield f"the triggers of the table are not copied: create {', '.join(names)} on the new one"
    if lacking := [row[0] for row in session.ask(_NOT_COPIED, {"oid": source.oid})]:
        yield f"not copied of the table: {', '.join(lacking)}; see to that on the new one"
    if pointing:
        yield f"foreign keys of {', '.join(pointing)} go on leading to the old table"


def index_names(table: Table, column: str) -> list[tuple[Index, str]]:
    """Return the indexes of the vectors, each with the name of the one like it that another column gets."""
    ending = hashlib.sha256(column.encode()).hexdigest()[:8]
    pairs = []
    for index in table.vector_indexes:
        if not table.is_of_column(index):
            continue
        name = f"{index.name}_{column}"
        # cut off, names of two columns may be the same
        if len(name.encode()) > _LONGEST_NAME:
            name = shortened(index.name, f"_{ending}")
        pairs.append((index, name))
    return pairs


def index_like(table: Table, index: Index, name: str, column: str, dim: int) -> Composed:
    """Return the statement that builds an index on another column, for vectors of `dim`, while others write."""
    _, definition = _DEFINITION.fullmatch(table.in_halves(index, dim).definition).groups()  # type: ignore[union-attr]
    names = "|".join(map(re.escape, (quoted([table.column]), table.column)))
    # and not the type of that name, after a cast
    is_column = re.compile(rf'(?<![\w".:])({names})(?![\w"])')
    columns, settings, condition = re.fullmatch(r"(.*?)( WITH \(.*?\)|$)(.*)", definition, re.DOTALL).groups()  # type: ignore[union-attr]
    columns, condition = (is_column.sub(lambda _: quoted([column]), words) for words in (columns, condition))
    sizes = r"(\b(?:vector|halfvec|bit)\()\d+(?=\))|(\bvector_dims\([^()]*\) = )\d+"
    definition = re.sub(sizes, lambda match: f"{match[1] or match[2]}{dim}", f"{columns}{settings}{condition}")
    return sql("CREATE INDEX CONCURRENTLY {} ON {} {words}", name, table.path, words=definition)


def _copy_sequences(session: Session, source: Table, staging: Sequence[str], table: str) -> None:
    """Give the copy sequences of its own, which go on where those of the source are."""
    from psycopg.sql import Literal

    question = (
        "SELECT attname, pg_get_serial_sequence(%s, attname), attidentity <> '' "
        "FROM pg_attribute WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped"
    )
    for column, sequence, is_identity in session.ask(question, [quoted(source.path), source.oid]):
        if sequence is None:
            continue
        # LIKE makes a sequence for an identity; the default of a serial column it copies as it is, of the old sequence
        if not is_identity:
            name = _free_name(session, staging[0], f"{source.path[1]}_{column}_seq", source.path[1], table)
            new = (staging[0], name)
            session.ask(sql("CREATE SEQUENCE {} OWNED BY {}", new, [*staging, column]))
            default = "ALTER TABLE {} ALTER COLUMN {} SET DEFAULT nextval({new})"
            session.ask(sql(default, staging, column, new=Literal(quoted(new))))
        go_on = "SELECT setval(pg_get_serial_sequence(%s, %s), last_value, is_called) FROM {sequence}"
        session.ask(sql(go_on, sequence=sequence), [quoted(staging), column])


def copy_indexes(session: Session, source: Table, staging: Sequence[str], table: str, dim: int) -> None:
    """Build the indexes and constraints of the source on the copy, with their parameters."""
    for old_index in source.indexes:
        index = source.in_halves(old_index, dim)
        name = _free_name(session, staging[0], index.name, source.path[1], table)
        # a constraint makes its index itself
        if index.constraint is not None:
            session.ask(sql("ALTER TABLE {} ADD CONSTRAINT {} {words}", staging, name, words=index.constraint))
            continue
        command, definition = _DEFINITION.fullmatch(index.definition).groups()  # type: ignore[union-attr]
        # an index may cast a column that has no dimension to a type that has
        if index.distance is not None and source.is_of_column(index):
            definition = re.sub(r"\b(vector|halfvec|bit)\(\d+\)", rf"\1({dim})", definition)
        session.ask(sql("{command} {} ON {} {words}", name, staging, command=command, words=definition))


def _free_name(session: Session, schema: str, index: str, source: str, table: str) -> str:
    """Return a free name for an index of the copy, after that of the source's."""
    renamed = f"{table}_{index}"
    if source in index:
        renamed = index.replace(source, table)
    names = (shortened(renamed, f"_{number}" if number else "") for number in count())
    return next(name for name in names if number_of(session, (schema, name)) is None)
