import dataclasses
import json
import shutil
import threading

import faiss
import numpy as np
import pytest
from stores_tools import make_store

import migrate
import migrate.translate
from migrate.embedders import load_embedder
from migrate.errors import StitchError, VectorError
from migrate.manifest import Manifest
from migrate.pace import keep_pace
from migrate.selection import Pairs
from migrate.steps.fit.job import fit_pairs
from migrate.stitch.fitted import TrueVectors
from migrate.stitch.persistence import load_stitch
from migrate.stores import create_store, open_store
from migrate.stores.base import read_all
from migrate.stores.confidence import read_confidence, usable_confidence
from migrate.translate import batch_rows
from migrate.vectors import Batch


def fit(store, **options):
    return migrate.fit(store, load_embedder("tfidf:24"), **{"sample": 60, **options})


@pytest.fixture(scope="module")
def fitted(source_folder):
    return fit(open_store(source_folder))


@pytest.fixture(scope="module")
def reading(source_folder):
    """A stitch that reads texts."""
    return fit(open_store(source_folder), kind="ridge+text")


@pytest.fixture
def store(source_folder):
    return open_store(source_folder)


@pytest.fixture
def copied(source_folder, forget_hashes, tmp_path):
    """A copy of the store that may be changed."""
    folder = shutil.copytree(source_folder, tmp_path / "copied")
    forget_hashes(folder)
    return folder


def vectors_of(folder):
    return read_all(open_store(folder).scan())


def folders_in(folder):
    return sorted(path.name for path in folder.iterdir() if path.is_dir())


def test_ids_texts_metric_and_kind_are_kept_and_the_source_is_not_touched(store, fitted, tmp_path, digest):
    before = digest(store.folder)
    done = migrate.translate(store, fitted, tmp_path / "new")
    new = open_store(tmp_path / "new")
    assert (new.info.kind, new.info.index_type, new.info.metric) == ("faiss", store.info.index_type, "ip")
    assert new.info.dim == done.target_dim == 24
    assert list(new.documents()) == list(store.documents())
    assert (new.folder / "docs.jsonl").read_bytes() == (store.folder / "docs.jsonl").read_bytes()
    assert done.n_true == 60
    index = faiss.read_index(str(tmp_path / "new" / "index.faiss"))
    assert np.array_equal(index.reconstruct_n(0, index.ntotal), read_all(new.scan()).vectors)
    assert digest(store.folder) == before


def test_vectors_are_of_the_target_models_norm(store, fitted, tmp_path):
    migrate.translate(store, fitted, tmp_path / "unit")
    assert np.allclose(np.linalg.norm(vectors_of(tmp_path / "unit").vectors, axis=1), 1, atol=1e-6)
    scaled = dataclasses.replace(fitted, norm=7.5)
    texts = [document.text for document in store.documents()]
    norms = np.linalg.norm(scaled.translate(next(store.scan()), texts, source="test", patch=False).vectors, axis=1)
    assert np.allclose(norms, 7.5, rtol=1e-6)


def test_the_new_store_says_where_it_comes_from_and_embeds_queries_as_its_model_did(store, fitted, tmp_path):
    migrate.translate(store, fitted, tmp_path / "new")
    manifest = open_store(tmp_path / "new").info.manifest
    assert (manifest.model.spec, manifest.source_model.spec) == ("tfidf:24", "tfidf:32")
    assert manifest.inputs["source rows"] == store.snapshot().rows_sha256
    assert manifest.counts == {"documents": 150, "true vectors": 60}
    assert load_embedder("tfidf:24", state=tmp_path / "new").identity == fitted.manifest.model


def index_of(path, rows, spoil=lambda vectors: None):
    """A flat index of random vectors in a file, and a stitch that reads no texts."""
    vectors = np.random.default_rng(0).standard_normal((rows, 384), np.float32)
    pairs = Pairs(tuple(map(str, range(200))), vectors[:200].copy(), vectors[:200, ::-1].copy())
    manifest = Manifest("stitch", details={"fingerprint": {"dim": 384}})
    spoil(vectors)
    index = faiss.IndexFlatIP(384)
    index.add(vectors)
    faiss.write_index(index, str(path))
    return open_store(path), fit_pairs(pairs, ["ridge"], manifest=manifest, state={}, seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [255, 1_024, 2_049, 9_000])
