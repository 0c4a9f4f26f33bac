"""Ordinary tables of SQLite with vectors as BLOBs and as JSON."""

import json
import sqlite3
import subprocess
import sys
from contextlib import closing

import numpy as np
import pytest
from database_tests import DatabaseTests, store_of_lines, written
from sync_tools import Hashed

import migrate
from migrate.cli.main import run
from migrate.errors import StoreError, UnsupportedStoreError, UsageError
from migrate.stores import open_store
from migrate.stores.base import read_all
from migrate.stores.registry import output_of
from migrate.work.writer import write_rows


class TestBlobs(DatabaseTests):
    metrics = ("ip", "l2")

    def encode(self, vector):
        return vector.astype("<f4").tobytes()

    def make_store(self, folder, documents, vectors, metric):
        with closing(sqlite3.connect(folder / "app.db")) as connection, connection:
            connection.execute("DROP TABLE IF EXISTS notes")
            connection.execute("CREATE TABLE notes (id TEXT PRIMARY KEY, body TEXT, embedding, metadata TEXT)")
            rows = [
                (d.id, d.text, self.encode(v), json.dumps(dict(d.metadata)))
                for d, v in zip(documents, vectors, strict=True)
            ]
            connection.executemany("INSERT INTO notes VALUES (?, ?, ?, ?)", rows[::-1])
        option = "?distance=l2" if metric == "l2" else ""
        return f"sqlite:{folder}/app.db#notes{option}"


class TestJson(TestBlobs):
    def encode(self, vector):
        return json.dumps(vector.tolist())


VECTORS = np.random.default_rng(0).normal(size=(100, 6)).astype(np.float32)
AWKWARD = """
CREATE TABLE "my docs" (
  key INTEGER PRIMARY KEY, "the text" TEXT, raw BLOB, price REAL, changed INTEGER DEFAULT 0, e BLOB,
  "long" AS (price > 3)
);
CREATE TABLE tags (doc INTEGER REFERENCES "my docs" (key), tag TEXT, PRIMARY KEY (doc, tag)) WITHOUT ROWID;
CREATE INDEX prices ON "my docs" (price);
CREATE VIEW dear AS SELECT * FROM "my docs" WHERE price > 3;
CREATE VIRTUAL TABLE found USING fts5(words);
CREATE TRIGGER noted AFTER UPDATE ON "my docs" BEGIN
  UPDATE "my docs" SET changed = changed + 1 WHERE key = new.key;
END;
"""


def connect(path):
    return closing(sqlite3.connect(path, isolation_level=None))


@pytest.fixture
def awkward(tmp_path):
    path = tmp_path / "data" / "my shop.db"
    path.parent.mkdir()
    with connect(path) as connection:
        connection.executescript(AWKWARD)
        insert = 'INSERT INTO "my docs" (key, "the text", raw, price, e) VALUES (?, ?, ?, ?, ?)'
        rows = [(7 * row, f"words {row} 🦆", bytes([row, 0]), row / 9, VECTORS[row].tobytes()) for row in range(100)]
        connection.executemany(insert, [*rows[::-1], (5, "no vector", None, None, None)])
        connection.execute("INSERT INTO tags VALUES (7, 'x'), (7, 'y')")
        connection.execute("INSERT INTO found VALUES ('quick brown')")
    return path


@pytest.mark.parametrize("journal", ["delete", "wal"])
def test_everything_in_an_awkward_database_goes_through(journal, awkward, tmp_path):
    with connect(awkward) as connection:
        connection.execute(f"PRAGMA journal_mode = {journal}")
    source = open_store(f"sqlite:{awkward}#my docs?text=the text&distance=cosine")
    assert (source.info.count, source.info.dim, source.info.without_vector) == (100, 6, 1)
    vectors = np.random.default_rng(1).normal(size=(100, 9)).astype(np.float32)
    copy, _ = written(source, f"sqlite:{tmp_path}/new#my docs", tmp_path / "new", vectors)
    assert np.array_equal(read_all(copy.scan()).vectors, vectors)
    ids = source.ids(range(100))
    assert ids == sorted(str(7 * row) for row in range(100))
    assert list(open_store(f"{copy.info.location}?text=the text").documents()) == list(source.documents())
    with connect(awkward) as old, connect(tmp_path / "new" / awkward.name) as new:
        for question in (
            'SELECT key, "the text", raw, price, changed, "long" FROM "my docs" ORDER BY 1',
            "SELECT * FROM tags",
            "SELECT * FROM found WHERE words MATCH 'brown'",
            "SELECT count(*) FROM dear",
            "PRAGMA journal_mode",
            "SELECT type, name, sql FROM sqlite_master ORDER BY 1, 2",
        ):
            assert new.execute(question).fetchall() == old.execute(question).fetchall() != []
        (content,) = new.execute('SELECT e FROM "my docs" WHERE key = 21').fetchone()
        assert content == vectors[ids.index("21")].tobytes()


