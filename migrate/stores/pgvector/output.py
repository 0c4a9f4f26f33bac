"""Writes a table with a column of pgvector: a copy of another table, or a new one of the documents of any store.

A table is made, loaded and indexed under a name of its own in one transaction, checked, and renamed in another, which
also puts the manifest beside it. A copy is made by PostgreSQL itself: all columns, keys, checks, indexes with their
parameters, foreign keys, policies and grants go with it.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from migrate.errors import StoreError, UsageError
from migrate.files import sha256_file
from migrate.locations import Address
from migrate.manifest import MANIFEST_NAME, StoreFacts
from migrate.stores.base import Store
from migrate.stores.file_store import Sha256
from migrate.stores.outputs import ServerOutput
from migrate.stores.pgvector.catalog import (
    FILES,
    NAME,
    STAGING,
    check_location,
    connect,
    exists,
    find_table,
    server_errors,
    split_names,
    sql,
)
from migrate.stores.pgvector.copying import copy_details, copy_indexes, new_sequences
from migrate.stores.pgvector.store import PgvectorStore, write_files
from migrate.stores.pgvector.switch import switched_with
from migrate.stores.records import WaitingWriter
from migrate.stores.switching import moved
from migrate.vectors import Document, Vectors

if TYPE_CHECKING:
    from psycopg import Connection, Cursor

_OPTIONS: Final = ("distance", "index", "m", "ef_construction", "lists")
_INDEX_OPTIONS: Final = {"hnsw": ("m", "ef_construction"), "ivfflat": ("lists",), "none": ()}
_MOST_INDEXED: Final = {"vector": 2_000, "halfvec": 4_000}
_LONGEST_NAME: Final = 63
_CHECKED: Final = 64
_MEMORY: Final = "256MB"
_PUBLISHED: Final = "published"
"""The file whose presence says that a table is this tool's own, and may be replaced."""

_NULL: Final = b"\xff\xff\xff\xff"
_ID, _TEXT, _METADATA, _VECTOR = "id", "content", "metadata", "embedding"


class PgvectorOutput(ServerOutput):
    """A table to be: `pgvector:postgresql://USER@HOST/DB#[SCHEMA.]TABLE[.COLUMN]`; nothing is asked of a server yet."""

    def __init__(self, rest: str) -> None:
        location = f"{NAME}:{rest}"
        self.address = address = Address.parse(rest)
        check_location(location, dict(address.options), _OPTIONS)
        self.parts = split_names(address.name)
        if not 1 <= len(self.parts) <= 3:
            raise UsageError(
                f"{location}: expected the name of the new table after a #, found {address.name!r}; add it"
            )
        super().__init__(f"{NAME}:{address.place}#{address.name}", "-".join(self.parts))

    def connect(self) -> Connection[Any]:
        """A connection to the server."""
        return connect(self.address.place)

    def target(self, connection: Connection[Any]) -> tuple[str, str, str | None]:
        """Schema, table and column, None where none is named; the first of two parts is a schema if there is one."""
        parts = self.parts
        if len(parts) == 3:
            return parts[0], parts[1], parts[2]
        here = connection.execute("SELECT current_schema()").fetchone()
        schema = str((here or (None,))[0] or "public")
        if len(parts) == 1:
            return schema, parts[0], None
        is_schema = connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", [parts[0]]).fetchone()
        return (parts[0], parts[1], None) if is_schema else (schema, parts[0], parts[1])

    def staging(self, table: str) -> str:
        """The name that the table has until it is published."""
        ending = f"{STAGING}{self.digest}"
        return table.encode()[: _LONGEST_NAME - len(ending)].decode(errors="ignore") + ending

    def writer(self, source: Store, content: Path, dim: int) -> WaitingWriter:
        """A writer that copies the source's own table, or makes a new one of its documents."""
        if isinstance(source, PgvectorStore):
            return _CopyWriter(self, source, content, dim)
        return _NewWriter(self, source, content, dim)

    def facts(self, source: Store, content: Path, sha256: Sha256 = sha256_file) -> Mapping[str, Any]:
        """How a copy is opened: with the options of its source; how a new table was asked for."""
        if isinstance(source, PgvectorStore):
            return StoreFacts(index=source.opened_as).as_details()
        return StoreFacts(written_as=dict(self.address.options) or None).as_details()

    def refuse_existing(self, *, force: bool) -> None:
        """Make sure that there is no such table, or that this tool has made it and may replace it."""
        with closing(self.connect()) as connection, server_errors(self.location):
            schema, table, _ = self.target(connection)
            if not exists(connection, schema, table):
                return
            if not force:
                raise UsageError(f"{self.location} exists; choose another output, or replace it with `force=True`")
            if (old := switched_with(connection, schema, table)) is not None:
                raise moved(self.location, f"{schema}.{old}")
            if _kept_file(connection, schema, table, _PUBLISHED) is None:
                raise UsageError(
                    f"{self.location} exists, and lead-migrate has not made it; choose another output, or drop it "
                    "yourself"
                )

    def is_published(self, content: Path) -> bool:
        """Whether the table is there, with this very manifest beside it."""
        with closing(self.connect()) as connection, server_errors(self.location):
            schema, table, _ = self.target(connection)
            if not exists(connection, schema, table):
                return False
            manifest = content / MANIFEST_NAME
            kept = _kept_file(connection, schema, table, MANIFEST_NAME)
            return not manifest.is_file() or kept == manifest.read_bytes()

    def publish(self, content: Path, *, force: bool) -> None:
        """Rename the table, and put the files beside it, in one transaction."""
        files = {path.name: path.read_bytes() for path in sorted(content.iterdir()) if path.is_file()}
        with closing(self.connect()) as connection, server_errors(self.location):
            schema, table, column = self.target(connection)
            staging = self.staging(table)
            with connection.transaction():
                if not exists(connection, schema, staging):
                    raise StoreError(
                        f"{self.location}: expected the table {staging}, which is complete, found it gone; to start "
                        "over, add `restart=True`"
                    )
                if force and _kept_file(connection, schema, table, _PUBLISHED) is not None:
                    connection.execute(sql("DROP TABLE IF EXISTS {}", (schema, table)))
                connection.execute(sql("ALTER TABLE {} RENAME TO {}", (schema, staging), table))
                name = f"{_quoted(schema)}.{_quoted(table)}" + ("" if column is None else f".{_quoted(column)}")
                column = find_table(connection, self.location, name).column
                write_files(connection, schema, f"{table}.{column}", {**files, _PUBLISHED: b""})

    def discard(self) -> None:
        """Drop what is unfinished."""
        with closing(self.connect()) as connection, server_errors(self.location):
            schema, table, _ = self.target(connection)
            connection.execute(sql("DROP TABLE IF EXISTS {}", (schema, self.staging(table))))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _kept_file(connection: Connection[Any], schema: str, table: str, name: str) -> bytes | None:
    if not exists(connection, schema, FILES):
        return None
    question = sql("SELECT content FROM {} WHERE starts_with(store, %s) AND name = %s", (schema, FILES))
    kept = connection.execute(question, [f"{table}.", name]).fetchone()
    return None if kept is None else bytes(kept[0])


