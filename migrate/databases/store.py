"""Stores in databases, by a driver: what is read, searched, changed and switched.

How to write a driver is in `driver.py`; how rows are read in order is in `ordered_rows.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeGuard

import numpy as np
from numpy.typing import NDArray

from migrate.databases.driver import (
    DatabaseCompanions,
    DatabaseRows,
    DatabaseSearch,
    Driver,
    Page,
    added_field,
    in_parts,
)
from migrate.databases.fields import CollectionFields
from migrate.databases.ordered_rows import OrderedRows, RowExport
from migrate.databases.server_names import TradedNames
from migrate.digests import BLAKE3
from migrate.errors import StoreError, UsageError
from migrate.files import canonical_json, work_folder
from migrate.locations import Address
from migrate.pace import with_rests
from migrate.progress import count_pieces
from migrate.stores.added_fields import are_of_same_records, field_is_asked
from migrate.stores.base import (
    BATCH_SIZE,
    Hits,
    SearchSetting,
    Snapshot,
    Store,
    StoreInfo,
    StoreSearcher,
    documents_hash,
    sampled_snapshot,
)
from migrate.stores.create import flat_writer
from migrate.stores.kept import new_token, token_in
from migrate.stores.records import left_behind, source_documents
from migrate.stores.serving import ClientError, as_hits, check_queries, check_replacements, other_there
from migrate.stores.switching import BESIDE, Exchange, Folders
from migrate.stores.updates import StoreRecords, UpdatableStore
from migrate.vectors import Batch, Document, Vectors
from migrate.work.rows import Rows
from migrate.work.shards import ShardFolder
from migrate.work.writer import StoreWriter, Written

_ASKED_AT_ONCE: Final = 100
"""Queries that a database is asked at once."""
_LARGE_EXPORT: Final = 256 << 20
"""Bytes of an export of which the notes of a store tell."""


class DatabaseStore(UpdatableStore):
    """A collection that a driver reads. Rows are in the order of the ids, sorted by their bytes."""

    def __init__(self, driver: Driver, location: str) -> None:
        self.driver = driver
        with driver.errors():
            self.rows = rows = driver.open()
            added = added_field(rows)
            if added is not None and not added.is_complete:
                raise StoreError(
                    f"{location}: the field {rows.vector} is being written, or that broke off; the same `translate` "
                    "goes on with it"
                )
            info = replace(
                rows.describe(),
                location=location,
                records=f"{driver.traits.kind}:{driver.whole_place}#{rows.records_name}",
                vector=rows.vector,
                opened_as=driver.opened_as,
                without_vector=rows.without_vector,
                is_copy=rows.is_copy,
            )
            self.export = RowExport(rows, replace(info, manifest=rows.companions.manifest()))
            self._ordered = OrderedRows(self.export)
            self._search = rows.search
            self.records = CollectionRecords(self._ordered, driver.identity(driver.name))
        if self.export.nbytes >= _LARGE_EXPORT:
            size = f"{self.export.nbytes / 1e9:.1f} GB in {work_folder()}"
            notice = f"to be read as a whole it is exported first: {size} (--work-folder)"
            self.info = replace(self.info, notes=(*self.info.notes, notice))
        self._texts: dict[str, str | None] = {}

    @property
    def info(self) -> StoreInfo:
        """The facts of the store, by which errors of reading name it, too."""
        return self.export.info

    @info.setter
    def info(self, info: StoreInfo) -> None:
        self.export.info = info

    # Reading.

    def ids(self, rows: range | NDArray[np.int64]) -> list[str]:
        """Return the ids of some rows; no vector is read."""
        return self.export.index.ids(rows)

    def scan(self, start: int = 0, stop: int | None = None, *, batch_size: int = BATCH_SIZE) -> Iterator[Batch]:
        """Read the vectors of rows `start` to `stop` with their ids."""
        stop = self.info.count if stop is None else min(stop, self.info.count)
        return self._ordered.scan(start, stop, batch_size)

    def get(self, rows: NDArray[np.int64]) -> Batch:
        """Return the vectors and ids of some rows."""
        return self._ordered.get(np.asarray(rows, np.int64))

    def documents(self, rows: NDArray[np.int64] | None = None) -> Iterator[Document]:
        """Read the documents of some rows, or of all."""
        if not self.info.has_texts:
            raise StoreError(f"{self.info.location}: the store holds no texts; {self.info.way_to_texts}")
        return self._ordered.documents(np.arange(self.info.count) if rows is None else np.asarray(rows, np.int64))

    # What lies beside the store, and new ones.

    @property
    def folder(self) -> Path | None:
        """The folder with what lies beside the store."""
        return self.rows.companions.folder() if self.info.manifest else None

    @property
    def companions(self) -> DatabaseCompanions:
        """The manifest beside the collection."""
        return self.rows.companions

    def successor(self, ending: str) -> str | None:
        """Return a location on the same server."""
        names = self.driver.server_names
        if names is None or not self.driver.is_server:
            return None
        with self.driver.errors():
            return names.successor(ending)

    def destination(self, location: Path, dim: int) -> StoreWriter:
        """Return a writer of a folder with a collection of the same name."""
        if self.driver.traits.urls:
            return flat_writer(self, location, dim)
        driver = type(self.driver)(str(location), Address(str(location), self.driver.name))
        return database_writer(driver, self, location, dim)

    def strangers(self) -> list[str]:
        """Return other collections of the folder, and files that are not the database's."""
        driver = self.driver
        if driver.is_server:
            return []
        files = {path.name for path in driver.folder.iterdir()} - {*driver.files(), *BESIDE}
        names = set() if driver.traits.copies_place else {*_names(driver)} - {driver.name}
        return sorted(files | names)

    @property
    def fields(self) -> CollectionFields | None:
        """The fields of vectors of the records; None where the database adds none."""
        fields = self.rows.fields
        return None if fields is None else CollectionFields(self.export, fields)

    # What changed.

    def is_as_opened(self) -> bool:
        """Return whether no record came, went or changed since the store was first read."""
        with self.driver.errors():
            return canonical_json(self.rows.version()) == canonical_json(self.export.opened_at)

    @contextmanager
    def at_one_moment(self) -> Iterator[Store]:
        """Yield the collection as it is now, opened anew if the driver can hold it still."""
        with ExitStack() as stack:
            with self.driver.errors():
                driver = stack.enter_context(self.driver.at_one_moment())
            yield self if driver is self.driver else DatabaseStore(driver, self.info.location)

    def check_unchanged(self, earlier: Snapshot) -> None:
        """Make sure that the store is still what it was; the message says what came and went."""
        self.records.refresh()
        if not self.records.notices_vectors:
            self._texts = {}
        if not self.is_as_opened() or self.snapshot() != earlier:
            raise self.export.changed()

    def snapshot(self, function: str = BLAKE3) -> Snapshot:
        """Hash some rows, all ids, and by `function` the texts, once: these may be most of a database."""
        if function not in self._texts:
            self._texts[function] = documents_hash(self, function)
        return sampled_snapshot(self, self._texts[function], (self.export.index.sha256, self.export.opened_at))

    def state(self) -> Any:
        """Return the version that the database had when it was opened, None where that is no sign of its vectors."""
        return self.export.opened_at if self.records.notices_vectors else None

    # Serving.

    def searcher(self) -> CollectionSearcher:
        """Return the search by the database."""
        return CollectionSearcher(self.info, self._search)

    # Switching.

    def exchange(self, new: Store) -> Exchange:
        """Return how this store and a new one trade names, on a server or as whole folders.

        If they cannot, UsageError names the string that the user has to change instead.
        """
        location = new.info.location
        if not isinstance(new, DatabaseStore) or type(new.driver) is not type(self.driver):
            raise UsageError(
                f"{location}: this is another kind of store than {self.info.location}; name one of the same"
            )
        if are_of_same_records(self, new):
            raise field_is_asked(self.info.location, location, new.rows.vector)
        old_place = f"{self.driver.address.place}#{self.driver.name}"
        new_place = f"{new.driver.address.place}#{new.driver.name}"
        by_hand = f"in your programs, change {old_place} to {new_place} instead, and back to undo it"
        exchange = _of_names(self, new, by_hand) if self.driver.is_server else _of_folders(self, new, by_hand)
        old_rows, new_rows = self.rows, new.rows

        def prepare() -> None:
            with new_rows.driver.errors():
                new_rows.driver.prepare_switch(old_rows, new_rows)

        exchange.prepare = prepare
        return exchange


