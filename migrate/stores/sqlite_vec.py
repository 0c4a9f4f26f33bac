"""Tables of sqlite-vec in a SQLite database: `sqlite-vec:FILE#TABLE`.

Ids are the primary key of the table, or its rowids. Texts are those of a column, or of an ordinary table beside it with
the same key, `?text=TABLE.COLUMN`; the other columns of both are metadata. The whole database is copied, and this table
made again in it. SQLite is spoken to through apsw, as the sqlite3 of many a Python cannot load extensions.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import cached_property, partial
from itertools import islice, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from migrate.errors import LeadMigrateError, OutputError, StoreError, UnsupportedStoreError, UsageError
from migrate.locations import Address, options_text
from migrate.manifest import find_manifest
from migrate.stores.base import NO_TEXTS, KindSupport, StoreInfo
from migrate.stores.binary_reader import read_errors
from migrate.stores.driver import Driver, Page
from migrate.stores.kept import sync_tree
from migrate.stores.records import TEXT_NAMES, choose_text, import_client, metadata_as_json, read_metric
from migrate.stores.serving import Hits, Pool, as_fields, as_hits, other_there
from migrate.stores.sqlite_read import read_only
from migrate.vectors import Batch, Document, Vectors

if TYPE_CHECKING:
    from apsw import Connection

_METADATA: Final = "metadata"
"""The column of JSON that a table made of documents has."""
_WAIT_MS: Final = 10_000
_LOGS: Final = ("-journal", "-wal", "-shm")
_ELEMENTS: Final = {"float": "<f4", "f32": "<f4", "int8": "i1", "i8": "i1", "bit": "u1"}
_FUNCTIONS: Final = {"l2": "vec_distance_l2", "cosine": "vec_distance_cosine"}
_TABLE: Final = re.compile(
    r"\s*CREATE\s+VIRTUAL\s+TABLE\b.*?\bUSING\s+vec0\s*\((.*)\)\s*;?\s*", re.IGNORECASE | re.DOTALL
)
_VECTOR: Final = re.compile(r"(\w+)\s+(float|f32|int8|i8|bit)\s*\[\s*(\d+)\s*\](.*)", re.IGNORECASE | re.DOTALL)
_DISTANCE: Final = re.compile(r"distance_metric\s*=\s*(\w+)", re.IGNORECASE)
_COLUMN: Final = re.compile(r"(\+?)\s*(\w+)\s+(\w+)(?:\s+(primary|partition)\s+key)?", re.IGNORECASE)


class SqliteVecDriver(Driver):
    """A table `vec0` of a database, which is a file, or the only one with such tables in a folder.

    `vector_columns` has type and dimension of each column of vectors, `distances` how each is compared, `columns` the
    type of each other one but that of the ids.
    """

    kind = "sqlite-vec"
    support = KindSupport(
        "SQLite with sqlite-vec",
        ("sqlite-vec:FILE#TABLE",),
        "sqlite-vec",
        "the whole database: partition, metadata and auxiliary columns, other tables, views, triggers",
        "columns of `int8` and `bit` are not translated",
    )
    collection = "table"
    options = ("column", "distance", "text")
    has_servers = False
    copies_place = True

    @classmethod
    def recognises(cls, path: Path) -> bool:
        """Return whether it is a database with a table of vectors, or a folder with one such database."""
        try:
            return len(_databases(path)) == 1
        except Exception:  # a damaged file, which another kind may know
            return False

    @property
    def folder(self) -> Path:
        """The folder of the database."""
        place = Path(self.address.place)
        return place if place.is_dir() else place.parent

    @cached_property
    def file(self) -> Path:
        """The database."""
        place = Path(self.address.place)
        if not place.exists():
            raise StoreError(f"{self.location}: expected a SQLite database, found no file {place}; check the path")
        files = _databases(place)
        if len(files) != 1:
            have = ", ".join(file.name for file in files) or "none"
            raise StoreError(f"{self.location}: expected a database with vectors, found {have}; name its file")
        return files[0]

    def files(self) -> Collection[str]:
        """Return the database and what SQLite keeps beside it."""
        return [f"{self.file.name}{ending}" for ending in ("", *_LOGS)]

    def names(self) -> list[str]:
        """Return the tables of vectors."""
        return sorted(_tables(self.file))

    def explain(self, error: Exception, words: str) -> LeadMigrateError:
        """Tell a full disk and a busy database from a damaged one."""
        if type(error).__name__ in ("FullError", "IOError", "CantOpenError", "ReadOnlyError"):
            return OutputError(f"{self.location}: SQLite says: {words}; see to disk and permissions, and run again")
        if type(error).__name__ == "BusyError":
            return StoreError(f"{self.location}: another program is writing to the database; run again when it is done")
        return StoreError(f"{self.location}: SQLite says: {words}; if the database is damaged, copy it again")

    # Reading.

    def open(self) -> None:
        """Read the definition of the table, and choose its columns."""
        self.address = self._completed()
        definitions = _tables(self.file)
        self.name = self.choose_name(sorted(definitions))
        self.definition = definitions[self.name]
        self._parse()
        self.column = self._choose_vector(self.address.options.get("column"))
        self.dim = self.vector_columns[self.column][1]
        self.other_columns = [*self.columns, *(name for name in self.vector_columns if name != self.column)]
        self._from = _quoted(self.name)
        self._joined = f"json_each(?) j CROSS JOIN {self._from} v WHERE v.{_quoted(self.id_column)} = j.value"
        self._readers: Pool[Connection] = Pool(partial(_connect, self.file))
        self._opened = self.identity(self.name)

    def _completed(self) -> Address:
        """The address with table and options that the manifest beside the database names."""
        manifest = find_manifest(self.folder, "store")
        named = Address.parse((manifest.store.index or "") if manifest is not None else "")
        if named.place != self.file.name or self.name not in ("", named.name):
            return self.address
        return Address(self.address.place, named.name, {**named.options, **self.address.options})

    def _parse(self) -> None:
        self.id_column, self.has_numbers = "rowid", True
        self.vector_columns: dict[str, tuple[str, int]] = {}
        self.distances: dict[str, str] = {}
        self.columns: dict[str, str] = {}
        self.auxiliary: set[str] = set()
        inside = _TABLE.fullmatch(self.definition)
        for part in (inside[1] if inside else "").split(","):
            if vector := _VECTOR.match(part.strip()):
                self.vector_columns[vector[1]] = vector[2].lower(), int(vector[3])
                distance = _DISTANCE.search(vector[4])
                self.distances[vector[1]] = distance[1].lower() if distance else "l2"
            elif "=" not in part and (column := _COLUMN.match(part.strip())):
                mark, name, kind, key = column.groups()
                if (key or "").lower() == "primary":
                    self.id_column, self.has_numbers = name, kind.lower() == "integer"
                else:
                    self.columns[name] = kind.lower()
                    self.auxiliary |= {name} if mark else set()

    def _choose_vector(self, asked: str | None) -> str:
        floats = [name for name, (kind, _) in self.vector_columns.items() if _ELEMENTS[kind] == "<f4"]
        if asked in floats or (asked is None and len(floats) == 1):
            return asked or floats[0]
        have = ", ".join(f"{name} {kind}[{dim}]" for name, (kind, dim) in self.vector_columns.items())
        error = StoreError if floats else UnsupportedStoreError
        raise error(f"{self.location}: expected one column of floats, found {have}; name one with ?column=NAME")

    def describe(self) -> StoreInfo:
        """Describe the table; all its rows have a vector."""
        self.distance = self.address.options.get("distance") or self.distances[self.column]
        if self.distance not in ("l2", "ip", "cosine"):
            what = f"vectors are compared by {self.distance}, which is not supported"
            raise UnsupportedStoreError(f"{self.location}: {what}; say ?distance=l2 to take that")
        self.text, self.text_table, why = self._choose_text(self.address.options.get("text"))
        sample = self._ask(f"SELECT {_quoted(self.column)} FROM {self._from} LIMIT 32")  # noqa: S608
        vectors = self._as_matrix(vector for (vector,) in sample)
        metric, notes = read_metric(self.distance, vectors)  # type: ignore[arg-type]
        ((count,),) = self._ask(f"SELECT count(*) FROM {self._from}")  # noqa: S608
        others = ", ".join(name for name in self.vector_columns if name != self.column)
        details: dict[str, str | int] = {"database": self.file.name, "table": self.name, "column": self.column}
        details |= {"distance": self.distance, **({"other_vectors": others} if others else {})}
        index, has_texts = f"vec0 float[{self.dim}]", self.text is not None
        info = StoreInfo(self.location, self.kind, index, count, self.dim, metric, exact=True, has_texts=has_texts)
        first = f"the ids are those of column {self.id_column}"
        self.info = replace(info, notes=(first, why, *notes), details=details)
        return self.info

    def _choose_text(self, asked: str | None) -> tuple[str | None, str | None, str]:
        """The column of texts, the table beside that has it, and why."""
        columns = [name for name, kind in self.columns.items() if kind == "text" and name != _METADATA]
        if columns and "." not in (asked or ""):
            chosen, why = choose_text(self.location, columns, asked)
            return chosen, None, why
        beside = {f"{table}.{text}": (text, table) for table, text in self._texts_beside()}
        have = ", ".join(beside)
        if asked in beside:
            return *beside[asked], f"the texts are those of {asked}, as the location says"
        if asked is not None:
            raise StoreError(f"{self.location}: no column of texts is called {asked}; there are {have or 'none'}")
        usual = [name for name, (text, _) in beside.items() if text in TEXT_NAMES]
        if len(usual) == 1:
            return *beside[usual[0]], f"the texts are those of {usual[0]}, by its name; say ?text=TABLE.COLUMN"
        return None, None, f"{NO_TEXTS}it could be {have or 'no column'}; say ?text=TABLE.COLUMN for one"

    def _texts_beside(self) -> Iterator[tuple[str, str]]:
        """Ordinary tables, each with a column that may hold texts."""
        for table in self._tables_beside():
            key = self._key_of(table)
            for _, name, kind, *_ in self._ask(f"PRAGMA table_info({_quoted(table)})"):
                if name != key and re.match(r"(?i)$|text|varchar|char|clob", kind):
                    yield table, name

    def _tables_beside(self) -> list[str]:
        """Ordinary tables but those in which the extension keeps its own."""
        listed = "SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'create virtual%' ORDER BY name"
        own = ("sqlite_", *(f"{name}_" for name in self.names()))
        return [name for (name,) in self._ask(listed) if not name.startswith(own)]

    def _key_of(self, table: str) -> str:
        """The column of an ordinary table that the ids are found in."""
        keys = [column[1] for column in self._ask(f"PRAGMA table_info({_quoted(table)})") if column[5]]
        return str(keys[0]) if len(keys) == 1 else "rowid"

    @property
    def key(self) -> str:
        """Database, table and column."""
        return f"{self.file.absolute()}#{self.name}?column={self.column}"

    @property
    def opened_as(self) -> str:
        """Database, table and options."""
        return f"{self.file.name}#{self.name}{options_text(self.address.options)}"

    def version(self) -> Any:
        """Return size, time and number of the database, and of its log of writes."""
        with read_errors(self.file):
            files = (self.file, self.file.with_name(f"{self.file.name}-wal"))
            stats = [file.stat() for file in files if file.exists()]
        return [[status.st_size, status.st_mtime_ns, status.st_ino] for status in stats if status.st_size]

    def identity(self, name: str) -> Any:
        """Return the number of the file, and the pages in it that the table's rows begin at."""
        if not self.file.exists():
            return None
        with closing(_connect(self.file)) as connection:
            return self._identity_in(connection, name)

    def _identity_in(self, connection: Connection, name: str) -> Any:
        listed = "SELECT name, rootpage FROM sqlite_master WHERE name IN (?1 || '_rowids', ?1 || '_chunks') ORDER BY 1"
        begins = [list(row) for row in connection.execute(listed, (name,))]
        return [self.file.stat().st_ino, begins] if begins else None

    def pages(self, *, vectors: bool = True, records: bool = False) -> Iterator[Page]:
        """Read rows as they lie; `raw` are tuples of the key and all columns but the vector."""
        columns = [self.id_column, *(self.other_columns if records else []), *([self.column] if vectors else [])]
        with self._readers.connection() as connection:
            rows = connection.execute(f"SELECT {_listed(columns)} FROM {self._from}")  # noqa: S608
            while part := list(islice(rows, 4_096 if records else 256)):  # a processor's cache has room for so many
                found = self._as_matrix(row[-1] for row in part) if vectors else np.empty((0, self.dim), np.float32)
                raw = [row[: len(self.other_columns) + 1] for row in part] if records else None
                yield Page([str(row[0]) for row in part], found, raw)

    def documents(self, ids: Sequence[str], at: NDArray[np.int64] | None = None) -> Iterator[Document]:
        """Return all columns but the vector, and those of the table beside that has the texts."""
        beside = {} if self.text_table is None else self._beside(self.text_table, ids)
        for key, *values in self._find(ids, self.other_columns):
            facts = {name: self._plain(name, value) for name, value in zip(self.other_columns, values, strict=True)}
            facts.update(beside.get(str(key), {}))
            text = facts.pop(self.text, None) if self.text is not None else None
            if not isinstance(text, str | None):
                raise StoreError(
                    f"{self.location}: {self.text} of {str(key)!r} is no text, but {type(text).__name__}; name another "
                    "column with ?text=, or correct it"
                )
            yield Document(str(key), text or "", _with_metadata(facts))

    def vectors(self, ids: Sequence[str], at: NDArray[np.int64] | None = None) -> Batch:
        """Return vectors as float32."""
        rows = self._find(ids, [self.column])
        return Batch([str(row[0]) for row in rows], self._as_matrix(row[1] for row in rows))

    def _find(self, ids: Sequence[str], columns: Sequence[str]) -> list[tuple[Any, ...]]:
        """The key and some columns of rows."""
        keys = self._keys(ids)
        # joined, so that each is looked up, where IN would scan the table; and not by its key, another look-up
        names = ", ".join(["j.key", *(f"v.{_quoted(name)}" for name in columns)])
        question = f"SELECT {names} FROM {self._joined}"  # noqa: S608
        return [(keys[place], *values) for place, *values in self._ask(question, json.dumps(keys, ensure_ascii=False))]

    def _beside(self, table: str, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        """The columns of a table beside, by id."""
        key = self._key_of(table)
        names = [str(column[1]) for column in self._ask(f"PRAGMA table_info({_quoted(table)})")]
        question = (
            f"SELECT CAST(b.{_quoted(key)} AS TEXT), {', '.join(f'b.{_quoted(name)}' for name in names)} "  # noqa: S608
            f"FROM json_each(?) j CROSS JOIN {_quoted(table)} b WHERE b.{_quoted(key)} = j.value"
        )
        rows = self._ask(question, json.dumps(self._keys(ids), ensure_ascii=False))
        return {
            str(row[0]): {name: value for name, value in zip(names, row[1:], strict=True) if name != key}
            for row in rows
        }

    def _keys(self, ids: Iterable[str]) -> list[str] | list[int]:
        """The keys that the table may have of ids."""
        if not self.has_numbers:
            return list(ids)
        return [int(doc_id) for doc_id in ids if re.fullmatch(r"-?[0-9]{1,18}", doc_id)]

    def _ask(self, question: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._readers.connection() as connection:
            return list(connection.execute(question, values))

    def _plain(self, name: str, value: Any) -> Any:
        """A value as metadata have it: a vector as a list."""
        if name not in self.vector_columns:
            return value
        kind = np.dtype(_ELEMENTS[self.vector_columns[name][0]])
        if not isinstance(value, bytes) or len(value) % kind.itemsize:
            raise StoreError(f"{self.location}: {name} holds other values than vectors; the database is damaged")
        return np.frombuffer(value, kind).tolist()

    def _as_matrix(self, values: Iterable[Any]) -> Vectors:
        contents = list(values)
        odd = [one for one in contents if not isinstance(one, bytes) or len(one) != self.dim * 4]
        if odd:
            found = f"one of {len(odd[0]):,}" if isinstance(odd[0], bytes) else type(odd[0]).__name__
            raise StoreError(
                f"{self.location}: expected vectors of {self.dim * 4:,} bytes, found {found}; the database is damaged, "
                "copy it again"
            )
        return np.frombuffer(b"".join(contents), "<f4").astype(np.float32).reshape(-1, self.dim)

    # Serving.

    def search(self, queries: Vectors, k: int, where: Any) -> list[Hits]:
        """Search; `where` maps columns, or fields of a column `metadata` of JSON, to values.

        The table's own search knows no auxiliary columns and at most 4,096 neighbours; beyond that, the distances of
        all rows are sorted.
        """
        conditions, values, is_own = self._conditions(where)
        if self.distance not in _FUNCTIONS:
            raise UsageError(f"{self.location}: sqlite-vec cannot search by {self.distance}; leave out ?distance=")
        key, column, table = f"v.{_quoted(self.id_column)}", f"v.{_quoted(self.column)}", f"{self._from} v"
        if is_own and k <= 4_096 and self.distance == self.distances[self.column]:
            question = f"SELECT {key}, distance FROM {table} WHERE {column} MATCH ?1 AND k = ?2{conditions}"  # noqa: S608
        else:
            distance = f"{_FUNCTIONS[self.distance]}({column}, ?1)"
            question = f"SELECT {key}, {distance} d FROM {table} WHERE true{conditions} ORDER BY d LIMIT ?2"  # noqa: S608
        hits = []
        for query in queries:
            rows = self._ask(question, query.astype("<f4").tobytes(), k, *values)
            distances = np.array([row[1] for row in rows], np.float64)
            scores = distances**2 if self.distance == "l2" else 1 - distances
            hits.append(as_hits([str(row[0]) for row in rows], scores))
        return hits

    def _conditions(self, where: Any) -> tuple[str, list[Any], bool]:
        """The conditions of a filter in SQL, their values, and whether the table's own search knows the columns."""
        conditions, is_own, values = "", True, []
        for place, (name, value) in enumerate(as_fields(self.info, where).items()):
            if not isinstance(value, str | int | float | bool | None):
                raise UsageError(f"{self.location}: the filter has no text or number under {name!r}; give it one")
            if name in self.columns and name != _METADATA:
                is_own = is_own and value is not None and name not in self.auxiliary
                column = f"v.{_quoted(name)}"
            elif _METADATA in self.columns:
                is_own, path = False, "$." + json.dumps(name, ensure_ascii=False)
                column = f"json_extract(v.{_METADATA}, '{path.replace(chr(39), chr(39) * 2)}')"
            else:
                have = ", ".join(self.columns) or "none"
                raise UsageError(f"{self.location}: no column is called {name!r} as in the filter; there are {have}")
            conditions += f" AND {column} {'=' if is_own else 'IS'} ?{place + 3}"
            values.append(value)
        return conditions, values, is_own

    def update(self, new: Mapping[str, Vectors]) -> int:
        """Replace vectors, all in one transaction."""
        keys = json.dumps(self._keys(new), ensure_ascii=False)
        listed = f"SELECT v.{_quoted(self.id_column)} FROM {self._joined}"  # noqa: S608
        update = f"UPDATE {self._from} SET {_quoted(self.column)} = ? WHERE {_quoted(self.id_column)} = ?"  # noqa: S608
        with closing(_connect(self.file, write=True)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            if self._identity_in(connection, self.name) != self._opened:
                raise other_there(self.info)
            there = [key for (key,) in connection.execute(listed, (keys,))]
            connection.executemany(update, ((new[str(key)].astype("<f4").tobytes(), key) for key in there))
            connection.execute("COMMIT")
        return len(there)

    # Writing.

    def refuse_write(self, dim: int, like: Driver | None) -> None:
        """Refuse another name for a copy: views and triggers of the database name the table."""
        if like is not None and self.name != like.name:
            raise UsageError(f"{self.location}: a copy of a database has its tables; call this one {like.name}")

    def write(
        self, name: str, dim: int, source: StoreInfo, like: Driver | None, pages: Iterator[Page]
    ) -> Iterable[str]:
        """Write a copy of the whole database with the table made again, or a database with one table."""
        old = like if isinstance(like, SqliteVecDriver) else None
        path = self.folder / ("store.db" if old is None else old.file.name)
        for ending in ("", *_LOGS):
            path.with_name(f"{path.name}{ending}").unlink(missing_ok=True)
        columns, values = ["id", "content", _METADATA, "embedding"], ["?"] * 4
        distance = {"l2": "L2", "ip": "cosine"}[source.metric]
        definition = (
            f"CREATE VIRTUAL TABLE {_quoted(name)} USING vec0(id text primary key, embedding float[{dim}] "
            f"distance_metric={distance}, +content text, +{_METADATA} text)"
        )
        if old is not None:
            columns = [old.id_column, *old.other_columns, old.column]
            pattern = re.compile(rf"(\b{re.escape(old.column)}\s+(?:float|f32)\s*\[\s*)\d+", re.IGNORECASE)
            definition = pattern.sub(rf"\g<1>{dim}", old.definition, count=1)
            kinds = {column: _ELEMENTS[kind] for column, (kind, _) in old.vector_columns.items()}
            values = [{"i1": "vec_int8(?)", "u1": "vec_bit(?)"}.get(kinds.get(column, ""), "?") for column in columns]
        insert = f"INSERT INTO {_quoted(name)} ({_listed(columns)}) VALUES ({', '.join(values)})"  # noqa: S608
        written = 0
        with closing(_connect(path, write=True)) as new:
            if old is not None:
                with old._readers.connection() as reader, new.backup("main", reader, "main") as backup:
                    backup.step()
            with _without_journal(new):
                new.execute(f"DROP TABLE IF EXISTS {_quoted(name)}")
                new.execute(definition)
                for page in pages:
                    rows = page.raw or (
                        (document.id, document.text if source.has_texts else None, metadata_as_json(document))
                        for document in page.documents
                    )
                    contents = (vector.astype("<f4").tobytes() for vector in page.vectors)
                    new.executemany(insert, ((*row, content) for row, content in zip(rows, contents, strict=True)))
                    written += len(page.ids)
            ((count,),) = new.execute(f"SELECT count(*) FROM {_quoted(name)}").fetchall()  # noqa: S608
        if count != written:
            raise StoreError(f"{self.location}: {written} rows were written, but the table holds {count}; run again")
        sync_tree(self.folder)
        if old is None and source.metric == "ip" and source.details.get("distance") != "cosine":
            return ["sqlite-vec has no inner product: the new table compares by cosine, which ranks unit vectors alike"]
        return []

    # Switching.

    def refuse_folders(self, new: Driver) -> None:
        """Refuse databases of which one was written to beside the table: that would be lost."""
        if not isinstance(new, SqliteVecDriver):
            return
        for mine, other in zip_longest(self._rest(), new._rest()):
            if mine != other:
                raise UsageError(
                    f"{new.location}: its table {(mine or other)[0]} differs from that of {self.location}, as one was "
                    "written to since it was copied; sync the new database with the old, audit it, and switch again"
                )

    def _rest(self) -> Iterator[tuple[str, Any]]:
        """All in the database but tables of vectors: definitions and rows, each with the table that it is of."""
        names = self.names()
        for table, sql in self._ask("SELECT tbl_name, sql FROM sqlite_master ORDER BY type, name"):
            if table not in names and not table.startswith(tuple(f"{name}_" for name in names)):
                yield table, sql
        for table in self._tables_beside():
            with self._readers.connection() as connection:
                yield from ((table, row) for row in connection.execute(f"SELECT * FROM {_quoted(table)}"))  # noqa: S608


@contextmanager
def _without_journal(connection: Connection) -> Iterator[None]:
    """One transaction of a database that nobody has yet: if it fails all is made anew, so that nothing is undone."""
    ((mode,),) = connection.execute("PRAGMA journal_mode").fetchall()
    if mode != "wal":  # of which the database itself takes note, as the program has chosen that uses it
        connection.execute("PRAGMA journal_mode = OFF").fetchall()
    connection.execute("PRAGMA synchronous = OFF")
    with connection:
        yield


def _with_metadata(facts: dict[str, Any]) -> dict[str, Any]:
    """Columns as metadata, and in the place of a column `metadata` of JSON its fields."""
    try:
        inner = json.loads(facts[_METADATA])
    except (KeyError, TypeError, ValueError, RecursionError):
        return facts
    outer = {name: value for name, value in facts.items() if name != _METADATA}
    return {**inner, **outer} if isinstance(inner, dict) and not inner.keys() & outer.keys() else facts


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _listed(columns: Iterable[str]) -> str:
    return ", ".join(map(_quoted, columns))


def _connect(path: Path, *, write: bool = False) -> Connection:
    apsw, sqlite_vec = import_client("apsw", "sqlite-vec"), import_client("sqlite_vec", "sqlite-vec")
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE if write else apsw.SQLITE_OPEN_READONLY
    connection: Connection = apsw.Connection(str(path), flags=flags)
    connection.set_busy_timeout(_WAIT_MS)
    connection.enable_load_extension(True)
    connection.load_extension(sqlite_vec.loadable_path())
    connection.enable_load_extension(False)
    return connection


def _databases(path: Path) -> list[Path]:
    """The databases with a table of vectors at a path."""
    with read_errors(path):
        inside = sorted(file for file in path.iterdir() if not file.name.startswith(".")) if path.is_dir() else [path]
    files = [file for file in inside if file.is_file()]
    return [file for file in files if _is_database(file) and _tables(file)]


def _is_database(path: Path) -> bool:
    if "apsw" not in sys.modules:
        with read_errors(path), path.open("rb") as file:
            return file.read(16) == b"SQLite format 3\x00"
    try:
        return bool(path.stat().st_size and _ask(path, "PRAGMA schema_version"))
    except import_client("apsw", "sqlite-vec").NotADBError:
        return False


def _tables(path: Path) -> dict[str, str]:
    """The definition of each table of vectors; no extension is needed to list them."""
    listed = "SELECT name, sql FROM sqlite_master WHERE type = 'table' AND sql LIKE 'create virtual%vec0%'"
    return {name: definition for name, definition in _ask(path, listed) if _TABLE.fullmatch(definition)}


def _ask(path: Path, question: str, *, write: bool = False) -> list[Any]:
    """The answer of a database, by apsw if that is in use; first, SQLite undoes what a killed writer left half written.

    A process that closes a file loses all its locks on it: if apsw has some, nothing else may open the database, or a
    search of another thread would read on while somebody writes.
    """
    if "apsw" not in sys.modules:
        with read_only(path) as reader:
            return reader.execute(question).fetchall()
    apsw = import_client("apsw", "sqlite-vec")
    flags = apsw.SQLITE_OPEN_READWRITE if write else apsw.SQLITE_OPEN_READONLY
    with closing(apsw.Connection(str(path), flags=flags)) as connection:
        connection.set_busy_timeout(_WAIT_MS)
        try:
            return list(connection.execute(question))
        except apsw.ReadOnlyError:
            if write:
                raise
    return _ask(path, question, write=True)  # a reader may not undo that
