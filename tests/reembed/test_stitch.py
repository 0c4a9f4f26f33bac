import dataclasses

import numpy as np
import pytest

import migrate
from migrate.cost.count import count_texts
from migrate.embedders import load_embedder
from migrate.embedders.base import Embedder
from migrate.embedders.cache import CachedEmbedder
from migrate.errors import StitchError, UsageError
from migrate.steps.translate import Translate
from migrate.steps.translate.refit import refit_same_kind
from migrate.steps.translate.stitch import Announce
from migrate.stitch.fitted import TrueVectors
from migrate.stitch.persistence import load_stitch
from migrate.stores import create_store, open_store
from migrate.stores.base import read_all
from migrate.vectors import Document

pytestmark = pytest.mark.slow


def wanted(budget="60%", **options):
    return {"reembed": budget, **options}


def reembedded_stitch(store, fitted, target, asked, folder, **options):
    """The stitch of a budget, saved in `folder`; nothing is translated."""
    new = folder.parent / "not written"
    return Translate(store, fitted, new, target=target, save_stitch=folder, **asked, **options).job.refit.execute()


def tokens_of(texts):
    """As the spending line counts them."""
    return count_texts((Document("d", text) for text in texts), load_embedder("tfidf:24").profile).tokens_read


class Counting(Embedder):
    """Counts what it is asked to embed; may fail after so many batches."""

    batch_size = 10

    def __init__(self, model, batches=10**9):
        self.model, self.batches, self.asked = model, batches, []

    @property
    def identity(self):
        return self.model.identity

    def embed(self, texts, role, *, progress=None):
        if self.batches == 0:
            raise KeyboardInterrupt
        self.batches -= 1
        self.asked += [text.id for text in texts]
        return self.model.embed(texts, role)


@pytest.mark.parametrize(("policy", "log"), [("query-log", True), ("confidence", False), ("random", False)])
def test_what_is_paid_for_is_true_in_the_translated_store(policy, log, store, fitted, target, corpus, tmp_path):
    asked = wanted("60%", policy=policy, query_log=corpus.queries[:30] if log else ())
    found = reembedded_stitch(store, fitted, target, asked, tmp_path / "stitch")
    done = migrate.translate(store, found, tmp_path / "new")
    assert done.n_true == 90
    new, truth = read_all(open_store(tmp_path / "new").scan()), target.embed_documents(list(store.documents()))
    same = (new.vectors == truth).all(axis=1)
    assert same.sum() == 90
    assert same[np.isin(new.ids, fitted.sample.ids)].all(), "and so is the sample"
    assert np.array_equal(np.load(tmp_path / "new" / "confidence.npy") == 1, same)


def test_the_stitch_learns_from_every_pair_that_was_paid_for(store, fitted, target, tmp_path):
    found = reembedded_stitch(store, fitted, target, wanted(policy="random"), tmp_path / "stitch")
    truth = target.embed_documents(list(store.documents()))
    old = read_all(store.scan())
    rest = ~np.isin(old.ids, found.sample.ids)

    def cosine(stitch):
        return (stitch.translate(old, source="test", patch=False).vectors * truth).sum(axis=1)[rest].mean()

    assert found.stitch.spec == fitted.stitch.spec
    assert cosine(found) > cosine(fitted) + 0.01
    assert found.manifest.counts == {"pairs": 90, "documents": 150}
    assert found.manifest.details["re-embedding"]["documents"] == 50


def test_the_quick_refit_is_the_same_map(store, fitted, target, tmp_path):
    found = reembedded_stitch(store, fitted, target, wanted(policy="random"), tmp_path / "stitch")
    rows = np.flatnonzero(np.isin(read_all(store.scan()).ids, found.sample.ids))
    quick = refit_same_kind(store, fitted, found.sample, rows)
    batch = next(iter(store.scan()))
    assert np.array_equal(quick.translate(batch, source="q").vectors, found.translate(batch, source="f").vectors)


