"""What a reference must show, beyond the mistakes of `mistakes.py`: where nothing can be proved, and what is odd."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import faiss
import numpy as np
import pytest
from faiss_tools import empty_index
from topics import (
    DOCUMENTS,
    OF_TARGET,
    QRELS,
    QUERIES,
    SOURCE,
    SOURCE_DIM,
    TARGET,
    Topics,
    audit,
    copy_store,
    halves,
    make_store,
    noisy,
    ways_out,
)

from migrate.audit.bootstrap import Bootstrap
from migrate.audit.bounds import Outcome
from migrate.audit.findings import odd_scores
from migrate.audit.keys import document_keys
from migrate.audit.query_set import QuerySet
from migrate.audit.recommendation import recommend
from migrate.audit.reference_proof import check_target, prove_reference
from migrate.audit.results import FULL, MEAN, RANDOM, TRANSLATED
from migrate.audit.verdict import doubt
from migrate.check import stamp_store
from migrate.cli.main import run
from migrate.embed import reembed_store
from migrate.embedders import load_embedder
from migrate.errors import StoreError, UsageError
from migrate.files import sha256_file
from migrate.manifest import Manifest, read_manifest
from migrate.stores import open_store
from migrate.vectors import unit_rows

pytestmark = pytest.mark.slow

ROWS = QuerySet(QUERIES, {query: {str(int(d[1:])): g for d, g in docs.items()} for query, docs in QRELS.items()}, "x")


def test_a_reference_that_nothing_proves_makes_no_verdict_safe_and_is_to_be_built_again(tmp_path):
    """Without texts no document can be embedded again, nor words be ranked."""
    first = make_store(tmp_path / "one", vectors=noisy(0.1), texts=False)
    second = make_store(tmp_path / "two", texts=False)
    report = audit(first, second, ROWS, margin=0.5)
    assert [arm.name for arm in report.arms] == [FULL, TRANSLATED, MEAN, RANDOM]
    assert report.arm(FULL).mean("nDCG@10") > 0.5
    assert report.verdict.retention.lower > 0.5
    assert report.verdict.outcome is Outcome.INCONCLUSIVE
    assert "nothing proves the reference" in report.verdict.sentence
    assert ways_out(report) == []
    assert "beyond doubt" in recommend(report).remark
    with pytest.raises(UsageError, match="is no share"):
        audit(first, second, ROWS, margin=5.0)
    worse = make_store(tmp_path / "three", vectors=noisy(2), texts=False)
    assert audit(worse, second, ROWS).verdict.outcome is Outcome.NOT_SAFE


def test_translated_vectors_are_no_reference_where_nothing_can_be_embedded_again(tmp_path):
    """Half of them, as a re-embed over the translated store leaves it that broke off."""
    half = np.where(np.arange(len(DOCUMENTS))[:, None] % 2, noisy(0.1), TARGET.embed_documents(DOCUMENTS))
    translated = make_store(tmp_path / "one", vectors=noisy(0.1), texts=False)
    with pytest.raises(StoreError, match="two has 75 rows equal to translated ones"):
        audit(translated, make_store(tmp_path / "two", vectors=half, texts=False), ROWS, margin=0.5)


def test_a_reference_that_is_proven_is_not_to_be_built_again(tmp_path):
    right = audit(make_store(tmp_path / "three", vectors=noisy(0.1)), make_store(tmp_path / "four"), margin=0.5)
    examination = replace(right.examination, findings=(*right.examination.findings, doubt("the scores are odd")))
    odd = replace(right, examination=examination)
    assert right.examination.reference.proven and "beyond doubt" not in recommend(odd).remark


def test_true_vectors_and_the_manifest_of_an_embedding_need_no_further_document(tmp_path):
    translated = make_store(tmp_path / "translated", vectors=TARGET.embed_documents(DOCUMENTS))
    confidence = np.full(len(DOCUMENTS), 0.5, dtype="<f4")
    confidence[:30] = 1
    np.save(tmp_path / "translated" / "confidence.npy", confidence)
    reembed_store(translated, TARGET, tmp_path / "reference")
    reference = open_store(tmp_path / "reference")
    keys = document_keys(translated), document_keys(reference)
    TARGET.asked.clear()
    proof = prove_reference(translated, reference, TARGET, keys)
    assert proof.proven and TARGET.asked == []
    manifest, vectors = proof.evidence
    assert "topics-0" in manifest and vectors.startswith("30 true vectors")


def test_rows_of_another_space_among_certain_translations_are_odd(tmp_path):
    """No text is at hand to embed again: what the stitch is sure of speaks for it."""
    vectors = TARGET.embed_documents(DOCUMENTS)
    vectors[::4] = -vectors[::4]
    mixed = make_store(tmp_path / "mixed", vectors=vectors, texts=False)
    translated = make_store(tmp_path / "translated", vectors=noisy(0.1), texts=False)
    np.save(tmp_path / "translated" / "confidence.npy", np.full(len(DOCUMENTS), 0.98, dtype="<f4"))
    doubts = audit(translated, mixed, ROWS).examination.doubts
    assert any("25 % of the most certain translations" in doubt for doubt in doubts)


@pytest.mark.parametrize(
    ("n_strange", "n_certain", "is_odd"), [(7, 150, False), (8, 150, True), (16, 32, False), (16, 33, True)]
)
def test_more_than_a_twentieth_of_enough_certain_translations_have_to_be_lost(n_strange, n_certain, is_odd, tmp_path):
    vectors = TARGET.embed_documents(DOCUMENTS)
    vectors[:n_strange] *= -1
    mixed = make_store(tmp_path / "mixed", vectors=vectors, texts=False)
    translated = make_store(tmp_path / "translated", vectors=noisy(0.1), texts=False)
    confidence = np.full(len(DOCUMENTS), 0.5, dtype="<f4")
    confidence[:n_certain] = 0.98
    np.save(tmp_path / "translated" / "confidence.npy", confidence)
    proof = prove_reference(translated, mixed, TARGET, (document_keys(translated), document_keys(mixed)))
    assert any("have nothing in common" in one.text for one in proof.doubts) == is_odd


def test_a_manifest_that_names_no_model_says_nothing_of_the_target(tmp_path):
    unnamed = Manifest("store", details={"index": "index.faiss"})
    check_target(make_store(tmp_path / "unnamed", manifest=unnamed), TARGET)
    check_target(make_store(tmp_path / "bare"), TARGET)
    named = make_store(tmp_path / "named", manifest=OF_TARGET)
    check_target(named, TARGET)
    with pytest.raises(StoreError, match="named was not translated for topics-7"):
        check_target(named, Topics(seed=7))


def test_other_texts_under_the_same_ids_are_another_corpus(tmp_path):
    translated = make_store(tmp_path / "translated", vectors=noisy(0.3))
    others = [
        *DOCUMENTS[:-2],
        replace(DOCUMENTS[-2], text="t0 n0 another"),
        replace(DOCUMENTS[-1], text="t9 n9 another"),
    ]
    reference = make_store(tmp_path / "reference", documents=others)
    keys = document_keys(translated), document_keys(reference)
    with pytest.raises(StoreError, match=r"other texts .*2 of 150 .*'d148'"):
        prove_reference(translated, reference, TARGET, keys)


@pytest.mark.parametrize("model", [TARGET, SOURCE])
def test_a_file_of_the_true_vectors_vouches_for_what_manifests_say_is_of_the_target_alone(model, tmp_path):
    translated = make_store(tmp_path / "translated", vectors=noisy(0.3), manifest=OF_TARGET)
    source = make_store(tmp_path / "source")
    reembed_store(source, TARGET, tmp_path / "reference")
    if model is not TARGET:
        known = Manifest("store", model.identity, details={"index": "index.faiss"})
        translated.companions.keep(known)
        translated = open_store(tmp_path / "translated")
    vectors = TARGET.embed_documents(DOCUMENTS)
    np.savez(tmp_path / "true.npz", doc_ids=[document.id for document in DOCUMENTS], docs=vectors)
    embedder, reference = load_embedder(f"file:{tmp_path}/true.npz"), open_store(tmp_path / "reference")
    keys = document_keys(translated), document_keys(reference)
    if model is SOURCE:
        with pytest.raises(StoreError, match="was not embedded by topics-1"):
            prove_reference(translated, reference, embedder, keys)
        return
    proof = prove_reference(translated, reference, embedder, keys)
    assert proof.proven and "embedded again have its vectors" in proof.evidence[-1]
    (tmp_path / "reference" / "lead-migrate.json").unlink()
    for is_stamped in (False, True):  # a stamp is written by whoever says so
        if is_stamped:
            stamp_store(open_store(tmp_path / "reference"), TARGET, trust=True)
        bare = prove_reference(translated, open_store(tmp_path / "reference"), embedder, keys)
        assert not bare.proven and "is not the file that the store was translated for" in bare.doubts[0].text


@pytest.mark.parametrize(("has_model", "has_true"), [(True, True), (False, True), (True, False)])
def test_a_manifest_that_names_the_model_and_true_vectors_prove_a_reference_together(has_model, has_true, tmp_path):
    translated = make_store(tmp_path / "translated", vectors=TARGET.embed_documents(DOCUMENTS))
    if has_true:
        np.save(tmp_path / "translated" / "confidence.npy", np.repeat([1, 0.5], 75).astype("<f4"))
    reembed_store(translated, TARGET, tmp_path / "reference")
    reference = open_store(tmp_path / "reference")
    if not has_model:
        reference.companions.keep(replace(reference.info.manifest, model=None))
        reference = open_store(tmp_path / "reference")
    proof = prove_reference(translated, reference, TARGET, (document_keys(translated), document_keys(reference)))
    is_enough = has_model and has_true
    assert proof.proven and ("its manifest names no model" in proof.evidence) != has_model
    assert any("embedded again have its vectors" in evidence for evidence in proof.evidence) != is_enough


class OfLengthOne(Topics):
    """As `Topics`, with vectors of length 1, and it says so."""

    @property
    def identity(self):
        return replace(super().identity, normalized=True)

    def embed(self, texts, role, *, progress=None):
        return unit_rows(super().embed(texts, role))


@pytest.mark.parametrize(("length", "longest", "is_refused"), [(1, 1, False), (2, 1.005, False), (2, 1.02, True)])
def test_a_reference_of_a_model_of_one_length_has_one_length(length, longest, is_refused, tmp_path):
    embedder = OfLengthOne()
    vectors = np.float32(length) * embedder.embed_documents(DOCUMENTS)
    vectors[-1] *= longest
    translated = make_store(tmp_path / "translated", vectors=noisy(0.3))
    reference = make_store(tmp_path / "reference", vectors=vectors)
    keys = document_keys(translated), document_keys(reference)
    if is_refused:
        with pytest.raises(StoreError, match=r"lengths from 2 to 2\.04, but topics-0"):
            prove_reference(translated, reference, embedder, keys)
    else:
        assert prove_reference(translated, reference, embedder, keys).proven


@pytest.mark.parametrize(("n_wrong", "is_refused"), [(0, False), (3, False), (4, True), (30, True)])
def test_few_of_the_true_vectors_may_be_lost_in_a_lossy_index(n_wrong, is_refused, tmp_path):
    vectors = TARGET.embed_documents(DOCUMENTS)
    translated = make_store(tmp_path / "translated", vectors=vectors)
    confidence = np.full(len(DOCUMENTS), 0.5, dtype="<f4")
    confidence[:30] = 1
    np.save(tmp_path / "translated" / "confidence.npy", confidence)
    make_store(tmp_path / "coded")
    index = faiss.index_factory(8, "SQ8", faiss.METRIC_INNER_PRODUCT)
    vectors[:n_wrong] *= -1
    index.train(vectors)
    index.add(vectors)
    faiss.write_index(index, str(tmp_path / "coded" / "index.faiss"))
    reference = open_store(tmp_path / "coded")
    keys = document_keys(translated), document_keys(reference)
    if is_refused:
        with pytest.raises(StoreError, match=f"differs from {n_wrong} of 30 true vectors"):
            prove_reference(translated, reference, TARGET, keys)
    else:
        evidence = prove_reference(translated, reference, TARGET, keys).evidence
        assert any(text.startswith("30 true vectors") for text in evidence)


@pytest.mark.parametrize(("n_equal", "is_refused"), [(1, False), (2, True)])
def test_more_than_a_hundredth_of_equal_rows_are_no_chance(n_equal, is_refused, tmp_path):
    vectors = TARGET.embed_documents(DOCUMENTS)
    vectors[:n_equal] = noisy(0.1)[:n_equal]
    reference = make_store(tmp_path / "reference", vectors=vectors, texts=False)
    translated = make_store(tmp_path / "translated", vectors=noisy(0.1), texts=False)
    keys = document_keys(translated), document_keys(reference)
    if is_refused:
        with pytest.raises(StoreError, match=f"has {n_equal} rows equal to translated ones"):
            prove_reference(translated, reference, TARGET, keys)
    else:
        assert not prove_reference(translated, reference, TARGET, keys).proven


def test_a_copy_of_the_reference_is_no_translation(tmp_path):
    reembed_store(make_store(tmp_path / "store"), TARGET, tmp_path / "one")
    reembed_store(copy_store(open_store(tmp_path / "one")), TARGET, tmp_path / "other")
    with pytest.raises(StoreError, match="has the same vectors as the reference"):
        audit(open_store(tmp_path / "one"), open_store(tmp_path / "other"))
    # one of them from a version that hashed by another function
    made = read_manifest(tmp_path / "one", "store")
    earlier = sha256_file(tmp_path / "one" / made.store.index)
    replace(made, details={**made.details, "index_hash": earlier}).write(tmp_path / "one")
    for pair in (("one", "other"), ("other", "one")):
        with pytest.raises(StoreError, match="has the same vectors as the reference"):
            audit(*(open_store(tmp_path / name) for name in pair))


@pytest.mark.parametrize(
    ("arm", "full", "words", "stay", "odd"),
    [
        (0.6, 0.6, 0.5, 0.4, None),
        (0.9, 0.5, None, None, "which a translation cannot"),
        (0.5, 0.5, 0.9, None, "significantly worse than BM25"),
        (0.5, 0.5, None, 0.9, "significantly worse than staying with the source model"),
    ],
)
def test_scores_that_are_too_good_or_too_bad_are_odd(arm, full, words, stay, odd):
    rng = np.random.default_rng(0)
    arm, full, words, stay = (
        None if share is None else (rng.random(300) < share).astype(float) for share in (arm, full, words, stay)
    )
    doubts = odd_scores(arm, full, words, stay, np.zeros(300), Bootstrap(resamples=500))
    assert (odd is None and doubts == []) or (len(doubts) == 1 and odd in doubts[0].text)


def test_judgements_that_cannot_tell_good_vectors_from_chance_are_odd():
    full = np.random.default_rng(0).random(300)
    (found,) = odd_scores(full, full, None, None, full, Bootstrap(resamples=500))
    assert "drawn at random" in found.text and found.about == "queries"
    stay = np.minimum(full + 0.5, 1)
    found, _ = odd_scores(full, full, None, stay, full, Bootstrap(resamples=500))
    assert "target model" in found.text and found.about == "model"


@pytest.mark.parametrize(("with_old", "code"), [(True, 1), (False, 3)])
def test_no_share_is_shown_of_a_full_reembed_that_scores_next_to_nothing(
    with_old, code, source_folder, beir, corpus, tmp_path, monkeypatch, capsys
):
    """What staying keeps of it would be thousands of percent."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(source_folder, "store")
    if not with_old:
        Path("store/lead-migrate.json").unlink()
    rng = np.random.default_rng(0)
    arrays = {}
    for ids, rows, texts in (("doc_ids", "docs", corpus.documents), ("query_ids", "queries", corpus.queries)):
        arrays[ids] = [text.id for text in texts]
        arrays[rows] = rng.normal(size=(len(texts), 16)).astype(np.float32)
    np.savez("wrong.npz", **arrays)
    command = ["run", "store", "--target", "file:wrong.npz", "--judged", str(beir), "--sample", "60", "--kind", "ridge"]
    command += ["--reference", "pool"]
    assert run([*command, "-o", "out"]) == code
    told = capsys.readouterr()
    screen = " ".join(told.out.split())
    assert screen.startswith("nothing is shown to be SAFE; ") and "the full re-embed (nDCG@10 0." in screen
    assert "%," not in screen, "no share of it means anything"
    assert told.err.splitlines()[-1] == "next: lead-migrate assess store --target SPEC"
    found = json.loads(Path("out/report.json").read_text())
    assert found["verdict"]["retention"] == {"estimate": None, "lower": 0.0, "upper": None}
    assert found["recommendation"]["plan"] is None and found["recommendation"]["retention"] is None
    page = Path("out/report.html").read_text()
    assert "etention unknown" in page and not re.search(r"[>\" ](nan|inf)\b", page)


