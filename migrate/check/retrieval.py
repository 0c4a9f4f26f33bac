"""The cost of a difference in retrieval, as a check reports it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from migrate.check.comparison import Share

FEWEST_PAIRS = 100
"""Documents from which a stitch is tried."""


@dataclass(frozen=True, slots=True)
class JudgedRetention:
    """The nDCG@10 that stored vectors retain of the model's own, by `queries` judged ones, with one-sided 95 % bounds.

    The queries are those with a relevant document in the sample, all of which is searched. Where they are too few,
    `retention` is None.
    """

    queries: int
    retention: Share | None = None


@dataclass(frozen=True, slots=True)
class Repair:
    """The overlap@10 of held-out documents after the better one of the stitches that were tried.

    It `repairs` "most" where at least half of the loss is gone, else "some" or "none"; a gain of less than two standard
    errors is none.
    """

    stitch: str
    overlap: Share
    repairs: Literal["most", "some", "none"]


@dataclass(frozen=True, slots=True)
class LargerSample:
    """A larger sample, and what embedding its further documents takes: dollars are None where no price is known."""

    documents: int
    further: int
    tokens: int
    usd: float | None

    @property
    def tries_stitch(self) -> bool:
        """True if it has documents enough to try a stitch."""
        return self.documents >= FEWEST_PAIRS


@dataclass(frozen=True, slots=True)
class RetrievalCost:
    """The cost in retrieval of stored vectors that are not quite the model's.

    Attributes
    ----------
    documents, store_documents : sampled documents that are searched, 2,000 at most, and those of the store
    overlap : share of the first 10 by the model's vectors that the stored ones find too, with 95 % bounds; the sampled
        documents ask, embedded by the model
    chance : the same share for documents in random order
    judged : by judged queries, where some were given
    repair : after a stitch; None where the sample is too small to try one
    larger : a larger sample, where the store has one
    """

    documents: int
    store_documents: int
    overlap: Share
    chance: float
    judged: JudgedRetention | None = None
    repair: Repair | None = None
    larger: LargerSample | None = None

    @property
    def stitch(self) -> str | None:
        """The stitch that repairs most of the loss, if one does."""
        if self.repair is None or self.repair.repairs != "most":
            return None
        return self.repair.stitch
