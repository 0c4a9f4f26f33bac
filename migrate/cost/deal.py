"""What a migration and its proof would embed, beside a full re-embed, before either is begun.

A local model's rate is measured on a few texts, drawn at random as the sample is; a cache keeps their vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np

from migrate.cost.answers import PROOF_DOCUMENTS, PROOF_QUERIES, halves, is_small
from migrate.cost.estimate import dollars, duration, estimate_cost
from migrate.cost.rates import CALIBRATION_TEXTS, measure_rate
from migrate.cost.spending import PlannedModel
from migrate.embedders.base import Embedder
from migrate.embedders.kinds import split_spec
from migrate.selection.sample import known_documents
from migrate.stores.base import Store
from migrate.vectors import Document, Progress, no_progress

_FEWEST = 12
"""The fewest texts that a rate can be measured on."""

_LOOKED_UP = 2_000
"""Documents that are looked up in the cache to see what part of a store is there."""


@dataclass(frozen=True, slots=True)
class Bill:
    """What is to be embedded, without what is in the cache; dollars and minutes are None where they are not known."""

    documents: int
    usd: float | None
    minutes: float | None

    @property
    def words(self) -> str:
        """The price in brackets, where it is known."""
        known = [*([] if self.usd is None else [dollars(self.usd)])]
        known += [] if self.minutes is None else [duration(self.minutes)]
        return f" ({', '.join(known)})" if known else ""


@dataclass(frozen=True, slots=True)
class Deal:
    """The bill of a plan beside that of a full re-embed of a store of `count` documents.

    `documents_per_s` is the rate of a local model, None where it was not measured. `proof` is how many documents an
    audit would embed in addition, where the plan has none.
    """

    count: int
    plan: Bill
    full: Bill
    documents_per_s: float | None = None
    proof: int = 0

    @property
    def full_is_better(self) -> bool:
        """Whether to embed the whole store: it costs next to nothing, or the plan costs half of it and proves less."""
        ours = self.plan.documents + self.proof
        return is_small(self.full.usd, self.full.minutes) or halves(ours, self.full.documents)

    def sentence(self, what: str) -> str:
        """Both bills, and which is the better deal; `what` is the plan."""
        better = "the full re-embed" if self.full_is_better else what
        proof = f", and its proof by {PROOF_QUERIES} queries {self.proof:,} more" if self.proof else ""
        return (
            f"{what} would embed about {self.plan.documents:,} of {self.count:,} documents{self.plan.words}{proof}; a "
            f"full re-embed embeds {self.full.documents:,}{self.full.words} and needs no proof: the better deal is "
            f"{better}"
        )


def weigh(
    model: PlannedModel, store: Store, *, is_proven: bool = True, seed: int = 0, progress: Progress = no_progress
) -> Deal | None:
    """The deal for a store by the target model of a plan; None where the store has no texts, or they are embedded.

    Nothing is embedded by a model that may cost money. A plan that `is_proven` has an audit in it.
    """
    if not store.info.has_texts or split_spec(model.embedder.identity.spec)[0] == "file":
        return None
    count, embedder, meter = store.info.count, model.embedder, model.meter
    if meter is not None:
        some, profile = model.estimate(progress=progress), embedder.profile.at_price(meter.price)
        full = estimate_cost(store.documents(), (), embedder, profile, progress)
        plan = full if some is None else some
        ours, whole = (Bill(cost.documents, cost.usd, cost.minutes) for cost in (plan, full))
        return Deal(count, ours, whole, proof=0 if is_proven else _proof(ours, whole))
    embedder.fit(store.documents())
    planned = list({document.id: document for document in model.documents()}.values())
    rows = np.random.default_rng(seed).permutation(count)[:_LOOKED_UP].astype(np.int64)
    drawn = list(known_documents(store, rows))
    fresh = [document for document, known in zip(drawn, embedder.known(drawn, "document"), strict=True) if not known]
    left = ceil(count * len(fresh) / len(drawn))
    to_embed = min(embedder.known(planned, "document").count(False), left)
    rate = _rate(embedder, fresh)
    ours, whole = (Bill(n, None, None if rate is None else n / rate / 60) for n in (to_embed, left))
    return Deal(count, ours, whole, rate, proof=0 if is_proven else _proof(ours, whole))


def _proof(ours: Bill, whole: Bill) -> int:
    """Documents that an audit embeds of those that are left."""
    return min(PROOF_DOCUMENTS, whole.documents - ours.documents)


def _rate(embedder: Embedder, fresh: Sequence[Document]) -> float | None:
    """Documents in a second; None where too few are not in the cache."""
    texts = fresh[:CALIBRATION_TEXTS]
    rate = None if len(texts) < _FEWEST else measure_rate(embedder, texts).requests_per_min
    return None if rate is None else rate / 60
