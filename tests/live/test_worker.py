"""The worker: what it writes, in which order, within what, and what becomes of it when it is killed."""

import shutil
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from asking import asking
from children import call_in_child
from database_edits import edit
from worker_tools import DATABASES, Drifting, Hashed, Other, translate, wait_for, work, work_and_note

import migrate
from migrate.audit.bounds import Outcome
from migrate.cost import tally_of
from migrate.embed import reembed_store
from migrate.embedders.cache import CachedEmbedder
from migrate.errors import LockedError, RemoteError, StoreError, UsageError, VectorError
from migrate.live.control import (
    is_running,
    stop_worker,
)
from migrate.live.monitor import Monitor
from migrate.live.options import LiveLimits
from migrate.live.paying import Account, PayingEmbedder, WorkerSpending
from migrate.live.report import status_document, status_text, verdict_sentence
from migrate.live.searcher import LiveSearcher
from migrate.live.state import STOP, LiveState, ServedQuery, WorkerFacts, state_path
from migrate.live.status import status_of
from migrate.live.worker import Worker, WorkerOptions
from migrate.live.writing import put_true_vectors
from migrate.selection.model_match import ASKED_AGAIN
from migrate.steps.reembed.fill import backfill_store
from migrate.steps.switch import switch
from migrate.stitch.persistence import load_stitch
from migrate.stores import open_store
from migrate.stores.base import read_all
from migrate.stores.confidence import read_confidence
from migrate.stores.file_store import as_files
from migrate.vectors import Document

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("own_folders")]

ONCE = WorkerOptions(once=True)


@pytest.fixture(scope="module")
def fitted(source_folder, tmp_path_factory):
    """A stitch of 40 of the documents, and the cache of their vectors."""
    cache = tmp_path_factory.mktemp("fitted") / "cache.sqlite"
    return migrate.fit(open_store(source_folder), CachedEmbedder(Hashed(), cache), kind="ridge", sample=40), cache


@pytest.fixture
def location(source_folder, fitted, embedder, place_of, request):
    stitch, cache = fitted
    place = place_of(getattr(request, "param", "folder"))
    shutil.copy(cache, embedder.path)
    migrate.translate(open_store(source_folder), stitch, place)
    return place


# What each database does by its own client is tried on all; what the worker does by itself on files and one of them
every_database = pytest.mark.parametrize(
    "location", [kind for kind in DATABASES if kind != "chroma server"], indirect=True
)
files_and_database = pytest.mark.parametrize("location", ["folder", "sqlite-vec"], indirect=True)


def truth(store):
    return {document.id: Hashed().one(document.text) for document in store.documents()}


def stored_ids(location):
    """The documents whose vector in the store is the true one."""
    store = open_store(location)
    true = truth(store)
    return {i for b in store.scan() for i, v in zip(b.ids, b.vectors, strict=True) if np.array_equal(v, true[i])}


def true_ids(location):
    """The documents that searchers rank by their true vectors: of files, the worker has noted those in the cache."""
    stored = stored_ids(location)
    if as_files(open_store(location)) is None:
        return stored
    with state_of(location) as state:
        return stored | state.documents.true().keys()


def state_of(location):
    return LiveState(state_path(open_store(location)))


def options(**changes):
    return WorkerOptions(once=True, **changes)


def complete(location, embedder):
    """Run a worker that makes every vector the model's own, to the bit."""
    report = Worker(location, embedder, ONCE).run()
    assert (report.phase, report.true, report.count, report.bitwise) == ("complete", 150, 150, True)
    is_in_files = as_files(open_store(location)) is not None
    assert ("all 150 true vectors are in the cache" if is_in_files else "to the bit") in report.message
    assert len(embedder.embedder.asked) == 110, "those of the sample were in the cache"
    assert len(true_ids(location)) == 150


