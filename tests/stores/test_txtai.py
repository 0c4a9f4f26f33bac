import json
import sqlite3
import struct
from contextlib import closing

import numpy as np
import pytest
from faiss_tools import COUNT, DIM, build, digest, read, rewrite, save

from migrate.errors import StoreError, UnsupportedStoreError
from migrate.stores import open_store
from migrate.vectors import Document

# What is left after the documents 0, 5 and 9 were deleted
LABELS = [label for label in range(COUNT + 3) if label not in (0, 5, 9)]
IDS = [f"id-{label}" for label in LABELS]
SCHEMA = """
    CREATE TABLE documents (id TEXT PRIMARY KEY, data JSON, tags TEXT, entry DATETIME);
    CREATE TABLE objects (id TEXT PRIMARY KEY, object BLOB, tags TEXT, entry DATETIME);
    CREATE TABLE sections (indexid INTEGER PRIMARY KEY, id TEXT, text TEXT, tags TEXT, entry DATETIME);
    CREATE INDEX section_id ON sections(id);
"""


def write_config(folder, **more):
    config = {"path": "some/model", "content": True, "dimensions": DIM, "backend": "faiss", "offset": COUNT + 3}
    (folder / "config.json").write_text(json.dumps(config | more))


def execute(folder, *statements):
    with closing(sqlite3.connect(folder / "documents")) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


def packed(ids):
    """MessagePack, by the document of the format."""
    parts = [b"\xdc" + struct.pack(">H", len(ids))]
    for doc_id in ids:
        if doc_id is None:
            parts.append(b"\xc0")
        elif isinstance(doc_id, int):
            parts.append(b"\xd2" + struct.pack(">i", doc_id))
        else:
            parts.append(b"\xd9" + struct.pack(">B", len(doc_id.encode())) + doc_id.encode())
    return b"".join(parts)


@pytest.fixture
def folder(vectors, tmp_path):
    """What txtai 9 saves with content."""
    folder = tmp_path / "store"
    save(build("IDMap,Flat", vectors, metric="ip", labels=LABELS), folder, "embeddings")
    write_config(folder)
    with closing(sqlite3.connect(folder / "documents")) as connection:
        connection.executescript(SCHEMA)
        rows = [(label, f"id-{label}", f"text {label}", None, "2026-01-01") for label in LABELS]
        connection.executemany("INSERT INTO sections VALUES (?, ?, ?, ?, ?)", rows)
        connection.execute('INSERT INTO documents VALUES (\'id-2\', \'{"text": "text 2", "page": 3}\', NULL, NULL)')
        connection.execute("UPDATE sections SET tags = 'a b' WHERE indexid = 3")
        connection.commit()
    return folder


@pytest.fixture
def ids_only(folder):
    """What txtai 9 saves without content."""
    (folder / "documents").unlink()
    write_config(folder, content=False)
    (folder / "ids").write_bytes(packed([None if i in (0, 5, 9) else f"id-{i}" for i in range(COUNT + 3)]))
    return folder


def test_rows_are_sections(folder, vectors):
    store = open_store(folder)
    assert (store.info.kind, store.info.metric, store.info.has_texts) == ("txtai", "ip", True)
    ids, found = read(store)
    assert ids == IDS
    assert np.array_equal(found, vectors)
    assert list(store.documents(np.array([1, 2, 399, 0]))) == [
        Document("id-2", "text 2", {"page": 3}),
        Document("id-3", "text 3", {"tags": "a b"}),
        Document(f"id-{COUNT + 2}", f"text {COUNT + 2}", {}),
        Document("id-1", "text 1", {}),
    ]
    assert len(list(store.documents())) == COUNT
    assert any("some/model" in note for note in store.info.notes)


def test_ids_are_read_where_there_is_no_content(ids_only):
    store = open_store(ids_only)
    assert (store.info.kind, store.info.has_texts) == ("txtai", False)
    assert read(store)[0] == IDS
    assert store.get(np.array([7, 0])).ids == [IDS[7], IDS[0]]
    with pytest.raises(StoreError, match="has ids but no texts"):
        store.documents()


