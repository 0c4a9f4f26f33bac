"""Search and single vectors, where kinds of stores differ; what all must do is in `migrate.testing.stores`."""

import json
import time

import numpy as np
import pytest
from faiss_tools import build, save, write_docs
from kinds import kind_class

from migrate.errors import StoreError, UsageError
from migrate.stores import open_store
from migrate.stores.base import read_all
from migrate.stores.faiss.search import open_search
from migrate.stores.serving import ConnectionPool, is_cosine
from migrate.testing.stores import _exact, example_documents, example_vectors
from migrate.vectors import Document

COUNT = 600
DIM = 8


def queries(count=3):
    return example_vectors(count, DIM, seed=77)


def agree(hits, exact):
    """How many of the exact neighbours were found, on average."""
    return np.mean([len(set(a.ids) & set(b.ids)) / len(b.ids) for a, b in zip(hits, exact, strict=True)])


@pytest.mark.parametrize("metric", ["l2", "ip"])
@pytest.mark.parametrize("factory", ["Flat", "HNSW16", "IVF8,Flat", "IDMap,HNSW16", "IDMap2,Flat"])
def test_an_index_of_faiss_searches_itself_with_and_without_a_filter(factory, metric, tmp_path):
    has_labels = factory.startswith(("IVF", "IDMap"))
    numbers = [3 * row + 5 if has_labels else row for row in range(COUNT)]
    index = build(factory, example_vectors(COUNT, DIM), metric=metric, labels=numbers if has_labels else None)
    if factory.startswith("IVF"):
        index.nprobe = 8
    save(index, tmp_path)
    documents = [Document(f"d{row}", "x", {"part": row % 4, "name": str(row)}) for row in range(COUNT)]
    write_docs(tmp_path, documents, faiss_id=lambda row: numbers[row])
    store = open_store(tmp_path)
    assert agree(store.searcher().search(queries(), 10), _exact(store, queries(), 10)) > 0.9
    kept = {f"d{row}" for row in range(2, COUNT, 4)}
    hits = store.searcher().search(queries(), 10, {"part": 2})
    assert agree(hits, _exact(store, queries(), 10, kept)) > 0.8
    assert all(set(found.ids) <= kept and len(found.ids) == 10 for found in hits)
    exact = _exact(store, queries(), COUNT)[0]
    scores = dict(zip(exact.ids, exact.scores, strict=True))
    assert np.allclose([scores[doc_id] for doc_id in hits[0].ids], hits[0].scores, atol=1e-4)
    assert [found.ids for found in store.searcher().search(queries(), 5, {"part": 2, "name": "6"})] == [("d6",)] * 3
    assert [found.ids for found in store.searcher().search(queries(), 5, {"part": 1, "name": "6"})] == [()] * 3
    with pytest.raises(UsageError, match="no document has metadata called 'colour'"):
        store.searcher().search(queries(), 5, {"colour": "red"})


def test_an_index_that_cannot_be_filtered_says_so(tmp_path):
    save(build("PCA4,Flat", example_vectors(COUNT, DIM)), tmp_path)
    write_docs(tmp_path, example_documents(COUNT))
    store = open_store(tmp_path)
    assert len(store.searcher().search(queries(), 5)[0].ids) == 5
    with pytest.raises(UsageError, match="IndexPreTransform cannot be filtered"):
        store.searcher().search(queries(), 5, {"page": 1})


def test_a_store_without_texts_has_nothing_to_filter_by(tmp_path):
    save(build("Flat", example_vectors(COUNT, DIM)), tmp_path)
    with pytest.raises(UsageError, match="no metadata to filter by"):
        open_store(tmp_path).searcher().search(queries(), 5, {"a": 1})


def test_a_connection_that_failed_is_not_used_again():
    class Connection:
        def __init__(self):
            opened.append(self)
            self.closed = False

        def close(self):
            self.closed = True

    opened = []
    pool = ConnectionPool(Connection)
    with pool.connection() as first, pool.connection() as second:
        assert first is not second
    with pool.connection() as again:
        assert again in opened
    assert len(opened) == 2
    with pytest.raises(KeyError), pool.connection() as failed:
        raise KeyError
    assert failed.closed
    assert sum(connection.closed for connection in opened) == 1
    pool.clear()
    assert all(connection.closed for connection in opened)


