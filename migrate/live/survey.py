"""A survey of a store that serves: which of its documents have their true vectors, and which are still to get them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

import numpy as np

from migrate.embedders.base import Embedder
from migrate.errors import StoreError
from migrate.live.generation import confidence_of
from migrate.live.state import text_hash
from migrate.stores.base import Store
from migrate.stores.file_store import as_files
from migrate.stores.serving import is_cosine
from migrate.translate import batch_rows
from migrate.vectors import Document, Vectors, unit_rows

_ROUNDING: Final = 1e-6
"""Difference of unit vectors that is the rounding of float32."""


@dataclass
class LiveSurvey:
    """The documents of a store: hashes of the texts of the `true` ones by id; ids `remaining`, in their order.

    `in_store` are the true ones whose vector in the store is the true one: all of a database, some of files. `embedded`
    are those of a database whose vectors the cache has and the store has not. `bitwise` is True if all that is true in
    the store is so to the last bit; `refused` are texts that the model takes no vector of. `unproven` are the documents
    of `remaining` whose vectors the store calls true, and the cache does not know.
    """

    count: int = 0
    true: dict[str, bytes] = field(default_factory=dict)
    in_store: set[str] = field(default_factory=set)
    embedded: list[str] = field(default_factory=list)
    remaining: list[str] = field(default_factory=list)
    unproven: list[str] = field(default_factory=list)
    rows: dict[str, int] = field(default_factory=dict)
    refused: int = 0
    bitwise: bool = True

    @property
    def is_complete(self) -> bool:
        """True if every document has its true vector, but those that the model refuses."""
        return not self.embedded and not self.remaining and len(self.true) + self.refused == self.count

    @property
    def is_all_in_store(self) -> bool:
        """True if the store itself is complete: it is searched by true vectors alone."""
        return self.is_complete and len(self.in_store) == len(self.true)


def survey_store(store: Store, embedder: Embedder, refused: Mapping[str, tuple[bytes, str]]) -> LiveSurvey:
    """Find out which documents are true in a store: their vector is the one that the cache has of their text.

    `refused` are texts that the model takes no vector of, see `DocumentMarks.refused`.
    """
    survey = LiveSurvey(store.info.count)
    is_in_files = as_files(store) is not None
    ranked: list[tuple[float, int, str]] = []
    confidence = confidence_of(store)
    cosine = is_cosine(store.info)
    for start, ids, vectors, documents in _blocks(store):
        cached = embedder.find(documents, "document")
        for number, document in enumerate(documents):
            digest = text_hash(document.text)
            row = start + number
            survey.rows[ids[number]] = row
            if refused.get(document.id, (None,))[0] == digest:
                survey.refused += 1
                continue
            true = cached.get(number)
            sure = 0.0
            if confidence is not None and not np.isnan(confidence[row]):
                sure = float(confidence[row])
            if true is not None and not store.info.exact:
                # It keeps codes, which no vector can be compared with: the confidence says which are true
                same = sure == 1
                bitwise = False
            else:
                same, bitwise = _same(vectors[number], true, cosine=cosine)
            if same:
                survey.in_store.add(document.id)
                survey.bitwise &= bitwise
            if same or (true is not None and is_in_files):
                survey.true[document.id] = digest
            elif true is not None:
                survey.embedded.append(document.id)
            else:
                ranked.append((sure, row, document.id))
                if sure == 1:
                    survey.unproven.append(document.id)
    survey.remaining = [doc_id for *_, doc_id in sorted(ranked, reverse=True)]  # taken from the end
    return survey


def _blocks(store: Store) -> Iterator[tuple[int, Sequence[str], Vectors, list[Document]]]:
    documents = store.documents()
    start = 0
    for batch in store.scan(batch_size=batch_rows(store.info.dim)):
        texts = list(islice(documents, len(batch)))
        if [document.id for document in texts] != list(batch.ids):
            raise StoreError(f"{store.info.location}: the store changed while it was read; run again")
        yield start, batch.ids, batch.vectors, texts
        start += len(batch)


def _same(stored: Vectors, true: Vectors | None, *, cosine: bool) -> tuple[bool, bool]:
    """Tell if a vector of the store is the true one, and if it is so to the bit."""
    if true is None or stored.shape != true.shape:
        return False, False
    if np.array_equal(stored, true):
        return True, True
    # A database that compares by cosine may have brought the vector to unit length when it was written
    near = cosine and np.allclose(unit_rows(stored[None]), unit_rows(true[None]), rtol=0, atol=_ROUNDING)
    return bool(near), False