class CollectionRecords(StoreRecords):
    """The records of a collection; `identity` is what its name led to when it was opened."""

    def __init__(self, rows: OrderedRows, identity: Any) -> None:
        self._ordered = rows
        self._export = rows.export
        self._rows = rows.export.rows
        self._driver = self._rows.driver
        self._identity = identity
        self.collection = self._driver.name
        self.notices_vectors = self._rows.notices_vectors

    def documents(self, ids: Sequence[str]) -> dict[str, Document]:
        """Return the documents of some ids; of those that are gone, none."""
        return self._ordered.find_documents(list(dict.fromkeys(ids)), None)

    def vectors(self, ids: Sequence[str]) -> Batch:
        """Return the vectors of some ids, in their order; of those that are gone, none."""
        row_of, vectors = self._ordered.find_vectors(list(dict.fromkeys(ids)), None)
        present = [doc_id for doc_id in ids if doc_id in row_of]
        return Batch(present, vectors[[row_of[doc_id] for doc_id in present]])

    def put(self, ids: Sequence[str], vectors: Vectors) -> int:
        """Replace the vectors of some documents, unless another collection has come to the name."""
        info = self._export.info
        new = check_replacements(info, ids, vectors)
        if self.answering() != self._identity:
            raise other_there(info)
        self.refresh()
        with self._driver.errors():
            return self._rows.update(new) if new else 0

    def answering(self) -> Any:
        """Return what has the name now, as a JSON value: another after a switch, None while one is under way."""
        with self._driver.errors():
            return self._driver.identity(self._driver.name)

    def refresh(self) -> None:
        """Forget exported vectors that the database may have replaced without a new version."""
        self._ordered.refresh()


