"""The documents of a plain FAISS store: a docs.jsonl beside the index, matched to its labels."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from migrate.documents import Document
from migrate.errors import StoreError
from migrate.files import copy_file, output_errors
from migrate.stores.cursor import read_errors, read_exactly
from migrate.stores.doc_source import DocumentSource
from migrate.stores.docs_scan import parse_line, scan_docs
from migrate.stores.labels import Labels, Rows, label_values
from migrate.stores.row_match import match_rows

DOCS_NAME: Final = "docs.jsonl"


class JsonlDocuments(DocumentSource):
    """A docs.jsonl whose lines are matched to rows.

    `match_rows` says how. Only offsets are kept; lines are read again when they are asked for.

    Parameters
    ----------
    path
        The docs.jsonl.
    labels
        The label of each row.
    count
        How many rows the index has.

    Raises
    ------
    StoreError
        A line is malformed, or the lines do not match the labels.
    """

    def __init__(self, path: Path, labels: Labels, count: int) -> None:
        self.file = path
        self._path = path
        self._scan = scan_docs(path)
        if self._scan.count != count:
            raise StoreError(
                f"{path}: expected {count} documents, one for each vector, found {self._scan.count}; "
                "write the file and the index from the same documents"
            )
        self._lines, matched = match_rows(path, labels, count, self._scan.values, self._scan.faiss_ids)
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
            raise StoreError(f'{self._path}: expected lines with a "text", found none; add the texts')
        return self._read(rows)

    def write(self, folder: Path) -> None:
        """Copy the file byte for byte."""
        target = folder / self._path.name
        with output_errors(target):
            copy_file(self._path, target)

    def _read(self, rows: Rows) -> Iterator[Document]:
        scan = self._scan
        lines = label_values(self._lines, rows)
        with read_errors(self._path), self._path.open("rb", buffering=0) as file:
            scan.identity.check(self._path, file.fileno())
            for line in lines.tolist():
                content = bytearray(int(scan.sizes[line]))
                read_exactly(self._path, file.fileno(), memoryview(content), int(scan.offsets[line]))
                yield parse_line(bytes(content), self._path, int(scan.line_numbers[line]))[0]
