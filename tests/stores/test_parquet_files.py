"""Stores in files of Parquet, here and on object storage; `test_parquet` has those beside a FAISS index."""

import os
import socket
import subprocess
import sys
import time
import uuid

import numpy as np
import pytest

from migrate.errors import LeadMigrateError, StoreError, UsageError
from migrate.stores import open_store
from migrate.stores.base import Resume, read_all
from migrate.stores.registry import output_of
from migrate.testing.stores import StoreTests, example_documents, example_vectors
from migrate.vectors import Batch, Document

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
fsspec = pytest.importorskip("fsspec")


def table_of(documents, vectors, metric="ip", kind=None, metadata=None):
    """A table of documents with a column `metadata`, a struct by default."""
    kind = kind or pa.list_(pa.float32(), vectors.shape[1])
    found = [dict(document.metadata) for document in documents]
    columns = {
        "id": [document.id for document in documents],
        "text": [document.text for document in documents],
        "metadata": pa.array(found, metadata) if documents else pa.array([], pa.struct([("page", pa.int64())])),
        "embedding": pa.array(list(vectors), kind),
    }
    own = {b"lead-migrate": b'{"distance": "%s"}' % metric.encode()}
    return pa.table(columns).replace_schema_metadata(own)


def write_shards(system, root, table, shards=3):
    """The table in files of several row groups each; what was there is gone."""
    if system.exists(root):
        system.rm(root, recursive=True)
    system.makedirs(root, exist_ok=True)
    size = -(-max(len(table), 1) // shards)
    for number in range(shards):
        with system.open(f"{root}/part-{number:05d}.parquet", "wb") as file:
            pq.write_table(table.slice(number * size, size), file, row_group_size=7)


class TestParquetFolder(StoreTests):
    def make_store(self, folder, documents, vectors, metric):
        write_shards(fsspec.filesystem("file"), str(folder), table_of(documents, vectors, metric))
        return f"parquet:{folder}"

    def new_location(self, folder):
        return f"parquet:{folder}"


class TestParquetFile(StoreTests):
    """By its path alone, and in a folder of any name."""

    def make_store(self, folder, documents, vectors, metric):
        pq.write_table(table_of(documents, vectors, metric), folder / "docs.parquet", row_group_size=13)
        return folder / "docs.parquet"


class TestParquetInMemory(StoreTests):
    """Object storage without a server."""

    root = "memory://"

    def make_store(self, folder, documents, vectors, metric):
        root = f"{self.root}{self.name(folder)}"
        system, path = fsspec.core.url_to_fs(root)
        write_shards(system, path, table_of(documents, vectors, metric), shards=2)
        return f"parquet:{root}"

    def new_location(self, folder):
        return f"parquet:{self.root}{self.name(folder)}"

    def name(self, folder):
        return "-".join(folder.parts[-2:])

    @pytest.fixture(autouse=True)
    def emptied(self):
        fsspec.filesystem("memory").store.clear()


@pytest.fixture(scope="module")
def s3(tmp_path_factory):
    """A bucket of moto's server, which speaks S3."""
    pytest.importorskip("moto.server")
    pytest.importorskip("s3fs")
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    settings = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x",
        "AWS_DEFAULT_REGION": "us-east-1",
    }  # fmt: skip
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    log = (tmp_path_factory.mktemp("moto") / "log").open("wb")
    server = subprocess.Popen([sys.executable, "-m", "moto.server", "-p", str(port)], stdout=log, stderr=log)
    bucket = f"bucket-{uuid.uuid4().hex[:8]}"
    system = fsspec.filesystem("s3")
    for _ in range(200):
        try:
            system.mkdir(bucket)
            break
        except Exception:
            time.sleep(0.2)
    yield f"s3://{bucket}/"
    server.kill()
    server.wait()
    log.close()
    for name, value in before.items():
        os.environ.pop(name) if value is None else os.environ.update({name: value})


@pytest.mark.slow
class TestParquetOnS3(TestParquetInMemory):
    @pytest.fixture(autouse=True)
    def emptied(self, s3):
        type(self).root = f"{s3}{uuid.uuid4().hex[:8]}/"
