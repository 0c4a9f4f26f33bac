"""Shared by commands that spend: the line before they start, the question, the line at the end.

The further models that a stitch reads texts with, loaded with the options of the command.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from migrate.cli.inputs import load_model
from migrate.cli.next_step import advise_paragraph, command_line
from migrate.cli.options import ModelOptions
from migrate.cli.terminal import PROGRAM, advise, bar_hidden, warn
from migrate.cost.deal import weigh
from migrate.cost.spending import TARGET, count_expected
from migrate.display import counted, dollars
from migrate.embedders import facts_of
from migrate.embedders.cache import are_cached, cache_of
from migrate.errors import SpendingError
from migrate.files import cache_folder, read_file
from migrate.manifest import today

if TYPE_CHECKING:
    from migrate.cost.count import CacheLookup
    from migrate.cost.deal import Deal
    from migrate.cost.estimate import Estimate
    from migrate.cost.meter import MeteredEmbedder
    from migrate.cost.spending import PlannedModel
    from migrate.embedders.profile import Profile
    from migrate.steps.base import Job
    from migrate.stitch.fitted import FittedStitch
    from migrate.stores.base import Store
    from migrate.vectors import Progress


_AGREED_ROOM = 1.1
"""Factor of what was agreed to that may be spent, besides what the counter may be off by: a tenth more."""


class Spending:
    """The estimates of one command, the question about them, and what it did spend.

    `cap_usd` is what its plan may spend: `--max-cost`, or what was agreed to beyond that, all where it `is_agreed`.
    """

    def __init__(self, max_cost: float | None, *, is_agreed: bool) -> None:
        self.max_cost = self.cap_usd = max_cost
        self.is_agreed = is_agreed
        self._estimates: dict[MeteredEmbedder, Estimate] = {}
        self._is_finished = False
        if (context := click.get_current_context(silent=True)) is not None:
            # Also where the command ends by an error or Ctrl-C: what was paid for has to be told then too
            context.call_on_close(self._break_off)

    def weigh(
        self,
        plan: Job[Any],
        store: Store,
        subject: str,
        arguments: Sequence[str],
        *,
        is_proven: bool = True,
        seed: int,
    ) -> Deal | None:
        """Say what a plan embeds beside a full re-embed, whose command has these `arguments`; nothing is paid for yet.

        One that `is_proven` has an audit in it.
        """
        target = next(model for model in plan.models if model.role == TARGET)
        deal = weigh(target, store, is_proven=is_proven, seed=seed)
        if deal is not None and deal.plan.documents:
            advise_paragraph(deal.sentence(subject))
            if deal.full_is_better:
                advise(f"  {PROGRAM} {command_line(['reembed', *arguments])}")
        return deal

    def agree(self, plan: Job[Any], *, progress: Progress) -> None:
        """Print what a plan will cost, and ask where it is more than may be spent without a question."""
        targets = [model for model in plan.models if model.role == TARGET]
        if all(model.meter is None for model in targets):
            count = sum(map(count_expected, targets))
            texts = f"up to {counted(count, 'text', 'texts')}" if count else "nothing"
            advise(f"to embed: {texts}; the target model costs no money")
        self.agree_on(plan.models, progress=progress)
        plan.cap.cap_usd = self.cap_usd

    def agree_on(self, models: Iterable[PlannedModel], *, progress: Progress) -> None:
        """Do as `agree` for some models of a plan, without those that cost no money."""
        caps = []
        profiles = []
        for model in models:
            meter = model.meter
            estimate = model.estimate(progress=progress)
            if meter is None or estimate is None:
                continue
            advise(estimate.sentence)
            profiles.append(model.embedder.profile.at_price(meter.price))
            self._warn_of_unknown_price(profiles[-1])
            earlier = self._estimates.get(meter)
            if earlier is not None:
                estimate = earlier + estimate
            self._estimates[meter] = estimate
            caps.append(model.cap)
        warn_of_old_prices(profiles)
        usd = sum(estimate.usd or 0 for estimate in self._estimates.values())
        if self.max_cost is not None and usd > self.max_cost:
            self._ask(usd, self.max_cost)
            most = ((estimate.usd or 0) * (1 + meter.counter.error) for meter, estimate in self._estimates.items())
            self.cap_usd = sum(most) * _AGREED_ROOM
            # Of a plan that runs already
            for cap in caps:
                cap.cap_usd = self.cap_usd

    def _warn_of_unknown_price(self, profile: Profile) -> None:
        if profile.is_paid is None and profile.price_usd_per_mtok is None:
            warn(
                f"it is not known if {profile.spec} costs money, so --max-cost does not stop it; if it is the target, "
                "give its price with --price"
            )

    def _ask(self, usd: float, max_cost: float) -> None:
        if self.is_agreed:
            return
        beyond = f"this would cost {dollars(usd)}, more than --max-cost ({dollars(max_cost)})"
        # Nobody answers a script: click would end it as if it had been interrupted, without a word on the costs
        if not sys.stdin.isatty():
            raise SpendingError(f"{beyond}; raise --max-cost, or agree with --yes")
        with bar_hidden():
            agreed = click.confirm(f"This costs about {dollars(usd)}. Go on?", err=True)
        if not agreed:
            raise SpendingError(f"{beyond}, not agreed to; nothing was spent")

    def finish(self) -> None:
        """Print what it cost, next to the estimates."""
        self._is_finished = True
        for meter, estimate in self._estimates.items():
            advise(estimate.compare_actual(meter.tokens, meter.usd))

    def _break_off(self) -> None:
        """Print what was spent by a command that did not come to its end."""
        if self._is_finished:
            return
        for meter, estimate in self._estimates.items():
            if meter.tokens:
                spent = estimate.compare_actual(meter.tokens, meter.usd, " until it broke off")
                kept = "without a cache only finished parts are kept"
                if meter.keeps_answers:
                    kept = "what could be used is in the cache"
                advise(f"{spent}; {kept}")


def warn_of_old_prices(profiles: Iterable[Profile]) -> None:
    """Warn of prices of the registry that are months old: once a day, whatever commands are run."""
    day = today()
    marker = cache_folder() / "warned-of-prices"
    priced = [(profile, facts_of(profile.spec)) for profile in profiles]
    ages = [
        entry.price_age(day)
        for profile, entry in priced
        if entry is not None and profile.price_usd_per_mtok == entry.price_usd_per_mtok
    ]
    if not any(ages):
        return
    # Without a folder to leave the day in, it warns each time
    with suppress(OSError):
        if marker.is_file() and read_file(marker).decode() == str(day):
            return
        marker.parent.mkdir(parents=True, exist_ok=True)
        marker.write_text(str(day))
    for age in filter(None, ages):
        warn(age)


def cached_texts(model: ModelOptions, spec: str, profile: Profile) -> CacheLookup | None:
    """Return a lookup of documents in the embedding cache; None if there is none, or it would load a model."""
    path = model.cache_file
    # An estimate must not load weights or make a cache
    if not profile.is_api or path is None or not path.is_file():
        return None
    embedder = load_model(model, spec)
    if cache_of(embedder) is None:
        return None
    return lambda texts: are_cached(embedder, texts, "document")


def with_views(fitted: FittedStitch, model: ModelOptions) -> FittedStitch:
    """Return a stitch whose views that may cost money go by the command's cache and server."""
    reader = fitted.reader
    if reader is None:
        return fitted
    models = {
        spec: load_model(model.for_source(), spec)
        for spec, view in reader.models.items()
        if view.profile.is_paid is not False
    }
    return replace(fitted, reader=reader.with_models(models))
