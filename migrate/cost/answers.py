"""The two answers a person needs, in words: the cheapest plan expected to be SAFE, and when to embed it all instead.

What a spending command says before it starts, and afterwards: tokens, dollars, minutes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from migrate.cost.count import Known, TextCount, count_texts
from migrate.cost.plans import FULL, MIGRATE, SAFE, Plan, Pricing
from migrate.cost.rates import tier_rate, usd_of
from migrate.cost.target import Target
from migrate.embedders.base import Embedder, Role
from migrate.embedders.openai import MANY_TEXTS
from migrate.selection import SAMPLE_SIZE
from migrate.vectors import Progress, Text, no_progress

SMALL_USD = 1.0
"""A full re-embed at this price is cheaper than an hour of anybody's thoughts about it."""

SMALL_MINUTES = 60.0
_TENTH = 0.095
"""A tenth, whatever rounding to documents made of it."""

_SMALL_DOCUMENTS = 2 * SAMPLE_SIZE
_AUDIT = (
    "an audit that builds its reference embeds every text of the store it judges; to save money, audit on a part of "
    "the store"
)


def answers(plans: Sequence[Plan], pricing: Pricing, budget_usd: float | None = None) -> tuple[str, ...]:
    """What to do, what it is worth, and what a budget buys."""
    full = next(plan for plan in plans if plan.kind == FULL)
    said = [cheapest_safe(plans, full, pricing), full_or_not(plans, full)]
    if budget_usd is not None:
        said.append(_told_of_budget(full, budget_usd))
    return tuple(said)


def cheapest_safe(plans: Sequence[Plan], full: Plan, pricing: Pricing) -> str:
    """The cheapest plan expected to be SAFE, as far as anything is known."""
    known = [plan for plan in plans if plan.known is not None]
    judged = [plan for plan in known if plan.known is not None and plan.known.outcome is not None]
    best = next((plan for plan in judged if plan.known is not None and plan.known.is_cheapest_safe), None)
    if best is not None and best.known is not None:
        return (
            f"cheapest plan expected to be SAFE: {best.name} ({priced(best)}), as the audit's frontier found "
            f"({best.known.sentence}); audit the store that comes of it"
        )
    if judged:
        return (
            f"cheapest plan expected to be {SAFE}: {FULL} ({priced(full)}); the audit's frontier found no smaller "
            "budget that is"
        )
    if known:
        plan = known[0]
        return (
            f"cheapest plan expected to be SAFE: not known yet; the stitch, of {plan.documents:,} documents, has "
            f"{plan.quality}, and what that means for queries only an audit says (audit --frontier)"
        )
    if _small(full):
        return f"cheapest plan expected to be SAFE: {FULL} ({priced(full)}); it is SAFE by definition"
    pairs = min(SAMPLE_SIZE, full.documents)
    tokens = pairs * pricing.tokens_per_document
    usd = None if full.usd is None or not full.tokens else full.usd * tokens / full.tokens
    price = "" if usd is None else f", {dollars(usd)}"
    return (
        "cheapest plan expected to be SAFE: not known before a fit and an audit; a fit on "
        f"{pairs:,} documents (about {tokens:,.0f} tokens{price}) is the next thing to buy, a full re-embed is SAFE by "
        "definition"
    )


def full_or_not(plans: Sequence[Plan], full: Plan) -> str:
    """Whether a full re-embed is the better deal."""
    if not full.documents:
        return "a full re-embed costs nothing more: every text is in the embedding cache already"
    if why := _small(full):
        return f"a full re-embed is the better deal here: {why}; nothing else keeps all of the quality"
    tenth = next((plan for plan in plans if plan.kind == MIGRATE and plan.share >= _TENTH), plans[1])
    if full.usd is None and full.minutes is None:
        return (
            f"a full re-embed embeds {full.tokens:,} tokens, {tenth.name} {tenth.tokens:,}; without a price or a rate "
            "nobody can say which is the better deal"
        )
    return (
        f"a full re-embed ({priced(full)}) is the better deal where the loss of quality is worth more than the "
        f"difference to {tenth.name} ({priced(tenth)}); {_AUDIT}"
    )


def _small(full: Plan) -> str:
    """Why there is nothing to save; empty where there is."""
    takes = "" if full.minutes is None else f" and {duration(full.minutes)}"
    quick = full.minutes is None or full.minutes <= SMALL_MINUTES
    if full.usd is not None and full.usd <= SMALL_USD and quick:
        return f"it costs {dollars(full.usd)}{takes}"
    if full.usd is None and full.minutes is not None and quick:
        return f"it takes {duration(full.minutes)}"
    if full.documents <= _SMALL_DOCUMENTS:
        share = min(SAMPLE_SIZE / full.documents, 1)
        return f"the {SAMPLE_SIZE:,} documents that a stitch learns from are {share:.0%} of the store"
    return ""