def test_a_folder_stays_as_it_is_while_searchers_rank_by_the_true_vectors_in_the_cache(location, embedder):
    files = {path: path.read_bytes() for path in Path(location).rglob("*") if path.is_file()}
    true, queries = truth(open_store(location)), [Hashed().one(f"question {number}") for number in range(8)]
    limits = LiveLimits(depth=150, max_documents=0)
    with LiveSearcher(location, embedder, limits=limits) as before:
        assert before.search(queries[0]).untrue == 110
    complete(location, embedder)
    with LiveSearcher(location, embedder, limits=limits) as searcher:
        for query in queries:
            best = tuple(sorted(true, key=lambda doc_id: -float(true[doc_id] @ query))[:10])
            assert is_answered_by(searcher, query, best)
    assert {path: path.read_bytes() for path in Path(location).rglob("*") if path.is_file()} == files
    status = status_of(location)
    assert (status.true, status.is_all_true, status.outcome) == (150, False, Outcome.INCONCLUSIVE)


def test_a_complete_folder_is_backfilled_to_a_full_re_embed_to_the_bit(location, embedder, source_folder, tmp_path):
    complete(location, embedder)
    backfill_store(open_store(location), embedder, tmp_path / "complete")
    reembed_store(open_store(source_folder), embedder, tmp_path / "full")
    found, expected = (tmp_path / name / "index.faiss" for name in ("complete", "full"))
    assert found.read_bytes() == expected.read_bytes()
    assert (read_confidence(tmp_path / "complete", 150) == 1).all()


@files_and_database
def test_most_wanted_documents_come_first_and_a_budget_is_of_all_runs_of_the_worker(location, embedder):
    store = open_store(location)
    untrue = sorted({d.id for d in store.documents()} - true_ids(location))
    with state_of(location) as state:
        state.demand.add({untrue[5]: (9, 0.5), untrue[7]: (1, 0.9), untrue[9]: (3, 0.9)})
    Worker(location, embedder, options(from_queue=True)).run()
    assert embedder.embedder.asked == [untrue[5], untrue[9], untrue[7]]
    assert {untrue[5], untrue[7], untrue[9]} <= true_ids(location)
    for budget, sent in (("3", 3), ("20", 20), ("10%", 20), ("30%", 45)):
        report = Worker(location, embedder, options(budget=budget)).run()
        assert (report.phase, len(true_ids(location))) == ("paused", 40 + sent) and "budget" in report.message
        assert len(embedder.embedder.asked) == sent


@files_and_database
def test_what_queries_have_embedded_is_written(location, embedder):
    true = true_ids(location)
    untrue = [document for document in open_store(location).documents() if document.id not in true]
    embedder.embed_documents(untrue[:30])  # into the cache, as a searcher does
    with state_of(location) as state:
        state.count({"embedded_by_queries": 30})
    embedder.embedder.asked.clear()
    report = Worker(location, embedder, options(budget="5")).run()
    assert report.true == len(true_ids(location)) == 75
    assert {document.id for document in untrue[:30]} <= true_ids(location)
    assert len(embedder.embedder.asked) == 5, "the rest is none of the worker's budget"


@contextmanager
def running(worker):
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    try:
        yield thread
    finally:
        with state_of(worker.location) as state:
            state.note(STOP, True)
        thread.join(60)
    assert not thread.is_alive()


def test_what_queries_embed_meanwhile_is_found(location, embedder):
    worker = Worker(location, embedder, WorkerOptions(from_queue=True))
    with running(worker):
        wait_for(lambda: worker.survey.count == 150)
        untrue = [document for document in open_store(location).documents() if document.id not in worker.survey.true]
        embedder.embed_documents(untrue[:15])
        with state_of(location) as state:
            state.count({"embedded_by_queries": 15})
        wait_for(lambda: len(worker.survey.true) == 55)
    assert len(true_ids(location)) == 55


def test_a_budget_of_tokens_is_kept_over_all_runs(location, embedder):
    asked = []
    for budget in ("500tok", "500tok", "900tok"):
        Worker(location, embedder, options(budget=budget)).run()
        asked.append(len(embedder.embedder.asked))
        with state_of(location) as state:
            tokens = state.value("own spent by the worker")["tokens"]
        assert 300 < tokens <= int(budget.removesuffix("tok"))
    assert asked[0] == asked[1] < asked[2]


