"""Tables of PostgreSQL with a column of pgvector: `pgvector:postgresql://USER@HOST/DB#SCHEMA.TABLE.COLUMN`.

Ids are those of the primary key; all columns but those of ids, texts and vectors are metadata, and the fields of a
column `metadata` of JSON count as columns. Texts may be in a field of JSON, `?text=COLUMN.FIELD`. The collections of
LangChain are stores of their own, `#langchain_pg_embedding?collection=NAME`, and so are the rows of each owner in a
table whose key is an owner and `id`, as the workspaces of LightRAG. What lies beside a store in a folder is here in a
table of its schema.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from migrate.databases import pgvector_server as server
from migrate.databases.driver import DatabaseCompanions, DatabaseRows, DatabaseSearch, Driver, Page, described
from migrate.databases.located import DatabaseTraits
from migrate.databases.pgvector_server import (
    FILES,
    PATIENCE,
    STAGING,
    VECTORS,
    Session,
    Table,
    connect,
    join_names,
    quoted,
    split_names,
    sql,
)
from migrate.databases.server_names import TradedNames
from migrate.errors import AuthenticationError, LeadMigrateError, OutputError, RemoteError, StoreError, UsageError
from migrate.files import atomic_folder, cache_folder, canonical_json, read_file, write_bytes
from migrate.locations import Address, options_text
from migrate.manifest import MANIFEST_NAME, Manifest, find_manifest
from migrate.stores.added_fields import (
    UNFINISHED,
    AddedField,
    VectorFields,
    fields_beside,
    main_fields,
)
from migrate.stores.base import KindSupport, SearchSetting, StoreInfo
from migrate.stores.documents.names import METADATA
from migrate.stores.kept import token_in
from migrate.stores.records import Distance, choose, choose_text, import_client, with_nested
from migrate.stores.serving import Hits, as_fields, as_hits, other_there
from migrate.stores.switching import RECORD_SHAPE, not_switched, read_noted
from migrate.vectors import Document, Vectors

if TYPE_CHECKING:
    from psycopg.sql import Composable, Composed

_PUBLISHED: Final = "published"
"""A file with the token; only a table that has one is replaced."""
_SWITCH: Final = "switch.json"
_ID: Final = "id"
"""The column of ids in a key of two columns, of which the other one says who owns the row."""
_MEMORY: Final = "256MB"
"""Memory to join new vectors with rows and to build indexes with; by itself PostgreSQL takes 4 and 64 MB."""
_SAMPLE: Final = 32
"""Vectors that are looked at for their length."""
_NAMED_FIELDS: Final = 12
"""Fields of JSON that a message names."""
_EF_SEARCH: Final = 40
_MOST_EF_SEARCH: Final = 1_000
"""Candidates of a graph where nobody has set a number, and the most that pgvector takes."""
_POLL_S: Final = 0.2
"""Seconds between two questions whether an index is still being built."""
_OPERATORS: Final = {"l2": "<->", "ip": "<#>", "cosine": "<=>"}
_SETTINGS: Final = {
    "hnsw": ("hnsw.ef_search", _EF_SEARCH, _MOST_EF_SEARCH),
    "ivfflat": ("ivfflat.probes", 1, 1_024),
}
"""Of each method: the setting, its value where nobody has set one, and the greatest that is tried."""


class PgvectorDriver(Driver):
    """Tables of a database. `options` are the options that the one which is open is read with."""

    traits = DatabaseTraits(
        kind="pgvector",
        support=KindSupport(
            "PostgreSQL with pgvector",
            ("pgvector:postgresql://HOST/DB#TABLE",),
            "pgvector",
            "all columns, keys, checks, indexes with parameters, row security, grants, `halfvec`, rows without a "
            "vector",
            "triggers are not copied; `sparsevec` and `bit` are not translated; a copy stays in its database",
        ),
        collection="table",
        options=("collection", "distance", "id", "text", "vector"),
        write_options=("distance", "index", "m", "ef_construction", "lists"),
        urls=("postgresql://", "postgres://"),
    )

    def __init__(self, location: str, address: Address) -> None:
        super().__init__(location, address)
        self.session = Session(location, address.place)
        self.options: dict[str, str] = {}

    def explain(self, error: BaseException, message: str) -> LeadMigrateError:
        """Return an error for that of the server."""
        psycopg = import_client("psycopg", "pgvector")
        errors = psycopg.errors
        if isinstance(error, errors.DiskFull):
            return OutputError(f"{self.location}: {message}; free some space on the server, and run again")
        if isinstance(error, errors.LockNotAvailable | errors.DeadlockDetected):
            return StoreError(
                f"{self.location}: another transaction held the tables for {PATIENCE}; nothing was done: run again "
                "when it is over"
            )
        if not isinstance(error, psycopg.OperationalError | errors.InvalidAuthorizationSpecification):
            return super().explain(error, message)
        # before a connection is there, the client knows no more than the words of the server
        is_refused = isinstance(error, errors.InvalidAuthorizationSpecification)
        if is_refused or re.search("authentication|no password", message):
            return AuthenticationError(
                f"{self.location}: {message}; put the password into PGPASSWORD, into ~/.pgpass, or into the location"
            )
        return RemoteError(f"{self.location}: {message}; see that the server is there: the same command continues")

    def names(self) -> list[str]:
        """Return all columns of vectors, as a location names them."""
        return [join_names(row[:3]) for row in server.vector_columns(self.session)]

    def open(self) -> PgvectorRows:
        """Find the table."""
        column = self.address.options.get("vector")
        table = server.find_table(self.session, self.location, self.address.name, column, self._is_main)
        self.name = join_names([*table.path, table.column])
        rows = PgvectorRows(self, table)
        self.options = rows.options
        return rows

    @contextmanager
    def at_one_moment(self) -> Iterator[Driver]:
        """Yield a driver that reads one snapshot of the database."""
        driver = PgvectorDriver(self.location, self.address)
        with driver.session.at_one_moment():
            yield driver

    @property
    def server_names(self) -> PgvectorNames:
        """The tables."""
        return PgvectorNames(self)

    def _is_main(self, row: Any) -> bool:
        """Return whether a column is none that was added beside another one of its table."""
        schema, table, column = row[:3]
        columns = [it[2] for it in server.vector_columns(self.session) if it[:2] == (schema, table)]
        return column in main_fields(columns, self.session.added(schema, table))

    @property
    def opened_as(self) -> str:
        """The name, with the options that say how the columns are read."""
        named = ("distance", "id", "text")
        return self.name + options_text({key: self.options[key] for key in named if key in self.options})

    def refuse_write(self, dim: int, old: PgvectorRows | None) -> None:
        """Refuse settings of an index that mean nothing, and a copy that there cannot be."""
        if old is not None:
            self._refuse_copy(old, dim)
            return
        _refuse_distance(self.location, self.address.options)
        options = {key: value for key, value in self.address.options.items() if key not in ("distance", "index")}
        method = self.address.options.get("index", "hnsw")
        options_of = {"hnsw": {"m", "ef_construction"}, "ivfflat": {"lists"}, "none": set[str]()}
        is_known = method in options_of and options.keys() <= options_of[method]
        if not is_known or not all(map(str.isdigit, options.values())):
            raise UsageError(
                f"{self.location}: there is no index {method}{options_text(options)}; say ?index=hnsw (m, "
                "ef_construction), ivfflat (lists) or none, with whole numbers"
            )

    def _refuse_copy(self, source: PgvectorRows, dim: int) -> None:
        table = source.table
        schema, name, column = self.target(self.name)
        # two servers may have databases of one name, but they were not started in the same microsecond
        database = "SELECT current_database(), pg_postmaster_start_time()"
        vectors = table.columns_of(VECTORS)
        indexes = _too_long(self.session, table, dim)
        if self.address.options:
            problem = f"a copy of a table keeps its indexes; leave out {', '.join(self.address.options)}"
        elif indexes:
            problem = (
                f"pgvector indexes at most {_most_indexed(self.session):,} dimensions here, and there are {dim:,}; "
                f"drop {', '.join(indexes)} from a copy of the table first"
            )
        elif self.session.ask(database) != source.session.ask(database):
            url = source.driver.address.place
            problem = f"a table is copied within its database, and this is another; name a table of {url}"
        elif (schema, name) == table.path:
            problem = "this is the table that is read; choose another name"
        elif column is None and len(vectors) > 1:
            problem = (
                f"the table has several columns of vectors, {', '.join(vectors)}; name the one that is translated "
                f"after the new table, as in #{name}.{table.column}"
            )
        elif column not in (None, table.column):
            problem = f"the column of a copy is called {table.column}, as in the source; name it so"
        else:
            return
        raise UsageError(f"{self.location}: {problem}")

    def target(self, name: str) -> tuple[str, str, str | None]:
        """Return schema, table and column, or None; of two names the first is a schema if there is such."""
        names = split_names(name)
        if not 1 <= len(names) <= 3:
            raise UsageError(f"{self.location}: {name!r} is not [SCHEMA.]TABLE[.COLUMN]; name the table so after the #")
        if len(names) < 3:
            question = (
                "SELECT coalesce(current_schema(), 'public'), EXISTS (SELECT FROM pg_namespace WHERE nspname = %s)"
            )
            schema, is_schema = self.session.ask(question, [names[0]])[0]
            if len(names) == 1 or not is_schema:
                names = (schema, *names)
        schema, table, *columns = names
        return schema, table, next(iter(columns), None)

    def write_new(self, name: str, dim: int, source: StoreInfo, pages: Iterator[Page]) -> Iterable[str]:
        """Make, fill and index a table of documents in one transaction."""
        column = self._column_of_new()
        with self._new_table(split_names(name), column, source.count) as staging:
            return self._fill(staging, column, dim, source, pages)

    def write_copy(self, name: str, dim: int, old: PgvectorRows, pages: Iterator[Page]) -> Iterable[str]:
        """Copy a table with other vectors in one transaction."""
        snapshot = old.session.snapshot
        with self._new_table(split_names(name), old.table.column, old.info.count, snapshot) as staging:
            server.create_like(self.session, old.table, staging, dim)
            _copy_rows(self.session, staging, old, pages)
            new_name = self.target(self.name)[1]
            server.copy_indexes(self.session, old.table, staging, new_name, dim)
            rest = server.copy_rest(self.session, old.table, staging, new_name)
            return [*old.table.index_remarks(dim), *rest]

    @contextmanager
    def _new_table(
        self, staging: Sequence[str], column: str, count: int, snapshot: str | None = None
    ) -> Iterator[Sequence[str]]:
        """Yield the name of a table to make and fill, in a transaction; `count` vectors have to be in it then.

        It sees other tables as of a `snapshot` of `Session.at_one_moment`, or as they are.
        """
        # connections that were idle for hours, while vectors were made, may be cut off
        self.session.pool.clear()
        with self.session.transaction():
            if snapshot is not None:
                self.session.ask(server.import_snapshot(snapshot))
            for setting in ("work_mem", "maintenance_work_mem"):
                self.session.ask("SELECT set_config(%s, %s, true)", [setting, _MEMORY])
            self.session.ask(sql("DROP TABLE IF EXISTS {}", staging))
            yield staging
            written = self.session.ask(sql("SELECT count({}) FROM {}", column, staging))[0][0]
            if written != count:
                raise StoreError(
                    f"{self.location}: {count:,} vectors were written, but it has {written:,}, as the source changed "
                    "meanwhile; stop what writes to it, and run again"
                )
        self.session.ask(sql("ANALYZE {}", staging))

    def _column_of_new(self) -> str:
        """Return the column of vectors that is named, or that of the table in whose place the new one comes."""
        schema, table, column = self.target(self.name)
        if column is not None:
            return column
        replaced = [row[2] for row in server.vector_columns(self.session) if tuple(row[:2]) == (schema, table)]
        return replaced[0] if len(replaced) == 1 else "embedding"

    def _fill(
        self, staging: Sequence[str], column: str, dim: int, source: StoreInfo, pages: Iterator[Page]
    ) -> list[str]:
        """Make a table of documents."""
        self.session.ask("CREATE EXTENSION IF NOT EXISTS vector")
        columns = "id text NOT NULL, content text, metadata jsonb NOT NULL DEFAULT '{{}}', {} vector({dim})"
        self.session.ask(sql(f"CREATE TABLE {{}} ({columns})", staging, column, dim=str(dim)))
        rows = (
            (*_as_row(document, has_text=source.has_texts), vector)
            for page in pages
            for document, vector in zip(page.documents, _as_sent(page.vectors), strict=True)
        )
        self.session.copy_in(staging, 4, rows)
        return self._index_new(staging, column, dim, source)

    def _index_new(self, staging: Sequence[str], column: str, dim: int, source: StoreInfo) -> list[str]:
        """Give a table of documents its key, and the index that is asked for; return a remark where there is none."""
        self.session.ask(sql("ALTER TABLE {} ADD PRIMARY KEY (id)", staging))
        options = dict(self.address.options)
        method = options.pop("index", "hnsw")
        # the metric of a store that is compared by cosine is the inner product of its unit vectors
        source_distance = str(source.details.get("distance")).lower()
        if source_distance not in _OPERATORS:
            source_distance = source.metric
        distance = options.pop("distance", source_distance)
        if method == "none":
            return ["the new table has no index on its vectors"]
        most = _most_indexed(self.session)
        if dim > most:
            return [f"the new table has no index on its vectors, as pgvector indexes at most {most:,} dimensions here"]
        key = f"{quoted([column])} vector_{distance}_ops"
        remarks = []
        if dim > server.MOST_INDEXED["vector"]:
            key = server.half_key(column, distance, dim)
            remarks = [server.half_remark("the index of the new table", column, distance, dim)]
        settings = ""
        if options:
            settings = f"WITH ({', '.join(f'{key} = {value}' for key, value in options.items())})"
        statement = sql(
            "CREATE INDEX ON {} USING {method} ({key}) {settings}", staging, method=method, key=key, settings=settings
        )
        self.session.ask(statement)
        return remarks

    def identity(self, name: str) -> Any:
        """Return the number that the server knows the table by."""
        return server.number_of(self.session, self.target(name)[:2])

    def refuse_switch(self, old: PgvectorRows, new: PgvectorRows) -> None:
        """Refuse another database or schema, tables of other rows or columns, and one that others point at."""
        table = old.table
        new_table = new.table
        schema, name = table.path
        if (schema, table.column) != (new_table.path[0], new_table.column):
            raise UsageError(
                f"{new.location}: tables trade names within a schema; name a table of schema {schema} with a column "
                f"{table.column}"
            )
        if table.oid == new_table.oid:
            raise UsageError(f"{new.location}: this is the old table itself; name the new one")
        if lacking := [column for column in table.types if column not in new_table.types]:
            raise UsageError(
                f"{new.location}: columns of {name} are not in it, {', '.join(lacking)}; translate into a copy of the "
                "table"
            )
        rows = self.session.count(table.path)
        new_rows = self.session.count(new_table.path)
        if rows != new_rows:
            raise UsageError(
                f"{new.location}: it has {new_rows:,} rows and {name} {rows:,}; the others, such as those of other "
                "collections, would step aside with the table"
            )
        for sentence in server.dependents(self.session, table.oid):
            raise UsageError(
                f"{self.location}: {sentence}, and would go on with the old table under another name; drop it, switch, "
                "and make it again"
            )


class PgvectorRows(DatabaseRows):
    """The rows of a table, or of a collection in one."""

    driver: PgvectorDriver

    def __init__(self, driver: PgvectorDriver, table: Table) -> None:
        super().__init__(driver)
        self.session = driver.session
        self.table = table
        self.vector = table.column
        self.records_name = join_names(table.path)
        self.folder = self.companions.read()
        self.manifest = None if self.folder is None else find_manifest(self.folder, "store")
        recorded = "" if self.manifest is None else self.manifest.store.index or ""
        self.options = {**Address.parse(f"#{recorded}").options, **driver.address.options}
        # the name has it
        self.options.pop("vector", None)
        _refuse_distance(self.location, self.options)
        self.distance = cast("Distance | None", self.options.get("distance") or table.distance)
        self.key_column = self._choose_key(self.options.get("id"))
        self.where = self._collection(self.options.get("collection"))
        self.dim = table.dim or self._common_dim()
        is_json = (name for name in METADATA if table.types.get(name) in ("json", "jsonb"))
        self.nested = next(is_json, None)
        """The column of JSON whose fields are metadata, if there is one."""
        self._text_field: str | None = None
        """The field of `nested` that holds the texts; None if they are in the column `text`, or nowhere."""
        self._fields_beside: set[str] | None = None

    @property
    def _owner(self) -> str | None:
        """The column of owners beside that of ids in the key; ids are unique for each owner."""
        owners = [name for name in self.table.key if name != _ID]
        # a person who names the column alone says that its ids are unique in the whole table
        is_whole = "id" in self.options and "collection" not in self.options
        if len(self.table.key) != 2 or len(owners) != 1 or is_whole:
            return None
        return owners[0]

    def _choose_key(self, requested: str | None) -> str:
        table = self.table
        if requested is None and self._owner is not None:
            return _ID
        if requested is None and len(table.key) != 1:
            have = "does not exist"
            if table.key:
                have = f"has the columns {', '.join(table.key)}"
            raise StoreError(f"{self.location}: the primary key {have}; name a unique column with ?id=COLUMN")
        return choose(self.location, "column", list(table.types), requested or table.key[0], "say ?id=COLUMN for one")

    def _collection(self, name: str | None) -> Composed:
        """Return the condition of all rows of the store, in a table that may hold several collections."""
        from psycopg.sql import Literal

        owner = self._owner
        if owner is not None:
            column = owner
            question = sql("SELECT DISTINCT {}::text, {}::text FROM {} ORDER BY 1", owner, owner, self.table.path)
        elif name is None and self.table.path[1] != "langchain_pg_embedding":
            return sql("true")
        else:
            column = "collection_id"
            collections = (self.table.path[0], "langchain_pg_collection")
            question = sql("SELECT name, uuid::text FROM {} ORDER BY name", collections)
        if name is not None and "*" in name:
            raise UsageError(f"{self.location}: a * means many collections, and this takes one; name one instead of it")
        values = dict(self.session.ask(question))
        if owner is not None and not values:
            return sql("true")  # an empty table
        name = choose(self.location, "collection", list(values), name, "name one with ?collection=NAME")
        return sql("t.{} = {value}", column, value=Literal(values[name]))

    def _common_dim(self) -> int:
        """Return the dimension of all vectors of a column whose type has none."""
        # two are wrong already
        dims = sorted(row[0] for row in self.session.ask(self.select("DISTINCT vector_dims({column})", "LIMIT 3")))
        if len(dims) != 1:
            have = "no vectors"
            if dims:
                have = f"vectors of {', '.join(map(str, dims))} dimensions"
            raise StoreError(f"{self.location}: its type says no dimension, and it has {have}; name another column")
        return int(dims[0])

    def describe(self) -> StoreInfo:
        """Return what there is; a manifest of a table with other vectors is left out."""
        table = self.table
        self.text, why = self._choose_text()
        counts = sql("SELECT count({}), count(*) FROM {} t WHERE {where}", table.column, table.path, where=self.where)
        ((count, rows),) = self.session.ask(counts)
        self.without_vector = rows - count
        sample = [row[0] for row in self.session.ask_binary(self.select("{column}", f"LIMIT {_SAMPLE}"))]
        notes = [f"the ids are those of column {self.key_column}", why]
        # files lie beside a name, and the table that had it may have been dropped
        model = None if self.manifest is None else self.manifest.model
        if model is not None and model.dim != self.dim:
            notes.append(f"what {FILES} has of a table of this name is of vectors of dimension {model.dim}")
            self.manifest = None
        if self.without_vector:
            notes.append(
                f"{self.without_vector:,} rows have no vector: they are no documents here, and are kept as they are in "
                "a new table"
            )
        if table.type == "halfvec":
            notes.append("the vectors are of half precision; new ones are rounded to it too")
        details: dict[str, str | int | None] = {
            "table": ".".join(table.path),
            "distance": self.distance,
            "column": f"{table.column} {table.types[table.column]}",
        }
        for index in table.vector_indexes:
            settings = [f"{name}={value}" for name, value in index.options.items()]
            details[f"index {index.name}"] = " ".join([index.method, *settings])
        details["rows_without_vector"] = self.without_vector or None
        methods = " and ".join(sorted({index.method for index in table.vector_indexes})) or "no index"
        kind = f"{table.type}, {methods}"
        self.info = described(self, kind, count, self._decode(sample), details=details, notes=notes)
        return self.info

    def _choose_text(self) -> tuple[str | None, str]:
        """Return the column of texts, or the field of one of JSON as `COLUMN.FIELD`, and a note that says why."""
        requested = self.options.get("text")
        column, _, field = (requested or "").partition(".")
        json_columns = self.table.columns_of("json|jsonb")
        if field and requested not in self.table.types and column in json_columns:
            self._refuse_missing(column, field)
            self.nested = column
            self._text_field = field
            return requested, f"the texts are those of field {field} in column {column}, as the location says"
        columns = [name for name in self.table.columns_of("text|character|citext") if name != self.key_column]
        text, why = choose_text(self.location, columns, requested)
        if text is None and json_columns:
            why += f", or ?text={json_columns[0]}.FIELD for a field of JSON"
        return text, why

    def _refuse_missing(self, column: str, field: str) -> None:
        """Raise StoreError if a column of JSON has a field of texts in no record."""
        from psycopg.sql import Identifier, Literal

        parts = {"json": Identifier("t", column), "field": Literal(field)}
        has_texts = "AND {json}::jsonb -> {field} IS NOT NULL LIMIT 1"
        if self.session.ask(self.select("1", has_texts, **parts)):
            return
        rows = self.session.ask(self.select("{json}::jsonb", "LIMIT 1", **parts))
        # An empty table has no record yet
        if not rows:
            return
        texts: list[str] = []
        if isinstance(rows[0][0], dict):
            texts = [name for name, value in rows[0][0].items() if isinstance(value, str)]
        have = ", ".join(texts[:_NAMED_FIELDS]) or "none"
        raise StoreError(
            f"{self.location}: column {column} has a field {field!r} in no record; it has texts in {have}: say "
            f"?text={column}.FIELD for one"
        )

    @property
    def key(self) -> str:
        """Place, name and options."""
        return f"{self.driver.address.place}#{self.name}?{json.dumps(self.options, sort_keys=True)}"

    def version(self, *, of_pages: bool = False) -> Any:
        """Return a sum over the rows, in any order: every change gives a row another `xmin`."""
        changes = "coalesce(bit_xor(hashtextextended({key}::text || ' ' || t.xmin::text, 0)), 0)"
        return [*self.session.ask(self.select(f"count(*), {changes}"))[0]]

    def select(self, columns: str, clauses: str = "", **values: Any) -> Composed:
        """Return a question about the records that have a vector."""
        from psycopg.sql import Identifier

        text = " ".join(["SELECT", columns, "FROM {table} t WHERE {column} IS NOT NULL AND {where}", clauses])
        names = {"table": Identifier(*self.table.path), "column": Identifier("t", self.table.column)}
        return sql(text, **names, where=self.where, key=Identifier("t", self.key_column), **values)

    def pages(self, *, vectors: bool = True, records: bool = False) -> Iterator[Page]:
        """Read ids and vectors as they lie in the table; whole records are copied by PostgreSQL itself."""
        columns = "{key}::text"
        types = ["text"]
        if vectors:
            columns += ", {column}"
            types.append("bytea")
        question = self.select(columns)
        # a connection of its own, as others are asked meanwhile
        with closing(connect(self.driver.address.place)) as connection, connection.cursor() as cursor:
            if self.session.snapshot is not None:
                cursor.execute("BEGIN")
                cursor.execute(server.import_snapshot(self.session.snapshot))
            # rows then come as they lie in the table, whoever else reads it
            cursor.execute(
                "SET synchronize_seqscans = off; SET max_parallel_workers_per_gather = 0; SET enable_indexscan = off; "
                "SET enable_indexonlyscan = off; SET enable_bitmapscan = off"
            )
            with cursor.copy(sql("COPY ({question}) TO STDOUT (FORMAT BINARY)", question=question)) as copy:
                copy.set_types(types)
                rows = copy.rows()
                while chunk := list(islice(rows, self.at_once)):
                    yield self._page(chunk, vectors=vectors)

    def _page(self, rows: Sequence[Any], *, vectors: bool) -> Page:
        ids = [row[0] for row in rows]
        if None in ids:
            raise StoreError(
                f"{self.location}: a row has no id; fill in column {self.key_column}, or name another with ?id=COLUMN"
            )
        return Page(ids, self._decode([row[1] for row in rows] if vectors else []))

    def documents(self, ids: Sequence[str], at: NDArray[np.int64] | None = None) -> Iterator[Document]:
        """Read documents by their ids."""
        from psycopg.sql import NULL, Identifier, Literal

        if self._fields_beside is None:
            self._fields_beside = fields_beside(self.fields.added())
        columns = (self.key_column, self.text, self.vector, *self._fields_beside)
        left_out = [name for name in columns if name is not None]
        path_left_out: list[str] = []
        texts: Composable = NULL
        if self._text_field is not None:
            path_left_out = [str(self.nested), self._text_field]
            texts = sql("({} ->> {field})", ("t", str(self.nested)), field=Literal(self._text_field))
        elif self.text is not None:
            texts = Identifier("t", self.text)
        question = self.select(
            "{key}::text, {text}::text, ((to_jsonb(t) - {left_out}::text[]) #- {path_left_out}::text[])::text",
            "AND {key} = ANY({ids})",
            text=texts,
            left_out=Literal(left_out),
            path_left_out=Literal(path_left_out),
            ids=self._array(ids),
        )
        for doc_id, text, metadata in self.session.ask(question):
            yield Document(doc_id, text or "", with_nested(json.loads(metadata), self.nested))

    def vectors(self, ids: Sequence[str], at: NDArray[np.int64] | None = None) -> Page:
        """Read vectors by their ids."""
        question = self.select("{key}::text, {column}", "AND {key} = ANY({ids})", ids=self._array(ids))
        rows = self.session.ask_binary(question)
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

    def _decode(self, contents: Sequence[bytes]) -> Vectors:
        """Return vectors as the server sends them: a head of two 16-bit numbers, then the elements, big-endian."""
        # the head is 4 bytes: one number of 32 bits, or two of 16
        element = ">f4"
        head = 1
        if self.table.type == "halfvec":
            element = ">f2"
            head = 2
        values = np.frombuffer(b"".join(contents), element)
        if len(values) != len(contents) * (head + self.dim):
            raise StoreError(f"{self.location}: not all vectors are of dimension {self.dim}; a store has one dimension")
        return np.ascontiguousarray(values.reshape(len(contents), head + self.dim)[:, head:], np.float32)

    def update(self, new: Mapping[str, Vectors]) -> int:
        """Replace vectors, all of them in one transaction."""
        table = self.table
        possible = self._possible(new)
        if table.type == "halfvec":
            _refuse_large(self.location, {doc_id: new[doc_id] for doc_id in possible})
        statement = sql(
            "UPDATE {} t SET {} = %s::{type} WHERE t.{} = %s::text::{kind} AND t.{} IS NOT NULL AND {where}",
            table.path,
            table.column,
            self.key_column,
            table.column,
            type=table.type,
            kind=table.types[self.key_column],
            where=self.where,
        )
        if not possible:
            return 0
        with self.session.connected() as connection, connection.transaction(), connection.cursor() as cursor:
            cursor.executemany(statement, [(_as_text(new[doc_id]), doc_id) for doc_id in possible])
            count = cursor.rowcount
            # asked once rows of it are written, as nobody can rename it from then on
            if server.number_of(self.session, table.path) != table.oid:
                raise other_there(self.info)
            return count

    @property
    def search(self) -> PgvectorSearch:
        """The search of the table."""
        return PgvectorSearch(self)

    @property
    def fields(self) -> PgvectorFields:
        """The columns."""
        return PgvectorFields(self)

    @property
    def companions(self) -> PgvectorCompanions:
        """Its companions."""
        return PgvectorCompanions(self)


class PgvectorSearch(DatabaseSearch):
    """The search of a table."""

    rows: PgvectorRows

    def __init__(self, rows: PgvectorRows) -> None:
        super().__init__(rows)
        self._distance = rows.distance or "ip"
        self._nearest = ""
        """The distance to a query in SQL, by an expression that has an index if there is one."""
        self._method: str | None = None
        """The method of that index."""
        self._setting: SearchSetting | None = None
        self._find_index(rows.table)

    def _find_index(self, table: Table) -> None:
        expression = f"t.{quoted([table.column])}"
        cast = table.type
        # a graph comes last, and so before lists
        for index in sorted(table.vector_indexes, key=lambda index: index.method == "hnsw"):
            # collections of one table differ in the dimension that an index casts to
            casts_all = "::" not in index.expression or f"({self.rows.dim})" in index.expression
            if index.distance == self._distance and table.is_of_column(index) and casts_all:
                expression = f"({index.expression})"
                self._method = index.method
                cast = "halfvec" if "::halfvec" in expression or table.type == "halfvec" else "vector"
        self._nearest = f"{expression.replace('%', '%%')} {_OPERATORS[self._distance]} %s::{cast}"

    def search(self, queries: Vectors, k: int, where: Any) -> list[Hits]:
        """DatabaseSearch; `where` maps columns, or fields of the column of JSON, to values."""
        condition, values = self._condition(where)
        method = self._method
        question = self._nearest_question(condition)
        hits = []
        with self.rows.session.connected() as connection:
            # a graph finds no more than it has candidates
            if method == "hnsw":
                candidates = min(max(k, _EF_SEARCH), _MOST_EF_SEARCH)
                connection.execute("SELECT set_config('hnsw.ef_search', %s, false)", [str(candidates)])
            for query in queries:
                text = _as_text(query)
                rows = connection.execute(question, [text, *values, text, k]).fetchall()
                # the index looks at too few, of those that pass or at all
                if len(rows) < k and method is not None:
                    with connection.transaction():
                        connection.execute("SET LOCAL enable_indexscan = off")
                        # planned anew: a statement that is prepared goes on with the index
                        rows = connection.execute(question, [text, *values, text, k], prepare=False).fetchall()
                hits.append(self._as_hits(rows))
        return hits

    def _nearest_question(self, condition: Composed) -> Composed:
        clauses = "{condition} ORDER BY {nearest} LIMIT %s"
        return self.rows.select("{key}::text, {nearest}", clauses, nearest=self._nearest, condition=condition)

    def _as_hits(self, rows: Sequence[Any]) -> Hits:
        distances = np.array([row[1] for row in rows], np.float64)
        # pgvector negates inner products, so that less is nearer; l2 is wanted squared, as FAISS has it
        scores = {"l2": distances**2, "ip": -distances, "cosine": 1 - distances}[self._distance]
        return as_hits([row[0] for row in rows], scores)

    @property
    def setting(self) -> SearchSetting | None:
        """The candidates of a graph, or the lists that are looked into, as the server has them for this user."""
        if self._setting is None and self._method in _SETTINGS:
            name, default, most = _SETTINGS[self._method]
            # what the server or the role says, whatever a search has set; a library that nobody loaded yet has its
            # default
            rows = self.rows.session.ask("SELECT reset_val::int FROM pg_settings WHERE name = %s", [name])
            value = rows[0][0] if rows else default
            self._setting = SearchSetting(name, value, max(value, most), f"SET {name} = {{}}")
        return self._setting

    def search_index(self, queries: Vectors, k: int, effort: int | None) -> list[Hits]:
        """DatabaseSearch as SQL does that sets nothing, or only another value of the setting."""
        setting = self.setting
        question = self._nearest_question(sql(""))
        with self.rows.session.connected() as connection, connection.transaction():
            if setting is not None:
                value = str(setting.value if effort is None else effort)
                connection.execute("SELECT set_config(%s, %s, true)", [setting.name, value])
            texts = map(_as_text, queries)
            return [self._as_hits(connection.execute(question, [text, text, k]).fetchall()) for text in texts]

    def _condition(self, where: Any) -> tuple[Composed, list[Any]]:
        columns = self.rows.table.types
        condition = sql("")
        values = []
        for name, value in as_fields(self.rows.info, where).items():
            is_column = name in columns and name != self.rows.nested
            if is_column and value is None:
                condition += sql(" AND t.{} IS NULL", name)
            elif is_column:
                condition += sql(" AND t.{} = %s", name)
                values.append(value)
            elif self.rows.nested is not None:
                condition += sql(" AND t.{}::jsonb @> %s::jsonb", self.rows.nested)
                values.append(json.dumps({name: value}))
            else:
                have = ", ".join(columns)
                raise UsageError(f"{self.rows.location}: there is no column {name!r} to filter by; name some of {have}")
        return condition, values


class PgvectorCompanions(DatabaseCompanions):
    """Manifest and others beside a store: in a table of its schema, and as a copy in a folder of this machine."""

    rows: PgvectorRows

    def folder(self) -> Path | None:
        """Return a copy of what lies beside the store, in a folder of this machine; None without a manifest."""
        return self.rows.folder

    def has_place(self) -> bool:
        """Return True: a manifest is kept in the database."""
        return True

    def read(self) -> Path | None:
        """Read what lies beside the store into that folder."""
        schema, table = self.rows.table.path
        files = dict(self.rows.session.files(schema, "store = %s", f"{table}.{self.rows.table.column}"))
        if MANIFEST_NAME not in files:
            return None
        hashes = sorted((name, hashlib.sha256(content).hexdigest()) for name, content in files.items())
        digest = hashlib.sha256(repr([self.rows.driver.location, hashes]).encode()).hexdigest()
        path = cache_folder() / "beside" / digest[:32]
        if not path.is_dir():
            # another process may be quicker
            with suppress(UsageError), atomic_folder(path) as folder:
                for name, content in files.items():
                    write_bytes(folder / name, content)
        return path

    def manifest(self) -> Manifest | None:
        """Return the manifest."""
        return self.rows.manifest

    def write(self, manifest: Manifest) -> str:
        """Keep a manifest in the database; the table stays as it is."""
        schema, table = self.rows.table.path
        content = canonical_json(manifest.as_json()).encode()
        self.rows.session.write_files(schema, f"{table}.{self.rows.table.column}", {MANIFEST_NAME: content})
        return f"{FILES} of schema {schema}"


class PgvectorNames(TradedNames):
    """The tables of a database; the record of a switch lies beside the stores, and is written in its transaction."""

    driver: PgvectorDriver

    def __init__(self, driver: PgvectorDriver) -> None:
        super().__init__(driver)
        self.session = driver.session

    def token(self, name: str) -> str | None:
        """Return the token beside a table; it is empty if an older version has made the table."""
        schema, table, _ = self.driver.target(name)
        rows = self.session.files(schema, "starts_with(store, %s) AND name = %s", f"{table}.", _PUBLISHED)
        return rows[0][1].decode() if rows else None

    def staging(self, token: str) -> str:
        """Return a name that depends on the location alone, so that every run finds what another left."""
        schema, table, _ = self.driver.target(self.driver.name)
        digest = hashlib.sha256(self.driver.location.encode()).hexdigest()[:12]
        return join_names((schema, server.shortened(table, f"{STAGING}{digest}")))

    def leftovers(self) -> list[str]:
        """Return that name, if there is such a table."""
        staging = self.staging("")
        return [staging] if self.driver.identity(staging) is not None else []

    def publish(self, staging: str, content: Path) -> None:
        """Rename the table, and put the files beside it, in one transaction."""
        files = {path.name: read_file(path) for path in sorted(content.iterdir()) if path.is_file()}
        schema, table, column = self.driver.target(self.driver.name)
        if self.driver.identity(staging) is None:
            raise StoreError(
                f"{self.driver.location}: the table {staging}, complete already, was deleted; to start over, add "
                "`restart=True`"
            )
        with self.session.transaction():
            # a table of somebody else is in the way, and the rename fails
            if self.token(self.driver.name) is not None:
                self.session.ask(sql("DROP TABLE IF EXISTS {}", (schema, table)))
            self.session.ask(sql("ALTER TABLE {} RENAME TO {}", split_names(staging), table))
            name = join_names([name for name in (schema, table, column) if name])
            store = f"{table}.{server.find_table(self.session, self.driver.location, name).column}"
            files[_PUBLISHED] = (token_in(content) or "").encode()
            self.session.write_files(schema, store, files, keeps_others=False)

    def drop(self, name: str) -> None:
        """Drop a table, with what lies beside it."""
        schema, table, _ = self.driver.target(name)
        columns = [row[2] for row in server.vector_columns(self.session) if row[:2] == (schema, table)]
        with self.session.transaction():
            self.session.ask(sql("DROP TABLE {}", (schema, table)))
            for column in columns:
                self.session.write_files(schema, f"{table}.{column}", {}, keeps_others=False)

    def successor(self, ending: str) -> str:
        """Return a table in the same schema."""
        schema, table, column = split_names(self.driver.name)
        columns = [row[2] for row in server.vector_columns(self.session) if row[:2] == (schema, table)]
        names = [schema, f"{table}_{ending}"]
        if len(columns) != 1:
            names.append(column)
        return f"{self.driver.traits.kind}:{self.driver.address.place}#{join_names(names)}"

    @contextmanager
    def alone(self, names: Collection[str]) -> Iterator[None]:
        """Keep writers out in a transaction, which does not keep others waiting behind it for long."""
        with self.session.transaction():
            self.session.wait_for_locks()
            for name in sorted(names):
                if self.driver.identity(name) is not None:
                    self.session.ask(sql("LOCK TABLE {} IN SHARE ROW EXCLUSIVE MODE", self.driver.target(name)[:2]))
            yield

    def swap(self, targets: Mapping[str, Any]) -> None:
        """Rename the tables, with what lies beside them."""
        identities = {name: self.driver.identity(name) for name in targets}
        if identities == targets:
            return
        if set(identities.values()) != set(targets.values()):
            raise not_switched(self.driver.location)
        old_name, new_name = targets
        schema, old, column = self.driver.target(old_name)
        new = self.driver.target(new_name)[1]
        between = f"{STAGING}switching"
        with self.session.transaction():
            for name, goal in ((old, between), (new, old), (between, new)):
                self.session.ask(sql("ALTER TABLE {} RENAME TO {}", (schema, name), goal))
                move = sql("UPDATE {} SET store = %s WHERE store = %s", (schema, FILES))
                self.session.ask(move, [f"{goal}.{column}", f"{name}.{column}"])

    def switch_record(self, name: str) -> Mapping[str, Any] | None:
        """Return what is recorded of a switch of an old table."""
        table = self.driver.target(name)[:2]
        return next((record for record, names in self._switches(name) if names[0] == table), None)

    def switched_with(self, name: str) -> str | None:
        """Return the old table of the recorded switch that a table is part of."""
        table = self.driver.target(name)[:2]
        return next((record["aliases"][0] for record, names in self._switches(name) if table in names), None)

    def _switches(self, name: str) -> Iterator[tuple[dict[str, Any], list[tuple[str, str]]]]:
        """Yield the recorded switches in the schema of a table, with schema and name of their tables."""
        for _, content in self.session.files(self.driver.target(name)[0], "name = %s", _SWITCH):
            shape = {"aliases": tuple[str, str], "old": int, "new": int, "record": RECORD_SHAPE}
            record = read_noted(content, self.driver.location, shape)
            yield record, [self.driver.target(alias)[:2] for alias in record["aliases"]]

    def note(self, name: str, record: Mapping[str, Any] | None) -> None:
        """Record a switch, or remove the record."""
        schema, table, column = self.driver.target(name)
        files = {}
        if record is not None:
            files[_SWITCH] = canonical_json(dict(record)).encode()
        self.session.write_files(schema, f"switch of {table}.{column}", files, keeps_others=False)


class PgvectorFields(VectorFields):
    """The columns of a table."""

    def __init__(self, rows: PgvectorRows) -> None:
        self._rows = rows
        self._session = rows.session

    def names(self) -> Collection[str]:
        """Return the columns."""
        return {*self._rows.table.types}

    def added(self) -> Mapping[str, AddedField]:
        """Return the columns that this tool has added, and that are there."""
        added = self._session.added(*self._rows.table.path)
        return {name: field for name, field in added.items() if name in self.names()}

    def begin(self, name: str, manifest: Manifest) -> None:
        """Note that a column is being written."""
        self._write_files(name, {UNFINISHED: canonical_json(manifest.as_json()).encode()})

    def keep(self, name: str, content: Path) -> None:
        """Put files beside a column."""
        self._write_files(name, {path.name: read_file(path) for path in sorted(content.iterdir()) if path.is_file()})

    def _write_files(self, name: str, files: Mapping[str, bytes]) -> None:
        """Put files in the place of all that lies beside a column, in one transaction."""
        schema, table = self._rows.table.path
        self._session.write_files(schema, f"{table}.{name}", files, keeps_others=False)

    def as_kept(self, vectors: Vectors) -> Vectors:
        """Return vectors in the precision of the column."""
        return vectors.astype(np.float16).astype(np.float32) if self._rows.table.type == "halfvec" else vectors

    def write(self, name: str, dim: int, batches: Iterator[tuple[list[str], Vectors]]) -> Iterable[str]:
        """Add a column, fill it a batch a transaction, and index it while others write."""
        rows = self._rows
        session = self._session
        table = rows.table
        # a run that was killed may have added it
        if name not in table.types:
            with session.transaction():
                session.wait_for_locks()
                kind = f"{table.type}({dim})"
                session.ask(sql("ALTER TABLE {} ADD COLUMN IF NOT EXISTS {} {kind}", table.path, name, kind=kind))
        statement = sql(
            "UPDATE {} t SET {} = v.vector FROM lead_migrate_batch v WHERE t.{} = v.id::{kind} AND t.{} IS NOT NULL "
            "AND {where}",
            table.path,
            name,
            rows.key_column,
            table.column,
            kind=table.types[rows.key_column],
            where=rows.where,
        )
        for ids, vectors in batches:
            with session.transaction():
                columns = "(id text, vector vector) ON COMMIT DELETE ROWS"
                session.ask(sql("CREATE TEMP TABLE IF NOT EXISTS lead_migrate_batch {columns}", columns=columns))
                pairs = ((doc_id.encode(), vector) for doc_id, vector in zip(ids, _as_sent(vectors), strict=True))
                session.copy_in(["lead_migrate_batch"], 2, pairs)
                session.ask("ANALYZE lead_migrate_batch")
                session.ask(statement)
        return self._index_field(name, dim)

    def _index_field(self, name: str, dim: int) -> list[str]:
        """Build the indexes that the column of this driver has; one that a killed run left unfinished is made again."""
        rows = self._rows
        session = self._session
        table = rows.table
        pairs = server.index_names(table, name)
        if _too_long(session, table, dim):
            return [f"{name} has no index, as pgvector indexes at most {_most_indexed(session):,} dimensions here"]
        if pairs and session.ask("SELECT relkind = 'p' FROM pg_class WHERE oid = %s", [table.oid]) == [(True,)]:
            return [f"{name} has no index, as PostgreSQL builds none on a partitioned table while others write"]
        # a connection of its own, as PostgreSQL builds no index concurrently in a transaction
        with closing(connect(rows.driver.address.place)) as connection:
            connection.execute("SELECT set_config('maintenance_work_mem', %s, false)", [_MEMORY])
            self._wait_for_builds()
            for index, index_name in pairs:
                path = (table.path[0], index_name)
                question = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(%s)"
                validity = session.ask(question, [quoted(path)])
                if validity == [(False,)]:
                    connection.execute(sql("DROP INDEX CONCURRENTLY IF EXISTS {}", path))
                if validity != [(True,)]:
                    connection.execute(server.index_like(table, index, index_name, name, dim))
        session.ask(sql("ANALYZE {}", table.path))
        return [
            server.half_remark(f"the index {index_name}", name, index.distance, dim)
            for index, index_name in pairs
            if table.in_halves(index, dim) is not index
        ]

    def _wait_for_builds(self) -> None:
        """Wait until no index of the table is built: a server ends what a killed run has asked for.

        No statement may wait for that in the server, as the build waits for every statement there.
        """
        question = "SELECT EXISTS (SELECT FROM pg_stat_progress_create_index WHERE relid = %s::bigint::oid)"
        while self._session.ask(question, [self._rows.table.oid]) == [(True,)]:
            time.sleep(_POLL_S)

    def refuse_drop(self, name: str) -> None:
        """Refuse a column that views, policies or other things depend on, by dropping it and taking that back."""
        from psycopg import Rollback
        from psycopg.errors import DependentObjectsStillExist

        drop = sql("ALTER TABLE {} DROP COLUMN IF EXISTS {}", self._rows.table.path, name)
        try:
            with self._session.transaction():
                self._session.wait_for_locks()
                self._session.ask(drop)
                raise Rollback
        except DependentObjectsStillExist as error:
            detail = "; ".join((error.diag.message_detail or str(error)).splitlines())
            raise UsageError(
                f"{self._rows.location}: {detail}; change or drop what depends on the column, and run again: "
                "nothing was changed"
            ) from error

    def drop(self, name: str) -> None:
        """Drop a column, with what lies beside it."""
        session = self._session
        schema, table = self._rows.table.path
        with session.transaction():
            session.wait_for_locks()
            session.ask(sql("ALTER TABLE {} DROP COLUMN IF EXISTS {}", (schema, table), name))
            # the token of a table stays with it, whichever of its columns it was published with
            files = [file for file, _ in session.files(schema, "store = %s", f"{table}.{name}") if file != _PUBLISHED]
            deletion = sql("DELETE FROM {} WHERE store = %s AND name = ANY(%s)", (schema, FILES))
            if files:
                session.ask(deletion, [f"{table}.{name}", files])


def _most_indexed(session: Session) -> int:
    """Return how many dimensions the server's pgvector indexes at most."""
    return server.MOST_INDEXED["halfvec" if server.has_halves(session) else "vector"]


