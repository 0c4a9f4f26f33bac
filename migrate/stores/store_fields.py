"""Fields of vectors in the records of a store, whatever its kind."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from migrate.stores.added_fields import AddedField
from migrate.stores.outputs import Output
from migrate.vectors import Progress


class StoreFields(ABC):
    """The fields of vectors of the records of a store."""

    @abstractmethod
    def output(self, name: str, progress: Progress) -> Output:
        """Return the place of a new field, or of one that is replaced."""

    @abstractmethod
    def names(self) -> list[str]:
        """Return the names of all fields of the records."""

    @abstractmethod
    def added(self) -> Mapping[str, AddedField]:
        """Return the fields that this tool has added, by their names."""

    @abstractmethod
    def refuse_drop(self, name: str) -> None:
        """Raise UsageError if a field cannot be dropped."""

    @abstractmethod
    def drop(self, name: str) -> None:
        """Drop a field from all records, with what lies beside it; raises as `refuse_drop`."""

    def discard_dropped(self) -> None:
        """Remove what a killed `drop` has left."""


@runtime_checkable
class FieldedStore(Protocol):
    """A store whose kind can have several fields of vectors in its records."""

    @property
    def fields(self) -> StoreFields | None:
        """The fields of the records; None where the kind adds none."""
