"""SAFE, NOT SAFE or INCONCLUSIVE, with the numbers that it rests on and the sentence about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from migrate.audit.bootstrap import MOST_QUERIES, Bootstrap
from migrate.audit.bounds import CONFIDENCE, FEWEST_QUERIES, MARGIN, UNKNOWN, Bounds, Outcome
from migrate.audit.measures import Scores
from migrate.audit.unjudged import Limits, limits_of
from migrate.display import counted
from migrate.outcome import FEWEST_DOCUMENTS as FEWEST_DOCUMENTS
from migrate.outcome import decide_within, figure, span
from migrate.steps.base import LOWEST_MARGIN

_MOST_TO_JUDGE = 1_000
"""More queries than this nobody judges for an audit."""


Level = Literal["note", "caveat", "doubt"]
Input = Literal["queries", "groups", "reference", "target", "model", "store", "source"]
"""An input of an audit: `target` is the model as named, `model` the choice of it, `groups` the field of queries."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A sentence of an audit: a note for its reader, a caveat beside the verdict, or a doubt, which takes a SAFE away.

    `about` is the input that a doubt is about, to be changed.
    """

    level: Level
    text: str
    about: Input = "queries"


def doubt(text: str, about: Input = "queries") -> Finding:
    """Return a doubt."""
    return Finding("doubt", text, about)


def sentences(findings: Iterable[Finding], level: Level) -> tuple[str, ...]:
    """Return the sentences of one level."""
    return tuple(finding.text for finding in findings if finding.level == level)


@dataclass(frozen=True, slots=True)
class Observations:
    """The queries that a verdict rests on, and the documents that their first 10 were found among.

    `groups` is how many groups the queries are in that are independent of each other, None where each is one;
    `documents` is None where scores alone were judged.
    """

    queries: int
    groups: int | None = None
    documents: int | None = None

    @property
    def independent(self) -> int:
        """The number of independent queries: groups, where some belong together."""
        if self.groups is None:
            return self.queries
        return self.groups

    @property
    def has_enough(self) -> bool:
        """True where there are enough queries for any verdict."""
        return self.independent >= FEWEST_QUERIES

    @property
    def lacks_documents(self) -> bool:
        """True where there are too few documents to say SAFE."""
        return self.documents is not None and self.documents < FEWEST_DOCUMENTS

    @property
    def counted(self) -> str:
        """The queries in words, and in how many groups they are where that is fewer."""
        queries = counted(self.queries, "query", "queries")
        if self.independent == self.queries:
            return queries
        return f"{queries} in {counted(self.independent, 'independent group', 'independent groups')}"


@dataclass(frozen=True, slots=True)
class Scale:
    """The measure of a verdict and its limits: retention, or agreement@10 where it is `provisional`.

    `margin` is the share of retention to keep. It is SAFE from `safe` on and NOT SAFE below `harmful`; of retention
    both are the margin, of agreement (`migrate.audit.unjudged`) they are what stands for it, with a gap between them.
    """

    margin: float
    safe: float
    harmful: float
    provisional: bool = False

    @classmethod
    def of(cls, margin: float, *, provisional: bool) -> Scale:
        """Return the scale for a margin; `provisional` for want of judgements."""
        if not provisional:
            return cls(margin, safe=margin, harmful=margin)
        limits = limits_of(margin)
        return cls(margin, limits.safe, limits.harmful, provisional=True)

    @property
    def measured(self) -> str:
        """The measure that the bounds are of, in words."""
        if self.provisional:
            return "agreement@10"
        return "retention"

    def figure(self, value: float) -> str:
        """Return a retention in per cent; an agreement as a number."""
        return figure(value, provisional=self.provisional)

    def span(self, bounds: Bounds) -> str:
        """Return the lower and the upper bound, as `figure` has them."""
        return span(bounds, provisional=self.provisional)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome with the numbers it rests on.

    `retention` is that of the measure of the `scale`, and `confidence` that of each bound. `gain_over_stay` is the
    difference of mean scores, arm minus stay, where staying is possible.
    `queries_needed` is an estimate for an inconclusive verdict: so many queries would settle 80 % of audits like this
    one; None where even 100,000 would not do. `remedy` is what would settle it where that is not queries.
    `doubts` say why the figures cannot be trusted, where they cannot: they take a SAFE away, and no queries give it
    back.
    """

    outcome: Outcome
    retention: Bounds
    scale: Scale
    observations: Observations
    gain_over_stay: Bounds | None = None
    queries_needed: int | None = None
    confidence: float = CONFIDENCE
    doubts: tuple[str, ...] = ()
    remedy: str | None = None

    def doubted(self, findings: Iterable[Finding]) -> Verdict:
        """Return the verdict after some findings: with a doubt among them INCONCLUSIVE instead of SAFE.

        Nor would more queries settle what is INCONCLUSIVE already.
        """
        doubts = sentences(findings, "doubt")
        is_open = self.observations.has_enough and not self.observations.lacks_documents
        # Harm that shows is told, whatever else is odd, and so is what is missing for any verdict
        if self.outcome is Outcome.NOT_SAFE or not is_open or not doubts:
            return self
        return replace(self, outcome=Outcome.INCONCLUSIVE, doubts=doubts, queries_needed=None)

    def without_standard(self) -> Verdict:
        """Return the verdict where the full re-embed is no standard: NOT SAFE if staying is better."""
        outcome = Outcome.INCONCLUSIVE
        if self.worse_than_stay:  # which needs no full re-embed
            outcome = Outcome.NOT_SAFE
        return replace(self, outcome=outcome, retention=UNKNOWN, queries_needed=None)

    @property
    def worse_than_stay(self) -> bool:
        """True where the arm is significantly worse than staying with the source model."""
        gain = self.gain_over_stay
        return self.observations.has_enough and gain is not None and gain.upper < 0

    @property
    def better_than_stay(self) -> bool:
        """True where the arm is significantly better than staying with the source model."""
        gain = self.gain_over_stay
        return self.observations.has_enough and gain is not None and gain.lower > 0

    @property
    def sentence(self) -> str:
        """The verdict in words."""
        # The first that holds: each takes away what the next ones would say
        span = _span(self)
        scale = self.scale
        if self.worse_than_stay:  # which takes a SAFE away whatever the figures of the whole say
            return f"{span}; the translated store answers significantly worse than the source store does today"
        if self.doubts:
            return f"{span}, which is not to be trusted: {'; '.join(self.doubts)}"
        if self.outcome is Outcome.SAFE:
            return f"{span}, at least {_goal(scale)}"
        if self.outcome is Outcome.NOT_SAFE:
            return f"{span}, below {_harm(scale)}"
        return f"{span}; {_reason_open(self)}"