class CollectionSearcher(StoreSearcher):
    """The search of a collection by its database, with what clients raise as lines of ours."""

    def __init__(self, info: StoreInfo, search: DatabaseSearch) -> None:
        self.info = info
        self._search = search
        self._driver: Driver = search.rows.driver
        self.has_own_index = search.has_own_index

    def search(self, queries: Vectors, k: int, where: Any = None) -> list[Hits]:
        """Search by the database; `where` is a filter as its client takes it."""
        queries = check_queries(self.info, queries)
        if k <= 0 or not len(queries):
            return [as_hits((), ()) for _ in queries]
        try:
            with self._driver.errors():
                return self._search.search(queries, k, where)
        except ClientError as error:
            if where is None:
                raise
            raise UsageError(f"{error}; is the filter right?") from error

    @property
    def setting(self) -> SearchSetting | None:
        """The parameter of searches that the database's client has."""
        with self._driver.errors():
            return self._search.setting

    def search_index(self, queries: Vectors, k: int, effort: int | None = None) -> list[Hits]:
        """Search by the database, a part of the queries at a time: a server may refuse too many at once."""
        queries = check_queries(self.info, queries)
        if k <= 0:
            return [as_hits((), ()) for _ in queries]
        with self._driver.errors():
            parts = (self._search.search_index(part, k, effort) for part in in_parts(queries, _ASKED_AT_ONCE))
            return [hits for part in parts for hits in part]


