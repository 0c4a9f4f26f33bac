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

_MOST_TO_JUDGE = 1_000
"""More queries than this nobody judges for an audit."""

LOWEST_MARGIN = 0.5
"""Below it SAFE is said of what loses most of the quality, which is remarked beside the verdict."""


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
class Verdict:
    """The outcome with the numbers it rests on.

    `gain_over_stay` is the difference of mean scores, arm minus stay, where staying is possible.
    `queries_needed` is an estimate for an inconclusive verdict: so many queries would settle 80 % of audits like this
    one; None where even 100,000 would not do.
    A `provisional` verdict rests on agreement@10 with the full re-embed, for want of judgements
    (`migrate.audit.unjudged`): `retention` is that of agreement, `margin` the agreement that stands for a retention of
    `stands_for`, and below `harmful` it is NOT SAFE; there is no such gap in other verdicts. `confidence` is that of
    each bound. `n_documents` is how many the first 10 were found among, None where scores alone were judged. `doubts`
    say why the figures cannot be trusted, where they cannot: they take a SAFE away, and no queries give it back.
    `remedy` is what would settle an inconclusive verdict where that is not queries. `n_groups` is how many groups
    the queries are in that are independent of each other, None where each is one.
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
    remedy: str | None = None
    harmful: float | None = None
    stands_for: float | None = None
    n_groups: int | None = None

    @property
    def n_independent(self) -> int:
        """The number of independent queries: groups, where some belong together."""
        return self.n_queries if self.n_groups is None else self.n_groups

    @property
    def asked_margin(self) -> float:
        """The share of retention to keep, whatever is measured; `margin` is what stands for it."""
        return self.margin if self.stands_for is None else self.stands_for

    @property
    def not_safe_below(self) -> float:
        """The retention, or agreement, below which it is NOT SAFE."""
        return self.margin if self.harmful is None else self.harmful

    @property
    def has_enough(self) -> bool:
        """True where there are enough queries for any verdict."""
        return self.n_independent >= FEWEST_QUERIES

    @property
    def counted(self) -> str:
        """The queries in words, and in how many groups they are where that is fewer."""
        queries = counted(self.n_queries, "query", "queries")
        if self.n_independent == self.n_queries:
            return queries
        return f"{queries} in {counted(self.n_independent, 'independent group', 'independent groups')}"

    def doubted(self, findings: Iterable[Finding]) -> Verdict:
        """Return the verdict after some findings: with a doubt among them INCONCLUSIVE instead of SAFE.

        Nor would more queries settle what is INCONCLUSIVE already.
        """
        doubts = sentences(findings, "doubt")
        is_sure = self.outcome is Outcome.NOT_SAFE or not self.has_enough or self.lacks_documents
        if is_sure or not doubts:
            return self
        return replace(self, outcome=Outcome.INCONCLUSIVE, doubts=doubts, queries_needed=None)

    def without_standard(self) -> Verdict:
        """Return the verdict where the full re-embed is no standard: NOT SAFE if staying is better."""
        outcome = Outcome.NOT_SAFE if self.worse_than_stay else Outcome.INCONCLUSIVE
        return replace(self, outcome=outcome, retention=UNKNOWN, queries_needed=None)

    @property
    def within_reach(self) -> bool:
        """True where as many queries as would settle it can be had: queries alone by the thousands, judged ones not."""
        if self.queries_needed is None:
            return False
        return self.provisional or self.queries_needed - self.n_queries <= _MOST_TO_JUDGE

    @property
    def lacks_documents(self) -> bool:
        """True where there are too few documents to say SAFE."""
        return self.n_documents is not None and self.n_documents < FEWEST_DOCUMENTS

    @property
    def worse_than_stay(self) -> bool:
        """True where the arm is significantly worse than staying with the source model."""
        return self.has_enough and self.gain_over_stay is not None and self.gain_over_stay.upper < 0

    @property
    def better_than_stay(self) -> bool:
        """True where the arm is significantly better than staying with the source model."""
        return self.has_enough and self.gain_over_stay is not None and self.gain_over_stay.lower > 0

    @property
    def undecidable(self) -> bool:
        """True where no number of queries would settle the verdict, unless some are judged."""
        return self.not_safe_below <= self.retention.estimate < self.margin

    @property
    def measured(self) -> str:
        """The measure that the bounds are of, in words."""
        return "agreement@10" if self.provisional else "retention"

    @property
    def sentence(self) -> str:
        """The verdict in words."""
        span = self._span
        if (other_harm := self._other_harm) is not None:
            return f"{span}{other_harm}"
        if self.doubts:
            return f"{span}, which is not to be trusted: {'; '.join(self.doubts)}"
        if self.outcome is Outcome.SAFE:
            return f"{span}, at least {self._goal}"
        if self.outcome is Outcome.NOT_SAFE:
            return f"{span}, below {self._goal if self.harmful is None else self._harm}"
        if not self.has_enough:
            are = "is" if self.n_queries == 1 else "are"
            return f"{span}; {self.counted} {are} too few for a verdict, which needs at least {FEWEST_QUERIES}"
        if self.lacks_documents:
            return (
                f"{span}; the first 10 of {self.n_documents} documents are hardly a selection: SAFE needs at least "
                f"{FEWEST_DOCUMENTS} documents"
            )
        if self.remedy is not None:
            return f"{span}; {self._nearest} lies within the bounds; {self.remedy}"
        if self.undecidable:
            limits = Limits(self.margin, self.not_safe_below)
            return f"{span}; {limits.sentence}, and no number of queries decides the rest; judge some of them"
        needed = f"about {self.queries_needed:,}" if self.queries_needed else f"more than {MOST_QUERIES:,}"
        if not (self.provisional or self.within_reach):
            settled = f", too close for queries that people judge: it would take {needed} of them"
        else:
            settled = f"; {needed} queries would settle 8 of 10 audits like this one"
        return f"{span}; {self._nearest} lies within the bounds{settled}"

    @property
    def _other_harm(self) -> str | None:
        """The harm that takes a SAFE away whatever the figures of the whole say, in words."""
        if self.worse_than_stay:
            return "; the translated store answers significantly worse than the source store does today"
        return None

    def figure(self, value: float) -> str:
        """Return a retention in per cent; an agreement as a number."""
        return figure(value, provisional=self.provisional)

    def span(self, bounds: Bounds) -> str:
        """Return the lower and the upper bound, as `figure` has them."""
        return span(bounds, provisional=self.provisional)

    @property
    def _span(self) -> str:
        bounds = self.retention
        if not bounds.is_known:
            return f"{self.measured} unknown"
        level = f"{100 * self.confidence:.3g} % bounds"
        return f"{self.measured} {self.figure(bounds.estimate)} ({level}: {self.span(bounds)})"

    @property
    def _goal(self) -> str:
        if self.stands_for is None:
            return f"the margin of {100 * self.margin:g} %"
        return f"{self.margin:.3f}, which stands for a retention of {100 * self.stands_for:g} %"

    @property
    def _harm(self) -> str:
        return f"{self.harmful:.3f}, which stands for a retention below {100 * (self.stands_for or 0):g} %"

    @property
    def _nearest(self) -> str:
        if self.harmful is not None and self.retention.estimate < self.harmful:
            return f"{self.harmful:.3f}, below which it is NOT SAFE,"
        return self._goal if self.stands_for is None else f"{self.margin:.3f}, which SAFE needs at least,"


def margin_remarks(margin: float, origin: str = "") -> tuple[str, ...]:
    """Return caveats of a verdict by this margin; `origin` is where it is from, if nobody named it for this one."""
    remarks = [f"the margin of {margin:g} is from {origin}"] if origin else []
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
    retention = bootstrap.retention(arm, full)
    gain = None if stay is None else bootstrap.difference(arm, stay)
    limits = limits_of(margin) if provisional else Limits(margin, margin)
    groups = None if bootstrap.grouping.groups is None else bootstrap.grouping.count
    outcome = _outcome(retention, gain, limits) if bootstrap.has_enough(len(arm)) else Outcome.INCONCLUSIVE
    verdict = Verdict(
        outcome,
        retention,
        limits.safe,
        len(arm),
        gain,
        None,
        provisional,
        bootstrap.confidence,
        n_documents,
        harmful=limits.harmful if provisional else None,
        stands_for=margin if provisional else None,
        n_groups=groups,
    )
    if outcome is Outcome.INCONCLUSIVE and not verdict.undecidable:
        nearest = limits.safe if retention.estimate >= limits.safe else limits.harmful
        likely = (arm, full) if bootstrap.floor is None else bootstrap.floor.likely(arm, full)
        verdict = replace(verdict, queries_needed=bootstrap.queries_needed(*likely, nearest))
    if verdict.lacks_documents and outcome is not Outcome.NOT_SAFE:
        return replace(verdict, outcome=Outcome.INCONCLUSIVE, queries_needed=None)
    return verdict


def _outcome(retention: Bounds, gain: Bounds | None, limits: Limits) -> Outcome:
    if gain is not None and gain.upper < 0:  # worse than staying
        return Outcome.NOT_SAFE
    return decide_within(retention, safe_from=limits.safe, not_safe_below=limits.harmful)
