"""The live searcher over a folder, with a model behind a real server that is late, fails, or is gone."""

import json
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from live_tools import COUNT, DIM, make_store, noisy_vectors, served_by, texts, true_vectors
from openai_server import KEY, status, vector_of
from worker_tools import wait_for

from migrate.errors import AuthenticationError, StoreError, UsageError, VectorError
from migrate.live.options import LiveLimits
from migrate.live.searcher import LiveSearcher
from migrate.live.state import LiveState, state_path
from migrate.search.rerank import estimate_scores
from migrate.steps.switch import rollback, switch
from migrate.stores import open_store

QUESTION = "which one is about question 0?"
PATIENT = LiveLimits(depth=20, max_documents=20, max_ms=20_000, sampled=1.0)


pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _no_proxy_and_a_key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


@pytest.fixture
def model(server):
    return served_by(server)


@pytest.fixture
def folder(model, tmp_path):
    return make_store(tmp_path / "store", noisy_vectors(), model.identity)


@pytest.fixture
def live(folder, model, tmp_path):
    opened = []

    def make(limits=PATIENT, named=None, location=folder):
        searcher = LiveSearcher(location, named or model, limits=limits, cache=tmp_path / "cache.sqlite")
        opened.append(searcher)
        return searcher

    yield make
    for searcher in opened:
        searcher.close()


def order_of(vectors, query, rows=None):
    rows = np.arange(len(vectors)) if rows is None else rows
    return [f"d{row}" for row in rows[np.argsort(-(vectors[rows] @ query), kind="stable")]]


def pool_of(query, depth=20, vectors=None):
    scores = (noisy_vectors() if vectors is None else vectors) @ query
    return np.argsort(-scores, kind="stable")[:depth]


def expected(query, depth=20):
    """The pool of the noisy vectors in the order of the true ones."""
    return order_of(true_vectors(), query, pool_of(query, depth))[:10]


def wait_for_true(searcher, query):
    wait_for(lambda: not searcher.search(query).untrue, 120)
    assert list(searcher.search(query).ids) == expected(query)


def embedded(server):
    """How often each document was embedded."""
    return [text for text in server.texts_served if text in set(texts())]


def test_a_vector_will_do_for_a_query(live):
    searcher = live()
    assert searcher.search(vector_of("q", DIM)).ids == searcher.search("q").ids
    with pytest.raises(VectorError, match="the vectors have dimension 3, not 8"):
        searcher.search(np.ones(3, np.float32))
    with pytest.raises(VectorError, match="zero vector for query"):
        searcher.search(np.zeros(DIM, np.float32))
    with pytest.raises(UsageError, match="k must be at least 1"):
        searcher.search("q", k=0)


def test_searchers_share_a_budget(live, server):
    first, second = (live(LiveLimits(depth=20, max_documents=4, max_ms=20_000, budget=6)) for _ in range(2))
    first.search(vector_of("one", DIM))
    first.search(vector_of("two", DIM))
    assert len(embedded(server)) == 6
    first.refresh()
    second.refresh()
    assert second.search(vector_of("three", DIM)).untrue
    assert len(embedded(server)) == 6


@pytest.mark.parametrize(
    ("limit", "value"),
    [("budget", -1), ("budget", 0.1), ("depth", 0), ("depth", 2.5), ("max_documents", -1), ("memory_bytes", -5),
     ("max_ms", float("nan")), ("refresh_s", 0.0), ("sampled", 2.0)],
)  # fmt: skip
def test_limits_that_mean_nothing_are_refused(limit, value):
    with pytest.raises(UsageError, match=f"LiveLimits: .*{limit}"):
        LiveLimits(**{limit: value})


def test_a_query_has_only_so_many_documents_embedded_and_the_others_are_queued(live, server, folder):
    searcher = live(LiveLimits(depth=20, max_documents=3, max_ms=20_000))
    query = vector_of("q", DIM)
    answer = searcher.search(query)
    pool = [f"d{row}" for row in pool_of(query)]
    assert embedded(server) == [texts()[int(doc_id[1:])] for doc_id in pool[:3]]
    assert answer.untrue == 17
    rows, scores = pool_of(query), noisy_vectors() @ query
    true = true_vectors()[rows[:3]]
    scores[rows] = estimate_scores(query, scores[rows], noisy_vectors()[rows], np.arange(3), true, metric="ip")
    assert list(answer.ids) == order_of(scores[:, None], np.ones(1), rows)[:10]
    searcher.search(query)
    searcher.refresh()
    with LiveState(state_path(open_store(folder))) as state:
        wanted = state.demand.queue(50)
        assert wanted == pytest.approx({doc_id: 2 / place for place, doc_id in enumerate(pool, start=1)})
        assert state.counters()["embedded_by_queries"] == 6
    assert [searcher.search(query).untrue for _ in range(5)][-1] == 0
    assert len(embedded(server)) == len(set(embedded(server))) == 20