def _span(verdict: Verdict) -> str:
    scale = verdict.scale
    bounds = verdict.retention
    if not bounds.is_known:
        return f"{scale.measured} unknown"
    level = f"{100 * verdict.confidence:.3g} % bounds"
    return f"{scale.measured} {scale.figure(bounds.estimate)} ({level}: {scale.span(bounds)})"


def _goal(scale: Scale) -> str:
    if not scale.provisional:
        return f"the margin of {100 * scale.margin:g} %"
    return f"{scale.safe:.3f}, which stands for a retention of {100 * scale.margin:g} %"


def _harm(scale: Scale) -> str:
    if not scale.provisional:
        return _goal(scale)
    return f"{scale.harmful:.3f}, which stands for a retention below {100 * scale.margin:g} %"


def _reason_open(verdict: Verdict) -> str:
    """Say why a verdict is inconclusive, and what would settle it."""
    scale = verdict.scale
    observations = verdict.observations
    if not observations.has_enough:
        are = "are"
        if observations.queries == 1:
            are = "is"
        return f"{observations.counted} {are} too few for a verdict, which needs at least {FEWEST_QUERIES}"
    if observations.lacks_documents:
        return (
            f"the first 10 of {observations.documents} documents are hardly a selection: SAFE needs at least "
            f"{FEWEST_DOCUMENTS} documents"
        )
    if verdict.remedy is not None:
        return f"{_nearest(verdict)} lies within the bounds; {verdict.remedy}"
    if _is_undecidable(verdict):
        limits = Limits(scale.safe, scale.harmful)
        return f"{limits.sentence}, and no number of queries decides the rest; judge some of them"
    needed = f"more than {MOST_QUERIES:,}"
    if verdict.queries_needed:
        needed = f"about {verdict.queries_needed:,}"
    if scale.provisional or _can_be_judged(verdict):
        settled = f"; {needed} queries would settle 8 of 10 audits like this one"
    else:
        settled = f", too close for queries that people judge: it would take {needed} of them"
    return f"{_nearest(verdict)} lies within the bounds{settled}"