def test_every_kind_of_messagepack_id_is_read(ids_only):
    some = b"\x07" + b"\xff" + b"\xcc\xc8" + b"\xcd\x01\x00" + b"\xd3" + struct.pack(">q", -(1 << 40)) + b"\xa1x"
    some += b"\xda\x00\x02\xc3\xbc" + b"\xdb\x00\x00\x00\x01y"
    rest = [f"id-{i}" for i in range(8, COUNT)]
    (ids_only / "ids").write_bytes(b"\xdd" + struct.pack(">I", COUNT) + some + packed(rest)[3:])
    save(build("Flat", np.ones((COUNT, DIM), np.float32)), ids_only, "embeddings")
    assert read(open_store(ids_only))[0][:9] == ["7", "-1", "200", "256", str(-(1 << 40)), "x", "ü", "y", "id-8"]


@pytest.mark.parametrize("fixture", ["folder", "ids_only"])
def test_a_store_of_the_same_kind_is_written(fixture, request, tmp_path):
    source = request.getfixturevalue(fixture)
    (source / "scoring").write_bytes(b"sparse index")
    before = digest(source)
    store = open_store(source)
    written = rewrite(store, tmp_path / "new", lambda vectors: np.hstack([vectors, vectors]), 2 * DIM)
    assert (written.info.kind, written.info.dim) == ("txtai", 2 * DIM)
    assert read(written)[0] == IDS
    if store.info.has_texts:
        assert list(written.documents()) == list(store.documents())
    assert digest(source) == before
    after = digest(tmp_path / "new")
    assert {name for name in before if before[name] != after.get(name)} == {"embeddings", "config.json"}
    old, new = (json.loads((place / "config.json").read_text()) for place in (source, tmp_path / "new"))
    assert new == old | {"dimensions": 2 * DIM}


def test_a_database_in_wal_mode_is_read_without_a_trace(folder):
    execute(folder, "PRAGMA journal_mode = WAL", "UPDATE sections SET text = 'new' WHERE indexid = 1")
    before = digest(folder)
    folder.chmod(0o555)
    try:
        assert next(open_store(folder).documents()).text == "new"
    finally:
        folder.chmod(0o755)
    assert digest(folder) == before


@pytest.mark.parametrize("ending", ["-wal", "-journal"])
def test_a_database_in_use_is_refused(ending, folder):
    (folder / f"documents{ending}").write_bytes(b"pages")
    with pytest.raises(StoreError, match=f"at rest, found unfinished changes in documents{ending}"):
        open_store(folder)


def test_a_database_that_changed_is_noticed(folder):
    store = open_store(folder)
    execute(folder, "UPDATE sections SET text = 'much longer than before' WHERE indexid = 1")
    with pytest.raises(StoreError, match="changed since"):
        list(store.documents())


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("DELETE FROM sections WHERE indexid = 1", "found 399 sections"),
        ("UPDATE sections SET indexid = 0 WHERE indexid = 1", "found 400 sections with others"),
        ("UPDATE sections SET id = 'id-2' WHERE indexid = 1", "'id-2' twice"),
        ("UPDATE sections SET id = NULL WHERE indexid = 1", "ids that are text, found 1 that are none"),
        ("DROP TABLE sections", "no such table: sections"),
        ("ALTER TABLE sections RENAME COLUMN text TO words", "no such column: text"),
    ],
)
def test_sections_that_do_not_fit_are_refused(statement, found, folder):
    execute(folder, statement)
    with pytest.raises(StoreError, match=found) as error:
        open_store(folder)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("UPDATE sections SET text = x'80ff' WHERE indexid = 2", "a text for id 'id-2'"),
        ("UPDATE sections SET text = CAST(x'80ff' AS TEXT) WHERE indexid = 2", "UTF-8"),
        ("UPDATE documents SET data = '[1]'", "expected JSON for id 'id-2', found list"),
        ("UPDATE documents SET data = '{'", "expected JSON for id 'id-2', found other"),
    ],
)
def test_texts_that_are_none_are_refused_when_they_are_read(statement, found, folder):
    execute(folder, statement)
    with pytest.raises(StoreError, match=found):
        list(open_store(folder).documents())


@pytest.mark.parametrize(
    ("content", "found"), [(b"", "other content"), (b"SQLite format 3\x00" + b"x" * 500, "file is not a database")]
)
def test_what_is_no_database_is_refused(content, found, folder):
    (folder / "documents").write_bytes(content)
    with pytest.raises(StoreError, match=found):
        open_store(folder)


