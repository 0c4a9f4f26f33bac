"""The cost of moving a store, by every plan. Reads the store, and spends nothing: no server, no weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from migrate.cost.answers import answers, full_is_better, priced
from migrate.cost.count import CacheLookup, TextCount, count_texts
from migrate.cost.estimate import dollars
from migrate.cost.plans import QUERIES, Plan, Planner, StoreBytes, best_within, cheapest_for, store_bytes
from migrate.cost.quality import KnownPoint, StitchQuality
from migrate.cost.rates import Rate
from migrate.display import data_frame, notebook_html
from migrate.embedders import ModelFacts, facts_of
from migrate.embedders.profile import Profile
from migrate.errors import StoreError
from migrate.manifest import today
from migrate.search.bm25 import bm25_run
from migrate.stitch.confidence import DEPTH
from migrate.stores.base import Store, StoreInfo
from migrate.stores.database import DatabaseStore
from migrate.vectors import Progress, Query, no_progress

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True, slots=True)
class Assessment:
    """A store, what its texts are to the target, the plans side by side, and what to make of them.

    `size` is None where the target's dimension is not known, `rate` where nobody knows how fast it embeds.
    `answers` are sentences, the most important first; `notes` are what a reader should know of the figures. `best` is
    the plan within a budget that most is expected of, as far as a fit or an audit says anything; `full_is_better` says
    that there is nothing to save.
    """

    store: StoreInfo
    target: Profile
    count: TextCount
    size: StoreBytes | None
    rate: Rate | None
    plans: tuple[Plan, ...]
    answers: tuple[str, ...]
    notes: tuple[str, ...]
    best: Plan | None = None
    full_is_better: bool = False

    def __repr__(self) -> str:
        full = self.plans[0]
        price = "" if full.usd is None else f", {dollars(full.usd)}"
        whole = f"{full.tokens:,} tokens{price} for a full re-embed"
        return f"<Assessment of {self.store.location} -> {self.target.spec}: {whole}, {len(self.plans)} plans>"

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
    queries: Sequence[Query] = (),
    cached: CacheLookup | None = None,
    budget_usd: float | None = None,
    budget_tokens: int | None = None,
    quality: StitchQuality | None = None,
    keep: float | None = None,
    stay: KnownPoint | None = None,
    texts_per_request: int | None = None,
    progress: Progress = no_progress,
) -> Assessment:
    """Count the store's texts and set the plans side by side.

    `stay` is what an audit says of the old model, `quality` what a fit says of its stitch.
    `cached` tells which texts are paid for, `queries` are those of a log. With `keep` (0-1) the cheapest plan is looked
    for that should have so much overlap@10. A budget counts the sample of
    `quality`.

    Raises StoreError: the store has no texts, or none that is not blank.
    """
    info = store.info
    if not info.has_texts:
        raise StoreError(f"{info.location}: the store has no texts to embed; {info.way_to_texts}")
    lookup = cached if quality is None else quality.paid(cached)
    count = count_texts(store.documents(), target, lookup=lookup, total=info.count, progress=progress)
    if not count.distinct:
        raise StoreError(f"{info.location}: all its texts are blank; there is nothing to embed")
    size = None if target.dim is None else store_bytes(store, target.dim)
    planner = Planner(target, count, size, info.dim, rate, texts_per_request, quality)
    full = planner.full()
    plans = [full, planner.stay(stay), *planner.by_share()]
    most, name = None if budget_tokens is None else float(budget_tokens), f"{budget_tokens or 0:,} tokens"
    if budget_usd is not None and budget_tokens is None and target.price_usd_per_mtok:
        most, name = budget_usd * 1e6 / target.price_usd_per_mtok, f"${budget_usd:g}"
    paid = 0 if quality is None or most is None else count_texts(quality.texts_of(store), target).tokens_read
    if most is not None and most < count.tokens_read:
        plans.append(planner.within(most - paid, f"what {name} {'buy' if budget_usd is None else 'buys'}"))
    if keep is not None:
        plans += planner.for_quality(keep)
    plans.append(_two_stage(store, planner, queries, progress))
    old_model = None if info.manifest is None else info.manifest.model
    old, new = None if old_model is None else facts_of(old_model.spec, old_model.revision), facts_of(target.spec)
    can_stay = old is None or not old.is_off(today())
    sentences = (*model_sentences(old, new), *answers(plans, budget_usd, can_stay=can_stay))
    best, heading = None, ""
    if keep is not None:
        best, heading = cheapest_for(plans, keep), f"the cheapest way to {keep:g} that is known"
    elif most is not None:
        best, heading = best_within(plans, most - paid), f"the most to expect of {name}"
    if best is not None and best.known is not None:
        sentences += (f"{heading}: {best.name} ({priced(best)}), {best.known.sentence}",)
    elif keep is not None:
        sentences += (f"{heading}: none; a full re-embed keeps all ({priced(full)})",)
    notes = _notes(planner, store)
    return Assessment(
        info, target, count, size, rate, tuple(plans), sentences, notes, best, full_is_better(plans, full)
    )


def model_sentences(old: ModelFacts | None, new: ModelFacts | None) -> Iterator[str]:
    """Say which of the models of the store and of the target is off, or will be, and if they share a space."""
    day = today()
    if old is not None and (why := old.going_away(day)):
        so = "it answers no queries, so you cannot stay" if old.is_off(day) else "you can stay until then"
        yield f"the store's model: {why}; {so}"
    if new is not None and (why := new.going_away(day)):
        so = "it embeds nothing, so take another" if new.is_off(day) else "a store of it will have to move again"
        yield f"the target: {why}; {so}"
    if old is not None and new is not None and old is not new and old.family == new.family is not None:
        yield (
            f"the target: {new.name} shares the space of {old.name}: its queries, of the same dimension, find the "
            "store's vectors as they are"
        )


def _two_stage(store: Store, planner: Planner, queries: Sequence[Query], progress: Progress) -> Plan:
    """Return what 1,000 queries embed: at most 50 documents each; where there is a log, what its words find."""
    total = planner.count.to_embed
    if not queries:
        return planner.two_stage(min(QUERIES * DEPTH, total), 0, is_bound=True)
    log = queries[:QUERIES]
    tokens = round(int(planner.target.counter.count([query.text for query in log]).sum()) * QUERIES / len(log))
    if store.info.count > 50_000:  # to rank more takes longer than the estimate is worth
        return planner.two_stage(min(QUERIES * DEPTH, total), tokens, is_bound=True)
    progress("look up the query log", 0, len(log))
    texts = (document.text for document in store.documents())
    run = bm25_run(texts, log, names_of=store.ids, depth=DEPTH)
    documents = len({doc_id for ranking in run.rankings.values() for doc_id in ranking})
    return planner.two_stage(min(round(documents * QUERIES / len(log)), total), tokens, is_bound=False)


def _notes(planner: Planner, store: Store) -> tuple[str, ...]:
    target, count, size = planner.target, planner.count, planner.size
    notes = [f"tokens: {target.counter.sentence}"]
    if target.price_usd_per_mtok is None:
        why = "no price is known" if target.is_api else "a model that runs here costs no money"
        notes.append(f"{why}; --price sets one")
    elif (entry := facts_of(target.spec)) is not None and target.price_usd_per_mtok == entry.price_usd_per_mtok:
        notes.append(f"the price is of {entry.checked:%Y-%m}")
    if target.batch_price_usd_per_mtok is not None:
        notes.append("the batch price is that of the provider's own batch service, which lead-migrate does not use")
    notes.append(_time_note(planner.rate, target))
    if count.over_limit:
        notes.append(_long_note(count, target))
    notes.append("disk is the new store, the embedding cache and the stitch; memory is about, at the peak")
    if isinstance(store, DatabaseStore):
        exported = f"{store.export_bytes / 1e6:,.2f} MB"
        notes.append(f"beside that the vectors of the old store are exported into the work folder: up to {exported}")
    if size is not None and not size.is_exact:
        notes.append(f"the new index is of {store.info.index_type}: its bytes are about what the old one suggests")
    notes.append(
        "downtime is none: the old store is only read and goes on serving; the new one appears, complete, by a rename"
    )
    return tuple(notes)


def _time_note(rate: Rate | None, target: Profile) -> str:
    if rate is not None:
        return f"time: {rate.sentence(is_api=target.is_api)}"
    if target.is_api:
        return "time is not known; SPEC,rate=3000/min says what the server allows"
    return "time is not known; --calibrate embeds 32 documents and times them, SPEC,rate=50/s says it"


def _long_note(count: TextCount, target: Profile) -> str:
    fate = "the API refuses them: cut them into chunks first" if target.is_api else "the model cuts off the rest"
    return f"{count.over_limit:,} documents are longer than the {target.max_tokens:,} tokens the model takes; {fate}"
