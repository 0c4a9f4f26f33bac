"""Documents of a plain FAISS store: a docs.jsonl beside the index, matched to its labels.

A line is {"id": str, "text": str, "metadata": {...}}; text, metadata and an integer "faiss_id" are optional. A byte
order mark, CRLF and blank lines are accepted.

The file is scanned once. Each document's place in the file, a hash of its id and the number in it are kept in memory,
40 bytes a line; texts are read when they are needed.
"""

from __future__ import annotations

import codecs
import os
import weakref
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from migrate.errors import StoreError
from migrate.files import FileStamp, open_file
from migrate.progress import note_progress
from migrate.reading import MalformedError, as_table, parse_json
from migrate.stores.binary_reader import malformed, read_errors
from migrate.stores.documents.base import DocumentsInfo, DocumentSource, check_count, repeated
from migrate.stores.documents.matching import IdNumbers, Numbering, match_rows
from migrate.vectors import Document

# Arbitrary: without a limit a file with no line end would be read into memory whole.
_LONGEST_LINE: Final = 1 << 28
_AHEAD: Final = 1 << 16
"""Bytes that are read at once where documents are asked for one after another."""

_TOLD_LINES: Final = 20_000
"""Lines between two reports of how far a file is read."""

_COLUMNS: Final = 4
"""What is kept of each document, see `DocsScan.places`."""

DOCS_NAME: Final = "docs.jsonl"


def _parse(content: bytes, path: Path, number: int) -> tuple[Document, int | None, bool]:
    """Return the document of a line, the label that it names, if it does, and whether it has a text."""
    try:
        fields = as_table(parse_json(content))
    except MalformedError as error:
        raise bad_line(path, number, f"not a JSON object ({error})") from error
    get = fields.get
    doc_id = get("id")
    text = get("text")
    metadata = get("metadata")
    label = get("faiss_id")
    if not isinstance(doc_id, str):
        raise bad_line(path, number, f'the "id" is {shown_type(doc_id)}, not text')
    if text is not None and not isinstance(text, str):
        raise bad_line(path, number, f'the "text" is {shown_type(text)}, not text')
    if metadata is not None and not isinstance(metadata, dict):
        raise bad_line(path, number, f'the "metadata" are {shown_type(metadata)}, not an object')
    return Document(doc_id, text or "", metadata or {}), label if type(label) is int else None, text is not None


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class DocsScan:
    """The documents of a file.

    `places`, (n, 4), has the first byte of each document, its size, the number of its line, and a hash of its id, which
    holds in this process only. `numbers` are those that ids hold, `faiss_ids` the labels where every line names one.
    """

    stamp: FileStamp
    places: NDArray[np.int64]
    numbers: IdNumbers
    faiss_ids: NDArray[np.int64] | None
    with_text: int


def bad_line(path: Path, number: int, problem: str) -> StoreError:
    """Return the error of a line, to be raised."""
    return StoreError(f"{path}:{number}: {problem}; correct the line")


def shown_type(value: object) -> str:
    """Return a value out of a file, with its type, for a message."""
    if value is None:
        return "nothing"
    return f"{type(value).__name__} {value!r:.40}"


_scans: WeakValueDictionary[FileStamp, DocsScan] = WeakValueDictionary()


class RepeatedIdError(StoreError):
    """Two documents of a file have one id."""


def scan_docs(path: Path, written: BinaryIO | None = None) -> DocsScan:
    """Read a file once, checking every document; not again while a store of this process has it open.

    Of a file in another format the documents have been `written` as lines.
    """
    places = array("q")
    faiss_ids = array("q")
    numbers = IdNumbers()
    with_text = 0
    with read_errors(path), open_file(path, buffering=1 << 20) as file:
        stamp = FileStamp.of(path, file.fileno())
        # A command may open a store more than once: the file is parsed for the first time alone.
        if written is None and (cached := _scans.get(stamp)) is not None:
            return cached
        for number, offset, content in lines_of(written or file, path):
            document, faiss_id, has_text = _parse(content, path, number)
            places.extend((offset, len(content), number, hash(document.id)))
            numbers.add(document.id)
            if faiss_id is not None and -(1 << 63) <= faiss_id < 1 << 63:
                faiss_ids.append(faiss_id)
            with_text += has_text
            if not number % _TOLD_LINES:
                note_progress("read the documents", offset, stamp.size)
    scan = DocsScan(
        stamp,
        places=np.array(places, np.int64).reshape(-1, _COLUMNS),
        numbers=numbers,
        faiss_ids=np.array(faiss_ids, np.int64) if _COLUMNS * len(faiss_ids) == len(places) else None,
        with_text=with_text,
    )
    _refuse_duplicates(scan, written)
    if written is None:
        _scans[stamp] = scan
    return scan


