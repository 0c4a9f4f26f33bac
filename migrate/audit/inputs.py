"""The inputs of an audit: stores of the same documents, queries, models and options, and the checks of these.

Also here: the bridge's own check, and how the documents that queries are about are looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from migrate.audit.measures import Qrels
from migrate.audit.query_groups import group_notes, with_groups
from migrate.audit.query_set import PARENT_FIELD, Keys, QuerySet, document_keys, independent, keys_of
from migrate.audit.reference import (
    ReferenceProof,
    check_source,
    check_target,
    prove_reference,
    refuse_same_source,
)
from migrate.audit.results import BRIDGE, DEPTHS, FULL, STAY, TRANSLATED, ArmCost, prefix_name
from migrate.audit.verdict import MARGIN, RESAMPLES, Finding, doubt
from migrate.check.again import prove_model
from migrate.cost import Tally, tally_of, usd_of
from migrate.embedders.again import ASKED_AGAIN, prove_answers
from migrate.embedders.base import Embedder
from migrate.embedders.kinds import split_spec
from migrate.embedders.prefix import first_of, whole_embedder
from migrate.embedders.tokens import TokenCounter
from migrate.errors import InputError, StitchError, StoreError, UsageError, VectorError
from migrate.manifest import ModelIdentity
from migrate.search.runs import Run
from migrate.selection.choosers import Choosers, choosers_of, digests_of
from migrate.stitch.fitted import QUERY, FittedStitch, require_direction
from migrate.stores.all_true import TRUE
from migrate.stores.base import Store
from migrate.stores.confidence import distrust, find_outside
from migrate.stores.file_store import verify_files
from migrate.vectors import Document, Progress, Query, Vectors, no_progress, query_key

if TYPE_CHECKING:
    from migrate.audit.pool import PoolStep

_READ = 2_000
"""Texts to count the tokens of, for a free model."""

AGAIN = 3 * ASKED_AGAIN
"""Texts that the target model embeds again at most: of the store, of the queries, and of a pool."""


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


def quotes(inputs: PreparedAudit, full: Run) -> tuple[Finding, ...]:
    """Return a doubt where more than a tenth of unjudged queries stand word for word in the first document they find.

    Queries of less than five words may do so by chance.
    """
    query_set, store = inputs.query_set, inputs.stores[TRANSLATED]
    if query_set.qrels is not None or query_set.exclude_self:
        return ()
    firsts = representative_docs(inputs, full)
    texts = texts_of(store, rows_of(inputs.keys[TRANSLATED], list(firsts.values())))
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


POOL_DEPTH = 200
"""How many documents of the translated store a pool has at most for a query by default."""


@dataclass(frozen=True, eq=False)
class PoolReference:
    """Stands for a reference that is not there: true vectors are embedded for a pool of documents only.

    Attributes
    ----------
    depth
        How many documents of the translated store the pool has at most for a query (`migrate.audit.pool`).
    on_step
        Called with a `migrate.audit.pool.PoolStep` before its documents are embedded.
    """

    depth: int = POOL_DEPTH
    on_step: Callable[[PoolStep], None] = lambda _: None


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """The choices of an audit.

    Attributes
    ----------
    bm25
        Whether to have arms that rank by words too, where there are texts. Judged queries are ranked by BM25 in any
        case, to see whether the full re-embed is worse.
    two_stage
        How many documents each two-stage arm reranks: a pool goes as deep for every query. None for the usual depths
        (`migrate.audit.results.DEPTHS`), as far as a pool goes by itself.
    slice_fields
        Metadata fields to group queries by.
    price_usd_per_mtok
        Price of a million tokens of the target model, where it is not listed.
    parent_field
        Metadata field of a chunk that names the document it was cut from.
    margin
        The retention, 0-1, that an arm must keep to be SAFE.
    margin_from
        Where the margin is from, such as the name of a file; empty where it was named for this audit.
    seed, resamples
        Of the bootstrap, and of whatever else is drawn at random.
    judge_next
        How many queries to draw for judging, of those that nobody has judged; they are in the report.
    plan
        The arm that the outcome of the report is of, such as `two-stage-20`: one that could serve.
    """

    bm25: bool = True
    two_stage: Sequence[int] | None = ()
    slice_fields: Sequence[str] = ()
    price_usd_per_mtok: float | None = None
    parent_field: str = PARENT_FIELD
    margin: float = MARGIN
    margin_from: str = ""
    seed: int = 0
    resamples: int = RESAMPLES
    judge_next: int = 0
    plan: str = TRANSLATED


@dataclass(frozen=True, slots=True)
class FrontierTrial:
    """Shares (0-1) and policies to try, the stitch to start from, and the queries of a log that choose documents.

    No policies stand for all that can be used.
    """

    shares: Sequence[float]
    fitted: FittedStitch
    log: Sequence[Query] = ()
    policies: Sequence[str] = ()


@dataclass(frozen=True, eq=False)
class AuditRequest:
    """All that an audit is of: stores, queries, models, and how it is done.

    Attributes
    ----------
    translated
        The store that the verdict is on.
    query_set
        The queries, with their judgements if there are any.
    embedder
        The target model.
    reference
        A full re-embed of the same documents by the target model, or a pool that is embedded now; None to embed every
        text now.
    save_reference
        The folder to keep in what is embedded; what a run of the same request has left there is used.
    source, source_embedder
        The store before the migration, and its model: for the arm `stay`.
    bridge
        A stitch for queries that was fitted on `source`: for the arm `bridge`.
    prefixes
        Numbers of tokens: for each an arm that embeds as many of the first tokens of every document. Where stores of
        these are made, they are by their numbers.
    trial
        What a frontier is tried with, on `source`; None for no frontier.
    options
        How the audit is done.
    force, restart
        For `save_reference`: replace what is there, discard what is unfinished.
    choosers
        Who chose the true vectors of `translated`, as it was before anything was embedded for the audit; None to find
        it out now.
    """

    translated: Store
    query_set: QuerySet
    embedder: Embedder
    reference: Store | PoolReference | None = None
    save_reference: Path | None = None
    source: Store | None = None
    source_embedder: Embedder | None = None
    bridge: FittedStitch | None = None
    prefixes: Sequence[int] | Mapping[int, Store] = ()
    trial: FrontierTrial | None = None
    options: AuditOptions = field(default_factory=AuditOptions)
    force: bool = False
    restart: bool = False
    choosers: Choosers | None = None

    @property
    def store(self) -> Store | None:
        """The full re-embed, where it is a store that is there."""
        return None if isinstance(self.reference, PoolReference) else self.reference

    @property
    def pool(self) -> PoolReference | None:
        """The pool that is embedded in its place."""
        return self.reference if isinstance(self.reference, PoolReference) else None

    def judging(self, choosers: Choosers) -> QuerySet:
        """Return the queries without those that chose documents, of which the store has `choosers`, or are going to.

        Raises
        ------
        InconclusiveError
            Too few are left for a verdict.
        """
        stitches = [self.bridge, None if self.trial is None else self.trial.fitted]
        manifests = [stitch.manifest for stitch in stitches if stitch is not None]
        others = choosers.queries | choosers_of(*manifests)
        return independent(self.query_set, others | digests_of(self.trial.log if self.trial else ()))


@dataclass(frozen=True, eq=False)
class PreparedAudit:
    """A request that has been checked, with the queries embedded.

    `stores`, `keys` (the document that each id is judged as) and `vectors` (of the queries, (q, dim)) are by the name
    of the arm that searches the store. `documents` are those of the translated store, None without BM25. `proof` is how
    the reference was shown to be one, whose doubts are among the `findings`.

    Where a pool stands for the full re-embed, that one's store is not there until the pool has grown; it is `in_pool`
    then, unless the pool came to be the whole store, and has the first `pool_depth` documents of the translated store
    for every query.
    """

    request: AuditRequest
    query_set: QuerySet
    tally: Tally
    stores: Mapping[str, Store]
    keys: Mapping[str, Keys]
    vectors: Mapping[str, Vectors]
    documents: Sequence[Document] | None = None
    findings: tuple[Finding, ...] = ()
    proof: ReferenceProof | None = None
    in_pool: bool = False
    pool_depth: int | None = None

    @property
    def options(self) -> AuditOptions:
        """The choices of the request."""
        return self.request.options

    @cached_property
    def n_documents(self) -> int:
        """Documents that are judged; one that was cut into chunks counts once."""
        return len(set(self.keys[TRANSLATED].values()))

    @property
    def asked_depths(self) -> list[int]:
        """The depths of two-stage arms, without those that would embed the whole store."""
        depths = DEPTHS if self.options.two_stage is None else self.options.two_stage
        return [depth for depth in sorted(set(depths)) if depth < self.stores[TRANSLATED].info.count]

    @property
    def rerank_depths(self) -> list[int]:
        """The `asked_depths` that do not go beyond the pool."""
        return [depth for depth in self.asked_depths if self.pool_depth is None or depth <= self.pool_depth]

    @property
    def true_share(self) -> float:
        """The share, 0-1, of the translated store's documents that have true vectors."""
        info = self.stores[TRANSLATED].info
        return (info.manifest.counts.get(TRUE, 0) if info.manifest else 0) / info.count

    @property
    def bridge_share(self) -> float:
        """The size of the bridge's sample as a share of the translated store's documents."""
        bridge = self.request.bridge
        pairs = bridge.manifest.counts.get("pairs", 0) if bridge else 0
        return pairs / self.stores[TRANSLATED].info.count

    def cost_of_share(self, share: float) -> ArmCost:
        """The cost to embed a share, 0-1, of all documents; not known where there are no texts to count."""
        if self._tokens is None:
            return ArmCost()
        return ArmCost(share * self._tokens, usd_of(share * self._tokens, self.tally.price))

    @cached_property
    def counter(self) -> TokenCounter:
        """Counts the first tokens of documents."""
        return self.request.embedder.loaded_profile().counter

    def cost_of_first(self, tokens: int) -> ArmCost:
        """The cost to embed the first tokens of every document."""
        store, tally = self.stores[TRANSLATED], self.tally
        if not store.info.has_texts:
            return ArmCost()
        documents = store.documents() if self.documents is None else self.documents
        cost = tally.cost(first_of(documents, self.counter, tokens))
        return ArmCost(float(cost.tokens), cost.usd)

    @cached_property
    def _tokens(self) -> float | None:
        """Tokens of all texts, each once; for a free model from some, evenly spread, where they are not in memory."""
        store, tally = self.stores[TRANSLATED], self.tally
        if not store.info.has_texts:
            return None
        if self.documents is not None or tally.target.is_api:
            return float(tally.cost(store.documents() if self.documents is None else self.documents).tokens)
        rows = np.unique(np.linspace(0, store.info.count - 1, min(_READ, store.info.count)).astype(np.int64))
        return float(np.mean(tally.tokens(list(store.documents(rows))))) * store.info.count


