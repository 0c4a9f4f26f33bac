"""The order of a store that has no rows: its ids, sorted, in a file. Rows are positions in it.

A database gives its records in any order, and another one each time. Its adapter reads the ids once, and this file says
from then on which row is whose, in this process, in others, and in a later run.

The file is a head, the ids one after another as UTF-8, where each of them ends, and the place at which each was read
among all, as 64-bit numbers. It is read by position, so that memory does not grow with the store; only building the
file takes sixteen bytes an id.
"""

from __future__ import annotations

import hashlib
import heapq
import os
import struct
import weakref
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO, Final, Self

import numpy as np
from numpy.typing import NDArray

from migrate.errors import OutputError, StoreError
from migrate.files import atomic_file, canonical_json, output_errors
from migrate.stores.binary_reader import malformed, read_errors, read_exactly

_HEAD: Final = struct.Struct("<8sQQ32s")
_MAGIC: Final = b"LMIDIDX2"
_LENGTH: Final = struct.Struct("<I")
_READ_AT: Final = struct.Struct("<IQ")
_SORTED_AT_ONCE: Final = 500_000
_READ_AT_ONCE: Final = 10_000
_EXAMPLES: Final = 3
_ABSENT: Final = -1
_AGAIN: Final = "remove it, and it is made again"


