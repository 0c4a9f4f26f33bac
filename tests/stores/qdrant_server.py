"""A server of Qdrant for tests: its engine is the real one, a shard of `qdrant-edge-py` for each collection.

What a shard does not have is made here, and is no proof of a real server: HTTP, names and aliases of collections,
what a collection says of itself, batches. Points, payloads, vectors, filters, search and files are Qdrant's own.
"""

import json
import shutil
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest

edge = pytest.importorskip("qdrant_edge", reason="needs Qdrant's engine: pip install qdrant-edge-py")

HNSW = {"m": 16, "ef_construct": 100, "full_scan_threshold": 10_000}
OPTIMIZERS = {"deleted_threshold": 0.2, "vacuum_min_vector_number": 1000, "default_segment_number": 0,
              "flush_interval_sec": 5}  # fmt: skip
KEPT = ("vectors", "sparse_vectors", "shard_number", "replication_factor", "write_consistency_factor",
        "on_disk_payload")  # fmt: skip
"""Settings of a collection that it tells as they were given."""


class Collection:
    def __init__(self, folder, settings):
        self.settings, self.folder, self.schema = settings, folder, {}
        vectors = settings.get("vectors") or {}
        is_named = "size" not in vectors
        dense = {
            name: edge.EdgeVectorParams(one["size"], getattr(edge.Distance, one["distance"]))
            for name, one in (vectors if is_named else {"": vectors}).items()
        }
        sparse = {name: edge.EdgeSparseVectorParams() for name in settings.get("sparse_vectors") or {}}
        folder.mkdir(parents=True)
        config = edge.EdgeConfig(vectors=dense if is_named else dense[""], sparse_vectors=sparse or None)
        self.shard = edge.EdgeShard.create(str(folder), config)

    def info(self):
        settings = self.settings
        return {
            "status": "green",
            "optimizer_status": "ok",
            "segments_count": 1,
            "points_count": self.shard.count(edge.CountRequest()),
            "config": {
                "params": {name: settings[name] for name in KEPT if settings.get(name) is not None},
                "hnsw_config": {**HNSW, **(settings.get("hnsw_config") or {})},
                "optimizer_config": {**OPTIMIZERS, **(settings.get("optimizers_config") or {})},
                "quantization_config": settings.get("quantization_config"),
                "metadata": settings.get("metadata"),
            },
            "payload_schema": self.schema,
        }

    def count(self, words):
        return {"count": self.shard.count(edge.CountRequest(filter=filter_of(words.get("filter"))))}

    def index(self, words):
        kind = words["field_schema"]
        kind = kind["type"] if isinstance(kind, dict) else kind
        self.schema[words["field_name"]] = {"data_type": kind, "points": 0}

    def upsert(self, words):
        points = [edge.Point(one["id"], vector_of(one["vector"]), one.get("payload") or {}) for one in words["points"]]
        self.shard.update(edge.UpdateOperation.upsert_points(points))

    def put(self, words):
        vectors = [edge.PointVectors(one["id"], vector_of(one["vector"])) for one in words["points"]]
        self.shard.update(edge.UpdateOperation.update_vectors(vectors))

    def add_vector(self, name, words):
        dense = words["dense"]
        distance = getattr(edge.Distance, dense["distance"])
        self.shard.update(edge.UpdateOperation.create_dense_vector(name, dense["size"], distance))
        vectors = self.settings["vectors"]
        self.settings["vectors"] = {**({"": vectors} if "size" in vectors else vectors), name: dense}

    def drop_vector(self, name):
        self.shard.update(edge.UpdateOperation.delete_vector_name(name))
        self.settings["vectors"] = {one: to for one, to in self.settings["vectors"].items() if one != name}

    def delete(self, words):
        self.shard.update(edge.UpdateOperation.delete_points(words["points"]))

    def scroll(self, words):
        request = edge.ScrollRequest(
            offset=words.get("offset"),
            limit=words["limit"],
            filter=filter_of(words.get("filter")),
            with_payload=words.get("with_payload", True),
            with_vector=words.get("with_vector", False),
        )
        records, offset = self.shard.scroll(request)
        return {"points": [as_words(one) for one in records], "next_page_offset": id_of(offset)}

    def retrieve(self, words):
        records = self.shard.retrieve(words["ids"], words.get("with_payload", True), words.get("with_vector", False))
        return [as_words(one) for one in records]

    def query(self, words):
        query = words["query"]
        request = edge.QueryRequest(
            words["limit"],
            query=edge.Query.Nearest(query["nearest"] if isinstance(query, dict) else query, words.get("using")),
            filter=filter_of(words.get("filter")),
            with_payload=words.get("with_payload", False),
        )
        found = self.shard.query(request)
        return {"points": [{**as_words(one), "score": one.score, "version": one.version} for one in found]}

    def query_batch(self, words):
        return [self.query(one) for one in words["searches"]]