class TestSqliteVec:
    @pytest.fixture
    def connection(self, tmp_path):
        pytest.importorskip("sqlite_vec")
        from test_sqlite_vec import connect

        connection = connect(tmp_path / "my.db")
        yield connection
        connection.close()

    def test_columns_of_all_sorts_filter_and_there_may_be_many_neighbours(self, connection, tmp_path):
        count = 5_000
        vectors = example_vectors(count, DIM)
        connection.execute(
            f"CREATE VIRTUAL TABLE docs USING vec0(tenant integer partition key, e float[{DIM}] "
            "distance_metric=cosine, kind text, yes boolean, +note text, +metadata text)"
        )
        rows = (
            (row + 1, row % 3, vectors[row].tobytes(), "ab"[row % 2], row % 5 == 0, None if row % 2 else f"n{row}",
             json.dumps({"it's": row % 7, "none": None}))
            for row in range(count)
        )  # fmt: skip
        insert = "INSERT INTO docs (rowid, tenant, e, kind, yes, note, metadata) VALUES (?, ?, ?, ?, ?, ?, ?)"
        with connection:
            connection.executemany(insert, rows)
        store = open_store(f"sqlite-vec:{tmp_path}/my.db#docs")
        assert is_cosine(store.info)
        found, exact = store.searcher().search(queries(), count)[0], _exact(store, queries(), count)[0]
        assert set(found.ids) == set(exact.ids)
        assert np.allclose(found.scores, exact.scores, atol=1e-5)
        numbers = np.arange(count)
        for where, kept in (
            ({"tenant": 1, "kind": "a"}, (numbers % 3 == 1) & (numbers % 2 == 0)),
            ({"yes": True}, numbers % 5 == 0),
            ({"note": "n8"}, numbers == 8),
            ({"note": None}, numbers % 2 == 1),
            ({"it's": 3, "kind": "b"}, (numbers % 7 == 3) & (numbers % 2 == 1)),
        ):
            ids = {str(row + 1) for row in np.flatnonzero(kept)}
            assert store.searcher().search(queries(), 9, where)[2].ids == _exact(store, queries(), 9, ids)[2].ids, where
        with pytest.raises(UsageError, match="no text or number under 'kind'"):
            store.searcher().search(queries(), 3, {"kind": ["a"]})
        assert store.records.put(["7", "x", "99999999999999999999"], -vectors[:3]) == 1

    def test_a_table_that_another_program_writes_to_says_so(self, connection, tmp_path, monkeypatch):
        monkeypatch.setattr("migrate.databases.sqlite_vec._WAIT_MS", 50)
        connection.execute(f"CREATE VIRTUAL TABLE docs USING vec0(e float[{DIM}])")
        connection.execute("INSERT INTO docs (rowid, e) VALUES (1, ?)", (queries()[0].tobytes(),))
        store = open_store(f"sqlite-vec:{tmp_path}/my.db#docs")
        connection.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="another program is writing"):
            store.records.put(["1"], queries(1))
        connection.execute("COMMIT")
        assert store.records.put(["1"], queries(1)) == 1


