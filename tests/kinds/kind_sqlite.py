"""Ordinary tables of SQLite."""

import json
import sqlite3

from kind_base import SqliteFile, add_customers, place_of


class Sqlite(SqliteFile):
    """A table with metadata in JSON, as in many an application."""

    scheme, values = "sqlite", "?, ?, ?, ?"

    def connect(self, location):
        return sqlite3.connect(place_of(location), isolation_level=None)

    def make(self, folder, records, metric="l2", name=None):
        return f"{super().make(folder, records, metric, name)}?distance={metric}"

    def columns(self, name, dim):
        return f'TABLE "{name}" (id TEXT PRIMARY KEY, content TEXT, metadata TEXT, e BLOB)'

    def row(self, document, vector):
        content = None if vector is None else vector.tobytes()
        return document.id, document.text, json.dumps(dict(document.metadata)), content


class SqliteAmongOthers(Sqlite):
    """The same beside another table, with an index, a view, a trigger and a row without a vector."""

    def create(self, connection, name, records, metric="l2"):
        super().create(connection, name, records, metric)
        add_customers(connection)
        connection.execute(f"CREATE INDEX contents ON {name} (content)")
        connection.execute(
            f"CREATE TRIGGER noted AFTER UPDATE ON {name} BEGIN INSERT INTO customers (name) VALUES ('x'); END"
        )
        connection.execute(f"INSERT INTO {name} VALUES ('no vector', 'x', NULL, NULL)")
