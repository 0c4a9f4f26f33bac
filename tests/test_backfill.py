from dataclasses import replace

import numpy as np
import pytest
from dying import interrupt_at
from topics import copy_store
from worker_tools import Hashed, Other

import migrate
from migrate.audit.query_set import QuerySet
from migrate.audit.step import Audit
from migrate.embedders.cache import CachedEmbedder, are_cached
from migrate.errors import StoreError, UsageError, VectorError
from migrate.steps.reembed.fill import backfill_store
from migrate.stores import open_store
from migrate.stores.base import read_all
from migrate.stores.confidence import read_confidence
from migrate.vectors import Document, Query


@pytest.fixture
def embedder(tmp_path):
    return CachedEmbedder(Hashed(), tmp_path / "cache.sqlite")


class BehindAnApi(Hashed):
    """A model that is known by its name alone, which may be another one's by now."""

    def __init__(self, drift):
        super().__init__()
        self.drift = drift

    @property
    def profile(self):
        return replace(super().profile, is_api=True)

    def one(self, text):
        return super().one(self.drift + text)


@pytest.fixture
def translated(source_folder, embedder, tmp_path):
    """150 documents, 40 of them with true vectors."""
    source = open_store(source_folder)
    fitted = migrate.fit(source, embedder, kind="ridge", sample=40)
    migrate.translate(source, fitted, tmp_path / "translated")
    return open_store(tmp_path / "translated")


def vectors_of(folder):
    return read_all(open_store(folder).scan())


def truth_of(documents):
    return np.array([Hashed().one(document.text) for document in documents])


def test_what_was_embedded_since_is_true_and_the_rest_stays(translated, embedder, tmp_path):
    documents = list(translated.documents())
    embedder.embed_documents(documents[100:130])
    asked = len(embedder.embedder.asked)
    done = backfill_store(translated, embedder, tmp_path / "new")
    assert len(embedder.embedder.asked) == asked, "nothing is embedded"
    new, old, truth = vectors_of(tmp_path / "new"), vectors_of(translated.folder), truth_of(documents)
    same = (new.vectors == truth).all(axis=1)
    assert list(new.ids) == list(old.ids)
    assert same[100:130].all() and (old.vectors == truth).all(axis=1)[same].sum() == 40
    assert np.array_equal(new.vectors[~same], old.vectors[~same])
    assert (done.n_before, done.n_true, done.n_left) == (40, same.sum(), 150 - same.sum())
    store = open_store(tmp_path / "new")
    assert list(store.documents()) == documents
    before, after = read_confidence(translated.folder, 150), read_confidence(store.folder, 150)
    assert ((after == 1) == same).all() and np.array_equal(after[~same], before[~same])
    assert store.info.manifest.counts == {"documents": 150, "true vectors": done.n_true}
    assert store.info.manifest.model == embedder.identity
    assert store.companions.verify(), "the manifest has the hash of the new index"


def test_an_audit_does_not_take_what_was_filled_in_for_the_sample(translated, embedder, tmp_path):
    embedder.embed_documents(list(translated.documents()))
    backfill_store(translated, embedder, tmp_path / "new")
    new = open_store(tmp_path / "new")
    questions = QuerySet([Query("q", "a query")], None, "x")
    report = Audit(new, copy_store(new), judged=questions, target=embedder).run()
    notes = report.audit.notes
    assert notes[0] == "150 of 150 vectors are true ones"
    assert notes[1].startswith("the confidence is not to be used"), "as it was before anything was filled in"


def test_a_store_without_confidence_gets_one_for_what_is_true(translated, embedder, tmp_path):
    (translated.folder / "confidence.npy").unlink()
    done = backfill_store(translated, embedder, tmp_path / "new")
    after = read_confidence(tmp_path / "new", 150)
    assert done.n_true == (after == 1).sum() == 40
    assert np.isnan(after).sum() == 110


def broken_off(translated, embedder, folder, monkeypatch):
    """A backfill that is interrupted when all is filled in."""
    with monkeypatch.context() as patch:
        interrupt_at("filled", patch)
        with pytest.raises(KeyboardInterrupt):
            backfill_store(translated, embedder, folder)


def test_a_killed_backfill_goes_on_and_ends_with_the_same_bytes(translated, embedder, tmp_path, digest, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    monkeypatch.setattr("migrate.embed.rewrite.batch_rows", lambda _: 32)
    embedder.embed_documents(list(translated.documents())[:70])
    backfill_store(translated, embedder, tmp_path / "whole")

    broken_off(translated, embedder, tmp_path / "new", monkeypatch)
    assert not (tmp_path / "new").exists() and (tmp_path / ".new.work").exists()
    backfill_store(translated, embedder, tmp_path / "new")
    assert digest(tmp_path / "new") == digest(tmp_path / "whole")


def test_a_cache_that_grew_since_a_run_was_killed_is_told(translated, embedder, tmp_path, monkeypatch):
    broken_off(translated, embedder, tmp_path / "new", monkeypatch)
    embedder.embed_documents(list(translated.documents()))
    with pytest.raises(UsageError, match=r"other values of known texts; .* `restart=True`"):
        backfill_store(translated, embedder, tmp_path / "new")
    assert backfill_store(translated, embedder, tmp_path / "new", restart=True).n_left == 0


def test_the_cache_of_another_model_is_refused(translated, tmp_path):
    other = CachedEmbedder(Other(), tmp_path / "cache.sqlite")
    with pytest.raises(StoreError, match=r"'hashed', .* named 'other'"):
        backfill_store(translated, other, tmp_path / "new")


def test_a_cache_of_the_model_as_it_is_now_is_refused_where_the_store_has_vectors_of_before(translated, tmp_path):
    documents = list(translated.documents())
    later, same = (CachedEmbedder(BehindAnApi(drift), tmp_path / f"{drift}.sqlite") for drift in ("later", ""))
    later.embed_documents(documents[:100])
    with pytest.raises(VectorError, match=r"true that hashed does not give .* changed"):
        backfill_store(translated, later, tmp_path / "new")
    assert not (tmp_path / "new").exists()
    same.embed_documents(documents[:100])
    assert backfill_store(translated, same, tmp_path / "new").n_true > 100


def test_a_store_that_does_not_say_its_model_is_refused(translated, embedder, tmp_path):
    (translated.folder / "lead-migrate.json").unlink()
    with pytest.raises(StoreError, match="does not name the model it was translated for"):
        backfill_store(open_store(translated.folder), embedder, tmp_path / "new")


def test_a_cached_vector_of_another_dimension_is_told(translated, tmp_path):
    class Shorter(Hashed):
        def embed(self, texts, role, *, progress=None):
            return super().embed(texts, role)[:, :7]

    shorter = CachedEmbedder(Shorter(), tmp_path / "other.sqlite")
    first = next(translated.documents())
    shorter.embed_documents([first])
    with pytest.raises(
        VectorError, match=rf"holds a vector of dimension 7 for document '{first.id}', but the store has 12"
    ):
        backfill_store(translated, shorter, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_half_a_surrogate_pair_is_in_no_cache(embedder):
    assert are_cached(embedder, [Document("x", "\ud800")], "document") == [False]
    assert embedder.find([Document("x", "\ud800")], "document") == {}
