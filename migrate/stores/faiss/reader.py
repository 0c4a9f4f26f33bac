"""Opens FAISS files of any kind: FAISS looks at them in a guarded process and says where the vectors lie.

Only a flat index without more is known by its first bytes. Vectors that the file holds as they are, one run after
another, are read from it here. All others are decoded by FAISS into a temporary file.
"""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from migrate.errors import StoreError, UnsupportedStoreError
from migrate.files import FileStamp, open_file
from migrate.reading import expect, parse_json
from migrate.stores.base import Metric
from migrate.stores.binary_reader import RowFile, read_errors
from migrate.stores.child import run_job, temporary_file, write_all
from migrate.stores.faiss import fourcc
from migrate.stores.faiss.fourcc import HEAD_BYTES
from migrate.stores.faiss.recipe import FLAT, Recipe
from migrate.stores.frames import FACTS, LABELS, PLACES, ROWS, RUNS

JOBS: Final = "migrate.stores.faiss.jobs"
# Arbitrary: so many tell a recall of 0.9 to some 0.02, and are searched in a moment.
QUERIES: Final = 200
"""Rows that are looked up for the recall of an index."""
# Arbitrary: sound files of all kinds stay below it, and a damaged one ends before the machine suffers.
_READ_SPARE_BYTES: Final = 1 << 30

_LABEL_BYTES: Final = 8

_Facts = tuple[dict[str, Any], NDArray[np.int64] | None, NDArray[np.int64] | None, NDArray[np.int64]]
"""Header, labels, places in the order of adding, and runs of vectors."""


def read_job(do: str, path: Path, **arguments: Any) -> dict[str, Any]:
    """Return a job that reads an index, in as much memory as its files explain."""
    with read_errors(path):
        size = path.stat().st_size
        # inverted lists may be in a second file in the folder, and FAISS maps it
        mapped = sum(file.stat().st_size for file in path.parent.iterdir() if file.is_file())
    memory = _READ_SPARE_BYTES + 4 * size + mapped
    return {"do": f"{JOBS}:{do}", "path": str(path), "memory_bytes": memory, **arguments}


