"""Folders of LlamaIndex with its default vector store, `SimpleVectorStore`: vectors by id in a file of JSON.

`default__vector_store.json` has the vectors, docstore.json the nodes. Further namespaces are files of the same form
beside them, and stores of their own. A file is held in memory while it is read, as LlamaIndex itself does.
"""

from __future__ import annotations

import json
import os
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from migrate.files import FileStamp, output_errors
from migrate.reading import MalformedError, read_table
from migrate.stores.base import KindSupport, StoreInfo
from migrate.stores.binary_reader import RowFile, malformed, read_errors, shown
from migrate.stores.child import temporary_file, write_all
from migrate.stores.documents.base import MOST_BYTES, json_errors, sidecar_files
from migrate.stores.documents.llamaindex import DOCSTORE, EMBEDDINGS, VECTORS_NAME, is_simple, node_documents
from migrate.stores.file_store import RowFileStore, only_file, own_manifest
from migrate.stores.records import read_metric
from migrate.work.rows import Rows
from migrate.work.shards import ShardFolder
from migrate.work.writer import StoreWriter, Written

_STORE_ENDING: Final = "store.json"
_ENDING: Final = f"vector_{_STORE_ENDING}"
_SAMPLE: Final = 64


class LlamaIndexSimpleKind:
    """Folders of LlamaIndex `SimpleVectorStore`, as the registry knows them."""

    name = "llamaindex-simple"
    support = KindSupport(
        "LlamaIndex `SimpleVectorStore`",
        ("FOLDER", "llamaindex-simple:FILE"),
        "",
        "ids, order, nodes, further namespaces as they are",
        "vectors are written as float32",
        "all vectors, as its client holds them",
    )

    def recognises(self, path: Path) -> bool:
        """Return True for a file that a `SimpleVectorStore` wrote, or a folder with one."""
        if path.is_dir():
            return bool(_vector_files(path))
        return path.name.endswith(_ENDING) and is_simple(path)

    def open(self, location: str) -> LlamaIndexSimpleStore:
        """Open a file of vectors, or a folder: its namespace `default`, or the only one.

        Raises a StoreError where there is none, or more than one; or it is malformed, or lacks nodes.
        """
        path = Path(location)
        if path.is_file():
            return LlamaIndexSimpleStore(path, path)
        default = path / VECTORS_NAME
        if not (path.is_dir() and default in _vector_files(path)):
            default = only_file(path, _vector_files, "files of a SimpleVectorStore")
        return LlamaIndexSimpleStore(path, default)


def _vector_files(folder: Path) -> list[Path]:
    with read_errors(folder):
        return [file for file in sorted(folder.glob(f"*{_ENDING}")) if file.is_file() and is_simple(file)]


class LlamaIndexSimpleStore(RowFileStore):
    """A namespace: `path` is what the user gave, `index` the file of vectors.

    Raises a StoreError where vectors or nodes are malformed, or do not match.
    """

    def __init__(self, path: Path, index: Path) -> None:
        super().__init__(index)
        stamp = FileStamp.of(index)
        with json_errors(index):
            content = read_table(index, MOST_BYTES)
            embeddings = content.pop(EMBEDDINGS, None)
            if not isinstance(embeddings, dict):
                raise MalformedError(f"{EMBEDDINGS!r} is {shown(embeddings)}, not an object")
            self._beside_vectors = content
            vectors = _as_array(embeddings)
        if not len(vectors):
            raise malformed(index, "it holds no vectors", "give a store with some, or the file of another namespace")
        stamp.check()
        self._file = _in_rows(index, stamp, vectors)
        self.source = node_documents(index, list(embeddings))
        documents = self.source.info
        docstore = index.with_name(DOCSTORE)
        # all that a copy has, so that `sync` may replace its folder
        other_stores = (file for file in sidecar_files(index, f"*{_STORE_ENDING}") if file != docstore)
        self.stamps = (stamp, *map(FileStamp.of, (docstore, *other_stores)))
        metric, odd = read_metric("cosine", vectors[:_SAMPLE])
        manifest, foreign = own_manifest(index)
        self.info = StoreInfo(
            location=str(path),
            kind=LlamaIndexSimpleKind.name,
            index_type="SimpleVectorStore",
            count=len(vectors),
            dim=vectors.shape[1],
            metric=metric,
            exact=True,
            has_texts=documents.has_texts,
            manifest=manifest,
            notes=(*odd, *documents.notes, *foreign),
            details={
                "index": index.name,
                "index_bytes": stamp.size,
                "distance": "cosine",  # the only way in which SimpleVectorStore compares
                "documents": documents.kind,
                "documents_file": docstore.name,
            },
        )

    def destination(self, location: Path, dim: int) -> StoreWriter:
        """Return a writer of the same files, under the same names."""

        def complete(rows: Rows, _shards: ShardFolder) -> Written:
            self.write_vectors(location / self.index_path.name, rows)
            self.source.write(location)
            return Written()

        return StoreWriter(dim, complete)

    def write_vectors(self, path: Path, rows: Rows) -> None:
        """Write a file of these vectors with the ids and the other tables of this store, durably."""
        # Written piece by piece: `json.dump` of the whole table would need all vectors as Python's numbers at once.
        with output_errors(path), path.open("w", encoding="utf-8") as file:
            file.write(f'{{"{EMBEDDINGS}": {{')
            for first, vectors in rows.batches():
                ids = self.source.ids(range(first, first + len(vectors)))
                for row, (doc_id, vector) in enumerate(zip(ids, vectors, strict=True), start=first):
                    file.write(f"{', ' if row else ''}{json.dumps(doc_id)}: {json.dumps(vector.tolist())}")
            file.write("}")
            for name, table in self._beside_vectors.items():
                file.write(f", {json.dumps(name)}: {json.dumps(table)}")
            file.write("}")
            file.flush()
            os.fsync(file.fileno())


def _as_array(embeddings: Mapping[str, Any]) -> NDArray[np.float32]:
    """Return the vectors in their order, (n, dim), float32."""
    dim = next((len(vector) for vector in embeddings.values() if isinstance(vector, list)), 0)
    vectors = np.empty((len(embeddings), dim), np.float32)
    for row, (doc_id, vector) in enumerate(embeddings.items()):
        if not isinstance(vector, list) or len(vector) != dim or not dim:
            raise MalformedError(f"the vector of {shown(doc_id)} is no list of {dim} numbers")
        # By the type itself, as `true` is an `int` to Python, and NumPy would make a 1 of it.
        if not all(type(number) in (float, int) for number in vector):
            raise MalformedError(f"the vector of {shown(doc_id)} holds something other than numbers")
        # what is too large becomes infinite, and is refused as that
        with np.errstate(over="ignore"):
            vectors[row] = np.array(vector, np.float64)
    return vectors


def _in_rows(path: Path, stamp: FileStamp, vectors: NDArray[np.float32]) -> RowFile:
    """Return the vectors as rows of a file without a name."""
    file = temporary_file(path, vectors.nbytes)
    write_all(file, vectors.tobytes())
    rows = RowFile(stamp, np.array([[0, len(vectors)]]), vectors.shape[1], descriptor=file.fileno())
    weakref.finalize(rows, file.close)
    return rows
