"""Reads, builds and measures an index with FAISS. Runs in a guarded process only, see `child.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

import faiss
import numpy as np
from numpy.typing import NDArray

from migrate.stores.base import BATCH_SIZE
from migrate.stores.faiss.build import build_index
from migrate.stores.faiss.decode import Decoded, chain_of, decode_index, expect_numbers
from migrate.stores.faiss.describe import describe_index
from migrate.stores.faiss.recipe import EXACT, Recipe
from migrate.stores.faiss.search import rows_of
from migrate.stores.frames import (
    DONE,
    FACTS,
    LABELS,
    OS_ERROR,
    PLACES,
    ROWS,
    RUNS,
    RefusedError,
    send_array,
    send_facts,
)
from migrate.vectors import Vectors, squared_norms
from migrate.work.shards import ShardFolder

# Arbitrary: a damaged count must fail here, and not as a request for terabytes, or a loop without an end.
_LEAST_VECTOR_BYTES = 64 << 20
_MOST_LOOPS = 10_000_000

_QUERIES_AT_ONCE = 32
"""A process must not be silent for long, and codes of a large index are compared one by one."""


def load(path: str) -> Any:
    """Return the index in a file, mapped into memory, with FAISS's own limits set to what the file can hold."""
    faiss.set_deserialization_vector_byte_limit(max(Path(path).stat().st_size, _LEAST_VECTOR_BYTES))
    faiss.set_deserialization_loop_limit(_MOST_LOOPS)
    # A path in the file is not followed: lists in a second file are looked for beside the index.
    flags = faiss.IO_FLAG_READ_ONLY | faiss.IO_FLAG_SKIP_PRECOMPUTE_TABLE | faiss.IO_FLAG_ONDISK_SAME_DIR
    try:
        return faiss.read_index(path, flags | faiss.IO_FLAG_MMAP_IFC)
    except RuntimeError as error:
        if "IndexLattice" in str(error):
            raise RefusedError(
                "FAISS writes an IndexLattice without its codes, so that the file holds none of its vectors; build an "
                "index that keeps them, such as Flat or SQ8, or embed the documents again"
            ) from error
        if "ONDISK_SAME_DIR" not in str(error):
            raise
    index = faiss.read_index(path, flags)  # FAISS maps the second file alone
    lists = faiss.downcast_InvertedLists(faiss.extract_index_ivf(index).invlists)
    size = Path(lists.filename).stat().st_size
    if size < lists.totsize:  # FAISS does not look, and dies when it comes to what is missing
        raise RefusedError(f"{lists.filename} holds {size} of the {lists.totsize} bytes of inverted lists; copy it too")
    return index


def read(job: dict[str, Any], pipe: BinaryIO) -> None:
    """Send what an index is, its labels, and its vectors: where they lie in the file, or themselves."""
    index = load(job["path"])
    decoded = decode_index(index)
    expect_numbers(decoded)
    runs = _runs_in_file(job["path"], decoded)
    header = {
        "chain": chain_of(index),
        "dim": int(index.d),
        "count": int(index.ntotal),
        "metric": int(index.metric_type),
        "exact": decoded.exact,
        "remarks": decoded.remarks,
        "recipe": asdict(describe_index(index)),
        "labels": decoded.labels is not None,
        "added": decoded.added is not None,
        "in_place": runs is not None,
    }
    send_facts(pipe, FACTS, header)
    if decoded.labels is not None:
        send_array(pipe, LABELS, decoded.labels.astype("<i8", copy=False))
    if decoded.added is not None:
        send_array(pipe, PLACES, decoded.added.astype("<i8", copy=False))
    if runs is not None:
        send_array(pipe, RUNS, runs)
    else:
        for rows in decoded.rows():
            send_array(pipe, ROWS, rows.astype("<f4", copy=False))
    send_facts(pipe, DONE, {})


def _runs_in_file(path: str, decoded: Decoded) -> NDArray[np.int64] | None:
    """Return offset in the file and count of each run of vectors, (n, 2); None where they are not kept as they are."""
    # `reconstruct_batch` would give the same bytes, some ten times as slowly, through a second copy of them on disk
    maps = Path("/proc/self/maps")
    # macOS has no such file
    if decoded.runs is None or not len(decoded.runs) or not maps.exists():
        return None
    status = Path(path).stat()
    for line in maps.read_text().splitlines():
        addresses, _, offset, _, inode, *_ = line.split()
        if int(inode) == status.st_ino and int(offset, 16) == 0:
            start, end = (int(address, 16) for address in addresses.split("-"))
            break
    else:
        return None
    if not start <= decoded.runs[:, 0].min() <= decoded.runs[:, 0].max() < end:
        return None
    if decoded.end is not None and decoded.end - start != status.st_size:
        raise RefusedError(
            f"the index ends at byte {decoded.end - start} of {status.st_size}; the file is damaged or was not copied "
            "whole; copy it again"
        )
    offsets: NDArray[np.int64] = decoded.runs - np.array([start, 0])
    return offsets


