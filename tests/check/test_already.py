"""Whether a store is of the target already."""

import pytest
from answering import VECTORS, Answering

from migrate.check.already import is_embedded_by, is_recorded_of
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


def test_copies_are_asked_once(tmp_path):
    writer = create_store(tmp_path, format="faiss", dim=6, metric="ip")
    writer.append([Document(f"d{row}", f"text {row % 2}") for row in range(6)], VECTORS[[0, 1, 0, 1, 0, 1]])
    writer.finish()
    answers = VECTORS[[0, 1, 0, 1, 0, 1]]
    asked = Answering(answers)
    assert is_embedded_by(open_store(tmp_path), asked) and len(asked.rows_asked) == 2
    assert not is_embedded_by(open_store(tmp_path), Answering(-answers))


@pytest.mark.parametrize(
    ("spec", "n_true", "is_of_it"), [("answering", 60, True), ("answering", 59, False), ("another", 60, False)]
)
def test_a_manifest_says_whether_all_vectors_are_of_a_model(spec, n_true, is_of_it, folder):
    model = ModelIdentity(spec, 6, False)
    Manifest("store", model, counts={"true vectors": n_true}, details={"index": "index.faiss"}).write(folder)
    store = open_store(folder)
    assert is_recorded_of(store, Answering()) == is_of_it
    assert not is_embedded_by(store, Answering()), "the manifest has answered"
