"""Finds the second file of an index whose inverted lists are kept on disk, and holds its size against what is claimed.

FAISS maps that file into memory: one that is too short kills the process at the first touch.
"""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from migrate.errors import StoreError
from migrate.stores.cursor import FileCursor, read_errors

_CODE: Final = b"ilod"
_LABEL_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class OnDiskLists:
    """The second file."""

    path: Path
    size: int


def find_lists(index: Path) -> OnDiskLists | None:
    """The file of inverted lists that belongs to an index; None where there is none.

    Raises
    ------
    StoreError
        It is missing or too short.
    OutputError
        The operating system refused.
    """
    with read_errors(index), index.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return None
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            place = content.find(_CODE)
        while place >= 0:
            cursor = FileCursor(index, file.fileno())
            cursor.position = place + len(_CODE)
            try:
                name, needed = _read_claims(cursor)
            except StoreError:
                # four letters among the vectors that happen to spell the code
                place = _next_place(file.fileno(), place + 1)
                continue
            return _checked(index, name, needed)
    return None


def _next_place(descriptor: int, start: int) -> int:
    with mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ) as content:
        return content.find(_CODE, start)


def _read_claims(cursor: FileCursor) -> tuple[str, int]:
    """The name of the file, and how many bytes it must have."""
    lists, code_bytes = cursor.unpack("QQ", "the shape of the lists")
    (count,) = cursor.unpack("Q", "the count of lists")
    if (count != 3 * lists and count != lists) or not lists:
        raise StoreError("other lists")
    table = cursor.array("<u8", 3 * lists, "lists").reshape(-1, 3)
    cursor.vector(2 * _LABEL_BYTES, "free places")
    at, length = cursor.vector(1, "the name")
    (total,) = cursor.unpack("Q", "the size")
    name = cursor.array_at(np.dtype(np.uint8), at, length).tobytes()
    row_bytes = code_bytes + _LABEL_BYTES
    ends = [offset + capacity * row_bytes for _, capacity, offset in table.tolist() if capacity]
    try:
        return name.decode(), max([total, *ends])
    except UnicodeDecodeError as error:
        raise StoreError("another name") from error


def _checked(index: Path, name: str, needed: int) -> OnDiskLists:
    # Beside the index only: a path out of a stranger's file must not lead to what is not his.
    path = index.with_name(Path(name).name or "lists")
    if not path.is_file():
        raise StoreError(
            f"{index}: expected its inverted lists in the file {path.name} beside it, found no such file; "
            f"copy or link {name} there"
        )
    size = path.stat().st_size
    if size < needed:
        raise StoreError(f"{path}: expected {needed} bytes of inverted lists, found {size}; copy it again")
    return OnDiskLists(path, size)
