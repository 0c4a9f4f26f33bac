"""Groups of stores, such as the layers of one model: how alike they are within a group and between groups."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from migrate.errors import UsageError

Positions = Mapping[str, Sequence[int]]
"""The stores of each group by their places, in the order of layers where they are layers."""


FEWEST_DRAWN = 3
"""Stores of each group that bounds need: with two, every draw gives the same pair or none."""


@dataclass(frozen=True, slots=True)
class BoundedMean:
    """A mean over pairs of stores, with 95 % bounds; these are None where groups are too small to tell."""

    lower: float | None
    mean: float
    upper: float | None


@dataclass(frozen=True, slots=True)
class Contrast:
    """A measure within groups and between them.

    Attributes
    ----------
    key, title : of the measure
    within : over all pairs of one group; None where no group has two stores
    between : over all pairs of different groups
    difference : within less between
    """

    key: str
    title: str
    within: BoundedMean | None
    between: BoundedMean
    difference: BoundedMean | None


@dataclass(frozen=True, slots=True)
class Groups:
    """Groups of stores compared.

    Attributes
    ----------
    places : the stores of each group
    contrasts : each measure within and between
    layer_distances : between groups of equally many stores, layer by layer; None between others
    """

    places: Positions
    contrasts: tuple[Contrast, ...]
    layer_distances: tuple[tuple[float | None, ...], ...]


def check_groups(positions: Positions, stores: int) -> None:
    """Make sure that groups can be set against each other."""
    everything = [position for group in positions.values() for position in group]
    if len(positions) < 2 or not all(positions.values()):
        raise UsageError(
            f"groups: {len(positions)} cannot be compared, or one has no stores; name two or more with stores"
        )
    if len(set(everything)) != len(everything) or not set(everything) <= set(range(stores)):
        raise UsageError("a store is in one group, and once; take it out of the other")


def contrast(
    matrix: NDArray[np.float64], groups: Sequence[Collection[int]], *, seed: int = 0, draws: int = 2_000
) -> tuple[BoundedMean | None, BoundedMean, BoundedMean | None]:
    """Means of a measure within and between groups of stores, and their difference, with 95 % bounds.

    `matrix`, (n, n), has the figures between stores; both directions count, the diagonal does not. Bounds are
    percentiles of a bootstrap: stores are drawn with replacement from their groups, and a store drawn twice makes no
    pair with itself. Pairs share stores, so that drawing pairs would give bounds that are too narrow. Where a group has
    fewer than three stores there are no bounds.
    """
    rng = np.random.default_rng(seed)
    counts = np.zeros((draws, len(matrix)))
    label = np.full(len(matrix), -1)
    for number, members in enumerate(groups):
        stores = list(members)
        label[stores] = number
        # How often each store is drawn: one matrix weighted 2,000 times in the place of 2,000 matrices
        counts[:, stores] = rng.multinomial(len(stores), np.full(len(stores), 1 / len(stores)), size=draws)
    valid = np.isfinite(matrix) & ~np.eye(len(matrix), dtype=bool) & (label[:, None] >= 0) & (label >= 0)
    same = label[:, None] == label
    everyone = np.vstack([(label >= 0).astype(float), counts])  # the first row is the stores as they are
    within, between = (_means(matrix, valid & mask, everyone) for mask in (same, ~same))
    bounded = min(map(len, groups)) >= FEWEST_DRAWN
    if not np.isfinite(within[0]):
        return None, _interval(between, bounded=bounded), None
    return (
        _interval(within, bounded=bounded),
        _interval(between, bounded=bounded),
        _interval(within - between, bounded=bounded),
    )


def _means(matrix: NDArray[np.float64], mask: NDArray[np.bool_], counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean over the pairs in `mask` for each row of counts, (b, n): a pair counts as often as both its stores meet."""
    sums, pairs = (
        np.einsum("bi,ij,bj->b", counts, np.where(mask, values, 0), counts, optimize=True)
        for values in (matrix, np.ones_like(matrix))
    )
    return np.asarray(np.divide(sums, pairs, where=pairs > 0, out=np.full(len(counts), np.nan)))


def _interval(values: NDArray[np.float64], *, bounded: bool) -> BoundedMean:
    """Return the first value with the percentiles of the others; a draw without a pair does not count."""
    if not bounded:
        return BoundedMean(None, float(values[0]), None)
    # A store that is drawn alone again and again leaves no pair
    drawn = values[1:][np.isfinite(values[1:])]
    low, high = np.percentile(drawn, [2.5, 97.5])
    return BoundedMean(float(low), float(values[0]), float(high))


def layer_distances(
    angles: NDArray[np.float64], groups: Sequence[Sequence[int]]
) -> tuple[tuple[float | None, ...], ...]:
    """Return the root of the summed squared angles over layers, between groups of equally many stores in their order.

    `angles`, (n, n), are arccos CKA between stores. It is a metric where the angle is: the one on pairs of networks
    that Williams et al. 2021 get from theirs on pairs of layers. 0 on the diagonal, None where the numbers differ.
    """

    def distance(a: Sequence[int], b: Sequence[int]) -> float | None:
        # Layers are paired by their order, and one that is left over has no partner
        if len(a) != len(b):
            return None
        # CKA of a layer with itself is 1 but for rounding, whose arccos is not 0
        if a is b:
            return 0.0
        return float(np.linalg.norm(angles[list(a), list(b)]))

    return tuple(tuple(distance(a, b) for b in groups) for a in groups)
