"""Builds an index from a recipe. Runs in the child process only.

Quantizers, codebooks, rotations and graphs cannot be translated, so they are trained or built again from the new
vectors. The result is the same from run to run: fixed seeds, fixed order, and one thread for graphs, whose links depend
on the order of insertion. An index is built in memory, but for inverted lists of plain vectors, see `lists.py`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from migrate.stores.faiss.fourcc import METRIC_NUMBERS, METRICS, id_map_ends
from migrate.stores.faiss.lists import append_lists
from migrate.stores.faiss.recipe import SCALAR_NAMES, Recipe, factory
from migrate.stores.frames import RefusedError
from migrate.vectors import Vectors
from migrate.work.rows import Rows


def build_index(path: Path, recipe: Recipe, metric: int, vectors: Rows, labels: NDArray[np.int64] | None) -> None:
    """Write an index after a recipe, trained on the vectors and filled with them, and wait for the disk."""
    count, dim = vectors.shape
    is_large = count >= 50_000
    # Who comes first decides how a graph is linked, and how an additive quantizer is trained.
    order_matters = not _kinds(recipe).isdisjoint({"HNSW", "NSG", "RQ", "LSQ", "PRQ", "PLSQ"})
    faiss.omp_set_num_threads((os.cpu_count() or 1) if is_large and not order_matters else 1)
    head, tail = id_map_ends(recipe["kind"], dim, METRICS[metric], labels)
    plain = recipe["inner"] if head else recipe
    has_plain_lists = plain["kind"] == "IVF" and plain["code"]["kind"] == "Flat"
    index = empty_index(plain if has_plain_lists else recipe, dim, metric)
    if count:
        index.train(_training_rows(vectors, recipe))
    if has_plain_lists:
        faiss.omp_set_num_threads((os.cpu_count() or 1) if is_large else 1)
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
    lists = faiss.try_extract_index_ivf(index)
    stored = lists.invlists.compute_ntotal() if lists is not None else index.ntotal
    if (index.ntotal, stored) != (count, count):
        raise RefusedError(f"the new index holds {stored} of {count} vectors; FAISS drops rows with NaN or Inf")


def empty_index(recipe: Recipe, dim: int, metric: int) -> Any:
    """Return an untrained index after a recipe."""
    index = faiss.index_factory(dim, factory(_buildable(recipe)), metric)
    _apply(index, recipe)
    return index


def _buildable(recipe: Recipe) -> Recipe:
    """Return the recipe with similar parts in place of those that the factory cannot name; `_apply` corrects them."""
    buildable = {name: _buildable(value) if isinstance(value, dict) else value for name, value in recipe.items()}
    if recipe["kind"] == "SQ" and recipe["type"] not in SCALAR_NAMES:
        buildable["type"] = "QT_8bit"
    if recipe["kind"] == "PreTransform":
        buildable["transforms"] = [transform for transform in recipe["transforms"] if transform["kind"] != "Centering"]
        return buildable if buildable["transforms"] else buildable["inner"]
    return buildable


def _apply(index: Any, recipe: Recipe) -> None:
    """Apply the settings that a factory string cannot express."""
    index = faiss.downcast_index(index)
    kind = recipe["kind"]
    if kind in {"IDMap", "IDMap2"}:
        _apply(index.index, recipe["inner"])
    elif kind == "PreTransform":
        _apply(index.index if hasattr(index, "chain") else index, recipe["inner"])
    elif kind == "Refine":
        index.k_factor = recipe["k_factor"]
        _apply(index.base_index, recipe["base"])
        _apply(index.refine_index, recipe["refine"])
    elif kind in {"HNSW", "NSG"}:
        _apply_graph(index, recipe)
        _apply(index.storage, recipe["storage"])
    elif kind == "IVF":
        _apply_lists(index, recipe)
    else:
        _apply_code(index, recipe)


def _apply_graph(index: Any, recipe: Recipe) -> None:
    if recipe["kind"] == "HNSW":
        index.hnsw.efConstruction = recipe["efConstruction"]
        index.hnsw.efSearch = recipe["efSearch"]
    else:
        index.nsg.search_L = recipe["search_L"]
        index.GK = recipe["GK"]


def _apply_lists(index: Any, recipe: Recipe) -> None:
    index.nprobe = recipe["nprobe"]
    index.by_residual = recipe["by_residual"]
    # fewer points than FAISS recommends are what a small store has
    index.cp.min_points_per_centroid = 1
    quantizer = faiss.downcast_index(index.quantizer)
    if "metric" in recipe["quantizer"]:  # which may be another than that of the lists
        number = METRIC_NUMBERS[recipe["quantizer"]["metric"]]
        for piece in (quantizer, getattr(quantizer, "storage", quantizer)):
            piece.metric_type = number
    if recipe["quantizer"]["kind"] == "HNSW":
        _apply_graph(quantizer, recipe["quantizer"])
    _apply_code(index, recipe["code"])


def _apply_code(index: Any, recipe: Recipe) -> None:
    """Apply the settings of a product quantizer, or of a scalar one."""
    if recipe["kind"] == "PQ" and "polysemous" in recipe:
        index.do_polysemous_training = recipe["polysemous"]
    if recipe["kind"] != "SQ" or recipe["type"] in SCALAR_NAMES:
        return
    index.sq = faiss.ScalarQuantizer(index.d, getattr(faiss.ScalarQuantizer, recipe["type"]))
    index.code_size = index.sq.code_size
    if hasattr(index, "invlists"):
        lists = faiss.ArrayInvertedLists(index.nlist, index.code_size)
        lists.this.disown()
        index.replace_invlists(lists, True)


def _training_rows(vectors: Rows, recipe: Recipe) -> Vectors:
    """Return a sample, in a fixed order; repeated where it is smaller than a codebook."""
    lists, fit_in_memory = _largest(recipe, "nlist"), (512 << 20) // (4 * vectors.shape[1])
    # For each list FAISS takes 256 rows at most, and recommends 39 at least
    size = max(65_536, min(256 * lists, fit_in_memory), 39 * lists)
    if len(vectors) > size:
        rows: NDArray[np.int64] = np.sort(np.random.default_rng(0).choice(len(vectors), size, replace=False))
        return np.ascontiguousarray(vectors[rows])
    has_codebook = not _kinds(recipe).isdisjoint({"PQ", "RQ", "LSQ", "PRQ", "PLSQ", "IMI"})
    least = 1 << _largest(recipe, "nbits") if has_codebook else 1
    return np.ascontiguousarray(np.tile(vectors, (-(-least // len(vectors)), 1)))


def _components(recipe: Recipe) -> list[Recipe]:
    """Return the recipe and all within it."""
    inside = [value for value in recipe.values() if isinstance(value, dict)]
    return [recipe, *(piece for value in inside for piece in _components(value))]


def _largest(recipe: Recipe, name: str) -> int:
    return max((piece.get(name, 0) for piece in _components(recipe)), default=0)


def _kinds(recipe: Recipe) -> set[str]:
    return {piece["kind"] for piece in _components(recipe)}
