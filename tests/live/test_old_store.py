"""The live searcher over a translated store and the one before the migration, which both of their models answer for."""

import re
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from live_tools import COUNT, DIM, make_store, noisy_vectors, served_by, texts, true_vectors
from openai_server import KEY, status, vector_of
from worker_tools import Hashed, Other, translate

from migrate.errors import RemoteError, StoreError, UsageError, VectorError
from migrate.live.options import LiveLimits
from migrate.live.searcher import LiveSearcher
from migrate.live.state import OLD_STORE, LiveState, state_path
from migrate.search.fusion import RankComparison
from migrate.steps.switch import switch
from migrate.stores import open_store

pytestmark = pytest.mark.slow


class Alike(Hashed):
    """An old model that finds much of what the new one finds."""

    def one(self, text):
        row = np.concatenate([vector_of(text, DIM), 0.5 * super().one(text)[DIM:]])
        return (row / np.linalg.norm(row)).astype(np.float32)


OLD = Alike()
IDS = [f"d{row}" for row in range(COUNT)]
ONLY_RANK = LiveLimits(depth=30, max_documents=0, sampled=1.0)
QUESTIONS = [f"which one is about question {number}?" for number in range(15)]


@pytest.fixture(autouse=True)
def _key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


@pytest.fixture
def folder(server, tmp_path):
    return make_store(tmp_path / "new", noisy_vectors(), served_by(server).identity)


@pytest.fixture
def old(tmp_path):
    return make_store(tmp_path / "old", np.stack([OLD.one(text) for text in texts()]), OLD.identity, source=None)


@pytest.fixture
def live(folder, old, server, tmp_path):
    """Opens searchers of both stores."""
    opened = []

    def make(limits=ONLY_RANK, **options):
        options = {"old": old, "old_model": OLD, **options}
        searcher = LiveSearcher(folder, served_by(server), limits=limits, cache=tmp_path / "cache.sqlite", **options)
        opened.append(searcher)
        return searcher

    yield make
    for searcher in opened:
        searcher.close()


def first_of(vectors, query, depth=30):
    return [IDS[row] for row in np.argsort(-(vectors @ query), kind="stable")[:depth]]


def old_order(question):
    return first_of(np.stack([OLD.one(text) for text in texts()]), OLD.one(question))


def fused(*rankings, of_equals=lambda _: 0):
    """The documents of some rankings; of equals those of the first ranking come first, unless it is said otherwise."""
    scores = dict.fromkeys(doc_id for ranking in rankings for doc_id in ranking)
    for doc_id in scores:
        scores[doc_id] = sum(1 / (61 + ranking.index(doc_id)) for ranking in rankings if doc_id in ranking)
    return sorted(scores, key=lambda doc_id: (-scores[doc_id], of_equals(doc_id)))


def by_both(question, store=None):
    """The first 30 of both stores by their ranks in both, as long as no vector is a true one."""
    vectors, query = noisy_vectors() if store is None else store, vector_of(question, DIM)
    first = fused(first_of(vectors, query), old_order(question))[:30]
    new = sorted(first, key=lambda doc_id: -(vectors[IDS.index(doc_id)] @ query))
    both = fused(new, [doc_id if doc_id in first else "" for doc_id in old_order(question)], of_equals=str)
    return [doc_id for doc_id in both if doc_id]


def note_comparison(folder, **noted):
    """Have the state of a store say how both stores compared, over so many queries that a few more change nothing."""
    with LiveState(state_path(open_store(folder))) as state:
        state.note(OLD_STORE, {"queries": 10_000, **noted})


def test_documents_are_in_the_order_of_their_ranks_in_both(live, folder):
    note_comparison(folder, agreement=1.0)
    searcher = live()
    for question in QUESTIONS:
        answer = searcher.search(question)
        assert answer.answered_by == ("new", "old")
        assert list(answer.ids) == by_both(question)[:10]
        rows = [IDS.index(doc_id) for doc_id in answer.ids]
        np.testing.assert_allclose(answer.scores, noisy_vectors()[rows] @ vector_of(question, DIM), rtol=1e-4)


def test_an_old_model_that_found_little_of_what_the_new_one_finds_only_brings_candidates(live, folder):
    note_comparison(folder, agreement=1.0, new_found=300.0, old_found=100.0)
    searcher = live()
    for question in QUESTIONS:
        query = vector_of(question, DIM)
        first = fused(first_of(noisy_vectors(), query), old_order(question))[:30]
        answer = searcher.search(question)
        assert answer.answered_by == ("new", "old")
        assert list(answer.ids) == sorted(first, key=lambda doc_id: -(noisy_vectors()[IDS.index(doc_id)] @ query))[:10]


