"""Milvus for tests: milvus-lite on a folder, as a server over gRPC in this process, which the real client talks to."""

from contextlib import contextmanager


@contextmanager
def serving(folder):
    """The URL of a server on a folder, until it ends; no process is left."""
    from milvus_lite.adapter.grpc.server import start_server_in_thread

    server, database, port = start_server_in_thread(str(folder))
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.stop(grace=None).wait()
        database.close()


@contextmanager
def client_of(place):
    """A client of a server's URL, or of a folder as milvus-lite opens it."""
    from pymilvus import MilvusClient

    if "://" not in str(place):
        with serving(place) as url, client_of(url) as client:
            yield client
        return
    client = MilvusClient(uri=place, dedicated=True, timeout=60)
    try:
        yield client
    finally:
        client.close()


def fill(client, name, documents, vectors, metric="l2"):
    """A collection with a field for each key of the metadata, which are whole numbers or texts."""
    from pymilvus import DataType

    if client.has_collection(name):
        client.drop_collection(name)
    fields = {key: value for document in documents for key, value in document.metadata.items()}
    schema = client.create_schema()
    schema.add_field("id", DataType.VARCHAR, is_primary=True, max_length=65_535)
    schema.add_field("text", DataType.VARCHAR, max_length=65_535)
    for key, value in fields.items():
        kind = {"datatype": DataType.VARCHAR, "max_length": 200} if isinstance(value, str) else {}
        schema.add_field(key, **{"datatype": DataType.INT64, **kind})
    schema.add_field("vector", DataType.FLOAT_VECTOR, dim=vectors.shape[1])
    indices = client.prepare_index_params()
    indices.add_index("vector", index_type="FLAT", metric_type=metric.upper())
    client.create_collection(name, schema=schema, index_params=indices)
    rows = [
        {"id": document.id, "text": document.text, "vector": vector.tolist(), **document.metadata}
        for document, vector in zip(documents, vectors, strict=True)
    ]
    if rows:
        client.insert(name, rows)
