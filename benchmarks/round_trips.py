"""Copies awkward documents of each kind of store there and back, and compares them field by field.

    python benchmarks/round_trips.py [--rows 20000] [--kinds faiss pgvector sqlite-vec chroma chroma+http ...]

A store is made by the kind's own client, of ids, texts, payloads and vectors of all sorts: empty and long texts, null,
nested and empty values, whole numbers beyond 2^53, the smallest and the negative zero of floats, other columns and
vectors, rows without a vector. It is copied with other vectors (the negative ones), as `translate` does, and the copy
is copied back with the first ones. What the kind's own client reads then is held against what it reads of the first
store: each field of each record, by type and to the last bit, and each vector. Ends with exit code 1 if any differs.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import decimal
import json
import os
import tempfile
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from kills import Setting, client_of, start_chroma, start_postgres
from numpy.typing import NDArray

from migrate.stores import open_store
from migrate.stores.outputs import ServerOutput
from migrate.stores.registry import output_of
from migrate.work.writer import write_rows

DIM = 32
PART = 2_000
TEXTS = (
    "",
    "plain",
    "two\nlines\r\nand\ttabs",
    "\u00fc\u00df\u4e2d\u6587 \u05e9\u05dc\u05d5\u05dd \U0001f600",
    "e\u0301 is not \u00e9",
    'it\'s "quoted" \\ `so`; DROP TABLE docs; --',
    "\u200b\ufeff invisible \u2028",
    "long " * 4_000,
    "null",
    "0",
    " spaces ",
)
NUMBERS = (0, -1, 1, 2**31, -(2**53) - 1, 2**62, 7)
FLOATS = (0.0, -0.0, 5e-324, 1.7976931348623157e308, 0.1, -2.5, 1.0)
NESTED: tuple[Any, ...] = ({"a": {"b": [1, None, {"c": ""}]}}, [], {}, [1, 2.0, "3", None], None, "text", {"": "x"})
Record = Mapping[str, Any]


def doc_id(row: int) -> str:
    """Ids with all that an id can have."""
    return (f"doc-{row}", f"it's {row}", f"\u00fc/{row}\U0001f600", f"00{row}", f"a b#{row}?x=1")[row % 5]


def vector_of(row: int, dim: int = DIM) -> NDArray[np.float32]:
    """A vector that float16 holds too."""
    found = np.random.default_rng(row).standard_normal(dim).astype(np.float16).astype(np.float32)
    return found if found.any() else np.ones(dim, np.float32)


class Kind(ABC):
    """What a kind's own client writes and reads, in a place of its own."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.setting = Setting(name, folder)

    @abstractmethod
    def make(self, rows: int) -> str:
        """Write that many awkward records; returns where."""

    @abstractmethod
    def read(self, location: str) -> Iterator[tuple[str, Record]]:
        """All records: what is in each field, vectors as bytes or lists."""

    def place(self, name: str) -> tuple[str, Path]:
        """Where a copy goes, and the folder of its files."""
        return str(self.folder / name), self.folder / name

    def opened(self, name: str) -> str:
        """How the copy is opened."""
        return f"{self.setting.kind}:{self.folder / name}#docs"


class Faiss(Kind):
    """FAISS with a docs.jsonl."""

    def make(self, rows: int) -> str:
        """Its records."""
        import faiss

        path = self.folder / "first"
        path.mkdir()
        index = faiss.IndexFlatL2(DIM)
        index.add(np.array([vector_of(row) for row in range(rows)]))
        faiss.write_index(index, str(path / "index.faiss"))
        with (path / "docs.jsonl").open("w") as file:
            for row in range(rows):
                metadata = {"nested": NESTED[row % 7], "number": NUMBERS[row % 7], "float": FLOATS[row % 7]}
                file.write(json.dumps({"id": doc_id(row), "text": TEXTS[row % 11], "metadata": metadata}) + "\n")
        return str(path)

    def read(self, location: str) -> Iterator[tuple[str, Record]]:
        """All of them."""
        import faiss

        index = faiss.read_index(f"{location}/index.faiss")
        with Path(location, "docs.jsonl").open() as file:
            for row, line in enumerate(file):
                document = json.loads(line)
                yield document["id"], {**document, "vector": np.asarray(index.reconstruct(row)).tobytes()}

    def opened(self, name: str) -> str:
        """The copy."""
        return str(self.folder / name)


