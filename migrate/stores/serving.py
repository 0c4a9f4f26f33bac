"""What a store offers to a program that serves it: its nearest documents, and single vectors replaced by true ones.

Kinds with a search of their own are `Searchable`, kinds whose records can be written one by one `Updatable`;
`migrate.stores.faiss.search.open_search` searches any store, those without a search of their own exactly and in memory.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from migrate.errors import StoreError, UsageError
from migrate.stores.base import StoreInfo
from migrate.vectors import Vectors, as_vectors, check_vectors


@dataclass(frozen=True, slots=True)
class Hits:
    """The nearest documents of one query, best first: `ids`, and `scores`, (n,), float32, by the metric of the store.

    Inner products, which fall, or squared distances, which grow. A store that compares by cosine gives the cosine of
    query and document, which is the inner product where both are of unit length; `is_cosine` tells such a store.
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
            Which documents may be among them, as the kind's own client says it, or, where that is SQL, FAISS or none, a
            mapping of metadata to the values that they must have; None for any.

        Raises
        ------
        UsageError
            The filter is not one that the kind knows.
        VectorError
            The queries are of another dimension.
        StoreError, RemoteError
            The store is gone, or its server.
        """


@runtime_checkable
class Named(Protocol):
    """A store that is found by a name which another one may be given, next to those that search it."""

    def answering(self) -> Any:
        """What has the name at this moment, as JSON holds it: another after a switch, the former after the way back.

        None while a switch is under way, and what lies beside the store may not be the store's.

        Raises
        ------
        StoreError, RemoteError
            Nothing has.
        """


@runtime_checkable
class Updatable(Protocol):
    """A store whose vectors can be replaced next to its readers: each sees a document's old vector or its new one."""

    def put_vectors(self, ids: Sequence[str], vectors: Vectors) -> int:
        """Replace the vectors of some documents, (n, dim), float32; what else the records hold stays as it is.

        Durable on return. Documents that are gone are left out. Returns how many were there. Nothing is written to
        another store that has come to the name of this one, as by a switch, since it was opened.

        Raises
        ------
        VectorError
            A vector is zero, not finite, or of another dimension.
        StoreError, OutputError, RemoteError
            The store cannot be written to, its kind cannot hold such vectors, or another store has its name.
        """


class Serving(Searchable, Updatable, Protocol):
    """What a kind of database does both by."""


def is_cosine(info: StoreInfo) -> bool:
    """Whether the store compares by cosine, whatever the length of its vectors."""
    return str(info.details.get("distance", "")).lower() == "cosine"


def check_queries(info: StoreInfo, queries: Vectors) -> Vectors:
    """The queries, (q, dim), of a store.

    Raises
    ------
    VectorError
        They are of another dimension.
    """
    return as_vectors(queries, dim=info.dim, source=f"queries of {info.name}")


def check_replacements(info: StoreInfo, ids: Sequence[str], vectors: Vectors) -> dict[str, Vectors]:
    """The new vector, (dim,), of each document; of one that is named twice, the last.

    Raises
    ------
    VectorError
        A vector is zero, not finite, or of another dimension; or there are more or fewer than ids.
    """
    rows = as_vectors(vectors, dim=info.dim, source=f"new vectors of {info.name}")
    if len(rows) != len(ids):
        raise UsageError(f"{info.location}: expected a vector for each of {len(ids)} documents, found {len(rows)}")
    check_vectors(ids, rows, source=f"new vectors of {info.name}")
    return dict(zip(ids, rows, strict=True))


def other_there(info: StoreInfo) -> StoreError:
    """What is raised where vectors would be put into another store than the one that was opened."""
    return StoreError(f"{info.location}: another store has come to its place since it was opened; open it again")


def as_fields(info: StoreInfo, where: Any) -> Mapping[str, Any]:
    """A filter that is a mapping of metadata to values; empty for None.

    Raises
    ------
    UsageError
        It is something else.
    """
    if where is None:
        return {}
    if not isinstance(where, Mapping) or not all(isinstance(name, str) for name in where):
        raise UsageError(
            f"{info.location}: expected a filter such as {{'source': 'a'}}, names of metadata and the values that they "
            f"must have, found {type(where).__name__}"
        )
    return where


_Connection = TypeVar("_Connection")


class Pool(Generic[_Connection]):
    """Connections that several threads take turns with: as many as are in use at once; one that failed is closed.

    `check` raises if the other end has closed an idle connection.
    """

    def __init__(
        self, connect: Callable[[], _Connection], check: Callable[[_Connection], object] = lambda _: None
    ) -> None:
        self._connect, self._check = connect, check
        self._idle: list[_Connection] = []
        weakref.finalize(self, _close_all, self._idle)

    @contextmanager
    def connection(self) -> Iterator[_Connection]:
        """One that nobody else uses meanwhile."""
        try:
            connection = self._idle.pop()
            self._check(connection)
        except Exception:  # none is idle, or the server was started again since
            self.clear()
            connection = self._connect()
        try:
            yield connection
        except BaseException:
            _close_all([connection])
            raise
        self._idle.append(connection)

    def clear(self) -> None:
        """Close those that are not in use."""
        _close_all(self._idle)


def _close_all(connections: list[Any]) -> None:
    while connections:
        connections.pop().close()


def as_hits(ids: Sequence[str], scores: Any) -> Hits:
    """The answer to one query."""
    return Hits(tuple(ids), np.asarray(scores, np.float32).reshape(-1))
