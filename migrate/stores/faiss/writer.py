"""Writes FAISS stores: flat ones row by row in constant memory, others by building them at the end.

A guarded process builds an index anew, from the rows in the files of their shards.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from migrate.errors import StoreError, UnsupportedStoreError
from migrate.files import output_errors
from migrate.stores.base import Metric
from migrate.stores.child import run_job
from migrate.stores.documents.base import DocumentSource
from migrate.stores.documents.matching import Labels, places_of
from migrate.stores.faiss import fourcc
from migrate.stores.faiss.reader import JOBS, QUERIES, FaissFile
from migrate.stores.faiss.recipe import FLAT, Recipe
from migrate.stores.faiss.rescale import rescale
from migrate.stores.file_store import RowFileWriter
from migrate.stores.frames import DONE, LABELS
from migrate.work.rows import Rows
from migrate.work.shards import ShardFolder
from migrate.work.writer import StoreWriter

_QUIET_S: Final = 7 * 86_400.0
"""A process that builds an index is silent until it is done; graphs of many million rows take days."""


def open_writer(path: Path, old: FaissFile, dim: int, documents: DocumentSource) -> StoreWriter:
    """Return the writer of an index like `old` at `path`, with `documents` beside it."""
    factory = old.recipe.inner_factory
    if factory == FLAT:
        head, tail = fourcc.id_map_ends(old.recipe.id_map, dim, old.metric, old.labels)
        head += fourcc.flat_head(dim, old.count, old.metric)
        return RowFileWriter(path, head, dim, old.count, documents, tail)
    if not factory:
        raise UnsupportedStoreError(
            f"{old.path}: FAISS reads {old.chain}, but builds none from a name; write another index, such as "
            "-o 'faiss:NEW-STORE#?index=HNSW32'"
        )
    if not old.count and re.fullmatch(r"HNSW\d+,Flat", factory) is None:
        raise StoreError(f"{path}: no vectors to train {old.recipe.factory} on; there is none to move")
    recipe, remarks = rescale(old.recipe, old.dim, dim, old.count)
    writer = BuiltWriter(path, recipe, dim, old.metric, documents.write, labels=old.labels)
    writer.remarks = remarks
    return writer


class BuiltWriter(StoreWriter):
    """A writer of an index that is built after a recipe over all rows, once they are there.

    `write_documents` writes the documents into its folder. Without `labels`, those of the vectors are their rows.
    """

    _order: NDArray[np.int64] | None
    """Set when the index is built: before, nobody knows which list a row comes to lie in."""

    def __init__(
        self,
        path: Path,
        recipe: Recipe,
        dim: int,
        metric: Metric,
        write_documents: Callable[[Path], object],
        *,
        labels: Labels = None,
    ) -> None:
        self.dim = dim
        self._path, self._recipe, self._metric, self._labels = path, recipe, metric, labels
        self._write_documents = write_documents

    @property
    def order(self) -> NDArray[np.int64] | None:
        """Found by the labels of both indexes, as the new lists are others than the old ones."""
        return self._order

    def finish(self, rows: Rows, shards: ShardFolder) -> None:
        """Build the index."""
        old = self._labels
        labels, new = self._path.with_name(f".{self._path.name}.labels"), bytearray()
        size = 4 * rows.count * rows.dim
        job: dict[str, Any] = {
            "do": f"{JOBS}:build",
            "path": str(self._path),
            "shards": str(shards.path),
            "labels": str(labels) if old is not None else None,
            "dim": rows.dim,
            "metric": fourcc.METRIC_NUMBERS[self._metric],
            "recipe": asdict(self._recipe),
            "queries": QUERIES,
            # rows, and the links of a graph
            "memory_bytes": (4 << 30) + 8 * size + 4096 * rows.count,
        }
        with output_errors(self._path):
            if old is not None:
                labels.write_bytes(np.ascontiguousarray(old, "<i8").tobytes())
        for tag, content in run_job(self._path, job, file_bytes=size, quiet_s=_QUIET_S):
            if tag == LABELS:
                new += content
            elif tag == DONE:
                self.recall = json.loads(content)["recall"]
        with output_errors(self._path):
            labels.unlink(missing_ok=True)
        stored_labels = np.frombuffer(bytes(new), "<i8").astype(np.int64, copy=False) if new else None
        self._order = _order_by(self._path, old, stored_labels, rows.count)
        self._write_documents(self._path.parent)


def _order_by(path: Path, old: Labels, new: Labels, count: int) -> NDArray[np.int64] | None:
    """Return the row of the old index that each row of the new one has the label of; None where they are the same.

    Labels are unique: `check_labels` refuses an index in which they are not.
    """
    rows = np.arange(count)
    order = places_of(rows if new is None else new, rows if old is None else old)
    if order is None:
        raise StoreError(f"{path}: the new index has other labels than the old one; write it again")
    return None if np.array_equal(order, rows) else order
