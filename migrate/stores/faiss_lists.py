"""Reads the inverted lists of an IVF index: where each list's vectors lie, and the labels stored beside them."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from migrate.stores.cursor import FileCursor, malformed
from migrate.stores.faiss_layout import FLOAT_BYTES, Header, Segments

_LABEL_BYTES: Final = 8


class NeedsFaissError(Exception):
    """An index whose outermost header is fine, and whose vectors only FAISS itself can tell; not for users.

    Parameters
    ----------
    header
        The header.
    """

    def __init__(self, header: Header) -> None:
        super().__init__(header.code)
        self.header = header


def skip_direct_map(cursor: FileCursor) -> None:
    """Pass the map from labels to places: it is not needed, the lists are walked."""
    (kind,) = cursor.unpack("B", "the kind of direct map")
    if kind > 2:
        raise malformed(cursor.path, "a direct map of kind 0, 1 or 2", kind)
    cursor.vector(_LABEL_BYTES, "the direct map")
    if kind == 2:
        cursor.vector(2 * _LABEL_BYTES, "the direct map")


def read_lists(cursor: FileCursor, header: Header, nlist: int) -> tuple[Segments, NDArray[np.int64]]:
    """Where the vectors of all lists lie, and their labels in the same order."""
    kind = cursor.fourcc("the kind of inverted lists")
    if kind == "ilod":
        raise NeedsFaissError(header)
    if kind != "ilar":
        raise malformed(cursor.path, "inverted lists", f"the code {kind!r}")
    lists, code_bytes = cursor.unpack("QQ", "the shape of the inverted lists")
    row_bytes = header.dim * FLOAT_BYTES
    if (lists, code_bytes) != (nlist, row_bytes):
        raise malformed(cursor.path, f"{nlist} lists of {row_bytes} bytes a vector", f"{lists} of {code_bytes}")
    sizes = _read_sizes(cursor, nlist)
    # Python's integers: sums of hostile sizes overflow NumPy's
    stored = sum(sizes.tolist())
    if stored != header.count:
        advice = "FAISS drops NaN vectors from the lists yet counts them; build it again without them"
        raise malformed(cursor.path, f"{header.count} vectors in the lists", stored, advice)
    return _place_lists(cursor, sizes[sizes > 0].astype(np.int64), row_bytes)


def _read_sizes(cursor: FileCursor, nlist: int) -> NDArray[np.uint64]:
    """The sizes of the lists that are stored, in the order of the file."""
    form = cursor.fourcc("the form of the list sizes")
    (count,) = cursor.unpack("Q", "the count of list sizes")
    if form == "full" and count == nlist:
        return cursor.array("<u8", count, "list sizes")
    if form == "sprs" and count % 2 == 0 and count <= 2 * nlist:
        pairs = cursor.array("<u8", count, "list sizes").reshape(-1, 2)
        numbers = pairs[:, 0]
        if numbers.size and (numbers[-1] >= nlist or (numbers[1:] <= numbers[:-1]).any()):
            raise malformed(cursor.path, f"list numbers that rise up to {nlist - 1}", "others")
        return pairs[:, 1]
    raise malformed(cursor.path, f"the sizes of {nlist} lists", f"{count} numbers of form {form!r}")


def _place_lists(cursor: FileCursor, sizes: NDArray[np.int64], row_bytes: int) -> tuple[Segments, NDArray[np.int64]]:
    """Where each list's vectors begin, and all labels; a list is its vectors, then its labels."""
    first_rows = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    count = int(first_rows[-1])
    start = cursor.skip(count * (row_bytes + _LABEL_BYTES), f"{count} vectors and labels")
    offsets = start + first_rows[:-1] * (row_bytes + _LABEL_BYTES)
    labels = np.empty(count, np.int64)
    for first, last, offset in zip(first_rows[:-1].tolist(), first_rows[1:].tolist(), offsets.tolist(), strict=True):
        labels[first:last] = cursor.array_at(np.dtype("<i8"), offset + (last - first) * row_bytes, last - first)
    return Segments(first_rows, offsets, row_bytes), labels
