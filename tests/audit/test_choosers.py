"""Queries that chose documents to embed do not judge, wherever the vectors that they bought have travelled since."""

import hashlib
import shutil
import sqlite3
from dataclasses import replace

import numpy as np
import pytest
from topics import Topics, audit, make_store, pool

import migrate
from migrate.audit.bounds import Outcome
from migrate.audit.query_set import QuerySet, hold_out
from migrate.check import stamp_store
from migrate.embedders.cache import UNKNOWN_QUERY, CachedEmbedder, with_choosers
from migrate.errors import InconclusiveError, StoreError
from migrate.manifest import MANIFEST_NAME, Manifest
from migrate.selection.choosers import choosers_in, choosers_of_source, digests_of, is_chooser, look_for_the_chosen
from migrate.steps.reembed.fill import backfill_store
from migrate.stores import open_store
from migrate.vectors import Document, Query

pytestmark = pytest.mark.slow

COUNT, DIM, N_PAIRS, N_QUERIES = 2_000, 24, 60, 50


class Many(Topics):
    """A model of many topics, four documents to each of the first 50, one to each of the others."""

    def __init__(self):
        super().__init__(DIM, 0.2)
        self.centres = np.random.default_rng(5).normal(size=(COUNT, DIM))


TARGET = Many()
DOCUMENTS = [Document(f"d{row:04}", f"t{row if row >= 200 else row % 50} n{row} word{row % 9}") for row in range(COUNT)]
QUERIES = [Query(f"q{row}", f"t{row} n{9000 + row} word{row % 7}") for row in range(N_QUERIES)]
QRELS = {query.id: {f"d{row + 50 * part:04}": 1 for part in range(4)} for row, query in enumerate(QUERIES)}
QUESTIONS = QuerySet(QUERIES, QRELS, "topics")
CHOSE = "chose documents that have true vectors"
BARE = (MANIFEST_NAME, "confidence.npy", "sources.npy")


@pytest.fixture(scope="module")
def translated(tmp_path_factory):
    folder = tmp_path_factory.mktemp("translated")
    true = TARGET.embed_documents(DOCUMENTS)
    old = true + np.random.default_rng(6).normal(size=true.shape).astype(np.float32)
    source = make_store(folder / "source", documents=DOCUMENTS, vectors=old)
    cached = CachedEmbedder(TARGET, folder / "cache.sqlite")
    migrate.translate(source, migrate.fit(source, cached, kind="ridge", sample=N_PAIRS), folder / "translated")
    return folder


def judged(store, embedder, questions=QUESTIONS):
    return audit(store, pool(10), questions, embedder)


@pytest.fixture(scope="module")
def filled(translated):
    """The documented path: an audit by a pool, and a store that what it embedded is filled into."""
    shutil.copy(translated / "cache.sqlite", translated / "paid.sqlite")
    embedder = CachedEmbedder(TARGET, translated / "paid.sqlite")
    first = judged(open_store(translated / "translated"), embedder)
    assert first.verdict.outcome is not Outcome.SAFE and first.verdict.retention.estimate < 0.8
    done = backfill_store(open_store(translated / "translated"), embedder, translated / "filled")
    assert N_PAIRS < done.n_true < done.count and done.n_choosers == len({q.text for q in QUERIES})
    return translated / "filled", embedder


@pytest.fixture
def embedder(translated, tmp_path):
    shutil.copy(translated / "cache.sqlite", tmp_path / "cache.sqlite")
    return CachedEmbedder(TARGET, tmp_path / "cache.sqlite")


@pytest.fixture
def stranger(tmp_path):
    """The model with another cache, which knows nothing."""
    return CachedEmbedder(TARGET, tmp_path / "new.sqlite")


def fill(translated, embedder, tmp_path):
    done = backfill_store(open_store(translated / "translated"), embedder, tmp_path / "filled")
    return done, open_store(tmp_path / "filled")


def refuse(store, embedder):
    with pytest.raises(InconclusiveError, match=CHOSE):
        judged(store, embedder)


def doubt(store, embedder, because="true vectors of which nothing says who chose them"):
    report = judged(store, embedder)
    assert report.verdict.outcome is not Outcome.SAFE
    assert any(because in one for one in report.examination.doubts)
    return report


