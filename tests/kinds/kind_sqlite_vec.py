"""Tables of sqlite-vec."""

import json

import apsw
import sqlite_vec
from kind_base import SqliteFile, add_customers, place_of, with_distance


class SqliteVec(SqliteFile):
    """A table with two columns of metadata."""

    scheme, values = "sqlite-vec", "?, ?, ?, ?, ?"

    def connect(self, location):
        connection = apsw.Connection(place_of(location))
        connection.enable_load_extension(True)
        connection.load_extension(sqlite_vec.loadable_path())
        return connection

    def make(self, folder, records, metric="l2", name=None):
        return with_distance(super().make(folder, records, metric, name), metric)

    def columns(self, name, dim):
        return (
            f'VIRTUAL TABLE "{name}" USING vec0(id text primary key, '
            f"e float[{dim}], page integer, source text, +content text)"
        )

    def row(self, document, vector):
        fields = document.metadata
        return document.id, vector.tobytes(), fields.get("page", 0), fields.get("source", ""), document.text


class TypedSqliteVec(SqliteVec):
    """Columns of each type that the extension has, beside a table of the user's own."""

    values = "?, ?, ?, vec_int8(?), ?, ?, ?, ?, ?, ?, ?, ?"

    def create(self, connection, name, records, metric="l2"):
        add_customers(connection)
        super().create(connection, name, records, metric)

    def columns(self, name, dim):
        return (
            f"VIRTUAL TABLE {name} USING vec0(id text primary key, tenant integer partition key, "
            f"e float[{dim}], small int8[8], number integer, float float, flag boolean, kind text, "
            "+content text, +meta text, +raw blob, +size integer)"
        )

    def row(self, document, vector):
        fields, row = document.metadata, document.metadata["page"]
        return (
            document.id,
            row % 3,
            vector.tobytes(),
            bytes(range(row % 100, row % 100 + 8)),
            row,
            fields["score"],
            row % 2,
            fields.get("source", ""),
            document.text,
            json.dumps(dict(fields)),
            None if row % 7 == 0 else bytes([row % 256, 0]),
            None if row % 5 == 0 else row,
        )
