"""A kind of store that has no rows: `sqlite:FILE#TABLE`, whose records are found by id alone."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np

from migrate.errors import StoreError
from migrate.locations import Address
from migrate.manifest import find_manifest
from migrate.stores.base import FROM_THE_START, StoreInfo
from migrate.stores.records import RecordStore, WaitingWriter
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
        address = Address.parse(location)
        return SqliteStore(location, Path(address.place), address.name)


class SqliteStore(RecordStore):
    def __init__(self, location, file, table):
        self._file, self._table = file, table
        if not file.is_file():
            raise StoreError(f"{location}: expected a database, found none; check the path")
        facts = self._ask("SELECT metric, dim FROM tables WHERE name = ?", [table])
        if not facts:
            raise StoreError(f"{location}: expected a table {table!r}, found none; name another after the #")
        (metric, dim), count = facts[0], self._open_index(f"{file}#{table}").count
        manifest = find_manifest(file.parent, "store")
        self.info = StoreInfo(location, "sqlite", "blobs", count, dim, metric, True, True, manifest)

    @property
    def folder(self):
        return self._file.parent

    def destination(self, location, dim, resume=FROM_THE_START):
        return SqliteWriter(self, location, dim, resume)

    def _version(self):
        status = self._file.stat()
        return [status.st_size, status.st_mtime_ns, status.st_ino]

    def _read_ids(self):
        return (doc_id for (doc_id,) in self._ask(f'SELECT id FROM "{self._table}" ORDER BY text'))

    def _read_vectors(self, ids):
        records = list(self._records(ids, "id, vector"))
        vectors = [np.frombuffer(vector, "<f4") for _, vector in records]
        return Batch([doc_id for doc_id, _ in records], np.array(vectors, np.float32).reshape(-1, self.info.dim))

    def _read_documents(self, ids):
        return (Document(*facts, json.loads(meta)) for *facts, meta in self._records(ids, "id, text, meta"))

    def _records(self, ids, columns):
        for doc_id in ids:
            yield from self._ask(f'SELECT {columns} FROM "{self._table}" WHERE id = ?', [doc_id])

    def _ask(self, question, values=()):
        with closing(sqlite3.connect(f"file:{self._file}?mode=ro", uri=True)) as connection:
            return connection.execute(question, values).fetchall()


class SqliteWriter(WaitingWriter):
    def load(self):
        records = (pair for documents, vectors in self.records() for pair in zip(documents, vectors, strict=True))
        create(self.folder / NAME, "docs", self.source.info.metric, self.rows.dim, records)


KIND = SqliteKind()
