"""What runs in the child process: `python -m migrate.stores.faiss.worker JOB`, with frames on standard output.

FAISS reads untrusted files. Here it may abort, crash, loop or ask for all memory: the parent notices and
goes on. Memory is limited before the file is opened, and the file is opened for reading only.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from migrate.stores.faiss.build import make_index, write_durably
from migrate.stores.faiss.decode import decode_index
from migrate.stores.faiss.frames import (
    DONE,
    FACTS,
    FAILED,
    LABELS,
    OS_ERROR,
    REFUSED,
    ROWS,
    send,
    send_array,
    send_facts,
)
from migrate.stores.faiss.parts import RefusedError, library
from migrate.stores.neighbours import NEIGHBOURS, query_rows, share_found, tenth_scores
from migrate.work.shards import Rows as StoredRows
from migrate.work.shards import ShardFolder

_LEAST_BYTES: Final = 64 << 20
_BLOCK: Final = 16_384
_LONGEST_LOOP: Final = 10_000_000


def main() -> None:
    """Do the job on the command line; what FAISS itself prints goes nowhere."""
    job = json.loads(sys.argv[1])
    with os.fdopen(os.dup(1), "wb", buffering=1 << 20) as pipe:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        try:
            _limit_memory(job["memory_bytes"])
            _JOBS[job["do"]](job, pipe)
        except RefusedError as error:
            send(pipe, REFUSED, str(error).encode())
        except Exception as error:
            # FAISS raises RuntimeError, SWIG TypeError, NumPy MemoryError: in any case the file is at fault
            send(pipe, FAILED, _reason(error).encode())


def _reason(error: Exception) -> str:
    """The last line of what FAISS says, without the place in its source."""
    if isinstance(error, MemoryError):
        return "it asks for more memory than its size explains"
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[-1].split("Error: ", 1)[-1].strip()[:300]


def _limit_memory(extra: int) -> None:
    """Allow `extra` bytes beyond what is mapped once FAISS is loaded."""
    faiss = library()

    faiss.omp_set_num_threads(1)
    with suppress(OSError, ValueError):
        mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (mapped + extra, mapped + extra))
    # an abort is an answer, and its memory image of no use to anyone
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def load(job: dict[str, Any], *, flags: int = 0) -> Any:
    """The index at a path, read with FAISS's own limits set to what the file can hold."""
    faiss = library()

    path = job["path"]
    faiss.set_deserialization_vector_byte_limit(max(Path(path).stat().st_size, _LEAST_BYTES))
    faiss.set_deserialization_loop_limit(_LONGEST_LOOP)
    # the path of the lists that an index names is not followed: see `walk.find_lists`
    flags |= faiss.IO_FLAG_READ_ONLY | faiss.IO_FLAG_SKIP_PRECOMPUTE_TABLE | faiss.IO_FLAG_ONDISK_SAME_DIR
    return faiss.read_index(path, flags)


def _read(job: dict[str, Any], pipe: BinaryIO) -> None:
    index = load(job)
    part = decode_index(index)
    facts = {
        "chain": part.chain,
        "dim": int(index.d),
        "count": int(index.ntotal),
        "metric": int(index.metric_type),
        "exact": part.exact,
        "remarks": part.remarks,
        "recipe": part.recipe,
        "labels": part.labels is not None,
    }
    send_facts(pipe, FACTS, facts)
    if part.labels is not None:
        send_array(pipe, LABELS, part.labels.astype("<i8", copy=False))
    count = 0
    for rows in part.rows():
        count += len(rows)
        send_array(pipe, ROWS, rows.astype("<f4", copy=False))
    send_facts(pipe, DONE, {"rows": count})


def _search(job: dict[str, Any], pipe: BinaryIO) -> None:
    """The labels that the index finds for some queries, best first; -1 where it finds too few."""
    index = load(job, flags=library().IO_FLAG_MMAP_IFC)  # of lists that are larger than the memory, too
    queries = np.load(job["queries"], allow_pickle=False)
    _, labels = index.search(queries, job["k"])
    send_array(pipe, LABELS, labels.astype("<i8", copy=False))
    send_facts(pipe, DONE, {"rows": len(labels)})


def _build(job: dict[str, Any], pipe: BinaryIO) -> None:
    vectors = ShardFolder(Path(job["shards"])).all_rows(job["dim"])
    labels = np.fromfile(job["labels"], "<i8") if job["labels"] else None
    index = make_index(json.loads(job["recipe"]), job["metric"], vectors, labels)
    try:
        write_durably(index, job["path"])
    except OSError as error:
        send_facts(pipe, OS_ERROR, {"errno": error.errno})
        return
    if (own := decode_index(index).labels) is not None:  # in the order in which a reader finds them
        send_array(pipe, LABELS, own.astype("<i8", copy=False))
    send_facts(pipe, DONE, {"rows": len(vectors), "recall": _recall(index, vectors, labels)})


def _recall(index: Any, vectors: StoredRows, labels: NDArray[np.int64] | None) -> float:
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


_Job = Callable[[dict[str, Any], BinaryIO], None]
_JOBS: Final[dict[str, _Job]] = {"read": _read, "search": _search, "build": _build}

if __name__ == "__main__":
    main()
