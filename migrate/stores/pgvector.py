"""Tables of PostgreSQL with a column of pgvector: `pgvector:postgresql://USER@HOST/DB#SCHEMA.TABLE.COLUMN`.

Ids are those of the primary key; all columns but those of ids, texts and vectors are metadata, and the fields of a
column `metadata` of JSON count as columns. The collections of LangChain are stores of their own,
`#langchain_pg_embedding?collection=NAME`. What lies beside a store in a folder is here in a table of its schema.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, cast

import numpy as np
from numpy.typing import NDArray

from migrate.errors import AuthenticationError, LeadMigrateError, OutputError, RemoteError, StoreError, UsageError
from migrate.files import atomic_folder, cache_folder, canonical_json, read_file, write_bytes
from migrate.locations import Address, options_text, secrets_of
from migrate.manifest import MANIFEST_NAME, Manifest, find_manifest, parse_manifest
from migrate.stores import pgvector_table as tables
from migrate.stores.added_fields import (
    REMOVED_NOTE,
    UNFINISHED,
    AddedField,
    VectorFields,
    fields_beside,
    main_fields,
    note_was_removed,
)
from migrate.stores.base import KindSupport, SearchSetting, StoreInfo
from migrate.stores.driver import Driver, Page
from migrate.stores.kept import token_in
from migrate.stores.pgvector_table import STAGING, VECTORS, join_names, quoted, split_names, sql
from migrate.stores.records import Distance, choose, choose_text, import_client, with_nested
from migrate.stores.serving import ConnectionPool, Hits, as_fields, as_hits, other_there
from migrate.stores.switching import RECORD_SHAPE, not_switched, read_noted
from migrate.vectors import Document, Vectors

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.sql import Composed

FILES: Final = "lead_migrate_files"
"""The table of what lies beside stores: name of the store, name of the file, content."""
_PUBLISHED: Final = "published"
"""A file with the token; only a table that has one is replaced."""
_SWITCH: Final = "switch.json"
_PATIENCE: Final = "10s"
_MOST_INDEXED: Final = {"vector": 2_000, "halfvec": 4_000}
_OPERATORS: Final = {"l2": "<->", "ip": "<#>", "cosine": "<=>"}
_SETTINGS: Final = {"hnsw": ("hnsw.ef_search", 40, 1_000), "ivfflat": ("ivfflat.probes", 1, 1_024)}
"""Of each method: the setting, its value where nobody has set one, and the greatest that is tried."""


class PgvectorDriver(Driver):
    """A table, or a collection in one."""

    kind = "pgvector"
    support = KindSupport(
        "PostgreSQL with pgvector",
        ("pgvector:postgresql://HOST/DB#TABLE",),
        "pgvector",
        "all columns, keys, checks, indexes with parameters, row security, grants, `halfvec`, rows without a vector",
        "triggers are not copied; `sparsevec` and `bit` are not translated; a copy stays in its database",
    )
    collection = "table"
    options = ("collection", "distance", "id", "text", "vector")
    write_options = ("distance", "index", "m", "ef_construction", "lists")
    urls = ("postgresql://", "postgres://")
    swaps = True

    def __init__(self, location: str, address: Address) -> None:
        super().__init__(location, address)
        url = address.place
        self._pool: ConnectionPool[Connection[Any]] = ConnectionPool(
            lambda: connect(url), lambda connection: connection.execute("SELECT 1")
        )
        self._held: Connection[Any] | None = None

    def explain(self, error: BaseException, message: str) -> LeadMigrateError:
        """Return an error for that of the server."""
        psycopg = import_client("psycopg", "pgvector")
        errors = psycopg.errors
        if isinstance(error, errors.DiskFull):
            return OutputError(f"{self.location}: {message}; free some space on the server, and run again")
        if isinstance(error, errors.LockNotAvailable | errors.DeadlockDetected):
            return StoreError(f"{self.location}: another transaction held the tables for {_PATIENCE}; nothing was "
                              "done: run again when it is over")  # fmt: skip
        if not isinstance(error, psycopg.OperationalError | errors.InvalidAuthorizationSpecification):
            return super().explain(error, message)
        if isinstance(error, errors.InvalidAuthorizationSpecification) or re.search(
            "authentication|no password", message
        ):
            return AuthenticationError(f"{self.location}: {message}; put the password into PGPASSWORD, into ~/.pgpass, "
                                       "or into the location")  # fmt: skip
        return RemoteError(f"{self.location}: {message}; see that the server is there: the same command continues")

    @contextmanager
    def _connected(self) -> Iterator[Connection[Any]]:
        """Yield a connection for this thread: that of `_transaction`, if there is one."""
        if self._held is not None:
            yield self._held
            return
        with self._pool.connection() as connection:
            yield connection

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Hold a transaction, which all that is asked meanwhile is part of; for drivers that one thread uses."""
        with self._connected() as connection, connection.transaction():
            outer, self._held = self._held, connection
            try:
                yield
            finally:
                self._held = outer

    def _ask(self, question: Any, values: Sequence[Any] | Mapping[str, Any] = ()) -> list[Any]:
        """Return all rows of an answer; none if it has no rows."""
        with self._connected() as connection:
            cursor = connection.execute(question, values or None)
            return cursor.fetchall() if cursor.description else []

    def _ask_binary(self, question: Composed) -> list[Any]:
        """Return all rows of an answer, in which vectors are as `_decode` takes them."""
        with self._connected() as connection, connection.cursor(binary=True) as cursor:
            return cursor.execute(question).fetchall()

    def names(self) -> list[str]:
        """Return all columns of vectors, as a location names them."""
        return [join_names(row[:3]) for row in tables.vector_columns(self._ask)]

    # Reading.

    def open(self) -> None:
        """Find the table, and read what lies beside it."""
        column = self.address.options.get("vector")
        self.table = table = tables.find_table(self._ask, self.location, self.address.name, column, self._is_main)
        self.vector = table.column
        self.name = join_names([*table.path, table.column])
        self._folder = self._read_beside()
        self._manifest = None if self._folder is None else find_manifest(self._folder, "store")
        recorded = "" if self._manifest is None else self._manifest.store.index or ""
        self.asked = {**Address.parse(f"#{recorded}").options, **self.address.options}
        self.asked.pop("vector", None)  # the name has it
        self._refuse_distance(self.asked)
        self.distance = cast("Distance | None", self.asked.get("distance") or table.distance)
        self.key_column = self._choose_key(self.asked.get("id"))
        self.where = self._collection(self.asked.get("collection"))
        self.dim = table.dim or self._common_dim()

    def _refuse_distance(self, options: Mapping[str, str]) -> None:
        if options.get("distance", "l2") not in _OPERATORS:
            raise StoreError(f"{self.location}: there is no distance {options['distance']!r}; say l2, ip or cosine")

    def _choose_key(self, requested: str | None) -> str:
        table = self.table
        if requested is None and len(table.key) != 1:
            have = f"has the columns {', '.join(table.key)}" if table.key else "does not exist"
            raise StoreError(f"{self.location}: the primary key {have}; name a unique column with ?id=COLUMN")
        return choose(self.location, "column", list(table.types), requested or table.key[0], "say ?id=COLUMN for one")

    def _collection(self, name: str | None) -> Composed:
        """Return the condition of all rows of the store: in LangChain's table, that they are of one collection."""
        from psycopg.sql import Literal

        if name is None and self.table.path[1] != "langchain_pg_embedding":
            return sql("true")
        numbers = self._numbers()
        if name is not None and "*" in name:
            raise UsageError(f"{self.location}: a * means many collections, and this takes one; name one instead of it")
        name = choose(self.location, "collection", list(numbers), name, "name one with ?collection=NAME")
        return sql("t.collection_id = {uuid}", uuid=Literal(numbers[name]))

    def _common_dim(self) -> int:
        """Return the dimension of all vectors of a column whose type has none."""
        dims = sorted(row[0] for row in self._ask(self._select("DISTINCT vector_dims({column})", "LIMIT 3")))
        if len(dims) != 1:
            have = f"vectors of {', '.join(map(str, dims))} dimensions" if dims else "no vectors"
            raise StoreError(f"{self.location}: its type says no dimension, and it has {have}; name another column")
        return int(dims[0])

    def describe(self) -> StoreInfo:
        """Return what there is; a manifest of a table with other vectors is left out."""
        table, model = self.table, self._manifest.model if self._manifest is not None else None
        texts = [name for name in table.columns_of("text|character|citext") if name != self.key_column]
        self.text, why = choose_text(self.location, texts, self.asked.get("text"))
        counts = sql("SELECT count({}), count(*) FROM {} t WHERE {where}", table.column, table.path, where=self.where)
        ((count, rows),) = self._ask(counts)
        self.without_vector = rows - count
        sample = [row[0] for row in self._ask_binary(self._select("{column}", "LIMIT 32"))]
        notes = [f"the ids are those of column {self.key_column}", why]
        if model is not None and model.dim != self.dim:
            notes.append(f"what {FILES} has of a table of this name is of vectors of dimension {model.dim}")
            self._manifest = None
        if self.without_vector:
            notes.append(f"{self.without_vector:,} rows have no vector: they are no documents here, and are kept as "
                         "they are in a new table")  # fmt: skip
        if table.type == "halfvec":
            notes.append("the vectors are of half precision; new ones are rounded to it too")
        details: dict[str, str | int | None] = {"table": ".".join(table.path), "distance": self.distance}
        details["column"] = f"{table.column} {table.types[table.column]}"
        for index in table.vector_indexes:
            settings = [f"{name}={value}" for name, value in index.options.items()]
            details[f"index {index.name}"] = " ".join([index.method, *settings])
        details["rows_without_vector"] = self.without_vector or None
        methods = " and ".join(sorted({index.method for index in table.vector_indexes})) or "no index"
        kind, vectors = f"{table.type}, {methods}", self._decode(sample)
        self.info = self.described(kind, count, vectors, details=details, notes=notes)
        return self.info

    @property
    def key(self) -> str:
        """Place, name and options."""
        return f"{self.address.place}#{self.name}?{json.dumps(self.asked, sort_keys=True)}"

    def version(self) -> Any:
        """Return a sum over the rows, in any order: every change gives a row another `xmin`."""
        changes = "coalesce(bit_xor(hashtextextended({key}::text || ' ' || t.xmin::text, 0)), 0)"
        return [*self._ask(self._select(f"count(*), {changes}"))[0]]

    def _numbers(self) -> dict[str, str]:
        """Return the names and numbers of LangChain's collections."""
        table = (self.table.path[0], "langchain_pg_collection")
        return dict(self._ask(sql("SELECT name, uuid::text FROM {} ORDER BY name", table)))

    def _select(self, columns: str, clauses: str = "", **values: Any) -> Composed:
        """Return a question about the records that have a vector."""
        from psycopg.sql import Identifier

        text = " ".join(["SELECT", columns, "FROM {table} t WHERE {column} IS NOT NULL AND {where}", clauses])
        names = {"table": Identifier(*self.table.path), "column": Identifier("t", self.table.column)}
        return sql(text, **names, where=self.where, key=Identifier("t", self.key_column), **values)

    def pages(self, *, vectors: bool = True, records: bool = False) -> Iterator[Page]:
        """Read ids and vectors as they lie in the table; whole records are copied by PostgreSQL itself."""
        question = self._select("{key}::text, {column}" if vectors else "{key}::text")
        with (
            closing(connect(self.address.place)) as connection,  # others are asked meanwhile
            connection.cursor() as cursor,
        ):
            cursor.execute(  # rows then come as they lie in the table, whoever else reads it
                "SET synchronize_seqscans = off; SET max_parallel_workers_per_gather = 0; SET enable_indexscan = off; "
                "SET enable_indexonlyscan = off; SET enable_bitmapscan = off"
            )
            with cursor.copy(sql("COPY ({question}) TO STDOUT (FORMAT BINARY)", question=question)) as copy:
                copy.set_types(["text", "bytea"] if vectors else ["text"])
                rows = copy.rows()
                while chunk := list(islice(rows, 1_000)):
                    ids = [row[0] for row in chunk]
                    if None in ids:
                        raise StoreError(f"{self.location}: a row has no id; fill in column {self.key_column}, or name "
                                         "another with ?id=COLUMN")  # fmt: skip
                    yield Page(ids, self._decode([row[1] for row in chunk] if vectors else []))

    def documents(self, ids: Sequence[str], at: NDArray[np.int64] | None = None) -> Iterator[Document]:
        """Read documents by their ids."""
        from psycopg.sql import NULL, Identifier, Literal

        left_out = [name for name in (self.key_column, self.text, self.vector, *self._beside) if name is not None]
        question = self._select(
            "{key}::text, {text}::text, (to_jsonb(t) - {left_out}::text[])::text",
            "AND {key} = ANY({ids})",
            text=NULL if self.text is None else Identifier("t", self.text),
            left_out=Literal(left_out),
            ids=self._array(ids),
        )
        for doc_id, text, metadata in self._ask(question):
            yield Document(doc_id, text or "", with_nested(json.loads(metadata), self._nested))

    def vectors(self, ids: Sequence[str], at: NDArray[np.int64] | None = None) -> Page:
        """Read vectors by their ids."""
        question = self._select("{key}::text, {column}", "AND {key} = ANY({ids})", ids=self._array(ids))
        rows = self._ask_binary(question)
        return Page([row[0] for row in rows], self._decode([row[1] for row in rows]))

    def _array(self, ids: Iterable[str]) -> Composed:
        from psycopg.sql import Literal

        kind = self.table.types[self.key_column]
        return sql("{ids}::text[]::{kind}[]", ids=Literal(self._possible(ids)), kind=kind)

    def _possible(self, ids: Iterable[str]) -> list[str]:
        """Return those ids that the type of the key can be."""
        patterns = dict.fromkeys(("smallint", "integer", "bigint"), r"-?[0-9]{1,18}")
        patterns["uuid"] = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
        pattern = patterns.get(self.table.types[self.key_column], r"(?s).*")
        return [doc_id for doc_id in ids if re.fullmatch(pattern, doc_id)]

    @cached_property
    def _nested(self) -> str | None:
        """The column of JSON whose fields are metadata, if there is one."""
        names = ("metadata", "cmetadata", "langchain_metadata")
        return next((name for name in names if self.table.types.get(name) in ("json", "jsonb")), None)

    def _decode(self, contents: Sequence[bytes]) -> Vectors:
        """Return vectors as the server sends them: a head of two 16-bit numbers, then the elements, big-endian."""
        element, head = (">f2", 2) if self.table.type == "halfvec" else (">f4", 1)
        values = np.frombuffer(b"".join(contents), element)
        if len(values) != len(contents) * (head + self.dim):
            raise StoreError(f"{self.location}: not all vectors are of dimension {self.dim}; a store has one dimension")
        return np.ascontiguousarray(values.reshape(len(contents), head + self.dim)[:, head:], np.float32)

    # Serving.

    @cached_property
    def _nearest_by(self) -> tuple[str, str, str | None]:
        """The distance to a query in SQL, by an expression that has an index if there is one; its name; the method."""
        table, distance = self.table, self.distance or "ip"
        expression, cast, method = f"t.{quoted([table.column])}", table.type, None
        for index in sorted(table.vector_indexes, key=lambda index: index.method == "hnsw"):
            casts_all = "::" not in index.expression or f"({self.dim})" in index.expression  # collections differ in it
            if index.distance == distance and table.is_of_column(index) and casts_all:
                expression, method = f"({index.expression})", index.method
                cast = "halfvec" if "::halfvec" in expression or table.type == "halfvec" else "vector"
        return f"{expression.replace('%', '%%')} {_OPERATORS[distance]} %s::{cast}", distance, method

    def search(self, queries: Vectors, k: int, where: Any) -> list[Hits]:
        """Search; `where` maps columns, or fields of the column of JSON, to values."""
        condition, values = self._condition(where)
        method = self._nearest_by[2]
        question = self._nearest_question(condition)
        hits = []
        with self._connected() as connection:
            if method == "hnsw":  # it finds no more than that
                connection.execute("SELECT set_config('hnsw.ef_search', %s, false)", [str(min(max(k, 40), 1_000))])
            for query in queries:
                text = _as_text(query)
                rows = connection.execute(question, [text, *values, text, k]).fetchall()
                if len(rows) < k and method is not None:
                    with connection.transaction():  # the index looks at too few, of those that pass or at all
                        connection.execute("SET LOCAL enable_indexscan = off")
                        # planned anew: a statement that is prepared goes on with the index
                        rows = connection.execute(question, [text, *values, text, k], prepare=False).fetchall()
                hits.append(self._as_hits(rows))
        return hits

    def _nearest_question(self, condition: Composed) -> Composed:
        return self._select("{key}::text, {nearest}", "{condition} ORDER BY {nearest} LIMIT %s",
                            nearest=self._nearest_by[0], condition=condition)  # fmt: skip

    def _as_hits(self, rows: Sequence[Any]) -> Hits:
        row_scores = np.array([row[1] for row in rows], np.float64)
        scores = {"l2": row_scores**2, "ip": -row_scores, "cosine": 1 - row_scores}[self._nearest_by[1]]
        return as_hits([row[0] for row in rows], scores)

    @cached_property
    def setting(self) -> SearchSetting | None:
        """The candidates of a graph, or the lists that are looked into, as the server has them for this user."""
        method = self._nearest_by[2]
        if method not in _SETTINGS:
            return None
        name, default, most = _SETTINGS[method]
        # what the server or the role says, whatever a search has set; a library that nobody loaded yet has its default
        rows = self._ask("SELECT reset_val::int FROM pg_settings WHERE name = %s", [name])
        value = rows[0][0] if rows else default
        return SearchSetting(name, value, max(value, most), f"SET {name} = {{}}")

    def search_index(self, queries: Vectors, k: int, effort: int | None) -> list[Hits]:
        """Search as SQL does that sets nothing, or only another value of the setting."""
        setting, question = self.setting, self._nearest_question(sql(""))
        with self._connected() as connection, connection.transaction():
            if setting is not None:
                value = str(setting.value if effort is None else effort)
                connection.execute("SELECT set_config(%s, %s, true)", [setting.name, value])
            texts = map(_as_text, queries)
            return [self._as_hits(connection.execute(question, [text, text, k]).fetchall()) for text in texts]

    def _condition(self, where: Any) -> tuple[Composed, list[Any]]:
        columns = self.table.types
        condition, values = sql(""), []
        for name, value in as_fields(self.info, where).items():
            if name in columns and name != self._nested:
                condition += sql(" AND t.{} IS NULL" if value is None else " AND t.{} = %s", name)
                values += [] if value is None else [value]
            elif self._nested is not None:
                condition += sql(" AND t.{}::jsonb @> %s::jsonb", self._nested)
                values.append(json.dumps({name: value}))
            else:
                have = ", ".join(columns)
                raise UsageError(f"{self.location}: there is no column {name!r} to filter by; name some of {have}")
        return condition, values

    def update(self, new: Mapping[str, Vectors]) -> int:
        """Replace vectors, all of them in one transaction."""
        table, possible = self.table, self._possible(new)
        for doc_id in possible if table.type == "halfvec" else ():
            with np.errstate(over="ignore"):
                if not np.isfinite(new[doc_id].astype(np.float16)).all():
                    raise StoreError(f"{self.location}: the new vector of {doc_id!r} has larger numbers than half "
                                     "precision holds; nothing was written")  # fmt: skip
        statement = sql(
            "UPDATE {} t SET {} = %s::{type} WHERE t.{} = %s::text::{kind} AND t.{} IS NOT NULL AND {where}",
            table.path, table.column, self.key_column, table.column,
            type=table.type, kind=table.types[self.key_column], where=self.where,
        )  # fmt: skip
        if not possible:
            return 0
        with self._connected() as connection, connection.transaction(), connection.cursor() as cursor:
            cursor.executemany(statement, [(_as_text(new[doc_id]), doc_id) for doc_id in possible])
            count = cursor.rowcount
            if tables.number_of(self._ask, table.path) != table.oid:  # nobody renames it from here on
                raise other_there(self.info)
            return count

    @property
    def records_name(self) -> str:
        """The name of the table."""
        return join_names(self.table.path)

    @property
    def fields(self) -> PgvectorFields:
        """The columns."""
        return PgvectorFields(self)

    def _wait_for_locks(self) -> None:
        """Let a transaction that changes the table give up soon, as others wait behind it."""
        self._ask("SELECT set_config('lock_timeout', %s, true)", [_PATIENCE])

    def _added(self, schema: str, table: str) -> dict[str, AddedField]:
        """Return the columns that were added to a table, by their manifests, which lie beside stores."""
        if self._ask("SELECT to_regclass(%s)", [quoted((schema, FILES))]) == [(None,)]:
            return {}
        question = sql(
            "SELECT store, name, content FROM {} WHERE starts_with(store, %s) AND name = ANY(%s) ORDER BY 1, 2",
            (schema, FILES),
        )
        added = {}
        files = self._ask(question, [f"{table}.", [MANIFEST_NAME, UNFINISHED, REMOVED_NOTE]])
        for store, name, content in files:
            column = store[len(table) + 1 :]
            if name == REMOVED_NOTE:
                raise note_was_removed(self.location, column)
            manifest = parse_manifest(content, "store", Path(f"{FILES} of {self.location}", name))
            if manifest.store.added_beside is not None:
                added[column] = AddedField(manifest, is_complete=name == MANIFEST_NAME)
        return added

    def _is_main(self, row: Any) -> bool:
        """Return whether a column is none that was added beside another one of its table."""
        schema, table, column = row[:3]
        columns = [it[2] for it in tables.vector_columns(self._ask) if it[:2] == (schema, table)]
        return column in main_fields(columns, self._added(schema, table))

    @cached_property
    def _beside(self) -> set[str]:
        return fields_beside(self.fields.added())

    # What lies beside stores.

    @property
    def opened_as(self) -> str:
        """The name, with the options that say how the columns are read."""
        named = ("distance", "id", "text")
        return self.name + options_text({key: self.asked[key] for key in named if key in self.asked})

    def companion_folder(self) -> Path | None:
        """Return a copy of what lies beside the store, in a folder of this machine; None without a manifest."""
        return self._folder

    def _read_beside(self) -> Path | None:
        (schema, table), column = self.table.path, self.table.column
        files = dict(self._files(schema, "store = %s", f"{table}.{column}"))
        if MANIFEST_NAME not in files:
            return None
        hashes = sorted((name, hashlib.sha256(content).hexdigest()) for name, content in files.items())
        digest = hashlib.sha256(repr([self.location, hashes]).encode()).hexdigest()
        path = cache_folder() / "beside" / digest[:32]
        if not path.is_dir():
            with suppress(UsageError), atomic_folder(path) as folder:  # another process may be quicker
                for name, content in files.items():
                    write_bytes(folder / name, content)
        return path

    def manifest(self) -> Manifest | None:
        """Return the manifest."""
        return self._manifest

    def keep_manifest(self, manifest: Manifest) -> str:
        """Keep a manifest in the database; the table stays as it is."""
        (schema, table), column = self.table.path, self.table.column
        content = canonical_json(manifest.as_json()).encode()
        self._write_files(schema, f"{table}.{column}", {MANIFEST_NAME: content})
        return f"{FILES} of schema {schema}"

    def _files(self, schema: str, condition: str, *values: str) -> list[tuple[str, bytes]]:
        """Return files that lie beside stores, by name."""
        if self._ask("SELECT to_regclass(%s)", [quoted((schema, FILES))]) == [(None,)]:
            return []
        table = (schema, FILES)
        question = sql("SELECT name, content FROM {} WHERE {condition} ORDER BY 1", table, condition=condition)
        return self._ask(question, values)

    def _write_files(self, schema: str, store: str, files: Mapping[str, bytes], *, keeps_others: bool = True) -> None:
        """Put files beside a store; delete all that are there first, or those of the same names (`keeps_others`)."""
        with self._transaction():
            columns = "(store text, name text, content bytea NOT NULL, PRIMARY KEY (store, name))"
            self._ask(sql("CREATE TABLE IF NOT EXISTS {} {columns}", (schema, FILES), columns=columns))
            deletion = sql("DELETE FROM {} WHERE store = %s AND (name = ANY(%s) OR %s)", (schema, FILES))
            self._ask(deletion, [store, list(files), not keeps_others])
            for name, content in files.items():
                self._ask(sql("INSERT INTO {} VALUES (%s, %s, %s)", (schema, FILES)), [store, name, content])

    # Writing: a table is made, filled and checked under a name of its own, and renamed with what lies beside it.

    def refuse_write(self, dim: int, old: Self | None) -> None:
        """Refuse settings of an index that mean nothing, and a copy that there cannot be."""
        if old is not None:
            self._refuse_copy(old, dim)
            return
        self._refuse_distance(self.address.options)
        options = {key: value for key, value in self.address.options.items() if key not in ("distance", "index")}
        method = self.address.options.get("index", "hnsw")
        options_of = {"hnsw": {"m", "ef_construction"}, "ivfflat": {"lists"}, "none": set[str]()}
        is_known = method in options_of and options.keys() <= options_of[method]
        if not is_known or not all(map(str.isdigit, options.values())):
            raise UsageError(f"{self.location}: there is no index {method}{options_text(options)}; say ?index=hnsw (m, "
                             "ef_construction), ivfflat (lists) or none, with whole numbers")  # fmt: skip

    def _refuse_copy(self, source: PgvectorDriver, dim: int) -> None:
        table, most = source.table, _MOST_INDEXED[source.table.type]
        schema, name, column = self._target(self.name)
        database = "SELECT current_database(), pg_postmaster_start_time()"
        vectors, indexes = table.columns_of(VECTORS), [index.name for index in table.vector_indexes]
        if self.address.options:
            problem = f"a copy of a table keeps its indexes; leave out {', '.join(self.address.options)}"
        elif indexes and dim > most:
            problem = (f"an index on {table.type} has at most {most:,} dimensions, and there are {dim:,}; drop "
                       f"{', '.join(indexes)} from a copy of the table first")  # fmt: skip
        elif self._ask(database) != source._ask(database):
            problem = ("a table is copied within its database, and this is another; name a table of "
                       f"{source.address.place}")  # fmt: skip
        elif (schema, name) == table.path:
            problem = "this is the table that is read; choose another name"
        elif column is None and len(vectors) > 1:
            problem = (f"the table has several columns of vectors, {', '.join(vectors)}; name the one that is "
                       f"translated after the new table, as in #{name}.{table.column}")  # fmt: skip
        elif column not in (None, table.column):
            problem = f"the column of a copy is called {table.column}, as in the source; name it so"
        else:
            return
        raise UsageError(f"{self.location}: {problem}")

    def _target(self, name: str) -> tuple[str, str, str | None]:
        """Return schema, table and column, or None; of two names the first is a schema if there is such."""
        names = split_names(name)
        if not 1 <= len(names) <= 3:
            raise UsageError(f"{self.location}: {name!r} is not [SCHEMA.]TABLE[.COLUMN]; name the table so after the #")
        if len(names) < 3:
            question = (
                "SELECT coalesce(current_schema(), 'public'), EXISTS (SELECT FROM pg_namespace WHERE nspname = %s)"
            )
            schema, is_schema = self._ask(question, [names[0]])[0]
            names = names if is_schema and len(names) == 2 else (schema, *names)
        return names[0], names[1], names[2] if len(names) == 3 else None

    def write(self, name: str, dim: int, source: StoreInfo, old: Self | None, pages: Iterator[Page]) -> Iterable[str]:
        """Make, fill, index and check a table in one transaction."""
        self._pool.clear()  # connections that were idle for hours may be cut off
        staging = split_names(name)
        with self._transaction():
            for setting in ("work_mem", "maintenance_work_mem"):  # to join the vectors, to build indexes
                self._ask("SELECT set_config(%s, '256MB', true)", [setting])
            self._ask(sql("DROP TABLE IF EXISTS {}", staging))
            column = self._column_of_new() if old is None else old.table.column
            if old is None:
                remarks = self._fill(staging, column, dim, source, pages)
            else:
                remarks = self._copy(staging, old, dim, pages)
            count = self._ask(sql("SELECT count({}) FROM {}", column, staging))[0][0]
            if count != source.count:
                raise StoreError(f"{self.location}: {source.count:,} vectors were written, but it has {count:,}, as "
                                 "the source changed meanwhile; stop what writes to it, and run again")  # fmt: skip
        self._ask(sql("ANALYZE {}", staging))
        return remarks

    def _column_of_new(self) -> str:
        """Return the column of vectors that is named, or that of the table in whose place the new one comes."""
        schema, table, column = self._target(self.name)
        replaced = [row[2] for row in tables.vector_columns(self._ask) if tuple(row[:2]) == (schema, table)]
        return column or (replaced[0] if len(replaced) == 1 else "embedding")

    def _copy(self, staging: Sequence[str], source: PgvectorDriver, dim: int, pages: Iterator[Page]) -> list[str]:
        """Let PostgreSQL copy the table of the source with other vectors."""
        from psycopg.sql import SQL, Identifier

        table = source.table
        self._ask(sql("CREATE TABLE {} (LIKE {} INCLUDING ALL EXCLUDING INDEXES)", staging, table.path))
        if table.dim is not None:
            kind = f"{table.type}({dim})"
            self._ask(sql("ALTER TABLE {} ALTER COLUMN {} TYPE {kind}", staging, table.column, kind=kind))
        self._ask("CREATE TEMP TABLE lead_migrate_vectors (id text, vector vector) ON COMMIT DROP")
        names = [name for name in table.types if name not in table.generated]
        values = [sql("CASE WHEN t.{} IS NULL THEN NULL ELSE v.vector END" if name == table.column else "t.{}", name)
                  for name in names]  # fmt: skip
        self._copy_in(["lead_migrate_vectors"], 2, _ids_and_vectors(pages))
        self._ask("ANALYZE lead_migrate_vectors")
        copying = sql(
            "INSERT INTO {} ({names}) OVERRIDING SYSTEM VALUE SELECT {values} FROM {} t "
            "LEFT JOIN lead_migrate_vectors v ON v.id = t.{}::text WHERE {where}",
            staging, table.path, source.key_column, names=SQL(", ").join(map(Identifier, names)),
            values=SQL(", ").join(values), where=source.where,
        )  # fmt: skip
        self._ask(copying)
        new_name = self._target(self.name)[1]
        tables.copy_indexes(self._ask, table, staging, new_name, dim)
        return list(tables.copy_rest(self._ask, table, staging, new_name))

    def _fill(
        self, staging: Sequence[str], column: str, dim: int, source: StoreInfo, pages: Iterator[Page]
    ) -> list[str]:
        """Make a table of documents."""
        self._ask("CREATE EXTENSION IF NOT EXISTS vector")
        columns = "id text NOT NULL, content text, metadata jsonb NOT NULL DEFAULT '{{}}', {} vector({dim})"
        self._ask(sql(f"CREATE TABLE {{}} ({columns})", staging, column, dim=str(dim)))
        rows = ((*_as_row(document, has_text=source.has_texts), vector) for page in pages
                for document, vector in zip(page.documents, _as_sent(page.vectors), strict=True))  # fmt: skip
        self._copy_in(staging, 4, rows)
        return self._index_new(staging, column, dim, source)

    def _index_new(self, staging: Sequence[str], column: str, dim: int, source: StoreInfo) -> list[str]:
        """Give a table of documents its key, and the index that is asked for; return a remark where there is none."""
        self._ask(sql("ALTER TABLE {} ADD PRIMARY KEY (id)", staging))
        options, most = dict(self.address.options), _MOST_INDEXED["vector"]
        method, source_distance = options.pop("index", "hnsw"), str(source.details.get("distance")).lower()
        distance = options.pop("distance", source_distance if source_distance in _OPERATORS else source.metric)
        if method == "none" or dim > most:
            why = "" if method == "none" else f", as pgvector indexes at most {most:,} dimensions of type vector"
            return [f"the new table has no index on its vectors{why}"]
        settings = ", ".join(f"{key} = {value}" for key, value in options.items())
        self._ask(sql("CREATE INDEX ON {} USING {method} ({} {opclass}) {settings}", staging, column, method=method,
                      opclass=f"vector_{distance}_ops", settings=f"WITH ({settings})" if settings else ""))  # fmt: skip
        return []

    def _copy_in(self, table: Sequence[str], columns: int, rows: Iterable[tuple[bytes | None, ...]]) -> None:
        """Fill a table by the binary form of COPY, with fields as the types receive them."""
        copying = sql("COPY {} FROM STDIN (FORMAT BINARY)", table)
        with self._connected() as connection, connection.cursor() as cursor, cursor.copy(copying) as copy:
            copy.set_types(["bytea"] * columns)
            for row in rows:
                copy.write_row(row)

    # Servers.

    def identity(self, name: str) -> Any:
        """Return the number that the server knows the table by."""
        return tables.number_of(self._ask, self._target(name)[:2])

    def token(self, name: str) -> str | None:
        """Return the token beside a table; it is empty if an older version has made the table."""
        schema, table, _ = self._target(name)
        rows = self._files(schema, "starts_with(store, %s) AND name = %s", f"{table}.", _PUBLISHED)
        return rows[0][1].decode() if rows else None

    def staging(self, token: str) -> str:
        """Return a name that depends on the location alone, so that every run finds what another left."""
        schema, table, _ = self._target(self.name)
        digest = hashlib.sha256(self.location.encode()).hexdigest()[:12]
        return join_names((schema, tables.shortened(table, f"{STAGING}{digest}")))

    def leftovers(self) -> list[str]:
        """Return that name, if there is such a table."""
        staging = self.staging("")
        return [staging] if self.identity(staging) is not None else []

    def publish(self, staging: str, content: Path) -> None:
        """Rename the table, and put the files beside it, in one transaction."""
        files = {path.name: read_file(path) for path in sorted(content.iterdir()) if path.is_file()}
        schema, table, column = self._target(self.name)
        if self.identity(staging) is None:
            raise StoreError(f"{self.location}: the table {staging}, complete already, was deleted; to start over, add "
                             "`restart=True`")  # fmt: skip
        with self._transaction():
            if self.token(self.name) is not None:
                self._ask(sql("DROP TABLE IF EXISTS {}", (schema, table)))
            self._ask(sql("ALTER TABLE {} RENAME TO {}", split_names(staging), table))
            name = join_names([schema, table, *([column] if column else [])])
            store = f"{table}.{tables.find_table(self._ask, self.location, name).column}"
            files[_PUBLISHED] = (token_in(content) or "").encode()
            self._write_files(schema, store, files, keeps_others=False)

    def drop(self, name: str) -> None:
        """Drop a table, with what lies beside it."""
        schema, table, _ = self._target(name)
        columns = [row[2] for row in tables.vector_columns(self._ask) if row[:2] == (schema, table)]
        with self._transaction():
            self._ask(sql("DROP TABLE {}", (schema, table)))
            for column in columns:
                self._write_files(schema, f"{table}.{column}", {}, keeps_others=False)

    def successor(self, ending: str) -> str:
        """Return a table in the same schema."""
        (schema, name), column = self.table.path, self.table.column
        is_one = len(self.table.columns_of(VECTORS)) == 1
        return f"{self.kind}:{self.address.place}#{join_names([schema, f'{name}_{ending}', column][: 3 - is_one])}"

    # Switching: the record of it lies beside the stores, and is written in the transaction in which they trade names.

    def refuse_swap(self, new: Self) -> None:
        """Refuse another database or schema, tables of other rows or columns, and one that others point at."""
        table, new_table = self.table, new.table
        (schema, name), (new_schema, _) = table.path, new_table.path
        if (schema, table.column) != (new_schema, new_table.column):
            raise UsageError(f"{new.location}: tables trade names within a schema; name a table of schema {schema} "
                             f"with a column {table.column}")  # fmt: skip
        if table.oid == new_table.oid:
            raise UsageError(f"{new.location}: this is the old table itself; name the new one")
        if lacking := [column for column in table.types if column not in new_table.types]:
            raise UsageError(f"{new.location}: columns of {name} are not in it, {', '.join(lacking)}; translate into a "
                             "copy of the table")  # fmt: skip
        rows, new_rows = (
            self._ask(sql("SELECT count(*) FROM {}", counted.path))[0][0] for counted in (table, new_table)
        )
        if rows != new_rows:
            raise UsageError(f"{new.location}: it has {new_rows:,} rows and {name} {rows:,}; the others, such as those "
                             "of other collections, would step aside with the table")  # fmt: skip
        for sentence in tables.dependents(self._ask, table.oid):
            raise UsageError(f"{self.location}: {sentence}, and would go on with the old table under another name; "
                             "drop it, switch, and make it again")  # fmt: skip

    @contextmanager
    def alone(self, names: Collection[str]) -> Iterator[None]:
        """Keep writers out in a transaction, which does not keep others waiting behind it for long."""
        with self._transaction():
            self._ask("SELECT set_config('lock_timeout', %s, true)", [_PATIENCE])
            for name in sorted(names):
                if self.identity(name) is not None:
                    self._ask(sql("LOCK TABLE {} IN SHARE ROW EXCLUSIVE MODE", self._target(name)[:2]))
            yield

    def swap(self, targets: Mapping[str, Any]) -> None:
        """Rename the tables, with what lies beside them."""
        identities = {name: self.identity(name) for name in targets}
        if identities == targets:
            return
        if set(identities.values()) != set(targets.values()):
            raise not_switched(self.location)
        (schema, old, column), (_, new, _) = map(self._target, targets)
        between = f"{STAGING}switching"
        with self._transaction():
            for name, new_name in ((old, between), (new, old), (between, new)):
                self._ask(sql("ALTER TABLE {} RENAME TO {}", (schema, name), new_name))
                move = sql("UPDATE {} SET store = %s WHERE store = %s", (schema, FILES))
                self._ask(move, [f"{new_name}.{column}", f"{name}.{column}"])

    def switch_record(self, name: str) -> Mapping[str, Any] | None:
        """Return what is recorded of a switch of an old table."""
        return next((record for record, names in self._switches(name) if names[0] == self._target(name)[:2]), None)

    def switched_with(self, name: str) -> str | None:
        """Return the old table of the recorded switch that a table is part of."""
        switches = self._switches(name)
        return next((record["aliases"][0] for record, names in switches if self._target(name)[:2] in names), None)

    def _switches(self, name: str) -> Iterator[tuple[dict[str, Any], list[tuple[str, str]]]]:
        """Yield the recorded switches in the schema of a table, with schema and name of their tables."""
        for _, content in self._files(self._target(name)[0], "name = %s", _SWITCH):
            shape = {"aliases": tuple[str, str], "old": int, "new": int, "record": RECORD_SHAPE}
            record = read_noted(content, self.location, shape)
            yield record, [self._target(alias)[:2] for alias in record["aliases"]]

    def note(self, name: str, record: Mapping[str, Any] | None) -> None:
        """Record a switch, or remove the record."""
        schema, table, column = self._target(name)
        files = {} if record is None else {_SWITCH: canonical_json(dict(record)).encode()}
        self._write_files(schema, f"switch of {table}.{column}", files, keeps_others=False)


