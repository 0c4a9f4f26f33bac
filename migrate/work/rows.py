"""Vectors that lie in files, run after run of rows."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from migrate.errors import StoreError
from migrate.files import open_descriptor, output_errors
from migrate.vectors import Vectors

_BATCH_BYTES: Final = 16 << 20
"""Vectors that are read at a time, in memory, unless the caller says how many rows."""


class Rows:
    """Vectors read where they lie; as much of an array of (count, dim) as is needed.

    `runs` has the number of the file, offset and count of rows that follow each other in it, (n, 3), of `dtype`. They
    are copied into an aligned buffer: the vectors of a flat index begin at byte 45, and sums over unaligned float32
    differ in the last digits. `preadv` reads them, not a memory map: a map kills the process if a file is cut.
    """

    def __init__(self, paths: Sequence[Path], runs: NDArray[np.int64], dim: int, dtype: Any = "<f4") -> None:
        self.paths = paths
        self.dim = dim
        self.dtype = np.dtype(dtype)
        self._files, self._offsets, counts = runs.astype(np.int64).reshape(-1, 3).T
        self._first_rows = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        self.count = int(self._first_rows[-1])

    @property
    def shape(self) -> tuple[int, int]:
        """Number and dimension."""
        return self.count, self.dim

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, rows: slice | NDArray[np.int64]) -> Vectors:
        if isinstance(rows, slice):
            start, stop, _ = rows.indices(self.count)
            return self.read(start, stop)
        return self.take(rows.ravel()).reshape(*rows.shape, self.dim)

    def part(self, start: int, stop: int) -> Rows:
        """Return rows `start` to `stop`, not included, where they lie."""
        counts = np.diff(self._first_rows)
        low = np.clip(start - self._first_rows[:-1], 0, counts)
        high = np.clip(stop - self._first_rows[:-1], 0, counts)
        offsets = self._offsets + low * self.dim * self.dtype.itemsize
        runs = np.stack([self._files, offsets, high - low], axis=1)
        return Rows(self.paths, runs[high > low], self.dim, self.dtype)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Vectors:
        return self.read(0, self.count)

    def read(self, start: int, stop: int) -> Vectors:
        """Return rows `start` to `stop`, not included, (stop - start, dim)."""
        return self.take(np.arange(start, stop))

    def take(self, rows: NDArray[np.int64]) -> Vectors:
        """Return the vectors of some rows, in the order of `rows`."""
        if rows.size and not 0 <= rows.min() <= rows.max() < self.count:
            raise IndexError(f"rows {rows.min()} to {rows.max()} asked for, 0 to {self.count - 1} are there")
        vectors = np.empty((rows.size, self.dim), np.float32)
        order = None
        if (rows[1:] < rows[:-1]).any():
            # Ascending, so that rows side by side are read by one call, and a disk is read in one direction.
            order = np.argsort(rows, kind="stable")
            rows = rows[order]
        with self._open() as descriptor_of:
            self._fill(descriptor_of, vectors, rows)
        if order is None:
            return vectors
        in_order = np.empty_like(vectors)
        in_order[order] = vectors
        return in_order

    def batches(
        self, rows: int | None = None, start: int = 0, stop: int | None = None
    ) -> Iterator[tuple[int, Vectors]]:
        """Yield first row and vectors of each batch of rows `start` to `stop`, overwritten once the next is asked for.

        That one is read meanwhile.
        """
        row_bytes = 4 * self.dim
        at_once = rows or max(_BATCH_BYTES // row_bytes, 1)
        stop = self.count if stop is None else min(stop, self.count)
        starts = range(start, stop, at_once)
        # Two: one is filled while the caller works on the other.
        buffers = [np.empty((min(at_once, stop - start), self.dim), np.float32) for _ in starts[:2]]

        def read(number: int) -> Vectors:
            first = starts[number]
            vectors = buffers[number % 2][: stop - first]
            self._fill(descriptor_of, vectors, np.arange(first, first + len(vectors)))
            return vectors

        ahead: Future[Vectors] | None = None
        with self._open() as descriptor_of, ThreadPoolExecutor(1) as thread:
            for number, first in enumerate(starts):
                vectors = read(number) if ahead is None else ahead.result()
                ahead = thread.submit(read, number + 1) if number + 1 < len(starts) else None
                yield first, vectors

    @contextmanager
    def _open(self) -> Iterator[Callable[[int], int]]:
        """Yield a function that returns a descriptor of a file by its number; the one before is closed."""
        number = descriptor = -1

        def descriptor_of(file: int) -> int:
            nonlocal number, descriptor
            # One at a time: there are as many files as shards, and a process may have some thousand open.
            if file != number:
                with output_errors(self.paths[file]):
                    opened = open_descriptor(self.paths[file])
                if descriptor >= 0:
                    os.close(descriptor)
                number = file
                descriptor = opened
            return descriptor

        try:
            yield descriptor_of
        finally:
            if descriptor >= 0:
                os.close(descriptor)

    def _fill(self, descriptor_of: Callable[[int], int], vectors: Vectors, rows: NDArray[np.int64]) -> None:
        """Read rows, with one call for those that follow each other in a file."""
        if not vectors.size:
            return
        row_bytes = self.dim * self.dtype.itemsize
        runs = np.searchsorted(self._first_rows, rows, side="right") - 1
        offsets = self._offsets[runs] + (rows - self._first_rows[runs]) * row_bytes
        files = self._files[runs]
        breaks = np.flatnonzero((np.diff(offsets) != row_bytes) | (np.diff(files) != 0)) + 1
        numbers = vectors if self.dtype == vectors.dtype else np.empty(vectors.shape, self.dtype)
        target = numbers.reshape(-1).view(np.uint8).data
        for first, last in pairwise([0, *breaks.tolist(), rows.size]):
            file = int(files[first])
            span = target[first * row_bytes : last * row_bytes]
            self._read(descriptor_of(file), self.paths[file], span, int(offsets[first]))
        if numbers is not vectors:
            with np.errstate(over="ignore", invalid="ignore"):  # too large becomes infinite, and is refused as that
                vectors[:] = numbers

    def _read(self, descriptor: int, path: Path, target: memoryview, offset: int) -> None:
        """Fill `target` with the bytes of an open file from `offset` on."""
        while target:
            # A call reads less than 2 GiB on Linux, and macOS refuses one that asks for more.
            count = os.preadv(descriptor, [target[: 1 << 30]], offset)
            if not count:
                raise StoreError(
                    f"{path}: the file was cut while it was read and ends before its last row; run the command again"
                )
            target = target[count:]
            offset = offset + count