class _TableWriter(WaitingWriter):
    """What both writers share: one transaction that makes, loads and checks the table."""

    def __init__(self, output: PgvectorOutput, source: Store, content: Path, dim: int) -> None:
        super().__init__(source, content, dim)
        self.output = output

    def load(self) -> None:
        output = self.output
        with closing(output.connect()) as connection, server_errors(output.location):
            schema, table, column = output.target(connection)
            staging = output.staging(table)
            with connection.transaction():
                for setting in (
                    "work_mem",
                    "maintenance_work_mem",
                ):  # the join with the vectors, the building of indexes
                    connection.execute("SELECT set_config(%s, %s, true)", [setting, _MEMORY])
                connection.execute(sql("DROP TABLE IF EXISTS {}", (schema, staging)))
                key, vector, is_half = self.fill(connection, (schema, staging), table, column)
                self._check(connection, (schema, staging), key, vector, is_half=is_half)
            connection.execute(sql("ANALYZE {}", (schema, staging)))

    def fill(
        self, connection: Connection[Any], staging: tuple[str, str], table: str, column: str | None
    ) -> tuple[str, str, bool]:
        """Make and load the table; the columns of its ids and vectors, and whether these are halves."""
        raise AssertionError

    def _check(
        self, connection: Connection[Any], staging: tuple[str, str], key: str, vector: str, *, is_half: bool
    ) -> None:
        """Make sure that the table has as many vectors as rows were written, and that a sample are the same."""
        count = connection.execute(sql("SELECT count(*) FROM {} WHERE {} IS NOT NULL", staging, vector)).fetchone()
        expected = self.source.info.count
        if count != (expected,):
            raise StoreError(
                f"{self.output.location}: expected {expected} vectors in the new table, found {(count or (0,))[0]}; "
                "the source changed meanwhile: run again on a store at rest"
            )
        if not expected:
            return
        rows = np.unique(np.linspace(0, expected - 1, min(_CHECKED, expected)).astype(np.int64))
        written = self.vectors_at(rows)
        ids = self.source.get(rows).ids
        question = sql("SELECT {}::text, {}::real[] FROM {} WHERE {}::text = ANY(%s)", key, vector, staging, key)
        kept = dict(connection.execute(question, [list(ids)]).fetchall())
        for doc_id, row in zip(ids, written, strict=True):
            wanted = row.astype(np.float16).astype(np.float32) if is_half else row
            if doc_id not in kept or not np.array_equal(np.array(kept[doc_id], np.float32), wanted):
                raise StoreError(
                    f"{self.output.location}: document {doc_id!r} was not kept as it was written; run again"
                )


