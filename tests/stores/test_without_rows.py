"""A database of another package goes the whole way; exports of databases."""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import get_type_hints

import numpy as np
import pytest
import sqlite_kind

from migrate.cli.main import run
from migrate.databases import KINDS
from migrate.databases.clients import ClientRows
from migrate.databases.driver import DatabaseRows, Driver, Page
from migrate.embedders import load_embedder
from migrate.errors import OutputError, StoreError
from migrate.stores import open_store
from migrate.stores.base import read_all
from migrate.stores.export import IdIndex
from migrate.testing.stores import StoreTests
from migrate.vectors import Document

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _sqlite_is_installed(install, monkeypatch):
    monkeypatch.setattr(sqlite_kind, "PAGE", 50)
    install("hex", "from sqlite_kind import KIND", "stores", "hex")


def create(file, table, metric, dim, records):
    """A table with a row (id, vector, text, metadata) for each document, made again if it is there."""
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(sqlite_kind.TABLES)
        connection.execute(f'DROP TABLE IF EXISTS "{table}"')
        connection.execute("INSERT OR REPLACE INTO tables VALUES (?, ?, ?)", (table, metric, dim))
        connection.execute(sqlite_kind.RECORDS.format(table))
        rows = ((d.id, v.astype("<f4").tobytes().hex(), d.text, json.dumps(dict(d.metadata))) for d, v in records)
        connection.executemany(f'INSERT INTO "{table}" VALUES (?, ?, ?, ?)', rows)


def test_the_page_on_databases_has_this_one_whole():
    page = Path(__file__).parents[2] / "docs" / "developers" / "database.md"
    assert f"```python\n{Path(sqlite_kind.__file__).read_text()}```" in page.read_text()


def test_the_page_on_databases_says_what_each_has():
    page = (Path(__file__).parents[2] / "docs" / "developers" / "database.md").read_text()
    for driver in {kind.driver.traits.kind: kind.driver for kind in KINDS}.values():
        rows = get_type_hints(driver.open)["return"]
        has = (
            driver.traits.has_servers,
            driver.server_names is not Driver.server_names,
            issubclass(rows, ClientRows),
            rows.fields is not DatabaseRows.fields,
            rows.companions is not DatabaseRows.companions,
            driver.traits.copies_place,
        )
        cells = ["yes" if one else "-" for one in has]
        assert f"| {' | '.join([f'`{driver.traits.kind}`', *cells])} |" in page


class TestSqlite(StoreTests):
    has_rows = False

    def make_store(self, folder, documents, vectors, metric):
        backwards = list(zip(documents, vectors, strict=True))[::-1]
        create(folder / "db.sqlite", "docs", metric, vectors.shape[1], backwards)
        return f"hex:{folder}/db.sqlite#docs"


def recreate(tmp_path, documents, vectors):
    records = zip(documents, vectors, strict=True)
    create(tmp_path / "data" / "db.sqlite", "docs", "ip", 16, records)


@pytest.fixture
def corpus():
    words = ("cat", "house", "river", "tree")
    return [Document(f"d{row}", f"{words[row % 4]} {row // 4} of the {words[row % 3]}s") for row in range(160)]


@pytest.fixture
def location(corpus, tmp_path):
    """A location that a path would change: it has two slashes in a row."""
    old = load_embedder("tfidf:16")
    old.fit(corpus)
    (tmp_path / "data").mkdir()
    recreate(tmp_path, corpus, old.embed_documents(corpus))
    return f"hex:{tmp_path}/data//db.sqlite#docs"


@pytest.fixture
def target(corpus, tmp_path):
    path, model = tmp_path / "target.npz", load_embedder("tfidf:12")
    model.fit(corpus)
    vectors = model.embed_documents(corpus)
    np.savez(path, doc_ids=np.array([d.id for d in corpus]), docs=vectors)
    return f"file:{path}"


