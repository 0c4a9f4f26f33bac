"""Stores in databases, by a driver: rows, what changed, new collections in folders and on servers, switching.

How to write a driver is in `driver.py`.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property, partial
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any, Final, TypeGuard

import numpy as np
from numpy.typing import NDArray

from migrate.errors import LeadMigrateError, LockedError, StoreError, UsageError
from migrate.files import (
    already_exists,
    atomic_file,
    canonical_json,
    open_descriptor,
    output_errors,
    require_room,
    sha256_file,
    sha256_json,
    work_folder,
)
from migrate.locations import Address, options_text
from migrate.manifest import Manifest, StoreFacts
from migrate.pace import with_rests
from migrate.stores.added_fields import field_is_asked
from migrate.stores.base import BATCH_SIZE, Hits, SearchSetting, Snapshot, Store
from migrate.stores.create import flat_writer
from migrate.stores.documents.base import LazyIds
from migrate.stores.driver import ClientError, Driver, Page, in_parts
from migrate.stores.export import IDS_NAME, IdIndex, VectorFile
from migrate.stores.file_store import Sha256
from migrate.stores.kept import new_token, token_in
from migrate.stores.outputs import Output, ServerOutput
from migrate.stores.records import check_options, left_behind, means_several, source_documents
from migrate.stores.serving import as_hits, check_queries, check_replacements, other_there
from migrate.stores.switching import BESIDE, Exchange, Folders, SwitchableStore, moved
from migrate.vectors import Batch, Document, Vectors
from migrate.work.rows import Rows
from migrate.work.shards import ShardFolder
from migrate.work.writer import StoreWriter

_ASKED_AT_ONCE: Final = 100
"""Queries that a database is asked at once."""


class DatabaseStore(SwitchableStore):
    """A collection that a driver reads. Rows are in the order of the ids, sorted by their bytes.

    Ids are read when they are first needed, and all vectors once more than a few are: both are exported into the work
    folder (`migrate.files.work_folder`), where later processes find them while the version stays.
    """

    searches = True

    def __init__(self, driver: Driver, location: str) -> None:
        self.driver = driver
        with driver.errors():
            driver.open()
            added = driver.added_field
            if added is not None and not added.is_complete:
                raise StoreError(
                    f"{location}: the field {driver.vector} is being written, or that broke off; the same `translate` "
                    "goes on with it"
                )
            info = replace(driver.describe(), location=location)
            self.info = replace(info, manifest=driver.manifest())
            self._identity = driver.identity(driver.name)
        if self.export_bytes >= 256 << 20:
            size = f"{self.export_bytes / 1e9:.1f} GB in {work_folder()}"
            notice = f"to be read as a whole it is exported first: {size} (--work-folder)"
            self.info = replace(self.info, notes=(*self.info.notes, notice))
        self.opened_as, self.without_vector = driver.opened_as, driver.without_vector
        self.is_copy, self.notices_vectors = driver.is_copy, driver.notices_vectors
        self._looked_up, self._streamed = 0, False
        self._file: VectorFile | None = None
        self._texts: str | None = None

    # The export.

    @property
    def export_bytes(self) -> int:
        """Size of the exported vectors."""
        return 4 * self.info.count * self.info.dim

    @cached_property
    def _opened_at(self) -> Any:
        return self._read_version()

    def _read_version(self) -> Any:
        with self.driver.errors():
            return self.driver.read_version()

    @cached_property
    def _export(self) -> Path:
        """The folder with the export of this version; those of others are removed when it is made."""
        source, version = sha256_json([self.driver.kind, self.driver.key])[:24], sha256_json(self._opened_at)[:24]
        folder = work_folder() / "exports" / f"{source}-{version}"
        with output_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        for old in folder.parent.glob(f"{source}-*"):
            if old != folder:
                shutil.rmtree(old, ignore_errors=True)
        return folder

    @cached_property
    def index(self) -> IdIndex:
        """The ids."""
        path = self._export / IDS_NAME
        index = IdIndex.load(path)
        if index is not None and len(index) == self.info.count:
            return index
        index = IdIndex.of((page.ids for page in self._pages(vectors=False)), self.driver.location)
        if len(index) != self.info.count:
            raise self._changed()
        with suppress(LockedError), atomic_file(path, force=True) as temporary:
            index.save(temporary)
        return index

    def _vectors(self) -> VectorFile:
        """Return the exported vectors, made when first asked for."""
        if self._file is None:
            self._file = self._lasting_file() if self.notices_vectors else self._passing_file()
        return self._file

    @property
    def _lasting_path(self) -> Path:
        return self._export / "vectors.f32"

    def _lasting_file(self) -> VectorFile:
        """Return a file that later processes use again."""
        path = self._lasting_path
        while not path.is_file() or path.stat().st_size != self.export_bytes:
            require_room(path, self.export_bytes)
            try:
                with atomic_file(path, force=True) as temporary:
                    self._fill(self._opened_file(temporary, os.open(temporary, os.O_RDWR | os.O_CLOEXEC)))
                    if self._read_version() != self._opened_at:
                        raise self._changed()
            except LockedError:  # another process exports the same
                time.sleep(0.1)
        with output_errors(path):
            return self._opened_file(path, open_descriptor(path))

    def _passing_file(self) -> VectorFile:
        """Return a file that is gone with the store: nothing would tell when its vectors are out of date."""
        require_room(self._export / "vectors", self.export_bytes)
        with output_errors(self._export):
            descriptor, name = tempfile.mkstemp(dir=self._export)
            Path(name).unlink()
        file = self._opened_file(Path(name), descriptor)
        self._fill(file)
        return file

    def _opened_file(self, path: Path, descriptor: int) -> VectorFile:
        return VectorFile(path, descriptor, self.info.count, self.info.dim)

    def _fill(self, file: VectorFile) -> None:
        with output_errors(file.path):
            file.reserve()
            start = 0
            for page in self._pages():
                rows = self._rows_of(page, start)
                file.put(rows, page.vectors)
                start += len(rows)
            if start != self.info.count:
                raise self._changed()
            file.sync()

    def _pages(self, **columns: bool) -> Iterator[Page]:
        with self.driver.errors():
            for page in with_rests(self.driver.pages(**columns)):
                yield replace(page, vectors=self._as_matrix(page)) if columns.get("vectors", True) else page

    def _as_matrix(self, page: Page) -> Vectors:
        return np.asarray(page.vectors, np.float32).reshape(len(page.ids), self.info.dim)

    def _rows_of(self, page: Page, start: int) -> NDArray[np.int64]:
        """Return the rows of a page whose first record is at position `start`; raises if it has other records."""
        rows = self.index.rows[start : start + len(page.ids)]
        if self.index.ids(rows) != list(page.ids):
            raise self._changed()
        return rows

    def whole_pages(self) -> Iterator[tuple[Page, NDArray[np.int64]]]:
        """Read all pages with whole records, each with the rows of its ids."""
        start = 0
        for page in self._pages(vectors=False, records=True):
            yield page, self._rows_of(page, start)
            start += len(page.ids)

    def refresh(self) -> None:
        """Forget exported vectors that the database may have replaced without a new version."""
        if not self.notices_vectors:
            self._file, self._looked_up, self._texts = None, 0, None

    def release(self) -> None:
        """Close the file of exported vectors, if it stays where it lies, until it is needed again."""
        if self.notices_vectors:
            self._file = None

    # The store.

    def ids(self, rows: range | NDArray[np.int64]) -> list[str]:
        """Return the ids of some rows; no vector is read."""
        return self.index.ids(rows)

    def scan(self, start: int = 0, stop: int | None = None, *, batch_size: int = BATCH_SIZE) -> Iterator[Batch]:
        """Read the vectors of rows `start` to `stop` with their ids."""
        stop = self.info.count if stop is None else min(stop, self.info.count)
        if (start, stop) == (0, self.info.count) and self._streams():
            yield from self._stream(batch_size)
            return
        self._looked_up += max(stop - start, 0)
        for first in range(start, stop, batch_size):
            rows = range(first, min(first + batch_size, stop))
            if self._is_exported():
                yield self._batch(rows, self._vectors().take(np.arange(rows.start, rows.stop)))
            else:
                yield self._look_up(np.asarray(rows, np.int64))

    def _streams(self) -> bool:
        """Return True once, if a file or folder that is read in place has its records in the order of rows."""
        is_in_place = not (self.driver.is_server or self.driver.is_copy)
        is_first = not (self._streamed or self._is_exported() or self._lasting_path.exists())
        self._streamed = True
        return is_in_place and is_first and self.index.is_in_order

    def _stream(self, batch_size: int) -> Iterator[Batch]:
        """Read all vectors without an export, which would take as long again to write and to read."""

        def parts() -> Iterator[Vectors]:
            start = 0
            for page in self._pages():
                start += len(self._rows_of(page, start))
                yield page.vectors
            if start != self.info.count or self._read_version() != self._opened_at:
                raise self._changed()

        first = 0
        for vectors in _in_batches(parts(), batch_size):
            yield self._batch(range(first, first + len(vectors)), vectors)
            first += len(vectors)

    def _batch(self, rows: range, vectors: Vectors) -> Batch:
        return Batch(LazyIds(len(rows), partial(self.ids, rows)), vectors)

    def get(self, rows: NDArray[np.int64]) -> Batch:
        """Return the vectors and ids of some rows."""
        rows = np.asarray(rows, np.int64)
        self._looked_up += len(rows)
        return Batch(self.ids(rows), self._vectors().take(rows)) if self._is_exported() else self._look_up(rows)

    def _is_exported(self) -> bool:
        # rows are looked up one by one until one in four was
        return self._file is not None or self._looked_up * 4 >= self.info.count

    def _look_up(self, rows: NDArray[np.int64]) -> Batch:
        unique, positions = np.unique(rows, return_inverse=True)
        return Batch(self.ids(rows), self._read(self.ids(unique), self.index.order[unique])[positions])

    def _read(self, ids: Sequence[str], at: NDArray[np.int64] | None) -> Vectors:
        """Return the vectors of different ids, in their order; raises `StoreError` if one is gone."""
        row_of, vectors = self._read_present(ids, at)
        self._refuse_gone(ids, row_of)
        return vectors[[row_of[doc_id] for doc_id in ids]]

    def _read_present(self, ids: Sequence[str], at: NDArray[np.int64] | None) -> tuple[dict[str, int], Vectors]:
        """Return the vectors of those of some different ids that are there, and the row of each id in them."""
        if not ids:
            return {}, np.empty((0, self.info.dim), np.float32)
        with self.driver.errors():
            read = [self.driver.vectors(*chunk) for chunk in self._chunks(ids, at)]
        row_of = {doc_id: row for row, doc_id in enumerate(chain.from_iterable(page.ids for page in read))}
        return row_of, np.concatenate([self._as_matrix(page) for page in read])

    def _chunks(self, ids: Sequence[str], at: NDArray[np.int64] | None) -> Iterator[tuple[Any, ...]]:
        size = self.driver.at_once
        return with_rests(zip(in_parts(ids, size), repeat(None) if at is None else in_parts(at, size), strict=False))

    def documents(self, rows: NDArray[np.int64] | None = None) -> Iterator[Document]:
        """Read the documents of some rows, or of all."""
        if not self.info.has_texts:
            raise StoreError(f"{self.info.location}: the store holds no texts; {self.info.way_to_texts}")
        return self._documents(np.arange(self.info.count) if rows is None else np.asarray(rows, np.int64))

    def _documents(self, rows: NDArray[np.int64]) -> Iterator[Document]:
        for chunk in in_parts(rows, 4_096):
            unique = np.unique(chunk)
            documents, ids = self._find(self.ids(unique), self.index.order[unique]), self.ids(chunk)
            self._refuse_gone(ids, documents)
            yield from (documents[doc_id] for doc_id in ids)

    def find_documents(self, ids: Sequence[str]) -> dict[str, Document]:
        """Return the documents of some ids as they are now; of those that are gone, none."""
        return self._find(list(dict.fromkeys(ids)), None)

    def _find(self, ids: Sequence[str], at: NDArray[np.int64] | None) -> dict[str, Document]:
        with self.driver.errors():
            documents = (document for chunk in self._chunks(ids, at) for document in self.driver.documents(*chunk))
            return {document.id: document for document in documents}

    def find_vectors(self, ids: Sequence[str]) -> Batch:
        """Return the vectors of some ids as they are now, in their order; of those that are gone, none."""
        row_of, vectors = self._read_present(list(dict.fromkeys(ids)), None)
        present = [doc_id for doc_id in ids if doc_id in row_of]
        return Batch(present, vectors[[row_of[doc_id] for doc_id in present]])

    def _refuse_gone(self, ids: Iterable[str], present: Collection[str]) -> None:
        missing = next((doc_id for doc_id in ids if doc_id not in present), None)
        if missing is not None:
            location = self.info.location
            raise StoreError(
                f"{location}: document {missing!r} was deleted during the read; stop what writes to the store, and "
                "run again"
            )

    @property
    def folder(self) -> Path | None:
        """The folder with what lies beside the store."""
        return self.driver.companion_folder() if self.info.manifest else None

    def keep_manifest(self, manifest: Manifest) -> Path | str:
        """Write a manifest beside the store."""
        with self.driver.errors():
            return self.driver.keep_manifest(manifest)

    def successor(self, ending: str) -> str | None:
        """Return a location on the same server."""
        return self.driver.successor(ending)

    def destination(self, location: Path, dim: int) -> StoreWriter:
        """Return a writer of a folder with a collection of the same name."""
        if self.driver.urls:
            return flat_writer(self, location, dim)
        driver = type(self.driver)(str(location), Address(str(location), self.driver.name))
        return DatabaseWriter(driver, self, location, dim)

    def strangers(self) -> list[str]:
        """Return other collections of the folder, and files that are not the database's."""
        driver = self.driver
        if driver.is_server:
            return []
        files = {path.name for path in driver.folder.iterdir()} - {*driver.files(), *BESIDE}
        names = set() if driver.copies_place else {*self._names()} - {driver.name}
        return sorted(files | names)

    def _names(self) -> list[str]:
        with self.driver.errors():
            return self.driver.names()

    # What changed.

    def is_as_opened(self) -> bool:
        """Return whether no record came, went or changed since the store was first read."""
        with self.driver.errors():
            return canonical_json(self.driver.version()) == canonical_json(self._opened_at)

    def check_unchanged(self, earlier: Snapshot) -> None:
        """Make sure that the store is still what it was; the message says what came and went."""
        self.refresh()
        if not self.is_as_opened() or self.snapshot() != earlier:
            raise self._changed()

    def _changed(self) -> StoreError:
        """Return the error of a store that was written to while it was read."""
        change = "records with the same ids were changed"
        with suppress(LeadMigrateError):
            now = DatabaseStore(type(self.driver)(self.driver.location, self.driver.address), self.info.location)
            new_ids = {doc_id for page in now._pages(vectors=False) for doc_id in page.ids}
            index = self.__dict__.get("index")
            old_ids = new_ids if index is None else {*index.ids(range(len(index)))}
            if added_or_gone := sorted(old_ids ^ new_ids):
                counts = f"{len(new_ids - old_ids):,} documents were added and {len(old_ids - new_ids):,} deleted"
                change = f"{counts}, such as {', '.join(map(repr, added_or_gone[:3]))}"
        location = self.info.location
        return StoreError(f"{location}: the store changed while it was read ({change}); nothing was written, run again")

    def _texts_sha256(self) -> str:
        """Read once: texts may be most of a database."""
        if self._texts is None:
            self._texts = super()._texts_sha256()
        return self._texts

    def _versions(self) -> tuple[Any, ...]:
        return (self.index.sha256, self._opened_at)

    def state(self) -> Any:
        """Return the version that the database had when it was opened, None where that is no sign of its vectors."""
        return self._opened_at if self.notices_vectors else None

    # Serving.

    def search(self, queries: Vectors, k: int, where: Any = None) -> list[Hits]:
        """Search by the database; `where` is a filter as its client takes it."""
        queries = check_queries(self.info, queries)
        if k <= 0 or not len(queries):
            return [as_hits((), ()) for _ in queries]
        try:
            with self.driver.errors():
                return self.driver.search(queries, k, where)
        except ClientError as error:
            if where is None:
                raise
            raise UsageError(f"{error}; is the filter right?") from error

    @property
    def has_own_index(self) -> bool:
        """True: also where it compares all vectors, as only the database knows when it does."""
        return self.driver.has_own_index

    @property
    def setting(self) -> SearchSetting | None:
        """The parameter of searches that the database's client has."""
        with self.driver.errors():
            return self.driver.setting

    def search_index(self, queries: Vectors, k: int, effort: int | None = None) -> list[Hits]:
        """Search by the database, a part of the queries at a time: a server may refuse too many at once."""
        queries = check_queries(self.info, queries)
        if k <= 0:
            return [as_hits((), ()) for _ in queries]
        with self.driver.errors():
            parts = (self.driver.search_index(part, k, effort) for part in in_parts(queries, _ASKED_AT_ONCE))
            return [hits for part in parts for hits in part]

    def put_vectors(self, ids: Sequence[str], vectors: Vectors) -> int:
        """Replace the vectors of some documents, (n, dim), float32, next to readers; return how many were there.

        Durable on return; what else the records hold stays as it is. Nothing is written to another store that has come
        to the name of this one, as by a switch, since it was opened.
        """
        new = check_replacements(self.info, ids, vectors)
        if self.answering() != self._identity:
            raise other_there(self.info)
        self.refresh()
        with self.driver.errors():
            return self.driver.update(new) if new else 0

    def answering(self) -> Any:
        """Return what has the name now, as a JSON value: another after a switch, None while one is under way."""
        with self.driver.errors():
            return self.driver.identity(self.driver.name)

    # Switching.

    def is_beside(self, other: Store) -> bool:
        """Return whether another store is of other vectors of the same records."""
        if not isinstance(other, DatabaseStore) or type(other.driver) is not type(self.driver):
            return False
        first, second = self.driver, other.driver
        same = (first.whole_place, first.records_name) == (second.whole_place, second.records_name)
        return same and first.vector != second.vector

    def exchange(self, new: Store) -> Exchange:
        """Return how this store and a new one trade names, on a server or as whole folders.

        If they cannot, UsageError names the string that the user has to change instead.
        """
        old_driver, location = self.driver, new.info.location
        if not isinstance(new, DatabaseStore) or type(new.driver) is not type(old_driver):
            raise UsageError(
                f"{location}: this is another kind of store than {self.info.location}; name one of the same"
            )
        if self.is_beside(new):
            raise field_is_asked(self.info.location, location, new.driver.vector)
        by_hand = f"in your programs, change {_spot(old_driver)} to {_spot(new.driver)} instead, and back to undo it"
        if old_driver.is_server:
            if new.driver.server != old_driver.server or not old_driver.swaps:
                raise UsageError(f"{location}: names are traded on one server, by databases that can; {by_hand}")
            with old_driver.errors():
                old_driver.refuse_swap(new.driver)
            return self._prepared(Exchange(old_driver, old_driver.name, new.driver.name), new)
        if new.driver.is_server:
            raise UsageError(f"{location}: the old store is in a folder, the new one on a server; {by_hand}")
        for store in (self, new):
            if (names := store._names()) != [old_driver.name]:
                raise UsageError(
                    f"{store.info.location}: its folder holds {', '.join(names)}, and whole folders are switched, with "
                    f"the {old_driver.collection} {old_driver.name} alone; {by_hand}"
                )
        # other databases name their files by themselves; programs open one that is a file by its name
        if old_driver.copies_place and {*new.driver.files()} != {*old_driver.files()}:
            raise UsageError(f"{location}: its files have other names, and whole folders are switched; {by_hand}")
        with old_driver.errors():
            old_driver.refuse_folders(new.driver)
        return self._prepared(Folders.exchange(old_driver.folder, new.driver.folder, excluded=old_driver.files()), new)

    def _prepared(self, exchange: Exchange, new: DatabaseStore) -> Exchange:
        def prepare() -> None:
            with new.driver.errors():
                new.driver.prepare_switch(self.driver)

        exchange.prepare = prepare
        return exchange


