"""Reads files that may be cut or replaced meanwhile, and makes the errors of those that are damaged."""

from __future__ import annotations

import os
import reprlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from migrate.errors import OutputError, StoreError
from migrate.files import describe_os_error

DAMAGED = "the file is damaged or was not copied whole; copy it again"


_SHOWN = reprlib.Repr()
_SHOWN.maxstring = _SHOWN.maxother = _SHOWN.maxlong = 80
_SHOWN.maxlevel = 2


def shown(value: object) -> str:
    """Return the repr of a value out of a file, short however large it is, for a message of one line."""
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


def read_exactly(path: Path, descriptor: int, target: memoryview, offset: int) -> None:
    """Fill `target` with the bytes of an open file from `offset` on.

    Raises
    ------
    StoreError
        The file ends before; it was cut while it was being read.
    """
    done = 0
    while done < len(target):
        count = os.preadv(descriptor, [target[done : done + (1 << 30)]], offset + done)
        if count == 0:
            raise malformed(
                path, f"{offset + len(target)} bytes", f"{offset + done}", "the file was cut while it was read"
            )
        done += count
