"""Writes FAISS stores: flat ones row by row in constant memory, IVF and HNSW ones by building them at the end."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from migrate.files import output_errors
from migrate.stores.base import FROM_THE_START, Resume, StoreWriter
from migrate.stores.doc_source import DocumentSource
from migrate.stores.faiss_build import append_built
from migrate.stores.faiss_head import flat_head, id_map_head, id_map_tail
from migrate.stores.faiss_layout import Decoded, Flat, Hnsw, IdMap, Ivf, Layout
from migrate.stores.faiss_rebuild import RebuildingWriter
from migrate.stores.faiss_walk import read_layout
from migrate.stores.row_file import RowFile
from migrate.vectors import Batch


def open_writer(
    path: Path, layout: Layout, dim: int, documents: DocumentSource, resume: Resume = FROM_THE_START
) -> StoreWriter:
    """The writer of an index like `layout` at `path`, with `documents` beside it."""
    if isinstance(layout, Decoded):
        return RebuildingWriter(path, layout, dim, documents, resume)
    plain = layout.inner if isinstance(layout, IdMap) else layout
    if isinstance(plain, Flat):
        return _FlatWriter(path, layout, dim, documents, resume)
    return _BuildingWriter(path, layout, plain, dim, documents, resume)


class _FlatWriter(StoreWriter):
    """Rows go straight to their place."""

    def __init__(self, path: Path, layout: Layout, dim: int, documents: DocumentSource, resume: Resume) -> None:
        header = layout.header
        head = id_map_head(layout, dim) + flat_head(dim, header.count, header.metric)
        self.rows = RowFile(path, head, dim, header.count, resume.rows)
        self._tail = id_map_tail(layout)
        self._documents = documents

    def append(self, batch: Batch) -> None:
        self.rows.append(batch.vectors)

    def finish(self) -> None:
        self.rows.finish(self._tail)
        self._documents.write(self.rows.path.parent)


class _BuildingWriter(StoreWriter):
    """Rows wait in a file of their own until all are there; the index is then built in memory."""

    def __init__(
        self, path: Path, layout: Layout, plain: Ivf | Hnsw, dim: int, documents: DocumentSource, resume: Resume
    ) -> None:
        self._path = path
        self._layout = layout
        self._plain = plain
        self._rows_stay = resume.scratch is not None
        waiting = (resume.scratch or path.parent) / f".{path.name}.rows"
        self.rows = RowFile(waiting, b"", dim, layout.header.count, resume.rows)
        self._documents = documents

    def append(self, batch: Batch) -> None:
        self.rows.append(batch.vectors)

    def finish(self) -> None:
        rows = self.rows
        rows.finish()
        with output_errors(self._path):
            self._path.write_bytes(id_map_head(self._layout, rows.dim))
        append_built(self._path, self._plain, self._waiting_rows())
        with output_errors(self._path), self._path.open("ab") as file:
            file.write(id_map_tail(self._layout))
            file.flush()
            os.fsync(file.fileno())
        if not self._rows_stay:
            rows.path.unlink()
        read_layout(self._path)
        self._documents.write(self._path.parent)

    def _waiting_rows(
        self,
    ) -> np.memmap[tuple[int, ...], np.dtype[np.float32]] | np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        """The rows without a copy in memory; they are this writer's own, so nobody cuts the file."""
        shape = (self.rows.rows, self.rows.dim)
        return np.memmap(self.rows.path, "<f4", "r", shape=shape) if shape[0] else np.empty(shape, np.float32)