class PgvectorFields(VectorFields):
    """The columns of a table."""

    def __init__(self, driver: PgvectorDriver) -> None:
        self._driver = driver

    def names(self) -> Collection[str]:
        """Return the columns."""
        return {*self._driver.table.types}

    def added(self) -> Mapping[str, AddedField]:
        """Return the columns that this tool has added, and that are there."""
        added = self._driver._added(*self._driver.table.path)
        return {name: field for name, field in added.items() if name in self.names()}

    def begin(self, name: str, manifest: Manifest) -> None:
        """Note that a column is being written."""
        self._write_files(name, {UNFINISHED: canonical_json(manifest.as_json()).encode()})

    def keep(self, name: str, content: Path) -> None:
        """Put files beside a column."""
        self._write_files(name, {path.name: read_file(path) for path in sorted(content.iterdir()) if path.is_file()})

    def _write_files(self, name: str, files: Mapping[str, bytes]) -> None:
        """Put files in the place of all that lies beside a column, in one transaction."""
        schema, table = self._driver.table.path
        self._driver._write_files(schema, f"{table}.{name}", files, keeps_others=False)

    def as_kept(self, vectors: Vectors) -> Vectors:
        """Return vectors in the precision of the column."""
        return vectors.astype(np.float16).astype(np.float32) if self._driver.table.type == "halfvec" else vectors

    def write(self, name: str, dim: int, batches: Iterator[tuple[list[str], Vectors]]) -> Iterable[str]:
        """Add a column, fill it a batch a transaction, and index it while others write."""
        driver = self._driver
        table = driver.table
        if name not in table.types:
            with driver._transaction():
                driver._wait_for_locks()
                kind = f"{table.type}({dim})"
                driver._ask(sql("ALTER TABLE {} ADD COLUMN IF NOT EXISTS {} {kind}", table.path, name, kind=kind))
        statement = sql(
            "UPDATE {} t SET {} = v.vector FROM lead_migrate_batch v WHERE t.{} = v.id::{kind} AND t.{} IS NOT NULL "
            "AND {where}",
            table.path,
            name,
            driver.key_column,
            table.column,
            kind=table.types[driver.key_column],
            where=driver.where,
        )
        for ids, vectors in batches:
            with driver._transaction():
                columns = "(id text, vector vector) ON COMMIT DELETE ROWS"
                driver._ask(sql("CREATE TEMP TABLE IF NOT EXISTS lead_migrate_batch {columns}", columns=columns))
                rows = ((doc_id.encode(), vector) for doc_id, vector in zip(ids, _as_sent(vectors), strict=True))
                driver._copy_in(["lead_migrate_batch"], 2, rows)
                driver._ask("ANALYZE lead_migrate_batch")
                driver._ask(statement)
        return self._index_field(name, dim)

    def _index_field(self, name: str, dim: int) -> list[str]:
        """Build the indexes that the column of this driver has; one that a killed run left unfinished is made again."""
        driver = self._driver
        table = driver.table
        most = _MOST_INDEXED[table.type]
        pairs = tables.index_names(table, name)
        if pairs and dim > most:
            return [f"{name} has no index, as pgvector indexes at most {most:,} dimensions of type {table.type}"]
        if pairs and driver._ask("SELECT relkind = 'p' FROM pg_class WHERE oid = %s", [table.oid]) == [(True,)]:
            return [f"{name} has no index, as PostgreSQL builds none on a partitioned table while others write"]
        with closing(connect(driver.address.place)) as connection:  # of its own, as no transaction may hold it
            connection.execute("SET maintenance_work_mem = '256MB'")
            self._wait_for_builds()
            for index, index_name in pairs:
                path = (table.path[0], index_name)
                question = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(%s)"
                validity = driver._ask(question, [quoted(path)])
                if validity == [(False,)]:
                    connection.execute(sql("DROP INDEX CONCURRENTLY IF EXISTS {}", path))
                if validity != [(True,)]:
                    connection.execute(tables.index_like(table, index, index_name, name, dim))
        driver._ask(sql("ANALYZE {}", table.path))
        return []

    def _wait_for_builds(self) -> None:
        """Wait until no index of the table is built: a server ends what a killed run has asked for.

        No statement may wait for that in the server, as the build waits for every statement there.
        """
        question = "SELECT EXISTS (SELECT FROM pg_stat_progress_create_index WHERE relid = %s::bigint::oid)"
        while self._driver._ask(question, [self._driver.table.oid]) == [(True,)]:
            time.sleep(0.2)

    def refuse_drop(self, name: str) -> None:
        """Refuse a column that views, policies or other things depend on, by dropping it and taking that back."""
        from psycopg import Rollback
        from psycopg.errors import DependentObjectsStillExist

        driver = self._driver
        drop = sql("ALTER TABLE {} DROP COLUMN IF EXISTS {}", driver.table.path, name)
        try:
            with driver._connected() as connection, connection.transaction() as transaction:
                connection.execute("SELECT set_config('lock_timeout', %s, true)", [_PATIENCE])
                connection.execute(drop)
                raise Rollback(transaction)
        except DependentObjectsStillExist as error:
            detail = "; ".join((error.diag.message_detail or str(error)).splitlines())
            raise UsageError(
                f"{driver.location}: {detail}; change or drop what depends on the column, and run again: nothing was "
                "changed"
            ) from error

    def drop(self, name: str) -> None:
        """Drop a column, with what lies beside it."""
        driver = self._driver
        schema, table = driver.table.path
        with driver._transaction():
            driver._wait_for_locks()
            driver._ask(sql("ALTER TABLE {} DROP COLUMN IF EXISTS {}", (schema, table), name))
            files = [file for file, _ in driver._files(schema, "store = %s", f"{table}.{name}") if file != _PUBLISHED]
            deletion = sql("DELETE FROM {} WHERE store = %s AND name = ANY(%s)", (schema, FILES))
            if files:
                driver._ask(deletion, [f"{table}.{name}", files])


