"""Old stores of every kind, made and changed by their own clients; and a model that costs nothing."""

import hashlib
import json
import shutil
import sqlite3
import time
import uuid
from contextlib import closing, nullcontext
from pathlib import Path

import numpy as np
import pytest

from migrate.embedders.base import Embedder
from migrate.errors import UsageError
from migrate.manifest import ModelIdentity
from migrate.vectors import Document

DIM, TARGET_DIM = 8, 6


class Hashed(Embedder):
    """A vector for each text, at random but always the same; counts the texts that it was asked for."""

    def __init__(self, name="hashed", dim=TARGET_DIM):
        self.name, self.dim, self.asked = name, dim, []

    @property
    def identity(self):
        return ModelIdentity(self.name, self.dim, True)

    def embed(self, texts, role, *, progress=None):
        self.asked += [text.text for text in texts]
        return np.array([truth(text.text, self.dim) for text in texts], np.float32).reshape(-1, self.dim)


def truth(text, dim=TARGET_DIM):
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
    row = np.random.default_rng(seed).normal(size=dim)
    return (row / np.linalg.norm(row)).astype(np.float32)


def old_vector(text):
    return np.random.default_rng(len(text) + sum(text.encode())).normal(size=DIM).astype(np.float32)


def some_records(count=200):
    """Documents by their ids, which are in no order, with their old vectors."""
    # one that is no number, as ids that all are could be those of rows
    names = ["last", *(f"doc-{(77 * row + 5) % count:03d}" for row in range(1, count))]
    return {name: record(name, f"the text of {name}", row) for row, name in enumerate(names)}


def record(name, text, page, vector=None):
    return Document(name, text, {"page": page, "source": "a"}), old_vector(text) if vector is None else vector


def changed(records):
    """The same after some time: 30 added, 20 with another text, 10 with other metadata, 15 deleted, 2 other vectors."""
    ids = sorted(records)
    after = {name: records[name] for name in records if name not in ids[20:35]}
    for name in ids[40:60]:
        after[name] = record(name, f"another text of {name}", 7)
    for name in ids[70:80]:
        document, vector = records[name]
        after[name] = Document(name, document.text, {"page": 1_000, "source": "b"}), vector
    for name in ids[100:102]:
        document, vector = records[name]
        after[name] = document, vector + np.float32(1)
    for number in range(30):
        after[f"new-{number}"] = record(f"new-{number}", f"what is new, {number}", number)
    return after


def records_of(documents, vectors):
    """Records of documents, in no order of their ids."""
    return {d.id: (d, vector) for d, vector in zip(documents, vectors, strict=True)}


def vectors_of(records):
    return np.array([vector for _, vector in records.values()], np.float32) if records else np.empty((0, DIM))


class Folder:
    needs = ()

    def make(self, folder, records):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.write_vectors(folder, vectors_of(records))
        self.write_documents(folder, [document for document, _ in records.values()])
        return str(folder)

    def write_vectors(self, folder, vectors):
        import faiss

        index = faiss.IndexFlatL2(vectors.shape[1])
        index.add(vectors)
        faiss.write_index(index, str(folder / "index.faiss"))

    def write_documents(self, folder, documents):
        lines = [json.dumps({"id": d.id, "text": d.text, "metadata": dict(d.metadata)}) for d in documents]
        (folder / "docs.jsonl").write_text("\n".join(lines) + "\n")

    def change(self, location, before, after):
        self.make(Path(location), after)

    def new(self, folder):
        return str(folder)


class Arrays(Folder):
    def write_vectors(self, folder, vectors):
        np.save(folder / "vectors.npy", vectors)


class Parquet:
    """Files of Parquet, three of them or, once something has changed, two."""

    needs = ("pyarrow",)
    shards = 3

    def make(self, folder, records, metric="l2"):
        import pyarrow
        from pyarrow import parquet

        folder.mkdir(parents=True, exist_ok=True)
        for path in folder.glob("*.parquet"):
            path.unlink()
        rows = [
            {"id": d.id, "text": d.text, "embedding": vector.tolist(), **d.metadata} for d, vector in records.values()
        ]
        for number in range(self.shards):
            own = pyarrow.Table.from_pylist(rows[number :: self.shards])
            parquet.write_table(own, folder / f"part-{number}.parquet", row_group_size=17)
        return f"parquet:{folder}#?distance={metric}"

    def change(self, location, before, after):
        self.shards = 2
        self.make(Path(place_of(location)), after)

    def new(self, folder):
        return f"parquet:{folder}"