def _in_batches(chunks: Iterable[Vectors], size: int) -> Iterator[Vectors]:
    """Join parts of any number of rows to batches of one, the last of what is left."""
    joined: list[Vectors] = []
    for vectors in chunks:
        joined.append(vectors)
        if sum(map(len, joined)) >= size:
            *whole, remainder = in_parts(np.concatenate(joined), size)
            yield from whole if len(remainder) < size else (*whole, remainder)
            joined = [remainder] if len(remainder) < size else []
    if joined:
        yield np.concatenate(joined)


def _spot(driver: Driver) -> str:
    """Return place and name, as programs give them to the client."""
    return f"{driver.address.place}#{driver.name}"


def _is_of(store: Store, driver: type[Driver]) -> TypeGuard[DatabaseStore]:
    """Return whether a driver of this class reads a store, so that its records are copied whole."""
    return isinstance(store, DatabaseStore) and type(store.driver) is driver


class DatabaseWriter(StoreWriter):
    """Writes a collection by its driver once all rows are there."""

    def __init__(self, driver: Driver, source: Store, folder: Path, dim: int) -> None:
        self.source, self.folder, self.dim = source, folder, dim
        self._driver, self._like = driver, source.driver if _is_of(source, type(driver)) else None
        with driver.errors():
            driver.refuse_write(dim, self._like)

    @property
    def order(self) -> NDArray[np.int64] | None:
        """The order of the ids, unless the source has that itself."""
        if isinstance(self.source, DatabaseStore):
            return None
        keys = [doc_id.encode() for batch in self.source.scan() for doc_id in batch.ids]
        return np.array(sorted(range(len(keys)), key=keys.__getitem__), np.int64)

    def finish(self, rows: Rows, shards: ShardFolder) -> None:
        """Write the collection: a copy if the source is of the same database, else its documents."""
        driver, source = self._driver, self.source
        name = driver.staging(token_in(self.folder) or new_token(self.folder)) if driver.is_server else driver.name
        if _is_of(source, type(driver)):
            pages: Iterator[Page] = (replace(page, vectors=rows.take(at)) for page, at in source.whole_pages())
        else:
            self.remarks = (*self.remarks, *left_behind(source))
            pages = self._of_documents(rows)
        with driver.errors():
            written = driver.write(name, self.dim, source.info, self._like, with_rests(pages))
            self.remarks = (*self.remarks, *written)

    def _of_documents(self, rows: Rows) -> Iterator[Page]:
        documents = source_documents(self.source)
        for _, vectors in rows.batches(1_000):
            chunk = list(islice(documents, len(vectors)))
            yield Page([document.id for document in chunk], vectors.copy(), documents=chunk)