def test_many_queries_at_once_share_one_embedding_of_a_document(live, server):
    searcher = live()
    server.latency_s = 0.2
    query, barrier = vector_of("q", DIM), threading.Barrier(8)

    def ask(number):
        barrier.wait()
        return searcher.search(query if number % 2 else vector_of("q2", DIM)).ids

    with ThreadPoolExecutor(8) as clients:
        answers = list(clients.map(ask, range(8)))
    assert set(answers[1::2]) == {tuple(expected(query))}
    assert set(answers[::2]) == {tuple(expected(vector_of("q2", DIM)))}
    assert len(embedded(server)) == len(set(embedded(server))) > 20


def counters(searcher, folder):
    searcher.refresh()
    with LiveState(state_path(open_store(folder))) as state:
        return state.counters()


def test_a_failing_model_is_left_alone_and_the_translated_order_serves(live, server, folder):
    searcher = live(LiveLimits(depth=20, max_ms=100))
    server.faults.extend([status(500)] * 10_000)
    before = len(server.requests)
    for number in range(100):
        query = vector_of(f"q{number}", DIM)
        answer = searcher.search(query)
        assert list(answer.ids) == order_of(noisy_vectors(), query)[:10] and answer.untrue == 20
    assert len(server.requests) - before < 50, "a request for each would be 100"
    assert counters(searcher, folder)["embedder_failures"] < 50


def test_a_refused_key_is_no_error_for_a_query_whose_vector_is_known(live, server, folder):
    searcher = live()
    server.key = "another"
    query = vector_of("q", DIM)
    assert list(searcher.search(query).ids) == order_of(noisy_vectors(), query)[:10]
    with pytest.raises(AuthenticationError):
        searcher.search("a text")
    assert counters(searcher, folder)["embedder_failures"] == 1


def test_a_slow_model_costs_a_query_its_milliseconds_and_serves_the_next(live, server):
    searcher = live(LiveLimits(depth=20, max_documents=20, max_ms=50))
    server.latency_s = 0.4
    query = vector_of("q", DIM)
    assert searcher.search(query).untrue == 20
    wait_for_true(searcher, query)
    assert len(embedded(server)) == 20


def test_a_document_that_the_model_refuses_does_not_stand_in_the_way(model, live, server, tmp_path):
    words = texts()
    query = vector_of("q", DIM)
    bad, empty = pool_of(query)[:2]
    words[bad], words[empty] = "word " * 9_000, " "
    folder = make_store(tmp_path / "bad", noisy_vectors(), model.identity, words=words)
    searcher = live(location=folder)
    answer = searcher.search(query)
    assert answer.untrue == 2 and {f"d{bad}", f"d{empty}"} & set(answer.ids)
    requests = len(server.requests)
    assert searcher.search(query).untrue == 2
    assert len(server.requests) == requests, "it is not asked for again"


def test_more_documents_than_the_depth_and_than_there_are(live):
    searcher = live(LiveLimits(depth=5, max_ms=20_000))
    query = vector_of("q", DIM)
    assert set(searcher.search(query, k=30).ids) == {f"d{row}" for row in pool_of(query, 30)}
    whole = searcher.search(query, k=10_000).ids
    assert len(whole) == len(set(whole)) == COUNT


def test_a_filter_passes_through(live, folder):
    searcher = live()
    query = vector_of("q", DIM)
    answer = searcher.search(query, where={"topic": 3})
    rows = np.arange(3, COUNT, 7)
    pool = rows[np.argsort(-(noisy_vectors()[rows] @ query))][:20]
    assert list(answer.ids) == order_of(true_vectors(), query, pool)[:10]
    with pytest.raises(UsageError, match="a filter of the type"):
        searcher.search(query, where=3)
    searcher.search(query)
    searcher.refresh()
    with LiveState(state_path(open_store(folder))) as state:
        (kept,) = state.queries.after(0)
        assert list(kept.ids) == expected(query), "what was asked of the whole store"
        np.testing.assert_array_equal(kept.vector, query)


def test_a_store_without_texts_is_searched_as_it_is(model, live, server, tmp_path):
    folder = make_store(tmp_path / "bare", noisy_vectors(), model.identity, words=[])
    query = vector_of("q", DIM)
    assert list(live(location=folder).search(query).ids) == order_of(noisy_vectors(), query)[:10]
    assert not embedded(server)


def test_a_store_that_lost_its_texts_is_searched_by_what_is_known(live, folder, server):
    searcher = live(LiveLimits(depth=20, max_documents=3, max_ms=20_000))
    query = vector_of("q", DIM)
    assert searcher.search(query).untrue == 17
    (folder / "docs.jsonl").unlink()
    answer = searcher.search(query)
    assert answer.untrue == 17 and len(answer.ids) == 10
    assert set(answer.ids) <= {f"d{row}" for row in pool_of(query)}
    assert len(embedded(server)) == 3


