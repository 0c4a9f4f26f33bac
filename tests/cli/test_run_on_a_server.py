"""`run` on a collection of a server: the new store lies in files, and one command writes it to the server."""

import shlex
import subprocess

import numpy as np
import pytest

from migrate.stores import open_store
from migrate.vectors import unit_rows

pytestmark = pytest.mark.slow

OLD = "qdrant:http://db.example:6333#docs?id=key&text=text"


@pytest.fixture
def server(corpus, monkeypatch):
    """A client in memory, with vectors in which queries lie near what answers them, and a file of these, turned."""
    qdrant_client = pytest.importorskip("qdrant_client")
    from qdrant_client import models

    client = qdrant_client.QdrantClient(":memory:")
    monkeypatch.setattr("migrate.databases.qdrant.QdrantDriver.connect", lambda driver: client)
    rng = np.random.default_rng(0)
    vectors = unit_rows(rng.normal(size=(len(corpus.documents), 32)).astype(np.float32))
    vector_of = {document.id: vector for document, vector in zip(corpus.documents, vectors, strict=True)}
    relevant = [np.mean([vector_of[name] for name in corpus.qrels[query.id]], axis=0) for query in corpus.queries]
    queries = unit_rows(np.array(relevant) + rng.normal(0, 0.25, (len(relevant), 32)).astype(np.float32))
    turn = np.linalg.qr(rng.normal(size=(32, 32)))[0].astype(np.float32)
    query_ids = [query.id for query in corpus.queries]
    np.savez("turned.npz", doc_ids=list(vector_of), docs=vectors @ turn, query_ids=query_ids, queries=queries @ turn)
    client.create_collection("docs", models.VectorParams(size=32, distance=models.Distance.DOT))
    points = [
        models.PointStruct(id=row, vector=vector.tolist(), payload={"key": document.id, "text": document.text})
        for row, (document, vector) in enumerate(zip(corpus.documents, vectors, strict=True))
    ]
    client.upsert("docs", points)
    return client


def test_run_says_where_the_new_store_is_and_the_next_command_writes_it_to_the_server(
    server, all_queries, lead_migrate
):
    judging = f"--reference pool --judged {all_queries}"
    run = f"run '{OLD}' --target file:turned.npz --kind procrustes --sample 100 -o out {judging}"
    ended = lead_migrate(run)
    assert f"the server of {OLD}" in ended.told
    assert ended.next.startswith("translate ")
    lead_migrate(ended.next)
    words = shlex.split(ended.next)
    # A real shell would take an & that is not quoted for the end of the command
    shown = subprocess.run(["sh", "-c", f"printf '%s\\n' {ended.next}"], capture_output=True, text=True, check=True)
    assert OLD in words and shown.stdout.splitlines() == words
    new = open_store(words[words.index("-o") + 1])
    assert new.info.location.startswith("qdrant:http://db.example:6333#")
    assert new.info.count == len(server.scroll("docs", limit=9_999)[0])
