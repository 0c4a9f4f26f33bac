"""A store that has no rows and lies in no folder of its own goes the whole way."""

import json

import numpy as np
import pytest
import sqlite_kind

import migrate
from migrate.cli.main import run
from migrate.embedders import load_embedder
from migrate.stores import open_store
from migrate.stores.base import read_all
from migrate.testing.stores import StoreTests
from migrate.vectors import Document

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _sqlite_is_installed(tmp_path, monkeypatch):
    path = tmp_path / "site" / "sqlite_kind-1.0.dist-info"
    path.mkdir(parents=True)
    (path / "METADATA").write_text("Metadata-Version: 2.1\nName: sqlite_kind\nVersion: 1.0\n")
    (path / "entry_points.txt").write_text("[lead_migrate.stores]\nsqlite = sqlite_kind:KIND\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


class TestSqlite(StoreTests):
    has_rows = False

    def make_store(self, folder, documents, vectors, metric):
        backwards = list(zip(documents, vectors, strict=True))[::-1]
        sqlite_kind.create(folder / "db.sqlite", "docs", metric, vectors.shape[1], backwards)
        return f"sqlite:{folder}/db.sqlite#docs"


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
    records = zip(corpus, old.embed_documents(corpus), strict=True)
    sqlite_kind.create(tmp_path / "data" / "db.sqlite", "docs", "ip", 16, records)
    return f"sqlite:{tmp_path}/data//db.sqlite#docs"


@pytest.fixture
def target(corpus, tmp_path):
    path, model = tmp_path / "target.npz", load_embedder("tfidf:12")
    model.fit(corpus)
    vectors = model.embed_documents(corpus)
    np.savez(path, doc_ids=np.array([d.id for d in corpus]), docs=vectors)
    return f"file:{path}"


def test_fit_and_translate_through_the_library(location, target, corpus, tmp_path):
    store = open_store(location)
    fitted = migrate.fit(location, target, sample=60)
    done = migrate.translate(location, fitted, tmp_path / "new")
    new = open_store(done.path)
    assert (new.info.kind, new.info.dim, new.info.count) == ("sqlite", 12, 160)
    assert list(read_all(new.scan()).ids) == list(read_all(store.scan()).ids) == sorted(d.id for d in corpus)
    assert list(new.documents()) == list(store.documents())
    assert new.info.manifest.counts["true vectors"] == 60


def test_fit_translate_and_inspect_through_the_commands(location, target, tmp_path, capsys):
    stitch, new = str(tmp_path / "stitch"), str(tmp_path / "new")
    assert run(["inspect", location, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["store"] == location
    assert run(["fit", location, "--target", target, "-o", stitch, "--sample", "60"]) == 0
    assert f"translate {location}" in capsys.readouterr().err.replace("'", "")
    assert run(["translate", location, stitch, "-o", new]) == 0
    capsys.readouterr()
    assert run(["inspect", new, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["dimension"] == 12


def test_ids_are_read_once_for_all_processes_until_one_comes(location, corpus, tmp_path, monkeypatch):
    first = open_store(location).snapshot()
    (kept,) = (tmp_path / "cache" / "lead-migrate" / "ids").iterdir()
    before = kept.stat().st_mtime_ns
    assert open_store(location).snapshot() == first and kept.stat().st_mtime_ns == before
    vectors = np.ones((161, 16), np.float32)
    records = zip([*corpus, Document("a new one", "x")], vectors, strict=True)
    sqlite_kind.create(tmp_path / "data" / "db.sqlite", "docs", "ip", 16, records)
    store = open_store(location)
    assert store.get(np.array([0])).ids == ["a new one"] and store.snapshot().versions != first.versions
    assert list(kept.parent.iterdir()) != [kept]
