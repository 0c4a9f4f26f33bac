"""Queries that chose documents to embed do not judge, wherever the vectors that they bought have travelled since."""

import hashlib
import json
import shutil
import sqlite3
from dataclasses import replace

import numpy as np
import pytest
from topics import Topics, audit, make_store, pool

import migrate
from migrate.audit.query_set import QuerySet, hold_out
from migrate.audit.verdict import Outcome
from migrate.check import stamp_store
from migrate.embedders.base import UNKNOWN_QUERY
from migrate.embedders.cache import CachedEmbedder
from migrate.errors import InconclusiveError, StoreError
from migrate.manifest import MANIFEST_NAME, Manifest
from migrate.selection.choosers import choosers_in, digests_of, is_chooser
from migrate.steps.reembed.fill import backfill_store
from migrate.stores import open_store
from migrate.vectors import Document, Query

pytestmark = pytest.mark.slow

COUNT, DIM, N_PAIRS, N_QUERIES = 4_000, 24, 60, 50


class Many(Topics):
    """A model of many topics, four documents to each of the first 50, one to each of the others."""

    def __init__(self):
        super().__init__(DIM, 0.2)
        self.centres = np.random.default_rng(5).normal(size=(COUNT, DIM))


TARGET = Many()
DOCUMENTS = [Document(f"d{row:04}", f"t{row if row >= 200 else row % 50} n{row} word{row % 9}") for row in range(COUNT)]
QUERIES = [Query(f"q{row}", f"t{row} n{9000 + row} word{row % 7}") for row in range(N_QUERIES)]
QRELS = {query.id: {f"d{row + 50 * part:04}": 1 for part in range(4)} for row, query in enumerate(QUERIES)}


@pytest.fixture(scope="module")
def questions():
    return QuerySet(QUERIES, QRELS, "topics")


@pytest.fixture(scope="module")
def model():
    return TARGET


@pytest.fixture(scope="module")
def translated(model, tmp_path_factory):
    """A translation of few pairs, which loses much."""
    folder = tmp_path_factory.mktemp("translated")
    true = model.embed_documents(DOCUMENTS)
    old = true + np.random.default_rng(6).normal(size=true.shape).astype(np.float32)
    source = make_store(folder / "source", documents=DOCUMENTS, vectors=old)
    cached = CachedEmbedder(model, folder / "cache.sqlite")
    migrate.translate(source, migrate.fit(source, cached, stitch="ridge", sample=N_PAIRS), folder / "translated")
    return folder


def judged(store, embedder, questions):
    return audit(store, pool(10), questions, embedder, no_bm25=True, resamples=1_000)


@pytest.fixture(scope="module")
def filled(translated, model, questions):
    """The documented path: an audit by a pool, and a store that what it embedded is filled into."""
    shutil.copy(translated / "cache.sqlite", translated / "paid.sqlite")
    embedder = CachedEmbedder(model, translated / "paid.sqlite")
    first = judged(open_store(translated / "translated"), embedder, questions)
    assert first.verdict.outcome is not Outcome.SAFE and first.verdict.retention.estimate < 0.8
    done = backfill_store(open_store(translated / "translated"), embedder, translated / "filled")
    assert N_PAIRS < done.n_true < done.count and done.n_choosers == len({q.text for q in questions.queries})
    return translated / "filled", embedder


def test_a_pool_can_be_judged_again_by_the_queries_it_was_embedded_for(translated, filled, questions):
    """Nothing that they chose is in the store."""
    _, embedder = filled
    again = judged(open_store(translated / "translated"), embedder, questions)
    assert again.verdict.retention.estimate < 0.8 and again.verdict.n_queries == len(questions.distinct)


SPELLINGS = {
    "as it was": lambda text: text,
    "other case and white space": lambda text: f"  {text.upper()}\n",
    "other punctuation": lambda text: f"“{text.rstrip('.')}”?!",
    "other characters for the same letters": lambda text: text.translate(
        {code: code + 0xFEE0 for code in range(0x61, 0x7B)}
    ),
    "invisible characters": lambda text: "\u200b".join(text),
    "hyphens for white space": lambda text: text.replace(" ", "-"),
}


