"""`run` on a collection of a server: the new store lies in files, and one command writes it to the server."""

import shlex

import numpy as np
import pytest

from migrate.embedders import load_embedder
from migrate.stores import open_store

pytestmark = pytest.mark.slow

OLD = "qdrant:http://db.example:6333#docs?id=key&text=text"


@pytest.fixture
def server(short_corpus, monkeypatch):
    """A client in memory, with the corpus in the vectors of a model, and a file of vectors that are these, turned."""
    qdrant_client = pytest.importorskip("qdrant_client")
    from qdrant_client import models

    client = qdrant_client.QdrantClient(":memory:")
    monkeypatch.setattr("migrate.stores.qdrant.QdrantDriver.connect", lambda driver: client)
    embedder = load_embedder("packaged:all-MiniLM-L6-v2")
    vectors, queries = embedder.embed_documents(short_corpus.documents), embedder.embed_queries(short_corpus.queries)
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(384, 384)))[0].astype(np.float32)
    ids = [document.id for document in short_corpus.documents]
    query_ids = [query.id for query in short_corpus.queries]
    np.savez("turned.npz", doc_ids=ids, docs=vectors @ turn, query_ids=query_ids, queries=queries @ turn)
    client.create_collection("docs", models.VectorParams(size=384, distance=models.Distance.DOT))
    points = [
        models.PointStruct(id=row, vector=vector.tolist(), payload={"key": document.id, "text": document.text})
        for row, (document, vector) in enumerate(zip(short_corpus.documents, vectors, strict=True))
    ]
    client.upsert("docs", points)
    return client


def test_run_says_where_the_new_store_is_and_the_next_command_writes_it_to_the_server(server, judged, lead_migrate):
    run = f"run '{OLD}' --target file:turned.npz --judged judged --kind procrustes -o out"
    ended = lead_migrate(run)
    assert f"out/store lies in files: this writes it to the server of {OLD}" in ended.told
    assert ended.next.startswith("translate ")
    lead_migrate(ended.next)
    words = shlex.split(ended.next)
    new = open_store(words[words.index("-o") + 1])
    assert new.info.location.startswith("qdrant:http://db.example:6333#")
    assert new.info.count == len(server.scroll("docs", limit=9_999)[0])