def lines_of(file: Any, path: Path, *, blank: bool = False) -> Iterator[tuple[int, int, bytes]]:
    """Yield number, offset and bytes of each line that is not blank, or of every one, without a byte order mark."""
    offset = 0
    number = 0
    while line := file.readline(_LONGEST_LINE):
        number += 1
        if len(line) == _LONGEST_LINE:
            raise bad_line(path, number, f"the line is of {_LONGEST_LINE} bytes or more")
        mark = 0
        if number == 1 and line.startswith(codecs.BOM_UTF8):
            mark = len(codecs.BOM_UTF8)
        if blank or line[mark:].strip():
            yield number, offset + mark, line[mark:]
        offset += len(line)


def _refuse_duplicates(scan: DocsScan, written: BinaryIO | None) -> None:
    """Refuse an id that two documents have."""
    # equal hashes are only a suspicion: the lines are read again and their ids compared
    line_of: dict[str, int] = {}
    hashes = scan.places[:, -1]
    suspects = scan.places[np.isin(hashes, repeated(hashes))]
    with read_errors(scan.stamp.path), open_file(scan.stamp.path) as file:
        for offset, size, number, _ in suspects.tolist():
            line = os.pread((written or file).fileno(), size, offset)
            document, _, _ = _parse(line, scan.stamp.path, number)
            first = line_of.setdefault(document.id, number)
            if first != number:
                problem = f"duplicate id {document.id[:80]!r}, the id of line {first}"
                raise RepeatedIdError(str(bad_line(scan.stamp.path, number, problem)))


class JsonlDocuments(DocumentSource):
    """A file of documents, one after another, that are matched to rows as `match_rows` says.

    Only offsets are kept; documents are read again when they are needed: from the file, or as they were `written` from
    it.
    """

    def __init__(self, path: Path, rows: Numbering, *, written: BinaryIO | None = None) -> None:
        self._path = path
        self._written = written
        if written is not None:
            written.seek(0)
            weakref.finalize(self, written.close)
        self._scan = scan = scan_docs(path, written)
        check_count(path, rows.count, len(scan.places))
        self.readings = match_rows(path, rows, scan.numbers, scan.faiss_ids)
        likeliest = next(iter(self.readings.values()))
        self.positions = likeliest.positions
        missing = rows.count - scan.with_text
        self.info = DocumentsInfo(
            path.name,
            file=path,
            copied=(path,),
            matched=likeliest.by,
            no_texts="" if scan.with_text else f'{path}: no line has a "text"; add the texts',
            notes=(f"{missing} of {rows.count} documents in {path.name} have no text",) if missing else (),
        )

    def _documents_at(self, positions: NDArray[np.int64]) -> Iterator[Document]:
        scan = self._scan
        with read_errors(self._path), open_file(self._path, buffering=0) as file:
            scan.stamp.check(file.fileno())
            descriptor = (self._written or file).fileno()
            block = b""
            start = 0
            for position in positions.tolist():
                offset, size, number, _ = scan.places[position].tolist()
                end = start + len(block)
                if not start <= offset <= end - size:
                    is_next = start <= offset <= end
                    block = os.pread(descriptor, max(size, _AHEAD) if is_next else size, offset)
                    start = offset
                line = block[offset - start : offset - start + size]
                if len(line) < size:
                    raise malformed(self._path, f"line {number} was cut meanwhile", "run the same command again")
                yield _parse(line, self._path, number)[0]
