"""Reads, searches and builds an index with FAISS. Runs in a guarded process only, see `child.py`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from migrate.stores.faiss.build import build_index
from migrate.stores.faiss.decode import decode_index
from migrate.stores.faiss.parts import Part, library
from migrate.stores.frames import DONE, FACTS, LABELS, OS_ERROR, ROWS, RUNS, RefusedError, send_array, send_facts
from migrate.stores.neighbours import NEIGHBOURS, query_rows, share_found, tenth_scores
from migrate.work.shards import Rows, ShardFolder

_BLOCK: Final = 16_384
_COPY_AGAIN: Final = "the file is damaged or was not copied whole; copy it again"


def prepare() -> None:
    """Load FAISS, before memory is limited."""
    library().omp_set_num_threads(1)


def load(path: str) -> Any:
    """The index in a file: mapped into memory, and read with FAISS's own limits set to what the file can hold."""
    faiss = library()

    faiss.set_deserialization_vector_byte_limit(max(Path(path).stat().st_size, 64 << 20))
    faiss.set_deserialization_loop_limit(10_000_000)
    # A path in the file is not followed: lists in a second file are looked for beside the index.
    flags = faiss.IO_FLAG_READ_ONLY | faiss.IO_FLAG_SKIP_PRECOMPUTE_TABLE | faiss.IO_FLAG_ONDISK_SAME_DIR
    try:
        return faiss.read_index(path, flags | faiss.IO_FLAG_MMAP_IFC)
    except RuntimeError as error:
        if "ONDISK_SAME_DIR" not in str(error):
            raise
    index = faiss.read_index(path, flags)  # FAISS maps the second file alone
    _check_second_file(index)
    return index


def _check_second_file(index: Any) -> None:
    """FAISS maps the file without a look at its size, and dies when it comes to what is missing."""
    faiss = library()

    lists = faiss.downcast_InvertedLists(faiss.extract_index_ivf(index).invlists)
    size = Path(lists.filename).stat().st_size
    if size < lists.totsize:
        raise RefusedError(f"{lists.filename} holds {size} of the {lists.totsize} bytes of inverted lists; copy it too")


def read(job: dict[str, Any], pipe: BinaryIO) -> None:
    """Send what an index is, its labels, and its vectors: where they lie in the file, or themselves."""
    index = load(job["path"])
    part = decode_index(index)
    runs = _runs_in_file(job["path"], part)
    facts = {
        "chain": part.chain,
        "dim": int(index.d),
        "count": int(index.ntotal),
        "metric": int(index.metric_type),
        "exact": part.exact,
        "remarks": part.remarks,
        "recipe": part.recipe,
        "labels": part.labels is not None,
        "in_place": runs is not None,
    }
    send_facts(pipe, FACTS, facts)
    if part.labels is not None:
        send_array(pipe, LABELS, part.labels.astype("<i8", copy=False))
    if runs is not None:
        send_array(pipe, RUNS, runs)
    else:
        for rows in part.rows():
            send_array(pipe, ROWS, rows.astype("<f4", copy=False))
    send_facts(pipe, DONE, {})


def _runs_in_file(path: str, part: Part) -> NDArray[np.int64] | None:
    """Offset in the file and count of each run of vectors, (n, 2); None where they do not lie there as they are."""
    stored = part.stored
    maps = Path("/proc/self/maps")
    if stored is None or not len(stored.addresses) or not maps.exists():  # macOS has no such file
        return None
    status = Path(path).stat()
    for line in maps.read_text().splitlines():
        addresses, _, offset, _, inode, *_ = line.split()
        if int(inode) == status.st_ino and int(offset, 16) == 0:
            start, end = (int(address, 16) for address in addresses.split("-"))
            break
    else:
        return None
    if not start <= min(stored.addresses) <= max(stored.addresses) < end:
        return None
    if stored.end is not None and stored.end - start != status.st_size:
        raise RefusedError(f"the index ends at byte {stored.end - start} of {status.st_size}; {_COPY_AGAIN}")
    return np.array([np.array(stored.addresses) - start, stored.counts], "<i8").T


def search(job: dict[str, Any], pipe: BinaryIO) -> None:
    """Send the labels that the index finds for some queries, best first; -1 where it finds too few."""
    index = load(job["path"])
    queries = np.load(job["queries"], allow_pickle=False)
    _, labels = index.search(queries, job["k"])
    send_array(pipe, LABELS, labels.astype("<i8", copy=False))
    send_facts(pipe, DONE, {})


def build(job: dict[str, Any], pipe: BinaryIO) -> None:
    """Build and write an index; send its labels, and its recall where it keeps less than the vectors."""
    vectors = ShardFolder(Path(job["shards"])).all_rows(job["dim"])
    labels = np.fromfile(job["labels"], "<i8") if job["labels"] else None
    try:
        build_index(Path(job["path"]), json.loads(job["recipe"]), job["metric"], vectors, labels)
    except OSError as error:
        send_facts(pipe, OS_ERROR, {"errno": error.errno})
        return
    index = load(job["path"])
    part = decode_index(index)
    if part.labels is not None:  # in the order in which a reader finds them
        send_array(pipe, LABELS, part.labels.astype("<i8", copy=False))
    # one that keeps its vectors can be asked later
    send_facts(pipe, DONE, {"recall": None if part.exact else _recall(index, vectors, labels)})


def _recall(index: Any, vectors: Rows, labels: NDArray[np.int64] | None) -> float:
    """Recall@10 of a new index over the vectors it was built from."""
    queries = np.ascontiguousarray(vectors[query_rows(len(vectors))])
    inner = bool(index.metric_type == library().METRIC_INNER_PRODUCT)
    blocks = (vectors[first : first + _BLOCK] for first in range(0, len(vectors), _BLOCK))
    tenth = tenth_scores(queries, blocks, inner_product=inner)
    _, neighbours = index.search(queries, min(NEIGHBOURS, len(vectors)))
    if labels is not None:
        order = np.argsort(labels)
        neighbours = np.where(
            neighbours >= 0, order[np.searchsorted(labels, np.maximum(neighbours, labels.min()), sorter=order)], -1
        )
    return share_found(queries, vectors[np.maximum(neighbours, 0)], neighbours >= 0, tenth, inner_product=inner)
