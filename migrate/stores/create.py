"""Writes stores that have no predecessor: documents and vectors together, in a flat index."""

from __future__ import annotations

import json
import os
from abc import abstractmethod
from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from migrate.errors import StoreError
from migrate.files import output_errors, sha256_file
from migrate.manifest import StoreFacts
from migrate.stores.base import Metric, NewStoreWriter, Resume, Store
from migrate.stores.documents.jsonl import DOCS_NAME, as_integer, scan_docs
from migrate.stores.documents.langchain import current_state, write_docstore
from migrate.stores.faiss.layout import flat_head
from migrate.stores.file_store import Sha256, hash_files
from migrate.stores.outputs import FolderOutput
from migrate.stores.records import WaitingWriter
from migrate.stores.row_file import RowFile
from migrate.vectors import Document, Vectors

INDEX_NAME: Final = "index.faiss"
PICKLE_NAME: Final = "index.pkl"
_ALL_FIELDS: Final = frozenset({"id", "metadata", "page_content"})


def create_store(
    folder: Path,
    *,
    format: Literal["faiss", "langchain"],  # noqa: A002
    dim: int,
    metric: Metric = "ip",
    kept: int = 0,
) -> NewStoreWriter:
    """A writer of a new store in a folder that exists.

    Parameters
    ----------
    folder
        Where `index.faiss` and its companion are written.
    format
        "faiss": a docs.jsonl beside the index, streamed. "langchain": an `index.pkl` as the present LangChain writes
        it; documents are held in memory until the end.
    dim
        Dimension of the vectors.
    metric
        How the index compares.
    kept
        How many vectors of an earlier writer's stay in the index; their documents are added with `keep`.
    """
    kind = _NewFaissStore if format == "faiss" else _NewLangchainStore
    return kind(folder, dim, metric, kept)


class _NewIndex(NewStoreWriter):
    """The index; where the documents go is the subclasses' matter."""

    def __init__(self, folder: Path, dim: int, metric: Metric, kept: int) -> None:
        self._folder = folder
        self._metric: Metric = metric
        self.rows = RowFile(folder / INDEX_NAME, flat_head(dim, 0, metric), dim, None, [(0, kept)] if kept else None)

    def keep(self, documents: Sequence[Document]) -> None:
        self._append_documents(documents)

    def append(self, documents: Sequence[Document], vectors: Vectors) -> None:
        if len(documents) != len(vectors):
            raise StoreError(
                f"{self._folder}: expected a vector for each document, found {len(vectors)} for {len(documents)}; "
                "append both together"
            )
        self._append_documents(documents)
        self.rows.write(self.rows.rows, vectors)

    def finish(self) -> None:
        rows = self.rows
        if not rows.rows:
            raise StoreError(f"{self._folder}: expected documents, found none; a store needs one at least")
        self._finish_documents()
        with output_errors(rows.path), rows.path.open("r+b") as file:
            file.write(flat_head(rows.dim, rows.rows, self._metric))
        rows.finish()

    @abstractmethod
    def _append_documents(self, documents: Sequence[Document]) -> None:
        """Write the next documents, or keep them until the end."""

    @abstractmethod
    def _finish_documents(self) -> None:
        """Write what is left of them, durably."""


class _NewFaissStore(_NewIndex):
    def __init__(self, folder: Path, dim: int, metric: Metric, kept: int) -> None:
        super().__init__(folder, dim, metric, kept)
        self._docs = folder / DOCS_NAME
        self._hashes = array("q")
        with output_errors(self._docs):
            self._docs.write_bytes(b"")

    def _append_documents(self, documents: Sequence[Document]) -> None:
        lines = b"".join(_line(document, row) for row, document in enumerate(documents, start=len(self._hashes)))
        self._hashes.extend(hash(document.id) for document in documents)
        with output_errors(self._docs), self._docs.open("ab") as file:
            file.write(lines)

    def _finish_documents(self) -> None:
        if np.unique(np.array(self._hashes, np.int64)).size < len(self._hashes):
            # equal hashes are only a suspicion: the scan compares the ids themselves
            scan_docs(self._docs)
        with output_errors(self._docs), self._docs.open("ab") as file:
            os.fsync(file.fileno())


class _NewLangchainStore(_NewIndex):
    def __init__(self, folder: Path, dim: int, metric: Metric, kept: int) -> None:
        super().__init__(folder, dim, metric, kept)
        self._documents: list[Document] = []

    def _append_documents(self, documents: Sequence[Document]) -> None:
        self._documents.extend(documents)

    def _finish_documents(self) -> None:
        states = {}
        for document in self._documents:
            if document.id in states:
                raise StoreError(
                    f"{self._folder}: expected a different id for each document, found {document.id!r} twice"
                )
            fields = {"id": document.id, "metadata": dict(document.metadata), "page_content": document.text}
            states[document.id] = current_state(fields, _ALL_FIELDS)
        write_docstore(self._folder / PICKLE_NAME, states, dict(enumerate(states)))


class FaissOutput(FolderOutput):
    """A folder with a flat index, and the documents of a store of any kind in a docs.jsonl beside it."""

    def writer(self, source: Store, content: Path, dim: int, resume: Resume) -> WaitingWriter:
        """A writer that reads the documents once all rows are there."""
        return FlatWriter(source, content, dim, resume)

    def facts(self, source: Store, content: Path, sha256: Sha256 = sha256_file) -> Mapping[str, Any]:
        """The hashes of index and documents, and that this kind was asked for."""
        written_as = StoreFacts(written_as={"kind": "faiss"}).as_details()
        return {**written_as, **hash_files(content, INDEX_NAME, (DOCS_NAME,), sha256)}


class FlatWriter(WaitingWriter):
    """The index and the documents are written once all rows are there."""

    sorts = False

    def load(self) -> None:
        """Write both."""
        writer = create_store(self.folder, format="faiss", dim=self.rows.dim, metric=self.source.info.metric)
        for documents, vectors in self.records():
            writer.append(documents, vectors)
        writer.finish()


def _line(document: Document, row: int) -> bytes:
    """A line of docs.jsonl; an id that could pass for another document's label says which label is its own."""
    fields: dict[str, object] = {"id": document.id, "text": document.text, "metadata": dict(document.metadata)}
    if as_integer(document.id) is not None:
        fields["faiss_id"] = row
    try:
        return (json.dumps(fields, ensure_ascii=False) + "\n").encode()
    except (TypeError, ValueError) as error:
        raise StoreError(
            f"document {document.id!r}: expected metadata that JSON can hold, found other ({error})"
        ) from error
