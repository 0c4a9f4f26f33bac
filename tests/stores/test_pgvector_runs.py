"""What commands do with tables of a real PostgreSQL: whole migrations, passwords, kills."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from children import run_command
from postgres import connect, server_url, wait_for_lock
from test_pgvector import ask, create, location

import migrate
from migrate.cli.main import run
from migrate.embedders import load_embedder
from migrate.stores import open_store

pytestmark = pytest.mark.slow


@pytest.fixture
def table(corpus):
    server_url()
    model = load_embedder("tfidf:16")
    model.fit(corpus.documents)
    create("docs", corpus.documents, model.embed_documents(corpus.documents), "ip")
    yield "docs"
    with connect() as connection:
        connection.execute("DROP TABLE IF EXISTS docs, docs_new, lead_migrate_files")


@pytest.fixture
def translation(table, tmp_path):
    migrate.fit(location(table), "tfidf:12", sample=80).save(tmp_path / "stitch")
    return ["translate", location(table), str(tmp_path / "stitch"), "-o", location("docs_new"), "--quiet"]


def by_id(corpus):
    return sorted(corpus.documents, key=lambda document: document.id)


def tables():
    return [
        name for (name,) in ask("SELECT relname FROM pg_class WHERE relkind = 'r' AND relname ~ '^docs' ORDER BY 1")
    ]


def test_a_password_is_nowhere(table, tmp_path, capsys):
    secret = "pass-word-that@nobody-may-see"
    place = server_url().replace("postgres@", f"postgres:{secret}@")
    stitch = str(tmp_path / "stitch")
    assert run(["fit", f"pgvector:{place}#docs", "--target", "tfidf:12", "-o", stitch, "--sample", "80"]) == 0
    translate = ["translate", f"pgvector:{place}#docs", stitch, "-o", f"pgvector:{place}#docs_new"]
    assert run(translate) == 0
    assert run(["inspect", f"pgvector:{place}#nosuch"]) == 4
    assert run(translate) == 0, "done before"
    assert run([*translate, "--workers", "1"]) == 2
    wrong = place.replace("postgres:", "nobody:")
    assert run(["inspect", f"pgvector:{wrong}#docs"]) == 7
    printed = capsys.readouterr()
    assert secret not in printed.out + printed.err
    advice = "passwords and keys are left out: add them, or set PGPASSW"
    assert printed.err.count("next: ") == printed.err.count(advice) > 1
    folders = tmp_path, Path(os.environ["XDG_STATE_HOME"])
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    assert files and not any(secret.encode() in path.read_bytes() for path in files)
    kept = b"".join(bytes(content) for (content,) in ask("SELECT content FROM lead_migrate_files"))
    assert kept and secret.encode() not in kept


@pytest.mark.parametrize("point", ["synced:1", "recorded:1", "complete:1", "published:1"])
def test_a_run_that_is_killed_ends_complete(translation, corpus, tmp_path, point):
    run_command(translation, tmp_path, point)
    assert ("docs_new" in tables()) == (point == "published:1")
    assert run(translation) == 0
    assert list(open_store(location("docs_new")).documents()) == by_id(corpus)
    assert tables() == ["docs", "docs_new"]
    assert not list((tmp_path / "state").rglob("*.work"))


def test_a_server_that_is_killed_while_it_loads_leaves_nothing_half(translation, corpus):
    with connect() as blocker:
        blocker.execute("BEGIN")
        blocker.execute("LOCK TABLE docs IN ACCESS EXCLUSIVE MODE")
        process = subprocess.Popen([sys.executable, "-m", "migrate", *translation], stderr=subprocess.PIPE, text=True)
        waiting = wait_for_lock(lambda: process.poll() is None)
        ask("SELECT pg_terminate_backend(%s)", waiting)
        blocker.execute("ROLLBACK")
        error = process.communicate(timeout=60)[1]
    assert process.returncode == 7 and error.count("\n") == 1, error
    assert tables() == ["docs"]
    assert run(translation) == 0
    assert list(open_store(location("docs_new")).documents()) == by_id(corpus)
