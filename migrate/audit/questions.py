"""What an audit asks, and which document each id of a store is judged as."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from migrate.audit.measures import Qrels, Scores
from migrate.documents import Document, Query, query_key
from migrate.stores.base import Store

PARENT_FIELD = "parent_id"
"""Metadata field of a chunk that names the document it was cut from."""

Keys = Mapping[str, str]
"""From each id of a store to the document that is judged: the parent of a chunk, else the id itself."""


@dataclass(frozen=True)
class Questions:
    """What the arms are asked: queries, their judgements if there are any, and the name of the set.

    `exclude_self` drops a document with the query's own id from every run, for sets that ask with their documents.
    `notes` are what a reader of the report should know of the set.

    Queries of one text (`migrate.documents.query_key`) are one observation, however often they are repeated and
    whatever their judgements: each is asked and measured, and their mean counts once.
    """

    queries: Sequence[Query]
    qrels: Qrels | None
    name: str
    exclude_self: bool = False
    notes: tuple[str, ...] = ()

    @property
    def query_ids(self) -> tuple[str, ...]:
        """Ids of all that is asked."""
        return tuple(query.id for query in self.queries)

    @cached_property
    def distinct(self) -> tuple[Query, ...]:
        """The first query of each text, in the order of all score arrays."""
        firsts: dict[int, Query] = {}
        for place, query in zip(self._places.tolist(), self.queries, strict=True):
            firsts.setdefault(place, query)
        return tuple(firsts.values())

    def merged(self, scores: Scores) -> Scores:
        """One value for each text, (c,), from one for each query, (q,): the mean of those that share it."""
        if not len(scores):
            return scores
        merged: Scores = np.bincount(self._places, weights=scores) / np.bincount(self._places)
        return merged

    @cached_property
    def _places(self) -> NDArray[np.int64]:
        """The place of each query's text among the distinct ones, (q,)."""
        places: dict[str, int] = {}
        return np.array([places.setdefault(query_key(query.text), len(places)) for query in self.queries], dtype=int)


def document_keys(store: Store, parent_field: str = PARENT_FIELD) -> Keys:
    """The judged document of each id of a store, in the store's order."""
    if not store.info.has_texts:
        return {doc_id: doc_id for batch in store.batches() for doc_id in batch.ids}
    return keys_of(store.documents(), parent_field)


def keys_of(documents: Iterable[Document], parent_field: str = PARENT_FIELD) -> Keys:
    """The judged document of each of some documents."""
    return {document.id: str(document.metadata.get(parent_field, document.id)) for document in documents}
