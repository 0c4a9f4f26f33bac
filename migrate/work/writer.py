"""Writers of stores that are made from shards."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from migrate.digests import hash_file, new_hasher, noted
from migrate.errors import StoreError, VectorError
from migrate.files import open_file, output_errors, sync_path, write_at
from migrate.vectors import Vectors
from migrate.work.rows import Rows
from migrate.work.shards import VECTORS, Block, Shard, ShardFolder

Facts = Mapping[str, Any]


@dataclass(frozen=True, eq=False, slots=True)
class Written:
    """A store that is complete.

    Attributes
    ----------
    order
        The row of the source that each row of the store is of, (count,); None where they are the same. What is kept of
        each document beside the store (`confidence.npy`, `sources.npy`) is put in this order. A kind whose rows come to
        lie elsewhere, as an index with new lists or a table sorted by ids, must say so.
    remarks
        What could not be kept as it was, and why.
    recall
        Of an index that may keep less than the vectors it was given, against exact search over these.
    """

    order: NDArray[np.int64] | None = None
    remarks: tuple[str, ...] = ()
    recall: float | None = None


Complete = Callable[[Rows, ShardFolder], Written]
"""Completes a store, durably, from the vectors that were not put, and from the shards, with what `put` returned."""


def all_put(_rows: Rows, _shards: ShardFolder) -> Written:
    """Complete nothing more."""
    return Written()


class StoreWriter:
    """Writes a store into a folder that is there and is nobody else's.

    A kind that can take parts takes them by `put`, from any process; of any other the vectors wait in the files of
    their shards until `complete` writes the store of them. Every process that makes shards has a writer of its own, and
    making one changes nothing that another has written. One process calls `begin` first and `finish` last.

    A writer that `takes_room` needs this disk for its vectors; one whose parts go to object storage does not.
    """

    takes_room: bool = True

    def __init__(self, dim: int, complete: Complete) -> None:
        self.dim = dim
        self._complete = complete

    def begin(self) -> None:
        """Claim the place where parts go, if there is one."""

    def shards(self) -> Sequence[Shard] | None:
        """Return the shards that are the store's parts; None for a store that takes any, or none."""
        return None

    def put(self, shard: Shard, batches: Iterable[Vectors]) -> Facts | None:
        """Write the vectors of a shard, and return what tells later whether they are there; None to have them kept.

        Putting them again writes the same. They are float32, of the writer's dimension.
        """
        return None

    def sync(self) -> None:
        """Make durable what was put."""

    def is_sound(self, shard: Shard, details: Facts) -> bool:
        """Return whether what `put` has said of a shard is still so; called in the order of the shards."""
        return True

    def finish(self, rows: Rows, shards: ShardFolder) -> Written:
        """Complete the store, durably; `rows` has all vectors that were not put, `shards` what `put` returned."""
        return self._complete(rows, shards)

    def hash_of(self, path: Path) -> str:
        """Return the hash of a file of the finished store; not read again where it was taken while it was written."""
        return hash_file(path)


