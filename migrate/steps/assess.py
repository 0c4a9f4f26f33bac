"""Assess: the ways to move a store side by side, with what they cost and keep."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from migrate.errors import UsageError
from migrate.progress import Progress, no_progress
from migrate.steps.base import PRICE, PROGRESS, SEED, Step, argument, function, option, parameter

if TYPE_CHECKING:
    from migrate.cost import Assessment
    from migrate.cost.count import CacheLookup
    from migrate.cost.rates import Rate
    from migrate.embedders.profile import Profile
    from migrate.steps.base import ModelLike, StoreLike
    from migrate.stores.base import Store

_SPEED: Mapping[str, Any] = {"section": "Speed"}


@dataclass(frozen=True, eq=False)
class Assess(Step["Assessment"]):
    """Tell what moving a store would cost and keep. Spends nothing, and asks no server.

    Raises
    ------
    StoreError
        The store has no texts, or none that is not blank.
    UsageError
        A rate cannot be read, or options exclude each other.
    InputError
        The report is none of an audit.

    Examples
    --------
    >>> import migrate
    >>> migrate.assess("my-store", "openai:text-embedding-3-small")  # doctest: +ELLIPSIS
    <Assessment of my-store -> openai:text-embedding-3-small: ... tokens, $0.00... for a full re-embed, ... plans>
    """

    store: StoreLike = field(metadata=argument("A store with texts, or its path.", "store"))
    target: ModelLike = field(
        metadata=option(
            "Model to move to, such as openai:NAME. Repeated: the models to choose among, with --judged or --queries.",
            "spec",
            multiple=True,
            metavar="SPEC",
        )
    )
    _: KW_ONLY
    tier: str = field(
        default="1",
        metadata=option(
            "OpenAI's usage tier of the account.", choices=("free", "1", "2", "3", "4", "5"), is_seldom=True, **_SPEED
        ),
    )
    calibrate: bool | None = field(
        default=None,
        metadata=option(
            "Time a local model on 32 documents.  [default: where it is on this machine]",
            flags=("--calibrate/--no-calibrate",),
            is_seldom=True,
            **_SPEED,
        ),
    )
    audit: str | Path | None = field(
        default=None,
        metadata=option(
            "JSON report of an audit of this move: shows what each plan keeps.",
            "path",
            metavar="FILE.json",
            section="Quality",
        ),
    )
    price: float | None = field(default=None, metadata=PRICE)
    seed: int = field(default=0, metadata=SEED)
    rate: str | None = field(
        default=None,
        metadata=parameter("How fast texts are embedded, such as 3000/min or 1000000tok/min, in the place of `tier`."),
    )
    is_own_server: bool = field(
        default=False, metadata=parameter("The target runs on a server of yours, which has no tiers.")
    )
    cached: CacheLookup | None = field(
        default=None, repr=False, metadata=parameter("Tells which texts are in the embedding cache, and paid for.")
    )
    batch_size: int | None = field(
        default=None,
        metadata=parameter("Texts of a request; by default the model's own."),
    )
    progress: Progress = field(default=no_progress, repr=False, metadata=PROGRESS)

    @cached_property
    def source(self) -> Store:
        """The store, opened."""
        from migrate.steps.opening import store_of

        return store_of(self.store)

    @cached_property
    def model(self) -> Profile:
        """The facts of the target."""
        from migrate.steps.opening import model_at

        return model_at(self.target).profile.at_price(self.price)

    def execute(self) -> Assessment:
        """Count the store's texts, and set the plans side by side."""
        from migrate.cost import assess_store
        from migrate.cost.assess import read_kept

        return assess_store(
            self.source,
            self.model,
            rate=self._rate(),
            audited=None if self.audit is None else read_kept(Path(self.audit)),
            cached=self.cached,
            texts_per_request=self.batch_size,
            progress=self.progress,
        )

    @property
    def is_timed(self) -> bool:
        """True if some texts are embedded here, to measure how long they take."""
        model = self.model
        if self.rate is not None or model.is_api:
            return False
        is_here = model.is_local and model.counter.exact  # its tokenizer is here, and so is the model
        return is_here if self.calibrate is None else self.calibrate

    def _rate(self) -> Rate | None:
        """Return the rate that was given, was measured now, or is the provider's limit; None where nobody knows."""
        from migrate.cost.rates import CALIBRATION_TEXTS, Rate, measure_rate, tier_rate
        from migrate.selection import draw_sample
        from migrate.steps.opening import model_at

        model = self.model
        if self.calibrate and (model.is_api or self.rate is not None):
            why = "the target is an API, and nothing is spent here" if model.is_api else "a rate says it already"
            raise UsageError(f"--calibrate: {why}; leave it out")
        is_own = self.is_own_server or bool(os.environ.get("OPENAI_BASE_URL"))
        limits = tier_rate(self.tier) if model.rate_limits and not is_own else None
        if self.rate is not None:
            return Rate.parse(self.rate).completed(limits)
        if not self.is_timed:
            return limits
        embedder = model_at(self.target)
        embedder.fit(self.source.documents())
        return measure_rate(embedder, draw_sample(self.source, CALIBRATION_TEXTS, seed=self.seed).documents)


assess = function(Assess)
