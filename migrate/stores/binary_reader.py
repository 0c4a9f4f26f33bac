"""Reads files of rows that may be cut or replaced meanwhile, and makes the errors of those that are damaged."""

from __future__ import annotations

import os
import reprlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from migrate.errors import OutputError, StoreError
from migrate.files import FileStamp, describe_os_error, open_descriptor, open_file, refuse_endless
from migrate.work.rows import Rows

SQLITE_MAGIC: Final = b"SQLite format 3\x00"
"""The first bytes of a database."""
_open_databases: dict[tuple[int, int], int] = {}
"""A descriptor of each database that was looked at, by the numbers of its device and file."""
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


def read_head(path: Path, size: int) -> bytes:
    """Return the first bytes of a file; one that is a database of SQLite stays open until the process ends.

    A process that closes a file loses all its locks on it: those too by which a program that has this library in it is
    writing to the database just now, so that another one may write at the same time.

    References
    ----------
    SQLite, "How To Corrupt An SQLite Database File", 2.2, https://www.sqlite.org/howtocorrupt.html
    """
    with read_errors(path):
        status = path.stat()
        file = (status.st_dev, status.st_ino)
        if file in _open_databases:
            return os.pread(_open_databases[file], size, 0)
        descriptor = open_descriptor(path)
        head = os.pread(descriptor, max(size, len(SQLITE_MAGIC)), 0)
        if head.startswith(SQLITE_MAGIC):
            _open_databases[file] = descriptor
        else:
            os.close(descriptor)
        return head[:size]


def malformed(
    path: Path, problem: str, remedy: str = "the file is damaged or was not copied whole; copy it again"
) -> StoreError:
    """Return the error of a file that is not what it claims to be, to be raised."""
    return StoreError(f"{path}: {problem}; {remedy}")


class RowFile(Rows):
    """The rows of one file, which is as it was while they are read.

    `runs` has offset and count of each run, (n, 2); `descriptor` is of a file without a name that has the rows.
    """

    def __init__(
        self,
        stamp: FileStamp,
        runs: NDArray[np.int64],
        dim: int,
        dtype: Any = "<f4",
        descriptor: int | None = None,
    ) -> None:
        super().__init__([stamp.path], np.insert(runs.astype(np.int64), 0, 0, axis=1), dim, dtype)
        self.path = stamp.path
        self.stamp = stamp
        self._descriptor = descriptor

    @contextmanager
    def opened(self) -> Iterator[int]:
        """Yield a descriptor of what holds the rows; before and after, the file is what it was."""
        with read_errors(self.path), open_file(self.path, buffering=0) as file:
            self.stamp.check(file.fileno())
            # And after: what was read while a program replaced the file is of two stores.
            yield file.fileno() if self._descriptor is None else self._descriptor
            self.stamp.check(file.fileno())

    @contextmanager
    def _open(self) -> Iterator[Callable[[int], int]]:
        with self.opened() as descriptor:
            yield lambda _: descriptor
