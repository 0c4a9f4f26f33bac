"""Bringing translated stores of every kind up to date, by the real things."""

import socket
import subprocess
import sys
import time
from dataclasses import astuple
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import sync_tools as tools
from sync_tools import Hashed, changed, some_records, truth

from migrate.fit import fit_stitch
from migrate.stores import open_store
from migrate.stores.base import read_all
from migrate.stores.confidence import stored_confidence
from migrate.stores.sources import stored_sources, vector_checksums
from migrate.sync import plan_sync, sync_store
from migrate.translate import translate_store


@pytest.fixture(autouse=True)
def _own_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture(scope="module")
def chroma_server(tmp_path_factory):
    chromadb = pytest.importorskip("chromadb")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(Path(sys.executable).parent / "chroma"), "run", "--path", str(tmp_path_factory.mktemp("server"))]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    settings = chromadb.config.Settings(anonymized_telemetry=False)
    for _ in range(300):
        try:
            client = chromadb.HttpClient(host="127.0.0.1", port=port, settings=settings)
            break
        except ValueError:
            time.sleep(0.1)
    yield tools.ChromaServer(client, f"chroma+http://127.0.0.1:{port}")
    process.terminate()
    process.wait(20)


NEEDS = {
    "Langchain": ["langchain_community"],
    "Chroma": ["chromadb"],
    "Qdrant": ["qdrant_client"],
    "QdrantServer": ["qdrant_client"],
    "Lance": ["lancedb"],
    "SqliteVec": ["apsw", "sqlite_vec"],
    "Pgvector": ["psycopg"],
}
KINDS = ["Folder", "Arrays", "Langchain", "Chroma", "ChromaServer", "Qdrant", "QdrantServer", "Lance", "SqliteVec",
         "Pgvector"]  # fmt: skip


@pytest.fixture
def kind_of(request, monkeypatch):
    @cache
    def make(name):
        for module in NEEDS.get(name, ()):
            pytest.importorskip(module)
        if name == "ChromaServer":
            return request.getfixturevalue("chroma_server")
        if name == "QdrantServer":
            import qdrant_client

            client = qdrant_client.QdrantClient(":memory:")
            monkeypatch.setattr("migrate.stores.qdrant.connect", lambda location, url: client)
            return tools.QdrantServer(client)
        return getattr(tools, name)()

    return make


def translated(old, output, embedder, size=40):
    store = open_store(old)
    fitted = fit_stitch(store, embedder, stitch="ridge", size=size)
    translate_store(store, fitted, output)
    return open_store(output)


def by_id(store):
    """Vector and confidence of each document."""
    found = read_all(store.scan())
    return {
        doc_id: (vector, value)
        for doc_id, vector, value in zip(found.ids, found.vectors, stored_confidence(store), strict=True)
    }


def check_synced(old, new, before, records, after):
    """Every document has the old store's fields; its vector is the one it had, or the true one."""
    now, documents = by_id(new), {document.id: document for document in new.documents()}
    assert documents.keys() == after.keys() == now.keys()
    source = {document.id: document for document in open_store(old).documents()}
    for name, (document, vector) in after.items():
        assert documents[name].text == document.text
        same_kind = new.info.kind == open_store(old).info.kind
        assert not same_kind or documents[name] == source[name]
        assert documents[name].metadata["page"] == document.metadata["page"]
        was = records.get(name)
        is_kept = was is not None and was[0].text == document.text
        if is_kept and (np.array_equal(was[1], vector) or before[name][1] == 1):
            assert np.array_equal(now[name][0], before[name][0]), "to the bit"
            assert now[name][1] == before[name][1]
        else:
            assert np.array_equal(now[name][0], truth(document.text)), name
            assert now[name][1] == 1
    found = read_all(open_store(old).scan())
    sources = dict(zip(found.ids, vector_checksums(found.vectors), strict=True))
    ids = read_all(new.scan()).ids
    assert [sources[doc_id] for doc_id in ids] == stored_sources(new).tolist()


CROSS = [("Folder", "Chroma"), ("Folder", "SqliteVec"), ("Folder", "Pgvector"), ("Chroma", "Lance"),
         ("Pgvector", "Folder"), ("Lance", "Qdrant"), ("Langchain", "faiss")]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("old_kind", "new_kind"), [*((name, name) for name in KINDS), *CROSS], ids=lambda name: name)
def test_a_store_that_changed_is_brought_up_to_date(old_kind, new_kind, kind_of, tmp_path):
    kind, embedder = kind_of(old_kind), Hashed()
    records = some_records()
    old = kind.make(tmp_path / "old", records)
    output = f"faiss:{tmp_path / 'new'}" if new_kind == "faiss" else kind_of(new_kind).new(tmp_path / "new")
    if (old_kind, new_kind) == ("Folder", "SqliteVec"):
        output = f"sqlite-vec:{tmp_path / 'new'}#items"
    new = translated(old, output, embedder)
    before, model = by_id(new), new.info.manifest.model

    assert plan_sync(open_store(old), new, embedder).is_current
    after = changed(records)
    kind.change(old, records, after)
    n_vectors = sum(before[name][1] != 1 for name in sorted(records)[100:102])
    del embedder.asked[:]
    plan = plan_sync(open_store(old), open_store(new.info.location), embedder)
    metadata = 10 if old_kind == new_kind else None
    expected = (30, 20 + n_vectors, metadata, 15, 200 - 15 - 20 - n_vectors - (metadata or 0))
    assert astuple(plan.counts) == expected
    assert not embedder.asked, "nothing is embedded before it is agreed to"
    done = plan.run()
    assert astuple(done.counts) == expected and done.written
    wanted = {document.text for name, (document, _) in after.items() if name.startswith("new-")}
    assert wanted <= set(embedder.asked) and len(embedder.asked) == 50 + n_vectors
    new = open_store(new.info.location, verify=True)
    check_synced(old, new, before, records, after)
    manifest = new.info.manifest
    assert manifest.model.spec == model.spec and manifest.store.stitch == "ridge"
    assert manifest.counts["documents"] == 215
    assert manifest.counts["true vectors"] == done.n_true == sum(value == 1 for _, value in by_id(new).values())
    assert manifest.store.synced["added"] == 30
    again = sync_store(open_store(old), new, embedder)
    assert not again.written and astuple(again.counts)[:2] == (0, 0)
