"""Writes FAISS stores: flat ones row by row in constant memory, others by building them at the end.

An index of a kind that FAISS decoded is built anew by a child process, from the rows in the files of their shards.
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
from migrate.stores.child import run_job
from migrate.stores.documents.base import DocumentSource, Labels, places_of
from migrate.stores.faiss import fourcc
from migrate.stores.faiss.build import append_built
from migrate.stores.faiss.layout import Decoded, Flat, Hnsw, IdMap, Ivf, Layout, flat_head, id_map_head, id_map_tail
from migrate.stores.faiss.reader import BUILD_QUIET_S, JOBS, build_memory, read_layout
from migrate.stores.faiss.rescale import rescale
from migrate.stores.frames import DONE, LABELS
from migrate.work.shards import Rows
from migrate.work.writer import FlatFileWriter, StoreWriter


class _BuiltWriter(StoreWriter):
    """The index is built over all rows, once they are there.

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
    """

    _order: NDArray[np.int64] | None
    """Set when the index is built: before, nobody knows which list a row comes to lie in."""

    def __init__(self, path: Path, layout: Layout, dim: int, documents: DocumentSource) -> None:
        self.dim = dim
        self._path = path
        self._layout = layout
        self._documents = documents

    @property
    def order(self) -> NDArray[np.int64] | None:
        """By the labels of both indexes: the new lists are others than the old ones."""
        return self._order

    def finish(self, rows: Rows) -> None:
        """Build the index."""
        self._order = _order_by(self._path, self._layout.labels, self._build(rows), self._layout.header.count)
        self._documents.write(self._path.parent)

    @abstractmethod
    def _build(self, rows: Rows) -> Labels:
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

    def __init__(self, path: Path, layout: Decoded, dim: int, documents: DocumentSource) -> None:
        header = layout.header
        if not header.count:
            raise StoreError(
                f"{path}: expected vectors to train {layout.factory} on, found none; there is none to move"
            )
        self._recipe, self.remarks = rescale(layout.recipe, header.dim, dim, header.count)
        super().__init__(path, layout, dim, documents)

    def _build(self, rows: Rows) -> Labels:
        old = self._layout.labels
        labels, new = self._path.with_name(f".{self._path.name}.labels"), bytearray()
        size = 4 * rows.count * rows.dim
        job: dict[str, Any] = {
            "do": f"{JOBS}:build",
            "path": str(self._path),
            "shards": str(rows.shards.path),
            "labels": str(labels) if old is not None else None,
            "dim": rows.dim,
            "metric": fourcc.METRIC_NUMBERS[self._layout.header.metric],
            "recipe": json.dumps(self._recipe),
            "memory_bytes": build_memory(size, rows.count),
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


def open_writer(path: Path, layout: Layout, dim: int, documents: DocumentSource) -> StoreWriter:
    """The writer of an index like `layout` at `path`, with `documents` beside it."""
    if isinstance(layout, Decoded):
        return RebuildingWriter(path, layout, dim, documents)
    plain = layout.inner if isinstance(layout, IdMap) else layout
    if isinstance(plain, Flat):
        return _FlatWriter(path, layout, dim, documents)
    return _BuildingWriter(path, layout, plain, dim, documents)


class _FlatWriter(FlatFileWriter):
    """Rows go straight to their place."""

    def __init__(self, path: Path, layout: Layout, dim: int, documents: DocumentSource) -> None:
        header = layout.header
        head = id_map_head(layout, dim) + flat_head(dim, header.count, header.metric)
        super().__init__(path, head, dim, header.count)
        self._tail = id_map_tail(layout)
        self._documents = documents

    def finish(self, rows: Rows) -> None:
        self.finish_file(rows.count, self._tail)
        self._documents.write(self.path.parent)


class _BuildingWriter(_BuiltWriter):
    """Of one that is read without FAISS's help: it is built in memory, its lists in the file."""

    def __init__(self, path: Path, layout: Layout, plain: Ivf | Hnsw, dim: int, documents: DocumentSource) -> None:
        super().__init__(path, layout, dim, documents)
        self._plain = plain

    def _build(self, rows: Rows) -> Labels:
        with output_errors(self._path):
            self._path.write_bytes(id_map_head(self._layout, self.dim))
        append_built(self._path, self._plain, rows)
        with output_errors(self._path), self._path.open("ab") as file:
            file.write(id_map_tail(self._layout))
            file.flush()
            os.fsync(file.fileno())
        return read_layout(self._path).labels