@pytest.mark.parametrize("spelled", SPELLINGS.values(), ids=SPELLINGS)
def test_the_queries_of_a_pool_do_not_judge_the_store_it_was_filled_into(spelled, filled, questions):
    folder, embedder = filled
    asked = [Query(query.id, spelled(query.text)) for query in questions.queries]
    with pytest.raises(InconclusiveError, match=r"chose documents that have true vectors.*--hold-out"):
        judged(open_store(folder), embedder, QuerySet(asked, questions.qrels, "spelled"))


def bare_copy(folder, tmp_path, *gone):
    copied = shutil.copytree(folder, tmp_path / "copied")
    for name in gone:
        (copied / name).unlink()
    return open_store(copied)


@pytest.mark.parametrize(
    "gone", [(MANIFEST_NAME,), (MANIFEST_NAME, "confidence.npy", "sources.npy")], ids=["manifest", "all"]
)
def test_a_copy_without_its_manifest_is_known_by_its_vectors(gone, filled, questions, tmp_path):
    folder, embedder = filled
    with pytest.raises(InconclusiveError, match="chose documents that have true vectors"):
        judged(bare_copy(folder, tmp_path, *gone), embedder, questions)


@pytest.mark.parametrize("keeps_confidence", [True, False])
def test_true_vectors_that_nothing_accounts_for_do_not_make_a_store_safe(
    keeps_confidence, filled, model, questions, tmp_path
):
    """Neither a manifest nor this cache says who chose them; what they flatter would be SAFE."""
    folder, _ = filled
    gone = (MANIFEST_NAME,) if keeps_confidence else (MANIFEST_NAME, "confidence.npy", "sources.npy")
    report = judged(bare_copy(folder, tmp_path, *gone), CachedEmbedder(model, tmp_path / "new.sqlite"), questions)
    assert report.verdict.outcome is not Outcome.SAFE
    assert any("true vectors of which nothing says who chose them" in doubt for doubt in report.doubts)
    assert report.held_out is None, "no query has anything else that is relevant"


def test_a_forged_confidence_hides_no_choosers(filled, questions, tmp_path):
    folder, embedder = filled
    copied = shutil.copytree(folder, tmp_path / "copied")
    np.save(copied / "confidence.npy", np.ones(COUNT, "<f4"))
    with pytest.raises(StoreError, match=r"confidence.npy: its SHA-256 .* of the manifest.*damaged or replaced"):
        judged(open_store(copied), embedder, questions)
    manifest = open_store(copied).info.manifest
    earlier = {name: value for name, value in manifest.details.items() if name != "beside_sha256"}
    replace(manifest, details=earlier).write(copied)
    with pytest.raises(InconclusiveError, match="chose documents that have true vectors"):
        judged(open_store(copied), embedder, questions)


def test_a_reference_that_is_built_for_an_audit_accounts_for_no_true_vectors(filled, model, questions, tmp_path):
    """Then the cache has every vector, and nobody chose them; what the store had before is of unknown origin still."""
    copied = bare_copy(filled[0], tmp_path, MANIFEST_NAME)
    embedder = CachedEmbedder(model, tmp_path / "new.sqlite")
    report = audit(copied, "build", questions, embedder, no_bm25=True, resamples=1_000)
    assert report.verdict.outcome is not Outcome.SAFE
    assert any("true vectors of which nothing says who chose them" in doubt for doubt in report.doubts)


def test_queries_that_are_held_out_judge_later(translated, model, questions, tmp_path):
    shutil.copy(translated / "cache.sqlite", tmp_path / "cache.sqlite")
    embedder = CachedEmbedder(model, tmp_path / "cache.sqlite")
    first = hold_out(questions, 0.5)
    assert abs(len(first.distinct) - len(questions.distinct) / 2) <= 1
    assert "held out" in first.notes[-1] and set(first.qrels) == set(first.query_ids)
    judged(open_store(translated / "translated"), embedder, first)
    backfill_store(open_store(translated / "translated"), embedder, tmp_path / "filled")
    later = judged(open_store(tmp_path / "filled"), embedder, questions)
    chose = {query.text for query in first.queries}
    assert set(later.query_texts).isdisjoint(chose)
    assert len(later.query_texts) == len(questions.distinct) - len(first.distinct)