def test_the_new_store_is_the_same_with_any_number_of_threads(rows, tmp_path, monkeypatch):
    (store, fitted), written = index_of(tmp_path / "index.faiss", rows), []
    for threads in (1, 2, 5):
        monkeypatch.setattr(migrate.translate, "thread_count", lambda threads=threads: threads)
        migrate.translate(store, fitted, tmp_path / str(threads), any_store=True)
        names = ("index.faiss", "confidence.npy", "sources.npy")
        written.append([(tmp_path / str(threads) / name).read_bytes() for name in names])
    assert written[0] == written[1] == written[2]
    whole = fitted.translate(read_all(store.scan()), source="test", patch=False).vectors
    assert np.abs(vectors_of(tmp_path / "1").vectors - whole).max() < 1e-5 * fitted.norm


def test_the_new_store_is_the_same_at_a_pace(tmp_path):
    store, fitted = index_of(tmp_path / "index.faiss", 2_049)
    migrate.translate(store, fitted, tmp_path / "new", any_store=True)
    with keep_pace(0.9):
        migrate.translate(store, fitted, tmp_path / "paced", any_store=True)
    for name in ("index.faiss", "confidence.npy", "sources.npy"):
        assert (tmp_path / "paced" / name).read_bytes() == (tmp_path / "new" / name).read_bytes()


def test_a_vector_that_is_no_number_ends_all_threads_and_leaves_nothing(tmp_path):
    def spoil(vectors):
        vectors[3_000, 7] = np.nan

    store, fitted = index_of(tmp_path / "index.faiss", 5_000, spoil)
    before = threading.active_count()
    with pytest.raises(VectorError, match="vector for document '3000'"):
        migrate.translate(store, fitted, tmp_path / "new", any_store=True)
    assert threading.active_count() == before
    assert [path.name for path in tmp_path.iterdir()] == ["index.faiss"]


def test_equal_ids_in_another_store_get_no_true_vectors(store, fitted, tmp_path):
    vectors = np.random.default_rng(0).normal(size=(150, 32)).astype(np.float32)
    grown = make_store(tmp_path / "s", [f"x{row}" for row in range(150)], vectors)
    lines = [json.dumps({"id": document.id, "text": "changed"}) for document in store.documents()]
    (grown.folder / "docs.jsonl").write_text("\n".join(lines))
    migrate.translate(open_store(grown.folder), fitted, tmp_path / "new", any_store=True)
    new = vectors_of(tmp_path / "new")
    position = list(new.ids).index(fitted.sample.ids[0])
    assert not np.allclose(new.vectors[position], fitted.sample.vectors[0], atol=1e-2)


@pytest.mark.parametrize("dim", [1, 384, 1536, 60_000])
def test_a_batch_is_bounded_in_bytes(dim):
    rows = batch_rows(dim)
    assert rows & (rows - 1) == 0
    assert rows == 256 or rows * dim * 4 <= 16 << 20


@pytest.fixture
def small_batches(monkeypatch):
    """150 documents in batches of 16, in parts of 32."""
    monkeypatch.setattr(migrate.translate, "_BATCH_BYTES", 4 * 32 * 16)
    monkeypatch.setattr(migrate.translate, "_FEWEST_ROWS", 16)
    monkeypatch.setattr("migrate.steps.translate.job._PART_BYTES", 4 * 24 * 32)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")


def one_by_one(store, fitted):
    """What each document of the store should become, from its own vector and its own text."""
    by_id = {document.id: document.text for document in store.documents()}
    whole = read_all(store.scan())
    for doc_id, vector in zip(whole.ids, whole.vectors, strict=True):
        yield doc_id, fitted.translate(Batch([doc_id], vector[None]), [by_id[doc_id]], source="test")


