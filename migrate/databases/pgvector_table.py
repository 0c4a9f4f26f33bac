"""Tables of PostgreSQL as its catalog describes them, and all that belongs to one beside its rows, made again."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, Final, LiteralString, cast

from migrate.errors import StoreError, UnsupportedStoreError
from migrate.stores.records import Distance

if TYPE_CHECKING:
    from psycopg.sql import Composable, Composed

Ask = Callable[[Any, Any], list[Any]]
"""Asks a question with its values; returns all rows of the answer."""

STAGING: Final = "__lead_migrate_"
"""Stands in the names of tables that are not published."""
_LONGEST_NAME: Final = 63
"""Bytes of a name that PostgreSQL keeps."""
VECTORS: Final = "vector|halfvec|sparsevec"
"""A pattern of the types of vectors."""
_DEFINITION: Final = re.compile(
    r'(CREATE (?:UNIQUE )?INDEX) (?:"(?:[^"]|"")+"|\S+) ON (?:ONLY )?(?:"(?:[^"]|"")+"|[^\s"])+ (USING .*)', re.DOTALL
)
"""The command of an index as PostgreSQL writes it."""

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
"""
"""The statements that give a copy what LIKE does not: foreign keys, grants, row security, comment and parameters."""
_NOT_COPIED: Final = """
SELECT format('rule %%s', rulename) FROM pg_rewrite WHERE ev_class = %(oid)s
UNION ALL
SELECT 'its partitions' FROM pg_class WHERE oid = %(oid)s AND relkind = 'p'
UNION ALL
SELECT 'that it is unlogged' FROM pg_class WHERE oid = %(oid)s AND relpersistence = 'u'
UNION ALL
SELECT 'its replica identity' FROM pg_class WHERE oid = %(oid)s AND relreplident <> 'd'
UNION ALL
SELECT format('its place in publication %%s', p.pubname)
FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid WHERE r.prrelid = %(oid)s
UNION ALL
SELECT format('the comment of index %%s', x.relname) FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid
WHERE i.indrelid = %(oid)s AND obj_description(x.oid, 'pg_class') IS NOT NULL
"""
_POINTING: Final = """
SELECT conname, conrelid::regclass::text, conrelid <> confrelid FROM pg_constraint
WHERE contype = 'f' AND confrelid = %s
"""


def sql(text: LiteralString, /, *names: str | Sequence[str], **parts: Composable | str) -> Composed:
    """Return a statement: names are quoted in the place of `{}`, a name or a schema and a name; parts are SQL."""
    from psycopg.sql import SQL, Identifier

    identifiers = (Identifier(*([name] if isinstance(name, str) else name)) for name in names)
    fragments = {key: SQL(fragment) if isinstance(fragment, str) else fragment for key, fragment in parts.items()}
    return SQL(text).format(*identifiers, **fragments)


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


def shortened(name: str, ending: str) -> str:
    """Return a name with an ending that PostgreSQL does not cut off."""
    return name.encode()[: _LONGEST_NAME - len(ending.encode())].decode(errors="ignore") + ending


def number_of(ask: Ask, path: Sequence[str]) -> int | None:
    """Return the number that the server knows a table, an index or a sequence by; None if there is none."""
    ((number,),) = ask("SELECT to_regclass(%s)::oid::bigint", [quoted(path)])
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
        return any(expression == name or expression.startswith(f"{name}::")
                   for name in (self.column, quoted([self.column])))  # fmt: skip

    @property
    def distance(self) -> Distance | None:
        """The way in which an index compares the vectors."""
        named = next((index.distance for index in self.vector_indexes if self.is_of_column(index)), None)
        if named == "l1":
            raise UnsupportedStoreError(f"{self.path[1]}.{self.column}: its index is of l1, which is not searched; say "
                                        "?distance=l2 to leave it out of account")  # fmt: skip
        return cast("Distance | None", named)


def vector_columns(ask: Ask) -> list[Any]:
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
    return ask(question, [STAGING])


