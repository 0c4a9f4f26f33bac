"""Fields of vectors that are added to the records of a collection, in place: written, looked up, switched.

The new vectors wait in the shards of the work folder until all are made and the store is known to be unchanged. Then
they are written into the field, batch by batch. Whatever is there already is not written again, so that a run which was
killed goes on, and a `sync` writes what is new alone. Programs go on writing to the records meanwhile: what they change
is counted, and is for `sync`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from migrate.errors import StoreError, UsageError
from migrate.files import already_exists, sha256_file, state_folder
from migrate.locations import Address, options_text
from migrate.manifest import StoreFacts
from migrate.pace import rest_for_pace, rows_at_once, with_this_pace
from migrate.stores.base import Store
from migrate.stores.confidence import read_row_values
from migrate.stores.database import DatabaseStore
from migrate.stores.driver import Driver
from migrate.stores.export import IDS_NAME, IdIndex, IdLookup
from migrate.stores.field_notes import FieldNote, FieldPlace, refuse_name, refuse_taken
from migrate.stores.file_store import Sha256
from migrate.stores.kept import new_token, token_in
from migrate.stores.outputs import Output, ServerOutput
from migrate.stores.parquet.columns import ColumnOutput, ParquetColumns
from migrate.stores.parquet.kind import LocalParquetStore
from migrate.stores.sources import vector_checksums
from migrate.vectors import Progress, Vectors, no_progress
from migrate.work.outputs import RunState
from migrate.work.rows import Rows
from migrate.work.shards import ShardFolder, write_values
from migrate.work.writer import StoreWriter

_WRITTEN: Final = "written.npy"
"""The checksum of the vector of each record when the field was written, beside the field; 0 of one that was gone."""
"""Names that begin with _ are those of LanceDB's own columns: a table with a second `_rowid` cannot be read."""