class _CopyWriter(_TableWriter):
    """The source's table with other vectors, by PostgreSQL's own means."""

    source: PgvectorStore

    def __init__(self, output: PgvectorOutput, source: PgvectorStore, content: Path, dim: int) -> None:
        super().__init__(output, source, content, dim)
        table = source.table
        if output.address.options:
            names = ", ".join(output.address.options)
            raise UsageError(f"{output.location}: a copy of a table keeps its indexes; leave out {names}")
        most = _MOST_INDEXED[table.type]
        if table.vector_indexes and dim > most:
            raise UsageError(
                f"{output.location}: an index on {table.type} has at most {most:,} dimensions, and there are {dim:,}; "
                f"drop {', '.join(index.name for index in table.vector_indexes)} from a copy of the table first"
            )
        with closing(output.connect()) as connection, server_errors(output.location):
            if _database(connection) != _database(source.connection):
                raise UsageError(
                    f"{output.location}: a table is copied within its database, and this is another; name a table of "
                    f"{source.address.place}"
                )
            schema, name, column = output.target(connection)
            if (schema, name) == table.path:
                raise UsageError(f"{output.location}: this is the table that is read; choose another name")
            if column is None and len(table.vector_columns) > 1:
                raise UsageError(
                    f"{output.location}: the table has several columns of vectors, {', '.join(table.vector_columns)}; "
                    f"name the one that is translated after the new table, as in #{name}.{table.column}"
                )
            if column not in (None, table.column):
                raise UsageError(f"{output.location}: the column of a copy is called {table.column}, as in the source")

    def fill(
        self, connection: Connection[Any], staging: tuple[str, str], table: str, column: str | None
    ) -> tuple[str, str, bool]:
        """Copy the table."""
        from psycopg.sql import SQL, Identifier

        source = self.source.table
        connection.execute(sql("CREATE TABLE {} (LIKE {} INCLUDING ALL EXCLUDING INDEXES)", staging, source.path))
        if source.dim is not None:
            kind = SQL("{}({})").format(SQL(source.type), SQL(str(self.rows.dim)))
            connection.execute(sql("ALTER TABLE {} ALTER COLUMN {} TYPE {kind}", staging, source.column, kind=kind))
        connection.execute("CREATE TEMP TABLE lead_migrate_vectors (id text, vector vector) ON COMMIT DROP")
        with connection.cursor() as cursor:
            _copy_in(cursor, "COPY lead_migrate_vectors FROM STDIN (FORMAT BINARY)", self._fields())
        connection.execute("ANALYZE lead_migrate_vectors")
        plain = [name for name in source.types if name not in source.generated]
        values = SQL(", ").join(
            SQL("CASE WHEN t.{0} IS NULL THEN NULL ELSE v.vector END").format(Identifier(name))
            if name == source.column
            else Identifier("t", name)
            for name in plain
        )
        connection.execute(
            sql(
                "INSERT INTO {} ({names}) OVERRIDING SYSTEM VALUE SELECT {values} FROM {} t "
                "LEFT JOIN lead_migrate_vectors v ON v.id = t.{}::text WHERE {where}",
                staging, source.path, self.source.key,
                names=SQL(", ").join(map(Identifier, plain)), values=values, where=self.source.where,
            )
        )  # fmt: skip
        new_sequences(connection, source, staging)
        copy_indexes(connection, source, staging, table, self.rows.dim)
        self.remarks = tuple(copy_details(connection, source, staging))
        return self.source.key, source.column, source.type == "halfvec"

    def _fields(self) -> Iterator[tuple[bytes, ...]]:
        for batch in self.batches():
            for doc_id, vector in zip(batch.ids, _as_sent(batch.vectors), strict=True):
                yield doc_id.encode(), vector


