"""The inputs of an audit: stores of the same documents, queries and models, and the checks of these."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import TYPE_CHECKING

from migrate.audit import findings
from migrate.audit.arms import own_arms
from migrate.audit.document_queries import without_documents
from migrate.audit.keys import Keys, document_keys
from migrate.audit.query_groups import with_groups
from migrate.audit.reference import check_source, check_target, is_file, prove_reference, refuse_same_source
from migrate.audit.results import BRIDGE, FULL, STAY, TRANSLATED, check_plan
from migrate.audit.retrieval import Retriever
from migrate.check.again import prove_model
from migrate.cost import tally_of
from migrate.embedders.again import ASKED_AGAIN, prove_answers
from migrate.errors import InputError, StitchError, StoreError, UsageError
from migrate.manifest import ModelIdentity
from migrate.stitch.fitted import QUERY, require_direction
from migrate.stores.base import Store

if TYPE_CHECKING:
    from migrate.audit.step import Audit

AGAIN = 3 * ASKED_AGAIN
"""Texts that the target model embeds again at most: of the store, of the queries, and of a pool."""


def check_request(audit: Audit) -> None:
    """Make sure, before anything is embedded, that stores, queries and arms go together."""
    translated = audit.translated
    check_target(translated, audit.embedder)
    _check_effort(audit)
    _check_plan(audit)
    _check_bridge(audit)


def _check_effort(audit: Audit) -> None:
    """Make sure that searches have the setting that a program is said to set."""
    if audit.search_effort is None:
        return
    setting = audit.translated.setting
    if setting is None or setting.most <= setting.value:
        stored = "" if setting is None else f", and {setting.name} is a part of the store"
        raise UsageError(
            f"--search-effort: searches of {audit.translated.info.location} have no setting{stored}; leave it out"
        )


def _check_plan(audit: Audit) -> None:
    """Make sure that there may be an arm of the plan; arms of somebody's own say their names before they rank."""
    translated = audit.translated
    stores = {FULL: audit.full or translated, TRANSLATED: translated}
    tally, in_pool = tally_of(audit.embedder, audit.price), audit.is_pooled
    empty = Retriever(audit.settings, audit.query_set, audit.embedder, tally, stores, {}, {}, in_pool=in_pool)
    own_names = [choice.name for arms in own_arms() for choice in arms(empty)]
    has_source = audit.source_store is not None
    has_old_model, has_bridge = (
        has_source and extra is not None for extra in (audit.source_embedder, audit.bridge_stitch)
    )
    check_plan(audit.plan, translated.info.count, own_names, has_old_model=has_old_model, has_bridge=has_bridge)


def _check_bridge(audit: Audit) -> None:
    """Make sure that a bridge leads from the target model to the source store."""
    bridge, source, model = audit.bridge_stitch, audit.source_store, audit.embedder.identity
    if bridge is None:
        return
    if source is None:
        raise UsageError("--bridge leads to a source store, and none is named; name it with --source STORE")
    location, fitted_for = source.info.location, bridge.manifest.model
    require_direction(bridge.manifest, QUERY, source=str(location))
    difference = source.snapshot().difference(bridge.manifest.stitch.fitted_on)
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
    return first.spec == second.spec and (first.revision == second.revision or None in revisions)


def _name(model: ModelIdentity) -> str:
    revision = f" at revision {model.revision[:12]}" if model.revision else ""
    return f"{model.spec} ({model.dim} dimensions{revision})"


