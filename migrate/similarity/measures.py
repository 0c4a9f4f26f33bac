"""Every measure by name: its meaning, whether more of it means more similar, and its figures between all stores."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import isfinite
from statistics import fmean
from typing import TYPE_CHECKING, Literal

from migrate.similarity.spaces import ChanceCka, Similarity
from migrate.similarity.stitching import Stitching

if TYPE_CHECKING:
    from migrate.similarity.comparison import StoresComparison

Alike = Literal["more", "less"]

Matrix = tuple[tuple[float | None, ...], ...]
"""A row and a column for each store, from row to column; None where there is no figure."""


@dataclass(frozen=True, slots=True)
class Measure:
    """A figure for two spaces: of these (`of_pair`), or of a stitch between them (`of_stitch`).

    Attributes
    ----------
    key, title, meaning : name in files, name for a person, and one sentence
    alike : whether more or less of it means that spaces are more alike; None where it means neither
    itself : what a space has with itself, by definition or at best; None where there is nothing to say
    of_pair : of both spaces, in no direction
    of_stitch : of a stitch, and of the stitch of its target to itself where that is known. On the diagonal it is
        measured: a space is stitched to itself as to any other
    of_chance : of a space and a Gaussian of its shape
    is_control : whether it is of what stands beside a stitch, and the same for all stitches
    """

    key: str
    title: str
    meaning: str
    alike: Alike | None
    itself: float | None
    of_pair: Callable[[Similarity], float | None] | None = None
    of_stitch: Callable[[Stitching, Stitching | None], float | None] | None = None
    of_chance: Callable[[ChanceCka], float] | None = None
    is_control: bool = False

    @property
    def directed(self) -> bool:
        """Whether it differs from a to b and from b to a."""
        return self.of_stitch is not None

    def forth(self, similarity: Similarity) -> float | None:
        """The figure from a to b of two spaces compared on their own."""
        if self.of_stitch is not None:
            return self.of_stitch(similarity.forth, None)
        return None if self.of_pair is None else self.of_pair(similarity)

    def matrix(self, comparison: StoresComparison, stitch: str | None = None) -> Matrix:
        """The measure between all stores, by this stitch, or by the first one."""
        spec = comparison.specs[0] if stitch is None else stitch
        places = range(len(comparison.stores))
        return tuple(tuple(self._between(comparison, spec, row, column) for column in places) for row in places)

    def _between(self, comparison: StoresComparison, spec: str, row: int, column: int) -> float | None:
        value = self.itself
        if self.of_stitch is not None:
            stitches = comparison.stitches[spec]
            value = self.of_stitch(stitches[row, column], stitches[column, column])
        elif self.of_pair is not None and row != column:
            value = self.of_pair(comparison.pairs[min(row, column), max(row, column)])
        return value if value is not None and isfinite(value) else None


def _both(key: str, title: str, meaning: str, alike: Alike, itself: float) -> Measure:
    def read(pair: Similarity) -> float | None:
        value: float = getattr(pair, key)
        return value

    return Measure(key, title, meaning, alike, itself, of_pair=read)


def _cka(key: str, title: str, meaning: str) -> Measure:
    def of_pair(pair: Similarity) -> float:
        value: float = getattr(pair, key)
        return value

    def of_chance(chance: ChanceCka) -> float:
        value: float = getattr(chance, key)
        return value

    return Measure(key, title, meaning, "more", 1, of_pair=of_pair, of_chance=of_chance)


def _stitched(
    key: str,
    title: str,
    meaning: str,
    alike: Alike | None,
    itself: float | None,
    of: Callable[[Stitching], float | None],
    *,
    is_control: bool = False,
) -> Measure:
    return Measure(key, title, meaning, alike, itself, of_stitch=lambda stitch, _: of(stitch), is_control=is_control)


_control = partial(_stitched, is_control=True)


def _above_self(stitch: Stitching, own: Stitching | None) -> float | None:
    return None if own is None else stitch.stitch.penalty - own.stitch.penalty


ABOVE_SELF = Measure(
    "penalty_above_self",
    "penalty above self",
    "Stitching penalty less that of the target stitched to itself: without what is lost for want of documents.",
    "less",
    0,
    of_stitch=_above_self,
)
"""The one that needs the target's own stitch."""

