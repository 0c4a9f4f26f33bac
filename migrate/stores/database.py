"""Stores in databases: everything that one driver a database has in common.

A driver is one file, `migrate/stores/NAME.py`, with one class and a line in `registry.py`: `DatabaseKind(MyDriver)`.
`location` is `KIND:PLACE#NAME?OPTION=VALUE`, `address` its parts; nothing is opened before it is asked for.

    open()                  choose collection and columns; set `name`, `without_vector`, what the rest needs
    describe()              a StoreInfo without manifest: count of records with a vector, dim, metric, notes, details
    key, version()          what decides ids and vectors beside the version; a value that changes with every write
    pages(vectors, records) all records with a vector, in the same order each time, as `Page`s in bounded memory;
                            `records`: whole, in `Page.raw`, and those without a vector too, at their place or at the end
    documents(ids, at)      in any order, without those that are gone; as they are now, or, with `at`, as in `pages`
    vectors(ids, at)        likewise. `at` is the position of each among the ids of `pages`: use it, or ignore it
    search, update          by the database's own means; several threads call them at once
    write(name, ...)        make the collection in the place of what a killed run left, fill and index it, make it
                            durable, count it. `like` is the source's driver if it is of this class: copy its settings
                            and `page.raw` with the new `page.vectors`; else write `page.documents`. Returns remarks
    names(), files()        collections of the place; names in a folder that belong to this one (folders only)
    token, publish, drop, leftovers, identity, swap       servers only, see each

Capabilities are class attributes: `has_folders`, `has_servers`, `swaps`, `notices_vectors` (False: the version does not
change with a vector, so that exports are never used again), `is_copy`. A `read_version()` that differs from `version()`
is that of a copy, or of a version that was pinned when it was opened. Import the client inside functions, by
`import_client`; turn whatever it raises into one line. A driver must hold no reference to its store. Everything else
(rows in the order of ids, slices, snapshots, what changed, resuming, folders and servers, switching) is done here.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from migrate.errors import LeadMigrateError, LockedError, StoreError, UsageError
from migrate.files import (
    atomic_file,
    canonical_json,
    output_errors,
    reach,
    require_room,
    sha256_file,
    state_folder,
    work_folder,
    write_json,
)
from migrate.locations import Address
from migrate.manifest import Manifest, StoreFacts, find_manifest
from migrate.stores.base import (
    BATCH_SIZE,
    FROM_THE_START,
    KindSupport,
    RecordStore,
    Resume,
    Snapshot,
    Store,
    StoreInfo,
    StoreWriter,
)
from migrate.stores.binary_reader import read_exactly
from migrate.stores.documents.base import LazyIds
from migrate.stores.file_store import Sha256
from migrate.stores.kept import kept_folder, manifest_of, new_token, stamp, token_in
from migrate.stores.outputs import FolderOutput, Output, ServerOutput
from migrate.stores.records import WaitingWriter, check_options
from migrate.stores.serving import Hits, as_hits, check_queries, check_replacements, other_there
from migrate.stores.switching import (
    BESIDE,
    RECORD_SHAPE,
    Exchange,
    FolderExchange,
    Record,
    moved,
    others,
    read_notes,
    unfinished,
)
from migrate.vectors import Batch, Document, Vectors

_FLOAT_BYTES: Final = 4
_LARGE: Final = 4
"""Rows are looked up one by one until one in so many was; then all vectors are exported."""
_WAIT_S: Final = 0.1
_TOLD_BYTES: Final = 256 << 20
"""Exports of this size are announced in the notes of a store."""
_SWITCH_SHAPE: Final = {"aliases": tuple[str, str], "old": Any, "new": Any, "server": str, "record": RECORD_SHAPE}


@dataclass(frozen=True, slots=True)
class Page:
    """Some records of a collection.

    `ids` are those of the records with a vector, `vectors` theirs, (len(ids), dim). `raw` is whatever the driver that
    read the page needs to write all its records again; `documents` are there instead when another kind is written.
    """

    ids: Sequence[str]
    vectors: Vectors
    raw: Any = None
    documents: Sequence[Document] = ()


class Driver(ABC):
    """One collection or table of a database, or one that is to be written.

    Parameters
    ----------
    location
        For messages, with the kind and without secrets.
    address
        Its parts. The name is empty for the only collection of a place.
    """

    kind: ClassVar[str]
    support: ClassVar[KindSupport]
    collection: ClassVar[str] = "collection"
    """The database's word for what has a name."""
    options: ClassVar[tuple[str, ...]] = ()
    """Options of a location that is read."""
    write_options: ClassVar[tuple[str, ...]] = ()
    """Options of a location that is written, which the manifest records."""
    has_folders: ClassVar[bool] = True
    has_servers: ClassVar[bool] = True
    swaps: ClassVar[bool] = False
    """True if two names of a server can trade what they lead to, see `swap`."""
    documents_at_once: ClassVar[int] = 1_000

    name: str
    without_vector: int = 0
    """Records that have no vector, and so are no documents here."""

    def __init__(self, location: str, address: Address) -> None:
        self.location, self.address, self.name = location, address, address.name

    @property
    def is_server(self) -> bool:
        """True if the place is a URL."""
        return "://" in self.address.place

    @property
    def folder(self) -> Path:
        """The folder that the place is, or lies in."""
        return Path(self.address.place)

    @property
    def is_copy(self) -> bool:
        """True if a copy is read and searched that was made when it was opened."""
        return False

    @property
    def notices_vectors(self) -> bool:
        """True if the version changes when a vector does."""
        return True

    @classmethod
    def recognises(cls, path: Path) -> bool:  # noqa: ARG003
        """Return whether a path that exists belongs to this database; looks at as little as that needs."""
        return False

    @abstractmethod
    def names(self) -> list[str]:
        """Return the collections of the place, sorted."""

    # Reading.

    @abstractmethod
    def open(self) -> None:
        """Find the collection and choose its columns.

        Raises
        ------
        StoreError
            There is none, or no such column; the message lists those that exist.
        UsageError
            The client is not installed, or an option has no meaning.
        RemoteError
            The server does not answer.
        """

    @abstractmethod
    def describe(self) -> StoreInfo:
        """Return what there is; manifest and location are filled in by the store."""

    @property
    @abstractmethod
    def key(self) -> str:
        """Everything beside the version that decides which ids and vectors are read: place, name, columns."""

    @abstractmethod
    def version(self) -> Any:
        """Return a JSON value that changes with every write; the database is asked each time."""

    def read_version(self) -> Any:
        """Return the version that `pages` reads."""
        return self.version()

    @abstractmethod
    def pages(self, *, vectors: bool = True, records: bool = False) -> Iterator[Page]:
        """Read all records in the same order each time.

        Parameters
        ----------
        vectors
            Read vectors; without, `Page.vectors` is empty.
        records
            Read whole records, into `Page.raw`, those without a vector too.
        """

    @abstractmethod
    def documents(self, ids: Sequence[str], at: NDArray[np.int64] | None = None) -> Iterable[Document]:
        """Return the documents of some different ids, in any order; as they are now, or, with `at`, as in `pages`."""

    @abstractmethod
    def vectors(self, ids: Sequence[str], at: NDArray[np.int64] | None = None) -> Batch:
        """Return the vectors of some different ids, likewise."""

    @abstractmethod
    def search(self, queries: Vectors, k: int, where: Any) -> list[Hits]:
        """Return the nearest `k` documents of each query; see `Searchable`. There is a query, and `k` is positive."""

    @abstractmethod
    def update(self, new: Mapping[str, Vectors]) -> int:
        """Replace the vectors of those ids that exist and have one, durably; return how many."""

    def identity(self, name: str) -> Any:
        """Return what a name leads to, as a JSON value; changes after a switch. None if it leads nowhere."""
        return ""

    @property
    def opened_as(self) -> str:
        """What the manifest of a copy records, so that the copy is opened as this one: name and options."""
        return self.name

    def successor(self, ending: str) -> str | None:
        """Return a location for a new store like this one on the same server."""
        return f"{self.location.partition('#')[0]}#{self.name}-{ending}" if self.is_server else None

    # What this tool leaves beside a store.

    def beside(self) -> Path | None:
        """Return the folder with manifest, confidence and model state; None if there can be none."""
        return kept_folder(self.token(self.name)) if self.is_server else self.folder

    def manifest(self) -> Manifest | None:
        """Return the manifest of the store. On a server the folder was found by the store's own token."""
        folder = self.beside()
        if folder is None or not self.is_server:
            return manifest_of(folder, self.name)
        return find_manifest(folder, "store")

    def keep_manifest(self, manifest: Manifest) -> Path | str:
        """Write a manifest beside the store; return where."""
        return stamp(self.beside(), self.name, self.location, manifest)

    def files(self) -> Collection[str]:
        """Return the names in the folder that belong to the database and to no other collection."""
        return ()

    # Writing.

    @abstractmethod
    def write(
        self, name: str, dim: int, source: StoreInfo, like: Driver | None, pages: Iterator[Page]
    ) -> Iterable[str]:
        """Write a collection in the place of whatever a killed run left; return remarks on what differs.

        Parameters
        ----------
        name
            Of the collection; on a server the final one plus a token.
        dim
            Of the new vectors.
        source
            Of the store that the documents are from: metric, distance.
        like
            The driver that read the pages, if it is of this class.
        pages
            Of `like`, with vectors of the new dimension; or of documents.
        """

    # Servers.

    def token(self, name: str) -> str | None:
        """Return the token of the collection that a name leads to; None if this tool has not made it."""
        return None

    def staging(self, token: str) -> str:
        """Return the name that a new collection has until it is published."""
        return f"{self.name}-{token}"

    def is_published(self, content: Path) -> bool:
        """Return whether the store with the files in `content`, or any if they are gone, has the final name."""
        found = self.token(self.name) if self.identity(self.name) is not None else None
        expected = token_in(content)
        return found is not None if expected is None else found == expected

    def publish(self, staging: str, content: Path) -> None:
        """Give a collection the final name, in one step where the database can; drop the one that had it."""
        raise NotImplementedError

    def drop(self, name: str) -> None:
        """Delete the collection that a name leads to, the name, and what was kept for it on this machine."""
        raise NotImplementedError

    def leftovers(self) -> list[str]:
        """Return unpublished collections of the final name, which killed runs left."""
        return []

    def refuse_swap(self, new: Driver) -> None:
        """Raise UsageError if this collection and the new one cannot trade names."""

    def swap(self, wanted: Mapping[str, Any]) -> None:
        """Let each name lead to what has this identity; raises InputError if these are gone. Safe to repeat."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class Index:
    """The ids of a collection, sorted by their bytes in UTF-8. Rows are positions in it.

    `content` are the ids one after another, `ends` where each of them ends, after a zero; `order` is the position of
    each among the ids of `Driver.pages`.
    """

    content: bytes
    ends: NDArray[np.int64]
    order: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.order)

    @classmethod
    def of(cls, ids: Iterable[str], source: str) -> Index:
        """Sort ids.

        Raises
        ------
        StoreError
            An id comes twice, or is no Unicode text.
        """
        keys = np.array([*(_encoded(doc_id, source) for doc_id in ids), b""], object)[:-1]
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        if (twice := np.flatnonzero(keys[1:] == keys[:-1])).size:
            raise StoreError(f"{source}: expected a different id for each document, found {keys[twice[0]].decode()!r} "
                             "twice")  # fmt: skip
        return cls(b"".join(keys), np.cumsum([0, *map(len, keys)], dtype=np.int64), order.astype(np.int64))

    @classmethod
    def load(cls, path: Path) -> Index | None:
        """Read a saved index; None if there is none, or it is damaged."""
        with suppress(Exception), path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            return cls(file["content"].tobytes(), file["ends"], file["order"])
        return None

    def save(self, path: Path) -> None:
        """Write it as one file."""
        with path.open("wb") as file:
            np.savez(file, content=np.frombuffer(self.content, np.uint8), ends=self.ends, order=self.order)

    def ids(self, rows: range | NDArray[np.int64]) -> list[str]:
        """Return the ids of some rows, in their order."""
        numbers = np.asarray(rows, np.int64)
        ends = zip(self.ends[numbers].tolist(), self.ends[numbers + 1].tolist(), strict=True)
        return [self.content[start:stop].decode() for start, stop in ends]

    @cached_property
    def rows(self) -> NDArray[np.int64]:
        """The row of each record, in the order of `Driver.pages`."""
        return np.argsort(self.order)

    @cached_property
    def sha256(self) -> str:
        """A hash of the ids."""
        return hashlib.sha256(self.ends.tobytes() + self.content).hexdigest()


def _encoded(doc_id: str, source: str) -> bytes:
    try:
        return doc_id.encode()
    except UnicodeEncodeError as error:
        raise StoreError(f"{source}: the id {doc_id!r} is no Unicode text; give the document another") from error


class VectorFile:
    """Vectors in the order of rows, float32, in a file that stays readable after its name is gone."""

    def __init__(self, path: Path, descriptor: int, dim: int) -> None:
        self.path, self.dim, self._file = path, dim, descriptor
        weakref.finalize(self, os.close, descriptor)

    def put(self, rows: NDArray[np.int64], vectors: Vectors) -> None:
        """Write vectors, (len(rows), dim), to their rows."""
        for part, first in _runs(rows):
            os.pwrite(self._file, np.ascontiguousarray(vectors[part], "<f4").tobytes(), first * self.dim * _FLOAT_BYTES)

    def sync(self) -> None:
        """Make what was written durable."""
        os.fsync(self._file)

    def get(self, rows: NDArray[np.int64]) -> Vectors:
        """Read the vectors of some rows, in any order."""
        vectors = np.empty((len(rows), self.dim), "<f4")
        for part, first in _runs(rows):
            vectors[part] = self._slice(first, len(part))
        return vectors.astype(np.float32, copy=False)

    def scan(self, start: int, stop: int) -> Vectors:
        """Read rows `start` to `stop`, not included."""
        return self._slice(start, stop - start).astype(np.float32, copy=False)

    def _slice(self, first: int, count: int) -> Vectors:
        vectors = np.empty((count, self.dim), "<f4")
        if count:
            content = vectors.reshape(-1).view(np.uint8).data
            read_exactly(self.path, self._file, content, first * self.dim * _FLOAT_BYTES)
        return vectors


def _runs(rows: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.intp], int]]:
    """Split rows into runs of successive ones: the places of each run, and its first row."""
    order = np.argsort(rows, kind="stable")
    breaks = np.flatnonzero(np.diff(rows[order]) != 1) + 1
    yield from ((part, int(rows[part[0]])) for part in np.split(order, breaks) if len(part))


class DatabaseStore(RecordStore):
    """A collection that a driver reads. Rows are in the order of the ids, sorted by their bytes.

    Ids are read when they are first needed, and all vectors once more than a few are: both are exported into the work
    folder (`migrate.files.work_folder`), where later processes find them while the version stays.
    """

    def __init__(self, driver: Driver, location: str) -> None:
        self.driver = driver
        driver.open()
        self.info = replace(driver.describe(), location=location, manifest=driver.manifest())
        if (size := self.export_bytes) >= _TOLD_BYTES:
            told = f"to be read whole it is first exported: {size / 1e9:.1f} GB in {work_folder()} (--work-folder)"
            self.info = replace(self.info, notes=(*self.info.notes, told))
        self.opened_as = driver.opened_as
        self.without_vector, self.is_copy = driver.without_vector, driver.is_copy
        self.notices_vectors = driver.notices_vectors
        self._identity = driver.identity(driver.name)
        self._looked_up = 0
        self._file: VectorFile | None = None
        self._texts: str | None = None

    @property
    def export_bytes(self) -> int:
        """Size of the exported vectors."""
        return self.info.count * self.info.dim * _FLOAT_BYTES

    # The export.

    @cached_property
    def _opened_at(self) -> Any:
        return self.driver.read_version()

    @cached_property
    def _folder(self) -> Path:
        """Where the export of this version is; those of others are removed when it is made."""
        source, version = (hashlib.sha256(canonical_json(part).encode(errors="surrogatepass")).hexdigest()[:24]
                           for part in (f"{self.driver.kind}:{self.driver.key}", self._opened_at))  # fmt: skip
        folder = work_folder() / "exports" / f"{source}-{version}"
        if not folder.is_dir():
            with output_errors(folder):
                folder.mkdir(parents=True, exist_ok=True)
            for old in folder.parent.glob(f"{source}-*"):
                if old != folder:
                    shutil.rmtree(old, ignore_errors=True)
        return folder

    @cached_property
    def index(self) -> Index:
        """The ids."""
        path = self._folder / "ids.npz"
        index = Index.load(path)
        if index is None or len(index) != self.info.count:
            ids = (doc_id for page in self.driver.pages(vectors=False) for doc_id in page.ids)
            index = Index.of(ids, self.driver.location)
            if len(index) != self.info.count:
                raise self._changed()
            with suppress(LockedError), atomic_file(path, force=True) as aside:
                index.save(aside)
        return index

    @property
    def _vectors(self) -> VectorFile:
        """The exported vectors, made when first asked for."""
        if self._file is None:
            self._file = self._kept_file() if self.driver.notices_vectors else self._passing_file()
        return self._file

    def _kept_file(self) -> VectorFile:
        """A file that later processes use again."""
        path = self._folder / "vectors.f32"
        while not path.is_file() or path.stat().st_size != self.export_bytes:
            require_room(path, self.export_bytes)
            try:
                with atomic_file(path, force=True) as aside:
                    self._fill(VectorFile(aside, os.open(aside, os.O_RDWR | os.O_CLOEXEC), self.info.dim))
                    if self.driver.read_version() != self._opened_at:
                        raise self._changed()
            except LockedError:  # another process exports the same
                time.sleep(_WAIT_S)
        with output_errors(path):
            return VectorFile(path, os.open(path, os.O_RDONLY | os.O_CLOEXEC), self.info.dim)

    def _passing_file(self) -> VectorFile:
        """A file that is gone with the store: nothing would tell when its vectors are out of date."""
        with output_errors(self._folder):
            descriptor, path = tempfile.mkstemp(dir=self._folder)
            os.unlink(path)
        file = VectorFile(Path(path), descriptor, self.info.dim)
        require_room(file.path, self.export_bytes)
        self._fill(file)
        return file

    def _fill(self, file: VectorFile) -> None:
        start = 0
        with output_errors(file.path):
            for page in self.driver.pages():
                rows = self._rows_of(page, start)
                file.put(rows, page.vectors)
                start += len(rows)
            file.sync()
        if start != self.info.count:
            raise self._changed()

    def _rows_of(self, page: Page, start: int) -> NDArray[np.int64]:
        """The rows of a page whose first record is at position `start`; raises if these are other records."""
        rows = self.index.rows[start : start + len(page.ids)]
        if self.index.ids(rows) != list(page.ids):
            raise self._changed()
        return rows

    def copied_pages(self, writer: DatabaseWriter) -> Iterator[Page]:
        """All pages with whole records, and the vectors that a writer has for them."""
        start = 0
        for page in self.driver.pages(vectors=False, records=True):
            rows = self._rows_of(page, start)
            yield replace(page, vectors=writer.vectors_at(rows))
            start += len(rows)

    def refresh(self) -> None:
        """Forget exported vectors that the database may have replaced without a new version."""
        if not self.driver.notices_vectors:
            self._file, self._looked_up, self._texts = None, 0, None

    # The store.

    def ids(self, rows: range | NDArray[np.int64]) -> list[str]:
        """Return the ids of some rows; no vector is read."""
        return self.index.ids(rows)

    def scan(self, start: int = 0, stop: int | None = None, *, batch_size: int = BATCH_SIZE) -> Iterator[Batch]:
        """Read the vectors of rows `start` to `stop` with their ids."""
        stop = self.info.count if stop is None else min(stop, self.info.count)
        self._looked_up += max(stop - start, 0)
        for first in range(start, stop, batch_size):
            rows = range(first, min(first + batch_size, stop))
            if self._is_exported():
                yield Batch(LazyIds(len(rows), partial(self.ids, rows)), self._vectors.scan(rows.start, rows.stop))
            else:
                yield self._looked_up_batch(np.asarray(rows, np.int64))

    def get(self, rows: NDArray[np.int64]) -> Batch:
        """Return the vectors and ids of some rows."""
        rows = np.asarray(rows, np.int64)
        self._looked_up += len(rows)
        return Batch(self.ids(rows), self._vectors.get(rows)) if self._is_exported() else self._looked_up_batch(rows)

    def _is_exported(self) -> bool:
        return self._file is not None or self._looked_up * _LARGE >= self.info.count

    def _looked_up_batch(self, rows: NDArray[np.int64]) -> Batch:
        unique, places = np.unique(rows, return_inverse=True)
        batch = self._read(self.ids(unique), self.index.order[unique])
        return Batch(self.ids(rows), batch.vectors[places])

    def _read(self, ids: Sequence[str], at: NDArray[np.int64] | None) -> Batch:
        """The vectors of different ids, in their order."""
        if not ids:
            return Batch([], np.empty((0, self.info.dim), np.float32))
        read = self.driver.vectors(ids, at)
        places = {doc_id: place for place, doc_id in enumerate(read.ids)}
        self._refuse_gone(ids, places)
        return Batch(ids, np.ascontiguousarray(read.vectors[[places[doc_id] for doc_id in ids]], np.float32))

    def documents(self, rows: NDArray[np.int64] | None = None) -> Iterator[Document]:
        """Read the documents of some rows, or of all."""
        if not self.info.has_texts:
            raise StoreError(f"{self.info.location}: the store holds no texts; {self.info.way_to_texts}")
        return self._documents(np.arange(self.info.count) if rows is None else np.asarray(rows, np.int64))

    def _documents(self, rows: NDArray[np.int64]) -> Iterator[Document]:
        for first in range(0, len(rows), self.driver.documents_at_once):
            part = rows[first : first + self.driver.documents_at_once]
            unique = np.unique(part)
            read = self.driver.documents(self.ids(unique), self.index.order[unique])
            documents, ids = {document.id: document for document in read}, self.ids(part)
            self._refuse_gone(ids, documents)
            yield from (documents[doc_id] for doc_id in ids)

    def find_documents(self, ids: Sequence[str]) -> dict[str, Document]:
        """Return the documents of some ids as they are now; of those that are gone, none."""
        return {document.id: document for document in self.driver.documents(list(dict.fromkeys(ids)))}

    def find_vectors(self, ids: Sequence[str]) -> Batch:
        """Return the vectors of some ids as they are now, in their order; raises `StoreError` if one is gone."""
        unique = list(dict.fromkeys(ids))
        rows = {doc_id: row for row, doc_id in enumerate(unique)}
        return Batch(ids, self._read(unique, None).vectors[[rows[doc_id] for doc_id in ids]])

    def _refuse_gone(self, ids: Iterable[str], found: Collection[str]) -> None:
        gone = next((doc_id for doc_id in ids if doc_id not in found), None)
        if gone is not None:
            raise StoreError(
                f"{self.info.location}: document {gone!r} was deleted while the store was read; run again on a store "
                "at rest"
            )

    @property
    def folder(self) -> Path | None:
        """The folder with what lies beside the store."""
        return self.driver.beside() if self.info.manifest else None

    def keep_manifest(self, manifest: Manifest) -> Path | str:
        """Write a manifest beside the store."""
        return self.driver.keep_manifest(manifest)

    def successor(self, ending: str) -> str | None:
        """Return a location on the same server."""
        return self.driver.successor(ending)

    def destination(self, location: Path, dim: int, resume: Resume = FROM_THE_START) -> StoreWriter:
        """Return a writer of a folder with a collection of the same name."""
        if not self.driver.has_folders:
            return super().destination(location, dim, resume)
        driver = type(self.driver)(str(location), Address(str(location), self.driver.name))
        return DatabaseWriter(driver, self, location, dim, resume)

    def strangers(self) -> list[str]:
        """Return other collections of the folder, and files that are not the database's."""
        if self.driver.is_server or not self.driver.folder.is_dir():
            return []
        own = {*self.driver.files(), *BESIDE}
        files = [path.name for path in self.driver.folder.iterdir() if path.name not in own]
        names = [name for name in self.driver.names() if name != self.driver.name]
        return sorted({*files, *names})

    # What changed.

    def is_as_opened(self) -> bool:
        """Return whether no record came, went or changed since the store was first read."""
        return canonical_json(self.driver.version()) == canonical_json(self._opened_at)

    def check_unchanged(self, before: Snapshot) -> None:
        """Make sure that the store is still what it was; the message says what came and went."""
        self.refresh()
        if not self.is_as_opened() or self.snapshot() != before:
            raise self._changed()

    def _changed(self) -> StoreError:
        """The error of a store that was written to while it was read."""
        what = "records were changed"
        with suppress(LeadMigrateError):
            now = type(self.driver)(self.driver.location, self.driver.address)
            now.open()
            ids = {doc_id for page in now.pages(vectors=False) for doc_id in page.ids}
            if "index" in self.__dict__:
                before = set(self.ids(range(len(self.index))))
                what = _difference(before, ids)
        return StoreError(
            f"{self.info.location}: the store changed while it was read ({what}); nothing was written, run again"
        )

    def _texts_sha256(self) -> str:
        """Read once: texts may be most of a database."""
        if self._texts is None:
            self._texts = super()._texts_sha256()
        return self._texts

    def _versions(self) -> tuple[Any, ...]:
        return (self.index.sha256, self._opened_at)

    # Serving.

    def search(self, queries: Vectors, k: int, where: Any = None) -> list[Hits]:
        """See `Searchable`; `where` is a filter as the database's client takes it."""
        queries = check_queries(self.info, queries)
        if k > 0 and len(queries):
            return self.driver.search(queries, k, where)
        return [as_hits((), ()) for _ in queries]

    def put_vectors(self, ids: Sequence[str], vectors: Vectors) -> int:
        """See `Updatable`."""
        new = check_replacements(self.info, ids, vectors)
        if self.driver.identity(self.driver.name) != self._identity:
            raise other_there(self.info)
        self.refresh()
        return self.driver.update(new)

    def answering(self) -> Any:
        """See `Named`."""
        return self.driver.identity(self.driver.name)

    # Switching.

    def exchange(self, new: Store) -> Exchange:
        """Return how this store and a new one trade names: on a server, or as whole folders.

        Raises
        ------
        UsageError
            They cannot; the message names what the user has to change instead.
        """
        if not isinstance(new, DatabaseStore) or type(new.driver) is not type(self.driver):
            raise UsageError(f"{new.info.location}: this is another kind of store than {self.info.location}; name one "
                             "of the same kind")  # fmt: skip
        old_driver, new_driver = self.driver, new.driver
        if old_driver.is_server != new_driver.is_server:
            raise UsageError(
                f"{new.info.location}: one store is in a folder, the other on a server; {self._by_hand(new)}"
            )
        if old_driver.is_server:
            return NameExchange.of(self, new)
        for store in (self, new):
            if (names := store.driver.names()) != [old_driver.name]:
                raise UsageError(
                    f"{store.info.location}: its folder holds {', '.join(names)}, and whole folders are switched, with "
                    f"the {old_driver.collection} {old_driver.name} alone; {self._by_hand(new)}"
                )
        return FolderExchange.of(old_driver.folder, new_driver.folder, own=old_driver.files())

    def _by_hand(self, new: DatabaseStore) -> str:
        old_place, new_place = (f"{one.driver.address.place}#{one.driver.name}" for one in (self, new))
        return f"in your programs, change {old_place} to {new_place} instead, and back to undo it"

    def exchanged(self) -> Exchange | None:
        """See `Switchable`."""
        if self.driver.is_server:
            return NameExchange.at(self.driver) if self.driver.swaps else None
        return FolderExchange.at(self.driver.address.place)


