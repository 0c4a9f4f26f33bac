"""Walks forward through a binary file without trusting it: every count is held against the file's size first."""

from __future__ import annotations

import os
import reprlib
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from migrate.errors import OutputError, StoreError
from migrate.files import describe_os_error

_LARGEST_READ = 1 << 30
DAMAGED = "the file is damaged or was not copied whole; copy it again"


_SHOWN = reprlib.Repr()
_SHOWN.maxstring = _SHOWN.maxother = _SHOWN.maxlong = 80
_SHOWN.maxlevel = 2


def shown(value: object) -> str:
    """A value out of a file for a message of one line: its repr, short however large it is."""
    return _SHOWN.repr(value)


@contextmanager
def read_errors(path: Path) -> Iterator[None]:
    """Turn an OSError raised inside into an OutputError (exit code 5) that names `path`."""
    try:
        yield
    except OSError as error:
        raise OutputError(
            f"cannot read {path}: {describe_os_error(error)}; check that it is there and readable"
        ) from error


def malformed(path: Path, expected: str, found: object, advice: str = DAMAGED) -> StoreError:
    """The error of a file that is not what it claims to be, to be raised."""
    return StoreError(f"{path}: expected {expected}, found {found}; {advice}")


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """Tells whether a path still leads to the same bytes, as far as the file system can."""

    device: int
    inode: int
    size: int
    modified_ns: int

    @classmethod
    def of(cls, descriptor: int) -> FileIdentity:
        """The identity of an open file."""
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


def read_exactly(path: Path, descriptor: int, target: memoryview, offset: int) -> None:
    """Fill `target` with the bytes of an open file from `offset` on.

    Raises
    ------
    StoreError
        The file ends before; it was cut while it was being read.
    """
    done = 0
    while done < len(target):
        count = os.preadv(descriptor, [target[done : done + _LARGEST_READ]], offset + done)
        if count == 0:
            raise malformed(
                path, f"{offset + len(target)} bytes", f"{offset + done}", "the file was cut while it was read"
            )
        done += count


class FileCursor:
    """A position in an open file of known size.

    Parameters
    ----------
    path
        Named in errors.
    descriptor
        Of a file opened for reading; stays the caller's.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self.descriptor = descriptor
        self.size = os.fstat(descriptor).st_size
        self.position = 0

    @property
    def remaining(self) -> int:
        """Bytes between the position and the end of the file."""
        return self.size - self.position

    def skip(self, count: int, what: str) -> int:
        """Pass `count` bytes and return where they begin; their presence is checked, nothing is read."""
        if count > self.remaining:
            raise malformed(
                self.path,
                f"{count} bytes of {what} at byte {self.position}",
                f"{self.remaining} bytes up to the end",
            )
        start = self.position
        self.position += count
        return start

    def unpack(self, layout: str, what: str) -> tuple[Any, ...]:
        """Read little-endian fields as `struct` describes them."""
        fields = struct.Struct("<" + layout)
        buffer = bytearray(fields.size)
        self._read(memoryview(buffer), self.skip(fields.size, what))
        return fields.unpack(buffer)

    def fourcc(self, what: str) -> str:
        """Read four characters; bytes beyond ASCII become question marks."""
        (code,) = self.unpack("4s", what)
        return bytes(code).decode("ascii", errors="replace").replace("\ufffd", "?")

    def array(self, dtype: str, count: int, what: str) -> NDArray[Any]:
        """Read `count` numbers."""
        kind = np.dtype(dtype)
        start = self.skip(count * kind.itemsize, what)
        return self.array_at(kind, start, count)

    def array_at(self, dtype: np.dtype[Any], start: int, count: int) -> NDArray[Any]:
        """Read `count` numbers that were passed before with `skip`."""
        numbers = np.empty(count, dtype)
        if count:
            self._read(numbers.data.cast("B"), start)
        return numbers

    def vector(self, item_bytes: int, what: str) -> tuple[int, int]:
        """Pass a counted vector (u64 count, then the items); return where the items begin and their count."""
        (count,) = self.unpack("Q", f"the count of {what}")
        return self.skip(count * item_bytes, what), count

    def _read(self, target: memoryview, offset: int) -> None:
        read_exactly(self.path, self.descriptor, target, offset)
