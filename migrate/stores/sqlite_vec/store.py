"""Tables of sqlite-vec: `sqlite-vec:FILE#TABLE`, a virtual table `vec0` in a SQLite database.

Ids are the primary key of the table, or its rowids. Texts are those of a column of the table, or of an ordinary table
beside it whose key is the same, `?text=TABLE.COLUMN`; the other columns of both are metadata. A copy is a copy of the
whole database in which this one table is made again, so that everything beside it goes through. SQLite is spoken to
through apsw, as the sqlite3 of many a Python cannot load extensions.
"""

from __future__ import annotations

import json
import re
import sys
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast, get_args

import numpy as np
from numpy.typing import NDArray

from migrate.errors import OutputError, StoreError, UnsupportedStoreError, UsageError
from migrate.files import atomic_file, cache_folder, sha256_file, write_json
from migrate.locations import Address, options_text
from migrate.manifest import MANIFEST_NAME, Manifest, StoreFacts, find_manifest
from migrate.stores.base import BATCH_SIZE, FROM_THE_START, KindSupport, Resume, Store, StoreInfo, StoreWriter
from migrate.stores.binary_reader import read_errors
from migrate.stores.documents.base import LazyIds
from migrate.stores.file_store import Sha256
from migrate.stores.outputs import FolderOutput
from migrate.stores.permute import cut, in_order
from migrate.stores.records import (
    TEXT_NAMES,
    Distance,
    SearchableRecordStore,
    WaitingWriter,
    check_options,
    choose_text,
    import_client,
    read_metric,
)
from migrate.stores.sqlite_read import read_only
from migrate.stores.switching import ASIDE, BESIDE, Exchange
from migrate.vectors import Batch, Document, Vectors

if TYPE_CHECKING:
    from apsw import Connection

    from migrate.stores.sqlite_vec.serve import SqliteVecServing

NAME: Final = "sqlite-vec"
FILE_NAME: Final = "store.db"
TABLE_NAME: Final = "docs"

_MAGIC: Final = b"SQLite format 3\x00"
_VEC0: Final = re.compile(
    r"\s*CREATE\s+VIRTUAL\s+TABLE\b.*?\bUSING\s+vec0\s*\((.*)\)\s*;?\s*", re.IGNORECASE | re.DOTALL
)
_VECTOR: Final = re.compile(r"(\w+)\s+(float|f32|int8|i8|bit)\s*\[\s*(\d+)\s*\](.*)", re.IGNORECASE | re.DOTALL)
_COLUMN: Final = re.compile(r"(\+?)\s*(\w+)\s+(\w+)(?:\s+(primary|partition)\s+key)?", re.IGNORECASE)
_DISTANCE: Final = re.compile(r"distance_metric\s*=\s*(\w+)", re.IGNORECASE)
_FLOATS: Final = ("float", "f32")
_ELEMENTS: Final = {"float": "<f4", "f32": "<f4", "int8": "i1", "i8": "i1", "bit": "u1"}
INSERTED: Final = {"int8": "vec_int8(?)", "i8": "vec_int8(?)", "bit": "vec_bit(?)"}
_OPTIONS: Final = ("column", "distance", "text")
_METADATA: Final = "metadata"
_WHOLE: Final = re.compile(r"-?[0-9]{1,18}")
_SAMPLED: Final = 32
_AT_ONCE: Final = 4_096
_LARGE: Final = 4
"""A scan of one in so many rows reads the whole table instead of looking them up."""

_WAIT_MS: Final = 10_000


_TABLES: Final = "SELECT name, sql FROM sqlite_master WHERE type = 'table' AND sql LIKE 'create virtual%vec0%'"


@contextmanager
def sqlite_errors(location: object) -> Iterator[None]:
    """Turn errors of SQLite into one line."""
    apsw = import_client("apsw", NAME)
    try:
        yield
    except (apsw.FullError, apsw.IOError, apsw.CantOpenError, apsw.ReadOnlyError) as error:
        raise OutputError(f"{location}: SQLite cannot read or write it: {error}; check disk and permissions") from error
    except apsw.BusyError as error:
        raise StoreError(
            f"{location}: another program is writing to the database; run again when it is done"
        ) from error
    except apsw.NotADBError as error:
        raise StoreError(f"{location}: expected a SQLite database, found another file; check the path") from error
    except apsw.Error as error:
        line = " ".join(str(error).split())
        raise StoreError(f"{location}: SQLite refused: {line}") from error