def test_a_pool_can_be_judged_again_by_the_queries_it_was_embedded_for(translated, filled):
    """Nothing that they chose is in the store."""
    again = judged(open_store(translated / "translated"), filled[1])
    assert again.verdict.retention.estimate < 0.8 and again.verdict.observations.queries == len(QUESTIONS.distinct)


SPELLINGS = {
    "other case and white space": lambda text: f"  {text.upper()}\n",
    "other punctuation": lambda text: f"“{text.rstrip('.')}”?!",
    "other characters for the same letters": lambda text: text.translate(
        {code: code + 0xFEE0 for code in range(0x61, 0x7B)}
    ),
    "invisible characters": lambda text: "\u200b".join(text),
    "hyphens for white space": lambda text: text.replace(" ", "-"),
}


@pytest.mark.parametrize("spelled", SPELLINGS.values(), ids=SPELLINGS)
def test_a_query_is_known_in_every_spelling(spelled):
    assert digests_of([Query("other", spelled(QUERIES[0].text))]) == digests_of(QUERIES[:1])


def test_the_queries_of_a_pool_do_not_judge_the_store_it_was_filled_into(filled):
    folder, embedder = filled
    with pytest.raises(InconclusiveError, match=CHOSE + ".*--hold-out"):
        judged(open_store(folder), embedder)


def bare_copy(folder, tmp_path, *gone):
    """A copy of the store without its manifest, and without what tells true vectors, or without these files."""
    copied = shutil.copytree(folder, tmp_path / "copied")
    for name in gone or BARE:
        (copied / name).unlink()
    return open_store(copied)


def rounded_copy(folder, tmp_path):
    """What a script of the user's own writes: vectors of two digits, no manifest."""
    store = open_store(folder)
    vectors = np.concatenate([batch.vectors.copy() for batch in store.scan()]).round(2)
    return make_store(tmp_path / "rounded", documents=list(store.documents()), vectors=vectors)


@pytest.mark.parametrize("gone", [(MANIFEST_NAME,), BARE], ids=["manifest", "all"])
def test_a_copy_without_its_manifest_is_known_by_its_vectors_whatever_a_stamp_says(gone, filled, stranger, tmp_path):
    """Where neither a manifest nor this cache says who chose them, it is not SAFE, though they flatter it so far."""
    copied = bare_copy(filled[0], tmp_path, *gone)
    refuse(copied, filled[1])
    assert doubt(copied, stranger).examination.held_out is None, "no query has anything else that is relevant"
    assert stamp_store(copied, filled[1], trust=True).path is not None
    refuse(open_store(copied.folder), filled[1])


def test_a_copy_that_rounds_is_known_too(filled, stranger, tmp_path):
    copied = rounded_copy(filled[0], tmp_path)
    refuse(copied, filled[1])
    assert any("nothing says who chose them" in doubt for doubt in judged(copied, stranger).examination.doubts)


@pytest.mark.parametrize("is_known", [True, False], ids=["same cache", "other cache"])
def test_a_second_round_from_a_copy_carries_the_choosers_on(is_known, filled, stranger, tmp_path):
    embedder = filled[1] if is_known else stranger
    source = bare_copy(filled[0], tmp_path)
    migrate.translate(source, migrate.fit(source, embedder, kind="ridge", sample=400), tmp_path / "second")
    second = open_store(tmp_path / "second")
    if is_known:
        refuse(second, embedder)
    else:
        doubt(second, embedder, "held true vectors of the new model already")


def test_a_forged_confidence_hides_no_choosers(filled, tmp_path):
    folder, embedder = filled
    copied = shutil.copytree(folder, tmp_path / "copied")
    np.save(copied / "confidence.npy", np.ones(COUNT, "<f4"))
    with pytest.raises(StoreError, match=r"confidence\.npy: its BLAKE3"):
        judged(open_store(copied), embedder)
    manifest = open_store(copied).info.manifest
    earlier = {name: value for name, value in manifest.details.items() if name != "beside_hashes"}
    replace(manifest, details=earlier).write(copied)
    refuse(open_store(copied), embedder)


def test_a_reference_that_is_built_for_an_audit_accounts_for_no_true_vectors(filled, stranger, tmp_path):
    """Then the cache has every vector, and nobody chose them; what the store had before is of unknown origin still."""
    copied = bare_copy(filled[0], tmp_path, MANIFEST_NAME)
    report = audit(copied, "build", QUESTIONS, stranger)
    assert report.verdict.outcome is not Outcome.SAFE
    assert any("true vectors of which nothing says who chose them" in doubt for doubt in report.examination.doubts)


