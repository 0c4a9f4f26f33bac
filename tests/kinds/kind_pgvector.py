"""Tables of PostgreSQL with pgvector."""

import datetime
import decimal
import json
import time
from urllib.parse import urlsplit

import numpy as np
from kind_base import Kind, name_of, parts, rows_of, vectors_of
from postgres import as_text, connect, server_url


class Pgvector(Kind):
    """A table with metadata in JSON and an index; `columns` are those that `row` fills."""

    columns = ("id", "content", "metadata", "embedding")

    def __init__(self, url=None):
        self.url = url

    def make(self, folder, records, metric="l2"):
        return self.create(f"t{time.time_ns():x}", records, metric)

    def create(self, table, records, metric="l2"):
        """Make a table, in the place of one of that name."""
        with connect(self.url) as connection:
            connection.execute(f"DROP TABLE IF EXISTS {table}")
            self.make_table(connection, table, vectors_of(records).shape[1], metric)
        self.put(table, records, list(records))
        return self.location(table)

    def location(self, table):
        return f"pgvector:{self.url or server_url()}#{table}"

    def make_table(self, connection, table, dim, metric):
        connection.execute(
            f"CREATE TABLE {table} (id text PRIMARY KEY, content text, metadata jsonb, embedding vector({dim}))"
        )
        connection.execute(f"CREATE INDEX ON {table} USING hnsw (embedding vector_{metric}_ops)")

    def put(self, table, records, names, gone=()):
        names_of_columns = ", ".join(self.columns)
        marks = ", ".join(["%s"] * len(self.columns))
        again = ", ".join(f"{column} = excluded.{column}" for column in self.columns)
        with connect(self.url) as connection, connection.cursor() as cursor:
            cursor.executemany(
                f"INSERT INTO {table} ({names_of_columns}) VALUES ({marks}) ON CONFLICT (id) DO UPDATE SET {again}",
                [self.row(*records[one]) for one in names],
            )
            cursor.execute(f"DELETE FROM {table} WHERE id = ANY(%s)", [list(gone)])

    def row(self, document, vector):
        return document.id, document.text, json.dumps(dict(document.metadata)), as_text(vector)

    def change(self, location, before, after):
        self.put(table_of(location), after, *parts(before, after))

    def place(self, folder):
        return self.location(f"n{time.time_ns():x}")

    def files(self, location):
        return None

    def read(self, location):
        table = table_of(location)
        with connect(self.url) as connection:
            columns = connection.execute(
                "SELECT attname, format_type(atttypid, atttypmod), attnotnull, attgenerated FROM pg_attribute "
                "WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped",
                [table],
            ).fetchall()
            indexes = connection.execute("SELECT indexname, indexdef FROM pg_indexes WHERE tablename = %s", [table])
            facts = {"columns": {name: " ".join(map(str, rest)) for name, *rest in columns}}
            facts["indexes"] = {name: f"{made} ;" for name, made in indexes.fetchall()}
            # NOT NULL is said of the columns, and a constraint of its own from PostgreSQL 18 on
            checks = connection.execute(
                "SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint "
                "WHERE conrelid = %s::regclass AND contype <> 'n'",
                [table],
            )
            facts["checks"] = {name: f"{made} ;" for name, made in checks.fetchall()}
            facts["comment"] = connection.execute("SELECT obj_description(%s::regclass)", [table]).fetchone()[0]
            cursor = connection.execute(f'SELECT * FROM {table} ORDER BY id COLLATE "C"')
            names = [column.name for column in cursor.description]
            rows = [dict(zip(names, map(plain, row), strict=True)) for row in cursor]
        return rows_of(rows, "embedding", lambda text: np.array(json.loads(str(text)), np.float32)), facts


class TypedPgvector(Pgvector):
    """A table of a database of its own: columns of many types, keys, indexes, and rows without a vector."""

    columns = ("tenant", "id", "content", "nested", "number", "float", "price", "tags", "flag", "made", "raw", "small",
               "embedding")  # fmt: skip

    @classmethod
    def started(cls, ends, folder):
        # what other tests leave on the server is not listed with this
        with connect() as connection:
            connection.execute("DROP DATABASE IF EXISTS golden WITH (FORCE)")
            connection.execute("CREATE DATABASE golden")
        url = urlsplit(server_url())._replace(path="/golden").geturl()
        with connect(url) as connection:
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        return cls(url)

    def make(self, folder, records):
        table = f"golden_{folder.name}"
        self.create(table, records)
        with connect(self.url) as connection:
            connection.execute(
                f"INSERT INTO {table} (tenant, id) SELECT 0, 'no vector ' || n FROM generate_series(0, 2) n"
            )
        return self.place(folder)

    def make_table(self, connection, table, dim, metric):
        connection.execute(
            f"CREATE TABLE {table} (tenant int NOT NULL, id text PRIMARY KEY, content text, nested jsonb, "
            "number bigint CHECK (number < 1000000), float double precision DEFAULT 0.5, price numeric, "
            "tags text[], flag boolean, made timestamptz, raw bytea, "
            "twice bigint GENERATED ALWAYS AS (number * 2) STORED, "
            f"small vector(8), embedding vector({dim}))"
        )
        connection.execute(f"CREATE INDEX ON {table} USING hnsw (embedding vector_{metric}_ops) WITH (m = 12)")
        connection.execute(f"CREATE INDEX ON {table} (tenant, number)")
        connection.execute(f"COMMENT ON TABLE {table} IS 'of \u00fc'")

    def row(self, document, vector):
        from psycopg.types.json import Jsonb

        fields, row = document.metadata, document.metadata["page"]
        return (
            row % 3,
            document.id,
            document.text,
            Jsonb(fields.get("nested")),
            None if row % 17 == 0 else row,
            fields["score"],
            decimal.Decimal(row) / 7,
            [fields.get("source", ""), "b"] if row % 5 else [],
            (None, True, False)[row % 3],
            None if row % 7 == 0 else fields["made"],
            bytes([row % 256, 0, 255]),
            as_text(vector[:8]) if row % 4 else None,
            as_text(vector),
        )

    def place(self, folder):
        return self.location(f"golden_{folder.name}.embedding")

    def left(self):
        """All tables."""
        with connect(self.url) as connection:
            found = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        return {name: True for (name,) in found}


def table_of(location):
    return name_of(location).partition(".")[0]


def plain(value):
    return str(value) if isinstance(value, datetime.datetime) else value