class Pgvector(Kind):
    """A table of several tenants, with half precision beside and many types."""

    columns = (
        "tenant int NOT NULL, id text, content text, nested jsonb, number bigint, float double precision, "
        "price numeric, tags text[], flag boolean, made timestamptz, raw bytea, half HALF(8), embedding vector(32)"
    )

    def make(self, rows: int) -> str:
        """Its records."""
        import psycopg
        from psycopg.types.json import Jsonb

        start_postgres(self.setting)
        url = self.setting.place.partition(":")[2]
        with psycopg.connect(url, autocommit=True) as connection, connection.cursor() as cursor:
            found = connection.execute("SELECT to_regtype('halfvec') IS NOT NULL").fetchone()
            half = "halfvec" if found and found[0] else "vector"
            cursor.execute(f"CREATE TABLE docs_first ({self.columns.replace('HALF', half)}, PRIMARY KEY (id))")
            with cursor.copy("COPY docs_first FROM STDIN") as copy:
                copy.set_types([])
                for row in range(rows):
                    nested = NESTED[row % 7]
                    copy.write_row(
                        (
                            row % 3,
                            doc_id(row),
                            None if row % 13 == 0 else TEXTS[row % 11],
                            Jsonb(nested),
                            None if row % 17 == 0 else NUMBERS[row % 7],
                            FLOATS[row % 7],
                            decimal.Decimal(row) / 7,
                            [TEXTS[row % 7], "b"] if row % 5 else [],
                            (None, True, False)[row % 3],
                            datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(seconds=row),
                            bytes([row % 256, 0, 255]),
                            json.dumps(vector_of(row, 8).tolist()),
                            None if row % 101 == 0 else json.dumps(vector_of(row).tolist()),
                        )
                    )
        return f"{self.setting.place}#docs_first.embedding"

    def read(self, location: str) -> Iterator[tuple[str, Record]]:
        """All of them."""
        import psycopg

        table = location.rpartition("#")[2].partition(".")[0]
        with psycopg.connect(self.setting.place.partition(":")[2]) as connection:
            cursor = connection.execute(f"SELECT * FROM {table}")
            names = [column.name for column in cursor.description or ()]
            for row in cursor:
                fields = dict(zip(names, row, strict=True))
                yield fields["id"], fields

    def place(self, name: str) -> tuple[str, Path]:
        """Beside the first."""
        return self.opened(name), self.folder / name

    def opened(self, name: str) -> str:
        """The copy."""
        return f"{self.setting.place}#docs_{name}.embedding"


class SqliteVec(Kind):
    """A table with columns of each type that the extension has, and a second vector."""

    def _connect(self, path: Path) -> Any:
        import apsw
        import sqlite_vec

        connection = apsw.Connection(str(path))
        connection.enable_load_extension(True)
        connection.load_extension(sqlite_vec.loadable_path())
        return closing(connection)

    def make(self, rows: int) -> str:
        """Its records."""
        (self.folder / "first").mkdir()
        path = self.folder / "first" / "own.db"
        with self._connect(path) as connection, connection:
            connection.execute(
                f"CREATE VIRTUAL TABLE docs USING vec0(id text primary key, tenant integer partition key, "
                f"embedding float[{DIM}], small int8[8], number integer, float float, flag boolean, kind text, "
                "+content text, +meta text, +raw blob, +size integer)"
            )
            connection.executemany(
                "INSERT INTO docs VALUES (?, ?, ?, vec_int8(?), ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    (
                        doc_id(row),
                        row % 3,
                        vector_of(row).tobytes(),
                        bytes(range(row % 100, row % 100 + 8)),
                        NUMBERS[row % 7],
                        FLOATS[row % 7],
                        row % 2,
                        TEXTS[row % 11],
                        None if row % 13 == 0 else TEXTS[(row + 1) % 11],
                        json.dumps(NESTED[row % 7]),
                        None if row % 7 == 0 else bytes([row % 256, 0]),
                        None if row % 5 == 0 else NUMBERS[row % 7],
                    )
                    for row in range(rows)
                ),
            )
        return f"sqlite-vec:{path}#docs"

    def read(self, location: str) -> Iterator[tuple[str, Record]]:
        """All of them."""
        place = Path(location.partition(":")[2].partition("#")[0])
        path = place if place.is_file() else next(place.glob("*.db"))
        with self._connect(path) as connection:
            names = [row[1] for row in connection.execute("PRAGMA table_info(docs)")]
            for row in connection.execute("SELECT * FROM docs"):
                fields = dict(zip(names, row, strict=False))
                yield fields["id"], fields


