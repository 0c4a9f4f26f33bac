"""Where vectors and labels lie in a FAISS file, as plain facts, and the bytes around the vectors of a flat file.

Reads nothing: `walk.py` finds the layout of a file.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from migrate.stores.base import Metric
from migrate.stores.faiss import fourcc
from migrate.stores.faiss.recipe import factory, settings

FLOAT_BYTES: Final = 4


_RESERVED: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Header:
    """What every FAISS index begins with."""

    code: str
    dim: int
    count: int
    metric: Metric


@dataclass(frozen=True, slots=True)
class Segments:
    """Rows lie in runs: run i begins at row `first_rows[i]`, byte `offsets[i]`; `first_rows` ends with the count."""

    first_rows: NDArray[np.int64]
    offsets: NDArray[np.int64]
    row_bytes: int

    def pieces(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Byte offset and byte count of each run of rows first..last-1."""
        run = int(np.searchsorted(self.first_rows, first, side="right")) - 1
        while first < last:
            end = min(last, int(self.first_rows[run + 1]))
            if end > first:
                offset = int(self.offsets[run]) + (first - int(self.first_rows[run])) * self.row_bytes
                yield offset, (end - first) * self.row_bytes
            first, run = end, run + 1

    def row_offsets(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Byte offset of each row."""
        runs = np.searchsorted(self.first_rows, rows, side="right") - 1
        offsets: NDArray[np.int64] = self.offsets[runs] + (rows - self.first_rows[runs]) * self.row_bytes
        return offsets


@dataclass(frozen=True, slots=True)
class Flat:
    """Vectors one after the other from byte `vectors_at` on; labels are row numbers."""

    header: Header
    vectors_at: int

    @property
    def factory(self) -> str:
        """The string that `faiss.index_factory` would build it from."""
        return "Flat"

    @property
    def segments(self) -> Segments:
        """One run."""
        ends = np.array([0, self.header.count], np.int64)
        return Segments(ends, np.array([self.vectors_at], np.int64), self.header.dim * FLOAT_BYTES)

    @property
    def labels(self) -> None:
        """The row numbers."""
        return

    @property
    def details(self) -> Mapping[str, int]:
        """Nothing to tell."""
        return {}


@dataclass(frozen=True, slots=True)
class Hnsw:
    """A graph over flat vectors; it is built again in the target space."""

    header: Header
    storage: Flat
    links: int
    ef_construction: int
    ef_search: int

    @property
    def factory(self) -> str:
        """The string that `faiss.index_factory` would build it from."""
        return f"HNSW{self.links},Flat"

    @property
    def segments(self) -> Segments:
        """One run."""
        return self.storage.segments

    @property
    def labels(self) -> None:
        """The row numbers."""
        return

    @property
    def details(self) -> Mapping[str, int]:
        """The settings of the graph, with FAISS's names."""
        return {"M": self.links, "efConstruction": self.ef_construction, "efSearch": self.ef_search}


@dataclass(frozen=True, slots=True)
class Ivf:
    """Inverted lists: rows in the order of the lists, each with its stored label."""

    header: Header
    quantizer: Flat | Hnsw
    nlist: int
    nprobe: int
    segments: Segments
    labels: NDArray[np.int64]

    @property
    def factory(self) -> str:
        """The string that `faiss.index_factory` would build it from."""
        graph = f"_HNSW{self.quantizer.links}" if isinstance(self.quantizer, Hnsw) else ""
        return f"IVF{self.nlist}{graph},Flat"

    @property
    def details(self) -> Mapping[str, int]:
        """The settings of the lists, with FAISS's names."""
        return {"nlist": self.nlist, "nprobe": self.nprobe}


Plain = Flat | Hnsw | Ivf


@dataclass(frozen=True, slots=True)
class IdMap:
    """An index of the plain kinds with labels of the user's choice; `id_map[i]` belongs to inner label i."""

    header: Header
    inner: Plain
    id_map: NDArray[np.int64]

    @property
    def factory(self) -> str:
        """The string that `faiss.index_factory` would build it from."""
        return f"{fourcc.ID_MAPS[self.header.code].removeprefix('Index')},{self.inner.factory}"

    @property
    def segments(self) -> Segments:
        """As the inner index."""
        return self.inner.segments

    @property
    def labels(self) -> NDArray[np.int64]:
        """The user's label of each row, in the order of the rows."""
        inner = self.inner.labels
        return self.id_map if inner is None else self.id_map[inner]

    @property
    def details(self) -> Mapping[str, int]:
        """As the inner index."""
        return self.inner.details


@dataclass(frozen=True, slots=True)
class Decoded:
    """An index that FAISS itself read, in a child process; its decoded vectors are in a temporary file."""

    header: Header
    chain: str
    recipe: Mapping[str, Any]
    exact: bool
    labels: NDArray[np.int64] | None
    remarks: tuple[str, ...]

    @property
    def factory(self) -> str:
        """The string that `faiss.index_factory` would build it from."""
        return factory(self.recipe)

    @property
    def segments(self) -> Segments:
        """One run, from the beginning of that file."""
        return Flat(self.header, 0).segments

    @property
    def details(self) -> Mapping[str, int]:
        """The settings of the index, with FAISS's names."""
        return settings(self.recipe)


Layout = Plain | IdMap | Decoded


def headers(layout: Layout) -> tuple[Header, ...]:
    """The headers from the outermost index to the one that holds the vectors."""
    if isinstance(layout, IdMap):
        return (layout.header, *headers(layout.inner))
    if isinstance(layout, Hnsw):
        return (layout.header, layout.storage.header)
    return (layout.header,)


def class_chain(layout: Layout) -> str:
    """FAISS's class names, inner ones in brackets: `IndexIDMap2(IndexFlatL2)`."""
    if isinstance(layout, Decoded):
        return layout.chain
    outer = fourcc.CLASS_NAMES[layout.header.code]
    return f"{outer}({class_chain(layout.inner)})" if isinstance(layout, IdMap) else outer


def index_head(code: str, dim: int, count: int, metric: Metric) -> bytes:
    """A code and the header of a trained index."""
    number = fourcc.METRIC_NUMBERS[metric]
    return struct.pack("<4siqqqBi", code.encode(), dim, count, _RESERVED, _RESERVED, 1, number)


def flat_head(dim: int, count: int, metric: Metric) -> bytes:
    """The bytes before the vectors of an IndexFlatL2 or IndexFlatIP, 45 of them."""
    code = "IxFI" if metric == "ip" else "IxF2"
    return index_head(code, dim, count, metric) + struct.pack("<Q", count * dim)


def id_map_head(layout: Layout, dim: int) -> bytes:
    """The bytes before the inner index of an id map; none for other kinds."""
    if not isinstance(layout, IdMap):
        return b""
    return index_head(layout.header.code, dim, layout.header.count, layout.header.metric)


def id_map_tail(layout: Layout) -> bytes:
    """The bytes after the inner index of an id map, which are the ids; none for other kinds."""
    if not isinstance(layout, IdMap):
        return b""
    ids: NDArray[np.int64] = layout.id_map
    return struct.pack("<Q", ids.size) + ids.astype("<i8", copy=False).tobytes()