@pytest.mark.slow
def test_each_vector_is_translated_with_its_own_text(store, reading, tmp_path, small_batches):
    migrate.translate(store, reading, tmp_path / "new")
    new, confidence = vectors_of(tmp_path / "new"), read_confidence(tmp_path / "new", 150)
    for row, (doc_id, expected) in enumerate(one_by_one(store, reading)):
        assert new.ids[row] == doc_id
        np.testing.assert_allclose(new.vectors[row], expected.vectors[0], atol=1e-4)
        np.testing.assert_allclose(confidence[row], expected.confidence[0], atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["faiss", "langchain"])
def test_texts_belong_to_ids_whatever_order_they_stand_in(kind, reading, store, tmp_path, small_batches):
    """Documents of the side file in another order than the vectors, where the format has one."""
    documents, vectors = list(store.documents()), read_all(store.scan()).vectors
    folder = tmp_path / "shuffled"
    folder.mkdir()
    writer = create_store(folder, format=kind, dim=32)
    order = np.random.default_rng(0).permutation(150)
    writer.append([documents[row] for row in order], vectors[order])
    writer.finish()
    migrate.translate(open_store(folder), reading, tmp_path / "new", any_store=True)
    new = vectors_of(tmp_path / "new")
    unpatched = dataclasses.replace(reading, sample=TrueVectors([], reading.sample.vectors[:0]))
    for row, (doc_id, expected) in enumerate(one_by_one(store, unpatched)):
        position = list(new.ids).index(doc_id)
        assert position == list(order).index(row)
        np.testing.assert_allclose(new.vectors[position], expected.vectors[0], atol=1e-4)


@pytest.mark.parametrize("spec", ["ridge", "ridge+text", "mean"])
def test_confidence_stands_beside_the_store_in_its_order(store, tmp_path, spec):
    fitted = fit(store, kind=spec)
    migrate.translate(store, fitted, tmp_path / "new")
    confidence = np.load(tmp_path / "new" / "confidence.npy", allow_pickle=False)
    of_sample = np.isin(vectors_of(tmp_path / "new").ids, fitted.sample.ids)
    assert confidence.shape == (150,) and confidence.dtype == np.float32
    assert of_sample.sum() == 60 and (confidence[of_sample] == 1).all()
    assert (np.abs(confidence[~of_sample]) <= 1).all()
    assert (confidence[~of_sample] < 1).any()


@pytest.mark.slow
@pytest.mark.parametrize(("texts", "broken_at"), [("read", 64), ("read", 144), ("gone", 32)])
def test_a_translation_that_broke_off_goes_on_with_the_right_texts_or_without(
    texts, broken_at, store, bare_folder, reading, tmp_path, small_batches, digest
):
    source = store if texts == "read" else open_store(bare_folder)
    reading.save(tmp_path / "stitch")
    loaded = load_stitch(tmp_path / "stitch")
    migrate.translate(source, loaded, tmp_path / "whole")

    def interrupt(stage, done, total):
        if stage == "translate" and broken_at <= done < 150:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        migrate.translate(source, reading, tmp_path / "new", progress=interrupt)  # as it is before it is saved
    assert not (tmp_path / "new").exists()
    starts = []
    migrate.translate(source, loaded, tmp_path / "new", progress=lambda stage, done, total: starts.append(done))
    assert starts[0] >= 32
    assert digest(tmp_path / "new") == digest(tmp_path / "whole")


def test_a_store_whose_texts_are_gone_is_translated_by_its_vectors(bare_folder, store, reading, tmp_path):
    bare = open_store(bare_folder)
    done = migrate.translate(bare, reading, tmp_path / "new")
    new, confidence = vectors_of(tmp_path / "new"), read_confidence(tmp_path / "new", 150)
    spare = reading.fallback.stitch
    old = read_all(bare.scan())
    raw = spare.transform(old.vectors)
    expected = raw / np.linalg.norm(raw, axis=1, keepdims=True)
    of_sample = np.isin(old.ids, reading.sample.ids)
    np.testing.assert_allclose(new.vectors[~of_sample], expected[~of_sample], atol=1e-5)
    for row in np.flatnonzero(of_sample):
        assert np.array_equal(new.vectors[row], reading.sample.vectors[reading.sample.row_of[old.ids[row]]])
    known = reading.fallback.selection.confidence
    np.testing.assert_allclose(confidence[~of_sample], known.of(spare.predict(old.vectors))[~of_sample], atol=1e-5)
    assert done.n_true == of_sample.sum() == 60
    details = open_store(tmp_path / "new").info.manifest.details
    assert (details["confidence_lowest"], details["confidence_spearman"]) == (known.lowest, known.spearman)
    assert (done.distrust is None) == known.is_usable
    assert details["stitch"] == spare.spec
    assert details["fallback"] == dataclasses.asdict(done.fallback)
    assert done.fallback.stitch == "ridge+text" and done.fallback.fallback == details["stitch"]
    assert done.fallback.overlap_at_10 == reading.selection.best.scores.overlap_at_10
    assert done.fallback.fallback_overlap_at_10 == reading.fallback.selection.best.scores.overlap_at_10
    assert migrate.translate(store, reading, tmp_path / "read").fallback is None
    assert "fallback" not in open_store(tmp_path / "read").info.manifest.details


