"""Classifiers of vectors: a linear probe, kNN, and a detector of vectors that lie outside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from migrate.errors import DatasetError
from migrate.stitch.nearest import NEIGHBOURS
from migrate.vectors import Vectors, squared_norms, unit_rows


def number_labels(labels: Sequence[str]) -> tuple[NDArray[np.str_], NDArray[np.int64]]:
    """Return the labels that there are, and the number of each document's."""
    if not len(labels):
        raise DatasetError("none of the documents that are compared has a label; check the ids of the labels")
    kinds, numbers = np.unique(np.asarray(labels, dtype=object).astype(str), return_inverse=True)
    repeated = int((np.bincount(numbers) > 1).sum())
    if repeated < 2:
        raise DatasetError(
            f"too few labels: of the {len(kinds)} labels of {len(numbers)} compared documents {repeated} "
            "occur twice or more, and two must; check the labels"
        )
    return kinds, numbers


class LinearProbe:
    """Logistic regression on vectors in units of the training vectors' mean norm: its strength then fits any store."""

    def __init__(self, vectors: Vectors, numbers: NDArray[np.int64]) -> None:
        import warnings

        from sklearn.exceptions import ConvergenceWarning
        from sklearn.linear_model import LogisticRegression

        self._scale = np.float32(np.sqrt(squared_norms(vectors)).mean())
        self._model: Any = LogisticRegression(C=10.0, max_iter=1_000)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the last step is near enough
            # Some builds of BLAS raise the processor's flags for finite products
            warnings.filterwarnings("ignore", "(invalid value|divide by zero|overflow) encountered in matmul")
            self._model.fit(vectors / self._scale, numbers)

    def predict(self, vectors: Vectors) -> NDArray[np.int64]:
        """Return the class of each row, (m,)."""
        return np.asarray(self._model.predict(vectors / self._scale), dtype=np.int64)

    def scores(self, vectors: Vectors) -> NDArray[np.float64]:
        """Return how far each row lies on the side of the second of two classes, (m,)."""
        return np.asarray(self._model.decision_function(vectors / self._scale), dtype=np.float64)


class NearestNeighbours:
    """Majority of the 10 nearest by cosine."""

    def __init__(self, vectors: Vectors, numbers: NDArray[np.int64]) -> None:
        from sklearn.neighbors import KNeighborsClassifier

        # Trees of neighbours are no faster in hundreds of dimensions
        self._model: Any = KNeighborsClassifier(min(NEIGHBOURS, len(vectors)), algorithm="brute")
        self._model.fit(unit_rows(vectors), numbers)

    def predict(self, vectors: Vectors) -> NDArray[np.int64]:
        """Return the class of each row, (m,)."""
        return np.asarray(self._model.predict(unit_rows(vectors)), dtype=np.int64)


class OutsideDetector:
    """The Euclidean distance of unit vectors to the tenth nearest of those that belong (Sun, Ming, Zhu & Li 2022).

    `threshold` is what 95 % of these keep below, each held against the others.
    """

    def __init__(self, vectors: Vectors) -> None:
        from sklearn.neighbors import NearestNeighbors

        self._k = min(NEIGHBOURS, len(vectors) - 1)
        self._model: Any = NearestNeighbors(n_neighbors=self._k, algorithm="brute").fit(unit_rows(vectors))
        distances = self._model.kneighbors()[0][:, -1]  # without the vector itself
        # At 95 % of those that belong, as in that paper
        self.threshold = float(np.quantile(distances, 0.95))

    def distances(self, vectors: Vectors) -> NDArray[np.float64]:
        """Return how far each row lies from those that belong, (m,)."""
        return np.asarray(self._model.kneighbors(unit_rows(vectors))[0][:, -1], dtype=np.float64)


def divide(numbers: NDArray[np.int64], seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return every other document of each label, in random order; the odd one of a label is trained on."""
    order = np.random.default_rng(seed).permutation(len(numbers))
    order = order[np.argsort(numbers[order], kind="stable")]
    counts = np.bincount(numbers)
    rank = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    return order[rank % 2 == 0], order[rank % 2 == 1]
