"""Compares stored vectors with those that a model gives for the same texts now.

`Tolerance` says how close two vectors must be to count as the same, given what the index has kept of them.
`Comparison` measures agreement against what unrelated vectors would show, and `share_of` bounds the share of the whole
store that disagrees.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from migrate.embedders.base import Embedder
from migrate.selection import Sample, draw_sample
from migrate.stores.base import Store, StoreInfo
from migrate.vectors import Document, Progress, Vectors, check_vectors, squared_norms, unit_rows

EXACT: Final = 1e-3
"""Two stores that others had made were off by less than 1e-6; a prefix moved the vector of a text by 2e-3 or more."""

_SCALAR: Final = {"SQfp16": EXACT, "SQbf16": EXACT, "SQ8": 2e-3, "SQ6": 5e-3, "SQ4": 2e-2}
"""Measured on 5,183 unit vectors of 384 dimensions: the worst lost 6e-4 with SQ6, 1e-2 with SQ4, else below 5e-5."""

_SLACK: Final = 0.07
_STRAYING: Final = 0.3
_LOOSE: Final = 5e-3
_PLAIN = re.compile(r"Flat|SQ\w+|IVF.*|IDMap2?|HNSW.*")


CONFIDENCE = 0.95

Mask = NDArray[np.bool_]

_RIVALS = 0.05
_LONELY = 0.5
_MAJORITY = 0.5
_PERMUTATIONS = 999
_OTHERS = 256
_STREAM = 1
"""Tells the random numbers of a check from those of a fit."""
_STRUCTURE = 64


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far below 1 a cosine may be; `coded` where it is counted from what the code of an index leaves of a vector.

    A code that stores the mean of what it stands for has, on average, cos(x, x') = |x'| / |x|: a vector reconstructed
    from a product or residual quantizer is as much too short as it is off. So the norm says which cosine to expect.
    """

    allowed: float
    coded: bool = False

    @property
    def loose(self) -> bool:
        """Whether it may hide what a prefix changes, so that ways of embedding must be compared with each other."""
        return self.allowed > _LOOSE

    def least(self, stored: Vectors, fresh: Vectors) -> NDArray[np.float64]:
        """The least cosine at which each row of `stored`, (n, dim), is the same as that of `fresh`; shape (n,)."""
        if not self.coded:
            return np.full(len(stored), 1 - self.allowed)
        expected = np.sqrt(squared_norms(stored).astype(np.float64) / squared_norms(fresh))
        expected = np.minimum(expected, 1 / expected)
        # The coarser the code, the more single vectors stray from what it does on average
        least: NDArray[np.float64] = expected - self.allowed - _STRAYING * (1 - expected)
        return least


def tolerance_of(info: StoreInfo) -> Tolerance:
    """The tolerance for a store, by the kind of its index."""
    if info.exact:
        return Tolerance(EXACT)
    parts = str(info.details.get("factory", "")).split(",")
    if all(_PLAIN.fullmatch(part) for part in parts) and parts[-1] in _SCALAR:
        return Tolerance(_SCALAR[parts[-1]])
    return Tolerance(_SLACK, coded=True)


@dataclass(frozen=True, slots=True)
class Share:
    """A share between bounds, all from 0 to 1. With nothing seen `upper` is the largest share that could be missed."""

    estimate: float
    lower: float
    upper: float


def share_of(hits: int, sampled: int, population: int) -> Share:
    """The share of a population of which `hits` of `sampled` random members were seen; n >= 1.

    Bounds are those of Clopper and Pearson (Biometrika 26, 1934, 404-413): two-sided 95 %, one-sided where none or all
    were seen, so that 0 of n gives 1 - 0.05^(1/n), about 3/n. A sample of everything has no bounds to either side.

    >>> round(share_of(0, 32, 10_000).upper, 3)
    0.089
    """
    estimate = hits / sampled
    if sampled >= population:
        return Share(estimate, estimate, estimate)
    from scipy.special import betaincinv

    tail = 1 - CONFIDENCE if hits in (0, sampled) else (1 - CONFIDENCE) / 2
    lower = float(betaincinv(hits, sampled - hits + 1, tail)) if hits else 0.0
    upper = float(betaincinv(hits + 1, sampled - hits, 1 - tail)) if hits < sampled else 1.0
    return Share(estimate, lower, upper)


