"""Writes stores that have no predecessor: documents and vectors together, in a flat index."""

from __future__ import annotations

import json
import os
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from migrate.errors import StoreError, UsageError
from migrate.files import output_errors
from migrate.manifest import StoreFacts
from migrate.stores.base import Metric, Store
from migrate.stores.documents.jsonl import DOCS_NAME, scan_docs
from migrate.stores.documents.langchain import current_state, write_docstore
from migrate.stores.documents.matching import has_digit
from migrate.stores.faiss.fourcc import flat_head
from migrate.stores.faiss.recipe import Recipe, recipe_of
from migrate.stores.faiss.writer import build_index
from migrate.stores.file_store import INDEX_NAME, HashFile, hash_files
from migrate.stores.outputs import Form, Output
from migrate.stores.records import left_behind, not_json, source_documents
from migrate.vectors import Document, Vectors
from migrate.work.rows import Rows
from migrate.work.shards import Shard, ShardFolder
from migrate.work.writer import FlatFileWriter, StoreWriter, Written, all_put

PICKLE_NAME: Final = "index.pkl"


def create_store(
    folder: Path,
    *,
    format: Literal["faiss", "langchain"],  # noqa: A002
    dim: int,
    metric: Metric = "ip",
    goes_on: bool = False,
) -> NewStoreWriter:
    """Return a writer of a new store in a folder that exists: of `index.faiss` and its companion.

    In the format "faiss" that is a docs.jsonl, streamed; in "langchain" an `index.pkl` as the present LangChain writes
    it, whose documents are held in memory until the end. If it `goes_on`, the vectors of an earlier writer stay in the
    index, and their documents are added with `keep`.
    """
    if not goes_on:
        (folder / INDEX_NAME).unlink(missing_ok=True)
    return NewStoreWriter(folder, _DocsFile(folder) if format == "faiss" else _Docstore(folder), dim, metric)


class NewStoreWriter(FlatFileWriter):
    """A writer of a store that has no predecessor: documents and vectors together, in a flat index."""

    def __init__(self, folder: Path, documents: _DocsFile | _Docstore, dim: int, metric: Metric) -> None:
        self._folder = folder
        self._documents = documents
        self._metric: Metric = metric
        super().__init__(folder / INDEX_NAME, flat_head(dim, 0, metric), dim, None, all_put)

    def keep(self, documents: Sequence[Document]) -> None:
        """Add the next documents, whose vectors are put, or were put by an earlier writer."""
        self._documents.append(documents)

    def append(self, documents: Sequence[Document], vectors: Vectors) -> None:
        """Add the next documents with their vectors, (len(documents), dim)."""
        if len(documents) != len(vectors):
            raise StoreError(
                f"{self._folder}: {len(vectors)} vectors were given for {len(documents)} documents; give one for each"
            )
        self.keep(documents)
        self.put(Shard(self._stop, self._stop + len(vectors)), [vectors])

    def finish(self, rows: Rows | None = None, shards: ShardFolder | None = None) -> Written:
        """Complete the store, durably; a StoreError where nothing was appended, or two documents share an id."""
        if rows is None:
            count = self._stop
        else:
            count = rows.count
        if not count:
            raise StoreError(f"{self._folder}: there is no document to write; give one at least")
        self._documents.finish()
        self.finish_file(count, head=flat_head(self.dim, count, self._metric))
        return Written()


class _DocsFile:
    """A docs.jsonl that is written line by line."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / DOCS_NAME
        # Eight bytes for each id: the ids of many documents are not to be held beside the lines.
        self._hashes = array("q")
        with output_errors(self._path):
            self._path.write_bytes(b"")

    def append(self, documents: Sequence[Document]) -> None:
        """Write the next documents."""
        lines = b"".join(_line(document, row) for row, document in enumerate(documents, start=len(self._hashes)))
        self._hashes.extend(hash(document.id) for document in documents)
        with output_errors(self._path), self._path.open("ab") as file:
            file.write(lines)

    def finish(self) -> None:
        """Make sure that no two have one id, and wait for the disk."""
        if np.unique(np.array(self._hashes, np.int64)).size < len(self._hashes):
            # equal hashes are only a suspicion: the scan compares the ids themselves
            scan_docs(self._path)
        with output_errors(self._path), self._path.open("ab") as file:
            os.fsync(file.fileno())


class _Docstore:
    """An index.pkl of LangChain, written at the end."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._documents: list[Document] = []

    def append(self, documents: Sequence[Document]) -> None:
        """Hold the next documents."""
        self._documents.extend(documents)

    def finish(self) -> None:
        """Make sure that no two have one id, and write all."""
        states = {}
        for document in self._documents:
            if document.id in states:
                raise StoreError(f"{self._folder}: the id {document.id!r} comes twice; give each document its own")
            states[document.id] = current_state(document.text, dict(document.metadata), document.id)
        write_docstore(self._folder / PICKLE_NAME, states, dict(enumerate(states)))