def connect_to(path: Path, *, write: bool = False) -> Connection:
    """A connection with the extension."""
    apsw, sqlite_vec = import_client("apsw", NAME), import_client("sqlite_vec", NAME)
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE if write else apsw.SQLITE_OPEN_READONLY
    connection: Connection = apsw.Connection(str(path), flags=flags)
    connection.set_busy_timeout(_WAIT_MS)
    connection.enable_load_extension(True)
    connection.load_extension(sqlite_vec.loadable_path())
    connection.enable_load_extension(False)
    return connection


def quoted(name: str) -> str:
    """A name as SQL has it."""
    return '"' + name.replace('"', '""') + '"'


@dataclass(frozen=True, slots=True)
class VectorTable:
    """A table `vec0`, as its definition has it.

    `vectors` has type and dimension of each column of vectors, `distances` how each is compared, `columns` the type of
    each other one, `key` the primary key, which is `rowid` where the definition names none.
    """

    name: str
    definition: str
    key: str
    vectors: Mapping[str, tuple[str, int]]
    distances: Mapping[str, str]
    columns: Mapping[str, str]

    @classmethod
    def parse(cls, name: str, definition: str) -> VectorTable:
        """Read the definition of a table."""
        match = _VEC0.fullmatch(definition)
        key, vectors, distances, columns = "rowid", {}, {}, {}
        for part in (match[1] if match else "").split(","):
            if vector := _VECTOR.match(part.strip()):
                vectors[vector[1]] = vector[2].lower(), int(vector[3])
                distance = _DISTANCE.search(vector[4])
                distances[vector[1]] = distance[1].lower() if distance else "l2"
            elif "=" not in part and (column := _COLUMN.match(part.strip())):
                if (column[4] or "").lower() == "primary":
                    key = column[2]
                else:
                    columns[column[2]] = column[3].lower()
        return cls(name, definition, key, vectors, distances, columns)

    def is_auxiliary(self, column: str) -> bool:
        """Whether a column is kept beside the vectors, where their search cannot look at it."""
        return re.search(rf"\+\s*{re.escape(column)}\b", self.definition) is not None

    def with_dimension(self, column: str, dim: int) -> str:
        """The definition, with another dimension of a column."""
        pattern = re.compile(rf"(\b{re.escape(column)}\s+(?:float|f32)\s*\[\s*)\d+(\s*\])", re.IGNORECASE)
        return pattern.sub(lambda match: f"{match[1]}{dim}{match[2]}", self.definition, count=1)


def tables_in(path: Path) -> dict[str, VectorTable]:
    """The tables of vectors in a database, by name; what is listed needs no extension."""
    import sqlite3

    try:
        if "apsw" in sys.modules:
            rows = _ask(path, _TABLES)
        else:
            with read_only(path) as connection:
                rows = connection.execute(_TABLES).fetchall()
    except sqlite3.Error as error:
        raise StoreError(f"{path}: expected a SQLite database, found none ({error}); check the path") from error
    return {name: VectorTable.parse(name, definition) for name, definition in rows if _VEC0.fullmatch(definition)}


def _is_database(path: Path) -> bool:
    if not path.is_file():
        return False
    if "apsw" in sys.modules:
        try:
            return bool(path.stat().st_size and _ask(path, "PRAGMA schema_version"))
        except StoreError:
            return False
    with read_errors(path), path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def _ask(path: Path, question: str) -> list[Any]:
    """What a database answers by apsw; what a killed writer has left half written is undone first, as `read_only` does.

    A process that closes a file loses all its locks of it: where apsw is in use, nothing else may open the database,
    or a search of another thread would read on while somebody writes.
    """
    apsw = import_client("apsw", NAME)
    with sqlite_errors(path):
        for flags in (apsw.SQLITE_OPEN_READONLY, apsw.SQLITE_OPEN_READWRITE):
            with closing(apsw.Connection(str(path), flags=flags)) as connection:
                connection.set_busy_timeout(_WAIT_MS)
                try:
                    return list(connection.execute(question))
                except apsw.ReadOnlyError:
                    if flags == apsw.SQLITE_OPEN_READWRITE:
                        raise
    return []