def build(job: dict[str, Any], pipe: BinaryIO) -> None:
    """Build and write an index; send its labels, and its recall where its search is not exact."""
    vectors = ShardFolder(Path(job["shards"])).all_rows(job["dim"])
    if not job["labels"]:
        labels = None
    else:
        labels = np.fromfile(job["labels"], "<i8")
    try:
        build_index(Path(job["path"]), Recipe(**job["recipe"]), job["metric"], vectors, labels)
    except OSError as error:
        send_facts(pipe, OS_ERROR, {"errno": error.errno})
        return
    index = load(job["path"])
    decoded = decode_index(index)
    if decoded.labels is not None:  # in the order in which a reader finds them
        send_array(pipe, LABELS, decoded.labels.astype("<i8", copy=False))
    recalled = None
    # measured now, by the vectors that codes are made of
    if job["recipe"]["factory"] not in EXACT and index.ntotal:
        blocks = (block for _, block in vectors.batches(BATCH_SIZE))
        recalled = _recall(index, labels, job["queries"], blocks, vectors.__getitem__)
    send_facts(pipe, DONE, {"recall": recalled})


def recall(job: dict[str, Any], pipe: BinaryIO) -> None:
    """Send the recall of an index over the vectors that are read back from it."""
    index = load(job["path"])
    decoded = decode_index(index)

    def take(rows: NDArray[np.int64]) -> Vectors:
        # Ascending and once each, as the blocks of vectors pass by in their order, and once.
        unique, positions = np.unique(rows, return_inverse=True)
        return np.concatenate(list(_picked(decoded.rows(), unique)))[positions.reshape(rows.shape)]

    send_facts(pipe, DONE, {"recall": _recall(index, decoded.labels, job["queries"], decoded.rows(), take)})


def ask(job: dict[str, Any], pipe: BinaryIO) -> None:
    """Send labels and scores of what the index finds for queries, a block of them at a time."""
    index = load(job["path"])
    if job["setting"] is not None:
        # It finds the setting however deep the index lies that has it.
        faiss.ParameterSpace().set_index_parameter(index, *job["setting"])
    queries = np.fromfile(job["queries"], "<f4").reshape(-1, index.d)
    for first in range(0, len(queries), _QUERIES_AT_ONCE):
        scores, labels = _nearest(index, queries[first : first + _QUERIES_AT_ONCE], job["k"])
        send_array(pipe, LABELS, labels.astype("<i8", copy=False))
        send_array(pipe, ROWS, scores.astype("<f4", copy=False))
    send_facts(pipe, DONE, {})


def _nearest(index: Any, queries: Vectors, k: int) -> tuple[Vectors, NDArray[np.int64]]:
    """Return scores and labels of what an index finds, (q, k) each; the label -1 stands for nothing."""
    scores, labels = index.search(np.ascontiguousarray(queries), k)
    return scores, labels


def _picked(blocks: Iterable[Vectors], rows: NDArray[np.int64]) -> Iterator[Vectors]:
    """Yield ascending rows out of blocks that follow each other."""
    first = 0
    for block in blocks:
        inside = rows[np.searchsorted(rows, first) : np.searchsorted(rows, first + len(block))]
        yield block[inside - first]
        first += len(block)


def _recall(
    index: Any,
    labels: NDArray[np.int64] | None,
    queries: int,
    blocks: Iterable[Vectors],
    take: Callable[[NDArray[np.int64]], Vectors],
) -> float:
    """Return recall@10 over vectors by exact search, rows spread evenly as queries; as near as the tenth counts too."""
    count = index.ntotal
    inner = bool(index.metric_type == faiss.METRIC_INNER_PRODUCT)
    sample = np.ascontiguousarray(take(np.unique(np.linspace(0, count - 1, min(queries, count)).astype(np.int64))))
    best = np.empty((len(sample), 0))
    for vectors in blocks:
        both = np.concatenate([best, _scores(sample, vectors, inner_product=inner)], axis=1)
        k = min(10, both.shape[1])
        best = -np.partition(-both, k - 1, axis=1)[:, :k]
    tenth = best.min(axis=1)
    rows = rows_of(_nearest(index, sample, min(10, count))[1], labels)
    valid = rows >= 0
    pairs = zip(sample, take(np.maximum(rows, 0)), strict=True)
    scores = np.stack([_scores(query[None], candidates, inner_product=inner)[0] for query, candidates in pairs])
    # FAISS sums in another order: scores of the same two vectors differ in the last digits of float32.
    slack = 1e-4 * np.maximum(1, np.abs(tenth))
    return float(((scores >= (tenth - slack)[:, None]) & valid).mean())


def _scores(queries: Vectors, vectors: Vectors, *, inner_product: bool) -> NDArray[np.float64]:
    """Return inner products, or negated squared distances: more is nearer."""
    products: NDArray[np.float64] = (queries @ vectors.T).astype(np.float64)
    if inner_product:
        return products
    distances: NDArray[np.float64] = squared_norms(vectors) + squared_norms(queries)[:, None] - 2 * products
    return -distances