class Chroma(Kind):
    """Metadata of each type that Chroma has, documents that are absent, and URIs."""

    def client(self, name: str) -> Any:
        """A client of the folder."""
        import chromadb

        return chromadb.PersistentClient(str(self.folder / name))

    def make(self, rows: int) -> str:
        """Its records."""
        with closing(self.client("first")) as client:
            return self._fill(client, rows)

    def _fill(self, client: Any, rows: int) -> str:
        # vectors that are compared by cosine, Chroma itself gives back with other last bits than it was given
        settings = {"hnsw": {"space": "l2", "ef_construction": 64, "max_neighbors": 8}}
        metadata = {"owner": "\u00fc", "number": 2**40, "flag": True}
        collection = client.create_collection(
            self.collection("first"), configuration=settings, metadata=metadata, embedding_function=None
        )
        for start in range(0, rows, PART):
            for kind in range(3):
                part = range(start + kind, min(start + PART, rows), 3)
                if len(part):
                    collection.add(
                        [doc_id(row) for row in part],
                        embeddings=[vector_of(row) for row in part],
                        metadatas=None if kind == 2 else [self._fields(row) for row in part],
                        documents=None if kind == 1 else [TEXTS[row % 11] for row in part],
                        uris=[f"file://{row}" for row in part] if kind == 1 else None,
                    )
        return self.opened("first")

    def _fields(self, row: int) -> dict[str, Any]:
        fields = {"number": NUMBERS[row % 7], "float": FLOATS[row % 7], "flag": row % 2 == 0, "text": TEXTS[row % 11]}
        return {**fields, "list": [[1, 2], ["a", ""], [0.5], [True, False]][row % 4], f"key \u00fc {row % 3}": row}

    def collection(self, name: str) -> str:
        """What it is called."""
        return "docs"

    def read(self, location: str) -> Iterator[tuple[str, Record]]:
        """All of them."""
        name = Path(location.partition(":")[2].partition("#")[0]).name
        with closing(self.client(name)) as client:
            yield from self._read(client, "docs")

    def _read(self, client: Any, name: str) -> Iterator[tuple[str, Record]]:
        collection = client.get_collection(name, embedding_function=None)
        settings = {key: collection._model.configuration_json.get(key) for key in ("hnsw", "embedding_function")}
        own = {key: value for key, value in (collection.metadata or {}).items() if not key.startswith("lead-migrate")}
        yield "the collection itself", {"metadata": own, "settings": settings}
        include = ["embeddings", "documents", "metadatas", "uris"]
        for start in range(0, collection.count(), PART):
            page = collection.get(limit=PART, offset=start, include=include)
            parts = [page[key] for key in ("ids", "embeddings", "documents", "metadatas", "uris")]
            for one, vector, text, fields, uri in zip(*parts, strict=True):
                yield one, {**(fields or {}), "vector": vector.tobytes(), "document": text, "uri": uri, "#": fields}


