"""Writes a translated store again with all true vectors that the embedding cache has gained since.

Two-stage search embeds the documents that queries find. Each vector it leaves in the cache brings the store closer to
a complete re-embedding.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from migrate.check.facts import require_model
from migrate.embed.rewrite import TRUE_VECTOR, PatchJob
from migrate.embedders.base import Embedder
from migrate.embedders.cache import UNKNOWN_QUERY, are_cached, cache_of
from migrate.errors import StoreError, VectorError
from migrate.manifest import Manifest, StoreFacts, creation_date
from migrate.selection.choosers import RECORDED, choosers_of
from migrate.selection.model_match import ASKED_AGAIN, claim_of_cache, claim_of_true_rows, matches
from migrate.stores.all_true import TRUE, keeps_as_made, with_content
from migrate.stores.base import Store
from migrate.stores.confidence import stored_confidence
from migrate.stores.file_store import check_files
from migrate.stores.old_checksums import stored_sources
from migrate.stores.registry import output_of
from migrate.translate import batch_rows
from migrate.vectors import Document, Progress, Vectors, no_progress
from migrate.work.outputs import write_store


@dataclass(frozen=True, slots=True)
class Backfill:
    """The result of a backfill: of `count` vectors `n_true` are now true, `n_before` were before.

    `n_choosers` is how many queries chose some of them.
    """

    path: Path | str
    count: int
    n_true: int
    n_before: int
    n_choosers: int = 0

    @property
    def n_left(self) -> int:
        """The number of vectors that are still translated."""
        return self.count - self.n_true


def backfill_store(
    store: Store,
    embedder: Embedder,
    output: Path | str,
    *,
    force: bool = False,
    restart: bool = False,
    prove: bool = True,
    progress: Progress = no_progress,
) -> Backfill:
    """Write `store` to the folder `output`, or to `KIND:...`, with the true vectors of all texts that are in the cache.

    Nothing is embedded, but for a few texts with which a model behind an API proves that the cache is still of it;
    without `prove` whoever calls has seen to that. A run that broke off is continued, if the cache has not grown since.

    Raises RemoteError: the model cannot be asked. StoreError: the store has no texts, does not name its model, was
    translated for another, or does not match its manifest. VectorError: a vector in the cache is of another dimension,
    or the model gives others than the cache has. InputError: the cache is damaged. UsageError, OutputError,
    LockedError: as `migrate.translate`.
    """
    target = output_of(output)
    target.require_free(force=force)
    check_files(store)
    snapshot = store.snapshot()
    manifest = _check_fits(store, embedder)
    rows = batch_rows(store.info.dim)
    recorded = stored_confidence(store)
    if recorded is None:
        confidence = np.full(store.info.count, np.nan, dtype=np.float32)
    else:
        confidence = recorded.copy()
    # Choices of vectors that are true already stand in the manifest
    is_cached, choices = _cached_rows(store, embedder, rows, confidence != 1, progress)
    cache = cache_of(embedder)
    choosers = cache.choosers(choices) if cache is not None else frozenset()
    # A few texts past the cache: what it has may be of another host, or of the model before it was changed
    if prove:
        sample = np.random.default_rng(0).permutation(np.flatnonzero(is_cached))[:ASKED_AGAIN]
        claim = claim_of_cache(embedder, list(store.documents(sample)))
        matches(claim, embedder, past_cache=True).require(store.info.location)
        is_true = confidence == 1
        # True vectors stay beside those of the cache, so both have to be of one model
        if is_cached.any() and (is_true & ~is_cached).any():
            claim = claim_of_true_rows(store, np.flatnonzero(is_true))
            matches(claim, embedder, past_cache=True).require_one(store.info.location)
    n_true = int((is_cached | (confidence == 1)).sum())
    is_full = n_true == store.info.count
    is_recorded = is_full or manifest.store.filled_in in (None, RECORDED)
    details = StoreFacts(
        filled_in=RECORDED if is_recorded else manifest.store.filled_in,
        chosen_by=tuple(sorted(choosers_of(manifest) | choosers)),
    )
    new = replace(
        manifest,
        # With the last translated vector gone, the store is of the model as it is today
        model=embedder.identity if is_full else manifest.model,
        counts={**manifest.counts, TRUE: n_true},
        details={**with_content(manifest, None).details, **details.as_details()},
        created=creation_date(),
    )

    kept_rows = np.where(is_cached, TRUE_VECTOR, np.arange(store.info.count))
    confidence[is_cached] = 1
    is_proof = is_full and keeps_as_made(store, is_kept=not is_cached.all())
    sources = stored_sources(store)
    job = _FillJob(store, target, snapshot, embedder, store, kept_rows, confidence, sources, new, is_proof)
    write_store(target, job, force=force, restart=restart, progress=progress)
    return Backfill(
        target.display_name,
        store.info.count,
        n_true,
        manifest.counts.get(TRUE, 0),
        len({*details.chosen_by} - {UNKNOWN_QUERY}),
    )


def count_true(store: Store, embedder: Embedder, *, progress: Progress = no_progress) -> tuple[int, int]:
    """Return how many vectors of a store a backfill would make or leave true ones, and how many are; as it raises."""
    manifest = _check_fits(store, embedder)
    recorded = stored_confidence(store)
    is_true = np.zeros(store.info.count, dtype=bool)
    if recorded is not None:
        is_true = recorded == 1
    is_cached, _ = _cached_rows(store, embedder, batch_rows(store.info.dim), ~is_true, progress)
    return int((is_cached | is_true).sum()), manifest.counts.get(TRUE, 0)


def _check_fits(store: Store, embedder: Embedder) -> Manifest:
    """The store's manifest, after making sure that its vectors are of the model whose cache it is."""
    path = store.info.location
    manifest = store.info.manifest
    if not store.info.has_texts:
        raise StoreError(f"{path}: the store has no texts to look up in the cache; nothing can be filled in")
    if manifest is None or manifest.model is None:
        raise StoreError(
            f"{path}: the store does not name the model it was translated for; give one that translate made"
        )
    require_model(path, manifest.model, embedder.identity)
    return manifest


