"""Chroma's own client and server: folders and collections of a server."""

import hashlib
import json
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from migrate.cli.main import run
from migrate.errors import StoreError, UsageError
from migrate.stores import open_store
from migrate.stores.base import read_all
from migrate.stores.chroma import ChromaDriver
from migrate.stores.registry import output_of
from migrate.testing.stores import StoreTests, _Output, example_documents, example_vectors
from migrate.vectors import Document
from migrate.work.writer import write_rows

chromadb = pytest.importorskip("chromadb")
pytestmark = pytest.mark.slow

FUNCTION = {"api_key_env_var": "OPENAI_API_KEY", "model_name": "text-embedding-3-small"}


@pytest.fixture(autouse=True)
def _own_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def settings():
    return chromadb.config.Settings(anonymized_telemetry=False)


def add(collection, documents, vectors):
    if documents:
        order = range(len(documents))[::-1]
        collection.add(
            ids=[documents[row].id for row in order],
            embeddings=vectors[::-1],
            documents=[documents[row].text for row in order],
            metadatas=[dict(documents[row].metadata) for row in order],
        )


def fill(client, name, documents, vectors, metric="l2"):
    if name in [found.name for found in client.list_collections()]:
        client.delete_collection(name)
    configuration = {"hnsw": {"space": metric}}
    add(client.create_collection(name, configuration=configuration, embedding_function=None), documents, vectors)


def persistent(folder):
    return chromadb.PersistentClient(str(folder), settings=settings())


class TestFolder(StoreTests):
    has_rows = False
    same_bytes = False

    def make_store(self, folder, documents, vectors, metric):
        client = persistent(folder)
        fill(client, "docs", documents, vectors, metric)
        client.close()
        return f"chroma:{folder}#docs"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(Path(sys.executable).parent / "chroma"), "run", "--path", str(tmp_path_factory.mktemp("server"))]
    log = tmp_path_factory.mktemp("log") / "log"
    with log.open("wb") as output:
        process = subprocess.Popen([*command, "--host", "127.0.0.1", "--port", str(port)], stdout=output, stderr=output)
    for _ in range(300):
        try:
            client = chromadb.HttpClient(host="127.0.0.1", port=port, settings=settings())
            break
        except ValueError:
            time.sleep(0.1)
    yield client, f"chroma+http://127.0.0.1:{port}"
    process.terminate()
    process.wait(20)


class TestServer(StoreTests):
    has_rows = False
    same_bytes = False

    @pytest.fixture(autouse=True)
    def _on(self, server):
        self.client, self.url = server

    def make_store(self, folder, documents, vectors, metric):
        name = self._name(folder)
        fill(self.client, name, documents, vectors, metric)
        return f"{self.url}#{name}"

    def new_location(self, folder):
        return f"{self.url}#{self._name(folder)}"

    def _name(self, folder):
        return f"c{hashlib.sha256(str(folder).encode()).hexdigest()[:20]}"


def test_opening_a_collection_again_and_again_leaves_no_connections_behind(server):
    client, url = server
    fill(client, "again", example_documents(), example_vectors())

    def descriptors():
        assert len(read_all(open_store(f"{url}#again").scan()).ids) == 60
        return len(list(Path("/proc/self/fd").iterdir()))

    before = descriptors()
    assert [descriptors() for _ in range(5)] == [before] * 5
    client.delete_collection("again")


class Function(chromadb.EmbeddingFunction):
    """What a collection made with OpenAI's function notes; it needs no key here."""

    def __init__(self):
        pass

    def __call__(self, input):  # noqa: A002
        raise AssertionError("nothing is to be embedded")

    @staticmethod
    def name():
        return "openai"

    def get_config(self):
        return FUNCTION

    @staticmethod
    def build_from_config(config):
        return Function()

    def supported_spaces(self):
        return ["cosine", "l2", "ip"]


def awkward(client, count=300, dim=16, name="awkward"):
    """A collection of everything that Chroma holds: records with and without text, metadata and URI."""
    vectors = np.random.default_rng(1).normal(size=(count, dim)).astype(np.float32)
    collection = client.create_collection(
        name,
        configuration={
            "hnsw": {"space": "l2", "max_neighbors": 24, "ef_construction": 77, "ef_search": 55},
            "embedding_function": Function(),
        },
        metadata={"owner": "ann", "year": 2024, "share": 0.5, "public": True},
        embedding_function=None,
    )
    whole = {
        "s": "naïve 🦆\n",
        "i": 2**62,
        "f": 1.0,
        "nan": 1e-300,
        "t": True,
        "l": ["a", "b"],
        "n": [1, 2],
        "d": [0.5],
    }
    for row in range(count):
        parts = {}
        if row % 3:
            parts["documents"] = ["" if row % 7 == 1 else f"text {row}"]
        if row % 2:
            parts["metadatas"] = [{**whole, "row": row, "tenant": f"t{row % 5}"}]
        if row % 5 == 0:
            parts["uris"] = [f"file:///{row}"]
        collection.add(ids=[f"id-{row * 7919 % count}"], embeddings=vectors[row : row + 1], **parts)
    return collection