class DatabaseFolder(Output):
    """A new folder with one collection, for documents of any kind."""

    def __init__(self, driver: type[Driver], location: str, address: Address) -> None:
        super().__init__(Path(address.place))
        self.location, self._driver, self._name = location, driver, address.name

    def writer(self, source: Store, content: Path, dim: int) -> StoreWriter:
        """Return a writer of the collection."""
        driver = self._driver(str(content), Address(str(content), self._name))
        return DatabaseWriter(driver, source, content, dim)

    def store_facts(self, source: Store, content: Path, sha256: Sha256 = sha256_file) -> Mapping[str, Any]:
        """Return how it is opened; the files have no hashes, as the database changes them by itself."""
        options = source.driver.address.options if _is_of(source, self._driver) else {}
        driver = self._driver(str(content), Address(str(content), self._name, options))
        return StoreFacts(index=driver.opened_as).as_details()


class DatabaseServer(ServerOutput):
    """A new collection of a server. It is written under a name with a token, and gets the final one last."""

    def __init__(self, driver: type[Driver], location: str, address: Address) -> None:
        super().__init__(location, address.name)
        self._class, self._address = driver, address

    @contextmanager
    def _driver(self) -> Iterator[Driver]:
        driver = self._class(self.location, self._address)
        with driver.errors():
            yield driver

    def writer(self, source: Store, content: Path, dim: int) -> StoreWriter:
        """Return a writer of the collection under its unpublished name."""
        return DatabaseWriter(self._class(self.location, self._address), source, content, dim)

    def store_facts(self, source: Store, content: Path, sha256: Sha256 = sha256_file) -> Mapping[str, Any]:
        """Return the name, with the options that the source of a copy is opened with, and those of this location."""
        opened_as = source.opened_as or "" if _is_of(source, self._class) else ""
        index = f"{self._address.name}{''.join(opened_as.partition('?')[1:])}"
        return StoreFacts(index=index, written_as=dict(self._address.options) or None).as_details()

    def refuse_existing(self, *, force: bool) -> None:
        """Make sure that the name is free, or leads to a collection that this tool made and nobody switched."""
        with self._driver() as driver:
            exists = driver.identity(driver.name) is not None
            if exists and not force:
                raise already_exists(self.location)
            if (old := driver.switched_with(driver.name)) is not None:
                raise moved(self.location, old)
            if exists and driver.token(driver.name) is None:
                raise UsageError(
                    f"{self.location} exists and was not made by this tool; delete it yourself, or choose another "
                    "output"
                )

    def drop(self) -> None:
        """Drop the collection, unless it was switched."""
        self.refuse_existing(force=True)
        with self._driver() as driver:
            driver.drop(driver.name)

    def is_published(self, content: Path) -> bool:
        """See `Driver.is_published`."""
        with self._driver() as driver:
            return driver.is_published(content)

    def publish(self, content: Path, *, force: bool) -> None:
        """Give the collection its final name."""
        with self._driver() as driver:
            if driver.identity(driver.name) is not None:
                self.refuse_existing(force=force)
            driver.publish(driver.staging(str(token_in(content))), content)

    def discard(self) -> None:
        """Drop what killed runs left."""
        with self._driver() as driver:
            for name in driver.leftovers():
                driver.drop(name)