def prepare_audit(request: AuditRequest, *, progress: Progress = no_progress) -> PreparedAudit:
    """Check all inputs against each other, then embed the queries, which may cost money; raises as `audit_store`."""
    request = replace(request, embedder=whole_embedder(request.embedder))
    translated, embedder, query_set, options = request.translated, request.embedder, request.query_set, request.options
    if not query_set.queries:
        raise InputError(f"{query_set.name}: expected queries to audit with, found none")
    if options.judge_next:
        _check_drawing(request)
    reference = request.store
    stores, embedders = _stores(request)
    for store in {id(store): store for store in (*stores.values(), request.source) if store is not None}.values():
        verify_files(store)
    documents = list(translated.documents()) if options.bm25 and translated.info.has_texts else None
    keys = {
        name: keys_of(documents, options.parent_field)
        if documents is not None and name == TRANSLATED
        else document_keys(store, options.parent_field)
        for name, store in stores.items()
    }
    _check_same_documents(stores, keys, standard=TRANSLATED if reference is None else FULL)
    findings = list(_coverage(query_set, keys[TRANSLATED]))
    findings += [Finding("note", text) for text in _notes(query_set, translated)]
    _check_dimensions(stores, embedders)
    proof = None
    if reference is None:
        refuse_same_source(request.source, translated)
        check_target(translated, embedder)
        prove_model(translated, embedder, seed=options.seed)
    else:
        proof = prove_reference(
            translated,
            reference,
            embedder,
            (keys[TRANSLATED], keys[FULL]),
            source=request.source,
            seed=options.seed,
            progress=progress,
        )
        findings += proof.findings
    if request.source is not None and request.source_embedder is not None:
        check_source(request.source, request.source_embedder, seed=options.seed, progress=progress)
    texts = documents if documents is not None or not translated.info.has_texts else translated.documents()
    findings += _echoes(query_set, keys[TRANSLATED], texts or ())
    vectors = _query_vectors(embedders, query_set, progress)
    prove_answers(embedder, query_set.queries, vectors[TRANSLATED], "query", source=query_set.name)
    query_set = with_groups(query_set, vectors[FULL])
    findings += group_notes(query_set)
    if request.bridge is not None:
        vectors[BRIDGE] = request.bridge.map_queries(vectors[FULL], source=query_set.name)
    tally = tally_of(embedder, options.price_usd_per_mtok)
    return PreparedAudit(request, query_set, tally, stores, keys, vectors, documents, tuple(findings), proof)


