"""The inputs of an audit: stores of the same documents, queries, models and options, and the checks of these.

Also here: the bridge's own check, and how the documents that queries are about are looked up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from migrate.audit.measures import Qrels
from migrate.audit.query_groups import group_notes, with_groups
from migrate.audit.query_set import Keys, QuerySet, document_keys, keys_of
from migrate.audit.reference import (
    check_source,
    check_target,
    prove_reference,
    refuse_same_source,
)
from migrate.audit.results import BRIDGE, FULL, STAY, TRANSLATED, check_plan, prefix_name
from migrate.audit.retrieval import Retriever
from migrate.audit.verdict import Finding, doubt
from migrate.check.again import prove_model
from migrate.cost import tally_of
from migrate.embedders.again import ASKED_AGAIN, prove_answers
from migrate.embedders.base import Embedder
from migrate.embedders.kinds import split_spec
from migrate.embedders.prefix import PrefixEmbedder
from migrate.errors import InputError, StitchError, StoreError, UsageError, VectorError
from migrate.manifest import ModelIdentity
from migrate.search.runs import Run
from migrate.steps.translate.choice import CONFIDENCE, require_confidence
from migrate.stitch.fitted import QUERY, FittedStitch, require_direction
from migrate.stores.all_true import TRUE
from migrate.stores.base import Store
from migrate.stores.confidence import distrust, find_outside
from migrate.stores.file_store import verify_files
from migrate.vectors import Document, Progress, Vectors, query_key

if TYPE_CHECKING:
    from migrate.audit.step import Audit

AGAIN = 3 * ASKED_AGAIN
"""Texts that the target model embeds again at most: of the store, of the queries, and of a pool."""

_READ = 2_000
"""Texts to count the tokens of, for a free model."""


def _check_same_documents(stores: Mapping[str, Store], keys: Mapping[str, Keys], *, standard: str) -> None:
    """Make sure that every store holds the documents of the store called `standard`."""
    expected = set(keys[standard].values())
    for name, store in stores.items():
        strange = expected.symmetric_difference(keys[name].values())
        if expected.isdisjoint(keys[name].values()) and not store.info.has_texts:
            raise StoreError(
                f"{store.info.location}: expected the documents of {stores[standard].info.location}, found row numbers "
                "such as '0' and no documents; put the docs.jsonl beside the index that has their ids"
            )
        if strange:
            raise StoreError(
                f"{store.info.location}: expected the documents of {stores[standard].info.location}, found "
                f"{len(strange)} that only one of them has, such as {min(strange)!r}; audit stores of the same corpus"
            )


def _notes(query_set: QuerySet, translated: Store) -> Iterator[str]:
    """Yield what there is to know of the queries and of the translated store, before it is searched."""
    yield from query_set.notes
    distinct, count = len(query_set.distinct), len(query_set.queries)
    if distinct < count:
        yield (
            f"{count - distinct:,} of {count:,} queries repeat the text of another, but for case and white space; each "
            f"of the {distinct:,} texts counts once, by the mean of its scores"
        )
    manifest = translated.info.manifest
    n_true = manifest.counts.get(TRUE, 0) if manifest else 0
    if n_true:
        is_known = n_true == translated.info.count or (manifest and manifest.store.filled_in)
        origin = "" if is_known else ": the sample the stitch was fitted on"
        yield f"{n_true:,} of {translated.info.count:,} vectors are true ones{origin}"
    why = distrust(translated)
    if why is not None:
        yield f"{why}; nothing is sliced by it, nor is it said which documents lie outside what the sample covers"
    elif (outside := find_outside(translated)) is not None:
        yield outside.sentence


def _echoes(query_set: QuerySet, keys: Keys, documents: Iterable[Document]) -> tuple[Finding, ...]:
    """Return a doubt where more than a tenth of the queries are, word for word, a document that they look for.

    Every model retrieves a text by itself, however many vectors are wrong.
    """
    wanted: dict[str, set[str]] = {}
    for query in query_set.queries:
        grades = (query_set.qrels or {}).get(query.id, {})
        wanted.setdefault(query_key(query.text), set()).update(d for d, grade in grades.items() if grade > 0)
    same = {key for document in documents if keys[document.id] in wanted.get(key := query_key(document.text), ())}
    if len(same) <= 0.1 * len(query_set.distinct):
        return ()
    text = (
        f"{len(same):,} of {len(query_set.distinct):,} queries are word for word the document that they look for, "
        "which every model finds: use queries that users ask"
    )
    return (doubt(text),)


def quotes(retriever: Retriever, full: Run) -> tuple[Finding, ...]:
    """Return a doubt where more than a tenth of unjudged queries stand word for word in the first document they find.

    Queries of less than five words may do so by chance.
    """
    query_set, store = retriever.query_set, retriever.stores[TRANSLATED]
    if query_set.qrels is not None or query_set.exclude_self:
        return ()
    firsts = representative_docs(retriever, full)
    texts = texts_of(store, rows_of(retriever.keys[TRANSLATED], list(firsts.values())))
    count = sum(
        len(query.text.split()) >= 5 and query_key(query.text) in query_key(texts.get(firsts[query.id], ""))
        for query in query_set.distinct
        if query.id in firsts
    )
    if count <= 0.1 * len(query_set.distinct):
        return ()
    text = (
        f"{count:,} of {len(query_set.distinct):,} queries stand word for word in the document that they find first, "
        "which every model finds: use queries that users ask, or --queries synthetic, which leaves that document out"
    )
    return (doubt(text),)


def _coverage(query_set: QuerySet, keys: Keys) -> tuple[Finding, ...]:
    """Return a caveat where judged documents are not in the stores; refuse judgements of none that is."""
    relevant = {d for grades in (query_set.qrels or {}).values() for d, grade in grades.items() if grade > 0}
    if query_set.qrels is not None and not relevant:
        raise InputError(
            f"{query_set.name}: expected judgements above 0, found none in {len(query_set.qrels):,} queries; give "
            "judgements by which some document is relevant"
        )
    missing = relevant.difference(keys.values())
    if relevant and missing == relevant:
        raise InputError(
            f"{query_set.name}: expected judgements of the documents in the stores, found none ({min(relevant)!r} is "
            f"relevant, the stores have {next(iter(keys.values()), 'nothing')!r}); is it the right BEIR set, and "
            "--parent-field the right field?"
        )
    if not missing:
        return ()
    grades = [(query_set.qrels or {}).get(query.id, {}) for query in query_set.distinct]
    wanted = [{doc_id for doc_id, grade in own.items() if grade > 0} for own in grades]
    judged = [documents for documents in wanted if documents]
    lost = sum(documents <= missing for documents in judged)
    queries = f", and {lost:,} of {len(judged):,} queries say nothing for want of them" if lost else ""
    text = (
        f"{len(missing):,} of {len(relevant):,} relevant documents are not in the stores, so that no arm can find "
        f"them{queries}"
    )
    return (Finding("caveat", text),)


def bridged_store(bridge: FittedStitch, source: Store | None, model: ModelIdentity) -> Store:
    """The store that `bridge` leads to, after making sure that it leads there from `model`."""
    if source is None:
        raise UsageError("expected the source store that the bridge leads to, found none; name it with --source STORE")
    path, fitted_for = source.info.location, bridge.manifest.model
    require_direction(bridge.manifest, QUERY, source=str(path))
    difference = source.snapshot().difference(bridge.manifest.stitch.fitted_on)
    if difference is not None:
        raise StitchError(
            f"{path}: the bridge was fitted on another store ({difference}); fit one on this store with "
            "--direction query"
        )
    if fitted_for is not None and not _may_be_same(fitted_for, model):
        raise StitchError(
            f"{path}: expected a bridge for queries of {_name(model)}, found one for those of {_name(fitted_for)}; fit "
            "one for the model that embeds the queries"
        )
    return source


def _may_be_same(first: ModelIdentity, second: ModelIdentity) -> bool:
    """Return whether two models may be the same; vectors from files do not say which model made them."""
    if first.dim != second.dim:
        return False
    if any(split_spec(model.spec)[0] == "file" for model in (first, second)):
        return True
    revisions = (first.revision, second.revision)
    return first.spec == second.spec and (first.revision == second.revision or None in revisions)


def _name(model: ModelIdentity) -> str:
    revision = f" at revision {model.revision[:12]}" if model.revision else ""
    return f"{model.spec} ({model.dim} dimensions{revision})"


def check_request(audit: Audit) -> None:
    """Make sure, before anything is embedded, that stores, queries and arms go together."""
    translated, query_set = audit.translated, audit.query_set
    check_target(translated, audit.embedder)
    check_plan(audit.plan, translated.info.count)
    if audit.prefixes and not translated.info.has_texts:
        raise StoreError(
            f"{translated.info.location}: expected texts, whose first tokens `prefix` embeds, found vectors only; "
            f"{translated.info.way_to_texts}, or leave out `prefix`"
        )
    for tokens in audit.prefixes:
        PrefixEmbedder(audit.embedder, tokens)
    if query_set.chances is not None and audit.stitch is not None:
        raise UsageError(
            f"--frontier: the queries of {query_set.name} were drawn to judge one store, and cannot judge others; "
            "leave --frontier out, or judge by queries that were drawn evenly"
        )
    if query_set.chances is not None and audit.is_pooled:
        raise UsageError(
            f"the queries of {query_set.name} were drawn by the rankings of a full re-embed, which a pool lacks; use "
            "--reference build or a store, or judge by queries that were drawn evenly"
        )
    if audit.stitch is not None and audit.is_pooled:
        raise UsageError(
            "a frontier needs the true vectors of all documents, which a pool lacks; use --reference build"
        )
    if audit.frontier_stitch is not None and CONFIDENCE in audit.policy:
        require_confidence(audit.frontier_stitch)
    if audit.bridge_stitch is not None:
        bridged_store(audit.bridge_stitch, audit.source_store, audit.embedder.identity)
    if audit.judge_next is not None:
        _check_drawing(audit)


def prepare_audit(
    audit: Audit, reference: Store | None = None, prefixes: Mapping[int, Store] = MappingProxyType({})
) -> Retriever:
    """Check all inputs against each other, then embed the queries, which may cost money.

    `reference` is the full re-embed, None for a pool, and `prefixes` are stores of first tokens by how many there are.
    """
    translated, embedder, query_set = audit.translated, audit.embedder, audit.judging
    source, seed, progress = audit.source_store, audit.seed, audit.progress
    if not query_set.queries:
        raise InputError(f"{query_set.name}: expected queries to audit with, found none")
    stores, embedders = _stores(audit, reference, prefixes)
    for store in {id(store): store for store in (*stores.values(), source) if store is not None}.values():
        verify_files(store)
    documents = list(translated.documents()) if audit.bm25 and translated.info.has_texts else None
    keys = {
        name: keys_of(documents, audit.parent_field)
        if documents is not None and name == TRANSLATED
        else document_keys(store, audit.parent_field)
        for name, store in stores.items()
    }
    _check_same_documents(stores, keys, standard=TRANSLATED if reference is None else FULL)
    findings = list(_coverage(query_set, keys[TRANSLATED]))
    findings += [Finding("note", text) for text in _notes(query_set, translated)]
    _check_dimensions(stores, embedders)
    proof = None
    if reference is None:
        refuse_same_source(source, translated)
        check_target(translated, embedder)
        prove_model(translated, embedder, seed=seed)
    else:
        both = (keys[TRANSLATED], keys[FULL])
        proof = prove_reference(translated, reference, embedder, both, source=source, seed=seed, progress=progress)
        findings += proof.findings
    if source is not None and audit.source_embedder is not None:
        check_source(source, audit.source_embedder, seed=seed, progress=progress)
    texts = documents if documents is not None or not translated.info.has_texts else translated.documents()
    findings += _echoes(query_set, keys[TRANSLATED], texts or ())
    vectors = _query_vectors(embedders, query_set, progress)
    prove_answers(embedder, query_set.queries, vectors[TRANSLATED], "query", source=query_set.name)
    query_set = with_groups(query_set, vectors[FULL])
    findings += group_notes(query_set)
    if audit.bridge_stitch is not None:
        vectors[BRIDGE] = audit.bridge_stitch.map_queries(vectors[FULL], source=query_set.name)
    tally = tally_of(embedder, audit.price)
    return Retriever(audit, query_set, tally, stores, keys, vectors, documents, tuple(findings), proof)


def _check_drawing(audit: Audit) -> None:
    """Make sure that there is something to draw queries for judging from."""
    name = audit.query_set.name
    if audit.query_set.exclude_self:
        raise UsageError(
            f"--judge-next: {name}: these queries are documents, or made from them; give --queries FILE with some that "
            "users ask"
        )
    if audit.query_set.qrels is not None:
        raise UsageError(
            f"--judge-next: the queries of {name} are judged already; give --queries FILE with others that users ask"
        )
    if audit.is_pooled:
        raise UsageError(
            "--judge-next: queries are drawn by the rankings of a full re-embed, which a pool lacks; use --reference "
            "build or a store"
        )


def _stores(
    audit: Audit, reference: Store | None, prefixes: Mapping[int, Store]
) -> tuple[dict[str, Store], dict[str, Embedder]]:
    """Return the stores that are searched, and the models that embed the queries for them, by the name of the arm."""
    stores = {} if reference is None else {FULL: reference}
    stores[TRANSLATED] = audit.translated
    embedders = {FULL: audit.embedder, TRANSLATED: audit.embedder}
    if audit.source_store is not None and audit.source_embedder is not None:
        stores[STAY], embedders[STAY] = audit.source_store, audit.source_embedder
    if audit.bridge_stitch is not None:
        stores[BRIDGE] = bridged_store(audit.bridge_stitch, audit.source_store, audit.embedder.identity)
    for tokens, store in prefixes.items():
        stores[prefix_name(tokens)], embedders[prefix_name(tokens)] = store, audit.embedder
    return stores, embedders


def _check_dimensions(stores: Mapping[str, Store], embedders: Mapping[str, Embedder]) -> None:
    for name in stores.keys() & embedders.keys():
        embedder = embedders[name]
        identity, info = embedder.identity, stores[name].info
        if identity.dim != info.dim:
            raise VectorError(
                f"{info.location}: expected vectors of dimension {identity.dim}, as {identity.spec} gives, found "
                f"{info.dim}; name the model that the store was built with"
            )


def _query_vectors(embedders: Mapping[str, Embedder], query_set: QuerySet, progress: Progress) -> dict[str, Vectors]:
    """The queries as each arm's model embeds them; arms of one model share the vectors, which may cost money."""
    vectors_of: dict[int, Vectors] = {}
    for embedder in embedders.values():
        if id(embedder) not in vectors_of:
            vectors_of[id(embedder)] = embedder.embed_queries(query_set.queries, progress=progress)
    return {name: vectors_of[id(embedder)] for name, embedder in embedders.items()}


