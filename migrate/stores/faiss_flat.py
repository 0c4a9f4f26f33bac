"""Reads the header that every FAISS index begins with, and the flat index, the one that holds the vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from migrate.errors import StoreError, UnsupportedStoreError
from migrate.stores import fourcc
from migrate.stores.cursor import FileCursor, malformed
from migrate.stores.faiss_layout import FLOAT_BYTES, Flat, Header

_LARGEST_DIM: Final = 1 << 20
_RESERVED: Final = 1 << 20


def read_header(cursor: FileCursor, code: str) -> Header:
    """Read a header, of an index of the kind `code`; the code itself has been read."""
    name = fourcc.CLASS_NAMES[code]
    dim, count, first, second, trained, metric = cursor.unpack("iqqqBi", f"the header of {name}")
    if not 0 < dim <= _LARGEST_DIM:
        raise malformed(cursor.path, f"a dimension of 1 to {_LARGEST_DIM} in {name}", dim)
    if count < 0:
        raise malformed(cursor.path, f"a count of vectors in {name}", count)
    if (first, second) != (_RESERVED, _RESERVED) or trained not in {0, 1}:
        raise malformed(cursor.path, f"the header of {name}", "other bytes")
    if metric not in fourcc.METRICS:
        _refuse_metric(cursor.path, name, metric)
    if not trained:
        raise StoreError(f"{cursor.path}: expected a trained index, found an untrained {name}; train and fill it first")
    return Header(code, dim, count, fourcc.METRICS[metric])


def _refuse_metric(path: Path, name: str, number: int) -> None:
    if number not in fourcc.OTHER_METRICS:
        raise malformed(path, f"a metric of FAISS in {name}", f"number {number}")
    raise UnsupportedStoreError(
        f"{path}: expected the metric L2 or inner product, found {fourcc.OTHER_METRICS[number]} in {name}; "
        "build the index with one of these first"
    )


def read_flat(cursor: FileCursor, code: str) -> Flat:
    """Read the header of a flat index and pass its vectors."""
    header = read_header(cursor, code)
    if (code, header.metric) in {("IxF2", "ip"), ("IxFI", "l2")}:
        raise malformed(cursor.path, f"the metric of {fourcc.FLAT[code]}", f"{header.metric!r}")
    (count,) = cursor.unpack("Q", "the count of numbers")
    if count != header.count * header.dim:
        raise malformed(cursor.path, f"{header.count} x {header.dim} numbers", count)
    return Flat(header, cursor.skip(count * FLOAT_BYTES, f"{header.count} vectors"))


def expect_same_shape(path: Path, outer: Header, inner: Header) -> None:
    """Make sure that an index and the one inside agree on count and dimension."""
    if (outer.dim, outer.count) != (inner.dim, inner.count):
        expected = f"{outer.count} vectors of dimension {outer.dim} in {fourcc.CLASS_NAMES[inner.code]}"
        raise malformed(path, expected, f"{inner.count} of dimension {inner.dim}")
