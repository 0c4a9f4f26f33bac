"""What is alike of all kinds of databases, made by their own clients; `tests/golden` has every command on most."""

import json
import os
import sys

import numpy as np
import pytest
from database_tests import files_of, store_of_lines, written
from kind_base import records_of
from kinds import KINDS as ENTRIES
from kinds import kind_class
from sync_tools import record, some_records

from migrate.cli.main import run
from migrate.errors import StoreError
from migrate.stores import open_store
from migrate.stores.base import read_all
from migrate.stores.confidence import stored_confidence

pytestmark = pytest.mark.slow
SOURCE, TARGET = "tfidf:32", "tfidf:24"


KINDS = ("chroma", "qdrant", "lancedb", "milvus", "sqlite-vec", "sqlite", "pgvector", "parquet")


def maker_of(kind):
    return kind_class(kind)()


def test_every_command_runs_on_milvus(corpus, beir, write_vectors, tmp_path, capsys):
    path = write_vectors(tmp_path / "model.npz", SOURCE)
    old = maker_of("milvus").make(tmp_path / "old", records_of(corpus.documents, np.load(path)["docs"]), "ip")
    stitch, new, model = str(tmp_path / "stitch"), f"milvus:{tmp_path}/new#docs", f"file:{path}"
    assert run(["stamp", old, "--model", model]) == 0, capsys.readouterr().err
    assert open_store(old).info.manifest.model.spec == "file:model.npz"
    assert run(["assess", old, "--target", TARGET]) == 0
    assert run(["fit", old, "--target", TARGET, "--sample", "100", "-o", stitch]) == 0
    assert run(["translate", old, stitch, "-o", new]) == 0, capsys.readouterr().err
    capsys.readouterr()
    assert run(["inspect", new, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["vectors"] == 150
    store = open_store(new)
    assert (store.info.kind, store.info.metric, store.info.dim) == ("milvus", "ip", 24)
    assert list(store.documents()) == list(open_store(old).documents())
    assert {document.id: document.text for document in store.documents()} == {
        document.id: document.text for document in corpus.documents
    }
    assert stored_confidence(store).shape == (150,)
    audit = ["audit", new, "--judged", str(beir), "--source", old]
    assert run([*audit, "--source-model", model, "-q"]) in (0, 1, 3), capsys.readouterr().err
    assert run(["check", new, "--model", TARGET]) in (0, 1)  # translated vectors are not quite those of the model
    assert run(["translate", old, stitch, "-o", f"faiss:{tmp_path}/flat"]) == 0
    flat = open_store(tmp_path / "flat")
    assert sorted(flat.documents(), key=lambda document: document.id) == list(store.documents())
    assert run(["compare", old, str(tmp_path / "flat")]) == 0


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("chroma", "parquet")])
def test_metadata_of_another_kind_stay_as_they_are(kind, tmp_path):
    old = store_of_lines(
        tmp_path / "old", {"id": "it's", "text": "x", "metadata": {"n": None, "deep": {"k": [1, None]}, "f": 1.0}},
        {"id": "b", "text": ""}, {"id": "7", "text": "naïve 🦆", "metadata": {"id": 3, "text": "y", "metadata": [2]}},
    )  # fmt: skip
    made, _ = written(old, maker_of(kind).named_place(tmp_path / "new"), tmp_path / "new", read_all(old.scan()).vectors)
    assert list(made.documents()) == sorted(old.documents(), key=lambda document: document.id)
    assert made.info.metric == old.info.metric
    assert sorted(map(bytes, read_all(made.scan()).vectors)) == sorted(map(bytes, read_all(old.scan()).vectors))


@pytest.mark.parametrize("kind", ["chroma", "qdrant", "milvus", "lancedb"])
def test_reading_leaves_every_file_as_it_is_and_no_copy(kind, tmp_path):
    location = maker_of(kind).make(tmp_path / "old", some_records(50))
    before = files_of(tmp_path / "old")
    store = open_store(location)
    list(store.scan()), list(store.documents()), store.snapshot()
    assert files_of(tmp_path / "old") == before
    copies = list((tmp_path / "cache" / "lead-migrate").glob("copies/*"))
    assert len(copies) == store.info.is_copy == (kind != "lancedb")
    del store
    assert not any(copy.exists() for copy in copies)