@pytest.mark.slow
class TestLanceDB:
    def make(self, folder, kind="float32", *, with_ids=True):
        pa = pytest.importorskip("pyarrow")
        lancedb = pytest.importorskip("lancedb")
        from test_lancedb import column

        vectors = example_vectors(COUNT, DIM)
        ids = {"id": pa.array(range(1_000, 1_000 + COUNT), pa.int64())} if with_ids else {}
        columns = {"text": pa.array(["x"] * COUNT), **ids, "vector": column(vectors, getattr(pa, kind)())}
        return f"lancedb:{folder}#docs", lancedb.connect(str(folder)).create_table("docs", pa.table(columns))

    @pytest.fixture
    def place(self, tmp_path):
        return self.make(tmp_path)[0]

    def test_a_table_without_ids_is_searched_and_not_written_to(self, tmp_path):
        place, table = self.make(tmp_path, with_ids=False)
        table.delete("text = 'y'")
        store = open_store(f"{place}?distance=cosine")
        assert store.searcher().search(queries(), 20)[0].ids == _exact(store, queries(), 20)[0].ids
        with pytest.raises(StoreError, match="without a column of ids"):
            store.records.put(["0"], queries(1))

    def test_half_precision_is_rounded_and_what_it_cannot_hold_refused(self, tmp_path):
        place, _ = self.make(tmp_path, "float16")
        store = open_store(place)
        assert store.records.put(["1001", "no number"], queries(2)) == 1
        again = open_store(place)
        row = list(again.ids(range(COUNT))).index("1001")
        assert np.array_equal(again.get(np.array([row])).vectors[0], queries(1)[0].astype(np.float16))
        with pytest.raises(StoreError, match="numbers as large as those for document '1001'"):
            store.records.put(["1001"], np.full((1, DIM), 1e6, np.float32))

    def test_an_older_version_is_searched_as_it_was(self, tmp_path):
        place, table = self.make(tmp_path)
        newest, version = open_store(place), table.version
        before = newest.searcher().search(queries(), 5)[0]
        assert newest.records.put(list(before.ids[:1]), -queries(1)) == 1
        old = open_store(f"{place}?version={version}")
        assert old.searcher().search(queries(), 5)[0].ids == before.ids
        assert newest.searcher().search(queries(), 5)[0].ids[0] != before.ids[0]
        with pytest.raises(StoreError, match="an older version"):
            old.records.put(["1001"], queries(1))

    def test_a_table_that_is_written_to_while_it_is_opened_keeps_ids_and_vectors_together(self, place, monkeypatch):
        from migrate.databases.lancedb import LanceColumns

        choose, writer, new = LanceColumns.choose_id, open_store(place), example_vectors(200, seed=4)

        def write_meanwhile(columns, *arguments):  # rows move to the end of the table
            monkeypatch.setattr(LanceColumns, "choose_id", choose)
            assert writer.records.put(list(map(str, range(1_000, 1_200))), new) == 200
            return choose(columns, *arguments)

        monkeypatch.setattr(LanceColumns, "choose_id", write_meanwhile)
        before = read_all(open_store(place).scan())
        after = read_all(open_store(place).scan())
        expected = example_vectors(COUNT, DIM)[np.array([int(doc_id) - 1_000 for doc_id in before.ids])]
        assert np.array_equal(before.vectors, expected)
        changed = np.array([int(doc_id) < 1_200 for doc_id in after.ids])
        expected[changed] = new[np.array([int(doc_id) - 1_000 for doc_id in np.array(after.ids)[changed]])]
        assert np.array_equal(after.vectors, expected)

    def test_what_another_process_puts_is_seen_soon(self, place):
        searcher, writer = open_store(place).searcher(), open_store(place)
        searcher.search(queries(1), 1)
        assert writer.records.put(["1599"], queries(1)) == 1
        end = time.monotonic() + 10
        while searcher.search(queries(1), 1)[0].ids != ("1599",):
            assert time.monotonic() < end
            time.sleep(0.05)

    def test_a_table_whose_vectors_are_replaced_one_by_one_stays_in_few_files(self, place, monkeypatch):
        monkeypatch.setattr("migrate.databases.lancedb._SCATTERED", 20)
        new, store, versions = example_vectors(COUNT, DIM, seed=3), open_store(place), []
        for row in range(50):
            assert store.records.put([str(1_000 + row)], new[row : row + 1]) == 1
            versions.append(store.rows.newest.version)
        assert store.rows.newest.stats()["fragment_stats"]["num_fragments"] <= 21
        found = read_all(open_store(place).scan())
        rows = {doc_id: row for row, doc_id in enumerate(found.ids)}
        assert np.array_equal(found.vectors[[rows[str(1_000 + row)] for row in range(50)]], new[:50])
        first = open_store(f"{place}?version={versions[0]}")
        assert np.array_equal(read_all(first.scan()).vectors[1:50], example_vectors(COUNT, DIM)[1:50]), "it is kept"

    def test_a_filter_that_is_no_sql_is_refused(self, place):
        with pytest.raises(UsageError, match="is the filter right"):
            open_store(place).searcher().search(queries(), 3, "nothing = 1")

    def test_scores_of_a_lossy_index_are_those_of_whole_vectors(self, tmp_path):
        place, table = self.make(tmp_path)
        from lancedb.index import IvfPq

        table.create_index("vector", config=IvfPq(distance_type="l2", num_partitions=1, num_sub_vectors=2))
        store = open_store(place)
        hits = store.searcher().search(queries(1), 5)[0]
        exact = _exact(store, queries(1), COUNT)[0]
        scores = dict(zip(exact.ids, exact.scores, strict=True))
        assert np.allclose(hits.scores, [scores[doc_id] for doc_id in hits.ids], rtol=1e-4)


