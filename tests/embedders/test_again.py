"""Which texts are embedded again to prove that a model is still the one that it was, and what that finds out."""

import ast
from itertools import chain
from pathlib import Path

import answering
import numpy as np
import pytest
from answering import Answering

import migrate
from migrate.embedders.again import ASKED_AGAIN, Witnesses, prove_answers, prove_known, some_places
from migrate.errors import VectorError
from migrate.vectors import Document

TEXTS = [Document(f"d{number}", f"text {number}") for number in range(40)]
VECTORS = answering.VECTORS[:40]


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
        positions = some_places(count, np.random.default_rng(seed))
        assert positions[0] == 0 and positions[-1] == count - 1
        assert positions == sorted(set(positions)) and len(positions) == min(count, ASKED_AGAIN)


@pytest.mark.parametrize("count", [1, 2, 3, 8, 9, 40])
def test_one_is_asked_alone_and_the_others_in_another_order(count):
    embedder = Answering()
    assert prove_answers(embedder, TEXTS[:count], VECTORS[:count], source="here") == min(count, 8)
    (alone, *others) = embedder.asked
    assert len(alone) == 1 and len(others) == (count > 1)
    again = [*alone, *(others[0] if others else [])]
    assert len(set(again)) == len(again) == min(count, 8) and {0, count - 1} <= set(again)
    assert count < 3 or (alone != [0] and others[0] == [0, *sorted(others[0][1:], reverse=True)])


@pytest.mark.parametrize(("cosine", "is_another"), [(0.9992, False), (0.9988, True), (0.5, True)])
def test_vectors_of_another_direction_are_another_model_and_of_another_length_are_not(cosine, is_another):
    answers = turned(VECTORS, cosine)
    if not is_another:
        assert prove_answers(Answering(answers), TEXTS, VECTORS, source="here") == 8
        return
    with pytest.raises(VectorError, match=rf"here: answering gives another .*cosine {cosine:.3f}, 8 of 8 are others"):
        prove_answers(Answering(answers), TEXTS, VECTORS, source="here")


@pytest.mark.parametrize("wrong", [0, 39])
def test_one_answer_that_is_wrong_is_named_and_one_of_another_dimension_is_wrong(wrong):
    answers = VECTORS.copy()
    answers[wrong] = -answers[wrong]
    with pytest.raises(VectorError, match=rf"the text of 'd{wrong}' .*cosine -1.000, 1 of 8 are others"):
        prove_answers(Answering(answers), TEXTS, VECTORS, source="here")
    with pytest.raises(VectorError, match=r"cosine 0\.000, 8 of 8 are others"):
        prove_answers(Answering(VECTORS[:, :5]), TEXTS, VECTORS, source="here")


def test_a_model_that_runs_here_is_not_asked_and_nothing_is_asked_of_no_texts():
    here, elsewhere = Answering(-VECTORS, is_paid=False, cached=range(40)), Answering(-VECTORS)
    assert prove_answers(here, TEXTS, VECTORS, source="here") == prove_known(here, TEXTS, source="here") == 0
    assert prove_answers(elsewhere, [], VECTORS[:0], source="here") == prove_known(elsewhere, [], source="here") == 0
    assert prove_known(elsewhere, TEXTS, source="here") == 0, "nothing is in the cache"
    assert here.asked == elsewhere.asked == []


def test_of_texts_whose_vectors_are_known_those_are_asked_again():
    embedder = Answering(cached=(3, 7, 11))
    assert prove_known(embedder, TEXTS, source="here") == 3
    assert sorted(chain(*embedder.asked)) == [3, 7, 11]
    with pytest.raises(VectorError):
        prove_known(Answering(-VECTORS, cached=(3, 7, 11)), TEXTS, source="here")


def test_texts_of_a_run_are_asked_again_wherever_they_came_in_it():
    places = []
    for count in (20, 50, 100, 200, 500, 1_000, 2_000):
        embedder = Answering(np.tile(VECTORS, (50, 1)))
        witnesses = Witnesses(embedder, "here")
        texts = [Document(f"d{number}", "text") for number in range(count)]
        for start in range(0, count, 2):  # all texts of so small a batch may be chosen
            witnesses.add(texts[start : start + 2], embedder.answers[start : start + 2])
        witnesses.check()
        asked = {*chain(*embedder.asked)}
        assert len(asked) == 8
        places += [number / count for number in asked]
    halves = np.histogram(places, bins=2, range=(0, 1))[0] / len(places)
    assert halves == pytest.approx([0.5] * 2, abs=0.15)


def test_vectors_of_a_run_are_those_of_then():
    embedder, seen = Answering(), VECTORS.copy()
    witnesses = Witnesses(embedder, "here")
    witnesses.check()
    assert embedder.asked == [], "nothing was embedded"
    witnesses.add(TEXTS, seen)
    seen[:] = 0  # the room of a batch is used again
    witnesses.check()
    embedder.answers = -VECTORS
    with pytest.raises(VectorError, match="here: answering gives another vector"):
        witnesses.check()


PROVEN_BY_OTHERS = {
    "audit/reference.py": "the vectors are compared with those of the store",
    "check/comparison.py": "the vectors are compared with those of the store",
    "check/diagnose.py": "the vectors are compared with those of the store",
    "steps/fit/job.py": "a view is compared with the target",
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
        nodes = list(ast.walk(ast.parse(module.read_text())))
        calls = [node.func for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
        is_buying = any(call.attr == "embed_documents" and "embeddings" not in ast.unparse(call) for call in calls)
        imported = {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
        if is_buying and "migrate.embedders.again" not in imported:
            unproven.add(str(module.relative_to(package)))
    assert unproven == PROVEN_BY_OTHERS.keys()