def _difference(before: set[str], now: set[str]) -> str:
    """Say how many ids came and went, with a few of them."""
    added, gone = now - before, before - now
    if not added and not gone:
        return "records with the same ids were changed"
    examples = ", ".join(map(repr, sorted(added | gone)[:3]))
    return f"{len(added):,} documents were added and {len(gone):,} deleted, such as {examples}"


class DatabaseWriter(WaitingWriter):
    """Writes a collection by its driver once all rows are there.

    This is all that writing databases asks of rows that wait: `records` in order, some at a time, and `vectors_at`.
    """

    source: Store

    def __init__(self, driver: Driver, source: Store, folder: Path, dim: int, resume: Resume) -> None:
        super().__init__(source, folder, dim, resume)
        self._driver = driver

    def load(self) -> None:
        """Write the collection."""
        driver, source = self._driver, self.source
        name = driver.name if not driver.is_server else driver.staging(token_in(self.folder) or new_token(self.folder))
        like = source.driver if isinstance(source, DatabaseStore) and type(source.driver) is type(driver) else None
        pages = source.copied_pages(self) if isinstance(source, DatabaseStore) and like is not None else self._made()
        remarks = driver.write(name, self.rows.dim, source.info, like, pages)
        self.remarks = (*self.remarks, *remarks)

    def _made(self) -> Iterator[Page]:
        for documents, vectors in self.records():
            yield Page([document.id for document in documents], vectors, documents=documents)


