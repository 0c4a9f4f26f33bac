"""What trained models keep of translated vectors: figures by scikit-learn, outcomes by translations made to fail."""

import json

import numpy as np
import pytest
import topics
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score, roc_auc_score
from sklearn.neighbors import KNeighborsClassifier, NearestNeighbors

from migrate.audit.bounds import Outcome
from migrate.cli.main import run
from migrate.errors import DatasetError, VectorError
from migrate.lab.labels.judge import INSIDE, KNN, OUTSIDE, PROBE, audit_downstream
from migrate.lab.labels.probes import divide
from migrate.stores import open_store
from migrate.vectors import Document, unit_rows

COUNT, DIM = 600, 16
IDS = [f"d{row:03}" for row in range(COUNT)]


def make(folder, vectors):
    documents = [Document(doc_id, f"text of {doc_id}") for doc_id in IDS]
    return topics.make_store(folder, None, documents, vectors=vectors.astype(np.float32))


def by_labels(translated, reference, labels, **options):
    return audit_downstream(translated, reference, labels, **options)


def world(shares=(0.5, 0.3, 0.2), spread=0.7, seed=0):
    """Vectors around the centre of each label; the last 100 documents are from outside."""
    rng = np.random.default_rng(seed)
    numbers = rng.choice(len(shares), size=COUNT, p=shares)
    vectors = rng.normal(size=(len(shares), DIM))[numbers] + spread * rng.normal(size=(COUNT, DIM))
    vectors[-100:] = 1.5 * rng.normal(size=(100, DIM)) - 1.5
    labels = {doc_id: "abc"[number] for doc_id, number in zip(IDS[:-100], numbers, strict=False)}
    return vectors.astype(np.float32), labels


def tasks(found):
    return {task.task: task for task in found.tasks}


def test_right_answers_are_those_of_scikit_learn(tmp_path):
    true, labels = world()
    translated = true + 0.8 * np.random.default_rng(1).normal(size=true.shape).astype(np.float32)
    found = by_labels(make(tmp_path / "t", translated), make(tmp_path / "r", true), labels, seed=3)
    kinds = np.array(list(labels.values()))
    train, test = divide(np.unique(kinds, return_inverse=True)[1], 3)
    scale = np.linalg.norm(true[train], axis=1).mean()
    probe = LogisticRegression(C=10, max_iter=1_000).fit(true[train] / scale, kinds[train])
    knn = KNeighborsClassifier(10).fit(unit_rows(true[train]), kinds[train])
    for name, model, seen in ((PROBE, probe, lambda v: v / scale), (KNN, knn, unit_rows)):
        task = tasks(found)[name]
        for figure, vectors in ((task.true, true), (task.translated, translated)):
            expected = balanced_accuracy_score(kinds[test], model.predict(seen(vectors[test])))
            assert figure == pytest.approx(expected, abs=0.01)
        assert task.bounds.lower < task.translated / task.true < task.bounds.upper
    assert (found.labels, found.trained_on, found.left_out) == (3, len(train), 0)


def test_a_detector_is_that_of_scikit_learn(tmp_path):
    true, labels = world()
    translated = true + 0.3 * np.random.default_rng(1).normal(size=true.shape).astype(np.float32)
    outside = IDS[-100:]
    found = by_labels(make(tmp_path / "t", translated), make(tmp_path / "r", true), labels, outside=outside)
    train, test = divide(np.unique(list(labels.values()), return_inverse=True)[1], 0)
    model = NearestNeighbors(n_neighbors=10).fit(unit_rows(true[train]))
    threshold = np.quantile(model.kneighbors()[0][:, -1], 0.95)
    sides = ((true, found.outside_true, "true"), (translated, found.outside_translated, "translated"))
    for vectors, area, side in sides:
        inside, strange = (model.kneighbors(unit_rows(vectors[rows]))[0][:, -1] for rows in (test, slice(-100, None)))
        labelled = np.r_[np.zeros(len(inside)), np.ones(100)]
        assert area.estimate == pytest.approx(roc_auc_score(labelled, np.r_[inside, strange]), abs=1e-6)
        assert getattr(tasks(found)[INSIDE], side) == pytest.approx((inside <= threshold).mean(), abs=0.01)
        assert getattr(tasks(found)[OUTSIDE], side) == pytest.approx((strange > threshold).mean(), abs=0.01)


def test_a_faithful_translation_is_safe_and_a_random_one_is_not(tmp_path):
    true, labels = world(spread=0.4)
    reference, outside = make(tmp_path / "r", true), IDS[-100:]
    near = true + 0.01 * np.random.default_rng(1).normal(size=true.shape)
    random = np.random.default_rng(2).normal(size=true.shape)
    for name, vectors, outcome in (("near", near, Outcome.SAFE), ("random", random, Outcome.NOT_SAFE)):
        assert by_labels(make(tmp_path / name, vectors), reference, labels, outside=outside).outcome is outcome


def test_a_shift_of_all_vectors_raises_false_alarms(tmp_path):
    """The order of the distances stays, and so does the AUC; a threshold that was set on true vectors does not hold."""
    true, labels = world(spread=0.4)
    moved = true + 2 * np.eye(DIM)[0]
    found = by_labels(make(tmp_path / "t", moved), make(tmp_path / "r", true), labels, outside=IDS[-100:])
    assert tasks(found)[INSIDE].outcome is Outcome.NOT_SAFE
    assert found.outside_translated.estimate > 0.9


