"""What commands do with tables of a real PostgreSQL: whole migrations, passwords, kills."""

import json
import subprocess
import sys
import time

import numpy as np
import pytest
from children import run_command
from postgres import connect, server_url
from test_pgvector import create, location

import migrate
from migrate.cli.main import run
from migrate.embedders import load_embedder
from migrate.stores import open_store
from migrate.stores.base import read_all
from migrate.stores.confidence import stored_confidence
from migrate.vectors import Document

pytestmark = pytest.mark.slow
WORDS = ("cat", "house", "river", "tree", "stone", "light", "paper", "train")


@pytest.fixture
def corpus():
    return [
        Document(
            f"d{row:04}", " ".join(WORDS[(row * k + k * k) % 8] + str((row + k) % 37) for k in range(1, 9)), {"n": row}
        )
        for row in range(300)
    ]


@pytest.fixture
def table(corpus, tmp_path, monkeypatch):
    server_url()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    model = load_embedder("tfidf:16")
    model.fit(corpus)
    create("docs", corpus, model.embed_documents(corpus), "ip")
    yield "docs"
    with connect() as connection:
        connection.execute("DROP TABLE IF EXISTS docs, docs_new, docs_filled, lead_migrate_files")


def tables():
    with connect() as connection:
        names = "SELECT relname FROM pg_class WHERE relkind = 'r' AND relname LIKE 'docs%' ORDER BY 1"
        return [row[0] for row in connection.execute(names)]


def test_every_command_runs_on_a_table(table, corpus, tmp_path, capsys):
    old, new, stitch = location(table), location("docs_new"), str(tmp_path / "stitch")
    assert run(["fit", old, "--target", "tfidf:12", "-o", stitch, "--sample", "80"]) == 0
    assert "#public.docs_translated" in capsys.readouterr().err
    assert run(["translate", old, stitch, "-o", new]) == 0
    capsys.readouterr()
    assert run(["inspect", new, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["index docs_new_embedding_idx"] == "hnsw"
    store = open_store(new)
    assert (store.info.dim, store.info.manifest.model.spec) == (12, "tfidf:12")
    assert list(store.documents()) == sorted(corpus, key=lambda document: document.id)
    assert stored_confidence(store).shape == (300,)
    assert run(["audit", new, "--reference", "build", "--queries", "synthetic"]) in (0, 1, 3)
    assert run(["compare", old, new]) == 0
    assert run(["check", new, "--model", "tfidf:12"]) in (0, 1)
    assert run(["assess", old, "--target", "tfidf:12"]) == 0
    assert tables() == ["docs", "docs_new"]


def test_a_table_is_stamped_beside_it(table, tmp_path, capsys):
    model = tmp_path / "model.npz"
    store = open_store(location(table))
    batch = read_all(store.scan())
    np.savez(model, doc_ids=np.array(batch.ids), docs=batch.vectors)
    assert run(["stamp", location(table), "--model", f"file:{model}"]) == 0
    assert open_store(location(table)).info.manifest.model.spec == "file:model.npz"
    assert run(["stamp", location(table), "--model", f"file:{model}"]) == 2
    assert run(["stamp", location(table), "--model", f"file:{model}", "--force"]) == 0
    store.check_unchanged(store.snapshot())


def test_stores_go_from_one_kind_to_another_and_back(table, corpus, tmp_path):
    fitted = migrate.fit(location(table), "tfidf:12", sample=80)
    flat = migrate.translate(location(table), fitted, f"faiss:{tmp_path}/flat")
    back = migrate.fit(flat.path, "tfidf:10", sample=80)
    new = open_store(migrate.translate(flat.path, back, f"{location('docs_new.vectors')}?index=ivfflat&lists=7").path)
    assert (new.info.kind, new.info.dim, new.info.metric, new.driver.table.column) == ("pgvector", 10, "ip", "vectors")
    assert list(new.documents()) == sorted(corpus, key=lambda document: document.id)
    (index,) = new.driver.table.vector_indexes
    assert (index.method, index.options, index.distance) == ("ivfflat", {"lists": "7"}, "ip")


def test_a_password_is_nowhere(table, tmp_path, capsys):
    secret = "pass-word-that@nobody-may-see"
    place = server_url().replace("postgres@", f"postgres:{secret}@")
    stitch = str(tmp_path / "stitch")
    assert run(["fit", f"pgvector:{place}#docs", "--target", "tfidf:12", "-o", stitch, "--sample", "80"]) == 0
    assert run(["translate", f"pgvector:{place}#docs", stitch, "-o", f"pgvector:{place}#docs_new"]) == 0
    assert run(["inspect", f"pgvector:{place}#nosuch"]) == 4
    assert run(["translate", f"pgvector:{place}#docs", stitch, "-o", f"pgvector:{place}#docs_new"]) == 2
    wrong = place.replace("postgres:", "nobody:")
    assert run(["inspect", f"pgvector:{wrong}#docs"]) == 7
    printed = capsys.readouterr()
    assert secret not in printed.out + printed.err
    assert (
        printed.err.count("next: ")
        == printed.err.count("passwords and keys are left out: add them, or set PGPASSW")
        > 1
    )
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files and not any(secret.encode() in path.read_bytes() for path in files)
    with connect() as connection:
        kept = b"".join(bytes(row[0]) for row in connection.execute("SELECT content FROM lead_migrate_files"))
    assert kept and secret.encode() not in kept


@pytest.mark.parametrize("point", ["begun:1", "synced:1", "recorded:1", "filled:1", "complete:1", "published:1"])
def test_a_run_that_is_killed_ends_complete(table, corpus, tmp_path, point):
    migrate.fit(location(table), "tfidf:12", sample=80).save(tmp_path / "stitch")
    words = ["translate", location(table), str(tmp_path / "stitch"), "-o", location("docs_new"), "--quiet"]
    run_command(words, tmp_path, point)
    assert ("docs_new" in tables()) == (point == "published:1")
    assert run(words) == 0
    new = open_store(location("docs_new"))
    assert list(new.documents()) == sorted(corpus, key=lambda document: document.id)
    assert tables() == ["docs", "docs_new"]
    assert not list((tmp_path / "state").rglob("*.work"))


def test_a_server_that_is_killed_while_it_loads_leaves_nothing_half(table, corpus, tmp_path):
    migrate.fit(location(table), "tfidf:12", sample=80).save(tmp_path / "stitch")
    words = ["translate", location(table), str(tmp_path / "stitch"), "-o", location("docs_new"), "--quiet"]
    with connect() as blocker, connect() as watch:
        blocker.execute("BEGIN")
        blocker.execute("LOCK TABLE docs IN ACCESS EXCLUSIVE MODE")
        process = subprocess.Popen([sys.executable, "-m", "migrate", *words], stderr=subprocess.PIPE, text=True)
        waiting = (
            "SELECT pid FROM pg_stat_activity WHERE application_name = 'lead-migrate' AND wait_event_type = 'Lock'"
        )
        until = time.monotonic() + 60
        while not (pids := watch.execute(waiting).fetchall()):
            assert time.monotonic() < until and process.poll() is None
            time.sleep(0.05)
        watch.execute("SELECT pg_terminate_backend(%s)", pids[0])
        blocker.execute("ROLLBACK")
        error = process.communicate(timeout=60)[1]
    assert process.returncode == 7 and error.count("\n") == 1, error
    assert tables() == ["docs"]
    assert run(words) == 0
    assert len(list(open_store(location("docs_new")).documents())) == len(corpus)