def everything(collection):
    found = collection.get(include=["documents", "metadatas", "uris"])
    columns = (found["documents"], found["metadatas"], found["uris"])
    records = dict(zip(found["ids"], zip(*columns, strict=True), strict=True))
    return {key: (text, fields or {}, uri) for key, (text, fields, uri) in records.items()}


def written(store, location, folder, vectors):
    """What a command writes: the store under `location`, complete."""

    output = _Output(location, folder)
    writer = output.write(store, vectors)
    return output.publish(), writer


@pytest.mark.parametrize("kind", ["folder", "server"])
def test_every_field_of_every_record_goes_through(kind, server, tmp_path):
    if kind == "folder":
        client, location, new = persistent(tmp_path / "old"), f"chroma:{tmp_path}/old", f"chroma:{tmp_path}/new#awkward"
    else:
        client, location = server
        new = f"{location}#awkward-new"
    old = awkward(client)
    store = open_store(f"{location}#awkward")
    assert (store.info.count, store.info.metric, store.info.details["hnsw_m"]) == (300, "l2", 24)
    assert store.info.details["embedding_function"] == "openai"
    vectors = np.random.default_rng(2).normal(size=(300, 9)).astype(np.float32)
    made, writer = written(store, new, tmp_path / "new", vectors)
    client = persistent(tmp_path / "new") if kind == "folder" else client
    copy = client.get_collection(new.partition("#")[2], embedding_function=None)
    assert everything(copy) == everything(old)
    kept = {key: value for key, value in copy.metadata.items() if key != "lead-migrate"}
    assert kept == old.metadata
    assert copy._model.configuration_json == old._model.configuration_json
    assert copy._model.configuration_json["embedding_function"]["config"] == FUNCTION
    assert np.array_equal(read_all(made.scan()).vectors, vectors)
    found = copy.get(ids=["id-5"], include=["embeddings"])["embeddings"][0]
    assert np.array_equal(np.asarray(found, np.float32), vectors[store.ids(range(300)).index("id-5")])
    assert "openai" in writer.remarks[0]
    if kind == "server":
        client.delete_collection("awkward")
        client.delete_collection("awkward-new")


def test_reading_leaves_every_file_as_it_is(tmp_path):
    client = persistent(tmp_path / "old")
    awkward(client, count=50)
    client.close()
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in (tmp_path / "old").rglob("*.*")}
    store = open_store(f"chroma:{tmp_path}/old#awkward")
    list(store.scan()), list(store.documents()), store.snapshot()
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in (tmp_path / "old").rglob("*.*")} == before
    (copies,) = (tmp_path / "cache" / "lead-migrate" / "copies").iterdir()
    del store
    assert not copies.exists()


def test_a_change_of_one_record_is_noticed_and_opening_by_others_is_none(tmp_path):
    client = persistent(tmp_path / "old")
    fill(client, "docs", example_documents(), example_vectors())
    fill(client, "other", example_documents(), example_vectors())
    store = open_store(f"chroma:{tmp_path}/old#docs")
    version = store.driver.version()
    client.get_collection("docs", embedding_function=None).get(limit=1)
    client.get_collection("other", embedding_function=None).delete(ids=["doc-3"])
    assert store.driver.version() == version
    collection = client.get_collection("docs", embedding_function=None)
    collection.delete(ids=["doc-3"])
    assert store.driver.version() != version
    version = store.driver.version()
    collection.update(ids=["doc-6"], metadatas=[{"page": 9}])
    assert store.driver.version() != version


