"""Reads a table with a column of pgvector: `pgvector:postgresql://USER@HOST/DB#SCHEMA.TABLE.COLUMN`.

Ids are those of the primary key, texts of the column that `choose_text` takes; all other columns are metadata, those of
a column `metadata` of JSON as if they were columns themselves. The collections of LangChain's `langchain_pg_embedding`
are stores of their own, `#langchain_pg_embedding?collection=NAME`.
"""

from __future__ import annotations

import hashlib
import json
import re
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from migrate.errors import StoreError, UsageError
from migrate.files import atomic_folder, cache_folder, write_bytes
from migrate.locations import Address, options_text
from migrate.manifest import MANIFEST_NAME, Manifest, find_manifest
from migrate.stores.base import BATCH_SIZE, Store, StoreInfo
from migrate.stores.create import flat_writer
from migrate.stores.pgvector.catalog import (
    FILES,
    NAME,
    binary_layout,
    check_location,
    connect,
    exists,
    find_table,
    join_names,
    server_errors,
    sql,
)
from migrate.stores.records import SearchableRecordStore, choose_text, read_metric
from migrate.vectors import Batch, Document
from migrate.work.writer import StoreWriter

if TYPE_CHECKING:
    from psycopg.sql import Composed

    from migrate.stores.pgvector.catalog import Table
    from migrate.stores.pgvector.serve import PgvectorServing
    from migrate.stores.switching import Exchange

_METADATA: Final = ("metadata", "cmetadata", "langchain_metadata")
_NOTED: Final = ("distance", "id", "text")
_SAMPLED: Final = 32
_LARGE: Final = 4
"""A scan of one in so many rows sorts them at once instead of looking each of them up."""

_WHOLE: Final = ("smallint", "integer", "bigint")
_UUID: Final = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"

_LANGCHAIN: Final = "langchain_pg_embedding"
_COLLECTIONS: Final = "langchain_pg_collection"


