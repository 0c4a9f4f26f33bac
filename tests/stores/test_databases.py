"""Every command on a store of each kind of database, made by its own client; see test_pgvector_runs for PostgreSQL."""

import json

import numpy as np
import pytest
from children import run_command

import migrate
from migrate.cli.main import run
from migrate.datasets.beir import write_beir
from migrate.embedders import load_embedder
from migrate.stores import open_store
from migrate.stores.confidence import stored_confidence

pytestmark = pytest.mark.slow
SOURCE, TARGET = "tfidf:32", "tfidf:24"


def make_chroma(folder, documents, vectors):
    chromadb = pytest.importorskip("chromadb")
    client = chromadb.PersistentClient(str(folder))
    collection = client.create_collection("docs", configuration={"hnsw": {"space": "ip"}}, embedding_function=None)
    texts = [document.text for document in documents]
    collection.add([document.id for document in documents], embeddings=vectors, documents=texts)
    client.close()
    return f"chroma:{folder}#docs"


def make_qdrant(folder, documents, vectors):
    qdrant_client = pytest.importorskip("qdrant_client")
    models = qdrant_client.models
    client = qdrant_client.QdrantClient(path=str(folder))
    space = models.VectorParams(size=vectors.shape[1], distance=models.Distance.DOT)
    client.create_collection("docs", vectors_config=space)
    points = [
        models.PointStruct(id=row, vector=vectors[row].tolist(), payload={"id": document.id, "text": document.text})
        for row, document in enumerate(documents)
    ]
    client.upsert("docs", points)
    client.close()
    return f"qdrant:{folder}#docs?id=id"


def make_lancedb(folder, documents, vectors):
    lancedb = pytest.importorskip("lancedb")
    rows = [{"id": d.id, "text": d.text, "vector": v} for d, v in zip(documents, vectors, strict=True)]
    lancedb.connect(str(folder)).create_table("docs", rows)
    return f"lancedb:{folder}#docs?distance=ip"


def make_milvus(folder, documents, vectors):
    pytest.importorskip("milvus_lite")
    from milvus_server import client_of, fill

    with client_of(folder) as client:
        fill(client, "docs", documents, vectors, "ip")
    return f"milvus:{folder}#docs"


def make_sqlite_vec(folder, documents, vectors):
    apsw, sqlite_vec = pytest.importorskip("apsw"), pytest.importorskip("sqlite_vec")
    folder.mkdir()
    connection = apsw.Connection(str(folder / "my.db"))
    connection.enable_load_extension(True)
    connection.load_extension(sqlite_vec.loadable_path())
    dim = vectors.shape[1]
    connection.execute(f"CREATE VIRTUAL TABLE docs USING vec0(id text primary key, e float[{dim}], +content text)")
    rows = ((d.id, v.tobytes(), d.text) for d, v in zip(documents, vectors, strict=True))
    with connection:
        connection.executemany("INSERT INTO docs VALUES (?, ?, ?)", rows)
    connection.close()
    return f"sqlite-vec:{folder}/my.db#docs?distance=ip"


def make_parquet(folder, documents, vectors):
    parquet = pytest.importorskip("pyarrow.parquet")
    pyarrow = pytest.importorskip("pyarrow")
    folder.mkdir()
    columns = {"id": [d.id for d in documents], "text": [d.text for d in documents], "vector": list(vectors)}
    for number, part in enumerate((slice(0, 70), slice(70, None))):
        own = {name: values[part] for name, values in columns.items()}
        parquet.write_table(pyarrow.table(own), folder / f"part-{number:05d}.parquet", row_group_size=30)
    return f"parquet:{folder}#?distance=ip"


MAKERS = {
    "chroma": make_chroma,
    "qdrant": make_qdrant,
    "lancedb": make_lancedb,
    "milvus": make_milvus,
    "sqlite-vec": make_sqlite_vec,
    "parquet": make_parquet,
}


def place_of(kind, folder, name):
    """Where a new store of the kind goes."""
    place = f"{kind}:{folder}/{ {'sqlite-vec': 'new.db'}.get(kind, name) }"
    return place if kind == "parquet" else f"{place}#docs"