class ChromaServer(Chroma):
    """The same on a server."""

    def make(self, rows: int) -> str:
        """Its records."""
        start_chroma(self.setting)
        return self._fill(client_of(self.setting.place), rows)

    def collection(self, name: str) -> str:
        """One for each copy."""
        return f"docs-{name}"

    def read(self, location: str) -> Iterator[tuple[str, Record]]:
        """All of them."""
        yield from self._read(client_of(self.setting.place), location.rpartition("#")[2])

    def place(self, name: str) -> tuple[str, Path]:
        """Beside the first."""
        return self.opened(name), self.folder / name

    def opened(self, name: str) -> str:
        """The copy."""
        return f"{self.setting.place}#docs-{name}"


class Qdrant(Kind):
    """Named and sparse vectors, points without the vector, ids of both kinds, payload of any depth."""

    def client(self, name: str) -> Any:
        """A client of the folder."""
        from qdrant_client import QdrantClient

        return closing(QdrantClient(path=str(self.folder / name)))

    def make(self, rows: int) -> str:
        """Its records."""
        from qdrant_client import models

        dense = {"": DIM, "other": 8}
        with self.client("first") as client:
            vectors = {
                name or "text": models.VectorParams(size=size, distance=models.Distance.DOT)
                for name, size in dense.items()
            }
            client.create_collection("docs", vectors, {"words": models.SparseVectorParams()})
            for start in range(0, rows, PART):
                client.upsert("docs", [self._point(models, row) for row in range(start, min(start + PART, rows))])
        return self.opened("first")

    def _point(self, models: Any, row: int) -> Any:
        payload = {"text": TEXTS[row % 11], "number": NUMBERS[row % 7], "float": FLOATS[row % 7]}
        payload |= {"nested": NESTED[row % 7], "flag": row % 2 == 0, f"key \u00fc {row % 3}": None}
        vectors: dict[str, Any] = {"other": vector_of(row, 8).tolist()} if row % 3 else {}
        if row % 5:
            vectors["words"] = models.SparseVector(indices=[row % 50, 60], values=[0.5, -1.0])
        if row % 101:
            vectors["text"] = vector_of(row).tolist()
        point = row if row % 2 else f"{row:08x}-0000-4000-8000-000000000000"
        return models.PointStruct(id=point, vector=vectors, payload=payload)

    def opened(self, name: str) -> str:
        """The copy."""
        return f"qdrant:{self.folder / name}#docs?text=text&vector=text"

    def read(self, location: str) -> Iterator[tuple[str, Record]]:
        """All of them."""
        name = Path(location.partition(":")[2].partition("#")[0]).name
        with self.client(name) as client:
            offset: Any = None
            while True:
                points, offset = client.scroll("docs", limit=PART, offset=offset, with_vectors=True)
                for point in points:
                    yield repr(point.id), {**point.payload, "vectors": point.vector}
                if offset is None:
                    return


class LanceDB(Kind):
    """Columns of many types of Arrow, with nulls, and vectors in half precision beside."""

    def make(self, rows: int) -> str:
        """Its records."""
        import lancedb
        import pyarrow as pa

        half = pa.list_(pa.float16(), 8)
        nested = pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))])
        schema = pa.schema(
            [
                pa.field("id", pa.string(), nullable=False),
                ("text", pa.string()),
                ("number", pa.int64()),
                ("small", pa.uint8()),
                ("float", pa.float64()),
                ("price", pa.decimal128(20, 4)),
                ("made", pa.timestamp("us", "UTC")),
                ("raw", pa.binary()),
                ("nested", nested),
                ("flag", pa.bool_()),
                ("half", half),
                pa.field("vector", pa.list_(pa.float32(), DIM), metadata={"why": "\u00fc"}),
            ],
            metadata={"owner": "\u00fc"},
        )

        def parts() -> Iterator[Any]:
            for start in range(0, rows, PART):
                records = [self._row(row) for row in range(start, min(start + PART, rows))]
                yield pa.RecordBatch.from_pylist(records, schema=schema)

        reader = pa.RecordBatchReader.from_batches(schema, parts())
        lancedb.connect(str(self.folder / "first")).create_table("docs", reader, on_bad_vectors="null")
        return self.opened("first")

    def opened(self, name: str) -> str:
        """By the vector that is whole."""
        return f"lancedb:{self.folder / name}#docs?vector=vector&text=text"

    def _row(self, row: int) -> Record:
        moment = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(microseconds=row)
        return {
            "id": doc_id(row),
            "text": None if row % 13 == 0 else TEXTS[row % 11],
            "number": None if row % 17 == 0 else NUMBERS[row % 7],
            "small": row % 256,
            "float": FLOATS[row % 7],
            "price": decimal.Decimal(row) / 4,
            "made": None if row % 7 == 0 else moment,
            "raw": bytes([row % 256, 0]),
            "nested": (None, {"a": None, "b": []}, {"a": row, "b": ["", None]})[row % 3],
            "flag": (None, True, False)[row % 3],
            "half": vector_of(row, 8).astype(np.float16),
            "vector": None if row % 101 == 0 else vector_of(row),
        }

    def read(self, location: str) -> Iterator[tuple[str, Record]]:
        """All of them."""
        import lancedb

        path = location.partition(":")[2].partition("#")[0]
        table = lancedb.connect(path).open_table("docs")
        own = {key: value for key, value in (table.schema.metadata or {}).items() if key != b"lead-migrate"}
        yield "the table itself", {"schema": table.schema.remove_metadata().to_string(), "metadata": own}
        for batch in table.search().to_batches(PART):
            for fields in batch.to_pylist():
                yield fields["id"], fields