def test_a_budget_in_dollars_needs_a_price(location, embedder):
    with pytest.raises(UsageError, match=r"--budget \$1: .*--price"):
        Worker(location, embedder, options(budget="$1"))
    Worker(location, embedder, options(budget="$0.001", price=2.0)).run()
    with state_of(location) as state:
        assert 0 < state.counters()["usd"] <= 0.001


def test_a_model_that_no_cache_keeps_is_refused_with_what_fits_it(location, tmp_path):
    class Kept(Hashed):
        cacheable = False

    with pytest.raises(UsageError, match=r"hashed.*`reembed`"):
        Worker(location, Kept(), ONCE)
    with pytest.raises(UsageError, match="nothing would be; name a file with --cache"):
        Worker(location, Hashed(), ONCE)


@files_and_database
def test_neither_failures_of_the_model_nor_a_text_that_it_refuses_stand_in_the_way(location, embedder):
    store, true = open_store(location), true_ids(location)
    embedder.embedder.fails = 2
    embedder.embedder.refuses = next(d.text for d in store.documents() if d.id not in true)
    worker = Worker(location, embedder, ONCE)
    worker._wait = lambda seconds: None
    report = worker.run()
    assert (report.phase, report.true, report.refused) == ("complete", 149, 1)
    assert "1 that it refuses" in report.message
    with state_of(location) as state:
        assert state.counters()["embedder_failures"] == 2
    assert Worker(location, embedder, ONCE).run().refused == 1


def before_embedding(embedder, act):
    """Have something done once, right before the model is asked for the first time."""
    embed, still_to_do = embedder.embedder.embed, [act]

    def embed_after(texts, role, **more):
        while still_to_do:
            still_to_do.pop()()
        return embed(texts, role, **more)

    embedder.embedder.embed = embed_after


def interrupt():
    raise KeyboardInterrupt


def test_a_worker_that_is_interrupted_says_that_it_stopped(location, embedder):
    before_embedding(embedder, interrupt)
    with pytest.raises(KeyboardInterrupt):
        Worker(location, embedder, ONCE).run()
    facts = WorkerFacts.kept_in(state_of(location))
    assert (facts.phase, facts.message) == ("stopped", "interrupted")


@every_database
def test_documents_that_come_change_and_go_get_true_vectors_of_their_texts(location, embedder):
    lost = sorted({document.id for document in open_store(location).documents()} - true_ids(location))[:3]
    before_embedding(embedder, partial(edit, location, gone=lost))
    worker = Worker(location, embedder, ONCE)
    worker._wait = lambda seconds: None
    report = worker.run()
    assert (report.phase, report.true, report.count, report.bitwise) == ("complete", 147, 147, True)
    assert len(true_ids(location)) == 147
    changed, gone = [document.id for document in open_store(location).documents()][3:5]
    edit(location, new=["new"], changed=[changed], gone=[gone])
    embedder.embedder.asked.clear()
    report = Worker(location, embedder, ONCE).run()
    assert (report.phase, report.true, report.count) == ("complete", 147, 147)
    assert sorted(embedder.embedder.asked) == sorted([changed, "new"])
    assert {changed, "new"} <= true_ids(location)


@files_and_database
def test_a_store_that_comes_to_its_place_is_not_written_to(location, embedder, place_of, source_folder, request):
    other = place_of(request.node.callspec.params["location"], "new")
    translate(source_folder, CachedEmbedder(Other(), Path(f"{embedder.path}.other")), other)
    before = read_all(open_store(other).scan())
    before_embedding(embedder, partial(switch, location, other, unproven=True))
    with pytest.raises(StoreError, match=r"not the store's own model|translated for other"):
        Worker(location, embedder, ONCE).run()
    after = read_all(open_store(location).scan())
    assert list(after.ids) == list(before.ids)
    assert np.array_equal(after.vectors, before.vectors)
    assert WorkerFacts.kept_in(state_of(location)).phase == "failed"


