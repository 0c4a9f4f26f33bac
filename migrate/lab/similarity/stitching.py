"""Fits a stitch between two spaces and scores it: errors beside controls, penalty, spectra and biases."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from migrate.errors import UsageError
from migrate.lab.similarity.neighbours import check_same_documents, nearest_by_cosine, some_rows
from migrate.lab.similarity.spectrum import LayerSpectrum, layer_spectra
from migrate.lab.stitches.mlp import Mlp
from migrate.stitch.base import Stitch
from migrate.stitch.linear import Adjoint, Identity, MeanVector
from migrate.stitch.nearest import NEIGHBOURS
from migrate.stitch.registry import new_stitch
from migrate.stitch.scores import score_predictions
from migrate.vectors import Vectors, unit_rows

RIDGE = "ridge"
# The unbiased estimate of HSIC divides by n - 3
FEWEST = 4


@dataclass(frozen=True, slots=True)
class Scores:
    """Scores of the nearness of predicted vectors to the true ones of held-out documents.

    Attributes
    ----------
    mse, mae : mean over rows and columns of the squared and of the absolute difference
    r2 : 1 - squared error / squared deviation from the mean of the truth, all columns together
    overlap_at_10 : mean share of the 10 true neighbours that the predictions find, with true vectors as queries
    spread : variance of the predictions over that of the truth, all columns together; 0 where all are one vector
    """

    mse: float
    mae: float
    r2: float
    overlap_at_10: float
    spread: float

    @property
    def penalty(self) -> float:
        """The stitching penalty: the loss of `overlap_at_10` from searching predictions, not true vectors.

        Bansal, Nakkiran & Barak 2021 define it as the loss of the stitched network minus that of the whole one. Here
        the task is to find neighbours, and the target space finds all of them: 1 - overlap@10.
        """
        return 1 - self.overlap_at_10


@dataclass(frozen=True, slots=True)
class Stitching:
    """A stitch from one space to another, fitted on some documents and judged on others.

    Attributes
    ----------
    spec : which stitch, such as `ridge`, whose penalty is chosen by retrieval
    fitted_on, judged_on : documents, of which no one is in both
    stitch : how near its predictions are
    from_half : the same, fitted on the first half of those documents: how much their number matters
    mean : the control that knows the target's mean alone
    random : the control that draws from a Gaussian with the target's mean and deviation of each column
    identity : the vectors as they are; None where the dimensions differ
    mean_norm : Euclidean norm of the mean of the target vectors that it was fitted on
    layers : spectrum and bias of each layer: one of an affine stitch, none of one that has no such layers
    loss_curve : of a network, for each epoch its number, the mean loss while it trained and, where pairs were held
        out, the loss on these
    """

    spec: str
    fitted_on: int
    judged_on: int
    stitch: Scores
    from_half: Scores
    mean: Scores
    random: Scores
    identity: Scores | None
    mean_norm: float
    layers: tuple[LayerSpectrum, ...]
    loss_curve: tuple[tuple[float, ...], ...] = ()

    @property
    def mae_explained(self) -> float | None:
        """1 - the stitch's mean absolute error / that of the target's mean; None where the mean makes no error."""
        if self.mean.mae <= 0:
            return None
        return 1 - self.stitch.mae / self.mean.mae

    @property
    def affine(self) -> LayerSpectrum | None:
        """The one layer of an affine stitch."""
        if len(self.layers) != 1:
            return None
        return self.layers[0]

    @property
    def singular_values(self) -> tuple[float, ...]:
        """The singular values of an affine stitch's matrix, greatest first, as many as the pairs allow."""
        return () if self.affine is None else self.affine.singular_values

    @property
    def bias_norm(self) -> float | None:
        """Euclidean norm of an affine stitch's offset."""
        return None if self.affine is None else self.affine.bias_norm

    @property
    def effective_rank(self) -> float | None:
        """The effective rank of an affine stitch's matrix."""
        return None if self.affine is None else self.affine.effective_rank


def check_stitch(spec: str) -> None:
    """Make sure that a stitch can be fitted between two spaces of which nothing is known but vectors."""
    try:
        stitch = new_stitch(spec)
    except UsageError:
        stitch = None
    if stitch is None or stitch.reads_texts or isinstance(stitch, Adjoint | Identity | MeanVector):
        raise UsageError(
            "spaces are compared by stitches of vectors alone: ridge, ols, procrustes, lowrank, lowrank:RANK, kernel "
            f"or mlp:1 to mlp:7, not {spec!r} (the mean and the vectors as they are always stand beside them)"
        )


def judge_stitching(source: Vectors, target: Vectors, *, stitch: str = RIDGE, seed: int = 0) -> Stitching:
    """Fit a stitch from (n, p) to (n, q) on one half of the documents, and judge it on the other.

    Each half is drawn by `seed` and has up to 2,000 documents; the penalty of a ridge is chosen on up to 1,000.
    """
    check_stitch(stitch)
    check_same_documents(source, target, FEWEST)
    train, test = halves(len(source), seed=seed)
    x = source[train]
    y = target[train]
    fitted = _fit(stitch, x, y)
    curve = fitted.loss_curve_.tolist() if isinstance(fitted, Mlp) else []
    # Fewer than two pairs fit nothing
    half = max(len(x) // 2, 2)
    task = _Task(target[test], seed=seed)
    identity = None
    # Vectors of one dimension can be compared without a stitch
    if source.shape[1] == target.shape[1]:
        identity = task.judge(source[test])
    return Stitching(
        spec=stitch,
        fitted_on=len(train),
        judged_on=len(test),
        stitch=task.judge(fitted.transform(source[test])),
        from_half=task.judge(_fit(stitch, x[:half], y[:half]).transform(source[test])),
        mean=task.judge(MeanVector().fit(x, y).transform(source[test])),
        random=task.judge(gaussian_like(y, len(test), seed=seed)),
        identity=identity,
        mean_norm=float(np.linalg.norm(y.mean(axis=0, dtype=np.float64))),
        layers=layer_spectra(fitted, source.shape[1], x),
        loss_curve=tuple(map(tuple, curve)),
    )


def _fit(spec: str, x: Vectors, y: Vectors) -> Stitch:
    # To choose a penalty takes a search for neighbours, which grows with the square of the documents
    return new_stitch(spec).tuned(x[:1_000], y[:1_000]).fit(x, y)


def halves(count: int, *, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return rows to fit on and rows to judge, none in both, up to 2,000 each, in random order."""
    order = np.random.default_rng(seed).permutation(count)
    middle = count // 2
    return order[:middle][:2_000], order[middle:][:2_000]


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
        deviation = _variance(self.truth)
        spread = 0.0
        if deviation > 0:
            spread = _variance(predicted) / deviation
        return Scores(scores.mse, mae, scores.r2, scores.overlap_at_10, spread)

    def _nearest(self, documents: Vectors) -> NDArray[np.int64]:
        return nearest_by_cosine(self._queries, unit_rows(documents), self._query_rows, NEIGHBOURS)


def _variance(vectors: Vectors) -> float:
    return float(vectors.var(axis=0, dtype=np.float64).sum())


def gaussian_like(vectors: Vectors, count: int, *, seed: int) -> Vectors:
    """Return `count` vectors from a Gaussian whose columns have the mean and the deviation of those of (n, d)."""
    rows = vectors.astype(np.float64)
    drawn = np.random.default_rng(seed).standard_normal((count, rows.shape[1]))
    return np.asarray(drawn * rows.std(axis=0) + rows.mean(axis=0), dtype=np.float32)
