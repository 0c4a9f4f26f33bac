"""The interface to a store's documents, and its simplest case: no texts, and FAISS labels as document ids.

Also what several formats share: matching the documents of a file to the labels of an index, and finding the files
beside an index that are copied into a new store byte for byte.
"""

from __future__ import annotations

import os
import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, overload

import numpy as np
from numpy.typing import NDArray

from migrate.errors import StoreError
from migrate.files import copy_file, open_file, output_errors
from migrate.manifest import MANIFEST_NAME
from migrate.reading import MalformedError
from migrate.stores.base import NO_TEXTS, WAY_TO_TEXTS
from migrate.stores.binary_reader import malformed, read_errors
from migrate.stores.faiss import fourcc
from migrate.vectors import Document

Labels = NDArray[np.int64] | None
"""The label of each row; None where labels are row numbers, as in most stores."""

LOOKED_AT: Final = 100
"""Records from which the fields of a file are told."""

RowNumbers = range | NDArray[np.int64]
"""Numbers of rows, in any order."""

ROWS_OPTION: Final = "rows"
"""The option of a location that says how documents belong to rows: `ORDER` or `ID`."""

ORDER: Final = "order"
ID: Final = "id"
_MATCHED_BY: Final = {ORDER: "matched by position", ID: "matched by id"}

MOST_BYTES: Final = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
"""The largest file that is held in memory: half of that."""


@contextmanager
def json_errors(path: Path) -> Iterator[None]:
    """Name the file of JSON whose content or absence raised an error inside, which is a StoreError then."""
    with read_errors(path):
        try:
            yield
        except FileNotFoundError as error:
            raise malformed(path, "there is no such file", "copy the whole folder") from error
        except MalformedError as error:
            problem = f"damaged, or not of this store ({error})"
            raise malformed(path, problem, "copy it again, or save the store again") from error


def check_labels(labels: Labels, path: Path) -> Labels:
    """Return the labels, or None if they are the row numbers after all."""
    if labels is None or np.array_equal(labels, np.arange(labels.size)):
        return None
    if (duplicates := repeated(labels)).size:
        raise StoreError(
            f"{path}: two vectors have the id {duplicates[0]} ({duplicates.size} repetitions); remove the "
            "stale vectors and save the index again"
        )
    return labels


