"""Documents of a plain FAISS store: a docs.jsonl beside the index, matched to its labels.

A line is {"id": str, "text": str, "metadata": {...}}; text, metadata and an integer "faiss_id" are optional. A byte
order mark, CRLF and blank lines are accepted.

The file is scanned once. Each document's place in the file and a hash of its id are kept in memory, 32 bytes a line;
texts are read when they are needed.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from migrate.errors import StoreError
from migrate.files import copy_file, is_endless, output_errors
from migrate.stores.binary_reader import FileIdentity, malformed, read_errors, read_exactly
from migrate.stores.documents.base import DocumentSource, Labels, Rows, label_values, match_rows
from migrate.vectors import Document

_LONGEST_LINE: Final = 1 << 28
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_INT64: Final = range(-(1 << 63), 1 << 63)

_LINES_AT_ONCE: Final = 1_024
_LARGEST_PIECE: Final = 1 << 20
_WIDEST_GAP: Final = 1 << 12

DOCS_NAME: Final = "docs.jsonl"


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class DocsScan:
    """The lines of a docs.jsonl.

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


def parse_line(line: bytes, path: Path, number: int) -> tuple[Document, dict[str, Any]]:
    """The document of a line, and the line's JSON object; a line without a text gives an empty one."""
    fields = _parse_json(line, path, number)
    doc_id, text, metadata = fields.get("id"), fields.get("text"), fields.get("metadata")
    if not isinstance(doc_id, str):
        raise _bad_line(path, number, 'a text as "id"', _shown(doc_id))
    if text is not None and not isinstance(text, str):
        raise _bad_line(path, number, 'a text as "text"', _shown(text))
    if metadata is not None and not isinstance(metadata, dict):
        raise _bad_line(path, number, 'an object as "metadata"', _shown(metadata))
    return Document(doc_id, text or "", metadata or {}), fields


def _parse_json(line: bytes, path: Path, number: int) -> dict[str, Any]:
    try:
        fields = json.loads(line.decode())
        # "\\ud800" is JSON but no text: nothing could print, hash or embed it
        if b"\\u" in line:
            json.dumps(fields, ensure_ascii=False).encode()
    except UnicodeError as error:
        raise _bad_line(path, number, "UTF-8", str(error)) from error
    except (ValueError, RecursionError) as error:
        raise _bad_line(path, number, "a JSON object", str(error)) from error
    if not isinstance(fields, dict):
        raise _bad_line(path, number, "a JSON object", _shown(fields))
    return fields


def _bad_line(path: Path, number: int, expected: str, problem: str) -> StoreError:
    return StoreError(f"{path}, line {number}: expected {expected}, found {problem}; correct the line")


def _shown(value: object) -> str:
    return "nothing" if value is None else f"{type(value).__name__} {repr(value)[:40]}"


_scans: WeakValueDictionary[tuple[Path, FileIdentity], DocsScan] = WeakValueDictionary()


def scan_docs(path: Path) -> DocsScan:
    """Read a docs.jsonl once, checking every line; not again while a store of this process has it open."""
    offsets, sizes, numbers, hashes = array("q"), array("q"), array("q"), array("q")
    values, faiss_ids = _Integers(), _Integers()
    with_text = 0
    if is_endless(path):
        raise malformed(path, "a file", "a pipe or a device", "write the documents to a file")
    with read_errors(path), path.open("rb", buffering=1 << 20) as file:
        identity = FileIdentity.of(file.fileno())
        if (known := _scans.get((path, identity))) is not None:
            return known
        for number, offset, line in _lines(file, path):
            document, fields = parse_line(line, path, number)
            offsets.append(offset)
            sizes.append(len(line))
            numbers.append(number)
            hashes.append(hash(document.id))
            values.append(as_integer(document.id))
            faiss_id = fields.get("faiss_id")
            faiss_ids.append(faiss_id if type(faiss_id) is int else None)
            with_text += fields.get("text") is not None
    offset_of, size_of, number_of, hash_of = (
        np.array(column, np.int64) for column in (offsets, sizes, numbers, hashes)
    )
    facts = (values.result(), faiss_ids.result(), with_text)
    scan = DocsScan(path, identity, offset_of, size_of, number_of, hash_of, *facts)
    _refuse_duplicates(scan)
    _scans[path, identity] = scan
    return scan


def _lines(file: Any, path: Path) -> Iterator[tuple[int, int, bytes]]:
    """Number, offset and bytes of each line that is not blank."""
    offset = 0
    number = 0
    while line := file.readline(_LONGEST_LINE):
        number += 1
        if len(line) == _LONGEST_LINE:
            raise _bad_line(path, number, f"a line of less than {_LONGEST_LINE} bytes", "a longer one")
        mark = len(_BYTE_ORDER_MARK) if number == 1 and line.startswith(_BYTE_ORDER_MARK) else 0
        if line[mark:].strip():
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


def _refuse_duplicates(scan: DocsScan) -> None:
    """Equal hashes are only a suspicion: the lines are read again and their ids compared."""
    ordered = np.sort(scan.hashes)
    suspects = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    line_of: dict[str, int] = {}
    with read_errors(scan.path), scan.path.open("rb") as file:
        for index in np.flatnonzero(np.isin(scan.hashes, suspects)).tolist():
            file.seek(int(scan.offsets[index]))
            number = int(scan.line_numbers[index])
            document, _ = parse_line(file.read(int(scan.sizes[index])), scan.path, number)
            first = line_of.setdefault(document.id, number)
            if first != number:
                raise _bad_line(scan.path, number, "a new id", f"{document.id!r}, the id of line {first}")


class JsonlDocuments(DocumentSource):
    """A docs.jsonl whose lines are matched to rows.

    `match_rows` says how. Only offsets are kept; lines are read again when they are needed.

    Parameters
    ----------
    path
        The docs.jsonl.
    labels
        The label of each row.
    count
        How many rows the index has.
    in_order
        Line i belongs to row i and ids are ignored, for vectors that have no labels.
    """

    def __init__(self, path: Path, labels: Labels, count: int, *, in_order: bool = False) -> None:
        self.file = path
        self._path = path
        self._scan = scan_docs(path)
        if self._scan.count != count:
            raise StoreError(
                f"{path}: has {self._scan.count} documents for {count} vectors; write the file and the index "
                "from the same documents"
            )
        self._lines, matched = (
            (None, "line by line")
            if in_order
            else match_rows(path, labels, count, self._scan.values, self._scan.faiss_ids)
        )
        self.kind = f"{DOCS_NAME}, {matched}"
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
                yield parse_line(line, self._path, numbers[place])[0]


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
