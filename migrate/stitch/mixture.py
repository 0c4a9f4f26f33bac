"""Finds out whether the old vectors of a sample are of two kinds, such as those of two models.

There are three signs. The old vectors lie in two groups that the new space knows nothing of. Or neighbours in the new
space are alike in the old one where both are of one group, and not where they are of two: the groups are learned on
half of the pairs of neighbours, and judged on the others. Or a map learned on all old vectors predicts some of the new
ones well, and others no better than chance.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import numpy as np
from numpy.typing import NDArray

from migrate.stitch.base import Pairing, cross_predict
from migrate.stitch.linear import Ridge
from migrate.stitch.nearest import NEIGHBOURS, around_mean, find_nearest
from migrate.stitch.select import Mixture
from migrate.vectors import Vectors, unit_rows

FEWEST: Final = 100
"""Documents below which no sign is looked for: the scatter of single ones looks like each."""

_SMALLEST_SHARE: Final = 0.05
"""The smallest share of documents that is called a kind."""

_APART: Final = 0.9
_UNKNOWN: Final = 0.15
"""Chance-corrected shares of neighbours of one's own group: from which on the old space is in two groups, and up to
which the new one is not. Of 80 half-and-half mixtures of two layers of MiniLM, 300 documents and more, the least and
the most were 0.98 and 0.04; no single model came above 0.88 in the old space."""

_ALIKE: Final = 0.4
_UNLIKE: Final = 0.25
"""Likeness of neighbours, in standard deviations, from which on they are alike within both groups; and the part of it
up to which neighbours are not alike between the groups."""

_FEWEST_OF_NEIGHBOURS: Final = 200
"""Documents below which groups are not learned from neighbours."""

_ROUNDS: Final = 3
_STEPS: Final = 10
"""How often groups are looked for, and in each round the steps by which documents change theirs."""

_AT_CHANCE: Final = 0.1
_PREDICTED: Final = 0.25
_CLEFT: Final = 3.0
"""Mean cosines, around the mean of the new vectors, up to which and from which on predictions are at chance and good;
and how far these are apart, in standard deviations (Ashman, Bird & Zepf 1994). Of single models the worse half had 0.23
and more; of vectors that belonged to other texts, 0.06 and less."""

_STARTS: Final = 4
"""Runs of 2-means, of which the best counts."""

_MOST: Final = 400
"""Documents that are looked at: more do not show it better, and a fit has its own work to do."""


def find_mixture(source: Vectors, target: Vectors, *, seed: int = 0) -> Mixture | None:
    """Return how old vectors, (n, p), of documents with new ones, (n, q), are of two kinds; None where they are not.

    Up to 400 documents are looked at.
    """
    if len(source) < FEWEST:
        return None
    rows = np.sort(np.random.default_rng(seed).permutation(len(source))[:_MOST])
    old = unit_rows(source[rows])
    new = unit_rows(target[rows])
    # The surest and quickest sign first
    return _by_groups(old, new, seed) or _by_errors(old, new, seed) or _by_neighbours(old, new, seed)


def _by_groups(old: Vectors, new: Vectors, seed: int) -> Mixture | None:
    group = _two_groups(old, seed)
    if group is None:
        return None
    share = float(min(group.mean(), 1 - group.mean()))
    if share < _SMALLEST_SHARE:
        return None
    if _kept_together(old, group) < _APART or _kept_together(new, group) > _UNKNOWN:
        return None
    return Mixture(share, "groups")


def _two_groups(vectors: Vectors, seed: int) -> NDArray[np.bool_] | None:
    """Return the group of each row, by the best of several runs of 2-means; None where all rows are the same."""
    from scipy.cluster.vq import ClusterError, kmeans2

    if not np.ptp(vectors, axis=0).any():
        return None
    least = np.inf
    best = None
    for start in range(_STARTS):
        # From several starts: 2-means stops at the first division that no single step improves
        with suppress(ClusterError):  # a group that has lost its last row
            centres, groups = kmeans2(vectors, 2, minit="++", iter=20, missing="raise", rng=seed + start)
            spread = float(np.square(vectors - centres[groups]).sum())
            if spread < least:
                least = spread
                best = groups == 1
    return best


def _kept_together(vectors: Vectors, group: NDArray[np.bool_]) -> float:
    """Return the share of nearest neighbours that are of the same group, 0 for chance and 1 for all (Cohen's kappa)."""
    near = find_nearest(vectors, NEIGHBOURS).rows
    same = float((group[near] == group[:, None]).mean())
    chance = float(group.mean() ** 2 + (1 - group.mean()) ** 2)
    return (same - chance) / (1 - chance)


def _by_neighbours(old: Vectors, new: Vectors, seed: int) -> Mixture | None:
    if len(old) < _FEWEST_OF_NEIGHBOURS:
        return None
    nearest = find_nearest(new, NEIGHBOURS)
    end_rows = np.column_stack([np.repeat(nearest.query_rows, nearest.rows.shape[1]), nearest.rows.ravel()])
    edges = np.unique(np.sort(end_rows, axis=1), axis=0)
    # Groups that were learned from all pairs of neighbours would look alike on these, whatever they are
    is_learned = np.random.default_rng(seed).random(len(edges)) < 0.5
    group = _groups_of_edges(old, edges[is_learned])
    if group is None:
        return None
    within, between = _likeness(_around_means(old, group), group, edges[~is_learned])
    if min(within) < _ALIKE or between > _UNLIKE * float(np.mean(within)):
        return None
    return Mixture(_smaller_share(group), "groups")


def _groups_of_edges(old: Vectors, edges: NDArray[np.int64]) -> NDArray[np.bool_] | None:
    """Return the group of each row, such that edges within a group join vectors that are alike; None if one is tiny.

    The leading eigenvector of the edges' likeness divides them first. Each group is then seen around its own mean.
    """
    group = None
    centred = around_mean(old)
    for _ in range(_ROUNDS):
        vectors = unit_rows(centred)
        likeness = np.einsum("ij,ij->i", vectors[edges[:, 0]], vectors[edges[:, 1]]).astype(np.float64)
        weights = np.zeros((len(old), len(old)))
        weights[edges[:, 0], edges[:, 1]] = likeness - likeness.mean()
        weights += weights.T
        if group is None:
            _, directions = np.linalg.eigh(weights)
            group = directions[:, -1] > 0
        for _ in range(_STEPS):
            group = weights @ np.where(group, 1.0, -1.0) > 0
        if _smaller_share(group) < _SMALLEST_SHARE:
            return None
        centred = _around_means(old, group)
    return group


def _around_means(vectors: Vectors, group: NDArray[np.bool_]) -> Vectors:
    centred = np.empty_like(vectors)
    for member in (group, ~group):
        centred[member] = around_mean(vectors[member])
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

    def excess(first: bool, second: bool) -> float:
        is_such = (ends == (first, second)).all(axis=1) | (ends == (second, first)).all(axis=1)
        if not is_such.any():
            return 0.0
        pair_cosines = cosines[np.ix_(group == first, group == second)]
        same_rows = 0
        if first == second:  # the cosine of a row with itself is 1, and tells nothing
            same_rows = int(np.count_nonzero(group == first))
        edge_mean = cosines[edges[is_such, 0], edges[is_such, 1]].mean()
        return float(edge_mean - (pair_cosines.sum() - same_rows) / (pair_cosines.size - same_rows))

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