@pytest.mark.parametrize("kind", ["chroma", "qdrant", "milvus"])
def test_open_collections_share_a_copy_of_their_folder_until_it_changes(kind, tmp_path):
    maker = maker_of(kind)
    records = some_records(60)
    locations = [maker.make(tmp_path / "old", some_records(40 + row), name=f"part_{row}") for row in range(3)]
    locations.append(maker.make(tmp_path / "old", records, name="docs"))
    if kind == "chroma":  # an index on the disk is in files of its own, which are copied as a collection is opened
        vectors = np.random.default_rng(0).normal(size=(1_200, 8)).astype(np.float32)
        many = {f"{row}": record(f"{row}", f"text {row}", row, vector) for row, vector in enumerate(vectors)}
        locations.append(maker.make(tmp_path / "old", many, name="many"))
        assert any(path.is_dir() for path in (tmp_path / "old").iterdir())
    stores = [open_store(location) for location in locations]
    copies = tmp_path / "cache" / "lead-migrate" / "copies"
    assert len(list(copies.iterdir())) == 1
    for row in range(3):
        batch = read_all(stores[row].scan())
        expected = [some_records(40 + row)[doc_id][1] for doc_id in batch.ids]
        assert np.allclose(batch.vectors, expected, atol=1e-6)
        assert stores[row].searcher().search(batch.vectors[:1], 1)[0].ids == (batch.ids[0],)
    if kind == "chroma":
        assert [hits.ids for hits in stores[4].searcher().search(vectors[:20], 1)] == [(f"{row}",) for row in range(20)]
    maker.change(locations[3], records, {**records, "doc-000": record("doc-000", "another text", 1)})
    again = open_store(locations[3])
    assert len(list(copies.iterdir())) == 2
    texts = [{document.id: document.text for document in store.documents()} for store in (stores[3], again)]
    assert [found["doc-000"] for found in texts] == ["the text of doc-000", "another text"]
    stores.clear()
    assert len(list(copies.iterdir())) == 1
    del again
    assert not list(copies.iterdir())


@pytest.mark.parametrize("kind", ["chroma-server", "qdrant-server"])
def test_a_server_has_one_client_however_often_its_collections_are_opened(kind, kind_of, tmp_path):
    location = kind_of(kind).make(tmp_path / "old", some_records(20))
    first, second = (open_store(location).driver.client for _ in range(2))
    assert first is second


@pytest.mark.parametrize("kind", ["chroma", "qdrant", "milvus"])
def test_what_is_written_after_the_copy_was_made_is_noticed(kind, tmp_path, monkeypatch):
    records, maker = some_records(60), maker_of(kind)
    location = maker.make(tmp_path / "old", records)
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


@pytest.mark.parametrize("kind", ABSENT)
def test_what_is_not_there_is_said_in_one_line(kind, tmp_path, capfd):
    for name in ("docs", "more"):
        maker_of(kind).make(tmp_path / "old", some_records(20), name=name)
    capfd.readouterr()  # of clients that made them
    for rest, words in [("old#wrong", "docs, more"), ("old", "docs, more"), *ABSENT[kind]]:
        assess(f"{kind}:{tmp_path}/{rest}", 2 if "?x=1" in rest else 4, words, capfd)


@pytest.mark.parametrize(
    "location",
    [
        "chroma+http://127.0.0.1:9#docs",
        "qdrant:http://127.0.0.1:9?api_key=verysecret#docs",
        "milvus:http://127.0.0.1:9?token=verysecret#docs",
        "pgvector:postgresql://ann:verysecret@127.0.0.1:9/db#t",
        "lancedb:db://cloud#docs",
    ],
)
def test_a_server_that_does_not_answer_is_named_without_its_password(location, capfd):
    maker_of(location.partition(":")[0].partition("+")[0])
    code, words = (2, "folders") if location.startswith("lancedb") else (7, "127.0.0.1:9")
    assess(location, code, words, capfd)


def assess(location, code, words, capfd):
    """Hold that a command ends with a code and one line, which has these words and no secret."""
    assert run(["assess", location, "--target", "tfidf:8"]) == code
    lines = capfd.readouterr().err.strip().splitlines()
    assert len(lines) == 1 and words in lines[0] and "verysecret" not in lines[0], lines


@pytest.mark.parametrize(
    ("kind", "module"),
    [(kind, one) for kind in KINDS if kind != "parquet" for one in ENTRIES[kind].needs],
)
def test_without_the_client_the_line_says_what_to_install(kind, module, tmp_path, capsys, monkeypatch):
    location = maker_of(kind).make(tmp_path / "old", some_records(20))
    for name in [module, *(name for name in sys.modules if name.startswith(f"{module}."))]:
        monkeypatch.setitem(sys.modules, name, None)
    assert run(["inspect", location]) == 2
    assert f"pip install 'lead-migrate[{kind}]'" in capsys.readouterr().err
