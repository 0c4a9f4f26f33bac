"""The inputs of an audit: stores of the same documents, queries and models, and the checks of these."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

import numpy as np

from migrate.audit import findings
from migrate.audit.arms import Arm, own_arms
from migrate.audit.costs import Costs, costs_of
from migrate.audit.document_queries import refuse_queries, without_documents
from migrate.audit.experiment import Experiment, Searchable, without_rows
from migrate.audit.keys import Keys, document_keys
from migrate.audit.options import AuditOptions, names_store
from migrate.audit.pool import PoolStep, expected_documents
from migrate.audit.query_groups import with_groups
from migrate.audit.query_set import QuerySet, independent
from migrate.audit.reference_proof import (
    ReferenceProof,
    check_source,
    check_target,
    is_file,
    prove_reference,
    prove_target,
    refuse_same_stores,
    spot_documents,
)
from migrate.audit.results import BRIDGE, FULL, STAY, TOGETHER, TRANSLATED, TWO_STAGE, check_plan, find_plan, plan_word
from migrate.audit.retrieval import Runs
from migrate.audit.rules import Settings
from migrate.audit.verdict import Finding
from migrate.cost import tally_of
from migrate.cost.meter import SpendingCap
from migrate.cost.spending import SOURCE_MODEL, PlannedModel
from migrate.embed.corpus import AGAIN as EMBEDDED_AGAIN
from migrate.embedders.base import Embedder
from migrate.embedders.cache import cache_of
from migrate.errors import InputError, StitchError, StoreError, UsageError
from migrate.manifest import ModelIdentity
from migrate.search.own_index import own_index
from migrate.selection.choosers import Choosers, choosers_in, choosers_of
from migrate.selection.model_match import ASKED_AGAIN, Claim, matches
from migrate.steps.base import RunContext
from migrate.steps.opening import model_of, stitch_at, store_of
from migrate.stitch.fitted import QUERY, FittedStitch, require_direction
from migrate.stores.all_true import TRUE, is_full_reembed
from migrate.stores.base import Store, difference_from
from migrate.stores.file_store import check_files
from migrate.stores.serving import ClientError
from migrate.vectors import Document, Progress, Vectors

AGAIN = 3 * ASKED_AGAIN
"""Texts that the target model embeds again at most: of the store, of the queries, and of a pool."""


@dataclass(frozen=True, slots=True, eq=False)
class AuditInputs:
    """The stores, the models and the queries of an audit, with meters in the models.

    Attributes
    ----------
    full
        The full re-embed, None where none is there before the audit.
    source, source_embedder
        The store before the migration, and its model where somebody says which it is.
    bridge
        The stitch that maps queries to the source.
    query_set
        The queries that judge: without those that are held out, and those that chose documents.
    choosers
        The queries that chose true vectors of the translated store, before anything is embedded for the audit.
    announce
        Called with each step of a pool, before its documents are embedded.
    """

    translated: Store
    full: Store | None
    source: Store | None
    embedder: Embedder
    source_embedder: Embedder | None
    bridge: FittedStitch | None
    query_set: QuerySet
    choosers: Choosers
    settings: Settings
    progress: Progress
    announce: Callable[[PoolStep], None]

    @property
    def builds_reference(self) -> bool:
        """True where every text is embedded now."""
        return self.full is None and self.settings.pool_depth is None


ModelOf = Callable[[Store, Embedder | str | None, str], Embedder]
"""Loads the model that was named for a store, by `target` or `source_model`, or else the one that made it."""


def open_inputs(options: AuditOptions, context: RunContext, load: ModelOf = model_of) -> AuditInputs:
    """Open what an audit reads, and make sure that it goes together. Nothing is embedded.

    What is open already is taken as it is; models that are named are loaded by `load`.
    """
    translated = store_of(options.store, verify=True)
    embedder = context.cap.meter(load(translated, options.target, "target"), options.price)
    # Before anything else is opened, as the manifest tells a wrong model for nothing
    check_target(translated, embedder)
    _check_effort(options.search_effort, translated)
    full = None
    if names_store(options.reference):
        full = store_of(options.reference, verify=True)
    query_set = options.load_queries(translated, parent_field=options.parent_field, progress=context.progress)
    bridge = None
    if options.bridge is not None:
        bridge = stitch_at(options.bridge)
    source = None
    if options.source is not None:
        source = store_of(options.source, verify=True)
    refuse_same_stores(translated, full, source)
    choosers = choosers_in(translated, embedder)
    excluded = choosers.queries
    if bridge is not None:
        _check_bridge(bridge, source, embedder.identity)
        excluded = choosers.queries | choosers_of(bridge.manifest)
    # Queries that chose documents flatter the store that was made of them, so they do not judge it
    judging = independent(query_set, excluded)
    refuse_queries(judging, translated, options.parent_field)
    # Without its model the old store cannot be asked, and the arm `stay` is left out
    source_embedder = None
    if source is not None and (options.source_model is not None or _names_model(source)):
        source_embedder = context.cap.meter(load(source, options.source_model, "source_model"))
    inputs = AuditInputs(
        translated=translated,
        full=full,
        source=source,
        embedder=embedder,
        source_embedder=source_embedder,
        bridge=bridge,
        query_set=judging,
        choosers=choosers,
        settings=_settings_for(translated, options, context.margin_from),
        progress=context.progress,
        announce=context.announce.pool,
    )
    _check_plan(inputs)
    return inputs


def _names_model(store: Store) -> bool:
    return store.info.manifest is not None and store.info.manifest.model is not None


def _check_effort(search_effort: int | None, translated: Store) -> None:
    """Make sure that searches have the setting that a program is said to set."""
    if search_effort is None:
        return
    index = own_index(translated)
    setting = None if index is None else index.setting
    if index is None or setting is None or setting.is_stored:
        stored = ""
        if setting is not None:
            stored = f", and {setting.name} is a part of the store"
        raise UsageError(
            f"--search-effort: searches of {translated.info.location} have no setting{stored}; leave it out"
        )
    try:
        # Only the database knows which values it allows, so it is asked once before anything is paid
        index.search_index(translated.get(np.arange(1)).vectors, 1, search_effort)
    except ClientError as error:
        raise UsageError(f"--search-effort {search_effort:,}: {error}") from error


def _check_plan(inputs: AuditInputs) -> None:
    """Make sure that there may be an arm of the plan; arms of somebody's own say their names before they rank."""
    translated = inputs.translated
    # Nothing is read for it: arms of somebody's own are asked for their names before anything is embedded
    stores = {FULL: without_rows(inputs.full or translated), TRANSLATED: without_rows(translated)}
    unasked = Experiment(inputs.settings, inputs.query_set, stores, pool_depth=inputs.settings.pool_depth)
    choices = [choice for arms_of in own_arms() for choice in arms_of(unasked, Runs())]
    has_source = inputs.source is not None
    check_plan(
        inputs.settings.plan,
        translated.info.count,
        [choice.name for choice in choices],
        has_old_model=has_source and inputs.source_embedder is not None,
        has_bridge=has_source and inputs.bridge is not None,
    )
    # Only one that is skipped now may still turn out to be a plan, once it sees what the stores answer
    arms = [choice for choice in choices if isinstance(choice, Arm)]
    if plan_word(inputs.settings.plan) in {plan_word(arm.name) for arm in arms}:
        find_plan(inputs.settings.plan, (TRANSLATED, *(arm.name for arm in arms if arm.is_alternative)), {})