def in_chroma(place, documents, vectors):
    import chromadb

    client = chromadb.PersistentClient(place.partition(":")[2].partition("#")[0])
    collection = client.create_collection("docs", configuration={"hnsw": {"space": "cosine"}}, embedding_function=None)
    collection.add([d.id for d in documents], embeddings=vectors, documents=[d.text for d in documents])
    client.close()


def test_a_database_that_normalises_holds_them_as_well_as_it_can(embedder, source_folder, place_of):
    documents, place, old = list(open_store(source_folder).documents()), place_of("chroma"), place_of("chroma", "old")
    in_chroma(old, documents, np.stack([3 * Hashed().one("old " + document.text) for document in documents]))
    translate(old, embedder, place)
    report = Worker(place, embedder, ONCE).run()
    assert (report.phase, report.true, report.bitwise) == ("complete", 150, False)
    assert report.message.endswith("as the store can hold them")
    true = truth(open_store(place))
    for batch in open_store(place).scan():
        assert np.allclose(batch.vectors, [true[doc_id] for doc_id in batch.ids], atol=1e-6)


def is_answered_by(searcher, query, ids):
    answer = searcher.search(query)
    return answer.untrue == 0 and answer.ids == ids


# A table that is read anew, one whose readers see it later, and a server
@pytest.mark.parametrize("location", ["sqlite-vec", "lancedb", "qdrant server"], indirect=True)
def test_true_vectors_reach_who_searches_beside_the_worker(location, embedder, tmp_path, monkeypatch):
    monkeypatch.setattr("migrate.live.searcher._COPY_REST", 1.0)
    queries = [Hashed().one(f"question {number}") for number in range(8)]
    limits = LiveLimits(depth=150, max_documents=0, refresh_s=0.1)

    def ask(searcher):
        assert len(searcher.search(queries[0]).ids) == 10
        time.sleep(0.002)  # the worker and the copies need their turns

    with LiveSearcher(location, Hashed(), limits=limits, cache=tmp_path / "none.sqlite") as searcher:
        assert searcher.search(queries[0]).untrue > 0
        with asking(partial(ask, searcher)) as failed:
            Worker(location, embedder, ONCE).run()
            wait_for(lambda: not searcher.search(queries[0]).untrue)
        true = truth(open_store(location))
        for query in queries:
            best = tuple(sorted(true, key=lambda doc_id: -float(true[doc_id] @ query))[:10])
            wait_for(partial(is_answered_by, searcher, query, best))  # LanceDB shows what others wrote within a second
    assert not failed


def test_two_workers_of_one_store_are_one_too_many(location, embedder):
    worker, other = Worker(location, embedder, WorkerOptions()), Worker(location, embedder, ONCE)
    with running(worker), state_of(location) as state:
        wait_for(lambda: is_running(state) and WorkerFacts.kept_in(state).phase in ("running", "complete"))
        with pytest.raises(LockedError, match="another worker"):
            other.run()
        assert stop_worker(state)
        assert not is_running(state)
        assert WorkerFacts.kept_in(state).phase == "stopped"


# A server outlives the worker, so its kinds are those of their folders here
MOMENTS = [
    ("folder", "embedded:1"),
    ("folder", "embedded:2"),
    *((kind, "vectors written:1") for kind in DATABASES if not kind.endswith("server")),
]


@pytest.mark.parametrize(("location", "moment"), MOMENTS, indirect=["location"])
def test_a_worker_that_is_killed_loses_nothing(location, moment, embedder, tmp_path):
    call_in_child(work, location, tmp_path / "cache.sqlite", point=moment)
    assert len(list(open_store(location).documents())) == 150
    before = true_ids(location)
    assert len(before) >= 40
    report = Worker(location, embedder, ONCE).run()
    assert (report.phase, report.true, report.bitwise) == ("complete", 150, True)
    with state_of(location) as state:
        paid = state.counters()["embedded_by_worker"]
    assert paid <= 110, "nothing was embedded twice"


