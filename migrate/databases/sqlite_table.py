"""Vectors in an ordinary table of a SQLite database: `sqlite:FILE#TABLE?id=COLUMN&text=COLUMN&vector=COLUMN`.

Vectors are BLOBs of float32, little-endian, or texts that are JSON lists. Ids are those of a column, by itself the
primary key, or the numbers of the rows; the columns beside id, text and vector are metadata. A copy is one of the whole
database, in which the vectors of this table are replaced; rows without a vector stay as they are.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from migrate.databases.driver import DatabaseRows, DatabaseSearch, Page, check_count, described, sync_folder
from migrate.databases.located import DatabaseTraits
from migrate.databases.sqlite_file import SqliteFile, listed_columns, quoted
from migrate.databases.sqlite_read import read_only
from migrate.errors import LeadMigrateError, OutputError, StoreError, UnsupportedStoreError, UsageError
from migrate.files import refuse_endless_database
from migrate.reading import MalformedError, parse_json
from migrate.stores.base import KindSupport, StoreInfo
from migrate.stores.documents.names import IDS, METADATA, VECTORS, first_of
from migrate.stores.records import Distance, as_document, choose, choose_text, metadata_as_json, with_nested
from migrate.stores.serving import ConnectionPool, Hits, as_fields, as_hits, other_there
from migrate.vectors import Document, Vectors, unit_rows

_WAIT_S: Final = 10.0
"""Seconds for another program that is writing to the database."""
_RECORDS: Final = 256
"""Rows that are read at a time: with vectors of a thousand numbers, 1 MB, which stays in a processor's cache."""
_SAMPLE: Final = 32
"""Vectors that are looked at before a column is taken for one of vectors."""
_LARGEST: Final = 1e6
"""Numbers of a model's vectors are far smaller; those of other bytes taken for float32 soon are larger."""
_DISTANCES: Final = ("l2", "ip", "cosine")
_METADATA: Final = METADATA[0]
_TEXT_TYPES: Final = re.compile(r"(?i)$|.*(text|char|clob|string)")
"""Declared types of columns that may hold texts: SQLite takes any word, and none."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table; `key` is its place in the primary key, 0 if it is in none."""

    name: str
    kind: str
    key: int


