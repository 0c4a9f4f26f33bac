"""A measure between all compared stores, with its means and its most and least similar pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from migrate.lab.similarity.measures import Measure

Matrix = tuple[tuple[float | None, ...], ...]
"""A row and a column for each store, from row to column; None where there is no figure."""


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
        pairs = []
        for row, line in enumerate(self.matrix):
            for column, value in enumerate(line):
                # What has no direction is the same both ways, and counts once
                is_repeated = column < row and not self.measure.directed
                if value is not None and row != column and not is_repeated:
                    pairs.append(Between(row, column, value))
        return pairs

    def _ordered(self) -> list[Between]:
        """Return the pairs from the least to the most alike; none where the measure does not say."""
        if self.measure.alike is None:
            return []
        sign = 1 if self.measure.alike == "more" else -1
        return sorted(self._pairs(), key=lambda between: sign * between.value)


def _mean(values: Sequence[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    if not numbers:
        return None
    return fmean(numbers)
