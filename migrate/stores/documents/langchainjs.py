"""Documents of a folder of LangChain.js' `FaissStore`: docstore.json beside faiss.index.

The file is `[[[id, document], ...], {row: id}]`; a document has `pageContent` and `metadata`. It is held in memory, as
LangChain.js itself does.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np

from migrate.files import open_file
from migrate.reading import MalformedError, read_json
from migrate.stores.binary_reader import read_errors, shown
from migrate.stores.documents.base import (
    MOST_BYTES,
    DocumentsInfo,
    DocumentSource,
    HeldDocuments,
    check_known,
    check_numbered,
    ids_by_label,
    json_errors,
    note_of_orphans,
)
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


def langchainjs_documents(index: Path, labels: Labels, count: int) -> DocumentSource:
    """Return the documents beside an index, by row, as `docstore.json` maps rows to ids."""
    path = index.with_name(_DOCSTORE)
    positions = check_numbered(path, labels, count, "LangChain.js needs")
    with json_errors(path):
        fields_of, id_of_row = _parse(read_json(path, MOST_BYTES))
        ids = ids_by_label(id_of_row, np.arange(count), "document")
        check_known(ids, fields_of, "document")
    # JavaScript leaves a field out of JSON that is undefined.
    documents = [Document(doc_id, fields_of[doc_id][_TEXT], fields_of[doc_id].get("metadata") or {}) for doc_id in ids]
    has_texts = any(document.text for document in documents)
    info = DocumentsInfo(
        f"{_DOCSTORE} of LangChain.js",
        file=path,
        copied=(path,),
        format="langchainjs",
        no_texts="" if has_texts else f"{path}: all documents have empty texts; save the store again",
        notes=note_of_orphans(len(fields_of) - count, "document", path),
    )
    return HeldDocuments(documents, info, positions)


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
