"""The quality that every arm and plan keeps, its cost in all, and what is still to be paid.

Once an audit is done, the sample of the stitch, the translation and what was embedded to judge them are paid for: what
matters for the next step is what it would cost from here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf

from migrate.audit.pool import PoolSummary
from migrate.audit.report import AuditReport
from migrate.audit.results import BRIDGE, FULL, PREFIX, STAY, TRANSLATED, ArmCost, ArmResult
from migrate.audit.verdict import Bounds, Outcome

WHOLE = Bounds(1.0, 1.0, 1.0)
"""Retention of the full re-embed: it is the standard."""

_NOTHING = ArmCost(0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Option:
    """One way to go on. Bounds of `retention` hold for all options together where one is picked by them.

    `tokens` are those of the target model for documents, the proof included where it had to be embedded, `usd` their
    price; `tokens_left` and `usd_left` are what of it is still to be paid after the audit; None where unknown. A
    two-stage option costs more with every query: its figures are for as many as judged.
    """

    name: str
    retention: Bounds
    tokens: float | None
    usd: float | None
    tokens_left: float | None
    usd_left: float | None
    is_safe: bool

    @property
    def cost(self) -> float:
        """Dollars in all, or tokens where there is no price; infinite where neither is known."""
        return next((cost for cost in (self.usd, self.tokens) if cost is not None), inf)

    @property
    def left(self) -> float:
        """The part of `cost` that is still to be paid."""
        return next((cost for cost in (self.usd_left, self.tokens_left) if cost is not None), inf)


def options_of(report: AuditReport) -> tuple[Option, ...]:
    """The options, the cheapest first: staying, the translated store, arms that could serve instead, the full re-embed.

    A reference store that was there before the audit costs nothing here; a pool costs what was embedded for it. No
    option costs more than a full re-embed, as the cache embeds no document twice. Of a frontier only the cheapest SAFE
    budget is an option: its bounds allow for that choice.
    """
    arms = {arm.name: arm for arm in report.arms}
    full_left = _left_of_full(report)
    retained = {TRANSLATED: report.verdict.retention, **report.family}
    options = [
        _option(arms[name], bounds, report, full_left, is_safe=report.outcome_of(name) is Outcome.SAFE)
        for name, bounds in retained.items()
        if name in arms
    ]
    best = report.frontier.cheapest_safe if report.frontier is not None else None
    if best is not None:
        options.append(_option(best.arm, best.verdict.retention, report, full_left, is_safe=True))
    if STAY in report.comparisons:
        bounds = report.comparisons[STAY].retention
        is_enough = report.verdict.has_enough and bounds.lower >= report.verdict.margin
        options.append(Option(STAY, bounds, 0.0, 0.0, 0.0, 0.0, is_enough))
    full = arms[FULL]
    if not (report.is_kept or report.reference_at is not None):  # the sample is embedded again
        full_left = ArmCost(full.tokens, full.usd)
    options.append(Option(FULL, WHOLE, full.tokens, full.usd, full_left.tokens, full_left.usd, True))
    return tuple(sorted(options, key=lambda option: (option.cost, -option.retention.lower)))


def is_whole(report: AuditReport) -> bool:
    """Return whether the translated store has true vectors alone: it is a full re-embed itself."""
    full, sample = report.arm(FULL).tokens, report.arm(TRANSLATED).tokens
    return full is not None and sample is not None and 0 < full <= sample


def _option(arm: ArmResult, bounds: Bounds, report: AuditReport, full_left: ArmCost, *, is_safe: bool) -> Option:
    full, sample = report.arm(FULL), report.arm(TRANSLATED)
    reranking, n = arm.reranking, report.verdict.n_queries
    if reranking is not None and report.pool is not None and report.is_kept:  # the pool has paid for these queries
        further = ArmCost(reranking.tokens_further * n, reranking.usd_further and reranking.usd_further * n)
        whole = _combined(_sum, sample, further, full)
        arm = replace(arm, tokens=whole.tokens, usd=whole.usd)
    left = _NOTHING
    if arm.name.startswith(f"{PREFIX}:"):  # embedded in full for the audit
        left = _NOTHING if report.is_kept else _combined(_less, arm, _NOTHING, full_left)
    elif arm.name not in (TRANSLATED, BRIDGE):  # both are there, and paid for
        left = _combined(_less, arm, sample, full_left)
    cost = _combined(_sum, arm, report.pool or _NOTHING, full)
    return Option(arm.name, bounds, cost.tokens, cost.usd, left.tokens, left.usd, is_safe)


def _left_of_full(report: AuditReport) -> ArmCost:
    """Return what a full re-embed would still cost: nothing where it is there, or where every text is in the cache."""
    pool = report.pool
    if report.reference_at is not None or (report.is_kept and (pool is None or pool.is_exact)):
        return _NOTHING
    full, sample = report.arm(FULL), report.arm(TRANSLATED)
    if pool is None or not report.is_kept:
        return _combined(_less, full, sample)
    share = pool.true_outside / pool.count
    outside = ArmCost(full.tokens and share * full.tokens, full.usd and share * full.usd)
    return _combined(_less, full, _combined(_sum, pool, outside))


def _combined(combine: Callable[..., float | None], *costs: ArmCost | ArmResult | PoolSummary) -> ArmCost:
    """Return a combination of costs, in tokens and in dollars."""
    return ArmCost(combine(*(cost.tokens for cost in costs)), combine(*(cost.usd for cost in costs)))


def _less(cost: float | None, paid: float | None, most: float | None = None) -> float | None:
    """Return what is left of a cost; no more than `most`, where that is known."""
    left = None if cost is None or paid is None else max(cost - paid, 0.0)
    if most is None:
        return left
    return None if left is None and most else min(left or 0.0, most)


def _sum(cost: float | None, proof: float | None, most: float | None = None) -> float | None:
    if cost is None or proof is None:
        return None
    return cost + proof if most is None else min(cost + proof, most)
