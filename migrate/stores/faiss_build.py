"""Builds IVF and HNSW indexes with FAISS: quantizers and graphs cannot be translated, they are made anew.

The index is built in memory. It is the same from run to run: fixed seeds, fixed order, and one thread for graphs, whose
links depend on who comes first.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from migrate.errors import StoreError
from migrate.files import output_errors
from migrate.stores import fourcc
from migrate.stores.faiss_layout import Flat, Hnsw, Ivf
from migrate.vectors import Vectors

_TRAINING_ROWS_PER_LIST: Final = 256
_ROWS_PER_ADD: Final = 65_536
_WRITE_BUFFER: Final = 1 << 20


def append_built(path: Path, kind: Ivf | Hnsw, vectors: Vectors) -> None:
    """Build an index of the kind and settings of `kind` over `vectors`, and append it to a file.

    Parameters
    ----------
    path
        The file; what it holds already (the header of an id map) stays.
    kind
        The index to do like. Its labels go with the vectors, row by row.
    vectors
        (kind.header.count, dim), of any dimension.

    Raises
    ------
    StoreError
        FAISS cannot build it.
    OutputError
        The operating system refused.
    """
    faiss = _faiss()
    try:
        index = _build_ivf(kind, vectors) if isinstance(kind, Ivf) else _build_hnsw(kind, vectors)
    except (RuntimeError, MemoryError) as error:
        reason = str(error).strip().splitlines()[-1:] or ["out of memory"]
        raise StoreError(f"{path}: expected to build {kind.factory}, found FAISS refusing: {reason[0]}") from error
    with output_errors(path), path.open("ab") as file:
        faiss.write_index(index, faiss.PyCallbackIOWriter(file.write, _WRITE_BUFFER))


def _faiss() -> Any:
    import faiss

    return faiss


def _build_ivf(kind: Ivf, vectors: Vectors) -> Any:
    faiss = _faiss()
    count, dim = vectors.shape
    if not count:
        raise StoreError(f"expected vectors to train {kind.factory} on, found none; there is nothing to move")
    nlist = min(kind.nlist, count)
    quantizer = _empty_quantizer(kind.quantizer, dim)
    index = faiss.IndexIVFFlat(quantizer, dim, nlist, fourcc.METRIC_NUMBERS[kind.header.metric])
    index.nprobe = kind.nprobe
    # fewer points than FAISS recommends are what a small store has; no reason to print to stderr
    index.cp.min_points_per_centroid = 1
    index.train(_training_rows(vectors, nlist))
    for first in range(0, count, _ROWS_PER_ADD):
        last = first + _ROWS_PER_ADD
        index.add_with_ids(np.ascontiguousarray(vectors[first:last]), kind.labels[first:last])
    stored = index.invlists.compute_ntotal()
    if stored != count:
        raise StoreError(
            f"expected {count} vectors in {kind.factory}, found {stored}; FAISS drops rows with NaN or Inf"
        )
    return index


def _training_rows(vectors: Vectors, nlist: int) -> Vectors:
    wanted = _TRAINING_ROWS_PER_LIST * nlist
    if len(vectors) <= wanted:
        return np.ascontiguousarray(vectors)
    rows: NDArray[np.int64] = np.sort(np.random.default_rng(0).choice(len(vectors), wanted, replace=False))
    return np.ascontiguousarray(vectors[rows])


def _empty_quantizer(kind: Flat | Hnsw, dim: int) -> Any:
    faiss = _faiss()
    if isinstance(kind, Hnsw):
        return _empty_hnsw(kind, dim)
    return faiss.IndexFlatIP(dim) if kind.header.metric == "ip" else faiss.IndexFlatL2(dim)


def _build_hnsw(kind: Hnsw, vectors: Vectors) -> Any:
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