def test_a_table_without_a_key_of_one_column_and_other_ids(tmp_path):
    with connect(tmp_path / "a.db") as connection:
        connection.execute("CREATE TABLE t (a, b, name, vector, PRIMARY KEY (a, b)) WITHOUT ROWID")
        rows = [(row % 3, row, f"n{row}", json.dumps(VECTORS[row].tolist())) for row in range(20)]
        connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", rows)
        connection.execute("CREATE TABLE bare (body TEXT, vector BLOB)")
        connection.executemany("INSERT INTO bare VALUES (?, ?)", [(f"b{i}", VECTORS[i].tobytes()) for i in range(9)])
    with pytest.raises(StoreError, match="of several columns, a, b; "):
        open_store(f"sqlite:{tmp_path}/a.db#t")
    store = open_store(f"sqlite:{tmp_path}/a.db#t?id=name")
    assert store.ids(range(2)) == ["n0", "n1"]
    (tmp_path / "new").mkdir()
    writer = output_of(f"sqlite:{tmp_path}/new#t").writer(store, tmp_path / "new", 4)
    write_rows(writer, [(0, VECTORS[:20, :4])], 20)
    copy = open_store(f"sqlite:{tmp_path}/new#t?id=name")
    assert np.array_equal(read_all(copy.scan()).vectors, VECTORS[:20, :4])
    assert copy.records.put(["n3"], VECTORS[50:51, :4]) == 1
    assert open_store(f"sqlite:{tmp_path}/a.db#bare").ids(range(9)) == [str(row) for row in range(1, 10)]


def test_ids_of_a_column_of_any_type_are_told_apart(tmp_path):
    with connect(tmp_path / "a.db") as connection:
        connection.execute("CREATE TABLE t (id INTEGER UNIQUE, text TEXT, vector BLOB)")
        keys = [7, "007x", -1, 2**63 - 1, " 8"]
        connection.executemany(
            "INSERT INTO t VALUES (?, ?, ?)", [(key, str(key), VECTORS[row].tobytes()) for row, key in enumerate(keys)]
        )
    store = open_store(f"sqlite:{tmp_path}/a.db#t")
    assert [document.id for document in store.documents()] == sorted(["7", "007x", "-1", str(2**63 - 1), "8"])
    assert list(store.records.documents(["007", "7", "9" * 30])) == ["7"]


def fill(path, values, ids="id TEXT PRIMARY KEY"):
    with connect(path) as connection:
        connection.execute(f"CREATE TABLE t ({ids}, text TEXT, vector)")
        rows = [(f"d{row}", f"text {row}", value) for row, value in enumerate(values)]
        connection.executemany("INSERT INTO t VALUES (?, ?, ?)", rows)
    return f"sqlite:{path}#t"


