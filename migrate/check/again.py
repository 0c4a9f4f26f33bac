"""Whether the model of a store, behind an API, still is what it was when the store was made.

What a store holds of true vectors, and what the cache has of its texts, is held against what the model gives now.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from migrate.embedders.again import ASKED_AGAIN, needs_proof, prove_answers
from migrate.embedders.base import Embedder
from migrate.selection.sample import known_documents
from migrate.stores.base import Store
from migrate.stores.confidence import stored_confidence
from migrate.vectors import Document

_LOOKED_UP: Final = 256
"""Documents that are looked up in the cache, drawn at random."""


def prove_model(store: Store, embedder: Embedder, *, all_true: bool = False, seed: int = 0) -> int:
    """Embed some of a store's texts again, and compare them with what the cache and the store have of them.

    What a store has are the rows that it says are true (`all_true`: all are), where its index keeps vectors as they
    are. Where neither has anything there is nothing to compare with. Returns how many were embedded; a model that runs
    here is not asked.

    Raises
    ------
    VectorError
        The model gives other vectors than it did.
    RemoteError, SpendingError
        As the embedder.
    """
    if not store.info.has_texts or not needs_proof(embedder):
        return 0
    true, others = _drawn(store, all_true=all_true, seed=seed)
    known = list(zip(known_documents(store, true), store.get(true).vectors, strict=True)) if len(true) else []
    documents = list(known_documents(store, others))
    cached = embedder.find(documents, "document")
    known += [(documents[place], vector) for place, vector in list(cached.items())[:ASKED_AGAIN]]
    known = [(document, vector) for document, vector in known if document.text.strip()]
    if not known:
        return 0
    texts, vectors = zip(*known, strict=True)
    return prove_answers(embedder, texts, np.stack(vectors), source=store.info.location)


def proof_documents(store: Store, *, all_true: bool = False, seed: int = 0) -> list[Document]:
    """The true rows that `prove_model` embeds again, for an estimate of its cost."""
    if not store.info.has_texts:
        return []
    return list(known_documents(store, _drawn(store, all_true=all_true, seed=seed)[0]))


def _drawn(store: Store, *, all_true: bool, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Some true rows, where the index keeps vectors as they are, and any rows."""
    rng = np.random.default_rng(seed)
    values = None if all_true else stored_confidence(store)
    is_true = np.full(store.info.count, all_true) if values is None else values == 1
    true = rng.permutation(np.flatnonzero(is_true))[:ASKED_AGAIN] if store.info.exact else np.empty(0, np.int64)
    return true, rng.permutation(store.info.count)[:_LOOKED_UP]
