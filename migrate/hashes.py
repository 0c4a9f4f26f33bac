"""Numbers of texts by their hashes: whatever its length, a text that came before is known by 12 bytes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Hashes = NDArray[np.int64]
"""Hashes of 64 bits, (n,)."""

Number = TypeVar("Number", bound=np.generic)


def hashes_of(texts: Iterable[str]) -> Hashes:
    """Return the hashes of texts, (n,): the same within a process, others in another."""
    return np.fromiter(map(hash, texts), np.int64)


class HashIndex:
    """Up to 2^32 hashes, numbered from 0 in the order in which they first came; 12 bytes each.

    Two texts of one hash are taken for one: among 10^7 texts there are such with a chance of 3 in a million.
    """

    def __init__(self) -> None:
        # Sorted hashes and their numbers, each array more than twice as long as the next
        self._runs: list[tuple[Hashes, NDArray[np.uint32]]] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def find(self, hashes: Hashes) -> NDArray[np.int64]:
        """Return the number of each hash, (n,); -1 where it never came."""
        numbers = np.full(len(hashes), -1, np.int64)
        for run_hashes, run_numbers in self._runs:
            positions = np.minimum(np.searchsorted(run_hashes, hashes), len(run_hashes) - 1)
            is_same = run_hashes[positions] == hashes
            numbers[is_same] = run_numbers[positions[is_same]]
        return numbers

    def number(self, hashes: Hashes) -> NDArray[np.int64]:
        """Return the number of each hash, (n,), after giving one to those that never came."""
        distinct, first, inverse = np.unique(hashes, return_index=True, return_inverse=True)
        numbers = self.find(distinct)
        new = np.flatnonzero(numbers < 0)
        if len(new):
            numbers[new[np.argsort(first[new])]] = np.arange(self._count, self._count + len(new))
            self._add(distinct[new], numbers[new].astype(np.uint32))
        return numbers[inverse]

    def _add(self, hashes: Hashes, numbers: NDArray[np.uint32]) -> None:
        self._count += len(hashes)
        # Arrays grow by doubling, so that a hash is merged a few times in all, not with each batch.
        while self._runs and len(self._runs[-1][0]) <= 2 * len(hashes):
            longer_hashes, longer_numbers = self._runs.pop()
            is_new = np.zeros(len(longer_hashes) + len(hashes), bool)
            is_new[np.searchsorted(longer_hashes, hashes) + np.arange(len(hashes))] = True
            hashes = _merged(longer_hashes, hashes, is_new)
            del longer_hashes  # which may be long: there is not to be room for two of them and both numbers
            numbers = _merged(longer_numbers, numbers, is_new)
        self._runs.append((hashes, numbers))


def _merged(old: NDArray[Number], new: NDArray[Number], is_new: NDArray[np.bool_]) -> NDArray[Number]:
    merged = np.empty(len(is_new), old.dtype)
    merged[is_new] = new
    merged[~is_new] = old
    return merged


def grown(values: NDArray[Any], count: int) -> NDArray[Any]:
    """Return an array with room for so many values, zeros at its end: itself, or one that is at least twice as long."""
    if len(values) >= count:
        return values
    return np.concatenate([values, np.zeros(max(count, 2 * len(values)) - len(values), values.dtype)])
