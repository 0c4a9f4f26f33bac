"""The answers a person needs, in words: the cheapest plan expected to be SAFE, and when to embed it all instead.

A local model's rate is measured on a few texts, drawn at random as the sample is; a cache keeps their vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np

from migrate.cost.estimate import Estimate, dollars, duration
from migrate.cost.plans import FULL, MIGRATE, STAY, Plan
from migrate.cost.rates import CALIBRATION_TEXTS, measure_rate
from migrate.cost.spending import PlannedModel
from migrate.display import percent
from migrate.embedders.base import Embedder
from migrate.embedders.kinds import split_spec
from migrate.selection import SAMPLE_SIZE
from migrate.selection.sample import known_documents
from migrate.stores.base import Store
from migrate.vectors import Document, Progress, no_progress

PROOF_QUERIES = 200
PROOF_DOCUMENTS = 20 * PROOF_QUERIES
"""Documents that an audit by a pool embeds first: so many for each of as many queries as an audit often has."""


def answers(plans: Sequence[Plan], budget_usd: float | None = None, *, can_stay: bool = True) -> tuple[str, ...]:
    """Say what to do, what it is worth, and what a budget buys."""
    full = next(plan for plan in plans if plan.kind == FULL)
    sentences = [_cheapest_safe(plans, full), _full_or_not(plans, full)]
    if can_stay:
        sentences.append(_stay_or_not(plans))
    if budget_usd is not None:
        sentences.append(_budget_sentence(full, budget_usd))
    return tuple(sentences)


def _cheapest_safe(plans: Sequence[Plan], full: Plan) -> str:
    """Return the cheapest plan expected to be SAFE, as far as anything is known."""
    measured = [(plan, plan.known) for plan in plans if plan.known is not None and plan.kind != STAY]
    if measured:
        return (
            f"cheapest plan expected to be SAFE: not known yet; the fit measured {measured[0][0].quality}, and only an "
            "audit says what that means for queries"
        )
    if full_is_better(plans, full):
        return f"cheapest plan expected to be SAFE: {FULL} ({priced(full)}); it is SAFE by definition"
    pairs = min(SAMPLE_SIZE, full.documents)
    tokens = pairs * full.tokens / max(full.documents, 1)
    usd = None if full.usd is None or not full.tokens else full.usd * tokens / full.tokens
    price = "" if usd is None else f", {dollars(usd)}"
    return (
        "cheapest plan expected to be SAFE: not known before a fit and an audit; start with a fit on "
        f"{pairs:,} documents (about {tokens:,.0f} tokens{price}); a full re-embed is SAFE by definition"
    )


def _full_or_not(plans: Sequence[Plan], full: Plan) -> str:
    """Say if a full re-embed is the better deal."""
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


def _stay_or_not(plans: Sequence[Plan]) -> str:
    """Say if to move at all, as far as anything is known."""
    stay = next(plan for plan in plans if plan.kind == STAY)
    if stay.known is None:
        return (
            "staying costs nothing while the old model can answer queries: between two published models it kept "
            f"{stay.quality.removeprefix('elsewhere ')} of the new model's nDCG@10, more than a translation in three "
            "of four moves. Move if the old model goes away, or if an audit says that the new one is better"
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
    """Return whether a full re-embed costs less than an hour of anybody's thoughts about it."""
    if usd is None and minutes is None:
        return False
    return (usd is None or usd <= 1) and (minutes is None or minutes <= 60)


def full_is_better(plans: Sequence[Plan], full: Plan) -> bool:
    """Return whether a full re-embed is the better deal: it costs next to nothing, or fit and proof half of it."""
    return not full.documents or bool(_small(full) or _proof_costs(plans, full))


def halves(documents: int, full: int) -> bool:
    """Return whether documents to embed are half of those of a full re-embed, or more; that needs no proof."""
    return 2 * documents >= full


def _proof_costs(plans: Sequence[Plan], full: Plan) -> str:
    """Return why the proof of a migration costs too much; empty where it does not, or one was fitted or audited."""
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
        return f"the {SAMPLE_SIZE:,} documents that a stitch learns from are {percent(share, 0)} of the store"
    return ""