@dataclass(frozen=True, eq=False)
class Comparison:
    """Row i of `stored` and of `fresh`, both (n, dim), belongs to `documents[i]`, in row `rows[i]` of the store."""

    rows: NDArray[np.int64]
    documents: Sequence[Document]
    stored: Vectors
    fresh: Vectors
    tolerance: Tolerance

    def __len__(self) -> int:
        return len(self.documents)

    @cached_property
    def cosines(self) -> NDArray[np.float64]:
        """Cosine of each stored vector with that of the same text, (n,)."""
        return pairwise(self.stored, self.fresh)

    @cached_property
    def crossed(self) -> NDArray[np.float32]:
        """Cosine of each stored vector with new ones of at most 256 other texts; NaN for its own, (n, m)."""
        partners = spread(len(self), _OTHERS)
        product: NDArray[np.float32] = unit_rows(self.stored) @ unit_rows(self.fresh[partners]).T
        product[partners, np.arange(len(partners))] = np.nan
        return product

    @cached_property
    def agreeing(self) -> Mask:
        """Which documents have the vector that the model gives, (n,).

        Of a code, single vectors stray from what it does on average; where most agree, those that are near do too.
        """
        agreeing = agree(self.stored, self.fresh, self.tolerance)
        return agreeing | self.near if self.tolerance.coded and agreeing.mean() > _MAJORITY else agreeing

    @property
    def chance(self) -> float:
        """Median cosine over different texts, 0 where there is one text only."""
        return float(np.nanmedian(self.crossed)) if len(self) > 1 else 0.0

    @cached_property
    def near(self) -> Mask:
        """Whose stored vector has, of all sampled texts, its own among the nearest 5 %; (n,).

        A rank rather than a cosine: in a narrow space, cosines of different texts are high too.
        """
        if len(self) == 1:
            return np.array(self.cosines > _LONELY)
        rivals = (self.crossed > self.cosines[:, None]).sum(axis=1)
        return np.array(rivals <= _RIVALS * (self.crossed.shape[1] - 1))

    def closeness(self, rows: Mask) -> float:
        """How far some documents, (n,), have come from chance (0) to the model's vectors (1): their median cosine."""
        chance = float(np.nanmedian(self.crossed[rows])) if len(self) > 1 else 0.0
        return (float(np.median(self.cosines[rows])) - chance) / max(1 - chance, 1e-6)

    def structure(self, seed: int) -> tuple[float, float]:
        """Spearman correlation of the cosines inside `stored` with those inside `fresh`, and how often chance does it.

        Mantel's permutation test (Cancer Research 27, 1967, 209-220): the documents of one side change places.
        """
        rows = spread(len(self), _STRUCTURE)
        upper = np.triu_indices(len(rows), 1)
        old, new = (_ranked(vectors[rows], upper) for vectors in (self.stored, self.fresh))
        correlation = _correlation(old[upper], new[upper])
        rng = np.random.default_rng(seed)
        orders = (rng.permutation(len(rows)) for _ in range(_PERMUTATIONS))
        better = sum(_correlation(old[order][:, order][upper], new[upper]) >= correlation for order in orders)
        return correlation, (better + 1) / (_PERMUTATIONS + 1)

    @property
    def is_rotated(self) -> bool:
        """Whether both sides have the same angles inside, so that one is the other turned."""
        rows = spread(len(self), _STRUCTURE)
        inside = [unit_rows(vectors[rows]) @ unit_rows(vectors[rows]).T for vectors in (self.stored, self.fresh)]
        return bool(np.abs(inside[0] - inside[1]).max() < self.tolerance.allowed)


def spread(count: int, most: int) -> NDArray[np.int64]:
    """At most `most` of the numbers below `count`, evenly spread."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(np.int64))


def pairwise(left: Vectors, right: Vectors) -> NDArray[np.float64]:
    """Cosine of each row of `left` with the same row of `right`, (n,)."""
    cosines: NDArray[np.float64] = np.einsum("ij,ij->i", unit_rows(left), unit_rows(right)).astype(np.float64)
    return cosines


def agree(stored: Vectors, fresh: Vectors, tolerance: Tolerance) -> Mask:
    """Which rows of `stored`, (n, dim), are those of `fresh`."""
    return pairwise(stored, fresh) >= tolerance.least(stored, fresh)


def _ranked(vectors: Vectors, upper: tuple[NDArray[np.int64], NDArray[np.int64]]) -> NDArray[np.float64]:
    """Ranks of the cosines between rows, symmetric, (n, n)."""
    rows = unit_rows(vectors)
    table = np.zeros((len(rows), len(rows)))
    values = (rows @ rows.T)[upper]
    table[upper] = np.argsort(np.argsort(values, kind="stable"), kind="stable")
    return table + table.T


def _correlation(left: NDArray[np.float64], right: NDArray[np.float64]) -> float:
    return float(np.corrcoef(left, right)[0, 1])


def draw(store: Store, size: int, seed: int) -> tuple[Sample, Vectors]:
    """Random documents with different texts, and their stored vectors, all finite and not zero.

    They are others than a fit draws with the same seed: in a translated store those have true vectors.
    """
    own = int(np.random.SeedSequence([seed, _STREAM]).generate_state(1)[0])
    sample = draw_sample(store, size, strategy="random", seed=own)
    batch = store.get(sample.rows)
    check_vectors(batch.ids, batch.vectors, source=store.info.location)
    return sample, batch.vectors


def compare(
    sample: Sample, stored: Vectors, embedder: Embedder, tolerance: Tolerance, progress: Progress
) -> Comparison:
    """Embed a sample as documents and compare the result with its stored vectors."""
    fresh = embedder.chosen_by(()).embed_documents(sample.documents, progress=progress)
    return Comparison(sample.rows, sample.documents, stored, fresh, tolerance)