class FaissFile(RowFile):
    """A FAISS file: what it is, and its vectors on demand; `labels` is None where the rows have none of their own.

    `added` has the place of each row in the order in which vectors were added, None where that is their number.

    Raises a StoreError where it is no FAISS file, a damaged one, or one of a kind that is not read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with read_errors(path), open_file(path, buffering=0) as file:
            self.stamp = FileStamp.of(path, file.fileno())
            head = file.read(HEAD_BYTES)
        self.code = _check_code(path, head)
        self._decoded: BinaryIO | None = None
        self._left = 0
        flat = fourcc.read_flat_head(head, self.stamp.size)
        header, self.labels, self.added, runs = self._look() if flat is None else _flat_facts(*flat)
        self.chain: str = header["chain"]
        self.recipe = Recipe(**header["recipe"])
        self.exact: bool = header["exact"]
        self.remarks: tuple[str, ...] = tuple(header["remarks"])
        if not self.exact:
            approximate = (
                "the index keeps its vectors in short form; they are read back approximately, and what is made of them "
                "is no better"
            )
            self.remarks = (approximate, *self.remarks)
        self.metric: Metric = fourcc.METRICS[header["metric"]]
        self._check_runs(runs, header)
        descriptor = None if self._decoded is None else self._decoded.fileno()
        super().__init__(self.stamp, runs, header["dim"], descriptor=descriptor)

    def _look(self) -> _Facts:
        """Receive what FAISS finds, and reject what contradicts itself or the file."""
        header: dict[str, Any] = {}
        labels = bytearray()
        added = bytearray()
        runs = bytearray()
        for tag, content in run_job(self.path, read_job("read", self.path), file_bytes=self.stamp.size):
            if tag == FACTS:
                header = self._check_facts(content)
                if not header["in_place"]:
                    self._left = 4 * header["count"] * header["dim"]
                    self._decoded = temporary_file(self.path, self._left)
                    weakref.finalize(self, self._decoded.close)
            elif tag == LABELS and header:
                labels += content
                self._expect(len(labels) <= _LABEL_BYTES * header["count"], "as many labels as vectors")
            elif tag == PLACES and header:
                added += content
                self._expect(len(added) <= _LABEL_BYTES * header["count"], "as many places as vectors")
            elif tag == RUNS and header:
                runs += content
            elif tag == ROWS and self._decoded is not None:
                self._left -= len(content)
                self._expect(self._left >= 0, "as many vectors as it counts")
                write_all(self._decoded, content)
        self._expect(bool(header) and not self._left, "all vectors")
        self._expect(len(labels) == _LABEL_BYTES * header["count"] * header["labels"], "a label for each vector")
        self._expect(len(added) == _LABEL_BYTES * header["count"] * header["added"], "a place for each vector")
        own_labels = _int64s(labels) if header["labels"] else None
        insertion_order = _int64s(added) if header["added"] else None
        if "IDMap" not in header["chain"]:
            # FAISS numbers vectors in the order in which they are added
            insertion_order = own_labels
        if not header["in_place"]:
            return header, own_labels, insertion_order, np.array([[0, header["count"]]], np.int64)
        return header, own_labels, insertion_order, np.frombuffer(bytes(runs), "<i8").reshape(-1, 2)

    def _expect(self, holds: bool, missing: str) -> None:
        if not holds:
            raise StoreError(f"{self.path}: FAISS did not return {missing}; the file is damaged, copy it again")

    def _check_facts(self, content: bytes) -> dict[str, Any]:
        shape = {
            "chain": str,
            "dim": int,
            "count": int,
            "metric": int,
            "exact": bool,
            "labels": bool,
            "added": bool,
            "in_place": bool,
            "remarks": tuple[str, ...],
            "recipe": {"factory": str, "settings": dict[str, float]},
        }
        try:
            header = expect(parse_json(content), shape)
        except ValueError as error:
            raise StoreError(
                f"{self.path}: FAISS reports facts about the index that make no sense ({error}); copy it again"
            ) from error
        with read_errors(self.path):
            folder = sum(file.stat().st_size for file in self.path.parent.iterdir() if file.is_file())
        # no code takes less than a bit of a vector
        most_codes = 8 * folder
        fits = header["metric"] in fourcc.METRICS and header["dim"] > 0 and 0 <= header["count"] <= most_codes
        self._expect(fits, "facts that fit")
        return header

    def _check_runs(self, runs: NDArray[np.int64], header: dict[str, Any]) -> None:
        offsets, counts = runs.astype(np.int64).T
        row_bytes = 4 * header["dim"]
        if self._decoded is not None:
            size = header["count"] * row_bytes
        else:
            size = self.stamp.size
        within = (offsets >= 0) & (counts >= 0) & (offsets + counts * row_bytes <= size)
        self._expect(bool(within.all()) and counts.sum() == header["count"], "places of vectors within the file")


def _flat_facts(dim: int, count: int, metric: Metric) -> _Facts:
    """Return what FAISS would say of a whole flat index; to start a process for it takes longer than all else."""
    header: dict[str, Any] = {
        "chain": "IndexFlatIP" if metric == "ip" else "IndexFlatL2",
        "dim": dim,
        "count": count,
        "metric": fourcc.METRIC_NUMBERS[metric],
        "exact": True,
        "remarks": [],
        "recipe": {"factory": FLAT},
    }
    return header, None, None, np.array([[fourcc.FLAT_HEAD_BYTES, count]], np.int64)


def _check_code(path: Path, head: bytes) -> str:
    code = head[:4].decode("latin-1")
    if not fourcc.is_index(head):
        raise fourcc.not_an_index(path, head)
    if code.startswith("IB"):
        raise UnsupportedStoreError(
            f"{path}: a binary index ({code}); its vectors are bits, which no map between embedding spaces applies to: "
            "use the index of the float vectors"
        )
    return code


def _int64s(content: bytearray) -> NDArray[np.int64]:
    """Return numbers that a guarded process has sent, in the byte order of this machine."""
    return np.frombuffer(bytes(content), "<i8").astype(np.int64, copy=False)
