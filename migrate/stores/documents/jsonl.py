"""Documents of a plain FAISS store: a docs.jsonl beside the index, matched to its labels.

A line is {"id": str, "text": str, "metadata": {...}}; text, metadata and an integer "faiss_id" are optional. A byte
order mark, CRLF and blank lines are accepted.

The file is scanned once. Each document's place in the file and a hash of its id are kept in memory, 32 bytes a line;
texts are read when they are needed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from migrate.errors import StoreError
from migrate.files import copy_file, is_endless, output_errors
from migrate.stores.binary_reader import FileIdentity, malformed, read_errors, read_exactly
from migrate.stores.documents.base import DocumentSource, Labels, Rows, check_count, label_values, match_rows
from migrate.stores.documents.json_file import decode_json
from migrate.vectors import Document

_LONGEST_LINE: Final = 1 << 28
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_INT64: Final = range(-(1 << 63), 1 << 63)

_LINES_AT_ONCE: Final = 1_024
_LARGEST_PIECE: Final = 1 << 20
_WIDEST_GAP: Final = 1 << 12

DOCS_NAME: Final = "docs.jsonl"


class Read(NamedTuple):
    """What is read of one document; `faiss_id` is the label that it names, if it does."""

    document: Document
    faiss_id: int | None
    has_text: bool


class Form(ABC):
    """How documents stand in a file, one after another; of two equal ones a file is scanned once."""

    @abstractmethod
    def cut(self, file: Any, path: Path) -> Iterator[tuple[int, int, bytes]]:
        """Number, offset and bytes of each document of an open file."""

    @abstractmethod
    def parse(self, content: bytes, path: Path, number: int) -> Read:
        """The document of some bytes that `cut` gave."""


@dataclass(frozen=True, slots=True)
class DocsForm(Form):
    """The lines of a docs.jsonl."""

    def cut(self, file: Any, path: Path) -> Iterator[tuple[int, int, bytes]]:
        """Each line that is not blank."""
        return lines_of(file, path)

    def parse(self, content: bytes, path: Path, number: int) -> Read:
        """The document of a line; without a text it is empty."""
        fields = _parse_json(content, path, number)
        doc_id, text, metadata, label = (fields.get(name) for name in ("id", "text", "metadata", "faiss_id"))
        if not isinstance(doc_id, str):
            raise bad_line(path, number, 'a text as "id"', shown_type(doc_id))
        if text is not None and not isinstance(text, str):
            raise bad_line(path, number, 'a text as "text"', shown_type(text))
        if metadata is not None and not isinstance(metadata, dict):
            raise bad_line(path, number, 'an object as "metadata"', shown_type(metadata))
        label = label if type(label) is int else None
        return Read(Document(doc_id, text or "", metadata or {}), label, text is not None)


DOCS: Final = DocsForm()


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class DocsScan:
    """The documents of a file.

    `offsets`, `sizes` and `line_numbers` locate each document; `hashes` are of its id, and hold in this process only.
    `values` are the ids as integers where every id is one, `faiss_ids` the labels where every line names one.
    """

    path: Path
    identity: FileIdentity
    offsets: NDArray[np.int64]
    sizes: NDArray[np.int64]
    line_numbers: NDArray[np.int64]
    hashes: NDArray[np.int64]
    values: NDArray[np.int64] | None
    faiss_ids: NDArray[np.int64] | None
    with_text: int

    @property
    def count(self) -> int:
        """How many documents there are."""
        return self.offsets.size


class _Integers:
    """A column that exists only as long as every line has an integer for it."""

    def __init__(self) -> None:
        self._values: array[int] | None = array("q")

    def append(self, value: int | None) -> None:
        if value is None or value not in _INT64:
            self._values = None
        elif self._values is not None:
            self._values.append(value)

    def result(self) -> NDArray[np.int64] | None:
        return None if self._values is None else np.array(self._values, np.int64)


def _parse_json(line: bytes, path: Path, number: int) -> dict[str, Any]:
    try:
        fields = decode_json(line)
    except UnicodeError as error:
        raise bad_line(path, number, "UTF-8", str(error)) from error
    except (ValueError, RecursionError) as error:
        raise bad_line(path, number, "a JSON object", str(error)) from error
    if not isinstance(fields, dict):
        raise bad_line(path, number, "a JSON object", shown_type(fields))
    return fields


def bad_line(path: Path, number: int, expected: str, problem: str) -> StoreError:
    """The error of a line, to be raised."""
    return StoreError(f"{path}, line {number}: expected {expected}, found {problem}; correct the line")


def shown_type(value: object) -> str:
    """A value out of a file, with its type, for a message."""
    return "nothing" if value is None else f"{type(value).__name__} {repr(value)[:40]}"


_scans: WeakValueDictionary[tuple[Path, FileIdentity, Form], DocsScan] = WeakValueDictionary()


class RepeatedIdError(StoreError):
    """Two documents of a file have one id."""


def scan_docs(path: Path, form: Form = DOCS) -> DocsScan:
    """Read a file once, checking every document; not again while a store of this process has it open."""
    offsets, sizes, numbers, hashes = array("q"), array("q"), array("q"), array("q")
    values, faiss_ids = _Integers(), _Integers()
    with_text = 0
    if is_endless(path):
        raise malformed(path, "a file", "a pipe or a device", "write the documents to a file")
    with read_errors(path), path.open("rb", buffering=1 << 20) as file:
        identity = FileIdentity.of(file.fileno())
        if (known := _scans.get((path, identity, form))) is not None:
            return known
        for number, offset, line in form.cut(file, path):
            document, faiss_id, has_text = form.parse(line, path, number)
            offsets.append(offset)
            sizes.append(len(line))
            numbers.append(number)
            hashes.append(hash(document.id))
            values.append(as_integer(document.id))
            faiss_ids.append(faiss_id)
            with_text += has_text
    offset_of, size_of, number_of, hash_of = (
        np.array(column, np.int64) for column in (offsets, sizes, numbers, hashes)
    )
    facts = (values.result(), faiss_ids.result(), with_text)
    scan = DocsScan(path, identity, offset_of, size_of, number_of, hash_of, *facts)
    _refuse_duplicates(scan, form)
    _scans[path, identity, form] = scan
    return scan


def lines_of(file: Any, path: Path, *, blank: bool = False) -> Iterator[tuple[int, int, bytes]]:
    """Number, offset and bytes of each line that is not blank, or of every one; a byte order mark is left out."""
    offset = 0
    number = 0
    while line := file.readline(_LONGEST_LINE):
        number += 1
        if len(line) == _LONGEST_LINE:
            raise bad_line(path, number, f"a line of less than {_LONGEST_LINE} bytes", "a longer one")
        mark = len(_BYTE_ORDER_MARK) if number == 1 and line.startswith(_BYTE_ORDER_MARK) else 0
        if blank or line[mark:].strip():
            yield number, offset + mark, line[mark:]
        offset += len(line)


def as_integer(doc_id: str) -> int | None:
    """The number an id writes out, if it writes it as `str` would."""
    if not (len(doc_id) < 21 and doc_id.isascii() and doc_id.lstrip("-").isdigit()):
        return None
    try:
        value = int(doc_id)
    except ValueError:
        return None
    return value if str(value) == doc_id else None


def _refuse_duplicates(scan: DocsScan, form: Form) -> None:
    """Equal hashes are only a suspicion: the lines are read again and their ids compared."""
    ordered = np.sort(scan.hashes)
    suspects = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    line_of: dict[str, int] = {}
    with read_errors(scan.path), scan.path.open("rb") as file:
        for index in np.flatnonzero(np.isin(scan.hashes, suspects)).tolist():
            file.seek(int(scan.offsets[index]))
            number = int(scan.line_numbers[index])
            document = form.parse(file.read(int(scan.sizes[index])), scan.path, number).document
            first = line_of.setdefault(document.id, number)
            if first != number:
                found = f"{document.id[:80]!r}, the id of line {first}"
                raise RepeatedIdError(str(bad_line(scan.path, number, "a new id", found)))


class JsonlDocuments(DocumentSource):
    """A file of documents, one after another, that are matched to rows.

    `match_rows` says how. Only offsets are kept; documents are read again when they are needed.

    Parameters
    ----------
    path
        The file.
    labels
        The label of each row.
    count
        How many rows the index has.
    in_order
        Line i belongs to row i and ids are ignored, for vectors that have no labels.
    form
        What is in the file.
    """

    def __init__(self, path: Path, labels: Labels, count: int, *, in_order: bool = False, form: Form = DOCS) -> None:
        self.file = path
        self._path = path
        self._form = form
        self._scan = scan_docs(path, form)
        check_count(path, count, self._scan.count)
        self._lines, matched = (
            (None, "line by line")
            if in_order
            else match_rows(path, labels, count, self._scan.values, self._scan.faiss_ids)
        )
        self.kind = f"{path.name}, {matched}"
        self.has_texts = self._scan.with_text > 0
        missing = count - self._scan.with_text
        self.notes = (f"{missing} of {count} documents in {path.name} have no text",) if missing else ()

    def ids(self, rows: Rows) -> list[str]:
        """The `id` of each row's line."""
        return [document.id for document in self._read(rows)]

    def documents(self, rows: Rows) -> Iterator[Document]:
        """Each row's line."""
        if not self.has_texts:
            raise StoreError(f'{self._path}: no line has a "text"; add the texts')
        return self._read(rows)

    def write(self, folder: Path) -> None:
        """Copy the file byte for byte."""
        target = folder / self._path.name
        with output_errors(target):
            copy_file(self._path, target)

    def _read(self, rows: Rows) -> Iterator[Document]:
        lines = label_values(self._lines, rows)
        with read_errors(self._path), self._path.open("rb", buffering=0) as file:
            self._scan.identity.check(self._path, file.fileno())
            for first in range(0, len(lines), _LINES_AT_ONCE):
                yield from self._read_lines(file.fileno(), lines[first : first + _LINES_AT_ONCE])

    def _read_lines(self, descriptor: int, lines: NDArray[np.int64]) -> Iterator[Document]:
        scan = self._scan
        numbers, starts = scan.line_numbers[lines].tolist(), scan.offsets[lines].tolist()
        ends = (scan.offsets[lines] + scan.sizes[lines]).tolist()
        for first, last in _neighbours(starts, ends):
            begin = starts[first]
            content = bytearray(ends[last - 1] - begin)
            read_exactly(self._path, descriptor, memoryview(content), begin)
            for place in range(first, last):
                line = bytes(content[starts[place] - begin : ends[place] - begin])
                yield self._form.parse(line, self._path, numbers[place]).document


def _neighbours(starts: Sequence[int], ends: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Cut a sequence of lines, by their places in a file, into ranges that are each worth reading in one piece."""
    first = 0
    for last in range(1, len(starts) + 1):
        if (
            last == len(starts)
            or not 0 <= starts[last] - ends[last - 1] <= _WIDEST_GAP
            or ends[last] - starts[first] > _LARGEST_PIECE
        ):
            yield first, last
            first = last
