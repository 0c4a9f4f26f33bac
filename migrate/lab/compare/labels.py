"""Scores of classifiers that were trained on one space, for the vectors of others: a linear probe, and kNN."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from migrate.lab.labels.probes import LinearProbe, NearestNeighbours, divide, number_labels
from migrate.vectors import Vectors


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Scores of held-out documents: the share that is classified right, and F1 averaged over the labels."""

    accuracy: float
    macro_f1: float


@dataclass(frozen=True, slots=True)
class Downstream:
    """Scores by vectors: of the true ones first, then of each other space; None where the dimension is another.

    Attributes
    ----------
    labels : how many there are among the documents
    trained_on, judged_on : documents, of which no one is in both
    majority : accuracy of always guessing the most frequent label
    probe : multinomial logistic regression
    knn : majority of the 10 nearest by cosine
    """

    labels: int
    trained_on: int
    judged_on: int
    majority: float
    probe: tuple[Accuracy | None, ...]
    knn: tuple[Accuracy | None, ...]


def judge_labels(spaces: Sequence[Vectors], labels: Sequence[str], *, seed: int = 0) -> Downstream:
    """Train on the first space, (n, d), with one half of the documents; classify the other half's vectors of every one.

    `labels[i]` is that of row i. The halves are drawn by `seed`, and each label is divided evenly between them.
    """
    kinds, numbers = number_labels(labels)
    train, test = divide(numbers, seed)
    true = spaces[0]
    truth = numbers[test]
    judges = [fit(true[train], numbers[train]) for fit in (LinearProbe, NearestNeighbours)]
    scores: list[list[Accuracy | None]] = [[], []]
    for space in spaces:
        for judge, judged in zip(judges, scores, strict=True):
            # A classifier reads vectors of the dimension that it was trained on
            if space.shape[1] != true.shape[1]:
                judged.append(None)
            else:
                judged.append(_score(truth, judge.predict(space[test])))
    probe, knn = scores
    # Of the training half: who guesses has not seen the other
    majority = np.bincount(numbers[train]).argmax()
    return Downstream(len(kinds), len(train), len(test), float((truth == majority).mean()), tuple(probe), tuple(knn))


def _score(truth: NDArray[np.int64], guess: NDArray[np.int64]) -> Accuracy:
    from sklearn.metrics import f1_score

    return Accuracy(float((truth == guess).mean()), float(f1_score(truth, guess, average="macro")))
