"""What every arm and plan keeps, against what it costs in all, the proof included: what a decision needs."""

from __future__ import annotations

from dataclasses import dataclass

from migrate.audit.report import AuditReport
from migrate.audit.results import FULL, STAY, TRANSLATED, ArmResult
from migrate.audit.verdict import Bounds, Outcome

WHOLE = Bounds(1.0, 1.0, 1.0)
"""Retention of the full re-embed: it is the standard."""


@dataclass(frozen=True, slots=True)
class Option:
    """One way to go on. Bounds of `retention` hold for all options together where one is picked by them.

    `tokens` are those of the target model for documents, the proof included where it had to be embedded, `usd` their
    price; None where unknown. A two-stage option costs more with every query: its figure is for those of the audit.
    """

    name: str
    retention: Bounds
    tokens: float | None
    usd: float | None
    is_safe: bool

    @property
    def cost(self) -> float:
        """Dollars, or tokens where there is no price; infinite where neither is known."""
        known = self.usd if self.usd is not None else self.tokens
        return float("inf") if known is None else known


def options_of(report: AuditReport) -> tuple[Option, ...]:
    """The options, the cheapest first: staying, the translated store, arms that could serve instead, the full re-embed.

    A reference store that was there before the audit costs nothing here; a pool costs what was embedded for it. No
    option costs more than a full re-embed, as the cache embeds no document twice. Of a frontier only the cheapest SAFE
    budget is an option: its bounds allow for that choice.
    """
    arms = {arm.name: arm for arm in report.arms}
    full = arms[FULL]
    pool = report.pool
    proof = (pool.tokens, pool.usd) if pool is not None else (0.0, 0.0)
    options = []
    for name, bounds in {TRANSLATED: report.verdict.retention, **report.family}.items():
        if name not in arms:
            continue
        is_safe = report.verdict.outcome is Outcome.SAFE if name == TRANSLATED else name in report.ways_out
        options.append(Option(name, bounds, *_total(arms[name], proof, full), is_safe))
    best = report.frontier.cheapest_safe if report.frontier is not None else None
    if best is not None:
        name, bounds = best.arm.name, best.verdict.retention
        options.append(Option(name, bounds, *_total(best.arm, proof, full), True))
    if STAY in report.comparisons:
        options.append(Option(STAY, report.comparisons[STAY].retention, 0.0, 0.0, False))
    options.append(Option(FULL, WHOLE, full.tokens, full.usd, True))
    return tuple(sorted(options, key=lambda option: (option.cost, -option.retention.lower)))


def _total(
    arm: ArmResult, proof: tuple[float | None, float | None], full: ArmResult
) -> tuple[float | None, float | None]:
    """Tokens and dollars of an arm and its proof."""
    return _sum(arm.tokens, proof[0], full.tokens), _sum(arm.usd, proof[1], full.usd)


def _sum(cost: float | None, proof: float | None, most: float | None) -> float | None:
    if cost is None or proof is None:
        return None
    return cost + proof if most is None else min(cost + proof, most)
