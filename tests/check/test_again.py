"""Whether a model is still the one that a store's true vectors and the cache are of."""

import numpy as np
import pytest
from answering import VECTORS, Answering

from migrate.check.again import is_embedded_by, is_recorded_of, proof_documents, prove_model
from migrate.errors import VectorError
from migrate.manifest import Manifest, ModelIdentity
from migrate.stores import create_store, open_store
from migrate.vectors import Document

DOCUMENTS = [Document(f"d{row}", f"text {row}") for row in range(60)]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "store").mkdir()
    writer = create_store(tmp_path / "store", format="faiss", dim=6, metric="ip")
    writer.append(DOCUMENTS, VECTORS)
    writer.finish()
    return tmp_path / "store"


@pytest.fixture
def store(folder):
    """A store whose first twenty vectors are true."""
    confidence = np.full(60, 0.5, dtype="<f4")
    confidence[:20] = 1
    np.save(folder / "confidence.npy", confidence)
    return open_store(folder)


def test_true_vectors_of_the_store_are_embedded_again(store):
    embedder = Answering()
    assert prove_model(store, embedder, seed=1) == 8 and set(embedder.rows_asked) < set(range(20))
    assert {document.id for document in proof_documents(store, seed=1)} == {f"d{row}" for row in embedder.rows_asked}
    with pytest.raises(VectorError, match="8 of 8 are others"):
        prove_model(store, Answering(-VECTORS))


def test_all_rows_may_be_true_and_others_are_compared_with_the_cache(store, folder):
    embedder = Answering()
    assert prove_model(store, embedder, all_true=True) == 8 and max(embedder.rows_asked) >= 20
    known = Answering(cached=range(30, 40))
    assert prove_model(store, known) == 8 and set(known.rows_asked) & set(range(30, 40))
    (folder / "confidence.npy").unlink()
    bare = open_store(folder)
    assert prove_model(bare, Answering()) == 0 and proof_documents(bare) == [], "nothing to compare with"
    few = Answering(cached=(7, 9))
    assert prove_model(bare, few) == 2 and sorted(few.rows_asked) == [7, 9]


def test_a_model_that_runs_here_is_not_asked_nor_one_of_a_store_without_texts(store, folder):
    here = Answering(-VECTORS, is_paid=False)
    assert prove_model(store, here) == 0 and here.rows_asked == []
    (folder / "docs.jsonl").unlink()
    bare, embedder = open_store(folder), Answering(-VECTORS)
    assert prove_model(bare, embedder) == 0 and embedder.rows_asked == [] and proof_documents(bare) == []


@pytest.mark.parametrize(
    ("answers", "is_its_own"),
    [(VECTORS, True), (-VECTORS, False), (VECTORS[:, :5], False)],
    ids=["own", "other", "dim"],
)
def test_a_store_without_a_manifest_is_of_a_model_that_gives_its_vectors(answers, is_its_own, folder):
    store = open_store(folder)
    assert is_recorded_of(store, Answering(answers)) is None
    assert is_embedded_by(store, Answering(answers)) == is_its_own


def test_one_vector_of_another_model_in_the_sample_is_enough(folder):
    answers = VECTORS.copy()
    asked = Answering()
    assert is_embedded_by(open_store(folder), asked) and len(set(asked.rows_asked)) == 32
    answers[asked.rows_asked[-1]] *= -1
    assert not is_embedded_by(open_store(folder), Answering(answers))


@pytest.mark.parametrize(
    ("spec", "n_true", "is_of_it"), [("answering", 60, True), ("answering", 59, False), ("another", 60, False)]
)
def test_a_manifest_says_whether_all_vectors_are_of_a_model(spec, n_true, is_of_it, folder):
    model = ModelIdentity(spec, 6, False)
    Manifest("store", model, counts={"true vectors": n_true}, details={"index": "index.faiss"}).write(folder)
    store = open_store(folder)
    assert is_recorded_of(store, Answering()) == is_of_it
    assert not is_embedded_by(store, Answering()), "the manifest has answered"
