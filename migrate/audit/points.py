"""What a frontier finds: points of policy and budget, each with a verdict, and the cheapest budget that is SAFE."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from migrate.audit.arms import Arm, Comparison
from migrate.audit.verdict import Outcome, Verdict

SAMPLE = "sample"
"""Stands for the policy where nothing is re-embedded beyond what the stitch was fitted on."""


def arm_name(share: float) -> str:
    """The name of a budget's arm.

    >>> arm_name(0.3)
    'translated + 30%'
    """
    return f"translated + {share:.0%}"


@dataclass(frozen=True, slots=True)
class Point:
    """One policy under one budget.

    `documents` have true vectors, a `share` (0-1) of the store; all of them, the sample too, cost about `tokens` and
    `price_usd`, None where no price is known. The verdict is on the store that comes of it, `arm` what it scores,
    `comparison` how that compares with the full re-embed.
    """

    policy: str
    share: float
    documents: int
    tokens: int
    price_usd: float | None
    verdict: Verdict
    arm: Arm
    comparison: Comparison


@dataclass(frozen=True, slots=True)
class Frontier:
    """What every policy keeps at every budget of a store of `count` documents.

    `measure` is what retention is of; `notes` say which queries did not judge, where the audit has not said so, and
    what was left out.
    """

    points: tuple[Point, ...]
    count: int
    measure: str
    notes: tuple[str, ...] = ()

    @property
    def arms(self) -> tuple[tuple[Arm, Comparison], ...]:
        """The budgets of the first policy that was tried, as arms of the audit."""
        policy = next((point.policy for point in self.points if point.policy != SAMPLE), SAMPLE)
        return tuple((point.arm, point.comparison) for point in self.points if point.policy == policy != SAMPLE)

    @property
    def cheapest_safe(self) -> Point | None:
        """The SAFE point of the fewest tokens; None where no budget is SAFE.

        A budget counts only if every larger one of its policy is SAFE too: tests in a fixed order, up to the first
        that fails, need no correction for being many (Maurer, Hothorn & Lehmacher 1995). That the best of several
        policies is picked is made up for by the confidence of each verdict (Bonferroni).
        """
        safe = [point for policy in dict.fromkeys(p.policy for p in self.points) for point in self._safe_down(policy)]
        return min(safe, key=lambda point: point.tokens, default=None)

    def _safe_down(self, policy: str) -> Iterator[Point]:
        own = [point for point in self.points if point.policy in (policy, SAMPLE)]
        for point in sorted(own, key=lambda point: -point.documents):
            if point.verdict.outcome is not Outcome.SAFE:
                return
            yield point

    @property
    def sentence(self) -> str:
        """The finding in words."""
        best = self.cheapest_safe
        if best is None:
            margin = self.points[0].verdict.margin
            return f"no budget tried here is SAFE at the margin of {margin:g}; try larger ones, or more queries"
        if best.policy == SAMPLE:
            return "the sample alone is SAFE: nothing need be re-embedded"
        price = "" if best.price_usd is None else f", ${best.price_usd:,.4f}"
        return (
            f"the cheapest budget that is SAFE: {best.share:.0%} by {best.policy} ({best.documents:,} documents, about "
            f"{best.tokens:,} tokens{price}, the sample included); audit the store that comes of it"
        )
