"""Chroma's own client and server: folders and collections of a server."""

import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from kind_chroma import Chroma

pytest.importorskip("chromadb")
from chroma_earlier import MIGRATIONS, as_left_by
from chroma_tools import Named, server
from database_tests import DatabaseTests, ServerTests, backwards, files_of, store_of_lines, written
from whole_path import inspected, moved

from migrate.errors import StoreError, UsageError
from migrate.stores import open_store
from migrate.stores.base import read_all
from migrate.stores.registry import output_of
from migrate.testing.stores import example_documents, example_vectors
from migrate.vectors import Document

pytestmark = pytest.mark.slow
CHROMA = Chroma()


def fill(client, name, documents, vectors, metric="l2"):
    CHROMA.create(client, name, backwards(documents, vectors), metric)


def persistent(folder):
    return CHROMA.client(f"chroma:{folder}")


class TestFolder(DatabaseTests):
    maker = CHROMA


class TestServer(ServerTests):
    maker = CHROMA

    @property
    def client(self):
        return server()[0]

    @property
    def server(self):
        return server()[1]


def test_opening_a_collection_again_and_again_leaves_no_connections_behind():
    client, url = server()
    fill(client, "again", example_documents(), example_vectors())

    def descriptors():
        assert len(read_all(open_store(f"{url}#again").scan()).ids) == 60
        return len(list(Path("/proc/self/fd").iterdir()))

    before = descriptors()
    assert [descriptors() for _ in range(5)] == [before] * 5
    client.delete_collection("again")


def awkward(client):
    """A collection that names a function, of records with and without text, metadata and URI."""
    collection = client.create_collection("awkward", configuration={"embedding_function": Named()})
    vectors = example_vectors(60, 16)
    for part in range(4):
        rows = list(range(part, 60, 4))
        collection.add(
            [f"id-{row * 7 % 60}" for row in rows],
            embeddings=vectors[rows],
            documents=["" if row % 3 else f"text {row}" for row in rows] if part in (1, 3) else None,
            metadatas=[{"nan": 1e-300, "tags": ["a", "b"], "row": row} for row in rows] if part in (2, 3) else None,
            uris=[f"file:///{row}" for row in rows] if part == 3 else None,
        )
    return collection


def everything(collection):
    found = collection.get(include=["documents", "metadatas", "uris"])
    columns = (found["documents"], found["metadatas"], found["uris"])
    records = dict(zip(found["ids"], zip(*columns, strict=True), strict=True))
    return {key: (text, fields or {}, uri) for key, (text, fields, uri) in records.items()}


@pytest.mark.parametrize("kind", ["folder", "server"])
def test_records_without_text_or_metadata_and_the_named_function_go_through(kind, tmp_path):
    client, location = server()
    new = f"{location}#awkward-new"
    if kind == "folder":
        client, location, new = persistent(tmp_path / "old"), f"chroma:{tmp_path}/old", f"chroma:{tmp_path}/new#awkward"
    old = awkward(client)
    store = open_store(f"{location}#awkward")
    assert store.info.details["embedding_function"] == "openai"
    vectors = example_vectors(60, 9)
    made, finished = written(store, new, tmp_path / "new", vectors)
    client = persistent(tmp_path / "new") if kind == "folder" else client
    copy = client.get_collection(new.partition("#")[2], embedding_function=None)
    assert everything(copy) == everything(old)
    assert copy._model.configuration_json == old._model.configuration_json
    assert copy._model.configuration_json["embedding_function"]["config"] == Named().get_config()
    assert np.array_equal(read_all(made.scan()).vectors, vectors)
    found = copy.get(ids=["id-5"], include=["embeddings"])["embeddings"][0]
    assert np.array_equal(np.asarray(found, np.float32), vectors[store.ids(range(60)).index("id-5")])
    assert "openai" in finished.remarks[0]
    if kind == "server":
        for name in ("awkward", "awkward-new"):
            store.driver.delete(name)


@pytest.fixture
def with_lists():
    """A collection on the server, whose records are the last there: new ones get their numbers."""
    collection = server()[0].create_collection("lists", embedding_function=None)
    ids = [f"id-{row}" for row in range(60)]
    collection.add(ids, embeddings=example_vectors(), metadatas=[{"tags": ["b", "a"], "source": ["c"]}] * 60)
    yield f"{server()[1]}#lists"
    server()[0].delete_collection("heir")