def _too_long(session: Session, table: Table, dim: int) -> list[str]:
    """Return the indexes of the column of a table that hold no vectors of `dim`, in half precision either."""
    indexes = [index.name for index in table.vector_indexes if table.is_of_column(index)]
    if dim <= server.MOST_INDEXED["vector"] or not indexes:
        return []
    return indexes if dim > _most_indexed(session) else []


def _refuse_distance(location: str, options: Mapping[str, str]) -> None:
    if options.get("distance", "l2") not in _OPERATORS:
        raise StoreError(f"{location}: there is no distance {options['distance']!r}; say l2, ip or cosine")


def _refuse_large(location: str, new: Mapping[str, Vectors]) -> None:
    """Refuse vectors with numbers that half precision does not hold."""
    for doc_id, vector in new.items():
        with np.errstate(over="ignore"):
            halves = vector.astype(np.float16)
        if not np.isfinite(halves).all():
            raise StoreError(
                f"{location}: the new vector of {doc_id!r} has larger numbers than half precision holds; "
                "nothing was written"
            )


def _as_text(vector: Vectors) -> str:
    return "[" + ",".join(map(repr, vector.tolist())) + "]"


def _as_sent(vectors: Vectors) -> list[bytes]:
    """Return rows as pgvector receives them: dimension and a zero as 16-bit numbers, then elements, big-endian."""
    head = struct.pack(">hh", vectors.shape[1], 0)
    return [head + row.tobytes() for row in vectors.astype(">f4")]