def test_a_store_is_inspected_fitted_translated_and_assessed_by_the_commands(
    location, target, corpus, tmp_path, capsys
):
    stitch, new = str(tmp_path / "stitch"), str(tmp_path / "new")
    assert run(["inspect", location, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["store"] == location
    assert run(["fit", location, "--target", target, "-o", stitch, "--sample", "60"]) == 0
    assert f"translate {location}" in capsys.readouterr().err.replace("'", "")
    assert run(["translate", location, stitch, "-o", new]) == 0
    old, made = open_store(location), open_store(new)
    assert (made.info.kind, made.info.dim, made.info.count) == ("hex", 12, 160)
    assert list(read_all(made.scan()).ids) == list(read_all(old.scan()).ids) == sorted(d.id for d in corpus)
    assert list(made.documents()) == list(old.documents())
    assert made.info.manifest.counts["true vectors"] == 60
    assert run(["assess", location, "--target", target]) == 0
    assert "the better deal is the full re-embed" in " ".join(capsys.readouterr().out.split())


def exports(tmp_path):
    return {path.name: path.stat().st_mtime_ns for path in (tmp_path / "work" / "exports").glob("*/*")}


def test_a_database_is_exported_once_for_all_processes_until_it_changes(location, corpus, tmp_path, monkeypatch):
    monkeypatch.setenv("LEAD_MIGRATE_WORK_FOLDER", str(tmp_path / "work"))
    open_store(location).get(np.arange(9))
    assert exports(tmp_path).keys() == {"ids.npz"}, "a few vectors are looked up"
    first = open_store(location).snapshot()  # of 64 rows
    before = exports(tmp_path)
    assert before.keys() == {"ids.npz", "vectors.f32"}
    with monkeypatch.context() as patch:
        patch.setattr(sqlite_kind.SqliteRows, "pages", None)
        assert len(read_all(open_store(location).scan())) == 160 and open_store(location).snapshot() == first
    assert exports(tmp_path) == before
    recreate(tmp_path, [*corpus, Document("a new one", "x")], np.ones((161, 16), np.float32))
    store = open_store(location)
    assert store.get(np.array([0])).ids == ["a new one"] and store.snapshot().versions != first.versions
    assert len(list((tmp_path / "work" / "exports").iterdir())) == 1, "the export of the version before is removed"


def test_the_first_scan_of_a_file_in_the_order_of_its_ids_is_read_without_an_export(
    location, corpus, tmp_path, monkeypatch
):
    monkeypatch.setenv("LEAD_MIGRATE_WORK_FOLDER", str(tmp_path / "work"))
    found = open_store(location).get(np.arange(160))
    recreate(tmp_path, [Document(doc_id, "x") for doc_id in found.ids], found.vectors)
    monkeypatch.setattr(sqlite_kind.SqliteRows, "pages", in_pages_of(7))
    store = open_store(location)
    batches = [(list(batch.ids), batch.vectors.copy()) for batch in store.scan(batch_size=25)]
    assert exports(tmp_path).keys() == {"ids.npz"} and [len(ids) for ids, _ in batches] == [25] * 6 + [10]
    assert [doc_id for ids, _ in batches for doc_id in ids] == found.ids
    assert np.array_equal(np.concatenate([vectors for _, vectors in batches]), found.vectors)
    again = read_all(store.scan())
    assert exports(tmp_path).keys() == {"ids.npz", "vectors.f32"} and np.array_equal(again.vectors, found.vectors)


def in_pages_of(size):
    """Return a method that reads pages of another size."""
    read = sqlite_kind.SqliteRows.pages

    def pages(driver, *, vectors=True, records=False):
        whole = list(read(driver, vectors=vectors, records=records))
        ids = [doc_id for page in whole for doc_id in page.ids]
        rows = np.concatenate([page.vectors for page in whole])
        for first in range(0, len(ids), size):
            yield Page(ids[first : first + size], rows[first : first + size])

    return pages


@pytest.mark.parametrize("order", ["of ids", "of ids at first", "another"])
def test_ids_and_vectors_are_exported_in_the_order_of_ids_in_one_pass_if_they_come_so(
    order, location, corpus, tmp_path, monkeypatch
):
    names = sorted(document.id for document in corpus)
    names = {"of ids": names, "of ids at first": [*names[9:], *names[:9]], "another": names[::-1]}[order]
    vectors = np.random.default_rng(4).normal(size=(160, 16)).astype(np.float32)
    recreate(tmp_path, [Document(name, "x") for name in names], vectors)
    read = in_pages_of(7)
    with_vectors = []

    def pages(driver, **asked):
        with_vectors.append(asked.get("vectors", True))
        return read(driver, **asked)

    monkeypatch.setattr(sqlite_kind.SqliteRows, "pages", pages)
    found = read_all(open_store(location).scan(0, 150))
    assert with_vectors == ([True] if order == "of ids" else [True, True, False])
    place = {name: number for number, name in enumerate(names)}
    assert list(found.ids) == sorted(names)[:150]
    assert np.array_equal(found.vectors, vectors[[place[name] for name in found.ids]])


def test_an_export_that_is_damaged_is_made_again(location, tmp_path):
    whole = read_all(open_store(location).scan())
    for path in (tmp_path / "cache" / "lead-migrate" / "exports").glob("*/*"):
        path.write_bytes(path.read_bytes()[:-7])
    again = read_all(open_store(location).scan())
    assert list(again.ids) == list(whole.ids) and np.array_equal(again.vectors, whole.vectors)


def test_an_export_stays_readable_after_its_files_are_removed(location, tmp_path):
    store = open_store(location)
    whole = read_all(store.scan())
    shutil.rmtree(tmp_path / "cache" / "lead-migrate" / "exports")
    rows = np.array([159, 3, 3, 4, 0])
    assert np.array_equal(store.get(rows).vectors, whole.vectors[rows])


def test_a_database_that_is_written_to_while_it_is_exported_is_told(location, corpus, tmp_path, monkeypatch):
    store, read = open_store(location), sqlite_kind.SqliteRows.pages

    def pages(driver, **asked):
        for number, page in enumerate(read(driver, **asked)):
            if number == 1 and asked.get("vectors", True):
                recreate(tmp_path, corpus, np.ones((160, 16), np.float32))
            yield page

    monkeypatch.setattr(sqlite_kind.SqliteRows, "pages", pages)
    with pytest.raises(StoreError, match="changed while it was read"):
        list(store.scan())
    assert not list((tmp_path / "cache" / "lead-migrate" / "exports").glob("*/vectors.f32"))


def test_an_id_that_comes_twice_or_is_no_text_is_refused_by_name():
    with pytest.raises(StoreError, match="a store: the id 'b' comes twice"):
        IdIndex.of([["b", "c"], ["a", "b"]], "a store")
    with pytest.raises(StoreError, match="not valid Unicode"):
        IdIndex.of([["\ud800"]], "a store")


def test_a_disk_without_room_for_an_export_is_told_before_it_is_made(location, tmp_path, monkeypatch):
    monkeypatch.setattr("migrate.files.shutil.disk_usage", lambda path: shutil._ntuple_diskusage(1, 1, 0))
    with pytest.raises(OutputError, match="it needs 10240 bytes, but only 0 are free"):
        list(open_store(location).scan())