class Langchain(Folder):
    """What LangChain's `save_local` writes."""

    needs = ("langchain_community",)

    def make(self, folder, records, metric="l2"):
        import faiss
        from langchain_core.documents import Document as LangchainDocument
        from langchain_tools import FAISS, InMemoryDocstore

        shutil.rmtree(folder, ignore_errors=True)
        vectors = vectors_of(records)
        index = (faiss.IndexFlatL2 if metric == "l2" else faiss.IndexFlatIP)(vectors.shape[1])
        index.add(vectors)
        kept = {d.id: LangchainDocument(d.text, id=d.id, metadata=dict(d.metadata)) for d, _ in records.values()}
        FAISS(None, index, InMemoryDocstore(kept), dict(enumerate(kept))).save_local(str(folder))
        return str(folder)


def installed(name):
    """A maker by the name of its class, if what it needs is there."""
    maker = globals()[name]
    for module in maker.needs:
        pytest.importorskip(module)
    return maker


def parts(before, after):
    """Ids that came or changed, and those that went."""
    return [name for name in after if after[name] is not before.get(name)], [n for n in before if n not in after]


def place_of(location):
    return location.partition(":")[2].partition("#")[0]


def with_distance(location, metric):
    """The location of a table that does not know by what distance it is searched."""
    return location + ("" if metric == "l2" else f"?distance={metric}")


class Collections:
    """Collections of a folder, which a client opens; `create` makes one, `put` adds, changes and deletes records."""

    scheme, name, options = "", "docs", ""

    def make(self, folder, records, metric="l2", name=None):
        location = self.location(folder, name or self.name)
        with self.opened(location) as client:
            self.create(client, name or self.name, records, metric)
        return location + self.options

    def location(self, folder, name):
        return f"{self.scheme}:{folder}#{name}"

    def opened(self, location):
        return closing(self.client(location))

    def change(self, location, before, after):
        name = location.partition("#")[2].partition("?")[0]
        with self.opened(location) as client:
            self.put(client, name, after, *parts(before, after))

    def new(self, folder):
        return self.location(folder, self.name)


class ServerCollections(Collections):
    """Collections of a server, of which `server` is a client; each has a name of its own."""

    def __init__(self, client, url):
        self.server, self.url = client, url

    def location(self, folder, name):
        return f"{self.url}#{name}"

    def opened(self, location):
        return nullcontext(self.server)

    def make(self, folder, records):
        return super().make(folder, records, name=f"old{uuid.uuid4().hex[:12]}")

    def new(self, folder):
        return self.location(folder, f"new{uuid.uuid4().hex[:12]}")


class Chroma(Collections):
    needs = ("chromadb",)
    scheme = "chroma"

    def client(self, location):
        import chromadb
        from chromadb.config import Settings

        return chromadb.PersistentClient(place_of(location), settings=Settings(anonymized_telemetry=False))

    def create(self, client, name, records, metric="l2"):
        if name in [found.name for found in client.list_collections()]:
            client.delete_collection(name)
        client.create_collection(name, configuration={"hnsw": {"space": metric}}, embedding_function=None)
        self.put(client, name, records, list(records))

    def put(self, client, name, records, names, gone=()):
        collection = client.get_collection(name, embedding_function=None)
        documents = [records[name][0] for name in names]
        if names:
            collection.upsert(
                names,
                embeddings=[records[name][1] for name in names],
                documents=[document.text for document in documents],
                metadatas=[dict(document.metadata) or None for document in documents],
            )
        if gone:
            collection.delete(list(gone))


class ChromaServer(ServerCollections, Chroma):
    """A collection of a server."""


class Qdrant(Collections):
    needs = ("qdrant_client",)
    scheme, options = "qdrant", "?id=key&text=text"
    vector = ""
    """The name of the vector, if it has one."""

    def client(self, location):
        import qdrant_client

        return qdrant_client.QdrantClient(path=place_of(location))

    def key(self, name):
        return str(uuid.uuid5(uuid.NAMESPACE_URL, name))

    def create(self, client, name, records, metric="l2"):
        from qdrant_client import models

        if client.collection_exists(name):
            client.delete_collection(name)
        distance = {"l2": models.Distance.EUCLID, "ip": models.Distance.DOT}[metric]
        params = models.VectorParams(size=vectors_of(records).shape[1], distance=distance)
        client.create_collection(name, {self.vector: params} if self.vector else params)
        collections = getattr(client._client, "collections", None)  # of the local mode, which would wait for the disk
        storage = getattr(collections[name].storage, "storage", None) if isinstance(collections, dict) else None
        if storage is not None:
            storage.execute("PRAGMA synchronous = OFF")
        self.put(client, name, records, list(records))

    def put(self, client, name, records, names, gone=()):
        from qdrant_client import models

        points = []
        for document, vector in (records[name] for name in names):
            payload = {**document.metadata, "text": document.text, "key": document.id}
            named = {self.vector: vector.tolist()} if self.vector else vector.tolist()
            points.append(models.PointStruct(id=self.key(document.id), vector=named, payload=payload))
        if points:
            client.upsert(name, points)
        if gone:
            client.delete(name, [self.key(one) for one in gone])


