"""The rows of a store through a stitch: in batches of bounded memory, the same whoever translates them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice

import numpy as np

from migrate.pace import rest_for_pace
from migrate.stitch.fitted import FittedStitch, TranslatedBatch
from migrate.stores.base import Store
from migrate.stores.sources import Checksums, vector_checksums
from migrate.vectors import Batch
from migrate.work.shards import Block, Shard

_BATCH_BYTES = 16 << 20
_FEWEST_ROWS = 256


def batch_rows(dim: int) -> int:
    """Return the rows of a batch of about 16 MiB, a power of two, so that memory is bounded."""
    rows = max(_BATCH_BYTES // (4 * dim), _FEWEST_ROWS)
    return 1 << (rows.bit_length() - 1)


def translated_blocks(store: Store, fitted: FittedStitch, rows: int, patch: bool, shard: Shard) -> Iterator[Block]:
    """Yield the rows of a shard, translated, `rows` at a time: the same whoever does it.

    With them go their confidence, and checksums of what they were made of, which a thread takes meanwhile.
    """
    checksums: list[Future[Checksums]] = []
    with ThreadPoolExecutor(1) as thread:

        def take_checksums(batch: Batch) -> None:
            checksums.append(thread.submit(vector_checksums, batch.vectors))

        for done in translated_batches(store, fitted, rows, shard, patch=patch, on_batch=take_checksums):
            sources = checksums.pop().result()  # before the next batch is read into the place of this one
            yield Block({"vectors": done.vectors, "confidence": done.confidence, "sources": sources})


def translated_batches(
    store: Store,
    fitted: FittedStitch,
    rows: int,
    shard: Shard | None = None,
    *,
    patch: bool = True,
    on_batch: Callable[[Batch], None] = lambda _: None,
) -> Iterator[TranslatedBatch]:
    """Yield the vectors of a store, or of a shard, after the stitch, `rows` at a time, with their confidence.

    `on_batch` is called with each batch as it was before.

    Raises VectorError: a vector is zero or not finite, before or after.
    """
    start, stop = (0, store.info.count) if shard is None else (shard.start, shard.stop)
    documents = None
    if fitted.reads_texts:
        documents = store.documents(None if shard is None else np.arange(start, stop))
    for batch in store.scan(start, stop, batch_size=rows):
        texts = None
        if documents is not None:
            chunk = list(islice(documents, len(batch)))
            texts = [document.text for document in chunk]
            batch = Batch([document.id for document in chunk], batch.vectors)
        on_batch(batch)
        yield fitted.translate(batch, texts, source=store.info.location, patch=patch)
        rest_for_pace()
