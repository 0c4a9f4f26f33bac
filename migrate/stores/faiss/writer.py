"""Writes FAISS stores: flat ones row by row in constant memory, others by building them at the end.

A guarded process builds an index anew, from the rows in the files of their shards.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from migrate.errors import StoreError, UnsupportedStoreError
from migrate.files import output_errors
from migrate.progress import note_progress
from migrate.stores.base import Metric
from migrate.stores.child import run_job
from migrate.stores.documents.base import DocumentSource
from migrate.stores.documents.matching import Labels, places_of
from migrate.stores.faiss import fourcc
from migrate.stores.faiss.reader import JOBS, QUERIES, FaissFile
from migrate.stores.faiss.recipe import FLAT, Recipe
from migrate.stores.faiss.rescale import rescale
from migrate.stores.file_store import with_documents
from migrate.stores.frames import DONE, LABELS
from migrate.work.rows import Rows
from migrate.work.shards import ShardFolder
from migrate.work.writer import FlatFileWriter, StoreWriter, Written

_BUILD_SPARE_BYTES: Final = 4 << 30
_GRAPH_ROW_BYTES: Final = 4096
"""The links of a row, where the index is a graph."""
_QUIET_S: Final = 7 * 86_400.0
"""A process that builds an index is silent until it is done; graphs of many million rows take days."""


def open_writer(
    path: Path, old: FaissFile, dim: int, documents: DocumentSource, remarks: tuple[str, ...]
) -> StoreWriter:
    """Return the writer of an index like `old` at `path`, with `documents` beside it."""
    factory = old.recipe.inner_factory
    if factory == FLAT:
        head, tail = fourcc.id_map_ends(old.recipe.id_map, dim, old.metric, old.labels)
        head += fourcc.flat_head(dim, old.count, old.metric)
        return FlatFileWriter(path, head, dim, old.count, with_documents(documents, path.parent, remarks), tail=tail)
    if not factory:
        raise UnsupportedStoreError(
            f"{old.path}: FAISS reads {old.chain}, but builds none from a name; write another index, such as "
            "-o 'faiss:NEW-STORE#?index=HNSW32'"
        )
    if not old.count and re.fullmatch(r"HNSW\d+,Flat", factory) is None:
        raise StoreError(f"{path}: no vectors to train {old.recipe.factory} on; there is none to move")
    recipe, changes = rescale(old.recipe, old.dim, dim, old.count)

    def complete(rows: Rows, shards: ShardFolder) -> Written:
        built = build_index(path, recipe, old.metric, rows, shards, labels=old.labels)
        documents.write(path.parent)
        return replace(built, remarks=(*changes, *remarks))

    return StoreWriter(dim, complete)


def build_index(
    path: Path, recipe: Recipe, metric: Metric, rows: Rows, shards: ShardFolder, *, labels: Labels = None
) -> Written:
    """Build an index after a recipe over all rows, which are in the files of their shards.

    Without `labels`, those of the vectors are their rows. The new lists are others than the old ones: the order is
    found by the labels of both.
    """
    labels_path = path.with_name(f".{path.name}.labels")
    new_labels = bytearray()
    size = 4 * rows.count * rows.dim
    job: dict[str, Any] = {
        "do": f"{JOBS}:build",
        "path": str(path),
        "shards": str(shards.path),
        "labels": str(labels_path) if labels is not None else None,
        "dim": rows.dim,
        "metric": fourcc.METRIC_NUMBERS[metric],
        "recipe": asdict(recipe),
        "queries": QUERIES,
        # Arbitrary: a sound build is not to meet it, and any other to end before it takes all memory of the machine.
        "memory_bytes": _BUILD_SPARE_BYTES + 8 * size + _GRAPH_ROW_BYTES * rows.count,
    }
    with output_errors(path):
        if labels is not None:
            # In a file, as a job is JSON that is received in one piece, and labels take eight bytes a vector.
            labels_path.write_bytes(np.ascontiguousarray(labels, "<i8").tobytes())
    recall = None
    # Graphs and clusters are built by FAISS in one call
    note_progress("build the index", 0, None)
    for tag, content in run_job(path, job, file_bytes=size, quiet_s=_QUIET_S):
        if tag == LABELS:
            new_labels += content
        elif tag == DONE:
            recall = json.loads(content)["recall"]
    with output_errors(path):
        labels_path.unlink(missing_ok=True)
    if not new_labels:
        stored_labels = None
    else:
        stored_labels = np.frombuffer(bytes(new_labels), "<i8").astype(np.int64, copy=False)
    return Written(order=_order_by(path, labels, stored_labels, rows.count), recall=recall)


def _order_by(path: Path, old: Labels, new: Labels, count: int) -> NDArray[np.int64] | None:
    """Return the row of the old index that each row of the new one has the label of; None where they are the same.

    Labels are unique: `check_labels` refuses an index in which they are not.
    """
    rows = np.arange(count)
    order = places_of(rows if new is None else new, rows if old is None else old)
    if order is None:
        raise StoreError(f"{path}: the new index has other labels than the old one; write it again")
    if np.array_equal(order, rows):
        return None
    return order
