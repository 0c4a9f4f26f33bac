"""A store of which some documents are embedded anew, and the others keep vectors that are there already."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from migrate.embed.corpus import Batches
from migrate.embed.rewrite import TRUE_VECTOR, PatchJob
from migrate.errors import StoreError
from migrate.selection.sample import known_documents
from migrate.vectors import Progress, Vectors
from migrate.work.jobs import Work


@dataclass(eq=False)
class EmbeddingJob(PatchJob):
    """Vectors that are kept, and true ones that the model gives as they are needed."""

    progress: Progress

    waits = True

    def options(self) -> dict[str, Any]:
        """Return the model, and which documents are embedded."""
        # In one byte order, so that another machine can go on with the work
        rows = hashlib.sha256(self.kept_rows.astype("<i8").tobytes()).hexdigest()
        return {"model": self.embedder.cache_scope("document"), "rows": rows, "rows per batch": self.rows}

    def begin(self, work: Work) -> None:
        """Begin to embed what an earlier run has not."""
        is_left = np.zeros(self.total, bool)
        for shard in work.lacking(self.shards(work)):
            is_left[shard.start : shard.stop] = True
        self._embedded = self._embed(np.flatnonzero(is_left & (self.kept_rows == TRUE_VECTOR)))

    def _embed(self, rows: NDArray[np.int64]) -> Iterator[tuple[str, Vectors]]:
        """Yield the ids of some rows with their true vectors, (dim,), embedded some at a time as they are asked for."""

        def report(done: int) -> None:
            self.progress("embed", done, len(rows))

        # One stream for all shards: a request that is full of texts may reach into the next shard
        documents = known_documents(self.store, rows)
        batches = Batches(self.embedder, documents, report, source=self.kept.info.location)
        for _ in batches.shards(0):
            batch, vectors = batches.next()
            yield from zip((document.id for document in batch), vectors, strict=True)

    def true_vectors(self, rows: NDArray[np.int64]) -> list[Vectors]:
        """Take the next embedded vectors, which go on from one shard to the next."""
        embedded = list(islice(self._embedded, len(rows)))
        if [doc_id for doc_id, _ in embedded] != self.store.ids(rows):
            raise StoreError(
                f"{self.store.info.location}: the documents changed after they were compared; nothing was written, "
                "stop what writes to it, and run again"
            )
        return [vector for _, vector in embedded]
