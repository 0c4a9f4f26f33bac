"""A translated store, as a folder or in a database, and a model that counts what it is asked for."""

import hashlib
import time

import numpy as np
import pytest

import migrate
from migrate.embedders.base import Embedder
from migrate.errors import InputError, RemoteError
from migrate.manifest import ModelIdentity
from migrate.stores import open_store


class Hashed(Embedder):
    """A vector for each text, at random but always the same. Refuses some texts, and fails `fails` times."""

    def __init__(self, dim=12):
        self.dim, self.asked, self.fails, self.refuses = dim, [], 0, ""

    @property
    def identity(self):
        return ModelIdentity("hashed", self.dim, True)

    def embed(self, texts, role, *, progress=None):
        if self.fails:
            self.fails -= 1
            raise RemoteError("the model does not answer")
        for text in texts:
            if text.text in ("", self.refuses):
                raise InputError(f"{text.id}: the model does not take this text")
        self.asked += [text.id for text in texts]
        return np.array([self.one(text.text) for text in texts], dtype=np.float32).reshape(-1, self.dim)

    def one(self, text):
        seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
        row = np.random.default_rng(seed).normal(size=self.dim)
        return (row / np.linalg.norm(row)).astype(np.float32)


class Other(Hashed):
    """Another model of the same dimension."""

    @property
    def identity(self):
        return ModelIdentity("other", self.dim, True)

    def one(self, text):
        return super().one("other " + text)


NEEDS = {
    "chroma": ["chromadb"],
    "chroma server": ["chromadb"],
    "lancedb": ["lancedb"],
    "milvus": ["milvus_lite", "pymilvus"],
    "pgvector": ["psycopg"],
    "qdrant": ["qdrant_client"],
    "qdrant server": ["qdrant_client", "qdrant_edge"],
    "sqlite-vec": ["apsw", "sqlite_vec"],
}
DATABASES = list(NEEDS)


@pytest.fixture
def place_of(tmp_path, request):
    """Where a new store of a kind goes."""

    def make(kind, name="store"):
        for module in NEEDS.get(kind, ()):
            pytest.importorskip(module)
        if kind == "chroma server":
            from chroma_tools import server

            return f"{server()[1]}#{name}{time.time_ns():x}"
        if kind == "pgvector":
            from postgres import server_url

            return f"pgvector:{server_url()}#{name}{time.time_ns():x}"
        if kind == "qdrant server":
            return f"qdrant:{request.getfixturevalue('qdrant_url')}#{name}"
        return str(tmp_path / name) if kind == "folder" else f"{kind}:{tmp_path / name}#docs"

    return make


@pytest.fixture
def qdrant_url(tmp_path):
    from qdrant_server import serving

    with serving(tmp_path / "qdrant server") as url:
        yield url


def translate(source_folder, embedder, place, size=40):
    """150 documents, 40 of them with true vectors."""
    source = open_store(source_folder)
    fitted = migrate.fit(source, embedder, stitch="ridge", sample=size)
    migrate.translate(source, fitted, place)
    return open_store(str(place))


def work(location, cache, batch=None):
    """Run a worker to its end."""
    import migrate.live.worker
    from migrate.embedders.cache import CachedEmbedder

    if batch is not None:
        migrate.live.worker._BATCH = batch
    options = migrate.live.worker.WorkerOptions(once=True, publish=0.2)
    migrate.live.worker.Worker(location, CachedEmbedder(Hashed(), cache), options).run()