def _check_drawing(request: AuditRequest) -> None:
    """Make sure that there is something to draw queries for judging from."""
    name = request.query_set.name
    if request.query_set.exclude_self:
        raise UsageError(
            f"--judge-next: {name}: these queries are documents, or made from them; give --queries FILE with some that "
            "users ask"
        )
    if request.query_set.qrels is not None:
        raise UsageError(
            f"--judge-next: the queries of {name} are judged already; give --queries FILE with others that users ask"
        )
    if request.pool is not None:
        raise UsageError(
            "--judge-next: queries are drawn by the rankings of a full re-embed, which a pool lacks; use --reference "
            "build or a store"
        )


def _stores(request: AuditRequest) -> tuple[dict[str, Store], dict[str, Embedder]]:
    """Return the stores that are searched, and the models that embed the queries for them, by the name of the arm."""
    stores = {} if request.store is None else {FULL: request.store}
    stores[TRANSLATED] = request.translated
    embedders = {FULL: request.embedder, TRANSLATED: request.embedder}
    if request.source is not None and request.source_embedder is not None:
        stores[STAY], embedders[STAY] = request.source, request.source_embedder
    if request.bridge is not None:
        stores[BRIDGE] = bridged_store(request.bridge, request.source, request.embedder.identity)
    if isinstance(request.prefixes, Mapping):
        for tokens, store in request.prefixes.items():
            stores[prefix_name(tokens)], embedders[prefix_name(tokens)] = store, request.embedder
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


def representative_docs(inputs: PreparedAudit, full: Run) -> Mapping[str, str]:
    """The one document that says what a query is about: its relevant document that the full re-embed ranks first.

    Where it retrieves none of them, the relevant one of the highest grade; without judgements, its first document.
    A query without relevant documents has none.
    """
    doc_ids = set(inputs.keys[FULL].values())
    by_query = {q: _representative(q, inputs.query_set.qrels, full, doc_ids) for q in inputs.query_set.query_ids}
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
