"""Reads files of rows that may be cut or replaced meanwhile, and makes the errors of those that are damaged."""

from __future__ import annotations

import os
import reprlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from migrate.errors import OutputError, StoreError
from migrate.files import describe_os_error, refuse_endless
from migrate.vectors import Vectors

DAMAGED = "the file is damaged or was not copied whole; copy it again"


_SHOWN = reprlib.Repr()
_SHOWN.maxstring = _SHOWN.maxother = _SHOWN.maxlong = 80
_SHOWN.maxlevel = 2


def shown(value: object) -> str:
    """Return the repr of a value out of a file, short however large it is, for a message of one line."""
    return _SHOWN.repr(value)


@contextmanager
def read_errors(path: Path) -> Iterator[None]:
    """Turn an OSError raised inside into an OutputError (exit code 5) that names `path`, which is no pipe or device."""
    try:
        refuse_endless(path)
        yield
    except OSError as error:
        raise OutputError(
            f"cannot read {path}: {describe_os_error(error)}; check that it is there and readable"
        ) from error


def malformed(path: Path, expected: str, found: object, advice: str = DAMAGED) -> StoreError:
    """Return the error of a file that is not what it claims to be, to be raised."""
    return StoreError(f"{path}: expected {expected}, found {found}; {advice}")


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """Identity of a file, which another file or other content does not have, as far as the file system can tell."""

    device: int
    inode: int
    size: int
    modified_ns: int

    @classmethod
    def of(cls, descriptor: int) -> FileIdentity:
        """Return the identity of an open file."""
        status = os.fstat(descriptor)
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)

    def check(self, path: Path, descriptor: int) -> None:
        """Make sure that an open file is still the one this identity was taken of.

        Raises
        ------
        StoreError
            It was changed or replaced in between.
        """
        if self.of(descriptor) != self:
            raise StoreError(
                f"{path}: expected the file that was opened, found it changed since; run again on a store at rest"
            )


class RowFile:
    """The rows of a file that holds them as they are, in runs of rows one after another.

    They are copied into an aligned buffer: the vectors of a flat index begin at byte 45, and sums over unaligned
    float32 differ in the last digits. It uses `preadv`, not a memory map: a map kills the process if the file is cut.

    Parameters
    ----------
    path
        The file.
    identity
        What it was when the runs were found.
    runs
        Offset and count of each run, (n, 2).
    dim
        Numbers in a row.
    dtype
        Of the file; rows are read as float32.
    descriptor
        Of a file without a name that has the rows of this one.
    """

    def __init__(
        self,
        path: Path,
        identity: FileIdentity,
        runs: NDArray[np.int64],
        dim: int,
        dtype: Any = "<f4",
        descriptor: int | None = None,
    ) -> None:
        self.path, self.identity, self.dim, self.dtype = path, identity, dim, np.dtype(dtype)
        self._descriptor = descriptor
        self._offsets, counts = runs.astype(np.int64).T
        self._first_rows = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        self.count = int(self._first_rows[-1])

    def batches(self, batch_size: int, start: int = 0, stop: int | None = None) -> Iterator[tuple[int, Vectors]]:
        """Yield first row and vectors of each batch of rows `start` to `stop`, overwritten by those of the next one."""
        stop = self.count if stop is None else min(stop, self.count)
        buffer = np.empty((min(batch_size, self.count), self.dim), np.float32)
        with self.opened() as descriptor:
            if hasattr(os, "posix_fadvise"):  # macOS lacks it
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_SEQUENTIAL)
            for first in range(start, stop, batch_size):
                vectors = buffer[: min(batch_size, stop - first)]
                self._fill(descriptor, vectors, np.arange(first, first + len(vectors)))
                yield first, vectors

    def take(self, rows: NDArray[np.int64]) -> Vectors:
        """Return the vectors of some rows, in the order of `rows`."""
        if rows.size and not 0 <= rows.min() <= rows.max() < self.count:
            raise IndexError(f"rows {rows.min()} to {rows.max()} asked for, 0 to {self.count - 1} are there")
        vectors = np.empty((rows.size, self.dim), np.float32)
        with self.opened() as descriptor:
            self._fill(descriptor, vectors, rows)
        return vectors

    @contextmanager
    def opened(self) -> Iterator[int]:
        """Yield a descriptor of what holds the rows; before and after, the file is what it was."""
        with read_errors(self.path), self.path.open("rb", buffering=0) as file:
            self.identity.check(self.path, file.fileno())
            yield file.fileno() if self._descriptor is None else self._descriptor
            self.identity.check(self.path, file.fileno())

    def _fill(self, descriptor: int, vectors: Vectors, rows: NDArray[np.int64]) -> None:
        """Read rows, with one call for those that follow each other in the file."""
        if not vectors.size:
            return
        row_bytes = self.dim * self.dtype.itemsize
        runs = np.searchsorted(self._first_rows, rows, side="right") - 1
        offsets = self._offsets[runs] + (rows - self._first_rows[runs]) * row_bytes
        breaks = np.flatnonzero(np.diff(offsets) != row_bytes) + 1
        numbers = vectors if self.dtype == vectors.dtype else np.empty(vectors.shape, self.dtype)
        target = numbers.reshape(-1).view(np.uint8).data
        for first, last in pairwise([0, *breaks.tolist(), rows.size]):
            self._read(descriptor, target[first * row_bytes : last * row_bytes], int(offsets[first]))
        if numbers is not vectors:
            with np.errstate(over="ignore", invalid="ignore"):  # too large becomes infinite, and is refused as that
                vectors[:] = numbers

    def _read(self, descriptor: int, target: memoryview, offset: int) -> None:
        """Fill `target` with the bytes of an open file from `offset` on."""
        done = 0
        while done < len(target):
            count = os.preadv(descriptor, [target[done : done + (1 << 30)]], offset + done)
            if count == 0:
                expected, cause = f"{offset + len(target)} bytes", "the file was cut while it was read"
                raise malformed(self.path, expected, f"{offset + done}", cause)
            done += count