def _copy_rows(session: Session, staging: Sequence[str], source: PgvectorRows, pages: Iterator[Page]) -> None:
    """Copy the rows of the source, with the vectors of pages in the place of theirs."""
    from psycopg.sql import SQL, Identifier

    table = source.table
    session.ask("CREATE TEMP TABLE lead_migrate_vectors (id text, vector vector) ON COMMIT DROP")
    session.copy_in(["lead_migrate_vectors"], 2, _ids_and_vectors(pages))
    # without it, PostgreSQL would plan for an empty table, and join row by row
    session.ask("ANALYZE lead_migrate_vectors")
    names = [name for name in table.types if name not in table.generated]
    values = {name: sql("t.{}", name) for name in names}
    values[table.column] = sql("CASE WHEN t.{} IS NULL THEN NULL ELSE v.vector END", table.column)
    # ids that the server gives are those of the old rows
    copying = sql(
        "INSERT INTO {} ({names}) OVERRIDING SYSTEM VALUE SELECT {values} FROM {} t "
        "LEFT JOIN lead_migrate_vectors v ON v.id = t.{}::text WHERE {where}",
        staging,
        table.path,
        source.key_column,
        names=SQL(", ").join(map(Identifier, names)),
        values=SQL(", ").join(values.values()),
        where=source.where,
    )
    session.ask(copying)


def _ids_and_vectors(pages: Iterable[Page]) -> Iterator[tuple[bytes, bytes]]:
    """Yield the rows of pages as PostgreSQL receives them."""
    for page in pages:
        yield from zip(map(str.encode, page.ids), _as_sent(page.vectors), strict=True)


def _as_row(document: Document, *, has_text: bool) -> tuple[bytes, bytes | None, bytes]:
    """Return id, text and metadata as PostgreSQL receives them."""
    text = None
    try:
        metadata = json.dumps(dict(document.metadata), ensure_ascii=False, allow_nan=False)
        if has_text:
            text = document.text.encode()
        # the first byte of jsonb is its version
        row = (document.id.encode(), text, b"\x01" + metadata.encode())
    except (TypeError, ValueError) as error:
        raise StoreError(f"document {document.id!r}: PostgreSQL cannot hold it ({error}); change that") from error
    if b"\x00" in row[0] + (text or b"") or re.search(r"(?<!\\)(\\\\)*\\u0000", metadata):
        raise StoreError(f"document {document.id!r}: PostgreSQL cannot hold a zero character; remove it")
    return row
