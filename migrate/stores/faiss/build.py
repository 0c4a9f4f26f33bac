"""Builds an index from a recipe. Runs in the child process only.

Quantizers, codebooks, rotations and graphs cannot be translated, so they are trained or built again from the new
vectors, in memory. The result is the same from run to run: fixed seeds, fixed order, and one thread for graphs, whose
links depend on the order of insertion.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from migrate.errors import StoreError
from migrate.files import output_errors
from migrate.stores.faiss import fourcc
from migrate.stores.faiss.layout import Flat, Hnsw, Ivf
from migrate.stores.faiss.lists import append_lists
from migrate.stores.faiss.parts import Recipe, Rows, library, open_index
from migrate.stores.faiss.recipe import SCALAR_NAMES, factory
from migrate.stores.frames import RefusedError
from migrate.vectors import Vectors
from migrate.work.shards import Rows as StoredRows

_TRAINING_ROWS_PER_LIST: Final = 256
_FEWEST_ROWS_PER_LIST: Final = 39
"""What FAISS recommends at least."""

_TRAINING_BYTES: Final = 512 << 20
_ROWS_PER_BATCH: Final = 65_536
_FILE_BUFFER: Final = 1 << 20


_TRAINING_ROWS: Final = 65_536
_ROWS_PER_LIST: Final = 256
_WORTH_THREADS: Final = 50_000


def append_built(path: Path, kind: Ivf | Hnsw, vectors: Vectors | StoredRows) -> None:
    """Build an index of the kind and settings of `kind` over `vectors`, and append it to a file.

    Parameters
    ----------
    path
        The file; what it holds already (the header of an id map) stays.
    kind
        The index to do like. Its labels go with the vectors, row by row.
    vectors
        (kind.header.count, dim), of any dimension.
    """
    faiss = _faiss()
    try:
        if isinstance(kind, Ivf):
            append_lists(path, _train_ivf(kind, vectors), vectors, kind.labels)
            return
        index = _build_hnsw(kind, vectors)
    except (RuntimeError, MemoryError) as error:
        reason = str(error).strip().splitlines()[-1:] or ["out of memory"]
        raise StoreError(f"{path}: FAISS cannot build {kind.factory}: {reason[0]}") from error
    with output_errors(path), path.open("ab") as file:
        faiss.write_index(index, faiss.PyCallbackIOWriter(file.write, _FILE_BUFFER))


def _faiss() -> Any:
    import faiss

    return faiss


def _train_ivf(kind: Ivf, vectors: Vectors | StoredRows) -> Any:
    """An index with the quantizer of `vectors`, and empty lists."""
    faiss = _faiss()
    count, dim = vectors.shape
    if not count:
        raise StoreError(f"{kind.factory} needs vectors to train on, but there are none; there is nothing to move")
    nlist = min(kind.nlist, count)
    quantizer = _empty_quantizer(kind.quantizer, dim)
    index = faiss.IndexIVFFlat(quantizer, dim, nlist, fourcc.METRIC_NUMBERS[kind.header.metric])
    index.nprobe = kind.nprobe
    # fewer points than FAISS recommends are what a small store has; no reason to print to stderr
    index.cp.min_points_per_centroid = 1
    index.train(_list_training_rows(vectors, nlist))
    return index


def _list_training_rows(vectors: Vectors | StoredRows, nlist: int) -> Vectors:
    at_hand = _TRAINING_BYTES // (4 * vectors.shape[1])
    size = nlist * max(min(_TRAINING_ROWS_PER_LIST, at_hand // nlist), _FEWEST_ROWS_PER_LIST)
    if len(vectors) <= size:
        return np.ascontiguousarray(vectors)
    rows: NDArray[np.int64] = np.sort(np.random.default_rng(0).choice(len(vectors), size, replace=False))
    return np.ascontiguousarray(vectors[rows])


def _empty_quantizer(kind: Flat | Hnsw, dim: int) -> Any:
    faiss = _faiss()
    if isinstance(kind, Hnsw):
        return _empty_hnsw(kind, dim)
    return faiss.IndexFlatIP(dim) if kind.header.metric == "ip" else faiss.IndexFlatL2(dim)


def _build_hnsw(kind: Hnsw, vectors: Vectors | StoredRows) -> Any:
    index = _empty_hnsw(kind, vectors.shape[1])
    with _one_thread():
        index.add(np.ascontiguousarray(vectors))
    return index


def _empty_hnsw(kind: Hnsw, dim: int) -> Any:
    faiss = _faiss()
    index = faiss.IndexHNSWFlat(dim, kind.links, fourcc.METRIC_NUMBERS[kind.header.metric])
    index.hnsw.efConstruction = kind.ef_construction
    index.hnsw.efSearch = kind.ef_search
    return index


@contextmanager
def _one_thread() -> Iterator[None]:
    faiss = _faiss()
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(threads)


def make_index(recipe: Recipe, metric: int, vectors: Rows | StoredRows, labels: NDArray[np.int64] | None) -> Any:
    """An index after a recipe, trained on the vectors and filled with them."""
    faiss = library()

    count, dim = vectors.shape
    # Who comes first decides how a graph is linked, and how an additive quantizer is trained.
    alone = _order_matters(recipe) or count < _WORTH_THREADS
    faiss.omp_set_num_threads(1 if alone else os.cpu_count() or 1)
    index = empty_index(recipe, dim, metric)
    if count:
        index.train(_training_rows(vectors, recipe))
    for first in range(0, count, _ROWS_PER_BATCH):
        block = np.ascontiguousarray(vectors[first : first + _ROWS_PER_BATCH])
        index.add(block) if labels is None else index.add_with_ids(block, labels[first : first + _ROWS_PER_BATCH])
    _expect_all(index, count)
    return index


def write_durably(index: Any, path: str) -> None:
    """Write an index and wait for the disk; `faiss.write_index` itself would not notice that it is full."""
    faiss = library()

    with Path(path).open("wb") as file:
        faiss.write_index(index, faiss.PyCallbackIOWriter(file.write, _FILE_BUFFER))
        file.flush()
        os.fsync(file.fileno())


def empty_index(recipe: Recipe, dim: int, metric: int) -> Any:
    """An untrained index after a recipe."""
    faiss = library()

    index = faiss.index_factory(dim, factory(_buildable(recipe)), metric)
    _apply(index, recipe)
    return index


def _buildable(recipe: Recipe) -> Recipe:
    """The recipe with similar parts in place of those that the factory cannot name; `_apply` corrects them."""
    buildable = {name: _buildable(value) if isinstance(value, dict) else value for name, value in recipe.items()}
    if recipe["kind"] == "SQ" and recipe["type"] not in SCALAR_NAMES:
        buildable["type"] = "QT_8bit"
    if recipe["kind"] == "PreTransform":
        buildable["transforms"] = [part for part in recipe["transforms"] if part["kind"] != "Centering"]
        return buildable if buildable["transforms"] else buildable["inner"]
    return buildable


def _apply(index: Any, recipe: Recipe) -> None:
    """Apply the settings that a factory string cannot express."""
    index = open_index(index)
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
    elif kind in _APPLY:
        _APPLY[kind](index, recipe)


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
    quantizer = open_index(index.quantizer)
    if recipe["quantizer"]["kind"] == "HNSW":
        _apply_graph(quantizer, recipe["quantizer"])
    if recipe["code"]["kind"] in _APPLY:
        _APPLY[recipe["code"]["kind"]](index, recipe["code"])


def _apply_scalar(index: Any, recipe: Recipe) -> None:
    faiss = library()

    if recipe["type"] in SCALAR_NAMES:
        return
    index.sq = faiss.ScalarQuantizer(index.d, getattr(faiss.ScalarQuantizer, recipe["type"]))
    index.code_size = index.sq.code_size
    if hasattr(index, "invlists"):
        lists = faiss.ArrayInvertedLists(index.nlist, index.code_size)
        lists.this.disown()
        index.replace_invlists(lists, True)


def _apply_product(index: Any, recipe: Recipe) -> None:
    if "polysemous" in recipe:
        index.do_polysemous_training = recipe["polysemous"]


_APPLY: Final = {"SQ": _apply_scalar, "PQ": _apply_product}


def _training_rows(vectors: Rows | StoredRows, recipe: Recipe) -> Rows:
    """A sample, in a fixed order; repeated where it is smaller than a codebook."""
    size = max(_TRAINING_ROWS, _ROWS_PER_LIST * _largest(recipe, "nlist"))
    if len(vectors) > size:
        rows: NDArray[np.int64] = np.sort(np.random.default_rng(0).choice(len(vectors), size, replace=False))
        return np.ascontiguousarray(vectors[rows])
    least = 1 << _largest(recipe, "nbits") if _has_codebook(recipe) else 1
    return np.ascontiguousarray(np.tile(vectors, (-(-least // len(vectors)), 1)))


def _parts(recipe: Recipe) -> list[Recipe]:
    """The recipe and all within it."""
    inside = [value for value in recipe.values() if isinstance(value, dict)]
    return [recipe, *(part for value in inside for part in _parts(value))]


def _largest(recipe: Recipe, name: str) -> int:
    return max((part.get(name, 0) for part in _parts(recipe)), default=0)


def _has_codebook(recipe: Recipe) -> bool:
    return any(part["kind"] in {"PQ", "RQ", "LSQ", "PRQ", "PLSQ", "IMI"} for part in _parts(recipe))


def _order_matters(recipe: Recipe) -> bool:
    return any(part["kind"] in {"HNSW", "NSG", "RQ", "LSQ", "PRQ", "PLSQ"} for part in _parts(recipe))


def _expect_all(index: Any, count: int) -> None:
    faiss = library()

    lists = faiss.try_extract_index_ivf(index)
    stored = lists.invlists.compute_ntotal() if lists is not None else index.ntotal
    if (index.ntotal, stored) != (count, count):
        raise RefusedError(f"the new index holds {stored} of {count} vectors; FAISS drops rows with NaN or Inf")
