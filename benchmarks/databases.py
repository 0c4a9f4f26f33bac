"""Rows per second that databases are read and written with, beside the client's own bulk path in the same run.

    python benchmarks/databases.py [ROWS] [DIMENSION]

A PostgreSQL with pgvector (from `pgserver`, or at TEST_POSTGRES_URL) and sqlite-vec; no index on the vectors, as
building one takes longer than everything else. Opening a store makes the list of its ids; writing is a copy of the
table with other vectors, and includes its check. Memory is the most that this process ever had, after each kind.
"""

import json
import os
import resource
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

import numpy as np

from migrate.stores import open_store
from migrate.stores.base import Resume
from migrate.stores.registry import output_of
from migrate.vectors import Batch, Document

ROWS, DIM = (int(argument) for argument in (*sys.argv[1:], "20000", "384")[:2])
TEXT = "some words of a document " * 8


def documents():  # noqa: ANN201, D103
    return (Document(f"doc-{row:08}", TEXT + str(row), {"page": row, "tags": ["a", None]}) for row in range(ROWS))


def parts(size=4_096):  # noqa: ANN001, ANN201
    """The vectors, some at a time, the same each time."""
    for first in range(0, ROWS, size):
        yield np.random.default_rng(first).normal(size=(min(size, ROWS - first), DIM)).astype(np.float32)


def records():  # noqa: ANN201, D103
    vectors = (vector for part in parts() for vector in part)
    return zip(documents(), vectors, strict=True)


def timed(run):  # noqa: ANN001, ANN201, D103
    started = time.perf_counter()
    run()
    return ROWS / (time.perf_counter() - started)


class Pgvector:
    """PostgreSQL: COPY in binary, by the types of the Python package pgvector."""

    name = "pgvector"

    def __init__(self, folder):  # noqa: ANN001, ANN204
        self.url = os.environ.get("TEST_POSTGRES_URL")
        if self.url is None:
            import pgserver

            os.chmod(folder, 0o755)
            self._server = pgserver.get_server(f"{folder}/data", cleanup_mode="delete")
            self.url = self._server.get_uri().replace("postgres:@", "postgres@")
        self.location, self.new = (f"pgvector:{self.url}#lm_bench_{name}" for name in ("old", "new"))

    def connect(self):  # noqa: ANN201, D102
        import psycopg
        from pgvector.psycopg import register_vector

        connection = psycopg.connect(self.url, autocommit=True)
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        register_vector(connection)
        return connection

    def write(self):  # noqa: ANN201, D102
        from psycopg.types.json import Jsonb

        with self.connect() as connection, connection.transaction(), connection.cursor() as cursor:
            cursor.execute("DROP TABLE IF EXISTS lm_bench_old, lm_bench_new")
            cursor.execute(
                f"CREATE TABLE lm_bench_old (id text, content text, metadata jsonb, embedding vector({DIM}))"
            )
            with cursor.copy("COPY lm_bench_old FROM STDIN (FORMAT BINARY)") as copy:
                copy.set_types(["text", "text", "jsonb", "vector"])
                for document, vector in records():
                    copy.write_row((document.id, document.text, Jsonb(dict(document.metadata)), vector))
            cursor.execute("ALTER TABLE lm_bench_old ADD PRIMARY KEY (id)")

    def read(self):  # noqa: ANN201, D102
        with self.connect() as connection, connection.cursor() as cursor:
            question = "COPY (SELECT id, embedding FROM lm_bench_old ORDER BY id) TO STDOUT (FORMAT BINARY)"
            with cursor.copy(question) as copy:
                copy.set_types(["text", "vector"])
                for _ in copy.rows():
                    pass

    def tidy(self):  # noqa: ANN201, D102
        with self.connect() as connection:
            connection.execute("DROP TABLE IF EXISTS lm_bench_old, lm_bench_new")


class SqliteVec:
    """sqlite-vec: one transaction of single inserts, one scan."""

    name = "sqlite-vec"

    def __init__(self, folder):  # noqa: ANN001, ANN204
        self.file = Path(folder, "bench.db")
        self.location, self.new = f"sqlite-vec:{self.file}#docs", f"{folder}/new"

    def connect(self):  # noqa: ANN201, D102
        import apsw
        import sqlite_vec

        connection = apsw.Connection(str(self.file))
        connection.enable_load_extension(True)
        connection.load_extension(sqlite_vec.loadable_path())
        return closing(connection)

    def write(self):  # noqa: ANN201, D102
        with self.connect() as connection, connection:
            connection.execute("DROP TABLE IF EXISTS docs")
            columns = (
                f"id text primary key, embedding float[{DIM}] distance_metric=cosine, +content text, +metadata text"
            )
            connection.execute(f"CREATE VIRTUAL TABLE docs USING vec0({columns})")
            rows = ((d.id, v.tobytes(), d.text, json.dumps(dict(d.metadata))) for d, v in records())
            connection.executemany("INSERT INTO docs VALUES (?, ?, ?, ?)", rows)

    def read(self):  # noqa: ANN201, D102
        with self.connect() as connection:
            for _ in connection.execute("SELECT id, embedding FROM docs"):
                pass

    def tidy(self):  # noqa: ANN201, D102
        pass


def ours_written(database, store, folder):  # noqa: ANN001, ANN201
    """A copy of the store with other vectors: rows, table, check, final name."""
    output = output_of(f"{database.new}")
    content, scratch = folder / "content", folder / "scratch"
    content.mkdir(), scratch.mkdir()
    writer, start = output.writer(store, content, DIM, Resume(None, scratch)), 0
    for part in parts():
        writer.write(start, Batch(store.ids(range(start, start + len(part))), part))
        start += len(part)
    writer.finish()


def main():  # noqa: ANN201, D103
    os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp()
    print(f"{ROWS:,} rows of dimension {DIM}; memory is this process's peak")
    print(f"{'':12}{'opened, rows/s':>15}{'read, rows/s':>28}{'written, rows/s':>32}{'memory':>12}")
    for kind in (Pgvector, SqliteVec):
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            database = kind(folder)
            client_write = timed(database.write)
            client_read = timed(database.read)
            opened = timed(lambda: open_store(database.location))  # noqa: B023
            store = open_store(database.location)
            read = timed(lambda: [None for _ in store.scan(batch_size=4_096)])  # noqa: B023
            write = timed(lambda: ours_written(database, store, Path(folder)))  # noqa: B023
            store = None
            database.tidy()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"{kind.name:12}{opened:>15,.0f}{read:>10,.0f} {read / client_read:>5.2f} of {client_read:>8,.0f}"
            f"{write:>14,.0f} {write / client_write:>5.2f} of {client_write:>8,.0f}{peak:>9,.0f} MB"
        )


if __name__ == "__main__":
    main()
