"""The three contracts of a database: a place, the rows of one collection there, and their search.

A database is one file, `migrate/databases/NAME.py`: a `Driver` (place and names), whose `open` returns `DatabaseRows`,
whose `search` is a `DatabaseSearch`. `DatabaseKind(MyDriver)` in `KINDS` makes it a kind of stores. An ability of some
databases alone is an object that these hand out, or None: `Driver.server_names` (collections of a server, see
`server_names.py`) and `DatabaseRows.fields` (vectors of another model in the same records, see `added_fields.py`).

`location` is `KIND:PLACE#NAME?OPTION=VALUE`, `address` its parts; nothing is opened by a constructor. Each
object refers to the one that it came from, and never the other way: what a client holds goes with the last of them.
Import the client inside functions, by `import_client`. Raise errors of the tool where the user can do something;
whatever else the client raises becomes one line by `explain`, as all of this is called inside `Driver.errors()`. All
else (order, slices, snapshots, changes, resuming, outputs, switching) is in `store.py`, `ordered_rows.py`, `kind.py`,
and what those share whose clients write to folders in `clients.py`.
"""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from migrate.databases.located import Located
from migrate.databases.server_names import ServerNames
from migrate.errors import StoreError, UsageError
from migrate.files import atomic_file, output_errors, write_json
from migrate.locations import Address, options_text, path_remedy
from migrate.manifest import MANIFEST_NAME, Manifest, find_manifest
from migrate.stores.added_fields import AddedField, VectorFields
from migrate.stores.base import Companions, SearchSetting, StoreInfo, no_place
from migrate.stores.kept import kept_folder, sync_tree
from migrate.stores.records import Distance, read_metric
from migrate.stores.serving import Hits
from migrate.vectors import Document, Vectors

_Items = TypeVar("_Items", bound=Any)
READ_AT_ONCE: Final = 1_000
"""Records that are read at a time where a database says nothing else."""


@dataclass(frozen=True, slots=True)
class Page:
    """A part of the records of a collection.

    `ids` are those of the records with a vector, `vectors` theirs, as the client gives them; (len(ids), dim), float32,
    for `Driver.write_copy` and `write_new`. `raw` is whatever `pages` needs to have all its records written again;
    `documents` are there instead when another kind is written.
    """

    ids: Sequence[str]
    vectors: Any
    raw: Any = None
    documents: Sequence[Document] = ()


class Driver(Located, ABC):
    """A place, and the names of the collections in it."""

    @classmethod
    def recognises(cls, path: Path) -> bool:  # noqa: ARG003 - of databases that lie in no path, none is
        """Return whether a path that exists belongs to this database; looks at as little as that needs."""
        return False

    @abstractmethod
    def names(self) -> list[str]:
        """Return the collections of the place, sorted."""

    @abstractmethod
    def open(self) -> DatabaseRows:
        """Find the collection and choose its columns; errors list those that exist. `name` is its name from then on."""

    def files(self) -> Collection[str]:
        """Return the names in the folder that belong to the database and to no other collection."""
        return ()

    @contextmanager
    def at_one_moment(self) -> Iterator[Driver]:
        """Yield a driver whose collection stays as it is now while programs write; this one if there is no such."""
        yield self

    @property
    def opened_as(self) -> str:
        """Name and options, by which the manifest of a copy says how it is opened as this one."""
        return self.name

    def refuse_write(self, dim: int, old: Any) -> None:
        """Raise UsageError for what `write_copy` (of `old`) or `write_new` (None) would refuse.

        Asked before any vector is made or paid for.
        """

    @abstractmethod
    def write_new(self, name: str, dim: int, source: StoreInfo, pages: Iterator[Page]) -> Iterable[str]:
        """Write a collection of documents in the place of whatever a killed run left, indexed, durable and counted.

        Returns remarks on what differs.

        Parameters
        ----------
        name
            Of the collection; on a server that of `ServerNames.staging`.
        dim
            Of the vectors.
        source
            Of the store that the documents are from: metric, distance.
        pages
            With documents and their vectors.
        """

    @abstractmethod
    def write_copy(self, name: str, dim: int, old: Any, pages: Iterator[Page]) -> Iterable[str]:
        """Write a collection with the settings and records of `old`, the rows of another one of this database.

        As `write_new`; `pages` are those of `old`, whole records, with vectors of the new dimension.
        """

    @property
    def server_names(self) -> ServerNames | None:
        """The collections of a server, of a database that has servers to write to."""
        return None

    def refuse_switch(self, old: Any, new: Any) -> None:
        """Raise UsageError if the rows of this place and new ones cannot trade names, or their folders places."""

    def prepare_switch(self, old: Any, new: Any) -> None:
        """Change what the new rows, of this place, say of their model before they answer for the old ones."""


