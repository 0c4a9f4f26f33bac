"""Assess: the plans of a migration side by side, with what they cost and keep."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from migrate.errors import UsageError
from migrate.progress import Progress, no_progress
from migrate.steps.base import PRICE, PROGRESS, QUERY_LOG, SEED, Step, argument, function, option, parameter

if TYPE_CHECKING:
    from migrate.cost import Assessment
    from migrate.cost.count import CacheLookup
    from migrate.cost.quality import StitchQuality
    from migrate.cost.rates import Rate
    from migrate.embedders.profile import Profile
    from migrate.steps.base import ModelLike, StoreLike
    from migrate.stitch.fitted import FittedStitch
    from migrate.stores.base import Store
    from migrate.vectors import Query

_SPEED: Mapping[str, Any] = {"section": "Speed"}
_QUALITY: Mapping[str, Any] = {"section": "Quality"}


@dataclass(frozen=True, eq=False)
class Assess(Step["Assessment"]):
    """Tell what moving a store would cost, in tokens, dollars, hours and bytes. Spends nothing, and asks no server.

    Raises
    ------
    StoreError
        The store has no texts, or none that is not blank.
    UsageError
        A budget, a rate or a number of tokens cannot be read, or options exclude each other.
    StitchError, InputError
        The stitch was fitted on another store; or the report is none of an audit.

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
    query_log: Path | str | Sequence[Query] | None = field(default=None, metadata=QUERY_LOG)
    budget: str | None = field(
        default=None,
        metadata=option(
            "Dollars or tokens to spend, such as $50 or 300000tok: shows what they buy, and of which quality with "
            "--stitch.",
            "text",
            metavar="USD|TOKENS",
        ),
    )
    keep: float | None = field(
        default=None,
        metadata=option(
            "Overlap@10 to keep, with --stitch: shows the cheapest plan that does.",
            "share",
            metavar="0-1",
        ),
    )
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
    stitch: FittedStitch | str | Path | None = field(
        default=None,
        metadata=option("Stitch fitted on STORE: shows what is known of its quality.", "stitch", **_QUALITY),
    )
    audit: str | Path | None = field(
        default=None,
        metadata=option(
            "JSON report of an audit: shows what staying keeps.",
            "path",
            metavar="FILE.json",
            **_QUALITY,
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

    def check(self) -> None:
        """Make sure that something is known of what plans keep, and that one thing is looked for."""
        _amounts(self.budget)
        if self.keep is not None and self.stitch is None:
            raise UsageError("--keep: nothing says what plans keep; fit a stitch first, and name it with --stitch")
        if self.keep is not None and self.budget is not None:
            raise UsageError(
                "--keep and --budget ask for the cheapest plan and for the best one; leave one of them out"
            )

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

    @cached_property
    def quality(self) -> StitchQuality | None:
        """The figures of the stitch; None without one."""
        from migrate.cost.quality import stitch_quality
        from migrate.stitch.persistence import load_stitch

        if self.stitch is None:
            return None
        fitted, message_values = self.stitch, {}
        if isinstance(fitted, str | Path):
            fitted, message_values = load_stitch(fitted), {"source": str(fitted)}
        return stitch_quality(fitted, self.source, self.model.spec, **message_values)

    def execute(self) -> Assessment:
        """Count the store's texts, and set the plans side by side."""
        from migrate.cost import assess_store
        from migrate.cost.quality import read_stay
        from migrate.steps.opening import log_of

        report = None if self.audit is None else Path(self.audit)
        usd, tokens = _amounts(self.budget)
        return assess_store(
            self.source,
            self.model,
            rate=self._rate(),
            queries=log_of(self.query_log),
            quality=self.quality,
            keep=self.keep,
            stay=None if report is None else read_stay(report),
            cached=self.cached,
            budget_usd=usd,
            budget_tokens=tokens,
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


def _amounts(budget: str | None) -> tuple[float | None, int | None]:
    """Return the dollars, with or without the sign, or the tokens of a budget."""
    text = str(budget).strip().replace(",", "")
    if budget is None:
        return None, None
    if re.fullmatch(r"0*[1-9]\d*tok", text):
        return None, int(text.removesuffix("tok"))
    if re.fullmatch(r"\$?(\d+\.?\d*|\.\d+)(e-?\d{1,2})?", text):
        return float(text.removeprefix("$")), None
    raise UsageError(f"`budget={budget}` is neither dollars such as $50 nor tokens such as 300000tok; give one of them")


assess = function(Assess)
