"""The ids of all rows of a store, and the document that each row is judged as, in little memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Self

import numpy as np
from numpy.typing import NDArray

from migrate.hashes import HashIndex, hashes_of
from migrate.stores.base import BATCH_SIZE, Store
from migrate.vectors import Document

PARENT_FIELD = "parent_id"
"""Metadata field of a chunk that names the document it was cut from."""

_SHORT_NAMES = 64
"""Bytes up to which a name may be long for all to be sorted as bytes of one length."""

Rows = NDArray[np.int64]
"""Numbers of rows."""


class Names:
    """The names of up to `count` rows: the bytes of each different one and 20 more; 16 a row where one comes again."""

    def __init__(self, count: int) -> None:
        self._count = 0
        self._room = count
        self._index = HashIndex()
        self._content = bytearray()
        self._ends = np.zeros(count + 1, np.int64)
        # None as long as row i has name i
        self._numbers: NDArray[np.int64] | None = None
        self._first_rows = np.empty(0, np.int64)  # of each different name, from then on

    def __len__(self) -> int:
        return self._count

    @property
    def distinct(self) -> int:
        """The number of different names."""
        return len(self._index)

    @property
    def is_unique(self) -> bool:
        """True where each row has a name of its own."""
        return self.distinct == len(self)

    def add(self, names: Sequence[str]) -> None:
        """Take in the names of the next rows."""
        n_before = self.distinct
        span = slice(self._count, self._count + len(names))
        numbers = self._index.number(hashes_of(names))
        self._count = span.stop
        # Numbers are written out from the first name that comes again on: most stores have none, and save 16 bytes
        # for each row
        if self._numbers is None and not self.is_unique:
            self._numbers = np.arange(self._room)
            self._first_rows = np.arange(self._room)
        different, first = np.unique(numbers, return_index=True)
        new_rows = first[different >= n_before]
        if self._numbers is not None:
            self._numbers[span] = numbers
            self._first_rows[n_before : self.distinct] = span.start + new_rows
        # A name may hold half of a character, as ids come from anywhere
        new = [names[row].encode(errors="surrogatepass") for row in new_rows.tolist()]
        self._ends[n_before + 1 : self.distinct + 1] = len(self._content) + np.cumsum([*map(len, new)], dtype=np.int64)
        self._content += b"".join(new)

    def take(self, rows: range | Rows) -> list[str]:
        """Return the names of some rows, in their order."""
        numbers = np.asarray(rows, np.int64)
        if self._numbers is not None:
            numbers = self._numbers[numbers]
        return self._named(numbers)

    def rows_of(self, names: Sequence[str]) -> Rows:
        """Return the first row of each name, (n,); -1 where no row has it."""
        numbers = self._index.find(hashes_of(names))
        is_here = numbers >= 0
        numbers[is_here] = self._rows(numbers[is_here])
        return numbers

    def all_rows_of(self, names: Iterable[str]) -> Rows:
        """Return all rows that have one of some names, ascending."""
        numbers = self._index.find(hashes_of(names))
        numbers = np.unique(numbers[numbers >= 0])
        if self._numbers is None:
            return numbers
        return np.flatnonzero(np.isin(self._numbers[: len(self)], numbers))

    def present(self, names: Iterable[str]) -> set[str]:
        """Return those of some names that a row has."""
        candidates = list(names)
        return {candidates[position] for position in np.flatnonzero(self.rows_of(candidates) >= 0).tolist()}

    def matches(self, names: Names) -> Rows:
        """Return the first row of another store's names that has the name of each of these, (n,); -1 where none has."""
        if names is self:
            matched = self._rows(np.arange(self.distinct))
        else:
            matched = self._first_rows_in(names)
        if self._numbers is None:
            return matched
        return matched[self._numbers[: len(self)]]

    def _first_rows_in(self, names: Names) -> Rows:
        """Return the first row that another store has for each different name; -1 where it has none."""
        matched = np.full(self.distinct, -1, np.int64)
        for span in _spans(names.distinct):
            numbers = self._index.find(hashes_of(names._named(span)))
            is_here = numbers >= 0
            matched[numbers[is_here]] = names._rows(span[is_here])
        return matched

    def lacking(self, names: Names) -> Rows:
        """Return a row of each different name that another store's names lack, ascending."""
        rows = np.sort(self._rows(np.arange(self.distinct)))
        return rows[self.matches(names)[rows] < 0]

    def in_order(self) -> Rows:
        """Return a row of each different name, in the order of the names."""
        longest = int(np.diff(self._ends[: self.distinct + 1]).max(initial=1))
        contents = (content for span in _spans(self.distinct) for content in self._bytes(span))
        # Each name takes as many bytes as the longest in an array of bytes, where Python's objects take their own
        dtype: str | type = object
        if longest <= _SHORT_NAMES:
            dtype = f"S{longest}"
        # The order of UTF-8 is that of the characters
        names = np.fromiter(contents, dtype, self.distinct)
        return self._rows(np.argsort(names, kind="stable"))

    def _rows(self, numbers: Rows) -> Rows:
        """Return the first row of each of some different names."""
        if self._numbers is None:
            return numbers
        return self._first_rows[numbers]

    def _named(self, numbers: Rows) -> list[str]:
        return [content.decode(errors="surrogatepass") for content in self._bytes(numbers)]

    def _bytes(self, numbers: Rows) -> Iterator[bytes]:
        ends = zip(self._ends[numbers].tolist(), self._ends[numbers + 1].tolist(), strict=True)
        return (bytes(self._content[start:stop]) for start, stop in ends)


