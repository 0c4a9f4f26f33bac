"""Finished shards as files. The listing of their folder is the journal of a run.

    START-STOP-HASH     rows START to STOP: arrays with one entry a row, and facts as JSON

A file is in the safetensors format, and HASH is the BLAKE3 of its bytes. Whatever has such a name is finished, and any
process may make any shard, and make it again: `migrate.work.remote` puts the files there.
"""

from __future__ import annotations

import io
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from migrate.digests import digits_of, hash_file, new_hasher, noted
from migrate.errors import StoreError
from migrate.files import open_file, output_errors
from migrate.vectors import Vectors
from migrate.work.remote import Folder
from migrate.work.rows import Rows

VECTORS: Final = "vectors"
_TYPES: Final = {"F32": "<f4", "U64": "<u8"}


@dataclass(frozen=True, slots=True, order=True)
class Shard:
    """Rows `start` to `stop`, not included."""

    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    @property
    def name(self) -> str:
        """The beginning of the name of its file."""
        # Of one length, so that names sort as rows do.
        return f"{self.start:012d}-{self.stop:012d}"


def shards_of(count: int, rows: int, start: int = 0) -> Iterator[Shard]:
    """Return the shards of `count` rows from `start` on, `rows` in each but the last."""
    stop = start + count
    return (Shard(first, min(first + rows, stop)) for first in range(start, stop, rows))


@dataclass(frozen=True, slots=True)
class Block:
    """Rows that follow each other: arrays by name, each with one entry a row, and facts that JSON can hold."""

    arrays: Mapping[str, NDArray[Any]]
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def vectors(self) -> Vectors:
        """The vectors, (n, dim), float32."""
        return self.arrays[VECTORS]


def pack(arrays: Mapping[str, Sequence[NDArray[Any]]], details: Mapping[str, Any]) -> list[memoryview]:
    """The bytes of a shard file, in pieces that are not copied; arrays are given in parts that follow each other."""
    names = {np.dtype(dtype): name for name, dtype in _TYPES.items()}
    header: dict[str, Any] = {"__metadata__": {"facts": json.dumps(dict(details), sort_keys=True)}}
    buffers = []
    end = 0
    # In one order: the name of the file is the hash of its bytes, and the same rows are to have one.
    for name, arrays_of in sorted(arrays.items()):
        begin = end
        for array in arrays_of:
            buffers.append(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
            end += array.nbytes
        shape = [sum(map(len, arrays_of)), *arrays_of[0].shape[1:]]
        header[name] = {"dtype": names[arrays_of[0].dtype], "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    # Blanks, by which the format lets arrays begin at a multiple of 8 bytes.
    text += b" " * (-len(text) % 8)
    return [memoryview(len(text).to_bytes(8, "little") + text), *buffers]


def _read_header(file: BinaryIO) -> tuple[int, dict[str, Any]]:
    """Return where the arrays of a shard file begin, and what and where they are."""
    size = int.from_bytes(file.read(8), "little")
    return 8 + size, json.loads(file.read(size))


class ShardFolder:
    """The finished shards of a run, in a folder of this machine."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.folder = Folder(str(path))
        self._names: dict[Shard, str] = {}
        for rows, name in self.folder.find_hashed().items():
            start, _, stop = rows.partition("-")
            if start.isdecimal() and stop.isdecimal():
                self.add(Shard(int(start), int(stop)), name)

    def __iter__(self) -> Iterator[Shard]:
        return iter(sorted(self._names))

    def __contains__(self, shard: Shard) -> bool:
        return shard in self._names

    def __len__(self) -> int:
        return len(self._names)

    @property
    def rows(self) -> int:
        """Number of finished rows."""
        return sum(map(len, self._names))

    @property
    def rows_before_gap(self) -> int:
        """Number of finished rows from the first on."""
        ranges = self.ranges()
        if ranges and ranges[0][0] == 0:
            return ranges[0][1]
        return 0

    def ranges(self) -> list[tuple[int, int]]:
        """Return the rows that are finished, as ranges that do not touch."""
        merged: list[tuple[int, int]] = []
        for shard in self:
            if merged and shard.start <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(shard.stop, merged[-1][1]))
            else:
                merged.append((shard.start, shard.stop))
        return merged

    def add(self, shard: Shard, name: str) -> None:
        """Note a file that is here."""
        self._names[shard] = name

    def write(self, shard: Shard, arrays: Mapping[str, Sequence[NDArray[Any]]], details: Mapping[str, Any]) -> str:
        """Put the file of a shard here, durably; return its name."""
        name = self.folder.write_hashed(shard.name, pack(arrays, details))
        self.add(shard, name)
        return name

    def is_sound(self, shard: Shard) -> bool:
        """Return whether the file has the content that its name says."""
        name = self._names[shard]
        try:
            return digits_of(hash_file(self.path / name)) == name.rpartition("-")[2]
        except FileNotFoundError:
            return False

    def remove(self, shard: Shard) -> None:
        """Remove a shard, which is to be made again."""
        (self.path / self._names.pop(shard)).unlink(missing_ok=True)

    def details(self, shard: Shard) -> dict[str, Any]:
        """Return the facts of a shard."""
        details: dict[str, Any] = json.loads(self._header(shard)[1]["__metadata__"]["facts"])
        return details

    def names(self, shard: Shard) -> list[str]:
        """Return the names of its arrays."""
        return sorted(self._header(shard)[1].keys() - {"__metadata__"})

    def array(self, shard: Shard, name: str) -> NDArray[Any]:
        """Return one array of a shard."""
        path, (content, header) = self.path / self._names[shard], self._header(shard)
        shape = header[name]["shape"]
        dtype = _TYPES[header[name]["dtype"]]
        with output_errors(path), open_file(path) as file:
            file.seek(content + header[name]["data_offsets"][0])
            return np.fromfile(file, dtype, count=math.prod(shape)).reshape(shape)

    def all_values(self, name: str) -> NDArray[Any]:
        """Return an array of all shards, in order."""
        return np.concatenate([self.array(shard, name) for shard in self])

    def all_rows(self, dim: int, count: int | None = None) -> Rows:
        """Return the vectors of all shards; raises a StoreError where a row is missing."""
        count = self.rows_before_gap if count is None else count
        if self.rows_before_gap != count or self.rows != count:
            raise StoreError(f"{self.path}: {count} vectors were announced, and {self.rows} written; write every row")
        runs = []
        for number, shard in enumerate(self):
            begin, header = self._header(shard)
            offset = begin + header[VECTORS]["data_offsets"][0] if VECTORS in header else -1
            runs.append((number, offset, len(shard)))
        return Rows([self.path / self._names[shard] for shard in self], np.array(runs, np.int64), dim)

    def _header(self, shard: Shard) -> tuple[int, dict[str, Any]]:
        path = self.path / self._names[shard]
        with output_errors(path), open_file(path) as file:
            return _read_header(file)


def write_values(path: Path, chunks: Iterable[NDArray[Any]], count: int) -> str:
    """Write numbers, one a row, as a `.npy` of shape (count,), durably; return the hash of the file."""
    hasher = new_hasher()
    chunks = iter(chunks)
    header = io.BytesIO()
    first = next(chunks, np.empty(0, np.float32))
    npy_header = {"descr": first.dtype.str, "fortran_order": False, "shape": (count,)}
    np.lib.format.write_array_header_1_0(header, npy_header)
    with path.open("wb") as file:
        for content in chain([header.getvalue()], (chunk.tobytes() for chunk in chain([first], chunks))):
            hasher.update(content)
            file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return noted(hasher)
