"""Builds an index from a recipe. Runs in the child process only.

Quantizers, codebooks, rotations and graphs cannot be translated, so they are trained or built again from the new
vectors. The result is the same from run to run: fixed seeds, fixed order, and one thread for graphs, whose links depend
on the order of insertion. An index is built in memory, but for inverted lists of plain vectors, see `lists.py`.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import faiss
import numpy as np
from numpy.typing import NDArray

from migrate.stores.faiss.describe import apply_settings, inside
from migrate.stores.faiss.fourcc import METRICS, id_map_ends
from migrate.stores.faiss.lists import append_lists
from migrate.stores.faiss.recipe import Recipe
from migrate.stores.frames import RefusedError
from migrate.threads import thread_count
from migrate.vectors import Vectors
from migrate.work.rows import Rows

_TRAINING_BYTES: Final = 512 << 20
"""Vectors of a training sample, in memory, beyond what FAISS recommends at least."""
_PLAIN_LISTS: Final = re.compile(r"(IVF\d+(_HNSW\d+)?|IMI\d+x\d+),Flat")


def build_index(path: Path, recipe: Recipe, metric: int, vectors: Rows, labels: NDArray[np.int64] | None) -> None:
    """Write an index after a recipe, trained on the vectors and filled with them, and wait for the disk."""
    count, dim = vectors.shape
    # Arbitrary: one thread builds a smaller index in a moment.
    is_large = count >= 50_000
    # Who comes first decides how a graph is linked.
    order_matters = "HNSW" in recipe.factory
    faiss.omp_set_num_threads(thread_count() if is_large and not order_matters else 1)
    head, tail = id_map_ends(recipe.id_map, dim, METRICS[metric], labels)
    has_plain_lists = _PLAIN_LISTS.fullmatch(recipe.inner_factory) is not None
    index = empty_index(replace(recipe, factory=recipe.inner_factory) if has_plain_lists else recipe, dim, metric)
    if count:
        index.train(_training_rows(vectors, index))
    if has_plain_lists:
        faiss.omp_set_num_threads(thread_count() if is_large else 1)
        path.write_bytes(head)
        append_lists(path, index, vectors, np.arange(count) if head or labels is None else labels)
    else:
        _add(index, vectors, labels)
    with path.open("ab" if has_plain_lists else "wb") as file:
        if has_plain_lists:
            file.write(tail)
        else:  # through Python: `faiss.write_index` itself would not notice that the disk is full
            faiss.write_index(index, faiss.PyCallbackIOWriter(file.write, 1 << 20))
        file.flush()
        os.fsync(file.fileno())


def _add(index: Any, vectors: Rows, labels: NDArray[np.int64] | None) -> None:
    """Add all vectors, and make sure that they are in the index."""
    count = len(vectors)
    for first, block in vectors.batches(65_536):
        index.add(block) if labels is None else index.add_with_ids(block, labels[first : first + len(block)])
    # Counted in the lists too: FAISS drops a vector with NaN from these, and goes on counting it in `ntotal`.
    lists = faiss.try_extract_index_ivf(index)
    if lists is not None:
        stored = lists.invlists.compute_ntotal()
    else:
        stored = index.ntotal
    if (index.ntotal, stored) != (count, count):
        raise RefusedError(f"the new index holds {stored} of {count} vectors; FAISS drops rows with NaN or Inf")


def empty_index(recipe: Recipe, dim: int, metric: int) -> Any:
    """Return an untrained index after a recipe."""
    index = faiss.index_factory(dim, recipe.factory, metric)
    apply_settings(index, recipe)
    for component in inside(index):
        if isinstance(component, faiss.IndexIVF):
            # fewer points than FAISS recommends are what a small store has
            component.cp.min_points_per_centroid = 1
        # slow, and for a kind of search that is not the default
        if hasattr(component, "do_polysemous_training"):
            component.do_polysemous_training = False
    return index


def _training_rows(vectors: Rows, index: Any) -> Vectors:
    """Return a sample, in a fixed order; repeated where it is smaller than a codebook."""
    components = list(inside(index))
    lists = max((component.nlist for component in components if isinstance(component, faiss.IndexIVF)), default=0)
    row_bytes = 4 * vectors.shape[1]
    fit_in_memory = _TRAINING_BYTES // row_bytes
    # For each list FAISS takes 256 rows at most, and recommends 39 at least
    # 65,536 are what a codebook of 8 bits takes at most: 256 vectors for each of 256 entries.
    size = max(65_536, min(256 * lists, fit_in_memory), 39 * lists)
    if len(vectors) > size:
        rows: NDArray[np.int64] = np.sort(np.random.default_rng(0).choice(len(vectors), size, replace=False))
        return np.ascontiguousarray(vectors[rows])
    # FAISS trains no codebook with fewer vectors than it has entries, and a small store may have fewer.
    least = max((1 << component.pq.nbits for component in components if hasattr(component, "pq")), default=1)
    return np.ascontiguousarray(np.tile(vectors, (-(-least // len(vectors)), 1)))
