"""What a plan embeds beside a full re-embed: counted before either is begun, a local model timed on a few texts."""

import re

import pytest

from migrate.cost.deal import Deal, weigh
from migrate.cost.estimate import Estimate
from migrate.cost.meter import SpendingCap
from migrate.cost.spending import PlannedModel
from migrate.embedders import load_embedder
from migrate.embedders.cache import CachedEmbedder, are_cached
from migrate.stores import open_store


@pytest.fixture
def store(source_folder):
    return open_store(source_folder)


def numbers_of(sentence):
    return re.findall(r"\d[\d,]*", sentence)


def bill(documents, usd, minutes):
    return Estimate(documents, usd=usd, minutes=minutes)


def planned(store, embedder, count):
    return PlannedModel(embedder, SpendingCap(), documents=lambda: list(store.documents())[:count])


def test_a_local_model_is_timed_on_texts_that_the_cache_keeps(store, tmp_path):
    embedder = CachedEmbedder(load_embedder("tfidf:32"), tmp_path / "cache.sqlite")
    embedder.fit(store.documents())
    deal = weigh(planned(store, embedder, 60), store)
    assert (deal.count, deal.plan.documents, deal.full.documents) == (150, 60, 150)
    assert deal.full.minutes == pytest.approx(150 / deal.documents_per_s / 60)
    assert deal.plan.minutes < deal.full.minutes
    documents = list(store.documents())
    assert 0 < are_cached(embedder, documents, "document").count(True) <= 40
    embedder.embed_documents(documents)
    paid = weigh(planned(store, embedder, 60), store)
    assert (paid.plan.documents, paid.full.documents, paid.documents_per_s) == (0, 0, None)


@pytest.mark.parametrize(
    ("plan", "full", "better"),
    [
        (bill(100, None, 10.0), bill(1_000, None, 100.0), "the audit"),
        (bill(500, None, 50.0), bill(1_000, None, 100.0), "the full re-embed"),
        (bill(10, None, 0.6), bill(1_000, None, 60.0), "the full re-embed"),
        (bill(10, 0.01, None), bill(1_000, 1.0, None), "the full re-embed"),
        (bill(10, 0.02, None), bill(1_000, 2.0, None), "the audit"),
        (bill(10, None, None), bill(1_000, None, None), "the audit"),
    ],
)
def test_the_better_deal_is_what_costs_little_and_proves_more(plan, full, better):
    assert Deal(1_000, plan, full).sentence("the audit").endswith(f"the better deal is {better}")


def test_a_plan_without_a_proof_is_weighed_with_one(store, tmp_path):
    embedder = CachedEmbedder(load_embedder("tfidf:32"), tmp_path / "cache.sqlite")
    deal = weigh(planned(store, embedder, 60), store, is_proven=False)
    assert deal.proof == 90, "no more than there are"
    sentence = Deal(12_000, bill(1_000, None, None), bill(12_000, None, None), proof=4_000).sentence("the fit")
    assert numbers_of(sentence) == ["1,000", "12,000", "200", "4,000", "12,000"]
    assert sentence.endswith("better deal is the fit")
    assert Deal(10_000, bill(1_000, None, None), bill(10_000, None, None), proof=4_000).full_is_better


def test_both_bills_are_said():
    sentence = Deal(3_000, bill(2_453, None, 3.0), bill(3_000, None, 4.0)).sentence("the audit")
    assert numbers_of(sentence) == ["2,453", "3,000", "3", "3,000", "4"]
    assert sentence.endswith("better deal is the full re-embed")