class DatabaseFolder(FolderOutput):
    """A new folder with one collection, for documents of any kind."""

    def __init__(self, driver: type[Driver], location: str, address: Address) -> None:
        super().__init__(Path(address.place))
        self.location = location
        self._driver, self._name = driver, address.name

    def writer(self, source: Store, content: Path, dim: int, resume: Resume) -> StoreWriter:
        """Return a writer of the collection."""
        driver = self._driver(str(content), Address(str(content), self._name))
        return DatabaseWriter(driver, source, content, dim, resume)

    def facts(self, source: Store, content: Path, sha256: Sha256 = sha256_file) -> Mapping[str, Any]:
        """Return the name; the files have no hashes, as the database changes them by itself."""
        return StoreFacts(index=self._name).as_details()


class DatabaseServer(ServerOutput):
    """A new collection of a server. It is written under a name with a token, and gets the final one last."""

    def __init__(self, driver: type[Driver], location: str, address: Address) -> None:
        super().__init__(location, address.name)
        self._driver, self._address = driver, address

    def driver(self) -> Driver:
        """Return a driver with a connection of its own."""
        return self._driver(self.location, self._address)

    def writer(self, source: Store, content: Path, dim: int, resume: Resume) -> StoreWriter:
        """Return a writer of the collection under its unpublished name."""
        return DatabaseWriter(self.driver(), source, content, dim, resume)

    def facts(self, source: Store, content: Path, sha256: Sha256 = sha256_file) -> Mapping[str, Any]:
        """Return the name, and the options that it was asked for with."""
        options = dict(self._address.options) or None
        return StoreFacts(index=self._address.name, written_as=options).as_details()

    def refuse_existing(self, *, force: bool) -> None:
        """Make sure that the name is free, or leads to a collection that this tool made and nobody switched."""
        driver, name = self.driver(), self._address.name
        if driver.identity(name) is not None:
            if not force:
                raise UsageError(f"{self.location} exists; choose another output, or replace it with `force=True`")
            if driver.token(name) is None:
                raise UsageError(f"{self.location} exists and was not made by this tool; delete it, or choose another")
        if (old := switched_with(driver, name)) is not None:
            raise moved(self.location, old)

    def is_published(self, content: Path) -> bool:
        """See `Driver.is_published`."""
        return self.driver().is_published(content)

    def publish(self, content: Path, *, force: bool) -> None:
        """Give the collection its final name."""
        driver = self.driver()
        if driver.identity(driver.name) is not None:
            self.refuse_existing(force=force)
        driver.publish(driver.staging(str(token_in(content))), content)

    def discard(self) -> None:
        """Drop what killed runs left."""
        driver = self.driver()
        for name in driver.leftovers():
            driver.drop(name)


