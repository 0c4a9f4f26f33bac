"""Writes rows to their places in a file, in any order. Knows no format."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import numpy as np

from migrate.errors import StoreError, VectorError
from migrate.files import output_errors
from migrate.vectors import Vectors

_FLOAT_BYTES: Final = 4


class RowFile:
    """A file of float32 rows between a head and a tail.

    Every row has its place, so that rows can be written in any order, by several processes, and again. The file is
    opened for each write: a run that breaks off leaves nothing open.

    Parameters
    ----------
    path
        Created, or emptied unless `finished` says what is in it.
    head
        The bytes before the rows.
    dim
        Dimension of a row.
    count
        How many rows there will be; None where that is not known before the end.
    finished
        The ranges of rows, (start, stop), that are in the file already; None for a new file.
    """

    def __init__(
        self,
        path: Path,
        head: bytes,
        dim: int,
        count: int | None,
        finished: Iterable[tuple[int, int]] | None = None,
    ) -> None:
        self.path = path
        self.dim = dim
        self.count = count
        self.head_size = len(head)
        self._ranges = _merged(finished or ())
        with output_errors(path):
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | (os.O_TRUNC if finished is None else 0)
            descriptor = os.open(path, flags, 0o666)
            try:
                # the head is written again: an earlier run may have completed it
                _write(descriptor, memoryview(head), 0)
                size = self.head_size + (self.rows if count is None else count) * self.row_bytes
                if os.fstat(descriptor).st_size != size:
                    os.truncate(descriptor, size)
            finally:
                os.close(descriptor)

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return self.dim * _FLOAT_BYTES

    @property
    def rows(self) -> int:
        """How many rows are in their places."""
        return sum(stop - start for start, stop in self._ranges)

    def place(self, row: int) -> int:
        """Where a row begins, in bytes from the beginning of the file."""
        return self.head_size + row * self.row_bytes

    def write(self, start: int, vectors: Vectors) -> None:
        """Write rows `start` and on, as they lie in memory.

        Raises
        ------
        VectorError
            They are of another dimension.
        StoreError
            There are more than were announced.
        OutputError
            The operating system refused.
        """
        if vectors.ndim != 2 or vectors.shape[1] != self.dim:
            raise VectorError(f"{self.path}: expected vectors of dimension {self.dim}, found shape {vectors.shape}")
        stop = start + len(vectors)
        if self.count is not None and stop > self.count:
            raise StoreError(f"{self.path}: there is room for {self.count} vectors, and row {stop - 1} was written")
        content = np.ascontiguousarray(vectors, np.dtype("<f4")).reshape(-1).view(np.uint8).data
        with output_errors(self.path):
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC)
            try:
                _write(descriptor, content, self.place(start))
            finally:
                os.close(descriptor)
        self.mark(start, stop)

    def mark(self, start: int, stop: int) -> None:
        """Take note of rows that another process has written."""
        if self._ranges and self._ranges[-1][1] == start:  # in order, as nearly always
            self._ranges[-1] = (self._ranges[-1][0], stop)
        else:
            self._ranges = _merged([*self._ranges, (start, stop)])

    def finish(self, tail: bytes = b"") -> None:
        """Write what comes after the rows and wait for the disk.

        Raises
        ------
        StoreError
            A row is missing.
        OutputError
            The operating system refused.
        """
        rows = self.rows
        expected = rows if self.count is None else self.count
        if rows != expected or len(self._ranges) > 1 or (rows and self._ranges[0][0]):
            raise StoreError(f"{self.path}: {expected} vectors were announced, and {rows} written; write every row")
        with output_errors(self.path):
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC)
            try:
                _write(descriptor, memoryview(tail), self.place(rows))
                os.truncate(descriptor, self.place(rows) + len(tail))
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def _merged(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The ranges in order, those that touch or overlap made one."""
    merged: list[tuple[int, int]] = []
    for start, stop in sorted(ranges):
        if start >= stop:
            continue
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(stop, merged[-1][1]))
        else:
            merged.append((start, stop))
    return merged


def _write(descriptor: int, content: memoryview, offset: int) -> None:
    while content:
        written = os.pwrite(descriptor, content, offset)
        content, offset = content[written:], offset + written