def test_served_queries_come_to_a_verdict(location, embedder):
    store, rng = open_store(location), np.random.default_rng(0)
    batch = read_all(store.scan())
    with state_of(location) as state:
        queries = []
        for _ in range(180):
            query = rng.normal(size=12).astype(np.float32)
            first = np.argsort(-(batch.vectors @ query))[:10]
            queries.append(ServedQuery(query, tuple(batch.ids[row] for row in first), np.zeros(10, np.float32)))
        state.queries.add(queries)
    for budget, last in (("1", 0), ("20", 0), ("110", 180)):  # the verdict's documents count
        Worker(location, embedder, options(budget=budget)).run()
        assert len(embedder.embedder.asked) <= int(budget)
        with state_of(location) as state:
            assert Monitor.kept_in(state).last == last
    with state_of(location) as state:
        monitor = Monitor.kept_in(state)
        assert monitor.calibration is not None or monitor.high.count
        assert status_of(location).verdict.outcome in set(Outcome)
        state.queries.add(queries[:60])
    Worker(location, embedder, options(budget="110")).run()
    with state_of(location) as state:
        assert Monitor.kept_in(state).last > 180, "nothing is left that would have to be embedded"
    status = status_of(location)
    assert "agreement@10" in verdict_sentence(status), "the first stage knows translated vectors"
    assert verdict_sentence(replace(status, is_all_true=True)).startswith("SAFE: every vector is the model's own")
    assert status_document(status)["verdict"]["n_queries"] > 0


@pytest.fixture
def drifting(location, embedder):
    """The model of the store with its cache, which may become another one."""
    return CachedEmbedder(Drifting(), embedder.path)


def test_a_model_that_has_changed_behind_its_name_writes_nothing(location, drifting):
    embedder = drifting
    assert Worker(location, embedder, options(budget="28")).run().true == 60
    embedder.embedder.drift = "later "
    embedder.embedder.asked.clear()
    with pytest.raises(VectorError, match=r"text of .* has changed"):
        Worker(location, embedder, ONCE).run()
    assert len(embedder.embedder.asked) == ASKED_AGAIN
    assert len(true_ids(location)) == 60


@files_and_database
def test_a_model_that_has_changed_is_found_by_the_store_where_another_cache_is_named(location, tmp_path):
    other = CachedEmbedder(Drifting(), tmp_path / "other.sqlite")
    other.embedder.drift = "later "
    with pytest.raises(VectorError, match=r"hashed .* has changed"):
        Worker(location, other, options(budget="20")).run()
    assert len(other.embedder.asked) == ASKED_AGAIN and len(true_ids(location)) == 40
    same = CachedEmbedder(Drifting(), tmp_path / "same.sqlite")
    Worker(location, same, options(budget="60")).run()
    assert len(true_ids(location)) > 40


