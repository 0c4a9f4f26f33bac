"""The quality that every arm and plan keeps, its cost in all, and what is still to be paid.

Once an audit is done, the sample of the stitch, the translation and what was embedded to judge them are paid for: what
matters for the next step is what it would cost from here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

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
        return _amount(self.usd, self.tokens)

    @property
    def left(self) -> float:
        """The part of `cost` that is still to be paid."""
        return _amount(self.usd_left, self.tokens_left)


def options_of(report: AuditReport) -> tuple[Option, ...]:
    """The options, the cheapest first: staying, the translated store, arms that could serve instead, the full re-embed.

    A reference store that was there before the audit costs nothing here; a pool costs what was embedded for it. No
    option costs more than a full re-embed, as the cache embeds no document twice. Of a frontier only the cheapest SAFE
    budget is an option: its bounds allow for that choice.
    """
    arms = {arm.name: arm for arm in report.arms}
    full_left = _left_of_full(report)
    options = []
    for name, bounds in {TRANSLATED: report.verdict.retention, **report.family}.items():
        if name not in arms:
            continue
        is_safe = report.outcome_of(name) is Outcome.SAFE
        options.append(_option(arms[name], bounds, report, full_left, is_safe=is_safe))
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
        whole = (_sum(sample.tokens, further.tokens, full.tokens), _sum(sample.usd, further.usd, full.usd))
        arm = replace(arm, tokens=whole[0], usd=whole[1])
    proof = _NOTHING if report.pool is None else ArmCost(report.pool.tokens, report.pool.usd)
    left = _NOTHING
    if arm.name.startswith(f"{PREFIX}:"):  # embedded in full for the audit
        left = (
            _NOTHING
            if report.is_kept
            else ArmCost(_less(arm.tokens, 0.0, full_left.tokens), _less(arm.usd, 0.0, full_left.usd))
        )
    elif arm.name not in (TRANSLATED, BRIDGE):  # both are there, and paid for
        left = ArmCost(_less(arm.tokens, sample.tokens, full_left.tokens), _less(arm.usd, sample.usd, full_left.usd))
    tokens, usd = _sum(arm.tokens, proof.tokens, full.tokens), _sum(arm.usd, proof.usd, full.usd)
    return Option(arm.name, bounds, tokens, usd, left.tokens, left.usd, is_safe)


def _left_of_full(report: AuditReport) -> ArmCost:
    """Return what a full re-embed would still cost: nothing where it is there, or where every text is in the cache."""
    pool = report.pool
    if report.reference_at is not None or (report.is_kept and (pool is None or pool.is_exact)):
        return _NOTHING
    full, sample = report.arm(FULL), report.arm(TRANSLATED)
    if pool is None or not report.is_kept:
        return ArmCost(_less(full.tokens, sample.tokens), _less(full.usd, sample.usd))
    share = pool.true_outside / pool.count
    paid = [
        None if cost is None or whole is None else cost + share * whole
        for cost, whole in ((pool.tokens, full.tokens), (pool.usd, full.usd))
    ]
    return ArmCost(_less(full.tokens, paid[0]), _less(full.usd, paid[1]))


def _less(cost: float | None, paid: float | None, most: float | None = None) -> float | None:
    """Return what is left of a cost; no more than `most`, where that is known."""
    left = None if cost is None or paid is None else max(cost - paid, 0.0)
    if most is None:
        return left
    return None if left is None and most else min(left or 0.0, most)


def _sum(cost: float | None, proof: float | None, most: float | None) -> float | None:
    if cost is None or proof is None:
        return None
    return cost + proof if most is None else min(cost + proof, most)


def _amount(usd: float | None, tokens: float | None) -> float:
    amount = usd if usd is not None else tokens
    return float("inf") if amount is None else amount
