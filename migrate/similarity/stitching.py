"""Fits an affine stitch between two spaces and scores it: errors beside controls, penalty, spectrum and bias."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from migrate.similarity.matching import check_same_documents, some_rows
from migrate.similarity.neighbours import NEIGHBOURS, nearest_by_cosine
from migrate.stitch.base import centred
from migrate.stitch.linear import Mean, Ridge
from migrate.stitch.scores import score_predictions
from migrate.stitch.text_features import Matrix
from migrate.vectors import Vectors, unit_rows

MOST_PAIRS = 2_000
"""The most documents to fit a stitch on, and the most to judge it on."""

_PENALTY_PAIRS = 1_000
FEWEST = 4


@dataclass(frozen=True, slots=True)
class Scores:
    """How near predicted vectors are to the true ones of held-out documents.

    Attributes
    ----------
    mse, mae : mean over rows and columns of the squared and of the absolute difference
    r2 : 1 - squared error / squared deviation from the mean of the truth, all columns together
    overlap_at_10 : mean share of the 10 true neighbours that the predictions find, with true vectors as queries
    """

    mse: float
    mae: float
    r2: float
    overlap_at_10: float

    @property
    def penalty(self) -> float:
        """The stitching penalty: the loss of `overlap_at_10` from searching predictions, not true vectors.

        Bansal, Nakkiran & Barak 2021 define it as the loss of the stitched network minus that of the whole one. Here
        the task is to find neighbours, and the target space finds all of them: 1 - overlap@10.
        """
        return 1 - self.overlap_at_10


@dataclass(frozen=True, slots=True)
class Stitching:
    """An affine stitch from one space to another, fitted on some documents and judged on others.

    Attributes
    ----------
    fitted_on, judged_on : documents, of which no one is in both
    stitch : `ridge`, its penalty chosen by retrieval
    from_half : the same, fitted on the first half of those documents: how much their number matters
    mean : the control that knows the target's mean alone
    random : the control that draws from a Gaussian with the target's mean and deviation of each column
    identity : the vectors as they are; None where the dimensions differ
    singular_values : of the stitch's matrix, the greatest first, as many as the pairs allow
    bias_norm : Euclidean norm of the stitch's offset
    """

    fitted_on: int
    judged_on: int
    stitch: Scores
    from_half: Scores
    mean: Scores
    random: Scores
    identity: Scores | None
    singular_values: tuple[float, ...]
    bias_norm: float

    @property
    def effective_rank(self) -> float:
        """The exponential of the entropy of the singular values' shares (Roy & Vetterli 2007)."""
        values = np.array(self.singular_values)
        shares = values[values > 0] / values.sum()
        return float(np.exp(-(shares * np.log(shares)).sum())) if shares.size else 0.0


def judge_stitching(source: Vectors, target: Vectors, *, seed: int = 0) -> Stitching:
    """Fit a stitch from (n, p) to (n, q) on one half of the documents, and judge it on the other.

    Each half is drawn by `seed` and has up to 2,000 documents; the penalty of the ridge is chosen on up to 1,000.

    Raises
    ------
    VectorError
        The two differ in length, or there are fewer than 4 documents.
    """
    check_same_documents(source, target, FEWEST)
    train, test = halves(len(source), seed=seed)
    x, y, truth = source[train], target[train], target[test]
    stitch = _fit(x, y)
    half = max(len(x) // 2, 2)
    task = _Task(truth, seed=seed)
    as_it_is = source[test] if source.shape[1] == target.shape[1] else None
    return Stitching(
        fitted_on=len(train),
        judged_on=len(test),
        stitch=task.judge(stitch.transform(source[test])),
        from_half=task.judge(_fit(x[:half], y[:half]).transform(source[test])),
        mean=task.judge(Mean().fit(x, y).transform(source[test])),
        random=task.judge(_gaussian(y, len(test), seed=seed)),
        identity=None if as_it_is is None else task.judge(as_it_is),
        singular_values=tuple(_singular_values(stitch.matrix_, x).tolist()),
        bias_norm=float(np.linalg.norm(stitch.offset_.astype(np.float64))),
    )


def _fit(x: Vectors, y: Vectors) -> Ridge:
    return Ridge().tuned(x[:_PENALTY_PAIRS], y[:_PENALTY_PAIRS]).fit(x, y)


def halves(count: int, *, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows to fit on and rows to judge, none in both, up to 2,000 each, in random order."""
    order = np.random.default_rng(seed).permutation(count)
    middle = count // 2
    return order[:middle][:MOST_PAIRS], order[middle:][:MOST_PAIRS]


def _singular_values(matrix: Vectors, source: Vectors) -> Matrix:
    """Singular values of a stitch's matrix, (p, q), fitted on (n, p), the greatest first: min(n, p, q) of them.

    The matrix maps nothing outside of what the centred pairs span, so with few pairs a small one has the same values.
    They are the roots of eigenvalues: what is below 10⁻⁸ of the greatest is rounding.
    """
    whole = matrix.astype(np.float64)
    if len(source) < len(whole):
        whole = np.linalg.qr(centred(source)[0].T)[0].T @ whole
    gram = whole @ whole.T if len(whole) <= whole.shape[1] else whole.T @ whole
    return np.asarray(np.sqrt(np.maximum(np.linalg.eigvalsh(gram)[::-1], 0)))


class _Task:
    """Held-out documents to predict: (n, q). Up to 1,000 of them, drawn by `seed`, serve as queries."""

    def __init__(self, truth: Vectors, *, seed: int) -> None:
        self.truth = truth
        self._query_rows = some_rows(len(truth), seed=seed)
        self._queries = unit_rows(truth)[self._query_rows]
        self._true = self._nearest(truth)

    def judge(self, predicted: Vectors) -> Scores:
        same = self._nearest(predicted)[:, :, None] == self._true[:, None, :]
        scores = score_predictions(predicted, self.truth, shares=same.any(axis=2).mean(axis=1))
        mae = float(np.abs(predicted.astype(np.float64) - self.truth).mean())
        return Scores(scores.mse, mae, scores.r2, scores.overlap_at_10)

    def _nearest(self, documents: Vectors) -> NDArray[np.int64]:
        return nearest_by_cosine(self._queries, unit_rows(documents), self._query_rows, NEIGHBOURS)


def _gaussian(target: Vectors, count: int, *, seed: int) -> Vectors:
    rows = target.astype(np.float64)
    drawn = np.random.default_rng(seed).standard_normal((count, rows.shape[1]))
    return np.asarray(drawn * rows.std(axis=0) + rows.mean(axis=0), dtype=np.float32)