class FieldOutput(ServerOutput):
    """A field of a collection that is read, for other vectors of the same records.

    With `updates` the field is one that is there, whose vectors are brought up to date.
    """

    is_field = True

    def __init__(self, store: DatabaseStore, field: str, *, updates: bool = False) -> None:
        old = store.driver
        self._class, self._old = type(old), old.of_field(old.vector).address
        self.field, self.updates, self.remarks = field, updates, tuple[str, ...]()
        self.progress: Progress = no_progress
        options = {**store.driver.address.options, "vector": field}
        super().__init__(f"{old.server}#{old.records_name}{options_text(options)}", f"{old.records_name}-{field}")
        identity = f"{old.kind}:{old.whole_place}#{old.records_name}?vector={field}"
        self.digest = hashlib.sha256(identity.encode()).hexdigest()[:12]
        self.path = state_folder() / "outputs" / f"{self.name}-{self.digest}"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "progress": no_progress}  # which a process of its own does not report

    @contextmanager
    def _opened(self) -> Iterator[Driver]:
        """Yield a driver of the old field, opened now."""
        driver = self._class(self.location, self._old)
        with driver.errors():
            driver.open()
            yield driver

    def writer(self, source: Store, content: Path, dim: int) -> StoreWriter:
        """Return a writer that keeps the vectors for `publish`."""
        store = cast("DatabaseStore", source)
        with store.driver.errors():
            store.driver.refuse_field(self.field, dim)
        return FieldWriter(store, content, dim)

    def store_facts(self, source: Store, content: Path, sha256: Sha256 = sha256_file) -> Mapping[str, Any]:
        """Return how the field is opened, with the options that the old one is opened with."""
        options = Address.parse(f"#{source.opened_as or ''}").options
        name = Address.parse(self.location).name
        return StoreFacts(index=name + options_text({**options, "vector": self.field})).as_details()

    def caution(self, dim: int) -> str | None:
        """Return what programs must do before the field is there."""
        with self._opened() as driver:
            return driver.field_caution(dim)

    def begun_with(self, command: str) -> Mapping[str, Any] | None:
        """Return the configuration of an earlier run that has made all vectors, and has only to write them."""
        state = RunState.read(self.path)
        is_made = state is not None and state.complete is not None and state.configuration.get("command") == command
        return state.configuration if state is not None and is_made else None

    def refuse_existing(self, *, force: bool) -> None:
        """Make sure that the field can be added, or is one that this tool added and may replace."""
        refuse_name(self.location, self.field)
        with self._opened() as driver:
            note = driver.field_notes().get(self.field)
            if self.updates:
                return
            refuse_taken(self.location, self.field, note, is_there=self.field in driver.field_names())
            if note is not None and note.complete and not force:
                raise already_exists(self.location)
            if note is not None and self.field in driver.field_names():
                if force:
                    driver.refuse_drop(self.field)
                if note.complete:
                    self._refuse_made_anew(driver)
                elif not force and token_in(self.work_path / "content") != note.token:
                    raise self._not_ours()
            driver.refuse_field(self.field, None)

    def is_published(self, content: Path) -> bool:
        """Return whether the field holds the vectors of this work, or of any if `content` is gone."""
        with self._opened() as driver:
            note = driver.field_notes().get(self.field)
        return note is not None and note.complete and token_in(content) in (None, note.token)

    def publish(self, content: Path, *, force: bool) -> None:
        """Write the vectors into the field, and what lies beside it last; goes on where a killed call was."""
        index, shards = IdIndex.load(content / IDS_NAME), ShardFolder(content.parent / "shards")
        if index is None:
            raise StoreError(f"{content / IDS_NAME}: the file is damaged; to start over, add `restart=True`")
        token, dim = str(token_in(content)), int(shards.details(next(iter(shards)))["dim"])
        work = _FieldWork(self.field, index, shards.all_rows(dim, len(index)), shards.all_values("sources"))
        with self._opened() as driver:
            note = driver.field_notes().get(self.field)
            if not self.updates and note is not None and note.token != token:
                if not force and self.field in driver.field_names():
                    raise self._not_ours()
                if note.complete and self.field in driver.field_names():
                    self._refuse_made_anew(driver)
                driver.drop_field(self.field)
        with self._opened() as driver:
            if not self.updates:
                driver.note_field(self.field, FieldNote(driver.vector, token))
            written = np.zeros(len(index), bool)
            if self.field in driver.field_names():
                found = work.found(driver)
                written = found.is_written
                if found.has_others and not self.updates and not force:
                    raise self._not_ours()
            batches = work.batches(~written, driver.at_once, self._report)
            remarks = [*driver.write_field(self.field, dim, with_this_pace(batches))]
        with self._opened() as driver:
            found = work.found(driver)
            remarks += work.check(driver, found, self.location)
            write_values(content / _WRITTEN, [found.checksums], len(found.checksums))
            switch = None if note is None or not self.updates else note.switch
            driver.keep_field(self.field, FieldNote(driver.vector, token, True, switch), content)
        self.remarks = tuple(remarks)

    def _report(self, done: int, total: int) -> None:
        self.progress("write", done, total)

    def _refuse_made_anew(self, driver: Driver) -> None:
        """Make sure that a complete field is the one that was written, and not one that somebody has made since."""
        field = driver.of_field(self.field)
        field.open()
        folder, manifest = field.companion_folder(), field.manifest()
        if manifest is not None and manifest.model is not None and manifest.model.dim != field.dim:
            raise self._made_anew(f"has {field.dim:,} dimensions and not {manifest.model.dim:,}")
        index = None if folder is None else IdIndex.load(folder / IDS_NAME)
        if folder is None or index is None:
            return
        written = read_row_values(folder / _WRITTEN, "<u8", len(index), advice="choose another name")
        if written is None:  # of an earlier version
            return
        for page in field.pages():
            vectors = np.asarray(page.vectors, np.float32).reshape(len(page.ids), field.dim)
            if np.isin(vector_checksums(vectors), written[written != 0]).any():
                return
        raise self._made_anew("has none of the vectors that were written into it")

    def _made_anew(self, reason: str) -> UsageError:
        return UsageError(
            f"{self.location}: there is a {self.field!r} that is not the one which this tool added: it {reason}, so "
            "somebody has made it anew; choose another name, or drop it in the database first"
        )

    def _not_ours(self) -> UsageError:
        return UsageError(
            f"{self.location}: there is a {self.field!r} already, of a run whose work folder is gone, or made by "
            "somebody else since; choose another name, or add `force=True` to replace it"
        )


def field_of(store: Store, field: str, progress: Progress) -> Output:
    """Return the output of a new field of a store; raises UsageError if its kind can have none."""
    if isinstance(store, LocalParquetStore):
        return ColumnOutput(store, field)
    if not isinstance(store, DatabaseStore) or not store.driver.adds_fields:
        kind = store.driver.support.store if isinstance(store, DatabaseStore) else f"kind {store.info.kind}"
        raise UsageError(
            f"{store.info.location}: a store of {kind} gets no second field of vectors; translate to a new store "
            "(-o) instead"
        )
    output = FieldOutput(store, field)
    output.progress = progress
    return output


def field_beside(old: Store, new: Store) -> Output | None:
    """Return the output that brings a field up to date with another one of the same records; None of other stores."""
    if isinstance(old, DatabaseStore) and isinstance(new, DatabaseStore) and old.is_beside(new):
        return FieldOutput(old, new.driver.vector, updates=True)
    if isinstance(old, LocalParquetStore) and isinstance(new, LocalParquetStore) and old.is_beside(new):
        return ColumnOutput(old, new.columns.vector, updates=True)
    return None


def field_place(store: Store) -> FieldPlace | None:
    """Return the field that the vectors of a store are; None of a kind whose records have one alone."""
    if isinstance(store, LocalParquetStore):
        return ParquetColumns(store)
    return store.driver if isinstance(store, DatabaseStore) else None