def filter_of(words):
    if not words:
        return None
    names = ("must", "should", "must_not")
    return edge.Filter(**{name: [condition_of(one) for one in words[name]] for name in names if words.get(name)})


def condition_of(words):
    if "has_vector" in words:
        return edge.HasVectorCondition(words["has_vector"])
    if "key" not in words:
        return filter_of(words)
    match = words["match"]
    return edge.FieldCondition(
        words["key"], match=edge.MatchAny(match["any"]) if "any" in match else edge.MatchValue(match["value"])
    )


def vector_of(words):
    """The engine's vectors of those in JSON: one, or several by their names."""
    if not isinstance(words, dict):
        return words
    return {
        name: edge.SparseVector(one["indices"], one["values"]) if isinstance(one, dict) else one
        for name, one in words.items()
    }


def as_words(record):
    vector = record.vector
    if isinstance(vector, dict):
        vector = {
            name: {"indices": one.indices, "values": one.values} if hasattr(one, "indices") else one
            for name, one in vector.items()
        }
    return {"id": id_of(record.id), "payload": record.payload, **({} if vector is None else {"vector": vector})}


def id_of(point_id):
    return point_id if point_id is None or isinstance(point_id, int) else str(point_id)


OF_POINTS = {
    ("PUT", "index"): Collection.index,
    ("PUT", "points"): Collection.upsert,
    ("POST", "points"): Collection.retrieve,
    ("POST", "points/delete"): Collection.delete,
    ("PUT", "points/vectors"): Collection.put,
    ("POST", "points/scroll"): Collection.scroll,
    ("POST", "points/count"): Collection.count,
    ("POST", "points/query/batch"): Collection.query_batch,
}
"""What is done to a collection, by method and path."""


class Server:
    """Collections by name, and their aliases."""

    def __init__(self, folder):
        self.folder, self.collections, self.aliases, self.made = folder, {}, {}, 0

    def answer(self, method, path, words):
        if path == ["aliases"]:
            return {"aliases": [{"alias_name": one, "collection_name": to} for one, to in self.aliases.items()]}
        if path == ["collections"]:
            return {"collections": [{"name": name} for name in self.collections]}
        if path == ["collections", "aliases"]:
            return self.change_aliases(words["actions"])
        name, *rest = path[1:]
        named = self.aliases.get(name, name)
        if rest == ["exists"]:
            return {"exists": named in self.collections}
        if not rest and method == "PUT":
            self.made += 1
            self.collections[name] = Collection(self.folder / str(self.made), words)
            return True
        if not rest and method == "DELETE":
            self.drop(self.collections.pop(name))
            self.aliases = {one: to for one, to in self.aliases.items() if to != name}
            return True
        collection = self.collections[named]
        if not rest and method == "PATCH":  # a server optimizes by itself, and anew when settings change
            return collection.shard.optimize()
        if not rest:
            return collection.info()
        if rest[0] == "vectors":
            add, drop = collection.add_vector, collection.drop_vector
            drop(rest[1]) if method == "DELETE" else add(rest[1], words)
            return {"operation_id": 0, "status": "completed"}
        found = OF_POINTS[method, "/".join(rest)](collection, words)
        return {"operation_id": 0, "status": "completed"} if found is None else found

    def change_aliases(self, actions):
        changed = dict(self.aliases)
        for action in actions:
            if "delete_alias" in action:
                del changed[action["delete_alias"]["alias_name"]]
            else:
                changed[action["create_alias"]["alias_name"]] = action["create_alias"]["collection_name"]
        self.aliases = changed
        return True

    def drop(self, collection):
        collection.shard.close()
        shutil.rmtree(collection.folder, ignore_errors=True)


@contextmanager
def serving(folder: Path):
    """The URL of a server whose collections lie in a folder."""
    server = Server(folder)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def handle_one(self):
            length = int(self.headers.get("Content-Length") or 0)
            words = json.loads(self.rfile.read(length)) if length else {}
            path = [part for part in urlsplit(self.path).path.split("/") if part]
            try:
                status, content = 200, {"result": server.answer(self.command, path, words), "status": "ok", "time": 0.0}
            except KeyError as error:
                status, content = 404, {"status": {"error": f"Not found: {error}"}, "time": 0.0}
            except Exception as error:
                status, content = 400, {"status": {"error": str(error)}, "time": 0.0}
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = handle_one

        def log_message(self, *arguments):
            pass

    class Threads(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 64

    http = Threads(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{http.server_address[1]}"
    finally:
        http.shutdown()
        http.server_close()
        thread.join()
        for collection in server.collections.values():
            server.drop(collection)