BLOBS = [vector.tobytes() for vector in VECTORS]
LISTS = [json.dumps(vector.tolist()) for vector in VECTORS]
NAN = np.full(6, np.nan, np.float32).tobytes()


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ([*BLOBS[:50], BLOBS[0][:20]], "of 5 numbers in 1 rows, such as that of id 'd50'"),
        ([*BLOBS[:50], BLOBS[0][:21]], "but of 21 bytes in 1 rows"),
        ([*BLOBS[:50], b""], "but of 0 numbers in 1 rows"),
        ([*BLOBS[:50], LISTS[0]], "vectors of blob, but of text in 1 rows"),
        ([*BLOBS[:50], 5], "holds integer in 1 rows, such as that of id 'd50'"),
        ([*BLOBS[:50], NAN], "NaN, Inf or overflowing vector for document 'd50'"),
        ([NAN, *BLOBS[:50]], "NaN, Inf or overflowing vector for document 'd0'"),
        ([*LISTS[:50], "[1, 2]"], "of 2 numbers for id 'd50'"),
        ([*LISTS[:50], "[1, null]"], "no list of numbers for id 'd50'"),
        ([*LISTS[:50], "[1, "], "holds no JSON for id 'd50'"),
        ([*LISTS[:50], "[NaN, 1, 1, 1, 1, 1]"], "NaN, Inf or overflowing vector for document 'd50'"),
        ([*LISTS[:50], "[1e300, 1, 1, 1, 1, 1]"], "NaN, Inf or overflowing vector for document 'd50'"),
        ([None, None], "no column of vectors is named"),
        ([vector.astype(float).tobytes() for vector in np.random.default_rng(3).normal(size=(40, 8))], "float64"),
    ],
)
def test_bad_rows_end_in_one_line_and_exit_4(values, why, tmp_path, capsys):
    location = fill(tmp_path / "a.db", values)
    assert run(["fit", location, "--target", "tfidf:4", "-o", str(tmp_path / "s"), "-q"]) == 4
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert why in line


def test_rows_without_a_vector_are_counted_and_kept(tmp_path):
    store = open_store(fill(tmp_path / "a.db", [None, *BLOBS[:50], None]))
    assert (store.info.count, store.info.without_vector) == (50, 2)
    written(store, f"sqlite:{tmp_path}/new#t", tmp_path / "new", VECTORS[:50, :3])
    with connect(tmp_path / "new" / "a.db") as connection:
        assert connection.execute("SELECT id FROM t WHERE vector IS NULL").fetchall() == [("d0",), ("d51",)]


@pytest.mark.parametrize(
    ("rest", "error", "why"),
    [
        ("#nosuch", StoreError, "there is no table 'nosuch'; there are my docs"),
        ("#tags", StoreError, "there are none: say ?vector=COLUMN"),
        ("#my docs?vector=x", StoreError, "'x'; there are key, the text, raw"),
        ("#?text=x", StoreError, "texts 'x'; there are the text, raw, price, changed"),
        ("#?id=x", StoreError, "there is no column of ids 'x'"),
        ("#?distance=l1", UsageError, "there is no distance 'l1'"),
        ("#?column=e", UsageError, "there is no option column"),
    ],
)
def test_what_cannot_be_opened_is_told_in_one_line(awkward, rest, error, why):
    with pytest.raises(error) as raised:
        open_store(f"sqlite:{awkward}{rest}")
    assert why in str(raised.value)
    assert "\n" not in str(raised.value)


def test_what_is_no_database_is_told(tmp_path):
    with pytest.raises(StoreError, match="there is no file"):
        open_store(f"sqlite:{tmp_path}/nosuch.db#t")
    (tmp_path / "a.db").write_text("not a database, but of some length" * 99)
    with pytest.raises(StoreError, match="this is no SQLite database"):
        open_store(f"sqlite:{tmp_path}/a.db#t")


def test_a_table_that_fixes_the_length_refuses_in_one_line(tmp_path):
    with connect(tmp_path / "a.db") as connection:
        connection.execute("CREATE TABLE t (id TEXT PRIMARY KEY, text TEXT, vector BLOB CHECK (length(vector) = 24))")
        connection.executemany("INSERT INTO t VALUES (?, '', ?)", [(f"d{i}", BLOBS[i]) for i in range(30)])
    store = open_store(f"sqlite:{tmp_path}/a.db#t")
    with pytest.raises(StoreError, match="CHECK constraint failed: "):
        written(store, f"sqlite:{tmp_path}/new#t", tmp_path / "new", VECTORS[:30, :3])


def test_float64_is_unsupported_and_not_damage(tmp_path):
    values = [vector.astype(float).tobytes() for vector in np.random.default_rng(3).normal(size=(40, 8))]
    with pytest.raises(UnsupportedStoreError, match="astype"):
        open_store(fill(tmp_path / "a.db", values))


