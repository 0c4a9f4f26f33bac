"""The vectors and labels read from one index, however deeply it is nested. Runs in the child process only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from migrate.stores.frames import RefusedError

Rows = NDArray[np.float32]
"""Some vectors, (n, dim)."""

Recipe = dict[str, Any]
"""What to build an index like this one with: JSON, see `faiss_recipe`."""


@dataclass(frozen=True)
class Stored:
    """Vectors as they lie in the memory of FAISS: runs of `counts` rows at `addresses`.

    `end` is the address after the last byte of the index, if that is known.
    """

    addresses: list[int]
    counts: list[int]
    end: int | None


@dataclass(frozen=True)
class Part:
    """The vectors of an index, and what is known of how they are kept.

    `stored` is None where the vectors are not kept as they are.
    """

    chain: str
    recipe: Recipe
    rows: Callable[[], Iterator[Rows]]
    exact: bool
    labels: NDArray[np.int64] | None = None
    remarks: tuple[str, ...] = ()
    stored: Stored | None = None


def library() -> Any:
    """FAISS itself. Its type stubs know less than half of it."""
    import faiss

    return faiss


def open_index(index: Any) -> Any:
    """The index as its own class; SWIG gives out the base class."""
    faiss = library()

    return faiss.downcast_index(index)


def class_name(index: Any) -> str:
    """FAISS's name of the class."""
    return type(index).__name__


def expect_same_shape(index: Any, inner: Any, role: str) -> None:
    """Make sure that an index and the one inside have as many vectors, of one dimension."""
    if (index.d, index.ntotal) != (inner.d, inner.ntotal):
        raise RefusedError(
            f"{class_name(index)} counts {index.ntotal} vectors of dimension {index.d}, but {role} has {inner.ntotal} "
            f"of dimension {inner.d}; the file is damaged, copy it again or build the index again"
        )


def graph_recipe(index: Any) -> Recipe:
    """Return the settings of an IndexHNSW, without those of its storage."""
    links = library().vector_to_array(index.hnsw.cum_nneighbor_per_level)
    return {
        "kind": "HNSW",
        "M": int(links[1]) // 2 if links.size > 1 else 32,
        "efConstruction": int(index.hnsw.efConstruction),
        "efSearch": int(index.hnsw.efSearch),
    }


def block_rows(row_bytes: int) -> int:
    """Rows in a block of about 4 MiB."""
    return max(1, (4 << 20) // max(row_bytes, 1))


def borrow(pointer: Any, count: int) -> NDArray[Any]:
    """A view of FAISS's memory, which must be copied before the index goes away."""
    faiss = library()

    view: NDArray[Any] = faiss.rev_swig_ptr(pointer, count)
    return view
