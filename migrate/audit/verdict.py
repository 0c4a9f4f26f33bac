"""SAFE, NOT SAFE or INCONCLUSIVE: a non-inferiority test on the share of quality that an arm retains.

A resample gives each query a random weight, the same for all its scores (the Bayesian bootstrap; Rubin 1981). One query
more is imagined, the worst there can be for what the bound is to show: for a lower bound of retention, the full
re-embed answers it perfectly and the arm not at all; for an upper one the other way round, unless the full re-embed
scores 1 for all queries. It stands for rare harm that was not seen, and weighs as much as one real query.

This is Gaffke's bound (2005; Learned-Miller & Thomas 2019, arXiv:1905.06208) for the mean of arm - margin * full,
turned into a bound of the ratio. For scores of 0 and 1 it is the exact bound of Clopper and Pearson. That it holds for
all bounded scores is conjectured, with no exception known; `benchmarks/verdicts.py` counts how often it fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property, lru_cache
from math import ceil, inf, isfinite, nan
from statistics import NormalDist
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from migrate.audit.measures import Scores
from migrate.audit.unjudged import Limits, limits_of
from migrate.audited import FEWEST_DOCUMENTS as FEWEST_DOCUMENTS
from migrate.audited import FEWEST_QUERIES as FEWEST_QUERIES
from migrate.display import counted, percent

CONFIDENCE = 0.95
"""Of one bound alone."""

_BLOCK = 1 << 22
"""Weights that are drawn at once."""


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


@dataclass(frozen=True, eq=False)
class Grouping:
    """Groups of queries that are one observation each.

    `groups` are numbers, (n,), that queries share which are one observation (`migrate.audit.query_groups`); None where
    each is one. Groups are what is drawn, and the imagined query is a group of `size`; `evenly` says that it may be won
    as a whole, as it may be lost.
    """

    groups: NDArray[np.int64] | None = None
    evenly: bool = False

    @property
    def won(self) -> float:
        """The most by which the arm may win in a group that was not seen: kinds are lost as a whole, won one by one.

        What is lost in translation is lost for all that ask for it; nothing in a stitch answers what its target cannot.
        """
        return self.size if self.evenly else 1.0

    def rows(self, scores: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return what is drawn: the sums of scores, (n,) or (n, c), over each group."""
        if self.groups is None:
            return np.asarray(scores, dtype=np.float64)
        sums = np.zeros((self.count, *scores.shape[1:]))
        np.add.at(sums, self._numbers, scores)
        return sums

    def at(self, positions: NDArray[np.int64]) -> Grouping:
        """Return the grouping of some of the queries."""
        return self if self.groups is None else replace(self, groups=self.groups[positions])

    @property
    def count(self) -> int:
        """The number of groups; 0 where each query is one."""
        return len(self.sizes)

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """The number of queries of each group; none where each query is one."""
        return np.bincount(self._numbers)

    @cached_property
    def size(self) -> float:
        """The number of queries of a group that was not seen: the mean over groups, each by the square of its size.

        That is how much each has to do with how far a mean is off. The largest group alone would make a hundred queries
        out of one; the plain mean is too small where the harm is in large groups (`benchmarks/verdicts.py`).
        """
        if not self.count:
            return 1.0
        return float((self.sizes**3).sum() / (self.sizes**2).sum())

    @cached_property
    def _numbers(self) -> NDArray[np.int64]:
        """The number of each query's group, in the order in which groups come."""
        groups = [] if self.groups is None else self.groups.tolist()
        numbers: dict[int, int] = {}
        return np.array([numbers.setdefault(group, len(numbers)) for group in groups], dtype=np.int64)


UNGROUPED = Grouping()
"""Queries that are one observation each."""

FLOOR_SHARE = 0.2
"""Of the error of an upper bound, 0-1, the share that is for the floor where there is one; the rest is for queries."""


@dataclass(frozen=True, eq=False)
class Floor:
    """The scores of the full re-embed where only a pool of it was embedded, (n,) each: `expected`, and at `least`.

    Its scores in the pool are what it scores at most. `least` holds on average, with a confidence of its own of
    1 - `FLOOR_SHARE` * (1 - `CONFIDENCE`) (`migrate.audit.outside`).

    Without judgements it `is_share`: what documents outside leave of each query's agreement in the pool, of every arm.
    That agreement is the most that it can be: upper bounds are guaranteed, and the floor is of the lower ones.
    """

    expected: Scores
    least: Scores
    is_share: bool = False

    def likely(self, arm: Scores, full: Scores) -> tuple[Scores, Scores]:
        """Return the scores of an arm and of the full re-embed as they are expected, from those in the pool."""
        return (arm * self.expected, full) if self.is_share else (arm, self.expected)

    def extreme(self, arm: Scores, full: Scores) -> tuple[Scores, Scores]:
        """Return these scores where documents outside take as much as they may."""
        return (arm * self.least, full) if self.is_share else (arm, self.least)

    def widen(self, bounds: Bounds, extreme: Bounds) -> Bounds:
        """Return bounds in the pool, those of the `extreme` on the side that the pool does not guarantee."""
        if self.is_share:
            return replace(bounds, lower=extreme.lower)
        return replace(bounds, upper=extreme.upper)


