"""How a program searches a store by the kind's own client: by the name, opened anew where a client must be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

Search = Callable[[list[float]], list[str]]
NEAREST = 3


def faiss(location: str) -> Search:
    """An index that is read each time."""
    import faiss as library
    import numpy as np

    def search(query: list[float]) -> list[str]:
        index = library.read_index(f"{location}/index.faiss")
        return [str(row) for row in index.search(np.array([query], np.float32), NEAREST)[1][0]]

    return search


def pgvector(location: str) -> Search:
    """A connection that stays."""
    import psycopg

    url, _, table = location.partition(":")[2].partition("#")
    connection = psycopg.connect(url, autocommit=True)
    question = f"SELECT id FROM {table} ORDER BY embedding <#> %s::vector LIMIT {NEAREST}"

    def search(query: list[float]) -> list[str]:
        return [str(row[0]) for row in connection.execute(question, [str(query)]).fetchall()]

    return search


def sqlite(location: str) -> Search:
    """A connection that stays, and waits for writers; not read-only, which could not undo what a killed one left."""
    import json

    import apsw
    import sqlite_vec

    path, _, table = location.partition(":")[2].partition("#")
    connection = apsw.Connection(path)
    connection.set_busy_timeout(10_000)
    connection.enable_load_extension(True)
    connection.load_extension(sqlite_vec.loadable_path())
    question = f"SELECT id FROM {table} WHERE embedding MATCH ? AND k = {NEAREST} ORDER BY distance"

    def search(query: list[float]) -> list[str]:
        return [str(row[0]) for row in connection.execute(question, (json.dumps(query),))]

    return search


def _collections(client: Any, name: str) -> Search:
    def search(query: list[float]) -> list[str]:
        collection = client.get_collection(name, embedding_function=None)
        return list(collection.query([query], n_results=NEAREST, include=[])["ids"][0])

    return search


def _of_one_folder(path: str, search: Search) -> Search:
    """Search again where the folder traded places meanwhile, as the files that were opened are then of two."""

    def search_again(query: list[float]) -> list[str]:
        while True:
            before = Path(path).stat().st_ino
            try:
                found = search(query)
            except Exception:
                if Path(path).stat().st_ino == before:
                    raise
            else:
                if Path(path).stat().st_ino == before:
                    return found

    return search_again


def chroma(location: str) -> Search:
    """A folder that is opened each time: a client that stays open finds the files of the folder that traded places."""
    import chromadb
    from chromadb.api.shared_system_client import SharedSystemClient

    path, _, name = location.partition(":")[2].partition("#")

    def search(query: list[float]) -> list[str]:
        try:
            client: Any = chromadb.PersistentClient(path)
            found = _collections(client, name)(query)
            client.close()
        except Exception:
            SharedSystemClient.clear_system_cache()  # or what could not be opened is given out again
            raise
        return found

    return _of_one_folder(path, search)


def chroma_server(location: str) -> Search:
    """As `chroma`, on a server."""
    import chromadb

    host, _, port = location.partition("//")[2].partition("#")[0].partition(":")
    return _collections(chromadb.HttpClient(host, int(port)), location.partition("#")[2])


def qdrant(location: str) -> Search:
    """A folder that is opened each time, as its client wants it for itself."""
    from qdrant_client import QdrantClient

    path, _, name = location.partition(":")[2].partition("#")

    def search(query: list[float]) -> list[str]:
        client = QdrantClient(path=path)
        try:
            return [str(point.id) for point in client.query_points(name, query, limit=NEAREST).points]
        finally:
            client.close()

    return search


@contextmanager
def milvus_client(place: str) -> Iterator[Any]:
    """A client of Milvus at a URL, or of a folder that milvus-lite serves meanwhile, and to nobody else."""
    from milvus_lite.adapter.grpc.server import start_server_in_thread
    from pymilvus import MilvusClient

    server = database = None
    if "://" not in place:
        server, database, port = start_server_in_thread(place)
        place = f"http://127.0.0.1:{port}"
    client = MilvusClient(uri=place, dedicated=True, timeout=60)
    try:
        yield client
    finally:
        client.close()
        if server is not None and database is not None:
            server.stop(grace=None).wait()
            database.close()


def _nearest_of_milvus(client: Any, name: str, query: list[float]) -> list[str]:
    client.load_collection(name)
    (hits,) = client.search(name, data=[query], anns_field="vector", limit=NEAREST, consistency_level="Strong")
    return [str(hit["id"]) for hit in hits]


def milvus(location: str) -> Search:
    """A folder that is opened each time, as milvus-lite wants it for itself."""
    path, _, name = location.partition(":")[2].partition("#")

    def search(query: list[float]) -> list[str]:
        with milvus_client(path) as client:
            return _nearest_of_milvus(client, name, query)

    return _of_one_folder(path, search)


def milvus_server(location: str) -> Search:
    """A client that stays; the alias is looked up by the server each time."""
    from pymilvus import MilvusClient

    url, _, name = location.partition(":")[2].partition("#")
    client = MilvusClient(uri=url, timeout=60)
    return lambda query: _nearest_of_milvus(client, name, query)


def lancedb(location: str) -> Search:
    """A table that is opened each time, and again where its folder traded places just then: its files are others."""
    import lancedb as library

    path, _, name = location.partition(":")[2].partition("#")
    database = library.connect(path)

    def search(query: list[float]) -> list[str]:
        for is_last in (False, False, True):
            try:
                found: Any = database.open_table(name).search(query)
                return [row["id"] for row in found.distance_type("dot").limit(NEAREST).to_list()]
            except RuntimeError as error:
                if is_last or "Not found" not in str(error):
                    raise
        raise AssertionError

    return search


def parquet(location: str) -> Search:
    """A folder whose one file is opened each time, once: `read_table` opens it again for what it reads."""
    import numpy as np
    from pyarrow.parquet import ParquetFile

    path = location.partition(":")[2] + "/part-00000.parquet"

    def search(query: list[float]) -> list[str]:
        with ParquetFile(path) as file:
            table = file.read(columns=["id", "vector"])
        vectors = np.stack(table.column("vector").to_numpy())
        nearest = np.argsort(-(vectors @ np.array(query, np.float32)), kind="stable")[:NEAREST]
        return [str(table.column("id")[int(row)]) for row in nearest]

    return search


SEARCHES: dict[str, Callable[[str], Search]] = {
    "faiss": faiss,
    "pgvector": pgvector,
    "sqlite-vec": sqlite,
    "chroma": chroma,
    "chroma+http": chroma_server,
    "qdrant": qdrant,
    "lancedb": lancedb,
    "milvus": milvus,
    "milvus-server": milvus_server,
    "parquet": parquet,
}