def test_a_rare_label_that_is_lost_is_seen(tmp_path):
    """Plain accuracy would keep 0.95 or more of its share."""
    true, labels = world(shares=(0.97, 0.03), spread=0.3)
    rare = np.array([labels.get(doc_id) == "b" for doc_id in IDS])
    lost = true.copy()
    lost[rare] = true[:-100][~rare[:-100]][: rare.sum()]
    found = by_labels(make(tmp_path / "t", lost), make(tmp_path / "r", true), labels)
    assert found.majority > 0.95
    assert tasks(found)[KNN].outcome is Outcome.NOT_SAFE
    assert tasks(found)[KNN].translated == pytest.approx(0.5, abs=0.02)


def test_labels_that_nothing_can_learn_settle_nothing(tmp_path):
    true, labels = world()
    chance = dict(zip(labels, np.random.default_rng(5).choice(["x", "y"], len(labels)), strict=True))
    store = make(tmp_path / "r", true)
    found = by_labels(make(tmp_path / "t", true), store, chance)
    assert {task.outcome for task in found.tasks} == {Outcome.INCONCLUSIVE}
    assert all("better than a guess" in task.doubt for task in found.tasks)


def test_too_little_to_judge_by_is_refused(tmp_path):
    true, labels = world()
    translated, reference = make(tmp_path / "t", true), make(tmp_path / "r", true)
    few = dict(list(labels.items())[:30])
    with pytest.raises(DatasetError, match="too few labelled documents"):
        by_labels(translated, reference, few)
    with pytest.raises(DatasetError, match="too few outside documents"):
        by_labels(translated, reference, labels, outside=IDS[-5:])
    with pytest.raises(DatasetError, match="none of the documents"):
        by_labels(translated, reference, {"strange": "a"})
    with pytest.raises(VectorError, match=r"has vectors of dimension [0-9]+, and .* of 16"):
        by_labels(translated, make(tmp_path / "short", true[:, :8]), labels)


@pytest.fixture(scope="module")
def moved(corpus, source_folder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("moved")
    source = open_store(source_folder)
    ids = [doc_id for batch in source.scan() for doc_id in batch.ids]
    rng = np.random.default_rng(0)
    numbers = np.arange(len(ids)) % 2
    vectors = (rng.normal(size=(2, 12))[numbers] + 0.3 * rng.normal(size=(len(ids), 12))).astype(np.float32)
    np.savez(folder / "target.npz", doc_ids=np.array(ids), docs=vectors, query_ids=np.array(["q"]), queries=vectors[:1])
    spec = f"file:{folder / 'target.npz'}"
    for command in (
        ["fit", source_folder, "--target", spec, "--sample", "30", "--kind", "ridge", "-o", folder / "stitch"],
        ["translate", source_folder, folder / "stitch", "-o", folder / "new"],
    ):
        assert run([str(part) for part in (*command, "-q")]) == 0
    topics.make_store(folder / "full", None, list(source.documents()), vectors=vectors)
    (folder / "labels.tsv").write_text("".join(f"{i}\t{'ab'[n]}\n" for i, n in zip(ids, numbers, strict=True)))
    (folder / "outside.txt").write_text("\n".join(ids[:5]) + "\n")
    return folder


def test_the_command_judges_by_labels(moved, told, tmp_path, monkeypatch):
    monkeypatch.chdir(moved)
    out = ["--report", tmp_path / "r.json", "--report", tmp_path / "j.xml"]
    code, document, _ = told("labels", "new", "--reference", "full", "--labels", "labels.tsv", "--json", *out)
    assert (document["outcome"], code) == ("NOT SAFE", 1)  # of texts and random vectors nothing can be learned
    assert 0 < document["left_out"] < 30  # the sample's, in the half that judges
    assert json.loads((tmp_path / "r.json").read_text()) == document
    assert "linear probe" in (tmp_path / "j.xml").read_text()


LABELS = ["--labels", "labels.tsv"]
FULL = ["new", "--reference", "full"]
ITSELF = ["full", "--reference", "full", *LABELS]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ([*FULL, "--outside", "outside.txt"], 2, "--labels"),
        (["new", "--reference", "pool", *LABELS], 2, "--labels needs a full re-embed to train on"),
        ([*FULL, "--labels", "missing"], 4, "missing"),
        ([*FULL, *LABELS, "--report", "x.html"], 2, "there is no page by labels"),
        ([*FULL, *LABELS, "--outside", "target.npz"], 4, "target.npz"),
        ([*FULL, *LABELS, "--outside", "outside.txt"], 4, "too few outside documents"),
        (["new", "--reference", "new", *LABELS], 4, "is the audited store itself"),
        (ITSELF, 2, "name it with --target"),
        ([*ITSELF, "--target", "file:target.npz"], 4, "is the audited store itself, not a full re-embed"),
    ],
)
def test_what_goes_together_is_told_in_one_line(arguments, code, words, moved, told, monkeypatch):
    monkeypatch.chdir(moved)
    found, _, message = told("labels", *arguments)
    assert found == code and words in message and message.count("\n") == 1