def find_table(
    ask: Ask, location: str, name: str, column: str | None = None, is_main: Callable[[Any], bool] = bool
) -> Table:
    """Read the table and column that a name means, `[schema.]table[.column]`; else list those that there are.

    The column may be named apart. Where none is, and there are several, it is the one that `is_main` says, of rows of
    `vector_columns`.
    """
    rows = vector_columns(ask)
    name_parts = split_names(name)
    meant = [row for row in rows if name_parts in {row[1:2], row[1:3], row[:2], row[:3]}]
    meant = [row for row in meant if column in (None, row[2])]
    meant = [row for row in meant if row[7]] or meant if len(meant) > 1 else meant
    meant = [row for row in meant if is_main(row)] or meant if len(meant) > 1 else meant
    if len(meant) != 1:
        names = [join_names(row[:3]) for row in meant or rows]
        among = ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
        named = name if column is None else f"{name}?vector={column}"
        problem = f"{named!r} could be several columns" if meant else f"there is no column of vectors {named!r}"
        raise StoreError(f"{location}: {problem}; name one after the #, of {among or 'none in this database'}")
    schema, table, column_name, kind, size, oid, relkind, _ = meant[0]
    if relkind not in "rp":
        raise UnsupportedStoreError(f"{location}: this is a view or a foreign table; name its table")
    if kind == "sparsevec":
        raise UnsupportedStoreError(f"{location}: a column of sparsevec is not read; name one of vector or halfvec")
    columns = ask(
        "SELECT attname, format_type(atttypid, atttypmod), attgenerated <> '' FROM pg_attribute "
        "WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped ORDER BY attnum", [oid],
    )  # fmt: skip
    key = ask(
        "SELECT a.attname FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey) "
        "WHERE i.indrelid = %s AND i.indisprimary", [oid],
    )  # fmt: skip
    indexes = tuple(Index(*row) for row in ask(_INDEXES, [oid]))
    types = {row[0]: row[1] for row in columns}
    generated = frozenset(row[0] for row in columns if row[2])
    return Table((schema, table), column_name, kind, size if size > 0 else None, oid, types, generated,
                 tuple(row[0] for row in key), indexes)  # fmt: skip


def dependents(ask: Ask, oid: int) -> list[str]:
    """Return what points at a table by its number instead of its name, in words."""
    question = """
        SELECT DISTINCT v.relkind = 'm', v.oid::regclass::text FROM pg_depend d
        JOIN pg_rewrite r ON r.oid = d.objid AND d.classid = 'pg_rewrite'::regclass
        JOIN pg_class v ON v.oid = r.ev_class WHERE d.refobjid = %(oid)s AND v.oid <> %(oid)s
    """
    reading, pointing = ask(question, {"oid": oid}), ask(_POINTING, [oid])
    views = [f"{'materialized view' if is_kept else 'view'} {name} reads it" for is_kept, name in reading]
    return views + [f"foreign key {name} of {table} points at it" for name, table, is_other in pointing if is_other]


def copy_rest(ask: Ask, source: Table, staging: Sequence[str], table: str) -> Iterator[str]:
    """Give a copy `staging`, which has its rows and indexes and will be called `table`, all else.

    Yields what is not copied.
    """
    pointing = sorted({row[1] for row in ask(_POINTING, [source.oid])})
    _copy_sequences(ask, source, staging, table)
    statements = ask(_REST, {"oid": source.oid, "new": quoted(staging)})
    for (statement,) in statements:
        ask(statement, ())
    if any("ENABLE ROW LEVEL SECURITY" in statement for (statement,) in statements):
        yield "row security is on for the new table too, with the same policies"
    triggers = "SELECT tgname FROM pg_trigger WHERE tgrelid = %s AND NOT tgisinternal"
    if names := [row[0] for row in ask(triggers, [source.oid])]:
        yield f"the triggers of the table are not copied: create {', '.join(names)} on the new one"
    if lacking := [row[0] for row in ask(_NOT_COPIED, {"oid": source.oid})]:
        yield f"not copied of the table: {', '.join(lacking)}; see to that on the new one"
    if pointing:
        yield f"foreign keys of {', '.join(pointing)} go on leading to the old table"