def _told_of_budget(full: Plan, budget_usd: float) -> str:
    if full.usd is None:
        return f"${budget_usd:g}: no price is known to hold it against; --price sets one"
    if full.usd <= budget_usd:
        return f"${budget_usd:g} buys everything: a full re-embed costs {dollars(full.usd)}"
    share = budget_usd / full.usd
    return (
        f"${budget_usd:g} buys true vectors for {share:.1%} of the store ({int(share * full.documents):,} documents): "
        f"translate --reembed ${budget_usd:g}"
    )


def priced(plan: Plan) -> str:
    """What a plan costs, in a few words."""
    parts = [f"{plan.tokens:,} tokens"]
    parts += [] if plan.usd is None else [dollars(plan.usd)]
    parts += [] if plan.minutes is None else [duration(plan.minutes)]
    return ", ".join(parts)


def dollars(usd: float) -> str:
    """An amount with as many digits as it needs.

    >>> dollars(1234.5), dollars(0.0312), dollars(0.00001), dollars(0)
    ('$1,234.50', '$0.0312', '<$0.0001', '$0.00')
    """
    if 0 < usd < 0.00005:
        return "<$0.0001"
    return f"${usd:,.2f}" if usd >= 1 or not usd else f"${usd:,.4f}"


def duration(minutes: float) -> str:
    """A time in the unit that suits it.

    >>> duration(0.02), duration(30), duration(200)
    ('1.2 s', '30 min', '3.3 h')
    """
    if minutes < 1:
        return f"{60 * minutes:.2g} s"
    return f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.1f} h"


@dataclass(frozen=True, slots=True)
class Said:
    """What embedding `documents` and `queries` will cost, those in the cache (`cached`) left out.

    Dollars are None where no price is known, minutes where no rate is. `by` is the model, where it is not the target.
    """

    documents: int
    queries: int
    cached: int
    tokens: int
    usd: float | None
    minutes: float | None
    is_exact: bool
    by: str = ""

    @property
    def sentence(self) -> str:
        """The line before the start."""
        parts = [f"{self.documents:,} documents"]
        parts += [f"{self.queries:,} queries"] if self.queries else []
        parts += [f"{'' if self.is_exact else 'about '}{self.tokens:,} tokens", self._money(self.usd)]
        parts += [] if self.minutes is None else [duration(self.minutes)]
        beside = f" ({self.cached:,} more are in the cache)" if self.cached else ""
        return f"to embed{self._model}: {', '.join(parts)}{beside}"

    def told_of(self, tokens: int, usd: float | None, until: str = "") -> str:
        """The line at the end: what it was, beside what was said; `until` it broke off, where it did."""
        return (
            f"embedded{self._model}{until}: {tokens:,} tokens, {self._money(usd)} (said before: {self.tokens:,} "
            f"tokens, {self._money(self.usd)})"
        )

    def __add__(self, other: Said) -> Said:
        """Both together, for a command that says what it will embed in two steps."""
        usd = None if self.usd is None or other.usd is None else self.usd + other.usd
        minutes = None if self.minutes is None or other.minutes is None else self.minutes + other.minutes
        return Said(
            self.documents + other.documents,
            self.queries + other.queries,
            self.cached + other.cached,
            self.tokens + other.tokens,
            usd,
            minutes,
            self.is_exact and other.is_exact,
            self.by,
        )

    @property
    def _model(self) -> str:
        return f" by {self.by}" if self.by else ""

    @staticmethod
    def _money(usd: float | None) -> str:
        return "no price known" if usd is None else dollars(usd)


def say(
    texts: Iterable[Text],
    queries: Sequence[Text],
    embedder: Embedder,
    target: Target,
    progress: Progress | None = None,
    *,
    by: str = "",
) -> Said:
    """Count what must be embedded, and price it; a text that comes twice is paid for twice where no cache keeps it."""
    once, report = embedder.is_cached, progress or no_progress
    documents = count_texts(texts, target, known=_known(embedder, "document"), once=once, progress=report)
    asked = count_texts(queries, target, known=_known(embedder, "query"), once=once) if queries else TextCount()
    tokens = documents.tokens_to_embed + asked.tokens_to_embed
    count = documents.to_embed + asked.to_embed
    minutes = tier_rate().minutes(count / MANY_TEXTS, tokens) if embedder.profile.rate_limits else None
    return Said(
        documents.to_embed,
        asked.to_embed,
        documents.cached + asked.cached,
        tokens,
        usd_of(tokens, target.price_usd_per_mtok),
        minutes,
        target.counter.exact,
        by,
    )


def _known(embedder: Embedder, role: Role) -> Known | None:
    if not embedder.is_cached:
        return None
    return lambda texts: embedder.known(texts, role)
