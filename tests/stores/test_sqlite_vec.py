"""Tables of a real sqlite-vec."""

import json

import numpy as np
import pytest
from children import run_command
from database_tests import DatabaseTests, written
from kinds import kind_class
from sync_tools import Hashed

import migrate
from migrate.cli.main import run
from migrate.errors import StoreError, UnsupportedStoreError, UsageError
from migrate.stores import open_store
from migrate.stores.base import read_all
from migrate.stores.confidence import stored_confidence

SqliteVec = kind_class("sqlite-vec")


def connect(path):
    return SqliteVec().connect(f"sqlite-vec:{path}#")


class TestSqliteVec(DatabaseTests):
    def make_store(self, folder, documents, vectors, metric):
        distance = {"l2": "L2", "ip": "cosine"}[metric]
        connection = connect(folder / "my.db")
        with connection:
            connection.execute("DROP TABLE IF EXISTS items")
            connection.execute(
                f"CREATE VIRTUAL TABLE items USING vec0(id text primary key, e float[{vectors.shape[1]}] "
                f"distance_metric={distance}, +content text, +metadata text)"
            )
            rows = zip(documents, vectors, strict=True)
            connection.executemany(
                "INSERT INTO items VALUES (?, ?, ?, ?)",
                ((d.id, v.tobytes(), d.text, json.dumps(dict(d.metadata))) for d, v in rows),
            )
        connection.close()
        return f"sqlite-vec:{folder}/my.db#items"


AWKWARD = """
CREATE TABLE "odd docs" (key INTEGER PRIMARY KEY, content TEXT, raw BLOB, price REAL, extra);
CREATE TABLE without_vectors (a TEXT UNIQUE, b);
CREATE INDEX prices ON "odd docs" (price);
CREATE VIEW dear AS SELECT * FROM "odd docs" WHERE price > 3;
CREATE TRIGGER gone AFTER DELETE ON "odd docs" BEGIN DELETE FROM vectors WHERE rowid = old.key; END;
CREATE VIRTUAL TABLE vectors USING vec0(
  tenant integer partition key, e FLOAT [6] distance_metric=cosine, small int8[4], flags bit[16], kind text,
  n integer, f float, yes boolean, +note text, +blobby blob, +num integer, chunk_size=16
);
CREATE VIRTUAL TABLE other USING vec0(e float[2]);
"""
COLUMNS = "rowid, tenant, small, flags, kind, n, f, yes, note, blobby, num"


@pytest.fixture
def awkward(tmp_path):
    path = tmp_path / "data" / "my shop.db"
    path.parent.mkdir()
    random = np.random.default_rng(0)
    connection = connect(path)
    connection.execute(AWKWARD)
    with connection:
        for row in range(1, 101):
            note = None if row % 3 == 0 else f"näïve 🦆 {row}"
            connection.execute(
                "INSERT INTO vectors (rowid, tenant, e, small, flags, kind, n, f, yes, note, blobby, num) "
                "VALUES (?, ?, ?, vec_int8(?), vec_bit(?), ?, ?, ?, ?, ?, ?, ?)",
                (row * 7, None if row % 5 == 0 else row % 4, random.normal(size=6).astype("<f4").tobytes(),
                 bytes([row % 128, 0, 255, 1]), bytes([row % 256, 1]), "kind" * (row % 6), 2**40 + row, row / 7,
                 row % 2, note, None if row % 2 else bytes([0, row]), None if row % 4 else -row),
            )  # fmt: skip
            connection.execute(
                'INSERT INTO "odd docs" VALUES (?, ?, ?, ?, ?)', (row * 7, f"words {row}", bytes([row]), row / 3, None)
            )
        connection.execute('INSERT INTO "odd docs" VALUES (5, ?, NULL, NULL, 1)', ("a row without a vector",))
        connection.execute("INSERT INTO without_vectors VALUES ('x', 1), ('y', x'00')")
        connection.execute("INSERT INTO other (rowid, e) VALUES (1, '[1,2]')")
    connection.close()
    return path


@pytest.mark.parametrize("journal", ["delete", "wal"])
def test_everything_in_an_awkward_database_goes_through(journal, awkward, tmp_path):
    connection = connect(awkward)
    connection.execute(f"PRAGMA journal_mode = {journal}")
    connection.close()
    source = open_store(f"sqlite-vec:{awkward}#vectors?text=odd docs.content")
    assert (source.info.count, source.info.dim, source.info.details["distance"]) == (100, 6, "cosine")
    vectors = np.random.default_rng(1).normal(size=(100, 9)).astype(np.float32)
    new = tmp_path / "new"
    written(source, f"sqlite-vec:{new}#vectors", new, vectors)
    copy = open_store(f"sqlite-vec:{new}#vectors?text=odd docs.content")
    assert (copy.info.dim, copy.info.details["distance"]) == (9, "cosine")
    assert np.array_equal(read_all(copy.scan()).vectors, vectors)
    assert list(copy.documents()) == list(source.documents())
    old_file, new_file = connect(awkward), connect(new / awkward.name)
    for question in (
        f"SELECT {COLUMNS} FROM vectors ORDER BY rowid",
        'SELECT rowid, * FROM "odd docs" ORDER BY 1',
        "SELECT rowid, * FROM without_vectors ORDER BY 1",
        "SELECT rowid, e FROM other",
        "SELECT count(*) FROM dear",
        "PRAGMA journal_mode",
        "SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'vectors%' ORDER BY 1, 2",
    ):
        assert new_file.execute(question).fetchall() == old_file.execute(question).fetchall() != []
    definition = new_file.execute("SELECT sql FROM sqlite_master WHERE name = 'vectors'").fetchall()[0][0]
    assert definition.replace("FLOAT [9]", "FLOAT [6]") in AWKWARD
    found = new_file.execute(
        "SELECT rowid FROM vectors WHERE e MATCH ? AND k = 1 AND tenant = 1", (vectors[0].tobytes(),)
    ).fetchall()
    assert len(found) == 1
    new_file.execute('DELETE FROM "odd docs" WHERE key = 7')
    assert new_file.execute("SELECT count(*) FROM vectors").fetchall() == [(99,)]


