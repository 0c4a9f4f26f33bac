"""What the spending commands share: the line before they start, the question, the cap, and the line at the end."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from migrate.cli.options import ModelOptions, option
from migrate.cli.terminal import advise

if TYPE_CHECKING:
    from migrate.cost.count import Known
    from migrate.cost.meter import MeteredEmbedder
    from migrate.cost.said import Said
    from migrate.cost.target import Target
    from migrate.documents import Text
    from migrate.embedders.base import Embedder
    from migrate.vectors import Progress

MAX_COST_USD = 5.0
_ROOM = 1.1
"""What was agreed to may cost a tenth more than was said, beside what an estimate may be off by."""


def usd(value: object) -> float:
    """US dollars from 0 on, with or without the sign.

    Raises
    ------
    click.BadParameter
        They are none.
    """
    try:
        amount = float(str(value).strip().removeprefix("$").replace(",", ""))
    except ValueError:
        amount = math.nan
    if not (amount >= 0 and math.isfinite(amount)):
        raise click.BadParameter(f"expected dollars such as $50, found {value!r}")
    return amount


_OPTIONS = (
    option(
        "--max-cost",
        type=usd,
        default=MAX_COST_USD,
        metavar="USD",
        help="Dollars that may be spent on the target model without a question; spending stops there.",
    ),
    option("--yes", is_flag=True, help="Agree to what it costs beforehand, even beyond --max-cost."),
)


@dataclass(frozen=True, slots=True)
class SpendingOptions:
    """As they were given."""

    max_cost: float
    yes: bool

    def watch(self, embedder: Embedder, *, price: float | None = None, quiet: bool) -> Spending:
        """Put a meter into an embedder that costs money; others stay as they are."""
        return Spending(self, embedder, price, quiet)


def spending_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of `SpendingOptions`; the command gets one argument `spending`."""
    names = list(SpendingOptions.__dataclass_fields__)

    @wraps(command)
    def with_spending(**arguments: Any) -> Any:
        given = SpendingOptions(**{name: arguments.pop(name) for name in names})
        return command(spending=given, **arguments)

    wrapped: Callable[..., Any] = with_spending
    for add in reversed(_OPTIONS):
        wrapped = add(wrapped)
    return wrapped


class Spending:
    """One command's spending on its target model. `embedder` is the one to use."""

    def __init__(self, given: SpendingOptions, embedder: Embedder, price: float | None, quiet: bool) -> None:
        self.given = given
        self.quiet = quiet
        self.embedder = embedder
        self.said: Said | None = None
        self.meter: MeteredEmbedder | None = None
        self.target = _api_target(embedder, price)
        if self.target is not None:
            from migrate.cost.meter import put_meter

            self.embedder, self.meter = put_meter(embedder, self.target.counter, self.target.price_usd_per_mtok)
            self.meter.cap_usd = given.max_cost

    def agree(
        self,
        texts: Callable[[], Iterable[Text]],
        *,
        queries: Sequence[Text] = (),
        progress: Progress | None = None,
    ) -> None:
        """Say what embedding these texts will cost, and ask where it is more than may be spent without a question.

        Raises
        ------
        SpendingError
            It is, and nobody agreed.
        """
        from migrate.cost.said import say

        if self.target is None or self.meter is None:
            advise("to embed: the target model costs no money", quiet=self.quiet)
            return
        self.said = said = say(texts(), queries, self.embedder, self.target, progress)
        advise(said.sentence, quiet=self.quiet)
        if said.usd is not None and said.usd > self.given.max_cost:
            self._ask(said.usd)
            self.meter.cap_usd = said.usd * (1 + self.target.counter.error) * _ROOM

    def _ask(self, usd: float) -> None:
        from migrate.cost.answers import dollars
        from migrate.errors import SpendingError

        if self.given.yes:
            return
        beyond = f"expected to cost at most {dollars(self.given.max_cost)} (--max-cost), found {dollars(usd)}"
        if not sys.stdin.isatty():
            raise SpendingError(f"{beyond}; raise --max-cost, or agree with --yes")
        if not click.confirm(f"This costs about {dollars(usd)}. Go on?", err=True):
            raise SpendingError(f"{beyond}, not agreed to; nothing was spent")

    def finish(self) -> None:
        """Say what it cost, beside what was said."""
        if self.meter is not None and self.said is not None:
            advise(self.said.told_of(self.meter.tokens, self.meter.usd), quiet=self.quiet)


def _api_target(embedder: Embedder, price: float | None) -> Target | None:
    """The facts of a model that is paid for, found without asking its server; None for one that runs here."""
    from migrate.cost.target import find_target
    from migrate.embedders.cache import CachedEmbedder
    from migrate.embedders.openai import OpenAIEmbedder

    inner = embedder.embedder if isinstance(embedder, CachedEmbedder) else embedder
    if not isinstance(inner, OpenAIEmbedder):
        return None
    prefix = inner.prefixes["document"]
    return find_target(f"openai:{inner.name}", price_usd_per_mtok=price, prefix=prefix, dimensions=inner.dimensions)


def cached_texts(model: ModelOptions, target: Target) -> Known | None:
    """What tells which documents are in the embedding cache; None where asking would load a model, or there is none."""
    from migrate.embedders.cache import CachedEmbedder

    path = model.cache_file
    if not target.is_api or path is None or not path.is_file():
        return None
    embedder = replace(model, rate=None).load(target.spec)
    if not isinstance(embedder, CachedEmbedder):
        return None
    return lambda texts: embedder.known(texts, "document")