class Parquet(LanceDB):
    """The same columns in three files, a dictionary, a map, nanoseconds and vectors of double precision beside."""

    def make(self, rows: int) -> str:
        """Its records."""
        import pyarrow as pa
        from pyarrow import parquet

        schema = pa.schema(
            [
                pa.field("id", pa.string(), nullable=False),
                ("text", pa.large_string()),
                ("number", pa.int64()),
                ("small", pa.uint8()),
                ("float", pa.float64()),
                ("price", pa.decimal128(20, 4)),
                ("made", pa.timestamp("ns", "Europe/Berlin")),
                ("raw", pa.binary()),
                ("nested", pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))])),
                ("flag", pa.bool_()),
                ("half", pa.list_(pa.float16(), 8)),
                pa.field("vector", pa.large_list(pa.float32()), metadata={"why": "\u00fc"}),
                ("label", pa.dictionary(pa.int16(), pa.string())),
                ("pairs", pa.map_(pa.string(), pa.int8())),
                ("twice", pa.list_(pa.float64())),
            ],
            metadata={"owner": "\u00fc"},
        )
        (self.folder / "first").mkdir()
        for number in range(3):
            path = self.folder / "first" / f"{number}.parquet"
            with parquet.ParquetWriter(path, schema) as writer:
                for start in range(number * rows // 3, (number + 1) * rows // 3, PART):
                    stop = min(start + PART, (number + 1) * rows // 3)
                    records = [self._row(row) for row in range(start, stop)]
                    writer.write_batch(pa.RecordBatch.from_pylist(records, schema=schema))
        return self.opened("first")

    def place(self, name: str) -> tuple[str, Path]:
        """A folder."""
        return f"parquet:{self.folder / name}", self.folder / name

    def opened(self, name: str) -> str:
        """By the vector that is meant."""
        return f"parquet:{self.folder / name}#?vector=vector&text=text"

    def _row(self, row: int) -> Record:
        return {
            **super()._row(row),
            "made": None if row % 7 == 0 else 1_600_000_000_123_456_789 + row,
            "vector": vector_of(row),
            "label": (None, "one", "two")[row % 3],
            "pairs": (None, [], [("k", None), ("l", row % 100)])[row % 3],
            "twice": None if row % 5 == 0 else [float(value) for value in FLOATS],
        }

    def read(self, location: str) -> Iterator[tuple[str, Record]]:
        """All of them, file by file."""
        from pyarrow import parquet

        folder = Path(location.partition(":")[2].partition("#")[0])
        for path in sorted(folder.glob("*.parquet")):
            with parquet.ParquetFile(path) as file:
                metadata = dict(file.schema_arrow.metadata)
                metadata.pop(b"lead-migrate", None)
                yield path.name, {"schema": file.schema_arrow.remove_metadata().to_string(), "metadata": metadata}
                for batch in file.iter_batches(PART):
                    made = batch.column(batch.schema.names.index("made")).cast("int64").to_pylist()
                    for fields, moment in zip(batch.drop_columns("made").to_pylist(), made, strict=True):
                        yield fields["id"], {**fields, "made": moment}


class Milvus(Kind):
    """Fields of all types that milvus-lite has, dynamic ones, two partitions, other and sparse vectors, a function."""

    def make(self, rows: int) -> str:
        """Its records."""
        from pymilvus import DataType, Function, FunctionType

        with self._client("first") as client:
            schema = client.create_schema(enable_dynamic_field=True)
            schema.add_field("id", DataType.VARCHAR, is_primary=True, max_length=1_000)
            schema.add_field("text", DataType.VARCHAR, max_length=65_535, enable_analyzer=True)
            schema.add_field("words", DataType.SPARSE_FLOAT_VECTOR)
            schema.add_function(Function("bm25", FunctionType.BM25, ["text"], ["words"]))
            for name in ("BOOL", "INT8", "INT64", "DOUBLE", "JSON", "GEOMETRY", "TIMESTAMPTZ"):
                schema.add_field(name.lower(), DataType[name], nullable=True)
            schema.add_field("tags", DataType.ARRAY, element_type=DataType.INT64, max_capacity=3, nullable=True)
            schema.add_field("half", DataType.FLOAT_VECTOR, dim=8)
            schema.add_field("sparse", DataType.SPARSE_FLOAT_VECTOR)
            schema.add_field("vector", DataType.FLOAT_VECTOR, dim=DIM)
            indices = client.prepare_index_params()
            for name, kind, metric in (
                ("vector", "HNSW", "IP"),
                ("half", "FLAT", "L2"),
                ("sparse", "SPARSE_INVERTED_INDEX", "IP"),
                ("words", "SPARSE_INVERTED_INDEX", "BM25"),
            ):
                indices.add_index(name, index_type=kind, metric_type=metric)
            client.create_collection("docs", schema=schema, index_params=indices, properties={"owner": "\u00fc"})
            client.create_partition("docs", "odd")
            for start in range(0, rows, PART):
                for first, partition in enumerate(("_default", "odd")):
                    part = range(start + first, min(start + PART, rows), 2)
                    client.insert("docs", [self._row(row) for row in part], partition_name=partition)
        return self.opened("first")

    def opened(self, name: str) -> str:
        """By the vector that is whole."""
        return f"milvus:{self.folder / name}#docs?vector=vector&text=text"

    def _client(self, name: str) -> Any:
        from milvus_lite.adapter.grpc.server import start_server_in_thread
        from pymilvus import MilvusClient

        stack = contextlib.ExitStack()
        server, database, port = start_server_in_thread(str(self.folder / name))
        stack.callback(database.close)
        stack.callback(lambda: server.stop(grace=None).wait())
        client = MilvusClient(uri=f"http://127.0.0.1:{port}", dedicated=True)
        stack.callback(client.close)

        @contextlib.contextmanager
        def opened() -> Iterator[Any]:
            with stack:
                yield client

        return opened()

    def _row(self, row: int) -> Record:
        nested = NESTED[row % 7]
        fixed = {
            "id": doc_id(row),
            "text": TEXTS[row % 11],
            "bool": (None, True, False)[row % 3],
            "int8": None if row % 5 == 0 else row % 128,
            "int64": None if row % 17 == 0 else NUMBERS[row % 7],
            "double": FLOATS[row % 7],
            "json": nested if isinstance(nested, dict) else {"in": nested},
            "geometry": None if row % 3 else f"POINT ({row} 1)",
            "timestamptz": f"2020-01-01T00:00:00.{row % 10**6:06d}Z",
            "tags": (None, [], [row, -1])[row % 3],
            "half": vector_of(row, 8).tolist(),
            "sparse": {row: 0.5, row + 7: 0.1},
            "vector": vector_of(row).tolist(),
        }
        return {**fixed, **({"dynamic": nested} if row % 2 else {})}

    def read(self, location: str) -> Iterator[tuple[str, Record]]:
        """All of them, with their partitions, and the collection itself."""
        with self._client(Path(location.partition(":")[2].partition("#")[0]).name) as client:
            client.load_collection("docs")
            facts = client.describe_collection("docs")
            owner = {key: value for key, value in facts["properties"].items() if "lead-migrate" not in key}
            yield "docs", {**{key: str(facts[key]) for key in ("fields", "functions", "enable_dynamic_field")}, **owner}
            for partition in client.list_partitions("docs"):
                iterator = client.query_iterator("docs", PART, output_fields=["*"], partition_names=[partition])
                while rows := iterator.next():
                    for row in rows:
                        plain = {key: as_plain(value) for key, value in row.items()}
                        yield row["id"], {**plain, "partition": partition}


def as_plain(value: Any) -> Any:
    """A list in the place of the client's own sequence."""
    return value if value is None or isinstance(value, str | int | float | dict | list) else list(value)


KINDS: dict[str, type[Kind]] = {
    "faiss": Faiss,
    "pgvector": Pgvector,
    "sqlite-vec": SqliteVec,
    "chroma": Chroma,
    "chroma+http": ChromaServer,
    "qdrant": Qdrant,
    "lancedb": LanceDB,
    "milvus": Milvus,
    "parquet": Parquet,
}


def copy(kind: Kind, location: str, name: str) -> str:
    """A copy with the negative vectors, as `translate` makes it."""
    source = open_store(location)
    where, content = kind.place(name)
    content.mkdir()
    output, starts = output_of(where), range(0, source.info.count, PART)
    parts = ((start, -batch.vectors) for start, batch in zip(starts, source.scan(batch_size=PART), strict=True))
    write_rows(output.writer(source, content, DIM), parts, source.info.count)
    if isinstance(output, ServerOutput):
        output.publish(content, force=False)
    return kind.opened(name)


def as_text(value: Any) -> str:
    """What tells a value from any other, its type and last bit included."""
    if isinstance(value, Mapping):
        return repr({key: as_text(one) for key, one in sorted(value.items(), key=repr)})
    return f"{type(value).__name__}:{value!r}"


def differences(kind: Kind, first: str, last: str) -> tuple[int, int, int, list[str]]:
    """Records, fields compared, fields that differ, and some of these."""
    before, after = dict(kind.read(first)), dict(kind.read(last))
    fields, differing, named = 0, 0, []
    for one in before.keys() | after.keys():
        here, there = before.get(one, {}), after.get(one, {})
        for key in here.keys() | there.keys():
            fields += 1
            if key not in here or key not in there or as_text(here[key]) != as_text(there[key]):
                differing += 1
                named.append(f"{one!r} {key}: {str(here.get(key))[:80]!r} -> {str(there.get(key))[:80]!r}")
    return len(before), fields, differing, named


def round_trip(name: str, folder: Path, rows: int) -> bool:
    """Print the line of a kind; whether nothing differs."""
    kind = KINDS[name](folder, name)
    try:
        first = kind.make(rows)
        last = copy(kind, copy(kind, first, "there"), "back")
        records, fields, differing, named = differences(kind, first, last)
    finally:
        for end in kind.setting.ends:
            end()
    print(f"{name:12}{records:>10,}{fields:>12,}{differing:>12,}", flush=True)
    for line in islice(named, 10):
        print(f"  {line}", flush=True)
    return not differing


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    os.environ.update(LANCE_LOG="error", LANCEDB_LOG="error")
    print(f"{'kind':12}{'records':>10}{'fields':>12}{'differing':>12}", flush=True)
    good = True
    for name in arguments.kinds:
        with contextlib.ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
            for variable in ("XDG_CACHE_HOME", "XDG_STATE_HOME"):
                os.environ[variable] = str(folder / variable)
            good = round_trip(name, folder, arguments.rows) and good
    raise SystemExit(0 if good else 1)


if __name__ == "__main__":
    main()