def test_what_true_vectors_put_first_says_how_much_the_old_model_finds(live, folder):
    searcher = live(LiveLimits(depth=30, max_documents=10, max_ms=20_000))
    for question in QUESTIONS[:5]:
        searcher.search(question)
    searcher.refresh()
    with LiveState(state_path(open_store(folder))) as state:
        compared = RankComparison(**state.value(OLD_STORE))
    assert 0 < compared.old_found <= 15 and 0 < compared.new_found <= 15
    assert compared.agreement > 0.5


def test_what_was_learned_is_known_to_a_searcher_that_is_opened_later(live, folder):
    for n_queries in (5, 3):
        searcher = live()
        for question in QUESTIONS[:n_queries]:
            searcher.search(question)
        searcher.close()
    with LiveState(state_path(open_store(folder))) as state:
        assert state.value(OLD_STORE)["queries"] == 8


def test_true_vectors_are_ranked_by_the_new_model_alone(live):
    searcher = live(LiveLimits(depth=30, max_documents=30, max_ms=20_000))
    for question in QUESTIONS[:5]:
        query = vector_of(question, DIM)
        answer = searcher.search(question)
        first = fused(first_of(noisy_vectors(), query), old_order(question))[:30]
        assert answer.untrue == 0
        assert list(answer.ids) == sorted(first, key=lambda doc_id: -(true_vectors()[IDS.index(doc_id)] @ query))[:10]


def test_a_vector_is_of_the_new_model_alone(live):
    answer = live().search(vector_of("a", DIM))
    assert answer.answered_by == ("new",)
    assert list(answer.ids) == first_of(noisy_vectors(), vector_of("a", DIM))[:10]


def test_the_old_store_answers_where_the_new_model_does_not(live, server):
    searcher = live(LiveLimits(depth=30, max_documents=0, search_ms=5_000))
    server.faults.extend([status(500)] * 100)
    answer = searcher.search("new")
    assert answer.answered_by == ("old",) and list(answer.ids) == old_order("new")[:10]
    server.faults.clear()
    for _ in range(200):
        if searcher.search("another").answered_by == ("new", "old"):
            return
        time.sleep(0.05)
    raise AssertionError("the new model is never asked again")


def test_the_new_store_answers_where_the_old_model_does_not(live, caplog):
    model = Alike()
    searcher = live(old_model=model)
    model.fails = 1
    for question in QUESTIONS[:3]:  # the old one is left alone for a while
        answer = searcher.search(question)
        assert answer.answered_by == ("new",)
        assert list(answer.ids) == first_of(noisy_vectors(), vector_of(question, DIM))[:10]
    assert "the new store answers alone" in caplog.text


def test_where_neither_answers_the_error_is_of_the_new_model(live, server):
    model = Alike()
    searcher = live(LiveLimits(depth=30, search_ms=5_000), old_model=model)
    model.fails = 100
    server.faults.extend([status(500)] * 100)
    with pytest.raises(RemoteError):
        searcher.search("nobody")


class AllAtOnce(Other):
    """Answers once as many queries ask for a vector at the same time, as a server may."""

    def __init__(self, dim, count):
        super().__init__(dim)
        self.barrier = threading.Barrier(count)

    @property
    def profile(self):
        return replace(super().profile, is_api=True)

    def embed(self, texts, role, *, progress=None):
        self.barrier.wait(30)
        return super().embed(texts, role, progress=progress)


def test_many_queries_are_answered_at_the_same_time(tmp_path):
    new, old = AllAtOnce(DIM, 40), AllAtOnce(12, 40)
    translated, before = (
        make_store(tmp_path / name, np.stack([model.one(text) for text in texts()]), model.identity, source=source)
        for name, model, source in (("new", new, OLD.identity), ("old", old, None))
    )
    limits = LiveLimits(max_documents=0, search_ms=60_000)
    with (
        LiveSearcher(translated, new, limits=limits, old=before, old_model=old, cache=tmp_path / "cache") as searcher,
        ThreadPoolExecutor(40) as pool,
    ):
        answers = list(pool.map(searcher.search, [f"question {number}" for number in range(40)]))
    assert {answer.answered_by for answer in answers} == {("new", "old")}


def test_documents_that_the_new_store_lacks_take_no_place(live, old, tmp_path):
    gone = tmp_path / "more"
    shutil.copytree(old, gone)
    lines = (gone / "docs.jsonl").read_text().splitlines()
    renamed = [line.replace('"id": "d', '"id": "gone') if row % 2 else line for row, line in enumerate(lines)]
    (gone / "docs.jsonl").write_text("\n".join(renamed))
    searcher = live(LiveLimits(depth=10, max_documents=0), old=gone)
    for question in QUESTIONS:
        answer = searcher.search(question)
        assert answer.answered_by == ("new", "old")
        assert len(answer.ids) == 10 and set(answer.ids) <= set(IDS)


