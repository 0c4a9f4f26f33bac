"""The bytes that stand before and after the vectors of a flat FAISS file, as `faiss.write_index` writes them."""

from __future__ import annotations

import struct
from typing import Final

import numpy as np
from numpy.typing import NDArray

from migrate.stores import fourcc
from migrate.stores.base import Metric
from migrate.stores.faiss_layout import IdMap, Layout

_RESERVED: Final = 1 << 20


def index_head(code: str, dim: int, count: int, metric: Metric) -> bytes:
    """A code and the header of a trained index."""
    number = fourcc.METRIC_NUMBERS[metric]
    return struct.pack("<4siqqqBi", code.encode(), dim, count, _RESERVED, _RESERVED, 1, number)


def flat_head(dim: int, count: int, metric: Metric) -> bytes:
    """What stands before the vectors of an IndexFlatL2 or IndexFlatIP, 45 bytes."""
    code = "IxFI" if metric == "ip" else "IxF2"
    return index_head(code, dim, count, metric) + struct.pack("<Q", count * dim)


def id_map_head(layout: Layout, dim: int) -> bytes:
    """What stands before the inner index of an id map; nothing for other kinds."""
    if not isinstance(layout, IdMap):
        return b""
    return index_head(layout.header.code, dim, layout.header.count, layout.header.metric)


def id_map_tail(layout: Layout) -> bytes:
    """What stands after the inner index of an id map, the ids; nothing for other kinds."""
    if not isinstance(layout, IdMap):
        return b""
    ids: NDArray[np.int64] = layout.id_map
    return struct.pack("<Q", ids.size) + ids.astype("<i8", copy=False).tobytes()
