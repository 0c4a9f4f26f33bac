"""What commands do with tables of a real PostgreSQL: whole migrations, passwords, kills."""

import subprocess
import sys
import time

import pytest
from children import run_command
from postgres import connect, server_url
from test_pgvector import create, location

import migrate
from migrate.cli.main import run
from migrate.embedders import load_embedder
from migrate.stores import open_store
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


def test_stores_go_from_one_kind_to_another_and_back(table, corpus, tmp_path):
    fitted = migrate.fit(location(table), "tfidf:12", sample=80)
    flat = migrate.translate(location(table), fitted, f"faiss:{tmp_path}/flat")
    back = migrate.fit(flat.path, "tfidf:10", sample=80)
    new = open_store(migrate.translate(flat.path, back, f"{location('docs_new.vectors')}?index=ivfflat&lists=7").path)
    assert (new.info.kind, new.info.dim, new.info.metric, new.driver.table.column) == ("pgvector", 10, "ip", "vectors")
    assert list(new.documents()) == sorted(corpus, key=lambda document: document.id)
    (index,) = new.driver.table.vector_indexes
    assert (index.method, index.options, index.distance) == ("ivfflat", {"lists": "7"}, "ip")
    assert open_store(location(table)).successor("translated").endswith("#public.docs_translated")
    (index,) = open_store(
        migrate.translate(location(table), fitted, location("docs_filled")).path
    ).driver.table.vector_indexes
    assert (index.name, index.method) == ("docs_filled_embedding_idx", "hnsw")
    assert tables() == ["docs", "docs_filled", "docs_new"]


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
