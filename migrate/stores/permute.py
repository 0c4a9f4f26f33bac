"""Puts vectors that come in one order into another, in bounded memory: what does not fit waits in a file, in parts."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from migrate.files import output_errors, require_room
from migrate.vectors import Vectors

_FLOAT_BYTES: Final = 4
PART_BYTES: Final = 64 << 20
"""How much is put in order at once."""


def in_order(
    arrivals: Iterable[Vectors], rows: NDArray[np.int64], dim: int, folder: Path, *, part_bytes: int = PART_BYTES
) -> Iterator[Vectors]:
    """The vectors in the order of their rows, (n, dim), float32, some at a time.

    Parameters
    ----------
    arrivals
        The vectors as they come, some at a time, (n, dim).
    rows
        The row of each, (count,): 0 to count - 1, each once.
    dim
        Their dimension.
    folder
        Where they may wait; it must have room for all of them.
    part_bytes
        How much is put in order at once.

    Raises
    ------
    OutputError
        There is no room.
    """
    size = max(part_bytes // (dim * _FLOAT_BYTES), 1)
    if len(rows) <= size:
        yield _placed(np.concatenate([np.empty((0, dim), np.float32), *arrivals]), rows)
        return
    with output_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        require_room(folder, len(rows) * dim * _FLOAT_BYTES)
        with TemporaryFile(dir=folder) as file:
            came = _parts(file, arrivals, rows, size)
            for first in range(0, len(rows), size):
                places = came[first : first + size] - first
                content = os.pread(file.fileno(), len(places) * dim * _FLOAT_BYTES, first * dim * _FLOAT_BYTES)
                yield _placed(np.frombuffer(content, np.float32).reshape(-1, dim), places)


def _parts(file: BinaryIO, arrivals: Iterable[Vectors], rows: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Write each vector to the part that its row is in; the rows of all, part by part, in the order of the file."""
    came, ends = np.empty(len(rows), np.int64), np.arange(0, len(rows), size)
    start = 0
    for vectors in arrivals:
        own = rows[start : start + len(vectors)]
        start += len(vectors)
        parts = own // size
        by_part = np.argsort(parts, kind="stable")
        numbers, firsts = np.unique(parts[by_part], return_index=True)
        for number, chosen in zip(numbers.tolist(), np.split(by_part, firsts[1:]), strict=True):
            end = int(ends[number])
            os.pwrite(file.fileno(), vectors[chosen].tobytes(), end * vectors.shape[1] * _FLOAT_BYTES)
            came[end : end + len(chosen)] = own[chosen]
            ends[number] += len(chosen)
    return came


def _placed(vectors: Vectors, rows: NDArray[np.int64]) -> Vectors:
    placed = np.empty_like(vectors)
    placed[rows] = vectors
    return placed