def _settings_for(translated: Store, options: AuditOptions, margin_from: str) -> Settings:
    """Return the options that stages read, without a plan of two stages where every vector is a true one already."""
    settings = _settings(options, margin_from)
    if is_full_reembed(translated) and plan_word(options.plan).startswith(TWO_STAGE):
        return replace(settings, plan=TRANSLATED, ranked_queries=None)
    return settings


def _settings(options: AuditOptions, margin_from: str) -> Settings:
    """Return the options that stages read."""
    return Settings(
        plan=options.plan,
        margin=options.margin,
        seed=options.seed,
        stages=options.depths(),
        slices=options.slice,
        pool_depth=options.pool_depth(),
        ranked_queries=options.ranked_queries,
        search_effort=options.search_effort,
        margin_from=margin_from,
        parent_field=options.parent_field,
        price=options.price,
    )


def _check_bridge(bridge: FittedStitch, source: Store | None, model: ModelIdentity) -> None:
    """Make sure that a bridge leads from the target model to the source store."""
    if source is None:
        raise UsageError("--bridge leads to a source store, and none is named; name it with --source STORE")
    location = source.info.location
    fitted_for = bridge.manifest.model
    require_direction(bridge.manifest, QUERY, source=str(location))
    difference = difference_from(source, bridge.manifest.stitch.fitted_on, source.snapshot())
    if difference is not None:
        raise StitchError(
            f"{location}: the bridge was fitted on another store ({difference}); fit one on this store with "
            "--direction query"
        )
    if fitted_for is not None and not _may_be_same(fitted_for, model):
        raise StitchError(
            f"{location}: the bridge is for queries of {_name(fitted_for)}, not of {_name(model)}; fit one for the "
            "model that embeds the queries"
        )