def _spans(count: int) -> Iterator[Rows]:
    return (np.arange(start, min(start + BATCH_SIZE, count)) for start in range(0, count, BATCH_SIZE))


@dataclass(frozen=True, eq=False)
class Keys:
    """The ids of a store's rows, and the `documents` that these are judged as: the parent of a chunk, else the id."""

    ids: Names
    documents: Names

    @classmethod
    def of(cls, pages: Iterable[tuple[list[str], list[str]]], count: int) -> Self:
        """Return the keys of `count` rows, whose ids and documents come page by page."""
        ids = documents = Names(count)
        for page_ids, page_documents in pages:
            # Most stores are not cut into chunks: their documents are their ids, kept once. From the first chunk on
            # both are kept
            if documents is ids and page_documents != page_ids:
                documents = Names(count)
                for span in _spans(len(ids)):
                    documents.add(ids.take(span))
            ids.add(page_ids)
            if documents is not ids:
                documents.add(page_documents)
        return cls(ids, documents)

    def has_ids_of(self, keys: Keys) -> bool:
        """Return whether both have the same ids, in any order."""
        return self.ids.distinct == keys.ids.distinct and not len(keys.ids.lacking(self.ids))

    def at(self, ids: Names) -> Keys:
        """Return the keys of another store with these ids, which are judged as the same documents."""
        rows = ids.matches(self.ids)

        def pages() -> Iterator[tuple[list[str], list[str]]]:
            for span in _spans(len(ids)):
                names = ids.take(span)
                is_here = rows[span] >= 0
                documents = np.array(names, object)
                documents[is_here] = self.documents.take(rows[span][is_here])
                yield names, documents.tolist()

        return Keys.of(pages(), len(ids))

    def some(self, rows: Rows) -> Keys:
        """Return the keys of some rows."""
        return Keys.of([(self.ids.take(rows), self.documents.take(rows))], len(rows))


def document_keys(store: Store, parent_field: str = PARENT_FIELD) -> Keys:
    """Return the ids of a store's rows, and the documents that they are judged as; reads all documents once."""
    if not store.info.has_texts:
        return id_keys(store)

    def pages() -> Iterator[tuple[list[str], list[str]]]:
        stream = store.documents()
        while documents := list(islice(stream, 4_096)):
            yield [document.id for document in documents], [key_of(document, parent_field) for document in documents]

    return Keys.of(pages(), store.info.count)


def id_keys(store: Store) -> Keys:
    """Return the ids of a store's rows, each judged as itself."""
    return Keys.of(((ids, ids) for ids in map(store.ids, _spans(store.info.count))), store.info.count)


def key_of(document: Document, parent_field: str = PARENT_FIELD) -> str:
    """Return what a document is judged as."""
    return str(document.metadata.get(parent_field, document.id))