class SqliteDriver(SqliteFile):
    """A database, which is a file, or the only one with tables of vectors in a folder."""

    traits = DatabaseTraits(
        kind="sqlite",
        support=KindSupport(
            "SQLite, plain tables",
            ("sqlite:FILE#TABLE",),
            "",
            "the whole database: the other columns, rows without a vector, other tables, indexes, views, triggers",
            "a column `CHECK` that fixes the length of a vector is refused; float64 is refused",
        ),
        collection="table",
        name_rule=("(?is:(?!sqlite_).+)", "that does not begin with sqlite_"),
        options=("id", "text", "vector", "distance"),
        has_servers=False,
        copies_place=True,
    )

    @classmethod
    def holds_vectors(cls, path: Path) -> bool:
        """Return whether a file is a database with a table of vectors; SQLite itself looks, see `sqlite_vec.ask`."""
        try:
            with read_only(path) as connection:
                return bool(_vector_tables(connection, None))
        except sqlite3.DatabaseError:
            return False

    def find_file(self) -> Path:
        """Return the file that is named, whatever is in it: what is wrong with its columns is told."""
        path = Path(self.address.place)
        if path.is_file():
            return path
        return super().find_file()

    def names(self) -> list[str]:
        """Return the tables of vectors; with `?vector=COLUMN`, those with such a column."""
        with read_only(self.file) as connection:
            return _vector_tables(connection, self.address.options.get("vector"))

    def explain(self, error: BaseException, message: str) -> LeadMigrateError:
        """Tell a full disk, a busy database and a table that refuses the vectors from a damaged database."""
        name = str(getattr(error, "sqlite_errorname", ""))
        said = f"{self.location}: SQLite says: {message}"
        if name.startswith(("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_PERM")):
            return OutputError(f"{said}; see to disk and permissions, and run again")
        if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            return StoreError(f"{self.location}: another program is writing to the database; run again when it is done")
        if name.startswith("SQLITE_CONSTRAINT"):
            return StoreError(f"{said}; the table does not take the new vectors, change that in the source")
        if name == "SQLITE_NOTADB":
            return StoreError(f"{self.location}: this is no SQLite database; check the path")
        return StoreError(f"{said}; if the database is damaged, copy it again")

    def open(self) -> SqliteRows:
        """Look at the columns of the table, and choose among them."""
        self.address = self.completed()
        with read_only(self.file) as connection:
            if self.address.name not in _tables(connection):
                self.name = self.choose_name(self.names())
            else:
                # one that is asked for is opened, and what is wrong with its columns is told
                self.name = self.address.name
        return SqliteRows(self)

    def identity(self, name: str) -> Any:
        """Return the number of the file, and the page in it that the table begins at."""
        if not self.file.exists():
            return None
        with read_only(self.file) as connection:
            return self.identity_in(connection, name)

    def identity_in(self, connection: sqlite3.Connection, name: str) -> Any:
        """Return what identifies a table, by a connection to the database."""
        listed = "SELECT rootpage FROM sqlite_master WHERE type = 'table' AND name = ?"
        begins = [page for (page,) in connection.execute(listed, (name,))]
        return [self.file.stat().st_ino, *begins] if begins else None

    def write_new(self, name: str, dim: int, source: StoreInfo, pages: Iterator[Page]) -> Iterable[str]:
        """Write a database with one table."""
        path = self.folder / "store.db"
        statement = f"INSERT INTO {quoted(name)} (id, text, metadata, embedding) VALUES (?, ?, ?, ?)"  # noqa: S608
        written = 0
        with self._new_database(path, None) as connection:
            connection.execute(f"DROP TABLE IF EXISTS {quoted(name)}")
            # SQLite keeps the statement as it is, and nothing else would say how vectors are compared
            distance = f"/* distance: {source.details.get('distance') or source.metric} */"
            columns = f"(id TEXT PRIMARY KEY, text TEXT, metadata TEXT, embedding BLOB {distance})"
            connection.execute(f"CREATE TABLE {quoted(name)} {columns}")
            for page in pages:
                rows = [
                    (doc.id, doc.text if source.has_texts else None, metadata_as_json(doc), _as_blob(vector))
                    for doc, vector in zip(page.documents, page.vectors, strict=True)
                ]
                connection.executemany(statement, rows)
                written += len(rows)
        self._finish(path, name, "embedding", written)
        return []

    def write_copy(self, name: str, dim: int, old: SqliteRows, pages: Iterator[Page]) -> Iterable[str]:
        """Write a copy of the whole database with other vectors in the table."""
        path = self.folder / old.driver.file.name
        keys = " AND ".join(f"{quoted(column)} = ?" for column in old.row_key)
        statement = f"UPDATE {quoted(name)} SET {quoted(old.vector)} = ? WHERE {keys}"  # noqa: S608
        encode = _as_json if old.form == "text" else _as_blob
        written = 0
        with self._new_database(path, old) as connection, _without_triggers(connection, name):
            for page in pages:
                rows = ((encode(vector), *key) for key, vector in zip(page.raw, page.vectors, strict=True))
                connection.executemany(statement, rows)
                written += len(page.ids)
        self._finish(path, name, old.vector, written)
        return []

    @contextmanager
    def _new_database(self, path: Path, copied: SqliteRows | None) -> Iterator[sqlite3.Connection]:
        """Yield a connection to a new database, empty or a copy, in a transaction; one that is there may have others.

        Nothing is undone, as all is made anew if this fails; but of a log of writes the database itself takes note.
        """
        has_others = self.make_room(path)
        with closing(_connect(path, "rwc")) as connection:
            if copied is not None and not has_others:
                with copied.readers.connection() as reader:
                    reader.backup(connection)
            if connection.execute("PRAGMA journal_mode").fetchone() != ("wal",):
                connection.execute(f"PRAGMA journal_mode = {'MEMORY' if has_others else 'OFF'}").fetchone()
            connection.execute("PRAGMA synchronous = OFF")
            with _transaction(connection):
                yield connection

    def _finish(self, path: Path, name: str, column: str, written: int) -> None:
        """Count what was written, and wait for the disk."""
        with closing(_connect(path)) as connection:
            question = f"SELECT count({quoted(column)}) FROM {quoted(name)}"  # noqa: S608
            ((count,),) = connection.execute(question).fetchall()
        check_count(self.location, written, count)
        sync_folder(self)

    def refuse_switch(self, old: SqliteRows, new: SqliteRows) -> None:
        """Refuse databases of which one was written to beside the table: that would be lost."""
        # by name, so that a table that is new in one is told, and not the one that comes in its place
        differing = sorted({*old.definitions()} ^ {*new.definitions()}, key=str)
        pairs = zip_longest(old.other_rows(), new.other_rows()) if not differing else ()
        first = next((one or other for one, other in pairs if one != other), None) or next(iter(differing), None)
        if first is not None:
            raise self.differs(new.location, first[0])