def test_a_collection_that_is_deleted_leaves_no_lists_to_the_next(with_lists):
    open_store(with_lists).driver.delete("lists")
    fill(server()[0], "heir", example_documents(), example_vectors())
    found = {d.id: d.metadata for d in open_store(f"{server()[1]}#heir").documents()}
    assert found == {d.id: d.metadata for d in example_documents()}


def test_records_on_a_server_have_no_metadata_of_a_collection_that_another_program_deleted(with_lists, tmp_path):
    server()[0].delete_collection("lists")
    documents = [Document(d.id, d.text, d.metadata if row % 2 else {}) for row, d in enumerate(example_documents())]
    old = CHROMA.make(tmp_path / "old", backwards(documents, example_vectors()))
    made, _ = written(open_store(old), f"{server()[1]}#heir", tmp_path / "new", example_vectors())
    assert {d.id: d.metadata for d in made.documents()} == {d.id: d.metadata for d in documents}


def test_a_change_of_one_record_is_noticed_and_opening_by_others_is_none(tmp_path):
    client = persistent(tmp_path / "old")
    for name in ("docs", "other"):
        fill(client, name, example_documents(), example_vectors())
    store = open_store(f"chroma:{tmp_path}/old#docs")
    versions = [store.rows.version()]
    collection = client.get_collection("docs", embedding_function=None)
    collection.get(limit=1)
    client.get_collection("other", embedding_function=None).delete(ids=["doc-3"])
    assert store.rows.version() == versions[0]
    collection.delete(ids=["doc-3"])
    versions.append(store.rows.version())
    collection.update(ids=["doc-6"], metadatas=[{"page": 9}])
    versions.append(store.rows.version())
    assert versions[0] != versions[1] != versions[2]


def test_vectors_compared_by_cosine_come_back(tmp_path):
    vectors = example_vectors(count=500, dim=24)
    client = persistent(tmp_path / "old")
    documents = [Document(f"{row:05}", "t", {"r": row}) for row in range(500)]
    fill(client, "docs", documents, vectors, "cosine")
    info = open_store(f"chroma:{tmp_path}/old").info
    assert info.metric == "ip" and info.details["distance"] == "cosine" and "cosine" in info.notes[0]
    np.testing.assert_allclose(read_all(open_store(tmp_path / "old").scan()).vectors, vectors, rtol=1e-6, atol=1e-7)


def written_from(lines, tmp_path):
    """What came of a collection written with the documents of these lines of a docs.jsonl."""
    store, location = store_of_lines(tmp_path / "old", *lines), f"chroma:{tmp_path}/new#docs"
    return written(store, location, tmp_path / "new", np.ones((len(lines), 3), np.float32))[1]


@pytest.mark.parametrize("key", ["", "$and", "#document", "chroma:uri2"])
def test_a_key_that_chroma_refuses_or_drops_is_named_with_its_document(key, tmp_path):
    with pytest.raises(StoreError, match=re.escape(f"document 'b': Chroma keeps the key {key!r} to itself; rename it")):
        written_from([{"id": "a", "text": "x"}, {"id": "b", "text": "y", "metadata": {"z": 1, key: 2}}], tmp_path)


def test_an_empty_id_is_named(tmp_path):
    with pytest.raises(StoreError, match="a document has an empty id"):
        written_from([{"id": "a", "text": "x"}, {"id": "", "text": "y"}], tmp_path)


def test_a_store_of_another_kind_becomes_a_collection(tmp_path):
    some = {"n": None, "deep": {"k": [1, None]}, "i": 3, "mixed": [1, "a"], "e": []}
    others = {"nan": float("nan"), "inf": [1.5, -float("inf")], "big": 1 << 70, "f": 1.5}
    lines = [{"id": "a", "text": "x", "metadata": some}, {"id": "b", "text": "", "metadata": others}]
    finished = written_from(lines, tmp_path)
    collection = persistent(tmp_path / "new").get_collection("docs", embedding_function=None)
    assert everything(collection) == {
        "a": ("x", {"deep": '{"k": [1, null]}', "i": 3, "mixed": '[1, "a"]', "e": "[]"}, None),
        "b": ("", {"nan": "NaN", "inf": "[1.5, -Infinity]", "big": str(1 << 70), "f": 1.5}, None),
    }
    assert collection._model.configuration_json["hnsw"]["space"] == "ip"
    assert [remark.rpartition(": ")[2] for remark in finished.remarks] == ["n", "big, deep, e, inf, mixed, nan"]


