"""Several requests in flight: order, limits, misbehaving servers, and what is kept when a run ends early."""

import asyncio
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait

import numpy as np
import openai_server as fake
import pytest

from migrate.embed import embed_corpus
from migrate.embedders.cache import CachedEmbedder, are_cached
from migrate.embedders.openai import OpenAIEmbedder
from migrate.embedders.openai_requests import Client, RequestLimit
from migrate.errors import InputError, RemoteError
from migrate.progress import no_progress
from migrate.stores import open_store

pytestmark = pytest.mark.slow


@pytest.fixture
def texts(documents):
    return documents(*(f"text {number}" for number in range(400)))


def expected(texts):
    return np.stack([fake.vector_of(text.text) for text in texts])


def embedder_of(server, *, batch_size=10, **options):
    return OpenAIEmbedder("tiny", base_url=server.url, batch_size=batch_size, **options)


@pytest.mark.parametrize("concurrency", [1, 3, 8])
def test_results_are_in_the_order_of_the_texts_whatever_comes_first(concurrency, server, texts):
    delays = random.Random(0)
    server.gate = lambda _number: time.sleep(delays.random() * 0.03)
    texts, seen = texts[:200], []
    embedder = embedder_of(server, concurrency=concurrency)
    vectors = embedder.embed(texts, "document", progress=lambda *step: seen.append(step))
    np.testing.assert_array_equal(vectors, expected(texts))
    assert min(concurrency, 2) <= server.most_in_flight <= concurrency
    steps = [done for _, done, _ in seen]
    assert steps == sorted(set(steps)) and steps[-1] == 200 and len(steps) >= 20 / concurrency
    assert embedder.usage_tokens == server.billed_tokens == 400


def test_it_is_used_inside_a_running_event_loop_and_from_two_threads(server, texts):
    embedder = embedder_of(server)

    async def notebook():
        return embedder.embed_documents(texts[:40])

    with ThreadPoolExecutor(2) as threads:
        for vectors in threads.map(asyncio.run, [notebook(), notebook()]):
            np.testing.assert_array_equal(vectors, expected(texts[:40]))
    assert embedder.usage_tokens == 160


def test_requests_in_flight_are_one_at_first_and_never_none():
    limit, seen = RequestLimit(8, None), []
    for step in (lambda: None, limit.succeed, limit.halve, limit.halve, limit.succeed, *[limit.halve] * 3):
        step()
        seen.append(limit.places)
    assert seen == [1, 8, 4, 2, 3, 1, 1, 1]


def test_a_server_that_takes_one_request_at_a_time_refuses_none_for_good(server, texts, monkeypatch):
    """Retries wait for a place as well, and so are few: without that, eight at a time would use up their attempts."""
    fake.do_not_wait(monkeypatch)
    busy = threading.Lock()

    def gate(_number):
        if not busy.acquire(blocking=False):
            return fake.status(429)
        time.sleep(0.05)
        # Free before it answers: the next request may come as soon as the client has read the answer
        busy.release()
        return None

    server.gate = gate
    vectors = embedder_of(server, attempts=5).embed_documents(texts[:90])
    np.testing.assert_array_equal(vectors, expected(texts[:90]))
    assert len(server.billed) == 90


def test_a_server_that_takes_five_requests_a_window_is_obeyed_until_the_end(server, texts):
    """A window of 5 requests, then 429 until it is over: 40 requests take 8 windows, as many as there are attempts."""
    window = {"id": None, "left": 0}

    def gate(_number):
        with server.lock:
            now = time.monotonic() / 0.2
            if window["id"] != int(now):
                window.update(id=int(now), left=5)
            window["left"] -= 1
            if window["left"] < 0:
                return fake.status(429, retry_after_ms=str(200 * (1 - now % 1)))
        return None

    server.gate = gate
    np.testing.assert_array_equal(embedder_of(server).embed_documents(texts), expected(texts))
    assert len(server.billed) == 400


BUSY, BRIEFLY_BUSY = fake.status(429), fake.status(429, retry_after_ms="20")
NOT_BILLED = [BRIEFLY_BUSY, BUSY, fake.status(500), fake.SLOW, fake.DRIP, fake.RESET]
BILLED_IN_VAIN = [fake.TRUNCATED, fake.NOT_JSON, fake.TOO_FEW, fake.TOO_MANY, fake.NO_INDEX, fake.RAGGED]
BILLED_IN_VAIN += [fake.SAME_INDEX, fake.RESET_MIDWAY]


