import faiss
import numpy as np
import pytest
from faiss_tools import empty_index

import migrate
from migrate.check import Cause, check_store
from migrate.embedders import load_embedder
from migrate.errors import VectorError
from migrate.manifest import Manifest
from migrate.selection import draw_sample
from migrate.stores import open_store
from migrate.vectors import Document

WORDS = [
    "ash", "birch", "cedar", "elm", "fir", "hazel", "larch", "maple", "oak", "pine",
    "rowan", "willow", "yew", "alder", "beech", "holly", "lime", "plum", "teak",
]  # fmt: skip

# Many small indexes on a busy machine: waiting for threads costs more than they save.
faiss.omp_set_num_threads(1)


@pytest.fixture(scope="module")
def trees():
    rng = np.random.default_rng(4)
    return [" ".join(rng.choice(WORDS, 7)) for _ in range(200)]


@pytest.fixture(scope="module")
def model(trees):
    """A quick model: the mechanics do not depend on which one it is."""
    embedder = load_embedder("tfidf:16")
    embedder.fit([Document(str(row), text) for row, text in enumerate(trees)])
    return embedder


@pytest.fixture(scope="module")
def vectors(trees, model):
    return model.embed_documents([Document(str(row), text) for row, text in enumerate(trees)])


def test_figures_and_examples_name_what_disagrees(make_store, trees, vectors, model):
    spoiled = vectors.copy()
    spoiled[100:] = np.random.default_rng(0).normal(size=(100, 16))
    found = check_store(make_store(trees, spoiled), model, sample=1_000)
    agreeing = int((np.einsum("ij,ij->i", vectors, spoiled / np.linalg.norm(spoiled, axis=1)[:, None]) > 0.999).sum())
    assert (found.cause, found.figures.sampled, found.figures.agreeing) == (Cause.MIXED, 200, agreeing == 100 and 100)
    assert found.figures.disagreeing.lower == found.figures.disagreeing.upper == 0.5
    assert "rows 0 to 99 agree, 100 to 199 do not" in found.sentence
    assert len(found.examples) == 5
    for example in found.examples:
        assert example.doc_id == f"d{example.row}" and example.row >= 100
        cosine = spoiled[example.row] @ vectors[example.row] / np.linalg.norm(spoiled[example.row])
        assert example.cosine == pytest.approx(cosine, abs=1e-5)


def test_what_a_sample_could_miss_is_said_and_a_larger_one_finds_it(make_store, trees, vectors, model):
    spoiled = vectors.copy()
    spoiled[:3] *= -1
    store = make_store(trees, spoiled)
    small = check_store(store, model, sample=8, seed=1)
    assert small.compatible and small.figures.disagreeing.upper == pytest.approx(1 - 0.05 ** (1 / 8))
    assert check_store(store, model, sample=200).cause is Cause.MIXED


def test_other_documents_are_looked_at_than_a_fit_draws(make_store, trees, vectors, model):
    store = make_store(trees, -vectors)
    for seed in range(5):
        fitted_on = draw_sample(store, 12, strategy="random", seed=seed).rows.tolist()
        looked_at = [example.row for example in check_store(store, model, sample=12, seed=seed).examples]
        assert set(looked_at) - set(fitted_on), "those of the fit are true"


def test_the_seed_decides_the_sample(make_store, trees, vectors, model):
    store = make_store(trees, -vectors)
    rows = [[e.row for e in check_store(store, model, sample=12, seed=seed).examples] for seed in (7, 7, 8)]
    assert rows[0] == rows[1] != rows[2]


def test_without_texts_norms_and_dimension_alone_refute(make_store, trees, vectors, model):
    found = check_store(make_store(trees, vectors, bare=True), model)
    assert found.compatible and found.basis == "facts"
    assert "nothing speaks against it" in found.sentence and "could not be checked" in found.notes[0]
    scaled = check_store(make_store(trees, vectors * 3, name="a", bare=True), model)
    assert scaled.cause is Cause.NORMS and "3 to 3;" in scaled.sentence
    longer = check_store(make_store(trees, np.hstack([vectors] * 24), name="b", bare=True), model)
    assert longer.cause is Cause.DIMENSION
    as_minilm = make_store(trees, np.hstack([vectors] * 24) / 24**0.5, name="c", bare=True)
    assert "all-MiniLM-L6-v2" in check_store(as_minilm, model).notes[0]


