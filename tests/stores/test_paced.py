"""Translations at a pace: what they write is what they write without one, in every kind, and may go on at another."""

import numpy as np
import pytest
import sync_tools as tools
from postgres import connect
from sync_tools import Hashed, some_records
from test_pgvector import COUNT, awkward, location  # noqa: F401 - a fixture

import migrate
from migrate.stores import open_store
from migrate.stores.base import read_all

PACE = 0.9
SERVERS = ["Pgvector", "QdrantServer", "ChromaServer", "MilvusServer"]
KINDS = ["Folder", "Parquet", "Lance", "Qdrant", "SqliteVec", *SERVERS]


@pytest.fixture(params=KINDS)
def kind(request, kind_of):
    return kind_of(request.param)


def content(store):
    store = open_store(store)
    batch = read_all(store.scan())
    return list(batch.ids), batch.vectors.tobytes(), list(store.documents())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_store_is_the_same_at_any_pace(kind, tmp_path):
    old = kind.make(tmp_path / "old", some_records())
    stitch = migrate.fit(old, Hashed(), kind="ridge", sample=40)
    done = {}
    for pace in (None, PACE):
        made = migrate.translate(old, stitch, kind.new(tmp_path / f"new-{pace}"), pace=pace)
        done[pace] = content(made.path if "://" in str(made.path) else kind.new(tmp_path / f"new-{pace}"))
    assert done[None] == done[PACE]


@pytest.mark.parametrize("is_indexed", [True, False])
def test_a_table_is_copied_with_all_its_columns_and_indexes_some_rows_at_a_time(awkward, is_indexed):  # noqa: F811
    column = "id" if is_indexed else "price"  # a column that no index finds is copied by one statement
    source = open_store(f"{location(awkward)}.embedding?text=body&id={column}")
    stitch = migrate.fit(source, Hashed(dim=5), kind="ridge", sample=40)
    with connect() as connection:
        found = []
        for pace in (None, PACE):
            new = f"{awkward}_{'fast' if pace is None else 'slow'}"
            migrate.translate(source, stitch, location(f"{new}.embedding"), pace=pace)
            rows = connection.execute(f"SELECT t::text FROM {new} t ORDER BY id").fetchall()
            indexes = "SELECT replace(indexdef, %s, 'new') FROM pg_indexes WHERE tablename = %s ORDER BY 1"
            found.append((rows, connection.execute(indexes, [new, new]).fetchall()))
    assert found[0] == found[1] and len(found[0][0]) == COUNT and len(found[0][1]) >= 6


def test_an_index_that_is_there_before_the_rows_finds_them(tmp_path):
    kind = tools.installed("Pgvector")()
    old = tools.Folder().make(tmp_path / "old", some_records())
    stitch = migrate.fit(old, Hashed(), kind="ridge", sample=40)
    new = kind.new(tmp_path / "new")
    migrate.translate(old, stitch, new, pace=PACE)
    store = open_store(new)
    assert [index.method for index in store.driver.table.vector_indexes] == ["hnsw"]
    batch = read_all(store.scan())
    for row in range(20):
        (hits,) = store.search(batch.vectors[row : row + 1], 1)
        assert np.array_equal(batch.vectors[batch.ids.index(hits.ids[0])], batch.vectors[row])


@pytest.mark.parametrize("name", ["Pgvector", "Lance", "Parquet"])
@pytest.mark.filterwarnings("ignore")
def test_a_field_is_the_same_at_any_pace(name, tmp_path):
    found = []
    for pace in (None, PACE):
        old = tools.installed(name)().make(tmp_path / f"old-{pace}", some_records())
        stitch = migrate.fit(old, Hashed(), kind="ridge", sample=40)
        migrate.translate(old, stitch, into="added", pace=pace)
        found.append(content(f"{old}{'&' if '?' in old.rpartition('#')[2] else '?'}vector=added"))
    assert found[0] == found[1]
