"""Collections of Milvus."""

import time
from types import SimpleNamespace

from kind_base import Collections, ServerCollections, name_of, place_of, rows_of, vectors_of
from milvus_server import client_of, serving
from pymilvus import DataType
from pymilvus.client import grpc_handler

HURRY = 100
# The client rests for half a second before it first asks whether an index is built; milvus-lite has built it by then
grpc_handler.time = SimpleNamespace(time=time.time, sleep=lambda seconds: time.sleep(seconds / HURRY))


class Milvus(Collections):
    """A folder of milvus-lite; a field for each key of the metadata, which are whole numbers or texts."""

    scheme = "milvus"

    def opened(self, location):
        return client_of(place_of(location))

    def create(self, client, name, records, metric="l2"):
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

    def read(self, location):
        with self.opened(location) as client:
            client.load_collection(name_of(location))
            rows = client.query(name_of(location), filter="", limit=10_000, output_fields=["*"])
        return rows_of(map(dict, rows)), {}


class MilvusServer(ServerCollections, Milvus):
    """Milvus-lite as a server."""

    @classmethod
    def started(cls, ends, folder):
        url = ends.enter_context(serving(folder))
        return cls(ends.enter_context(client_of(url)), f"milvus:{url}")
