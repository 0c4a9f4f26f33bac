"""SAFE, NOT SAFE or INCONCLUSIVE: the rule by which bounds decide, for audits and for whoever reads their reports."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import inf, isfinite, isinf, nan
from typing import Final

from migrate.display import percent
from migrate.errors import UsageError

# Arbitrary: the loss of a twentieth that a move may bring where the user names no other margin.
MARGIN: Final = 0.95

FEWEST_QUERIES: Final = 20
"""Fewer queries than this are INCONCLUSIVE, whatever they show: resamples of a handful repeat the handful."""

FEWEST_DOCUMENTS: Final = 100
"""SAFE is not said of fewer: the first 10 of a handful are the handful, however bad the vectors, not a selection."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """An estimate between one-sided bounds, of 95 % by default: the truth crosses each in at most 5 %."""

    estimate: float
    lower: float
    upper: float

    @property
    def is_known(self) -> bool:
        """False where any share is possible."""
        return self.lower > 0 or isfinite(self.upper)


UNKNOWN = Bounds(nan, 0.0, inf)
"""A share of a full re-embed that is not shown to score more than chance does (Fieller 1954)."""


class Outcome(StrEnum):
    """The answer of an audit."""

    SAFE = "SAFE"
    NOT_SAFE = "NOT SAFE"
    INCONCLUSIVE = "INCONCLUSIVE"


def decide(bounds: Bounds, margin: float = MARGIN) -> Outcome:
    """Return what bounds of retention say of a margin: SAFE from it on, NOT SAFE below it, neither in between.

    Of stores that retain exactly the margin, at most 5 % are called SAFE by bounds of 95 % (a non-inferiority test).

    >>> [str(decide(Bounds(share, share - 0.02, share + 0.02), 0.95)) for share in (0.99, 0.95, 0.9)]
    ['SAFE', 'INCONCLUSIVE', 'NOT SAFE']

    Raises a UsageError where the margin is no share.
    """
    if not 0 <= margin <= 1:  # also of no number
        raise UsageError(f"a margin of {margin} is no share; give one from 0 to 1, such as {MARGIN}")
    if bounds.upper < margin:
        return Outcome.NOT_SAFE
    if bounds.lower >= margin:
        return Outcome.SAFE
    return Outcome.INCONCLUSIVE


def decide_within(bounds: Bounds, *, safe_from: float, not_safe_below: float) -> Outcome:
    """Return what bounds say of two limits, between which no estimate shows harm or its absence.

    >>> str(decide_within(Bounds(0.9, 0.88, 0.92), safe_from=0.95, not_safe_below=0.85))
    'INCONCLUSIVE'
    """
    if decide(bounds, not_safe_below) is Outcome.NOT_SAFE:
        return Outcome.NOT_SAFE
    if decide(bounds, safe_from) is Outcome.SAFE:
        return Outcome.SAFE
    return Outcome.INCONCLUSIVE


def figure(value: float, *, provisional: bool) -> str:
    """Return a retention in per cent; an agreement, on which a provisional verdict rests, as a number.

    >>> figure(0.9312, provisional=False), figure(0.9312, provisional=True)
    ('93.1 %', '0.931')
    """
    if provisional:
        return f"{value:.3f}"
    return percent(value)


def span(bounds: Bounds, *, provisional: bool) -> str:
    """Return the lower and the upper bound, as `figure` has them.

    >>> span(Bounds(0.93, 0.9, 0.96), provisional=False), span(Bounds(1.2, 0.9, inf), provisional=True)
    ('90.0-96.0 %', '0.900 or more')
    """
    if isinf(bounds.upper):
        return f"{figure(bounds.lower, provisional=provisional)} or more"
    if provisional:
        return f"{bounds.lower:.3f}-{bounds.upper:.3f}"
    return f"{100 * bounds.lower:.1f}-{percent(bounds.upper)}"
