"""Every measure between all compared stores, with its means and its most and least similar pairs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from statistics import fmean
from typing import TYPE_CHECKING

from migrate.lab.similarity.measures import ABOVE_SELF, MEASURES, Measure

if TYPE_CHECKING:
    from migrate.lab.compare.comparison import StoresComparison

Matrix = tuple[tuple[float | None, ...], ...]
"""A row and a column for each store, from row to column; None where there is no figure."""


def matrix_of(measure: Measure, comparison: StoresComparison, stitch: str | None = None) -> Matrix:
    """Return a measure between all stores, by this stitch, or by the first one.

    That of a stitch is measured on the diagonal too: a store is stitched to itself as to any other.
    """
    stitches = comparison.stitches[comparison.specs[0] if stitch is None else stitch]

    def figure(row: int, column: int) -> float | None:
        value = measure.itself
        if measure.directed:
            value = measure.figure(stitches[row, column])
        elif row != column:
            value = measure.figure(comparison.pairs[min(row, column), max(row, column)])
        if measure is ABOVE_SELF and value is not None:
            value -= stitches[column, column].stitch.penalty
        return value if value is not None and isfinite(value) else None

    positions = range(len(comparison.stores))
    return tuple(tuple(figure(row, column) for column in positions) for row in positions)


@dataclass(frozen=True, slots=True)
class Between:
    """A figure from one store to another, by their places."""

    start: int
    end: int
    value: float


@dataclass(frozen=True, slots=True)
class MeasureFigures:
    """A measure between all stores, by one stitch where it is of stitches.

    Attributes
    ----------
    stitch : the spec; None for a measure that is of no stitch, or the same for all
    name : the measure's key; of a further stitch with its spec
    matrix : from row to column
    chance : CKA of each store with a Gaussian of its shape; None for other measures
    """

    measure: Measure
    stitch: str | None
    name: str
    matrix: Matrix
    chance: tuple[float, ...] | None

    @property
    def by_source(self) -> list[float | None]:
        """The mean from each store to all others."""
        return [_mean(line[:row] + line[row + 1 :]) for row, line in enumerate(self.matrix)]

    @property
    def by_target(self) -> list[float | None]:
        """The mean to each store from all others."""
        columns = zip(*self.matrix, strict=True)
        return [_mean(line[:row] + line[row + 1 :]) for row, line in enumerate(columns)]

    @property
    def mean(self) -> float | None:
        """The mean over all pairs of different stores."""
        return _mean([between.value for between in self._pairs()])

    @property
    def best(self) -> Between | None:
        """The two that are most alike; None where the measure does not say."""
        return next(reversed(self._ordered()), None)

    @property
    def worst(self) -> Between | None:
        """The two that are least alike."""
        return next(iter(self._ordered()), None)

    def _pairs(self) -> list[Between]:
        return [
            Between(row, column, value)
            for row, line in enumerate(self.matrix)
            for column, value in enumerate(line)
            if value is not None and (row != column if self.measure.directed else row < column)
        ]

    def _ordered(self) -> list[Between]:
        """Return the pairs from the least to the most alike; none where the measure does not say."""
        sign = {"more": 1, "less": -1, None: 0}[self.measure.alike]
        return sorted(self._pairs(), key=lambda between: sign * between.value) if sign else []


def _mean(values: Sequence[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return fmean(numbers) if numbers else None


def figures_of(comparison: StoresComparison) -> Iterator[MeasureFigures]:
    """Yield every measure in the order of `MEASURES`; those of a stitch once for each."""
    for measure in MEASURES:
        chance = None
        if measure.key in ("cka", "cka_biased"):
            chance = tuple(getattr(gaussian, measure.key) for gaussian in comparison.chance)
        if not measure.directed or measure.is_control:
            yield MeasureFigures(measure, None, measure.key, matrix_of(measure, comparison), chance)
            continue
        for position, spec in enumerate(comparison.specs):
            name = f"{measure.key} {spec}" if position else measure.key
            yield MeasureFigures(measure, spec, name, matrix_of(measure, comparison, spec), chance)
