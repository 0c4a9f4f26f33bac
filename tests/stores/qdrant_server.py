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

HNSW = {"m": 16, "ef_construct": 100, "full_scan_threshold": 10_000}
OPTIMIZERS = {"deleted_threshold": 0.2, "vacuum_min_vector_number": 1000, "default_segment_number": 0,
              "flush_interval_sec": 5}  # fmt: skip


class Collection:
    def __init__(self, folder, settings):
        edge = pytest.importorskip("qdrant_edge")
        self.settings, self.folder, self.schema = settings, folder, {}
        vectors = settings.get("vectors") or {}
        self.is_named = "size" not in vectors
        named = vectors if self.is_named else {"": vectors}
        dense = {
            name: edge.EdgeVectorParams(one["size"], getattr(edge.Distance, one["distance"]))
            for name, one in named.items()
        }
        sparse = {name: edge.EdgeSparseVectorParams() for name in settings.get("sparse_vectors") or {}}
        folder.mkdir(parents=True)
        self.shard = edge.EdgeShard.create(
            str(folder), edge.EdgeConfig(vectors=dense if self.is_named else dense[""], sparse_vectors=sparse or None)
        )

    def info(self):
        settings = self.settings
        kept = ("vectors", "sparse_vectors", "shard_number", "replication_factor", "write_consistency_factor",
                "on_disk_payload")  # fmt: skip
        return {
            "status": "green",
            "optimizer_status": "ok",
            "segments_count": 1,
            "points_count": self.shard.count(self.edge.CountRequest()),
            "config": {
                "params": {name: settings[name] for name in kept if settings.get(name) is not None},
                "hnsw_config": {**HNSW, **(settings.get("hnsw_config") or {})},
                "optimizer_config": {**OPTIMIZERS, **(settings.get("optimizers_config") or {})},
                "quantization_config": settings.get("quantization_config"),
                "metadata": settings.get("metadata"),
            },
            "payload_schema": self.schema,
        }

    @property
    def edge(self):
        return pytest.importorskip("qdrant_edge")

    def filter(self, words):
        if not words:
            return None
        edge = self.edge

        def condition(one):
            if "has_vector" in one:
                return edge.HasVectorCondition(one["has_vector"])
            if "key" in one:
                match = one["match"]
                kind = edge.MatchAny(match["any"]) if "any" in match else edge.MatchValue(match["value"])
                return edge.FieldCondition(one["key"], match=kind)
            return self.filter(one)

        parts = {
            name: [condition(one) for one in words[name]] for name in ("must", "should", "must_not") if words.get(name)
        }
        return edge.Filter(**parts)

    def vector(self, words):
        if isinstance(words, dict):
            return {
                name: self.edge.SparseVector(one["indices"], one["values"]) if isinstance(one, dict) else one
                for name, one in words.items()
            }
        return words

    def record(self, record):
        vector = record.vector
        if isinstance(vector, dict):
            vector = {
                name: {"indices": one.indices, "values": one.values} if hasattr(one, "indices") else one
                for name, one in vector.items()
            }
        found = {"id": record.id if isinstance(record.id, int) else str(record.id), "payload": record.payload}
        if vector is not None:
            found["vector"] = vector
        return found

    def upsert(self, points):
        edge = self.edge
        made = [edge.Point(one["id"], self.vector(one["vector"]), one.get("payload") or {}) for one in points]
        self.shard.update(edge.UpdateOperation.upsert_points(made))

    def put(self, points):
        edge = self.edge
        made = [edge.PointVectors(one["id"], self.vector(one["vector"])) for one in points]
        self.shard.update(edge.UpdateOperation.update_vectors(made))

    def delete(self, ids):
        self.shard.update(self.edge.UpdateOperation.delete_points(ids))

    def scroll(self, words):
        request = self.edge.ScrollRequest(
            offset=words.get("offset"),
            limit=words["limit"],
            filter=self.filter(words.get("filter")),
            with_payload=words.get("with_payload", True),
            with_vector=words.get("with_vector", False),
        )
        records, offset = self.shard.scroll(request)
        return {"points": [self.record(one) for one in records],
                "next_page_offset": offset if offset is None or isinstance(offset, int) else str(offset)}  # fmt: skip

    def retrieve(self, words):
        records = self.shard.retrieve(words["ids"], words.get("with_payload", True), words.get("with_vector", False))
        return [self.record(one) for one in records]

    def query(self, words):
        edge = self.edge
        request = edge.QueryRequest(
            words["limit"],
            query=edge.Query.Nearest(
                words["query"]["nearest"] if isinstance(words["query"], dict) else words["query"], words.get("using")
            ),
            filter=self.filter(words.get("filter")),
            with_payload=words.get("with_payload", False),
        )
        found = self.shard.query(request)
        return {"points": [{**self.record(one), "score": one.score, "version": one.version} for one in found]}


class Server:
    """Collections by name, and their aliases."""

    def __init__(self, folder):
        self.folder, self.collections, self.aliases, self.made = folder, {}, {}, 0

    def named(self, name):
        return self.collections[self.aliases.get(name, name)]

    def answer(self, method, path, words):
        if path == ["aliases"]:
            return {"aliases": [{"alias_name": one, "collection_name": to} for one, to in self.aliases.items()]}
        if path == ["collections"]:
            return {"collections": [{"name": name} for name in self.collections]}
        if path == ["collections", "aliases"]:
            return self.change_aliases(words["actions"])
        name, *rest = path[1:]
        if rest == ["exists"]:
            return {"exists": self.aliases.get(name, name) in self.collections}
        if not rest and method == "PUT":
            self.made += 1
            self.collections[name] = Collection(self.folder / str(self.made), words)
            return True
        if not rest and method == "DELETE":
            self.drop(self.collections.pop(name))
            self.aliases = {one: to for one, to in self.aliases.items() if to != name}
            return True
        collection = self.named(name)
        if not rest:
            return collection.info()
        return self.of_points(collection, method, rest, words)

    def of_points(self, collection, method, path, words):
        if path == ["index"]:
            kind = words["field_schema"]
            collection.schema[words["field_name"]] = {
                "data_type": kind["type"] if isinstance(kind, dict) else kind,
                "points": 0,
            }
        elif path == ["points"] and method == "PUT":
            collection.upsert(words["points"])
        elif path == ["points"]:
            return collection.retrieve(words)
        elif path == ["points", "delete"]:
            collection.delete(words["points"])
        elif path == ["points", "vectors"]:
            collection.put(words["points"])
        elif path == ["points", "scroll"]:
            return collection.scroll(words)
        elif path == ["points", "count"]:
            return {
                "count": collection.shard.count(
                    collection.edge.CountRequest(filter=collection.filter(words.get("filter")))
                )
            }
        elif path == ["points", "query", "batch"]:
            return [collection.query(one) for one in words["searches"]]
        else:
            raise KeyError("/".join(path))
        return {"operation_id": 0, "status": "completed"}

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
    thread = threading.Thread(target=http.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{http.server_address[1]}"
    finally:
        http.shutdown()
        http.server_close()
        thread.join()
        for collection in server.collections.values():
            server.drop(collection)
