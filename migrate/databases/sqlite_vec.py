"""Tables of sqlite-vec in a SQLite database: `sqlite-vec:FILE#TABLE`.

Ids are the primary key of the table, or its rowids. Texts are those of a column, or of an ordinary table beside it with
the same key, `?text=TABLE.COLUMN`; the other columns of both are metadata. The whole database is copied, and this table
made again in it. SQLite is spoken to through apsw, as the sqlite3 of many a Python cannot load extensions.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from migrate.databases.driver import DatabaseRows, DatabaseSearch, Page, check_count, described, sync_folder
from migrate.databases.located import DatabaseTraits
from migrate.databases.sqlite_file import SqliteFile, listed_columns, quoted
from migrate.databases.sqlite_read import read_only
from migrate.errors import LeadMigrateError, OutputError, StoreError, UnsupportedStoreError, UsageError
from migrate.files import refuse_endless_database
from migrate.stores.base import NO_TEXTS, KindSupport, StoreInfo
from migrate.stores.binary_reader import SQLITE_MAGIC, read_head
from migrate.stores.documents.names import TEXTS
from migrate.stores.records import (
    Distance,
    as_document,
    choose,
    choose_text,
    import_client,
    metadata_as_json,
    with_nested,
)
from migrate.stores.serving import ConnectionPool, Hits, as_fields, as_hits, other_there
from migrate.vectors import Document, Vectors

if TYPE_CHECKING:
    from apsw import Connection

_WAIT_MS: Final = 10_000
"""Milliseconds for another program that is writing to the database."""
_CACHE_KIB: Final = 32_768
"""Pages that are kept while a table is written: with the 2 MB of SQLite itself, many are written several times."""
_RECORDS: Final = 4_096
"""Rows that are read at a time."""
_SAMPLE: Final = 32
"""Vectors that are looked at for their length."""
_MOST_NEIGHBOURS: Final = 4_096
"""Neighbours that the table's own search gives at most."""
_FUNCTIONS: Final = {"l2": "vec_distance_l2", "cosine": "vec_distance_cosine"}
_ELEMENTS: Final = {"float": "<f4", "f32": "<f4", "int8": "i1", "i8": "i1", "bit": "u1"}
_TABLE: Final = re.compile(
    r"\s*CREATE\s+VIRTUAL\s+TABLE\b.*?\bUSING\s+vec0\s*\((.*)\)\s*;?\s*", re.IGNORECASE | re.DOTALL
)
_VECTOR: Final = re.compile(r"(\w+)\s+(float|f32|int8|i8|bit)\s*\[\s*(\d+)\s*\](.*)", re.IGNORECASE | re.DOTALL)
_COLUMN: Final = re.compile(r"(\+?)\s*(\w+)\s+(\w+)(?:\s+(primary|partition)\s+key)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class VectorColumn:
    """A column of vectors: the type of their numbers, their dimension, and the distance that they are compared by."""

    kind: str
    dim: int
    distance: str

    @property
    def element(self) -> str:
        """The type of a number, or of eight bits, as numpy names it."""
        return _ELEMENTS[self.kind]

    @property
    def size(self) -> int:
        """Numbers of that type in a vector."""
        if self.kind == "bit":
            return (self.dim + 7) // 8
        return self.dim

    @property
    def length(self) -> int:
        """Bytes of a vector."""
        return self.size * np.dtype(self.element).itemsize

    def as_matrix(self, joined: bytearray) -> NDArray[Any]:
        """Return vectors, one after another, as rows."""
        return np.frombuffer(joined, self.element).reshape(-1, self.size)


@dataclass(frozen=True, slots=True)
class TableDefinition:
    """The statement that made a table `vec0`, taken apart.

    `columns` has the type of each column but those of ids and vectors; `auxiliary` are those that the table's own
    search cannot filter by.
    """

    statement: str
    id_column: str
    has_numbers: bool
    vectors: Mapping[str, VectorColumn]
    columns: Mapping[str, str]
    auxiliary: frozenset[str]

    @classmethod
    def parse(cls, statement: str) -> TableDefinition:
        """Take a statement apart: SQLite lists the columns of such a table, but not which vectors are in them."""
        id_column = "rowid"
        has_numbers = True
        vectors = {}
        columns = {}
        auxiliary = set()
        inside = _TABLE.fullmatch(statement)
        for clause in (inside[1] if inside else "").split(","):
            if vector := _VECTOR.match(clause.strip()):
                name, kind, dim, settings = vector.groups()
                distance = re.search(r"distance_metric\s*=\s*(\w+)", settings, re.IGNORECASE)
                # what sqlite-vec compares by where nothing is said
                compared_by = "l2"
                if distance:
                    compared_by = distance[1].lower()
                vectors[name] = VectorColumn(kind.lower(), int(dim), compared_by)
            # others are settings of the table, such as chunk_size=8
            elif "=" not in clause and (column := _COLUMN.match(clause.strip())):
                mark, name, kind, key = column.groups()
                if (key or "").lower() == "primary":
                    id_column = name
                    has_numbers = kind.lower() == "integer"
                    continue
                columns[name] = kind.lower()
                if mark:
                    auxiliary.add(name)
        return cls(statement, id_column, has_numbers, vectors, columns, frozenset(auxiliary))

    def choose_vector(self, location: str, requested: str | None) -> str:
        """Return the column of floats that is asked for, or the only one."""
        floats = [name for name, column in self.vectors.items() if column.element == "<f4"]
        if not floats:
            have = ", ".join(f"{name} {column.kind}[{column.dim}]" for name, column in self.vectors.items())
            raise UnsupportedStoreError(f"{location}: no column is of floats, of {have}; name another table")
        return choose(location, "column of floats", floats, requested, "name one with ?column=NAME")


class SqliteVecDriver(SqliteFile):
    """A database, which is a file, or the only one with tables `vec0` in a folder."""

    traits = DatabaseTraits(
        kind="sqlite-vec",
        support=KindSupport(
            "SQLite with sqlite-vec",
            ("sqlite-vec:FILE#TABLE",),
            "sqlite-vec",
            "the whole database: partition, metadata and auxiliary columns, other tables, views, triggers",
            "columns of `int8` and `bit` are not translated",
        ),
        collection="table",
        options=("column", "distance", "text"),
        has_servers=False,
        copies_place=True,
    )

    @classmethod
    def holds_vectors(cls, path: Path) -> bool:
        """Return whether a file is a database with a table of vectors."""
        return _is_database(path) and bool(_tables(path))

    def names(self) -> list[str]:
        """Return the tables of vectors."""
        return sorted(_tables(self.file))

    def explain(self, error: BaseException, message: str) -> LeadMigrateError:
        """Tell a full disk and a busy database from a damaged one."""
        if type(error).__name__ in ("FullError", "IOError", "CantOpenError", "ReadOnlyError"):
            return OutputError(f"{self.location}: SQLite says: {message}; see to disk and permissions, and run again")
        if type(error).__name__ == "BusyError":
            return StoreError(f"{self.location}: another program is writing to the database; run again when it is done")
        return StoreError(f"{self.location}: SQLite says: {message}; if the database is damaged, copy it again")

    def open(self) -> SqliteVecRows:
        """Read the definition of the table, and choose its columns."""
        self.address = self.completed()
        definitions = _tables(self.file)
        self.name = self.choose_name(sorted(definitions))
        return SqliteVecRows(self, TableDefinition.parse(definitions[self.name]))

    def identity(self, name: str) -> Any:
        """Return the number of the file, and the pages in it that the table's rows begin at."""
        if not self.file.exists():
            return None
        with closing(_connect(self.file)) as connection:
            return self.identity_in(connection, name)

    def identity_in(self, connection: Connection, name: str) -> Any:
        """Return what identifies a table, by a connection to the database."""
        listed = "SELECT name, rootpage FROM sqlite_master WHERE name IN (?1 || '_rowids', ?1 || '_chunks') ORDER BY 1"
        # the table itself is virtual and has no pages; these two are where sqlite-vec keeps its rows
        begins = [list(row) for row in connection.execute(listed, (name,))]
        if not begins:
            return None
        return [self.file.stat().st_ino, begins]

    def write_new(self, name: str, dim: int, source: StoreInfo, pages: Iterator[Page]) -> Iterable[str]:
        """Write a database with one table."""
        # sqlite-vec has no inner product
        distance = {"l2": "L2", "ip": "cosine"}[source.metric]
        definition = (
            f"CREATE VIRTUAL TABLE {quoted(name)} USING vec0(id text primary key, embedding float[{dim}] "
            f"distance_metric={distance}, +content text, +metadata text)"
        )
        columns = dict.fromkeys(("id", "content", "metadata", "embedding"), "?")
        batches = (_rows_of_documents(page, has_texts=source.has_texts) for page in pages)
        self._write_table(self.folder / "store.db", name, definition, columns, batches, copied=None)
        if source.metric == "ip" and source.details.get("distance") != "cosine":
            return ["sqlite-vec has no inner product: the new table compares by cosine, which ranks unit vectors alike"]
        return []

    def write_copy(self, name: str, dim: int, old: SqliteVecRows, pages: Iterator[Page]) -> Iterable[str]:
        """Write a copy of the whole database with the table made again."""
        pattern = re.compile(rf"(\b{re.escape(old.column)}\s+(?:float|f32)\s*\[\s*)\d+", re.IGNORECASE)
        definition = pattern.sub(rf"\g<1>{dim}", old.definition.statement, count=1)
        columns = dict.fromkeys((old.definition.id_column, *old.other_columns, old.column), "?")
        # bytes alone are taken for floats
        makers = {"i1": "vec_int8(?)", "u1": "vec_bit(?)"}
        for column, vectors in old.definition.vectors.items():
            columns[column] = makers.get(vectors.element, "?")
        batches = ([(*row, content) for row, content in zip(page.raw, _contents(page), strict=True)] for page in pages)
        self._write_table(self.folder / old.driver.file.name, name, definition, columns, batches, copied=old.readers)
        return []

    def _write_table(
        self,
        path: Path,
        name: str,
        definition: str,
        columns: Mapping[str, str],
        batches: Iterable[Sequence[tuple[Any, ...]]],
        copied: ConnectionPool[Connection] | None,
    ) -> None:
        """Make a table anew in a database, one that is there already or a copy of another.

        `columns` have the expression that makes the value of each; `copied` reads the database that is copied.
        """
        has_others = self.make_room(path)
        insert = f"INSERT INTO {quoted(name)} ({listed_columns(columns)}) VALUES ({', '.join(columns.values())})"  # noqa: S608
        written = 0
        with closing(_connect(path, write=True)) as new:
            if copied is not None and not has_others:
                with copied.connection() as reader, new.backup("main", reader, "main") as backup:
                    backup.step()
            # nothing is undone, as all is made anew if this fails; but of WAL the database itself takes note
            if new.execute("PRAGMA journal_mode").fetchall() != [("wal",)]:
                new.execute("PRAGMA journal_mode = OFF").fetchall()
            new.execute("PRAGMA synchronous = OFF")
            new.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
            with _transaction(new, path):
                new.execute(f"DROP TABLE IF EXISTS {quoted(name)}")
                new.execute(definition)
                for rows in batches:
                    new.executemany(insert, rows)
                    written += len(rows)
            ((count,),) = new.execute(f"SELECT count(*) FROM {quoted(name)}").fetchall()  # noqa: S608
        check_count(self.location, written, cast("int", count))
        sync_folder(self)

    def refuse_switch(self, old: SqliteVecRows, new: SqliteVecRows) -> None:
        """Refuse databases of which one was written to beside the table: that would be lost."""
        for old_row, new_row in zip_longest(old.other_tables(), new.other_tables()):
            if old_row != new_row:
                raise self.differs(new.location, (old_row or new_row)[0])


class SqliteVecRows(DatabaseRows):
    """The rows of a table `vec0`."""

    driver: SqliteVecDriver
    at_once = _RECORDS

    def __init__(self, driver: SqliteVecDriver, definition: TableDefinition) -> None:
        super().__init__(driver)
        self.definition = definition
        self.column = definition.choose_vector(self.location, driver.address.options.get("column"))
        self.dim = definition.vectors[self.column].dim
        self.other_vectors = [name for name in definition.vectors if name != self.column]
        self.other_columns = [*definition.columns, *self.other_vectors]
        self.readers: ConnectionPool[Connection] = ConnectionPool(partial(_connect, driver.file))
        self._opened = driver.identity(self.name)

    def describe(self) -> StoreInfo:
        """Describe the table; all its rows have a vector."""
        distance = self.driver.address.options.get("distance") or self.definition.vectors[self.column].distance
        if distance not in ("l2", "ip", "cosine"):
            reason = f"vectors are compared by {distance}, which is not supported"
            raise UnsupportedStoreError(f"{self.location}: {reason}; say ?distance=l2 to take that")
        self.distance = cast("Distance", distance)
        self.text, self.text_table, why = self._choose_text(self.driver.address.options.get("text"))
        sample = self.ask(f"SELECT {quoted(self.column)} FROM {quoted(self.name)} LIMIT {_SAMPLE}")  # noqa: S608
        vectors = self._decoded(self.column, [vector for (vector,) in sample])
        ((count,),) = self.ask(f"SELECT count(*) FROM {quoted(self.name)}")  # noqa: S608
        details = {
            "database": self.driver.file.name,
            "table": self.name,
            "column": self.column,
            "distance": self.distance,
            "other_vectors": ", ".join(self.other_vectors),
        }
        notes = (f"the ids are those of column {self.definition.id_column}", why)
        self.info = described(self, f"vec0 float[{self.dim}]", count, vectors, details=details, notes=notes)
        return self.info

    def _choose_text(self, requested: str | None) -> tuple[str | None, str | None, str]:
        """Return the column of texts, the table beside that has it, and why."""
        columns = [name for name, kind in self.definition.columns.items() if kind == "text" and name != "metadata"]
        if columns and "." not in (requested or ""):
            chosen, why = choose_text(self.location, columns, requested)
            return chosen, None, why
        # SQLite takes any word, and none, for the type of a column
        candidates = {
            f"{table}.{name}": (name, table)
            for table, name, kind, is_key in self._columns_beside()
            if not is_key and re.match(r"(?i)$|text|varchar|char|clob", kind)
        }
        usual = [name for name, (text, _) in candidates.items() if text in TEXTS]
        if requested is None and len(usual) != 1:
            have = ", ".join(candidates) or "no column"
            return None, None, f"{NO_TEXTS}it could be {have}; say ?text=TABLE.COLUMN for one"
        chosen, why = choose_text(self.location, list(candidates), requested or usual[0])
        if requested is None:
            why = f"the texts are those of {chosen}, by its name; say ?text=TABLE.COLUMN"
        return *candidates[str(chosen)], why

    def _columns_beside(self) -> list[tuple[str, str, str, bool]]:
        """Return table, name and type of the columns of ordinary tables, and whether each alone is a table's key."""
        # in tables of the latter prefixes the extension keeps the rows of its own
        prefixes = ("sqlite_", *(f"{name}_" for name in self.driver.names()))
        rows = self.ask(
            "SELECT t.name, c.name, c.type, c.pk AND sum(c.pk) OVER (PARTITION BY t.name) = 1 FROM sqlite_master t "
            "JOIN pragma_table_info(t.name) c WHERE t.type = 'table' AND t.sql NOT LIKE 'create virtual%' "
            "ORDER BY t.name, c.cid"
        )
        return [(*row[:3], bool(row[3])) for row in rows if not row[0].startswith(prefixes)]

    @property
    def key(self) -> str:
        """Database, table and column."""
        return f"{self.driver.file.absolute()}#{self.name}?column={self.column}"

    def version(self, *, of_pages: bool = False) -> Any:
        """Return size, time and number of the database, and of its log of writes."""
        return self.driver.state()

    def pages(self, *, vectors: bool = True, records: bool = False) -> Iterator[Page]:
        """Read rows as they lie; `raw` are tuples of the key and all columns but the vector."""
        if vectors and not records:
            yield from self._pages_of_vectors()
            return
        columns = [self.definition.id_column]
        if records:
            columns += self.other_columns
        if vectors:
            columns.append(self.column)
        with self.readers.connection() as connection:
            rows = connection.execute(f"SELECT {listed_columns(columns)} FROM {quoted(self.name)}")  # noqa: S608
            while chunk := list(islice(rows, _RECORDS)):
                decoded = self._decoded(self.column, [row[-1] for row in chunk] if vectors else [])
                raw = [row[: len(self.other_columns) + 1] for row in chunk] if records else None
                yield Page([str(row[0]) for row in chunk], decoded, raw)

    def _pages_of_vectors(self) -> Iterator[Page]:
        """Read ids and vectors, each vector joined to the others as it comes.

        Kept and joined some hundred at a time, they are out of the processor's cache by then: of 20,000 rows of 384
        numbers that took 156 ms instead of 150, and 10 ms more to join those parts to batches.
        """
        columns = listed_columns((self.definition.id_column, self.column))
        with self.readers.connection() as connection:
            rows = connection.execute(f"SELECT {columns} FROM {quoted(self.name)}")  # noqa: S608
            vectors = self.definition.vectors[self.column]
            length = vectors.length
            while True:
                ids = []
                # of bytes that can be written to, and so can the rows
                joined = bytearray()
                for doc_id, content in islice(rows, _RECORDS):
                    if not isinstance(content, bytes) or len(content) != length:
                        raise _odd_vector(f"{self.location}: a vector in {self.column}", length, content)
                    ids.append(str(doc_id))
                    joined += content
                if not ids:
                    return
                yield Page(ids, vectors.as_matrix(joined))

    def documents(self, ids: Sequence[str], at: NDArray[np.int64] | None = None) -> Iterator[Document]:
        """Return all columns but the vector, and those of the table beside that has the texts."""
        joined: dict[str, dict[str, Any]] = {}
        if self.text_table is not None:
            joined = self._joined(self.text_table, ids)
        for doc_id, values in self._find(self.name, self.definition.id_column, self.other_columns, ids):
            for name in self.other_vectors:
                values[name] = self._decoded(name, [values[name]])[0].tolist()
            values |= joined.get(doc_id, {})
            document = as_document(self.location, doc_id, values, None, self.text)
            yield replace(document, metadata=with_nested(document.metadata, "metadata"))

    def _joined(self, table: str, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Return the columns of a table beside, by id."""
        columns = {name: is_key for of, name, _, is_key in self._columns_beside() if of == table}
        # a table without a key of its own has the numbers of its rows
        key = next((name for name, is_key in columns.items() if is_key), "rowid")
        return dict(self._find(table, key, [name for name in columns if name != key], ids))

    def vectors(self, ids: Sequence[str], at: NDArray[np.int64] | None = None) -> Page:
        """Return vectors as float32."""
        records = dict(self._find(self.name, self.definition.id_column, [self.column], ids))
        return Page(list(records), self._decoded(self.column, [values[self.column] for values in records.values()]))

    def _find(
        self, table: str, key: str, columns: Sequence[str], ids: Iterable[str]
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield columns of rows by id."""
        for doc_id, *values in self.ask(_look_up(table, key, columns), self._keys(ids)):
            yield str(doc_id), dict(zip(columns, values, strict=True))

    def _keys(self, ids: Iterable[str]) -> str:
        """Return the keys that the table may have of ids, as JSON."""
        # more digits may not fit 64 bits
        if self.definition.has_numbers:
            return json.dumps([int(doc_id) for doc_id in ids if re.fullmatch(r"-?[0-9]{1,18}", doc_id)])
        return json.dumps(list(ids), ensure_ascii=False)

    def ask(self, question: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return all rows of an answer."""
        with self.readers.connection() as connection:
            return list(connection.execute(question, values))

    def _decoded(self, column: str, contents: Sequence[Any]) -> NDArray[Any]:
        """Return the vectors of a column, one a row."""
        vectors = self.definition.vectors[column]
        length = vectors.length
        for content in contents:
            if not isinstance(content, bytes) or len(content) != length:
                raise _odd_vector(f"{self.location}: a vector in {column}", length, content)
        return vectors.as_matrix(bytearray().join(contents))

    def update(self, new: Mapping[str, Vectors]) -> int:
        """Replace vectors, all in one transaction."""
        id_column = self.definition.id_column
        update = f"UPDATE {quoted(self.name)} SET {quoted(self.column)} = ? WHERE {quoted(id_column)} = ?"  # noqa: S608
        with closing(_connect(self.driver.file, write=True)) as connection, _transaction(connection, self.driver.file):
            # asked in the transaction, as nobody can make the table anew from here on
            if self.driver.identity_in(connection, self.name) != self._opened:
                raise other_there(self.info)
            rows = connection.execute(_look_up(self.name, id_column, ()), (self._keys(new),))
            present = [key for (key,) in rows]
            connection.executemany(update, ((new[str(key)].astype("<f4").tobytes(), key) for key in present))
        return len(present)

    @property
    def search(self) -> SqliteVecSearch:
        """The search of the table."""
        return SqliteVecSearch(self)

    def other_tables(self) -> Iterator[tuple[str, Any]]:
        """Yield all in the database but tables of vectors: definitions and rows, each with its table."""
        names = self.driver.names()
        for table, sql in self.ask("SELECT tbl_name, sql FROM sqlite_master ORDER BY type, name"):
            if table not in names and not table.startswith(tuple(f"{name}_" for name in names)):
                yield table, sql
        for table in dict.fromkeys(column[0] for column in self._columns_beside()):
            with self.readers.connection() as connection:
                yield from ((table, row) for row in connection.execute(f"SELECT * FROM {quoted(table)}"))  # noqa: S608


class SqliteVecSearch(DatabaseSearch):
    """The search of a table."""

    rows: SqliteVecRows

    def __init__(self, rows: SqliteVecRows) -> None:
        super().__init__(rows)
        # False where sqlite-vec has no function for the distance
        self.has_own_index = rows.distance in _FUNCTIONS

    def search(self, queries: Vectors, k: int, where: Any) -> list[Hits]:
        """DatabaseSearch; `where` maps columns, or fields of a column `metadata` of JSON, to values.

        The table's own search knows no auxiliary columns and at most 4,096 neighbours; beyond that, the distances of
        all rows are sorted.
        """
        rows = self.rows
        conditions, values, is_own = self._conditions(where)
        if rows.distance not in _FUNCTIONS:
            raise UsageError(f"{rows.location}: sqlite-vec cannot search by {rows.distance}; leave out ?distance=")
        key = f"v.{quoted(rows.definition.id_column)}"
        column = f"v.{quoted(rows.column)}"
        table = f"{quoted(rows.name)} v"
        knows_distance = rows.distance == rows.definition.vectors[rows.column].distance
        if is_own and k <= _MOST_NEIGHBOURS and knows_distance:
            question = f"SELECT {key}, distance FROM {table} WHERE {column} MATCH ?1 AND k = ?2{conditions}"  # noqa: S608
        else:
            distance = f"{_FUNCTIONS[rows.distance]}({column}, ?1)"
            question = f"SELECT {key}, {distance} d FROM {table} WHERE true{conditions} ORDER BY d LIMIT ?2"  # noqa: S608
        hits = []
        for query in queries:
            nearest = rows.ask(question, query.astype("<f4").tobytes(), k, *values)
            distances = np.array([row[1] for row in nearest], np.float64)
            # l2 is wanted squared, as FAISS has it, and similarities in the place of distances
            scores = distances**2 if rows.distance == "l2" else 1 - distances
            hits.append(as_hits([str(row[0]) for row in nearest], scores))
        return hits

    def _conditions(self, where: Any) -> tuple[str, list[Any], bool]:
        """Return the conditions of a filter, their values, and whether the table's own search knows the columns."""
        columns = self.rows.definition.columns
        conditions = ""
        values = []
        is_own = True
        for position, (name, value) in enumerate(as_fields(self.rows.info, where).items()):
            if not isinstance(value, str | int | float | bool | None):
                raise UsageError(f"{self.rows.location}: the filter has no text or number under {name!r}; give it one")
            if name in columns and name != "metadata":
                # the table's own search knows neither auxiliary columns nor null
                is_own = is_own and value is not None and name not in self.rows.definition.auxiliary
                column = f"v.{quoted(name)}"
            elif "metadata" in columns:
                is_own = False
                path = "$." + json.dumps(name, ensure_ascii=False)
                column = f"json_extract(v.metadata, '{path.replace(chr(39), chr(39) * 2)}')"
            else:
                have = ", ".join(columns) or "none"
                raise UsageError(
                    f"{self.rows.location}: no column is called {name!r} as in the filter; there are {have}"
                )
            # IS also finds null, and = is all that the table's own search takes
            operator = "=" if is_own else "IS"
            # the first two parameters are the query and the number of neighbours
            conditions += f" AND {column} {operator} ?{position + 3}"
            values.append(value)
        return conditions, values, is_own


def _rows_of_documents(page: Page, *, has_texts: bool) -> list[tuple[Any, ...]]:
    """Return the documents of a page as rows of this tool's own layout."""
    return [
        (document.id, document.text if has_texts else None, metadata_as_json(document), content)
        for document, content in zip(page.documents, _contents(page), strict=True)
    ]


def _contents(page: Page) -> Iterator[bytes]:
    # all at once: to convert each by itself takes as long again as to copy it
    return (vector.tobytes() for vector in page.vectors.astype("<f4", copy=False))


def _odd_vector(where: str, length: int, content: Any) -> StoreError:
    """Return the error of a vector that is not as long as those of its column, or no bytes."""
    description = type(content).__name__
    if isinstance(content, bytes):
        description = f"one of {len(content):,}"
    return StoreError(
        f"{where} has {length:,} bytes, and this is {description}; the database is damaged, copy it again"
    )


def _look_up(table: str, key: str, columns: Iterable[str]) -> str:
    """Return a question for keys, a list in JSON, and columns of their rows."""
    listed = "".join(f", t.{quoted(name)}" for name in columns)
    # joined, so that each is looked up, where IN would scan the table; and not by its key, another look-up
    return f"SELECT j.value{listed} FROM json_each(?) j CROSS JOIN {quoted(table)} t WHERE t.{quoted(key)} = j.value"  # noqa: S608


def _connect(path: Path, *, write: bool = False, extension: bool = True) -> Connection:
    apsw = import_client("apsw", "sqlite-vec")
    flags = apsw.SQLITE_OPEN_READONLY
    if write:
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
    refuse_endless_database(path)
    connection: Connection = apsw.Connection(str(path), flags=flags)
    connection.set_busy_timeout(_WAIT_MS)
    if extension:
        connection.enable_load_extension(True)
        connection.load_extension(import_client("sqlite_vec", "sqlite-vec").loadable_path())
        connection.enable_load_extension(False)
    return connection


@contextmanager
def _transaction(connection: Connection, path: Path) -> Iterator[None]:
    """Commit what is written inside; where that fails, whoever closes the connection undoes it."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except import_client("apsw", "sqlite-vec").SQLError as error:
        # the extension does not pass on that the disk is full, but SQLite itself ends a transaction only for that
        if connection.in_transaction:
            raise
        raise OutputError(
            f"cannot write {path}: SQLite broke off, as it does on a full or failing disk ({error}); free some space "
            "and run the same command again"
        ) from error
    connection.execute("COMMIT")


def _is_database(path: Path) -> bool:
    return read_head(path, len(SQLITE_MAGIC)) == SQLITE_MAGIC


def _tables(path: Path) -> dict[str, str]:
    """Return the definition of each table of vectors; no extension is needed to list them."""
    listed = "SELECT name, sql FROM sqlite_master WHERE type = 'table' AND sql LIKE 'create virtual%vec0%'"
    return {name: definition for name, definition in ask(path, listed) if _TABLE.fullmatch(definition)}


def ask(path: Path, question: str) -> list[Any]:
    """Ask a database, by apsw if that is in use; first, SQLite undoes what a killed writer left half written.

    A process that closes a file loses all its locks on it: if apsw has some, nothing else may open the database, or a
    search of another thread would read on while somebody writes.
    """
    if "apsw" not in sys.modules:
        with read_only(path) as reader:
            return reader.execute(question).fetchall()
    apsw = import_client("apsw", "sqlite-vec")
    try:
        with closing(_connect(path, extension=False)) as connection:
            return list(connection.execute(question))
    # a reader may not undo that
    except apsw.ReadOnlyError:
        with closing(_connect(path, write=True, extension=False)) as connection:
            return list(connection.execute(question))
