"""Hubs: documents that turn up among the neighbours of too many others, before and after."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from migrate.stores.base import Metric
from migrate.vectors import Vectors, squared_norms

NEIGHBOURS = 10


@dataclass(frozen=True, slots=True)
class Hubness:
    """How often documents are among the ten nearest neighbours of others, in a sample of `documents`.

    `skewness` is that of the counts (Radovanović, Nanopoulos & Ivanović 2010, JMLR 11, eq. 1): 0 without
    hubs. `largest` is the highest count, `orphans` the share (0-1) of documents that nobody has among its neighbours.
    """

    arm: str
    documents: int
    skewness: float
    largest: int
    orphans: float


def hubness_of(arm: str, vectors: Vectors, metric: Metric, *, neighbours: int = NEIGHBOURS) -> Hubness:
    """Count neighbours among some documents of a store, (n, dim), n > `neighbours`."""
    nearness = vectors @ vectors.T
    if metric == "l2":
        nearness = 2 * nearness - squared_norms(vectors)
    np.fill_diagonal(nearness, -np.inf)
    nearest = np.argpartition(-nearness, neighbours, axis=1)[:, :neighbours]
    counts = np.bincount(nearest.ravel(), minlength=len(vectors)).astype(float)
    spread = counts.std()
    skewness = float(np.mean(((counts - counts.mean()) / spread) ** 3)) if spread else 0.0
    return Hubness(arm, len(vectors), skewness, int(counts.max()), float((counts == 0).mean()))
