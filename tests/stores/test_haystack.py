import json
import sqlite3
from contextlib import closing

import numpy as np
import pytest
from faiss_tools import COUNT, DIM, build, digest, read, rewrite, save

from migrate.errors import StoreError, UnsupportedStoreError
from migrate.stores import open_store
from migrate.vectors import Document

IDS = [f"h{row}" for row in range(COUNT)]
# As farm-haystack 1.26 creates them
SCHEMA = """
    CREATE TABLE document (
        id VARCHAR(100) NOT NULL,
        created_at DATETIME DEFAULT (CURRENT_TIMESTAMP),
        updated_at DATETIME DEFAULT (CURRENT_TIMESTAMP),
        content JSON NOT NULL,
        content_type TEXT,
        "index" VARCHAR(100) NOT NULL,
        vector_id VARCHAR(100),
        PRIMARY KEY (id, "index"),
        CONSTRAINT index_vector_id_uc UNIQUE ("index", vector_id)
    );
    CREATE TABLE meta_document (
        id VARCHAR(100) NOT NULL,
        created_at DATETIME DEFAULT (CURRENT_TIMESTAMP),
        updated_at DATETIME DEFAULT (CURRENT_TIMESTAMP),
        name VARCHAR(100),
        value VARCHAR(1000),
        document_id VARCHAR(100) NOT NULL,
        document_index VARCHAR(100) NOT NULL,
        PRIMARY KEY (id),
        FOREIGN KEY(document_id, document_index) REFERENCES document (id, "index") ON DELETE CASCADE ON UPDATE CASCADE
    );
    CREATE INDEX ix_meta_document_document_id ON meta_document (document_id);
"""


def write_config(folder, name="my.json", **config):
    (folder / name).write_text(json.dumps({"sql_url": "sqlite:///docs.db", "embedding_dim": DIM} | config))