def test_a_copy_is_opened_synced_and_switched_as_the_old_one_was(tmp_path, capsys):
    (tmp_path / "old").mkdir()
    location = fill(tmp_path / "old" / "a.db", LISTS)
    with connect(tmp_path / "old" / "a.db") as connection:
        connection.execute("ALTER TABLE t ADD COLUMN name DEFAULT 'x'")
        connection.execute("UPDATE t SET name = id || '/', text = text || ' of ' || (rowid * 7 % 30)")
    location, new = f"{location}?id=name&distance=l2", str(tmp_path / "new")
    model = Hashed(dim=8)
    migrate.translate(location, migrate.fit(location, model, kind="ridge", sample=40), new)
    store = open_store(new)
    assert (store.info.metric, store.info.dim, store.info.index_type) == ("l2", 8, "JSON lists")
    assert store.ids(range(2)) == ["d0/", "d1/"]
    with connect(tmp_path / "old" / "a.db") as connection:
        connection.execute("INSERT INTO t VALUES ('dx', 'text 3 of 4', ?, 'dx/')", (LISTS[0],))
        connection.execute("DELETE FROM t WHERE id = 'd3'")
    assert migrate.sync(location, new, target=model).written
    assert {"dx/"} == {*open_store(new).ids(range(100))} - {*store.ids(range(100))}
    assert run(["switch", location, new, "--unproven"]) == 0, capsys.readouterr().err
    assert open_store(str(tmp_path / "old")).info.dim == 8
    assert run(["rollback", location]) == 0
    with connect(tmp_path / "new" / "a.db") as connection:
        connection.execute("CREATE TABLE more (x)")
    assert run(["switch", location, new, "--unproven"]) == 2
    assert "its table more differs" in capsys.readouterr().err


@pytest.mark.parametrize("distance", ["l2", "ip"])
def test_documents_of_another_kind_keep_how_they_are_compared(distance, tmp_path):
    old = open_store(f"{fill(tmp_path / 'a.db', BLOBS)}?distance={distance}")
    lines = [{"id": "it's", "text": "x", "metadata": {"n": None, "text": [1]}}, {"id": "7", "text": "naïve 🦆"}]
    arrays = store_of_lines(tmp_path / "arrays", *lines)
    made, _ = written(arrays, f"sqlite:{tmp_path}/new#docs", tmp_path / "new", read_all(arrays.scan()).vectors)
    assert list(made.documents()) == sorted(arrays.documents(), key=lambda document: document.id)
    assert (made.info.metric, made.info.details["distance"]) == (arrays.info.metric, arrays.info.metric)
    assert old.info.metric == distance


def test_no_trigger_runs_when_vectors_are_put(awkward):
    store = open_store(f"sqlite:{awkward}#my docs")
    assert store.records.put(["7", "21"], VECTORS[:2]) == 2
    with connect(awkward) as connection:
        assert connection.execute('SELECT sum(changed) FROM "my docs"').fetchall() == [(0,)]
        triggers = "SELECT count(*) FROM sqlite_master WHERE type = 'trigger'"
        assert connection.execute(triggers).fetchall() == [(1,)]


WRITER = """
import sqlite3, subprocess, sys
from migrate.stores import open_store

connection = sqlite3.connect("app.db", isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
assert open_store(sys.argv[1]).info.kind == "sqlite"
write = "import sqlite3; sqlite3.connect('app.db', timeout=0).execute('BEGIN IMMEDIATE')"
subprocess.run([sys.executable, "-c", write])
"""
"""A program that is writing to a database while it opens that as a store, and another one that wants to write, too."""


@pytest.mark.slow
@pytest.mark.parametrize("place", ["app.db", "."])
def test_a_program_that_opens_its_database_as_a_store_keeps_its_locks(place, tmp_path):
    with closing(sqlite3.connect(tmp_path / "app.db")) as connection, connection:
        connection.execute("CREATE TABLE docs (id TEXT PRIMARY KEY, text TEXT, vector BLOB)")
        connection.execute("INSERT INTO docs VALUES ('a', 'words', ?)", (np.ones(4, "<f4").tobytes(),))
    # a process of its own: here a test may have imported apsw, a second SQLite, which knows of no lock of the first
    command = [sys.executable, "-c", WRITER, place]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "database is locked" in done.stderr