class IdIndex:
    """The ids of a store, sorted as their bytes in UTF-8 are, which is how Python sorts them too.

    `count` is how many there are; `sha256` is of the ids in order, so that two lists with the same hash give the same
    rows. It belongs in the `versions` of the store's snapshot.

    Raises
    ------
    StoreError
        The file is damaged, or not of this kind.
    OutputError
        The operating system refused.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with read_errors(path):  # kept open: the list of an older version may be removed while it is in use
            self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            weakref.finalize(self, os.close, self._file)
            head, whole = os.pread(self._file, _HEAD.size, 0), os.fstat(self._file).st_size
        magic, count, size, digest = _HEAD.unpack(head) if len(head) == _HEAD.size else (b"", 0, 0, b"")
        if magic != _MAGIC or whole != _HEAD.size + size + 16 * count:
            raise malformed(path, "a whole list of ids", "another file", _AGAIN)
        self.count: int = count
        self.sha256: str = digest.hex()
        self._ends = _HEAD.size + size

    @classmethod
    def build(cls, path: Path, ids: Iterable[str], *, source: str) -> Self:
        """Sort the ids of the store at `source`, in any order, into a file; what is at `path` is replaced.

        Raises
        ------
        StoreError
            An id is there twice, or is no text that UTF-8 can hold.
        OutputError
            The operating system refused.
        """
        ends, order, end, digest, before = array("Q"), array("Q"), 0, hashlib.sha256(), None
        with output_errors(path), atomic_file(path, force=True) as aside, aside.open("wb") as file:
            file.write(bytes(_HEAD.size))
            for key, read_at in _sorted(ids, source):
                if key == before:
                    raise StoreError(
                        f"{source}: expected a different id for each document, found {key.decode()!r} twice"
                    )
                file.write(key)
                digest.update(_LENGTH.pack(len(key)) + key)
                end += len(key)
                ends.append(end)
                order.append(read_at)
                before = key
            for numbers in (ends, order):
                file.write(np.array(numbers, "<u8").tobytes())
            file.seek(0)
            file.write(_HEAD.pack(_MAGIC, len(ends), end, digest.digest()))
        return cls(path)

    def ids(self, rows: range | NDArray[np.int64]) -> list[str]:
        """The ids of some rows, in their order.

        Raises
        ------
        IndexError
            There is no such row.
        """
        if len(rows) and not 0 <= min(rows) <= max(rows) < self.count:
            raise IndexError(f"rows {min(rows)} to {max(rows)} requested, 0 to {self.count - 1} are there")
        if isinstance(rows, range) and rows.step == 1:
            return self._slice(rows.start, rows.stop)
        return [self._text(self._key(int(row))) for row in rows]

    def order(self, start: int, stop: int) -> NDArray[np.int64]:
        """At which place the id of each row was read when the list was made, (stop - start,).

        Raises
        ------
        IndexError
            There are no such rows.
        """
        if not 0 <= start <= stop <= self.count:
            raise IndexError(f"rows {start} to {stop - 1} requested, 0 to {self.count - 1} are there")
        places = np.empty(stop - start, "<u8")
        if len(places):
            offset = self._ends + 8 * (self.count + start)
            read_exactly(self.path, self._file, places.view(np.uint8).data, offset)
        return places.astype(np.int64)

    def rows(self, ids: Sequence[str]) -> NDArray[np.int64]:
        """The row of each id, (len(ids),); -1 for an id that the store has not."""
        return np.array([self._row(doc_id) for doc_id in ids], np.int64)

    def _row(self, doc_id: str) -> int:
        key, low, high = doc_id.encode(errors="surrogatepass"), 0, self.count
        while low < high:
            middle = (low + high) // 2
            if self._key(middle) < key:
                low = middle + 1
            else:
                high = middle
        return low if low < self.count and self._key(low) == key else _ABSENT

    def _key(self, row: int) -> bytes:
        start, stop = self._bounds(row, row + 1)
        return self._bytes(start, stop)

    def _slice(self, start: int, stop: int) -> list[str]:
        if start >= stop:
            return []
        bounds = self._bounds(start, stop)
        content, first = self._bytes(bounds[0], bounds[-1]), bounds[0]
        return [self._text(content[begin - first : end - first]) for begin, end in pairwise(bounds)]

    def _text(self, key: bytes) -> str:
        try:
            return key.decode()
        except UnicodeDecodeError as error:
            raise malformed(self.path, "ids in UTF-8", "other bytes", _AGAIN) from error

    def _bounds(self, start: int, stop: int) -> list[int]:
        """Where the ids of rows `start` to `stop` begin, and where the last one ends, from the first id on."""
        before = max(start - 1, 0)
        numbers = np.empty(stop - before, "<u8")
        read_exactly(self.path, self._file, numbers.view(np.uint8).data, self._ends + 8 * before)
        bounds: list[int] = numbers.tolist()
        bounds = bounds if start else [0, *bounds]
        if bounds != sorted(bounds) or bounds[-1] > self._ends - _HEAD.size:
            raise malformed(self.path, "ids one after another", "other places", _AGAIN)
        return bounds

    def _bytes(self, start: int, stop: int) -> bytes:
        content = bytearray(stop - start)
        read_exactly(self.path, self._file, memoryview(content), _HEAD.size + start)
        return bytes(content)


@dataclass(frozen=True, slots=True)
class IdChanges:
    """How many ids came and went between two lists, and the first few of them."""

    added: int
    deleted: int
    examples: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """For a person."""
        if not self.added and not self.deleted:
            return "records with the same ids were changed"
        such = ", ".join(map(repr, self.examples))
        return f"{self.added:,} documents were added and {self.deleted:,} deleted, such as {such}"


def id_changes(before: IdIndex, after: IdIndex) -> IdChanges:
    """Compare two lists, as streams."""
    examples: list[str] = []
    counts = {"added": 0, "deleted": 0}
    old, new = _stream(before), _stream(after)
    left, right = next(old, None), next(new, None)
    while left is not None or right is not None:
        if left == right:
            left, right = next(old, None), next(new, None)
            continue
        is_gone = right is None or (left is not None and left < right)
        counts["deleted" if is_gone else "added"] += 1
        if len(examples) < _EXAMPLES:
            examples.append(str(left if is_gone else right))
        if is_gone:
            left = next(old, None)
        else:
            right = next(new, None)
    return IdChanges(counts["added"], counts["deleted"], tuple(examples))


def _stream(index: IdIndex) -> Iterator[str]:
    for first in range(0, index.count, _READ_AT_ONCE):
        yield from index.ids(range(first, min(first + _READ_AT_ONCE, index.count)))


def kept_index(folder: Path, source: str, version: object, read_ids: Callable[[], Iterable[str]]) -> IdIndex:
    """The ids of the store at `source`, read when it is first opened at a `version`, and kept in `folder` from then on.

    `version` is what the store changes whenever an id comes or goes, as JSON holds it. Lists of its other versions are
    removed. Raises as `IdIndex.build`.
    """
    of_source, of_version = (
        hashlib.sha256(canonical_json(part).encode(errors="surrogatepass")).hexdigest()[:24]
        for part in (source, version)
    )
    path = folder / f"{of_source}-{of_version}.ids"
    with suppress(StoreError, OutputError):
        return IdIndex(path)
    with output_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    index = IdIndex.build(path, read_ids(), source=source)
    for old in folder.glob(f"{of_source}-*.ids"):
        if old != path:
            old.unlink(missing_ok=True)
    return index


def _sorted(ids: Iterable[str], source: str) -> Iterator[tuple[bytes, int]]:
    """The ids in order, with the place of each; what is too much to be sorted at once waits in files of its own."""
    with ExitStack() as files:
        runs = []
        unsorted = ((_encoded(doc_id, source), place) for place, doc_id in enumerate(ids))
        while keys := sorted(islice(unsorted, _SORTED_AT_ONCE)):
            file = files.enter_context(TemporaryFile())
            file.writelines(_READ_AT.pack(len(key), place) + key for key, place in keys)
            file.seek(0)
            runs.append(_keys(file))
        yield from heapq.merge(*runs)


def _keys(file: BinaryIO) -> Iterator[tuple[bytes, int]]:
    while head := file.read(_READ_AT.size):
        length, place = _READ_AT.unpack(head)
        yield file.read(length), place


def _encoded(doc_id: str, source: str) -> bytes:
    try:
        return doc_id.encode()
    except UnicodeEncodeError as error:
        raise StoreError(
            f"{source}: expected an id of Unicode characters, found {doc_id!r}; give it another"
        ) from error