def test_a_complete_store_is_searched_alone(model, live, server, tmp_path):
    folder = make_store(tmp_path / "full", true_vectors(), model.identity, source=None, made_by="embed")
    query = vector_of("q", DIM)
    answer = live(location=folder).search(query)
    assert list(answer.ids) == order_of(true_vectors(), query)[:10] and answer.untrue == 0
    assert not embedded(server)


def test_a_store_that_was_translated_from_an_unknown_model_is_not_taken_for_complete(model, live, tmp_path):
    folder = make_store(tmp_path / "unknown", noisy_vectors(), model.identity, source=None)
    searcher, query = live(location=folder), vector_of("q", DIM)
    wait_for_true(searcher, query)
    assert list(searcher.search(query).ids) != order_of(noisy_vectors(), query)[:10]


def test_a_changed_text_is_not_served_by_its_old_vector(live, server, folder):
    searcher = live()
    query = vector_of("q", DIM)
    searcher.search(query)
    lines = [json.loads(line) for line in (folder / "docs.jsonl").read_text().splitlines()]
    changed = pool_of(query)[3]
    lines[changed]["text"] = "q"  # now the best there is
    (folder / "docs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    searcher.refresh()
    answer = searcher.search(query)
    assert answer.ids[0] == f"d{changed}" and answer.scores[0] == pytest.approx(1)
    assert len(embedded(server)) == 20, "and nothing else was embedded again"


def test_a_store_of_another_model_is_refused(live, server, tmp_path):
    other = served_by(server, "tiny-raw")
    folder = make_store(tmp_path / "other", noisy_vectors(), other.identity)
    with pytest.raises(StoreError, match=r"is of openai:tiny-raw, .* by openai:tiny;"):
        live(location=folder)


def test_a_store_of_another_model_that_comes_to_the_location_does_not_answer(live, model, folder, tmp_path, server):
    other = make_store(tmp_path / "other", noisy_vectors(seed=5), served_by(server, "tiny-raw").identity)
    searcher = live()
    switch(str(folder), str(other), unproven=True)
    with pytest.raises(StoreError, match="the store is of openai:tiny-raw"):
        searcher.refresh()
    query = vector_of("q", DIM)
    answer = searcher.search(query)
    assert list(answer.ids) == order_of(noisy_vectors(), query)[:10], "the one in memory, whose texts are elsewhere now"
    assert not embedded(server)
    rollback(str(folder))
    wait_for_true(searcher, query)


def test_a_process_that_goes_to_another_folder_finds_the_store_again(live, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    searcher = live(location=folder.name)
    before = searcher.search("document 5").generation
    monkeypatch.chdir("/")
    (folder / "docs.jsonl").touch()
    searcher.refresh()
    assert searcher.search("document 5").generation != before


def test_a_model_is_named_by_its_spec_or_is_the_store_s_own(folder, live, server, monkeypatch, tmp_path):
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    before = live().search(QUESTION)
    assert live(named="openai:tiny").search(QUESTION).ids == before.ids
    with LiveSearcher(folder, limits=PATIENT, cache=tmp_path / "cache.sqlite") as own:
        assert own.search(QUESTION).ids == before.ids


@pytest.mark.parametrize("named", [["openai:tiny"], 7, {"openai:tiny": 1}])
def test_what_is_no_model_is_refused(named, folder, tmp_path):
    with pytest.raises(UsageError, match=r"is neither an embedder nor a spec such as "):
        LiveSearcher(folder, named, cache=tmp_path / "cache.sqlite")


def test_a_searcher_that_was_closed_says_so(live):
    searcher = live()
    assert list(searcher.search(QUESTION).ids) == expected(vector_of(QUESTION, DIM))
    searcher.close()
    with pytest.raises(UsageError, match="this searcher was closed; make another"):
        searcher.search(QUESTION)


def test_no_state_no_error(live, folder):
    """A state that cannot be written to is no concern of a query."""
    searcher = live(LiveLimits(depth=20, max_documents=20, max_ms=20_000, refresh_s=0.05))
    query = vector_of("q", DIM)
    searcher._opened.state.close()
    for _ in range(3):
        assert list(searcher.search(query).ids) == expected(query)
        time.sleep(0.1)


def test_the_library_of_a_client_is_loaded_before_the_first_query_and_no_server_is_asked(folder, server, tmp_path):
    lines = [
        "import sys",
        "from migrate.embedders import load_embedder",
        "from migrate.live.searcher import LiveSearcher",
        "from pathlib import Path",
        "folder, cache, url = sys.argv[1:]",
        "print('openai' in sys.modules)",
        "LiveSearcher(folder, load_embedder('openai:tiny', base_url=url), cache=Path(cache)).close()",
        "print('openai' in sys.modules)",
    ]
    asked = len(server.requests)
    command = [sys.executable, "-c", "\n".join(lines), str(folder), str(tmp_path / "cache.sqlite"), server.url]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert loaded == ["False", "True"]
    assert len(server.requests) == asked
