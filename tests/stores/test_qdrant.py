"""Qdrant's own client: folders of its local mode, and the way of a server.

There is no server among the packages that tests may install. What speaks to one is tested with Qdrant's own engine
behind the real client and HTTP, see `qdrant_server.py`. A server that is not there is the real client's.
"""

import json
import pickle
import sqlite3
import uuid
from contextlib import closing

import numpy as np
import pytest
from database_tests import DatabaseTests, ServerTests, backwards, written
from kinds import kind_class

from migrate.databases.qdrant import QdrantDriver
from migrate.errors import StoreError, UsageError
from migrate.locations import Address
from migrate.manifest import Manifest, ModelIdentity
from migrate.steps.switch import forget, rollback, switch
from migrate.stores import open_store
from migrate.stores.base import read_all
from migrate.testing.stores import example_documents, example_vectors

QDRANT = kind_class("qdrant")()
qdrant_client = pytest.importorskip("qdrant_client")
from qdrant_client import models  # noqa: E402

pytestmark = pytest.mark.slow


def fill(client, name, documents, vectors, metric="l2"):
    QDRANT.create(client, name, backwards(documents, vectors), metric)


class TestFolder(DatabaseTests):
    """Ids of any text are in the payload, as Qdrant has none but numbers and UUIDs."""

    maker = QDRANT

    def filter_by(self, name, value):
        return models.Filter(must=[models.FieldCondition(key=name, match=models.MatchValue(value=value))])


@pytest.fixture
def server(monkeypatch, tmp_path_factory):
    from qdrant_server import serving

    with (
        serving(tmp_path_factory.mktemp("shards")) as url,
        closing(qdrant_client.QdrantClient(url=url, check_compatibility=False)) as client,
    ):
        monkeypatch.setattr("migrate.databases.qdrant.QdrantDriver.connect", lambda driver: client)
        yield client


class TestServer(ServerTests):
    maker, server, options = QDRANT, "qdrant:http://db.example:6333", "?id=key&text=text"

    def filter_by(self, name, value):
        return {"must": [{"key": name, "match": {"value": value}}]}

    @pytest.fixture(autouse=True)
    def _on(self, server):
        self.client = server


def awkward(client, count=300):
    """Named, sparse and missing vectors; numbers and UUIDs as ids; nested payload."""
    graph = models.HnswConfigDiff(m=24)
    vectors = {
        "dense": models.VectorParams(size=8, distance=models.Distance.DOT, on_disk=True, hnsw_config=graph),
        "other": models.VectorParams(size=3, distance=models.Distance.EUCLID),
    }
    sparse = {"words": models.SparseVectorParams(modifier=models.Modifier.IDF)}
    client.create_collection("awkward", vectors, sparse, metadata={"owner": "ann"})
    random = np.random.default_rng(3)
    points = []
    for row in range(count):
        vector = {"dense": random.normal(size=8).tolist()} if row % 10 else {}
        if row % 3:
            vector["other"] = [float(row), 0.5, 0.25]
        if row % 4:
            vector["words"] = models.SparseVector(indices=[row, row + 7], values=[0.5, 1.5])
        payload = {"deep": [1, None, {"k": 2**53 + 1}], "empty": [], "tenant": f"t{row % 5}"} if row % 2 else None
        point_id = row if row % 6 else str(uuid.UUID(int=row + 2**80))
        points.append(models.PointStruct(id=point_id, vector=vector, payload=payload))
    client.upsert("awkward", points)


def everything(client, name):
    points, _ = client.scroll(name, limit=10_000, with_vectors=True, with_payload=True)
    return {
        point.id: (point.payload or {}, {k: v for k, v in point.vector.items() if k != "dense"}) for point in points
    }


@pytest.mark.parametrize("kind", ["folder", "server"])
def test_every_field_of_every_point_goes_through(kind, server, tmp_path):
    client, old, new = server, "qdrant:http://db.example#awkward", "qdrant:http://db.example#new"
    if kind == "folder":
        client = qdrant_client.QdrantClient(path=str(tmp_path / "old"))
        old, new = f"qdrant:{tmp_path}/old#awkward", f"qdrant:{tmp_path}/new#new"
    awkward(client)
    with pytest.raises(StoreError, match="dense, other"):
        open_store(old)
    store = open_store(f"{old}?vector=dense")
    assert (store.info.count, store.info.dim, store.info.metric) == (270, 8, "ip")
    assert store.info.details["hnsw_m"] == 24 and "other, words" in " ".join(store.info.notes)
    vectors = np.random.default_rng(4).normal(size=(270, 5)).astype(np.float32)
    made, _ = written(store, new, tmp_path / "new", vectors)
    assert np.array_equal(read_all(made.scan()).vectors, vectors)
    expected = everything(client, "awkward")
    if kind == "folder":
        client.close()
        client = qdrant_client.QdrantClient(path=str(tmp_path / "new"))
    assert everything(client, "new") == expected and len(expected) == 300
    config = client.get_collection("new").config
    dense, other = (config.params.vectors[name] for name in ("dense", "other"))
    assert (dense.hnsw_config.m, dense.on_disk, dense.size, other.size) == (24, True, 5, 3)
    assert config.params.sparse_vectors["words"].modifier == models.Modifier.IDF
    assert config.metadata["owner"] == "ann"
    client.close()