MEASURES: tuple[Measure, ...] = (
    _cka("cka", "CKA", "1: alike up to rotation and scale; about 0: unlike. Unbiased."),
    _cka("cka_biased", "CKA, biased", "As mostly published: with many dimensions even a Gaussian is alike."),
    _both("cka_distance", "arccos CKA", "The angle of CKA in radians, a distance.", "less", 0),
    _both("jaccard", "Jaccard@10", "Share of both spaces' 10 nearest documents that are the same.", "more", 1),
    _both("rank_similarity", "rank similarity@10", "Whether the shared ones are in the same order.", "more", 1),
    _both("relative_orientation", "relative orientation", "Correlation of the cosines of all pairs.", "more", 1),
    _both("local_geometry", "local geometry", "Do neighbours rebuild a document with like weights?",
          "more", 1),
    _both("dimension_agreement", "dimension agreement", "Rank correlation of dimensions near documents.",
          "more", 1),
    _stitched("r2", "R² of the stitch", "Share of the held-out variance that the stitch explains.", "more", 1,
              lambda s: s.stitch.r2),
    _stitched("mse", "MSE of the stitch", "Mean squared error on held-out documents.", "less", 0,
              lambda s: s.stitch.mse),
    _stitched("mae", "MAE of the stitch", "Mean absolute error on held-out documents.", "less", 0,
              lambda s: s.stitch.mae),
    _stitched("mae_explained", "MAE explained", "Share of the target mean's absolute error that the stitch takes away.",
              "more", 1, lambda s: s.mae_explained),
    _control("r2_mean", "R² of the mean", "Control: the target's mean for every document.", None, None,
             lambda s: s.mean.r2),
    _control("r2_random", "R² of a Gaussian", "Control: random vectors with the target's mean and deviations.", None,
             None, lambda s: s.random.r2),
    _stitched("penalty", "stitching penalty", "Share of the 10 true neighbours that stitched vectors miss.", "less", 0,
              lambda s: s.stitch.penalty),
    ABOVE_SELF,
    _control("r2_identity", "R² without a stitch", "The vectors as they are, if of one dimension.", "more", 1,
             lambda s: None if s.identity is None else s.identity.r2),
    _control("penalty_identity", "penalty without a stitch", "Neighbours that the vectors as they are miss.",
             "less", 0, lambda s: None if s.identity is None else s.identity.penalty),
    _stitched("bias_norm", "bias norm", "Euclidean norm of the stitch's offset.", None, None, lambda s: s.bias_norm),
    _control("mean_norm", "mean norm", "Norm of the target's mean: the offset of a stitch that knows no more.",
             None, None, lambda s: s.mean_norm),
    _stitched("spread", "spread of the output", "Variance of what the stitch gives over the target's; 0: only a mean.",
              None, None, lambda s: s.stitch.spread),
    _stitched("effective_rank", "effective rank", "How many directions the stitch really uses.", None, None,
              lambda s: s.effective_rank),
)  # fmt: skip
"""All of them, as they are shown."""


CONTRASTED = ("cka", "cka_distance", "jaccard", "relative_orientation", "r2", "penalty")
"""Keys of the measures that groups of stores are compared by."""


@dataclass(frozen=True, slots=True)
class Between:
    """A figure from one store to another, by their places."""

    start: int
    end: int
    value: float


@dataclass(frozen=True, slots=True)
class Figures:
    """A measure between all stores, by one stitch where it is of stitches, and what is made of these figures.

    Attributes
    ----------
    stitch : the spec; None for a measure that is of no stitch, or the same for all
    name : the measure's key; of a further stitch with its spec
    matrix : from row to column
    chance : what each store has with a Gaussian of its shape, where that is measured
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
        columns = [tuple(line[place] for line in self.matrix) for place in range(len(self.matrix))]
        return [_mean(line[:row] + line[row + 1 :]) for row, line in enumerate(columns)]

    @property
    def mean(self) -> float | None:
        """The mean over all pairs of different stores."""
        return _mean([between.value for between in self._pairs()])

    @property
    def best(self) -> Between | None:
        """The two that are most alike; None where the measure does not say."""
        return self._ordered()[-1] if self.measure.alike and self._ordered() else None

    @property
    def worst(self) -> Between | None:
        """The two that are least alike."""
        return self._ordered()[0] if self.measure.alike and self._ordered() else None

    def _pairs(self) -> list[Between]:
        return [
            Between(row, column, value)
            for row, line in enumerate(self.matrix)
            for column, value in enumerate(line)
            if value is not None and (row != column if self.measure.directed else row < column)
        ]

    def _ordered(self) -> list[Between]:
        sign = 1 if self.measure.alike == "more" else -1
        return sorted(self._pairs(), key=lambda between: sign * between.value)


def _mean(values: Sequence[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return fmean(numbers) if numbers else None


def figures_of(comparison: StoresComparison) -> Iterator[Figures]:
    """Every measure in the order of `MEASURES`; those of a stitch once for each."""
    for measure in MEASURES:
        of = measure.of_chance
        chance = None if of is None else tuple(of(one) for one in comparison.chance)
        if not measure.directed or measure.is_control:
            yield Figures(measure, None, measure.key, measure.matrix(comparison), chance)
            continue
        for place, spec in enumerate(comparison.specs):
            name = f"{measure.key} {spec}" if place else measure.key
            yield Figures(measure, spec, name, measure.matrix(comparison, spec), chance)
