"""The interface to a store's documents, and its simplest case: no texts, and FAISS labels as document ids.

Also what several formats share: matching the documents of a file to the labels of an index, and finding the files
beside an index that are copied into a new store byte for byte.
"""

from __future__ import annotations

import os
import shlex
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
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
from migrate.stores.documents.matching import Labels, Reading
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
        if labels is None:
            return np.arange(rows.start, rows.stop)
        return labels[rows.start : rows.stop]
    if labels is None:
        return rows
    return labels[rows]


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
        # A text is a sequence of texts, too.
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
        raise documents_differ(path, vectors, str(documents))


def documents_differ(path: Path, vectors: int, documents: str) -> StoreError:
    """Return the error of a file with another number of documents than there are vectors, to be raised."""
    return StoreError(
        f"{path}: has {documents} documents for {vectors} vectors; write it and the vectors from the same documents"
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


class NoTextsError(StoreError):
    """No field of a file beside vectors is one of texts."""


def without_texts(file: Path, names: Iterable[str], location: str, texts: Sequence[str]) -> NoTextsError:
    """Return the error of a file beside the vectors at a location that has no field of texts by a known name.

    `texts` are the fields that could be named, the likeliest first.
    """
    have = ", ".join(names)[:200] or "no records"
    if not texts:
        return NoTextsError(f"{file}: no field holds texts: it has {have}; give it a field text, or {WAY_TO_TEXTS}")
    example = shlex.quote(f"{location}#?text={texts[0]}")
    return NoTextsError(
        f"{file}: no field is named as one of texts (text, content ...): it has {have}; name it, as in {example}"
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


@dataclass(frozen=True, slots=True)
class DocumentsInfo:
    """Facts about the documents of a store.

    Attributes
    ----------
    layout : what they lie in, in one phrase for a person
    file : what they are read from, if anything
    copied : files that a new store gets as they are
    also_read : files that must not change with `file`
    format : the kind of the store, which their layout tells
    matched : what they are matched to rows by, in one word, where there was a choice
    fields : the fields that they were taken from, where these were chosen
    no_texts : the reason why there are no texts, and the remedy; empty where there are
    """

    layout: str
    file: Path | None = None
    copied: tuple[Path, ...] = ()
    also_read: tuple[Path, ...] = ()
    format: str = "faiss"
    matched: str = ""
    fields: str = ""
    no_texts: str = ""
    notes: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """All that a person is told in one phrase."""
        matched = ""
        if self.matched:
            matched = f", matched by {self.matched}"
        return f"{self.layout}{matched}{self.fields}"

    @property
    def has_texts(self) -> bool:
        """True if there are texts."""
        return not self.no_texts


class DocumentSource(ABC):
    """Ids, texts and metadata by row; a format is a subclass, or a function that returns one of those here.

    A subclass sets `info`, says how to read documents at positions in its file, and sets `positions` where row i is not
    document i. One whose documents may belong to rows in more than one way sets `readings`, see `match_rows`.
    """

    info: DocumentsInfo
    positions: Labels = None
    """The position of each row's document in the file; None where row i is document i."""
    readings: Mapping[str, Reading] = MappingProxyType({})
    by_row: tuple[Path, ...] = ()
    """Further files beside the index with an entry for each row, which are not read, but copied."""

    def ids(self, rows: RowNumbers) -> list[str]:
        """Return the ids of some rows, in the order of `rows`."""
        return self._ids_at(label_values(self.positions, rows))

    def documents(self, rows: RowNumbers) -> Iterator[Document]:
        """Return the documents of some rows, in the order of `rows`; raises `StoreError` if there are no texts."""
        if self.info.no_texts:
            raise StoreError(self.info.no_texts)
        return self._documents_at(label_values(self.positions, rows))

    def _ids_at(self, positions: NDArray[np.int64]) -> list[str]:
        """Return the ids at some positions in the file, by default those of the whole documents."""
        return [document.id for document in self._documents_at(positions)]

    @abstractmethod
    def _documents_at(self, positions: NDArray[np.int64]) -> Iterator[Document]:
        """Return the documents at some positions in the file."""

    def write(self, folder: Path) -> None:
        """Write the same documents into a folder, durably, and what else a new store gets a copy of."""
        copy_files((*self.info.copied, *self.by_row), folder)


class LabelsOnly(DocumentSource):
    """An index alone: ids are its labels, as text. `why` tells why no file beside it has its documents."""

    def __init__(self, labels: Labels, path: Path, why: str = "") -> None:
        self.positions = labels
        self.info = DocumentsInfo(
            "none: ids are the labels of the index",
            no_texts=f"{path}: the store has vectors but no texts; {why or WAY_TO_TEXTS}",
            notes=(f"{NO_TEXTS}{why}",) if why else (),
        )

    def _ids_at(self, positions: NDArray[np.int64]) -> list[str]:
        return list(map(str, positions.tolist()))

    def _documents_at(self, positions: NDArray[np.int64]) -> Iterator[Document]:
        return iter(())


class HeldDocuments(DocumentSource):
    """Documents that are held in memory, in the order of `positions`."""

    def __init__(self, documents: Sequence[Document], info: DocumentsInfo, positions: Labels = None) -> None:
        self._documents = documents
        self.info = info
        self.positions = positions

    def _documents_at(self, positions: NDArray[np.int64]) -> Iterator[Document]:
        return (self._documents[position] for position in positions.tolist())


def ids_by_label(id_of_label: Mapping[Any, Any], labels: NDArray[np.int64], noun: str) -> list[str]:
    """Return the id of each label's document, which a file calls by a `noun`; the labels there are numbers or texts.

    Raises a MalformedError where one has none, or that of another.
    """
    # JSON has texts for the keys of an object, where the program that wrote them had numbers.
    by_label = {str(label): doc_id for label, doc_id in id_of_label.items()}
    ids = [by_label.get(str(label)) for label in labels.tolist()]
    if without := ids.count(None):
        example = labels[ids.index(None)]
        raise MalformedError(f"{without} vectors have no {noun}, for example that of label {example}")
    if len(by_label) > len(ids):
        raise MalformedError(f"{len(by_label) - len(ids)} {noun}s have no vector")
    if strange := [doc_id for doc_id in ids if not isinstance(doc_id, str)]:
        raise MalformedError(f"{strange[0]!r:.40} is no id of a {noun}, which is a text")
    doc_id, count = next(iter(Counter(ids).most_common(1)), ("", 0))
    if count > 1:
        raise MalformedError(f"two vectors have the {noun} {doc_id!r:.80}")
    return [str(doc_id) for doc_id in ids]


def check_known(ids: Iterable[str], known: Collection[str], noun: str) -> None:
    """Make sure that each id is that of a document; raises MalformedError."""
    if missing := [doc_id for doc_id in ids if doc_id not in known]:
        raise MalformedError(f"a vector has no {noun}, for example {missing[0]!r} ({len(missing)} missing)")


def note_of_orphans(count: int, noun: str, file: Path) -> tuple[str, ...]:
    """Return the note on documents of a file that belong to no vector, if there are any."""
    if not count:
        return ()
    return (f"{count} {noun}s in {file.name} belong to no vector; they are kept as they are",)
