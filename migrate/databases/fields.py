"""Fields of vectors that are added to the records of a collection, in place, and dropped.

The new vectors wait in the shards of the work folder until all are made and the store is known to be unchanged. Then
they are written into the field, batch by batch. Whatever is there already is not written again, so that a run which was
killed goes on. Programs go on writing to the records meanwhile: what they change is counted, and told.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from migrate.databases.driver import DatabaseRows, driver_of_field, open_field
from migrate.databases.ordered_rows import RowExport
from migrate.errors import StoreError, UsageError
from migrate.files import already_exists
from migrate.locations import Address, options_text
from migrate.manifest import StoreFacts, find_manifest, read_manifest
from migrate.pace import with_rests
from migrate.stores.added_fields import AddedField, VectorFields, refuse_name, taken
from migrate.stores.base import Store
from migrate.stores.export import IDS_NAME, IdIndex, IdLookup
from migrate.stores.file_store import HashFile
from migrate.stores.old_checksums import vector_checksums
from migrate.stores.outputs import Form, Output, file_name, state_path
from migrate.stores.store_fields import StoreFields
from migrate.vectors import Progress, Vectors, no_progress
from migrate.work.rows import Rows
from migrate.work.shards import ShardFolder
from migrate.work.writer import StoreWriter, Written


class CollectionFields(StoreFields):
    """The fields of the records of a collection, by what its driver can do."""

    def __init__(self, export: RowExport, fields: VectorFields) -> None:
        self._export = export
        self._fields = fields

    def output(self, name: str, progress: Progress) -> Output:
        """Return the place of a new field."""
        return FieldOutput(self._export.rows, name, progress)

    def names(self) -> list[str]:
        """Return the names of all fields."""
        with self._export.rows.driver.errors():
            return sorted(self._fields.names())

    def added(self) -> Mapping[str, AddedField]:
        """Return the fields that were added."""
        with self._export.rows.driver.errors():
            return self._fields.added()

    def refuse_drop(self, name: str) -> None:
        """Raise UsageError if a field cannot be dropped."""
        with self._export.rows.driver.errors():
            self._fields.refuse_drop(name)

    def drop(self, name: str) -> None:
        """Drop a field from all records."""
        with self._export.rows.driver.errors():
            self._fields.refuse_drop(name)
            self._fields.drop(name)


class FieldOutput(Output):
    """A field of a collection that is read, for other vectors of the same records."""

    def __init__(self, rows: DatabaseRows, field: str, progress: Progress) -> None:
        driver = rows.driver
        self._class = type(driver)
        self._old = driver_of_field(rows, rows.vector).address
        self.field = field
        self.progress = progress
        name = file_name(f"{rows.records_name}-{field}")
        location = driver_of_field(rows, field).location
        identity = f"{driver.traits.kind}:{driver.whole_place}#{rows.records_name}?vector={field}"
        form = Form(
            name="field",
            open_writer=partial(_open_writer, field),
            facts=partial(_facts, location, field, rows.vector),
        )
        super().__init__(state_path(name, identity), location, form, name=name)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "progress": no_progress}  # which a process of its own does not report

    @contextmanager
    def _opened(self) -> Iterator[tuple[DatabaseRows, VectorFields]]:
        """Yield the old field, opened now, and the fields of its collection."""
        driver = self._class(self.location, self._old)
        with driver.errors():
            rows = driver.open()
            yield rows, _fields_of(rows)

    def caution(self, dim: int) -> str | None:
        """Return what programs must do before the field is there."""
        with self._opened() as (_, fields):
            return fields.caution(dim)

    def begun_with(self, command: str) -> Mapping[str, Any] | None:
        """Return the configuration of an earlier run that has made all vectors, and has only to write them."""
        state = self.completed(command)
        return None if state is None else state.configuration

    def refuse_existing(self, *, force: bool) -> None:
        """Make sure that the field can be added, or is one that this tool added and may replace."""
        refuse_name(self.location, self.field)
        with self._opened() as (_, fields):
            added = fields.added().get(self.field)
            is_there = self.field in fields.names()
            if is_there and added is None:
                raise taken(self.location, self.field)
            if added is not None and added.is_complete and not force:
                raise already_exists(self.location)
            if is_there and not force and not self._is_of_work(added, self.work_path / "content"):
                raise self._not_ours()
            fields.refuse(self.field, None)

    def is_published(self, content: Path) -> bool:
        """Return whether the field holds the vectors of this work, or of any if `content` is gone."""
        with self._opened() as (_, fields):
            added = fields.added().get(self.field)
        if added is None or not added.is_complete:
            return False
        return not content.is_dir() or self._is_of_work(added, content)

    def _is_of_work(self, added: AddedField | None, content: Path) -> bool:
        """Return whether a field is the one that the files in `content` belong to."""
        return added is not None and added.manifest == find_manifest(content, "store")

    def publish(self, content: Path, *, force: bool) -> None:
        """Write the vectors into the field, and what lies beside it last; goes on where a killed call was.

        A field of the same dimension is written over in place, as programs may be asking it.
        """
        index = IdIndex.load(content / IDS_NAME)
        shards = ShardFolder(content.parent / "shards")
        if index is None:
            raise StoreError(f"{content / IDS_NAME}: the file is damaged; to start over, add `restart=True`")
        dim = int(shards.details(next(iter(shards)))["dim"])
        work = _FieldWork(
            field=self.field,
            index=index,
            lookup=IdLookup(index),
            rows=shards.all_rows(dim, len(index)),
            sources=shards.all_values("sources"),
        )
        with self._opened() as (rows, fields):
            is_there = self.field in fields.names()
            is_begun = self._is_of_work(fields.added().get(self.field), content)
            if is_there and not is_begun and not force:
                raise self._not_ours()
            if is_there and open_field(rows, self.field).dim != dim:
                fields.drop(self.field)
        with self._opened() as (rows, fields):
            if not is_begun:
                fields.begin(self.field, read_manifest(content, "store"))
            is_written = np.zeros(len(index), bool)
            if self.field in fields.names():
                found = work.found(rows, fields)
                is_written = found.is_written
                if found.has_others and not force:
                    raise self._not_ours()
            batches = work.batches(~is_written, rows.at_once, self._report)
            remarks = [*fields.write(self.field, dim, with_rests(batches))]
        with self._opened() as (rows, fields):
            remarks += work.check(rows, work.found(rows, fields).is_written, self.location)
            fields.keep(self.field, content)
        self.remarks = tuple(remarks)

    def _report(self, done: int, total: int) -> None:
        self.progress("write", done, total)

    def _not_ours(self) -> UsageError:
        return UsageError(
            f"{self.location}: there is a {self.field!r} already, of a run whose work folder is gone, or made by "
            "somebody else since; choose another name, or add `force=True` to replace it"
        )


class _Collection(Protocol):
    """A store of a collection, which is the source of all that is written into its fields."""

    export: RowExport


def _open_writer(field: str, source: Store, content: Path, dim: int) -> StoreWriter:
    """Return a writer that keeps the vectors for `publish`, and notes the ids that they are of."""
    export = cast("_Collection", source).export
    fields = _fields_of(export.rows)
    with export.rows.driver.errors():
        fields.refuse(field, dim)
        if field in fields.names() and open_field(export.rows, field).dim != dim:
            fields.refuse_drop(field)

    def complete(_rows: Rows, _shards: ShardFolder) -> Written:
        export.index.save(content / IDS_NAME)
        return Written()

    return StoreWriter(dim, complete)


def _facts(
    location: str, field: str, old_vector: str, source: Store, _content: Path, _hash_of: HashFile
) -> Mapping[str, Any]:
    """Return how the field is opened, with the options that the old one is opened with."""
    options = Address.parse(f"#{source.info.opened_as or ''}").options
    index = Address.parse(location).name + options_text({**options, "vector": field})
    return StoreFacts(index=index, added_beside=old_vector).as_details()


def _fields_of(rows: DatabaseRows) -> VectorFields:
    if rows.fields is None:
        raise ValueError(f"{rows.driver.traits.kind} adds no fields")
    return rows.fields


@dataclass(frozen=True, eq=False)
class _FoundField:
    """A field as it was read: whether it has the new vector of each record, (n,), and whether it has any others."""

    is_written: NDArray[np.bool_]
    has_others: bool


@dataclass(frozen=True, eq=False)
class _FieldWork:
    """The new vectors of records, `rows`, with the ids and the checksums of the old vectors, `sources`, (n,)."""

    field: str
    index: IdIndex
    lookup: IdLookup
    rows: Rows
    sources: NDArray[np.uint64]

    def _pages(self, records: DatabaseRows) -> Iterator[tuple[NDArray[np.int64], Vectors]]:
        """Yield the rows of the records of a field as they are now, -1 for those not known, with their vectors."""
        for page in with_rests(records.pages()):
            vectors = np.asarray(page.vectors, np.float32).reshape(len(page.ids), records.dim)
            yield self.lookup.rows_of(page.ids), vectors

    def found(self, records: DatabaseRows, fields: VectorFields) -> _FoundField:
        """Read the field as it is now."""
        is_written = np.zeros(len(self.index), bool)
        field = open_field(records, self.field)
        if field.dim != self.rows.dim:
            return _FoundField(is_written, has_others=True)
        others = False
        for rows, vectors in self._pages(field):
            is_known = rows >= 0
            expected = fields.as_kept(self.rows.take(rows[is_known]))
            is_new = np.abs(expected - vectors[is_known]).max(axis=1) <= fields.rounding
            is_written[rows[is_known][is_new]] = True
            others |= not (is_new | ~vectors[is_known].any(axis=1)).all()
        return _FoundField(is_written, has_others=others)

    def batches(self, selected: NDArray[np.bool_], at_once: int, report: Any) -> Iterator[tuple[list[str], Vectors]]:
        """Yield the ids and vectors of the records that are to be written."""
        total = len(selected)
        remaining = np.flatnonzero(selected)
        done = total - len(remaining)
        while len(remaining):
            rows, remaining = np.split(remaining, [at_once])
            report(done, total)
            yield self.index.ids(rows), self.rows.take(rows)
            done += len(rows)
        report(done, total)

    def check(self, records: DatabaseRows, is_written: NDArray[np.bool_], location: str) -> list[str]:
        """Make sure that every record that is still there has its vector; `records` are of the old field, as now.

        Returns a remark on what has become of the records since the new vectors were made; none if nothing has.
        """
        added = changed = 0
        is_there = np.zeros(len(self.index), bool)
        for rows, vectors in self._pages(records):
            is_known = rows >= 0
            added += int((~is_known).sum())
            changed += int((vector_checksums(vectors[is_known]) != self.sources[rows[is_known]]).sum())
            is_there[rows[is_known]] = True
        if lacking := int((is_there & ~is_written).sum()):
            raise StoreError(
                f"{location}: {lacking:,} vectors are not what was written; stop what else writes to the field, and "
                "run again: the same command continues"
            )
        deleted = int((~is_there).sum())
        if not added + changed + deleted:
            return []
        counts = f"{added:,} documents were added, {changed:,} changed and {deleted:,} deleted"
        return [f"while the field was written, {counts}: run `translate --into` again, with --force and --any-store"]
