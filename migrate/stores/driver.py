"""The class that the driver of each database fills in.

A driver is one file, `migrate/stores/NAME.py`, with one class; `DatabaseKind(MyDriver)` in `registry.py` makes it a
kind of stores. `location` is `KIND:PLACE#NAME?OPTION=VALUE`, `address` its parts; nothing is opened by the constructor.
The methods that are abstract are those that every driver has; those below `Servers` are of servers alone.

Class attributes and properties say what a database can: `has_servers`, `urls`, `swaps`, `copies_place`; that its
version does not change with a vector (`notices_vectors`: an export is then not used again); that a copy is read
(`is_copy`).
Import the client inside functions, by `import_client`. Raise errors of the tool where the user can do something;
whatever else the client raises becomes one line by `explain`, as drivers are called inside `errors()`. A driver must
not refer to its store. All else (rows, slices, snapshots, changes, resuming, outputs, switching) is in `database.py`,
and what drivers share whose clients write to folders in `clients.py`.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Final, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from migrate.errors import LeadMigrateError, StoreError, UsageError
from migrate.files import atomic_file, disk_errors, output_errors, state_folder, write_json
from migrate.locations import Address, options_text, scrub, secrets_of
from migrate.manifest import MANIFEST_NAME, Manifest, find_manifest
from migrate.stores.added_fields import AddedField, VectorFields
from migrate.stores.base import KindSupport, SearchSetting, StoreInfo, no_place
from migrate.stores.kept import kept_folder, sync_tree, token_in
from migrate.stores.records import Distance, choose, read_metric
from migrate.stores.serving import Hits
from migrate.stores.switching import RECORD_SHAPE, Places, read_noted
from migrate.vectors import Document, Vectors

_Items = TypeVar("_Items", bound=Any)
_SWITCH_SHAPE: Final = {"aliases": tuple[str, str], "old": Any, "new": Any, "server": str, "record": RECORD_SHAPE}


class ClientError(StoreError):
    """An error of a client that its driver knows no more of."""


@dataclass(frozen=True, slots=True)
class Page:
    """A part of the records of a collection.

    `ids` are those of the records with a vector, `vectors` theirs, as the client gives them; (len(ids), dim), float32,
    for `Driver.write`. `raw` is whatever the driver that read the page needs to write all its records again;
    `documents` are there instead when another kind is written.
    """

    ids: Sequence[str]
    vectors: Any
    raw: Any = None
    documents: Sequence[Document] = ()


class Driver(Places):
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
    name_rule: ClassVar[tuple[str, str]] = ("(?s:.+)", "any")
    """The pattern of names that the database takes, and that in words."""
    options: ClassVar[tuple[str, ...]] = ()
    """Options of a location that is read."""
    write_options: ClassVar[tuple[str, ...]] = ()
    """Options of a location on a server that is written, which the manifest records."""
    has_servers: ClassVar[bool] = True
    urls: ClassVar[tuple[str, ...]] = ()
    """Beginnings of the places of a database that has servers alone."""
    swaps: ClassVar[bool] = False
    """True if two names of a server can trade what they lead to, see `swap`."""
    copies_place: ClassVar[bool] = False
    """True if a copy is one of the whole place, with the other collections in it."""
    at_once: ClassVar[int] = 1_000
    """Records that are read at a time: ids that `documents` and `vectors` are asked for, and pages of a server."""

    dim: int
    distance: Distance | None
    text: str | None = None
    """The field or column with the texts."""
    vector: str = ""
    """The field or column with the vectors; empty where they have no name."""
    without_vector: int = 0
    """Records that have no vector, and so are no documents here."""
    shares_folder: bool = False
    """True if `write` leaves what is in the folder; whoever writes there waits for the disk."""

    def __init__(self, location: str, address: Address) -> None:
        self.location, self.address, self.name = location, address, address.name

    @property
    def is_server(self) -> bool:
        """True if the place is a URL."""
        return "://" in self.address.place

    @property
    def server(self) -> str:
        """The location without the name."""
        return self.location.partition("#")[0]

    @property
    def whole_place(self) -> str:
        """The URL, or the folder in full."""
        return self.address.place if self.is_server else str(self.folder.absolute())

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
    def recognises(cls, path: Path) -> bool:  # noqa: ARG003 - of databases that lie in no path, none is
        """Return whether a path that exists belongs to this database; looks at as little as that needs."""
        return False

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turn whatever the client raises into one line."""
        try:
            with nullcontext() if self.is_server else disk_errors(Path(self.location)):
                yield
        except LeadMigrateError:
            raise
        except BaseException as error:
            # a client written in Rust may panic, which Python does not count as an Exception
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            message = " ".join(scrub(str(error)).split())[:300] or type(error).__name__
            raise self.explain(error, message) from error

    def explain(self, error: BaseException, message: str) -> LeadMigrateError:
        """Return what is raised in the place of a client's error, whose message in one line is `message`."""
        return ClientError(f"{self.location}: {self.support.store} says: {message}; see to that, and run again")

    def secret(self, variable: str) -> str | None:
        """Return the token or key of the server: that of the location, or of a variable of the environment."""
        secrets = secrets_of(self.location)
        return secrets.get("token") or secrets.get("api_key") or os.environ.get(variable)

    def choose_name(self, names: Sequence[str]) -> str:
        """Return the name that is asked for, or the only one; raises StoreError if there is neither."""
        return choose(self.location, self.collection, names, self.address.name, "name one after a #")

    def require_folder(self) -> None:
        """Make sure that the folder is one of the database."""
        if not self.recognises(self.folder):
            raise StoreError(f"{self.location}: there is no folder of {self.support.store}; check the path")

    @abstractmethod
    def names(self) -> list[str]:
        """Return the collections of the place, sorted."""

    # Reading.

    @abstractmethod
    def open(self) -> None:
        """Find the collection and choose its columns; errors list those that exist."""

    @abstractmethod
    def describe(self) -> StoreInfo:
        """Return what there is; the store fills in manifest and location."""

    def described(
        self,
        index_type: str,
        count: int,
        sample: Any,
        *,
        details: Mapping[str, str | int | None],
        notes: Iterable[str],
        has_texts: bool | None = None,
    ) -> StoreInfo:
        """Return the facts of the collection, of which some vectors are a `sample`; absent details are left out."""
        metric, odd = read_metric(self.distance, np.asarray(sample, np.float32).reshape(len(sample), self.dim))
        if is_lossy(index_type):
            notes = (*notes, f"searched by an index {index_type}, which is lossy; those read here are whole")
        has_texts = self.text is not None if has_texts is None else has_texts
        details_set = {name: value for name, value in details.items() if value is not None and value != ""}
        return StoreInfo(self.location, self.kind, index_type, count, self.dim, metric, True, has_texts,
                         notes=(*odd, *notes), details=details_set)  # fmt: skip

    @property
    @abstractmethod
    def key(self) -> str:
        """Everything beside the version that decides which ids and vectors are read: place, name, columns."""

    @abstractmethod
    def version(self) -> Any:
        """Return a JSON value that changes with every write; the database is asked each time."""

    def read_version(self) -> Any:
        """Return the version that `pages` reads, if that is of a copy or pinned."""
        return self.version()

    @abstractmethod
    def pages(self, *, vectors: bool = True, records: bool = False) -> Iterator[Page]:
        """Read all records in bounded memory, in the same order each time; a scan may work on a page before the next.

        Parameters
        ----------
        vectors
            Read vectors; without, `Page.vectors` is not looked at.
        records
            Read whole records, into `Page.raw`, those without a vector too, in place or at the end.
        """

    @abstractmethod
    def documents(self, ids: Sequence[str], at: NDArray[np.int64] | None = None) -> Iterable[Document]:
        """Return the documents of some different ids that are there, at most `at_once`, in any order.

        They are as they are now, or, with `at`, as in `pages`: the position of each among the ids there.
        """

    @abstractmethod
    def vectors(self, ids: Sequence[str], at: NDArray[np.int64] | None = None) -> Page:
        """Return the vectors of some different ids, likewise."""

    @abstractmethod
    def search(self, queries: Vectors, k: int, where: Any) -> list[Hits]:
        """Return the nearest `k` documents of each query, see `Searchable`; neither is zero."""

    @property
    def has_own_index(self) -> bool:
        """See `Store.has_own_index`."""
        return True

    @property
    def setting(self) -> SearchSetting | None:
        """See `Store.setting`."""
        return None

    def search_index(self, queries: Vectors, k: int, effort: int | None) -> list[Hits]:
        """See `Store.search_index`; neither the queries nor `k` are zero."""
        return self.search(queries, k, None)

    @abstractmethod
    def update(self, new: Mapping[str, Vectors]) -> int:
        """Replace the vectors of those ids that exist and have one, durably; return how many."""

    def identity(self, name: str) -> Any:
        """Return what a name leads to, as a JSON value; changes after a switch. None if it leads nowhere."""
        return ""

    @property
    def opened_as(self) -> str:
        """Name and options, by which the manifest of a copy says how it is opened as this one."""
        return self.name

    def successor(self, ending: str) -> str | None:
        """Return a location for a new store like this one on the same server."""
        return f"{self.server}#{self.name}-{ending}" if self.is_server else None

    # Manifest, confidence and model state, which lie beside a store.

    def companion_folder(self) -> Path | None:
        """Return the folder that they are in; None if there can be none."""
        if self.fields is not None and self.added_field is not None:
            return self.fields.folder_of(self.vector)
        return kept_folder(self.token(self.name)) if self.is_server else self.folder

    def manifest(self) -> Manifest | None:
        """Return the manifest of the store; not that of another collection in its folder."""
        manifest = self._manifest_beside()
        # on a server it was found by the token, whatever name leads there
        is_found = self.is_server or self.added_field is not None
        return manifest if is_found or self._is_own(manifest) else None

    def _manifest_beside(self) -> Manifest | None:
        folder = self.companion_folder()
        return None if folder is None else find_manifest(folder, "store")

    def _is_own(self, manifest: Manifest | None) -> bool:
        """Return whether a manifest names this collection, with options or without."""
        name = None if manifest is None else (manifest.store.index or "").partition("?")[0]
        return name == self.opened_as.partition("?")[0]

    def keep_manifest(self, manifest: Manifest) -> Path | str:
        """Write a manifest beside the store; return where."""
        folder = self.companion_folder()
        if folder is None:
            raise no_place(self.location)
        path = folder / MANIFEST_NAME
        if path.exists() and not self._is_own(self._manifest_beside()):
            raise UsageError(f"{path} is of another store; name the model of this one with every command")
        with atomic_file(path, force=True) as temporary:
            write_json(temporary, replace(manifest, details={**manifest.details, "index": self.opened_as}).as_json())
        return path

    def files(self) -> Collection[str]:
        """Return the names in the folder that belong to the database and to no other collection."""
        return ()

    # Writing.

    @abstractmethod
    def write(self, name: str, dim: int, source: StoreInfo, old: Self | None, pages: Iterator[Page]) -> Iterable[str]:
        """Write a collection in the place of whatever a killed run left, indexed, durable and counted.

        Returns remarks on what differs.

        Parameters
        ----------
        name
            Of the collection; on a server that of `staging`.
        dim
            Of the new vectors.
        source
            Of the store that the documents are from: metric, distance.
        old
            The driver that read the pages, if it is of this class: its settings and `Page.raw` are copied.
        pages
            Of `old`, with vectors of the new dimension; or of documents.
        """

    def sync(self) -> None:
        """Wait for the disk, unless whoever writes the folder does."""
        if not self.shares_folder:
            sync_tree(self.folder)

    def clear(self) -> None:
        """Remove what a killed run left in the folder of a new collection."""
        if self.is_server or self.shares_folder:
            return
        with output_errors(self.folder):
            for path in [self.folder / name for name in self.files()]:
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)

    def check_count(self, written: int, count: int) -> None:
        """Make sure that a new collection holds what was written to it."""
        if count != written:
            raise StoreError(f"{self.location}: {written} records were written, but it holds {count}; run again")

    def refuse_write(self, dim: int, old: Self | None) -> None:
        """Raise UsageError for what `write` would refuse; asked before any vector is made or paid for."""

    def refuse_folders(self, new: Self) -> None:
        """Raise UsageError if the folders of this collection and the new one differ in more than the vectors."""

    # VectorFields: vectors of another model in the same records, beside those that are there.

    @property
    def fields(self) -> VectorFields | None:
        """The fields of vectors of the records; None where the database adds none."""
        return None

    @property
    def added_field(self) -> AddedField | None:
        """The field that is read, if it was added beside another."""
        return None if self.fields is None else self.fields.added().get(self.vector)

    @property
    def records_name(self) -> str:
        """The name of the collection without that of a field."""
        return self.name

    def of_field(self, field: str) -> Self:
        """Return a driver of another field of the same records, not opened yet."""
        options = {**self.address.options, "vector": field}
        location = f"{self.server}#{self.records_name}{options_text(options)}"
        return type(self)(location, Address(self.address.place, self.records_name, options))

    # Servers.

    def token(self, name: str) -> str | None:
        """Return the token of the collection that a name leads to; None if this tool has not made it."""
        return None

    def staging(self, token: str) -> str:
        """Return the name that a new collection has until it is published."""
        return f"{self.name}-{token}"

    def is_published(self, content: Path) -> bool:
        """Return whether the store with the files in `content`, or any if they are gone, has the final name."""
        token, expected = self.token(self.name) if self.identity(self.name) is not None else None, token_in(content)
        return token is not None and expected in (None, token)

    def publish(self, staging: str, content: Path) -> None:
        """Give a collection the final name, in one step if the database can, and drop the one that had it.

        The files in `content` are kept beside it, by `kept.keep` or in the database.
        """
        raise NotImplementedError

    def drop(self, name: str) -> None:
        """Delete the collection that a name leads to, the name, and what was kept for it on this machine."""
        raise NotImplementedError

    def leftovers(self) -> list[str]:
        """Return unpublished collections of the final name, which killed runs left."""
        return []

    def refuse_swap(self, new: Self) -> None:
        """Raise UsageError if this collection and the new one cannot trade names."""

    def prepare_switch(self, old: Self) -> None:
        """Change what this new collection says of its model, in a folder too, before it answers for the old one."""

    def swap(self, targets: Mapping[str, Any]) -> None:
        """Let each name lead to what has this identity; raises InputError if these are gone. Safe to repeat."""
        raise NotImplementedError

    @contextmanager
    def alone(self, names: Collection[str]) -> Iterator[None]:
        """Keep others from writing to some collections meanwhile, if the database can."""
        yield

    def switch_record(self, name: str) -> Mapping[str, Any] | None:
        """Return what `note` has recorded of the switch of an old name."""
        path = self._notes(name)
        return read_noted(path, path, _SWITCH_SHAPE) if path.is_file() else None

    def note(self, name: str, record: Mapping[str, Any] | None) -> None:
        """Record the switch of an old name, here on this machine; None removes the record."""
        path = self._notes(name)
        if record is None:
            path.unlink(missing_ok=True)
            return
        with output_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(path, force=True) as temporary:
            write_json(temporary, {**record, "server": self.server})

    def location_of(self, name: str) -> str:
        """Return the location of a name on the server."""
        return f"{self.server}#{name}"

    def switched_with(self, name: str) -> str | None:
        """Return the old name of the recorded switch that a name is part of; None if there is none."""
        for path in sorted(self._notes(name).parent.glob("*.json")):
            record = read_noted(path, path, _SWITCH_SHAPE)
            if record["server"] == self.server and name in record["aliases"]:
                return str(record["aliases"][0])
        return None

    def _notes(self, name: str) -> Path:
        digest = hashlib.sha256(f"{self.server}#{name}".encode()).hexdigest()[:32]
        return state_folder() / "switches" / f"{digest}.json"


def is_lossy(index_type: str) -> bool:
    """Return whether an index searches codes in the place of vectors, by its name."""
    return any(code in index_type.upper() for code in ("PQ", "SQ", "RQ", "RABITQ", "SCANN"))


def in_parts(items: _Items, size: int = Driver.at_once) -> Iterator[_Items]:
    """Cut a list or an array into parts of one size, the last of what is left."""
    return (items[first : first + size] for first in range(0, len(items), size))
