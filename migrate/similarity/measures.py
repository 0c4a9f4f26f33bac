"""Every measure by name: its meaning, whether more of it means more similar, and its matrix over all stores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import Literal

from migrate.similarity.comparison import StoresComparison
from migrate.similarity.spaces import Similarity
from migrate.similarity.stitching import Stitching

Alike = Literal["more", "less"]

Matrix = tuple[tuple[float | None, ...], ...]
"""A row and a column for each store, from row to column; None where there is no figure."""


@dataclass(frozen=True, slots=True)
class Measure:
    """A figure for two spaces.

    Attributes
    ----------
    key, title, meaning : name in files, name for a person, and one sentence
    alike : whether more or less of it means that spaces are more alike; None where it means neither
    itself : what a space has with itself, by definition or at best; None where there is nothing to say
    forth, back : from a to b and from b to a; these differ for measures of a stitch
    own : of a stitch from a space to itself, which is fitted and judged as any other; None where `itself` is exact
    """

    key: str
    title: str
    meaning: str
    alike: Alike | None
    itself: float | None
    forth: Callable[[Similarity], float | None]
    back: Callable[[Similarity], float | None]
    own: Callable[[Stitching], float | None] | None = None

    @property
    def directed(self) -> bool:
        """Whether it differs from a to b and from b to a."""
        return self.forth is not self.back

    def matrix(self, comparison: StoresComparison) -> Matrix:
        """The measure between all stores."""
        places = range(len(comparison.stores))
        return tuple(tuple(self._between(comparison, row, column) for column in places) for row in places)

    def _between(self, comparison: StoresComparison, row: int, column: int) -> float | None:
        if row == column:
            value = self.itself if self.own is None else self.own(comparison.own_stitches[row])
        else:
            read = self.forth if row < column else self.back
            value = read(comparison.pairs[min(row, column), max(row, column)])
        return value if value is not None and isfinite(value) else None


def _both(key: str, title: str, meaning: str, alike: Alike, itself: float) -> Measure:
    def read(pair: Similarity) -> float | None:
        value: float = getattr(pair, key)
        return value

    return Measure(key, title, meaning, alike, itself, read, read)


def _stitched(
    key: str,
    title: str,
    meaning: str,
    alike: Alike | None,
    itself: float | None,
    of: Callable[[Stitching], float | None],
) -> Measure:
    return Measure(key, title, meaning, alike, itself, lambda pair: of(pair.forth), lambda pair: of(pair.back), of)


MEASURES: tuple[Measure, ...] = (
    _both("cka", "CKA", "1: alike up to rotation and scale; about 0: unlike.", "more", 1),
    _both("cka_distance", "arccos CKA", "The angle of CKA in radians, a distance.", "less", 0),
    _both("jaccard", "Jaccard@10", "Share of both spaces' 10 nearest documents that are the same.", "more", 1),
    _both("rank_similarity", "rank similarity@10", "Whether the shared ones are in the same order.", "more", 1),
    _both("relative_orientation", "relative orientation", "Correlation of the cosines of all pairs.", "more", 1),
    _both("local_geometry", "local geometry", "Do neighbours rebuild a document with like weights?",
          "more", 1),
    _both("dimension_agreement", "dimension agreement", "Rank correlation of dimensions near documents.",
          "more", 1),
    _stitched("r2", "R² of the stitch", "Share of the held-out variance that an affine stitch explains.", "more", 1,
              lambda s: s.stitch.r2),
    _stitched("mse", "MSE of the stitch", "Mean squared error on held-out documents.", "less", 0,
              lambda s: s.stitch.mse),
    _stitched("mae", "MAE of the stitch", "Mean absolute error on held-out documents.", "less", 0,
              lambda s: s.stitch.mae),
    _stitched("r2_mean", "R² of the mean", "Control: the target's mean for every document.", None, None,
              lambda s: s.mean.r2),
    _stitched("r2_random", "R² of a Gaussian", "Control: random vectors with the target's mean and deviations.", None,
              None, lambda s: s.random.r2),
    _stitched("penalty", "stitching penalty", "Share of the 10 true neighbours that stitched vectors miss.", "less", 0,
              lambda s: s.stitch.penalty),
    _stitched("r2_identity", "R² without a stitch", "The vectors as they are, if of one dimension.", "more", 1,
              lambda s: None if s.identity is None else s.identity.r2),
    _stitched("penalty_identity", "penalty without a stitch", "Neighbours that the vectors as they are miss.",
              "less", 0, lambda s: None if s.identity is None else s.identity.penalty),
    _stitched("bias_norm", "bias norm", "Euclidean norm of the stitch's offset.", None, None, lambda s: s.bias_norm),
    _stitched("effective_rank", "effective rank", "How many directions the stitch really uses.", None, None,
              lambda s: s.effective_rank),
)  # fmt: skip
"""All of them, as they are shown."""