def prepare_audit(audit: Audit, reference: Store | None = None) -> Retriever:
    """Check all inputs against each other, then embed the queries, which may cost money.

    `reference` is the full re-embed, None for a pool.
    """
    translated, embedder, query_set = audit.translated, audit.embedder, audit.judging
    source, source_model, seed, progress = audit.source_store, audit.source_embedder, audit.seed, audit.progress
    if not query_set.queries:
        raise InputError(f"{query_set.name} has no queries to audit with; give some")
    stores = _stores(audit, reference)
    for store in {id(store): store for store in (*stores.values(), source) if store is not None}.values():
        store.verify()
    different_stores = {id(store): store for store in stores.values()}
    keys_by_store = {key: document_keys(store, audit.parent_field) for key, store in different_stores.items()}
    keys = {name: keys_by_store[id(store)] for name, store in stores.items()}
    _check_same_documents(stores, keys, standard=TRANSLATED if reference is None else FULL)
    noticed = findings.of_inputs(query_set, translated, keys[TRANSLATED])
    models = dict.fromkeys((FULL, *stores), embedder)
    if source_model is not None and STAY in stores:
        models[STAY] = source_model
    for name, store in stores.items():
        if name != BRIDGE:
            models[name].expect_dim(store.info.dim, store.info.location)
    proof = None
    if reference is None:
        refuse_same_source(source, translated)
        check_target(translated, embedder)
        prove_model(translated, embedder, seed=seed)
    else:
        both = (keys[TRANSLATED], keys[FULL])
        proof = prove_reference(translated, reference, embedder, both, source=source, seed=seed, progress=progress)
        noticed += proof.findings
    if source is not None and source_model is not None:
        check_source(source, source_model, seed=seed, progress=progress)
    different = {id(model): model for model in models.values()}
    embedded = {key: model.embed_queries(query_set.queries, progress=progress) for key, model in different.items()}
    vectors, bridge, n_bridged = {name: embedded[id(model)] for name, model in models.items()}, audit.bridge_stitch, 0
    prove_answers(embedder, query_set.queries, vectors[TRANSLATED], "query", source=query_set.name)
    query_set = with_groups(query_set, vectors[FULL])
    if bridge is not None:
        vectors[BRIDGE] = bridge.map_queries(vectors[FULL], source=query_set.name)
        n_bridged = bridge.manifest.counts.get("pairs", 0)
    all_queries = Retriever(
        audit.settings,
        query_set,
        embedder,
        tally_of(embedder, audit.price),
        stores,
        keys,
        vectors,
        translated.info.has_texts and not audit.no_bm25,
        n_bridged,
        tuple(noticed),
        proof,
        old_answers=source_model is not None and source_model.profile.kind != "file",
        progress=progress,
    )
    retriever = without_documents(all_queries)
    judges = retriever.query_set
    return retriever.noting(*findings.repeated_texts(judges, translated, keys[TRANSLATED]), *findings.groups(judges))


def refuse_documents_found(audit: Audit) -> None:
    """Make sure, before a full re-embed, that enough queries without judgements are no documents that they find.

    It takes the vectors of the queries: nothing is done where no cache has these for the audit then.
    """
    query_set, embedder, store = audit.judging, audit.embedder, audit.translated
    if query_set.is_judged or query_set.exclude_self or not embedder.is_cached:
        return
    check_target(store, embedder)
    without_documents(
        Retriever(
            audit.settings,
            query_set,
            embedder,
            tally_of(embedder, audit.price),
            {TRANSLATED: store},
            {TRANSLATED: document_keys(store, audit.parent_field)},
            {TRANSLATED: embedder.embed_queries(query_set.queries, progress=audit.progress)},
            progress=audit.progress,
        )
    )


def _stores(audit: Audit, reference: Store | None) -> dict[str, Store]:
    """Return the stores that are searched, by the name of the arm."""
    stores = {} if reference is None else {FULL: reference}
    stores[TRANSLATED] = audit.translated
    if audit.source_store is not None and audit.source_embedder is not None:
        stores[STAY] = audit.source_store
    if audit.source_store is not None and audit.bridge_stitch is not None:
        stores[BRIDGE] = audit.source_store
    return stores


def _check_same_documents(stores: Mapping[str, Store], keys: Mapping[str, Keys], *, standard: str) -> None:
    """Make sure that every store holds the documents of the store called `standard`."""
    expected, location = keys[standard].documents, stores[standard].info.location
    for name, store in stores.items():
        documents = keys[name].documents
        strange = expected.lacking(documents), documents.lacking(expected)
        if len(strange[0]) == expected.distinct and not store.info.has_texts:
            raise StoreError(
                f"{store.info.location} has row numbers such as '0' instead of the ids of {location}; put the "
                "docs.jsonl that has these ids beside the index"
            )
        if count := sum(map(len, strange)):
            least = min(chain(expected.take(strange[0]), documents.take(strange[1])))
            raise StoreError(
                f"{store.info.location} and {location} hold different documents: only one of them has "
                f"{count:,}, such as {least!r}; audit stores of the same corpus"
            )
