"""Reads an SQLite database of another program without a trace: nothing is locked, written or created."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from migrate.stores.binary_reader import FileIdentity, malformed, read_errors

_ROWS_PER_QUERY: Final = 1024
_MAGIC: Final = b"SQLite format 3\x00"
_HEAD_BYTES: Final = 100
_PAGE_SIZES: Final = tuple(1 << power for power in range(9, 17))


class SqliteFile:
    """A database at rest.

    Parameters
    ----------
    path
        The file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with read_errors(path):
            if not path.is_file():
                raise malformed(path, "an SQLite database", "no such file", "copy it beside the index")
            with path.open("rb") as file:
                self._identity = FileIdentity.of(file.fileno())
                head = file.read(_HEAD_BYTES)
            if not head.startswith(_MAGIC):
                raise malformed(path, "an SQLite database", "other content")
            self._check_size(head)
            self._check_rest()

    def _check_size(self, head: bytes) -> None:
        """SQLite itself misses a page that was cut off only when it comes to it."""
        if len(head) < _HEAD_BYTES:
            raise malformed(self.path, f"a header of {_HEAD_BYTES} bytes", f"{len(head)} bytes")
        stored = int.from_bytes(head[16:18], "big")
        page = 65_536 if stored == 1 else stored
        # the count of pages is valid where its writer has left the counter of changes beside it
        is_valid = page in _PAGE_SIZES and head[24:28] == head[92:96]
        pages = int.from_bytes(head[28:32], "big") if is_valid else 0
        size = pages * page
        if self._identity.size < size:
            raise malformed(self.path, f"{size} bytes in {pages} pages", f"{self._identity.size} bytes")

    def _check_rest(self) -> None:
        for ending in ("-wal", "-journal"):
            pending = self.path.with_name(self.path.name + ending)
            if pending.exists() and pending.stat().st_size:
                advice = "close the program that uses it, then try again"
                raise malformed(self.path, "a database at rest", f"unfinished changes in {pending.name}", advice)

    @contextmanager
    def connect(self) -> Iterator[sqlite3.Connection]:
        """A connection that can only read; what SQLite finds wrong is a StoreError."""
        with read_errors(self.path), self.path.open("rb") as file:
            self._identity.check(self.path, file.fileno())
        # immutable: without it even a reader creates -shm and -wal files beside a database in WAL mode
        address = f"{self.path.absolute().as_uri()}?mode=ro&immutable=1"
        try:
            with closing(sqlite3.connect(address, uri=True)) as connection:
                connection.execute("PRAGMA trusted_schema = OFF")
                yield connection
        except (sqlite3.Error, UnicodeError) as error:
            reason = str(error).splitlines()[0][:200]
            raise malformed(self.path, "the tables of a document store", f"other ({reason})") from error

    def integers(self, query: str, *parameters: Any) -> NDArray[np.int64]:
        """A column of integers; one that is none raises a StoreError."""
        with self.connect() as connection:
            try:
                column = (row[0] for row in connection.execute(query, parameters))
                return np.fromiter(column, np.int64)
            except (TypeError, ValueError, OverflowError) as error:
                raise malformed(self.path, "numbers as row ids", f"other ({error})") from error

    def first(self, query: str, *parameters: Any) -> Any:
        """The first value of the first row, None where there is no row."""
        with self.connect() as connection:
            row = connection.execute(query, parameters).fetchone()
            return None if row is None else row[0]

    def by_key(self, query: str, keys: NDArray[np.int64], *parameters: Any) -> Iterator[tuple[Any, ...]]:
        """The row of each key, in the order of `keys`, a thousand in memory at a time.

        `query` selects the key first; its first parameter is the list of wanted keys as JSON.
        """
        with self.connect() as connection:
            for first in range(0, len(keys), _ROWS_PER_QUERY):
                block = keys[first : first + _ROWS_PER_QUERY].tolist()
                by_key = {row[0]: row for row in connection.execute(query, (json.dumps(block), *parameters))}
                for key in block:
                    if key not in by_key:
                        raise malformed(self.path, f"a row with number {key}", "none")
                    yield by_key[key]
