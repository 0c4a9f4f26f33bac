"""Writes FAISS stores: flat ones row by row in constant memory, IVF and HNSW ones by building them at the end.

Writes an index of a kind that FAISS decoded: rows wait in a file, and a child process builds the index anew.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from migrate.errors import StoreError
from migrate.files import output_errors
from migrate.stores.base import FROM_THE_START, Resume, StoreWriter
from migrate.stores.documents.base import DocumentSource
from migrate.stores.faiss import fourcc
from migrate.stores.faiss.build import append_built
from migrate.stores.faiss.decoded import BUILD_QUIET_S, build_memory, run_job
from migrate.stores.faiss.frames import DONE
from migrate.stores.faiss.layout import Decoded, Flat, Hnsw, IdMap, Ivf, Layout, flat_head, id_map_head, id_map_tail
from migrate.stores.faiss.rescale import rescale
from migrate.stores.faiss.walk import read_layout
from migrate.stores.row_file import RowFile


class RebuildingWriter(StoreWriter):
    """Rows wait in a file of their own until all are there.

    `remarks` says what of the old index could not be kept for the new dimension, and why.

    Parameters
    ----------
    path
        Where the index is written.
    layout
        The old index.
    dim
        Dimension of the new vectors.
    documents
        Written beside the index.
    resume
        Where an earlier writer left off.
    """

    def __init__(
        self, path: Path, layout: Decoded, dim: int, documents: DocumentSource, resume: Resume = FROM_THE_START
    ) -> None:
        header = layout.header
        if not header.count:
            raise StoreError(
                f"{path}: expected vectors to train {layout.factory} on, found none; there is none to move"
            )
        self._path = path
        self._layout = layout
        self._recipe, self.remarks = rescale(layout.recipe, header.dim, dim, header.count)
        self._rows_stay = resume.scratch is not None
        waiting = (resume.scratch or path.parent) / f".{path.name}.rows"
        self.rows = RowFile(waiting, b"", dim, header.count, resume.finished)
        self._documents = documents

    def finish(self) -> None:
        """Build the index."""
        rows = self.rows
        rows.finish()
        labels = rows.path.with_suffix(".labels")
        size = rows.path.stat().st_size
        job: dict[str, Any] = {
            "do": "build",
            "path": str(self._path),
            "rows": str(rows.path),
            "labels": str(labels) if self._layout.labels is not None else None,
            "dim": rows.dim,
            "metric": fourcc.METRIC_NUMBERS[self._layout.header.metric],
            "recipe": json.dumps(self._recipe),
            "memory_bytes": build_memory(size, rows.rows),
        }
        with output_errors(self._path):
            if self._layout.labels is not None:
                labels.write_bytes(np.ascontiguousarray(self._layout.labels, "<i8").tobytes())
        for tag, content in run_job(self._path, job, file_bytes=size, quiet_s=BUILD_QUIET_S):
            if tag == DONE:
                self.recall = json.loads(content)["recall"]
        with output_errors(self._path):
            if not self._rows_stay:
                rows.path.unlink()
            labels.unlink(missing_ok=True)
        self._documents.write(self._path.parent)


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
        self.rows = RowFile(path, head, dim, header.count, resume.finished)
        self._tail = id_map_tail(layout)
        self._documents = documents

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
        self.rows = RowFile(waiting, b"", dim, layout.header.count, resume.finished)
        self._documents = documents

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