def test_a_pickle_that_is_no_point_is_never_run(tmp_path):
    QDRANT.make(tmp_path / "old", backwards(example_documents(), example_vectors()))

    class Hostile:
        def __reduce__(self):
            return (open, (str(tmp_path / "ran"), "w"))

    connection = sqlite3.connect(tmp_path / "old" / "collection" / "docs" / "storage.sqlite")
    connection.execute("UPDATE points SET point = ? WHERE rowid = 7", [pickle.dumps(Hostile())])
    connection.commit()
    connection.close()
    with pytest.raises(StoreError, match=r"io\.open"):
        open_store(f"qdrant:{tmp_path}/old")
    assert not (tmp_path / "ran").exists()


def test_nodes_of_llamaindex_have_the_text_that_is_embedded(tmp_path):
    node = {"text": "Fresh bread.", "metadata": {"page": 3, "shelf": 1}, "excluded_embed_metadata_keys": ["shelf"]}
    contents = {"good": json.dumps(node), "bad": "[]"}
    with closing(qdrant_client.QdrantClient(path=str(tmp_path / "q"))) as client:
        for name, content in contents.items():
            client.create_collection(name, models.VectorParams(size=2, distance=models.Distance.COSINE))
            payload = {"_node_content": content, "_node_type": "TextNode", "doc_id": "d"}
            client.upsert(name, [models.PointStruct(id=1, payload=payload, vector=[1.0, 0.0])])
    (document,) = open_store(f"qdrant:{tmp_path}/q#good").documents()
    assert document.text == "page: 3\n\nFresh bread." and document.metadata["doc_id"] == "d"
    with pytest.raises(StoreError, match=r"'_node_content' of point 1 is no node of LlamaIndex .*say \?text=FIELD"):
        list(open_store(f"qdrant:{tmp_path}/q#bad").documents())


def test_settings_of_a_collection_are_made_again(server, tmp_path, monkeypatch):
    fill(server, "old", example_documents(), example_vectors())
    store = open_store("qdrant:http://db.example#old?id=key&text=text")
    store.rows.settings.config.hnsw_config.m = 33
    quantized = models.ScalarQuantization(scalar=models.ScalarQuantizationConfig(type=models.ScalarType.INT8))
    store.rows.settings.config.quantization_config = quantized
    store.rows.settings.config.params.on_disk_payload = True
    asked = {}
    create = server.create_collection
    monkeypatch.setattr(server, "create_collection", lambda name, **facts: (asked.update(facts), create(name, **facts)))
    _, finished = written(store, "qdrant:http://db.example#new", tmp_path / "new", example_vectors(dim=5))
    assert asked["hnsw_config"].m == 33 and asked["quantization_config"] == quantized and asked["on_disk_payload"]
    assert "lossy" in finished.remarks[0]


def lead(client, alias, collection):
    made = models.CreateAlias(collection_name=collection, alias_name=alias)
    client.update_collection_aliases([models.CreateAliasOperation(create_alias=made)])


def leads(client):
    return {found.alias_name: found.collection_name for found in client.get_aliases().aliases}


def test_aliases_of_a_server_trade_collections_in_one_call(server, monkeypatch):
    for name, alias in (("first", "docs"), ("second", "docs_new")):
        fill(server, name, example_documents(), example_vectors())
        lead(server, alias, name)
    old, new = (f"qdrant:http://db.example:6333#{name}?id=key&text=text" for name in ("docs", "docs_new"))
    calls, change = [], server.update_collection_aliases
    monkeypatch.setattr(server, "update_collection_aliases", lambda steps: (calls.append(steps), change(steps)))
    done = switch(old, new, unproven=True)
    assert leads(server) == {"docs": "second", "docs_new": "first"}
    assert len(calls) == 1
    assert done.aside == new
    assert switch(old, new).already
    assert leads(server) == {"docs": "second", "docs_new": "first"}
    rollback(old)
    assert leads(server) == {"docs": "first", "docs_new": "second"}
    switch(old, new, unproven=True)
    forget(old)
    assert leads(server) == {"docs": "second"}
    assert [found.name for found in server.get_collections().collections] == ["second"]
    with pytest.raises(UsageError, match="nothing was switched"):
        rollback(old)


def test_the_manifest_follows_the_alias(server, tmp_path):
    fill(server, "source", example_documents(), example_vectors())
    source = open_store("qdrant:http://db.example:6333#source?id=key&text=text")
    places = [f"qdrant:http://db.example:6333#{name}" for name in ("docs", "docs_new")]
    for name, location in zip(("docs", "docs_new"), places, strict=True):
        made, _ = written(source, location, tmp_path / name, example_vectors())
        made.companions.keep(Manifest("store", ModelIdentity(f"openai:{name}", made.info.dim, normalized=False)))
    done = switch(*places, unproven=True)
    assert (done.model, done.old_model) == ("openai:docs_new", "openai:docs")
    assert open_store(places[0]).info.manifest.model.spec == "openai:docs_new"
    rollback(places[0])
    assert open_store(places[0]).info.manifest.model.spec == "openai:docs"


def test_a_collection_that_is_no_alias_cannot_be_switched(server):
    for name in ("first", "second"):
        fill(server, name, example_documents(), example_vectors())
    old, new = (f"qdrant:http://db.example:6333#{name}?id=key&text=text" for name in ("first", "second"))
    with pytest.raises(UsageError, match="only aliases of Qdrant"):
        switch(old, new, unproven=True)


def test_stores_of_a_server_share_a_client(monkeypatch):
    def connected(location):
        return QdrantDriver(f"qdrant:{location}", Address.parse(location)).connect()

    first = connected("http://127.0.0.1:1#first")
    assert connected("http://127.0.0.1:1#second") is first
    assert connected("http://127.0.0.1:2#first") is not first
    monkeypatch.setenv("QDRANT_API_KEY", "another")
    assert connected("http://127.0.0.1:1#first") is not first
