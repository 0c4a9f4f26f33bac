import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, f1_score
from sklearn.neighbors import KNeighborsClassifier

from migrate.errors import DatasetError
from migrate.lab.compare.labels import judge_labels
from migrate.lab.labels.probes import divide
from migrate.vectors import unit_rows


def make(n=300, spread=1.2, seed=0):
    rng = np.random.default_rng(seed)
    numbers = rng.choice(3, size=n, p=[0.6, 0.3, 0.1])
    vectors = (rng.normal(size=(3, 10))[numbers] + spread * rng.normal(size=(n, 10))).astype(np.float32)
    return vectors, [("red", "green", "blue")[number] for number in numbers]


def test_scores_are_those_of_classifiers_trained_on_true_vectors():
    true, labels = make()
    other = (true + np.random.default_rng(1).normal(size=true.shape)).astype(np.float32)
    found = judge_labels([true, other], labels, seed=7)
    kinds = np.array(labels)
    known, asked = divide(np.unique(kinds, return_inverse=True)[1], 7)
    scale = np.linalg.norm(true[known], axis=1).mean()
    probe = LogisticRegression(C=10, max_iter=1_000).fit(true[known] / scale, kinds[known])
    knn = KNeighborsClassifier(10).fit(unit_rows(true[known]), kinds[known])
    for place, space in enumerate((true, other)):
        guess = probe.predict(space[asked] / scale)
        assert found.probe[place].accuracy == pytest.approx(accuracy_score(kinds[asked], guess))
        assert found.probe[place].macro_f1 == pytest.approx(f1_score(kinds[asked], guess, average="macro"))
        assert found.knn[place].accuracy == pytest.approx(knn.score(unit_rows(space[asked]), kinds[asked]))
    assert found.probe[1].accuracy < found.probe[0].accuracy
    assert found.majority == pytest.approx((kinds[asked] == "red").mean())


def test_each_label_is_divided_evenly():
    numbers = np.array([0] * 7 + [1] * 4 + [2])
    known, asked = divide(numbers, 3)
    assert sorted([*known, *asked]) == list(range(12))
    assert np.bincount(numbers[known]).tolist() == [4, 2, 1]
    assert np.bincount(numbers[asked], minlength=3).tolist() == [3, 2, 0]


def test_a_space_of_another_dimension_has_no_score():
    true, labels = make()
    found = judge_labels([true, true[:, :4]], labels)
    assert found.probe[1] is None and found.knn[1] is None
    assert found.probe[0] is not None and found.trained_on + found.judged_on == 300


def test_one_label_is_none_to_tell_apart():
    true, _ = make()
    with pytest.raises(DatasetError, match="occur twice or more, and two must"):
        judge_labels([true, true], ["same"] * len(true))


def test_great_vectors_are_classified_as_small_ones():
    true, labels = make()
    assert judge_labels([true * 1_000], labels).probe == judge_labels([true], labels).probe
