"""`lead-migrate sync --watch` in a process of its own, while another program writes to the old store."""

import json
import os
import signal
import subprocess
import sys
import threading
import uuid
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pytest
from openai_server import KEY

from migrate.stores import open_store

DOCS = Path("store/docs.jsonl")


class Watching:
    """A running watch, and the lines that it has printed."""

    def __init__(self, *words):
        command = [sys.executable, "-m", "migrate", "sync", *words, "--watch", "--every", "0.1"]
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        self.lines = []

    def wait_for(self, word):
        """Return the next line with a word; fail if the watch ends before."""
        for line in self.process.stdout:
            self.lines.append(line.rstrip())
            if word in line:
                return self.lines[-1]
        raise AssertionError((word, self.lines))

    def end(self, number=signal.SIGINT):
        self.process.send_signal(number)
        return self.ended()

    def ended(self):
        self.lines += [line.rstrip() for line in self.process.stdout]
        return self.process.wait()


@contextmanager
def watching(*words):
    running = Watching(*words)
    # A watch that never says what is waited for must not hold up all tests
    timer = threading.Timer(120, running.process.kill)
    timer.start()
    try:
        yield running
    finally:
        timer.cancel()
        running.process.kill()
        running.process.wait()
        running.process.stdout.close()


def write_rows(change):
    """Write the texts again as a program does that replaces its file."""
    rows = [json.loads(line) for line in DOCS.read_text().splitlines()]
    change(rows)
    aside = Path("store/docs.tmp")
    aside.write_text("".join(json.dumps(row) + "\n" for row in rows))
    aside.replace(DOCS)


def set_text(row, text):
    write_rows(lambda rows: rows[row].update(text=text))


def text_of(location, row):
    store = open_store(location)
    return [document.text for document in store.documents()][row]


@pytest.mark.slow
def test_what_is_written_is_followed_until_the_switch(here, forget_hashes, lead_migrate):
    forget_hashes(here / "store")
    with watching("store", "new") as watch:
        assert watch.wait_for("watching") == "new: up to date; watching"
        for row in (3, 5):
            set_text(row, f"another text of document {row}")
            line = watch.wait_for("changed")
            assert line == ("new: 0 documents added, 1 changed, 0 deleted, 149 unchanged; 0 with other metadata alone")
            assert text_of("new", row) == f"another text of document {row}"
        lead_migrate("switch store new --unproven")
        watch.wait_for("new was switched")
        assert watch.ended() == 0
    assert len(watch.lines) == 4, "rounds without a change print nothing"
    assert text_of("store", 5) == "another text of document 5"


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interruption_says_what_is_kept(number, code, here):
    with watching("store", "new") as watch:
        watch.wait_for("watching")
        assert watch.end(number) == code
    assert watch.lines[1:] == ["lead-migrate: interrupted; new is as its last line says, and the same command goes on"]


