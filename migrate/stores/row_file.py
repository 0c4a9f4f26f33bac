"""Appends rows to a file as fast as the disk takes them, and makes them durable. Knows no format."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import numpy as np

from migrate.errors import StoreError, VectorError
from migrate.files import output_errors
from migrate.vectors import Vectors

_WRITEBACK_BYTES: Final = 64 << 20
_FLOAT_BYTES: Final = 4


class RowFile:
    """A file of float32 rows between a head and a tail.

    It is opened for each append, so that a run that breaks off leaves nothing open. Every 64 MiB the system is asked
    to begin writing them to disk: otherwise all of them wait for the fsync at the end.

    Parameters
    ----------
    path
        Created, or emptied but for the rows that are kept.
    head
        The bytes before the rows.
    dim
        Dimension of a row.
    count
        How many rows there will be; None where that is not known before the end.
    kept
        How many rows of an earlier writer's stay in the file; what comes after them is cut.
    """

    def __init__(self, path: Path, head: bytes, dim: int, count: int | None, kept: int = 0) -> None:
        self.path = path
        self.dim = dim
        self.count = count
        self.rows = kept
        self.head_size = len(head)
        self.size = len(head) + kept * dim * _FLOAT_BYTES
        self._handed_over = self.size
        with output_errors(path):
            self._keep(head) if kept else path.write_bytes(head)

    def append(self, vectors: Vectors) -> None:
        """Write the next rows as they lie in memory.

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
        self.rows += len(vectors)
        if self.count is not None and self.rows > self.count:
            raise StoreError(f"{self.path}: expected {self.count} vectors, found more; append each document once")
        self._append_bytes(np.ascontiguousarray(vectors, np.dtype("<f4")).reshape(-1).view(np.uint8).data)

    def finish(self, tail: bytes = b"") -> None:
        """Write what comes after the rows and wait for the disk.

        Raises
        ------
        StoreError
            There are fewer rows than were announced.
        OutputError
            The operating system refused.
        """
        if self.count is not None and self.rows != self.count:
            raise StoreError(f"{self.path}: expected {self.count} vectors, found {self.rows}; append every document")
        self._append_bytes(memoryview(tail))
        with output_errors(self.path), self.path.open("ab") as file:
            os.fsync(file.fileno())

    def _keep(self, head: bytes) -> None:
        """The head is written again: it may have been cut short, or completed, since."""
        with self.path.open("r+b", buffering=0) as file:
            if os.fstat(file.fileno()).st_size < self.size:
                raise StoreError(f"{self.path}: expected {self.rows} vectors to go on from, found fewer; begin anew")
            file.truncate(self.size)
            file.write(head)

    def _append_bytes(self, content: memoryview) -> None:
        with output_errors(self.path), self.path.open("ab", buffering=0) as file:
            self.size += len(content)
            while content:
                content = content[file.write(content) :]
            if self.size - self._handed_over >= _WRITEBACK_BYTES:
                # Drops only what is on disk already; for the rest it starts the writing and does not wait.
                os.posix_fadvise(file.fileno(), self._handed_over, 0, os.POSIX_FADV_DONTNEED)
                self._handed_over = self.size