def _may_be_same(first: ModelIdentity, second: ModelIdentity) -> bool:
    """Return whether two models may be the same; vectors from files do not say which model made them."""
    if first.dim != second.dim:
        return False
    if is_file(first) or is_file(second):
        return True
    revisions = (first.revision, second.revision)
    # Not all models know their revision: an API has none
    return first.spec == second.spec and (first.revision == second.revision or None in revisions)


def _name(model: ModelIdentity) -> str:
    size = f"{model.dim} dimensions"
    if model.revision:
        size += f" at revision {model.revision[:12]}"
    return f"{model.spec} ({size})"


def planned_models(cap: SpendingCap, inputs: AuditInputs) -> tuple[PlannedModel, ...]:
    """Return the target, for the reference and all queries; and the source model."""
    queries = inputs.query_set.queries
    source = inputs.source
    # Texts that prove the model are in the cache by then, and are paid for once more
    n_past_cache = AGAIN
    if inputs.builds_reference:
        n_past_cache += EMBEDDED_AGAIN
    of_reference = partial(_documents_of_reference, inputs)
    target = PlannedModel(inputs.embedder, cap, documents=of_reference, queries=queries, again=n_past_cache)
    if source is None or inputs.source_embedder is None:
        return (target,)
    of_source = partial(spot_documents, source)
    return (
        target,
        PlannedModel(inputs.source_embedder, cap, SOURCE_MODEL, documents=of_source, queries=queries),
    )


def _documents_of_reference(inputs: AuditInputs) -> Iterable[Document]:
    """Return all documents, about those of a pool, or those that prove a store."""
    if inputs.full is not None:
        return spot_documents(inputs.full)
    if inputs.builds_reference:
        return inputs.translated.documents()
    extras = (inputs.source_embedder, inputs.bridge)
    arms = 1 + sum(extra is not None for extra in extras)
    both = inputs.source_embedder is not None
    if inputs.settings.ranked_queries is not None:
        both = both and plan_word(inputs.settings.plan).startswith(TOGETHER)
    return expected_documents(
        inputs.translated,
        inputs.query_set,
        arms,
        stages=inputs.settings.stages,
        together=both,
        ranked=inputs.settings.ranked_queries,
        seed=inputs.settings.seed,
    )


@dataclass(frozen=True, eq=False)
class Prepared:
    """An experiment whose inputs go together and whose queries are embedded, with what that has shown.

    `proof` is how the reference was shown to be one, None for a pool, whose is to come.
    """

    experiment: Experiment
    costs: Costs
    findings: tuple[Finding, ...]
    proof: ReferenceProof | None


