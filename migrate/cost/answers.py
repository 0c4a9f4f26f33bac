"""The two answers a person needs, in words: the cheapest plan expected to be SAFE, and when to embed it all instead."""

from __future__ import annotations

from collections.abc import Sequence

from migrate.cost.estimate import dollars, duration
from migrate.cost.plans import FULL, MIGRATE, STAY, Plan, Pricing
from migrate.cost.quality import SAFE
from migrate.selection import SAMPLE_SIZE

SMALL_USD, SMALL_MINUTES = 1.0, 60.0
"""A full re-embed at this price is cheaper than an hour of anybody's thoughts about it."""


PROOF_QUERIES = 200
PROOF_DOCUMENTS = 20 * PROOF_QUERIES
"""What an audit by a pool embeds first: so many documents for each of as many queries as an audit often has."""


def answers(plans: Sequence[Plan], pricing: Pricing, budget_usd: float | None = None) -> tuple[str, ...]:
    """What to do, what it is worth, and what a budget buys."""
    full = next(plan for plan in plans if plan.kind == FULL)
    sentences = [cheapest_safe(plans, full, pricing), full_or_not(plans, full), stay_or_not(plans)]
    if budget_usd is not None:
        sentences.append(_budget_sentence(full, budget_usd))
    return tuple(sentences)


def cheapest_safe(plans: Sequence[Plan], full: Plan, pricing: Pricing) -> str:
    """Return the cheapest plan expected to be SAFE, as far as anything is known."""
    known = [(plan, plan.known) for plan in plans if plan.known is not None and plan.kind != STAY]
    for plan, point in known:
        if point.outcome is not None and point.is_cheapest_safe:
            return (
                f"cheapest plan expected to be SAFE: {plan.name} ({priced(plan)}), as the audit's frontier found "
                f"({point.sentence}); audit the store that comes of it"
            )
    if any(point.outcome is not None for _, point in known):
        return (
            f"cheapest plan expected to be {SAFE}: {FULL} ({priced(full)}); the audit's frontier found no smaller "
            "budget that is"
        )
    if known:
        return (
            f"cheapest plan expected to be SAFE: not known yet; of the stitch "
            f"{known[0][0].quality} is known, and what that means for queries only an audit says (audit --frontier)"
        )
    if full_is_better(plans, full):
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
    if why := _small(full) or _proof_costs(plans, full):
        return f"a full re-embed is the better deal here: {why}; nothing else keeps all of the quality"
    migrations = [plan for plan in plans if plan.kind == MIGRATE]
    # a tenth, whatever rounding to documents made of it
    tenth = next((plan for plan in migrations if plan.share >= 0.095), migrations[-1])
    if full.usd is None and full.minutes is None:
        share = (SAMPLE_SIZE + PROOF_DOCUMENTS) / full.documents
        return (
            f"a full re-embed embeds {full.tokens:,} tokens, fit and audit by {PROOF_QUERIES} queries about "
            f"{share * full.tokens:,.0f}: without a price or a rate tokens decide, and fit and audit are the better "
            "deal where they are SAFE"
        )
    return (
        f"a full re-embed ({priced(full)}) is the better deal where the loss of quality is worth more than the "
        f"difference to {tenth.name} ({priced(tenth)}); an audit by a pool (--reference pool) embeds no more than its "
        "verdict needs, one that builds its reference every text of the store"
    )


def stay_or_not(plans: Sequence[Plan]) -> str:
    """Whether to move at all, as far as anything is known."""
    stay = next(plan for plan in plans if plan.kind == STAY)
    if stay.known is None:
        return (
            "staying costs nothing, and where the old model can still answer queries it is the first thing to beat: "
            f"between two published models it kept {stay.quality.removeprefix('elsewhere ')} of the new model's "
            "nDCG@10, more than a translation in three of four moves. Move because the old model goes away, or where "
            "an audit says that the new one is better"
        )
    moves = [plan for plan in plans if plan.known is not None and plan.known.measure == stay.known.measure]
    best = max((plan for plan in moves if plan is not stay), key=lambda plan: plan.quality_known, default=None)
    if best is None or best.quality_known > stay.quality_known:
        return f"staying has kept {stay.known.sentence}"
    return (
        f"staying is the better deal while the old model answers queries: {stay.known.sentence}, {best.name} "
        f"{best.known.sentence if best.known else ''}"
    )


def is_small(usd: float | None, minutes: float | None) -> bool:
    """Whether a full re-embed costs so little that there is nothing to save."""
    if usd is None and minutes is None:
        return False
    return (usd is None or usd <= SMALL_USD) and (minutes is None or minutes <= SMALL_MINUTES)


def full_is_better(plans: Sequence[Plan], full: Plan) -> bool:
    """Whether a full re-embed is the better deal: it costs next to nothing, or fit and proof are half of it or more."""
    return not full.documents or bool(_small(full) or _proof_costs(plans, full))


def halves(documents: int, full: int) -> bool:
    """Whether documents to embed are half of a full re-embed's or more, which needs no proof."""
    return 2 * documents >= full


def _proof_costs(plans: Sequence[Plan], full: Plan) -> str:
    """Why the proof of a migration costs too much; empty where it does not, or where one was fitted or audited."""
    documents = SAMPLE_SIZE + PROOF_DOCUMENTS
    if any(plan.known is not None for plan in plans) or not halves(documents, full.documents):
        return ""
    return (
        f"fit and audit by {PROOF_QUERIES} queries embed about {min(documents, full.documents):,} of "
        f"{full.documents:,} documents"
    )


def _small(full: Plan) -> str:
    """Return why there is nothing to save; empty where there is."""
    takes = "" if full.minutes is None else duration(full.minutes)
    if is_small(full.usd, full.minutes):
        return f"it takes {takes}" if full.usd is None else f"it costs {dollars(full.usd)}{takes and f' and {takes}'}"
    if full.documents <= 2 * SAMPLE_SIZE:
        share = min(SAMPLE_SIZE / full.documents, 1)
        return f"the {SAMPLE_SIZE:,} documents that a stitch learns from are {share:.0%} of the store"
    return ""


def _budget_sentence(full: Plan, budget_usd: float) -> str:
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