def connect(url: str) -> Connection[Any]:
    """Return a connection that commits each statement; rows that are hidden from this user are an error for it."""
    psycopg = import_client("psycopg", "pgvector")
    password = secrets_of(f"pgvector:{url}").get("password")
    connection: Connection[Any] = psycopg.connect(
        url, autocommit=True, connect_timeout=10, application_name="lead-migrate", password=password or None
    )
    connection.execute("SET row_security = off; SET client_encoding = 'UTF8'")
    return connection


def _as_text(vector: Vectors) -> str:
    return "[" + ",".join(map(repr, vector.tolist())) + "]"


def _as_sent(vectors: Vectors) -> list[bytes]:
    """Return rows as pgvector receives them: dimension and a zero as 16-bit numbers, then elements, big-endian."""
    head = struct.pack(">hh", vectors.shape[1], 0)
    return [head + row.tobytes() for row in vectors.astype(">f4")]


def _ids_and_vectors(pages: Iterable[Page]) -> Iterator[tuple[bytes, bytes]]:
    """Yield the rows of pages as PostgreSQL receives them."""
    for page in pages:
        yield from zip(map(str.encode, page.ids), _as_sent(page.vectors), strict=True)


def _as_row(document: Document, *, has_text: bool) -> tuple[bytes, bytes | None, bytes]:
    """Return id, text and metadata as PostgreSQL receives them."""
    try:
        metadata = json.dumps(dict(document.metadata), ensure_ascii=False, allow_nan=False)
        row = document.id.encode(), document.text.encode() if has_text else None, b"\x01" + metadata.encode()
    except (TypeError, ValueError) as error:
        raise StoreError(f"document {document.id!r}: PostgreSQL cannot hold it ({error}); change that") from error
    if b"\x00" in row[0] + (row[1] or b"") or re.search(r"(?<!\\)(\\\\)*\\u0000", metadata):
        raise StoreError(f"document {document.id!r}: PostgreSQL cannot hold a zero character; remove it")
    return row
