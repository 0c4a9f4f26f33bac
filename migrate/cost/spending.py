"""The models of a step, what they will be asked for, and what that costs. Nothing is embedded here."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence, Sized
from dataclasses import dataclass, field
from functools import partial

from migrate.cost.count import TextCount, count_texts
from migrate.cost.estimate import Estimate
from migrate.cost.meter import MeteredEmbedder, SpendingCap
from migrate.cost.rates import tier_rate, usd_of
from migrate.display import dollars
from migrate.embedders.base import Embedder, Role
from migrate.embedders.cache import are_cached, cache_of
from migrate.embedders.openai import MANY_TEXTS
from migrate.embedders.profile import Profile
from migrate.errors import SpendingError
from migrate.vectors import Progress, Text, no_progress

TARGET = "target"
SOURCE_MODEL = "source model"
VIEW = "view"
"""Roles of the models of a step."""


@dataclass(frozen=True, eq=False)
class PlannedModel:
    """A model of a step, and the texts that it will be asked for.

    Attributes
    ----------
    embedder
        The model as the run uses it, with a meter of `cap` in it where it costs money or may do so.
    role
        What it is for: `TARGET`, `SOURCE_MODEL` or `VIEW`.
    documents
        Starts reading the documents that it embeds, those in the cache among them.
    queries
        The queries that it embeds.
    again
        How many texts it embeds again at most, past the cache, to prove that it is what it was.
    known
        Further texts that it embeds again, as other vectors of them are known than those in the cache.
    """

    embedder: Embedder
    cap: SpendingCap
    role: str = TARGET
    documents: Callable[[], Iterable[Text]] = tuple
    queries: Sequence[Text] = ()
    again: int = 0
    known: Callable[[], Sequence[Text]] = tuple
    _estimates: list[Estimate] = field(default_factory=list, init=False, repr=False)

    @property
    def meter(self) -> MeteredEmbedder | None:
        """The counter of its tokens; None where it costs no money."""
        return self.cap.meter_of(self.embedder)

    @property
    def name(self) -> str:
        """The model and its role, for a person; empty for the target."""
        if self.role == TARGET:
            return ""
        return f"{self.embedder.profile.spec} ({self.role})"

    def estimate(self, *, progress: Progress = no_progress) -> Estimate | None:
        """Count what must be embedded, and price it, once; None where it costs no money.

        A text that comes twice is paid for twice where no cache keeps it. Those that are embedded `again` are of
        average length.
        """
        if not self._estimates:
            meter = self.meter
            if meter is None:
                return None
            # Kept, as a count reads the whole store: the line before the start and the cap ask for the same
            self._estimates.append(self._count(meter, progress))
        return self._estimates[0]

    def _count(self, meter: MeteredEmbedder, progress: Progress) -> Estimate:
        profile = self.embedder.profile.at_price(meter.price)
        documents = self._count_texts(self.documents(), profile, "document", progress)
        queries = TextCount()
        if self.queries:
            queries = self._count_texts(self.queries, profile.for_queries(), "query", no_progress)
        n_new = documents.to_embed + queries.to_embed
        n_cached = documents.cached + queries.cached
        n_again = 0
        again_tokens = 0
        # Past the cache, so that texts are paid for that are in it already
        if self.again and n_new + n_cached:
            known_texts = self.known()
            n_again = self.again + len(known_texts)
            tokens_read = documents.tokens_read + queries.tokens_read
            again_tokens = math.ceil(self.again * tokens_read / (n_new + n_cached))  # of average length
            again_tokens += count_texts(known_texts, profile, once=False).tokens_read
        tokens = documents.tokens_to_embed + queries.tokens_to_embed + again_tokens
        minutes = None
        if profile.rate_limits:
            minutes = tier_rate().minutes(n_new / MANY_TEXTS, tokens)
        return Estimate(
            documents.to_embed,
            queries.to_embed,
            n_cached,
            tokens,
            usd_of(tokens, profile.price_usd_per_mtok),
            minutes,
            profile.counter.exact,
            self.name,
            n_again,
            again_tokens,
        )

    def _count_texts(self, texts: Iterable[Text], profile: Profile, role: Role, progress: Progress) -> TextCount:
        """Count texts, but for those in the cache; without one, a text that comes twice is paid for twice."""
        if cache_of(self.embedder) is None:
            return count_texts(texts, profile, once=False, progress=progress)
        lookup = partial(are_cached, self.embedder, role=role)
        return count_texts(texts, profile, lookup=lookup, progress=progress)


@dataclass(frozen=True, slots=True)
class PlanEstimate:
    """The cost of a step, by model; models that cost no money are left out."""

    models: tuple[Estimate, ...]

    @property
    def tokens(self) -> int:
        """Tokens of all models."""
        return sum(model.tokens for model in self.models)

    @property
    def usd(self) -> float:
        """US dollars of all models; one without a known price counts nothing."""
        return sum(model.usd or 0 for model in self.models)

    @property
    def minutes(self) -> float | None:
        """Minutes of all models, one after the other; None where a rate is not known."""
        total: float = 0
        for model in self.models:
            if model.minutes is None:
                return None
            total += model.minutes
        return total

    @property
    def sentence(self) -> str:
        """A line for each model."""
        return "\n".join(model.sentence for model in self.models) or "to embed: nothing that costs money"

    def refuse_beyond(self, max_cost: float) -> None:
        """Make sure that the estimate is within a limit; raises a SpendingError."""
        # Before the first request: what a server has charged cannot be taken back
        if self.usd > max_cost:
            raise SpendingError(
                f"this would cost {dollars(self.usd)}, more than max_cost ({dollars(max_cost)}); nothing was spent, "
                "raise max_cost to go on"
            )


def estimate_of(models: Iterable[PlannedModel], *, progress: Progress = no_progress) -> PlanEstimate:
    """Count and price what the models will be asked for."""
    estimates = [model.estimate(progress=progress) for model in models]
    return PlanEstimate(tuple(estimate for estimate in estimates if estimate is not None))


def count_expected(model: PlannedModel) -> int:
    """Return how many texts a model may have to embed, those in the cache among them."""
    documents = model.documents()
    if isinstance(documents, Sized):
        return len(documents) + len(model.queries)
    # A whole store is read for it
    return sum(1 for _ in documents) + len(model.queries)
