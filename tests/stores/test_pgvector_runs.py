"""What commands do with tables of a real PostgreSQL: whole migrations, passwords, kills."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from children import run_command
from postgres import connect, server_url, wait_for_lock
from sync_tools import Hashed
from test_pgvector import ask, create, location

import migrate
from migrate.cli.main import run
from migrate.stores import open_store

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def fitted(corpus, tmp_path_factory):
    """A table, and a folder with a stitch of it."""
    server_url()
    create("docs", corpus.documents, Hashed(dim=16).embed_documents(corpus.documents), "ip")
    folder = tmp_path_factory.mktemp("fitted") / "stitch"
    with pytest.MonkeyPatch.context() as patch:
        for name in ("XDG_CACHE_HOME", "XDG_STATE_HOME"):
            patch.setenv(name, str(folder.parent / name))
        migrate.fit(location("docs"), Hashed(dim=12), kind="ridge", sample=80).save(folder)
    yield "docs", str(folder)
    with connect() as connection:
        connection.execute("DROP TABLE docs")


@pytest.fixture
def translation(fitted):
    table, stitch = fitted
    yield ["translate", location(table), stitch, "-o", location("docs_new"), "--quiet"]
    with connect() as connection:
        connection.execute("DROP TABLE IF EXISTS docs_new, lead_migrate_files")


def by_id(corpus):
    return sorted(corpus.documents, key=lambda document: document.id)


def tables():
    return [
        name for (name,) in ask("SELECT relname FROM pg_class WHERE relkind = 'r' AND relname ~ '^docs' ORDER BY 1")
    ]


def test_a_password_is_nowhere(translation, tmp_path, capsys):
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
    advice = "set PGPASSW"
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
