"""Models that run in other processes: same vectors, one limit, one cache, one cap."""

import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
import victims

import migrate.embed.corpus
from migrate.cost.meter import MeteredEmbedder, SpendingCap
from migrate.embed import embed_corpus, reembed_store
from migrate.embedders import load_embedder
from migrate.embedders.elsewhere import elsewhere, remote_in
from migrate.embedders.tokens import BYTE_PAIRS, EstimateCounter
from migrate.errors import SpendingError
from migrate.steps.embed import Embed
from migrate.stores import open_store
from migrate.vectors import Document
from migrate.work.runner import LocalRunner

pytestmark = pytest.mark.slow

TWO = LocalRunner(2)
SMALL = "openai:text-embedding-3-small"


@pytest.fixture(autouse=True)
def small_batches(monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    monkeypatch.setattr(migrate.embed.corpus, "BATCH_DOCUMENTS", 64)


def test_one_process_is_left_alone():
    model = load_embedder("tfidf:8")
    assert elsewhere(model, LocalRunner()) is model and elsewhere(model, LocalRunner(1)) is model
    there = elsewhere(model, TWO)
    assert remote_in(there) is there and elsewhere(there, TWO) is there


def test_two_processes_write_the_bytes_of_one(tmp_path):
    for name, model in {"one": load_embedder("tfidf:8"), "two": elsewhere(load_embedder("tfidf:8"), TWO)}.items():
        embed_corpus(partial(victims.documents, 500), model, tmp_path / name)
    assert victims.digest(tmp_path / "one") == victims.digest(tmp_path / "two")
    again = elsewhere(load_embedder("tfidf:8", state=tmp_path / "one"), TWO)
    reembed_store(open_store(tmp_path / "one"), again, tmp_path / "three")
    first, second = (open_store(tmp_path / name).get(np.arange(500)).vectors for name in ("one", "three"))
    assert np.array_equal(first, second)


def test_two_processes_share_the_requests_in_flight_and_the_cache_stays_here(server, tmp_path, but_again):
    server.latency_s = 0.05

    def embed(name):
        options = {"batch_size": 4, "concurrency": 4, "cache": tmp_path / "cache.sqlite"}
        loaded = load_embedder(SMALL, base_url=server.url, **options)
        embed_corpus(partial(victims.documents, 300), elsewhere(loaded, TWO), tmp_path / name)

    embed("one")
    assert 2 < server.most_in_flight <= 4
    assert sorted(but_again(server.texts_served)) == sorted(document.text for document in victims.documents(300))
    server.texts_served.clear()
    embed("two")
    assert but_again(server.texts_served) == [], "all is in the cache"


def test_one_cap_holds_for_all(server, tmp_path):
    loaded = elsewhere(load_embedder(SMALL, base_url=server.url), TWO)
    whole = Embed(list(victims.documents(1_000)), loaded, tmp_path / "new", price=1_000)
    cap = whole.cap.cap_usd = whole.estimate().usd / 2
    with pytest.raises(SpendingError):
        whole.execute()
    assert 0 < server.billed_tokens * 1_000 / 1e6 <= cap
    assert 0 < whole.cap.spent_usd <= cap


class Slow(victims.CountingEmbedder):
    """Long enough for others to ask in the meantime."""

    def embed(self, texts, role, **options):
        time.sleep(0.05)
        return super().embed(texts, role, **options)


def test_threads_that_ask_at_once_do_not_spend_the_same_money(tmp_path):
    cap, words = SpendingCap(None), [Document("d", "some words to embed")]
    meter = MeteredEmbedder(Slow(tmp_path / "bill"), EstimateCounter(BYTE_PAIRS), 1_000.0, cap=cap)
    meter.embed_documents(words)
    cap.cap_usd = 5 * cap.spent_usd

    def ask(_):
        try:
            meter.embed_documents(words)
        except SpendingError:
            return 0
        return 1

    with ThreadPoolExecutor(8) as threads:
        done = sum(threads.map(ask, range(8)))
    assert 0 < done <= 4 and cap.spent_usd <= cap.cap_usd
