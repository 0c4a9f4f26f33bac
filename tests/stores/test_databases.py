"""Every command on a store of each kind of database, made by its own client."""

import json
import os
import sys

import numpy as np
import pytest
import sync_tools as tools
from children import run_command
from database_tests import files_of, store_of_lines, written
from sync_tools import some_records

import migrate
from migrate.cli.main import run
from migrate.datasets.beir import write_beir
from migrate.embedders import load_embedder
from migrate.errors import StoreError
from migrate.stores import open_store
from migrate.stores.base import read_all
from migrate.stores.confidence import stored_confidence

pytestmark = pytest.mark.slow
SOURCE, TARGET = "tfidf:32", "tfidf:24"


KINDS = {"chroma": "Chroma", "qdrant": "Qdrant", "lancedb": "Lance", "milvus": "Milvus", "sqlite-vec": "SqliteVec",
         "pgvector": "Pgvector", "parquet": "Parquet"}  # fmt: skip
"""The makers of stores of each kind."""


def made(kind, folder, records, metric="l2", **name):
    return tools.installed(KINDS[kind])().make(folder, records, metric, **name)


def place_of(kind, folder, name):
    """A new store of the kind goes there."""
    return (
        f"sqlite-vec:{folder}/new.db#docs"
        if kind == "sqlite-vec"
        else tools.installed(KINDS[kind])().new(folder / name)
    )


@pytest.fixture(params=KINDS)
def old(request, corpus, tmp_path):
    """The location of a store of the docstrings."""
    model = load_embedder(SOURCE)
    documents = list(corpus.documents)
    model.fit(documents)
    vectors = model.embed_documents(documents)
    ids, asked = [document.id for document in documents], [query.id for query in corpus.queries]
    np.savez(
        tmp_path / "model.npz", doc_ids=ids, docs=vectors, query_ids=asked, queries=model.embed_queries(corpus.queries)
    )
    name = {} if request.param in ("parquet", "pgvector") else {"name": "docs"}
    return made(request.param, tmp_path / "old", tools.records_of(documents, vectors), "ip", **name)


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
    stamp = ["stamp", old, "--model", f"file:{tmp_path}/model.npz"]
    assert run(stamp) == 0, capsys.readouterr().err
    assert run(stamp) == 2 and run([*stamp, "--force"]) == 0
    assert open_store(old).info.manifest.model.spec == "file:model.npz"
    fitted = migrate.fit(old, TARGET, sample=100)
    flat = open_store(migrate.translate(old, fitted, f"faiss:{tmp_path}/flat").path)
    assert sorted(flat.documents(), key=lambda d: d.id) == sorted(open_store(old).documents(), key=lambda d: d.id)
    kind = old.partition(":")[0]
    back = migrate.fit(flat.info.location, "tfidf:16", sample=100)
    again = open_store(migrate.translate(flat.info.location, back, place_of(kind, tmp_path, "back")).path)
    assert (again.info.kind, again.info.dim, again.info.metric) == (kind, 16, "ip")
    assert {d.id: d.text for d in again.documents()} == {d.id: d.text for d in corpus.documents}


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("chroma", "parquet")])
def test_metadata_of_another_kind_stay_as_they_are(kind, tmp_path):
    tools.installed(KINDS[kind])
    old = store_of_lines(
        tmp_path / "old", {"id": "it's", "text": "x", "metadata": {"n": None, "deep": {"k": [1, None]}, "f": 1.0}},
        {"id": "b", "text": ""}, {"id": "7", "text": "naïve 🦆", "metadata": {"id": 3, "text": "y", "metadata": [2]}},
    )  # fmt: skip
    place = f"{kind}:{tmp_path}/new#docs" if kind == "sqlite-vec" else place_of(kind, tmp_path, "new")
    made, _ = written(old, place, tmp_path / "new", read_all(old.scan()).vectors)
    assert list(made.documents()) == sorted(old.documents(), key=lambda document: document.id)
    assert made.info.metric == old.info.metric
    assert sorted(map(bytes, read_all(made.scan()).vectors)) == sorted(map(bytes, read_all(old.scan()).vectors))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "pgvector"])
def test_a_disk_that_refuses_a_new_database_is_told_as_for_files(kind, source_folder, tmp_path):
    tools.installed(KINDS[kind])
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


