"""What the spending commands share: the line before they start, the question, the cap, and the line at the end.

The further models that a stitch reads texts with, where they are paid for: loaded as asked, and metered.
"""

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
    from migrate.cli.options import ModelOptions
    from migrate.cost.answers import Said
    from migrate.cost.count import Known
    from migrate.cost.meter import MeteredEmbedder
    from migrate.cost.target import Target
    from migrate.embedders.base import Embedder
    from migrate.stitch.fitted import FittedStitch
    from migrate.vectors import Document, Progress, Text

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
        help="Dollars that may be spent on models without a question; spending stops there.",
    ),
    option("--yes", is_flag=True, help="Agree to what it costs beforehand, even beyond --max-cost."),
)


@dataclass(frozen=True, slots=True)
class SpendingOptions:
    """As they were given."""

    max_cost: float
    yes: bool

    def open(self, *, quiet: bool) -> Spending:
        """What a command spends, that has no target model yet."""
        return Spending(self, quiet)

    def watch(self, embedder: Embedder, *, price: float | None = None, quiet: bool) -> Spending:
        """Put a meter into a target model that costs money; others stay as they are."""
        paid = self.open(quiet=quiet)
        paid.watch(embedder, price=price)
        return paid


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


@dataclass
class _Bill:
    """A model that is paid for: the one to use, with a meter in it, and what was said of it so far."""

    name: str
    embedder: Embedder
    target: Target
    meter: MeteredEmbedder
    said: Said | None = None

    def say(self, texts: Iterable[Text], queries: Sequence[Text], progress: Progress | None) -> Said:
        from migrate.cost.answers import say

        said = say(texts, queries, self.embedder, self.target, progress, by=self.name)
        self.said = said if self.said is None else self.said + said
        return said

    @property
    def most_usd(self) -> float:
        """What it may cost at most, if the count was right within its error."""
        usd = 0.0 if self.said is None else self.said.usd or 0.0
        return usd * (1 + self.target.counter.error) * _ROOM

    def told(self, until: str = "") -> str:
        return "" if self.said is None else self.said.told_of(self.meter.tokens, self.meter.usd, until)


@dataclass(frozen=True)
class Asked:
    """What a model beside the target will be asked for: the embedder as `Spending.also` gave it."""

    embedder: Embedder | None
    texts: Callable[[], Iterable[Text]] = tuple
    queries: Sequence[Text] = ()


class Spending:
    """One command's spending. `embedder` is the target model to use, `target` its facts where it is paid for.

    All models of the command share one cap; `views` are those that a stitch reads texts with, by their specs.
    """

    embedder: Embedder

    def __init__(self, given: SpendingOptions, quiet: bool) -> None:
        from migrate.cost.meter import Purse

        self.given = given
        self.quiet = quiet
        self.purse = Purse(given.max_cost)
        self._bills: list[_Bill] = []
        self._is_told = False
        self.views: dict[str, Embedder] = {}
        self.target: Target | None = None
        if (context := click.get_current_context(silent=True)) is not None:
            context.call_on_close(self._break_off)

    def watch(self, embedder: Embedder, *, price: float | None = None) -> Embedder:
        """Put a meter into the target model."""
        self.embedder = self._add(embedder, "", price)
        self.target = None if self.embedder is embedder else self._bills[-1].target
        return self.embedder

    @property
    def is_paid(self) -> bool:
        """Whether any model of the command is paid for."""
        return bool(self._bills)

    def also(self, embedder: Embedder, role: str) -> Embedder:
        """Put a meter into another model of the command, which is its source model, say, or a view."""
        return self._add(embedder, f"{embedder.profile.spec} ({role})", None)

    def _add(self, embedder: Embedder, name: str, price: float | None) -> Embedder:
        from migrate.cost.meter import put_meter

        target = embedder.profile.at_price(price)
        if target.is_paid is False:
            return embedder
        metered, meter = put_meter(embedder, target.counter, target.price_usd_per_mtok, self.purse)
        self._bills.append(_Bill(name, metered, target, meter))
        return metered

    def agree(
        self,
        texts: Callable[[], Iterable[Text]],
        *,
        queries: Sequence[Text] = (),
        further: Iterable[Asked] = (),
        progress: Progress | None = None,
    ) -> None:
        """Say what embedding these texts will cost, and ask where it is more than may be spent without a question.

        What `further` models that cost money are asked for is said too.

        Raises
        ------
        SpendingError
            It is, and nobody agreed.
        """
        if self.target is None:
            advise("to embed: the target model costs no money", quiet=self.quiet)
        self.agree_on([Asked(self.embedder, texts, queries), *further], progress=progress)

    def agree_on(self, asked: Iterable[Asked], *, progress: Progress | None = None) -> None:
        """As `agree`, of whatever models; those that cost no money are passed over."""
        for one in asked:
            for bill in self._bills:
                if bill.embedder is one.embedder:
                    advise(bill.say(one.texts(), one.queries, progress).sentence, quiet=self.quiet)
                    self._warn_of_unknown_price(bill.target)
        usd = sum(bill.said.usd or 0 for bill in self._bills if bill.said is not None)
        if usd > self.given.max_cost:
            self._ask(usd)
            self.purse.cap_usd = sum(bill.most_usd for bill in self._bills)

    def _warn_of_unknown_price(self, target: Target) -> None:
        if target.is_paid is None and target.price_usd_per_mtok is None:
            advise(
                f"warning: whether {target.spec} costs money is not known, so --max-cost does not stop it; where it "
                "is the target, --price says what a million tokens cost",
                quiet=self.quiet,
            )

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
        self._is_told = True
        for bill in self._bills:
            if bill.said is not None:
                advise(bill.told(), quiet=self.quiet)

    def _break_off(self) -> None:
        """Say what was spent by a command that did not come to its end."""
        if self._is_told:
            return
        for bill in self._bills:
            if bill.said is not None and bill.meter.tokens:
                kept = (
                    "what could be used is in the cache"
                    if bill.meter.kept
                    else "without a cache only finished parts are kept"
                )
                advise(f"{bill.told(' until it broke off')}; {kept}", quiet=self.quiet)


def cached_texts(model: ModelOptions, target: Target) -> Known | None:
    """What tells which documents are in the embedding cache; None where asking would load a model, or there is none."""
    path = model.cache_file
    if not target.is_api or path is None or not path.is_file():
        return None
    embedder = replace(model, rate=None).load(target.spec)
    if not embedder.is_cached:
        return None
    return lambda texts: embedder.known(texts, "document")


def metered_views(fitted: FittedStitch, paid: Spending, model: ModelOptions) -> FittedStitch:
    """The stitch, with meters in the views that cost money; those go by the command's cache and server too."""
    if fitted.reader is None:
        return fitted
    models = {spec: _metered(spec, view, paid, model) for spec, view in fitted.reader.models.items()}
    return replace(fitted, reader=replace(fitted.reader, models=models))


def _metered(spec: str, view: Embedder, paid: Spending, model: ModelOptions) -> Embedder:
    if view.profile.is_paid is False:
        return view
    if spec not in paid.views:
        paid.views[spec] = paid.also(model.for_source().load(spec), "view")
    return paid.views[spec]


def asked_of_views(
    fitted: FittedStitch, paid: Spending, texts: Callable[[], Iterable[Document]], *, has_texts: bool
) -> list[Asked]:
    """What the metered views of a stitch will be asked for: the texts, unless the stitch reads none."""
    if not (has_texts and fitted.reads_texts and fitted.reader is not None):
        return []
    return [Asked(paid.views[spec], texts) for spec in fitted.reader.models if spec in paid.views]