class SqliteVecKind:
    """Databases with a table of vectors, as the registry knows them."""

    name = NAME
    support = KindSupport(
        "SQLite with sqlite-vec",
        ("sqlite-vec:FILE#TABLE",),
        "sqlite-vec",
        "the whole database: partition, metadata and auxiliary columns, other tables, views, triggers",
        "columns of `int8` and `bit` are not translated",
    )

    def recognises(self, path: Path) -> bool:
        """Whether it is a database with a table of vectors, or a folder with exactly one."""
        try:
            return len(_databases(path)) == 1
        except StoreError:
            return False

    def open(self, location: str) -> SqliteVecStore:
        """Open a table.

        Raises
        ------
        StoreError
            There is no such database or table, or several and none is named.
        UsageError
            apsw or sqlite-vec is not installed, or an option means nothing.
        """
        address = Address(location) if Path(location).exists() else Address.parse(location)
        path = Path(address.place)
        if not path.exists():
            raise StoreError(f"{location}: expected a SQLite database, found no file {path}; check the path")
        files = _databases(path)
        if len(files) != 1:
            names = ", ".join(file.name for file in files) or "none"
            raise StoreError(
                f"{location}: expected one database with a table of sqlite-vec, found {names}; name its file"
            )
        return SqliteVecStore(location, files[0], address)

    def output(self, location: str) -> FolderOutput:
        """A folder with a database: `FOLDER#TABLE`."""
        return SqliteVecOutput(Address.parse(location))


def _databases(path: Path) -> list[Path]:
    """The databases with a table of vectors at a path."""
    if path.is_file():
        return [path] if _is_database(path) and tables_in(path) else []
    with read_errors(path):
        files = sorted(file for file in path.iterdir() if not file.name.startswith("."))
    return [file for file in files if _is_database(file) and tables_in(file)]


