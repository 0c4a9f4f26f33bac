"""Compares stored vectors with those that a model gives for the same texts now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from migrate.selection import Sample, draw_sample
from migrate.selection.model_match import Claim, Mask, Match, tolerance_of
from migrate.stores.base import Store
from migrate.vectors import Document, check_vectors, unit_rows


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
    # Clopper and Pearson's exact bounds, by quantiles of the beta distribution
    from scipy.special import betaincinv

    tail = 0.025
    # One bound is known, and all of the error is for the other one
    if hits in (0, sampled):
        tail = 0.05
    lower = 0.0
    if hits:
        lower = float(betaincinv(hits, sampled - hits + 1, tail))
    upper = 1.0
    if hits < sampled:
        upper = float(betaincinv(hits + 1, sampled - hits, 1 - tail))
    return Share(estimate, lower, upper)


@dataclass(frozen=True, eq=False, slots=True)
class Reembedded:
    """Sampled documents of a store, and what the model gave for all of them.

    Attributes
    ----------
    rows, documents : of the store, n of each
    match : the stored vectors beside those of the model
    crossed : cosine of each stored vector with new ones of m other texts; NaN for its own, (n, m)
    near : whether a stored vector has its own text among the nearest, (n,)
    agreeing : whether documents have the vector that the model gives, (n,)
    """

    rows: NDArray[np.int64]
    documents: Sequence[Document]
    match: Match
    crossed: NDArray[np.float32]
    near: Mask
    agreeing: Mask

    def __len__(self) -> int:
        return len(self.documents)

    def chance(self, rows: Mask | slice = slice(None)) -> float:
        """Return the median cosine of some documents over different texts, 0 where there is one text only."""
        if len(self) <= 1:
            return 0.0
        return float(np.nanmedian(self.crossed[rows]))

    def is_near(self, rows: Mask) -> bool:
        """Return whether most of some documents, (n,), are near, and came half of the way from chance to the model's.

        The median text came 0.9 of the way when a quarter was cut off, another layer's vector 0.2.
        """
        chance = self.chance(rows)
        closeness = (float(np.median(self.match.cosines[rows])) - chance) / max(1 - chance, 1e-6)
        return bool(self.near[rows].mean() > 1 / 2 and closeness > 1 / 2)


def reembedded(sample: Sample, match: Match) -> Reembedded:
    """Compare what a model gave for a whole sample: each text with its own vector, and with those of others."""
    crossed = _crossed(match)
    near = _near(match, crossed)
    agreeing = match.right
    if match.claim.tolerance.coded and match.is_mostly_right:
        # Of a code, single vectors stray from what it does on average; where most agree, those that are near do too
        agreeing = agreeing | near
    return Reembedded(sample.rows, sample.documents, match, crossed, near, agreeing)


def _crossed(match: Match) -> NDArray[np.float32]:
    """Return the cosine of each stored vector with new ones of at most 256 other texts; NaN for its own, (n, m)."""
    # Not all: with `--sample all` the cosines of every pair of documents would not fit into memory
    partners = spread(match.count, 256)
    product: NDArray[np.float32] = unit_rows(match.claim.vectors) @ unit_rows(match.vectors[partners]).T
    product[partners, np.arange(len(partners))] = np.nan
    return product


def _near(match: Match, crossed: NDArray[np.float32]) -> Mask:
    """Return whether a stored vector has, of all sampled texts, its own among the nearest 5 %; (n,).

    A rank rather than a cosine: in a narrow space, cosines of different texts are high too.
    """
    if match.count == 1:
        return np.array(match.cosines > 1 / 2)
    rivals = (crossed > match.cosines[:, None]).sum(axis=1)
    return np.array(rivals <= 0.05 * (crossed.shape[1] - 1))


def spread(count: int, most: int) -> NDArray[np.int64]:
    """Return at most `most` of the numbers below `count`, evenly spread."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(np.int64))


def draw(store: Store, size: int, seed: int) -> tuple[Sample, Claim]:
    """Draw random documents with different texts, and their stored vectors, all finite and not zero.

    They are others than a fit draws with the same seed: in a translated store those have true vectors.
    """
    # With the seed itself the sample would be that of a fit, which has true vectors in a translated store
    own_seed = int(np.random.SeedSequence([seed, 1]).generate_state(1)[0])
    sample = draw_sample(store, size, strategy="random", seed=own_seed)
    batch = store.get(sample.rows)
    check_vectors(batch.ids, batch.vectors, source=store.info.location)
    return sample, Claim(sample.documents, batch.vectors, tolerance_of(store.info))
