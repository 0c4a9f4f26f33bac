"""Tables of vectors in a SQLite database, and how it is asked.

SQLite is spoken to through apsw, as the sqlite3 of many a Python cannot load extensions.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from migrate.errors import OutputError, StoreError
from migrate.stores.binary_reader import read_errors
from migrate.stores.records import import_client
from migrate.stores.sqlite_read import read_only

if TYPE_CHECKING:
    from apsw import Connection


NAME: Final = "sqlite-vec"
METADATA: Final = "metadata"
"""The column of JSON that a table made here has."""
AT_ONCE: Final = 4_096
_MAGIC: Final = b"SQLite format 3\x00"
_VEC0: Final = re.compile(
    r"\s*CREATE\s+VIRTUAL\s+TABLE\b.*?\bUSING\s+vec0\s*\((.*)\)\s*;?\s*", re.IGNORECASE | re.DOTALL
)
_VECTOR: Final = re.compile(r"(\w+)\s+(float|f32|int8|i8|bit)\s*\[\s*(\d+)\s*\](.*)", re.IGNORECASE | re.DOTALL)
_COLUMN: Final = re.compile(r"(\+?)\s*(\w+)\s+(\w+)(?:\s+(primary|partition)\s+key)?", re.IGNORECASE)
_DISTANCE: Final = re.compile(r"distance_metric\s*=\s*(\w+)", re.IGNORECASE)
_TABLES: Final = "SELECT name, sql FROM sqlite_master WHERE type = 'table' AND sql LIKE 'create virtual%vec0%'"
_WAIT_MS: Final = 10_000
INSERTED: Final = {"int8": "vec_int8(?)", "i8": "vec_int8(?)", "bit": "vec_bit(?)"}
"""How values of other columns of vectors are given."""


@contextmanager
def sqlite_errors(location: object) -> Iterator[None]:
    """Turn errors of SQLite into one line."""
    apsw = import_client("apsw", NAME)
    try:
        yield
    except apsw.FullError as error:
        raise OutputError(
            f"cannot write {location}: {error}; free some space and run the same command again"
        ) from error
    except (apsw.IOError, apsw.CantOpenError, apsw.ReadOnlyError) as error:
        raise OutputError(f"{location}: SQLite cannot read or write it: {error}; check disk and permissions") from error
    except apsw.BusyError as error:
        raise StoreError(
            f"{location}: another program is writing to the database; run again when it is done"
        ) from error
    except apsw.NotADBError as error:
        raise StoreError(f"{location}: expected a SQLite database, found another file; check the path") from error
    except UnicodeDecodeError as error:
        raise StoreError(
            f"{location}: expected text in UTF-8, found other bytes; the database is damaged, copy it again"
        ) from error
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


def is_database(path: Path) -> bool:
    """Whether a path is a database of SQLite."""
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
