"""Ids and vectors of a database in files: the ids in memory, the vectors in the order of rows."""

from __future__ import annotations

import hashlib
import mmap
import operator
import os
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from migrate.errors import StoreError
from migrate.files import FileStamp, open_file, write_at
from migrate.stores.binary_reader import RowFile
from migrate.vectors import Vectors

# Arbitrary: as many ids are strings of Python at once, which take more memory than the bytes of them all.
_IDS_AT_ONCE: Final = 1 << 16
IDS_NAME: Final = "ids.npz"
"""The file of an index, among exported vectors, or beside a field that was added to records."""


@dataclass(frozen=True, eq=False)
class IdIndex:
    """The ids of a collection, sorted by their bytes in UTF-8. Rows are positions in it.

    `content` are the ids one after another, `ends` where each of them ends, after a zero; `order` is the position of
    each among the ids of `Driver.pages`.
    """

    content: bytes
    ends: NDArray[np.int64]
    order: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.order)

    @classmethod
    def of(cls, pages: Iterable[Sequence[str]], source: str) -> IdIndex:
        """Sort the ids of pages; raises StoreError if one comes twice, or is no Unicode text."""
        encoded: list[bytes] = []
        try:
            for ids in pages:
                encoded += [doc_id.encode() for doc_id in ids]
        except UnicodeEncodeError as error:
            raise StoreError(
                f"{source}: the id {error.object!r} is not valid Unicode; give the document another"
            ) from error
        # as most databases give them: there is nothing to sort, and none comes twice
        if all(map(operator.lt, encoded, islice(encoded, 1, None))):
            return cls(b"".join(encoded), np.cumsum([0, *map(len, encoded)], dtype=np.int64), np.arange(len(encoded)))
        keys = np.array([*encoded, None], object)[:-1]
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        if (twice := np.flatnonzero(keys[1:] == keys[:-1])).size:
            doc_id = keys[twice[0]].decode()
            raise StoreError(f"{source}: the id {doc_id!r} comes twice; give each document its own")
        return cls(b"".join(keys), np.cumsum([0, *map(len, keys)], dtype=np.int64), order.astype(np.int64))

    @classmethod
    def load(cls, path: Path) -> IdIndex | None:
        """Read a saved index; None if there is none, or it is damaged."""
        with suppress(Exception), open_file(path) as opened, np.load(opened, allow_pickle=False) as file:
            return cls(file["content"].tobytes(), file["ends"], file["order"])
        return None

    def save(self, path: Path) -> None:
        """Write it as one file."""
        with path.open("wb") as file:
            np.savez(file, content=np.frombuffer(self.content, np.uint8), ends=self.ends, order=self.order)

    def ids(self, rows: range | NDArray[np.int64]) -> list[str]:
        """Return the ids of some rows, in their order."""
        numbers = np.asarray(rows, np.int64)
        ends = zip(self.ends[numbers].tolist(), self.ends[numbers + 1].tolist(), strict=True)
        return [self.content[start:stop].decode() for start, stop in ends]

    def has_from(self, row: int, ids: Sequence[str]) -> bool:
        """Return whether these are the ids of `row` and of those after it; none of the index is decoded."""
        stop = row + len(ids)
        if stop > len(self):
            return False
        # an id that is no Unicode text is none of the index, and is encoded as none of it is
        encoded = [doc_id.encode(errors="surrogatepass") for doc_id in ids]
        ends = self.ends[row : stop + 1]
        is_as_long = np.diff(ends).tolist() == [*map(len, encoded)]
        return is_as_long and self.content[ends[0] : ends[-1]] == b"".join(encoded)

    @cached_property
    def is_in_order(self) -> bool:
        """True if `Driver.pages` gives the rows in their order."""
        return bool((np.diff(self.order) > 0).all())

    @cached_property
    def rows(self) -> NDArray[np.int64]:
        """The row of each record, in the order of `Driver.pages`."""
        return np.argsort(self.order)

    @cached_property
    def sha256(self) -> str:
        """A hash of the ids."""
        # The ends too, as the same bytes may be cut into other ids.
        return hashlib.sha256(self.ends.tobytes() + self.content).hexdigest()


class IdLookup:
    """Finds the rows of ids in an index, with 16 bytes for each."""

    def __init__(self, index: IdIndex) -> None:
        self.index = index
        hashes = np.empty(len(index), np.int64)
        for start in range(0, len(index), _IDS_AT_ONCE):
            stop = min(start + _IDS_AT_ONCE, len(index))
            hashes[start:stop] = _hashes(index.ids(range(start, stop)))
        self._order = np.argsort(hashes, kind="stable")
        self._hashes = hashes[self._order]

    def rows_of(self, ids: Sequence[str]) -> NDArray[np.int64]:
        """Return the row of each id, (n,); -1 where the index does not have it."""
        rows = np.full(len(ids), -1, np.int64)
        if not len(self.index) or not len(ids):
            return rows
        hashes = _hashes(ids)
        positions = np.minimum(np.searchsorted(self._hashes, hashes), len(self.index) - 1)
        likely = np.flatnonzero(self._hashes[positions] == hashes)
        likely_rows = self._order[positions[likely]]
        is_same = [doc_id == ids[at] for doc_id, at in zip(self.index.ids(likely_rows), likely.tolist(), strict=True)]
        rows[likely[is_same]] = likely_rows[is_same]
        return rows


def _hashes(ids: Sequence[str]) -> NDArray[np.int64]:
    # Python salts the hashes of texts anew in each process: these are never written to a file.
    return np.array([hash(doc_id) for doc_id in ids], np.int64)


class VectorFile(RowFile):
    """Vectors in the order of rows, float32, in an open file, which stays readable after its name is gone."""

    def __init__(self, path: Path, descriptor: int, count: int, dim: int) -> None:
        super().__init__(FileStamp.of(path, descriptor), np.array([[0, count]]), dim)
        self._file = descriptor
        weakref.finalize(self, os.close, descriptor)

    @contextmanager
    def opened(self) -> Iterator[int]:
        """Yield the descriptor, whatever has become of the name."""
        yield self._file

    def reserve(self) -> None:
        """Make room for all rows: a mapped file must not meet a full disk."""
        size = 4 * self.count * self.dim
        if size and hasattr(os, "posix_fallocate"):
            os.posix_fallocate(self._file, 0, size)
        elif size:  # macOS has no such call: zeros take up the room
            with open(self._file, "r+b", closefd=False) as file:
                for start in range(0, size, 2**20):
                    file.write(bytes(min(2**20, size - start)))

    def put(self, rows: NDArray[np.int64], vectors: Vectors) -> None:
        """Write vectors, (n, dim), to their rows."""
        if not len(vectors):
            return
        # to rows that follow one another in one call, a third of the time that the pages of a mapping take
        if (np.diff(rows) == 1).all():
            content = np.ascontiguousarray(vectors, "<f4")
            write_at(self._file, content.data.cast("B"), 4 * self.dim * int(rows[0]))
        else:
            # mapped for the moment: a call for each row takes five times as long where ids are in no order
            mapped = np.frombuffer(mmap.mmap(self._file, 0), "<f4").reshape(-1, self.dim)
            mapped[rows] = vectors

    def sync(self) -> None:
        """Make what was written durable."""
        os.fsync(self._file)