def prepare_audit(inputs: AuditInputs, reference: Store | None = None) -> Prepared:
    """Check all inputs against each other, then embed the queries, which may cost money.

    `reference` is the full re-embed, None for a pool.
    """
    translated = inputs.translated
    query_set = inputs.query_set
    settings = inputs.settings
    if not query_set.queries:
        raise InputError(f"{query_set.name} has no queries to audit with; give some")
    stores = _stores(inputs, reference)
    _verify([*stores.values(), inputs.source])
    keys = _keys(stores, settings.parent_field)
    _check_same_documents(stores, keys)
    # Whatever can be known without a model is known before one is paid
    noticed = findings.of_inputs(query_set, translated, keys[TRANSLATED])
    models = _models(inputs, stores)
    proof = _proof(inputs, reference, keys)
    if proof is not None:
        noticed += proof.findings
    if inputs.source is not None and inputs.source_embedder is not None:
        check_source(inputs.source, inputs.source_embedder, seed=settings.seed, progress=inputs.progress)
    vectors = _query_vectors(inputs, models)
    experiment, of_copies = without_documents(_experiment(inputs, stores, keys, vectors))
    judges = experiment.query_set
    noticed += of_copies
    noticed += findings.repeated_texts(judges, translated, keys[TRANSLATED])
    noticed += findings.groups(judges)
    tally = tally_of(inputs.embedder, settings.price)
    costs = costs_of(tally, translated, ranks_words=experiment.ranks_words)
    return Prepared(experiment, costs, tuple(noticed), proof)


def _experiment(
    inputs: AuditInputs, stores: Mapping[str, Store], keys: Mapping[str, Keys], vectors: Mapping[str, Vectors]
) -> Experiment:
    """Return the experiment of all queries, in groups by their `vectors`, which have a set for each store."""
    source_model = inputs.source_embedder
    return Experiment(
        settings=inputs.settings,
        query_set=with_groups(inputs.query_set, vectors[FULL]),
        stores={
            name: Searchable(store, keys[name], vectors[name], _share_embedded(name, inputs))
            for name, store in stores.items()
        },
        ranks_words=inputs.translated.info.has_texts,
        old_answers=source_model is not None and source_model.profile.kind != "file",
        same_ids=FULL in keys and keys[TRANSLATED].has_ids_of(keys[FULL]),
        progress=inputs.progress,
    )


def _verify(stores: Iterable[Store | None]) -> None:
    """Compare the bytes of each store with its recorded hashes, once where two arms are of one store."""
    different = {id(store): store for store in stores if store is not None}
    for store in different.values():
        check_files(store)


def _keys(stores: Mapping[str, Store], parent_field: str) -> dict[str, Keys]:
    """Return the keys of each store, read once where two arms are of one store: that reads all its documents."""
    different = {id(store): store for store in stores.values()}
    keys_by_store = {key: document_keys(store, parent_field) for key, store in different.items()}
    return {name: keys_by_store[id(store)] for name, store in stores.items()}


def _models(inputs: AuditInputs, stores: Mapping[str, Store]) -> dict[str, Embedder]:
    """Return the model that embeds the queries for each store, whose dimensions go together."""
    models = dict.fromkeys((FULL, *stores), inputs.embedder)
    if inputs.source_embedder is not None and STAY in stores:
        models[STAY] = inputs.source_embedder
    for name, store in stores.items():
        # Queries for the bridge are mapped into the source's space, after the target has embedded them in its own
        if name != BRIDGE:
            models[name].expect_dim(store.info.dim, store.info.location)
    return models


