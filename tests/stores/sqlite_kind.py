"""A kind of store that has no rows: `sqlite:FILE#TABLE`, whose records are found by id alone."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np

from migrate.errors import StoreError
from migrate.manifest import find_manifest
from migrate.stores.base import BATCH_SIZE, FROM_THE_START, Store, StoreInfo, StoreWriter
from migrate.stores.id_index import kept_index
from migrate.stores.row_file import RowFile
from migrate.vectors import Batch, Document

NAME = "store.sqlite"


def create(file, table, metric, dim, records):
    """A table with a record (id, vector, text, metadata) for each document, made again if it is there."""
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("CREATE TABLE IF NOT EXISTS tables (name TEXT PRIMARY KEY, metric TEXT, dim INTEGER)")
        connection.execute(f'DROP TABLE IF EXISTS "{table}"')
        connection.execute("INSERT OR REPLACE INTO tables VALUES (?, ?, ?)", (table, metric, dim))
        connection.execute(f'CREATE TABLE "{table}" (id TEXT PRIMARY KEY, vector BLOB, text TEXT, meta TEXT)')
        rows = ((d.id, v.astype("<f4").tobytes(), d.text, json.dumps(dict(d.metadata))) for d, v in records)
        connection.executemany(f'INSERT INTO "{table}" VALUES (?, ?, ?, ?)', rows)


class SqliteKind:
    name = "sqlite"

    def recognises(self, path):
        return (path / NAME).is_file()

    def open(self, location):
        if Path(location).is_dir():
            return SqliteStore(location, Path(location) / NAME, "docs")
        file, _, table = location.rpartition("#")
        return SqliteStore(location, Path(file), table)


class SqliteStore(Store):
    lists = Path()
    """Where the ids are kept."""

    def __init__(self, location, file, table):
        self._file, self._table, self._location = file, table, location
        if not file.is_file():
            raise StoreError(f"{location}: expected a database, found none; check the path")
        facts = self._ask("SELECT metric, dim FROM tables WHERE name = ?", [table])
        if not facts:
            raise StoreError(f"{location}: expected a table {table!r}, found none; name another after the #")
        status = file.stat()
        version = [status.st_size, status.st_mtime_ns, status.st_ino]
        ids = (doc_id for (doc_id,) in self._ask(f'SELECT id FROM "{table}" ORDER BY text'))
        self._index = kept_index(self.lists, f"{file}#{table}", version, lambda: ids)
        (metric, dim), count = facts[0], self._index.count
        manifest = find_manifest(file.parent, "store")
        self.info = StoreInfo(location, "sqlite", "blobs", count, dim, metric, True, True, manifest)

    def scan(self, start=0, stop=None, *, batch_size=BATCH_SIZE) -> Iterator[Batch]:
        stop = self.info.count if stop is None else min(stop, self.info.count)
        for first in range(start, stop, batch_size):
            yield self._batch(range(first, min(first + batch_size, stop)))

    def get(self, rows):
        return self._batch(np.asarray(rows, np.int64))

    def documents(self, rows=None):
        rows = range(self.info.count) if rows is None else np.asarray(rows, np.int64)
        for doc_id in self._index.ids(rows):
            _, _, text, metadata = self._record(doc_id)
            yield Document(doc_id, text, json.loads(metadata))

    def destination(self, location, dim, resume=FROM_THE_START):
        return SqliteWriter(self, location, dim, resume)

    def _versions(self):
        return (self._index.sha256,)

    def _batch(self, rows):
        ids = self._index.ids(rows)
        content = b"".join(self._record(doc_id)[1] for doc_id in ids)
        return Batch(ids, np.frombuffer(content, "<f4").astype(np.float32).reshape(len(ids), self.info.dim))

    def _record(self, doc_id):
        records = self._ask(f'SELECT * FROM "{self._table}" WHERE id = ?', [doc_id])
        if not records:
            raise StoreError(f"{self._location}: expected {doc_id!r}, found it gone; run again on a store at rest")
        return records[0]

    def _ask(self, question, values=()):
        with closing(sqlite3.connect(f"file:{self._file}?mode=ro", uri=True)) as connection:
            return connection.execute(question, values).fetchall()


class SqliteWriter(StoreWriter):
    """Rows wait in a file until all are there; the table is then made at once."""

    def __init__(self, source, folder, dim, resume):
        self._source, self._folder, self._stays = source, folder, resume.scratch is not None
        waiting = (resume.scratch or folder) / f".{NAME}.rows"
        self.rows = RowFile(waiting, b"", dim, source.info.count, resume.finished)

    def finish(self):
        rows = self.rows
        rows.finish()
        vectors = np.fromfile(rows.path, "<f4").reshape(rows.rows, rows.dim)
        records = zip(self._source.documents(), vectors, strict=True)
        create(self._folder / NAME, "docs", self._source.info.metric, rows.dim, records)
        if not self._stays:
            rows.path.unlink()


KIND = SqliteKind()
