"""Finds out whether the old vectors of a sample are of two kinds, such as those of two models.

There are two signs. Either the documents fall into two groups such that neighbours in the new space are alike in the
old one where both are of one group, and not where they are of two: groups are learned on half of the pairs of
neighbours and judged on the others. Or a map learned on all old vectors predicts some of the new ones well, and others
no better than chance.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from migrate.stitch.base import Pairing, cross_predict
from migrate.stitch.linear import Ridge
from migrate.stitch.nearest import NEIGHBOURS, around_mean, find_nearest
from migrate.stitch.select import Mixture
from migrate.vectors import Vectors, unit_rows

FEWEST: Final = 100
"""Documents below which neither sign is looked for: the scatter of single ones looks like both."""

_SMALLEST_SHARE: Final = 0.05
"""The smallest share of documents that is called a kind."""

_ALIKE: Final = 0.4
_UNLIKE: Final = 0.25
"""Likeness of neighbours, in standard deviations, from which on they are alike within both groups; and the part of it
up to which neighbours are not alike between the groups."""

_ROUNDS: Final = 3
_STEPS: Final = 10
"""How often groups are looked for, and in each round the steps by which documents change theirs."""

_AT_CHANCE: Final = 0.1
_PREDICTED: Final = 0.25
_CLEFT: Final = 3.0
"""Mean cosines, around the mean of the new vectors, up to which and from which on predictions are at chance and good;
and how far these are apart, in standard deviations (Ashman, Bird & Zepf 1994). Of single models the worse half had 0.23
and more; of vectors that belonged to other texts, 0.06 and less."""

_MOST: Final = 400
"""Documents that are looked at: more do not show it better, and a fit has its own work to do."""


def find_mixture(source: Vectors, target: Vectors, *, seed: int = 0) -> Mixture | None:
    """Return how old vectors, (n, p), of documents with new ones, (n, q), are of two kinds; None where they are not.

    Up to 400 documents are looked at.
    """
    if len(source) < FEWEST:
        return None
    rows = np.sort(np.random.default_rng(seed).permutation(len(source))[:_MOST])
    old, new = unit_rows(source[rows]), unit_rows(target[rows])
    return _by_groups(old, new, seed) or _by_errors(old, new, seed)


def _by_groups(old: Vectors, new: Vectors, seed: int) -> Mixture | None:
    nearest = find_nearest(new, NEIGHBOURS)
    ends = np.column_stack([np.repeat(nearest.query_rows, nearest.rows.shape[1]), nearest.rows.ravel()])
    edges = np.unique(np.sort(ends, axis=1), axis=0)
    is_learned = np.random.default_rng(seed).random(len(edges)) < 0.5
    group = _two_groups(old, edges[is_learned])
    if group is None:
        return None
    within, between = _likeness(_around_means(old, group), group, edges[~is_learned])
    if min(within) < _ALIKE or between > _UNLIKE * float(np.mean(within)):
        return None
    return Mixture(_smaller_share(group), "groups")


def _two_groups(old: Vectors, edges: NDArray[np.int64]) -> NDArray[np.bool_] | None:
    """Return the group of each row, such that edges within a group join vectors that are alike; None if one is tiny.

    The leading eigenvector of the edges' likeness divides them first. Each group is then seen around its own mean.
    """
    group, vectors = None, around_mean(old)
    for _ in range(_ROUNDS):
        vectors = unit_rows(vectors)
        likeness = np.einsum("ij,ij->i", vectors[edges[:, 0]], vectors[edges[:, 1]]).astype(np.float64)
        weights = np.zeros((len(old), len(old)))
        weights[edges[:, 0], edges[:, 1]] = likeness - likeness.mean()
        weights += weights.T
        group = np.linalg.eigh(weights)[1][:, -1] > 0 if group is None else group
        for _ in range(_STEPS):
            group = weights @ np.where(group, 1.0, -1.0) > 0
        if _smaller_share(group) < _SMALLEST_SHARE:
            return None
        vectors = _around_means(old, group)
    return group


def _around_means(vectors: Vectors, group: NDArray[np.bool_]) -> Vectors:
    centred = np.empty_like(vectors)
    for rows in (group, ~group):
        centred[rows] = around_mean(vectors[rows])
    return centred


def _likeness(
    centred: Vectors, group: NDArray[np.bool_], edges: NDArray[np.int64]
) -> tuple[tuple[float, float], float]:
    """Return the mean cosine of edges within each group and of those between, less that of all pairs of such rows.

    They are in standard deviations of the cosine of two rows.
    """
    vectors = unit_rows(centred)
    cosines = vectors @ vectors.T
    ends = group[edges]

    def excess(one: bool, other: bool) -> float:
        is_such = (ends == (one, other)).all(axis=1) | (ends == (other, one)).all(axis=1)
        if not is_such.any():
            return 0.0
        pairs = cosines[np.ix_(group == one, group == other)]
        own = np.count_nonzero(group == one) if one == other else 0  # the cosine of a row with itself is 1
        found = cosines[edges[is_such, 0], edges[is_such, 1]].mean()
        return float(found - (pairs.sum() - own) / (pairs.size - own))

    spread = float(cosines[np.triu_indices(len(cosines), 1)].std()) + 1e-12
    within = (excess(True, True) / spread, excess(False, False) / spread)
    return within, excess(True, False) / spread


def _smaller_share(group: NDArray[np.bool_]) -> float:
    return float(min(group.mean(), 1 - group.mean()))


def _by_errors(old: Vectors, new: Vectors, seed: int) -> Mixture | None:
    ridge = Ridge().tuned(old, new, None)
    predicted = cross_predict(ridge, Pairing(old, new, seed=seed), with_variance=False).vectors
    middle = new.mean(axis=0)
    cosines = np.einsum("ij,ij->i", unit_rows(predicted - middle), unit_rows(new - middle))
    worse, better = _halves(np.sort(cosines.astype(np.float64)))
    share = len(worse) / len(cosines)
    apart = (better.mean() - worse.mean()) / np.sqrt((better.var() + worse.var()) / 2 + 1e-12)
    is_cleft = worse.mean() <= _AT_CHANCE and better.mean() >= _PREDICTED and apart >= _CLEFT
    if not is_cleft or min(share, 1 - share) < _SMALLEST_SHARE:
        return None
    return Mixture(share, "errors")


def _halves(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Cut ascending values in two where the means are farthest apart (Otsu 1979)."""
    count = len(values)
    below = np.arange(1, count)
    sums = np.cumsum(values)
    lower = sums[:-1] / below
    upper = (sums[-1] - sums[:-1]) / (count - below)
    cut = int(np.argmax(below * (count - below) * (lower - upper) ** 2)) + 1
    return values[:cut], values[cut:]
