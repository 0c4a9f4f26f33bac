"""What `import migrate` offers: a migration and its steps, by paths and model specs or by opened stores and models.

Thin: each function opens what it is given and calls the one that does the work, which has further options.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import migrate.report.notebook  # noqa: F401 - how results look in a notebook
from migrate.audit.query_set import QuerySet, by_field, load_query_set
from migrate.audit.report import AuditReport
from migrate.audit.step import BUILD, POOL, Audit
from migrate.audit.verdict import MARGIN, Outcome, Verdict
from migrate.check import Compatibility, Stamp, check_store, stamp_store
from migrate.check.check import SAMPLE_SIZE as CHECKED
from migrate.check.check import ManifestUse
from migrate.cost import Assessment, assess_store
from migrate.cost.quality import stitch_quality
from migrate.cost.rates import Rate, tier_rate
from migrate.cost.target import find_target
from migrate.embed import Embedding, plan_embed
from migrate.embedders import load_embedder
from migrate.embedders.base import Embedder
from migrate.embedders.kinds import runs_code, split_spec
from migrate.errors import LeadMigrateError, UsageError
from migrate.fit import FitOptions, plan_fit
from migrate.pipeline import Migration, MigrationRequest, plan_migration
from migrate.report.document import audit_document
from migrate.report.inspect import inspect_document
from migrate.selection import SAMPLE_SIZE
from migrate.steps.base import MAX_COST_USD, function
from migrate.steps.opening import model_at, model_of, store_of
from migrate.steps.reembed import Reembed
from migrate.steps.sync import Sync
from migrate.steps.sync.job import Synced
from migrate.steps.translate import Translate
from migrate.steps.translate.choice import Budget
from migrate.steps.translate.job import Translation
from migrate.stitch.fitted import DOCUMENT, Direction, FittedStitch
from migrate.stitch.persistence import load_stitch
from migrate.stitch.select import AUTO
from migrate.stores import open_store
from migrate.stores.base import Store
from migrate.stores.file_store import folder_of
from migrate.stores.registry import absolute_location
from migrate.switch import Switch, forget_switch, roll_back, switch_store
from migrate.vectors import Document, Progress, Query, no_progress

__all__ = [
    "Assessment",
    "AuditReport",
    "Compatibility",
    "Document",
    "Embedder",
    "Embedding",
    "FittedStitch",
    "LeadMigrateError",
    "Migration",
    "Outcome",
    "Query",
    "QuerySet",
    "Stamp",
    "Store",
    "Switch",
    "Synced",
    "Translation",
    "Verdict",
    "assess",
    "audit",
    "check",
    "embed",
    "fit",
    "forget",
    "inspect",
    "load_embedder",
    "load_stitch",
    "open_store",
    "reembed",
    "rollback",
    "run",
    "stamp",
    "switch",
    "sync",
    "translate",
]

StoreLike: TypeAlias = Store | str | Path
"""A store, or where it is."""

ModelLike: TypeAlias = Embedder | str
"""A model, or its spec as in `migrate.embedders`."""


def run(
    store: StoreLike,
    target: ModelLike,
    output: str | Path,
    *,
    beir: str | Path | QuerySet | None = None,
    queries: str | Path | None = None,
    reference: str = POOL,
    stitch: str | Sequence[str] = AUTO,
    sample: int = SAMPLE_SIZE,
    prefix: int | None = None,
    source_model: ModelLike | None = None,
    split: str = "test",
    group_field: str | None = None,
    margin: float = MARGIN,
    force: bool = False,
    restart: bool = False,
    seed: int = 0,
    max_cost: float | None = MAX_COST_USD,
    progress: Progress = no_progress,
) -> Migration:
    """Fit a stitch, translate a store and audit the result: the whole path, left in one folder.

    Parameters
    ----------
    store
        A store with texts, or its path.
    target
        The model to move to, or its spec, such as `openai:text-embedding-3-small`.
    output
        A folder for `stitch`, `store`, `report.json` and `report.html`, and `reference` if one is built. The same call
        continues a run that broke off, and audits again what is finished.
    beir, queries, split, group_field
        Who judges, as in `audit`.
    reference
        "pool" or "build", as in `audit`.
    stitch, sample, prefix
        What is fitted, as in `fit`.
    source_model
        The model of the store, to tell whether staying would be better; by default what the store says, if it does and
        that is neither a file elsewhere nor code of yours.
    margin
        Share of the full re-embed's quality that has to be kept.
    force
        Replace outputs that are there.
    restart
        Discard what an unfinished run has left.
    seed
        Of the sample, of what is random in a fit, of the resamples, and of synthetic queries.
    max_cost
        As in `fit`.
    progress
        Called with a step, how much of it is done, and how much there is.

    Raises
    ------
    LeadMigrateError
        As `migrate.pipeline.plan_migration` and its plan, which has further options and says beforehand what it costs.

    Examples
    --------
    >>> import migrate
    >>> done = migrate.run("my-store", "tfidf:24", "migration", beir="my-beir", stitch="ridge", sample=100)
    >>> done.translation  # doctest: +ELLIPSIS
    <Translation migration/store: 150 vectors, 32 -> 24 dimensions, 100 of them true, in ... s>
    >>> done.report.outcome in set(migrate.Outcome)
    True
    """
    if reference not in (BUILD, POOL):
        raise UsageError(f'reference: expected "pool" or "build", found {reference!r}; name one of these')
    opened = store_of(store, verify=True)
    old = model_of(opened, source_model, "source_model") if source_model is not None or _is_at_hand(opened) else None
    request = MigrationRequest(
        opened,
        model_at(target),
        _questions(opened, beir, queries, split, group_field, seed, progress),
        Path(output),
        source_embedder=old,
        stitch=stitch,
        size=sample,
        prefix=prefix,
        margin=margin,
        pool=reference == POOL,
        seed=seed,
        force=force,
        restart=restart,
    )
    return plan_migration(request).run_within(max_cost, progress=progress)


def fit(
    store: StoreLike,
    target: ModelLike,
    *,
    stitch: str | Sequence[str] = AUTO,
    sample: int = SAMPLE_SIZE,
    direction: Direction = DOCUMENT,
    prior: FittedStitch | str | Path | None = None,
    prefix: int | None = None,
    seed: int = 0,
    max_cost: float | None = MAX_COST_USD,
    progress: Progress = no_progress,
) -> FittedStitch:
    """Embed a sample of a store with the target model, and fit the stitch that does best on held-out documents.

    Parameters
    ----------
    store
        A store, or its path.
    target
        The model to move to, or its spec, such as `openai:text-embedding-3-small`.
    stitch
        Spec of the stitch, `auto` for all that apply, or several: held-out retrieval chooses among them.
    sample
        Documents to learn from. These are embedded, which is what a fit costs.
    direction
        "document" maps the store's vectors into the target space, "query" new queries into the space of the store.
    prior
        A stitch of the same two models from another corpus, or its path, which the fit may lean on.
    prefix
        First tokens of each text to embed too, and to lean on where that keeps more than the same tokens spent on a
        larger sample; a translation then embeds those of every text.
    seed
        Of the sample and of what is random in a fit.
    max_cost
        US dollars that all models together may cost, by their estimate before anything is spent, and by what is spent
        then; None for no limit. A model without a known price is not limited.
    progress
        Called with a step, how much of it is done, and how much there is.

    Raises
    ------
    LeadMigrateError
        As `migrate.fit.plan_fit`, which has further options and says beforehand what it will cost.

    Examples
    --------
    >>> import migrate
    >>> migrate.fit("my-store", "tfidf:24", stitch="ridge", sample=100)  # doctest: +ELLIPSIS
    <FittedStitch ridge: tfidf:32 -> tfidf:24, 32 -> 24 dimensions, 100 pairs, held-out overlap@10 0...>
    """
    leaning = load_stitch(prior) if isinstance(prior, str | Path) else prior
    options = FitOptions(direction=direction, stitch=stitch, size=sample, prior=leaning, prefix=prefix, seed=seed)
    return plan_fit(store_of(store), model_at(target), options).run_within(max_cost, progress=progress)


translate = function(Translate)


def embed(
    documents: Sequence[Document],
    model: ModelLike,
    output: str | Path,
    *,
    force: bool = False,
    restart: bool = False,
    max_cost: float | None = MAX_COST_USD,
    progress: Progress = no_progress,
) -> Embedding:
    """Embed documents into a new store, a folder with a FAISS index.

    Parameters
    ----------
    documents
        At least one, each with an id of its own and a text that is not blank.
    model
        The model, or its spec.
    output
        A new folder. It appears when it is complete; the same call continues one that broke off.
    force
        Replace an output that is there.
    restart
        Discard what an unfinished run has left.
    max_cost
        As in `fit`.
    progress
        Called with a step, how much of it is done, and how much there is.

    Raises
    ------
    LeadMigrateError
        As `migrate.embed.embed_corpus`; and a SpendingError beyond `max_cost`.

    Examples
    --------
    >>> import migrate
    >>> documents = list(migrate.open_store("my-store").documents())
    >>> migrate.embed(documents, "tfidf:24", "new-store")
    <Embedding new-store: 150 vectors of dimension 24>
    """
    plan = plan_embed(lambda: documents, model_at(model), Path(output), force=force, restart=restart)
    return plan.run_within(max_cost, progress=progress)


reembed = function(Reembed)


audit = function(Audit)


def _questions(
    store: Store,
    beir: str | Path | QuerySet | None,
    queries: str | Path | None,
    split: str,
    group_field: str | None,
    seed: int,
    progress: Progress,
) -> QuerySet:
    """The queries that judge a store."""
    if isinstance(beir, QuerySet) and queries is None:
        return beir if group_field is None else by_field(beir, group_field)
    judged = beir.name if isinstance(beir, QuerySet) else beir
    return load_query_set(store, judged, queries, split=split, group_field=group_field, seed=seed, progress=progress)


sync = function(Sync)


def check(
    store: StoreLike,
    model: ModelLike,
    *,
    sample: int = CHECKED,
    manifest: ManifestUse = "trust",
    seed: int = 0,
    progress: Progress = no_progress,
) -> Compatibility:
    """Say whether a store's vectors are those that a model gives to its texts, or why not.

    Parameters
    ----------
    store
        A store, or its path.
    model
        A model, or its spec.
    sample
        Documents to embed again.
    manifest
        "trust" lets the store's manifest answer, "compare" holds it against what is found, "ignore" leaves it unread.
    seed
        Of the sample.
    progress
        Called with a step, how much of it is done, and how much there is.

    Raises
    ------
    LeadMigrateError
        As `migrate.check.check_store`.

    Examples
    --------
    >>> import migrate
    >>> migrate.check("my-store", "tfidf:24")
    <Compatibility not compatible with tfidf:24: the store has 32 dimensions, the model gives 24>
    """
    return check_store(store_of(store), model_at(model), sample=sample, manifest=manifest, seed=seed, progress=progress)


def stamp(
    store: StoreLike,
    model: ModelLike,
    *,
    sample: int = CHECKED,
    trust: bool = False,
    force: bool = False,
    seed: int = 0,
    progress: Progress = no_progress,
) -> Stamp:
    """Write beside a store which model it is of, after checking that it is; nothing is written where it is not.

    Parameters
    ----------
    store
        A store, or its path.
    model
        A model, or its spec.
    sample
        Documents to embed again for the check.
    trust
        Write it unchecked; the dimension must still fit.
    force
        Replace a manifest that is there.
    seed
        Of the sample.
    progress
        Called with a step, how much of it is done, and how much there is.

    Raises
    ------
    LeadMigrateError
        As `migrate.check.stamp_store`.

    Examples
    --------
    >>> import migrate
    >>> migrate.stamp("my-store", "tfidf:32", force=True).checked
    <Compatibility compatible with tfidf:32: the model gives the stored vectors for all 32 sampled documents>
    """
    opened = store_of(store)
    embedder = load_embedder(model, state=folder_of(opened)) if isinstance(model, str) else model
    return stamp_store(opened, embedder, sample=sample, trust=trust, force=force, seed=seed, progress=progress)


def inspect(store: StoreLike) -> dict[str, Any]:
    """Tell what is in a store or a stitch, as `lead-migrate inspect --json` does.

    Parameters
    ----------
    store
        A store, or its path, or that of a stitch. Of a folder or a database with several stores, `stores` lists them.

    Raises
    ------
    LeadMigrateError
        As `open_store`, or `load_stitch`.

    Examples
    --------
    >>> import migrate
    >>> facts = migrate.inspect("my-store")
    >>> facts["vectors"], facts["dimension"], facts["model"]
    (150, 32, 'tfidf:32')
    """
    return inspect_document(store)


def switch(
    old: StoreLike,
    new: StoreLike,
    report: AuditReport | str | Path | None = None,
    *,
    unproven: bool = False,
) -> Switch:
    """Let the new store answer where the old one did, and the old one step aside until `rollback` or `forget`.

    Parameters
    ----------
    old, new
        Stores of one kind with the same ids, or their paths.
    report
        An audit with `source` that found the new one SAFE, or the JSON report of one; by default the one that `run`
        left beside it. A full re-embed needs none.
    unproven
        Do without.

    Raises
    ------
    LeadMigrateError
        As `migrate.switch.switch_store`.

    Examples
    --------
    >>> import migrate
    >>> _ = migrate.reembed("my-store", "tfidf:24", "new-store")
    >>> migrate.switch("my-store", "new-store").model
    'tfidf:24'
    >>> migrate.inspect("my-store")["dimension"]
    24
    >>> migrate.rollback("my-store").old_model
    'tfidf:32'
    """
    proof = audit_document(report) if isinstance(report, AuditReport) else None if report is None else Path(report)
    return switch_store(_location(old), _location(new), report=proof, unproven=unproven)


def rollback(old: StoreLike) -> Switch:
    """Undo a `switch`: the old store answers again, and the new one where it was before.

    Parameters
    ----------
    old
        What was switched, or its path.

    Raises
    ------
    LeadMigrateError
        As `migrate.switch.roll_back`.
    """
    return roll_back(_location(old))


def forget(old: StoreLike) -> Switch:
    """Delete the old store that stepped aside in a `switch`, and nothing else. It cannot be rolled back then.

    Parameters
    ----------
    old
        What was switched, or its path.

    Raises
    ------
    LeadMigrateError
        As `migrate.switch.forget_switch`.
    """
    return forget_switch(_location(old))


def assess(
    store: StoreLike,
    target: ModelLike,
    *,
    price_usd_per_mtok: float | None = None,
    rate: str | None = None,
    budget: str | None = None,
    stitch: FittedStitch | str | Path | None = None,
    keep: float | None = None,
    progress: Progress = no_progress,
) -> Assessment:
    """Tell what moving a store would cost, in tokens, dollars, hours and bytes. Spends nothing, and asks no server.

    Parameters
    ----------
    store
        A store with texts, or its path.
    target
        The model to move to, or its spec.
    price_usd_per_mtok
        Dollars for a million tokens; by default what is known of the model.
    rate
        How fast texts are embedded, such as 3000/min or 1000000tok/min; by default what OpenAI allows in its tier 1.
    budget
        Dollars or tokens to spend, such as $50 or 300000tok: plans say what they buy.
    stitch
        One that was fitted on the store, or its path: says what to expect of the plans.
    keep
        With a `stitch`, the overlap@10 to expect (0-1): `best` is then the cheapest plan that should have it.
    progress
        Called with a step, how much of it is done, and how much there is.

    Raises
    ------
    LeadMigrateError
        As `migrate.cost.assess_store`, which has further options.

    Examples
    --------
    >>> import migrate
    >>> migrate.assess("my-store", "openai:text-embedding-3-small")  # doctest: +ELLIPSIS
    <Assessment of my-store -> openai:text-embedding-3-small: ... tokens, $0.00... for a full re-embed, ... plans>
    """
    facts = (
        find_target(target, price_usd_per_mtok=price_usd_per_mtok)
        if isinstance(target, str)
        else target.profile.at_price(price_usd_per_mtok)
    )
    limits = tier_rate() if facts.is_api else None
    known = limits if rate is None else Rate.parse(rate).completed(limits)
    opened, money = store_of(store), None if budget is None else Budget.parse(budget)
    if money is not None and money.unit not in ("usd", "tokens"):
        raise UsageError(f"expected a budget in dollars such as $50, or in tokens such as 300000tok, found {budget!r}")
    fitted = load_stitch(stitch) if isinstance(stitch, str | Path) else stitch
    if keep is not None and (fitted is None or budget is not None):
        raise UsageError("keep goes with a stitch, which says what to expect, and without a budget")
    return assess_store(
        opened,
        facts,
        rate=known,
        budget_usd=None if money is None or money.unit != "usd" else money.amount,
        budget_tokens=None if money is None or money.unit != "tokens" else int(money.amount),
        quality=None if fitted is None else stitch_quality(fitted, opened, facts.spec),
        keep=keep,
        progress=progress,
    )


def _location(store: StoreLike) -> str:
    """Where a store is, in full: a switch is noted, and undone from whatever folder."""
    return absolute_location(store.info.location if isinstance(store, Store) else store)


def _is_at_hand(store: Store) -> bool:
    """Whether the model in a store's manifest can be had: it is no file that is elsewhere, and no code to be run."""
    known = store.info.manifest.model if store.info.manifest else None
    if known is None or runs_code(known.spec):
        return False
    kind, name = split_spec(known.spec)
    return kind != "file" or Path(name).is_file()
