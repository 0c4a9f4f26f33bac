"""Runs of the real command, killed: what a server that counts every text bills for all of them together."""

import json
import os
import signal
import sqlite3
import threading
import time
from collections import Counter
from contextlib import closing

import numpy as np
import openai_server as fake
import pytest
from children import start_child, start_command
from noting import main_noting, noted_in

from migrate.selection.model_match import ASKED_AGAIN
from migrate.stores import open_store
from migrate.vectors import Document

pytestmark = pytest.mark.slow

TEXTS, BATCH, CONCURRENCY, KILLS = 280, 7, 8, 3
MODEL = f"openai:text-embedding-3-small,dimensions=8,batch-size={BATCH},concurrency={CONCURRENCY}"
# A shell that starts the tests in the background has them ignore Ctrl-C, and what they start too.
HEARS_CTRL_C = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
DOCUMENTS = [Document(f"d{number}", f"text {number}") for number in range(TEXTS)]


@pytest.fixture
def embed(server, tmp_path):
    path = tmp_path / "corpus.jsonl"
    path.write_text("\n".join(json.dumps({"id": one.id, "text": one.text}) for one in DOCUMENTS))
    model = ["--model", MODEL, "--base-url", server.url, "--cache", str(tmp_path / "cache.sqlite")]
    return ["embed", str(path), *model, "--no-chunks", "-o", str(tmp_path / "out")]


@pytest.fixture
def start(tmp_path):
    """Start a command in a process of its own, which notes what it embeds again."""
    started = []

    def start(command):
        started.append(start_child(main_noting, tmp_path / "again", [*command, "--quiet"])[0])
        return started[-1]

    yield start
    for child in started:
        child.kill()
        child.join(60)


def ended(child, within_s=60):
    child.join(within_s)
    return child.exitcode


def rows_kept(path):
    with closing(sqlite3.connect(path)) as database:
        return database.execute("SELECT count(*) FROM embeddings").fetchone()[0]


def test_after_three_kills_the_bill_equals_one_pass(embed, server, start, tmp_path):
    """Each kill comes before an answer is billed, when all that was billed before it is on disk."""
    moments = [3, 15, 32]
    children, kept, dead = [start(embed)], [], set()

    def before_bill(_request):
        if children[-1].pid in dead:
            raise ConnectionError  # asked by a run that is dead
        texts = len(set(server.billed))  # some are billed again, to prove the model
        if moments and texts >= moments[0] * BATCH:
            moments.pop(0)
            deadline = time.monotonic() + 20
            while (rows := rows_kept(tmp_path / "cache.sqlite")) < texts and time.monotonic() < deadline:
                time.sleep(0.05)
            kept.append(rows == texts)
            children[-1].kill()  # and waited for by the other thread alone: an exit code is told once
            dead.add(children[-1].pid)
            raise ConnectionError

    server.before_bill, server.latency_s = before_bill, 0.02
    codes = [ended(children[-1])]
    for _ in range(KILLS):
        # Only then may the next one start: what the dead one asked for must not be taken for its own
        while server.in_flight:
            time.sleep(0.005)
        children.append(start(embed))
        codes.append(ended(children[-1]))
    assert codes == [-signal.SIGKILL] * KILLS + [0]
    assert kept == [True] * KILLS  # each answer was kept as it came, not at the end of a call
    assert 1 < server.most_in_flight <= CONCURRENCY
    twice = Counter(server.billed) - Counter(one.text for one in DOCUMENTS)
    again = Counter(noted_in(tmp_path / "again"))  # of which a run that was killed may not have been billed for all
    assert set(server.billed) == {one.text for one in DOCUMENTS} and twice <= again, "each once, but for the proofs"
    assert again.total() <= (KILLS + 1) * 3 * ASKED_AGAIN
    vectors = np.concatenate([batch.vectors for batch in open_store(tmp_path / "out").scan()])
    np.testing.assert_array_equal(vectors, np.stack([fake.vector_of(one.text) for one in DOCUMENTS]))


def test_an_interrupted_run_keeps_what_it_has_sent_for_and_says_what_that_cost(server, embed, tmp_path):
    server.latency_s = 0.1
    seen = threading.Event()
    server.gate = lambda count: seen.set() if count == 20 else None
    child = start_command(embed, tmp_path, tmp_path / "told", prelude=HEARS_CTRL_C)
    assert seen.wait(60)
    os.kill(child.pid, signal.SIGINT)
    assert ended(child) == 130
    assert 0 < rows_kept(tmp_path / "cache.sqlite") == len(server.billed) < TEXTS
    told = (tmp_path / "told").read_text()
    assert f"embedded until it broke off: {server.billed_tokens:,} tokens, " in told
    assert "what could be used is in the cache" in told