class NameExchange(Exchange):
    """Two names of a server that trade what they lead to. The record of it is kept on this machine.

    Parameters
    ----------
    driver
        Of the old store, or of any location on its server.
    old, new
        The names.
    """

    def __init__(self, driver: Driver, old: str, new: str) -> None:
        self.driver, self.old, self.new = driver, old, new
        digest = hashlib.sha256(f"{_server(driver)}#{old}".encode()).hexdigest()[:32]
        self._notes = _switches() / f"{digest}.json"

    @classmethod
    def of(cls, old: DatabaseStore, new: DatabaseStore) -> NameExchange:
        """Return the exchange of two stores; raises UsageError if their names cannot be traded."""
        old_server, new_server = _server(old.driver), _server(new.driver)
        if old_server != new_server:
            raise UsageError(f"{new.info.location}: expected a collection of {old_server}, found another server")
        if not old.driver.swaps:
            raise UsageError(f"{old.info.location}: {old.driver.kind} cannot rename a {old.driver.collection}; "
                             f"{old._by_hand(new)}")  # fmt: skip
        old.driver.refuse_swap(new.driver)
        return cls(old.driver, old.driver.name, new.driver.name)

    @classmethod
    def at(cls, driver: Driver) -> NameExchange | None:
        """Return the exchange that this machine has recorded of a name."""
        exchange = cls(driver, driver.name, "")
        noted = exchange._read()
        if noted is None:
            return None
        exchange.new = noted["aliases"][1]
        return exchange

    def record(self) -> Record | None:
        """See `Exchange.record`."""
        noted = self._read()
        return None if noted is None else noted["record"]

    def switch(self, record: Record) -> None:
        """Record which is which, and let the names trade."""
        noted = self._read()
        if noted is None:
            for name in (self.old, self.new):
                if (old := switched_with(self.driver, name)) is not None:
                    raise moved(f"{_server(self.driver)}#{name}", old)
            self.check()
            old, new = self.driver.identity(self.old), self.driver.identity(self.new)
            noted = {"aliases": [self.old, self.new], "old": old, "new": new}
        with output_errors(self._notes):
            self._notes.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(self._notes, force=True) as aside:
            write_json(aside, {**noted, "server": _server(self.driver), "record": dict(record)})
        reach("noted")
        self.driver.swap({self.old: noted["new"], self.new: noted["old"]})
        reach("exchanged")

    def rollback(self) -> None:
        """Let the names trade back."""
        noted = self._read()
        if noted is not None:
            self.driver.swap({self.old: noted["old"], self.new: noted["new"]})
            reach("exchanged")
            self._notes.unlink(missing_ok=True)

    def forget(self) -> None:
        """Drop the store that stepped aside, with its name."""
        noted = self._read()
        if noted is None or self.driver.identity(self.old) != noted["new"]:
            raise unfinished(self.driver.location)
        found = self.driver.identity(self.new)
        if found not in (None, noted["old"]):
            raise others(self.driver.location)
        if found is not None:
            self.driver.drop(self.new)
            reach("exchanged")
        self._notes.unlink(missing_ok=True)

    def _read(self) -> dict[str, Any] | None:
        return read_notes(self._notes, _SWITCH_SHAPE) if self._notes.is_file() else None


