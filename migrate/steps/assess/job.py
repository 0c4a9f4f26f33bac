"""The work of an assessment, once the store and the target are open."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from migrate.cost import Assessment, assess_store
from migrate.cost.assess import read_kept
from migrate.cost.count import CacheLookup
from migrate.cost.rates import CALIBRATION_TEXTS, Rate, measure_rate, tier_rate
from migrate.embedders.base import Embedder
from migrate.embedders.profile import Profile
from migrate.errors import UsageError
from migrate.progress import Progress
from migrate.selection import draw_sample
from migrate.steps.assess.options import AssessOptions
from migrate.steps.opening import model_at, store_of
from migrate.stores.base import Store


@dataclass(frozen=True, kw_only=True, eq=False)
class AssessJob:
    """An assessment whose store and target are open.

    Attributes
    ----------
    model
        The facts of the target, at the price that was named.
    rate
        How fast texts are embedded, where that was named.
    is_own_server
        True where the target runs on a server that has no tiers.
    cached
        Tells which texts are in the embedding cache, and paid for.
    batch_size
        Texts of a request; None for the model's own.
    """

    options: AssessOptions
    store: Store
    embedder: Embedder
    model: Profile
    rate: str | None
    is_own_server: bool
    cached: CacheLookup | None
    batch_size: int | None
    progress: Progress

    def execute(self) -> Assessment:
        """Count the store's texts, and set the plans side by side."""
        audited = None
        if self.options.audit is not None:
            audited = read_kept(Path(self.options.audit))
        return assess_store(
            self.store,
            self.model,
            rate=self._rate(),
            audited=audited,
            cached=self.cached,
            texts_per_request=self.batch_size,
            progress=self.progress,
        )

    def is_timed(self) -> bool:
        """Return whether some texts are embedded here, to measure how long they take."""
        if self.rate is not None or self.model.is_api:
            return False
        if self.options.calibrate is not None:
            return self.options.calibrate
        # A model whose tokenizer is here is here itself, and nothing has to be downloaded to time it
        return self.model.is_local and self.model.counter.exact

    def _rate(self) -> Rate | None:
        """Return the rate that was given, was measured now, or is the provider's limit; None where nobody knows."""
        options = self.options
        if options.calibrate and self.model.is_api:
            raise UsageError("--calibrate: the target is an API, and nothing is spent here; leave it out")
        if options.calibrate and self.rate is not None:
            raise UsageError("--calibrate: a rate says it already; leave it out")
        # Servers that speak OpenAI's protocol take the same SPEC, and have no tiers
        is_own_server = self.is_own_server or bool(os.environ.get("OPENAI_BASE_URL"))
        limits = None
        if self.model.rate_limits and not is_own_server:
            limits = tier_rate(options.tier)
        if self.rate is not None:
            return Rate.parse(self.rate).completed(limits)
        if not self.is_timed():
            return limits
        # A model that is made from the texts, such as tfidf, embeds nothing before it has read them
        self.embedder.fit(self.store.documents())
        texts = draw_sample(self.store, CALIBRATION_TEXTS, seed=options.seed).documents
        return measure_rate(self.embedder, texts)


def open_assess(options: AssessOptions, progress: Progress, cached: CacheLookup | None) -> AssessJob:
    """Open what an assessment names, as it is by itself."""
    embedder = model_at(options.target)
    return AssessJob(
        options=options,
        store=store_of(options.store),
        embedder=embedder,
        model=embedder.profile.at_price(options.price),
        rate=options.rate,
        is_own_server=options.is_own_server,
        cached=cached,
        batch_size=options.batch_size,
        progress=progress,
    )
