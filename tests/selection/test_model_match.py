"""Which texts are embedded again to prove that a model is still the one that it was, and what that finds out."""

import ast
from itertools import chain
from pathlib import Path

import answering
import numpy as np
import pytest
from answering import Answering

import migrate
from migrate.errors import VectorError
from migrate.selection.model_match import (
    ASKED_AGAIN,
    Claim,
    Tolerance,
    Witnesses,
    claim_of_cache,
    claim_of_rows,
    claim_of_store,
    claim_of_true_rows,
    compare,
    matches,
    some_places,
)
from migrate.stores import create_store, open_store
from migrate.vectors import Document

DOCUMENTS = [Document(f"d{row}", f"text {row}") for row in range(60)]
VECTORS = answering.VECTORS
TEXTS = DOCUMENTS[:40]
CLAIM = Claim(TEXTS, VECTORS[:40])


def turned(vectors, cosine):
    """Vectors that have a cosine with each of some, and another length."""
    across = np.random.default_rng(1).normal(size=vectors.shape)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    across -= (across * unit).sum(axis=1, keepdims=True) * unit
    across /= np.linalg.norm(across, axis=1, keepdims=True)
    return (3 * (cosine * unit + np.sqrt(1 - cosine**2) * across)).astype(np.float32)


@pytest.mark.parametrize("count", [1, 2, ASKED_AGAIN, ASKED_AGAIN + 1, 1_000])
def test_the_first_and_the_last_are_among_those_that_are_embedded_again(count):
    for seed in range(20):
        positions = some_places(count, ASKED_AGAIN, np.random.default_rng(seed))
        assert positions[0] == 0 and positions[-1] == count - 1
        assert positions == sorted(set(positions)) and len(positions) == min(count, ASKED_AGAIN)


@pytest.mark.parametrize("count", [1, 2, 3, 8, 9, 40])
def test_one_is_asked_alone_and_the_others_in_another_order(count):
    embedder = Answering()
    match = matches(CLAIM.take(range(count)), embedder, past_cache=True)
    assert match.count == match.agreeing == min(count, 8)
    (alone, *others) = embedder.asked
    assert len(alone) == 1 and len(others) == (count > 1)
    again = [*alone, *(others[0] if others else [])]
    assert len(set(again)) == len(again) == min(count, 8) and {0, count - 1} <= set(again)
    assert count < 3 or (alone != [0] and others[0] == [0, *sorted(others[0][1:], reverse=True)])


@pytest.mark.parametrize(("cosine", "is_another"), [(0.9992, False), (0.9988, True), (0.5, True)])
def test_vectors_of_another_direction_are_another_model_and_of_another_length_are_not(cosine, is_another):
    match = matches(CLAIM, Answering(turned(VECTORS, cosine)), past_cache=True)
    if not is_another:
        assert match.require("here").agreeing == 8
        return
    with pytest.raises(VectorError, match=rf"here: answering gives another .*cosine {cosine:.3f}, 8 of 8 are others"):
        match.require("here")


@pytest.mark.parametrize("wrong", [0, 39])
def test_one_answer_that_is_wrong_is_named_and_one_of_another_dimension_is_wrong(wrong):
    answers = VECTORS.copy()
    answers[wrong] = -answers[wrong]
    with pytest.raises(VectorError, match=rf"the text of 'd{wrong}' .*cosine -1.000, 1 of 8 are others"):
        matches(CLAIM, Answering(answers), past_cache=True).require("here")
    with pytest.raises(VectorError, match=r"cosine 0\.000, 8 of 8 are others"):
        matches(CLAIM, Answering(VECTORS[:, :5]), past_cache=True).require("here")


def test_one_right_vector_is_enough_where_texts_may_have_changed_since():
    answers = -VECTORS
    assert matches(Claim([], VECTORS[:0]), Answering(answers), past_cache=True).require_one("here").count == 0
    with pytest.raises(VectorError, match=r"here: .* answering .*-1\.000 .*\b8\b"):
        matches(CLAIM, Answering(answers), past_cache=True).require_one("here")
    answers = answers.copy()
    answers[39] = VECTORS[39]
    assert matches(CLAIM, Answering(answers), past_cache=True).require_one("here").agreeing == 1


def test_a_model_that_runs_here_is_asked_through_its_cache_for_as_many_texts_as_are_needed():
    here = Answering(turned(VECTORS, 0.995), is_paid=False)
    match = matches(CLAIM, here, 16)
    assert here.asked == [[int(text.id[1:]) for text in match.claim.texts]] and match.count == 16
    assert match.agreeing == 0 and match.evidence.startswith("0 of 16 documents ")
    assert matches(Claim(TEXTS, CLAIM.vectors, Tolerance(0.01)), here, 16).is_right


@pytest.mark.parametrize(("n_wrong", "is_mostly_right"), [(19, True), (20, False)])
def test_most_are_more_than_half(n_wrong, is_mostly_right):
    given = CLAIM.vectors.copy()
    given[:n_wrong] *= -1
    match = compare(CLAIM, given, "a model")
    assert match.is_mostly_right == is_mostly_right and match.worst < n_wrong and not match.is_right


def test_a_model_that_runs_here_is_not_asked_and_nothing_is_asked_of_no_texts():
    here, elsewhere = Answering(-VECTORS, is_paid=False, cached=range(40)), Answering(-VECTORS)
    assert matches(CLAIM, here, past_cache=True).count == len(claim_of_cache(here, TEXTS)) == 0
    assert matches(Claim([], VECTORS[:0]), elsewhere, past_cache=True).count == len(claim_of_cache(elsewhere, [])) == 0
    assert len(claim_of_cache(elsewhere, TEXTS)) == 0, "nothing is in the cache"
    assert here.asked == elsewhere.asked == []