def switched_with(driver: Driver, name: str) -> str | None:
    """Return the old name of the switch that this machine has recorded a name of; None if there is none."""
    for path in sorted(_switches().glob("*.json")):
        noted = read_notes(path, _SWITCH_SHAPE)
        if noted["server"] == _server(driver) and name in noted["aliases"]:
            return str(noted["aliases"][0])
    return None


def _server(driver: Driver) -> str:
    return driver.location.partition("#")[0]


def _switches() -> Path:
    return state_folder() / "switches"


class DatabaseKind:
    """A database as a kind of stores, by its driver.

    Parameters
    ----------
    driver
        The class.
    scheme
        What locations begin with, if not with the driver's kind.
    """

    def __init__(self, driver: type[Driver], scheme: str | None = None) -> None:
        self.driver, self.name, self.support = driver, scheme or driver.kind, driver.support

    def recognises(self, path: Path) -> bool:
        """See `Driver.recognises`."""
        return self.driver.recognises(path)

    def names(self, path: Path) -> Sequence[str]:
        """Return the collections at a path."""
        return self.driver(str(path), Address(str(path))).names()

    def open(self, location: str) -> Store:
        """Open `PLACE#NAME?OPTION=VALUE`; the only collection of a place needs no name."""
        address = Address(location) if Path(location).exists() else Address.parse(location)
        return DatabaseStore(self.driver(self._checked(location, address, self.driver.options), address), location)

    def output(self, location: str) -> Output:
        """Return where a new collection goes; nothing is asked of a server yet."""
        address = Address.parse(location)
        whole = self._checked(location, address, self.driver.write_options)
        if not address.name or not address.place:
            raise UsageError(f"{whole}: the {self.driver.collection} has no name; add one after a #")
        kind = DatabaseServer if "://" in address.place else DatabaseFolder
        return kind(self.driver, whole, address)

    def exchange_left(self, location: str) -> Exchange | None:
        """Return the switch that is recorded of a location, where nothing may answer after a kill."""
        address = Address.parse(location)
        has_names = self.driver.swaps and "://" in address.place
        return NameExchange.at(self.driver(f"{self.name}:{location}", address)) if has_names else None

    def _checked(self, location: str, address: Address, options: Sequence[str]) -> str:
        whole, driver = f"{self.name}:{location}", self.driver
        check_options(whole, address.options, options)
        if "://" in address.place and not driver.has_servers:
            raise UsageError(f"{whole}: only folders of {driver.support.store} are read; copy the "
                             f"{driver.collection} to one")  # fmt: skip
        return whole
