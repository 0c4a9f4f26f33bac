"""What PostgreSQL says of a table with vectors: columns, keys, indexes; the connection, and its errors."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, LiteralString, get_args

from migrate.errors import AuthenticationError, OutputError, RemoteError, StoreError, UnsupportedStoreError, UsageError
from migrate.locations import scrub, secrets_of
from migrate.stores.records import Distance, check_options, import_client

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.sql import SQL, Composable, Composed

NAME: Final = "pgvector"
FILES: Final = "lead_migrate_files"
"""The table of what lies beside stores, in the schema of each: manifest, confidence, state of the model."""

STAGING: Final = "__lead_migrate_"
OPTIONS: Final = ("collection", "distance", "id", "text")
_PART: Final = re.compile(r'"((?:[^"]|"")+)"|([^."]+)')
_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]+")
_TYPES: Final = {"vector": ("", 1, ">f4"), "halfvec": ("half", 2, ">f2")}
_LISTED: Final = 12
_WAIT_S: Final = 10

_VECTOR_COLUMNS: Final = """
SELECT n.nspname, c.relname, a.attname, t.typname, a.atttypmod, c.oid, c.relkind::text, pg_table_is_visible(c.oid)
FROM pg_attribute a
JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_type t ON t.oid = a.atttypid
WHERE t.typname IN ('vector', 'halfvec', 'sparsevec') AND a.attnum > 0 AND NOT a.attisdropped
AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND c.relpersistence <> 't' AND position(%s IN c.relname) = 0
ORDER BY 1, 2, 3
"""
_COLUMNS: Final = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod), t.typname, a.attgenerated::text
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_KEY: Final = """
SELECT a.attname FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey)
WHERE i.indrelid = %s AND i.indisprimary
"""
_INDEXES: Final = """
SELECT i.indexrelid, x.relname, m.amname, coalesce(x.reloptions, '{}'), pg_get_indexdef(i.indexrelid),
    (SELECT array_agg(o.opcname::text) FROM unnest(i.indclass) k JOIN pg_opclass o ON o.oid = k),
    (SELECT con.oid FROM pg_constraint con WHERE con.conindid = i.indexrelid AND con.contype IN ('p', 'u', 'x')),
    i.indisunique, i.indisclustered
FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid JOIN pg_am m ON m.oid = x.relam
WHERE i.indrelid = %s ORDER BY x.relname
"""
_OPCLASS: Final = re.compile(r"(?:vector|halfvec)_(l2|ip|cosine|l1)_ops")


@contextmanager
def server_errors(location: str) -> Iterator[None]:
    """Turn errors of the server into one line."""
    psycopg = import_client("psycopg", NAME)
    try:
        yield
    except psycopg.errors.DiskFull as error:
        raise OutputError(f"{location}: {_line(error)}; free some space on the server, and run again") from error
    except (psycopg.errors.InvalidPassword, psycopg.errors.InvalidAuthorizationSpecification) as error:
        raise AuthenticationError(f"{location}: {_line(error)}; {_KEYS}") from error
    except psycopg.OperationalError as error:
        text = _line(error)
        if "authentication" in text or "no password" in text:
            raise AuthenticationError(f"{location}: {text}; {_KEYS}") from error
        raise RemoteError(f"{location}: {text}; is the server there? The same command continues") from error
    except psycopg.Error as error:
        raise StoreError(f"{location}: PostgreSQL refused: {_line(error)}") from error


_KEYS: Final = "put the password into PGPASSWORD, into ~/.pgpass, or into the location"


def _line(error: Exception) -> str:
    """The first line of a message that is not empty, with the hint if there is one."""
    lines = [line.strip() for line in scrub(str(error)).splitlines() if line.strip()]
    return lines[0].rstrip(";.") if lines else type(error).__name__


def connect(url: str) -> Connection[Any]:
    """A connection that commits each statement; `url` has no password in it.

    Rows that the server would hide from this user are an error instead of missing.

    Raises
    ------
    RemoteError
        There is no server, or it refuses the user.
    UsageError
        psycopg is not installed.
    """
    psycopg = import_client("psycopg", NAME)
    password = secrets_of(f"{NAME}:{url}").get("password") or None
    credentials = {} if password is None else {"password": password}
    with server_errors(f"{NAME}:{url}"):
        connection: Connection[Any] = psycopg.connect(
            url, autocommit=True, connect_timeout=_WAIT_S, application_name="lead-migrate", **credentials
        )
        connection.execute("SET row_security = off")
        connection.execute("SET client_encoding = 'UTF8'")
    return connection


def sql(text: LiteralString, *names: str | Sequence[str], **parts: Composable) -> Composed:
    """A statement with names in the place of `{}`, quoted: a name, or a schema and a name."""
    from psycopg.sql import SQL, Identifier

    template: SQL = SQL(text)
    return template.format(*(Identifier(*([name] if isinstance(name, str) else name)) for name in names), **parts)


def exists(connection: Connection[Any], schema: str, name: str) -> bool:
    """Whether a table, an index or a sequence has that name."""
    question = "SELECT to_regclass(format('%%I.%%I', %s::text, %s::text)) IS NOT NULL"
    return bool((connection.execute(question, [schema, name]).fetchone() or (False,))[0])


def split_names(name: str) -> tuple[str, ...]:
    """The parts of `schema.table.column`; one in double quotes may have dots.

    >>> split_names('public."my.table"')
    ('public', 'my.table')
    """
    return tuple(quoted.replace('""', '"') or plain for quoted, plain in _PART.findall(name))


def join_names(parts: Sequence[str]) -> str:
    """Names as a location has them, which `split_names` takes apart.

    >>> join_names(["public", "my.table"])
    'public."my.table"'
    """
    return ".".join(name if _PLAIN.fullmatch(name) else '"' + name.replace('"', '""') + '"' for name in parts)


@dataclass(frozen=True, slots=True)
class Index:
    """An index of a table; `constraint` is the one that it belongs to."""

    oid: int
    name: str
    method: str
    options: dict[str, str]
    definition: str
    opclasses: tuple[str, ...]
    constraint: int | None

    @property
    def distance(self) -> str | None:
        """How it compares vectors; None for an index of something else."""
        return next((match[1] for name in self.opclasses if (match := _OPCLASS.fullmatch(name))), None)


@dataclass(frozen=True, slots=True)
class Table:
    """A table and its column of vectors. `dim` is what the type of the column says, None where it says nothing.

    `types` has the type of each column, in words; `generated` are those that the server fills in.
    """

    schema: str
    name: str
    column: str
    type: str
    dim: int | None
    oid: int
    types: dict[str, str]
    generated: frozenset[str]
    key: tuple[str, ...]
    indexes: tuple[Index, ...]

    @property
    def path(self) -> tuple[str, str]:
        """Schema and name."""
        return self.schema, self.name

    @property
    def text_columns(self) -> tuple[str, ...]:
        """Columns that could be the texts."""
        return tuple(name for name, kind in self.types.items() if re.match(r"text|character|citext", kind))

    @property
    def vector_columns(self) -> tuple[str, ...]:
        """All columns of vectors, `column` and others."""
        return tuple(name for name, kind in self.types.items() if re.match(r"(vector|halfvec|sparsevec)\b", kind))

    @property
    def vector_indexes(self) -> tuple[Index, ...]:
        """The indexes that compare vectors."""
        return tuple(index for index in self.indexes if index.distance is not None)

    @property
    def distance(self) -> Distance | None:
        """How the vectors are compared, as an index on them says."""
        column = f"({self.column}" if re.fullmatch(r"[a-z_][a-z0-9_]*", self.column) else f'("{self.column}"'
        of_column = [index for index in self.vector_indexes if column in index.definition]
        named = next((index.distance for index in of_column), None)
        if named == "l1":
            raise UnsupportedStoreError(
                f"{self.name}.{self.column}: expected an index of l2, inner product or cosine, found one of l1, which "
                "is not searched; say ?distance=l2 to leave it out of account"
            )
        return next((known for known in get_args(Distance) if known == named), None)


def find_table(connection: Connection[Any], location: str, name: str) -> Table:
    """The table and column that a name means: `[schema.]table[.column]`.

    Raises
    ------
    StoreError
        There is none, or more than one; those that there are are listed.
    UnsupportedStoreError
        It is a view, or the vectors are sparse.
    """
    rows = connection.execute(_VECTOR_COLUMNS, [STAGING]).fetchall()
    parts = split_names(name)
    meant = [row for row in rows if parts in {row[1:2], row[1:3], row[:2], row[:3]}]
    visible = [row for row in meant if row[7]]
    meant = visible if visible and len(meant) > 1 else meant
    if len(meant) != 1:
        among = ", ".join(join_names(row[:3]) for row in (meant or rows)[:_LISTED]) or "none in this database"
        more = f" and {len(meant or rows) - _LISTED} more" if len(meant or rows) > _LISTED else ""
        expected = "one column of vectors" if meant else "the name of a table with vectors after the #"
        raise StoreError(
            f"{location}: expected {expected}, found {name or 'nothing'!r}; columns of vectors are {among}{more}"
        )
    schema, table, column, kind, typmod, oid, relkind, _ = meant[0]
    if relkind not in "rp":
        raise UnsupportedStoreError(f"{location}: expected a table, found a view or a foreign table; name its table")
    if kind not in _TYPES:
        raise UnsupportedStoreError(
            f"{location}: expected a column of vector or halfvec, found {kind}, which is not read"
        )
    columns = connection.execute(_COLUMNS, [oid]).fetchall()
    key = tuple(row[0] for row in connection.execute(_KEY, [oid]))
    indexes = tuple(
        Index(row[0], row[1], row[2], dict(o.split("=", 1) for o in row[3]), row[4], tuple(row[5] or ()), row[6])
        for row in connection.execute(_INDEXES, [oid])
    )
    types = {row[0]: row[1] for row in columns}
    generated = frozenset(row[0] for row in columns if row[3])
    dim = typmod if typmod > 0 else None
    return Table(schema, table, column, kind, dim, oid, types, generated, key, indexes)


def binary_layout(kind: str) -> tuple[str, int]:
    """The element type of a vector as the server sends it, and how many elements its head takes."""
    _, head, element = _TYPES[kind]
    return element, head


def check_location(location: str, options: dict[str, str], known: Sequence[str] = OPTIONS) -> None:
    """Make sure that a location is the URL of a server, its options are known, and the distance is one.

    Raises
    ------
    UsageError
        It is not, or they are not.
    StoreError
        The distance is another.
    """
    if not location.startswith((f"{NAME}:postgresql://", f"{NAME}:postgres://")):
        # not told, as a password in what is no URL is not known to be one
        raise UsageError(f"expected {NAME}:postgresql://USER@HOST/DATABASE#TABLE, found another location; write it so")
    check_options(location, options, known)
    distance = options.get("distance")
    if distance is not None and distance not in get_args(Distance):
        raise StoreError(f"{location}: expected a distance of l2, ip or cosine, found {distance!r}")
