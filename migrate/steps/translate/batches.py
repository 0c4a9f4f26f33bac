"""A store from vectors that an engine has made of its batches, held against the stitch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from migrate.errors import StitchError, StoreError
from migrate.files import refuse_overlap
from migrate.steps.base import RunContext
from migrate.steps.opening import stitch_at, store_of
from migrate.steps.translate.job import (
    StoreTranslation,
    Translation,
    output_for,
    paths_read,
    required_stitch,
    write_translation,
)
from migrate.steps.translate.options import TranslateOptions
from migrate.steps.translate.stitch import with_metered_views
from migrate.stitch.fitted import FallbackUse, FittedStitch
from migrate.stores import open_store
from migrate.stores.base import BATCH_SIZE, Snapshot, Store
from migrate.stores.export import IdIndex, IdLookup
from migrate.stores.old_checksums import vector_checksums
from migrate.stores.outputs import Output
from migrate.stores.parquet.store import ParquetStore
from migrate.stores.registry import path_in
from migrate.vectors import Batch, Vectors, check_vectors
from migrate.work.jobs import Work
from migrate.work.shards import Block, Shard

_COMPARED_WITH_TEXTS: Final = 8
"""Vectors of each batch that a stitch makes again that reads texts, which takes long."""

_ROUNDING: Final = 1e-4
"""The most that they may differ by, in parts of their length: products of other batches differ in the last digits."""


@dataclass(frozen=True, eq=False)
class BatchVectors:
    """The vectors that an engine has written for the documents of a source.

    `rows` are theirs in the order of the source, None where both have one order. `confidence` is that of each of the
    files' rows, in their own order.
    """

    files: ParquetStore
    rows: NDArray[np.int64] | None
    confidence: Vectors

    def batches(self, start: int, stop: int, size: int) -> Iterator[tuple[Vectors, Vectors]]:
        """Yield the vectors of documents `start` to `stop` of the source, so many at a time, and their confidence."""
        rows = self.rows
        scanned = self.files.scan(start, stop, batch_size=size)
        for first in range(start, stop, size):
            span = slice(first, min(first + size, stop))
            if rows is None:
                yield next(scanned).vectors, self.confidence[span]
            else:
                yield self.files.get(rows[span]).vectors, self.confidence[rows[span]]


def _rows_in(files: ParquetStore, source: Store) -> NDArray[np.int64] | None:
    """Return the row of each document of a source in the files of an engine, None where both have one order.

    Raises StoreError: a document has no vector, or a vector no document.
    """
    n_vectors = files.info.count
    n_documents = source.info.count
    spans = _spans(n_documents)
    # Ids are read a batch at a time on both sides: all of a large store do not fit into memory
    if n_vectors == n_documents and all(source.ids(span) == files.ids(span) for span in spans):
        return None
    index = IdIndex.of((files.ids(span) for span in _spans(n_vectors)), files.info.location)
    lookup = IdLookup(index)
    rows = np.empty(n_documents, np.int64)
    for span in spans:
        rows[span.start : span.stop] = lookup.rows_of(source.ids(span))
    absent = np.flatnonzero(rows < 0)
    if absent.size:
        (example,) = source.ids(absent[:1])
        raise StoreError(
            f"{files.info.location}: no vector for {absent.size:,} of the {n_documents:,} documents of "
            f"{source.info.location}, such as {example!r}; let the engine write all of them"
        )
    # Every document has its vector by now, so what is left over belongs to none, as of an earlier run's files
    if n_vectors != n_documents:
        raise StoreError(
            f"{files.info.location}: {n_vectors:,} vectors for the {n_documents:,} documents of "
            f"{source.info.location}; write those of this store alone, to a folder that is empty before"
        )
    return index.order[rows]


def _spans(count: int) -> list[range]:
    """Return the rows of a store, some at a time."""
    return [range(first, min(first + BATCH_SIZE, count)) for first in range(0, count, BATCH_SIZE)]


@dataclass(eq=False)
class _FromBatches(StoreTranslation):
    engine_vectors: BatchVectors = field(repr=False)
    compared: int | None

    def options(self) -> dict[str, Any]:
        """Return also what the vectors are of, and how many are compared: others are another work."""
        return {
            **super().options(),
            "vectors": self.engine_vectors.files.snapshot().as_json(),
            "compared": self.compared,
        }

    def opener(self, work: Work) -> None:
        """Return None: this process has the order of the vectors."""
        return

    def blocks(self, shard: Shard) -> Iterator[Block]:
        """Yield the vectors as they were made, after a look at each and a second making of those that are compared."""
        first = shard.start
        batches = self.engine_vectors.batches(shard.start, shard.stop, self.rows)
        for batch in self.store.scan(shard.start, shard.stop, batch_size=self.rows):
            vectors, confidence = next(batches)
            self._check(batch, first, vectors, confidence)
            yield Block({"vectors": vectors, "confidence": confidence, "sources": vector_checksums(batch.vectors)})
            first += len(batch)

    def _check(self, batch: Batch, first: int, vectors: Vectors, confidence: Vectors) -> None:
        """Make sure that the vectors are those of the stitch; `first` is the row of the first of the batch.

        Raises VectorError: one is zero or not finite. StitchError: they are of another stitch, or another store.
        """
        location = self.engine_vectors.files.info.location
        check_vectors(batch.ids, vectors, source=location)
        is_other = self._is_impossible(batch, vectors, confidence)
        rows = self._compared_rows(len(batch))
        texts = None
        if self.fitted.reads_texts:
            texts = [document.text for document in self.store.documents(first + rows)]
        compared = Batch([batch.ids[row] for row in rows], batch.vectors[rows])
        expected = self.fitted.translate(compared, texts, source=self.store.info.location, patch=self.patch)
        largest_difference = _ROUNDING * np.linalg.norm(expected.vectors, axis=1, keepdims=True)
        is_other[rows] |= (np.abs(vectors[rows] - expected.vectors) > largest_difference).any(axis=1)
        # NaN, where the stitch knows no confidence, has to be NaN on both sides
        is_other[rows] |= ~np.isclose(confidence[rows], expected.confidence, rtol=0, atol=_ROUNDING, equal_nan=True)
        if is_other.any():
            doc_id = batch.ids[int(is_other.argmax())]
            raise StitchError(
                f"{location}: the vector or confidence of {doc_id!r} is not what this stitch makes of "
                f"{self.store.info.location}; let the engine write them again, from this store by this stitch"
            )

    def _is_impossible(self, batch: Batch, vectors: Vectors, confidence: Vectors) -> NDArray[np.bool_]:
        """Return which vectors of a batch no run of the stitch could have made, without making any again."""
        sample = self.fitted.sample
        true, sampled = sample.positions(batch.ids if self.patch else [])
        is_true = np.zeros(len(batch), bool)
        is_true[true] = True
        # Predictions are never exactly 1, which marks true vectors
        is_other: NDArray[np.bool_] = (confidence == 1) != is_true
        if self.fitted.selection.confidence is None:
            is_possible = np.isnan(confidence)
        else:
            is_possible = np.abs(confidence) <= 1
        is_other |= ~(is_possible | is_true)
        # True vectors travel unchanged, so these are equal to the last bit
        is_other[true] |= (vectors[true] != sample.vectors[sampled]).any(axis=1)
        return is_other

    def _compared_rows(self, count: int) -> NDArray[np.int64]:
        """Return which rows of a batch of `count` the stitch makes again, evenly spaced."""
        number = self.compared
        if number is None:
            # All, where that takes a product of matrices; to read the texts of all takes as long as the translation
            number = _COMPARED_WITH_TEXTS if self.fitted.reads_texts else count
        return np.linspace(0, count - 1, min(number, count)).astype(np.int64)


def finish_store(
    options: TranslateOptions, made: str, column: str, compared: int | None, context: RunContext
) -> Translation:
    """Write the new store of a translation with the vectors in the files at `made`, and their confidence in `column`.

    Of each batch `compared` are made again, None for the default: all, or a few by a stitch that reads texts.

    Raises as `Translate`; StoreError, VectorError or StitchError where the vectors are not those of its documents.
    """
    files = cast("ParquetStore", open_store(made))
    source = store_of(options.store)
    fitted = with_metered_views(stitch_at(required_stitch(options)), context.cap)
    output = output_for(options, source, context.progress)
    paths = paths_read(options)
    folder = path_in(files.info.location)
    if folder is not None:
        paths.append(folder)
    refuse_overlap(output.path, *paths)
    if files.info.dim != fitted.dim:
        raise StoreError(
            f"{files.info.location}: the vectors have dimension {files.info.dim}, and the stitch makes "
            f"{fitted.dim}; let the engine write those that the function returns"
        )
    vectors = BatchVectors(files, _rows_in(files, source), files.table.numbers(column))

    def make_job(
        store: Store, output: Output, before: Snapshot, fitted: FittedStitch, fallback: FallbackUse | None, _: bool
    ) -> StoreTranslation:
        patch = not options.any_store
        return _FromBatches(store, output, before, fitted, fallback, patch, vectors, compared)

    return write_translation(options, source, fitted, output, make_job, progress=context.progress)
