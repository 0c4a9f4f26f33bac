"""Reading the SQLite database of a store that may be in use, or was left by a program that was killed."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path


@contextmanager
def read_only(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that writes nothing; but what a killed writer has left half written is undone first.

    SQLite does that for any program that opens the database, and cannot for one that may only read.

    Raises
    ------
    sqlite3.Error
        SQLite cannot read it.
    """
    place = path.absolute().as_uri()
    with closing(sqlite3.connect(f"{place}?mode=ro", uri=True)) as connection:
        try:
            connection.execute("SELECT 1 FROM sqlite_master").fetchone()
        except sqlite3.Error as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_READONLY_ROLLBACK:
                raise
            with closing(sqlite3.connect(f"{place}?mode=rw", uri=True)) as healing:
                healing.execute("SELECT 1 FROM sqlite_master").fetchone()
        yield connection