def test_which_queries_are_held_out_depends_on_their_texts_alone(questions):
    turned = QuerySet([Query(f"n{q.id}", f" {q.text}!") for q in reversed(questions.queries)], None, "turned")
    mine, other = (hold_out(one, 0.4) for one in (questions, turned))
    assert digests_of(mine.queries) == digests_of(other.queries)


def test_too_few_queries_cannot_be_divided(questions):
    few = QuerySet(questions.queries[:39], None, "few")
    with pytest.raises(InconclusiveError, match="39 different queries are too few to hold 50% out"):
        hold_out(few, 0.5)


def test_a_store_that_became_whole_was_chosen_by_nobody(filled, tmp_path):
    folder, embedder = filled
    store = open_store(folder)
    embedder.embed_documents(list(store.documents()))
    backfill_store(store, embedder, tmp_path / "whole")
    assert choosers_in(open_store(tmp_path / "whole"), embedder).queries == frozenset()


def test_what_chance_drew_from_the_cache_was_not_chosen(translated, filled, tmp_path):
    """A sample is drawn at random, whoever has had its texts embedded before."""
    _, embedder = filled
    source = open_store(translated / "source")
    migrate.translate(source, migrate.fit(source, embedder, stitch="ridge", sample=400), tmp_path / "more")
    assert choosers_in(open_store(tmp_path / "more"), embedder).queries == frozenset()


def test_a_cache_of_the_version_before_says_nothing_of_who_chose(translated, model, questions, tmp_path):
    shutil.copy(translated / "cache.sqlite", tmp_path / "old.sqlite")
    old = CachedEmbedder(model, tmp_path / "old.sqlite")
    judged(open_store(translated / "translated"), old, questions)
    database = sqlite3.connect(old.path)
    for statement in ("DROP TABLE chosen", "DROP TABLE choosers", "PRAGMA user_version = 1"):
        database.execute(statement)
    database.commit()
    database.close()
    done = backfill_store(open_store(translated / "translated"), old, tmp_path / "filled")
    assert N_PAIRS < done.n_true < done.count and done.n_choosers == 0, "its vectors are still there"
    assert UNKNOWN_QUERY in open_store(tmp_path / "filled").info.manifest.chosen_by
    report = judged(open_store(tmp_path / "filled"), old, questions)
    assert report.verdict.outcome is not Outcome.SAFE
    assert any("nothing says who chose them" in doubt for doubt in report.doubts)


def test_digests_of_the_version_before_are_known():
    """They kept punctuation, and characters that only look alike."""

    def digest(key):
        return hashlib.sha256(key.encode()).hexdigest()[:16]

    assert is_chooser(Query("a", "How  do I?"), {digest("how do i?")})
    assert not is_chooser(Query("a", "How  do I?"), {digest("how do you?")})


def test_a_perfect_translation_is_not_taken_for_true_vectors(model, questions, tmp_path):
    """A stitch from a model to itself gives nearly the vectors that the cache has; no query chose them."""
    embedder = CachedEmbedder(model, tmp_path / "cache.sqlite")
    documents = DOCUMENTS[:200]
    vectors = embedder.chosen_by(digests_of(questions.queries)).embed_documents(documents)
    noise = np.random.default_rng(7).normal(size=vectors.shape).astype(np.float32)
    told = Manifest("store", model=model.identity, details={"index": "index.faiss"})
    off = vectors + np.float32(1e-5) * noise
    near = make_store(tmp_path / "near", documents=documents, vectors=off, manifest=told)
    assert choosers_in(near, embedder).queries == frozenset()
    same = make_store(tmp_path / "same", documents=documents, vectors=vectors, manifest=told)
    assert choosers_in(same, embedder).queries == digests_of(questions.queries)


def test_the_json_of_a_manifest_has_no_query_in_it(filled, questions):
    folder, _ = filled
    told = json.loads((folder / MANIFEST_NAME).read_text())["details"]["chosen by queries"]
    assert set(told) == digests_of(questions.queries)