class _NewWriter(_TableWriter):
    """A table of documents: `id`, `content`, `metadata`, `embedding`."""

    def fill(
        self, connection: Connection[Any], staging: tuple[str, str], table: str, column: str | None
    ) -> tuple[str, str, bool]:
        """Make the table from the documents."""
        from psycopg.sql import SQL

        vector, dim = column or _VECTOR, self.rows.dim
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        connection.execute(
            sql(
                "CREATE TABLE {} ({} text NOT NULL, {} text, {} jsonb NOT NULL DEFAULT '{{}}', {} vector({dim}))",
                staging, _ID, _TEXT, _METADATA, vector, dim=SQL(str(dim)),
            )
        )  # fmt: skip
        with connection.cursor() as cursor:
            _copy_in(cursor, sql("COPY {} FROM STDIN (FORMAT BINARY)", staging), self._fields())
        connection.execute(sql("ALTER TABLE {} ADD PRIMARY KEY ({})", staging, _ID))
        self._add_index(connection, staging, vector)
        return _ID, vector, False

    def _fields(self) -> Iterator[tuple[bytes | None, ...]]:
        has_texts = self.source.info.has_texts
        for documents, vectors in self.records():
            for document, vector in zip(documents, _as_sent(vectors), strict=True):
                text = _text(document.id, document.text) if has_texts else None
                yield _text(document.id, document.id), text, b"\x01" + _json(document), vector

    def _add_index(self, connection: Connection[Any], staging: tuple[str, str], vector: str) -> None:
        from psycopg.sql import SQL

        options = dict(self.output.address.options)
        distance = options.pop("distance", None) or str(
            self.source.info.details.get("distance", self.source.info.metric)
        )
        method = options.pop("index", "hnsw")
        if method not in _INDEX_OPTIONS or not set(options) <= set(_INDEX_OPTIONS[method]):
            raise UsageError(
                f"{self.output.location}: expected ?index=hnsw (m, ef_construction), ivfflat (lists) or none, found "
                f"{method} with {', '.join(options) or 'nothing'}"
            )
        if method == "none" or self.rows.dim > _MOST_INDEXED["vector"]:
            why = "" if method == "none" else ", as pgvector indexes at most 2,000 dimensions of type vector"
            self.remarks = (*self.remarks, f"the new table has no index on its vectors{why}")
            return
        if not all(value.isdigit() for value in options.values()):
            raise UsageError(f"{self.output.location}: expected whole numbers, found {options}")
        settings = ", ".join(f"{name} = {value}" for name, value in options.items())
        with_ = SQL(f" WITH ({settings})") if settings else SQL("")
        opclass = SQL(f"vector_{distance}_ops")
        connection.execute(
            sql("CREATE INDEX ON {} USING {method} ({} {opclass}){with_}", staging, vector,
                method=SQL(method), opclass=opclass, with_=with_)
        )  # fmt: skip


def _database(connection: Connection[Any]) -> Any:
    return connection.execute("SELECT current_database(), pg_postmaster_start_time()").fetchone()


def _as_sent(vectors: Vectors) -> list[bytes]:
    """Each row as pgvector receives it: its dimension and a zero as 16-bit numbers, then the elements, big-endian."""
    head = np.frombuffer(struct.pack(">hh", vectors.shape[1], 0), np.uint8)
    body = np.ascontiguousarray(vectors, ">f4").view(np.uint8).reshape(len(vectors), -1)
    rows = np.concatenate([np.broadcast_to(head, (len(vectors), 4)), body], axis=1)
    content, size = rows.tobytes(), rows.shape[1]
    return [content[start : start + size] for start in range(0, len(content), size)]


def _copy_in(cursor: Cursor[Any], statement: Any, records: Iterator[tuple[bytes | None, ...]]) -> None:
    """The binary form of COPY, whose fields are as the types receive them."""
    with cursor.copy(statement) as copy:
        copy.write(b"PGCOPY\n\xff\r\n\x00" + bytes(8))
        parts: list[bytes] = []
        for number, fields in enumerate(records, start=1):
            parts.append(struct.pack(">h", len(fields)))
            parts += (_NULL if field is None else struct.pack(">i", len(field)) + field for field in fields)
            if not number % 256:
                copy.write(b"".join(parts))
                parts.clear()
        copy.write(b"".join(parts) + b"\xff\xff")


def _text(doc_id: str, text: str) -> bytes:
    if "\x00" in text:
        raise StoreError(
            f"document {doc_id!r}: expected a text that PostgreSQL can hold, found one with a zero character; remove it"
        )
    return text.encode("utf-8", "strict")


def _json(document: Document) -> bytes:
    facts: Mapping[str, Any] = document.metadata
    try:
        content = json.dumps(dict(facts), ensure_ascii=False, allow_nan=False)
        encoded = content.encode("utf-8", "strict")
    except (TypeError, ValueError) as error:
        raise StoreError(
            f"document {document.id!r}: expected metadata that jsonb can hold, found other ({error})"
        ) from error
    if "\\u0000" in content:
        raise StoreError(
            f"document {document.id!r}: expected metadata that jsonb can hold, found a zero character; remove it"
        )
    return encoded