def test_texts_come_from_the_table_beside(awkward):
    store = open_store(f"sqlite-vec:{awkward}#vectors?text=odd docs.content")
    (row,) = np.flatnonzero(np.array(store.ids(range(100))) == "49")
    (document,) = store.documents(np.array([row]))
    assert document.text == "words 7"
    assert document.metadata["price"] == 7 / 3 and document.metadata["raw"] == bytes([7])
    assert document.metadata["small"] == [7, 0, -1, 1] and document.metadata["n"] == 2**40 + 7


@pytest.mark.parametrize(
    ("rest", "error", "why"),
    [
        ("", StoreError, "there are other, vectors"),
        ("#nosuch", StoreError, "'nosuch'; there are other, vectors"),
        ("#vectors?text=nosuch.x", StoreError, "odd docs.content"),
        ("#vectors?distance=l1", UnsupportedStoreError, "compared by l1, which is not supported"),
        ("#vectors?column=small", StoreError, "column of floats 'small'; there are e"),
    ],
)
def test_what_cannot_be_opened_is_told_in_one_line(awkward, rest, error, why):
    with pytest.raises(error) as raised:
        open_store(f"sqlite-vec:{awkward}{rest}")
    assert why in str(raised.value) and "\n" not in str(raised.value)


def test_what_is_no_database_is_told(tmp_path):
    with pytest.raises(StoreError, match="there is no file"):
        open_store(f"sqlite-vec:{tmp_path}/nosuch.db#t")
    (tmp_path / "a.db").write_text("not a database")
    with pytest.raises(StoreError, match="there are none; name the file"):
        open_store(f"sqlite-vec:{tmp_path}/a.db#t")


@pytest.mark.slow
@pytest.mark.parametrize("point", ["recorded:1", "complete:1", "published:1"])
def test_a_translation_that_is_killed_ends_complete(awkward, tmp_path, point):
    old, new = f"sqlite-vec:{awkward}#vectors?text=odd docs.content", tmp_path / "new"
    migrate.fit(old, Hashed(dim=4), kind="ridge", sample=60).save(tmp_path / "stitch")
    words = ["translate", old, str(tmp_path / "stitch"), "-o", str(new), "--quiet"]
    run_command(words, tmp_path, point)
    assert new.exists() == (point == "published:1")
    assert run(words) == 0
    copy = open_store(new)  # of the same table, with the same texts
    assert (copy.info.count, copy.info.dim, copy.info.manifest.model.spec) == (100, 4, "hashed")
    assert list(copy.documents()) == list(open_store(old).documents())
    assert stored_confidence(copy).shape == (100,)


def test_a_new_database_has_the_documents_of_another_kind_and_no_inner_product(source_folder, tmp_path):
    fitted = migrate.fit(source_folder, Hashed(dim=6), kind="ridge", sample=40)
    done = migrate.translate(source_folder, fitted, f"sqlite-vec:{tmp_path}/new#words")
    new = open_store(done.path)
    assert (new.info.kind, new.info.dim, new.info.details["table"]) == ("sqlite-vec", 6, "words")
    assert list(new.documents()) == sorted(open_store(source_folder).documents(), key=lambda document: document.id)
    assert done.remarks[0].startswith("sqlite-vec has no inner product")


def test_a_copy_keeps_the_name_of_its_table_and_how_it_is_opened(awkward, tmp_path):
    source = open_store(f"sqlite-vec:{awkward}#vectors?text=odd docs.content")
    fitted = migrate.fit(source, Hashed(dim=4), kind="ridge", sample=40)
    with pytest.raises(UsageError, match="call this one vectors"):
        migrate.translate(source, fitted, f"sqlite-vec:{tmp_path}/new#words")
    assert not (tmp_path / "new").exists()
    done = migrate.translate(source, fitted, f"sqlite-vec:{tmp_path}/new#vectors")
    copy = open_store(done.path)
    assert copy.info.opened_as == source.info.opened_as == "my shop.db#vectors?text=odd+docs.content"
    assert list(copy.documents()) == list(source.documents())
