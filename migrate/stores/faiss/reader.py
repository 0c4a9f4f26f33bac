"""Streams vectors from a FAISS file whose layout is known, in bounded memory.

Each batch is copied into an aligned buffer: the vectors of a flat index begin at byte 45, and sums over unaligned
float32 differ in the last digits. It uses `preadv`, not a memory map: a map kills the process if the file is cut.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from migrate.stores.binary_reader import FileIdentity, read_errors, read_exactly
from migrate.stores.faiss.layout import Layout
from migrate.stores.faiss.walk import read_layout
from migrate.vectors import Vectors


class FaissFile:
    """A FAISS file: its layout, and its vectors on demand.

    Parameters
    ----------
    path
        The file; it is opened for reading only, and only while something is read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with read_errors(path), path.open("rb", buffering=0) as file:
            self.identity = FileIdentity.of(file.fileno())
        self.layout: Layout = self._read_layout()
        self.dim = self.layout.header.dim
        self.count = self.layout.header.count
        self._segments = self.layout.segments

    def _read_layout(self) -> Layout:
        return read_layout(self.path)

    def batches(self, batch_size: int, start: int = 0, stop: int | None = None) -> Iterator[tuple[int, Vectors]]:
        """First row and vectors of each batch of rows `start` to `stop`, overwritten by those of the next one."""
        stop = self.count if stop is None else min(stop, self.count)
        buffer = np.empty((min(batch_size, self.count), self.dim), np.float32)
        with self._opened() as descriptor:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_SEQUENTIAL)
            for first in range(start, stop, batch_size):
                vectors = buffer[: min(batch_size, stop - first)]
                self._fill(descriptor, vectors, self._segments.pieces(first, first + len(vectors)))
                yield first, vectors
            self._check_unchanged(descriptor)

    def take(self, rows: NDArray[np.int64]) -> Vectors:
        """The vectors of some rows, in the order of `rows`."""
        if rows.size and not 0 <= rows.min() <= rows.max() < self.count:
            raise IndexError(
                f"rows {rows.min()} to {rows.max()} are out of range, the file has rows 0 to {self.count - 1}"
            )
        vectors = np.empty((rows.size, self.dim), np.float32)
        with self._opened() as descriptor:
            self._fill(descriptor, vectors, self._runs(rows))
        return vectors

    @contextmanager
    def _opened(self) -> Iterator[int]:
        """A descriptor of the file that holds the vectors, unchanged since it was first looked at."""
        with read_errors(self.path), self.path.open("rb", buffering=0) as file:
            self.identity.check(self.path, file.fileno())
            yield file.fileno()

    def _check_unchanged(self, descriptor: int) -> None:
        """Make sure, after reading, that the file did not change in the meantime."""
        self.identity.check(self.path, descriptor)

    def _runs(self, rows: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
        """Byte offset and byte count of each run of rows that follow one another in the file."""
        row_bytes = self._segments.row_bytes
        offsets = self._segments.row_offsets(rows)
        breaks = np.flatnonzero(np.diff(offsets) != row_bytes) + 1
        bounds = [0, *breaks.tolist(), rows.size] if rows.size else [0]
        for first, last in pairwise(bounds):
            yield int(offsets[first]), (last - first) * row_bytes

    def _fill(self, descriptor: int, vectors: Vectors, pieces: Iterator[tuple[int, int]]) -> None:
        if not vectors.size:
            return
        target = vectors.data.cast("B")
        done = 0
        for offset, size in pieces:
            read_exactly(self.path, descriptor, target[done : done + size], offset)
            done += size
