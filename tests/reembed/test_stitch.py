import dataclasses

import numpy as np
import pytest
from stores_tools import make_store

import migrate
from migrate.cost.count import count_texts
from migrate.embedders import load_embedder
from migrate.embedders.base import Embedder
from migrate.embedders.cache import CachedEmbedder
from migrate.errors import StitchError, UsageError
from migrate.steps.base import Announce, RunContext
from migrate.steps.translate import Translate
from migrate.steps.translate.refit import refit
from migrate.stitch.fitted import TrueVectors
from migrate.stitch.persistence import load_stitch
from migrate.stores import open_store
from migrate.stores.base import read_all
from migrate.vectors import Document

pytestmark = pytest.mark.slow


@pytest.fixture
def reembed(store, fitted, target, tmp_path):
    """Makes the stitch of a budget, saved in a folder of that name; nothing is translated."""

    def make(budget="60%", *, of=store, stitch=fitted, model=target, name="stitch", context=None, **options):
        step = Translate(
            of, stitch, tmp_path / "not written",
            target=model, reembed=budget, save_stitch=tmp_path / name, **{"policy": "random", **options},
        )  # fmt: skip
        return step.open(context).refit.execute()

    return make


def tokens_of(texts):
    """As the spending line counts them."""
    return count_texts((Document("d", text) for text in texts), load_embedder("tfidf:24").profile).tokens_read


def texts_by_id(store):
    return {document.id: document.text for document in store.documents()}


class Counting(Embedder):
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
def test_what_is_paid_for_is_true_in_the_translated_store(
    policy, log, store, fitted, target, corpus, reembed, tmp_path
):
    found = reembed(policy=policy, query_log=corpus.queries[:30] if log else ())
    done = migrate.translate(store, found, tmp_path / "new")
    assert done.n_true == 90
    new, truth = read_all(open_store(tmp_path / "new").scan()), target.embed_documents(list(store.documents()))
    same = (new.vectors == truth).all(axis=1)
    assert same.sum() == 90
    assert same[np.isin(new.ids, fitted.sample.ids)].all(), "and so is the sample"
    assert np.array_equal(np.load(tmp_path / "new" / "confidence.npy") == 1, same)


def test_the_stitch_learns_from_every_pair_that_was_paid_for(store, fitted, target, reembed):
    found = reembed()
    truth, old = target.embed_documents(list(store.documents())), read_all(store.scan())
    rest = ~np.isin(old.ids, found.sample.ids)

    def cosine(stitch):
        return (stitch.translate(old, source="test", patch=False).vectors * truth).sum(axis=1)[rest].mean()

    assert found.stitch.spec == fitted.stitch.spec
    assert cosine(found) > cosine(fitted) + 0.01
    assert found.manifest.counts == {"pairs": 90, "documents": 150}
    assert found.manifest.details["re-embedding"]["documents"] == 50


def test_the_same_call_takes_what_an_earlier_one_has_left(target, reembed, tmp_path):
    model = Counting(target)
    first, again = reembed(model=model), reembed(model=model)
    assert len(model.asked) == 50
    assert again.digest() == first.digest() == load_stitch(tmp_path / "stitch").digest()
    with pytest.raises(UsageError, match="stitch exists"):
        reembed("70%", model=model)
    assert len(model.asked) == 50


def test_a_killed_run_pays_for_nothing_twice_and_ends_with_the_same_bytes(target, reembed, tmp_path):
    model = Counting(target, batches=3)
    cached = CachedEmbedder(model, tmp_path / "cache.sqlite")
    with pytest.raises(KeyboardInterrupt):
        reembed(model=cached)
    assert not (tmp_path / "stitch").exists()
    model.batches = 10**9
    resumed, whole = reembed(model=cached), reembed(name="whole")
    assert sorted(model.asked) == sorted(set(model.asked)) and len(model.asked) == 50
    assert resumed.digest() == whole.digest()


def test_a_further_budget_goes_on_from_the_saved_stitch(target, reembed):
    first, model = reembed(policy="confidence", name="first"), Counting(target)
    second = reembed("100", stitch=first, model=model, policy="confidence", name="second")
    assert len(model.asked) == 10
    assert set(first.sample.ids) < set(second.sample.ids)


def test_the_plan_is_told_before_a_document_is_embedded(store, target, corpus, reembed):
    model, told = Counting(target), []
    context = RunContext(announce=Announce(choice=lambda plan, _: told.append((plan, model.asked[:]))))
    reembed("60", model=model, policy=None, query_log=corpus.queries[:5], price=10.0, context=context)
    ((plan, asked_before),) = told
    assert asked_before == [query.id for query in corpus.queries[:5]]
    texts, chosen = texts_by_id(store), model.asked[5:]
    assert plan.cost.documents == len(chosen) == plan.from_log == 20
    assert plan.cost.tokens == tokens_of(texts[one] for one in chosen)
    assert plan.cost.usd == pytest.approx(plan.cost.tokens * 10 / 1e6)


def test_a_budget_in_dollars_is_kept(store, fitted, reembed):
    texts = texts_by_id(store)
    limit = 1.5 * tokens_of(texts[one] for one in fitted.sample.ids) / 1e6
    found = reembed(f"${limit:.8f}", price=1.0)
    spent = tokens_of(texts[one] for one in found.sample.ids) / 1e6
    assert 0.9 * limit < spent <= limit


def test_another_model_or_another_store_is_refused_before_anything_is_embedded(store, fitted, reembed, tmp_path):
    other = load_embedder("tfidf:25")
    other.fit(store.documents())
    with pytest.raises(StitchError, match=r"another model: .*'tfidf:24', .*'tfidf:25'"):
        reembed(model=other)
    migrate.translate(store, fitted, tmp_path / "other")
    with pytest.raises(StitchError, match="fitted on another store"):
        reembed(of=open_store(tmp_path / "other"))


def test_a_copy_of_a_chosen_text_is_true_too_and_paid_for_once(store, target, reembed, tmp_path):
    """Every document stands in the store twice, under two ids."""
    batch, documents = read_all(store.scan()), list(store.documents())
    again = [dataclasses.replace(document, id=f"{document.id}-again") for document in documents]
    doubled = make_store(tmp_path / "doubled", [*documents, *again], np.tile(batch.vectors, (2, 1)))
    fitted = migrate.fit(doubled, target, kind="ridge", sample=40)
    model = Counting(target)
    found = reembed("100", of=doubled, stitch=fitted, model=model)
    assert len(model.asked) == 20, "the sample is 80 documents with copies"
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
        refit(store, fitted, few, rows)
