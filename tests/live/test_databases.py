"""The live searcher over databases: filters of every kind; a table of sqlite-vec that changes under it."""

from functools import partial
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from asking import asking
from database_edits import edit
from live_tools import make_store
from worker_tools import Hashed, Other, translate, wait_for

from migrate.embed import reembed_store
from migrate.errors import StoreError
from migrate.live.options import LiveLimits
from migrate.live.searcher import LiveSearcher
from migrate.live.state import LiveState, state_path, text_hash
from migrate.live.writing import replace_vectors
from migrate.manifest import ModelIdentity
from migrate.search.rerank import estimate_scores
from migrate.steps.switch import rollback, switch
from migrate.stores import open_store
from migrate.stores.serving import is_cosine
from migrate.vectors import unit_rows

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("own_folders")]
OLD = ModelIdentity("tfidf:8", 8, normalized=False)
ALL = LiveLimits(depth=20, max_documents=20, max_ms=20_000, refresh_s=0.1)


FILTERS = {
    "folder": {"topic": 3},
    "chroma": {"topic": 3},
    "lancedb": "metadata LIKE '%\"topic\": 3%'",
    "milvus": 'metadata["topic"] == 3',
    "pgvector": {"topic": 3},
    "qdrant": {"must": [{"key": "metadata.topic", "match": {"value": 3}}]},
    "sqlite-vec": {"topic": 3},
}


# A server is asked as its folder is
@pytest.mark.parametrize("kind", FILTERS)
def test_a_filter_goes_to_the_store_and_what_passes_is_ranked_by_true_vectors(kind, place_of, tmp_path):
    vectors = np.random.default_rng(0).normal(size=(120, 8)).astype(np.float32)
    make_store(tmp_path / "source", vectors, ModelIdentity("tfidf:8", 8, normalized=False), source=None)
    place = place_of(kind)
    store, model = translate(tmp_path / "source", Hashed(), place), Hashed()
    query = model.one("a question")
    true = {d.id: model.one(d.text) for d in store.documents() if d.metadata["topic"] == 3}
    limits = LiveLimits(depth=50, max_documents=50, max_ms=20_000)
    with LiveSearcher(place, model, limits=limits, cache=tmp_path / "cache.sqlite") as searcher:
        answer = searcher.search(query, where=FILTERS[kind])
        found = searcher.documents(answer.ids)
    assert list(answer.ids) == sorted(true, key=lambda doc_id: -float(true[doc_id] @ query))[:10]
    assert answer.untrue == 0 and len(true) == 17
    assert [document.id for document in found] == list(answer.ids)
    if kind == "folder":  # it says of the sample that it is true
        return
    few = LiveLimits(depth=50, max_documents=3, max_ms=20_000)
    with LiveSearcher(place, model, limits=few, cache=tmp_path / "other.sqlite") as searcher:
        answer = searcher.search(query, where=FILTERS[kind])
    assert answer.untrue == 14
    assert list(answer.ids) == estimated(store, true, query, 3)[:10]


def test_written_vectors_are_true_as_long_as_their_texts_are(place_of, tmp_path):
    vectors = np.random.default_rng(0).normal(size=(120, 8)).astype(np.float32)
    make_store(tmp_path / "source", vectors, ModelIdentity("tfidf:8", 8, normalized=False), source=None)
    place, model = place_of("sqlite-vec"), Hashed()
    store = translate(tmp_path / "source", model, place)
    stale, *marked = list(store.documents())[:10]
    written = [stale, *marked]
    store.records.put([document.id for document in written], np.stack([model.one(d.text) for d in written]))
    with LiveState(state_path(store)) as state:
        state.documents.mark_true({document.id: text_hash(document.text) for document in marked})
        state.documents.mark_true({stale.id: text_hash("what stood there before")})
    limits = LiveLimits(depth=120, max_documents=0)
    with LiveSearcher(place, model, limits=limits, cache=tmp_path / "cache.sqlite") as searcher:
        assert searcher.search(model.one("a question")).untrue == 120 - len(marked)


def estimated(store, true, query, known):
    """Documents ranked as where the first have true vectors, which tell of the errors of the others."""
    batch = store.get(np.arange(store.info.count))
    stored = dict(zip(batch.ids, unit_rows(batch.vectors) if is_cosine(store.info) else batch.vectors, strict=True))
    sign = -1 if store.info.metric == "ip" else 1
    near = {i: stored[i] @ query if sign < 0 else ((stored[i] - query) ** 2).sum() for i in true}
    ids = sorted(true, key=lambda doc_id: sign * near[doc_id])
    vectors, scores = np.stack([stored[i] for i in ids]), np.array([near[i] for i in ids])
    first = np.stack([true[i] for i in ids[:known]])
    scores = estimate_scores(query, scores, vectors, np.arange(known), first, metric=store.info.metric)
    return [ids[place] for place in np.argsort(sign * scores, kind="stable")]


@pytest.fixture
def location(source_folder, place_of):
    place = place_of("sqlite-vec")
    translate(source_folder, Hashed(), place)
    return place


def best(location, query, model, depth=20):
    """The store's first documents for a query, in the order of their true vectors."""
    store = open_store(location)
    batch = store.get(np.arange(store.info.count))
    rows = np.argsort(-(batch.vectors @ query))[:depth]
    texts = {document.id: document.text for document in store.documents(rows)}
    return sorted(texts, key=lambda doc_id: -float(model.one(texts[doc_id]) @ query))[:10]


