"""The four-character codes that FAISS files begin with, its metrics, and the bytes around the vectors of flat files."""

from __future__ import annotations

import re
import struct
from typing import Final

import numpy as np
from numpy.typing import NDArray

from migrate.stores.base import Metric

METRICS: Final[dict[int, Metric]] = {0: "ip", 1: "l2"}
FLAT_HEAD_BYTES: Final = 45
LARGEST_DIM: Final = 1 << 20
METRIC_NUMBERS: Final[dict[Metric, int]] = {name: number for number, name in METRICS.items()}


def is_index(head: bytes) -> bool:
    """Return whether these first bytes can be those of a FAISS file: a code of four characters, then no more text."""
    is_code = re.fullmatch(rb"I[A-Za-z][A-Za-z0-9]{2}", head[:4]) is not None
    return is_code and re.fullmatch(rb"[ -~\s]{4}", head[4:8]) is None  # a dimension


def _head(code: str, dim: int, count: int, metric: Metric) -> bytes:
    """Return a code and the header of a trained index; FAISS ignores the two numbers in its middle."""
    return struct.pack("<4siqqqBi", code.encode(), dim, count, 1 << 20, 1 << 20, 1, METRIC_NUMBERS[metric])


def flat_head(dim: int, count: int, metric: Metric) -> bytes:
    """Return the bytes before the vectors of an IndexFlatL2 or IndexFlatIP, 45 of them."""
    return _head("IxFI" if metric == "ip" else "IxF2", dim, count, metric) + struct.pack("<Q", count * dim)


def read_flat_head(head: bytes, size: int) -> tuple[int, int, Metric] | None:
    """Return dimension, count and metric of a file of `size` bytes that begins as `flat_head`; None for any other."""
    if len(head) < FLAT_HEAD_BYTES:
        return None
    _, dim, count, _, _, _, number, _ = struct.unpack("<4siqqqBiQ", head[:FLAT_HEAD_BYTES])
    metric = METRICS.get(number)
    if metric is None or not 0 < dim <= LARGEST_DIM or count < 0 or size != FLAT_HEAD_BYTES + 4 * dim * count:
        return None
    same = flat_head(dim, count, metric)
    # the two numbers in the middle are ignored by FAISS, too
    return (dim, count, metric) if head[:16] + head[32:FLAT_HEAD_BYTES] == same[:16] + same[32:] else None


def id_map_ends(kind: str, dim: int, metric: Metric, labels: NDArray[np.int64] | None) -> tuple[bytes, bytes]:
    """Return the bytes before and after the index inside an IDMap or IDMap2; none for other kinds."""
    if kind not in {"IDMap", "IDMap2"} or labels is None:
        return b"", b""
    head = _head("IxMp" if kind == "IDMap" else "IxM2", dim, labels.size, metric)
    return head, struct.pack("<Q", labels.size) + labels.astype("<i8", copy=False).tobytes()
