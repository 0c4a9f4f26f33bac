"""`run` on a collection of a server: the new store lies in files, and one command writes it to the server."""

import shlex

import numpy as np
import pytest

from migrate.cli.main import run
from migrate.embedders import load_embedder
from migrate.stores import open_store

pytestmark = pytest.mark.slow

OLD = "qdrant:http://db.example:6333#docs?id=key&text=text"


@pytest.fixture
def server(corpus, tmp_path, monkeypatch):
    """A client in memory, with the corpus in the vectors of a model, and a file of vectors that are these, turned."""
    qdrant_client = pytest.importorskip("qdrant_client")
    from qdrant_client import models

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    client = qdrant_client.QdrantClient(":memory:")
    monkeypatch.setattr("migrate.stores.qdrant.QdrantDriver.connect", lambda driver: client)
    embedder = load_embedder("packaged:all-MiniLM-L6-v2")
    vectors, queries = embedder.embed_documents(corpus.documents), embedder.embed_queries(corpus.queries)
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(384, 384)))[0].astype(np.float32)
    ids = [document.id for document in corpus.documents]
    query_ids = [query.id for query in corpus.queries]
    np.savez("turned.npz", doc_ids=ids, docs=vectors @ turn, query_ids=query_ids, queries=queries @ turn)
    client.create_collection("docs", models.VectorParams(size=384, distance=models.Distance.DOT))
    points = [
        models.PointStruct(id=row, vector=vector.tolist(), payload={"key": document.id, "text": document.text})
        for row, (document, vector) in enumerate(zip(corpus.documents, vectors, strict=True))
    ]
    client.upsert("docs", points)
    return client


def test_run_says_where_the_new_store_is_and_the_next_command_writes_it_to_the_server(server, beir, capsys):
    command = ["run", OLD, "--target", "file:turned.npz", "--beir", str(beir), "--stitch", "procrustes", "-o", "out"]
    assert run(command) == 0, capsys.readouterr()
    *said, following = capsys.readouterr().err.splitlines()
    assert f"out/store lies in files: this writes it to the server of {OLD}" in " ".join(map(str.strip, said))
    words = shlex.split(following)
    assert words[:3] == ["next:", "lead-migrate", "translate"]
    assert run(words[2:]) == 0
    new = open_store(words[words.index("-o") + 1])
    assert new.info.location.startswith("qdrant:http://db.example:6333#") and new.info.count == len(
        server.scroll("docs", limit=9_999)[0]
    )