@dataclass(frozen=True, eq=False)
class Bootstrap:
    """The rules by which all bounds of an audit are drawn.

    All scores are between 0 and 1, (n,), in the same order. With a `floor`, scores are those in a pool: one of the
    bounds of retention is then that of these, and the other that of the floor, with the error that the floor leaves.
    """

    grouping: Grouping = UNGROUPED
    seed: int = 0
    resamples: int = 10_000
    confidence: float = CONFIDENCE
    floor: Floor | None = None

    def retention(self, arm: Scores, full: Scores) -> Bounds:
        """Return the mean score of the arm over that of the full re-embed; unknown where that finds nothing."""
        bounds = self._shares(arm, full, self.confidence)
        if self.floor is None:
            return bounds
        level = 1 - (1 - FLOOR_SHARE) * (1 - self.confidence)
        wide = self.floor.widen(bounds, self._shares(*self.floor.extreme(arm, full), level))
        likely = _ratio(*self.floor.likely(arm, full))
        return replace(wide, estimate=max(min(likely, wide.upper), wide.lower))

    def family(self, arms: Mapping[str, Scores], full: Scores, *, n_others: int = 0) -> dict[str, Bounds]:
        """Return the retention of several arms, with bounds that hold for all, and for `n_others` that were planned.

        Of k arms that are all at the margin, the best of the k looks better than it is. Each bound here is one of
        confidence 1 - 0.05 / k (Bonferroni; Dunn 1961), so that in 95 % of audits no lower bound lies above its truth,
        and so for the upper ones. How alike the arms are is not used. Arms that may or may not be looked at, by what
        the first of them show, count among the k.
        """
        each = replace(self, confidence=1 - (1 - self.confidence) / max(len(arms) + n_others, 1))
        return {name: each.retention(arm, full) for name, arm in arms.items()}

    def difference(self, arm: Scores, rival: Scores) -> Bounds:
        """Return the mean score of the arm minus that of the other; the imagined query is all won, or all lost."""
        if not len(arm):
            return Bounds(0.0, -np.inf, np.inf)
        differences = arm - rival
        rows = self.grouping.rows(np.column_stack([differences, np.ones(len(arm))]))
        sums, unseen = weighted_sums(rows, seed=self.seed, resamples=self.resamples)
        lower, upper = mean_bounds(sums[:, :1], sums[:, 1], self.grouping.size * unseen, self.confidence)
        return Bounds(float(differences.mean()), float(lower[0]), float(upper[0]))

    def has_enough(self, n_queries: int) -> bool:
        """Return whether so many queries, or the groups that they are in, are enough for any verdict."""
        return (n_queries if self.grouping.groups is None else self.grouping.count) >= FEWEST_QUERIES

    def is_less(self, less: Scores, more: Scores) -> bool:
        """Return whether scores are significantly lower than others."""
        return self.difference(more, less).lower > 0

    def _shares(self, arm: Scores, full: Scores, confidence: float) -> Bounds:
        if not full.any():
            return Bounds(_ratio(arm, full), 0.0, np.inf)
        grouping, perfect = self.grouping, bool((full == 1).all())
        rows = grouping.rows(np.column_stack([full, arm]))
        sums, unseen = weighted_sums(rows, seed=self.seed, resamples=self.resamples)
        lower, upper = ratio_bounds(sums[:, 1:], sums[:, :1], unseen, confidence, perfect=perfect, grouping=grouping)
        return Bounds(_ratio(arm, full), float(lower[0]), float(upper[0]))

    def queries_needed(self, arm: Scores, full: Scores, margin: float) -> int | None:
        """Return the number of queries with which 80 % of audits would be settled; None for more than `MOST_QUERIES`.

        Holds if these queries are like all others: if retention is what it is here, and its spread and groups too. As
        retention is known to within its bounds only, so is this number; `benchmarks/verdicts.py` prints how many audits
        it settles.

        An audit of n queries says SAFE where the mean of arm - margin * full is above what n queries and the worst-case
        query leave open, NOT SAFE where it is as far below; that mean is taken as normal.
        """
        above = self.grouping.rows(arm - margin * full)  # what a group has is what it adds
        if len(above) < 2 or not full.any():
            return None
        each = len(arm) / len(above)
        n = np.unique(np.geomspace(max(len(above) + 1, FEWEST_QUERIES), MOST_QUERIES / each, 400).astype(int))
        size, won = self.grouping.size, self.grouping.won
        best = won + (size - won) * (1 - margin)
        if (full == 1).all():
            best = size * (1 - margin)
        least = margin * size
        settled = _settled(n, above, least, self.confidence) + _settled(n, -above, best, self.confidence)
        enough = n[settled >= 0.8]  # as much power as is usual (Cohen 1988)
        return ceil(enough[0] * each) if len(enough) else None


