"""The rows of a store through a stitch: in batches of bounded memory, the same whoever translates them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

import numpy as np

from migrate.pace import has_pace, with_rests
from migrate.stitch.fitted import FittedStitch, TranslatedBatch
from migrate.stores.base import Store
from migrate.stores.old_checksums import Checksums, vector_checksums
from migrate.threads import one_thread, thread_count
from migrate.vectors import Batch
from migrate.work.shards import Block, Shard

Chunk = TypeVar("Chunk")
Result = TypeVar("Result")

# Not to be tuned: products of other rows together differ in the last digits, and unfinished work would go on with
# these.
_BATCH_BYTES = 16 << 20
_CACHE_BYTES = 2 << 20
# Arbitrary: with fewer rows a product of matrices costs more a row, whatever the dimension.
_FEWEST_ROWS = 256


def batch_rows(dim: int) -> int:
    """Return the rows of a batch of about 16 MiB, a power of two, so that memory is bounded."""
    return _rows_in(_BATCH_BYTES, dim)


def _rows_in(size: int, dim: int) -> int:
    """Return how many vectors are of about so many bytes, a power of two."""
    # Powers of two: parts of the one size fill a batch of the other without a rest.
    return 1 << (max(size // (4 * dim), _FEWEST_ROWS).bit_length() - 1)


def translated_blocks(store: Store, fitted: FittedStitch, rows: int, patch: bool, shard: Shard) -> Iterator[Block]:
    """Return the rows of a shard, translated, with a rest after each block under a pace: the same whoever does it.

    `rows` are read at a time. With them go their confidence, and checksums of what they were made of.
    """

    def translate(batch: Batch, texts: list[str] | None, checksums: Checksums) -> Block:
        done = fitted.translate(batch, texts, source=store.info.location, patch=patch)
        return Block({"vectors": done.vectors, "confidence": done.confidence, "sources": checksums})

    batches = _read_batches(store, fitted, rows, shard)
    if fitted.reads_texts:  # by models, one batch after the other
        return with_rests(translate(batch, texts, vector_checksums(batch.vectors)) for batch, texts in batches)
    largest = max(store.info.dim, fitted.dim)
    # Checksums are taken by this thread, which waits else: where one thread may compute, that one only maps.
    chunks = ((chunk, vector_checksums(chunk.vectors)) for batch, _ in batches for chunk in chunks_of(batch, largest))
    # no thread works while the others rest
    ahead = 0 if has_pace() else None
    return with_rests(by_threads(lambda chunk: translate(chunk[0], None, chunk[1]), chunks, ahead=ahead))


def by_threads(
    translate: Callable[[Chunk], Result], chunks: Iterable[Chunk], *, ahead: int | None = None
) -> Iterator[Result]:
    """Yield what a function makes of each chunk, in order, by as many threads as there are cores.

    While one chunk is waited for, `ahead` more are under way: as many as there are threads, unless it is given.
    Each product is made by one thread, so that its last digits do not depend on how many there are.
    """
    count = thread_count()
    if ahead is None:
        ahead = count
    translating = deque[Future[Result]]()
    with one_thread(), ThreadPoolExecutor(count) as threads:
        for chunk in chunks:
            translating.append(threads.submit(translate, chunk))
            if len(translating) > ahead:
                yield translating.popleft().result()
        while translating:
            yield translating.popleft().result()


def chunks_of(batch: Batch, dim: int) -> Iterator[Batch]:
    """Yield copies of parts of a batch that fit into the cache of a processor."""
    count = _rows_in(_CACHE_BYTES, dim)
    for start in range(0, len(batch), count):
        span = slice(start, start + count)
        # Copies, as a store overwrites a batch once the next one is asked for, and threads still work on this one.
        yield Batch(batch.ids[span], np.array(batch.vectors[span]))


def translated_batches(
    store: Store, fitted: FittedStitch, rows: int, *, patch: bool = True
) -> Iterator[TranslatedBatch]:
    """Yield the vectors of a store after the stitch, `rows` at a time, with their confidence.

    Raises VectorError: a vector is zero or not finite, before or after.
    """
    for batch, texts in _read_batches(store, fitted, rows, Shard(0, store.info.count)):
        yield fitted.translate(batch, texts, source=store.info.location, patch=patch)


def _read_batches(
    store: Store, fitted: FittedStitch, rows: int, shard: Shard
) -> Iterator[tuple[Batch, list[str] | None]]:
    """Yield the rows of a shard, each batch valid until the next is asked for, and texts if the stitch reads them."""
    if not fitted.reads_texts:
        for batch in store.scan(shard.start, shard.stop, batch_size=rows):
            yield batch, None
        return
    documents = store.documents(np.arange(shard.start, shard.stop))
    for batch in store.scan(shard.start, shard.stop, batch_size=rows):
        chunk = list(islice(documents, len(batch)))
        yield Batch([document.id for document in chunk], batch.vectors), [document.text for document in chunk]
