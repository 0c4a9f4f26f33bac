import json
import re
import shutil
from dataclasses import replace

import faiss
import numpy as np
import pytest

import migrate
from migrate.datasets.stdlib import stdlib_beir
from migrate.embed import embed_corpus
from migrate.embedders import load_embedder
from migrate.errors import StitchError, StoreError, UsageError, VectorError
from migrate.manifest import Manifest
from migrate.selection import Pairs, random_order
from migrate.steps.fit import Fit
from migrate.steps.fit.job import fit_pairs, fit_query_pairs, fit_reader
from migrate.stitch.base import Pairing
from migrate.stitch.persistence import load_stitch
from migrate.stitch.registry import new_stitch
from migrate.stitch.select import AUTO_CANDIDATES, tune
from migrate.stitch.text_reader import TextReader
from migrate.stores import create_store, open_store
from migrate.stores.base import read_all
from migrate.vectors import Batch, Document


@pytest.fixture
def store(source_folder):
    return open_store(source_folder)


def test_the_stitch_remembers_models_sample_and_store(store, tmp_path):
    fitted = migrate.fit(store, load_embedder("tfidf:24"), sample=60, seed=5)
    fitted.save(tmp_path / "stitch")
    loaded = load_stitch(tmp_path / "stitch")
    assert loaded.manifest.model.spec == "tfidf:24"
    assert loaded.manifest.source_model.spec == "tfidf:32"
    assert loaded.manifest.seed == 5
    assert loaded.manifest.counts == {"pairs": 60, "documents": 150}
    assert len(loaded.sample.ids) == 60
    assert loaded.manifest.details["fingerprint"]["rows_sha256"] == store.snapshot().rows_sha256


def test_a_fitted_target_model_embeds_queries_the_same_way_later(store, corpus, tmp_path):
    embedder = load_embedder("tfidf:24")
    migrate.fit(store, embedder, sample=60).save(tmp_path / "stitch")
    later = load_embedder("tfidf:24", state=tmp_path / "stitch")
    assert np.array_equal(later.embed_queries(corpus.queries), embedder.embed_queries(corpus.queries))