@pytest.mark.slow
class TestPgvector:
    @pytest.fixture
    def table(self, tmp_path):
        from database_tests import name_of
        from postgres import connect
        from test_pgvector import create

        name = name_of(tmp_path)
        create(name, example_documents(COUNT), example_vectors(COUNT, DIM))
        yield name
        with connect() as connection:
            connection.execute(f"DROP TABLE {name}")

    @pytest.fixture
    def store(self, table):
        from test_pgvector import location

        return open_store(location(table))

    def test_a_filter_that_few_pass_finds_all_of_them(self, store):
        assert len(store.searcher().search(queries(), 300)[0].ids) == 300
        chosen = (example_documents(COUNT)[5].id,)
        assert store.searcher().search(queries(), 10, {"page": 5})[0].ids == chosen
        assert store.searcher().search(queries(), 10, {"page": 5, "source": "b"})[0].ids == ()
        assert store.searcher().search(queries(), 10, {"content": "text of row 5"})[0].ids == chosen

    def test_the_index_is_used(self, store, table):
        from test_pgvector import ask

        from migrate.databases.pgvector import connect

        def scans():
            index = "indexrelname LIKE '%%embedding%%'"
            return ask(f"SELECT idx_scan FROM pg_stat_user_indexes WHERE relname = %s AND {index}", table)

        def connect_eagerly():
            """A connection that takes an index even where the table is small."""
            connection = connect(store.driver.address.place)
            connection.execute("SET enable_seqscan = off")
            return connection

        before = scans()
        store.driver.session.pool = ConnectionPool(connect_eagerly)
        store.searcher().search(queries(), 5)
        store.driver.session.pool.clear()
        end = time.monotonic() + 10  # statistics of a connection come when it has ended
        while scans() == before:
            assert time.monotonic() < end, "the index was not scanned"
            time.sleep(0.05)

    def test_a_value_of_another_type_is_the_filters_fault(self, table):
        from postgres import connect
        from test_pgvector import location

        with connect() as connection:
            connection.execute(f"ALTER TABLE {table} ADD COLUMN n integer")
        with pytest.raises(UsageError, match=r"type integer.*is the filter right"):
            open_store(location(table)).searcher().search(queries(), 3, {"n": "many"})

    def test_connections_that_the_server_closed_are_made_again(self, store):
        from test_pgvector import ask

        expected = store.searcher().search(queries(), 3)[0].ids
        ask("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'lead-migrate'")
        assert store.searcher().search(queries(), 3)[0].ids == expected


@pytest.mark.slow
class TestQdrant:
    def test_a_named_vector_is_searched_and_put_and_others_stay(self, tmp_path):
        qdrant_client = pytest.importorskip("qdrant_client")
        models = qdrant_client.models
        client = qdrant_client.QdrantClient(path=str(tmp_path / "old"))
        text = models.VectorParams(size=DIM, distance="Cosine")
        client.create_collection("docs", {"text": text, "other": models.VectorParams(size=2, distance="Dot")})
        points = [
            models.PointStruct(id=row, vector={"other": [row, 1.0], **({"text": vector.tolist()} if row % 4 else {})})
            for row, vector in enumerate(example_vectors(40, DIM))
        ]
        client.upsert("docs", points)
        client.close()
        store = open_store(f"qdrant:{tmp_path / 'old'}#docs?vector=text")
        assert store.searcher().search(queries(), 99)[0].ids == _exact(store, queries(), 99)[0].ids
        assert store.records.put(["1", "4", "nobody"], queries(3)) == 1  # point 4 has no such vector
        assert store.searcher().search(queries(), 1)[0].ids == ("1",)
        found = {point.id: point.vector for point in store.driver.client.retrieve("docs", [1, 4], with_vectors=True)}
        assert found[1]["other"] == [1.0, 1.0]
        assert list(found[4]) == ["other"]

    @pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the client leaves its lock open
    def test_a_folder_that_another_process_has_open_says_so(self, tmp_path):
        from kind_base import records_of

        kind = kind_class("qdrant")()
        location = kind.make(tmp_path / "old", records_of(example_documents(5), example_vectors(5)))
        with kind.opened(location):
            store = open_store(location)
            with pytest.raises(StoreError, match="already accessed"):
                store.records.put([store.ids(range(1))[0]], queries(1))
        assert store.records.put([store.ids(range(1))[0]], queries(1)) == 1


@pytest.mark.parametrize("factory", ["Flat", "HNSW8,Flat", "IDMap,Flat", "IDMap,HNSW8,Flat", "IVF4,Flat", "SQ8"])
@pytest.mark.parametrize("metric", ["ip", "l2"])
def test_vectors_that_a_search_holds_are_those_of_the_store(factory, metric, tmp_path):
    labels = np.arange(500, 620) * 3 if factory.startswith("IDMap") else None
    save(build(factory, example_vectors(120, DIM), metric=metric, labels=labels), tmp_path)
    store = open_store(tmp_path)
    rows = np.array([7, 0, 119, 7])
    held = open_search(store).held_vectors(rows)
    if factory in ("IVF4,Flat", "SQ8"):  # kept in lists, or as codes
        assert held is None
    else:
        np.testing.assert_array_equal(held, store.get(rows).vectors)
