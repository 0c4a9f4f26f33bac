"""What the bytes of a flat, HNSW or IVF-flat index say, alone or in an id map: a second reader to judge the first by.

Written down from FAISS's `impl/index_write.cpp` in one go over the bytes in memory. It checks next to nothing, and
shares no line with the package.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Content:
    """What an index holds: its metric as FAISS numbers it, the ids of its rows, and the vectors, (n, dim)."""

    metric: int
    ids: NDArray[np.int64]
    vectors: NDArray[np.float32]

    def same(self, other: Content) -> bool:
        """Whether both hold the same vectors, to the bit, under the same ids."""
        return self.metric == other.metric and self._by_id() == other._by_id()

    def _by_id(self) -> tuple[bytes, tuple[int, ...], bytes]:
        order = np.argsort(self.ids, kind="stable")
        return self.ids[order].tobytes(), self.vectors.shape, self.vectors[order].tobytes()


class UnreadableError(Exception):
    """The bytes say nothing that this reader understands."""


def read_plain(content: bytes) -> Content:
    """What an index holds.

    Raises
    ------
    UnreadableError
        It is of another kind, or cut.
    """
    try:
        return _index(_Bytes(content))
    except (struct.error, ValueError, KeyError, IndexError, OverflowError) as error:
        raise UnreadableError(str(error)) from error


class _Bytes:
    """A place in the bytes."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.at = 0

    def fields(self, layout: str) -> tuple[Any, ...]:
        found = struct.unpack_from("<" + layout, self.content, self.at)
        self.at += struct.calcsize("<" + layout)
        return found

    def array(self, dtype: str, count: int) -> NDArray[Any]:
        found = np.frombuffer(self.content, dtype, count, self.at)
        self.at += found.nbytes
        return found

    def vector(self, dtype: str) -> NDArray[Any]:
        (count,) = self.fields("Q")
        return self.array(dtype, count)

    def header(self) -> tuple[int, int, int]:
        """Dimension, count and metric."""
        dim, count, _, _, _, metric = self.fields("iqqqBi")
        return dim, count, metric


def _index(source: _Bytes) -> Content:
    (code,) = source.fields("4s")
    kinds = {b"IHNf": _hnsw, b"IwFl": _ivf, b"IxMp": _id_map, b"IxM2": _id_map}
    return kinds.get(code, _flat)(source) if code in {*kinds, b"IxF2", b"IxFI", b"IxFl"} else _unknown(code)


def _unknown(code: bytes) -> Content:
    raise ValueError(f"the code {code!r}")


def _flat(source: _Bytes) -> Content:
    dim, count, metric = source.header()
    return Content(metric, np.arange(count), source.vector("<f4").reshape(count, dim))


def _id_map(source: _Bytes) -> Content:
    _, _, metric = source.header()
    inner = _index(source)
    return Content(metric, source.vector("<i8")[inner.ids], inner.vectors)


def _hnsw(source: _Bytes) -> Content:
    _, _, metric = source.header()
    # probabilities, neighbours per level, levels, offsets, links; then five settings
    for dtype in ("<f8", "<i4", "<i4", "<u8", "<i4"):
        source.vector(dtype)
    source.fields("5i")
    stored = _index(source)
    return Content(metric, stored.ids, stored.vectors)


def _ivf(source: _Bytes) -> Content:
    dim, _, metric = source.header()
    source.fields("QQ")
    _index(source)
    (direct_map,) = source.fields("B")
    source.vector("<i8")
    if direct_map == 2:
        source.vector("<i8,<i8")
    parts = [_list(source, size, dim) for size in _sizes(source) if size]
    ids = [part[0] for part in parts]
    rows = [part[1] for part in parts]
    return Content(
        metric, np.concatenate([np.empty(0, "<i8"), *ids]), np.concatenate([np.empty((0, dim), "<f4"), *rows])
    )


def _sizes(source: _Bytes) -> list[int]:
    _, _, _, form = source.fields("4sQQ4s")
    sizes: list[int] = source.vector("<u8").tolist()
    return sizes if form == b"full" else sizes[1::2]


def _list(source: _Bytes, size: int, dim: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    rows = source.array("<f4", size * dim).reshape(size, dim)
    return source.array("<i8", size), rows
