"""A full re-embed of a store: what a translation is compared with, and what may take the store's place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np

from migrate.checkpoint.folder import Configuration, StoreJob, Work, rows_left, write_store
from migrate.embed.corpus import (
    NO_COUNTS,
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
from migrate.embedders.prefix import whole_model
from migrate.errors import LeadMigrateError
from migrate.manifest import MANIFEST_NAME, Manifest, StoreFacts, read_manifest
from migrate.runners import Shard, ShardTask, shards_of
from migrate.selection.sample import known_documents
from migrate.stores import open_store
from migrate.stores.all_true import TRUE, note_content
from migrate.stores.base import Resume, Store, StoreWriter
from migrate.stores.confidence import ConfidenceFile
from migrate.stores.file_store import source_hashes, state_of, verify_files
from migrate.stores.outputs import FolderOutput, Output
from migrate.stores.registry import output_of
from migrate.stores.row_file import RowFile
from migrate.vectors import Batch, Document, Progress, Vectors, no_progress

COMMAND = "re-embed"
_ROWS_AT_ONCE = 1 << 20
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

    Raises
    ------
    StoreError
        The store has no texts, and the embedder reads them; or it is not the one of its manifest.
    UsageError, OutputError, LockedError, RemoteError, InputError
        As `embed_corpus`.
    """
    verify_files(store)
    place = output_of(output)
    with closing(_ReembedJob(store, embedder, place, progress)) as job:
        facts = write_store(place.work_place, job, force=force, restart=restart)
    note_content(place.location)
    return as_embedding(place.where, facts)


class _ReembedJob(StoreJob):
    """Every document of a store, and the model that embeds them."""

    stage = "embed every document"
    waits = True

    def __init__(self, store: Store, embedder: Embedder, output: Output, progress: Progress) -> None:
        self._store = store
        self._embedder = embedder
        self._output = output
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
        options = {**model_options(self._embedder), **self._output.work_options}
        return Configuration(COMMAND, self._store.snapshot().as_json(), options)

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
        model = noted_identity(work, self._embedder)
        writer = self._open(model.dim)
        writer.finish()
        self._store.check_unchanged(self._before)
        counts = NO_COUNTS
        if whole_model(model) == model:  # vectors of first tokens are true ones of no whole text
            counts = {TRUE: self.total}
            with ConfidenceFile(work.content, self.total) as file:
                file.put(0, np.ones(self.total, np.float32))
                file.sync()
        source_state = StoreFacts(source_state=state_of(self._store, self._before)).as_details()
        facts = {**source_state, **self._output.facts(self._store, work.content, work.digest.of)}
        done = finish_embedding(work, self._embedder, MADE_BY, facts, source_hashes(self._store), counts)
        return {**done, "remarks": list(writer.remarks)}

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
            resume = Resume(work.finished, work.scratch)
            self._writer = self._output.writer(self._store, work.content, dim, resume)
        return self._writer


def is_reembedded(store: Store, embedder: Embedder, output: Path | str) -> bool:
    """Whether `output` holds what `reembed_store` would write there, so that nothing need be embedded."""
    made = _manifest_at(output)
    if made is None or made.store.made_by != MADE_BY:
        return False
    return (made.model, made.inputs) == (embedder.identity, source_hashes(store))


def _manifest_at(output: Path | str) -> Manifest | None:
    """The manifest of a store that has the name of an output; None where there is none."""
    place = output_of(output)
    if type(place) is FolderOutput:
        return read_manifest(place.path, "store") if (place.path / MANIFEST_NAME).is_file() else None
    with suppress(LeadMigrateError):
        return open_store(place.location).info.manifest
    return None


def documents_left(store: Store, output: Path | str, *, restart: bool = False) -> Iterator[Document]:
    """The documents that `reembed_store` would still embed into `output`, without those that an earlier run did."""
    count = store.info.count
    return known_documents(store, np.arange(count) if restart else rows_left(output_of(output).path, COMMAND, count))
