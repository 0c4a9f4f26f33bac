"""The first tokens of documents as the target model embeds them: as a stitch of their own, and what they are worth.

They cost tokens for every document of a store, and so must beat what the same tokens buy otherwise: a larger sample,
whose documents have true vectors besides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from migrate.errors import StitchError
from migrate.stitch.base import Stitch, check_pairs
from migrate.stitch.confidence import PartialCurve
from migrate.stitch.text_features import Matrix, TextRows
from migrate.vectors import Vectors, summarize_norms


@dataclass(frozen=True, slots=True)
class PrefixCost:
    """The cost of the first `tokens` tokens of all `documents` of a store: as much as `pairs` further pairs would."""

    tokens: int
    pairs: int
    documents: int


@dataclass(frozen=True, slots=True)
class PrefixWorth:
    """The worth of first tokens beside the same tokens spent on a larger sample.

    `alone`, `with_prefix` and `without` are held-out overlap@10 of the raw vectors (None where they were not tried) and
    of the best stitches with and without them; `with_pairs` is what the latter should find with `pairs` further ones.
    `partial` is what the best of the stitches that were not chosen would keep with true vectors for a part of the
    store.
    """

    tokens: int
    pairs: int
    alone: float | None
    with_prefix: float
    without: float
    with_pairs: float
    is_used: bool
    partial: PartialCurve | None = None


class FirstTokens(Stitch):
    """The vector of the first tokens as it is; of a text without any, the mean of the sample's true vectors."""

    kind: ClassVar[str] = "prefix"
    cost: ClassVar[int] = 11
    reads_texts: ClassVar[bool] = True
    reads_prefix: ClassVar[bool] = True
    learned: ClassVar[Sequence[str]] = ("mean", "norm")
    mean_: Vectors
    norm_: Matrix

    def fit(self, source: Vectors, target: Vectors, texts: TextRows | None = None) -> Self:
        """Learn how long the vectors are; StitchError for fewer than two pairs, or no vectors of first tokens."""
        check_pairs(source, target)
        _base(texts)
        self.mean_ = target.mean(axis=0, dtype=np.float64).astype(np.float32)
        self.norm_ = np.array([summarize_norms(target).mean])
        return self

    def transform(self, vectors: Vectors, texts: TextRows | None = None) -> Vectors:
        """The vectors of first tokens."""
        base = _base(texts)
        vectors = self.norm_.astype(np.float32) * base
        vectors[~np.any(base, axis=1)] = self.mean_
        return vectors


def _base(texts: TextRows | None) -> Vectors:
    base = None if texts is None else texts.base_vectors()
    if base is None:
        raise StitchError(
            "the prefix stitch reads the first tokens of texts, and there are none; name how many with --first-tokens"
        )
    return base