def test_a_folder_of_langchain_is_an_ordinary_one(tmp_path):
    langchain_chroma = pytest.importorskip("langchain_chroma")
    from langchain_core.embeddings import DeterministicFakeEmbedding

    texts = [f"text {row}" for row in range(20)]
    fields = [{"row": row} for row in range(20)]
    langchain_chroma.Chroma.from_texts(
        texts, DeterministicFakeEmbedding(size=6), fields, persist_directory=str(tmp_path / "old")
    )
    store = open_store(tmp_path / "old")
    assert (store.driver.name, store.info.count, store.info.dim) == ("langchain", 20, 6)
    assert sorted((d.text, d.metadata["row"]) for d in store.documents()) == sorted(zip(texts, range(20), strict=True))
    written(store, str(tmp_path / "new"), tmp_path / "new", np.ones((20, 4), np.float32))
    embedding = DeterministicFakeEmbedding(size=4)
    opened = langchain_chroma.Chroma("langchain", embedding, persist_directory=str(tmp_path / "new"))
    assert {document.page_content for document in opened.similarity_search("x", k=20)} == set(texts)


def on_server(tmp_path, name, seed):
    """A location, and a collection there that this tool has made."""
    location, source = f"{server()[1]}#{name}", tmp_path / str(seed)
    old = CHROMA.make(source / "old", backwards(example_documents(), example_vectors()))
    written(open_store(old), location, source / "new", example_vectors(seed=seed))
    return location, server()[0].get_collection(name, embedding_function=None)


def test_a_replacement_that_was_killed_between_two_renames_is_given_up(tmp_path):
    location, collection = on_server(tmp_path, "replaced", 1)
    collection.modify(name=f"replaced-{'0' * 32}-old")  # here a kill comes
    output_of(location).discard()
    assert server()[0].get_collection("replaced", embedding_function=None).id == collection.id


def test_a_replacement_that_was_killed_between_two_renames_is_finished(tmp_path):
    location, collection = on_server(tmp_path, "finished", 1)
    collection.modify(name=f"finished-{'0' * 32}-old")  # here a kill comes
    location, new = on_server(tmp_path, "finished", 2)
    assert new.id != collection.id
    assert np.array_equal(read_all(open_store(location).scan()).vectors, example_vectors(seed=2))
    assert not [found for found in server()[0].list_collections() if found.name.endswith("-old")]


def test_a_tenant_and_its_database_stay_in_the_next_location():
    client, url = server()
    fill(client, "tenants", example_documents(), example_vectors())
    store = open_store(f"{url}#tenants?tenant=default_tenant")
    assert store.successor("new") == f"{url}#tenants-new?tenant=default_tenant"
    assert open_store(f"{url}#tenants").successor("new") == f"{url}#tenants-new"
    with pytest.raises(UsageError, match="names are traded on one server"):
        store.exchange(open_store(f"{url}#tenants"))


def test_each_of_two_collections_in_a_folder_has_a_manifest(tmp_path):
    from switch_tools import NEW_MODEL, OLD_MODEL, manifest

    for name in ("docs", "more"):
        CHROMA.make(tmp_path, backwards(example_documents(), example_vectors()), name=name)
    for name, spec in (("docs", OLD_MODEL), ("more", NEW_MODEL)):
        open_store(f"chroma:{tmp_path}#{name}").companions.keep(manifest(spec))
    found = [open_store(f"chroma:{tmp_path}#{name}").info.manifest.model.spec for name in ("docs", "more")]
    assert found == [OLD_MODEL, NEW_MODEL]


def test_a_journal_that_comes_while_a_folder_is_looked_at_belongs_to_it(tmp_path):
    """A program that opens the folder of a store writes one for a moment."""
    CHROMA.make(tmp_path / "store", backwards(example_documents()[:3], example_vectors(3)))
    names = open_store(f"chroma:{tmp_path / 'store'}#docs").driver.files()
    assert {"chroma.sqlite3", "chroma.sqlite3-journal"} <= {*names}