def test_the_whole_fit_is_deterministic(store, tmp_path, digest, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    for name in ("a", "b"):
        migrate.fit(store, load_embedder("tfidf:24"), stitch="ridge", sample=60).save(tmp_path / name)
    first, second = digest(tmp_path / "a"), digest(tmp_path / "b")
    timed = "lead-migrate.json"  # it tells how long the candidates took
    assert {k: v for k, v in first.items() if k != timed} == {k: v for k, v in second.items() if k != timed}


@pytest.mark.parametrize("direction", ["document", "query"])
def test_the_order_of_the_rows_changes_nothing_that_is_fitted(direction):
    rng = np.random.default_rng(3)
    old = rng.normal(size=(120, 10)).astype(np.float32)
    new = (old @ rng.normal(size=(10, 8)) + 2 * rng.normal(size=(120, 8))).astype(np.float32)
    ids, rows = np.array([f"d{row}" for row in range(120)]), rng.permutation(120)
    fitted = [
        {"document": fit_pairs, "query": fit_query_pairs}[direction](
            Pairs(tuple(ids[order].tolist()), old[order], new[order]),
            (),
            manifest=Manifest("stitch"),
            state={},
            seed=1,
        )
        for order in (np.arange(120), rows)
    ]
    first, second = ({one.stitch: one.scores for one in each.selection.candidates} for each in fitted)
    assert first == second
    assert fitted[0].selection.chosen == fitted[1].selection.chosen
    np.testing.assert_array_equal(*(one.stitch.transform(new if direction == "query" else old) for one in fitted))


def test_a_stitch_that_is_asked_for_is_taken(store):
    fitted = migrate.fit(store, load_embedder("tfidf:24"), stitch="lowrank:5", sample=60)
    assert fitted.stitch.spec == "lowrank:5"
    assert fitted.stitch.arrays()["down"].shape == (32, 5)


def test_a_wrong_stitch_is_told_before_anything_is_embedded(store):
    embedder = load_embedder("file:/nowhere.npz")
    with pytest.raises(UsageError, match="unknown stitch 'rigde'"):
        migrate.fit(store, embedder, stitch="rigde")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_vectors_that_cannot_be_translated_are_refused_before_anything_is_embedded(value, source_folder, tmp_path):
    shutil.copytree(source_folder, tmp_path / "store")
    index = faiss.read_index(str(tmp_path / "store" / "index.faiss"))
    vectors = index.reconstruct_n(0, index.ntotal)
    sample = Fit(open_store(source_folder), load_embedder("tfidf:24"), sample=20).drawn
    outside = np.setdiff1d(np.arange(len(vectors)), sample.rows)[[3, 40]]
    vectors[outside, 5] = value
    index.reset()
    index.add(vectors)
    faiss.write_index(index, str(tmp_path / "store" / "index.faiss"))
    (tmp_path / "store" / "lead-migrate.json").unlink()
    store = open_store(tmp_path / "store")
    (doc_id,) = store.get(outside[:1]).ids
    told = re.escape(f"{tmp_path}/store: NaN, Inf or overflowing vector for document {doc_id!r} (2 bad of 150")
    for direction in ("document", "query"):
        with pytest.raises(VectorError, match=told):
            migrate.fit(store, load_embedder("file:/nowhere.npz"), sample=20, direction=direction)


def test_a_store_without_texts_is_told_what_to_do(source_folder, tmp_path):
    (tmp_path / "index.faiss").write_bytes((source_folder / "index.faiss").read_bytes())
    with pytest.raises(StoreError, match=r"put a docs\.jsonl"):
        migrate.fit(open_store(tmp_path / "index.faiss"), load_embedder("tfidf:24"))


def file_target(path):
    return load_embedder(f"file:{path}")


def test_a_store_without_texts_is_fitted_to_vectors_that_are_found_by_id(bare_folder, target_file):
    bare = open_store(bare_folder)
    found = migrate.fit(bare, file_target(target_file), sample=60)
    plain = [spec for spec in AUTO_CANDIDATES if not new_stitch(spec).reads_texts and spec != "identity"]
    assert [row.stitch for row in found.selection.candidates if not row.is_control] == plain
    assert len(found.sample.ids) == 60 and found.sample.copies == {}
    by_id = dict(zip(found.sample.ids, found.sample.vectors, strict=True))
    with np.load(target_file) as arrays:
        truth = dict(zip(arrays["doc_ids"], arrays["docs"], strict=True))
    assert all(np.allclose(vector, truth[doc_id], atol=1e-6) for doc_id, vector in by_id.items())
    assert found.manifest.details["texts"] is False and found.fallback is None and found.reader is None
    whole = read_all(bare.scan())
    old = dict(zip(whole.ids, whole.vectors, strict=True))
    x = np.array([old[doc_id] for doc_id in found.sample.ids])
    pairs = Pairing(x, found.sample.vectors).in_own_order()
    expected = pairs.fit(tune(found.stitch.spec, pairs)[0]).transform(x)
    np.testing.assert_allclose(found.stitch.transform(x), expected, atol=1e-5)


@pytest.mark.parametrize("strategy", ["random", "diverse", "query-log"])
def test_every_strategy_finds_a_sample_without_texts(bare_folder, target_file, strategy, corpus):
    bare = open_store(bare_folder)
    log = {"query_log": corpus.queries[:20], "source_model": load_embedder("tfidf:32", state=bare_folder)}
    chosen = log if strategy == "query-log" else {"strategy": strategy}
    fitted = migrate.fit(bare, file_target(target_file), sample=40, stitch="ridge", **chosen)
    assert len(set(fitted.sample.ids)) == 40
    assert fitted.manifest.details["sample"]["strategy"] == strategy


def test_a_log_of_words_finds_nothing_without_texts(bare_folder, target_file, corpus):
    with pytest.raises(StoreError, match="no line has a"):
        migrate.fit(open_store(bare_folder), file_target(target_file), query_log=corpus.queries, sample=40)


def test_a_fit_without_texts_is_deterministic(bare_folder, target_file, tmp_path, digest, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    for name in ("a", "b"):
        migrate.fit(open_store(bare_folder), file_target(target_file), sample=60).save(tmp_path / name)
    assert digest(tmp_path / "a") == digest(tmp_path / "b")


@pytest.mark.parametrize("stitch", ["text", "ridge+text", "kernel+text"])
def test_a_stitch_that_reads_texts_is_refused_where_there_are_none(bare_folder, target_file, stitch):
    with pytest.raises(StoreError, match=re.escape(f"the store has no texts, which the {stitch} stitch reads")):
        migrate.fit(open_store(bare_folder), file_target(target_file), stitch=stitch)


def test_a_view_of_texts_is_refused_where_there_are_none(bare_folder, target_file):
    with pytest.raises(StoreError, match="no texts for --view"):
        views = {"packaged:all-MiniLM-L6-v2": load_embedder("packaged:all-MiniLM-L6-v2")}
        migrate.fit(open_store(bare_folder), file_target(target_file), views=views)


def test_vectors_that_are_found_by_text_need_the_texts(bare_folder, target_file, corpus, tmp_path):
    with np.load(target_file) as arrays:
        np.savez(tmp_path / "texts.npz", **arrays, doc_texts=[document.text for document in corpus.documents])
    with pytest.raises(StoreError, match=r"put a docs\.jsonl.*file:VECTORS\.npz, without doc_texts"):
        migrate.fit(open_store(bare_folder), file_target(tmp_path / "texts.npz"))


def test_a_stitch_that_reads_texts_keeps_one_that_does_not(store):
    fitted = migrate.fit(store, load_embedder("tfidf:24"), stitch="ridge+text", sample=60)
    assert not fitted.fallback.stitch.reads_texts
    assert fitted.without_texts().reader is None
    assert migrate.fit(store, load_embedder("tfidf:24"), stitch="ridge", sample=60).fallback is None


def test_one_document_is_too_few(tmp_path, source_folder):
    from migrate.vectors import Document

    writer = create_store(tmp_path, format="faiss", dim=4)
    writer.append([Document("only", "a text about nothing")], np.ones((1, 4), dtype=np.float32))
    writer.finish()
    with pytest.raises(StitchError, match="at least 2 pairs"):
        migrate.fit(open_store(tmp_path), load_embedder("tfidf:1"))


def test_sample_documents_get_their_true_vectors(store):
    embedder = load_embedder("tfidf:24")
    fitted = migrate.fit(store, embedder, sample=60)
    batch = next(iter(store.scan()))
    documents = list(store.documents())
    translated = fitted.translate(
        Batch(batch.ids, batch.vectors), [document.text for document in documents], source="test"
    )
    truth = embedder.embed_documents(documents)
    inside = np.isin(batch.ids, fitted.sample.ids)
    assert inside.sum() == 60
    assert np.array_equal(translated.vectors[inside], truth[inside])
    assert not np.allclose(translated.vectors[~inside], truth[~inside], atol=1e-3)


def test_the_manifest_is_readable_json(store, tmp_path):
    migrate.fit(store, load_embedder("tfidf:24"), sample=60).save(tmp_path / "stitch")
    facts = json.loads((tmp_path / "stitch" / "lead-migrate.json").read_text())
    names = [row["stitch"] for row in facts["details"]["selection"]["candidates"]]
    assert names == ["procrustes", "ols", "lowrank", "ridge", "ridge+near", "ridge+text", "text", "mean", "random"]


def test_texts_are_read_where_that_is_asked_for(store):
    fitted = migrate.fit(store, load_embedder("tfidf:24"), stitch="ridge+text", sample=60)
    assert fitted.stitch.spec == "ridge+text" and fitted.reads_texts
    assert [row.stitch for row in fitted.selection.candidates if not row.is_control] == ["ridge+text"]
    assert set(fitted.reader.read(["a text"]).views) == {"ngrams", "topics"}  # no local model, no tokens


def test_a_stitch_of_vectors_keeps_no_reader(store):
    assert migrate.fit(store, load_embedder("tfidf:24"), stitch="ridge", sample=60).reader is None


def test_the_stitch_that_is_chosen_is_the_one_that_was_judged(store):
    """With the weights that were found once for the sample, not anew for each fold."""
    fitted = migrate.fit(store, load_embedder("tfidf:24"), stitch="ridge+text", sample=60)
    assert fitted.stitch.weighing == fitted.selection.stitch.weighing
    assert fitted.selection.confidence is not None and fitted.selection.curve is not None


def test_frequencies_are_learned_from_all_over_the_store(store, monkeypatch):
    texts = [document.text for document in store.documents()]
    embedder = load_embedder("tfidf:24")
    np.testing.assert_array_equal(fit_reader(store, embedder).ngram_idf, TextReader.fit(texts).ngram_idf)
    monkeypatch.setattr("migrate.steps.fit.job.CORPUS_SIZE", 40)
    rows = random_order(store, 3)[:40]
    expected = TextReader.fit([texts[row] for row in rows], seed=3)
    found = fit_reader(store, embedder, seed=3)
    for name, array in expected.arrays().items():
        np.testing.assert_array_equal(found.arrays()[name], array)


def test_the_order_of_rows_changes_no_more_of_a_stitch_than_rounding(store, tmp_path):
    documents, batch = list(store.documents()), read_all(store.scan())
    order = np.random.default_rng(0).permutation(len(documents))
    (tmp_path / "shuffled").mkdir()
    writer = create_store(tmp_path / "shuffled", format="faiss", dim=store.info.dim, metric=store.info.metric)
    writer.append([documents[row] for row in order], batch.vectors[order])
    writer.finish()
    target = load_embedder("tfidf:24")
    target.fit(documents)
    first, second = (migrate.fit(one, target, sample=60) for one in (store, open_store(tmp_path / "shuffled")))
    assert sorted(first.sample.ids) == sorted(second.sample.ids)
    assert first.selection.chosen == second.selection.chosen
    texts = [document.text for document in documents]
    mapped = [fitted.translate(batch, texts, source="here").vectors for fitted in (first, second)]
    np.testing.assert_allclose(mapped[0], mapped[1], atol=1e-4)


def test_a_text_aware_fit_is_deterministic(store, tmp_path, digest, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    for name in ("a", "b"):
        migrate.fit(store, load_embedder("tfidf:24"), stitch="ridge+text", sample=60).save(tmp_path / name)
    assert digest(tmp_path / "a") == digest(tmp_path / "b")


def test_a_sample_of_a_few_documents_is_enough(store):
    for size in (2, 3, 5):
        fitted = migrate.fit(store, load_embedder("tfidf:24"), sample=size)
        batch = next(iter(store.scan()))
        texts = [document.text for document in store.documents()]
        assert np.isfinite(fitted.translate(batch, texts, source="test").vectors).all()


@pytest.mark.slow
def test_a_further_model_is_a_view_of_the_texts(store, tmp_path):
    view = "packaged:all-MiniLM-L6-v2"
    fitted = migrate.fit(
        store, load_embedder("tfidf:24"), stitch="ridge+text", sample=20, views={view: load_embedder(view)}
    )
    seen = fitted.reader.read(["A cat sits on a mat.", " "]).views[f"model {view}"].matrix()
    (expected,) = load_embedder(view).embed_documents([Document("a", "A cat sits on a mat.")])
    np.testing.assert_allclose(seen, [expected, np.zeros(384)], atol=1e-6)
    fitted.save(tmp_path / "stitch")
    loaded = load_stitch(tmp_path / "stitch")
    some = np.arange(5)
    batch, texts = store.get(some), [document.text for document in store.documents(some)]
    first, second = (one.translate(batch, texts, source="test").vectors for one in (fitted, loaded))
    assert first.tobytes() == second.tobytes()


@pytest.mark.parametrize(
    ("view", "stitch"), [("tfidf:8", "auto"), ("file:a.npz", "auto"), ("packaged:all-MiniLM-L6-v2", "ridge")]
)
def test_a_view_that_nobody_can_read_is_refused(store, view, stitch):
    with pytest.raises(UsageError, match="--view"):
        migrate.fit(store, load_embedder("tfidf:24"), stitch=stitch, views={view: load_embedder(view)})


def test_a_prior_is_remembered_by_its_hash_and_leaned_on(store, tmp_path):
    prior = migrate.fit(store, load_embedder("tfidf:24"), stitch="ridge", sample=140, seed=1)
    fitted = migrate.fit(store, load_embedder("tfidf:24"), stitch="ridge", sample=20, prior=prior)
    assert fitted.manifest.stitch.prior == prior.digest()
    assert fitted.stitch.facts()["share of prior"] > 0
    fitted.save(tmp_path / "stitch")
    again = load_stitch(tmp_path / "stitch")
    assert again.manifest.stitch.prior == prior.digest() and again.digest() == fitted.digest()


def test_of_a_prior_that_reads_texts_the_fallback_is_taken(store):
    prior = migrate.fit(store, load_embedder("tfidf:24"), stitch="ridge+text", sample=100, seed=1)
    fitted = migrate.fit(store, load_embedder("tfidf:24"), sample=20, prior=prior)
    assert fitted.manifest.stitch.prior == prior.digest()


@pytest.mark.parametrize(
    ("prior", "target", "options", "error", "message"),
    [
        ("ridge", "tfidf:20", {}, StitchError, "leads from 32 to 24 dimensions, not from 32 to 20; take a stitch"),
        ("kernel", "tfidf:24", {}, StitchError, "is kernel, which has no linear map; fit it with --stitch ridge"),
        ("ridge", "tfidf:24", {"direction": "query"}, UsageError, "--prior is for stitches that map documents"),
    ],
)
def test_a_prior_that_does_not_suit_is_refused_before_anything_is_embedded(
    store, prior, target, options, error, message
):
    found = migrate.fit(store, load_embedder("tfidf:24"), stitch=prior, sample=60)
    with pytest.raises(error, match=re.escape(message)):
        Fit(store, load_embedder(target), prior=found, **options).run()


def test_a_prior_of_other_models_is_refused(store):
    prior = migrate.fit(store, load_embedder("tfidf:24"), stitch="ridge", sample=60)
    other = replace(prior.manifest.model, spec="somebody/else")
    stranger = replace(prior, manifest=replace(prior.manifest, model=other))
    with pytest.raises(StitchError, match=r"the prior is of somebody/else .*, not of tfidf:24"):
        migrate.fit(store, load_embedder("tfidf:24"), prior=stranger)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stitch": "prefix+text"}, "say how many with `fit --prefix 24`"),
        ({"stitch": "ridge", "prefix": 5}, "--prefix is for stitches that read first tokens"),
        ({"direction": "query", "prefix": 5}, "--prefix is for stitches that read first tokens"),
        ({"prefix": 5, "views": {"prefix:6:tfidf:24": None}}, "the numbers of first tokens .* differ"),
    ],
)
def test_first_tokens_that_nobody_reads_are_refused(store, options, message):
    with pytest.raises(UsageError, match=message):
        migrate.fit(store, load_embedder("tfidf:24"), **options)


def test_first_tokens_need_texts_and_a_model_that_reads_them(store, bare_folder, target_file):
    with pytest.raises(StoreError, match="no texts, whose first tokens --prefix embeds"):
        migrate.fit(open_store(bare_folder), file_target(target_file), prefix=5)
    with pytest.raises(UsageError, match="name the model itself"):
        migrate.fit(store, file_target(target_file), prefix=5)


def test_a_view_of_first_tokens_by_the_target_is_leant_on(store, tmp_path):
    views = {"prefix:4:tfidf:24": load_embedder("prefix:4:tfidf:24")}
    fits = [
        migrate.fit(store, load_embedder("tfidf:24"), stitch="prefix+text", sample=60, **given)
        for given in ({"prefix": 4}, {"views": views})
    ]
    assert [fitted.reader.base for fitted in fits] == ["prefix:4:tfidf:24"] * 2
    fits[0].save(tmp_path / "stitch")
    loaded = load_stitch(tmp_path / "stitch")
    assert loaded.manifest.stitch.first_tokens == loaded.first_tokens == 4
    some = np.arange(20)
    batch, texts = store.get(some), [document.text for document in store.documents(some)]
    found = [one.translate(batch, texts, source="test").vectors.tobytes() for one in (*fits, loaded)]
    assert found == [found[0]] * 3


@pytest.mark.slow
def test_texts_without_a_head_are_translated_as_if_there_were_no_prefix(tmp_path):
    """With MiniLM: titles and first sentences are worth their tokens, what all texts begin with is not."""
    minilm = load_embedder("packaged:all-MiniLM-L6-v2", device="cpu", cache=tmp_path / "cache.sqlite")
    texts = [
        text for text in (" ".join(d.text.split()[:40]) for d in stdlib_beir(max_docs=600).documents) if len(text) > 150
    ]
    worth = {}
    for name, lead in (
        ("head", ""),
        ("no head", "Copyright of the foundation; see the file of licences. All rights are reserved. "),
    ):
        documents = [Document(str(row), lead + text) for row, text in enumerate(texts[:160])]
        embed_corpus(lambda documents=documents: iter(documents), load_embedder("tfidf:16"), tmp_path / name)
        store = open_store(tmp_path / name)
        fits = [
            migrate.fit(store, minilm, sample=110, stitch=["ridge+text", *own], seed=1, **given)
            for own, given in ((["prefix", "prefix+text"], {"prefix": 12}), ([], {}))
        ]
        worth[name] = fits[0].selection.prefix
        batch, own = next(store.scan()), [document.text for document in documents]
        vectors = [fitted.translate(batch, own, source="test").vectors for fitted in fits]
        assert (vectors[0].tobytes() == vectors[1].tobytes()) == (not worth[name].is_used)
    assert worth["head"].alone > 2 * worth["no head"].alone
    assert not worth["no head"].is_used


def test_a_stitch_of_another_target_is_none_to_grow_from(store):
    earlier = migrate.fit(store, load_embedder("tfidf:24"), stitch="ridge", sample=40)
    other = load_embedder("packaged:all-MiniLM-L6-v2", device="cpu")
    with pytest.raises(StitchError, match=r"--grown-from: the stitch leads .* not from 32 to sentence-transf"):
        Fit(store, other, stitch="ridge", sample=60, grown_from=earlier).run()
