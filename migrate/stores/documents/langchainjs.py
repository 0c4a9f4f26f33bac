"""Documents of a folder of LangChain.js' `FaissStore`: docstore.json beside faiss.index.

The file is `[[[id, document], ...], {row: id}]`; a document has `pageContent` and `metadata`. It is held in memory, as
LangChain.js itself does.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from migrate.files import open_file
from migrate.reading import MalformedError, read_json
from migrate.stores.binary_reader import read_errors, shown
from migrate.stores.documents.base import MOST_BYTES, DocumentSource, check_numbered, json_errors
from migrate.stores.documents.matching import Labels
from migrate.vectors import Document

_DOCSTORE: Final = "docstore.json"
_TEXT: Final = "pageContent"


def is_langchainjs(index: Path) -> bool:
    """Return whether a docstore.json beside an index is a list, as of LangChain.js; LlamaIndex's is an object."""
    docstore = index.with_name(_DOCSTORE)
    if not docstore.is_file():
        return False
    with read_errors(docstore), open_file(docstore) as file:
        return file.read(64).lstrip().startswith(b"[")


class LangchainJsDocuments(DocumentSource):
    """Documents by row, as `docstore.json` maps rows to ids."""

    format = "langchainjs"
    _no_texts = "all documents have empty texts; save the store again"

    def __init__(self, index: Path, labels: Labels, count: int) -> None:
        self.file = self._path = index.with_name(_DOCSTORE)
        self._positions = check_numbered(self._path, labels, count, "LangChain.js needs")
        with json_errors(self._path):
            self._documents, id_of_row = _parse(read_json(self._path, MOST_BYTES))
            self._ids = [_id_of(id_of_row, row, self._documents) for row in range(count)]
            if len(id_of_row) > count:
                raise MalformedError(f"it has rows for {len(id_of_row)} vectors, and the index has {count}")
            if len(set(self._ids)) < count:
                raise MalformedError("two rows have one document")
        self.has_texts = any(self._documents[doc_id][_TEXT] for doc_id in self._ids)
        self.kind = f"{_DOCSTORE} of LangChain.js"
        orphans = len(self._documents) - count
        self.notes = (
            (f"{orphans} documents in {_DOCSTORE} belong to no vector; they are kept as they are",) if orphans else ()
        )

    def _ids_at(self, positions: NDArray[np.int64]) -> list[str]:
        return [self._ids[position] for position in positions.tolist()]

    def _documents_at(self, positions: NDArray[np.int64]) -> Iterator[Document]:
        for doc_id in self._ids_at(positions):
            fields = self._documents[doc_id]
            yield Document(doc_id, fields[_TEXT], fields.get("metadata") or {})


def _parse(content: Any) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """Return the documents by id, and the id of each row by its number."""
    if not (isinstance(content, list) and len(content) == 2 and isinstance(content[0], list)):
        raise MalformedError("it is no list of documents and rows, [[[id, document], ...], {row: id}]")
    pairs, id_of_row = content
    if not isinstance(id_of_row, dict):
        raise MalformedError(f"the rows are {shown(id_of_row)}, not an object")
    documents: dict[str, dict[str, Any]] = {}
    for pair in pairs:
        if not (isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str) and isinstance(pair[1], dict)):
            raise MalformedError(f"{shown(pair)} is no [id, document]")
        doc_id, fields = pair
        if not isinstance(fields.get(_TEXT), str) or not isinstance(fields.get("metadata"), dict | None):
            raise MalformedError(f"the document {shown(doc_id)} lacks a {_TEXT} or metadata")
        if doc_id in documents:
            raise MalformedError(f"two documents have the id {shown(doc_id)}")
        documents[doc_id] = fields
    return documents, id_of_row


def _id_of(id_of_row: dict[str, Any], row: int, documents: dict[str, dict[str, Any]]) -> str:
    """Return the id of the document of a row."""
    doc_id = id_of_row.get(str(row))
    if not isinstance(doc_id, str) or doc_id not in documents:
        raise MalformedError(f"the vector of row {row} has no document")
    return doc_id