@pytest.mark.parametrize("kind", ["chroma", "qdrant", "milvus", "lancedb"])
def test_reading_leaves_every_file_as_it_is_and_no_copy(kind, tmp_path):
    location = made(kind, tmp_path / "old", some_records(50))
    before = files_of(tmp_path / "old")
    store = open_store(location)
    list(store.scan()), list(store.documents()), store.snapshot()
    assert files_of(tmp_path / "old") == before
    copies = list((tmp_path / "cache" / "lead-migrate").glob("copies/*"))
    assert len(copies) == store.is_copy == (kind != "lancedb")
    del store
    assert not any(copy.exists() for copy in copies)


@pytest.mark.parametrize("kind", ["chroma", "qdrant", "milvus"])
def test_what_is_written_after_the_copy_was_made_is_noticed(kind, tmp_path, monkeypatch):
    records, maker = some_records(60), tools.installed(KINDS[kind])()
    location = made(kind, tmp_path / "old", records)
    driver, (first, second) = type(open_store(location).driver), sorted(records)[:2]
    open_folder, after = driver.open_folder, {**records, first: (records[first][0], records[first][1] + np.float32(1))}

    def opened_late(*arguments):
        storage = tmp_path / "old" / "collection" / "docs" / "storage.sqlite"
        before = storage.stat() if storage.exists() else None
        maker.change(location, records, after)
        if before is not None:  # of Qdrant: the same number of bytes, within one tick of a coarse clock
            os.utime(storage, ns=(before.st_atime_ns, before.st_mtime_ns))
        return open_folder(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(driver, "open_folder", opened_late)
        store = open_store(location)
    assert not store.is_as_opened()
    with pytest.raises(StoreError, match="records with the same ids were changed"):
        store.check_unchanged(store.snapshot())
    store = open_store(location)
    store.check_unchanged(store.snapshot())
    maker.change(location, after, {name: after[name] for name in after if name != second})
    with pytest.raises(StoreError, match=f"0 documents were added and 1 deleted, such as '{second}'"):
        store.check_unchanged(store.snapshot())


ABSENT = {
    "chroma": [("none#docs", "no folder of Chroma"), ("old#docs?x=1", "tenant")],
    "qdrant": [("none#docs", "no folder of Qdrant"), ("old#docs?x=1", "id, text, vector")],
    "milvus": [
        ("none#docs", "no folder of Milvus"),
        ("old#docs?x=1", "text, vector"),
        ("old#docs?text=page", "text"),
        ("old#docs?vector=page", "vector"),
    ],
    "lancedb": [
        ("none#docs", "no folder of LanceDB"),
        ("old#docs?x=1", "distance"),
        ("old#docs?version=99", "99"),
        ("old#docs?id=vector", "page"),
    ],
}
SERVERS = {
    "chroma+http://127.0.0.1:9#docs": (7, "127.0.0.1:9"),
    "qdrant:http://127.0.0.1:9?api_key=verysecret#docs": (7, "127.0.0.1:9"),
    "milvus:http://127.0.0.1:9?token=verysecret#docs": (7, "127.0.0.1:9"),
    "lancedb:db://cloud#docs": (2, "folders"),
}


@pytest.mark.parametrize("kind", ABSENT)
def test_what_is_not_there_is_said_in_one_line(kind, tmp_path, capfd):
    for name in ("docs", "more"):
        made(kind, tmp_path / "old", some_records(20), name=name)
    capfd.readouterr()  # of clients that made them
    cases = [("old#wrong", "docs, more"), ("old", "docs, more"), *ABSENT[kind]]
    checks = {f"{kind}:{tmp_path}/{rest}": (2 if "?x=1" in rest else 4, words) for rest, words in cases}
    for location, (code, words) in {**checks, **SERVERS}.items():
        if location.startswith(kind):
            assert run(["assess", location, "--target", "tfidf:8"]) == code, location
            lines = capfd.readouterr().err.strip().splitlines()
            assert len(lines) == 1 and words in lines[0] and "verysecret" not in lines[0], lines


@pytest.mark.parametrize(
    ("kind", "module"),
    [(kind, one) for kind, name in KINDS.items() if kind != "parquet" for one in getattr(tools, name).needs],
)
def test_without_the_client_the_line_says_what_to_install(kind, module, tmp_path, capsys, monkeypatch):
    location = made(kind, tmp_path / "old", some_records(20))
    for name in [module, *(name for name in sys.modules if name.startswith(f"{module}."))]:
        monkeypatch.setitem(sys.modules, name, None)
    assert run(["inspect", location]) == 2
    assert f"pip install 'lead-migrate[{kind}]'" in capsys.readouterr().err
