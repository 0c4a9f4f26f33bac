"""Bytes on disk and in memory, before there are any: simple sums, held against real runs by `benchmarks/cost.py`.

A flat index is told to the byte. What a coded index becomes in another dimension is for the writer to find; here its
size goes with the dimension, and the figure is marked as about.
"""

from __future__ import annotations

from dataclasses import dataclass

from migrate.sample.pairs import MOST_PAIRS
from migrate.stores.base import Store

FLOAT_BYTES = 4
_CACHE_OVERHEAD = 64
"""Bytes of an entry of the embedding cache beside its vector: key, checksum, SQLite's own."""

_PART_DOCUMENTS = 1_024
_MIB = 1 << 20
_BASE = 64 * _MIB
"""Python with NumPy, a client and the reader of a store."""

_BASE_FIT = 350 * _MIB
"""The same with SciPy, scikit-learn and what a fit that reads texts keeps of them."""

_BASE_LOCAL = 900 * _MIB
"""The same with torch and a small model; a large one takes its weights beside."""

_VECTORS_ONLY = ("IndexFlat", "IndexIVFFlat", "IndexHNSWFlat")


@dataclass(frozen=True, slots=True)
class StoreBytes:
    """Bytes of a store now and after it moved. `is_exact` says whether those of the new index are known to the byte."""

    now: int
    index_now: int
    index_after: int
    is_exact: bool
    is_built: bool

    @property
    def after(self) -> int:
        """The new store: index, ids and texts, without the few kilobytes of a manifest."""
        return self.now - self.index_now + self.index_after


def store_bytes(store: Store, dim: int) -> StoreBytes:
    """What a store takes up, and will take up with vectors of dimension `dim`.

    An index that keeps whole vectors changes by four bytes a number, an inverted one by its centroids too. One that is
    built anew (`is_built`: all but flat ones) needs its rows on disk and the whole index in memory while it is built.
    """
    info = store.info
    now = sum(stamp.size for stamp in store.stamps)
    index = int(info.details.get("index bytes", info.count * info.dim * FLOAT_BYTES))
    rows = info.count + int(info.details.get("nlist", 0))
    after = index + rows * (dim - info.dim) * FLOAT_BYTES
    kind = info.index_type.replace("IndexIDMap2(", "").replace("IndexIDMap(", "").rstrip(")")
    whole = kind.startswith(_VECTORS_ONLY)
    is_flat = kind.startswith("IndexFlat")
    return StoreBytes(max(now, index), index, after if whole else round(index * dim / info.dim), is_flat, not is_flat)


def cache_bytes(documents: int, dim: int) -> int:
    """What the embedding cache grows by."""
    return documents * (dim * FLOAT_BYTES + _CACHE_OVERHEAD)


def stitch_bytes(pairs: int, source_dim: int, dim: int) -> int:
    """A linear map and the true vectors of its sample; one that reads texts keeps a few megabytes more."""
    return (source_dim * dim + pairs * dim) * FLOAT_BYTES


def embed_memory(size: StoreBytes, documents: int, dim: int, *, is_local: bool) -> int:
    """Peak memory of embedding the store: one part of vectors and texts, ids and texts of the store, a built index."""
    base = _BASE_LOCAL if is_local else _BASE
    part = _PART_DOCUMENTS * (2 * dim * FLOAT_BYTES + (size.now - size.index_now) // max(documents, 1))
    return base + part + 3 * (size.now - size.index_now) + (2 * size.index_after if size.is_built else 0)


def migrate_memory(size: StoreBytes, pairs: int, source_dim: int, dim: int, *, is_local: bool) -> int:
    """Peak memory of a fit on so many pairs, or of the translation, whichever is more.

    A fit holds every true vector, its pairs in float64 some times over, and the system of the old dimension; a
    translation holds batches of 16 MiB and, where the stitch reads texts, many times that of their words.
    """
    width, fitted = source_dim + dim, min(pairs, MOST_PAIRS)
    fit = pairs * dim * FLOAT_BYTES + (4 * fitted * width + 3 * source_dim * width) * 2 * FLOAT_BYTES
    translate = 20 * 16 * _MIB + (2 * size.index_after if size.is_built else 0)
    base = _BASE_LOCAL if is_local else _BASE_FIT
    return base + max(fit, translate) + 3 * (size.now - size.index_now)
