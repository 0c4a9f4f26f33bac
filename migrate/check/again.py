"""Finds out before money is spent whether a model is still the store's own, and whether the target is so already."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from migrate.check.comparison import holds_vectors_of, tolerance_of
from migrate.check.facts import manifest_finding
from migrate.embedders.again import ASKED_AGAIN, SAME, needs_proof, prove_answers
from migrate.embedders.base import Embedder
from migrate.embedders.kinds import split_spec
from migrate.errors import InputError, SpendingError, StoreError, VectorError
from migrate.manifest import MADE_BY_STAMP
from migrate.selection.sample import known_documents
from migrate.stores.all_true import TRUE
from migrate.stores.base import Store
from migrate.stores.confidence import true_rows
from migrate.vectors import Document, unit_rows


def prove_model(store: Store, embedder: Embedder, *, all_true: bool = False, seed: int = 0) -> int:
    """Embed some of a store's texts again, and compare them with the vectors in the cache and in the store.

    The store is believed in the rows that it says are true (`all_true`: all are), where its index keeps vectors as they
    are. Where neither has anything there is nothing to compare with. Returns how many were embedded; a model that runs
    here is not asked.
    """
    if not store.info.has_texts or not needs_proof(embedder):
        return 0
    true, translated = _drawn(store, all_true=all_true, seed=seed)
    pairs = list(zip(known_documents(store, true), store.get(true).vectors, strict=True)) if len(true) else []
    documents = list(known_documents(store, translated))
    cached = embedder.find(documents, "document")
    pairs += [(documents[number], vector) for number, vector in list(cached.items())[:ASKED_AGAIN]]
    pairs = [(document, vector) for document, vector in pairs if document.text.strip()]
    if not pairs:
        return 0
    texts, vectors = zip(*pairs, strict=True)
    return prove_answers(embedder, texts, np.stack(vectors), source=store.info.location)


def prove_kept(store: Store, embedder: Embedder, rows: NDArray[np.int64], *, seed: int = 0) -> int:
    """Embed some texts again whose vectors a store calls true, those of `rows`, before it gets others of the model.

    One vector that the model still gives is enough: in a database texts may have changed
    since. Returns how many were embedded; a model that runs here is not asked, nor is one of codes compared.

    Raises VectorError: none of them is the model's. RemoteError, SpendingError: as the embedder.
    """
    if not len(rows) or not store.info.exact or not needs_proof(embedder):
        return 0
    drawn = np.sort(np.random.default_rng(seed).permutation(rows)[:ASKED_AGAIN])
    with_text = [(row, text) for row, text in zip(drawn, store.documents(drawn), strict=True) if text.text.strip()]
    if not with_text:
        return 0
    chosen, documents = zip(*with_text, strict=True)
    stored, now = store.get(np.array(chosen)).vectors, embedder.embed_again(documents, "document")
    best = -1.0
    if now.shape == stored.shape:
        best = float(np.einsum("nd,nd->n", unit_rows(now), unit_rows(stored)).max())
    if best < SAME:
        raise VectorError(
            f"{store.info.location}: the store calls vectors true that {embedder.profile.spec} does not give (cosine "
            f"{best:.3f} at best, of {len(documents)}): the model has changed since it made them; name the server that "
            "still has that model, or make the store anew with this one"
        )
    return len(documents)


def proof_documents(store: Store, *, all_true: bool = False, seed: int = 0) -> list[Document]:
    """Return the true rows that `prove_model` embeds again, for an estimate of its cost."""
    if not store.info.has_texts:
        return []
    return list(known_documents(store, _drawn(store, all_true=all_true, seed=seed)[0]))


def _drawn(store: Store, *, all_true: bool, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Draw some true rows, where the index keeps vectors as they are, and 256 others to look up in the cache."""
    rng = np.random.default_rng(seed)
    is_true = np.ones(store.info.count, dtype=bool) if all_true else true_rows(store)
    true = rng.permutation(np.flatnonzero(is_true))[:ASKED_AGAIN] if store.info.exact else np.empty(0, np.int64)
    return true, rng.permutation(store.info.count)[:256]


def is_recorded_of(store: Store, embedder: Embedder) -> bool | None:
    """Return whether a store's manifest says that every vector is of a model, with its prefixes and its dimension.

    None where it does not say, or only a stamp says so that nobody has checked. Of another model than the manifest's
    nothing but the name is asked.
    """
    manifest, count = store.info.manifest, store.info.count
    if manifest is None or manifest.model is None:
        return None
    if manifest.store.made_by == MADE_BY_STAMP and not manifest.store.checked:
        return None
    recorded, named = (
        split_spec(spec)[1].rpartition("/")[2].lower() for spec in (manifest.model.spec, embedder.profile.spec)
    )
    if manifest.counts.get(TRUE, count) != count or recorded != named:
        return False
    if store.info.has_texts:
        embedder.fit(store.documents())
    return manifest_finding(manifest, embedder.quick_identity()).ok


def is_embedded_by(store: Store, embedder: Embedder) -> bool:
    """Return whether a store without a manifest that answers has the model's own vectors, by some of its texts.

    These are four, and others up to 32 where the four have the store's vectors: with so many the same, less than 9 % of
    the store has others (95 % confidence). Fewer documents tell nothing, nor does what an index keeps in short codes,
    nor texts that cannot be embedded. Raises RemoteError as the embedder.
    """
    tolerance = tolerance_of(store.info)
    if not store.info.has_texts or tolerance.coded or tolerance.loose or is_recorded_of(store, embedder) is not None:
        return False
    if store.info.count < 4 or embedder.quick_identity().dim != store.info.dim:
        return False
    try:
        embedder.fit(store.documents())
        return holds_vectors_of(store, embedder, 32)
    except (InputError, StoreError, VectorError, SpendingError):
        return False
