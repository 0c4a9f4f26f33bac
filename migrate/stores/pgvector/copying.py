"""What belongs to a table beside its rows, made again for a copy of it: sequences, indexes, foreign keys, rights."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from migrate.errors import UnsupportedStoreError
from migrate.stores.pgvector.catalog import Index, Table, exists, sql

if TYPE_CHECKING:
    from psycopg import Connection

_SIZED: Final = re.compile(r"\b(vector|halfvec|bit)\(\d+\)")
_LONGEST_NAME: Final = 63

_SEQUENCES: Final = """
SELECT a.attname, pg_get_serial_sequence(format('%%I.%%I', %s::text, %s::text), a.attname), a.attidentity::text
FROM pg_attribute a WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped
"""
_POLICIES: Final = """
SELECT policyname, permissive, roles::text[], cmd, qual, with_check FROM pg_policies
WHERE schemaname = %s AND tablename = %s
"""
_GRANTS: Final = """
SELECT x.privilege_type, CASE x.grantee WHEN 0 THEN NULL ELSE x.grantee::regrole::text END, x.is_grantable
FROM pg_class c, aclexplode(c.relacl) x WHERE c.oid = %s AND x.grantee <> c.relowner
"""


def new_sequences(connection: Connection[Any], source: Table, staging: tuple[str, str]) -> None:
    """Give the copy sequences of its own, which go on where those of the source are."""
    from psycopg.sql import SQL, Literal

    for column, sequence, identity in connection.execute(_SEQUENCES, [*source.path, source.oid]).fetchall():
        if sequence is None:
            continue
        if not identity:
            new = (staging[0], f"{staging[1][-40:]}_{column}"[:_LONGEST_NAME])
            connection.execute(sql("CREATE SEQUENCE {} OWNED BY {}", new, (*staging, column)))
            default = SQL("nextval({})").format(Literal(_quoted(new)))
            connection.execute(
                sql("ALTER TABLE {} ALTER COLUMN {} SET DEFAULT {default}", staging, column, default=default)
            )
        ours = connection.execute("SELECT pg_get_serial_sequence(%s, %s)", [_quoted(staging), column]).fetchone()
        connection.execute(
            SQL("SELECT setval(%s, last_value, is_called) FROM {}").format(SQL(sequence)),
            [(ours or (None,))[0]],
        )


def copy_indexes(connection: Connection[Any], source: Table, staging: tuple[str, str], table: str, dim: int) -> None:
    """Build the indexes and constraints of the source on the copy, with their parameters."""
    from psycopg.sql import SQL

    for index in source.indexes:
        name = _free_name(connection, staging[0], index.name, source.name, table)
        if index.constraint is not None:
            definition = connection.execute("SELECT pg_get_constraintdef(%s)", [index.constraint]).fetchone()
            words = SQL((definition or ("",))[0])
            connection.execute(sql("ALTER TABLE {} ADD CONSTRAINT {} {words}", staging, name, words=words))
        else:
            unique = SQL("UNIQUE " if index.definition.startswith("CREATE UNIQUE") else "")
            rest = SQL(_rest_of(index, source, dim))
            connection.execute(sql("CREATE {unique}INDEX {} ON {} {rest}", name, staging, unique=unique, rest=rest))


def copy_details(connection: Connection[Any], source: Table, staging: tuple[str, str]) -> Iterator[str]:
    """Foreign keys, row security and grants as in the source; sentences for what is not copied."""
    from psycopg.sql import SQL

    keys = "SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = %s AND contype = 'f'"
    for name, definition in connection.execute(keys, [source.oid]).fetchall():
        connection.execute(sql("ALTER TABLE {} ADD CONSTRAINT {} {words}", staging, name, words=SQL(definition)))
    for privilege, grantee, grantable in connection.execute(_GRANTS, [source.oid]).fetchall():
        words = SQL(f" TO {grantee or 'PUBLIC'}{' WITH GRANT OPTION' if grantable else ''}")
        connection.execute(sql("GRANT {p} ON {} {words}", staging, p=SQL(privilege), words=words))
    yield from _copy_policies(connection, source, staging)
    triggers = "SELECT tgname FROM pg_trigger WHERE tgrelid = %s AND NOT tgisinternal"
    names = [row[0] for row in connection.execute(triggers, [source.oid])]
    if names:
        yield f"the triggers of the table are not copied: create {', '.join(names)} on the new one"
    pointing = "SELECT DISTINCT conrelid::regclass::text FROM pg_constraint WHERE confrelid = %s AND contype = 'f'"
    pointing_tables = [row[0] for row in connection.execute(pointing, [source.oid])]
    if pointing_tables:
        yield f"foreign keys of {', '.join(pointing_tables)} go on leading to the old table"


def _copy_policies(connection: Connection[Any], source: Table, staging: tuple[str, str]) -> Iterator[str]:
    from psycopg.sql import SQL, Identifier

    secured = "SELECT relrowsecurity, relforcerowsecurity FROM pg_class WHERE oid = %s"
    enabled, forced = connection.execute(secured, [source.oid]).fetchone() or (False, False)
    for name, permissive, roles, cmd, qual, check in connection.execute(_POLICIES, source.path).fetchall():
        to = SQL(", ").join(SQL("PUBLIC") if role == "public" else Identifier(role) for role in roles)
        using = SQL(f" USING ({qual})" if qual is not None else "")
        checking = SQL(f" WITH CHECK ({check})" if check is not None else "")
        connection.execute(
            sql("CREATE POLICY {} ON {} AS {permissive} FOR {cmd} TO {to}{using}{check}", name, staging,
                permissive=SQL(permissive), cmd=SQL(cmd), to=to, using=using, check=checking)
        )  # fmt: skip
    if enabled:
        connection.execute(sql("ALTER TABLE {} ENABLE ROW LEVEL SECURITY", staging))
    if forced:
        connection.execute(sql("ALTER TABLE {} FORCE ROW LEVEL SECURITY", staging))
    if enabled:
        yield "row security is on for the new table too, with the same policies"


def _rest_of(index: Index, source: Table, dim: int) -> str:
    """What comes after the name of the table in an index's definition, with the dimension of the new vectors."""
    begin = index.definition.find(" USING ")
    for quoted in {name for name in (source.name, index.name) if " USING " in name}:
        raise UnsupportedStoreError(f"index {quoted}: expected another name, as ' USING ' stands in it; rename it")
    definition = index.definition[begin + 1 :]
    return _SIZED.sub(lambda match: f"{match[1]}({dim})", definition) if index.distance is not None else definition


def _free_name(connection: Connection[Any], schema: str, index: str, source: str, table: str) -> str:
    """A name for an index of the copy, after that of the source's."""
    renamed = index.replace(source, table) if source in index else f"{table}_{index}"
    for number in range(1_000):
        ending = f"_{number}" if number else ""
        name = renamed.encode()[: _LONGEST_NAME - len(ending)].decode(errors="ignore") + ending
        if not exists(connection, schema, name):
            return name
    raise UnsupportedStoreError(f"index {index}: no name like it is free for the new table; rename it")


def _quoted(path: tuple[str, ...]) -> str:
    return ".".join('"' + name.replace('"', '""') + '"' for name in path)