class PgvectorStore(SearchableRecordStore):
    """A table of PostgreSQL, or a collection in one.

    Parameters
    ----------
    rest
        The location without its kind, and without a password.

    Raises
    ------
    StoreError
        There is no such table, or it has no key of one column, or vectors of several dimensions.
    RemoteError
        There is no server, or it refuses.
    UsageError
        psycopg is not installed, or an option means nothing.
    """

    def __init__(self, rest: str) -> None:
        location = f"{NAME}:{rest}"
        self.address = address = Address.parse(rest)
        check_location(location, dict(address.options))
        self.connection = connect(address.place)
        weakref.finalize(self, self.connection.close)
        self._location = location
        with server_errors(location):
            self.table = table = find_table(self.connection, location, address.name)
            manifest = None if self.folder is None else find_manifest(self.folder, "store")
            noted = Address.parse(f"#{manifest.store.index or ''}").options if manifest is not None else {}
            options = {**noted, **address.options}
            self.opened_as = options_text({name: options[name] for name in _NOTED if name in options}) or None
            self.key = _key(location, table, options.get("id"))
            self.where = self._filter(address.options.get("collection"))
            self.without_vector = self._count_empty()
            texts = [name for name in table.text_columns if name != self.key]
            self.text, text_note = choose_text(location, texts, options.get("text"))
            dim = table.dim or self._common_dim()
            remark: tuple[str, ...] = ()
            if manifest is not None and manifest.model is not None and manifest.model.dim != dim:
                remark = (f"what {FILES} has of a table of this name is of vectors of dimension {manifest.model.dim}",)
                self.folder = manifest = None  # of one that was dropped
            self._open_index(location)
            sample = self._vectors("LIMIT {limit}", dim)
            distance = options.get("distance") or table.distance
            metric, odd = read_metric(distance, sample)  # type: ignore[arg-type]
            self.info = StoreInfo(
                location=rest,
                kind=NAME,
                index_type=_index_type(table),
                count=self._index.count,
                dim=dim,
                metric=metric,
                exact=True,
                has_texts=self.text is not None,
                manifest=manifest,
                notes=(f"the ids are those of column {self.key}", text_note, *odd, *remark, *self._notes()),
                details={
                    "table": f"{table.schema}.{table.name}",
                    "column": f"{table.column} {table.types[table.column]}",
                    **({"distance": distance} if distance else {}),
                    **_index_facts(table),
                    **({"rows_without_vector": self.without_vector} if self.without_vector else {}),
                },
            )

    @cached_property
    def folder(self) -> Path | None:
        """A local copy of what lies beside the store in the database."""
        with server_errors(self._location):
            files = read_files(self, self.table.schema, f"{self.table.name}.{self.table.column}")
        if MANIFEST_NAME not in files:
            return None
        digest = hashlib.sha256(self._location.encode())
        for name in sorted(files):
            digest.update(name.encode() + hashlib.sha256(files[name]).digest())
        path = cache_folder() / "beside" / digest.hexdigest()[:32]
        if not path.is_dir():
            with suppress(UsageError), atomic_folder(path) as aside:  # another process may be quicker
                for name, content in files.items():
                    write_bytes(aside / name, content)
        return path

    def successor(self, ending: str) -> str:
        """A table in the same schema."""
        table = self.table
        names = [table.schema, f"{table.name}_{ending}", *([table.column] if len(table.vector_columns) > 1 else [])]
        return f"{NAME}:{self.address.place}#{join_names(names)}"

    def exchange(self, new: Store) -> Exchange:
        """See `Switchable`: the two tables trade names."""
        from migrate.stores.pgvector.switch import PgvectorExchange

        if not isinstance(new, PgvectorStore):
            raise UsageError(f"{new.info.location}: expected a table of the same database, found another kind of store")
        return PgvectorExchange.of(self, new)

    def exchanged(self) -> Exchange | None:
        """See `Switchable`."""
        from migrate.stores.pgvector.switch import PgvectorExchange

        return PgvectorExchange.at(self)

    def keep_manifest(self, manifest: Manifest) -> str:
        """Keep a manifest in the database, beside the table; the table stays as it is."""
        content = (json.dumps(manifest.as_json(), sort_keys=True, indent=2, ensure_ascii=False) + "\n").encode()
        with server_errors(self._location), self.connection.transaction():
            store = f"{self.table.name}.{self.table.column}"
            write_files(self.connection, self.table.schema, store, {MANIFEST_NAME: content})
        return f"{FILES} of schema {self.table.schema}"

    def scan(self, start: int = 0, stop: int | None = None, *, batch_size: int = BATCH_SIZE) -> Iterator[Batch]:
        """The vectors of rows `start` to `stop`; a large part of the table comes sorted, in one stream."""
        stop = self.info.count if stop is None else min(stop, self.info.count)
        if (stop - start) * _LARGE < self.info.count or stop - start <= batch_size:
            yield from super().scan(start, stop, batch_size=batch_size)
            return
        rows = self._sorted(start, stop)
        for first in range(start, stop, batch_size):
            ids = self.ids(range(first, min(first + batch_size, stop)))
            part = list(islice(rows, len(ids)))
            if [row[0] for row in part] != ids:
                raise StoreError(f"{self._location}: the table changed while it was read; run again on a store at rest")
            yield Batch(ids, self._decode((row[1] for row in part), self.info.dim))

    def _sorted(self, start: int, stop: int) -> Iterator[tuple[str, bytes]]:
        """Ids and vectors in the order of rows, by a connection of their own: others may be asked meanwhile."""
        from psycopg.sql import Literal

        first, last = self.ids(np.array([start, stop - 1]))
        ends = {"first": Literal(first), "last": Literal(last)}
        within = 'AND {key}::text COLLATE "C" BETWEEN {first} AND {last} ORDER BY {key}::text COLLATE "C"'
        question = sql(
            "COPY ({question}) TO STDOUT (FORMAT BINARY)", question=self.select("{key}::text, {column}", within, **ends)
        )
        with (
            server_errors(self._location),
            closing(connect(self.address.place)) as connection,
            connection.cursor() as cursor,
            cursor.copy(question) as copy,
        ):
            copy.set_types(["text", "bytea"])
            yield from copy.rows()

    def answering(self) -> Any:
        """See `Named`: the number that the server knows the table by."""
        question = "SELECT to_regclass(format('%%I.%%I', %s::text, %s::text))::oid::bigint"
        with server_errors(self.info.location):
            oid_row = self.connection.execute(question, [self.table.schema, self.table.name]).fetchone()
        return None if oid_row is None else oid_row[0]

    def destination(self, location: Path, dim: int) -> StoreWriter:
        """Return the writer of a store in files."""
        return flat_writer(self, location, dim)

    def _serve(self) -> PgvectorServing:
        from migrate.stores.pgvector.serve import PgvectorServing

        return PgvectorServing(self)

    def possible_ids(self, ids: Sequence[str]) -> list[str]:
        """Those ids that the type of the key can be."""
        kind = self.table.types[self.key]
        pattern = r"-?[0-9]{1,18}" if kind in _WHOLE else _UUID if kind == "uuid" else None
        return [doc_id for doc_id in ids if pattern is None or re.fullmatch(pattern, doc_id)]

    def metadata_column(self) -> str | None:
        """The column of JSON whose fields are metadata, if there is one."""
        return next((name for name in _METADATA if self.table.types.get(name) in ("json", "jsonb")), None)

    def select(self, columns: str, rest: str = "", **parts: Any) -> Composed:
        """A question about the records of the store that have a vector."""
        from psycopg.sql import SQL, Identifier

        template = " ".join(("SELECT", columns, "FROM {table} t WHERE {column} IS NOT NULL AND {where}", rest))
        names = {"table": Identifier(*self.table.path), "column": Identifier("t", self.table.column)}
        return SQL(template).format(**names, where=self.where, key=Identifier("t", self.key), **parts)

    def _version(self) -> list[int]:
        """Every change gives a row another `xmin`; the sum of all does not depend on their order."""
        question = self.select(
            "count(*), coalesce(bit_xor(hashtextextended({key}::text || ' ' || t.xmin::text, 0)), 0)"
        )
        with server_errors(self._location):
            return list(self.connection.execute(question).fetchone() or ())

    def _read_ids(self) -> Iterator[str]:
        question = sql("COPY ({question}) TO STDOUT", question=self.select("{key}::text"))
        with server_errors(self._location), self.connection.cursor() as cursor, cursor.copy(question) as copy:
            for (doc_id,) in copy.rows():
                if doc_id is None:
                    raise StoreError(
                        f"{self._location}: expected an id in every row, found a row without; "
                        f"fill in column {self.key}, or name another with ?id=COLUMN"
                    )
                yield doc_id

    def _read_vectors(self, ids: Sequence[str]) -> Batch:
        with server_errors(self._location), self.connection.cursor(binary=True) as cursor:
            question = self.select("{key}::text, {column}", "AND {key} = ANY({ids})", ids=self._ids_of(ids))
            rows = cursor.execute(question).fetchall()
        return Batch([row[0] for row in rows], self._decode((row[1] for row in rows), self.info.dim))

    def _read_documents(self, ids: Sequence[str]) -> Iterator[Document]:
        from psycopg.sql import NULL, Identifier, Literal

        left_out = [name for name in (self.key, self.text, self.table.column) if name is not None]
        text = NULL if self.text is None else Identifier("t", self.text)
        question = self.select(
            "{key}::text, {text}::text, (to_jsonb(t) - {left_out}::text[])::text",
            "AND {key} = ANY({ids})",
            text=text,
            left_out=Literal(left_out),
            ids=self._ids_of(ids),
        )
        with server_errors(self._location):
            rows = self.connection.execute(question).fetchall()
        nested = self.metadata_column()
        return (Document(doc_id, words or "", _metadata(json.loads(facts), nested)) for doc_id, words, facts in rows)

    def _vectors(self, rest: str, dim: int) -> Any:
        from psycopg.sql import Literal

        with self.connection.cursor(binary=True) as cursor:
            rows = cursor.execute(self.select("{column}", rest, limit=Literal(_SAMPLED))).fetchall()
        return self._decode((row[0] for row in rows), dim)

    def _decode(self, contents: Iterable[bytes], dim: int) -> Any:
        """Vectors as the server sends them: a head of two 16-bit numbers, then the elements, big-endian."""
        element, head = binary_layout(self.table.type)
        values = np.frombuffer(b"".join(contents), element)
        if values.size % (dim + head):
            raise StoreError(
                f"{self._location}: expected vectors of dimension {dim}, found others too; a store has one dimension"
            )
        return np.ascontiguousarray(values.reshape(-1, dim + head)[:, head:], np.float32)

    def _ids_of(self, ids: Sequence[str]) -> Composed:
        from psycopg.sql import SQL, Literal

        kind = self.table.types[self.key]
        cast = "" if kind == "text" else f"::{kind}[]"
        return SQL("{ids}::text[]{cast}").format(ids=Literal(list(ids)), cast=SQL(cast))

    def _count_empty(self) -> int:
        question = sql("SELECT count(*) FROM {} t WHERE {} IS NULL AND {where}", self.table.path, self.table.column,
                       where=self.where)  # fmt: skip
        return int((self.connection.execute(question).fetchone() or (0,))[0])

    def _common_dim(self) -> int:
        """The dimension of all vectors, where the type of the column says none."""
        question = self.select("DISTINCT vector_dims({column})", "LIMIT 3")
        dims = sorted(row[0] for row in self.connection.execute(question))
        if len(dims) != 1:
            dims_seen = "no vectors" if not dims else f"several, {', '.join(map(str, dims))}"
            raise StoreError(
                f"{self._location}: expected vectors of one dimension, found {dims_seen}; the column says none"
            )
        return int(dims[0])

    def _filter(self, collection: str | None) -> Composed:
        """What the rows of the store have in common: the collection, in LangChain's table."""
        from psycopg.sql import SQL, Literal

        table = self.table
        if collection is None and table.name != _LANGCHAIN:
            return SQL("true").format()
        question = sql("SELECT uuid::text, name FROM {} ORDER BY name", (table.schema, _COLLECTIONS))
        collections = {name: uuid for uuid, name in self.connection.execute(question)}
        if collection not in collections and (collection is not None or len(collections) != 1):
            have = ", ".join(collections) or "none"
            raise StoreError(f"{self._location}: expected the name of a collection, found {collection!r}; there are "
                             f"{have}: name one with ?collection=NAME")  # fmt: skip
        uuid = collections[collection] if collection is not None else next(iter(collections.values()))
        return SQL("t.collection_id = {uuid}").format(uuid=Literal(uuid))

    def _notes(self) -> Iterator[str]:
        if self.without_vector:
            yield (
                f"{self.without_vector:,} rows have no vector: they are no documents here, and are kept as they are in "
                "a new table"
            )
        if self.table.type == "halfvec":
            yield "the vectors are of half precision; new ones are rounded to it too"