@pytest.mark.slow
def test_a_store_that_is_gone_or_half_written_is_told_once_and_looked_for_again(here, forget_hashes):
    forget_hashes(here / "store")
    with watching("store", "new") as watch:
        watch.wait_for("watching")
        Path("store").rename("away")
        assert "store: no such file or folder; check the path; looking again every 0.1 s" in watch.wait_for("warning: ")
        half = Path("away/docs.jsonl").read_text()
        Path("away/docs.jsonl").write_text(half[: len(half) // 2])
        Path("away").rename("store")
        assert "docs.jsonl" in watch.wait_for("warning: ")
        DOCS.write_text(half)
        set_text(7, "a text after the pause")
        watch.wait_for("1 changed")
        # The same trouble as before is told again, because it is new
        Path("store").rename("away")
        watch.wait_for("no such file or folder")
        Path("away").rename("store")
        assert watch.end() == 130
    assert sum("warning: " in line for line in watch.lines) <= 4
    assert text_of("new", 7) == "a text after the pause"


@pytest.mark.slow
def test_all_rounds_together_stay_within_the_cap(store, server, forget_hashes, monkeypatch, lead_migrate):
    forget_hashes(store)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    lead_migrate("fit store --target openai:text-embedding-3-small --kind ridge --sample 100 -o stitch -q")
    lead_migrate("translate store stitch -o new -q")
    with watching("store", "new", "--max-cost", "0.003", "--price", "1") as watch:
        watch.wait_for("watching")
        set_text(3, "cheap")
        assert "$" in watch.wait_for("1 changed")
        set_text(5, "a text that is far too long for what is left " * 500)
        assert watch.ended() == 2
    assert "lead-migrate: " in watch.lines[-1] and "--max-cost" in watch.lines[-1]
    assert (text_of("new", 3), text_of("new", 5) == text_of("store", 5)) == ("cheap", False)


@pytest.mark.slow
def test_rows_of_a_table_are_followed(lead_migrate):
    pytest.importorskip("sqlite_vec")
    apsw = pytest.importorskip("apsw")
    import sqlite_vec

    connection = apsw.Connection("app.db")
    connection.set_busy_timeout(60_000)  # ms: a round reads while it writes
    connection.enable_load_extension(True)
    connection.load_extension(sqlite_vec.loadable_path())
    connection.execute("CREATE VIRTUAL TABLE notes USING vec0(id TEXT PRIMARY KEY, embedding float[8], +text TEXT)")
    rng = np.random.default_rng(0)

    def add(row):
        vector = rng.normal(size=8).astype(np.float32).tobytes()
        connection.execute("INSERT INTO notes VALUES (?, ?, ?)", (f"n{row}", vector, note(row)))

    def delete(doc_id):
        connection.execute("DELETE FROM notes WHERE id = ?", (doc_id,))

    for row in range(120):
        add(row)
    check_followed("sqlite-vec:app.db#notes", "sqlite-vec:new#notes", add, delete, lead_migrate, under_writes=False)


def check_followed(old, new, add, delete, lead_migrate, *, under_writes):
    """Watch two stores while a program adds to the old one, every 20 ms, and in the end deletes n4.

    `under_writes` is for databases of which rounds come to their end while the program writes.
    """
    lead_migrate(f"fit {old} --target tfidf:6 --kind ridge --sample 100 -o stitch -q")
    lead_migrate(f"translate {old} stitch -o {new} -q")
    stopped = threading.Event()
    added = []

    def write():
        while not stopped.wait(0.02):
            add(120 + len(added))
            added.append(120 + len(added))

    writer = threading.Thread(target=write)
    with watching(old, new) as watch:
        watch.wait_for("watching")
        writer.start()
        try:
            for _ in range(2 if under_writes else 1):
                watch.wait_for("0 changed" if under_writes else "added")
        finally:
            stopped.set()
            writer.join()
        delete("n4")
        while open_store(new).info.count != 119 + len(added):
            watch.wait_for("new")
        assert watch.end() == 130
    warnings = [line for line in watch.lines if "warning" in line]
    assert all("the store changed while it was read" in line for line in warnings)
    assert not (under_writes and warnings)
    texts = {document.id: document.text for document in open_store(new).documents()}
    assert texts == {f"n{row}": note(row) for row in range(120 + len(added)) if row != 4}


def note(row):
    return f"note {row} about topic {row % 7}"


@pytest.mark.slow
def test_rows_of_postgresql_are_followed_while_a_program_writes(lead_migrate):
    pytest.importorskip("psycopg")
    from postgres import as_text, connect, server_url

    name = f"notes_{uuid.uuid4().hex[:12]}"
    rng = np.random.default_rng(0)
    with connect() as connection:
        connection.execute(f"CREATE TABLE {name} (id text PRIMARY KEY, content text, embedding vector(8))")

        def add(row):
            values = (f"n{row}", note(row), as_text(rng.normal(size=8)))
            connection.execute(f"INSERT INTO {name} VALUES (%s, %s, %s)", values)

        def delete(doc_id):
            connection.execute(f"DELETE FROM {name} WHERE id = %s", [doc_id])

        for row in range(120):
            add(row)
        location = f"pgvector:{server_url()}#{name}"
        check_followed(location, f"{location}_new", add, delete, lead_migrate, under_writes=True)


@pytest.mark.slow
def test_a_folder_of_chroma_is_followed_while_a_program_has_it_open(lead_migrate):
    chromadb = pytest.importorskip("chromadb")
    rng = np.random.default_rng(0)
    with closing(chromadb.PersistentClient("app")) as client:
        notes = client.create_collection("notes")

        def add(row):
            notes.add([f"n{row}"], rng.normal(size=(1, 8)), documents=[note(row)])

        for row in range(120):
            add(row)

        def delete(doc_id):
            notes.delete([doc_id])

        check_followed("chroma:app#notes", "chroma:new#notes", add, delete, lead_migrate, under_writes=False)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("store new --every 5", "--every is the pace of --watch"),
        ("store new --watch --dry-run", "--watch goes on without a question or an end"),
        ("store new --watch --yes", "--max-cost caps all that it spends"),
        ("store nowhere --watch", "nowhere: no such file or folder"),
    ],
)
def test_a_watch_that_cannot_begin_is_one_line(words, line, here, lead_migrate):
    assert line in lead_migrate(f"sync {words}", code=(2, 4)).complaint
