"""What `fit` and `inspect` say where documents are too few, or the old vectors are not those of the texts."""

import json
import random
import re
from functools import cache

import numpy as np
import pytest
from faiss_tools import build, save, write_docs

import migrate
from migrate.cli.main import run
from migrate.datasets.stdlib import LARGE, SMALL, stdlib_beir, vectors_of
from migrate.stitch.mixture import find_mixture
from migrate.stitch.select import FEWEST_JUDGED
from migrate.vectors import unit_rows

pytestmark = pytest.mark.slow
FIGURE = re.compile(r"bounds|finds \d|alone find|overlap \d|Spearman|learning curve:|squared error")
"""What only a sample that is large enough is said to show."""


DIM, NEW_DIM = 96, 192
"""Numbers of a vector that tell documents apart, a quarter of them; to tell models apart takes all."""


@cache
def whole():
    """Documents with the vectors of two real models, (n, 384) and (n, 768)."""
    by_model = []
    for model in (SMALL, LARGE):
        with np.load(vectors_of(model)) as file:
            by_model.append(dict(zip(file["doc_ids"].tolist(), file["docs"].astype(np.float32), strict=True)))
    documents = [d for d in stdlib_beir().documents if all(d.id in vectors for vectors in by_model)]
    random.Random(0).shuffle(documents)  # those that follow each other are alike
    small, large = (unit_rows(np.array([vectors[d.id] for d in documents])) for vectors in by_model)
    return documents, small, large


@cache
def demo():
    """The same with the first numbers of each vector, (n, 96) and (n, 192)."""
    documents, small, large = whole()
    return documents, unit_rows(small[:, :DIM].copy()), unit_rows(large[:, :NEW_DIM].copy())


@pytest.fixture(autouse=True)
def _target(tmp_path):
    """The vectors of the larger model, to be found by id."""
    documents, _, large = demo()
    ids = [document.id for document in documents]
    np.savez(tmp_path / "large.npz", doc_ids=ids, docs=large, query_ids=["q"], queries=large[:1])


def make(folder, count, vectors=None):
    documents, small, _ = demo()
    save(build("Flat", small[:count] if vectors is None else vectors[:count], metric="ip"), folder)
    write_docs(folder, documents[:count])
    return str(folder)


def fit(store, output, *more):
    return ["fit", store, "--target", "file:large.npz", "--view", "none", "-o", str(output), *more]


@pytest.mark.parametrize("count", [2, FEWEST_JUDGED - 1])
def test_of_few_documents_no_figure_is_told_but_the_reason(count, tmp_path, capsys):
    store, stitch = make(tmp_path / "store", count), tmp_path / "stitch"
    assert run(fit(store, stitch)) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"no figure of what it finds, as {count} documents are too few ({FEWEST_JUDGED} at least)" in said
    assert not FIGURE.search(said)
    assert run(["inspect", str(stitch)]) == 0
    assert "too few documents for an overlap@10" in capsys.readouterr().out
    assert "overlap@10 not known" in repr(migrate.load_stitch(stitch))


def test_json_has_no_figure_of_few_documents_either(tmp_path, capsys):
    assert run(fit(make(tmp_path / "store", 9), tmp_path / "stitch", "--json")) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["judged"] == 9
    assert told["confidence"] is told["curve"] is None
    assert {row["scores"]["overlap_at_10"] for row in told["candidates"]} == {None}


def test_from_enough_documents_on_it_is(tmp_path, capsys):
    assert run(fit(make(tmp_path / "store", FEWEST_JUDGED), tmp_path / "stitch")) == 0
    said = capsys.readouterr().out
    assert "95 % bounds" in said
    assert "no figure" not in said


WITHOUT_WIDTH = re.compile(r"(\d+\.\d+)(?:-| to )\1\b|± 0\.000")
"""Bounds that leave nothing between them."""