def weighted_sums(
    scores: NDArray[np.floating], *, seed: int, resamples: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the columns of (n, c) summed under random weights of rows, (resamples, c), and an unseen row's weights.

    Weights are exponential with mean 1: divided by their sum, they are uniform over all weightings (Rubin 1981). Drawn
    in blocks, in bounded memory.
    """
    n, columns = scores.shape
    step = max(_BLOCK // (n + 1), 1)
    if resamples <= step:  # an audit asks for the same again and again, and drawing them takes longer than the sums
        weights = _weights(n + 1, seed, resamples)
        return weights[:, :n] @ scores, weights[:, n]
    rng = np.random.default_rng(seed)
    sums, unseen = np.empty((resamples, columns)), np.empty(resamples)
    for start in range(0, resamples, step):
        weights = rng.standard_exponential((min(step, resamples - start), n + 1))
        sums[start : start + step] = weights[:, :n] @ scores
        unseen[start : start + step] = weights[:, n]
    return sums, unseen


@lru_cache(maxsize=1)
def _weights(n: int, seed: int, resamples: int) -> NDArray[np.float64]:
    weights = np.random.default_rng(seed).standard_exponential((resamples, n))
    weights.flags.writeable = False
    return weights


def ratio_bounds(
    arms: NDArray[np.floating],
    full: NDArray[np.floating],
    unseen: NDArray[np.floating],
    confidence: float,
    *,
    perfect: bool = False,
    grouping: Grouping = UNGROUPED,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return lower and upper bounds of arm / full from their weighted sums, (resamples, k) or (resamples, 1).

    For the upper one the arm answers the unseen query perfectly, and the full re-embed does not unless it is `perfect`.
    """
    most = grouping.size * unseen[:, None]
    won = grouping.won * unseen[:, None]
    low = arms / (full + most)
    # What arm and full re-embed share moves the ratio towards 1: it is there where that is for the worse
    high = np.maximum((arms + won) / (full + won * perfect), (arms + most) / (full + most - won * (not perfect)))
    return np.quantile(low, 1 - confidence, axis=0), np.quantile(high, confidence, axis=0)


def mean_bounds(
    sums: NDArray[np.floating], weights: NDArray[np.floating], unseen: NDArray[np.floating], confidence: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return bounds of a mean of values between -1 and 1, from weighted sums, (resamples, k), and weights."""
    spare, total = unseen[:, None], (weights + unseen)[:, None]
    lower = np.quantile((sums - spare) / total, 1 - confidence, axis=0)
    upper = np.quantile((sums + spare) / total, confidence, axis=0)
    return lower, upper


def _ratio(arm: Scores, full: Scores) -> float:
    """Return the ratio of the means; 1 where both are 0, as nothing was lost, and 0 where there is no query."""
    if not len(arm):
        return 0.0
    if not full.any():
        return np.inf if arm.any() else 1.0
    return float(arm.mean() / full.mean())


MOST_QUERIES = 100_000

_MOST_TO_JUDGE = 1_000
"""More queries than this nobody judges for an audit."""


def _settled(n: NDArray[np.int_], values: Scores, worst: float, confidence: float) -> NDArray[np.float64]:
    """Return the share of audits of n queries or groups that find the mean above 0; an unseen one may be `-worst`."""
    room = values.mean() - _open(n, float(np.mean(values**2)), worst, confidence)
    error = max(float(np.std(values, ddof=1)), 1e-12) / np.sqrt(n)
    return np.array([NormalDist().cdf(z) for z in np.clip(room / error, -40, 40)])


def _open(n: NDArray[np.int_], square: float, worst: float, confidence: float) -> NDArray[np.float64]:
    """Return how far above 0 a mean of n values of this mean `square` has to be for its lower bound to be above 0.

    Of a normal variable with variance n * square, and an exponential one with mean `worst`: the quantile of the sum, by
    its first four cumulants (Cornish & Fisher 1938).
    """
    z = NormalDist().inv_cdf(confidence)
    variance = n * square + worst**2
    skew, excess = 2 * worst**3 / variance**1.5, 6 * worst**4 / variance**2
    shape = (z**2 - 1) * skew / 6 + (z**3 - 3 * z) * excess / 24 - (2 * z**3 - 5 * z) * skew**2 / 36
    quantile: NDArray[np.float64] = (worst + np.sqrt(variance) * (z + shape)) / n
    return quantile


MARGIN = 0.95

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


class Outcome(StrEnum):
    """The answer of an audit."""

    SAFE = "SAFE"
    NOT_SAFE = "NOT SAFE"
    INCONCLUSIVE = "INCONCLUSIVE"


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
        return f"{value:.3f}" if self.provisional else percent(value)

    def span(self, bounds: Bounds) -> str:
        """Return the lower and the upper bound, as `figure` has them."""
        if np.isinf(bounds.upper):
            return f"{self.figure(bounds.lower)} or more"
        if self.provisional:
            return f"{bounds.lower:.3f}-{bounds.upper:.3f}"
        return f"{100 * bounds.lower:.1f}-{percent(bounds.upper)}"

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


def decide(
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
    if retention.upper < limits.harmful or (gain is not None and gain.upper < 0):
        return Outcome.NOT_SAFE
    return Outcome.SAFE if retention.lower >= limits.safe else Outcome.INCONCLUSIVE
