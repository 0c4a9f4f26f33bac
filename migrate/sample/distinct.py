"""Documents worth embedding: those with a text, each text once; of a store without texts any."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from migrate.documents import Document
from migrate.stores.base import Store

_BLOCK = 1_024


class Candidate(NamedTuple):
    """A document and the row that it stands in."""

    row: int
    document: Document


def distinct_texts(store: Store, order: NDArray[np.int64], count: int) -> Iterator[Candidate]:
    """The first `count` documents in `order` with a text that is neither blank nor that of one before.

    Texts are read in blocks, no further than needed, and remembered by hash: a store may hold more of them than
    memory does. Of a store without texts, the first `count` documents with an empty one.
    """
    if not store.info.has_texts:
        rows = order[:count]
        return map(Candidate, rows.tolist(), known_documents(store, rows))
    return islice(_distinct(store, order, min(count, _BLOCK)), count)


def find_copies(store: Store, documents: Sequence[Document]) -> dict[str, int]:
    """Other documents of a store with exactly the text of one of `documents`: their ids, and its place.

    Reads every text of the store, and remembers none. Without texts nobody knows of a copy.
    """
    if not store.info.has_texts:
        return {}
    place_of = {text_digest(document.text): place for place, document in enumerate(documents)}
    own = {document.id for document in documents}
    found = ((document.id, place_of.get(text_digest(document.text))) for document in store.documents())
    return {doc_id: place for doc_id, place in found if place is not None and doc_id not in own}


def text_digest(text: str) -> bytes:
    """A hash of a text, 16 bytes."""
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()


def _distinct(store: Store, order: NDArray[np.int64], block: int) -> Iterator[Candidate]:
    seen: set[bytes] = set()
    for start in range(0, len(order), block):
        rows = order[start : start + block]
        for row, document in zip(rows.tolist(), store.documents(rows), strict=True):
            digest = text_digest(document.text)
            if document.text.strip() and digest not in seen:
                seen.add(digest)
                yield Candidate(row, document)


def known_documents(store: Store, rows: NDArray[np.int64]) -> Iterator[Document]:
    """The documents of some rows, in the order of `rows`; of a store without texts their ids, with empty texts."""
    if store.info.has_texts:
        return store.documents(rows)
    blocks = (rows[start : start + _BLOCK] for start in range(0, len(rows), _BLOCK))
    return (Document(doc_id, "") for block in blocks for doc_id in store.take(block).ids)