def _key(location: str, table: Table, asked: str | None) -> str:
    if asked is not None:
        if asked not in table.types:
            raise StoreError(
                f"{location}: expected a column {asked!r}, found {', '.join(table.types)}; name one of these"
            )
        return asked
    if len(table.key) != 1:
        key_columns = f"one of {', '.join(table.key)}" if table.key else "none"
        raise StoreError(
            f"{location}: expected a primary key of one column, found {key_columns}; name a unique column "
            "with ?id=COLUMN"
        )
    return table.key[0]


def _metadata(facts: dict[str, Any], nested: str | None) -> Mapping[str, Any]:
    """Columns as metadata, and in the place of a column of JSON its fields; columns keep their names before these."""
    inner = facts.get(nested) if nested is not None else None
    if nested is None or not isinstance(inner, dict):
        return facts
    outer = {name: value for name, value in facts.items() if name != nested}
    if inner.keys() & outer.keys():
        return facts
    return {**inner, **outer}


def _index_type(table: Table) -> str:
    methods = sorted({index.method for index in table.vector_indexes}) or ["no index"]
    return f"{table.type}, {' and '.join(methods)}"


def _index_facts(table: Table) -> dict[str, str | int]:
    return {
        f"index {index.name}": " ".join([index.method, *(f"{name}={value}" for name, value in index.options.items())])
        for index in table.vector_indexes
    }


def read_files(store: PgvectorStore, schema: str, name: str) -> dict[str, bytes]:
    """What lies beside a store, by name."""
    if not exists(store.connection, schema, FILES):
        return {}
    question = sql("SELECT name, content FROM {} WHERE store = %s", (schema, FILES))
    return {name: bytes(content) for name, content in store.connection.execute(question, [name])}


def write_files(connection: Any, schema: str, store: str, files: Mapping[str, bytes]) -> None:
    """Put files beside a store, in the place of those with the same names."""
    connection.execute(
        sql(
            "CREATE TABLE IF NOT EXISTS {} (store text, name text, content bytea NOT NULL, PRIMARY KEY (store, name))",
            (schema, FILES),
        )
    )
    upsert = sql(
        "INSERT INTO {} VALUES (%s, %s, %s) ON CONFLICT (store, name) DO UPDATE SET content = excluded.content",
        (schema, FILES),
    )
    for name, content in files.items():
        connection.execute(upsert, [store, name, content])