@pytest.mark.parametrize("budget", ["30", "36", "{}tok"])
def test_a_model_that_has_changed_writes_nothing_where_little_may_be_spent(budget, location, drifting):
    embedder = drifting
    Worker(location, embedder, options(budget="28")).run()
    with state_of(location) as state:
        tokens = state.value("own spent by the worker")["tokens"]
    embedder.embedder.drift = "later "
    embedder.embedder.asked.clear()
    worker = Worker(location, embedder, options(budget=budget.format(tokens + 4 * tokens // 20)))
    message = worker.run().message
    assert "8 texts" in message and "--budget" in message
    assert not embedder.embedder.asked, "too little to prove the model"
    assert len(true_ids(location)) == 60


@pytest.mark.parametrize("budget", ["20%", "{}tok"])
def test_a_worker_that_is_killed_again_and_again_sends_no_more_than_its_budget(budget, location, drifting, tmp_path):
    cache, journal = drifting.path, tmp_path / "sent"
    tally = tally_of(drifting, None)
    texts = {document.id: document for document in open_store(location).documents()}
    most = int(tally.tokens(list(texts.values())).sum()) // 4
    for after in (ASKED_AGAIN + 3, 2 * ASKED_AGAIN, 10_000, 10_000):
        call_in_child(work_and_note, location, cache, journal, budget.format(most), after)
        sent = journal.read_text().split()
        if "tok" in budget:
            assert tally.tokens([texts[doc_id] for doc_id in sent]).sum() <= most
        else:
            assert len(sent) <= 30
    assert len(sent) > 2 * ASKED_AGAIN


# Of all others tests/stores has what is read and written by ids
@pytest.mark.parametrize("location", ["sqlite-vec"], indirect=True)
def test_a_text_that_changed_since_it_was_embedded_keeps_the_vector_that_it_was_given(location, embedder):
    store, true = open_store(location), true_ids(location)
    ours = [document for document in store.documents() if document.id not in true][:3]
    ids = [document.id for document in ours]
    edit(location, changed=ids)
    before = vectors_by_id(location, ids)
    with state_of(location) as state:
        assert put_true_vectors(state, store, ours, embedder.embed_documents(ours)) == 0
        assert not state.documents.true().keys() & set(ids)
    after = vectors_by_id(location, ids)
    assert sorted(after) == sorted(ids)
    assert all(np.allclose(after[doc_id], vector) for doc_id, vector in before.items())


def vectors_by_id(location, ids):
    batch = open_store(location).records.vectors(ids)
    return dict(zip(batch.ids, batch.vectors.copy(), strict=True))


def test_what_a_signal_breaks_off_stays_spent_and_what_fails_does_not(tmp_path, embedder):
    class BrokenOff(Hashed):
        def embed(self, texts, role, *, progress=None):
            if role == "document" and not self.fails:
                raise KeyboardInterrupt
            return super().embed(texts, role)

    with LiveState(tmp_path / "state.sqlite") as state:
        account = Account(state, tally_of(embedder, None), None, 5)
        model, texts = PayingEmbedder(BrokenOff(), account), [Document(str(row), f"text {row}") for row in range(5)]
        for sent, ask in enumerate((model.embed, model.embed_again, model.embed), 1):
            model.embedder.fails = 1
            with pytest.raises(RemoteError):
                ask(texts, "document")
            with pytest.raises(KeyboardInterrupt):  # as Ctrl-C and SIGTERM, when the texts may have been paid for
                ask(texts, "document")
            assert account.spent == WorkerSpending(5 * sent, sent * int(account.tally.tokens(texts).sum()))


def test_the_status_of_another_store_that_came_there_says_nothing_of_the_one_before(
    location, embedder, source_folder, tmp_path
):
    served = [ServedQuery(row, ("x",), np.zeros(1, np.float32)) for row in np.eye(12, dtype=np.float32)]
    Worker(location, embedder, ONCE).run()
    with state_of(location) as state:
        state.queries.add(served)
        replace(Monitor.kept_in(state), n_documents=150).keep(state)
    assert (status_of(location).true, status_of(location).verdict is None) == (150, False)
    migrate.fit(open_store(source_folder), embedder, kind="ridge", sample=30).save(tmp_path / "stitch")
    migrate.translate(open_store(source_folder), load_stitch(tmp_path / "stitch"), location, force=True)
    status = status_of(location)
    assert (status.true, status.share, status.verdict) == (None, None, None)
    assert "another store is there" in status_text(status)
    assert status_document(status)["true"] is None


def test_a_model_without_a_cache_and_another_model_are_refused(location, embedder, tmp_path):
    with pytest.raises(UsageError, match="cached"):
        Worker(location, Hashed(), ONCE)
    with pytest.raises(StoreError, match=r"not the store.s own model"):
        Worker(location, CachedEmbedder(Hashed(8), tmp_path / "other.sqlite"), ONCE)