@pytest.mark.parametrize("count", [FEWEST_JUDGED, FEWEST_JUDGED + 1, 100])
def test_no_bounds_are_without_width_where_all_neighbours_are_found(count, tmp_path, capsys):
    """The new vectors are the old ones turned: from half of the documents on nothing is left to be gained."""
    documents, *_ = demo()
    rng = np.random.default_rng(0)
    old = unit_rows(rng.normal(size=(300, 8)).astype(np.float32))
    turn = np.linalg.qr(rng.normal(size=(8, 8)))[0].astype(np.float32)
    ids = [document.id for document in documents[:300]]
    np.savez(tmp_path / "t.npz", doc_ids=ids, docs=old @ turn, query_ids=["q"], queries=(old @ turn)[:1])
    store, stitch, target = make(tmp_path / "store", 300, old), tmp_path / "stitch", f"file:{tmp_path / 't.npz'}"
    command = ["fit", store, "--target", target, "--kind", "procrustes", "--sample", str(count), "-o", str(stitch)]
    assert run([*command, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["curve"]["gain"], told["curve"]["low"], told["curve"]["high"]) == (None, None, None)
    assert run([*command, "--force"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"{100 - 300 / count:.1f}-100.0 %" in said
    assert "the next 1,000 pairs add is not known" in said
    assert not WITHOUT_WIDTH.search(said), said


def test_old_vectors_of_other_texts_are_doubted(tmp_path, capsys):
    _, small, _ = demo()
    store = make(tmp_path / "store", 120, np.roll(small[:120], 1, axis=0))
    assert run(fit(store, tmp_path / "stitch")) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "the old vectors tell nothing of the new ones" in said
    assert "`lead-migrate check STORE --model SPEC` tells" in said


def test_a_stitch_that_is_no_better_than_chance_is_promised_nothing(tmp_path, capsys):
    _, small, _ = demo()
    store = make(tmp_path / "store", 120, np.roll(small[:120], 1, axis=0))
    assert run(fit(store, tmp_path / "stitch", "--kind", "ridge")) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "took ridge; no figure of what it finds" in said
    assert not FIGURE.search(said.partition("took")[2].partition("the old vectors")[0])


@pytest.mark.parametrize("kind", ["mean", "auto"])
def test_old_vectors_that_are_right_are_not_doubted(kind, tmp_path, capsys):
    assert run(fit(make(tmp_path / "store", 120), tmp_path / "stitch", "--kind", kind, "--json")) == 0
    assert json.loads(capsys.readouterr().out)["doubts"] == []


def mixed(share, vectors):
    """Vectors of the small model, a share of them those of the large one's first dimensions."""
    _, small, large = vectors
    is_other = np.random.default_rng(0).random(len(small)) < share
    return np.where(is_other[:, None], unit_rows(np.ascontiguousarray(large[:, : small.shape[1]])), small)


def mispaired(share, vectors):
    """Vectors of the small model, a share of them those of other documents."""
    _, small, _ = vectors
    rows = np.flatnonzero(np.random.default_rng(0).random(len(small)) < share)
    spoiled = small.copy()
    spoiled[rows] = small[np.roll(rows, 1)]
    return spoiled


@pytest.mark.parametrize(("share", "count"), [(0.3, 200), (0.5, 200), (0.3, 800)])
@pytest.mark.parametrize(("make_vectors", "sign"), [(mixed, "groups"), (mispaired, "errors")])
def test_two_kinds_of_vectors_are_found(make_vectors, sign, share, count):
    target = np.ascontiguousarray(whole()[2][:, 384:])
    found = find_mixture(make_vectors(share, whole())[:count], target[:count])
    assert found is not None
    assert found.sign == sign
    assert found.share == pytest.approx(share, abs=0.1)


def turned(share):
    """Vectors of the small model around their mean, a share of them turned: the two kinds have one middle."""
    _, small, _ = whole()
    random = np.random.default_rng(0)
    centred = unit_rows(small - small.mean(axis=0))
    turn = np.linalg.qr(random.normal(size=(small.shape[1], small.shape[1])))[0].astype(np.float32)
    is_turned = random.random(len(small)) < share
    return np.where(is_turned[:, None], centred @ turn, centred)


@pytest.mark.parametrize(("count", "share"), [(200, 0.35), (200, 0.65), (400, 0.5)])
def test_two_kinds_of_vectors_with_one_middle_are_found(count, share):
    found = find_mixture(turned(share)[:count], whole()[2][:count])
    assert found is not None
    assert found.sign == "groups"
    assert found.share == pytest.approx(min(share, 1 - share), abs=0.15)


@pytest.mark.parametrize("count", [100, 800])
def test_one_kind_is_not_taken_for_two(count):
    _, small, large = whole()
    assert find_mixture(small[:count], large[:count]) is None
    assert find_mixture(large[:count], small[:count]) is None


@pytest.mark.parametrize(("make_vectors", "reason"), [(mixed, "lie apart"), (mispaired, "no better than by chance")])
def test_fit_says_so_and_names_check(make_vectors, reason, tmp_path, capsys):
    assert (
        run(fit(make(tmp_path / "store", 300, make_vectors(0.5, demo())), tmp_path / "stitch", "--kind", "ridge")) == 0
    )
    said = " ".join(capsys.readouterr().out.split())
    assert "the old vectors are of two kinds" in said
    assert reason in said
    assert "lead-migrate check" in said
    assert migrate.load_stitch(tmp_path / "stitch").selection.mixture is not None, "a stitch remembers it"