def test_an_index_alone_is_translated_by_the_fallback_without_true_vectors(source_folder, reading, tmp_path):
    """Its labels are not the ids that the texts had, so that nobody knows which were embedded."""
    folder = tmp_path / "alone"
    folder.mkdir()
    (folder / "index.faiss").write_bytes((source_folder / "index.faiss").read_bytes())
    with pytest.raises(StitchError, match="`any_store=True`"):
        migrate.translate(open_store(folder), reading, tmp_path / "new")
    done = migrate.translate(open_store(folder), reading, tmp_path / "new", any_store=True)
    assert done.n_true == 0 and done.fallback is not None


def test_a_stitch_from_before_there_were_fallbacks_is_refused_before_anything_is_written(
    bare_folder, reading, tmp_path
):
    dataclasses.replace(reading, fallback=None).save(tmp_path / "stitch")
    with pytest.raises(StitchError, match=r"ridge\+text stitch reads texts, .*--kind ridge"):
        migrate.translate(open_store(bare_folder), load_stitch(tmp_path / "stitch"), tmp_path / "new")
    assert folders_in(tmp_path) == ["stitch"]


@pytest.mark.slow
def test_documents_unlike_the_sample_are_counted_and_named(store, tmp_path):
    fitted = fit(store, kind="ridge+text", sample=100)
    lowest = fitted.selection.confidence.lowest
    done = migrate.translate(store, fitted, tmp_path / "new")
    values = np.load(tmp_path / "new" / "confidence.npy")
    assert done.outside.of == len(values) == store.info.count
    assert done.outside.count == (values < lowest).sum()
    fearful = dataclasses.replace(fitted.selection.confidence, lowest=float(np.sort(values)[5]))
    shy = dataclasses.replace(fitted, selection=dataclasses.replace(fitted.selection, confidence=fearful))
    done = migrate.translate(store, shy, tmp_path / "shy")
    ids = vectors_of(tmp_path / "shy").ids
    assert done.outside.count == 5
    assert done.outside.examples == tuple(ids[row] for row in np.argsort(values, kind="stable")[:3])
    assert "5 of 150 documents (3.3 %) lie outside" in done.outside.sentence


def test_a_confidence_that_ranks_nothing_is_not_to_be_used(store, tmp_path):
    fitted = fit(store, kind="ridge", sample=100)
    assert fitted.selection.confidence.spearman >= 0.2
    done = migrate.translate(store, fitted, tmp_path / "sure")
    sure = open_store(tmp_path / "sure")
    assert done.distrust is None and done.outside is not None and usable_confidence(sure) is not None
    assert sure.info.manifest.details["confidence_spearman"] == fitted.selection.confidence.spearman
    poor = dataclasses.replace(fitted.selection.confidence, spearman=0.19)
    unsure = dataclasses.replace(fitted, selection=dataclasses.replace(fitted.selection, confidence=poor))
    done = migrate.translate(store, unsure, tmp_path / "unsure")
    assert "not to be used" in done.distrust and "Spearman 0.19" in done.distrust
    assert done.outside is None
    assert usable_confidence(open_store(tmp_path / "unsure")) is None
    assert read_confidence(tmp_path / "unsure", 150) is not None
