"""Compares stored vectors with those that a model gives for the same texts now."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from migrate.embedders.base import Embedder
from migrate.embedders.cache import with_choosers
from migrate.selection import Sample, draw_sample
from migrate.stores.base import Store, StoreInfo
from migrate.vectors import Document, Vectors, check_vectors, squared_norms, unit_rows

EXACT = 1e-3
"""Two stores that others had made were off by less than 1e-6; a prefix moved the vector of a text by 2e-3 or more."""

_SCALAR = {"SQfp16": EXACT, "SQbf16": EXACT, "SQ8": 2e-3, "SQ6": 5e-3, "SQ4": 2e-2}
"""Measured on 5,183 unit vectors of 384 dimensions: the worst lost 6e-4 with SQ6, 1e-2 with SQ4, else below 5e-5."""

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The distance from 1 that a cosine may have; `coded` if it counts from what an index's code leaves of a vector.

    A code that stores the mean of what it stands for has, on average, cos(x, x') = |x'| / |x|: a vector reconstructed
    from a product or residual quantizer is as much too short as it is off. So the norm says which cosine to expect.
    """

    allowed: float
    coded: bool = False

    @property
    def loose(self) -> bool:
        """True if it may hide what a prefix changes, so that ways of embedding must be compared with each other."""
        return self.allowed > 5e-3

    def least(self, stored: Vectors, reembedded: Vectors) -> NDArray[np.float64]:
        """Return the least cosine at which a row of `stored`, (n, dim), is the same as that of `reembedded`; (n,)."""
        if not self.coded:
            return np.full(len(stored), 1 - self.allowed)
        expected = np.sqrt(squared_norms(stored).astype(np.float64) / squared_norms(reembedded))
        expected = np.minimum(expected, 1 / expected)
        # The coarser the code, the more single vectors stray from what it does on average
        least: NDArray[np.float64] = expected - self.allowed - 0.3 * (1 - expected)
        return least


def tolerance_of(info: StoreInfo) -> Tolerance:
    """Return the tolerance for a store, by the kind of its index."""
    if info.exact:
        return Tolerance(EXACT)
    codecs = str(info.details.get("factory", "")).split(",")
    if all(re.fullmatch(r"Flat|SQ\w+|IVF.*|IDMap2?|HNSW.*", codec) for codec in codecs) and codecs[-1] in _SCALAR:
        return Tolerance(_SCALAR[codecs[-1]])
    return Tolerance(0.07, coded=True)


@dataclass(frozen=True, slots=True)
class Share:
    """A share between bounds, all from 0 to 1. With nothing seen `upper` is the largest share that could be missed."""

    estimate: float
    lower: float
    upper: float


def share_of(hits: int, sampled: int, population: int) -> Share:
    """Return the share of a population of which `hits` of `sampled` random members were seen; n >= 1.

    Bounds are those of Clopper and Pearson (Biometrika 26, 1934, 404-413): two-sided 95 %, one-sided where none or all
    were seen, so that 0 of n gives 1 - 0.05^(1/n), about 3/n. A sample of everything has no bounds to either side.

    >>> round(share_of(0, 32, 10_000).upper, 3)
    0.089
    """
    estimate = hits / sampled
    if sampled >= population:
        return Share(estimate, estimate, estimate)
    from scipy.special import betaincinv

    tail = 0.05 if hits in (0, sampled) else 0.025
    lower = float(betaincinv(hits, sampled - hits + 1, tail)) if hits else 0.0
    upper = float(betaincinv(hits + 1, sampled - hits, 1 - tail)) if hits < sampled else 1.0
    return Share(estimate, lower, upper)


@dataclass(frozen=True, eq=False)
class Reembedded:
    """Sampled documents: row i of `stored` and of `fresh`, both (n, dim), is `documents[i]`, in row `rows[i]`."""

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
        partners = spread(len(self), 256)
        product: NDArray[np.float32] = unit_rows(self.stored) @ unit_rows(self.fresh[partners]).T
        product[partners, np.arange(len(partners))] = np.nan
        return product

    @cached_property
    def agreeing(self) -> Mask:
        """True for documents that have the vector that the model gives, (n,).

        Of a code, single vectors stray from what it does on average; where most agree, those that are near do too.
        """
        agreeing = agree(self.stored, self.fresh, self.tolerance)
        return agreeing | self.near if self.tolerance.coded and agreeing.mean() > 1 / 2 else agreeing

    def chance(self, rows: Mask | slice = slice(None)) -> float:
        """Return the median cosine of some documents over different texts, 0 where there is one text only."""
        return float(np.nanmedian(self.crossed[rows])) if len(self) > 1 else 0.0

    @cached_property
    def near(self) -> Mask:
        """True where a stored vector has, of all sampled texts, its own among the nearest 5 %; (n,).

        A rank rather than a cosine: in a narrow space, cosines of different texts are high too.
        """
        if len(self) == 1:
            return np.array(self.cosines > 1 / 2)
        rivals = (self.crossed > self.cosines[:, None]).sum(axis=1)
        return np.array(rivals <= 0.05 * (self.crossed.shape[1] - 1))

    def is_near(self, rows: Mask) -> bool:
        """Return whether most of some documents, (n,), are near, and came half of the way from chance to the model's.

        The median text came 0.9 of the way when a quarter was cut off, another layer's vector 0.2.
        """
        chance = self.chance(rows)
        closeness = (float(np.median(self.cosines[rows])) - chance) / max(1 - chance, 1e-6)
        return bool(self.near[rows].mean() > 1 / 2 and closeness > 1 / 2)


def spread(count: int, most: int) -> NDArray[np.int64]:
    """Return at most `most` of the numbers below `count`, evenly spread."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(np.int64))


def pairwise(first: Vectors, second: Vectors) -> NDArray[np.float64]:
    """Return the cosine of each row of `first` with the same row of `second`, (n,)."""
    cosines: NDArray[np.float64] = np.einsum("ij,ij->i", unit_rows(first), unit_rows(second)).astype(np.float64)
    return cosines


def agree(stored: Vectors, reembedded: Vectors, tolerance: Tolerance) -> Mask:
    """Return which rows of `stored`, (n, dim), are those of `reembedded`."""
    return pairwise(stored, reembedded) >= tolerance.least(stored, reembedded)


def draw(store: Store, size: int, seed: int) -> tuple[Sample, Vectors]:
    """Draw random documents with different texts, and their stored vectors, all finite and not zero.

    They are others than a fit draws with the same seed: in a translated store those have true vectors.
    """
    own_seed = int(np.random.SeedSequence([seed, 1]).generate_state(1)[0])
    sample = draw_sample(store, size, strategy="random", seed=own_seed)
    batch = store.get(sample.rows)
    check_vectors(batch.ids, batch.vectors, source=store.info.location)
    return sample, batch.vectors


def holds_vectors_of(store: Store, embedder: Embedder, size: int, seed: int = 0) -> bool:
    """Return whether some documents have the model's vectors, or the first part of these: four, then up to `size`."""
    sample, stored = draw(store, size, seed)
    for rows in (slice(0, 4), slice(4, len(sample.documents))):
        if documents := sample.documents[rows]:
            reembedded = with_choosers(embedder, ()).embed_documents(documents)[:, : store.info.dim]
            if not agree(stored[rows], np.ascontiguousarray(reembedded), tolerance_of(store.info)).all():
                return False
    return True
