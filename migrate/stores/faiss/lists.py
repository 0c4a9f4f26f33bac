"""Writes the inverted lists of an IVF,Flat index from rows in a file, without holding them in memory.

FAISS trains the quantizer and finds the list of each row. The lists lie one after the other in the index, first the
vectors of a list and then their labels, so each row has its place once the sizes are known. In memory are a block of
rows, and the list of each row.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import faiss
import numpy as np
from numpy.typing import NDArray

from migrate.files import write_at
from migrate.stores.frames import RefusedError
from migrate.vectors import Vectors
from migrate.work.rows import Rows

_MOST_ROWS: Final = 65_536
_BLOCK_BYTES: Final = 128 << 20
"""Vectors in memory at a time, unless `_MOST_ROWS` are less."""
_NO_LISTS: Final = b"sprs" + bytes(8)
"""How FAISS ends an index whose lists are empty."""


def append_lists(path: Path, index: Any, vectors: Vectors | Rows, labels: NDArray[np.int64]) -> None:
    """Append an IndexIVFFlat, which is trained and empty, to a file, with these vectors in its lists.

    Raises
    ------
    RefusedError
        FAISS finds no list for a vector, as for one with NaN.
    """
    numbers = _assign(index, vectors)
    if (numbers < 0).any():
        missing = int((numbers < 0).sum())
        raise RefusedError(f"FAISS finds no list for {missing} of {len(vectors)} vectors; it drops NaN and Inf")
    # FAISS writes the head of an index that is full, and the lists of one that is empty.
    index.ntotal = len(vectors)
    head = faiss.serialize_index(index).tobytes()
    if not head.endswith(_NO_LISTS):
        raise RefusedError("this release of FAISS writes lists in a way that is not known; use faiss-cpu 1.15")
    sizes = np.bincount(numbers, minlength=index.nlist).astype(np.int64)
    head = head.removesuffix(_NO_LISTS) + _sizes(sizes)
    row_bytes = 4 * index.d
    with path.open("r+b") as file:
        begin = file.seek(0, os.SEEK_END)
        file.write(head)
        file.flush()
        ends = begin + len(head) + np.cumsum(sizes * (row_bytes + labels.itemsize))
        starts = ends - sizes * (row_bytes + labels.itemsize)
        # Before anything is written behind it: rows go to their lists in the order in which they come.
        os.truncate(file.fileno(), int(ends[-1]))
        _scatter(file.fileno(), numbers, vectors, labels, starts, starts + sizes * row_bytes)


def _assign(index: Any, vectors: Vectors | Rows) -> NDArray[np.int32]:
    """Return the list of each row, -1 for none."""
    numbers = np.empty(len(vectors), np.int32)
    step = _block_rows(index.d)
    for first in range(0, len(vectors), step):
        _, nearest = index.quantizer.search(np.ascontiguousarray(vectors[first : first + step]), 1)
        numbers[first : first + step] = nearest[:, 0]
    return numbers


def _block_rows(dim: int) -> int:
    row_bytes = 4 * dim
    return max(min(_BLOCK_BYTES // row_bytes, _MOST_ROWS), 1)


def _sizes(sizes: NDArray[np.int64]) -> bytes:
    """Return the sizes as FAISS writes them: of all lists, or, where most are empty, number and size of the others."""
    filled = np.flatnonzero(sizes)
    # The rule of FAISS, so that files are the same to the byte.
    if len(filled) > len(sizes) / 2:
        kind = b"full"
        content = sizes
    else:
        kind = b"sprs"
        content = np.stack([filled, sizes[filled]], axis=1).reshape(-1)
    return kind + np.array([content.size], "<i8").tobytes() + content.astype("<i8").tobytes()


def _scatter(
    descriptor: int,
    numbers: NDArray[np.int32],
    vectors: Vectors | Rows,
    labels: NDArray[np.int64],
    vectors_at: NDArray[np.int64],
    labels_at: NDArray[np.int64],
) -> None:
    """Write each row to its list; where the next one of each goes is kept in `vectors_at` and `labels_at`."""
    step = _block_rows(vectors.shape[1])
    for first in range(0, len(vectors), step):
        block = slice(first, first + step)
        order = np.argsort(numbers[block], kind="stable")
        rows = np.ascontiguousarray(vectors[block][order], "<f4")
        block_labels = labels[block][order].astype("<i8")
        lists, starts = np.unique(numbers[block][order], return_index=True)
        for number, start, stop in zip(lists.tolist(), starts, [*starts[1:], len(rows)], strict=True):
            for content, offsets in ((rows[start:stop], vectors_at), (block_labels[start:stop], labels_at)):
                write_at(descriptor, content.reshape(-1).view(np.uint8).data, int(offsets[number]))
                offsets[number] += content.nbytes
