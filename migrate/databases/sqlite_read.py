"""Reading the SQLite database of a store that may be in use, or was left by a program that was killed."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from migrate.files import open_file, refuse_endless_database


@contextmanager
def read_only(path: Path) -> Iterator[sqlite3.Connection]:
    """Yield a connection that writes nothing; but what a killed writer has left half written is undone first.

    SQLite does that for any program that opens the database, and cannot for one that may only read.
    """
    refuse_endless_database(path)
    uri = path.absolute().as_uri()
    with closing(sqlite3.connect(f"{uri}?mode=ro", uri=True)) as connection:
        try:
            connection.execute("SELECT 1 FROM sqlite_master").fetchone()
        except sqlite3.Error as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_READONLY_ROLLBACK:
                raise
            with closing(sqlite3.connect(f"{uri}?mode=rw", uri=True)) as healing:
                healing.execute("SELECT 1 FROM sqlite_master").fetchone()
        yield connection


def change_counter(path: Path) -> int:
    """Return a number that SQLite counts up with each change of a database that has no log of writes ahead.

    Two changes within a tick of the file system's clock differ in nothing else.

    References
    ----------
    SQLite, "Database File Format", 1.3.7, https://www.sqlite.org/fileformat2.html
    """
    with open_file(path) as file:
        return int.from_bytes(file.read(28)[24:])