WORDS = [f"text {row}: bread number {row % 7}" for row in range(60)]


def of_metadata(client, key, *, documents=None, more=None):
    """A collection whose texts are under a key of the metadata."""
    collection = client.create_collection("items", embedding_function=None)
    metadatas = [{key: text, "page": row, **(more or {})} for row, text in enumerate(WORDS)]
    ids = [f"id-{row:02}" for row in range(60)]
    collection.add(ids, embeddings=example_vectors(), metadatas=metadatas, documents=documents)
    return [
        Document(doc_id, text, {"page": row, **(more or {})})
        for row, (doc_id, text) in enumerate(zip(ids, WORDS, strict=True))
    ]


def test_texts_under_a_usual_key_of_the_metadata_are_found_and_copied(tmp_path, capsys):
    expected = of_metadata(persistent(tmp_path / "old"), "content", more={"source": "a.pdf"})
    assert inspected(tmp_path / "old", capsys)["text"] == "content"
    output = f"chroma:{tmp_path}/new#items"
    old, new = moved(f"chroma:{tmp_path}/old#items", tmp_path / "moved", capsys, output)
    assert list(old.documents()) == list(new.documents()) == expected
    copy = persistent(tmp_path / "new").get_collection("items", embedding_function=None)
    found = copy.get(ids=["id-07"], include=["metadatas", "documents"])
    assert found["metadatas"] == [{"content": WORDS[7], "page": 7, "source": "a.pdf"}]
    assert found["documents"] == [None]


@pytest.mark.parametrize("kind", ["folder", "server"])
def test_texts_under_any_key_are_named_and_the_new_store_knows_it(kind, tmp_path, capsys):
    client, location = server()
    if kind == "folder":
        client, location = persistent(tmp_path / "old"), f"chroma:{tmp_path}/old"
    expected = of_metadata(client, "passage", more={"source": "a.pdf"})
    store = open_store(f"{location}#items")
    assert not store.info.has_texts
    assert "passage, source; say ?text=FIELD" in store.info.way_to_texts
    output = f"{location}#items-new" if kind == "server" else f"chroma:{tmp_path}/new#items"
    old, new = moved(f"{location}#items?text=passage", tmp_path / "moved", capsys, output)
    assert list(old.documents()) == list(new.documents()) == expected
    again = f"{location}#items-newer" if kind == "server" else f"chroma:{tmp_path}/newer#items"
    _, newer = moved(output, tmp_path / "again", capsys, again, dim=9)
    assert newer.info.details["text"] == "passage"
    if kind == "server":
        for name in ("items", "items-new", "items-newer"):
            client.delete_collection(name)


def test_a_named_key_goes_before_the_documents_which_are_metadata_then(tmp_path):
    expected = of_metadata(persistent(tmp_path), "summary", documents=[f"long {text}" for text in WORDS])
    assert next(open_store(f"chroma:{tmp_path}#items").documents()).text == f"long {WORDS[0]}"
    documents = list(open_store(f"chroma:{tmp_path}#items?text=summary").documents())
    assert documents == [
        Document(d.id, d.text, {**d.metadata, "document": f"long {d.text}"}) for d in expected
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("text=nope", "there is no column of texts 'nope'; there are content: say"),
        ("text=page", "there is no column of texts 'page'; there are content: say"),
    ],
)
def test_a_key_that_has_no_texts_is_refused(option, says, tmp_path):
    of_metadata(persistent(tmp_path), "content")
    with pytest.raises(StoreError, match=says):
        open_store(f"chroma:{tmp_path}#items?{option}")


def test_records_with_nothing_to_read_are_told(tmp_path):
    collection = persistent(tmp_path).create_collection("items", embedding_function=None)
    collection.add([f"id-{row}" for row in range(60)], embeddings=example_vectors())
    info = open_store(f"chroma:{tmp_path}#items").info
    assert "add documents" in info.way_to_texts and "?text=" not in info.way_to_texts