class FlatFileWriter(StoreWriter):
    """A file of float32 rows, `count` if that is known, between a head and a tail; every row has its offset.

    `complete` writes what lies beside it.
    """

    def __init__(
        self, path: Path, head: bytes, dim: int, count: int | None, complete: Complete, *, tail: bytes = b""
    ) -> None:
        super().__init__(dim, complete)
        self.path = path
        self.count = count
        self._tail = tail
        self._begin = len(head)
        self._row_bytes = 4 * dim
        self._stop = 0
        # Of the bytes up to `_end`, as long as shards come in order
        self._hasher = new_hasher()
        self._end = len(head)
        self._hasher.update(head)
        with output_errors(path):
            # Not truncated: the rows that an earlier run has put there are not made again.
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                write_at(descriptor, memoryview(head), 0)  # an earlier run may have completed it
                if count is not None and os.fstat(descriptor).st_size != self._offset(count):
                    os.truncate(descriptor, self._offset(count))
            finally:
                os.close(descriptor)

    def _offset(self, row: int) -> int:
        return self._begin + row * self._row_bytes

    def put(self, shard: Shard, batches: Iterable[Vectors]) -> Facts:
        """Write rows to their places; a batch is written and hashed while the next one is made."""
        if self.count is not None and shard.stop > self.count:
            raise StoreError(
                f"{self.path}: there is room for {self.count} vectors, and row {shard.stop - 1} was written"
            )
        start = shard.start
        begin = self._offset(shard.start)
        in_order = self._end == begin
        hasher = new_hasher()
        if in_order:
            # A copy: where a batch fails, the hash stays that of what was there before.
            hasher = self._hasher.copy()

        def write(content: memoryview, offset: int) -> None:
            write_at(descriptor, content, offset)
            hasher.update(content)

        with output_errors(self.path), ThreadPoolExecutor(1) as pool:
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC)
            written: Future[None] | None = None
            try:
                for vectors in batches:
                    if vectors.ndim != 2 or vectors.shape[1] != self.dim:
                        raise VectorError(
                            f"{self.path}: the vectors have shape {vectors.shape}, and the index has dimension "
                            f"{self.dim}; use one model for all"
                        )
                    if written is not None:
                        written.result()
                    content = np.ascontiguousarray(vectors, np.dtype("<f4")).reshape(-1).view(np.uint8).data
                    written = pool.submit(write, content, self._offset(start))
                    start += len(vectors)
                if written is not None:
                    written.result()
            finally:
                # First: a write under way would go to whatever file gets the number of the descriptor next.
                pool.shutdown()
                os.close(descriptor)
        if start != shard.stop:
            raise StoreError(f"{self.path}: {len(shard)} vectors were announced, and {start - shard.start} written")
        if in_order:
            self._hasher = hasher
            self._end = self._offset(start)
            begin = 0
        self._stop = max(self._stop, start)
        return {"begin": begin, "end": self._offset(start), "hash": noted(hasher)}

    def sync(self) -> None:
        """Wait for the disk."""
        with output_errors(self.path):
            sync_path(self.path)

    def is_sound(self, shard: Shard, details: Facts) -> bool:
        """Return whether the bytes are those that were written: of the rows, or of all up to them, in one reading."""
        begin = self._offset(shard.start)
        end = self._offset(shard.stop)
        in_order = self._end == begin
        if details["end"] != end or details["begin"] != (begin if details["begin"] else 0):
            return False
        if not details["begin"] and not in_order:
            return False
        whole = self._hasher.copy() if in_order else None
        own_hasher = new_hasher() if details["begin"] else None
        with open_file(self.path) as file:
            file.seek(begin)
            while begin < end and (content := file.read(min(1 << 20, end - begin))):
                begin += len(content)
                for hasher in filter(None, (whole, own_hasher)):
                    hasher.update(content)
        file_hasher = own_hasher or whole
        if begin != end or file_hasher is None or noted(file_hasher) != details["hash"]:
            return False
        if whole is not None:
            self._hasher = whole
            self._end = end
        self._stop = max(self._stop, shard.stop)
        return True

    def finish(self, rows: Rows, shards: ShardFolder) -> Written:
        """Complete the file, and what lies beside it."""
        self.finish_file(rows.count, self._tail)
        return super().finish(rows, shards)

    def finish_file(self, rows: int, tail: bytes = b"", head: bytes | None = None) -> None:
        """Write what comes after so many rows, and a head that only the end can tell; wait for the disk."""
        with output_errors(self.path):
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC)
            try:
                if head is not None:
                    write_at(descriptor, memoryview(head), 0)
                    self._end = -1
                write_at(descriptor, memoryview(tail), self._offset(rows))
                # A killed run may have left rows behind the end, where their number was not known.
                os.truncate(descriptor, self._offset(rows) + len(tail))
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        if self._end == self._offset(rows):
            self._hasher.update(tail)
        else:
            self._end = -1

    def hash_of(self, path: Path) -> str:
        """Return the hash that was taken while the rows came in order, or read the file."""
        if path == self.path and self._end >= 0:
            return noted(self._hasher)
        return hash_file(path)


OpenWriter = Callable[[int], StoreWriter]
"""Returns the writer of vectors of a dimension."""

Arrays = Mapping[str, Sequence[NDArray[Any]]]
"""Arrays by name, each in parts that follow each other."""


def make_shard(shard: Shard, blocks: Iterable[Block], open_writer: OpenWriter) -> Callable[[], tuple[Arrays, Facts]]:
    """Make the rows of a shard, and put them if the writer takes parts.

    Returns a function, to be called from any thread, that makes durable what was put, and returns the content of the
    shard's file.
    """
    arrays = defaultdict[str, list[NDArray[Any]]](list)
    details = dict[str, Any]()

    def vectors() -> Iterator[Vectors]:
        for block in blocks:
            details.update(block.details)
            for name, values in block.arrays.items():
                if name != VECTORS:
                    arrays[name].append(values)
            yield block.vectors

    stream: Iterator[Vectors] = vectors()
    writer: StoreWriter | None = None
    first = next(stream, None)
    if first is not None:
        writer = open_writer(first.shape[1])
        stream = chain([first], stream)
        details["put"] = writer.put(shard, stream)
        if details["put"] is None:
            arrays[VECTORS] = list(stream)
        details["dim"] = first.shape[1]

    def seal() -> tuple[Arrays, Facts]:
        if writer is not None and details["put"] is not None:
            writer.sync()
        return arrays, details

    return seal


def put_rows(writer: StoreWriter, shards: ShardFolder, start: int, vectors: Vectors) -> None:
    """Make the shard of some vectors that are there."""
    shard = Shard(start, start + len(vectors))
    block = Block({VECTORS: np.ascontiguousarray(vectors, np.float32)})
    shards.write(shard, *make_shard(shard, [block], lambda _: writer)())


def write_rows(
    writer: StoreWriter, chunks: Iterable[tuple[int, Vectors]], count: int, scratch: Path | None = None
) -> Written:
    """Write a store of `count` rows at once, from parts in any order, each with its first row, by way of `scratch`."""
    with TemporaryDirectory(dir=scratch, prefix=".rows-") as folder:
        shards = ShardFolder(Path(folder))
        writer.begin()
        for start, vectors in chunks:
            put_rows(writer, shards, start, vectors)
        return writer.finish(shards.all_rows(writer.dim, count), shards)
