"""Compares any number of stores of the same documents, each pair by every measure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, permutations, product
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from migrate.display import data_frame, notebook_html
from migrate.errors import UsageError
from migrate.lab.compare.figures import figures_of, matrix_of
from migrate.lab.compare.groups import Contrast, Groups, Places, check_groups, contrast, layer_distances
from migrate.lab.compare.labels import Downstream, judge_labels
from migrate.lab.compare.matching import SAMPLE, Matched, match_documents
from migrate.similarity.measures import MEASURES
from migrate.similarity.spaces import ChanceCka, Similarity, Space, chance_cka, compare_described, describe_space
from migrate.similarity.stitching import RIDGE, Stitching, check_stitch, halves, judge_stitching
from migrate.stores.base import Store
from migrate.vectors import Progress, no_progress

if TYPE_CHECKING:
    from pandas import DataFrame


def distinct_names(locations: Sequence[str]) -> list[str]:
    """For each location as many of its last parts as tell it from all others, and a number where it is the same.

    A location may hold what a terminal obeys; a name does not.

    >>> distinct_names(["a/store", "b/store"])
    ['a/store', 'b/store']
    >>> distinct_names(["a/old", "a/old", "b/new"])
    ['old', 'old (2)', 'new']
    """
    parts = [Path(location).absolute().parts for location in locations]
    different = len(set(parts))
    depth = next(
        d for d in range(1, 1 + max(map(len, parts))) if len({path_parts[-d:] for path_parts in parts}) == different
    )
    names = [str(Path(*path_parts[-depth:])) for path_parts in parts]
    names = ["".join(char if char.isprintable() else "?" for char in name) for name in names]
    times = [names[: place + 1].count(name) for place, name in enumerate(names)]
    return [name if time == 1 else f"{name} ({time})" for name, time in zip(names, times, strict=True)]


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
        return tuple(fitted[place, place] for place in range(len(self.stores)))

    def __repr__(self) -> str:
        names = [store.name for store in self.stores]
        if len(self.pairs) == 1:
            likeness = f"CKA {next(iter(self.pairs.values())).cka:.3f}"
        else:
            likeness = f"{len(self.pairs)} pairs"
        return f"<StoresComparison of {', '.join(names)}: {self.documents:,} documents, {likeness}>"

    def _repr_html_(self) -> str | None:
        return notebook_html(self)

    def to_pandas(self) -> DataFrame:
        """One row a pair of stores and direction, a column a measure (`migrate.similarity.measures`); needs pandas.

        Of further stitches the columns are named `MEASURE SPEC`.
        """
        names = [store.name for store in self.stores]
        matrices = {figures.name: figures.matrix for figures in figures_of(self)}
        return data_frame(
            [
                {"from": names[row], "to": names[column]}
                | {key: matrix[row][column] for key, matrix in matrices.items()}
                for row, column in permutations(range(len(names)), 2)
            ]
        )


def compare_stores(
    stores: Sequence[Store],
    *,
    sample: int = SAMPLE,
    stitches: Sequence[str] = (RIDGE,),
    labels: Mapping[str, str] | None = None,
    groups: Places | None = None,
    seed: int = 0,
    progress: Progress = no_progress,
) -> StoresComparison:
    """Compare every pair of stores on up to `sample` documents that all have; `labels` are by document id.

    `stitches` are specs of stitches that read vectors alone: each is fitted between every two stores, both ways.
    `groups` are stores by their places; measures within them are set against those between them.
    """
    if len(stores) < 2:
        raise UsageError(f"a comparison needs two or more stores, found {len(stores)}; name another")
    specs = list(dict.fromkeys(stitches)) or [RIDGE]
    for spec in specs:
        check_stitch(spec)
    if groups is not None:
        check_groups(groups, len(stores))
    matched = match_documents(stores, sample=sample, seed=seed, progress=progress)
    spaces = [describe_space(vectors, seed=seed) for vectors in matched.vectors]
    downstream = None
    if labels is not None:
        rows = [row for row, doc_id in enumerate(matched.ids) if doc_id in labels]
        known = [labels[matched.ids[row]] for row in rows]
        downstream = judge_labels([vectors[rows] for vectors in matched.vectors], known, seed=seed)
    names = distinct_names([store.info.location for store in stores])
    fitted = _fit_stitches(spaces, specs, seed, progress)
    local = tuple(_local_documents(space, matched.ids) for space in spaces)
    comparison = StoresComparison(
        stores=tuple(
            Compared(
                name,
                store.info.location,
                store.info.count,
                store.info.dim,
                store.info.exact,
                space.dimension,
                space.two_nn,
            )
            for name, store, space in zip(names, stores, spaces, strict=True)
        ),
        shared=matched.shared,
        documents=len(matched.ids),
        seed=seed,
        pairs=_compare_pairs(spaces, fitted[specs[0]], seed, progress),
        stitches=fitted,
        chance=tuple(chance_cka(space.vectors, seed=seed) for space in spaces),
        local=local,
        texts=_first_texts(stores, matched, local),
        groups=None,
        downstream=downstream,
        notes=tuple(_notes(stores, names, matched)),
    )
    return comparison if groups is None else replace(comparison, groups=_compare_groups(comparison, groups))


def _compare_groups(comparison: StoresComparison, places: Places) -> Groups:
    members = list(places.values())
    contrasts, angles = [], np.empty(0)
    for measure in MEASURES:
        if measure.key in ("cka", "cka_distance", "jaccard", "relative_orientation", "r2", "penalty"):
            matrix = np.array(matrix_of(measure, comparison), dtype=float)
            contrasts.append(Contrast(measure.key, measure.title, *contrast(matrix, members, seed=comparison.seed)))
            angles = matrix if measure.key == "cka_distance" else angles
    return Groups(places, tuple(contrasts), layer_distances(angles, members))


def _local_documents(space: Space, ids: Sequence[str]) -> LocalDocuments:
    known = np.flatnonzero(np.isfinite(space.local))
    order = known[np.argsort(space.local[known], kind="stable")]
    lowest, highest = (
        tuple(
            LocalDocument(
                ids[space.near.query_rows[place]],
                float(space.local[place]),
                tuple(ids[row] for row in space.near.rows[place][:5]),
            )
            for place in places[:20]
        )
        for places in (order, order[::-1])
    )
    return LocalDocuments(lowest, highest)


def _first_texts(stores: Sequence[Store], matched: Matched, local: Sequence[LocalDocuments]) -> dict[str, str]:
    """Return how the listed documents begin, as the first store with texts has them."""
    place = next((place for place, store in enumerate(stores) if store.info.has_texts), None)
    if place is None:
        return {}
    listed = {
        doc_id
        for documents in local
        for document in (*documents.lowest, *documents.highest)
        for doc_id in (document.id, *document.neighbours)
    }
    rows = [row for row, doc_id in enumerate(matched.ids) if doc_id in listed]
    texts = {
        document.id: " ".join(document.text.split()) for document in stores[place].documents(matched.rows[place][rows])
    }
    return {doc_id: text if len(text) <= 80 else f"{text[:79]}…" for doc_id, text in texts.items()}


def _fit_stitches(
    spaces: Sequence[Space], specs: Sequence[str], seed: int, progress: Progress
) -> dict[str, dict[tuple[int, int], Stitching]]:
    """Fit every stitch between every two spaces, and from each to itself."""
    fitted: dict[str, dict[tuple[int, int], Stitching]] = {spec: {} for spec in specs}
    every = list(product(specs, range(len(spaces)), range(len(spaces))))
    for done, (spec, a, b) in enumerate(every):
        progress("fit stitches", done, len(every))
        fitted[spec][a, b] = judge_stitching(spaces[a].vectors, spaces[b].vectors, stitch=spec, seed=seed)
    progress("fit stitches", len(every), len(every))
    return fitted


def _compare_pairs(
    spaces: Sequence[Space], fitted: Mapping[tuple[int, int], Stitching], seed: int, progress: Progress
) -> dict[tuple[int, int], Similarity]:
    every = list(combinations(range(len(spaces)), 2))
    pairs = {}
    for done, (a, b) in enumerate(every):
        progress("compare spaces", done, len(every))
        pairs[a, b] = compare_described(spaces[a], spaces[b], fitted[a, b], fitted[b, a], seed=seed)
    progress("compare spaces", len(every), len(every))
    return pairs


def _notes(stores: Sequence[Store], names: Sequence[str], matched: Matched) -> list[str]:
    notes = [
        f"{name} has {store.info.count - matched.shared:,} documents that not all of the others have; they are left out"
        for name, store in zip(names, stores, strict=True)
        if store.info.count > matched.shared
    ]
    if len(matched.ids) < matched.shared:
        notes.append(f"{len(matched.ids):,} of the {matched.shared:,} shared documents are compared, drawn by the seed")
    fitted_on = len(halves(len(matched.ids), seed=0)[0])
    wide = [
        f"{name} ({store.info.dim:,})" for name, store in zip(names, stores, strict=True) if store.info.dim > fitted_on
    ]
    if wide:
        notes.append(
            f"stitches are fitted on {fitted_on:,} documents, fewer than the dimensions of {', '.join(wide)}: what "
            "they reach says as much of that number as of the spaces"
        )
    lossy = [name for name, store in zip(names, stores, strict=True) if not store.info.exact]
    if lossy:
        notes.append(f"the vectors of {', '.join(lossy)} are approximate, as the index keeps them")
    return notes
