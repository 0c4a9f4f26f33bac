"""Translations at a pace: what they write is what they write without one, in every kind, and may go on at another."""

import time
from types import SimpleNamespace

import pytest
from kind_faiss import Faiss
from kinds import kind_class
from postgres import connect
from sync_tools import Hashed, some_records
from test_pgvector import COUNT, awkward, location  # noqa: F401 - a fixture

import migrate
from migrate.stores import open_store
from migrate.stores.base import read_all

pytestmark = pytest.mark.slow  # the quick ones are in `tests/test_pace.py`

PACE = 0.9
SERVERS = ["pgvector", "qdrant-server", "chroma-server", "milvus-server"]
KINDS = ["faiss", "parquet", "lancedb", "sqlite-vec", *SERVERS]


@pytest.fixture(params=KINDS)
def kind(request, kind_of):
    return kind_of(request.param)


def content(store):
    store = open_store(store)
    batch = read_all(store.scan())
    return list(batch.ids), batch.vectors.tobytes(), list(store.documents())


@pytest.mark.filterwarnings("ignore")
def test_a_store_is_the_same_at_any_pace(kind, tmp_path):
    old = kind.make(tmp_path / "old", some_records())
    stitch = migrate.fit(old, Hashed(), kind="ridge", sample=40)
    done = {}
    for pace in (None, PACE):
        made = migrate.translate(old, stitch, kind.place(tmp_path / f"new-{pace}"), pace=pace)
        done[pace] = content(made.path if "://" in str(made.path) else kind.place(tmp_path / f"new-{pace}"))
    assert done[None] == done[PACE]


def test_a_table_is_copied_with_all_its_columns_and_indexes_at_any_pace(awkward):  # noqa: F811
    source = open_store(f"{location(awkward)}.embedding?text=body")
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


PAGES = 3
BLOCKS = 1
LOOKUPS = 5  # of samples, for the snapshot


@pytest.mark.parametrize(
    ("old", "where", "expected"),
    [
        ("faiss", "new", BLOCKS + PAGES),
        ("pgvector", "field", BLOCKS + LOOKUPS + 5 * PAGES),  # ids, vectors, those written, and both fields once more
    ],
)
def test_it_rests_after_each_page_that_is_read_or_written(old, where, expected, tmp_path, monkeypatch):
    rests = []
    monkeypatch.setattr("migrate.pace.time", SimpleNamespace(monotonic=time.monotonic, sleep=rests.append))
    store = kind_class(old)().make(tmp_path / "old", some_records(count=2_049))
    stitch = migrate.fit(Faiss().make(tmp_path / "pairs", some_records()), Hashed(), kind="ridge", sample=40)
    output = None if where == "field" else kind_class("pgvector")().place(tmp_path / "new")
    into = "added" if where == "field" else None
    migrate.translate(store, stitch, output, into=into, pace=PACE, any_store=True)
    assert len(rests) == expected


@pytest.mark.parametrize("name", ["pgvector", "lancedb", "parquet"])
@pytest.mark.filterwarnings("ignore")
def test_a_field_is_the_same_at_any_pace(name, tmp_path):
    found = []
    for pace in (None, PACE):
        old = kind_class(name)().make(tmp_path / f"old-{pace}", some_records())
        stitch = migrate.fit(old, Hashed(), kind="ridge", sample=40)
        migrate.translate(old, stitch, into="added", pace=pace)
        found.append(content(f"{old}{'&' if '?' in old.rpartition('#')[2] else '?'}vector=added"))
    assert found[0] == found[1]
