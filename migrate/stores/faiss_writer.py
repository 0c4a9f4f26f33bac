"""Writes FAISS stores: flat ones row by row in constant memory, IVF and HNSW ones by building them at the end."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from migrate.files import output_errors
from migrate.stores.base import StoreWriter
from migrate.stores.doc_source import DocumentSource
from migrate.stores.faiss_build import append_built
from migrate.stores.faiss_head import flat_head, id_map_head, id_map_tail
from migrate.stores.faiss_layout import Decoded, Flat, Hnsw, IdMap, Ivf, Layout
from migrate.stores.faiss_rebuild import RebuildingWriter
from migrate.stores.faiss_walk import read_layout
from migrate.stores.row_file import RowFile
from migrate.vectors import Batch


def open_writer(path: Path, layout: Layout, dim: int, documents: DocumentSource) -> StoreWriter:
    """The writer of an index like `layout` at `path`, with `documents` beside it."""
    if isinstance(layout, Decoded):
        return RebuildingWriter(path, layout, dim, documents)
    plain = layout.inner if isinstance(layout, IdMap) else layout
    if isinstance(plain, Flat):
        return _FlatWriter(path, layout, dim, documents)
    return _BuildingWriter(path, layout, plain, dim, documents)


class _FlatWriter(StoreWriter):
    """Rows go straight to their place."""

    def __init__(self, path: Path, layout: Layout, dim: int, documents: DocumentSource) -> None:
        header = layout.header
        head = id_map_head(layout, dim) + flat_head(dim, header.count, header.metric)
        self._file = RowFile(path, head, dim, header.count)
        self._tail = id_map_tail(layout)
        self._documents = documents

    def append(self, batch: Batch) -> None:
        self._file.append(batch.vectors)

    def finish(self) -> None:
        self._file.finish(self._tail)
        self._documents.write(self._file.path.parent)


class _BuildingWriter(StoreWriter):
    """Rows wait in a file of their own until all are there; the index is then built in memory."""

    def __init__(self, path: Path, layout: Layout, plain: Ivf | Hnsw, dim: int, documents: DocumentSource) -> None:
        self._path = path
        self._layout = layout
        self._plain = plain
        self._rows = RowFile(path.with_name(f".{path.name}.rows"), b"", dim, layout.header.count)
        self._documents = documents

    def append(self, batch: Batch) -> None:
        self._rows.append(batch.vectors)

    def finish(self) -> None:
        rows = self._rows
        rows.finish()
        with output_errors(self._path):
            self._path.write_bytes(id_map_head(self._layout, rows.dim))
        append_built(self._path, self._plain, self._waiting_rows())
        with output_errors(self._path), self._path.open("ab") as file:
            file.write(id_map_tail(self._layout))
            file.flush()
            os.fsync(file.fileno())
        rows.path.unlink()
        read_layout(self._path)
        self._documents.write(self._path.parent)

    def _waiting_rows(
        self,
    ) -> np.memmap[tuple[int, ...], np.dtype[np.float32]] | np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        """The rows without a copy in memory; they are this writer's own, so nobody cuts the file."""
        shape = (self._rows.rows, self._rows.dim)
        return np.memmap(self._rows.path, "<f4", "r", shape=shape) if shape[0] else np.empty(shape, np.float32)