def representative_docs(retriever: Retriever, full: Run) -> Mapping[str, str]:
    """The one document that says what a query is about: its relevant document that the full re-embed ranks first.

    Where it retrieves none of them, the relevant one of the highest grade; without judgements, its first document.
    A query without relevant documents has none.
    """
    doc_ids = set(retriever.keys[FULL].values())
    by_query = {q: _representative(q, retriever.query_set.qrels, full, doc_ids) for q in retriever.query_set.query_ids}
    return {query_id: doc_id for query_id, doc_id in by_query.items() if doc_id is not None}


def _representative(query_id: str, qrels: Qrels | None, full: Run, doc_ids: set[str]) -> str | None:
    ranking = full.rankings.get(query_id, ())
    if qrels is None:
        return ranking[0] if ranking else None
    grades = {d: grade for d, grade in qrels.get(query_id, {}).items() if grade > 0 and d in doc_ids}
    first = next((doc_id for doc_id in ranking if doc_id in grades), None)
    return first or max(sorted(grades), key=grades.__getitem__, default=None)


def rows_of(keys: Mapping[str, str], wanted: Sequence[str]) -> Mapping[str, int]:
    """The first row of each wanted document, in a store whose ids `keys` has in its order."""
    left = set(wanted)
    rows: dict[str, int] = {}
    for row, key in enumerate(keys.values()):
        if key in left:
            rows[key] = row
            left.discard(key)
    return rows


def texts_of(store: Store, rows: Mapping[str, int]) -> Mapping[str, str]:
    """The texts of documents by their rows; none where the store has none."""
    if not store.info.has_texts or not rows:
        return {}
    order = np.array(list(rows.values()), dtype=np.int64)
    return dict(zip(rows, (document.text for document in store.documents(order)), strict=True))
