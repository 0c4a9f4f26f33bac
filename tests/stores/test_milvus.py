"""Milvus's own client, on folders of milvus-lite and on its server over gRPC.

No server of Milvus is among the packages that tests may install. Milvus-lite 3 speaks its protocol to the real client,
with collections, aliases, partitions, functions, filters and iterators of its own; `docs/stores.md` says what it lacks.
"""

import hashlib

import numpy as np
import pytest
from milvus_server import client_of, fill, serving

from migrate.testing.stores import StoreTests

pymilvus = pytest.importorskip("pymilvus")
pytest.importorskip("milvus_lite")

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _own_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


class TestFolder(StoreTests):
    has_rows = False
    same_bytes = False

    def make_store(self, folder, documents, vectors, metric):
        with client_of(folder) as client:
            fill(client, "docs", documents, vectors, metric)
        return f"milvus:{folder}#docs"

    def filter_by(self, name, value):
        return f"{name} == {value}"


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("server")) as url:
        yield url


class TestServer(StoreTests):
    has_rows = False
    same_bytes = False

    @pytest.fixture(autouse=True)
    def _on(self, url):
        self.url = url

    def make_store(self, folder, documents, vectors, metric):
        with client_of(self.url) as client:
            fill(client, self._name(folder), documents, vectors, metric)
        return f"milvus:{self.url}#{self._name(folder)}"

    def new_location(self, folder):
        return f"milvus:{self.url}#{self._name(folder)}"

    def _name(self, folder):
        return f"c{hashlib.sha256(str(folder).encode()).hexdigest()[:20]}"
