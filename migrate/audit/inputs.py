"""What an audit stands on: stores of the same documents, and the queries as each store's model embeds them.

What must hold of the stores before an audit can compare them, and what a reader should know of them.

The bridge: the source store as it is, asked with the target model's queries after a stitch that maps them back.

The arm of Drift-Adapter (EMNLP 2025). It says what answers are to be had today, before anything is translated.

Where a query lives: the one document that says what the query is about, to tell queries apart by.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from migrate.audit.arms import BRIDGE, FULL, STAY, TRANSLATED
from migrate.audit.measures import Qrels
from migrate.audit.query_set import PARENT_FIELD, Keys, Questions, document_keys, keys_of
from migrate.audit.reference import ReferenceProof, prove_reference
from migrate.backfill import FILLED_IN
from migrate.embedders.base import Embedder
from migrate.embedders.kinds import split_spec
from migrate.errors import InputError, StitchError, StoreError, UsageError, VectorError
from migrate.manifest import ModelIdentity
from migrate.search.runs import Run
from migrate.stitch.fitted import QUERY, FittedStitch, require_direction
from migrate.stores.base import Store
from migrate.stores.confidence import distrust, find_outside
from migrate.vectors import Document, Progress, Vectors, no_progress, query_key

_ECHOES = 0.1


def check_same_documents(stores: Mapping[str, Store], keys: Mapping[str, Keys], *, standard: str) -> None:
    """Make sure that every store holds the documents of the store called `standard`.

    Raises
    ------
    StoreError
        One does not.
    """
    expected = set(keys[standard].values())
    for name, store in stores.items():
        strange = expected.symmetric_difference(keys[name].values())
        if strange:
            raise StoreError(
                f"{store.info.path}: expected the documents of {stores[standard].info.path}, found {len(strange)} "
                f"that only one of them has, such as {min(strange)!r}; audit stores of the same corpus"
            )


def remarks(questions: Questions, keys: Keys, translated: Store) -> tuple[str, ...]:
    """What is known of the judgements and of the translated store before it is searched.

    Raises
    ------
    InputError
        None of the relevant documents is in the stores.
    """
    known = (*_repeated(questions), *_coverage(questions, keys), *_true_vectors(translated), *_outside(translated))
    return (*questions.notes, *known)


def echoes(questions: Questions, keys: Keys, documents: Iterable[Document]) -> tuple[str, ...]:
    """A doubt where more than a tenth of the queries are, word for word, a document that they look for.

    Every model finds the text that it is asked with, however many vectors are wrong.
    """
    wanted: dict[str, set[str]] = {}
    for query in questions.queries:
        grades = (questions.qrels or {}).get(query.id, {})
        wanted.setdefault(query_key(query.text), set()).update(d for d, grade in grades.items() if grade > 0)
    same = {key for one in documents if keys[one.id] in wanted.get(key := query_key(one.text), ())}
    if len(same) <= _ECHOES * len(questions.distinct):
        return ()
    return (
        f"{len(same):,} of {len(questions.distinct):,} queries are word for word the document that they look for, "
        "which every model finds: ask what users ask",
    )


def _repeated(questions: Questions) -> tuple[str, ...]:
    repeated = len(questions.queries) - len(questions.distinct)
    if not repeated:
        return ()
    return (
        f"{repeated:,} of {len(questions.queries):,} queries repeat the text of another, but for case and white space; "
        f"each of the {len(questions.distinct):,} texts counts once, by the mean of its scores",
    )


def _coverage(questions: Questions, keys: Keys) -> tuple[str, ...]:
    """What the judgements say of documents that the stores do not hold."""
    relevant = {d for grades in (questions.qrels or {}).values() for d, grade in grades.items() if grade > 0}
    missing = relevant.difference(keys.values())
    if relevant and missing == relevant:
        raise InputError(
            f"{questions.name}: expected judgements of the documents in the stores, found none ({min(relevant)!r} is "
            f"relevant, the stores have {next(iter(keys.values()), 'nothing')!r}); is it the right BEIR set, and "
            "--parent-field the right field?"
        )
    if not missing:
        return ()
    return (f"{len(missing):,} of {len(relevant):,} relevant documents are not in the stores; no arm can find them",)


def _outside(translated: Store) -> tuple[str, ...]:
    why = distrust(translated)
    if why is not None:
        return (f"{why}; nothing is sliced by it, nor is it said which documents lie outside what the sample covers",)
    found = find_outside(translated)
    return () if found is None else (found.sentence,)


def _true_vectors(translated: Store) -> tuple[str, ...]:
    known = translated.info.manifest
    n_true = known.counts.get("true vectors", 0) if known else 0
    if not n_true:
        return ()
    origin = "" if known and known.details.get(FILLED_IN) else ": the sample the stitch was fitted on"
    return (f"{n_true:,} of {translated.info.count:,} vectors are true ones{origin}",)


def bridged_store(bridge: FittedStitch, source: Store | None, model: ModelIdentity) -> Store:
    """The store that `bridge` leads to, after making sure that it leads there from `model`.

    Raises
    ------
    UsageError
        There is no source store.
    StitchError
        The stitch is one for documents, was fitted on another store, or takes the queries of another model.
    """
    if source is None:
        raise UsageError("expected the source store that the bridge leads to, found none; name it with --source STORE")
    path, known = source.info.path, bridge.manifest.model
    require_direction(bridge.manifest, QUERY, source=str(path))
    difference = source.fingerprint().difference(bridge.manifest.details["fingerprint"])
    if difference is not None:
        raise StitchError(
            f"{path}: the bridge was fitted on another store ({difference}); fit one on this store with "
            "--direction query"
        )
    if known is not None and not _may_be_one(known, model):
        raise StitchError(
            f"{path}: expected a bridge for queries of {_name(model)}, found one for those of {_name(known)}; fit one "
            "for the model that embeds the queries"
        )
    return source


def _may_be_one(one: ModelIdentity, other: ModelIdentity) -> bool:
    """Whether nothing speaks against it: vectors from files say nothing of their model."""
    if one.dim != other.dim:
        return False
    if any(split_spec(model.spec)[0] == "file" for model in (one, other)):
        return True
    return one.spec == other.spec and (one.revision == other.revision or None in (one.revision, other.revision))


def _name(model: ModelIdentity) -> str:
    revision = f" at revision {model.revision[:12]}" if model.revision else ""
    return f"{model.spec} ({model.dim} dimensions{revision})"


@dataclass(frozen=True, eq=False)
class Ground:
    """Arms that search a store, by name: the store, the document that each id is judged as, the queries' vectors.

    `documents` are those of the translated store, where words are to be ranked; `notes` what a reader should know;
    `proof` is how the reference was shown to be one, `doubts` why nothing that is found can be SAFE.
    """

    questions: Questions
    stores: Mapping[str, Store]
    keys: Mapping[str, Keys]
    vectors: Mapping[str, Vectors]
    documents: Sequence[Document] | None
    notes: tuple[str, ...]
    proof: ReferenceProof
    doubts: tuple[str, ...] = ()

    @property
    def n_documents(self) -> int:
        """Documents that are judged; one that was cut into chunks counts once."""
        return len(set(self.keys[FULL].values()))


def prepare_ground(
    translated: Store,
    reference: Store,
    questions: Questions,
    embedder: Embedder,
    *,
    source: Store | None = None,
    source_embedder: Embedder | None = None,
    bridge: FittedStitch | None = None,
    words: bool = True,
    parent_field: str = PARENT_FIELD,
    seed: int = 0,
    progress: Progress = no_progress,
) -> Ground:
    """Check everything against everything, then embed the queries, which may cost money.

    Raises
    ------
    UsageError, StitchError, InputError, StoreError, VectorError, RemoteError
        As `migrate.audit.audit.audit_store`.
    """
    if not questions.queries:
        raise InputError(f"{questions.name}: expected queries to audit with, found none")
    for store in (translated, reference, source):
        if store is not None:
            store.verify()
    stores = {FULL: reference, TRANSLATED: translated}
    embedders = {FULL: embedder, TRANSLATED: embedder}
    if source is not None and source_embedder is not None:
        stores[STAY], embedders[STAY] = source, source_embedder
    if bridge is not None:
        stores[BRIDGE] = bridged_store(bridge, source, embedder.identity)
    documents = list(translated.documents()) if words and translated.info.has_texts else None
    keys = {
        name: keys_of(documents, parent_field)
        if documents is not None and name == TRANSLATED
        else document_keys(store, parent_field)
        for name, store in stores.items()
    }
    check_same_documents(stores, keys, standard=FULL)
    notes = remarks(questions, keys[FULL], translated)
    _check_dimensions(stores, embedders)
    proof = prove_reference(
        translated, reference, embedder, (keys[TRANSLATED], keys[FULL]), source=source, seed=seed, progress=progress
    )
    texts = documents if documents is not None or not translated.info.has_texts else translated.documents()
    doubts = (*proof.doubts, *echoes(questions, keys[TRANSLATED], texts or ()))
    vectors = _query_vectors(embedders, questions, progress)
    if bridge is not None:
        vectors[BRIDGE] = bridge.map_queries(vectors[FULL], source=questions.name)
    return Ground(questions, stores, keys, vectors, documents, (*notes, proof.sentence), proof, doubts)


def _check_dimensions(stores: Mapping[str, Store], embedders: Mapping[str, Embedder]) -> None:
    for name, embedder in embedders.items():
        identity, info = embedder.identity, stores[name].info
        if identity.dim != info.dim:
            raise VectorError(
                f"{info.path}: expected vectors of dimension {identity.dim}, as {identity.spec} gives, found "
                f"{info.dim}; name the model that the store was built with"
            )


def _query_vectors(embedders: Mapping[str, Embedder], questions: Questions, progress: Progress) -> dict[str, Vectors]:
    """The queries as each arm's model embeds them; arms of one model share the vectors, which may cost money."""
    found: dict[int, Vectors] = {}
    for embedder in embedders.values():
        if id(embedder) not in found:
            found[id(embedder)] = embedder.embed_queries(questions.queries, progress=progress)
    return {name: found[id(embedder)] for name, embedder in embedders.items()}


def home_documents(ground: Ground, full: Run) -> Mapping[str, str]:
    """The home of each query: of its relevant documents the one that the full re-embed finds first.

    Where it finds none of them, the relevant one of the highest grade; where nothing is judged, what it finds first.
    A query without relevant documents has no home.
    """
    known = set(ground.keys[FULL].values())
    homes = {q: _home(q, ground.questions.qrels, full, known) for q in ground.questions.query_ids}
    return {query_id: home for query_id, home in homes.items() if home is not None}


def _home(query_id: str, qrels: Qrels | None, full: Run, known: set[str]) -> str | None:
    found = full.rankings.get(query_id, ())
    if qrels is None:
        return found[0] if found else None
    grades = {d: grade for d, grade in qrels.get(query_id, {}).items() if grade > 0 and d in known}
    first = next((doc_id for doc_id in found if doc_id in grades), None)
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
