"""A full re-embed of a store: what a translation is compared with, and what may take the store's place."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from migrate.embed.corpus import (
    Batches,
    Embedding,
    as_embedding,
    batches_of,
    embedded_block,
    embedding_manifest,
    model_options,
)
from migrate.embed.rewrite import RewriteJob
from migrate.embedders.base import Embedder
from migrate.errors import LeadMigrateError
from migrate.files import beside, clear_lock
from migrate.manifest import Manifest, StoreFacts, find_manifest
from migrate.selection.sample import known_documents
from migrate.stores import open_store
from migrate.stores.all_true import TRUE, note_content
from migrate.stores.base import Store
from migrate.stores.confidence import CONFIDENCE_NAME
from migrate.stores.file_store import check_files, source_hashes, state_of
from migrate.stores.registry import output_of
from migrate.vectors import Document, Progress, no_progress
from migrate.work.jobs import Work
from migrate.work.outputs import rows_left, settle, write_store
from migrate.work.shards import Block, Shard, shards_of, write_values

MADE_BY = "full re-embed"
"""What the manifest of a reference says of its origin."""


def reembed_store(
    store: Store,
    embedder: Embedder,
    output: Path | str,
    *,
    force: bool = False,
    restart: bool = False,
    progress: Progress = no_progress,
) -> Embedding:
    """Embed every document of a store into the folder `output`, or into `KIND:...`: same ids, order, texts and kind.

    Every vector is a true one, so that its confidence is 1. A run that broke off is continued, unless `restart`
    discards it.

    Raises StoreError: the store has no texts, and the embedder reads them; or it is not the one of its manifest.
    UsageError, OutputError, LockedError, RemoteError, InputError: as `embed_corpus`.
    """
    # Before anything is paid for: texts that a disk has damaged are not to be embedded.
    check_files(store)
    target = output_of(output)
    with closing(_ReembedJob(store, target, store.snapshot(), embedder, progress)) as job:
        details = write_store(target, job, force=force, restart=restart)
    return as_embedding(target.display_name, details)


@dataclass(eq=False)
class _ReembedJob(RewriteJob):
    """Every document of a store, and the model that embeds them."""

    embedder: Embedder
    progress: Progress

    stage = "embed every document"
    command = "re-embed"
    waits = True

    def __post_init__(self) -> None:
        self._open = ExitStack()

    def close(self) -> None:
        """Let go of the documents that are read."""
        self._open.close()

    def options(self) -> dict[str, Any]:
        return model_options(self.embedder)

    def begin(self, work: Work) -> None:
        earlier = work.rows
        self._work = work

        def report(done: int) -> None:
            self.progress(self.stage, earlier + done, self.total)

        source = self.store.info.location
        self._batches = Batches(self.embedder, self._documents(work), report, source=source, done=self._done(work))
        self._open.callback(self._batches.close)

    def shards(self, work: Work) -> Iterator[Shard]:
        return batches_of(self.total)

    def blocks(self, shard: Shard) -> Iterator[Block]:
        _, vectors = self._batches.next()
        yield embedded_block(self._work, self.embedder, vectors)

    def conclude(self, work: Work, _order: NDArray[np.int64] | None) -> tuple[Manifest, dict[str, Any]]:
        write_values(beside(work.content) / CONFIDENCE_NAME, [np.ones(self.total, "<f4")], self.total)
        details = StoreFacts(made_by=MADE_BY, source_state=state_of(self.store, self.before))
        return embedding_manifest(work, self.embedder, details, source_hashes(self.store), {TRUE: self.total})

    def note_published(self) -> None:
        """Note what the store holds, by which `switch` knows it for a full re-embed."""
        note_content(self.output.location)

    def _documents(self, work: Work) -> Iterator[Document]:
        """Yield those that are left, of a million rows at a time: the numbers of all rows would fill the memory."""
        for rows in work.lacking(shards_of(self.total, 1 << 20)):
            shards_left = work.lacking(batches_of(len(rows), rows.start))
            yield from known_documents(self.store, np.concatenate([np.arange(it.start, it.stop) for it in shards_left]))

    def _done(self, work: Work) -> list[Document]:
        """Return some that an earlier run has embedded."""
        first = next(iter(work.shards), Shard(0, 0))
        return list(known_documents(self.store, np.arange(first.start, first.stop)))


def is_reembedded(store: Store, embedder: Embedder, output: Path | str) -> bool:
    """Return whether `output` holds what `reembed_store` would write there, so that nothing need be embedded."""
    manifest = _manifest_at(output)
    if manifest is None or manifest.store.made_by != MADE_BY:
        return False
    return (manifest.model, manifest.inputs) == (embedder.identity, source_hashes(store))


def finish_reembedded(output: Path | str) -> None:
    """Note what a full re-embed holds whose run was killed before that, and tidy up after it."""
    target = output_of(output)
    if target.completed(_ReembedJob.command) is not None:
        note_content(target.location)
        settle(target, _ReembedJob.command, force=False)
    # A killed run leaves the file of its lock, and nothing is written here any more that would remove it.
    clear_lock(target.path)


def _manifest_at(output: Path | str) -> Manifest | None:
    """Return the manifest of a store that has the name of an output; None where there is none."""
    target = output_of(output)
    if target.form.name is None:
        return find_manifest(target.path, "store")
    # No store is there yet, or none that can be opened: either way it has to be made.
    with suppress(LeadMigrateError):
        return open_store(target.location).info.manifest
    return None


def documents_left(store: Store, output: Path | str, *, restart: bool = False) -> Iterator[Document]:
    """Yield the documents that `reembed_store` would still embed, without those that an earlier run did."""
    count = store.info.count
    path = output_of(output).path
    return known_documents(store, np.arange(count) if restart else rows_left(path, _ReembedJob.command, count))
