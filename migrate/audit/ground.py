"""What an audit stands on: stores of the same documents, and the queries as each store's model embeds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from migrate.audit.arms import BRIDGE, FULL, STAY, TRANSLATED
from migrate.audit.bridge import bridged_store
from migrate.audit.checks import check_same_documents, echoes, remarks
from migrate.audit.questions import PARENT_FIELD, Keys, Questions, document_keys, keys_of
from migrate.audit.reference import ReferenceProof, prove_reference
from migrate.documents import Document
from migrate.embedders.base import Embedder
from migrate.errors import InputError, VectorError
from migrate.stitch.fitted import FittedStitch
from migrate.stores.base import Store
from migrate.vectors import Progress, Vectors, no_progress


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
