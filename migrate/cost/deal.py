"""The cost of a migration beside that of a full re-embed, and which of them is the better deal.

A local model's rate is measured on a few texts, drawn at random as the sample is; a cache keeps their vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np

from migrate.cost.estimate import Estimate, dollars, duration
from migrate.cost.rates import CALIBRATION_TEXTS, measure_rate
from migrate.cost.spending import PlannedModel
from migrate.embedders.base import Embedder
from migrate.embedders.cache import are_cached
from migrate.embedders.kinds import split_spec
from migrate.selection.sample import known_documents
from migrate.stores.base import Store
from migrate.vectors import Document, Progress, no_progress

PROOF_QUERIES = 200
PROOF_DOCUMENTS = 20 * PROOF_QUERIES
"""Documents that an audit by a pool embeds first: so many for each of as many queries as an audit often has."""


def is_small(usd: float | None, minutes: float | None) -> bool:
    """Return whether a full re-embed costs less than an hour of anybody's thoughts about it."""
    if usd is None and minutes is None:
        return False
    return (usd is None or usd <= 1) and (minutes is None or minutes <= 60)


def halves(documents: int, full: int) -> bool:
    """Return whether documents to embed are half of those of a full re-embed, or more; that needs no proof."""
    return 2 * documents >= full


def _amounts(cost: Estimate) -> list[str]:
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
        cached = are_cached(embedder, drawn, "document")
        uncached = [text for text, is_cached in zip(drawn, cached, strict=True) if not is_cached]
        n_uncached = ceil(count * len(uncached) / len(drawn))
        to_embed = min(are_cached(embedder, planned, "document").count(False), n_uncached)
        rate = _documents_per_s(embedder, uncached)
        ours, whole = (Estimate(n, minutes=None if rate is None else n / rate / 60) for n in (to_embed, n_uncached))
    proof = 0 if is_proven else min(PROOF_DOCUMENTS, whole.documents - ours.documents)
    return Deal(count, ours, whole, rate, proof)


def _documents_per_s(embedder: Embedder, documents: Sequence[Document]) -> float | None:
    """Measure the rate of a local model; None where too few documents are not in the cache."""
    texts = documents[:CALIBRATION_TEXTS]
    rate = None if len(texts) < 12 else measure_rate(embedder, texts).requests_per_min
    return None if rate is None else rate / 60