def test_queries_that_are_held_out_judge_later(translated, embedder, tmp_path):
    first = hold_out(QUESTIONS, 0.5)
    assert abs(len(first.distinct) - len(QUESTIONS.distinct) / 2) <= 1
    assert "held out" in first.notes[-1] and set(first.qrels) == set(first.query_ids)
    judged(open_store(translated / "translated"), embedder, first)
    later = judged(fill(translated, embedder, tmp_path)[1], embedder)
    assert set(later.data.query_texts).isdisjoint(query.text for query in first.queries)
    assert len(later.data.query_texts) == len(QUESTIONS.distinct) - len(first.distinct)


def test_which_queries_are_held_out_depends_on_their_texts_alone_and_few_cannot_be_divided():
    turned = QuerySet([Query(f"n{q.id}", f" {q.text}!") for q in reversed(QUERIES)], None, "turned")
    mine, other = (hold_out(one, 0.4) for one in (QUESTIONS, turned))
    assert digests_of(mine.queries) == digests_of(other.queries)
    with pytest.raises(InconclusiveError, match="39 different queries are too few to hold 50% out"):
        hold_out(QuerySet(QUERIES[:39], None, "few"), 0.5)


def test_a_store_that_became_whole_was_chosen_by_nobody(filled, tmp_path):
    folder, embedder = filled
    store = open_store(folder)
    embedder.embed_documents(list(store.documents()))
    backfill_store(store, embedder, tmp_path / "whole")
    assert choosers_in(open_store(tmp_path / "whole"), embedder).queries == frozenset()


def test_what_chance_drew_from_the_cache_was_not_chosen(translated, filled, tmp_path):
    """A sample is drawn at random, whoever has had its texts embedded before."""
    source, embedder = open_store(translated / "source"), filled[1]
    migrate.translate(source, migrate.fit(source, embedder, kind="ridge", sample=400), tmp_path / "more")
    assert choosers_in(open_store(tmp_path / "more"), embedder).queries == frozenset()


def test_a_cache_of_the_version_before_says_nothing_of_who_chose(translated, embedder, tmp_path):
    judged(open_store(translated / "translated"), embedder)
    database = sqlite3.connect(embedder.path)
    for statement in ("DROP TABLE chosen", "DROP TABLE choosers", "PRAGMA user_version = 1"):
        database.execute(statement)
    database.commit()
    database.close()
    done, store = fill(translated, embedder, tmp_path)
    assert N_PAIRS < done.n_true < done.count and done.n_choosers == 0, "its vectors are still there"
    assert UNKNOWN_QUERY in store.info.manifest.chosen_by
    doubt(store, embedder)


@pytest.mark.parametrize(
    ("judges", "share", "are_choosers"),
    [(0.26, 0.1, True), (0.24, 0.1, False), (0.96, 0.9, True), (0.94, 0.9, False), (0, 0, False), (1, 1, False)],
)
def test_judges_may_be_choosers_that_find_true_vectors_more_often_than_is_usual(judges, share, are_choosers):
    assert look_for_the_chosen(judges, share) is are_choosers


def test_digests_of_the_version_before_are_known():
    """They kept punctuation, and characters that only look alike."""
    for key, is_known in (("how do i?", True), ("how do you?", False)):
        earlier = hashlib.sha256(key.encode()).hexdigest()[:16]
        assert is_chooser(Query("a", "How  do I?"), {earlier}) == is_known


def test_a_perfect_translation_is_not_taken_for_true_vectors(stranger, tmp_path):
    """A stitch from a model to itself gives nearly the vectors that the cache has; no query chose them."""
    documents = DOCUMENTS[:200]
    vectors = with_choosers(stranger, digests_of(QUERIES)).embed_documents(documents)
    noise = np.random.default_rng(7).normal(size=vectors.shape).astype(np.float32)
    known = Manifest("store", model=TARGET.identity, details={"index": "index.faiss"})
    for scale, chosen in ((1e-5, frozenset()), (0, digests_of(QUERIES))):
        moved = vectors + np.float32(scale) * noise
        store = make_store(tmp_path / str(scale), documents=documents, vectors=moved, manifest=known)
        assert choosers_in(store, stranger).queries == chosen


