"""A full re-embed of a store: what a translation is compared with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from migrate.checkpoint.folder import Configuration, StoreJob, Work, rows_left, write_store
from migrate.embed.corpus import (
    Batches,
    Embedding,
    EmbedTask,
    as_embedding,
    batches_of,
    finish_embedding,
    model_options,
    noted_identity,
)
from migrate.embedders.base import Embedder
from migrate.manifest import MANIFEST_NAME, read_manifest
from migrate.runners import Shard, ShardTask, shards_of
from migrate.selection.sample import known_documents
from migrate.stores.base import Resume, Store, StoreWriter
from migrate.stores.file_store import hash_written, source_hashes, verify_files
from migrate.stores.row_file import RowFile
from migrate.vectors import Batch, Document, Progress, Vectors, no_progress

COMMAND = "re-embed"
_ROWS_AT_ONCE = 1 << 20
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
    job = _ReferenceJob(store, embedder, progress)
    with closing(job):
        return as_embedding(output, write_store(output, job, force=force, restart=restart))


class _ReferenceJob(StoreJob):
    """Every document of a store, and the model that embeds them."""

    stage = "embed the reference"
    waits = True

    def __init__(self, store: Store, embedder: Embedder, progress: Progress) -> None:
        self._store = store
        self._embedder = embedder
        self._progress = progress
        self._before = store.snapshot()
        self._writer: StoreWriter | None = None
        self._batches: Batches | None = None

    def close(self) -> None:
        """Let go of the workers of an embedder."""
        if self._batches is not None:
            self._batches.close()

    @property
    def total(self) -> int:
        return self._store.info.count

    def configuration(self) -> Configuration:
        return Configuration(COMMAND, self._store.snapshot().as_json(), model_options(self._embedder))

    def shards(self) -> Iterator[Shard]:
        return batches_of(self._store.info.count)

    def task(self, work: Work) -> ShardTask:
        before, self._work = work.rows, work

        def report(done: int) -> None:
            self._progress(self.stage, before + done, self.total)

        source = self._store.info.location
        self._batches = Batches(self._embedder, self._documents(work), report, source=source, done=self._done(work))
        return EmbedTask(work, self._embedder, self._batches, self._write)

    def finish(self, work: Work) -> dict[str, Any]:
        if self._batches is not None:
            self._batches.settle()
        self._open(noted_identity(work, self._embedder).dim).finish()
        self._store.check_unchanged(self._before)
        hashes = hash_written(self._store, work.content, work.digest.of)
        return finish_embedding(work, self._embedder, MADE_BY, hashes, source_hashes(self._store))

    def _documents(self, work: Work) -> Iterator[Document]:
        """Those that are left, of a million rows at a time: the numbers of all rows would fill the memory."""
        for rows in work.lacking(shards_of(self.total, _ROWS_AT_ONCE)):
            left = work.lacking(batches_of(len(rows), rows.start))
            yield from known_documents(self._store, np.concatenate([np.arange(it.start, it.stop) for it in left]))

    def _done(self, work: Work) -> list[Document]:
        """Some that an earlier run has embedded."""
        first = work.parts[0].shard if work.parts else Shard(0, 0)
        return list(known_documents(self._store, np.arange(first.start, first.stop)))

    def _write(self, start: int, documents: Sequence[Document], vectors: Vectors) -> RowFile:
        writer = self._open(vectors.shape[1])
        writer.write(start, Batch([document.id for document in documents], vectors))
        return writer.rows

    def _open(self, dim: int) -> StoreWriter:
        if self._writer is None:
            work = self._work
            self._writer = self._store.destination(work.content, dim, Resume(work.finished, work.scratch))
        return self._writer


def is_reembedded(store: Store, embedder: Embedder, folder: Path) -> bool:
    """Whether `folder` holds what `reembed_store` would write there, so that nothing need be embedded."""
    if not (folder / MANIFEST_NAME).is_file():
        return False
    made = read_manifest(folder, "store")
    return (made.store.made_by, made.model, made.inputs) == (MADE_BY, embedder.identity, source_hashes(store))


def documents_left(store: Store, output: Path, *, restart: bool = False) -> Iterator[Document]:
    """The documents that `reembed_store` would still embed into `output`, without those that an earlier run did."""
    count = store.info.count
    return known_documents(store, np.arange(count) if restart else rows_left(output, COMMAND, count))
