"""Opens FAISS files of any kind: FAISS looks at them in a guarded process and says where the vectors lie.

Only a flat index without more is known by its first bytes. Vectors that the file holds as they are, one run after
another, are read from it here. All others are decoded by FAISS into a temporary file. Each batch is copied into an
aligned buffer: the vectors of a flat index begin at byte 45, and sums over unaligned float32 differ in the last
digits. It uses `preadv`, not a memory map: a map kills the process if the file is cut.
"""

from __future__ import annotations

import json
import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from migrate.errors import StoreError, UnsupportedStoreError
from migrate.stores.base import Metric
from migrate.stores.binary_reader import FileIdentity, read_errors, read_exactly
from migrate.stores.child import run_job, temporary_file, write_all
from migrate.stores.faiss import fourcc
from migrate.stores.faiss.fourcc import HEAD_BYTES, describe_content
from migrate.stores.faiss.recipe import factory
from migrate.stores.frames import FACTS, LABELS, ROWS, RUNS
from migrate.vectors import Vectors

JOBS: Final = "migrate.stores.faiss.jobs"
QUERIES: Final = 200
"""Rows that are looked up for the recall of an index."""
_READ_SPARE_BYTES: Final = 1 << 30
_FLOAT_BYTES: Final = 4
_LABEL_BYTES: Final = 8
_TYPES: Final[dict[str, type]] = {
    "chain": str,
    "dim": int,
    "count": int,
    "metric": int,
    "exact": bool,
    "remarks": list,
    "recipe": dict,
    "labels": bool,
    "in_place": bool,
}
_APPROXIMATE: Final = (
    "the index keeps its vectors in short form; they are read back approximately, and what is made of them is no better"
)


def read_job(do: str, path: Path, **arguments: Any) -> dict[str, Any]:
    """Return a job that reads an index, in as much memory as its files explain."""
    with read_errors(path):
        own = path.stat().st_size
        # inverted lists may be in a second file in the folder, and FAISS maps it
        mapped = sum(file.stat().st_size for file in path.parent.iterdir() if file.is_file())
    memory = _READ_SPARE_BYTES + 4 * own + mapped
    return {"do": f"{JOBS}:{do}", "path": str(path), "memory_bytes": memory, **arguments}


