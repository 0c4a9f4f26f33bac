"""What FAISS itself finds in a file, however damaged: a judge of what the package reads, in a process that may die.

It goes other ways than the package where there are any: vector by vector with `reconstruct` and
`reconstruct_from_offset`, and FastScan codes nibble by nibble. No line of the package is used.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from faiss_plain import Content
from faiss_spoil import Rows, build_index
from numpy.typing import NDArray

PATIENCE_S = 30.0
SPARE_BYTES = 1 << 30


class Judge:
    """A process that FAISS runs in, started again when it has died or fallen silent."""

    def __init__(self) -> None:
        self.deaths = 0
        self._start()

    def _start(self) -> None:
        # one thread each: FAISS's tables are small, and waiting for threads takes longer than the work
        os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe()
        self._process = context.Process(target=serve, args=(other,), daemon=True)
        self._process.start()
        other.close()

    def read(self, path: Path) -> Content | None:
        """What FAISS finds in a file; None where it refuses, dies or hangs."""
        answer: Content | None = self._ask("read", str(path))
        return answer

    def build(self, factory: str) -> bytes:
        """A sound index of random vectors, as bytes."""
        content: bytes = self._ask("build", factory)
        return content

    def _ask(self, job: str, argument: str) -> Any:
        with suppress(EOFError, OSError):
            self._pipe.send((job, argument))
            if self._pipe.poll(PATIENCE_S):
                return self._pipe.recv()
        self.deaths += 1
        self.close()
        self._start()
        return None

    def close(self) -> None:
        """End the process."""
        self._pipe.close()
        self._process.kill()
        self._process.join()


def serve(pipe: Connection) -> None:
    """The inside of the process: a job in, its answer out."""
    import faiss

    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + SPARE_BYTES, mapped + SPARE_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    faiss.set_deserialization_vector_byte_limit(64 << 20)
    faiss.set_deserialization_loop_limit(10_000_000)
    jobs = {"read": read_index, "build": build_index}
    with suppress(EOFError):
        while True:
            job, argument = pipe.recv()
            answer = None
            # FAISS refuses with exceptions of many kinds; which one does not matter to the judgement
            with suppress(Exception):
                answer = jobs[job](argument)
            pipe.send(answer)


def read_index(path: str) -> Content:
    """What is in a file."""
    import faiss

    index = faiss.read_index(path, faiss.IO_FLAG_READ_ONLY | faiss.IO_FLAG_SKIP_PRECOMPUTE_TABLE)
    ids, vectors = contents(index)
    if len(vectors) != index.ntotal:
        raise ValueError("rows are missing")
    return Content(int(index.metric_type), np.array(ids, np.int64), np.array(vectors, np.float32).reshape(-1, index.d))


def contents(loaded: Any) -> tuple[NDArray[np.int64], Rows]:
    """Ids and vectors of an index, whatever it stands in."""
    import faiss

    index = faiss.downcast_index(loaded)
    if isinstance(index, faiss.IndexIDMap):
        ids, vectors = contents(index.index)
        return faiss.vector_to_array(index.id_map)[ids], vectors
    if isinstance(index, faiss.IndexPreTransform):
        ids, vectors = contents(index.index)
        return ids, undo(index, vectors)
    if isinstance(index, faiss.IndexRefine):
        return contents(index.refine_index)
    if isinstance(index, faiss.IndexHNSW):
        return contents(index.storage)
    if isinstance(index, faiss.IndexIVF):
        return lists(index)
    return np.arange(index.ntotal), interleaved(index) if isinstance(index, faiss.IndexFastScan) else one_by_one(index)


def one_by_one(index: Any) -> Rows:
    """Vectors of an index of codes; a flat one's as they lie."""
    import faiss

    if index.codes.size() != index.ntotal * index.code_size:
        raise ValueError("codes are missing")
    if isinstance(index, faiss.IndexFlat):
        flat: Rows = faiss.vector_to_array(index.codes).view(np.float32)
        return flat.reshape(index.ntotal, index.d)
    return np.array([index.reconstruct(row) for row in range(index.ntotal)], np.float32).reshape(-1, index.d)


def lists(index: Any) -> tuple[NDArray[np.int64], Rows]:
    """Ids and vectors of inverted lists, place by place."""
    import faiss

    places = [(number, place) for number in range(index.nlist) for place in range(index.invlists.list_size(number))]
    ids = [index.invlists.get_single_id(number, place) for number, place in places]
    vectors = np.empty((len(places), index.d), np.float32)
    for row, (number, place) in enumerate(places):
        index.reconstruct_from_offset(number, place, faiss.swig_ptr(vectors[row]))
    return np.array(ids, np.int64), vectors


def interleaved(index: Any) -> Rows:
    """Vectors of FastScan codes: half a byte a row and sub-vector, 32 rows together, in blocks of `bbs` rows."""
    import faiss

    pq, bbs, pairs = index.pq, index.bbs, index.M2 // 2
    blocks = -(-index.ntotal // bbs)
    if index.codes.size() < blocks * bbs * pairs:
        raise ValueError("codes are missing")
    packed = faiss.rev_swig_ptr(index.codes.get(), index.codes.size()).copy()
    words = faiss.vector_to_array(pq.centroids).reshape(pq.M, pq.ksub, pq.dsub)
    vectors = [
        np.concatenate([words[m, nibble(packed, bbs, pairs, row, m)] for m in range(pq.M)])
        for row in range(index.ntotal)
    ]
    return np.array(vectors, np.float32)


def nibble(packed: NDArray[np.uint8], bbs: int, pairs: int, row: int, sub: int) -> int:
    """The code of one sub-vector of one row (`pq4_pack_codes` in FAISS's `pq4_fast_scan.cpp`)."""
    block, row = divmod(row, bbs)
    group, row = divmod(row, 32)
    start = (block * pairs + sub // 2) * bbs + group * 32 + sub % 2 * 16
    byte = int(packed[start + row % 8 * 2 + row % 16 // 8])
    return byte >> 4 if row >= 16 else byte & 15


def undo(index: Any, vectors: Rows) -> Rows:
    """The least-squares inverse of linear transforms, y = A x + b, in float64."""
    import faiss

    for place in reversed(range(index.chain.size())):
        step: Any = faiss.downcast_VectorTransform(index.chain.at(place))
        matrix = faiss.vector_to_array(step.A).reshape(step.d_out, step.d_in).astype(np.float64)
        offset = faiss.vector_to_array(step.b).astype(np.float64) if step.have_bias else 0.0
        vectors = ((vectors - offset) @ np.linalg.pinv(matrix).T).astype(np.float32)
    return vectors