class Noting(Topics):
    """As `Topics`; it remembers the texts of documents."""

    def __init__(self):
        super().__init__()
        self.texts = []

    def embed(self, texts, role, *, progress=None):
        self.texts += [text.text for text in texts if role == "document"]
        return super().embed(texts, role)


def test_half_of_what_is_embedded_again_are_rows_that_equal_translated_ones(tmp_path):
    """A copy of translated rows is found out by them, and a perfect translation is no reason to see nothing else."""
    vectors = noisy(0.3)
    vectors[:60] = TARGET.embed_documents(DOCUMENTS[:60])
    translated, reference = make_store(tmp_path / "translated", vectors=vectors), make_store(tmp_path / "reference")
    embedder = Noting()
    keys = document_keys(translated), document_keys(reference)
    assert prove_reference(translated, reference, embedder, keys).proven
    equal = {document.text for document in DOCUMENTS[:60]}
    assert len(embedder.texts) == 32 and 16 <= len(equal & set(embedder.texts)) < 28


def test_a_reference_in_shorter_codes_is_a_lower_standard(tmp_path):
    translated = make_store(tmp_path / "translated", vectors=noisy(0.3))
    make_store(tmp_path / "coded")
    index = empty_index("PQ4x4", 8, faiss.METRIC_INNER_PRODUCT)
    vectors = TARGET.embed_documents(DOCUMENTS)
    index.train(vectors)
    index.add(vectors)
    faiss.write_index(index, str(tmp_path / "coded" / "index.faiss"))
    report = audit(translated, open_store(tmp_path / "coded"), margin=0.1)
    assert report.verdict.outcome is Outcome.INCONCLUSIVE
    assert any("short codes (PQ4x4)" in doubt for doubt in report.examination.doubts)


def test_a_reference_of_other_chunks_is_doubted(tmp_path):
    whole = make_store(tmp_path / "whole", vectors=noisy(0.1))
    cut = make_store(tmp_path / "cut", documents=halves())
    assert any("other chunks" in doubt for doubt in audit(whole, cut).examination.doubts)


def test_staying_is_by_the_model_of_the_source_or_refused(tmp_path):
    translated, reference = make_store(tmp_path / "translated", vectors=noisy(0.3)), make_store(tmp_path / "reference")
    source = make_store(tmp_path / "source", SOURCE)
    other = Topics(SOURCE_DIM, blur=0.9, seed=7)
    with pytest.raises(StoreError, match=r"source differs from topics-7 .* name the model"):
        audit(translated, reference, source=source, source_model=other)
    with pytest.raises(StoreError, match=r"the audited store itself, .*--source"):
        audit(translated, reference, source=translated, source_model=TARGET)