class FaissFile:
    """A FAISS file: what it is, and its vectors on demand; `labels` is None where the rows have none of their own.

    Raises a StoreError where it is no FAISS file, a damaged one, or one of a kind that is not read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with read_errors(path), path.open("rb", buffering=0) as file:
            self.identity = FileIdentity.of(file.fileno())
            head = file.read(HEAD_BYTES)
        self.code = _check_code(path, head)
        self._decoded: BinaryIO | None = None
        self._left = 0
        flat = fourcc.read_flat_head(head, self.identity.size)
        facts, self.labels, runs = self._look() if flat is None else _flat_facts(*flat)
        self.chain: str = facts["chain"]
        self.recipe: dict[str, Any] = facts["recipe"]
        self.exact: bool = facts["exact"]
        self.remarks = (*(() if self.exact else (_APPROXIMATE,)), *facts["remarks"])
        self.dim: int = facts["dim"]
        self.count: int = facts["count"]
        self.metric: Metric = fourcc.METRICS[facts["metric"]]
        self.row_bytes = self.dim * _FLOAT_BYTES
        self._first_rows, self._offsets = self._runs_of(runs)

    def _look(self) -> tuple[dict[str, Any], NDArray[np.int64] | None, NDArray[np.int64]]:
        """Receive what FAISS finds, and reject what contradicts itself or the file."""
        facts: dict[str, Any] = {}
        labels, runs = bytearray(), bytearray()
        for tag, content in run_job(self.path, read_job("read", self.path), file_bytes=self.identity.size):
            if tag == FACTS:
                facts = self._check_facts(content)
                if not facts["in_place"]:
                    self._left = facts["count"] * facts["dim"] * _FLOAT_BYTES
                    self._decoded = temporary_file(self.path, self._left)
                    weakref.finalize(self, self._decoded.close)
            elif tag == LABELS and facts:
                labels += content
                self._expect(len(labels) <= _LABEL_BYTES * facts["count"], "as many labels as vectors")
            elif tag == RUNS and facts:
                runs += content
            elif tag == ROWS and self._decoded is not None:
                self._keep_rows(self._decoded, content)
        self._expect(bool(facts) and not self._left, "all vectors")
        self._expect(len(labels) == _LABEL_BYTES * facts["count"] * facts["labels"], "a label for each vector")
        own = np.frombuffer(bytes(labels), "<i8").astype(np.int64, copy=False) if facts["labels"] else None
        if not facts["in_place"]:
            return facts, own, np.array([[0, facts["count"]]], np.int64)
        return facts, own, np.frombuffer(bytes(runs), "<i8").reshape(-1, 2)

    def _expect(self, holds: bool, missing: str) -> None:
        if not holds:
            raise StoreError(f"{self.path}: FAISS did not return {missing}; the file is damaged, copy it again")

    def _check_facts(self, content: bytes) -> dict[str, Any]:
        try:
            facts: dict[str, Any] = json.loads(content)
            typed = (
                all(type(facts[name]) is kind for name, kind in _TYPES.items()) and facts["metric"] in fourcc.METRICS
            )
            factory(facts["recipe"])
        except (ValueError, KeyError, TypeError) as error:
            raise StoreError(
                f"{self.path}: FAISS reports facts about the index that make no sense ({error}); copy it again"
            ) from error
        # no code takes less than a bit of a vector
        self._expect(typed and facts["dim"] > 0 and 0 <= facts["count"] <= self._largest_count(), "facts that fit")
        return facts

    def _largest_count(self) -> int:
        with read_errors(self.path):
            return 8 * sum(file.stat().st_size for file in self.path.parent.iterdir() if file.is_file())

    def _keep_rows(self, file: BinaryIO, content: bytes) -> None:
        self._left -= len(content)
        self._expect(self._left >= 0, "as many vectors as it counts")
        write_all(file, content)

    def _runs_of(self, runs: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the first row of each run of vectors, and their count at the end; and where each run begins."""
        offsets, counts = runs.astype(np.int64).T
        size = self.count * self.row_bytes if self._decoded is not None else self.identity.size
        within = (offsets >= 0) & (counts >= 0) & (offsets + counts * self.row_bytes <= size)
        self._expect(bool(within.all()) and counts.sum() == self.count, "places of vectors within the file")
        return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), offsets

    def batches(self, batch_size: int, start: int = 0, stop: int | None = None) -> Iterator[tuple[int, Vectors]]:
        """First row and vectors of each batch of rows `start` to `stop`, overwritten by those of the next one."""
        stop = self.count if stop is None else min(stop, self.count)
        buffer = np.empty((min(batch_size, self.count), self.dim), np.float32)
        with self._opened() as (descriptor, file):
            if hasattr(os, "posix_fadvise"):  # macOS lacks it
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_SEQUENTIAL)
            for first in range(start, stop, batch_size):
                vectors = buffer[: min(batch_size, stop - first)]
                self._fill(descriptor, vectors, self._runs(np.arange(first, first + len(vectors))))
                yield first, vectors
            self.identity.check(self.path, file)

    def take(self, rows: NDArray[np.int64]) -> Vectors:
        """The vectors of some rows, in the order of `rows`."""
        if rows.size and not 0 <= rows.min() <= rows.max() < self.count:
            raise IndexError(
                f"rows {rows.min()} to {rows.max()} are out of range, the file has rows 0 to {self.count - 1}"
            )
        vectors = np.empty((rows.size, self.dim), np.float32)
        with self._opened() as (descriptor, _):
            self._fill(descriptor, vectors, self._runs(rows))
        return vectors

    @contextmanager
    def _opened(self) -> Iterator[tuple[int, int]]:
        """Descriptors of what holds the vectors, and of the index, unchanged since it was first looked at."""
        with read_errors(self.path), self.path.open("rb", buffering=0) as file:
            self.identity.check(self.path, file.fileno())
            yield (file if self._decoded is None else self._decoded).fileno(), file.fileno()

    def _runs(self, rows: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
        """Byte offset and byte count of each run of rows that follow one another in the file."""
        runs = np.searchsorted(self._first_rows, rows, side="right") - 1
        offsets = self._offsets[runs] + (rows - self._first_rows[runs]) * self.row_bytes
        breaks = np.flatnonzero(np.diff(offsets) != self.row_bytes) + 1
        bounds = [0, *breaks.tolist(), rows.size] if rows.size else [0]
        for first, last in pairwise(bounds):
            yield int(offsets[first]), (last - first) * self.row_bytes

    def _fill(self, descriptor: int, vectors: Vectors, pieces: Iterator[tuple[int, int]]) -> None:
        if not vectors.size:
            return
        target = vectors.data.cast("B")
        done = 0
        for offset, size in pieces:
            read_exactly(self.path, descriptor, target[done : done + size], offset)
            done += size


def _flat_facts(dim: int, count: int, metric: Metric) -> tuple[dict[str, Any], None, NDArray[np.int64]]:
    """Return what FAISS would say of a whole flat index; to start a process for it takes longer than all else."""
    facts: dict[str, Any] = {
        "chain": "IndexFlatIP" if metric == "ip" else "IndexFlatL2",
        "dim": dim,
        "count": count,
        "metric": fourcc.METRIC_NUMBERS[metric],
        "exact": True,
        "remarks": [],
        "recipe": {"kind": "Flat"},
    }
    return facts, None, np.array([[fourcc.FLAT_HEAD_BYTES, count]], np.int64)


def _check_code(path: Path, head: bytes) -> str:
    code = head[:4].decode("latin-1")
    if not fourcc.is_index(head):
        raise StoreError(f"{path}: this is no FAISS index but {describe_content(head)}")
    if code.startswith("IB"):
        raise UnsupportedStoreError(
            f"{path}: a binary index ({code}); its vectors are bits, which no map between embedding spaces applies to: "
            "use the index of the float vectors"
        )
    return code