def test_the_same_call_takes_what_an_earlier_one_has_left(store, fitted, target, tmp_path):
    model = Counting(target)
    first = reembedded_stitch(store, fitted, model, wanted(policy="random"), tmp_path / "stitch")
    again = reembedded_stitch(store, fitted, model, wanted(policy="random"), tmp_path / "stitch")
    assert len(model.asked) == 50
    assert again.digest() == first.digest() == load_stitch(tmp_path / "stitch").digest()
    with pytest.raises(UsageError, match="stitch exists"):
        reembedded_stitch(store, fitted, model, wanted("70%", policy="random"), tmp_path / "stitch")
    assert len(model.asked) == 50


def test_a_killed_run_pays_for_nothing_twice_and_ends_with_the_same_bytes(store, fitted, target, tmp_path):
    model = Counting(target, batches=3)
    cached = CachedEmbedder(model, tmp_path / "cache.sqlite")
    with pytest.raises(KeyboardInterrupt):
        reembedded_stitch(store, fitted, cached, wanted(policy="random"), tmp_path / "stitch")
    assert not (tmp_path / "stitch").exists()
    model.batches = 10**9
    resumed = reembedded_stitch(store, fitted, cached, wanted(policy="random"), tmp_path / "stitch")
    whole = reembedded_stitch(store, fitted, target, wanted(policy="random"), tmp_path / "whole")
    assert sorted(model.asked) == sorted(set(model.asked)) and len(model.asked) == 50
    assert resumed.digest() == whole.digest()


def test_a_further_budget_goes_on_from_the_saved_stitch(store, fitted, target, tmp_path):
    first = reembedded_stitch(store, fitted, target, wanted("60%", policy="confidence"), tmp_path / "first")
    model = Counting(target)
    second = reembedded_stitch(store, first, model, wanted("100", policy="confidence"), tmp_path / "second")
    assert len(model.asked) == 10
    assert set(first.sample.ids) < set(second.sample.ids)


def test_the_plan_is_told_before_a_document_is_embedded(store, fitted, target, corpus, tmp_path):
    model, told = Counting(target), []
    options = {"query_log": corpus.queries[:5], "price": 10.0}
    reembedded_stitch(
        store,
        fitted,
        model,
        wanted("60", **options),
        tmp_path / "s",
        announce=Announce(choice=lambda plan, _: told.append((plan, model.asked[:]))),
    )
    ((plan, asked_before),) = told
    assert asked_before == [query.id for query in corpus.queries[:5]]
    texts = {document.id: document.text for document in store.documents()}
    chosen = model.asked[5:]
    assert plan.cost.documents == len(chosen) == plan.from_log == 20
    assert plan.cost.tokens == tokens_of(texts[one] for one in chosen)
    assert plan.cost.usd == pytest.approx(plan.cost.tokens * 10 / 1e6)


def test_a_budget_in_dollars_is_kept(store, fitted, target, tmp_path):
    texts = {document.id: document.text for document in store.documents()}
    paid = tokens_of(texts[one] for one in fitted.sample.ids)
    limit = 1.5 * paid / 1e6
    asked = wanted(f"${limit:.8f}", policy="random", price=1.0)
    found = reembedded_stitch(store, fitted, target, asked, tmp_path / "stitch")
    spent = tokens_of(texts[one] for one in found.sample.ids) / 1e6
    assert 0.9 * limit < spent <= limit


def test_another_model_or_another_store_is_refused_before_anything_is_embedded(store, fitted, tmp_path, target):
    other = load_embedder("tfidf:25")
    other.fit(store.documents())
    with pytest.raises(StitchError, match=r"another model: .*'tfidf:24', for the model as named 'tfidf:25'"):
        reembedded_stitch(store, fitted, other, wanted(policy="random"), tmp_path / "s")
    migrate.translate(store, fitted, tmp_path / "other")
    with pytest.raises(StitchError, match="fitted on another store"):
        reembedded_stitch(open_store(tmp_path / "other"), fitted, target, wanted(policy="random"), tmp_path / "s")


