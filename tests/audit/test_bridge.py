"""The arm `bridge`, against a loop in numpy, and what it refuses."""

from dataclasses import replace

import numpy as np
import pytest
import topics
from ir_measures import calc_aggregate, nDCG
from topics import copy_store, make_store

import migrate
from migrate.audit.query_set import QuerySet
from migrate.audit.results import BRIDGE, FULL, STAY
from migrate.datasets.beir import load_beir
from migrate.embedders import load_embedder
from migrate.errors import StitchError
from migrate.manifest import ModelIdentity
from migrate.stores import open_store
from migrate.stores.base import read_all

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def questions(beir):
    data = load_beir(beir)
    return QuerySet(data.queries, data.qrels, data.name)


@pytest.fixture(scope="module")
def new_model(corpus):
    embedder = load_embedder("tfidf:48")
    embedder.fit(corpus.documents)
    return embedder


@pytest.fixture(scope="module")
def old_model(source_folder):
    return load_embedder("tfidf:32", state=source_folder)


@pytest.fixture(scope="module")
def reference(corpus, new_model, tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("full") / "reference", new_model, corpus.documents)


@pytest.fixture(scope="module")
def source(source_folder):
    return open_store(source_folder)


@pytest.fixture(scope="module")
def bridge(source, new_model):
    return migrate.fit(source, new_model, direction="query", sample=100)


@pytest.fixture(scope="module")
def audit(reference, questions, new_model):
    """Audits the reference's own vectors, or those of another, in another place: only the bridge is looked at."""

    def audit_copy(full=reference, embedder=new_model, **options):
        return topics.audit(copy_store(full), full, questions, embedder, **options)

    return audit_copy


@pytest.mark.parametrize("metric", ["ip", "l2"])
def test_it_is_the_brute_force_search_of_the_old_vectors(metric, audit, questions, corpus, new_model, tmp_path):
    rng = np.random.default_rng(2)
    old = rng.normal(size=(len(corpus.documents), 20)).astype(np.float32) * rng.uniform(1, 2, size=(150, 1))
    store = make_store(tmp_path / "old", None, corpus.documents, vectors=old.astype(np.float32), metric=metric)
    fitted = migrate.fit(store, new_model, direction="query", kind="ridge", sample=150)
    arm = audit(source=store, bridge=fitted).arm(BRIDGE)

    vectors = read_all(store.scan()).vectors.astype(float)
    asked = new_model.embed_queries(questions.queries).astype(float)
    mapped = asked @ fitted.stitch.matrix_.astype(float) + fitted.stitch.offset_
    mapped *= np.linalg.norm(vectors, axis=1).mean() / np.linalg.norm(mapped, axis=1, keepdims=True)
    run = {}
    for query, row in zip(questions.queries, mapped, strict=True):
        scores = vectors @ row if metric == "ip" else -np.square(vectors - row).sum(axis=1)
        run[query.id] = {d.id: float(s) for d, s in zip(corpus.documents, scores, strict=True)}
    assert arm.mean("nDCG@10") == pytest.approx(calc_aggregate([nDCG @ 10], questions.qrels, run)[nDCG @ 10])
    full = asked @ new_model.embed_documents(corpus.documents).astype(float).T
    ids = [d.id for d in corpus.documents]
    shares = [
        len({ids[i] for i in np.argsort(-row)[:10]} & set(sorted(run[q.id], key=run[q.id].get)[-10:])) / 10
        for q, row in zip(questions.queries, full, strict=True)
    ]
    assert arm.mean("overlap@10") == pytest.approx(np.mean(shares))


def test_a_bridge_from_the_same_model_is_as_good_as_staying(audit, source, old_model):
    fitted = migrate.fit(source, old_model, direction="query", sample=100)
    report = audit(copy_store(source), old_model, source=source, source_model=old_model, bridge=fitted)
    assert report.arm(STAY).mean("nDCG@10") > 0.3
    assert report.arm(BRIDGE).mean("nDCG@10") == pytest.approx(report.arm(STAY).mean("nDCG@10"), abs=1e-6)
    assert report.comparisons[BRIDGE].retention.estimate == pytest.approx(1, abs=1e-6)


def test_it_changes_no_other_arm_and_no_verdict(audit, source, old_model, bridge):
    options = {"source": source, "source_model": old_model}
    without, with_it = audit(**options), audit(bridge=bridge, **options)
    assert [arm.name for arm in with_it.arms] == [
        "full re-embed",
        "translated",
        "stay",
        "bridge",
        "hybrid",
        "hybrid, full",
        "BM25",
        "mean",
        "random",
        "together",
    ]
    assert with_it.verdict == without.verdict
    assert with_it.comparisons[STAY] == without.comparisons[STAY]
    report = audit(source=copy_store(source), bridge=bridge)
    words = ["hybrid", "hybrid, full", "BM25"]
    assert [arm.name for arm in report.arms] == ["full re-embed", "translated", "bridge", *words, "mean", "random"]
    assert 0.05 < report.arm(BRIDGE).mean("nDCG@10") <= report.arm(FULL).mean("nDCG@10")
    meaning = "the source store, queries embedded by the target model and mapped back by a stitch"
    assert report.arm(BRIDGE).meaning == meaning


@pytest.mark.parametrize(
    ("change", "accepted"),
    [
        ({}, True),
        ({"spec": "file:vectors.npz"}, True),
        ({"revision": None}, True),
        ({"query_prefix": "ask: "}, True),
        ({"spec": "openai:another"}, False),
        ({"revision": "0" * 64}, False),
        ({"spec": "file:vectors.npz", "dim": 47}, False),
    ],
)
def test_a_bridge_for_queries_of_another_model_is_refused(change, accepted, audit, source, new_model, bridge):
    model = ModelIdentity(**{**{n: getattr(new_model.identity, n) for n in ModelIdentity.__slots__}, **change})
    known = replace(bridge, manifest=replace(bridge.manifest, model=model))
    if accepted:
        assert audit(source=source, bridge=known).arm(BRIDGE)
        return
    with pytest.raises(StitchError, match=r"the bridge is for queries of .* not of tfidf:48"):
        audit(source=source, bridge=known)
