"""Stores whose single records are found by their ids, and get new vectors, while they are served."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from migrate.stores.base import Store
from migrate.stores.switching import SwitchableStore
from migrate.vectors import Batch, Document, Vectors


class StoreRecords(ABC):
    """The records of a store as they are now, not when it was opened: programs write to them meanwhile.

    `collection` is the name that programs know them by. `notices_vectors` is True if `check_unchanged` notices every
    vector that changed; if not, only those of a sample.
    """

    collection: str
    notices_vectors: bool

    @abstractmethod
    def documents(self, ids: Sequence[str]) -> dict[str, Document]:
        """Return the documents of some ids; of those that are gone, none."""

    @abstractmethod
    def vectors(self, ids: Sequence[str]) -> Batch:
        """Return the vectors of some ids, in their order; of those that are gone, none."""

    @abstractmethod
    def put(self, ids: Sequence[str], vectors: Vectors) -> int:
        """Replace the vectors of some documents, (n, dim), float32, next to readers; return how many were there.

        Durable on return; what else the records hold stays as it is. Nothing is written to another store that has come
        to the name of this one, as by a switch, since it was opened.
        """

    @abstractmethod
    def answering(self) -> Any:
        """Return what has the name now, as a JSON value: another after a switch, None while one is under way."""

    @abstractmethod
    def refresh(self) -> None:
        """Let the store read again what it has read before and could have changed unnoticed, see `notices_vectors`."""


class UpdatableStore(SwitchableStore):
    """A store of which single records are read and written."""

    records: StoreRecords

    @contextmanager
    def at_one_moment(self) -> Iterator[Store]:
        """Yield this store as it is now, whatever programs write to it meanwhile, if its database can do that.

        Any other is yielded itself, and tells by `check_unchanged` that it changed.
        """
        yield self