# A table that is read anew, one whose readers see it later, one that is held open, and a server
@pytest.mark.parametrize("kind", ["sqlite-vec", "lancedb", "milvus", "qdrant server"])
def test_a_text_that_another_program_changes_is_found_by_what_it_says_now(kind, source_folder, tmp_path, place_of):
    model, place = Hashed(), place_of(kind)
    translate(source_folder, Hashed(), place)
    limits = LiveLimits(depth=150, max_documents=150, max_ms=20_000, refresh_s=0.1)
    with LiveSearcher(place, model, limits=limits, cache=tmp_path / "cache.sqlite") as searcher:
        last = searcher.search(model.one("another text"), k=150).ids[-1]
        edit(place, changed=[last])
        wait_for(lambda: searcher.search(model.one("another text")).ids[0] == last, 120)
        assert searcher.search(model.one("another text")).scores[0] == pytest.approx(1, abs=1e-5)


def test_two_documents_of_one_text_do_not_share_the_vector_of_what_one_of_them_becomes(location, tmp_path):
    model = Hashed()
    twins = [document.id for document in open_store(location).documents()][:2]
    edit(location, changed=twins, text="the same words")
    limits = LiveLimits(depth=150, max_documents=1, max_ms=20_000, refresh_s=60)
    with LiveSearcher(location, model, limits=limits, cache=tmp_path / "cache.sqlite") as searcher:
        searcher.generation.texts.hashes(twins)  # which are taken for those of now until they are looked at again
        edit(location, changed=twins[:1], text="other words")
        searcher.search(open_store(location).records.vectors(twins[:1]).vectors[0])  # embeds what is nearest
        answer = searcher.search(model.one("the same words"), k=150)
        scores = dict(zip(answer.ids, answer.scores.tolist(), strict=True))
        assert abs(scores[twins[1]] - model.one("other words") @ model.one("the same words")) > 1e-3


def test_vectors_of_documents_that_are_gone_are_left_out(location):
    ids = [document.id for document in open_store(location).documents()][:4]
    before = open_store(location).records.vectors(ids)
    assert list(before.ids) == ids
    edit(location, gone=[ids[1]])
    after = open_store(location).records.vectors([*ids, ids[0]])
    assert list(after.ids) == [ids[0], ids[2], ids[3], ids[0]]
    np.testing.assert_array_equal(after.vectors, before.vectors[[0, 2, 3, 0]])


def test_true_vectors_of_documents_that_are_gone_or_changed_are_left_out(location):
    documents = list(open_store(location).documents())[:4]
    ids = [document.id for document in documents]
    hashes = {document.id: text_hash(document.text) for document in documents}
    hashes[ids[2]] = text_hash("another text")
    edit(location, gone=[ids[1]])
    store = open_store(location)
    vectors = np.eye(4, store.info.dim, dtype=np.float32)
    assert replace_vectors(store, hashes, vectors) == [ids[0], ids[3]]
    after = open_store(location).records.vectors([ids[0], ids[3]])
    np.testing.assert_array_equal(after.vectors, vectors[[0, 3]])
    assert not np.array_equal(open_store(location).records.vectors([ids[2]]).vectors, vectors[2:3])


def test_a_document_that_is_deleted_is_not_found(location, tmp_path):
    model, query = Hashed(), Hashed().one("a question")
    with LiveSearcher(location, model, limits=ALL, cache=tmp_path / "cache.sqlite") as searcher:
        first = searcher.search(query).ids[0]
        edit(location, gone=[first])
        assert first not in searcher.search(query).ids
        assert searcher.documents([first]) == []


@pytest.mark.parametrize("kind", ["folder", "sqlite-vec"])
def test_stores_are_switched_under_queries_and_no_answer_is_of_two_stores(kind, place_of, tmp_path):
    model, places = Hashed(), [place_of(kind, name) for name in ("one", "two")]
    for number, place in enumerate(places):
        words = [f"document {row} of store {number}" for row in range(120)]
        source = make_store(tmp_path / f"source {number}", np.eye(120, 8, dtype=np.float32) + 1, OLD, words=words)
        reembed_store(open_store(source), model, Path(place) if kind == "folder" else place)
    questions = [f"question {number}" for number in range(20)]
    expected = [[best(place, model.one(question), model) for question in questions] for place in places]
    wrong, answered = [], [(False, False)]

    def ask(searcher, numbers):
        number = next(numbers) % len(questions)
        answer = searcher.search(questions[number])
        which = tuple(list(answer.ids) == answers[number] for answers in expected)
        answered.append(which)
        if sum(which) != 1:
            wrong.append((number, answer.untrue, answer.generation, answer.ids))

    with (
        LiveSearcher(places[0], model, limits=ALL, cache=tmp_path / "cache.sqlite") as searcher,
        asking(*(partial(ask, searcher, count(start)) for start in (0, 5, 10))) as failed,
    ):
        for _ in range(3):
            switch(places[0], places[1], unproven=True)
            wait_for(lambda: answered[-1] == (False, True))
            rollback(places[0])
            wait_for(lambda: answered[-1] == (True, False))
    assert not failed and not wrong, "each store answered alone"


def test_a_table_of_another_model_does_not_answer(location, source_folder, place_of, tmp_path):
    place = place_of("sqlite-vec", "others")
    translate(source_folder, Other(), place)
    query = Hashed().one("a question")
    with LiveSearcher(location, Hashed(), limits=ALL, cache=tmp_path / "cache.sqlite") as searcher:
        first = searcher.search(query).ids
        switch(location, place, unproven=True)
        with pytest.raises(StoreError, match=r"is of other, .* by hashed"):
            searcher.search(query)
        rollback(location)
        assert searcher.search(query).ids == first
