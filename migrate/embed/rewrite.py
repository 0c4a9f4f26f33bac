"""Jobs that write the documents of a store again with other vectors, for translations, re-embeddings and syncs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from migrate.embedders.abilities import save_state
from migrate.embedders.base import Embedder
from migrate.errors import StoreError
from migrate.files import beside
from migrate.manifest import Manifest, StoreFacts
from migrate.stores.all_true import note_content
from migrate.stores.base import Snapshot, Store
from migrate.stores.old_checksums import Checksums, vector_checksums
from migrate.stores.outputs import Output
from migrate.stores.updates import UpdatableStore
from migrate.translate import batch_rows
from migrate.vectors import Vectors
from migrate.work.jobs import Configuration, StoreJob, Work
from migrate.work.shards import Block, Shard, shards_of
from migrate.work.writer import StoreWriter

TRUE_VECTOR: Final = -1
"""In the place of a row: the document gets its true vector."""


@dataclass(eq=False)
class RewriteJob(StoreJob):
    """The documents of `store`, in its order, in a new store like it; `before` is how it was when the work began."""

    store: Store
    output: Output
    before: Snapshot

    command: ClassVar[str]

    @property
    def total(self) -> int:
        """The number of its documents."""
        return self.store.info.count

    @property
    def rows(self) -> int:
        """The number of rows of a batch: a product of other rows together may differ in the last digit."""
        return batch_rows(max(self.store.info.dim, self.dim or 0))

    @abstractmethod
    def options(self) -> Mapping[str, Any]:
        """Return what a run that is continued has in common with the one that was begun, beside stores and output."""

    def source(self) -> Mapping[str, Any]:
        """Return what is read, as it is now; or was when all was made that an earlier run has only to write."""
        begun = self.output.begun_with(self.command)
        return self.store.snapshot().as_json() if begun is None else begun["source"]

    def configuration(self) -> Configuration:
        """Return what is read and the options."""
        return Configuration(self.command, self.source(), {**self.options(), **self.output.work_options})

    def writer(self, work: Work, dim: int) -> StoreWriter:
        """Return the output's."""
        return self.output.writer(self.store, work.content, dim)

    def shards(self, work: Work) -> Iterable[Shard]:
        """Return a shard for each batch."""
        return shards_of(self.total, self.rows)

    def check_sources(self, work: Work) -> None:
        """Make sure that what was read is as it was; raises a StoreError."""
        self.store.check_unchanged(self.before)

    def check_vectors(self, work: Work) -> None:
        """Make sure that no old vector changed since it was read, by the checksums in the shards.

        Reads all vectors again, of a store that does not notice changed ones by itself, and nothing of any other.
        """
        store = self.store
        if not isinstance(store, UpdatableStore) or store.records.notices_vectors:
            return
        store.records.refresh()
        expected = work.shards.all_values("sources")
        start = 0
        for batch in store.scan():
            differ = np.flatnonzero(vector_checksums(batch.vectors) != expected[start : start + len(batch)])
            if len(differ):
                raise StoreError(
                    f"{store.info.location}: the store changed while it was read (the vector of "
                    f"{batch.ids[differ[0]]!r}); nothing was written, run again"
                )
            start += len(batch)

    @abstractmethod
    def conclude(self, work: Work, order: NDArray[np.int64] | None) -> tuple[Manifest, Mapping[str, Any]]:
        """Write what goes with the store; return its manifest, without hashes, and facts that JSON can hold.

        `order` is that of its rows, as `Written` has it.
        """

    def finish(self, work: Work, writer: StoreWriter) -> dict[str, Any]:
        """Complete the store, if what was read is unchanged, and write its manifest."""
        written = writer.finish(work.all_rows(writer.dim), work.shards)
        # After the last row was read: until then somebody may write to the source.
        self.check_sources(work)
        value_hashes = StoreFacts(beside_hashes=work.write_values(written.order) or None).as_details()
        manifest, details = self.conclude(work, written.order)
        hashes = {**self.output.store_facts(self.store, work.content, writer.hash_of), **value_hashes}
        replace(manifest, details={**manifest.details, **hashes}).write(work.content)
        return {"recall": written.recall, "remarks": list(written.remarks), **details}


@dataclass(eq=False)
class PatchJob(RewriteJob):
    """Vectors that another store has already, and true ones for the other documents.

    `kept` has the vector of each document in one of its `kept_rows`, (n,), unless that is `TRUE_VECTOR`: those are of
    `embedder`. `confidence` is of the new vectors, `sources` of the vectors that they come from, where that is known.
    `manifest` is the new store's, without hashes. With `is_proof` every vector is known to be true, and the store is
    known again by what it holds.
    """

    embedder: Embedder
    kept: Store
    kept_rows: NDArray[np.int64]
    confidence: Vectors
    sources: Checksums | None
    manifest: Manifest
    is_proof: bool

    @property
    def dim(self) -> int:
        """The dimension of the vectors that are kept."""
        return self.kept.info.dim

    @abstractmethod
    def true_vectors(self, rows: NDArray[np.int64]) -> Iterable[Vectors]:
        """Return the true vectors, (dim,), of some documents of the store; called in the order of the shards."""

    def blocks(self, shard: Shard) -> Iterator[Block]:
        """Make one block."""
        shard_rows = slice(shard.start, shard.stop)
        rows = self.kept_rows[shard_rows]
        vectors = np.empty((len(rows), self.dim), np.float32)
        is_true = rows == TRUE_VECTOR
        if not is_true.all():
            vectors[~is_true] = _vectors_of(self.kept, rows[~is_true])
        true = np.flatnonzero(is_true)
        for row, vector in zip(true, self.true_vectors(true + shard.start) if len(true) else (), strict=True):
            vectors[row] = vector
        if self.sources is None:
            sources = {}
        else:
            sources = {"sources": self.sources[shard_rows]}
        yield Block({"vectors": vectors, "confidence": self.confidence[shard_rows], **sources})

    def conclude(self, work: Work, _order: NDArray[np.int64] | None) -> tuple[Manifest, Mapping[str, Any]]:
        """Write the state of the model, and return the manifest."""
        save_state(self.embedder, beside(work.content))
        return self.manifest, {}

    def note_published(self) -> None:
        """Note what the store holds, where it is one that needs no other proof."""
        if self.is_proof:
            note_content(self.output.location)


def _vectors_of(store: Store, rows: NDArray[np.int64]) -> Vectors:
    """Return the vectors of some rows; those of files that are near each other in one go, which leaves ids unread."""
    first = int(rows.min())
    count = int(np.ptp(rows)) + 1
    # Arbitrary: in one go no more rows are read in vain than are wanted.
    if isinstance(store, UpdatableStore) or count > 2 * len(rows):
        return store.get(rows).vectors
    batch = next(iter(store.scan(first, first + count, batch_size=count)))
    near: Vectors = batch.vectors[rows - first]
    return near
