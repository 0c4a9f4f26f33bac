from contextlib import ExitStack
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import sync_tools as tools
from faiss_tools import COUNT, DIM


@pytest.fixture(autouse=True)
def _own_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def kind_of(monkeypatch, tmp_path):
    """Makers of stores by the names of their classes; what answers for a server of Milvus ends with the test."""
    with ExitStack() as ends:

        @cache
        def make(name):
            maker = tools.installed(name)
            if name == "ChromaServer":
                from chroma_tools import server

                return maker(*server())
            if name == "QdrantServer":
                import qdrant_client

                client = qdrant_client.QdrantClient(":memory:")
                monkeypatch.setattr("migrate.databases.qdrant.QdrantDriver.connect", lambda driver: client)
                return maker(client, "qdrant:http://db.example:6333")
            if name == "MilvusServer":
                from milvus_server import client_of, serving

                url = ends.enter_context(serving(tmp_path / "milvus server"))
                return maker(ends.enter_context(client_of(url)), f"milvus:{url}")
            return maker()

        yield make


@pytest.fixture
def vectors():
    return np.random.default_rng(7).normal(size=(COUNT, DIM)).astype(np.float32)


@pytest.fixture
def shared_stores():
    folder = Path(__file__).parents[3] / "shared" / "data" / "stores"
    if not folder.is_dir():
        pytest.skip("the stores of public projects are not here")
    return folder