class DatabaseRows(ABC):
    """The records of one collection, open.

    Attributes that a driver sets: `dim`, of the vectors; `distance`; `text` and `vector`, the fields or columns with
    texts and vectors, `vector` empty where they have no name; `without_vector`, how many records have none, and so are
    no documents here. `name` is that of the collection, `records_name` without that of a field. `is_copy` is True if a
    copy is read and searched that was made when it was opened. `notices_vectors` is False if the version does not
    change with a vector: an export is then not used again.
    """

    at_once: ClassVar[int] = READ_AT_ONCE
    """Records that are read at a time: ids that `documents` and `vectors` are asked for, and pages of a server."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.location = driver.location
        self.name = driver.name
        self.records_name = driver.name
        self.dim = 0
        self.distance: Distance | None = None
        self.text: str | None = None
        self.vector = ""
        self.without_vector = 0
        self.is_copy = False
        self.notices_vectors = True

    @abstractmethod
    def describe(self) -> StoreInfo:
        """Return what there is; the store fills in manifest and location."""

    @property
    @abstractmethod
    def key(self) -> str:
        """Everything beside the version that decides which ids and vectors are read: place, name, columns."""

    @abstractmethod
    def version(self, *, of_pages: bool = False) -> Any:
        """Return a JSON value that changes with every write; the database is asked each time.

        With `of_pages` it is that of what `pages` reads, where that is a copy or pinned.
        """

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
    def update(self, new: Mapping[str, Vectors]) -> int:
        """Replace the vectors of those ids that exist and have one, durably; return how many."""

    @property
    @abstractmethod
    def search(self) -> DatabaseSearch:
        """The search of these records, asked for once they are described."""

    @property
    def fields(self) -> VectorFields | None:
        """The fields of vectors of the records; None where the database adds none."""
        return None

    @property
    def companions(self) -> DatabaseCompanions:
        """Its companions."""
        return DatabaseCompanions(self)


class DatabaseSearch(ABC):
    """The search of the rows of a collection; several threads ask it at once."""

    has_own_index: bool = True
    """See `StoreSearcher.has_own_index`; True also where it compares all vectors, as only the database knows when."""

    def __init__(self, rows: Any) -> None:
        self.rows = rows

    @abstractmethod
    def search(self, queries: Vectors, k: int, where: Any) -> list[Hits]:
        """Return the nearest `k` documents of each query, see `StoreSearcher.search`; neither is zero."""

    @property
    def setting(self) -> SearchSetting | None:
        """See `StoreSearcher.setting`."""
        return None

    def search_index(self, queries: Vectors, k: int, effort: int | None) -> list[Hits]:
        """See `StoreSearcher.search_index`; neither the queries nor `k` are zero."""
        return self.search(queries, k, None)


class DatabaseCompanions(Companions):
    """Manifest, confidence and model state beside a store: in its folder, or in one of this machine for a server."""

    def __init__(self, rows: DatabaseRows) -> None:
        self.rows = rows

    def folder(self) -> Path | None:
        """Return the folder that they are in; None if there can be none."""
        rows = self.rows
        names = rows.driver.server_names
        if rows.fields is not None and added_field(rows) is not None:
            return rows.fields.folder_of(rows.vector)
        if names is not None and rows.driver.is_server:
            return kept_folder(names.token(rows.driver.name))
        return rows.driver.folder

    def has_place(self) -> bool:
        """Return whether there is a folder: a server that does not say which collection it is has none."""
        return self.folder() is not None

    def manifest(self) -> Manifest | None:
        """Return the manifest of the store; not that of another collection in its folder."""
        manifest = self._manifest_in(self.folder())
        # on a server it was found by the token, whatever name leads there
        is_found = self.rows.driver.is_server or added_field(self.rows) is not None
        if is_found or self._is_own(manifest):
            return manifest
        return None

    def keep(self, manifest: Manifest) -> Path | str:
        """Write a manifest beside the store; return where."""
        with self.rows.driver.errors():
            return self.write(manifest)

    def write(self, manifest: Manifest) -> Path | str:
        """Write a manifest, where the client's errors are turned into lines of ours."""
        folder = self.folder()
        if folder is None:
            raise no_place(self.rows.location)
        path = folder / MANIFEST_NAME
        if path.exists() and not self._is_own(self._manifest_in(folder)):
            raise UsageError(f"{path} is of another store; name the model of this one with every command")
        details = {**manifest.details, "index": self.rows.driver.opened_as}
        with atomic_file(path, force=True) as temporary:
            write_json(temporary, replace(manifest, details=details).as_json())
        return path

    def _manifest_in(self, folder: Path | None) -> Manifest | None:
        return None if folder is None else find_manifest(folder, "store")

    def _is_own(self, manifest: Manifest | None) -> bool:
        """Return whether a manifest names this collection, with options or without."""
        if manifest is None:
            return False
        # options say how a collection is read, not which it is
        name = (manifest.store.index or "").partition("?")[0]
        return name == self.rows.driver.opened_as.partition("?")[0]