class SqliteRows(DatabaseRows):
    """The rows of a table."""

    driver: SqliteDriver
    at_once = _RECORDS

    def __init__(self, driver: SqliteDriver) -> None:
        super().__init__(driver)
        self.readers: ConnectionPool[sqlite3.Connection] = ConnectionPool(partial(_connect, driver.file))
        self.table = quoted(self.name)
        options = driver.address.options
        with self.readers.connection() as connection:
            columns = _columns(connection, self.name)
            usual = _vector_columns(connection, self.name, columns)
        names = [column.name for column in columns]
        self.vector = _choose_vector(self.location, names, usual, options.get("vector"))
        self.id_column, self._why_id = _choose_id(self.location, columns, self.vector, options.get("id"))
        primary = [column.name for column in sorted(columns, key=lambda column: column.key) if column.key]
        self.row_key = ["rowid"] if self._has_rowid(names) else primary
        beside = [column for column in columns if column.name not in (self.vector, self.id_column)]
        self.other_columns = [column.name for column in beside]
        likely = [column.name for column in beside if _TEXT_TYPES.match(column.kind) and column.name != _METADATA]
        requested = options.get("text")
        self._texts = choose_text(self.location, self.other_columns if requested else likely, requested)
        self.form, self.dim = self._measure()
        self._opened = driver.identity(self.name)

    def _has_rowid(self, names: Sequence[str]) -> bool:
        """Return whether rows have numbers, which no column of another meaning hides."""
        if "rowid" in (name.lower() for name in names):
            return False
        try:
            self.ask(f"SELECT rowid FROM {self.table} LIMIT 0")  # noqa: S608
        except sqlite3.OperationalError:
            return False
        return True

    def _measure(self) -> tuple[str, int]:
        """Return how vectors are written, "blob" or "text", and their dimension; count the rows without."""
        vector = quoted(self.vector)
        # of a BLOB, SQLite knows the length without reading it
        found = self.ask(
            f"SELECT typeof({vector}), iif(typeof({vector}) = 'blob', length({vector}), 0), count(*), "  # noqa: S608
            f"min({quoted(self.id_column)}) FROM {self.table} GROUP BY 1, 2 ORDER BY 3 DESC, 4"
        )
        self.without_vector = sum(count for kind, _, count, _ in found if kind == "null")
        found = [group for group in found if group[0] != "null"]
        where = f"{self.location}: column {self.vector}"
        if not found:
            raise StoreError(f"{where} has no vector in any row; name another column or table")
        self.count = sum(count for _, _, count, _ in found)
        (form, length, _, _), *others = found
        odd = next((group for group in found if group[0] not in ("blob", "text")), None)
        if odd is not None:
            raise StoreError(
                f"{where} holds {odd[0]} in {odd[2]:,} rows, such as that of id {odd[3]!r}; a vector is a BLOB of "
                "float32 or a JSON list, name another column with ?vector="
            )
        if others:
            kind, other, rows, example = others[0]
            first, second = (
                f"{size // 4:,} numbers" if size % 4 == 0 else f"{size:,} bytes" for size in (length, other)
            )
            if kind != form:
                first, second = form, kind
            raise StoreError(
                f"{where} holds vectors of {first}, but of {second} in {rows:,} rows, such as that of id "
                f"{example!r}; embed those again, or set them to NULL"
            )
        question = f"SELECT {quoted(self.id_column)}, {vector} FROM {self.table} WHERE {vector} NOTNULL LIMIT {_SAMPLE}"  # noqa: S608
        sample = self.ask(question)
        if form == "text":
            return form, len(_from_json(where, *sample[0]))
        if length % 4 or not length:
            raise StoreError(
                f"{where} holds {length:,} bytes, which no float32 have; name another column with ?vector="
            )
        joined = b"".join(content for _, content in sample)
        if not _is_plausible(joined, "<f4") and len(joined) % 8 == 0 and _is_plausible(joined, "<f8"):
            raise UnsupportedStoreError(
                f"{where} seems to hold float64, and only float32 is read; write it anew with "
                "numpy.frombuffer(value, '<f8').astype('<f4').tobytes()"
            )
        return form, length // 4

    def describe(self) -> StoreInfo:
        """Describe the table."""
        distance = self.driver.address.options.get("distance")
        if distance not in (None, *_DISTANCES):
            raise UsageError(
                f"{self.location}: there is no distance {distance!r}; write one of {', '.join(_DISTANCES)}"
            )
        if distance is None:
            ((definition,),) = self.ask("SELECT sql FROM sqlite_master WHERE type = 'table' AND name = ?", self.name)
            said = re.search(r"/\* distance: (l2|ip|cosine) \*/", definition)
            distance = said[1] if said else None
        self.distance = cast("Distance | None", distance)
        self.text, why = self._texts
        vector = quoted(self.vector)
        rows = self.ask(f"SELECT {quoted(self.id_column)}, {vector} FROM {self.table} WHERE {vector} NOTNULL LIMIT 32")  # noqa: S608
        details = {
            "database": self.driver.file.name,
            "table": self.name,
            "column": self.vector,
            "distance": self.distance,
        }
        self.info = described(
            self,
            "BLOBs of float32" if self.form == "blob" else "JSON lists",
            self.count,
            self.decoded([row[0] for row in rows], [row[1] for row in rows]),
            details=details,
            notes=(self._why_id, why),
        )
        return self.info

    @property
    def key(self) -> str:
        """Database, table and columns."""
        return f"{self.driver.file.absolute()}#{self.name}?id={self.id_column}&vector={self.vector}"

    def version(self, *, of_pages: bool = False) -> Any:
        """Return size, time and number of the database, and of its log of writes."""
        return self.driver.state()

    def pages(self, *, vectors: bool = True, records: bool = False) -> Iterator[Page]:
        """Read rows as they lie; `raw` are the keys of the rows, as a copy has all else already."""
        columns = [self.id_column, self.vector] if vectors else [self.id_column]
        key = self.row_key if records else []
        listed = listed_columns([*columns, *key])
        # an index may give another order where it has all that is asked for
        question = f"SELECT {listed} FROM {self.table} NOT INDEXED WHERE {quoted(self.vector)} NOTNULL"  # noqa: S608
        with self.readers.connection() as connection:
            rows = connection.execute(question)
            while chunk := list(islice(rows, _RECORDS)):
                keys = [row[0] for row in chunk]
                decoded = self.decoded(keys, [row[1] for row in chunk]) if vectors else None
                yield Page(self._ids(keys), decoded, [row[len(columns) :] for row in chunk] if records else None)

    def documents(self, ids: Sequence[str], at: NDArray[np.int64] | None = None) -> Iterator[Document]:
        """Return all columns but the vector."""
        for doc_id, *values in self._find(self.other_columns, ids):
            fields = dict(zip(self.other_columns, values, strict=True))
            document = as_document(self.location, doc_id, fields, None, self.text)
            yield replace(document, metadata=with_nested(document.metadata, _METADATA))

    def vectors(self, ids: Sequence[str], at: NDArray[np.int64] | None = None) -> Page:
        """Return vectors as float32."""
        rows = self._find([self.vector], ids)
        ids = [row[0] for row in rows]
        return Page(ids, self.decoded(ids, [row[1] for row in rows]))

    def _find(self, columns: Sequence[str], ids: Iterable[str]) -> list[tuple[Any, ...]]:
        """Return ids and columns of the rows with a vector that have some ids."""
        with self.readers.connection() as connection:
            return self._find_in(connection, columns, ids)

    def _find_in(
        self, connection: sqlite3.Connection, columns: Sequence[str], ids: Iterable[str]
    ) -> list[tuple[Any, ...]]:
        wanted = set(ids)
        question = (
            f"SELECT {listed_columns([self.id_column, *columns])} FROM {self.table} "  # noqa: S608
            f"WHERE {quoted(self.vector)} NOTNULL AND {quoted(self.id_column)} IN (SELECT value FROM json_each(?))"
        )
        # a column may hold texts and numbers, whatever its type says; SQLite has none beyond an int64
        numbers = [int(doc_id) for doc_id in wanted if re.fullmatch(r"-?[0-9]{1,19}", doc_id)]
        values = json.dumps([*wanted, *(number for number in numbers if abs(number) < 2**63)], ensure_ascii=False)
        # SQLite also takes 007 for 7
        return [
            row
            for row in ((str(key), *rest) for key, *rest in connection.execute(question, (values,)))
            if row[0] in wanted
        ]

    def _ids(self, values: Sequence[Any]) -> Sequence[str]:
        # all at once: one by one took half of the time of a list of ids
        if {*map(type, values)} == {str}:
            return values
        for value in values:
            if not isinstance(value, str | int):
                raise StoreError(
                    f"{self.location}: column {self.id_column} holds {value!r}, and an id is a text or a whole number; "
                    "name another with ?id=COLUMN"
                )
        return [*map(str, values)]

    def ask(self, question: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return all rows of an answer."""
        with self.readers.connection() as connection:
            return connection.execute(question, values).fetchall()

    def decoded(self, keys: Sequence[Any], contents: Sequence[Any]) -> Vectors:
        """Return the vectors of rows, (n, dim), by what the table holds as ids and as vectors."""
        # all at once: one by one, a scan of 20,000 rows of 384 numbers took 126 ms of the processor instead of 102
        if {*map(type, contents)} == {bytes} and {*map(len, contents)} == {4 * self.dim}:
            return np.frombuffer(bytearray().join(contents), "<f4").reshape(-1, self.dim)
        where = f"{self.location}: column {self.vector}"
        vectors = np.empty((len(contents), self.dim), np.float32)
        for position, (doc_id, content) in enumerate(zip(keys, contents, strict=True)):
            if isinstance(content, bytes):
                vector = np.frombuffer(content[: len(content) // 4 * 4], "<f4")
                is_whole = len(content) % 4 == 0
            else:
                vector, is_whole = _from_json(where, doc_id, content), True
            if len(vector) != self.dim or not is_whole:
                have = f"{len(vector):,} numbers" if is_whole else f"{len(content):,} bytes"
                raise StoreError(
                    f"{where} holds vectors of {self.dim:,} numbers, but of {have} for id {doc_id!r}; embed that "
                    "again, or set it to NULL"
                )
            vectors[position] = vector
        return vectors

    def update(self, new: Mapping[str, Vectors]) -> int:
        """Replace vectors, all in one transaction."""
        encode = _as_json if self.form == "text" else _as_blob
        keys = " AND ".join(f"{quoted(column)} = ?" for column in self.row_key)
        statement = f"UPDATE {self.table} SET {quoted(self.vector)} = ? WHERE {keys}"  # noqa: S608
        with closing(_connect(self.driver.file, "rw")) as connection, _transaction(connection):
            # asked in the transaction, as nobody can make the table anew from here on
            if self.driver.identity_in(connection, self.name) != self._opened:
                raise other_there(self.info)
            present = self._find_in(connection, self.row_key, new)
            with _without_triggers(connection, self.name):
                connection.executemany(statement, ((encode(new[doc_id]), *key) for doc_id, *key in present))
        return len(present)

    @property
    def search(self) -> SqliteSearch:
        """The search of the table."""
        return SqliteSearch(self)

    def definitions(self) -> list[tuple[Any, ...]]:
        """Return what there is in the database, each with its table."""
        return self.ask("SELECT tbl_name, type, name, sql FROM sqlite_master")

    def other_rows(self) -> Iterator[tuple[str, Any]]:
        """Yield the rows of the other tables, each with its table."""
        with self.readers.connection() as connection:
            for table in _tables(connection):
                if table != self.name:
                    yield from ((table, row) for row in connection.execute(f"SELECT * FROM {quoted(table)}"))  # noqa: S608


class SqliteSearch(DatabaseSearch):
    """A search that compares all rows, as SQLite has no index of vectors."""

    rows: SqliteRows
    has_own_index = False

    def search(self, queries: Vectors, k: int, where: Any) -> list[Hits]:
        """DatabaseSearch; `where` maps columns, or fields of a column `metadata` of JSON, to values."""
        rows = self.rows
        conditions, values = self._conditions(where)
        if rows.distance == "cosine":
            queries = unit_rows(queries)
        best: list[tuple[list[str], Vectors]] = [([], np.empty(0, np.float32)) for _ in queries]
        columns = listed_columns([rows.id_column, rows.vector])
        question = f"SELECT {columns} FROM {rows.table} WHERE {quoted(rows.vector)} NOTNULL{conditions}"  # noqa: S608
        with rows.readers.connection() as connection:
            records = connection.execute(question, values)
            while chunk := list(islice(records, _RECORDS)):
                keys = [row[0] for row in chunk]
                scores = self._scores(queries, rows.decoded(keys, [row[1] for row in chunk]))
                ids = [*map(str, keys)]
                best = [_nearest(before, ids, row, k) for before, row in zip(best, scores, strict=True)]
        is_l2 = rows.distance == "l2"
        return [as_hits(ids, -scores if is_l2 else scores) for ids, scores in best]

    def _scores(self, queries: Vectors, vectors: Vectors) -> Vectors:
        """Return the scores of vectors for each query, (q, n), the higher the nearer."""
        if self.rows.distance == "l2":
            return np.stack([-((vectors - query) ** 2).sum(axis=1) for query in queries])
        if self.rows.distance == "cosine":
            vectors = unit_rows(vectors)
        return np.asarray(queries @ vectors.T, np.float32)

    def _conditions(self, where: Any) -> tuple[str, list[Any]]:
        """Return the conditions of a filter, and their values."""
        rows, conditions = self.rows, ""
        values: list[Any] = []
        for name, value in as_fields(rows.info, where).items():
            if not isinstance(value, str | int | float | bool | None):
                raise UsageError(f"{rows.location}: the filter has no text or number under {name!r}; give it one")
            metadata = quoted(_METADATA)
            if name in rows.other_columns and name != _METADATA:
                column = quoted(name)
            elif _METADATA in rows.other_columns:
                path = "$." + json.dumps(name, ensure_ascii=False)
                column = f"iif(json_valid({metadata}), json_extract({metadata}, ?), NULL)"
                values.append(path)
            else:
                have = ", ".join(rows.other_columns) or "none"
                raise UsageError(f"{rows.location}: no column is called {name!r} as in the filter; there are {have}")
            # IS also finds null
            conditions += f" AND {column} IS ?"
            values.append(value)
        return conditions, values


def _nearest(
    before: tuple[list[str], Vectors], ids: Sequence[str], scores: Vectors, k: int
) -> tuple[list[str], Vectors]:
    """Return the `k` ids with the highest scores, best first, of those before and some more."""
    all_ids = [*before[0], *ids]
    all_scores = np.concatenate([before[1], scores])
    order = np.argsort(-all_scores, kind="stable")[:k]
    return [all_ids[position] for position in order], all_scores[order]


def _choose_vector(location: str, names: Sequence[str], likely: Sequence[str], requested: str | None) -> str:
    """Return the column that is asked for, or the likely one with the likeliest usual name, or the only one."""
    if requested is not None:
        return choose(location, "column", names, requested, "say ?vector=COLUMN for one")
    return first_of(VECTORS, likely) or choose(
        location, "column of vectors", likely, None, f"say ?vector=COLUMN for one of {', '.join(names)}"
    )


def _choose_id(location: str, columns: Sequence[Column], vector: str, requested: str | None) -> tuple[str, str]:
    """Return the column of ids, and why."""
    names = [column.name for column in columns if column.name != vector]
    if requested is not None:
        chosen = choose(location, "column of ids", names, requested, "say ?id=COLUMN for one")
        return chosen, f"the ids are those of column {chosen}, as the location says"
    primary = [column.name for column in columns if column.key]
    if len(primary) == 1:
        return primary[0], f"the ids are those of column {primary[0]}, the primary key; say ?id=COLUMN for another"
    usual = first_of(IDS, names)
    if usual is not None:
        return usual, f"the ids are those of column {usual}, by its name; say ?id=COLUMN for another"
    if primary:
        raise StoreError(
            f"{location}: the primary key is of several columns, {', '.join(primary)}; name that of the ids "
            "with ?id=COLUMN"
        )
    return "rowid", "the ids are the numbers of the rows; say ?id=COLUMN for those of a column"


def _as_blob(vector: Vectors) -> bytes:
    return vector.astype("<f4").tobytes()


def _as_json(vector: Vectors) -> str:
    return json.dumps(vector.tolist())


def _from_json(where: str, doc_id: Any, content: str) -> Vectors:
    """Return a vector that is a JSON list."""
    try:
        value = parse_json(content)
    except MalformedError as error:
        raise StoreError(
            f"{where} holds no JSON for id {doc_id!r} ({error}); embed that again, or set it to NULL"
        ) from error
    if not isinstance(value, list) or not value or not all(type(number) in (int, float) for number in value):
        raise StoreError(
            f"{where} holds JSON that is no list of numbers for id {doc_id!r}; embed that again, or set it to NULL"
        )
    with np.errstate(over="ignore"):
        return np.array(value, np.float64).astype(np.float32)


def _is_plausible(content: bytes, element: str) -> bool:
    """Return whether bytes are vectors of numbers of a type, as far as their size tells."""
    numbers = np.frombuffer(content[: len(content) // 8 * 8], element)
    numbers = numbers[np.isfinite(numbers)]
    return len(numbers) > 0 and float(np.abs(numbers).max()) < _LARGEST and bool(np.any(np.abs(numbers) > 1 / _LARGEST))


def _looks_like_vector(value: Any, *, is_usual: bool) -> bool:
    """Return whether a value is one of a column of vectors; with a usual name it may be damaged."""
    if isinstance(value, bytes):
        return is_usual or (len(value) >= 8 and len(value) % 4 == 0 and _is_plausible(value, "<f4"))
    if not isinstance(value, str) or not value.lstrip().startswith("["):
        return False
    try:
        return is_usual or len(_from_json("", "", value)) > 1
    except StoreError:
        return False


def _connect(path: Path, mode: str = "ro") -> sqlite3.Connection:
    """Return a connection that several threads can take turns with; transactions are begun by hand."""
    refuse_endless_database(path)
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    return sqlite3.connect(uri, uri=True, timeout=_WAIT_S, isolation_level=None, check_same_thread=False)


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Commit what is written inside; where that fails, whoever closes the connection undoes it."""
    connection.execute("BEGIN IMMEDIATE")
    yield
    connection.execute("COMMIT")


@contextmanager
def _without_triggers(connection: sqlite3.Connection, table: str) -> Iterator[None]:
    """Set aside the triggers of a table, in a transaction: no document changes, and so no other table shall."""
    listed = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name = ? COLLATE NOCASE"
    triggers = connection.execute(listed, (table,)).fetchall()
    for name, _ in triggers:
        connection.execute(f"DROP TRIGGER {quoted(name)}")
    yield
    for _, definition in triggers:
        connection.execute(definition)


def _tables(connection: sqlite3.Connection) -> list[str]:
    """Return the ordinary tables, sorted, without those that SQLite and virtual tables keep their own in."""
    rows = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall()
    is_virtual = re.compile(r"\s*CREATE\s+VIRTUAL", re.IGNORECASE).match
    hidden = ("sqlite_", *(f"{name}_" for name, sql in rows if is_virtual(sql or "")))
    return [name for name, sql in rows if not is_virtual(sql or "") and not name.startswith(hidden)]


def _columns(connection: sqlite3.Connection, table: str) -> list[Column]:
    rows = connection.execute("SELECT name, type, pk FROM pragma_table_info(?) ORDER BY cid", (table,))
    return [Column(*row) for row in rows]


def _vector_columns(connection: sqlite3.Connection, table: str, columns: Iterable[Column]) -> list[str]:
    """Return the columns whose first value looks like a vector."""
    found = []
    for column in columns:
        name = quoted(column.name)
        question = f"SELECT {name} FROM {quoted(table)} WHERE {name} NOTNULL LIMIT 1"  # noqa: S608
        row = connection.execute(question).fetchone()
        if row is not None and not column.key and _looks_like_vector(row[0], is_usual=column.name in VECTORS):
            found.append(column.name)
    return found


def _vector_tables(connection: sqlite3.Connection, requested: str | None) -> list[str]:
    """Return the tables with a column of vectors, or of the name that is asked for."""
    columns = {table: _columns(connection, table) for table in _tables(connection)}
    if requested is not None:
        return [table for table, have in columns.items() if requested in (column.name for column in have)]
    return [table for table, have in columns.items() if _vector_columns(connection, table, have)]
