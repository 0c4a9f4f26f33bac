"""Vectors as hexadecimal digits in a table of SQLite: `hex:FILE#TABLE`; a folder means the file NAME in it."""

import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import numpy as np

from migrate.databases.driver import (
    DatabaseRows,
    DatabaseSearch,
    Driver,
    Page,
    check_count,
    clear_folder,
    described,
    sync_folder,
)
from migrate.databases.kind import DatabaseKind
from migrate.databases.located import DatabaseTraits
from migrate.errors import StoreError, UsageError
from migrate.stores.base import KindSupport
from migrate.stores.serving import as_hits
from migrate.vectors import Document

NAME = "store.sqlite"
PAGE = 1_000
TABLES = "CREATE TABLE IF NOT EXISTS tables (name TEXT PRIMARY KEY, metric TEXT, dim INTEGER)"
RECORDS = 'CREATE TABLE "{}" (id TEXT PRIMARY KEY, vector TEXT, text TEXT, meta TEXT)'


class SqliteDriver(Driver):
    traits = DatabaseTraits(
        kind="hex",
        support=KindSupport(
            store="SQLite with hexadecimal vectors",
            locations=("hex:FILE#TABLE",),
            extra="",  # the extra of setup.cfg that brings the client
            kept="ids, texts, metadata",
            not_kept="indexes of other columns",
        ),
        collection="table",
        has_servers=False,
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
        return (self.file.name, f"{self.file.name}-journal")

    def names(self):
        return [name for (name,) in self.ask("SELECT name FROM tables ORDER BY name")]

    def identity(self, name):
        return self.file.stat().st_ino if self.file.exists() else None

    def open(self):
        if not self.file.is_file():
            raise StoreError(f"{self.location}: there is no file {self.file}; check the path")
        self.name = self.choose_name(self.names())
        ((metric, dim),) = self.ask("SELECT metric, dim FROM tables WHERE name = ?", [self.name])
        return SqliteRows(self, metric, dim)

    def write_new(self, name, dim, source, pages):
        batches = (
            [
                (document.id, vector.astype("<f4").tobytes().hex(), document.text, json.dumps(dict(document.metadata)))
                for document, vector in zip(page.documents, page.vectors, strict=True)
            ]
            for page in pages
        )
        self.write_table(name, source.metric, dim, batches)
        return []

    def write_copy(self, name, dim, old, pages):
        # of each row as `old.pages` has read it, all but the vector stays
        batches = (
            [
                (doc_id, vector.astype("<f4").tobytes().hex(), text, meta)
                for (doc_id, _, text, meta, _), vector in zip(page.raw, page.vectors, strict=True)
            ]
            for page in pages
        )
        self.write_table(name, old.distance, dim, batches)
        return []

    def write_table(self, name, metric, dim, batches):
        clear_folder(self)
        written = 0
        with closing(sqlite3.connect(self.file)) as connection, connection:
            connection.execute(TABLES)
            connection.execute("INSERT OR REPLACE INTO tables VALUES (?, ?, ?)", (name, metric, dim))
            connection.execute(f'DROP TABLE IF EXISTS "{name}"')
            connection.execute(RECORDS.format(name))
            for rows in batches:
                connection.executemany(f'INSERT INTO "{name}" VALUES (?, ?, ?, ?)', rows)
                written += len(rows)
        ((count,),) = self.ask(f'SELECT count(*) FROM "{name}"')
        check_count(self.location, written, count)
        sync_folder(self)

    def ask(self, question, values=()):
        # a connection for each question, as several threads ask
        with closing(sqlite3.connect(f"file:{self.file}?mode=ro", uri=True)) as connection:
            return connection.execute(question, values).fetchall()


class SqliteRows(DatabaseRows):
    def __init__(self, driver, metric, dim):
        super().__init__(driver)
        self.dim = dim
        self.distance = metric
        self.vector = "vector"

    def describe(self):
        self.text = "text"
        ((count,),) = self.driver.ask(f'SELECT count(*) FROM "{self.name}"')
        sample = self.driver.ask(f'SELECT vector FROM "{self.name}" LIMIT 32')
        vectors = self.as_matrix(vector for (vector,) in sample)
        return described(self, "digits", count, vectors, details={"table": self.name}, notes=[])

    @property
    def key(self):
        return f"{self.driver.file.absolute()}#{self.name}"

    def version(self, *, of_pages=False):
        status = self.driver.file.stat()
        return [status.st_size, status.st_mtime_ns, status.st_ino]

    def pages(self, *, vectors=True, records=False):
        question = (
            f'SELECT id, vector, text, meta, rowid FROM "{self.name}" WHERE rowid > ? ORDER BY rowid LIMIT {PAGE}'
        )
        last = 0
        while rows := self.driver.ask(question, [last]):
            yield Page([row[0] for row in rows], self.as_matrix(row[1] for row in rows), rows)
            last = rows[-1][-1]

    def documents(self, ids, at=None):
        return (Document(doc_id, text, json.loads(meta)) for doc_id, _, text, meta in self.find(ids))

    def vectors(self, ids, at=None):
        rows = self.find(ids)
        return Page([row[0] for row in rows], self.as_matrix(row[1] for row in rows))

    def update(self, new):
        with closing(sqlite3.connect(self.driver.file)) as connection, connection:
            rows = [(vector.astype("<f4").tobytes().hex(), doc_id) for doc_id, vector in new.items()]
            return connection.executemany(f'UPDATE "{self.name}" SET vector = ? WHERE id = ?', rows).rowcount

    @property
    def search(self):
        return SqliteSearch(self)

    def find(self, ids):
        question = f'SELECT id, vector, text, meta FROM "{self.name}" WHERE id IN (SELECT value FROM json_each(?))'
        return self.driver.ask(question, [json.dumps(list(ids))])

    def as_matrix(self, contents):
        rows = [np.frombuffer(bytes.fromhex(content), "<f4") for content in contents]
        return np.array(rows, np.float32).reshape(-1, self.dim)


class SqliteSearch(DatabaseSearch):
    def search(self, queries, k, where):
        # all records are compared, as SQLite has no index of vectors
        if not isinstance(where, Mapping | None):
            raise UsageError(f"{self.rows.location}: the filter is {type(where).__name__}, not a mapping; give it one")
        conditions = dict(where or {}).items()
        rows = self.rows.driver.ask(f'SELECT id, vector, meta FROM "{self.rows.name}"')
        rows = [row for row in rows if json.loads(row[2]).items() >= conditions]
        vectors = self.rows.as_matrix(row[1] for row in rows)
        hits = []
        for query in queries:
            if self.rows.distance == "l2":
                scores = ((vectors - query) ** 2).sum(axis=1)
                best = np.argsort(scores)[:k]
            else:
                scores = vectors @ query
                best = np.argsort(-scores)[:k]
            hits.append(as_hits([rows[row][0] for row in best], scores[best]))
        return hits


KIND = DatabaseKind(SqliteDriver)
