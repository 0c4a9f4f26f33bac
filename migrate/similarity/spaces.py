"""Two spaces of the same documents, compared by every measure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from migrate.similarity import dimension
from migrate.similarity.cka import FEWEST, cka_distance, linear_cka
from migrate.similarity.dimension import local_dimensions, mean_dimension, two_nn_dimension
from migrate.similarity.geometry import local_geometry_of, relative_orientation
from migrate.similarity.neighbours import NEIGHBOURS, Nearest, find_nearest, jaccard_of, rank_similarity_of
from migrate.similarity.rows import check_same_documents, some_rows
from migrate.similarity.stitching import Stitching, judge_stitching
from migrate.vectors import Vectors, unit_rows


@dataclass(frozen=True, slots=True, eq=False)
class Space:
    """A space with what several comparisons need of it: neighbours of the documents asked, dimensions near them."""

    vectors: Vectors
    near: Nearest
    local: NDArray[np.float64]

    @property
    def dimension(self) -> float:
        """Intrinsic dimension of the directions, from up to 1,000 documents; NaN where it is not known."""
        return mean_dimension(self.local)

    @property
    def two_nn(self) -> float:
        """Intrinsic dimension by TwoNN, from the same documents."""
        return two_nn_dimension(self.near)


@dataclass(frozen=True, slots=True)
class Similarity:
    """Two spaces a and b compared; each function of the same name says what a figure means.

    Attributes
    ----------
    documents : how many were compared
    cka : linear CKA, from all of them
    cka_distance : arccos of it, in radians
    jaccard, rank_similarity : of the 10 nearest documents
    relative_orientation : correlation of the cosines of pairs of documents
    local_geometry : correlation of reconstruction weights
    dimension_agreement : Spearman's correlation of the intrinsic dimensions near the same documents
    dimensions, two_nn : intrinsic dimensions of a and of b
    forth, back : stitches from a to b and from b to a
    """

    documents: int
    cka: float
    cka_distance: float
    jaccard: float
    rank_similarity: float
    relative_orientation: float
    local_geometry: float
    dimension_agreement: float
    dimensions: tuple[float, float]
    two_nn: tuple[float, float]
    forth: Stitching
    back: Stitching


def compare_spaces(a: Vectors, b: Vectors, *, seed: int = 0) -> Similarity:
    """Compare (n, p) and (n, q), finite and without zero rows, whose rows i are of one document.

    What grows with the square or the cube of n is taken on up to 1,000 documents, which are drawn by `seed` and
    compared among all n; stitches as in `judge_stitching`.

    Raises
    ------
    VectorError
        The two differ in length, or there are fewer than 4 documents.
    """
    check_same_documents(a, b, FEWEST)
    return compare_described(describe_space(a, seed=seed), describe_space(b, seed=seed), seed=seed)


def describe_space(vectors: Vectors, *, seed: int = 0) -> Space:
    """What comparisons need of (n, d); only spaces described with the same seed go together."""
    asked = some_rows(len(vectors), seed=seed)
    near = find_nearest(unit_rows(vectors), max(NEIGHBOURS, dimension.NEIGHBOURS), asked=asked)
    return Space(vectors, near, local_dimensions(near))


def compare_described(a: Space, b: Space, *, seed: int = 0) -> Similarity:
    """As `compare_spaces`, of spaces that are described already."""
    cka = linear_cka(a.vectors, b.vectors, seed=seed)
    one, other = a.near.first(NEIGHBOURS), b.near.first(NEIGHBOURS)
    return Similarity(
        documents=len(a.vectors),
        cka=cka,
        cka_distance=cka_distance(cka),
        jaccard=jaccard_of(one, other),
        rank_similarity=rank_similarity_of(one, other),
        relative_orientation=relative_orientation(a.vectors, b.vectors, seed=seed),
        local_geometry=local_geometry_of(unit_rows(a.vectors), unit_rows(b.vectors), one, other),
        dimension_agreement=_agreement(a.local, b.local),
        dimensions=(a.dimension, b.dimension),
        two_nn=(a.two_nn, b.two_nn),
        forth=judge_stitching(a.vectors, b.vectors, seed=seed),
        back=judge_stitching(b.vectors, a.vectors, seed=seed),
    )


def _agreement(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    from migrate.stitch.confidence import spearman

    both = np.isfinite(one) & np.isfinite(other)
    return spearman(one[both], other[both]) if both.any() else float("nan")
