"""Stores compared: the result, and its table for pandas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import permutations
from math import isfinite
from typing import TYPE_CHECKING

from migrate.display import data_frame, notebook_html
from migrate.lab.compare.figures import Matrix, MeasureFigures
from migrate.lab.compare.groups import Groups
from migrate.lab.compare.labels import Downstream
from migrate.lab.similarity.measures import ABOVE_SELF, MEASURES, Measure
from migrate.lab.similarity.spaces import ChanceCka, Similarity
from migrate.lab.similarity.stitching import Stitching

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True, slots=True)
class Compared:
    """A store that took part: the shortest name that tells it from the others, its facts, its intrinsic dimensions."""

    name: str
    path: str
    documents: int
    dim: int
    exact: bool
    dimension: float
    two_nn: float


@dataclass(frozen=True, slots=True)
class LocalDocument:
    """A document with the intrinsic dimension near it, and the ids of its nearest documents, the nearest first."""

    id: str
    dimension: float
    neighbours: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LocalDocuments:
    """Documents of one store where its local dimension is lowest, and where it is highest, the most extreme first."""

    lowest: tuple[LocalDocument, ...]
    highest: tuple[LocalDocument, ...]


@dataclass(frozen=True, slots=True)
class StoresComparison:
    """Stores compared.

    Attributes
    ----------
    stores : in the order they were given
    shared : documents that all of them have
    documents : how many of these were compared
    pairs : by the places of both stores, the earlier one first, which is a
    stitches : by spec, and by the places of the stores that it leads from and to. Those of a store to itself are
        fitted and judged as between two: what they lose, they lose for want of documents. The first spec is that of
        `pairs`
    chance : CKA of each store with a Gaussian of its shape
    local : of each store, documents by their local dimension, out of those that it is measured near
    texts : by id, how the texts of the documents in `local` begin, where a store has texts
    groups : measures within groups of stores and between them, where these were named
    downstream : scores by labels, where these were given; the first store's vectors are the true ones
    notes : sentences for a person
    """

    stores: tuple[Compared, ...]
    shared: int
    documents: int
    seed: int
    pairs: Mapping[tuple[int, int], Similarity]
    stitches: Mapping[str, Mapping[tuple[int, int], Stitching]]
    chance: tuple[ChanceCka, ...]
    local: tuple[LocalDocuments, ...]
    texts: Mapping[str, str]
    groups: Groups | None
    downstream: Downstream | None
    notes: tuple[str, ...]

    @property
    def specs(self) -> tuple[str, ...]:
        """The stitches that were fitted, the one of `pairs` first."""
        return tuple(self.stitches)

    @property
    def own_stitches(self) -> tuple[Stitching, ...]:
        """The stitches of each store to itself, of the first kind."""
        fitted = self.stitches[self.specs[0]]
        return tuple(fitted[position, position] for position in range(len(self.stores)))

    def __repr__(self) -> str:
        names = [store.name for store in self.stores]
        if len(self.pairs) == 1:
            likeness = f"CKA {next(iter(self.pairs.values())).cka:.3f}"
        else:
            likeness = f"{len(self.pairs)} pairs"
        return f"<StoresComparison of {', '.join(names)}: {self.documents:,} documents, {likeness}>"

    def _repr_html_(self) -> str | None:
        return notebook_html(self)

    def matrix(self, measure: Measure, stitch: str | None = None) -> Matrix:
        """Return a measure between all stores, by this stitch, or by the first one.

        That of a stitch is measured on the diagonal too: a store is stitched to itself as to any other.
        """
        if stitch is None:
            stitch = self.specs[0]
        stitches = self.stitches[stitch]

        def figure(row: int, column: int) -> float | None:
            value = measure.itself
            if measure.directed:
                value = measure.figure(stitches[row, column])
            elif row != column:
                # What has no direction is kept once, under the earlier store
                value = measure.figure(self.pairs[min(row, column), max(row, column)])
            if measure is ABOVE_SELF and value is not None:
                # The target's own: what a stitch of the target to itself loses is lost for want of documents
                value -= stitches[column, column].stitch.penalty
            # JSON has no NaN
            if value is None or not isfinite(value):
                return None
            return value

        positions = range(len(self.stores))
        return tuple(tuple(figure(row, column) for column in positions) for row in positions)

    def figures(self) -> Iterator[MeasureFigures]:
        """Yield every measure in the order of `MEASURES`; those of a stitch once for each."""
        for measure in MEASURES:
            chance = None
            if measure.key in ("cka", "cka_biased"):
                chance = tuple(getattr(gaussian, measure.key) for gaussian in self.chance)
            if not measure.directed or measure.is_control:
                yield MeasureFigures(measure, None, measure.key, self.matrix(measure), chance)
                continue
            for position, spec in enumerate(self.specs):
                name = f"{measure.key} {spec}" if position else measure.key
                yield MeasureFigures(measure, spec, name, self.matrix(measure, spec), chance)

    def to_pandas(self) -> DataFrame:
        """Return one row a pair of stores and direction, a column a measure (`migrate.lab.similarity.measures`).

        Of further stitches the columns are named `MEASURE SPEC`.
        """
        names = [store.name for store in self.stores]
        matrices = {figures.name: figures.matrix for figures in self.figures()}
        return data_frame(
            [
                {"from": names[row], "to": names[column]}
                | {key: matrix[row][column] for key, matrix in matrices.items()}
                for row, column in permutations(range(len(names)), 2)
            ]
        )