def repeated(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the values that come more than once, ascending, each as often as it comes again."""
    ordered = np.sort(values)
    duplicates: NDArray[np.int64] = ordered[1:][ordered[1:] == ordered[:-1]]
    return duplicates


def label_values(labels: Labels, rows: RowNumbers) -> NDArray[np.int64]:
    """Return the labels of some rows."""
    if isinstance(rows, range):
        return np.arange(rows.start, rows.stop) if labels is None else labels[rows.start : rows.stop]
    return rows if labels is None else labels[rows]


class LazyIds(Sequence[str]):
    """Document ids that are read on first use, and once."""

    def __init__(self, count: int, load: Callable[[], list[str]]) -> None:
        self._count = count
        self._load = load

    @cached_property
    def _ids(self) -> list[str]:
        return self._load()

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        return self._ids[index]

    def __iter__(self) -> Iterator[str]:
        return iter(self._ids)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str) or not isinstance(other, Sequence):
            return NotImplemented
        return self._ids == list(other)

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, slots=True, eq=False)
class Matching:
    """Result of matching the documents of a file to the rows of vectors.

    Attributes
    ----------
    positions : the position of each row's document in the file; None where row i is document i
    how : the same in words
    readings : positions by `ROWS_OPTION`, where documents name no labels: by the order of the file, by ids, or both
    """

    positions: Labels
    how: str
    readings: Mapping[str, Labels] = field(default_factory=dict)


def match_rows(
    path: Path, labels: Labels, count: int, values: NDArray[np.int64] | None, faiss_ids: NDArray[np.int64] | None
) -> Matching:
    """Match documents to rows.

    `values` are the ids as integers and `faiss_ids` the labels that documents name, each where every document has one.
    The first of these that fits decides:

    1. every document has an integer `faiss_id`, and these are the labels: by that;
    2. the ids are the labels, written out: by value;
    3. the labels are 0 to n-1: document i belongs to label i.

    Where the labels are 0 to n-1, nobody may have chosen them: FAISS numbers vectors in the order in which they are
    added. Ids that are these numbers, or 1 to n, may then be something else's, and `readings` has 2 and 3.
    """
    expected = np.arange(count) if labels is None else labels
    if faiss_ids is not None and (positions := places_of(expected, faiss_ids)) is not None:
        return Matching(positions, "matched by faiss_id")
    readings = row_readings(labels, count, values)
    if faiss_ids is not None and count:
        readings.pop(ORDER, None)
    for reading in (ID, ORDER):
        if reading in readings:
            return Matching(readings[reading], _MATCHED_BY[reading], readings)
    why = "ids are not its labels, which are not 0 to n-1 either"
    if faiss_ids is not None and count:
        why = "faiss_id differs from the labels of the index"
    raise StoreError(
        f"{path}: the {count} documents do not match the labels of the index, as their {why}; give each document the "
        'label of its vector as "faiss_id"'
    )


def row_readings(labels: Labels, count: int, values: NDArray[np.int64] | None) -> dict[str, Labels]:
    """Return the positions of each row's document by every reading that is possible: by `ORDER` and by `ID`."""
    readings: dict[str, Labels] = {}
    expected = np.arange(count) if labels is None else labels
    is_numbered = bool(np.array_equal(np.sort(expected), np.arange(count)))
    if is_numbered:
        readings[ORDER] = labels
    if values is not None:
        for first in (0, 1) if is_numbered else (0,):
            if (positions := places_of(expected + first, values)) is not None:
                readings[ID] = positions
    return readings


def check_numbered(path: Path, labels: Labels, count: int, user: str) -> Labels:
    """Return the labels of an index if they are 0 to n-1, which its `user` takes them for."""
    if labels is not None and not np.array_equal(np.sort(labels), np.arange(count)):
        raise StoreError(
            f"{path}: the labels of the index are not 0 to {count - 1}, which {user}; save the store again"
        )
    return labels


def check_count(path: Path, vectors: int, documents: int) -> None:
    """Make sure that there are as many documents as vectors."""
    if documents != vectors:
        raise StoreError(
            f"{path}: has {documents} documents for {vectors} vectors; write the file and the index from the same "
            "documents"
        )


def places_of(expected: NDArray[np.int64], values: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """Return the position of each expected value in `values`, or None unless both hold the same ones."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    if not np.array_equal(np.sort(expected), ordered):
        return None
    positions: NDArray[np.int64] = order[np.searchsorted(ordered, expected)]
    return positions


def sidecar_files(index: Path, *patterns: str) -> list[Path]:
    """Return the files beside an index whose names fit a pattern, without hidden ones and the manifest."""
    with read_errors(index.parent):
        return sorted(
            file
            for file in index.parent.iterdir()
            if file.is_file()
            and not file.name.startswith(".")
            and file.name not in (index.name, MANIFEST_NAME)
            and any(file.match(pattern) for pattern in patterns)
        )


def without_texts(file: Path, names: Iterable[str], location: str, texts: Sequence[str]) -> StoreError:
    """Return the error of a file beside the vectors at a location that has no field of texts by a known name.

    `texts` are the fields that could be named, the likeliest first.
    """
    have = ", ".join(names)[:200] or "no records"
    if not texts:
        return malformed(file, f"no field holds texts: it has {have}", f"give it a field text, or {WAY_TO_TEXTS}")
    example = shlex.quote(f"{location}#?text={texts[0]}")
    return malformed(
        file, f"no field is named as one of texts (text, content ...): it has {have}", f"name it, as in {example}"
    )


def longest_first(names: Iterable[str], records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return names of fields, first those whose strings are longest in some records: they likeliest hold the texts."""

    def length(name: str) -> int:
        values = (record.get(name) for record in records)
        return sum(len(value) for value in values if isinstance(value, str))

    return sorted(names, key=length, reverse=True)


def is_faiss(file: Path) -> bool:
    """Return whether a file begins as a FAISS index does."""
    with read_errors(file), open_file(file) as opened:
        return fourcc.is_index(opened.read(8))


def copy_files(files: Iterable[Path], folder: Path) -> None:
    """Copy files into a folder, durably."""
    for file in files:
        target = folder / file.name
        with output_errors(target):
            copy_file(file, target)


class DocumentSource(ABC):
    """Ids, texts and metadata by row.

    `kind` is one phrase for a person; `file` is what they are read from, if anything, `also_read` what must not change
    with it; `format` is the store's. Sources are made from the path of the FAISS file (`index`), the label of each row
    (`labels`) and the number of rows (`count`).
    """

    format = "faiss"
    also_read: tuple[Path, ...] = ()

    by_row: tuple[Path, ...] = ()
    """Further files beside the index with an entry for each row, which are not read, but copied."""

    kind: str
    file: Path | None
    has_texts: bool
    notes: tuple[str, ...]

    _path: Path
    """The file that errors name."""
    readings: Mapping[str, Labels] = MappingProxyType({})
    """The positions by each reading that is possible, see `Matching`."""

    _positions: Labels = None
    """The position of each row's document in the file; None where row i is document i."""
    _matched: str = ""
    """How documents were matched to rows, as `kind` says."""
    _no_texts: str
    """The reason why there are no texts, and the remedy."""

    def ids(self, rows: RowNumbers) -> list[str]:
        """Return the ids of some rows, in the order of `rows`."""
        return self._ids_at(label_values(self._positions, rows))

    def documents(self, rows: RowNumbers) -> Iterator[Document]:
        """Return the documents of some rows, in the order of `rows`; raises `StoreError` if there are no texts."""
        if not self.has_texts:
            raise StoreError(f"{self._path}: {self._no_texts}")
        return self._documents_at(label_values(self._positions, rows))

    @property
    def is_ambiguous(self) -> bool:
        """True if the order of the file and the ids give rows different documents."""
        return self.differing_rows().size > 0

    def differing_rows(self) -> NDArray[np.int64]:
        """Return the rows whose document depends on the reading, ascending."""
        count = max((len(positions) for positions in self.readings.values() if positions is not None), default=0)
        if len(self.readings) < 2:
            return np.arange(0)
        by_order, by_id = (label_values(self.readings[reading], range(count)) for reading in (ORDER, ID))
        return np.flatnonzero(by_order != by_id)

    def read_as(self, reading: str) -> None:
        """Give rows their documents by one of the `readings`."""
        self._positions = self.readings[reading]
        self.kind = self.kind.replace(self._matched, _MATCHED_BY[reading])

    def _match(
        self, labels: Labels, count: int, values: NDArray[np.int64] | None, faiss_ids: NDArray[np.int64] | None
    ) -> None:
        """Match documents to rows as `match_rows` does."""
        matching = match_rows(self._path, labels, count, values, faiss_ids)
        self._positions = matching.positions
        self.readings = matching.readings
        self._matched = matching.how

    def _ids_at(self, positions: NDArray[np.int64]) -> list[str]:
        """Return the ids at some positions in the file, by default those of the whole documents."""
        return [document.id for document in self._documents_at(positions)]

    @abstractmethod
    def _documents_at(self, positions: NDArray[np.int64]) -> Iterator[Document]:
        """Return the documents at some positions in the file."""

    def write(self, folder: Path) -> None:
        """Write the same documents into a folder, durably: by default a copy of the file."""
        copy_files([self._path], folder)

    def write_all(self, folder: Path) -> None:
        """Write the documents, and copies of the files with an entry for each row."""
        self.write(folder)
        copy_files(self.by_row, folder)


class LabelsOnly(DocumentSource):
    """An index alone: ids are its labels, as text. `why` tells why no file beside it has its documents."""

    kind = "none: ids are the labels of the index"
    file = None
    has_texts = False

    def __init__(self, labels: Labels, path: Path, why: str = "") -> None:
        self._positions = labels
        self._path = path
        self._no_texts = f"the store has vectors but no texts; {why or WAY_TO_TEXTS}"
        self.notes = (f"{NO_TEXTS}{why}",) if why else ()

    def _ids_at(self, positions: NDArray[np.int64]) -> list[str]:
        return list(map(str, positions.tolist()))

    def _documents_at(self, positions: NDArray[np.int64]) -> Iterator[Document]:
        return iter(())

    def write(self, folder: Path) -> None:
        """Write nothing: the labels are in the index."""