def _of_names(old: DatabaseStore, new: DatabaseStore, by_hand: str) -> Exchange:
    """Return how collections of a server trade names."""
    names = old.driver.server_names
    if new.driver.server != old.driver.server or not isinstance(names, TradedNames):
        raise UsageError(f"{new.info.location}: names are traded on one server, by databases that can; {by_hand}")
    _refuse_switch(old.rows, new.rows)
    return Exchange(names, old.driver.name, new.driver.name)


def _of_folders(old: DatabaseStore, new: DatabaseStore, by_hand: str) -> Exchange:
    """Return how folders with one collection each trade places."""
    location = new.info.location
    if new.driver.is_server:
        raise UsageError(f"{location}: the old store is in a folder, the new one on a server; {by_hand}")
    collection = old.driver.traits.collection
    for store in (old, new):
        names = _names(store.driver)
        if names != [old.driver.name]:
            raise UsageError(
                f"{store.info.location}: its folder holds {', '.join(names)}, and whole folders are switched, with "
                f"the {collection} {old.driver.name} alone; {by_hand}"
            )
    # other databases name their files by themselves; programs open one that is a file by its name
    if old.driver.traits.copies_place and {*new.driver.files()} != {*old.driver.files()}:
        raise UsageError(f"{location}: its files have other names, and whole folders are switched; {by_hand}")
    _refuse_switch(old.rows, new.rows)
    return Folders.exchange(old.driver.folder, new.driver.folder, excluded=old.driver.files())


def _refuse_switch(old: DatabaseRows, new: DatabaseRows) -> None:
    with old.driver.errors():
        old.driver.refuse_switch(old, new)


def _names(driver: Driver) -> list[str]:
    with driver.errors():
        return driver.names()


def is_of(store: Store, driver: type[Driver]) -> TypeGuard[DatabaseStore]:
    """Return whether a driver of this class reads a store, so that its records are copied whole."""
    return isinstance(store, DatabaseStore) and type(store.driver) is driver


def database_writer(driver: Driver, source: Store, folder: Path, dim: int) -> StoreWriter:
    """Return a writer of a collection, which the driver writes once all rows are there."""
    old = source.export if is_of(source, type(driver)) else None
    with driver.errors():
        driver.refuse_write(dim, None if old is None else old.rows)

    def complete(rows: Rows, _shards: ShardFolder) -> Written:
        """Write the collection: a copy if the source is of the same database, else its documents."""
        name = _unpublished_name(driver, folder)
        counted = partial(count_pieces, stage="write the store", total=rows.count, size=_page_size)
        with driver.errors():
            if old is not None:
                pages = (replace(page, vectors=rows.take(at)) for page, at in old.whole_pages())
                remarks = tuple(driver.write_copy(name, dim, old.rows, with_rests(counted(pages))))
            else:
                lost = left_behind(source)
                new_pages = with_rests(counted(_pages_of(source, rows)))
                written = driver.write_new(name, dim, source.info, new_pages)
                remarks = (*lost, *written)
        return Written(order=_order_of_ids(source), remarks=remarks)

    return StoreWriter(dim, complete)


def _unpublished_name(driver: Driver, folder: Path) -> str:
    """Return the name that a collection is written under: on a server not its final one."""
    names = driver.server_names
    if names is None or not driver.is_server:
        return driver.name
    return names.staging(token_in(folder) or new_token(folder))


def _order_of_ids(source: Store) -> NDArray[np.int64] | None:
    """Return the order of the ids; None if the source has that itself."""
    if isinstance(source, DatabaseStore):
        return None
    keys = [doc_id.encode() for batch in source.scan() for doc_id in batch.ids]
    return np.array(sorted(range(len(keys)), key=keys.__getitem__), np.int64)


def _page_size(page: Page) -> int:
    return len(page.ids)


def _pages_of(source: Store, rows: Rows) -> Iterator[Page]:
    documents = source_documents(source)
    for _, vectors in rows.batches(1_000):
        chunk = list(islice(documents, len(vectors)))
        yield Page([document.id for document in chunk], vectors.copy(), documents=chunk)