def index_names(table: Table, column: str) -> list[tuple[Index, str]]:
    """Return the indexes of the vectors, each with the name of the one like it that another column gets."""
    ending = hashlib.sha256(column.encode()).hexdigest()[:8]
    pairs = []
    for index in table.vector_indexes:
        name = f"{index.name}_{column}"
        is_short = len(name.encode()) <= _LONGEST_NAME
        pairs.append((index, name if is_short else shortened(index.name, f"_{ending}")))
    return [(index, name) for index, name in pairs if table.is_of_column(index)]


def index_like(table: Table, index: Index, name: str, column: str, dim: int) -> Composed:
    """Return the statement that builds an index on another column, for vectors of `dim`, while others write."""
    _, definition = _DEFINITION.fullmatch(index.definition).groups()  # type: ignore[union-attr]
    names = "|".join(map(re.escape, (quoted([table.column]), table.column)))
    is_column = re.compile(rf'(?<![\w".:])({names})(?![\w"])')  # and not the type of that name, after a cast
    columns, settings, condition = re.fullmatch(r"(.*?)( WITH \(.*?\)|$)(.*)", definition, re.DOTALL).groups()  # type: ignore[union-attr]
    columns, condition = (is_column.sub(lambda _: quoted([column]), words) for words in (columns, condition))
    sizes = r"(\b(?:vector|halfvec|bit)\()\d+(?=\))|(\bvector_dims\([^()]*\) = )\d+"
    definition = re.sub(sizes, lambda match: f"{match[1] or match[2]}{dim}", f"{columns}{settings}{condition}")
    return sql("CREATE INDEX CONCURRENTLY {} ON {} {words}", name, table.path, words=definition)


def _copy_sequences(ask: Ask, source: Table, staging: Sequence[str], table: str) -> None:
    """Give the copy sequences of its own, which go on where those of the source are."""
    from psycopg.sql import Literal

    question = (
        "SELECT attname, pg_get_serial_sequence(%s, attname), attidentity <> '' "
        "FROM pg_attribute WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped"
    )
    for column, sequence, is_identity in ask(question, [quoted(source.path), source.oid]):
        if sequence is None:
            continue
        if not is_identity:
            new = (staging[0], _free_name(ask, staging[0], f"{source.path[1]}_{column}_seq", source.path[1], table))
            ask(sql("CREATE SEQUENCE {} OWNED BY {}", new, [*staging, column]), ())
            default = sql("ALTER TABLE {} ALTER COLUMN {} SET DEFAULT nextval({new})", staging, column,
                          new=Literal(quoted(new)))  # fmt: skip
            ask(default, ())
        go_on = sql("SELECT setval(pg_get_serial_sequence(%s, %s), last_value, is_called) FROM {sequence}",
                    sequence=sequence)  # fmt: skip
        ask(go_on, [quoted(staging), column])


def copy_indexes(ask: Ask, source: Table, staging: Sequence[str], table: str, dim: int) -> None:
    """Build the indexes and constraints of the source on the copy, with their parameters."""
    for index in source.indexes:
        name = _free_name(ask, staging[0], index.name, source.path[1], table)
        if index.constraint is not None:
            ask(sql("ALTER TABLE {} ADD CONSTRAINT {} {words}", staging, name, words=index.constraint), ())
            continue
        command, definition = _DEFINITION.fullmatch(index.definition).groups()  # type: ignore[union-attr]
        if index.distance is not None and source.is_of_column(index):
            definition = re.sub(r"\b(vector|halfvec|bit)\(\d+\)", rf"\1({dim})", definition)
        ask(sql("{command} {} ON {} {words}", name, staging, command=command, words=definition), ())


def _free_name(ask: Ask, schema: str, index: str, source: str, table: str) -> str:
    """Return a free name for an index of the copy, after that of the source's."""
    renamed = index.replace(source, table) if source in index else f"{table}_{index}"
    names = (shortened(renamed, f"_{number}" if number else "") for number in count())
    return next(name for name in names if number_of(ask, (schema, name)) is None)