def everything_of(folder):
    """The records of the collection that is in a copy of a folder, as its client gives them, and a search."""
    copy = folder.with_name(f"{folder.name}.copy")
    shutil.copytree(folder, copy)
    persistent(copy).close()  # it migrates an earlier folder, and may panic if it is asked before it is opened anew
    with closing(persistent(copy)) as client:
        (collection,) = client.list_collections()
        records = collection.get(include=["embeddings", "documents", "metadatas"])
        found = collection.query(query_embeddings=example_vectors(1, seed=3), n_results=5)
    return records, found["ids"], np.array(found["distances"])


@pytest.fixture(params=MIGRATIONS)
def earlier(request, tmp_path):
    """A folder as a version before 1.0 left it, compared by cosine as its metadata says, and its documents."""
    folder, documents = tmp_path / "old", example_documents()
    with closing(persistent(folder)) as client:
        collection = client.create_collection(
            "docs", metadata={"hnsw:space": "cosine", "hnsw:M": 24}, embedding_function=None
        )
        collection.add(
            ids=[document.id for document in documents],
            embeddings=example_vectors(),
            documents=[document.text for document in documents],
            metadatas=[{"page": row} for row in range(len(documents))],
        )
    as_left_by(request.param, folder)
    return folder, documents


def test_a_folder_that_an_earlier_version_left_is_read_and_written_again(earlier, tmp_path):
    folder, documents = earlier
    with closing(sqlite3.connect(folder / "chroma.sqlite3")) as database:
        assert database.execute("SELECT seq_id FROM max_seq_id").fetchall() == [((60).to_bytes(8, "big"),)]
    before = files_of(folder)
    store = open_store(folder)
    assert (store.info.count, store.info.details["distance"], store.info.details["hnsw_m"]) == (60, "cosine", 24)
    found = read_all(store.scan())
    row_of = {document.id: row for row, document in enumerate(documents)}
    order = [row_of[doc_id] for doc_id in found.ids]
    np.testing.assert_allclose(found.vectors, example_vectors()[order], rtol=1e-6, atol=1e-7)  # cosine
    assert [document.metadata["page"] for document in store.documents()] == order
    _, ids, distances = everything_of(folder)
    (hits,) = store.searcher().search(example_vectors(1, seed=3), 5)
    assert [list(hits.ids)] == ids and np.allclose(1 - hits.scores, distances[0], atol=1e-5)

    new = example_vectors(seed=9)
    written(store, f"chroma:{tmp_path}/new#docs", tmp_path / "new", new[order])
    assert files_of(folder) == before
    records, _, _ = everything_of(tmp_path / "new")
    order = [row_of[doc_id] for doc_id in records["ids"]]
    np.testing.assert_allclose(records["embeddings"], new[order], rtol=1e-6, atol=1e-7)
    assert open_store(tmp_path / "new").info.details["distance"] == "cosine"


def test_writes_are_noticed_whether_their_numbers_are_bytes_or_integers(earlier):
    """To SQLite any bytes are larger than any number."""
    folder, _ = earlier
    store = open_store(folder)
    numbers = [store.rows.version()[1]]
    writes = (("METADATA", (61).to_bytes(8, "big")), ("VECTOR", (300).to_bytes(8, "big")), ("METADATA", 400))
    for scope, number in writes:
        with closing(sqlite3.connect(folder / "chroma.sqlite3")) as database:
            segment = "SELECT id, ? FROM segments WHERE scope = ?"
            database.execute(f"INSERT OR REPLACE INTO max_seq_id {segment}", (number, scope))
            database.commit()
        numbers.append(store.rows.version()[1])
    assert numbers == [60, 61, 300, 400]


def test_a_panic_of_its_client_is_one_line(tmp_path):
    """A client written in Rust raises what is no Exception to Python."""
    with closing(persistent(tmp_path)) as client:
        collection = client.create_collection("docs", embedding_function=None)
        collection.add(["a", "b"], embeddings=example_vectors(2))
    driver = open_store(tmp_path).driver
    with closing(sqlite3.connect(tmp_path / "chroma.sqlite3")) as database:
        database.execute("ALTER TABLE segment_metadata DROP COLUMN bool_value")
        database.commit()
    said = r"Chroma says: .*bool_value.*; see to that, and run again"
    with closing(persistent(tmp_path)) as client, pytest.raises(StoreError, match=said), driver.errors():
        client.get_collection("docs").get()