def test_a_copy_of_a_chosen_text_is_true_too_and_paid_for_once(store, tmp_path, target):
    """Every document stands in the store twice, under two ids."""
    batch, documents = read_all(store.scan()), list(store.documents())
    (tmp_path / "doubled").mkdir()
    writer = create_store(tmp_path / "doubled", format="faiss", dim=32)
    for suffix in ("", "-again"):
        named = [dataclasses.replace(document, id=document.id + suffix) for document in documents]
        writer.append(named, batch.vectors)
    writer.finish()
    doubled = open_store(tmp_path / "doubled")
    fitted = migrate.fit(doubled, target, stitch="ridge", sample=40)
    model = Counting(target)
    found = reembedded_stitch(doubled, fitted, model, wanted("100", policy="random"), tmp_path / "stitch")
    assert len(model.asked) == 20, "the 40 of the sample are 80 documents with their copies"
    done = migrate.translate(doubled, found, tmp_path / "new")
    assert done.n_true == 120
    vectors = read_all(open_store(tmp_path / "new").scan()).vectors
    truth = np.tile(target.embed_documents(documents), (2, 1))
    assert (vectors == truth).all(axis=1).sum() == 120
    assert len(found.sample.ids) == 60, "pairs of which the stitch has learned"


def test_a_row_without_its_true_vector_is_told(store, fitted):
    few = TrueVectors(fitted.sample.ids[1:], fitted.sample.vectors[1:])
    rows = np.flatnonzero(np.isin(read_all(store.scan()).ids, fitted.sample.ids))
    with pytest.raises(StitchError, match=f"the stitch lacks the true vector of '{fitted.sample.ids[0]}'"):
        refit_same_kind(store, fitted, few, rows)


def test_a_refit_leans_on_the_prior_that_the_fit_might_lean_on(store, target, tmp_path):
    prior = migrate.fit(store, load_embedder("tfidf:24"), stitch="ridge", sample=140, seed=1)
    migrate.fit(store, target, stitch="ridge", sample=20, prior=prior).save(tmp_path / "stitch")
    loaded = load_stitch(tmp_path / "stitch")
    found = reembedded_stitch(store, loaded, target, wanted("30%", policy="random"), tmp_path / "again")
    assert found.manifest.stitch.kind_facts["share of prior"] > 0
    np.testing.assert_array_equal(found.prior.matrix, loaded.prior.matrix)


def test_a_refit_reads_the_first_tokens_that_the_fit_read(store, target, tmp_path):
    migrate.fit(store, target, stitch="prefix+text", sample=40, prefix=30).save(tmp_path / "stitch")
    loaded = load_stitch(tmp_path / "stitch")
    found = reembedded_stitch(store, loaded, target, wanted("50%", policy="random"), tmp_path / "again")
    assert found.stitch.spec == "prefix+text" and found.first_tokens == 30
    assert migrate.translate(store, found, tmp_path / "new").n_true == 75


def test_a_budget_that_is_tried_leans_on_the_prior_too(store, target):
    prior = migrate.fit(store, load_embedder("tfidf:24"), stitch="ridge", sample=140, seed=1)
    fitted = migrate.fit(store, target, stitch="ridge", sample=20, prior=prior)
    ids = [store.get(np.array([row])).ids[0] for row in range(30)]
    known = TrueVectors(ids, target.embed_documents(list(store.documents(np.arange(30)))))
    with_prior, without = (
        refit_same_kind(store, one, known, np.arange(30)) for one in (fitted, dataclasses.replace(fitted, prior=None))
    )
    assert with_prior.stitch.facts()["share of prior"] > 0
    assert "share of prior" not in without.stitch.facts()