def _cached_rows(
    store: Store, embedder: Embedder, rows: int, is_new: NDArray[np.bool_], progress: Progress
) -> tuple[NDArray[np.bool_], set[bytes]]:
    """Return whether the cache has the vector of each document, (n,), and by which choices it has those of new ones."""
    cache = cache_of(embedder)
    is_cached = np.zeros(store.info.count, dtype=bool)
    choices = set[bytes]()
    for start, documents in _blocks(store, rows):
        progress("look into the cache", start, store.info.count)
        cached = are_cached(embedder, documents, "document")
        is_cached[start : start + len(documents)] = cached
        if cache is None:
            continue
        chosen = zip(cache.choices(documents, "document"), cached, is_new[start:].tolist(), strict=False)
        choices.update(choice for choice, is_known, new in chosen if choice is not None and is_known and new)
    return is_cached, choices


def _blocks(store: Store, rows: int) -> Iterator[tuple[int, list[Document]]]:
    documents = store.documents()
    start = 0
    while block := list(islice(documents, rows)):
        yield start, block
        start += len(block)


class _FillJob(PatchJob):
    """A store, whose vectors are kept but for those that the cache has."""

    stage = "fill in"
    command = "backfill"

    def options(self) -> dict[str, Any]:
        # A cache that has grown since fills in other documents, so that the unfinished parts are of another work
        digest = hashlib.sha256(np.packbits(self.kept_rows == TRUE_VECTOR).tobytes()).hexdigest()
        return {"model": self.embedder.cache_scope("document"), "known texts": digest, "rows per batch": self.rows}

    def true_vectors(self, rows: NDArray[np.int64]) -> Iterator[Vectors]:
        """Look them up in the cache; nothing is embedded."""
        documents = list(self.store.documents(rows))
        vector_of = self.embedder.find(documents, "document")
        for number, document in enumerate(documents):
            vector = vector_of.get(number)
            if vector is None:
                raise StoreError(f"the embedding cache lost the vector of document {document.id!r}; run again")
            if vector.shape != (self.dim,):
                raise VectorError(
                    f"the embedding cache: holds a vector of dimension {len(vector)} for document {document.id!r}, but "
                    f"the store has {self.dim}; was the model called with other dimensions?"
                )
            yield vector