def _proof(inputs: AuditInputs, reference: Store | None, keys: Mapping[str, Keys]) -> ReferenceProof | None:
    """Prove the reference; where a pool is to stand for it, make sure that the store is of the target model."""
    translated = inputs.translated
    seed = inputs.settings.seed
    if reference is None:
        prove_target(translated, inputs.embedder, seed=seed)
        return None
    both = (keys[TRANSLATED], keys[FULL])
    return prove_reference(translated, reference, inputs.embedder, both, seed=seed, progress=inputs.progress)


def _query_vectors(inputs: AuditInputs, models: Mapping[str, Embedder]) -> dict[str, Vectors]:
    """Return the vectors of all queries for each store, by the name of its arm; each model embeds them once."""
    query_set = inputs.query_set
    queries = query_set.queries
    different = {id(model): model for model in models.values()}
    embedded = {key: model.embed_queries(queries, progress=inputs.progress) for key, model in different.items()}
    vectors = {name: embedded[id(model)] for name, model in models.items()}
    # A server that mixes up its texts does so to queries too, and would take the blame to the store
    claim = Claim(queries, vectors[TRANSLATED], role="query")
    matches(claim, inputs.embedder, past_cache=True).require(query_set.name)
    if inputs.bridge is not None:
        vectors[BRIDGE] = inputs.bridge.map_queries(vectors[FULL], source=query_set.name)
    return vectors


def _share_embedded(name: str, inputs: AuditInputs) -> float:
    """Return how much of all documents, 0-1, the target model embeds to have the store of that name."""
    info = inputs.translated.info
    if name == FULL:
        return 1.0
    if name == TRANSLATED:
        if info.manifest is None:
            return 0.0
        return info.manifest.counts.get(TRUE, 0) / info.count
    if name == BRIDGE and inputs.bridge is not None:
        return inputs.bridge.manifest.counts.get("pairs", 0) / info.count
    return 0.0


def refuse_documents_found(inputs: AuditInputs) -> None:
    """Make sure, before a full re-embed, that enough queries without judgements are no documents that they find.

    It takes the vectors of the queries: nothing is done where no cache has these for the audit then.
    """
    query_set = inputs.query_set
    embedder = inputs.embedder
    store = inputs.translated
    if query_set.is_judged or query_set.exclude_self or cache_of(embedder) is None:
        return
    vectors = embedder.embed_queries(query_set.queries, progress=inputs.progress)
    translated = Searchable(store, document_keys(store, inputs.settings.parent_field), vectors)
    without_documents(Experiment(inputs.settings, query_set, {TRANSLATED: translated}, progress=inputs.progress))


def _stores(inputs: AuditInputs, reference: Store | None) -> dict[str, Store]:
    """Return the stores that are searched, by the name of the arm."""
    stores = {TRANSLATED: inputs.translated}
    if reference is not None:
        stores = {FULL: reference, **stores}
    if inputs.source is not None and inputs.source_embedder is not None:
        stores[STAY] = inputs.source
    if inputs.source is not None and inputs.bridge is not None:
        stores[BRIDGE] = inputs.source
    return stores


def _check_same_documents(stores: Mapping[str, Store], keys: Mapping[str, Keys]) -> None:
    """Make sure that every store holds the documents of the full re-embed, or of the translated store for a pool."""
    standard = next(name for name in (FULL, TRANSLATED) if name in stores)
    expected = keys[standard].documents
    location = stores[standard].info.location
    for name, store in stores.items():
        documents = keys[name].documents
        lacking = expected.lacking(documents)
        added = documents.lacking(expected)
        # An index without a file of ids numbers its rows, and has no id in common with the store it came from
        if len(lacking) == expected.distinct and not store.info.has_texts:
            raise StoreError(
                f"{store.info.location} has row numbers such as '0' instead of the ids of {location}; put the "
                "docs.jsonl that has these ids beside the index"
            )
        count = len(lacking) + len(added)
        if count:
            least = min(chain(expected.take(lacking), documents.take(added)))
            raise StoreError(
                f"{store.info.location} and {location} hold different documents: only one of them has "
                f"{count:,}, such as {least!r}; audit stores of the same corpus"
            )