class QdrantServer(ServerCollections, Qdrant):
    """The way of a server, to a client in memory."""


class Milvus(Collections):
    """A folder of milvus-lite; a field for each key of the metadata, which are whole numbers or texts."""

    needs = ("milvus_lite", "pymilvus")
    scheme = "milvus"

    def opened(self, location):
        from milvus_server import client_of

        return client_of(place_of(location))

    def create(self, client, name, records, metric="l2"):
        from pymilvus import DataType

        if client.has_collection(name):
            client.drop_collection(name)
        fields = {key: value for document, _ in records.values() for key, value in document.metadata.items()}
        schema = client.create_schema()
        schema.add_field("id", DataType.VARCHAR, is_primary=True, max_length=65_535)
        schema.add_field("text", DataType.VARCHAR, max_length=65_535)
        for key, value in fields.items():
            kind = {"datatype": DataType.VARCHAR, "max_length": 200} if isinstance(value, str) else {}
            schema.add_field(key, **{"datatype": DataType.INT64, **kind})
        schema.add_field("vector", DataType.FLOAT_VECTOR, dim=vectors_of(records).shape[1])
        indices = client.prepare_index_params()
        indices.add_index("vector", index_type="FLAT", metric_type=metric.upper())
        client.create_collection(name, schema=schema, index_params=indices)
        self.put(client, name, records, list(records))

    def put(self, client, name, records, names, gone=()):
        rows = [
            {"id": document.id, "text": document.text, "vector": vector.tolist(), **document.metadata}
            for document, vector in (records[name] for name in names)
        ]
        if rows:
            client.upsert(name, rows)
        if gone:
            client.delete(name, ids=list(gone))


class MilvusServer(ServerCollections, Milvus):
    """Milvus-lite as a server."""


class Lance(Collections):
    needs = ("lancedb",)
    scheme = "lancedb"

    def opened(self, location):
        import lancedb

        return nullcontext(lancedb.connect(place_of(location)))

    def make(self, folder, records, metric="l2", name="docs"):
        return with_distance(super().make(folder, records, metric, name), metric)

    def create(self, client, name, records, metric):
        import pyarrow as pa

        schema = None
        if not records:
            schema = pa.schema({"id": pa.string(), "text": pa.string(), "vector": pa.list_(pa.float32(), DIM)})
        client.create_table(name, self.rows(records, records) or None, schema=schema, mode="overwrite")

    def put(self, client, name, records, names, gone=()):
        table = client.open_table(name)
        table.delete("id in (" + ", ".join(f"'{one}'" for one in [*gone, *names]) + ")")
        if names:
            table.add(self.rows(records, names))

    def rows(self, records, names):
        found = (records[name] for name in names)
        return [{"id": d.id, "text": d.text, "vector": vector, **d.metadata} for d, vector in found]


class SqliteVec(Collections):
    needs = ("apsw", "sqlite_vec")
    name = "items"

    def location(self, folder, name):
        return f"sqlite-vec:{folder}/my.db#{name}"

    def opened(self, location):
        return closing(self.connect(location))

    def connect(self, location):
        import apsw
        import sqlite_vec

        connection = apsw.Connection(place_of(location))
        connection.enable_load_extension(True)
        connection.load_extension(sqlite_vec.loadable_path())
        return connection

    def make(self, folder, records, metric="l2", name="items"):
        folder.mkdir(parents=True, exist_ok=True)
        return with_distance(super().make(folder, records, metric, name), metric)

    def create(self, connection, name, records, metric="l2"):
        connection.execute(
            f'CREATE VIRTUAL TABLE "{name}" USING vec0(id text primary key, '
            f"e float[{vectors_of(records).shape[1]}], page integer, source text, +content text)"
        )
        self.put(connection, name, records, list(records))

    def put(self, connection, table, records, names, gone=()):
        rows = [
            (d.id, v.tobytes(), d.metadata.get("page", 0), d.metadata.get("source", ""), d.text)
            for d, v in (records[name] for name in names)
        ]
        with connection:
            connection.executemany(f'DELETE FROM "{table}" WHERE id = ?', [(name,) for name in [*gone, *names]])
            connection.executemany(f'INSERT INTO "{table}" VALUES (?, ?, ?, ?, ?)', rows)

    def new(self, folder):
        return str(folder)


