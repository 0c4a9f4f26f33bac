"""The cost of a migration beside that of a full re-embed, and which of them is the better deal.

A local model's rate is measured on a few texts, drawn at random as the sample is; a cache keeps their vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np

from migrate.cost.estimate import Estimate, duration
from migrate.cost.rates import CALIBRATION_TEXTS, measure_rate
from migrate.cost.spending import PlannedModel
from migrate.display import dollars
from migrate.embedders.base import Embedder
from migrate.embedders.cache import are_cached
from migrate.embedders.kinds import split_spec
from migrate.selection.sample import known_documents
from migrate.stores.base import Store
from migrate.vectors import Document, Progress, no_progress

_SMALL_USD = 1
_SMALL_MINUTES = 60
"""A full re-embed up to this costs less than an hour of anybody's thoughts about it."""

# The first four only warm the model up, so that eight are timed
_FEWEST_TIMED = 12
"""Texts that a rate is measured by at least."""

# Of so many, drawn at random, the share in the cache is off by at most 2.2 points (95 %)
_LOOKED_UP = 2_000
"""Documents that say how much of a store is in the cache, as a look-up of all would read the whole store."""

PROOF_QUERIES = 200
PROOF_DOCUMENTS = 20 * PROOF_QUERIES
"""Documents that an audit by a pool embeds first: so many for each of as many queries as an audit often has."""


def is_small(usd: float | None, minutes: float | None) -> bool:
    """Return whether a full re-embed costs less than an hour of anybody's thoughts about it."""
    # What nobody knows may cost anything
    if usd is None and minutes is None:
        return False
    is_cheap = usd is None or usd <= _SMALL_USD
    is_quick = minutes is None or minutes <= _SMALL_MINUTES
    return is_cheap and is_quick


def halves(documents: int, full: int) -> bool:
    """Return whether documents to embed are half of those of a full re-embed, or more; that needs no proof."""
    return 2 * documents >= full


def _amounts(cost: Estimate) -> list[str]:
    """Return dollars and minutes, where they are known."""
    amounts = []
    if cost.usd is not None:
        amounts.append(dollars(cost.usd))
    if cost.minutes is not None:
        amounts.append(duration(cost.minutes))
    return amounts


def _in_brackets(amounts: Sequence[str]) -> str:
    if not amounts:
        return ""
    return f" ({', '.join(amounts)})"


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
        n_embedded = self.plan.documents + self.proof
        return is_small(self.full.usd, self.full.minutes) or halves(n_embedded, self.full.documents)

    def sentence(self, subject: str) -> str:
        """Say both costs, and which is the better deal; `subject` is the plan."""
        cost = _in_brackets(_amounts(self.plan))
        full_cost = _in_brackets(_amounts(self.full))
        proof = ""
        if self.proof:
            proof = f", and its proof by {PROOF_QUERIES} queries {self.proof:,} more"
        better = subject
        if self.full_is_better:
            better = "the full re-embed"
        return (
            f"{subject} would embed about {self.plan.documents:,} of {self.count:,} documents{cost}{proof}; a "
            f"full re-embed embeds {self.full.documents:,}{full_cost} and needs no proof: the better deal is {better}"
        )


def weigh(
    model: PlannedModel, store: Store, *, is_proven: bool = True, seed: int = 0, progress: Progress = no_progress
) -> Deal | None:
    """Return the deal for a store by the target model of a plan; None without texts, or where they are embedded.

    Nothing is embedded by a model that may cost money. A plan that `is_proven` has an audit in it.
    """
    if not store.info.has_texts or split_spec(model.embedder.identity.spec)[0] == "file":
        return None
    count = store.info.count
    embedder = model.embedder
    plan = model.estimate(progress=progress)
    full = PlannedModel(embedder, model.cap, documents=store.documents).estimate(progress=progress)
    rate = None
    if plan is None or full is None:
        plan, full, rate = _timed(model, store, seed)
    proof = 0
    if not is_proven:
        proof = min(PROOF_DOCUMENTS, full.documents - plan.documents)
    return Deal(count, plan, full, rate, proof)


def _timed(model: PlannedModel, store: Store, seed: int) -> tuple[Estimate, Estimate, float | None]:
    """Return what a model that costs no money has to embed for a plan and for all, by its time, and its rate."""
    embedder = model.embedder
    embedder.fit(store.documents())
    rows = np.random.default_rng(seed).permutation(store.info.count)[:_LOOKED_UP].astype(np.int64)
    drawn = list(known_documents(store, rows))
    cached = are_cached(embedder, drawn, "document")
    uncached = [text for text, is_cached in zip(drawn, cached, strict=True) if not is_cached]
    # The part of the store that is in the cache, by some of its documents
    n_uncached = ceil(store.info.count * len(uncached) / len(drawn))
    # A plan names a document twice where it embeds it twice, which a cache does once
    planned = list({document.id: document for document in model.documents()}.values())
    n_planned = min(are_cached(embedder, planned, "document").count(False), n_uncached)
    rate = _documents_per_s(embedder, uncached)
    if rate is None:
        return Estimate(n_planned), Estimate(n_uncached), None
    return (
        Estimate(n_planned, minutes=n_planned / rate / 60),
        Estimate(n_uncached, minutes=n_uncached / rate / 60),
        rate,
    )


def _documents_per_s(embedder: Embedder, documents: Sequence[Document]) -> float | None:
    """Measure the rate of a local model; None where too few documents are not in the cache."""
    texts = documents[:CALIBRATION_TEXTS]
    if len(texts) < _FEWEST_TIMED:
        return None
    per_minute = measure_rate(embedder, texts).requests_per_min
    if per_minute is None:
        return None
    return per_minute / 60