def test_what_is_written_after_the_copy_was_made_is_noticed(tmp_path, monkeypatch):
    client = persistent(tmp_path / "old")
    fill(client, "docs", example_documents(), example_vectors())
    collection = client.get_collection("docs", embedding_function=None)
    open_folder = ChromaDriver.open_folder

    def opened_late(*arguments):
        collection.update(ids=["doc-3"], embeddings=example_vectors(seed=5)[:1])
        return open_folder(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr("migrate.stores.chroma.ChromaDriver.open_folder", opened_late)
        store = open_store(f"chroma:{tmp_path}/old#docs")
    assert not store.is_as_opened()
    with pytest.raises(StoreError, match="records with the same ids were changed"):
        store.check_unchanged(store.snapshot())
    store = open_store(f"chroma:{tmp_path}/old#docs")
    store.check_unchanged(store.snapshot())
    collection.delete(ids=["doc-3"])
    with pytest.raises(StoreError, match="0 documents were added and 1 deleted, such as 'doc-3'"):
        store.check_unchanged(store.snapshot())


def test_vectors_compared_by_cosine_come_back(tmp_path):
    vectors = example_vectors(count=3_000, dim=24)
    client = persistent(tmp_path / "old")
    documents = [Document(f"{row:05}", "t", {"r": row}) for row in range(3_000)]
    fill(client, "docs", documents, vectors, "cosine")
    info = open_store(f"chroma:{tmp_path}/old").info
    assert info.metric == "ip" and info.details["distance"] == "cosine" and "cosine" in info.notes[0]
    np.testing.assert_allclose(read_all(open_store(tmp_path / "old").scan()).vectors, vectors, rtol=1e-6, atol=1e-7)


def written_from(lines, tmp_path):
    """A writer of a collection that has the documents of a FAISS index, given as lines of its docs.jsonl."""
    import faiss

    (tmp_path / "old").mkdir()
    index = faiss.IndexFlatL2(4)
    index.add(np.eye(len(lines), 4, dtype=np.float32))
    faiss.write_index(index, str(tmp_path / "old" / "index.faiss"))
    (tmp_path / "old" / "docs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    store = open_store(tmp_path / "old")
    writer = output_of(f"chroma:{tmp_path}/new#docs").writer(store, tmp_path, 3)
    write_rows(writer, [(0, np.ones((len(lines), 3), np.float32))], store.info.count)
    return writer


@pytest.mark.parametrize("key", ["", "$and", "#document", "chroma:uri2"])
def test_a_key_that_chroma_refuses_or_drops_is_named_with_its_document(key, tmp_path):
    with pytest.raises(StoreError, match=re.escape(f"document 'b': Chroma keeps the key {key!r} to itself; rename it")):
        written_from([{"id": "a", "text": "x"}, {"id": "b", "text": "y", "metadata": {"z": 1, key: 2}}], tmp_path)


def test_an_empty_id_is_named(tmp_path):
    with pytest.raises(StoreError, match="a document has an empty id"):
        written_from([{"id": "a", "text": "x"}, {"id": "", "text": "y"}], tmp_path)


def test_a_store_of_another_kind_becomes_a_collection(tmp_path):
    lines = [
        {"id": "a", "text": "x", "metadata": {"n": None, "deep": {"k": [1, None]}, "i": 3, "mixed": [1, "a"], "e": []}},
        {
            "id": "b",
            "text": "",
            "metadata": {"nan": float("nan"), "inf": [1.5, -float("inf")], "big": 1 << 70, "f": 1.5},
        },
    ]
    writer = written_from(lines, tmp_path)
    collection = persistent(tmp_path).get_collection("docs", embedding_function=None)
    assert everything(collection) == {
        "a": ("x", {"deep": '{"k": [1, null]}', "i": 3, "mixed": '[1, "a"]', "e": "[]"}, None),
        "b": ("", {"nan": "NaN", "inf": "[1.5, -Infinity]", "big": str(1 << 70), "f": 1.5}, None),
    }
    assert collection._model.configuration_json["hnsw"]["space"] == "l2"
    assert [remark.rpartition(": ")[2] for remark in writer.remarks] == ["n", "big, deep, e, inf, mixed, nan"]


def test_what_is_not_there_is_said_in_one_line(tmp_path, capsys):
    client = persistent(tmp_path / "old")
    fill(client, "docs", example_documents(), example_vectors())
    fill(client, "more", [], example_vectors(0))
    for location, code, words in (
        (f"chroma:{tmp_path}/old#wrong", 4, "docs, more"),
        (f"chroma:{tmp_path}/old", 4, "docs, more"),
        (f"chroma:{tmp_path}/none#docs", 4, "no folder of Chroma"),
        (f"chroma:{tmp_path}/old#docs?x=1", 2, "tenant"),
        ("chroma+http://127.0.0.1:9#docs", 7, "127.0.0.1:9"),
    ):
        assert run(["assess", location, "--target", "tfidf:8"]) == code, location
        lines = capsys.readouterr().err.strip().splitlines()
        assert len(lines) == 1 and words in lines[0], lines
    assert open_store(f"chroma:{tmp_path}/old#more").info.count == 0


def test_without_the_client_the_line_says_what_to_install(tmp_path, capsys, monkeypatch):
    persistent(tmp_path).create_collection("docs", embedding_function=None)
    monkeypatch.setitem(sys.modules, "chromadb", None)
    assert run(["inspect", f"chroma:{tmp_path}#docs"]) == 2
    assert "pip install 'lead-migrate[chroma]'" in capsys.readouterr().err


def test_a_folder_of_langchain_is_an_ordinary_one(tmp_path):
    langchain_chroma = pytest.importorskip("langchain_chroma")
    from langchain_core.embeddings import DeterministicFakeEmbedding

    texts = [f"text {row}" for row in range(20)]
    embedding = DeterministicFakeEmbedding(size=6)
    langchain_chroma.Chroma.from_texts(
        texts, embedding, [{"row": row} for row in range(20)], persist_directory=str(tmp_path / "old")
    )
    store = open_store(tmp_path / "old")
    assert (store.driver.name, store.info.count, store.info.dim) == ("langchain", 20, 6)
    assert sorted((d.text, d.metadata["row"]) for d in store.documents()) == sorted(zip(texts, range(20), strict=True))
    written(store, str(tmp_path / "new"), tmp_path / "new", np.ones((20, 4), np.float32))
    opened = langchain_chroma.Chroma(
        "langchain", DeterministicFakeEmbedding(size=4), persist_directory=str(tmp_path / "new")
    )
    assert {document.page_content for document in opened.similarity_search("x", k=20)} == set(texts)


def on_server(server, tmp_path, name, seed):
    """A location, and a collection there that this tool has made."""
    client, url = server
    if f"{name}-source" not in [found.name for found in client.list_collections()]:
        fill(client, f"{name}-source", example_documents(), example_vectors())
    source = open_store(f"{url}#{name}-source")
    (tmp_path / str(seed)).mkdir()
    written(source, f"{url}#{name}", tmp_path / str(seed), example_vectors(seed=seed))
    return f"{url}#{name}", client.get_collection(name, embedding_function=None)


def test_a_collection_that_was_renamed_to_be_replaced_comes_back_when_that_is_given_up(server, tmp_path):
    location, collection = on_server(server, tmp_path, "replaced", 1)
    collection.modify(name=f"replaced-{'0' * 32}-old")  # here a kill comes
    output_of(location).discard()
    assert server[0].get_collection("replaced", embedding_function=None).id == collection.id


def test_a_replacement_that_was_killed_between_two_renames_is_finished(server, tmp_path):
    location, collection = on_server(server, tmp_path, "finished", 1)
    collection.modify(name=f"finished-{'0' * 32}-old")  # here a kill comes
    location, new = on_server(server, tmp_path, "finished", 2)
    assert new.id != collection.id
    assert np.array_equal(read_all(open_store(location).scan()).vectors, example_vectors(seed=2))
    assert not [found for found in server[0].list_collections() if found.name.endswith("-old")]


def test_a_tenant_and_its_database_stay_in_the_next_location(server):
    client, url = server
    fill(client, "tenants", example_documents(), example_vectors())
    store = open_store(f"{url}#tenants?tenant=default_tenant")
    assert store.successor("new") == f"{url}#tenants-new?tenant=default_tenant"
    assert open_store(f"{url}#tenants").successor("new") == f"{url}#tenants-new"
    with pytest.raises(UsageError, match="names are traded on one server"):
        store.exchange(open_store(f"{url}#tenants"))


def test_each_of_two_collections_in_a_folder_has_a_manifest(tmp_path):
    from switch_tools import NEW_MODEL, OLD_MODEL, manifest

    client = persistent(tmp_path)
    for name in ("docs", "more"):
        fill(client, name, example_documents(), example_vectors())
    client.close()
    for name, spec in (("docs", OLD_MODEL), ("more", NEW_MODEL)):
        open_store(f"chroma:{tmp_path}#{name}").keep_manifest(manifest(spec))
    found = [open_store(f"chroma:{tmp_path}#{name}").info.manifest.model.spec for name in ("docs", "more")]
    assert found == [OLD_MODEL, NEW_MODEL]


def test_a_journal_that_comes_while_a_folder_is_looked_at_belongs_to_it(tmp_path):
    """A program that opens the folder of a store writes one for a moment."""
    fill(persistent(tmp_path / "store"), "docs", example_documents()[:3], example_vectors(3, 8))
    names = open_store(f"chroma:{tmp_path / 'store'}#docs").driver.files()
    assert {"chroma.sqlite3", "chroma.sqlite3-journal"} <= {*names}