def test_damaged_databases_are_one_line_or_read(folder):
    whole = (folder / "documents").read_bytes()
    random = np.random.default_rng(3)
    for _ in range(60):
        content = bytearray(whole[: int(random.integers(100, len(whole) + 1))])
        for place in random.integers(16, len(content), 20):
            content[place] = int(random.integers(256))
        (folder / "documents").write_bytes(content)
        try:
            list(open_store(folder).documents())
        except StoreError as error:
            assert "\n" not in str(error)


def test_sections_without_texts_are_told(folder):
    execute(folder, "UPDATE sections SET text = NULL WHERE indexid < 3")
    store = open_store(folder)
    assert next(store.documents()).text == ""
    assert any("2 of 400 sections have no text" in note for note in store.info.notes)
    execute(folder, "UPDATE sections SET text = NULL")
    assert not open_store(folder).info.has_texts


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"", "other"),
        (b"\x80\x04]", "byte 0x80"),
        (b"\xdd\xff\xff\xff\xff", "other"),
        (b"\x91\xa5abc", "a text beyond the end"),
        (b"\x91\xa1a\x00", "1 bytes after its end"),
        (b"\x91\xc3", "byte 0xc3"),
        (b"\x91\xa1\xff", "other"),
        (b"\x91\xa1a", "found 1 ids"),
        (packed([*IDS, None, None, None]), "found 400 ids at other places"),
        (packed([None if i in (0, 5, 9) else "a" for i in range(COUNT + 3)]), "two vectors have the id 'a'"),
    ],
)
def test_ids_that_do_not_fit_are_refused(content, found, ids_only):
    (ids_only / "ids").write_bytes(content)
    with pytest.raises(StoreError, match=found):
        open_store(ids_only)


def test_a_pickled_config_is_refused(folder):
    (folder / "config.json").rename(folder / "config")
    with pytest.raises(UnsupportedStoreError, match="the configuration is a pickle"):
        open_store(folder)


@pytest.mark.parametrize("more", [{"pca": 50}, {"indexes": {"a": {}}}])
def test_what_vectors_alone_do_not_move_is_refused(more, folder):
    write_config(folder, **more)
    with pytest.raises(UnsupportedStoreError, match="which is not read; index again without"):
        open_store(folder)


# From here on the package itself judges.


def vectors_of(texts):
    return np.array([np.random.default_rng(list(str(text).encode())).normal(size=DIM) for text in texts], np.float32)


def twice(texts):
    return np.hstack([vectors_of(texts), vectors_of(texts)])


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("content", [True, False])
def test_txtai_opens_and_searches_what_was_written(content, tmp_path):
    txtai = pytest.importorskip("txtai")
    embeddings = txtai.Embeddings(method="external", transform=vectors_of, content=content)
    texts = {f"d{row}": f"words {row}" for row in range(200)}
    embeddings.index([(doc_id, {"text": t, "row": doc_id} if content else t, None) for doc_id, t in texts.items()])
    embeddings.delete(["d3", "d150"])
    embeddings.upsert([("new", "fresh", "tag")])
    embeddings.save(str(tmp_path / "store"))
    embeddings.close()
    texts = {doc_id: text for doc_id, text in texts.items() if doc_id not in ("d3", "d150")} | {"new": "fresh"}

    store = open_store(tmp_path / "store")
    ids, found = read(store)
    assert ids == list(texts)
    np.testing.assert_allclose(found, unit(vectors_of(texts.values())), atol=1e-6)
    if content:
        assert [document.text for document in store.documents()] == list(texts.values())
        assert next(store.documents()).metadata == {"row": "d0"}

    rewrite(store, tmp_path / "new", lambda old: np.hstack([old, old]) / np.float32(np.sqrt(2)), 2 * DIM)
    loaded = txtai.Embeddings()
    loaded.load(str(tmp_path / "new"), config={"method": "external", "transform": twice, "content": content})
    assert loaded.config["dimensions"] == 2 * DIM
    for doc_id in ("d0", "d199", "new"):
        (best, *_) = loaded.search(texts[doc_id], 3)
        assert (best["id"] if content else best[0]) == doc_id
        assert (best["score"] if content else best[1]) == pytest.approx(1, abs=1e-5)
        assert not content or best["text"] == texts[doc_id]
    loaded.upsert([("later", "added after the move", None)])
    assert loaded.count() == len(texts) + 1
    loaded.close()