def test_a_bad_vector_is_an_error_that_names_its_document(make_store, trees, vectors, model):
    spoiled = vectors.copy()
    spoiled[9] = np.nan
    with pytest.raises(VectorError, match="'d9'"):
        check_store(make_store(trees, spoiled), model, sample=200)


def coded_store(make_store, texts, rows, kind, name):
    index = empty_index(kind, rows.shape[1])
    index.train(rows)
    index.add(rows)
    folder = make_store(texts, rows, name=name).folder
    faiss.write_index(index, str(folder / "index.faiss"))
    return open_store(folder)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["SQ8", "SQ4", "PQ8x4"])
def test_a_lossy_index_of_the_model_is_compatible_and_of_another_is_not(kind, make_store, trees, vectors, model):
    for name, rows in (("own", vectors), ("other", np.roll(vectors[:, ::-1], 7, axis=0))):
        found = check_store(coded_store(make_store, trees, np.ascontiguousarray(rows), kind, name), model)
        assert found.compatible == (name == "own"), found.sentence


@pytest.mark.slow
def test_a_prefix_shows_through_a_lossy_index(make_store, texts, by_hand, prefixed):
    """Within what SQ4 loses, both ways agree; which one is nearer decides."""
    texts = texts[:20]
    for name, before in (("with", "passage: "), ("without", "")):
        rows = by_hand.embed([before + text for text in texts])
        found = check_store(coded_store(make_store, texts, rows, "SQ4", name), prefixed)
        assert found.cause is (Cause.COMPATIBLE if before else Cause.MISSING_PREFIX), found.sentence
        assert "lossy" in found.notes[-1]


@pytest.mark.slow
def test_texts_that_begin_with_the_prefix_themselves_are_pointed_out(make_store, texts, by_hand, prefixed):
    texts = [f"passage: {text}" for text in texts[:8]]
    found = check_store(make_store(texts, by_hand.embed(texts)), prefixed)
    assert found.cause is Cause.MISSING_PREFIX
    assert "begin with the prefix 'passage: ' already" in found.notes[0]


@pytest.mark.slow
def test_a_field_of_translated_vectors_beside_old_ones_of_an_unknown_model_is_compatible(
    tmp_path, texts, plain, minilm
):
    lancedb = pytest.importorskip("lancedb")
    old = plain + np.random.default_rng(0).normal(size=plain.shape).astype(np.float32) * 0.02
    rows = [{"id": f"d{row}", "text": text, "vector": old[row].tolist()} for row, text in enumerate(texts)]
    lancedb.connect(tmp_path).create_table("docs", rows)
    place = f"lancedb:{tmp_path}#docs"
    migrate.translate(place, migrate.fit(place, minilm, kind="identity", sample=10), into="new")
    found = check_store(open_store(f"{place}?vector=new"), minilm, sample=8)
    assert found.compatible and "are translated, and near the model's" in found.sentence
    assert "translated from another model" in found.notes[0]


@pytest.mark.slow
def test_a_store_that_was_translated_is_near_and_compatible(make_store, texts, plain, minilm):
    noise = np.random.default_rng(0).normal(size=plain.shape) * 0.02
    store = make_store(texts, plain + noise)
    source = load_embedder("tfidf:8").identity
    Manifest("store", model=minilm.identity, source_model=source, details={"index": "index.faiss"}).write(store.folder)
    found = check_store(open_store(store.folder), minilm, sample=8)
    assert found.compatible and "8 of 8 sampled vectors are translated" in found.sentence
    assert "translated from tfidf:8" in found.notes[0]


def test_all_of_many_documents_fit_into_memory(make_store, model):
    """3,000 texts against each other would be 9 million cosines; a few hundred others tell chance as well."""
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS, 9)) for _ in range(3_000)]
    rows = model.embed_documents([Document(str(row), text) for row, text in enumerate(texts)])
    rows[2_000:] = np.roll(rows[2_000:], 5, axis=1)
    found = check_store(make_store(texts, rows), model, sample=3_000)
    assert found.cause is Cause.MIXED and found.figures.sampled - found.figures.agreeing == pytest.approx(1_000, abs=5)
