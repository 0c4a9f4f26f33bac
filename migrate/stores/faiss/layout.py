"""Records of FAISS indexes by how a new one like them is written, and the bytes around the vectors of a flat file."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from migrate.stores.base import Metric
from migrate.stores.faiss import fourcc
from migrate.stores.faiss.recipe import factory

FLOAT_BYTES: Final = 4
_ID_MAPS: Final = {"IDMap": "IxMp", "IDMap2": "IxM2"}
_RESERVED: Final = 1 << 20

Labels = NDArray[np.int64] | None


@dataclass(frozen=True, slots=True)
class Header:
    """The shape of an index."""

    dim: int
    count: int
    metric: Metric


@dataclass(frozen=True, slots=True)
class Flat:
    """Vectors one after the other; labels are row numbers."""

    header: Header
    labels: None = None


@dataclass(frozen=True, slots=True)
class Hnsw:
    """A graph over flat vectors; it is built again in the target space."""

    header: Header
    links: int
    ef_construction: int
    ef_search: int
    labels: None = None

    @property
    def factory(self) -> str:
        """The string that `faiss.index_factory` would build it from."""
        return f"HNSW{self.links},Flat"


@dataclass(frozen=True, slots=True)
class Ivf:
    """Inverted lists of plain vectors: rows in the order of the lists, each with its stored label."""

    header: Header
    quantizer: Flat | Hnsw
    nlist: int
    nprobe: int
    labels: NDArray[np.int64]

    @property
    def factory(self) -> str:
        """The string that `faiss.index_factory` would build it from."""
        graph = f"_HNSW{self.quantizer.links}" if isinstance(self.quantizer, Hnsw) else ""
        return f"IVF{self.nlist}{graph},Flat"


@dataclass(frozen=True, slots=True)
class IdMap:
    """An index of these kinds with labels of the user's choice, which are `labels` in the order of the rows."""

    header: Header
    code: str
    inner: Flat | Hnsw | Ivf
    labels: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Decoded:
    """An index of any other kind, which FAISS builds anew from its recipe."""

    header: Header
    recipe: Mapping[str, Any]
    labels: Labels

    @property
    def factory(self) -> str:
        """The string that `faiss.index_factory` would build it from."""
        return factory(self.recipe)


Layout = Flat | Hnsw | Ivf | IdMap | Decoded


def layout_of(recipe: Mapping[str, Any], header: Header, labels: Labels, *, in_place: bool) -> Layout:
    """Return how a new index like this one is written.

    Parameters
    ----------
    recipe
        What it is built with.
    header
        Its shape.
    labels
        The label of each row; None where labels are row numbers.
    in_place
        True if the file holds its vectors as they are.
    """
    wrapped = recipe["kind"] in _ID_MAPS
    inner = recipe["inner"] if wrapped else recipe
    # Only the user's labels matter in an id map: the new lists number the rows.
    own = np.arange(header.count) if wrapped else labels
    plain = _plain(inner, header, own) if in_place or not header.count else None
    if plain is None or (wrapped and labels is None):
        return Decoded(header, recipe, labels)
    return IdMap(header, _ID_MAPS[recipe["kind"]], plain, labels) if wrapped and labels is not None else plain


def _plain(recipe: Mapping[str, Any], header: Header, labels: Labels) -> Flat | Hnsw | Ivf | None:
    if recipe["kind"] == "Flat":
        return Flat(header)
    if recipe["kind"] == "HNSW" and recipe.get("storage", {"kind": "Flat"})["kind"] == "Flat":
        return Hnsw(header, recipe["M"], recipe["efConstruction"], recipe["efSearch"])
    if recipe["kind"] != "IVF" or recipe["code"]["kind"] != "Flat" or labels is None:
        return None
    metric: Metric = recipe["quantizer"].get("metric", header.metric)
    quantizer = _plain(recipe["quantizer"], Header(header.dim, recipe["nlist"], metric), None)
    if not isinstance(quantizer, Flat | Hnsw):
        return None
    return Ivf(header, quantizer, recipe["nlist"], recipe["nprobe"], labels)


def index_head(code: str, dim: int, count: int, metric: Metric) -> bytes:
    """Return a code and the header of a trained index."""
    number = fourcc.METRIC_NUMBERS[metric]
    return struct.pack("<4siqqqBi", code.encode(), dim, count, _RESERVED, _RESERVED, 1, number)


def flat_head(dim: int, count: int, metric: Metric) -> bytes:
    """Return the bytes before the vectors of an IndexFlatL2 or IndexFlatIP, 45 of them."""
    code = "IxFI" if metric == "ip" else "IxF2"
    return index_head(code, dim, count, metric) + struct.pack("<Q", count * dim)


def id_map_head(layout: Layout, dim: int) -> bytes:
    """Return the bytes before the inner index of an id map; none for other kinds."""
    if not isinstance(layout, IdMap):
        return b""
    return index_head(layout.code, dim, layout.header.count, layout.header.metric)


def id_map_tail(layout: Layout) -> bytes:
    """Return the bytes after the inner index of an id map, which are the ids; none for other kinds."""
    if not isinstance(layout, IdMap):
        return b""
    return struct.pack("<Q", layout.labels.size) + layout.labels.astype("<i8", copy=False).tobytes()