class DatabaseKind:
    """A database as a kind of stores, by its driver; `scheme` begins locations, if not the driver's kind."""

    def __init__(self, driver: type[Driver], scheme: str | None = None) -> None:
        self.driver, self.name, self.support = driver, scheme or driver.kind, driver.support
        self._before_place = f"{scheme}:" if scheme else ""

    def recognises(self, path: Path) -> bool:
        """See `Driver.recognises`."""
        return self.driver.recognises(path)

    def names(self, path: Path) -> Sequence[str]:
        """Return the collections at a path."""
        driver = self.driver(str(path), Address(str(path)))
        with driver.errors():
            return driver.names()

    def open(self, location: str) -> Store:
        """Open `PLACE#NAME?OPTION=VALUE`; the only collection of a place needs no name."""
        driver = self.driver_of(location)
        if "*" in driver.address.name:
            raise means_several(driver.location)
        return DatabaseStore(driver, location)

    def driver_of(self, location: str) -> Driver:
        """Return the driver of a location; nothing is opened yet."""
        address = Address(location) if Path(location).exists() else self.address_of(location)
        return self.driver(self._check(location, address, self.driver.options), address)

    def output(self, location: str) -> Output:
        """Return where a new collection goes; nothing is asked of a server yet."""
        opens, address = self.checked_output(location)
        return (DatabaseServer if "://" in address.place else DatabaseFolder)(self.driver, opens, address)

    def checked_output(self, location: str) -> tuple[str, Address]:
        """Return how a new collection is opened, and its parts, if it has a name and its options mean something."""
        address = self.address_of(location)
        is_server = "://" in address.place
        whole = self._check(location, address, self.driver.write_options if is_server else ())
        if "*" in address.name:
            raise means_several(whole)
        if not address.name or not address.place:
            raise UsageError(f"{whole}: the new {self.driver.collection} has no name; add one after a #")
        pattern, in_words = self.driver.name_rule
        if not re.fullmatch(pattern, address.name):
            raise UsageError(
                f"{whole}: {self.driver.support.store} takes no {self.driver.collection} of the name {address.name!r}; "
                f"write one {in_words}"
            )
        read = {name: value for name, value in address.options.items() if name in self.driver.options}
        opens = f"{whole[: whole.rindex('#')]}#{address.name}{options_text(read)}"  # without those of writing alone
        return opens, address

    def find_exchange(self, location: str) -> Exchange | None:
        """Return the switch that is recorded of a name on a server, which nothing may answer to."""
        driver = self.driver_of(location)
        is_named = driver.is_server and driver.address.name
        return Exchange.at(driver, driver.name) if self.driver.swaps and is_named else None

    def address_of(self, location: str) -> Address:
        """Return the parts of a location; a scheme of its own is that of its URL too."""
        return Address.parse(f"{self._before_place}{location}")

    def _check(self, location: str, address: Address, options: Sequence[str]) -> str:
        """Return the whole location, if its options mean something and its place can be used."""
        whole, driver = f"{self.name}:{location}", self.driver
        if driver.urls and not address.place.startswith(driver.urls):  # which may have a password in it
            have = driver.support.locations[0]
            raise UsageError(f"this is not a location of {driver.support.store}; write {have}")
        check_options(whole, address.options, options)
        if "://" in address.place and not driver.has_servers:
            refusal = f"only folders of {driver.support.store} are read"
            raise UsageError(f"{whole}: {refusal}; copy the {driver.collection} to one")
        return whole
