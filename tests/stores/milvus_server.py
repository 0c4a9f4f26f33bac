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
        server.stop(grace=5).wait()
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
