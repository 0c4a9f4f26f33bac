"""Runs of the real command, killed: what a server that counts every text bills for all of them together."""

import json
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing

import numpy as np
import openai_server as fake
import pytest

from migrate.stores import open_store

TEXTS, BATCH, CONCURRENCY, KILLS = 700, 7, 8, 5
# A shell that starts the tests in the background has them ignore Ctrl-C, and what they start too.
CHILD = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from migrate.cli.main import main
main()
"""


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.jsonl"
    lines = [json.dumps({"id": f"d{number}", "text": f"text {number}"}) for number in range(TEXTS)]
    path.write_text("\n".join(lines))
    return path


@pytest.fixture
def start(server, corpus, tmp_path, monkeypatch):
    """Start the command that embeds the corpus."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    model = ["--model", "openai:text-embedding-3-small", "--dimensions", "8", "--base-url", server.url]
    sending = ["--batch-size", str(BATCH), "--concurrency", str(CONCURRENCY), "--cache", str(tmp_path / "cache.sqlite")]
    command = ["embed", str(corpus), *model, *sending, "--no-chunks", "--quiet", "-o", str(tmp_path / "out")]
    return lambda: subprocess.Popen([sys.executable, "-c", CHILD, *command], stdout=subprocess.DEVNULL)


def rows_kept(path):
    with closing(sqlite3.connect(path)) as database:
        return database.execute("SELECT count(*) FROM embeddings").fetchone()[0]


def check_store(folder):
    store = open_store(folder)
    vectors = np.concatenate([batch.vectors for batch in store.batches()])
    np.testing.assert_array_equal(vectors, np.stack([fake.vector_of(f"text {number}") for number in range(TEXTS)]))


def test_after_five_kills_the_bill_equals_one_pass(server, start, tmp_path, capsys):
    """Each kill comes before a random answer is billed, when all that was billed before it is on disk."""
    moments = sorted(random.Random(3).sample(range(3, TEXTS // BATCH), KILLS))
    children, kept = [start()], []

    def before_bill(_request):
        if children[-1].returncode is not None:
            raise ConnectionError  # asked by a run that is dead
        if moments and len(server.billed) >= moments[0] * BATCH:
            moments.pop(0)
            deadline = time.monotonic() + 20
            while (rows := rows_kept(tmp_path / "cache.sqlite")) < len(server.billed) and time.monotonic() < deadline:
                time.sleep(0.05)
            kept.append(rows == len(server.billed))
            children[-1].kill()
            children[-1].wait()
            raise ConnectionError

    server.before_bill, server.latency_s = before_bill, 0.02
    codes = [children[-1].wait(60)]
    for _ in range(KILLS):
        # Only then may the next one start: what the dead one asked for must not be taken for its own
        while server.in_flight:
            time.sleep(0.005)
        children.append(start())
        codes.append(children[-1].wait(60))
    assert codes == [-signal.SIGKILL] * KILLS + [0]
    assert kept == [True] * KILLS  # each answer was kept as it came, not at the end of a call
    assert 1 < server.most_in_flight <= CONCURRENCY
    assert sorted(server.billed) == sorted(f"text {number}" for number in range(TEXTS))
    check_store(tmp_path / "out")
    with capsys.disabled():
        print(f"\n{KILLS} kills before answers: {len(server.billed):,} texts billed, one pass is {TEXTS:,}")


def test_kills_at_any_moment_cost_what_was_in_flight_at_most(server, start, tmp_path, capsys):
    server.latency_s = 0.03
    rng, kills, codes = random.Random(5), 3, []
    for _ in range(kills):
        before, child = len(server.requests), start()
        while len(server.requests) == before and child.poll() is None:
            time.sleep(0.002)
        time.sleep(rng.random() * 0.1)
        child.send_signal(signal.SIGKILL)
        codes.append(child.wait(60))
    codes.append(start().wait(60))
    assert codes == [-signal.SIGKILL] * kills + [0]
    assert TEXTS <= len(server.billed) <= TEXTS + kills * CONCURRENCY * BATCH
    assert len(set(server.billed)) == TEXTS
    check_store(tmp_path / "out")
    with capsys.disabled():
        most = kills * CONCURRENCY * BATCH
        print(f"\n{kills} kills at any moment: {len(server.billed) - TEXTS} texts billed twice, {most} at most")


def test_an_interrupted_run_keeps_what_it_has_sent_for(server, start, tmp_path):
    server.latency_s = 0.1
    seen = threading.Event()
    server.gate = lambda count: seen.set() if count == 20 else None
    child = start()
    assert seen.wait(60)
    child.send_signal(signal.SIGINT)
    assert child.wait(60) == 130
    assert 0 < rows_kept(tmp_path / "cache.sqlite") == len(server.billed) < TEXTS
