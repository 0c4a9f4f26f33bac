"""Checks of queries, filters and new vectors, hits, and connections, for stores that are searched and written to."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import numpy as np

from migrate.errors import StoreError, UsageError
from migrate.stores.base import Hits as Hits
from migrate.stores.base import StoreInfo
from migrate.vectors import Vectors, as_vectors, check_vectors, unit_rows


class ClientError(StoreError):
    """An error of a client that its driver knows no more of."""


def is_cosine(info: StoreInfo) -> bool:
    """Return whether the store compares by cosine, whatever the length of its vectors."""
    return str(info.details.get("distance", "")).lower() == "cosine"


def as_compared(info: StoreInfo, vectors: Vectors) -> Vectors:
    """Return vectors, (n, dim), of which the inner products are what a store compares by, where that is the cosine."""
    if is_cosine(info):
        return unit_rows(vectors)
    return vectors


def check_queries(info: StoreInfo, queries: Vectors) -> Vectors:
    """Return the queries, (q, dim), of a store; raises VectorError if they are of another dimension."""
    return as_vectors(queries, dim=info.dim, source=f"queries of {info.name}")


def check_replacements(info: StoreInfo, ids: Sequence[str], vectors: Vectors) -> dict[str, Vectors]:
    """Return the new vector, (dim,), of each document, the last of one that is named twice.

    Raises VectorError if a vector is zero, not finite, or of another dimension.
    """
    rows = as_vectors(vectors, dim=info.dim, source=f"new vectors of {info.name}")
    if len(rows) != len(ids):
        raise UsageError(f"{info.location}: {len(rows)} vectors for {len(ids)} documents; give one for each")
    check_vectors(ids, rows, source=f"new vectors of {info.name}")
    return dict(zip(ids, rows, strict=True))


def other_there(info: StoreInfo) -> StoreError:
    """Return the error of vectors for a store in whose place another one has come."""
    return StoreError(f"{info.location}: another store has come to its place since it was opened; open it again")


def as_fields(info: StoreInfo, where: Any) -> Mapping[str, Any]:
    """Return a filter that is a mapping of metadata to values, empty for None; raises UsageError for all else."""
    if where is None:
        return {}
    if not isinstance(where, Mapping) or not all(isinstance(name, str) for name in where):
        raise UsageError(
            f"{info.location}: a filter of the type {type(where).__name__}; give names of metadata and the values that "
            "they must have, such as {'source': 'a'}"
        )
    return where


_Connection = TypeVar("_Connection")


class ConnectionPool(Generic[_Connection]):
    """Connections that several threads take turns with: as many as are in use at once; one that failed is closed.

    `check` raises if the other end has closed an idle connection.
    """

    def __init__(
        self, connect: Callable[[], _Connection], check: Callable[[_Connection], object] = lambda _: None
    ) -> None:
        self._connect = connect
        self._check = check
        self._idle: list[_Connection] = []
        # Of the list, not of the pool: a finalizer that refers to its own object keeps that alive for ever.
        weakref.finalize(self, _close_all, self._idle)

    @contextmanager
    def connection(self) -> Iterator[_Connection]:
        """Yield one that nobody else uses meanwhile."""
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
        # Only here: one whose use ended in an error may still be in the middle of an answer.
        self._idle.append(connection)

    def clear(self) -> None:
        """Close those that are not in use."""
        _close_all(self._idle)


def _close_all(connections: list[Any]) -> None:
    while connections:
        connections.pop().close()


def as_hits(ids: Sequence[str], scores: Any) -> Hits:
    """Return the hits of one query."""
    return Hits(tuple(ids), np.asarray(scores, np.float32).reshape(-1))