def field_over(store: Store, output: Path | str) -> Output | None:
    """Return the output that writes an added field in its place, where the output is the location of that very store.

    None for any other output.
    """
    place = field_place(store)
    if place is None or str(output) != store.info.location:
        return None
    with place.errors():
        note = place.field_notes().get(place.vector)
    if note is None:
        return None
    if note.old_field not in place.field_names():
        raise UsageError(
            f"{store.info.location}: the field that this one was added beside is gone, and without it nothing is "
            "filled in here; name a new store with `output=`"
        )
    if isinstance(store, LocalParquetStore):
        return ColumnOutput(store, store.columns.vector, updates=True)
    if not isinstance(store, DatabaseStore):
        return None
    old = store.driver.of_field(note.old_field)
    return FieldOutput(DatabaseStore(old, old.location), store.driver.vector, updates=True)


class FieldWriter(StoreWriter):
    """Leaves the vectors in the shards, and notes the ids that they are of."""

    def __init__(self, source: DatabaseStore, folder: Path, dim: int) -> None:
        self.source, self.folder, self.dim = source, folder, dim

    def finish(self, rows: Rows, shards: ShardFolder) -> None:
        """Write the ids, and a token by which the field is known."""
        self.source.index.save(self.folder / IDS_NAME)
        if token_in(self.folder) is None:
            new_token(self.folder)


@dataclass(frozen=True, eq=False)
class _FoundField:
    """A field as it was read: whether it has the new vector of each record, (n,), the checksum of each vector.

    `has_others` is True if it has vectors that are not the new ones.
    """

    is_written: NDArray[np.bool_]
    checksums: NDArray[np.uint64]
    has_others: bool


@dataclass(frozen=True, eq=False)
class _FieldWork:
    """The new vectors of records, `rows`, with the ids and the checksums of the old vectors, `sources`, (n,)."""

    field: str
    index: IdIndex
    rows: Rows
    sources: NDArray[np.uint64]

    def _pages(self, driver: Driver) -> Iterator[tuple[NDArray[np.int64], Vectors]]:
        """Yield the rows of the records of a field as they are now, -1 for those not known, with their vectors."""
        for page in driver.pages():
            vectors = np.asarray(page.vectors, np.float32).reshape(len(page.ids), driver.dim)
            yield self._lookup.rows_of(page.ids), vectors
            rest_for_pace()

    @cached_property
    def _lookup(self) -> IdLookup:
        return IdLookup(self.index)

    def found(self, driver: Driver) -> _FoundField:
        """Read the field as it is now."""
        is_written, checksums = np.zeros(len(self.index), bool), np.zeros(len(self.index), np.uint64)
        field = driver.of_field(self.field)
        field.open()
        if field.dim != self.rows.dim:
            return _FoundField(is_written, checksums, has_others=True)
        others = False
        for rows, vectors in self._pages(field):
            is_known = rows >= 0
            expected = field.as_kept(self.rows.take(rows[is_known]))
            is_new = np.abs(expected - vectors[is_known]).max(axis=1) <= field.rounding
            is_written[rows[is_known][is_new]] = True
            checksums[rows[is_known]] = vector_checksums(vectors[is_known])
            others |= not (is_new | ~vectors[is_known].any(axis=1)).all()
        return _FoundField(is_written, checksums, has_others=others)

    def batches(self, selected: NDArray[np.bool_], at_once: int, report: Any) -> Iterator[tuple[list[str], Vectors]]:
        """Yield the ids and vectors of the records that are to be written."""
        done, total, remaining = int((~selected).sum()), len(selected), np.flatnonzero(selected)
        while len(remaining):
            rows, remaining = np.split(remaining, [rows_at_once(at_once)])
            report(done, total)
            yield self.index.ids(rows), self.rows.take(rows)
            done += len(rows)
            rest_for_pace()
        report(done, total)

    def check(self, driver: Driver, found: _FoundField, location: str) -> list[str]:
        """Make sure that every record that is still there has its vector; `driver` is of the old field, opened now.

        Returns a remark on what has become of the records since the new vectors were made; none if nothing has.
        """
        added = changed = 0
        is_there = np.zeros(len(self.index), bool)
        for rows, vectors in self._pages(driver):
            is_known = rows >= 0
            added += int((~is_known).sum())
            changed += int((vector_checksums(vectors[is_known]) != self.sources[rows[is_known]]).sum())
            is_there[rows[is_known]] = True
        if lacking := int((is_there & ~found.is_written).sum()):
            raise StoreError(
                f"{location}: {lacking:,} vectors are not what was written; stop what else writes to the field, and "
                "run again: the same command continues"
            )
        deleted = int((~is_there).sum())
        if not added + changed + deleted:
            return []
        counts = f"{added:,} documents were added, {changed:,} changed and {deleted:,} deleted"
        return [f"while the field was written, {counts}: bring it up to date with `sync`"]
