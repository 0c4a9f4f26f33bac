"""Fields of vectors in the records of a store, as commands name them."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from migrate.command_notes import running
from migrate.errors import LeadMigrateError, StoreError, UsageError
from migrate.locations import Address, options_text
from migrate.stores.added_fields import fields_beside
from migrate.stores.base import Store
from migrate.stores.outputs import Output
from migrate.stores.parquet.columns import ColumnFields
from migrate.stores.parquet.kind import LocalParquetStore
from migrate.stores.registry import kind_in_words, open_store
from migrate.stores.store_fields import FieldedStore, StoreFields
from migrate.vectors import Progress


def fields_of(store: Store) -> StoreFields | None:
    """Return the fields of the records of a store; None where its kind adds none."""
    if isinstance(store, LocalParquetStore):
        return ColumnFields(store)
    if not isinstance(store, FieldedStore):
        return None
    return store.fields


def field_of(store: Store, field: str, progress: Progress) -> Output:
    """Return the output of a new field of a store; raises UsageError if its kind can have none."""
    fields = fields_of(store)
    if fields is None:
        raise UsageError(
            f"{store.info.location}: a store of {kind_in_words(store.info.kind)} gets no second field of vectors; "
            "translate to a new store (-o) instead"
        )
    return fields.output(field, progress)


@dataclass(frozen=True, eq=False)
class NamedField:
    """A field of the records of a store, as a location names it by `?vector=`; `store` is opened by any field."""

    location: str
    name: str
    store: Store

    @classmethod
    def at(cls, location: str) -> NamedField | None:
        """Return the field at a location; None where it names none, or its records have none that was added."""
        options = dict(Address.parse(location).options)
        name = options.pop("vector", None)
        if name is None:
            return None
        try:
            store = open_store(location)
        except StoreError:  # a field that is being written, or gone, is opened by another of the records
            with suppress(LeadMigrateError):
                field = cls(location, name, open_store(location.rpartition("?")[0] + options_text(options)))
                if fields_of(field.store) is not None:
                    return field
            raise
        field = cls(location, name, store)
        fields = fields_of(store)
        if fields is not None and fields.added():
            return field
        return None

    def refuse_drop(self) -> None:
        """Raise UsageError if the field cannot be dropped: it was not added, nor was another added beside it."""
        self._fields().refuse_drop(self.name)

    def discard_dropped(self) -> None:
        """Remove what a killed `drop` has left: the column may be gone, and its folder not."""
        fields = fields_of(self.store)
        if fields is not None:
            fields.discard_dropped()

    def drop(self) -> None:
        """Drop it from all records, with what lies beside it; raises as `refuse_drop`."""
        # What a killed call has left would be in the way of this one.
        self.discard_dropped()
        self._fields().drop(self.name)
        # The field is gone when the same command is repeated: by this note that ends well, too.
        request = running()
        if request is not None:
            request.has_made(self.location)

    def _fields(self) -> StoreFields:
        fields = fields_of(self.store)
        if fields is None:
            names = []
        else:
            names = fields.names()
        if fields is None or self.name not in names:
            raise UsageError(f"{self.location}: there is no such field, or none any more; there are {', '.join(names)}")
        if self.name not in fields_beside(fields.added()):
            raise UsageError(
                f"{self.location}: the field was not added by `translate --into`, nor was another added beside it; "
                "drop it in the database yourself"
            )
        return fields