def added_field(rows: DatabaseRows) -> AddedField | None:
    """Return the field that is read, if it was added beside another."""
    return None if rows.fields is None else rows.fields.added().get(rows.vector)


def open_field(rows: DatabaseRows, field: str) -> DatabaseRows:
    """Open another field of the same records."""
    return driver_of_field(rows, field).open()


def driver_of_field(rows: DatabaseRows, field: str) -> Driver:
    """Return a driver of another field of the same records, not opened yet."""
    driver = rows.driver
    options = {**driver.address.options, "vector": field}
    location = f"{driver.server}#{rows.records_name}{options_text(options)}"
    return type(driver)(location, Address(driver.address.place, rows.records_name, options))


def described(
    rows: DatabaseRows,
    index_type: str,
    count: int,
    sample: Any,
    *,
    details: Mapping[str, str | int | None],
    notes: Iterable[str],
    has_texts: bool | None = None,
) -> StoreInfo:
    """Return the facts of a collection, of which some vectors are a `sample`; absent details are left out."""
    if has_texts is None:
        has_texts = rows.text is not None
    metric, odd = read_metric(rows.distance, np.asarray(sample, np.float32).reshape(len(sample), rows.dim))
    if is_lossy(index_type):
        notes = (*notes, f"searched by an index {index_type}, which is lossy; those read here are whole")
    return StoreInfo(
        location=rows.location,
        kind=rows.driver.traits.kind,
        index_type=index_type,
        count=count,
        dim=rows.dim,
        metric=metric,
        exact=True,
        has_texts=has_texts,
        notes=(*odd, *notes),
        details={name: value for name, value in details.items() if value is not None and value != ""},
    )


def is_lossy(index_type: str) -> bool:
    """Return whether an index searches codes in the place of vectors, by its name."""
    # such as IVF_PQ, IVF_HNSW_SQ and IVF_RABITQ
    return any(code in index_type.upper() for code in ("PQ", "SQ", "RQ", "RABITQ", "SCANN"))


def require_folder(driver: Driver) -> None:
    """Make sure that the folder is one of the database."""
    if not driver.recognises(driver.folder):
        remedy = path_remedy(driver.address.place)
        raise StoreError(f"{driver.location}: there is no folder of {driver.traits.support.store}; {remedy}")


def clear_folder(driver: Driver) -> None:
    """Remove what a killed run left in the folder of a new collection."""
    if driver.is_server or driver.shares_folder:
        return
    with output_errors(driver.folder):
        for path in [driver.folder / name for name in driver.files()]:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)


def sync_folder(driver: Driver) -> None:
    """Wait for the disk, unless whoever writes the folder does."""
    if not driver.shares_folder:
        sync_tree(driver.folder)


def check_count(location: str, written: int, count: int) -> None:
    """Make sure that a new collection holds what was written to it."""
    if count != written:
        raise StoreError(f"{location}: {written} records were written, but it holds {count}; run again")


def in_parts(items: _Items, size: int = READ_AT_ONCE) -> Iterator[_Items]:
    """Cut a list or an array into parts of one size, the last of what is left."""
    return (items[first : first + size] for first in range(0, len(items), size))
