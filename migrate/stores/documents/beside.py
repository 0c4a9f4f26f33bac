"""Finds documents that are beside vectors but of no framework: docs.jsonl, Parquet, or a file of the user's own."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Final

from migrate.files import open_file
from migrate.reading import MalformedError, parse_json
from migrate.stores.binary_reader import read_errors
from migrate.stores.documents.arrow import ParquetDocuments
from migrate.stores.documents.base import LOOKED_AT, DocumentSource, LabelsOnly, sidecar_files
from migrate.stores.documents.jsonl import DOCS_NAME, JsonlDocuments, lines_of
from migrate.stores.documents.matching import Numbering
from migrate.stores.documents.names import TEXTS
from migrate.stores.documents.own_file import find_own_file, own_documents

_ID: Final = "id"
_TEXT: Final = "text"


def documents_beside(
    index: Path,
    rows: Numbering,
    named: Mapping[str, str],
    *,
    kind: str = "faiss",
) -> DocumentSource:
    """Return the documents in a file beside vectors; labels alone where no file has any.

    `named` are the fields that hold `text` and `id`; `kind` is that of the store in messages.
    """
    docs = index.with_name(DOCS_NAME)
    if docs.exists() and not named:
        if is_plain(docs):
            return JsonlDocuments(docs, rows)
        return own_documents(docs, index, rows, named, kind=kind)
    if sidecar_files(index, "*.parquet"):
        return ParquetDocuments(index, rows, named, kind=kind)
    documents, why = find_own_file(index, rows, named, kind=kind)
    return documents or LabelsOnly(rows.labels, index, why)


def is_plain(docs: Path) -> bool:
    """Return whether lines are those of a docs.jsonl as this tool writes it, rather than of fields to be told by name.

    Lines that cannot be read do not decide: whoever reads them all names them.
    """
    records = []
    with read_errors(docs), open_file(docs, buffering=1 << 20) as file:
        for _, _, line in islice(lines_of(file, docs), LOOKED_AT):
            try:
                records.append(parse_json(line))
            except MalformedError:
                continue
    objects = [record for record in records if isinstance(record, dict)]
    if not objects:
        return True
    has_ids = any(isinstance(record.get(_ID), str) for record in objects)
    has_texts = any(_TEXT in record for record in objects)
    # A file without any text is a docs.jsonl all the same; one with texts by another name is a user's own.
    has_other_texts = any(name in record for record in objects for name in TEXTS)
    return has_ids and (has_texts or not has_other_texts)
