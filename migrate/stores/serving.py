"""What a store offers to a program that serves it: its nearest documents, and single vectors replaced by true ones.

Kinds with a search of their own are `Searchable`, kinds whose records can be written one by one `Updatable`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from numpy.typing import NDArray

from migrate.vectors import Vectors


@dataclass(frozen=True, slots=True)
class Hits:
    """The nearest documents of one query, best first: `ids`, and `scores`, (n,), float32, by the metric of the store.

    Inner products, which fall, or squared distances, which grow.
    """

    ids: tuple[str, ...]
    scores: NDArray[Any]


@runtime_checkable
class Searchable(Protocol):
    """A store that can be searched; several threads may search it at once."""

    def search(self, queries: Vectors, k: int, where: Any = None) -> list[Hits]:
        """The nearest `k` documents of each query, (q, dim), or as many as there are.

        Parameters
        ----------
        queries
            float32, of the store's dimension, of the model that its vectors are of.
        k
            How many.
        where
            Which documents may be among them, as the kind's own client says it; None for any.

        Raises
        ------
        UsageError
            The filter is not one that the kind knows.
        StoreError, RemoteError
            The store is gone, or its server.
        """


@runtime_checkable
class Updatable(Protocol):
    """A store whose vectors can be replaced next to its readers: each sees a document's old vector or its new one."""

    def put_vectors(self, ids: Sequence[str], vectors: Vectors) -> int:
        """Replace the vectors of some documents, (n, dim), float32; what else the records hold stays as it is.

        Durable on return. Documents that are gone are left out. Returns how many were there.

        Raises
        ------
        StoreError, OutputError, RemoteError
            The store cannot be written to.
        """
