"""The documents that several stores share, with their vectors in each, or a sample where they are many."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from migrate.errors import StoreError
from migrate.stores.base import Store
from migrate.stores.file_store import check_stamps
from migrate.vectors import Batch, Progress, Vectors, check_vectors, no_progress

SAMPLE = 10_000
"""The largest number of documents to compare."""

FEWEST = 10
"""The smallest number of shared documents that a comparison needs."""

Keys = NDArray[np.uint64]


@dataclass(frozen=True, slots=True, eq=False)
class Matched:
    """Documents by id: row i of each of `vectors`, (n, dim of the store), is `ids[i]`; `shared` is how many there are.

    `rows`, (n,) each, are their rows in the stores. The order is random, by the seed.
    """

    ids: tuple[str, ...]
    vectors: tuple[Vectors, ...]
    rows: tuple[NDArray[np.int64], ...]
    shared: int


def match_documents(
    stores: Sequence[Store], *, sample: int = SAMPLE, seed: int = 0, progress: Progress = no_progress
) -> Matched:
    """Read the vectors of up to `sample` documents that all of the stores have.

    Every id gets a 64-bit hash keyed by `seed`; those with the smallest hashes are the sample, in whatever order the
    stores are. Held in memory are 8 bytes a document of each store, and the sample's vectors.
    """
    keys = [_keys(store, seed, progress, number, len(stores)) for number, store in enumerate(stores)]
    shared = reduce(np.intersect1d, keys)
    if len(shared) < FEWEST:
        names = ", ".join(store.info.location for store in stores)
        raise StoreError(
            f"{names}: the stores have {len(shared) or 'no'} ids in common; compare stores with at least {FEWEST}"
        )
    read = [_take(store, store_keys, shared[:sample]) for store, store_keys in zip(stores, keys, strict=True)]
    for store in stores:
        check_stamps(store)
    # Two ids with one hash are as good as impossible; if it happens they are left out.
    same = [row for row, ids in enumerate(zip(*(batch.ids for batch, _ in read), strict=True)) if len(set(ids)) == 1]
    ids = tuple(read[0][0].ids[row] for row in same)
    vectors = tuple(np.ascontiguousarray(batch.vectors[same]) for batch, _ in read)
    return Matched(ids, vectors, tuple(rows[same] for _, rows in read), len(shared))


def _keys(store: Store, seed: int, progress: Progress, number: int, total: int) -> Keys:
    """Return a hash for each row, (n,); equal ids have equal ones."""
    progress("match documents", number, total)
    secret = str(seed).encode()
    digests = bytearray()
    for batch in store.scan():
        for doc_id in batch.ids:
            digests += hashlib.blake2b(doc_id.encode("utf-8", "surrogatepass"), digest_size=8, key=secret).digest()
    return np.frombuffer(bytes(digests), dtype=np.uint64)


def _take(store: Store, keys: Keys, shared: Keys) -> tuple[Batch, NDArray[np.int64]]:
    """Return the vectors and the rows in the order of `shared`; the store has all of them."""
    distinct, first = np.unique(keys, return_index=True)
    rows = first[np.searchsorted(distinct, shared)].astype(np.int64)
    batch = store.get(rows)
    check_vectors(batch.ids, batch.vectors, source=store.info.location)
    return batch, rows