def _nearest(verdict: Verdict) -> str:
    """Return the limit that decides, in words."""
    scale = verdict.scale
    if not scale.provisional:
        return _goal(scale)
    if verdict.retention.estimate < scale.harmful:
        return f"{scale.harmful:.3f}, below which it is NOT SAFE,"
    return f"{scale.safe:.3f}, which SAFE needs at least,"


def _is_undecidable(verdict: Verdict) -> bool:
    """Return whether no number of queries would settle the verdict, unless some are judged."""
    return verdict.scale.harmful <= verdict.retention.estimate < verdict.scale.safe


def _can_be_judged(verdict: Verdict) -> bool:
    """Return whether people can judge as many queries as would settle it; of queries alone there are thousands."""
    needed = verdict.queries_needed
    return needed is not None and needed - verdict.observations.queries <= _MOST_TO_JUDGE


def margin_remarks(margin: float, origin: str = "") -> tuple[str, ...]:
    """Return caveats of a verdict by this margin; `origin` is where it is from, if nobody named it for this one."""
    remarks = []
    if origin:
        remarks.append(f"the margin of {margin:g} is from {origin}")
    if margin < LOWEST_MARGIN:
        remarks.append(f"a margin of {margin:g} calls SAFE what loses up to {1 - margin:.0%} of the quality")
    return tuple(remarks)


def verdict_of(
    arm: Scores,
    full: Scores,
    stay: Scores | None = None,
    *,
    margin: float = MARGIN,
    provisional: bool = False,
    n_documents: int | None = None,
    bootstrap: Bootstrap | None = None,
) -> Verdict:
    """Judge an arm against the full re-embed, and against staying where that is possible.

    Repeated queries are merged before (`QuerySet.merged`); the grouping of the `bootstrap` has those that are not
    independent. Of fewer than `FEWEST_DOCUMENTS` to search, `n_documents`, harm that shows is NOT SAFE,
    and all else INCONCLUSIVE. `provisional` scores are agreement@10: they are held against what stands for the
    `margin`.

    Of the audits of an arm that is exactly at the margin, 5 % at most say SAFE; more do where several arms are judged
    and the best is taken. For k of them, a confidence of 1 - 0.05 / k makes up for that.
    """
    bootstrap = bootstrap or Bootstrap()
    scale = Scale.of(margin, provisional=provisional)
    groups = None
    if bootstrap.grouping.groups is not None:
        groups = bootstrap.grouping.count
    observations = Observations(len(arm), groups, n_documents)
    retention = bootstrap.retention(arm, full)
    gain = None
    if stay is not None:
        gain = bootstrap.difference(arm, stay)
    outcome = Outcome.INCONCLUSIVE
    if observations.has_enough:
        outcome = _outcome(retention, gain, scale)
    verdict = Verdict(outcome, retention, scale, observations, gain, confidence=bootstrap.confidence)
    if observations.lacks_documents and outcome is not Outcome.NOT_SAFE:
        # Harm that shows among few documents is harm, but ten of twenty documents are found by any model
        return replace(verdict, outcome=Outcome.INCONCLUSIVE)
    if outcome is Outcome.INCONCLUSIVE and not _is_undecidable(verdict):
        nearest = scale.harmful
        if retention.estimate >= scale.safe:
            nearest = scale.safe
        if bootstrap.floor is not None:
            # From the scores in a pool, those that are expected of the whole store
            arm, full = bootstrap.floor.likely(arm, full)
        return replace(verdict, queries_needed=bootstrap.queries_needed(arm, full, nearest))
    return verdict


def _outcome(retention: Bounds, gain: Bounds | None, scale: Scale) -> Outcome:
    if gain is not None and gain.upper < 0:  # worse than staying
        return Outcome.NOT_SAFE
    return decide_within(retention, safe_from=scale.safe, not_safe_below=scale.harmful)