class SqliteVecStore(SearchableRecordStore):
    """A table of vectors in a database.

    Parameters
    ----------
    location
        As it was given, without the kind.
    file
        The database.
    address
        The location, taken apart.
    """

    def __init__(self, location: str, file: Path, address: Address) -> None:
        check_options(location, address.options, _OPTIONS)
        self.file = file
        address = _as_noted(file, address)
        self.table = table = _table(location, file, address.name)
        self.column = _vector_column(location, table, address.options.get("column"))
        self._where = f"{file}#{table.name}"
        self.opened_as = f"{self._name}{options_text(address.options)}"
        with sqlite_errors(self._where):
            self.connection = connect_to(file)
            weakref.finalize(self, self.connection.close)
            self.begins = self.beginning(self.connection)
            self.text, self.beside, said = self._find_text(location, address.options.get("text"))
            self._open_index(f"{file.absolute()}#{table.name}")
            dim = table.vectors[self.column][1]
            distance = address.options.get("distance") or table.distances[self.column]
            if distance not in get_args(Distance):
                raise UnsupportedStoreError(
                    f"{location}: expected a distance of l2 or cosine, found {distance}; say ?distance=l2 to take that"
                )
            sample = self._decode(self._ask(f"SELECT {quoted(self.column)} FROM {self._from} LIMIT {_SAMPLED}"), dim)  # noqa: S608
            metric, odd = read_metric(cast("Distance", distance), sample)
            mine = self._manifest()
            others = [name for name in table.vectors if name != self.column]
            self.info = StoreInfo(
                location=location,
                kind=NAME,
                index_type=f"vec0 float[{dim}]",
                count=self._index.count,
                dim=dim,
                metric=metric,
                exact=True,
                has_texts=self.text is not None,
                manifest=mine,
                notes=(f"the ids are those of column {table.key}", said, *odd),
                details={
                    "database": file.name,
                    "table": table.name,
                    "column": self.column,
                    "distance": distance,
                    **({"other_vectors": ", ".join(others)} if others else {}),
                },
            )

    @cached_property
    def folder(self) -> Path | None:
        """The folder of the database, where the manifest in it is of this table."""
        return None if self._manifest() is None else self.file.parent

    def keep_manifest(self, manifest: Manifest) -> Path:
        """Write it beside the database."""
        path = self.file.with_name(MANIFEST_NAME)
        if path.exists() and self._manifest() is None:
            raise UsageError(f"{path} is of another store; move the database into a folder of its own")
        own = replace(manifest, details={**manifest.details, "index": self.opened_as})
        with atomic_file(path, force=True) as aside:
            write_json(aside, own.as_json())
        return path

    def destination(self, location: Path, dim: int, resume: Resume = FROM_THE_START) -> StoreWriter:
        """A writer of a copy of the database."""
        return _CopyWriter(self, location, dim, resume)

    def exchange(self, new: Store) -> Exchange:
        """See `Switchable`: the new table is brought into the database, and the two trade names."""
        from migrate.stores.sqlite_vec.switch import SqliteVecExchange

        if not isinstance(new, SqliteVecStore):
            raise UsageError(f"{new.info.location}: expected a table of sqlite-vec, found another kind of store")
        return SqliteVecExchange.of(self, new)

    def strangers(self) -> list[str]:
        """What lies beside the database."""
        own = {self.file.name, *(f"{self.file.name}-{ending}" for ending in ("wal", "shm", "journal")), *BESIDE}
        return sorted(path.name for path in self.file.parent.iterdir() if path.name not in own)

    def exchanged(self) -> Exchange | None:
        """See `Switchable`."""
        from migrate.stores.sqlite_vec.switch import SqliteVecExchange

        return SqliteVecExchange.at(self)

    def answering(self) -> Any:
        """See `Named`: where in the file the rows of the table begin."""
        from migrate.stores.sqlite_vec.switch import SqliteVecExchange

        if SqliteVecExchange.is_under_way(self):
            return None
        with sqlite_errors(self._where), closing(connect_to(self.file)) as connection:
            return self.beginning(connection)

    def beginning(self, connection: Connection) -> list[list[Any]]:
        """Where the rows of what has the name of the table begin."""
        question = "SELECT name, rootpage FROM sqlite_master WHERE name IN (?1 || '_rowids', ?1 || '_chunks')"
        return sorted(list(row) for row in connection.execute(question, (self.table.name,)))

    def _serve(self) -> SqliteVecServing:
        from migrate.stores.sqlite_vec.serve import SqliteVecServing

        return SqliteVecServing(self)

    @property
    def _name(self) -> str:
        return f"{self.file.name}#{self.table.name}"

    @property
    def _from(self) -> str:
        return quoted(self.table.name)

    def _manifest(self) -> Manifest | None:
        manifest = find_manifest(self.file.parent, "store")
        is_own = manifest is not None and (manifest.store.index or self._name).partition("?")[0] == self._name
        return manifest if is_own else None

    def _find_text(self, location: str, asked: str | None) -> tuple[str | None, str | None, str]:
        """The column of texts, the table beside that has it, and why."""
        columns = [name for name, kind in self.table.columns.items() if kind == "text" and name != _METADATA]
        beside = self._tables_beside()
        if asked is not None and "." in asked:
            table, _, column = asked.partition(".")
            if column not in beside.get(table, ()):
                have = ", ".join(f"{name}.{text}" for name, texts in beside.items() for text in texts) or "none"
                raise StoreError(f"{location}: expected a column of texts {asked!r}, found {have}; name one of these")
            return column, table, f"the texts are those of {asked}, as the location says"
        if asked is None and not columns:
            usual = [(name, text) for name, texts in beside.items() for text in texts if text in TEXT_NAMES]
            if len(usual) == 1:
                table, column = usual[0]
                return column, table, f"the texts are those of {table}.{column}, by its name; say ?text=TABLE.COLUMN"
            could = ", ".join(f"{name}.{text}" for name, texts in beside.items() for text in texts)
            return None, None, f"no texts: it could be {could or 'no column'}; say ?text=TABLE.COLUMN for one"
        chosen, reason = choose_text(location, columns, asked)
        return chosen, None, reason

    def _tables_beside(self) -> dict[str, list[str]]:
        """Ordinary tables that have the key of the vectors, and their columns that may hold texts."""
        listed = "SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'create virtual%'"
        shadows = ("sqlite_", *(f"{name}_" for name in tables_in(self.file)))
        beside = {}
        for (name,) in self._ask(listed):
            if not name.startswith(shadows):
                columns = self._ask(f"PRAGMA table_info({quoted(name)})")
                texts = [column[1] for column in columns if re.match(r"(?i)$|text|varchar|char|clob", column[2])]
                beside[name] = [text for text in texts if text != self._key_of(name)]
        return beside

    def _key_of(self, table: str) -> str:
        """The column of an ordinary table that the key of the vectors is found in."""
        keys = [column[1] for column in self._ask(f"PRAGMA table_info({quoted(table)})") if column[5]]
        return keys[0] if len(keys) == 1 else "rowid"

    def _version(self) -> list[Any]:
        """Size and time of the database, and of what was written to it last."""
        files = [self.file, self.file.with_name(f"{self.file.name}-wal")]
        with read_errors(self.file):
            stats = [file.stat() for file in files if file.exists()]
        return [[status.st_size, status.st_mtime_ns, status.st_ino] for status in stats if status.st_size]

    def scan(self, start: int = 0, stop: int | None = None, *, batch_size: int = BATCH_SIZE) -> Iterator[Batch]:
        """The vectors of rows `start` to `stop`; a large part of the table is read as it lies and put in order."""
        stop = self.info.count if stop is None else min(stop, self.info.count)
        is_large = (stop - start) * _LARGE >= self.info.count
        rows = self.rows_as_read() if is_large and start < stop else None
        if rows is None:
            yield from super().scan(start, stop, batch_size=batch_size)
            return
        kept = (rows >= start) & (rows < stop)
        arrivals, places = self._arriving(kept), rows[kept] - start
        is_sorted = np.array_equal(places, np.arange(len(places)))
        parts = arrivals if is_sorted else in_order(arrivals, places, self.info.dim, cache_folder() / "copies")
        for vectors in cut(parts, self.info.dim, batch_size):
            yield Batch(LazyIds(len(vectors), partial(self.ids, range(start, start + len(vectors)))), vectors)
            start += len(vectors)

    def _arriving(self, kept: NDArray[np.bool_]) -> Iterator[Vectors]:
        """The vectors in the order of the table; `kept` says of each whether it is wanted."""
        with sqlite_errors(self._where):
            rows = self.connection.execute(f"SELECT {quoted(self.column)} FROM {self._from}")  # noqa: S608
            for first in range(0, len(kept), _AT_ONCE):
                there = kept[first : first + _AT_ONCE]
                vectors = self._decode(islice(rows, _AT_ONCE), self.info.dim)
                if len(vectors) != len(there):
                    raise StoreError(
                        f"{self._where}: the table changed while it was read; run again on a store at rest"
                    )
                yield vectors if there.all() else vectors[there]

    def _read_ids(self) -> Iterator[str]:
        with sqlite_errors(self._where):
            for (key,) in self.connection.execute(f"SELECT {quoted(self.table.key)} FROM {self._from}"):  # noqa: S608
                yield str(key)

    def _read_vectors(self, ids: Sequence[str]) -> Batch:
        rows = self._records(ids, [self.table.key, self.column])
        return Batch([str(row[0]) for row in rows], self._decode((row[1:] for row in rows), self.info.dim))

    def _read_documents(self, ids: Sequence[str]) -> Iterator[Document]:
        table = self.table
        names = [*table.columns, *(name for name in table.vectors if name != self.column)]
        rows = self._records(ids, [table.key, *names])
        beside = {} if self.beside is None else self._beside(ids)
        for key, *values in rows:
            facts = {name: self._plain(name, value) for name, value in zip(names, values, strict=True)}
            facts.update(beside.get(str(key), {}))
            text = facts.pop(self.text, None) if self.text is not None else None
            yield Document(str(key), text or "", _with_metadata(facts))

    def _beside(self, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        table, key = str(self.beside), self._key_of(str(self.beside))
        question = (
            f"SELECT CAST(b.{quoted(key)} AS TEXT), b.* FROM json_each(?) j CROSS JOIN {quoted(table)} b "  # noqa: S608
            f"WHERE b.{quoted(key)} = j.value"
        )
        with sqlite_errors(self._where):
            cursor = self.connection.execute(question, (self._keys(ids),))
            rows = cursor.fetchall()
            names = [column[1] for column in self._ask(f"PRAGMA table_info({quoted(table)})")]
        return {
            str(row[0]): {name: value for name, value in zip(names, row[1:], strict=True) if name != key}
            for row in rows
        }

    def _records(self, ids: Sequence[str], columns: Sequence[str]) -> list[tuple[Any, ...]]:
        """Columns of some records, the key first; joined so that each is looked up, where IN would scan the table."""
        keys = self.keys(ids)
        # the place in the list instead of the key, which the table would look up once more
        names = ", ".join(["j.key", *(f"v.{quoted(name)}" for name in columns[1:])])
        question = (
            f"SELECT {names} FROM json_each(?) j CROSS JOIN {self._from} v WHERE v.{quoted(self.table.key)} = j.value"  # noqa: S608
        )
        with sqlite_errors(self._where):
            rows = self.connection.execute(question, (json.dumps(keys, ensure_ascii=False),))
            return [(keys[place], *values) for place, *values in rows]

    def _keys(self, ids: Sequence[str]) -> str:
        return json.dumps(self.keys(ids), ensure_ascii=False)

    def keys(self, ids: Sequence[str]) -> list[str] | list[int]:
        """The keys that the table has of some ids; of what is no key of it, none."""
        if self.table.key != "rowid" and not self._has_number_key:
            return list(ids)
        return [int(doc_id) for doc_id in ids if _WHOLE.fullmatch(doc_id)]

    @cached_property
    def _has_number_key(self) -> bool:
        return (
            re.search(rf"\b{re.escape(self.table.key)}\s+integer\b", self.table.definition, re.IGNORECASE) is not None
        )

    def _plain(self, name: str, value: Any) -> Any:
        """A value as metadata hold it: numbers of a vector as a list."""
        if name in self.table.vectors:
            return np.frombuffer(value, _ELEMENTS[self.table.vectors[name][0]]).tolist()
        return value

    def _ask(self, question: str) -> list[tuple[Any, ...]]:
        return list(self.connection.execute(question))

    @staticmethod
    def _decode(rows: Iterable[tuple[bytes, ...]], dim: int) -> Vectors:
        return np.frombuffer(b"".join(row[0] for row in rows), "<f4").astype(np.float32).reshape(-1, dim)


def _as_noted(file: Path, address: Address) -> Address:
    """The address, completed by what a manifest beside the database notes of the table that it is of."""
    manifest = find_manifest(file.parent, "store")
    noted = Address.parse((manifest.store.index or "") if manifest is not None else "")
    if noted.place != file.name or address.name not in ("", noted.name):
        return address
    return Address(address.place, noted.name, {**noted.options, **address.options})


def _table(location: str, file: Path, name: str) -> VectorTable:
    tables = tables_in(file)
    if name in tables:
        return tables[name]
    tables = {label: table for label, table in tables.items() if not label.endswith(ASIDE)}
    if not name and len(tables) == 1:
        return next(iter(tables.values()))
    words = repr(name) if name else "no name"
    raise StoreError(
        f"{location}: expected the name of a table of vectors after a #, found {words}; there are {', '.join(tables)}"
    )


def _vector_column(location: str, table: VectorTable, asked: str | None) -> str:
    floats = [name for name, (kind, _) in table.vectors.items() if kind in _FLOATS]
    if asked in floats:
        return str(asked)
    if asked is None and len(floats) == 1:
        return floats[0]
    have = ", ".join(f"{name} {kind}[{dim}]" for name, (kind, dim) in table.vectors.items())
    error = StoreError if floats else UnsupportedStoreError
    raise error(f"{location}: expected one column of floats, found {have}; name one with ?column=NAME")


def _with_metadata(facts: dict[str, Any]) -> dict[str, Any]:
    """Columns as metadata, and in the place of a column `metadata` of JSON its fields."""
    try:
        inner = json.loads(facts[_METADATA])
    except (KeyError, TypeError, ValueError):
        return facts
    outer = {name: value for name, value in facts.items() if name != _METADATA}
    if not isinstance(inner, dict) or inner.keys() & outer.keys():
        return facts
    return {**inner, **outer}


class SqliteVecOutput(FolderOutput):
    """A folder with a database, for documents of any kind: `FOLDER#TABLE`."""

    def __init__(self, address: Address) -> None:
        super().__init__(Path(address.place))
        check_options(f"{NAME}:{address.place}", address.options, ())
        self.table = address.name or TABLE_NAME
        if not re.fullmatch(r"[A-Za-z_]\w*", self.table):
            raise UsageError(
                f"{NAME}:{address.place}#{self.table}: expected a table of letters and digits; name another"
            )

    def writer(self, source: Store, content: Path, dim: int, resume: Resume) -> StoreWriter:
        """A copy of the source's database, or a new one."""
        if not isinstance(source, SqliteVecStore):
            return _NewWriter(self.table, source, content, dim, resume)
        if self.table not in (TABLE_NAME, source.table.name):
            raise UsageError(f"{self.path}: the table of a copy is called {source.table.name}, as in the source")
        return source.destination(content, dim, resume)

    def facts(self, source: Store, content: Path, sha256: Sha256 = sha256_file) -> Mapping[str, Any]:
        """The table, and how a copy is opened; a database that is in use has no hash."""
        is_copy = isinstance(source, SqliteVecStore)
        return StoreFacts(index=source.opened_as if is_copy else f"{FILE_NAME}#{self.table}").as_details()


class _DatabaseWriter(WaitingWriter):
    """A database that is made at once, in the place of whatever a killed run has left."""

    def _empty(self, name: str) -> Path:
        path = self.folder / name
        for ending in ("", "-journal", "-wal", "-shm"):
            path.with_name(f"{name}{ending}").unlink(missing_ok=True)
        return path


class _CopyWriter(_DatabaseWriter):
    """A copy of the whole database, with the one table made again."""

    source: SqliteVecStore

    def load(self) -> None:
        """Copy the database page by page, then fill the table."""
        source, table = self.source, self.source.table
        path = self._empty(source.file.name)
        others = [*table.columns, *(name for name in table.vectors if name != source.column)]
        kinds = [table.vectors[name][0] if name in table.vectors else "" for name in others]
        columns = ", ".join(quoted(name) for name in (table.key, source.column, *others))
        places = ", ".join(["?", "?", *(INSERTED.get(kind, "?") for kind in kinds)])
        insert = f"INSERT INTO {quoted(table.name)} ({columns}) VALUES ({places})"  # noqa: S608
        with sqlite_errors(path), closing(connect_to(path, write=True)) as copy:
            with copy.backup("main", source.connection, "main") as backup:
                backup.step()
            with copy:
                copy.execute(f"DROP TABLE {quoted(table.name)}")
                copy.execute(table.with_dimension(source.column, self.rows.dim))
                copy.executemany(insert, self._rows(others))

    def _rows(self, others: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        """The records of the source with new vectors: in the order of the table, unless it was written to since."""
        source, rows = self.source, self.source.rows_as_read()
        columns = [source.table.key, *others]
        if rows is None:
            for batch in self.batches():
                known = {str(record[0]): record for record in source._records(batch.ids, columns)}
                source._refuse_gone(batch.ids, known)
                for doc_id, vector in zip(batch.ids, batch.vectors, strict=True):
                    yield known[doc_id][0], vector.astype("<f4").tobytes(), *known[doc_id][1:]
            return
        names = ", ".join(map(quoted, columns))
        records = source.connection.execute(f"SELECT {names} FROM {source._from}")  # noqa: S608
        for first in range(0, len(rows), _AT_ONCE):
            part = self.vectors_at(rows[first : first + _AT_ONCE]).astype("<f4", copy=False)
            for vector, (key, *values) in zip(part, islice(records, len(part)), strict=True):
                yield key, vector.tobytes(), *values


class _NewWriter(_DatabaseWriter):
    """A database with one table of documents."""

    def __init__(self, table: str, source: Store, folder: Path, dim: int, resume: Resume) -> None:
        super().__init__(source, folder, dim, resume)
        self._table = table

    def load(self) -> None:
        """Make the table."""
        path, table = self._empty(FILE_NAME), quoted(self._table)
        metric = self.source.info.metric
        if metric == "ip" and self.source.info.details.get("distance") != "cosine":
            self.remarks = (
                *self.remarks,
                "sqlite-vec has no inner product: the new table compares by cosine, which ranks unit vectors alike",
            )
        distance = {"l2": "L2", "ip": "cosine"}[metric]
        columns = f"id text primary key, embedding float[{self.rows.dim}] distance_metric={distance}, +content text"
        with sqlite_errors(path), closing(connect_to(path, write=True)) as connection, connection:
            connection.execute(f"CREATE VIRTUAL TABLE {table} USING vec0({columns}, +{_METADATA} text)")
            insert = f"INSERT INTO {table} (id, embedding, content, {_METADATA}) VALUES (?, ?, ?, ?)"  # noqa: S608
            for documents, vectors in self.records():
                connection.executemany(insert, map(self._row, documents, vectors))

    def _row(self, document: Document, vector: Vectors) -> tuple[Any, ...]:
        try:
            metadata = json.dumps(dict(document.metadata), ensure_ascii=False)
        except (TypeError, ValueError) as error:
            raise StoreError(
                f"document {document.id!r}: expected metadata that JSON can hold, found other ({error})"
            ) from error
        text = document.text if self.source.info.has_texts else None
        return document.id, vector.astype("<f4").tobytes(), text, metadata