def execute(folder, *statements, name="docs.db"):
    with closing(sqlite3.connect(folder / name)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


def insert(connection, index, ids):
    rows = [(i, json.dumps(f"text {i}"), "text", index, str(row)) for row, i in enumerate(ids)]
    # documents lie in the database in another order than their vectors
    connection.executemany(
        'INSERT INTO document (id, content, content_type, "index", vector_id) VALUES (?, ?, ?, ?, ?)', rows[::-1]
    )


@pytest.fixture
def folder(vectors, tmp_path):
    """What FAISSDocumentStore.save leaves, with documents of a second index in the same database."""
    folder = tmp_path / "store"
    save(build("Flat", vectors, metric="ip"), folder, "my.faiss")
    write_config(folder, similarity="cosine", vector_dim=DIM)
    with closing(sqlite3.connect(folder / "docs.db")) as connection:
        connection.executescript(SCHEMA)
        insert(connection, "document", IDS)
        insert(connection, "other", ["h1", "z"])
        for name, value in (("page", "7"), ("tags", '["a"]'), ("old", "plain"), ("none", "null")):
            connection.execute(
                "INSERT INTO meta_document (id, name, value, document_id, document_index) VALUES (?, ?, ?, 'h1', ?)",
                (name, name, value, "document"),
            )
        connection.commit()
    return folder


def test_rows_are_documents_by_vector_id(folder, vectors):
    store = open_store(folder)
    assert (store.info.kind, store.info.metric, store.info.has_texts) == ("haystack", "ip", True)
    ids, found = read(store)
    assert ids == IDS
    assert np.array_equal(found, vectors)
    assert list(store.documents(np.array([399, 1]))) == [
        Document("h399", "text h399", {}),
        Document("h1", "text h1", {"page": 7, "tags": ["a"], "old": "plain", "none": None}),
    ]
    assert [document.text for document in store.documents()] == [f"text {i}" for i in IDS]
    assert any("2 documents in docs.db belong to other indexes" in note for note in store.info.notes)


def test_the_configuration_names_the_index(folder, vectors):
    save(build("Flat", vectors[:2], metric="ip"), folder, "my.faiss")
    write_config(folder, index="other")
    assert read(open_store(folder))[0] == ["h1", "z"]


def test_labels_of_inverted_lists_are_vector_ids(folder, vectors):
    save(build("IVF8,Flat", vectors, metric="ip"), folder, "my.faiss")
    ids, found = read(open_store(folder))
    assert ids != IDS
    assert all(np.array_equal(vectors[IDS.index(i)], vector) for i, vector in zip(ids, found, strict=True))


@pytest.mark.parametrize("url", ["/somewhere/else/docs.db", "below/docs.db", "docs.db?check_same_thread=false"])
def test_the_database_beside_the_index_goes_first(url, folder):
    write_config(folder, sql_url=f"sqlite:///{url}")
    assert open_store(folder).info.count == COUNT


def test_a_database_elsewhere_is_read_through_a_link_only(folder, tmp_path):
    (folder / "docs.db").rename(tmp_path / "far.db")
    write_config(folder, sql_url=f"sqlite:///{tmp_path}/far.db")
    with pytest.raises(StoreError, match=r"far\.db beside the index, found no such file; copy or link"):
        open_store(folder)
    (folder / "far.db").symlink_to(tmp_path / "far.db")
    written = rewrite(open_store(folder), tmp_path / "new")
    assert read(written)[0] == IDS
    assert (tmp_path / "new" / "far.db").exists()
    assert json.loads((tmp_path / "new" / "my.json").read_text())["sql_url"] == "sqlite:///far.db"


def test_the_defaults_of_haystack_are_known(folder):
    (folder / "docs.db").rename(folder / "faiss_document_store.db")
    (folder / "my.json").write_text("{}")
    assert open_store(folder).info.kind == "haystack"


def test_a_configuration_of_another_name_is_found(folder):
    (folder / "my.json").rename(folder / "config")
    assert open_store(folder).info.kind == "haystack"


def test_a_store_of_the_same_kind_is_written(folder, tmp_path):
    before = digest(folder)
    store = open_store(folder)
    written = rewrite(store, tmp_path / "new", lambda old: np.hstack([old, old]), 2 * DIM)
    assert (written.info.kind, written.info.dim) == ("haystack", 2 * DIM)
    assert read(written)[0] == IDS
    assert list(written.documents()) == list(store.documents())
    assert digest(folder) == before
    after = digest(tmp_path / "new")
    assert after.keys() == before.keys()
    assert after["docs.db"] == before["docs.db"]
    old, new = (json.loads((place / "my.json").read_text()) for place in (folder, tmp_path / "new"))
    assert new == old | {"embedding_dim": 2 * DIM, "vector_dim": 2 * DIM}


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("DELETE FROM document WHERE id = 'h3'", "399 in the index 'document'; deleting documents shifts"),
        ("UPDATE document SET vector_id = '400' WHERE id = 'h3'", "400 in the index 'document' with others"),
        ("UPDATE document SET vector_id = '03' WHERE id = 'h3'", "numbers as vector_id, found 1"),
        ("UPDATE document SET id = x'00' WHERE id = 'h3'", "ids that are text, found 1"),
        ("DROP TABLE document", "no such table: document"),
        ("ALTER TABLE document RENAME COLUMN content TO text", "no such column: content"),
    ],
)
def test_documents_that_do_not_fit_are_refused(statement, found, folder):
    execute(folder, statement)
    with pytest.raises(StoreError, match=found) as error:
        open_store(folder)
    assert "\n" not in str(error.value)


def test_the_same_id_twice_is_refused(folder):
    execute(
        folder, "CREATE TABLE d AS SELECT * FROM document", "DROP TABLE document", "ALTER TABLE d RENAME TO document"
    )
    execute(folder, "UPDATE document SET id = 'h1' WHERE id = 'h3'")
    with pytest.raises(StoreError, match="'h1' twice"):
        open_store(folder)


def test_documents_without_vectors_are_told(folder):
    execute(folder, "INSERT INTO document (id, content, \"index\") VALUES ('new', '\"t\"', 'document')")
    assert any("1 documents in docs.db have no vector" in note for note in open_store(folder).info.notes)