def test_rows_that_no_cache_explains_are_known_by_their_place(stranger, tmp_path):
    """Of a store without a manifest that is read in more than one batch."""
    documents = [Document(f"e{row:04}", f"t{row % COUNT} n{row}") for row in range(4_000)] * 2
    documents = [replace(document, id=f"{document.id}-{row}") for row, document in enumerate(documents)]
    vectors = np.random.default_rng(3).normal(size=(len(documents), DIM)).astype(np.float32)
    known = [3, 70, 5_000, 7_999]
    vectors[known] = with_choosers(stranger, digests_of(QUERIES[:2])).embed_documents([documents[row] for row in known])
    found = choosers_in(make_store(tmp_path / "bare", documents=documents, vectors=vectors), stranger)
    assert found.queries == digests_of(QUERIES[:2]) and np.flatnonzero(~found.unexplained).tolist() == known


def test_rows_that_are_said_to_be_true_are_accounted_for_and_others_are_looked_up(stranger, tmp_path):
    documents = DOCUMENTS[:200]
    vectors = with_choosers(stranger, digests_of(QUERIES)).embed_documents(documents)
    translated = vectors + np.random.default_rng(7).normal(size=vectors.shape).astype(np.float32)
    known = Manifest("store", model=TARGET.identity, details={"index": "index.faiss"})
    for n_equal, chosen in ((20, frozenset()), (21, digests_of(QUERIES))):
        moved = np.where(np.arange(200)[:, None] < n_equal, vectors, translated)
        store = make_store(tmp_path / str(n_equal), documents=documents, vectors=moved, manifest=known)
        np.save(store.folder / "confidence.npy", np.where(np.arange(200) < 20, 1, 0.5).astype("<f4"))
        assert choosers_in(open_store(store.folder), stranger).queries == chosen


def test_a_source_that_holds_some_vectors_of_the_target_was_filled_in_by_somebody(stranger, tmp_path):
    documents = DOCUMENTS[:200]
    new = TARGET.embed_documents(documents)
    old = new + np.random.default_rng(7).normal(size=new.shape).astype(np.float32)
    store = make_store(tmp_path / "source", documents=documents, vectors=old)
    for n_equal, is_filled_in in ((0, False), (2, False), (3, True), (197, True), (198, False), (200, False)):
        mixed = np.where(np.arange(200)[:, None] < n_equal, 2 * new, old)
        expected = {UNKNOWN_QUERY} if is_filled_in else set()
        assert choosers_of_source(store, stranger, mixed, new) == expected, n_equal
    for pair in ((mixed[:, :5], new), (old[:0], new[:0])):
        assert choosers_of_source(store, stranger, *pair) == set()


def test_what_a_service_embeds_through_the_cache_has_no_known_origin(translated, embedder, tmp_path):
    """Two-stage search of one's own embeds what queries find; the cache is not told which."""
    found = [document for document in DOCUMENTS if any(document.id in grades for grades in QRELS.values())]
    embedder.embed_documents([*found, *DOCUMENTS[500:1_200]])
    doubt(fill(translated, embedder, tmp_path)[1], embedder)


def test_documents_that_no_query_chose_need_no_other_judges(translated, embedder, tmp_path):
    migrate.fit(open_store(translated / "source"), embedder, kind="ridge", sample=700)  # at random
    report = judged(fill(translated, embedder, tmp_path)[1], embedder)
    assert report.verdict.observations.queries == N_QUERIES
    assert not any("who chose" in doubt for doubt in report.examination.doubts)


class Deaf(Many):
    """The same model, to which words around a question are nothing."""

    def _one(self, text, role):
        return super()._one(text.removeprefix("is it true that "), role)


@pytest.mark.parametrize("reworded", ["is it true that {}", "{} or not"])
def test_choosers_in_other_words_find_documents_that_all_have_true_vectors(reworded, filled):
    """Nobody knows them again, but all that they look for was embedded for them."""
    folder, embedder = filled
    asked = [Query(query.id, reworded.format(query.text)) for query in QUERIES]
    report = judged(open_store(folder), CachedEmbedder(Deaf(), embedder.path), QuerySet(asked, QRELS, "reworded"))
    assert report.verdict.outcome is not Outcome.SAFE
    assert any("relevant documents have true vectors" in doubt for doubt in report.examination.doubts)
