"""The cost of moving a store in one table. Reads the store, and spends nothing: no server, no weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from migrate.audit_report import read_audit
from migrate.cost.count import CacheLookup, TextCount, count_texts
from migrate.cost.deal import PROOF_DOCUMENTS, Deal
from migrate.cost.estimate import Estimate
from migrate.cost.rates import Rate, usd_of
from migrate.display import data_frame, dollars, notebook_html
from migrate.embedders import ModelFacts, facts_of
from migrate.embedders.openai import fair_share
from migrate.embedders.profile import Profile
from migrate.errors import InputError, OutputError, StoreError
from migrate.files import describe_os_error
from migrate.manifest import today
from migrate.reading import MalformedError, expect
from migrate.selection import SAMPLE_SIZE
from migrate.stores.base import Store, StoreInfo
from migrate.vectors import Progress, no_progress

if TYPE_CHECKING:
    from pandas import DataFrame

DEPTH = 50
"""Documents that two stages rank by true vectors, for each query."""

QUERIES = 1_000
"""Queries that two stages are priced for."""

FULL = "full re-embed"
MIGRATE = "migrate"
TWO_STAGE = f"two-stage {DEPTH}"
STAY = "stay"
"""The plans, as an audit names them too, but for a migration."""

_IN_AUDITS = {"translated": MIGRATE}
_BOUNDS = {"estimate": float, "lower": float | None, "upper": float | None}
_CONCURRENCY = 8
"""Requests that are in flight at a time."""


@dataclass(frozen=True, slots=True)
class QualityKept:
    """The part of a full re-embed's quality that a plan keeps: bounds of `measure`, shares (0-1), None without one.

    `estimate` is None where they are not of this store, but the lowest and the highest elsewhere.
    """

    measure: str
    estimate: float | None
    lower: float | None
    upper: float | None


RETENTION = "retention"
ALL = QualityKept(RETENTION, 1.0, 1.0, 1.0)
_ELSEWHERE = {MIGRATE: QualityKept(RETENTION, None, 0.93, 1.03), STAY: QualityKept(RETENTION, None, 0.88, 1.13)}
"""Lowest and highest between two published models, both ways: `auto` and `staying` of `benchmarks/models.py`."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A way to move a store: `documents` are embedded, with `tokens` in `requests` (None for a local model).

    Money is None where no price is known, minutes where no rate is, `quality` where nothing is known of it.
    """

    name: str
    documents: int
    tokens: int
    requests: int | None
    usd: float | None
    minutes: float | None
    quality: QualityKept | None


@dataclass(frozen=True, slots=True)
class Assessment:
    """A store, what its texts are to the target, and the plans side by side.

    `rate` is None where nobody knows how fast it embeds. `deal` holds a migration against a full re-embed; `sentences`
    say which is better, `notes` what a reader should know of the figures.
    """

    store: StoreInfo
    target: Profile
    count: TextCount
    rate: Rate | None
    plans: tuple[Plan, ...]
    deal: Deal
    sentences: tuple[str, ...]
    notes: tuple[str, ...]

    def __repr__(self) -> str:
        full = self.plans[0]
        cost = f"{full.tokens:,} tokens"
        if full.usd is not None:
            cost += f", {dollars(full.usd)}"
        moved = f"{self.store.location} -> {self.target.spec}"
        return f"<Assessment of {moved}: {cost} for a full re-embed, {len(self.plans)} plans>"

    def _repr_html_(self) -> str | None:
        return notebook_html(self)

    def to_pandas(self) -> DataFrame:
        """One row a plan; needs pandas.

        Raises UsageError: it is not installed.
        """
        return data_frame([asdict(plan) for plan in self.plans])


def assess_store(
    store: Store,
    target: Profile,
    *,
    rate: Rate | None = None,
    cached: CacheLookup | None = None,
    audited: Mapping[str, QualityKept] | None = None,
    texts_per_request: int | None = None,
    progress: Progress = no_progress,
) -> Assessment:
    """Count the store's texts and set the plans side by side.

    `cached` tells which texts are paid for, `audited` what an audit says of the plans.

    Raises StoreError: the store has no texts, or none that is not blank.
    """
    info = store.info
    if not info.has_texts:
        raise StoreError(f"{info.location}: the store has no texts to embed; {info.way_to_texts}")
    count = count_texts(store.documents(), target, lookup=cached, total=info.count, progress=progress)
    if not count.distinct:
        raise StoreError(f"{info.location}: all its texts are blank; there is nothing to embed")
    qualities = {**_ELSEWHERE, **(audited or {}), FULL: ALL}
    sample = min(SAMPLE_SIZE, count.to_embed)
    proof = min(PROOF_DOCUMENTS, count.to_embed - sample)
    embedded = {
        FULL: count.to_embed,
        MIGRATE: sample + proof,
        TWO_STAGE: min(QUERIES * DEPTH, count.to_embed),
        STAY: 0,
    }
    plans = tuple(
        _plan(name, documents, count, target, rate, texts_per_request, qualities.get(name))
        for name, documents in embedded.items()
    )
    full = plans[0]
    learned = _plan(MIGRATE, sample, count, target, rate, texts_per_request, None)
    # The proof is counted apart, as a full re-embed needs none
    deal = Deal(info.count, _estimate(learned), _estimate(full), proof=proof)
    old = None
    if info.manifest is not None and info.manifest.model is not None:
        old = facts_of(info.manifest.model.spec, info.manifest.model.revision)
    sentences = (*model_sentences(old, facts_of(target.spec)), deal.sentence("a migration"))
    notes = tuple(_notes(count, target, rate, is_audited=bool(audited)))
    return Assessment(info, target, count, rate, plans, deal, sentences, notes)


def _plan(
    name: str,
    documents: int,
    count: TextCount,
    target: Profile,
    rate: Rate | None,
    texts_per_request: int | None,
    quality: QualityKept | None,
) -> Plan:
    """Price so many documents, of average length among those that are not in the cache."""
    # Which documents a plan embeds is not known yet: they are taken to be of average length
    tokens = round(documents * count.tokens_to_embed / max(count.to_embed, 1))
    requests = None
    if target.is_api:
        each = texts_per_request or fair_share(documents, _CONCURRENCY, target.request_texts)
        # A request ends at whichever limit it reaches first, that of texts or that of tokens
        requests = ceil(max(documents / each, tokens / target.request_tokens))
    minutes = None
    if not documents:
        minutes = 0.0
    elif rate is not None and requests is not None:
        minutes = rate.minutes(requests, tokens)
    elif rate is not None:
        minutes = rate.minutes(documents, tokens)  # of a local model, each text is a request
    return Plan(name, documents, tokens, requests, usd_of(tokens, target.price_usd_per_mtok), minutes, quality)


def _estimate(plan: Plan) -> Estimate:
    return Estimate(plan.documents, tokens=plan.tokens, usd=plan.usd, minutes=plan.minutes)


def model_sentences(old: ModelFacts | None, new: ModelFacts | None) -> Iterator[str]:
    """Say which of the models of the store and of the target is off, or will be, and if they share a space."""
    day = today()
    if old is not None and (why := old.going_away(day)):
        consequence = "you can stay until then"
        if old.lifecycle.is_off(day):
            consequence = "it answers no queries, so you cannot stay"
        yield f"the store's model: {why}; {consequence}"
    if new is not None and (why := new.going_away(day)):
        consequence = "a store of it will have to move again"
        if new.lifecycle.is_off(day):
            consequence = "it embeds nothing, so take another"
        yield f"the target: {why}; {consequence}"
    if old is not None and new is not None and old is not new and old.family == new.family is not None:
        yield (
            f"the target: {new.name} shares the space of {old.name}: its queries, of the same dimension, find the "
            "store's vectors as they are"
        )


def _notes(count: TextCount, target: Profile, rate: Rate | None, *, is_audited: bool) -> Iterator[str]:
    yield f"tokens: {target.counter.sentence}"
    yield from _note_on_price(target)
    yield _note_on_time(target, rate)
    if count.over_limit:
        fate = "the model cuts off the rest"
        if target.is_api:
            fate = "the API refuses them: cut them into chunks first"
        yield f"{count.over_limit:,} documents are longer than the {target.max_tokens:,} tokens the model takes; {fate}"
    yield (
        f"a migration embeds a sample of {SAMPLE_SIZE:,} documents, and for its proof by an audit up to "
        f"{PROOF_DOCUMENTS:,}; two stages embed in addition at most {DEPTH} for each of {QUERIES:,} queries"
    )
    if not is_audited:
        yield (
            "kept: nDCG@10 relative to a full re-embed, measured elsewhere between two published models; an audit "
            "measures it on your store, and --audit shows that"
        )


def _note_on_price(target: Profile) -> Iterator[str]:
    """Yield why there is no price, or how old it is where nobody gave another."""
    entry = facts_of(target.spec)
    if target.price_usd_per_mtok is None and target.is_api:
        yield "no price is known; --price sets one"
    elif target.price_usd_per_mtok is None:
        yield "a model that runs here costs no money; --price sets one"
    elif entry is not None and target.price_usd_per_mtok == entry.price_usd_per_mtok:
        yield f"the price is of {entry.checked:%Y-%m}"


def _note_on_time(target: Profile, rate: Rate | None) -> str:
    if rate is not None:
        return f"time: {rate.sentence(is_api=target.is_api)}"
    if target.is_api:
        return "the time is not known; SPEC,rate=3000/min sets the rate that the server allows"
    return "the time is not known; --calibrate embeds 32 documents and times them, SPEC,rate=50/s sets the rate"


def read_kept(path: Path) -> dict[str, QualityKept]:
    """Read what an audit's report says of the plans, by their names.

    Raises InputError: the file is no JSON, or not that of an audit. OutputError: it cannot be read.
    """
    try:
        report = read_audit(path)
    except OSError as error:
        raise OutputError(f"cannot read {path}: {describe_os_error(error)}; check the path") from error
    except MalformedError as error:
        raise InputError(
            f"{path}: this is not the report of an audit ({error}); name one that `audit --report` wrote"
        ) from error
    qualities = {}
    try:
        expect(report, {"options": list[Mapping[str, Any]]})
        measured = report["verdict"]["measured"]
        bounded = [option for option in report["options"] if option.get(measured) is not None]
        for option in bounded:
            expect(option, {"name": str, measured: _BOUNDS})
            bounds = option[measured]
            name = _IN_AUDITS.get(option["name"], option["name"])
            qualities[name] = QualityKept(measured, bounds["estimate"], bounds["lower"], bounds["upper"])
    except MalformedError as error:
        raise InputError(f"{path}: the options of the audit cannot be read ({error}); audit again") from error
    return qualities
