"""`sources.npy` beside a translated store: for each document, a checksum of the old vector that its own came from.

`sync` knows by it which vectors of the old store are others now. It finds changes, not forgeries: whoever chooses the
vectors can find two with one checksum.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from migrate.stores.base import Store
from migrate.stores.confidence import stored_row_values
from migrate.vectors import Vectors

SOURCES_NAME: Final = "sources.npy"
Checksums = NDArray[np.uint64]
"""One number a row, (n,)."""

_CACHED_WORDS: Final = 1 << 16
"""Words of 8 bytes that are mixed at a time: 512 KiB."""
_GOLDEN, _FIRST, _SECOND = (np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def vector_checksums(vectors: Vectors) -> Checksums:
    """Return a 64-bit checksum of the bytes of each row of (n, dim), (n,); some four times as fast as SHA-256.

    The words of a row are mixed, as float32 differ in few bits, and added up with an odd random weight each (the
    multilinear hash of Carter and Wegman, "Universal classes of hash functions", 1979). The weights are numbers of
    SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014), whose first step mixes
    the words, too. One word that differs always shows.
    """
    rows = np.ascontiguousarray(vectors, "<f4").view("<u4")
    as_words = (np.pad(rows, ((0, 0), (0, 1))) if rows.shape[1] % 2 else rows).view("<u8")
    # Odd: multiplication by an even number drops the highest bits of a word, and a change of them with these.
    weights = _split_mix(as_words.shape[1]) | np.uint64(1)
    checksums = np.empty(len(as_words), np.uint64)
    # each step reads the chunk again, so it has to stay in the cache of the processor
    at_once = max(_CACHED_WORDS // len(weights), 1)
    for start in range(0, len(as_words), at_once):
        chunk = as_words[start : start + at_once]
        mixed = chunk ^ (chunk >> np.uint64(32))
        mixed *= _FIRST
        mixed ^= mixed >> np.uint64(29)
        checksums[start : start + at_once] = mixed @ weights
    return checksums


def _split_mix(count: int) -> NDArray[np.uint64]:
    """Return the first numbers of SplitMix64 with seed 0, (count,)."""
    numbers = np.arange(1, count + 1, dtype=np.uint64) * _GOLDEN
    numbers = (numbers ^ (numbers >> np.uint64(30))) * _FIRST
    numbers = (numbers ^ (numbers >> np.uint64(27))) * _SECOND
    return numbers ^ (numbers >> np.uint64(31))


def stored_sources(store: Store) -> Checksums | None:
    """Read the checksum of the old vector of each document, (count,); None of a store that was made without.

    Raises a StoreError where the file is damaged, of another store, or not what the manifest has the hash of.
    """
    advice = "remove it, and `sync` compares texts alone"
    return stored_row_values(store, SOURCES_NAME, "<u8", advice=advice)
