"""SAFE, NOT SAFE or INCONCLUSIVE: a non-inferiority test on the share of quality that an arm retains."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from migrate.audit.bounds import CONFIDENCE, RESAMPLES, Bounds, difference_bounds, family_bounds, retention_bounds
from migrate.audit.measures import Scores
from migrate.audit.power import FEWEST_QUERIES, MOST_QUERIES, queries_needed

__all__ = [
    "CONFIDENCE",
    "FEWEST_DOCUMENTS",
    "FEWEST_QUERIES",
    "MARGIN",
    "MOST_QUERIES",
    "RESAMPLES",
    "Bounds",
    "Outcome",
    "Verdict",
    "decide",
    "difference_bounds",
    "family_bounds",
    "queries_needed",
    "retention_bounds",
]

MARGIN = 0.95

FEWEST_DOCUMENTS = 100
"""SAFE is not said of fewer: the first 10 of a handful are the handful, however bad the vectors, not a selection."""


class Outcome(StrEnum):
    """What an audit says."""

    SAFE = "SAFE"
    NOT_SAFE = "NOT SAFE"
    INCONCLUSIVE = "INCONCLUSIVE"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome with the numbers it rests on.

    `gain_over_stay` is the difference of mean scores, arm minus stay, where staying is possible.
    `queries_needed` is an estimate for an inconclusive verdict: so many queries would settle 80 % of audits like this
    one; None where even 100,000 would not do.
    A `provisional` verdict rests on overlap@10 with the full re-embed, for want of judgements. `confidence` is that of
    each bound. `n_documents` is how many the first 10 were found among, None where scores alone were judged. `doubts`
    say why the figures cannot be trusted, where they cannot: they take a SAFE away.
    """

    outcome: Outcome
    retention: Bounds
    margin: float
    n_queries: int
    gain_over_stay: Bounds | None
    queries_needed: int | None
    provisional: bool
    confidence: float = CONFIDENCE
    n_documents: int | None = None
    doubts: tuple[str, ...] = ()

    def doubted(self, doubts: tuple[str, ...]) -> Verdict:
        """The verdict where there are doubts about what it rests on: INCONCLUSIVE instead of SAFE."""
        if self.outcome is not Outcome.SAFE or not doubts:
            return self
        return replace(self, outcome=Outcome.INCONCLUSIVE, doubts=doubts)

    @property
    def lacks_documents(self) -> bool:
        """Whether there are too few documents to say SAFE."""
        return self.n_documents is not None and self.n_documents < FEWEST_DOCUMENTS

    @property
    def worse_than_stay(self) -> bool:
        """Whether the arm is significantly worse than staying with the source model."""
        enough = self.n_queries >= FEWEST_QUERIES
        return enough and self.gain_over_stay is not None and self.gain_over_stay.upper < 0

    @property
    def better_than_stay(self) -> bool:
        """Whether the arm is significantly better than staying with the source model."""
        enough = self.n_queries >= FEWEST_QUERIES
        return enough and self.gain_over_stay is not None and self.gain_over_stay.lower > 0

    @property
    def sentence(self) -> str:
        """The verdict in words."""
        bounds = self.retention
        level = f"{100 * self.confidence:.3g} % bounds"
        span = f"retention {bounds.estimate:.3f}, {level} {bounds.lower:.3f} to {bounds.upper:.3f}"
        if self.worse_than_stay:
            return f"{span}; the translated store answers significantly worse than the source store does today"
        if self.doubts:
            return f"{span}: not to be believed, as {'; '.join(self.doubts)}"
        if self.outcome is Outcome.SAFE:
            return f"{span}: at least the margin of {self.margin:g}"
        if self.outcome is Outcome.NOT_SAFE:
            return f"{span}: below the margin of {self.margin:g}"
        if self.n_queries < FEWEST_QUERIES:
            return f"{span}; {self.n_queries} queries are too few for a verdict, at least {FEWEST_QUERIES} are needed"
        if self.lacks_documents:
            return (
                f"{span}; the first 10 of {self.n_documents} documents are hardly a selection, at least "
                f"{FEWEST_DOCUMENTS} are needed to say SAFE"
            )
        needed = f"about {self.queries_needed:,}" if self.queries_needed else f"more than {MOST_QUERIES:,}"
        return (
            f"{span}: the margin of {self.margin:g} lies between; {needed} queries would settle it in 8 of 10 audits "
            "like this one"
        )


def decide(
    arm: Scores,
    full: Scores,
    stay: Scores | None = None,
    *,
    margin: float = MARGIN,
    seed: int = 0,
    resamples: int = RESAMPLES,
    provisional: bool = False,
    confidence: float = CONFIDENCE,
    n_documents: int | None = None,
) -> Verdict:
    """Judge an arm against the full re-embed, and against staying where that is possible.

    All scores are one value a query, shape (n,), between 0 and 1, in the same order. Queries are taken to be
    independent: repeated ones are merged before (`Questions.merged`). Where there are fewer than `FEWEST_DOCUMENTS` to
    search, `n_documents`, harm that shows is NOT SAFE, and all else INCONCLUSIVE.

    Of the audits of an arm that is exactly at the margin, 5 % at most say SAFE; more do where several arms are judged
    and the best is taken. For k of them, a `confidence` of 1 - 0.05 / k makes up for that.
    """
    retention = retention_bounds(arm, full, seed=seed, resamples=resamples, confidence=confidence)
    gain = None
    if stay is not None:
        gain = difference_bounds(arm, stay, seed=seed, resamples=resamples, confidence=confidence)
    outcome = _outcome(retention, gain, margin) if len(arm) >= FEWEST_QUERIES else Outcome.INCONCLUSIVE
    needed = queries_needed(arm, full, margin, confidence=confidence) if outcome is Outcome.INCONCLUSIVE else None
    found = Verdict(outcome, retention, margin, len(arm), gain, needed, provisional, confidence, n_documents)
    if found.lacks_documents and outcome is not Outcome.NOT_SAFE:
        return replace(found, outcome=Outcome.INCONCLUSIVE, queries_needed=None)
    return found


def _outcome(retention: Bounds, gain: Bounds | None, margin: float) -> Outcome:
    if retention.upper < margin or (gain is not None and gain.upper < 0):
        return Outcome.NOT_SAFE
    return Outcome.SAFE if retention.lower >= margin else Outcome.INCONCLUSIVE