def test_a_new_model_that_fails_in_its_own_way_leaves_the_answer_to_the_old_one(live, monkeypatch):
    searcher = live()

    def fail(*_):
        raise ConnectionError("the line is dead")

    monkeypatch.setattr(searcher, "_search_new", fail)
    assert searcher.search("a question").answered_by == ("old",)


def test_a_complete_store_needs_no_old_one(server, live, tmp_path, old):
    whole = make_store(tmp_path / "whole", true_vectors(), served_by(server).identity, source=None, made_by="reembed")
    with LiveSearcher(whole, served_by(server), old=old, old_model=OLD, cache=tmp_path / "cache.sqlite") as searcher:
        assert searcher.search("a question").answered_by == ("new",)


def test_another_store_that_comes_to_the_place_of_the_old_one_does_not_answer(live, old, folder, tmp_path, server):
    searcher = live()
    assert searcher.search("one").answered_by == ("new", "old")
    old.rename(tmp_path / "elsewhere")
    make_store(old, noisy_vectors(), served_by(server).identity)
    with pytest.raises(StoreError, match=r"is of openai:tiny, .* by hashed"):
        searcher.refresh()
    assert searcher.search("two").answered_by == ("new",)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"old_model": None}, UsageError, "old and old_model go together"),
        ({"old": None}, UsageError, "old and old_model go together"),
        ({"old_model": Other()}, StoreError, "is of hashed, .* by other"),
        ({"old_model": Hashed(5)}, VectorError, "hashed has 5 dimensions, the vectors of the old store 12"),
        ({"old": "nowhere"}, StoreError, "nowhere"),
        ({"old": "new"}, UsageError, "old is the new store itself"),
        ({"old": "copy"}, UsageError, "old is the new store itself"),
    ],
)
def test_what_is_no_old_store_is_refused(options, error, words, live, folder, tmp_path):
    (tmp_path / "copy").symlink_to(folder)
    if options.get("old") in ("new", "copy"):
        options = {"old": tmp_path / options["old"]}
    with pytest.raises(error, match=words):
        live(**options)


def test_the_new_model_is_no_old_one(live, server, tmp_path):
    again = make_store(tmp_path / "again", noisy_vectors(seed=1), served_by(server).identity)
    with pytest.raises(UsageError, match="old_model is openai:tiny"):
        live(old=again, old_model=served_by(server))


def renamed(store, folder, keep):
    """The store with other ids for all documents but the first `keep`."""
    shutil.copytree(store, folder)
    lines = (folder / "docs.jsonl").read_text().splitlines()
    lines = [line if row < keep else line.replace('"id": "d', '"id": "x') for row, line in enumerate(lines)]
    (folder / "docs.jsonl").write_text("\n".join(lines))
    return folder


def test_a_store_of_another_corpus_is_refused_and_one_that_is_half_of_it_warned_of(live, old, tmp_path, caplog):
    with pytest.raises(StoreError, match=r"of 120 documents .* has 0"):
        live(old=renamed(old, tmp_path / "other", 0))
    assert not caplog.text
    assert live(old=renamed(old, tmp_path / "part", 50)).search("a question").answered_by == ("new", "old")
    assert re.search(r"of 120 documents\b.* 50\b", caplog.text)


def test_a_complete_store_falls_back_too(live, server, tmp_path, old):
    whole = make_store(tmp_path / "whole", true_vectors(), served_by(server).identity, source=None, made_by="reembed")
    cache = tmp_path / "cache.sqlite"
    with LiveSearcher(whole, served_by(server), old=old, old_model=OLD, cache=cache) as searcher:
        assert searcher.search("a question").answered_by == ("new",)
        server.faults.extend([status(500)] * 100)
        assert searcher.search("another").answered_by == ("old",)


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan")])
def test_a_search_has_some_time(value):
    with pytest.raises(UsageError, match="search_ms"):
        LiveLimits(search_ms=value)


@pytest.mark.parametrize("kind", ["chroma", "lancedb", "milvus", "qdrant", "sqlite-vec"])
def test_both_stores_may_be_in_a_database(kind, source_folder, place_of, tmp_path, own_folders):
    new_model, old_model, new, old = Hashed(), Other(), place_of(kind, "new"), place_of(kind, "old")
    first = {}
    for place, model in ((new, new_model), (old, old_model)):
        store = translate(source_folder, model, place)
        first[place] = store.searcher().search(model.one("a question")[None], 20)[0].ids
    limits = LiveLimits(depth=20, max_documents=0)
    with LiveSearcher(new, new_model, limits=limits, old=old, old_model=old_model) as searcher:
        answer = searcher.search("a question")
        assert answer.answered_by == ("new", "old")
        assert set(answer.ids) <= {*first[new], *first[old]} and len(answer.ids) == 10
        switch(old, new, unproven=True)
        with pytest.raises(StoreError, match=r"is of hashed, .* by other"):
            searcher._opened.old.refresh()
        assert searcher._opened.old.ask("a question", 5, None, seconds=1) is None
