"""A database of another package: `sqlite:FILE#TABLE`, which is one file."""

import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import numpy as np

from migrate.databases.driver import DatabaseRows, DatabaseSearch, Driver, Page
from migrate.databases.kind import DatabaseKind
from migrate.databases.located import DatabaseTraits
from migrate.errors import StoreError, UsageError
from migrate.stores.base import KindSupport, StoreInfo
from migrate.stores.serving import as_hits
from migrate.vectors import Document

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


class SqliteDriver(Driver):
    traits = DatabaseTraits(
        "sqlite", KindSupport("SQLite", ("sqlite:FILE#TABLE",), "", "everything", ""), has_servers=False
    )

    @classmethod
    def recognises(cls, path):
        return (path / NAME).is_file()

    @property
    def file(self):
        place = Path(self.address.place)
        return place / NAME if place.is_dir() else place

    @property
    def folder(self):
        return self.file.parent

    def files(self):
        return (self.file.name,)

    def names(self):
        return [name for (name,) in self.ask("SELECT name FROM tables ORDER BY name")]

    def open(self):
        if not self.file.is_file():
            raise StoreError(f"{self.location}: expected a database, found none; check the path")
        self.name = self.name or "docs"
        facts = self.ask("SELECT metric, dim FROM tables WHERE name = ?", [self.name])
        if not facts:
            raise StoreError(f"{self.location}: expected a table {self.name!r}, found none; name another after the #")
        return SqliteRows(self, *facts[0])

    def write_copy(self, name, dim, old, pages):
        documents = (
            (Document(doc_id, text, json.loads(meta)), vector)
            for page in pages
            for (doc_id, _, text, meta), vector in zip(page.raw, page.vectors, strict=True)
        )
        create(self.folder / NAME, name, old.metric, dim, documents)
        return ()

    def write_new(self, name, dim, source, pages):
        documents = (pair for page in pages for pair in zip(page.documents, page.vectors, strict=True))
        create(self.folder / NAME, name, source.metric, dim, documents)
        return ()

    def ask(self, question, values=()):
        with closing(sqlite3.connect(f"file:{self.file}?mode=ro", uri=True)) as connection:
            return connection.execute(question, values).fetchall()


class SqliteRows(DatabaseRows):
    def __init__(self, driver, metric, dim):
        super().__init__(driver)
        self.metric = metric
        self.dim = dim

    def describe(self):
        ((count,),) = self.driver.ask(f'SELECT count(*) FROM "{self.name}"')
        return StoreInfo(self.location, "sqlite", "blobs", count, self.dim, self.metric, True, True)

    @property
    def key(self):
        return f"{self.driver.file}#{self.name}"

    def version(self, *, of_pages=False):
        status = self.driver.file.stat()
        return [status.st_size, status.st_mtime_ns, status.st_ino]

    def pages(self, *, vectors=True, records=False):
        rows = self.driver.ask(f'SELECT * FROM "{self.name}" ORDER BY text')
        for first in range(0, len(rows), 50):
            part = rows[first : first + 50]
            yield Page([row[0] for row in part], self.as_matrix(row[1] for row in part), part)

    def documents(self, ids, at=None):
        return (Document(doc_id, text, json.loads(meta)) for doc_id, _, text, meta in self.find(ids))

    def vectors(self, ids, at=None):
        rows = list(self.find(ids))
        return Page([row[0] for row in rows], self.as_matrix(row[1] for row in rows))

    def update(self, new):
        with closing(sqlite3.connect(self.driver.file)) as connection, connection:
            rows = [(vector.astype("<f4").tobytes(), doc_id) for doc_id, vector in new.items()]
            return connection.executemany(f'UPDATE "{self.name}" SET vector = ? WHERE id = ?', rows).rowcount

    @property
    def search(self):
        return SqliteSearch(self)

    def as_matrix(self, contents):
        return np.array([np.frombuffer(one, "<f4") for one in contents], np.float32).reshape(-1, self.dim)

    def find(self, ids):
        for doc_id in ids:
            yield from self.driver.ask(f'SELECT * FROM "{self.name}" WHERE id = ?', [doc_id])


class SqliteSearch(DatabaseSearch):
    def search(self, queries, k, where):
        """Exact, over all records; `where` maps metadata to values."""
        if not isinstance(where, Mapping | None):
            raise UsageError(f"{self.rows.location}: the filter is no mapping")
        rows = self.rows.driver.ask(f'SELECT * FROM "{self.rows.name}"')
        rows = [row for row in rows if json.loads(row[3]).items() >= dict(where or {}).items()]
        vectors = self.rows.as_matrix(row[1] for row in rows)
        hits = []
        for query in queries:
            products = self.rows.metric == "ip"
            scores = vectors @ query if products else ((vectors - query) ** 2).sum(axis=1)
            best = np.argsort(-scores if products else scores)[:k]
            hits.append(as_hits([rows[row][0] for row in best], scores[best]))
        return hits


KIND = DatabaseKind(SqliteDriver)