def faiss_output(path: Path, index: str = "") -> Output:
    """Return a folder for an index, and the documents of a store of any kind in a docs.jsonl beside it.

    The index is flat, or built after a factory string such as `IVF1024,Flat`.
    """
    recipe = recipe_of(index)
    if index and recipe is None:
        raise UsageError(
            f"faiss:{path}#?index={index}: this is no index that can be made; write IVF1024,Flat, IVF1024,SQ8, "
            "IVF1024,SQfp16 or HNSW32, with a number of your own"
        )
    options = {"index": index} if index else {}
    open_writer = _flat_writer if recipe is None else partial(_index_writer, recipe, f"{path}: {index}")
    form = Form(name="faiss", open_writer=open_writer, facts=partial(_faiss_facts, options), options=options)
    return Output(path, form=form)


def _faiss_facts(options: Mapping[str, str], _source: Store, content: Path, hash_of: HashFile) -> dict[str, Any]:
    """Return the hashes of index and documents, and that this kind was asked for."""
    written_as = StoreFacts(written_as={"kind": "faiss", **options}).as_details()
    return {**written_as, **hash_files(content, INDEX_NAME, (DOCS_NAME,), hash_of)}


def _index_writer(recipe: Recipe, named: str, source: Store, folder: Path, dim: int) -> StoreWriter:
    """Return a writer of an index after a recipe; the documents of `source` follow once it is built."""
    # FAISS would refuse it too, but only when it trains, with all vectors made and paid for.
    if source.info.count < recipe.settings.get("nlist", 1):
        raise UsageError(
            # 39 is FAISS's `min_points_per_centroid`, below which it warns that clusters are poor.
            f"{named} has more lists than there are documents ({source.info.count:,}); name fewer, some 39 documents "
            "to a list at least"
        )

    def complete(rows: Rows, shards: ShardFolder) -> Written:
        built = build_index(folder / INDEX_NAME, recipe, source.info.metric, rows, shards)
        write_docs(source, folder)
        return replace(built, remarks=tuple(left_behind(source)))

    return StoreWriter(dim, complete)


def _flat_writer(source: Store, folder: Path, dim: int, remarks: tuple[str, ...] = ()) -> FlatFileWriter:
    """Return a writer of rows straight to their place; the documents of `source` follow once all are there."""

    def complete(rows: Rows, _shards: ShardFolder) -> Written:
        if not rows.count:
            raise StoreError(f"{folder}: there is no document to write; give one at least")
        write_docs(source, folder)
        return Written(remarks=(*remarks, *left_behind(source)))

    count = source.info.count
    return FlatFileWriter(folder / INDEX_NAME, flat_head(dim, count, source.info.metric), dim, count, complete)


def write_docs(source: Store, folder: Path) -> None:
    """Write the documents of a store of any kind into a docs.jsonl."""
    docs = _DocsFile(folder)
    documents = source_documents(source)
    # Arbitrary: the file is opened and written to once for each of these.
    while chunk := list(islice(documents, 1_000)):
        docs.append(chunk)
    docs.finish()


def flat_writer(source: Store, folder: Path, dim: int) -> FlatFileWriter:
    """Return the writer of a new store for documents that lie in no folder."""
    remark = (
        f"stores of the kind {source.info.kind} lie in no folder: this one is a FAISS index with a docs.jsonl; "
        f"name the output {source.info.kind}:... for one like the source"
    )
    return _flat_writer(source, folder, dim, (remark,))


def _line(document: Document, row: int) -> bytes:
    """Return a line of docs.jsonl; an id that could pass for another document's label says which label is its own."""
    fields: dict[str, object] = {"id": document.id, "text": document.text, "metadata": dict(document.metadata)}
    if has_digit(document.id):
        fields["faiss_id"] = row
    try:
        return (json.dumps(fields, ensure_ascii=False) + "\n").encode()
    except (TypeError, ValueError) as error:
        raise not_json(document, error) from error