def test_tables_are_told_and_empty_texts_are_none(folder):
    execute(folder, "UPDATE document SET content = '[[\"a\", 1]]', content_type = 'table' WHERE id = 'h0'")
    store = open_store(folder)
    assert next(store.documents()).text == '[["a", 1]]'
    assert any("1 documents are tables" in note for note in store.info.notes)
    execute(folder, "UPDATE document SET content = '\"\"'")
    assert not open_store(folder).info.has_texts


def test_other_databases_are_refused_without_showing_a_password(folder):
    write_config(folder, sql_url="postgresql://me:secret@host/db")
    with pytest.raises(UnsupportedStoreError, match="'postgresql'") as error:
        open_store(folder)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("url", ["", "..", "my.faiss", "a/my.json", "x/lead-migrate.json"])
def test_names_that_are_no_database_are_refused(url, folder):
    write_config(folder, sql_url=f"sqlite:///{url}")
    with pytest.raises(StoreError, match="the name of an SQLite file"):
        open_store(folder)


def test_a_missing_database_is_named(folder):
    (folder / "docs.db").unlink()
    with pytest.raises(StoreError, match=r"docs\.db beside the index, found no such file"):
        open_store(folder)


# From here on the package itself judges. It holds back pydantic, so it lives in an environment of its own:
# pip install 'farm-haystack<2' 'sqlalchemy<2' faiss-cpu nltk, and the few packages that the stores import


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("similarity", ["dot_product", "cosine", "l2"])
def test_haystack_opens_and_searches_what_was_written(similarity, vectors, tmp_path, monkeypatch):
    haystack = pytest.importorskip("haystack")
    stores = pytest.importorskip("haystack.document_stores")
    (tmp_path / "store").mkdir()
    monkeypatch.chdir(tmp_path / "store")
    made = stores.FAISSDocumentStore("sqlite:///docs.db", embedding_dim=DIM, similarity=similarity, progress_bar=False)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    documents = [
        haystack.Document(content=f"words {row}", id=f"d{row}", meta={"page": row}, embedding=vector)
        for row, vector in enumerate(unit)
    ]
    made.write_documents(documents)
    made.save("my.faiss")
    made.session.close()

    store = open_store(tmp_path / "store")
    assert store.info.kind == "haystack"
    assert read(store)[0] == [f"d{row}" for row in range(COUNT)]
    assert list(store.documents(np.array([5]))) == [Document("d5", "words 5", {"page": 5})]

    rewrite(store, tmp_path / "new", lambda old: np.hstack([old, -old]), 2 * DIM)
    monkeypatch.chdir(tmp_path / "new")
    loaded = stores.FAISSDocumentStore.load("my.faiss")
    assert (loaded.embedding_dim, loaded.get_document_count(), loaded.get_embedding_count()) == (2 * DIM, COUNT, COUNT)
    for row in (0, 5, 399):
        best = loaded.query_by_embedding(np.hstack([unit[row], -unit[row]]), top_k=3)[0]
        assert (best.id, best.content, best.meta["page"]) == (f"d{row}", f"words {row}", row)


@pytest.mark.filterwarnings("ignore")
def test_a_store_that_haystack_misaligned_is_refused(vectors, tmp_path, monkeypatch):
    haystack = pytest.importorskip("haystack")
    stores = pytest.importorskip("haystack.document_stores")
    monkeypatch.chdir(tmp_path)
    made = stores.FAISSDocumentStore("sqlite:///docs.db", embedding_dim=DIM, progress_bar=False)
    made.write_documents([haystack.Document(content=str(i), id=str(i), embedding=vectors[i]) for i in range(9)])
    made.delete_documents(ids=["3"])
    made.save("my.faiss")
    made.session.close()
    assert stores.FAISSDocumentStore.load("my.faiss").get_document_count() == 8
    with pytest.raises(StoreError, match="8 in the index 'document' with others; deleting documents shifts"):
        open_store(tmp_path)
