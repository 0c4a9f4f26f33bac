"""Writes FAISS stores: flat ones row by row in constant memory, IVF and HNSW ones by building them at the end.

Writes an index of a kind that FAISS decoded: rows wait in a file, and a child process builds the index anew.
"""

from __future__ import annotations

import json
import os
from abc import abstractmethod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from migrate.errors import StoreError
from migrate.files import output_errors
from migrate.stores.base import FROM_THE_START, Resume, StoreWriter
from migrate.stores.child import run_job
from migrate.stores.documents.base import DocumentSource, Labels, places_of
from migrate.stores.faiss import fourcc
from migrate.stores.faiss.build import append_built
from migrate.stores.faiss.layout import Decoded, Flat, Hnsw, IdMap, Ivf, Layout, flat_head, id_map_head, id_map_tail
from migrate.stores.faiss.reader import BUILD_QUIET_S, JOBS, build_memory, read_layout
from migrate.stores.faiss.rescale import rescale
from migrate.stores.frames import DONE, LABELS
from migrate.stores.row_file import RowFile


class _BuiltWriter(StoreWriter):
    """Rows wait in a file of their own until all are there; the index is then built over them.

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

    _order: NDArray[np.int64] | None
    """Set when the index is built: before, nobody knows which list a row comes to lie in."""

    def __init__(
        self, path: Path, layout: Layout, dim: int, documents: DocumentSource, resume: Resume = FROM_THE_START
    ) -> None:
        self._path = path
        self._layout = layout
        self._rows_stay = resume.scratch is not None
        waiting = (resume.scratch or path.parent) / f".{path.name}.rows"
        self.rows = RowFile(waiting, b"", dim, layout.header.count, resume.finished)
        self._documents = documents

    @property
    def order(self) -> NDArray[np.int64] | None:
        """By the labels of both indexes: the new lists are others than the old ones."""
        return self._order

    def finish(self) -> None:
        """Build the index."""
        self.rows.finish()
        self._order = _order_by(self._path, self._layout.labels, self._build(), self._layout.header.count)
        if not self._rows_stay:
            with output_errors(self._path):
                self.rows.path.unlink()
        self._documents.write(self._path.parent)

    @abstractmethod
    def _build(self) -> Labels:
        """Write the index, durably; the labels of its rows, in the order in which a reader finds them."""


def _order_by(path: Path, old: Labels, new: Labels, count: int) -> NDArray[np.int64] | None:
    """The row of the old index that each row of the new one has the label of, (count,); None where they are the same.

    Labels are unique: `check_labels` refuses an index in which they are not.
    """
    rows = np.arange(count)
    order = places_of(rows if new is None else new, rows if old is None else old)
    if order is None:
        raise StoreError(f"{path}: expected the labels of the old index in the new one, found others; write it again")
    return None if np.array_equal(order, rows) else order


class RebuildingWriter(_BuiltWriter):
    """Of an index of a kind that FAISS decoded: a child process builds it anew.

    `remarks` says what of the old index could not be kept for the new dimension, and why.
    """

    def __init__(
        self, path: Path, layout: Decoded, dim: int, documents: DocumentSource, resume: Resume = FROM_THE_START
    ) -> None:
        header = layout.header
        if not header.count:
            raise StoreError(
                f"{path}: expected vectors to train {layout.factory} on, found none; there is none to move"
            )
        self._recipe, self.remarks = rescale(layout.recipe, header.dim, dim, header.count)
        super().__init__(path, layout, dim, documents, resume)

    def _build(self) -> Labels:
        rows, old = self.rows, self._layout.labels
        labels, new = rows.path.with_suffix(".labels"), bytearray()
        size = rows.path.stat().st_size
        job: dict[str, Any] = {
            "do": f"{JOBS}:build",
            "path": str(self._path),
            "rows": str(rows.path),
            "labels": str(labels) if old is not None else None,
            "dim": rows.dim,
            "metric": fourcc.METRIC_NUMBERS[self._layout.header.metric],
            "recipe": json.dumps(self._recipe),
            "memory_bytes": build_memory(size, rows.rows),
        }
        with output_errors(self._path):
            if old is not None:
                labels.write_bytes(np.ascontiguousarray(old, "<i8").tobytes())
        for tag, content in run_job(self._path, job, file_bytes=size, quiet_s=BUILD_QUIET_S):
            if tag == LABELS:
                new += content
            elif tag == DONE:
                self.recall = json.loads(content)["recall"]
        with output_errors(self._path):
            labels.unlink(missing_ok=True)
        return np.frombuffer(bytes(new), "<i8").astype(np.int64, copy=False) if new else None


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


class _BuildingWriter(_BuiltWriter):
    """Of one that is read without FAISS's help: it is built in memory, its lists in the file."""

    def __init__(
        self, path: Path, layout: Layout, plain: Ivf | Hnsw, dim: int, documents: DocumentSource, resume: Resume
    ) -> None:
        super().__init__(path, layout, dim, documents, resume)
        self._plain = plain

    def _build(self) -> Labels:
        with output_errors(self._path):
            self._path.write_bytes(id_map_head(self._layout, self.rows.dim))
        append_built(self._path, self._plain, self._waiting_rows())
        with output_errors(self._path), self._path.open("ab") as file:
            file.write(id_map_tail(self._layout))
            file.flush()
            os.fsync(file.fileno())
        return read_layout(self._path).labels

    def _waiting_rows(
        self,
    ) -> np.memmap[tuple[int, ...], np.dtype[np.float32]] | np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        """The rows without a copy in memory; they are this writer's own, so nobody cuts the file."""
        shape = (self.rows.rows, self.rows.dim)
        return np.memmap(self.rows.path, "<f4", "r", shape=shape) if shape[0] else np.empty(shape, np.float32)