def test_what_a_service_embeds_through_the_cache_has_no_known_origin(translated, model, questions, tmp_path):
    """Two-stage search of one's own embeds what queries find; the cache is not told which."""
    shutil.copy(translated / "cache.sqlite", tmp_path / "cache.sqlite")
    embedder = CachedEmbedder(model, tmp_path / "cache.sqlite")
    found = [document for document in DOCUMENTS if any(document.id in grades for grades in QRELS.values())]
    embedder.embed_documents([*found, *DOCUMENTS[500:1_500]])
    backfill_store(open_store(translated / "translated"), embedder, tmp_path / "filled")
    report = judged(open_store(tmp_path / "filled"), embedder, questions)
    assert report.verdict.outcome is not Outcome.SAFE
    assert any("nothing says who chose them" in doubt for doubt in report.doubts)


def test_documents_that_no_query_chose_need_no_other_judges(translated, model, questions, tmp_path):
    shutil.copy(translated / "cache.sqlite", tmp_path / "cache.sqlite")
    embedder = CachedEmbedder(model, tmp_path / "cache.sqlite")
    source = open_store(translated / "source")
    migrate.fit(source, embedder, stitch="ridge", sample=1_000)  # at random
    backfill_store(open_store(translated / "translated"), embedder, tmp_path / "filled")
    report = judged(open_store(tmp_path / "filled"), embedder, questions)
    assert report.verdict.n_queries == N_QUERIES and not any("who chose" in doubt for doubt in report.doubts)


@pytest.mark.parametrize("reworded", [lambda text: f"is it true that {text}", lambda text: f"{text} or not"])
def test_choosers_in_other_words_find_documents_that_all_have_true_vectors(reworded, filled, questions):
    """Nobody knows them again, but all that they look for was embedded for them."""

    class Deaf(Many):
        def _one(self, text, role):
            return super()._one(text.removeprefix("is it true that "), role)

    folder, embedder = filled
    asked = [Query(query.id, reworded(query.text)) for query in questions.queries]
    deaf = CachedEmbedder(Deaf(), embedder.path)
    report = judged(open_store(folder), deaf, QuerySet(asked, questions.qrels, "reworded"))
    assert report.verdict.outcome is not Outcome.SAFE
    assert any("relevant documents have true vectors" in doubt for doubt in report.doubts)


def rounded_copy(folder, tmp_path, digits):
    """What a script of the user's own writes: vectors of three digits, no manifest."""
    store = open_store(folder)
    vectors = np.concatenate([batch.vectors.copy() for batch in store.scan()]).round(digits)
    return make_store(tmp_path / "rounded", documents=list(store.documents()), vectors=vectors)


@pytest.mark.parametrize("is_known", [True, False], ids=["same cache", "other cache"])
def test_a_copy_that_rounds_is_known_too(is_known, filled, model, questions, tmp_path):
    folder, embedder = filled
    copied = rounded_copy(folder, tmp_path, 2)
    if is_known:
        with pytest.raises(InconclusiveError, match="chose documents that have true vectors"):
            judged(copied, embedder, questions)
        return
    report = judged(copied, CachedEmbedder(model, tmp_path / "new.sqlite"), questions)
    assert any("nothing says who chose them" in doubt for doubt in report.doubts)


def test_a_stamp_says_nothing_of_who_chose(filled, questions, tmp_path):
    folder, embedder = filled
    copied = bare_copy(folder, tmp_path, MANIFEST_NAME, "confidence.npy", "sources.npy")
    assert stamp_store(copied, embedder, trust=True).path is not None
    with pytest.raises(InconclusiveError, match="chose documents that have true vectors"):
        judged(open_store(copied.folder), embedder, questions)


@pytest.mark.parametrize("is_known", [True, False], ids=["same cache", "other cache"])
def test_a_second_round_from_a_copy_carries_the_choosers_on(is_known, filled, model, questions, tmp_path):
    folder, embedder = filled
    embedder = embedder if is_known else CachedEmbedder(model, tmp_path / "new.sqlite")
    source = bare_copy(folder, tmp_path, MANIFEST_NAME, "confidence.npy", "sources.npy")
    migrate.translate(source, migrate.fit(source, embedder, stitch="ridge", sample=400), tmp_path / "second")
    second = open_store(tmp_path / "second")
    if is_known:
        with pytest.raises(InconclusiveError, match="chose documents that have true vectors"):
            judged(second, embedder, questions)
        return
    report = judged(second, embedder, questions)
    assert report.verdict.outcome is not Outcome.SAFE
    assert any("held true vectors of the new model already" in doubt for doubt in report.doubts)
