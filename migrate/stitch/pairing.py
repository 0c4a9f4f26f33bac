"""Pairs of old and new vectors, cut into folds, and predictions for pairs that a stitch was not fitted on."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from migrate.stitch.base import Prediction, Stitch
from migrate.stitch.text_rows import TextRows
from migrate.vectors import Vectors

FOLDS = 5


@dataclass(frozen=True, eq=False)
class Pairing:
    """Pairs to fit and judge on: row i of `source`, (n, p), of `target`, (n, q), and of `texts` are of one text."""

    source: Vectors
    target: Vectors
    texts: TextRows | None = None

    def __len__(self) -> int:
        return len(self.source)

    def take(self, rows: NDArray[np.int64]) -> Pairing:
        """Some of the pairs."""
        return Pairing(self.source[rows], self.target[rows], None if self.texts is None else self.texts.take(rows))

    def fit(self, stitch: Stitch) -> Stitch:
        """A copy of the stitch, fitted on all pairs."""
        return copy.copy(stitch).fit(self.source, self.target, self.texts).with_reach(self.source)


def fold_rows(n: int, *, folds: int = FOLDS, seed: int = 0) -> list[NDArray[np.int64]]:
    """Split 0..n-1 at random into `folds` sorted parts of nearly equal size (fewer where n is smaller)."""
    order = np.random.default_rng(seed).permutation(n)
    return [np.sort(part) for part in np.array_split(order, min(folds, n))]


def cross_predict(
    stitch: Stitch,
    pairs: Pairing,
    *,
    folds: int = FOLDS,
    share: float = 1.0,
    seed: int = 0,
    with_variance: bool = True,
) -> Prediction:
    """Predictions for every pair from copies of a stitch fitted without its fold, on a `share` of the other pairs."""
    vectors = np.empty_like(pairs.target)
    variance, prior = (np.full(len(pairs), np.nan, dtype=np.float32) for _ in range(2))
    if len(pairs) == 2:  # each leaves one to learn from, and all that one pair teaches is its own target
        return Prediction(pairs.target[::-1].copy())
    held_out = fold_rows(len(pairs), folds=folds, seed=seed)
    rest = [_some(np.setdiff1d(np.arange(len(pairs)), rows), share, seed) for rows in held_out]
    splits = list(zip(rest, held_out, strict=True))
    for rows, found in zip(
        held_out,
        stitch.cross_predict(pairs.source, pairs.target, pairs.texts, splits, with_variance=with_variance),
        strict=True,
    ):
        vectors[rows] = found.vectors
        if found.variance is not None:
            variance[rows] = found.variance
        if found.prior is not None:
            prior[rows] = found.prior
    return Prediction(vectors, _if_complete(variance), _if_complete(prior))


def _if_complete(values: Vectors) -> Vectors | None:
    return None if np.isnan(values).any() else values


def _some(rows: NDArray[np.int64], share: float, seed: int) -> NDArray[np.int64]:
    if share >= 1:
        return rows
    return np.sort(np.random.default_rng(seed).permutation(rows)[: max(round(share * len(rows)), 2)])