class Sqlite(Collections):
    """An ordinary table of SQLite; metadata in JSON, as in many an application."""

    needs = ()
    name = "items"

    def location(self, folder, name):
        return f"sqlite:{folder}/my.db#{name}"

    def opened(self, location):
        return closing(self.connect(location))

    def connect(self, location):
        return sqlite3.connect(place_of(location), isolation_level=None)

    def make(self, folder, records, metric="l2", name="items"):
        folder.mkdir(parents=True, exist_ok=True)
        return f"{super().make(folder, records, metric, name)}?distance={metric}"

    def create(self, connection, name, records, metric="l2"):
        connection.execute(f'CREATE TABLE "{name}" (id TEXT PRIMARY KEY, content TEXT, metadata TEXT, e BLOB)')
        self.put(connection, name, records, list(records))

    def put(self, connection, table, records, names, gone=()):
        connection.executemany(f'DELETE FROM "{table}" WHERE id = ?', [(name,) for name in [*gone, *names]])
        found = (records[name] for name in names)
        rows = [(d.id, d.text, json.dumps(dict(d.metadata)), None if v is None else v.tobytes()) for d, v in found]
        connection.executemany(f'INSERT INTO "{table}" VALUES (?, ?, ?, ?)', rows)

    def new(self, folder):
        return str(folder)


class Pgvector:
    needs = ("psycopg",)

    def make(self, folder, records, metric="l2"):
        return self.create(f"t{time.time_ns():x}", records, metric)

    def create(self, table, records, metric="l2"):
        """Make a table, in the place of one of that name."""
        from postgres import connect, server_url

        with connect() as connection:
            connection.execute(f"DROP TABLE IF EXISTS {table}")
            connection.execute(
                f"CREATE TABLE {table} (id text PRIMARY KEY, content text, metadata jsonb, "
                f"embedding vector({vectors_of(records).shape[1]}))"
            )
            connection.execute(f"CREATE INDEX ON {table} USING hnsw (embedding vector_{metric}_ops)")
        self.put(table, records, list(records))
        return f"pgvector:{server_url()}#{table}"

    def put(self, table, records, names, gone=()):
        from postgres import as_text, connect

        found = (records[name] for name in names)
        rows = [(d.id, d.text, json.dumps(dict(d.metadata)), as_text(v)) for d, v in found]
        with connect() as connection, connection.cursor() as cursor:
            cursor.executemany(
                f"INSERT INTO {table} VALUES (%s, %s, %s, %s::vector) ON CONFLICT (id) DO UPDATE SET "
                "content = excluded.content, metadata = excluded.metadata, embedding = excluded.embedding",
                rows,
            )
            cursor.execute(f"DELETE FROM {table} WHERE id = ANY(%s)", [list(gone)])

    def change(self, location, before, after):
        self.put(location.rpartition("#")[2], after, *parts(before, after))

    def new(self, folder):
        from postgres import server_url

        return f"pgvector:{server_url()}#n{time.time_ns():x}"


def translate_in_parts(old, stitch, location, state):
    """Translate a few rows at a time."""
    import os

    import migrate.steps.translate.job as job
    import migrate.translate
    from migrate.stitch.persistence import load_stitch
    from migrate.stores import open_store

    os.environ |= {"SOURCE_DATE_EPOCH": "1700000000", "XDG_STATE_HOME": state}
    migrate.translate._BATCH_BYTES, migrate.translate._FEWEST_ROWS, job._PART_BYTES = 1, 32, 1
    migrate.translate(open_store(old), load_stitch(stitch), location)


def translate_into(old, stitch, field, force=False):
    """Translate a few rows at a time into a field of the same records, which is written a few at a time."""
    import migrate.steps.translate.job as job
    import migrate.translate
    from migrate.stitch.persistence import load_stitch
    from migrate.stores import open_store

    store = open_store(old)
    migrate.translate._BATCH_BYTES, migrate.translate._FEWEST_ROWS, job._PART_BYTES = 1, 32, 1
    if hasattr(store, "driver"):
        type(store.rows).at_once = 50
    return migrate.translate(store, load_stitch(stitch), into=field, force=force).remarks


def refusal_to_translate_into(old, stitch, field):
    """What the same says where it is refused, None where it is not."""
    try:
        translate_into(old, stitch, field)
    except UsageError as error:
        return str(error)


def sync_billed(old, new, cache, bill):
    """Sync a row at a time; every text that is embedded leaves a line in a file. Whether anything was written."""
    import os

    import migrate.translate
    from migrate import sync
    from migrate.embedders.cache import CachedEmbedder
    from migrate.stores import open_store

    class Billed(Hashed):
        def embed(self, texts, role, *, progress=None):
            with bill.open("a") as file:
                file.writelines(f"{text.id}\n" for text in texts)
            return super().embed(texts, role)

    os.environ["SOURCE_DATE_EPOCH"] = "1700000000"
    migrate.translate._BATCH_BYTES, migrate.translate._FEWEST_ROWS = 1, 64
    return sync(open_store(old), open_store(new), target=CachedEmbedder(Billed(), cache)).written


def reembed_hashed(old, new):
    """Embed a store again by `Hashed`, with vectors as long as the old ones."""
    import migrate

    migrate.reembed(old, Hashed(dim=DIM), new)