def test_a_server_that_misbehaves_in_every_way_loses_nothing_and_the_bill_is_told(server, texts, tmp_path, monkeypatch):
    rng = random.Random(7)
    bad = [*NOT_BILLED, *BILLED_IN_VAIN, fake.SHUFFLED] * 2
    rng.shuffle(bad)
    server.faults.extend(fault for one in bad for fault in (one, *[fake.Fault()] * rng.randint(0, 2)))
    fake.do_not_wait(monkeypatch)
    monkeypatch.setattr("migrate.embedders.openai_requests.Client.few", 20)
    options = {"dimensions": 8, "batch_size": 10, "attempts": 20, "timeout_s": 1.0}
    api = OpenAIEmbedder("text-embedding-3-small", base_url=server.url, **options)
    vectors = CachedEmbedder(api, tmp_path / "cache.sqlite").embed_documents(texts)
    np.testing.assert_array_equal(vectors, expected(texts))
    assert not server.faults
    assert sorted(server.texts_served) == sorted(text.text for text in texts)
    assert len(server.billed) == 400 + 2 * 10 * len(BILLED_IN_VAIN)
    broken_off = 2 * 10 * 2  # tokens of the two answers that broke off on their way: nothing says what they cost
    assert api.usage_tokens == server.billed_tokens - broken_off


class Stop(Exception):
    pass


def stop_at(count):
    def progress(_stage, done, _total):
        if done >= count:
            raise Stop

    return progress


def raise_at(start, count):
    """Ctrl-C while a thread starts, which is already sending."""
    started = []

    def interrupted(*request, **options):
        start(*request, **options)
        started.append(request)
        if len(started) == count:
            raise Stop

    return interrupted


@pytest.mark.parametrize(
    ("where", "error"), [("progress", Stop), ("too long", InputError), ("refused", RemoteError), ("starting", Stop)]
)
def test_what_is_in_flight_when_a_run_is_stopped_is_kept(where, error, server, texts, documents, tmp_path, monkeypatch):
    api = embedder_of(server, attempts=1)
    cached = CachedEmbedder(api, tmp_path / "cache.sqlite")
    server.latency_s = 0.1
    asked, progress = texts, no_progress
    if where == "progress":
        progress = stop_at(100)
    elif where == "too long":
        asked = [*texts[:60], *documents("w " * (fake.MAX_TEXT_TOKENS + 1)), *texts[60:]]
    elif where == "refused":
        server.gate = lambda number: server.faults.append(fake.status(403)) if number == 12 else None
    else:
        monkeypatch.setattr(Client, "start", raise_at(Client.start, 12))
    with pytest.raises(error):
        cached.embed(asked, "document", progress=progress)
    assert 0 < len(server.billed) < len(texts)
    assert sum(are_cached(cached, texts, "document")) == len(server.billed) == cached.misses
    assert api.usage_tokens == server.billed_tokens
    assert 1 < server.most_in_flight <= 8
    server.gate = None
    np.testing.assert_array_equal(cached.embed_documents(texts), expected(texts))
    assert sorted(server.billed) == sorted(text.text for text in texts), "nothing is paid twice"


def wait_half_a_second(futures, timeout=None, **options):
    return wait(futures, timeout=timeout and 0.5, **options)


def test_one_that_waits_is_not_waited_for(server, texts, monkeypatch):
    monkeypatch.setattr("migrate.embedders.openai.wait", wait_half_a_second)
    server.faults.extend([fake.Fault()] * 4 + [fake.status(429, retry_after="100")])
    started = time.monotonic()
    with pytest.raises(Stop):
        embedder_of(server).embed(texts, "document", progress=stop_at(60))
    assert time.monotonic() - started < 50
    sent = len(server.requests)
    time.sleep(0.1)
    assert len(server.requests) == sent


def test_a_cache_that_cannot_be_written_is_the_error_that_is_told(server, texts):
    def keep(_positions, _vectors):
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        embedder_of(server).embed_each(texts, "document", keep)


def test_few_texts_are_dealt_out_to_all_and_many_travel_together(server, documents):
    embedder = OpenAIEmbedder("tiny", base_url=server.url)
    embedder.embed_documents(documents(*map(str, range(1_000))))
    assert [len(request.inputs) for request in server.requests] == [125] * 8
    del server.requests[:]
    embedder.embed_documents(documents(*map(str, range(1_000, 9_300))))
    assert max(len(request.inputs) for request in server.requests) == 256


@pytest.mark.parametrize(("is_cached", "in_flight"), [(True, (5, 8)), (False, (2, 4))])
def test_a_corpus_is_embedded_in_large_blocks_where_a_cache_keeps_what_comes(
    is_cached, in_flight, server, texts, tmp_path, monkeypatch
):
    """Parts of 40 documents are 4 requests; a part that breaks off without a cache is paid for again."""
    monkeypatch.setattr("migrate.embed.corpus.BATCH_DOCUMENTS", 40)
    server.latency_s = 0.1
    api = embedder_of(server)
    embedder = CachedEmbedder(api, tmp_path / "cache.sqlite") if is_cached else api
    seen = []
    embed_corpus(lambda: texts[:200], embedder, tmp_path / "out", progress=lambda *step: seen.append(step[1]))
    batches = open_store(tmp_path / "out").scan()
    np.testing.assert_array_equal(np.concatenate([batch.vectors for batch in batches]), expected(texts[:200]))
    assert in_flight[0] <= server.most_in_flight <= in_flight[1]
    assert seen == sorted(seen) and seen[-1] == 200
