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
from migrate.stores.documents.matching import ID, ORDER, IdNumbers, Labels, Numbering, Reading, match_rows
from migrate.stores.faiss import fourcc
from migrate.vectors import Document

LOOKED_AT: Final = 100
"""Records from which the fields of a file are told."""

RowNumbers = range | NDArray[np.int64]
"""Numbers of rows, in any order."""

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
    readings: Mapping[str, Reading] = MappingProxyType({})
    """The ways in which documents may belong to rows, see `match_rows`."""

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
        both = [self.readings[reading].positions for reading in (ORDER, ID) if len(self.readings) > 1]
        count = max((len(positions) for positions in both if positions is not None), default=0)
        if not count:
            return np.arange(0)
        by_order, by_id = (label_values(positions, range(count)) for positions in both)
        return np.flatnonzero(by_order != by_id)

    def read_as(self, reading: str) -> None:
        """Give rows their documents by one of the `readings`."""
        self._positions = self.readings[reading].positions
        matched = f"matched by {self.readings[reading].by}"
        self.kind = self.kind.replace(self._matched, matched)
        self._matched = matched

    def _match(self, rows: Numbering, ids: IdNumbers, faiss_ids: NDArray[np.int64] | None) -> None:
        """Match documents to rows by the likeliest reading, see `match_rows`."""
        self.readings = match_rows(self._path, rows, ids.values(), faiss_ids, are_labels=ids.are_labels)
        first = next(iter(self.readings.values()))
        self._positions = first.positions
        self._matched = f"matched by {first.by}"

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