def test_of_texts_whose_vectors_are_known_those_are_asked_again():
    embedder = Answering(cached=(3, 7, 11))
    claim = claim_of_cache(embedder, TEXTS)
    assert matches(claim, embedder, past_cache=True).agreeing == 3
    assert sorted(chain(*embedder.asked)) == [3, 7, 11]
    assert matches(claim, Answering(-VECTORS), past_cache=True).agreeing == 0


def test_texts_of_a_run_are_asked_again_wherever_they_came_in_it():
    places = []
    for count in (20, 50, 100, 200, 500, 1_000, 2_000):
        embedder = Answering(np.tile(VECTORS, (50, 1)))
        witnesses = Witnesses()
        texts = [Document(f"d{number}", "text") for number in range(count)]
        for start in range(0, count, 2):  # all texts of so small a batch may be chosen
            witnesses.add(texts[start : start + 2], embedder.answers[start : start + 2])
        matches(witnesses.claim(), embedder, past_cache=True)
        asked = {*chain(*embedder.asked)}
        assert len(asked) == 8
        places += [number / count for number in asked]
    halves = np.histogram(places, bins=2, range=(0, 1))[0] / len(places)
    assert halves == pytest.approx([0.5] * 2, abs=0.15)


def test_vectors_of_a_run_are_those_of_then():
    seen, witnesses = VECTORS.copy(), Witnesses()
    assert len(witnesses.claim()) == 0, "nothing was embedded"
    witnesses.add(TEXTS, seen)
    seen[:] = 0  # the room of a batch is used again
    assert matches(witnesses.claim(), Answering(), past_cache=True).agreeing == ASKED_AGAIN
    assert matches(witnesses.claim(), Answering(-VECTORS), past_cache=True).agreeing == 0


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


def ids(claim):
    return {text.id for text in claim.texts}


def test_true_vectors_of_the_store_are_embedded_again(store):
    embedder = Answering()
    match = matches(claim_of_store(store, embedder, seed=1), embedder, past_cache=True)
    assert match.agreeing == 8 and set(embedder.rows_asked) < set(range(20))
    assert ids(claim_of_true_rows(store, seed=1)) == {f"d{row}" for row in embedder.rows_asked}
    with pytest.raises(VectorError, match="8 of 8 are others"):
        matches(claim_of_store(store, embedder), Answering(-VECTORS), past_cache=True).require("here")


def test_all_rows_may_be_true_and_others_are_compared_with_the_cache(store, folder):
    whole = claim_of_store(store, Answering(), np.arange(60))
    assert len(whole) == 8 and max(int(doc_id[1:]) for doc_id in ids(whole)) >= 20
    known = Answering(cached=range(30, 40))
    assert matches(claim_of_store(store, known), known, past_cache=True).agreeing == 8
    assert set(known.rows_asked) & set(range(30, 40))
    (folder / "confidence.npy").unlink()
    bare = open_store(folder)
    assert len(claim_of_store(bare, Answering())) == len(claim_of_true_rows(bare)) == 0, "nothing to compare with"
    assert ids(claim_of_store(bare, Answering(cached=(7, 9)))) == {"d7", "d9"}


def test_nothing_is_known_for_a_model_that_runs_here_nor_of_a_store_without_texts(store, folder):
    assert len(claim_of_store(store, Answering(is_paid=False, cached=range(60)))) == 0
    (folder / "docs.jsonl").unlink()
    bare = open_store(folder)
    assert len(claim_of_store(bare, Answering())) == len(claim_of_true_rows(bare)) == 0


def test_texts_are_drawn_once_each_and_blank_ones_never(tmp_path):
    texts = ["", "one", "one", "two", " ", "three"]
    writer = create_store(tmp_path, format="faiss", dim=6, metric="ip")
    writer.append([Document(f"d{row}", text) for row, text in enumerate(texts)], VECTORS[:6])
    writer.finish()
    claim = claim_of_rows(open_store(tmp_path), np.arange(6), 2)
    assert [text.id for text in claim.texts] == ["d1", "d3"] and np.array_equal(claim.vectors, VECTORS[[1, 3]])


PROVEN_BY_OTHERS = {
    "steps/fit/words.py": "the fit has the sample embedded again by the same model",
    "stitch/text_reader.py": "a view, of which held-out documents show whether it helps",
    "live/monitor.py": "the worker has the model proven before",
    "live/true_vectors.py": "the worker compares what the searcher has left in the cache",
}


def test_whoever_buys_vectors_of_documents_has_some_of_them_embedded_again():
    package = Path(migrate.__file__).parent
    unproven = set()
    for module in package.rglob("*.py"):
        if module.is_relative_to(package / "embedders") or module.is_relative_to(package / "testing"):
            continue
        source = module.read_text()
        if "embed_documents" not in source:
            continue
        nodes = list(ast.walk(ast.parse(source)))
        calls = [node.func for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
        is_buying = any(call.attr == "embed_documents" and "embeddings" not in ast.unparse(call) for call in calls)
        imported = {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
        if is_buying and "migrate.selection.model_match" not in imported:
            unproven.add(str(module.relative_to(package)))
    assert unproven == PROVEN_BY_OTHERS.keys()