@pytest.fixture(params=MAKERS)
def old(request, corpus, tmp_path, monkeypatch):
    """The location of a store of the docstrings."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    model = load_embedder(SOURCE)
    documents = list(corpus.documents)
    model.fit(documents)
    vectors = model.embed_documents(documents)
    ids, asked = [document.id for document in documents], [query.id for query in corpus.queries]
    np.savez(
        tmp_path / "model.npz", doc_ids=ids, docs=vectors, query_ids=asked, queries=model.embed_queries(corpus.queries)
    )
    return MAKERS[request.param](tmp_path / "old", documents, vectors)


def test_every_command_runs_on_a_database(old, corpus, tmp_path, capsys):
    kind = old.partition(":")[0]
    stitch, beir = str(tmp_path / "stitch"), tmp_path / "beir"
    write_beir(beir, corpus.documents, corpus.queries, corpus.qrels)
    assert run(["assess", old, "--target", TARGET]) == 0
    assert run(["fit", old, "--target", TARGET, "--sample", "100", "-o", stitch]) == 0
    new = place_of(kind, tmp_path, "new")
    assert run(["translate", old, stitch, "-o", new]) == 0, capsys.readouterr().err
    capsys.readouterr()
    assert run(["inspect", new, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["vectors"] == 150
    store = open_store(new)
    assert (store.info.kind, store.info.metric, store.info.dim) == (kind, "ip", 24)
    assert {document.id: document.text for document in store.documents()} == {
        document.id: document.text for document in corpus.documents
    }
    assert stored_confidence(store).shape == (150,)
    for reference in ("build", "pool"):
        audit = ["audit", new, "--reference", reference, "--beir", str(beir), "--source", old]
        code = run([*audit, "--source-model", f"file:{tmp_path}/model.npz", "--json"])
        assert code in (0, 1, 3), capsys.readouterr().err
        outcome = json.loads(capsys.readouterr().out)["verdict"]["outcome"]
        assert outcome in ("SAFE", "NOT SAFE", "INCONCLUSIVE")
    assert run(["compare", old, new]) == 0
    assert run(["check", new, "--model", TARGET]) in (0, 1)  # translated vectors are not quite those of the model
    assert run(["check", new, "--model", SOURCE]) != 0


def test_a_stamp_names_the_model_and_another_kind_keeps_the_documents(old, corpus, tmp_path, capsys):
    assert run(["stamp", old, "--model", f"file:{tmp_path}/model.npz"]) == 0, capsys.readouterr().err
    assert open_store(old).info.manifest.model.spec == "file:model.npz"
    fitted = migrate.fit(old, TARGET, sample=100)
    flat = open_store(migrate.translate(old, fitted, f"faiss:{tmp_path}/flat").path)
    assert sorted(flat.documents(), key=lambda d: d.id) == sorted(open_store(old).documents(), key=lambda d: d.id)
    kind = old.partition(":")[0]
    back = migrate.fit(flat.info.location, "tfidf:16", sample=100)
    again = open_store(migrate.translate(flat.info.location, back, place_of(kind, tmp_path, "back")).path)
    assert (again.info.kind, again.info.dim, again.info.metric) == (kind, 16, "ip")
    assert {d.id: d.text for d in again.documents()} == {d.id: d.text for d in corpus.documents}


@pytest.mark.parametrize("kind", MAKERS)
def test_a_disk_that_refuses_a_new_database_is_told_as_for_files(kind, source_folder, tmp_path, monkeypatch):
    modules = {"chroma": "chromadb", "qdrant": "qdrant_client", "lancedb": "lancedb", "milvus": "milvus_lite"}
    pytest.importorskip(modules.get(kind, "apsw"))
    for name in ("XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    stitch, new = str(tmp_path / "stitch"), f"{kind}:{tmp_path}/new" + ("" if kind == "parquet" else "#docs")
    assert run(["fit", str(source_folder), "--target", TARGET, "--stitch", "ridge", "-o", stitch, "-q"]) == 0
    command = ["translate", str(source_folder), stitch, "-o", new, "-q"]
    code, printed = run_command(command, tmp_path, largest=40_000)  # it stands in for a full disk
    lines = printed.strip().splitlines()
    assert code == 5 and len(lines) == 1, printed
    assert "disk" in lines[0] or "(ulimit -f)" in lines[0] or "Input/output error" in lines[0]
    assert not (tmp_path / "new").exists()
    assert run(command) == 0
    assert open_store(new).info.count == 150
