"""Runs of the real command, killed: what a server that counts every text bills for all of them together."""

import json
import os
import random
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

from migrate.embedders.again import ASKED_AGAIN
from migrate.stitch.persistence import load_stitch
from migrate.stores import create_store, open_store
from migrate.vectors import Document

pytestmark = pytest.mark.slow

TEXTS, BATCH, CONCURRENCY, KILLS = 280, 7, 8, 5
MODEL = f"openai:text-embedding-3-small,dimensions=8,batch-size={BATCH},concurrency={CONCURRENCY}"
# A shell that starts the tests in the background has them ignore Ctrl-C, and what they start too.
HEARS_CTRL_C = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
DOCUMENTS = [Document(f"d{number}", f"text {number}") for number in range(TEXTS)]


@pytest.fixture
def arguments(server, tmp_path):
    """How the model is reached."""
    return ["--base-url", server.url, "--cache", str(tmp_path / "cache.sqlite")]


@pytest.fixture
def embed(arguments, tmp_path):
    """The command that embeds a corpus."""
    path = tmp_path / "corpus.jsonl"
    path.write_text("\n".join(json.dumps({"id": one.id, "text": one.text}) for one in DOCUMENTS))
    return ["embed", str(path), "--model", MODEL, *arguments, "--no-chunks", "-o", str(tmp_path / "out")]


@pytest.fixture
def fit(arguments, tmp_path):
    """The command that fits a stitch on every document of a store."""
    (tmp_path / "store").mkdir()
    writer = create_store(tmp_path / "store", format="faiss", dim=8, metric="ip")
    vectors = np.stack([fake.vector_of(f"old {one.text}") for one in DOCUMENTS])
    writer.append(DOCUMENTS, vectors)
    writer.finish()
    model = ["--target", MODEL, *arguments]
    options = ["--sample", str(TEXTS), "--kind", "mean"]
    return ["fit", str(tmp_path / "store"), *model, *options, "-o", str(tmp_path / "out")]


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
    """The exit code of a process."""
    child.join(within_s)
    return child.exitcode


def rows_kept(path):
    with closing(sqlite3.connect(path)) as database:
        return database.execute("SELECT count(*) FROM embeddings").fetchone()[0]


def check_store(folder):
    store = open_store(folder)
    vectors = np.concatenate([batch.vectors for batch in store.scan()])
    np.testing.assert_array_equal(vectors, np.stack([fake.vector_of(f"text {number}") for number in range(TEXTS)]))


def check_stitch(folder):
    sample = load_stitch(folder).sample
    truth = {one.id: fake.vector_of(one.text) for one in DOCUMENTS}
    np.testing.assert_array_equal(sample.vectors, np.stack([truth[doc_id] for doc_id in sample.ids]))
    assert len(sample.ids) == TEXTS


@pytest.mark.parametrize(("command", "check"), [("embed", check_store), ("fit", check_stitch)])
def test_after_five_kills_the_bill_equals_one_pass(command, check, server, start, tmp_path, request):
    """Each kill comes before a random answer is billed, when all that was billed before it is on disk."""
    moments = sorted(random.Random(3).sample(range(3, TEXTS // BATCH), KILLS))
    arguments = request.getfixturevalue(command)
    children, kept, dead = [start(arguments)], [], set()

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
        children.append(start(arguments))
        codes.append(ended(children[-1]))
    assert codes == [-signal.SIGKILL] * KILLS + [0]
    assert kept == [True] * KILLS  # each answer was kept as it came, not at the end of a call
    assert 1 < server.most_in_flight <= CONCURRENCY
    twice = Counter(server.billed) - Counter(one.text for one in DOCUMENTS)
    again = Counter(noted_in(tmp_path / "again"))  # of which a run that was killed may not have been billed for all
    assert set(server.billed) == {one.text for one in DOCUMENTS} and twice <= again, "each once, but for the proofs"
    assert again.total() <= (KILLS + 1) * 3 * ASKED_AGAIN
    check(tmp_path / "out")


def test_kills_at_any_moment_cost_what_was_in_flight_at_most(server, start, embed, tmp_path):
    server.latency_s = 0.03
    rng, kills, codes = random.Random(5), 3, []
    for _ in range(kills):
        before, child = len(server.requests), start(embed)
        while len(server.requests) == before and child.is_alive():
            time.sleep(0.002)
        time.sleep(rng.random() * 0.1)
        child.kill()
        codes.append(ended(child))
    codes.append(ended(start(embed)))
    assert codes == [-signal.SIGKILL] * kills + [0]
    assert set(server.billed) == {one.text for one in DOCUMENTS}
    # A run that goes on proves first that the model gives what is kept, and each proves at its end what it was given:
    # these texts are billed again on purpose, beside what was in flight at the kills
    again = len(noted_in(tmp_path / "again"))
    assert again <= (1 + 2 * kills) * ASKED_AGAIN
    assert len(server.billed) - TEXTS - again <= kills * CONCURRENCY * BATCH
    check_store(tmp_path / "out")


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
