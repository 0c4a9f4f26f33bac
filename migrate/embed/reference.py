"""A full re-embed of a store: what a translation is compared with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from migrate.checkpoint.folder import Configuration, Work, make_folder, rows_done
from migrate.embed.corpus import (
    Embedding,
    as_embedding,
    batched,
    embedded,
    finish_beside,
    further,
    model_options,
    noted_identity,
    record_batch,
)
from migrate.embedders.base import Embedder
from migrate.manifest import MANIFEST_NAME, read_manifest
from migrate.selection.sample import known_documents
from migrate.stores.base import Resume, Store, StoreWriter
from migrate.stores.file_store import hash_written, source_hashes, verify_files
from migrate.vectors import Batch, Document, Progress, no_progress

COMMAND = "re-embed"
MADE_BY = "full re-embed"
"""What the manifest of a reference says of its origin."""


def reembed_store(
    store: Store,
    embedder: Embedder,
    output: Path,
    *,
    force: bool = False,
    restart: bool = False,
    progress: Progress = no_progress,
) -> Embedding:
    """Re-embed every document of a store: a reference store of the same kind, with the same ids in the same order.

    Raises
    ------
    StoreError
        The store has no texts, and the embedder reads them; or it is not the one of its manifest.
    UsageError, OutputError, LockedError, RemoteError, InputError
        As `embed_corpus`.
    """
    verify_files(store)
    before = store.snapshot()

    def configure() -> Configuration:
        return Configuration(COMMAND, store.snapshot().as_json(), model_options(embedder))

    def fill(work: Work) -> dict[str, Any]:
        work.total = count = store.info.count
        writer: StoreWriter | None = None
        with work.recorder() as recorder:
            batches = batched(known_documents(store, np.arange(work.rows, count)))
            for batch, vectors in embedded(
                embedder, batches, lambda: further(progress, "embed the reference", work.rows, count)
            ):
                writer = writer or _reference_writer(store, work, vectors.shape[1])
                writer.append(Batch([document.id for document in batch], vectors))
                record_batch(recorder, work, writer.rows, embedder, {})
        (writer or _reference_writer(store, work, noted_identity(work, embedder).dim)).finish()
        store.check_unchanged(before)
        return finish_beside(work, embedder, MADE_BY, hash_written(store, work.content), source_hashes(store))

    return as_embedding(output, make_folder(output, configure, fill, force=force, restart=restart))


def is_reembedded(store: Store, embedder: Embedder, folder: Path) -> bool:
    """Whether `folder` holds what `reembed_store` would write there, so that nothing need be embedded."""
    if not (folder / MANIFEST_NAME).is_file():
        return False
    made = read_manifest(folder, "store")
    return (made.details.get("made by"), made.model, made.inputs) == (MADE_BY, embedder.identity, source_hashes(store))


def documents_left(store: Store, output: Path, *, restart: bool = False) -> Iterator[Document]:
    """The documents that `reembed_store` would still embed into `output`, without those that an earlier run did."""
    done = 0 if restart else rows_done(output, COMMAND)
    return known_documents(store, np.arange(min(done, store.info.count), store.info.count))


def _reference_writer(store: Store, work: Work, dim: int) -> StoreWriter:
    return store.destination(work.content, dim, Resume(work.rows, work.scratch))
