"""What an audit asks, and which document each id of a store is judged as."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from migrate.audit.measures import Qrels
from migrate.documents import Document, Query
from migrate.stores.base import Store

PARENT_FIELD = "parent_id"
"""Metadata field of a chunk that names the document it was cut from."""

Keys = Mapping[str, str]
"""From each id of a store to the document that is judged: the parent of a chunk, else the id itself."""


@dataclass(frozen=True, slots=True)
class Questions:
    """What the arms are asked: queries, their judgements if there are any, and the name of the set.

    `exclude_self` drops a document with the query's own id from every run, for sets that ask with their documents.
    `notes` are what a reader of the report should know of the set.
    """

    queries: Sequence[Query]
    qrels: Qrels | None
    name: str
    exclude_self: bool = False
    notes: tuple[str, ...] = ()

    @property
    def query_ids(self) -> tuple[str, ...]:
        """Ids in the order of all score arrays."""
        return tuple(query.id for query in self.queries)


def document_keys(store: Store, parent_field: str = PARENT_FIELD) -> Keys:
    """The judged document of each id of a store, in the store's order."""
    if not store.info.has_texts:
        return {doc_id: doc_id for batch in store.batches() for doc_id in batch.ids}
    return keys_of(store.documents(), parent_field)


def keys_of(documents: Iterable[Document], parent_field: str = PARENT_FIELD) -> Keys:
    """The judged document of each of some documents."""
    return {document.id: str(document.metadata.get(parent_field, document.id)) for document in documents}