def _budget_sentence(full: Plan, budget_usd: float) -> str:
    if full.usd is None:
        return f"${budget_usd:g}: no price is known to hold it against; --price sets one"
    if full.usd <= budget_usd:
        return f"${budget_usd:g} buys everything: a full re-embed costs {dollars(full.usd)}"
    share = budget_usd / full.usd
    return (
        f"${budget_usd:g} buys true vectors for {percent(share)} of the store ({int(share * full.documents):,} "
        f"documents): translate --reembed ${budget_usd:g}"
    )


def priced(plan: Plan) -> str:
    """Return the cost of a plan in a few words."""
    return ", ".join([f"{plan.tokens:,} tokens", *_amounts(plan)])


def _amounts(cost: Plan | Estimate) -> list[str]:
    """Return dollars and minutes, where they are known."""
    amounts = [] if cost.usd is None else [dollars(cost.usd)]
    return amounts if cost.minutes is None else [*amounts, duration(cost.minutes)]


@dataclass(frozen=True, slots=True)
class Deal:
    """The cost of a plan beside that of a full re-embed of a store of `count` documents.

    `documents_per_s` is the rate of a local model, None where it was not measured. `proof` is how many documents an
    audit would embed in addition, where the plan has none.
    """

    count: int
    plan: Estimate
    full: Estimate
    documents_per_s: float | None = None
    proof: int = 0

    @property
    def full_is_better(self) -> bool:
        """True where a full re-embed costs next to nothing, or the plan half of it, and proves less."""
        ours = self.plan.documents + self.proof
        return is_small(self.full.usd, self.full.minutes) or halves(ours, self.full.documents)

    def sentence(self, subject: str) -> str:
        """Say both costs, and which is the better deal; `what` is the plan."""
        better = "the full re-embed" if self.full_is_better else subject
        proof = f", and its proof by {PROOF_QUERIES} queries {self.proof:,} more" if self.proof else ""
        ours, whole = (f" ({', '.join(amounts)})" if (amounts := _amounts(it)) else "" for it in (self.plan, self.full))
        return (
            f"{subject} would embed about {self.plan.documents:,} of {self.count:,} documents{ours}{proof}; a "
            f"full re-embed embeds {self.full.documents:,}{whole} and needs no proof: the better deal is {better}"
        )


def weigh(
    model: PlannedModel, store: Store, *, is_proven: bool = True, seed: int = 0, progress: Progress = no_progress
) -> Deal | None:
    """Return the deal for a store by the target model of a plan; None without texts, or where they are embedded.

    Nothing is embedded by a model that may cost money. A plan that `is_proven` has an audit in it.
    """
    if not store.info.has_texts or split_spec(model.embedder.identity.spec)[0] == "file":
        return None
    count, embedder, rate = store.info.count, model.embedder, None
    ours = model.estimate(progress=progress)
    whole = PlannedModel(embedder, model.cap, documents=store.documents).estimate(progress=progress)
    if ours is None or whole is None:
        embedder.fit(store.documents())
        planned = list({document.id: document for document in model.documents()}.values())
        # the part of the store that is in the cache, by some of its documents
        rows = np.random.default_rng(seed).permutation(count)[:2_000].astype(np.int64)
        drawn = list(known_documents(store, rows))
        uncached = [
            text for text, is_cached in zip(drawn, embedder.are_cached(drawn, "document"), strict=True) if not is_cached
        ]
        n_uncached = ceil(count * len(uncached) / len(drawn))
        to_embed = min(embedder.are_cached(planned, "document").count(False), n_uncached)
        rate = _documents_per_s(embedder, uncached)
        ours, whole = (Estimate(n, minutes=None if rate is None else n / rate / 60) for n in (to_embed, n_uncached))
    proof = 0 if is_proven else min(PROOF_DOCUMENTS, whole.documents - ours.documents)
    return Deal(count, ours, whole, rate, proof)


def _documents_per_s(embedder: Embedder, documents: Sequence[Document]) -> float | None:
    """Measure the rate of a local model; None where too few documents are not in the cache."""
    texts = documents[:CALIBRATION_TEXTS]
    rate = None if len(texts) < 12 else measure_rate(embedder, texts).requests_per_min
    return None if rate is None else rate / 60
