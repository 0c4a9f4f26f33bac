"""Databases whose client writes to whatever folder it opens: folders are read from copies, and servers by name.

`AliasDriver` and `AliasNames` are for those whose servers know aliases: a collection that this tool makes there is
called NAME-TOKEN, and an alias NAME leads to it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sqlite3
import tempfile
import weakref
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar, Final

from migrate.databases.driver import DatabaseRows, Driver, require_folder, sync_folder
from migrate.databases.server_names import TradedNames
from migrate.databases.sqlite_read import read_only
from migrate.errors import StoreError, UsageError
from migrate.files import copy_file, output_errors, real_path, refuse_endless_in, work_folder
from migrate.locations import Address
from migrate.stores.kept import forget, keep
from migrate.stores.switching import not_switched


class FolderCopy:
    """A copy of a folder, with a client, which the open collections of that folder share; it goes with the last.

    `versions` are those of the collections when they were copied. `turn` keeps threads apart, which no client knows.
    """

    def __init__(self, folder: Path, versions: dict[str, Any], client: Any, end: Callable[[], object]) -> None:
        self.folder = folder
        self.versions = versions
        self.client = client
        self.turn = Lock()
        weakref.finalize(self, _end_copy, end, folder)


_ATTEMPTS: Final = 20
"""Copies of a folder that are begun, each anew where a program has written to it meanwhile."""
_COPIES: Final = weakref.WeakValueDictionary[tuple[object, ...], FolderCopy]()
"""The newest copy of each folder in this process."""


class ClientDriver(Driver):
    """A place that its client reads, a server or the copy of a folder.

    `collection_name` is the own name of the collection that is open, whatever alias leads to it.
    """

    lock: ClassVar[str | None] = None
    """The file by which the client keeps others out of a folder."""

    def __init__(self, location: str, address: Address) -> None:
        super().__init__(location, address)
        self.collection_name = address.name
        self.copy: FolderCopy | None = None
        """The copy of the folder that is read, until the folder itself is used."""
        self.copied: Mapping[str, Any] = {}
        """The versions of the collections of the folder when they were copied."""
        self._client: Any = None
        self._turn: Any = nullcontext()
        self._end: Callable[[], object] | None = None

    @abstractmethod
    def connect(self) -> Any:
        """Return a client of the server."""

    @abstractmethod
    def open_folder(self, folder: Path) -> tuple[Any, Callable[[], object]]:
        """Return a client of a folder, which writes to it, and what ends the client."""

    @abstractmethod
    def stored(self) -> Iterable[Path]:
        """Return the files in the folder that the collection may need, in use or not."""

    @abstractmethod
    def versions(self) -> dict[str, Any]:
        """Return facts of each collection of the folder that change with each write to it."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Delete the collection that a name leads to, and its aliases."""

    @property
    def client(self) -> Any:
        """The client of the server, or of a copy of the folder, which goes with the driver."""
        if self._client is not None:
            return self._client
        if self.is_server:
            self._client = self.connect()
        else:
            self._client = self._client_of_copy()
        return self._client

    def require_folder(self) -> None:
        """Make sure that the folder is one of the database."""
        require_folder(self)

    def _client_of_copy(self) -> Any:
        self.require_folder()
        # of each process its own: a client does not live through a fork
        key = (os.getpid(), type(self), real_path(self.folder), *sorted(self.address.options.items()))
        copy = _COPIES.get(key)
        if copy is None or not self.is_in(copy):
            copy = self._new_copy()
            _COPIES[key] = copy
        self.copy = copy
        self.copied = copy.versions
        self._turn = copy.turn
        return copy.client

    def is_in(self, copy: FolderCopy) -> bool:
        """Return whether the collection is in a copy as it is now."""
        return self.versions() == copy.versions

    def _new_copy(self) -> FolderCopy:
        copies = work_folder() / "copies"
        with output_errors(copies):
            copies.mkdir(parents=True, exist_ok=True)
            copy = Path(tempfile.mkdtemp(prefix=f"{self.traits.kind}-", dir=copies))
        try:
            with output_errors(copy):
                versions = self._copy_at_rest(copy)
                client, end = self.open_folder(copy)
        except BaseException:
            shutil.rmtree(copy, ignore_errors=True)
            raise
        return FolderCopy(copy, versions, client, end)

    def _copy_at_rest(self, copy: Path) -> dict[str, Any]:
        """Copy the folder as it is at one moment; return the version of each collection then."""
        for _ in range(_ATTEMPTS):
            shutil.rmtree(copy)
            copy.mkdir()
            # a file may have been merged into another meanwhile
            with suppress(FileNotFoundError):
                versions = self.versions()
                self.copy_to(copy, self.stored())
                if self.versions() == versions:
                    return versions
        raise StoreError(f"{self.location}: another program keeps writing to it; stop that, and run again")

    def copy_to(self, copy: Path, paths: Iterable[Path]) -> None:
        """Copy some files of the folder, a database of SQLite as it is at one moment."""
        for path in paths:
            target = copy / path.relative_to(self.folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            # what SQLite has in its journal would be left out by a copy of the file
            if path.suffix not in (".sqlite", ".sqlite3"):
                copy_file(path, target, durably=False)
                continue
            with sqlite_database(path, self.location) as source, closing(sqlite3.connect(target)) as connection:
                source.backup(connection)

    @property
    def turn(self) -> Any:
        """Keeps threads apart that use a folder, whose clients know none, and searches from a copy that is left."""
        return self._turn

    def leave_copy(self) -> FolderCopy | None:
        """Use the folder itself from now on; nobody else can open it until the store is gone.

        Returns the copy that was left, of which searches may still ask something; None if none was.
        """
        copy = self.copy
        if self._end is None and copy is not None:
            refuse_endless_in(self.folder)
            self._client, end = self.open_folder(self.folder)
            self._end = weakref.finalize(self, end)
            self.copy = None
        return copy

    @contextmanager
    def written_client(self) -> Iterator[Any]:
        """Yield the client of the server, or of the folder itself, which is durable at the end."""
        if self.is_server:
            yield self.client
            return
        with output_errors(self.folder):
            client, end = self.open_folder(self.folder)
            try:
                yield client
            finally:
                end()
            # the client leaves its lock behind
            if self.lock is not None:
                (self.folder / self.lock).unlink(missing_ok=True)
        sync_folder(self)


class ClientRows(DatabaseRows):
    """The records that a client reads. A server counts no changes; of a folder a copy is read."""

    driver: ClientDriver

    def __init__(self, driver: ClientDriver) -> None:
        super().__init__(driver)
        self.is_copy = not driver.is_server
        self.notices_vectors = not driver.is_server

    @abstractmethod
    def records(self) -> Iterable[Any]:
        """Read all but the vectors of a collection on a server."""

    def version(self, *, of_pages: bool = False) -> Any:
        """Return facts of the folder that change with each write. On a server, a hash of all but vectors."""
        driver = self.driver
        if driver.is_server:
            return [driver.identity(driver.name), *_hash(self.records())]
        versions = driver.copied if of_pages else driver.versions()
        if driver.collection_name not in versions:
            raise StoreError(f"{self.location}: the collection was deleted; run again")
        return versions[driver.collection_name]


class ClientNames(TradedNames):
    """The collections of a server, to which its client writes."""

    driver: ClientDriver

    def drop(self, name: str) -> None:
        """Delete a collection with its aliases."""
        token = self.token(name)
        self.driver.delete(name)
        forget(token)


class AliasDriver(ClientDriver):
    """A place with collections, which aliases may lead to."""

    joint: ClassVar[str] = "-"
    """Stands between the name of a new collection and its token."""

    @property
    @abstractmethod
    def storage(self) -> Path:
        """The file or folder with the collection's records."""

    @abstractmethod
    def collections(self) -> list[str]:
        """Return the collections of the place."""

    @abstractmethod
    def aliases(self) -> dict[str, str]:
        """Return the collection that each alias leads to."""

    @abstractmethod
    def lead(self, targets: Mapping[str, str]) -> None:
        """Let aliases, new or not, lead to collections."""

    def names(self) -> list[str]:
        """Return collections and aliases."""
        return sorted({*self.collections(), *self.aliases()})

    def collection_of(self, name: str) -> str:
        """Return the collection that a name leads to: its own, if it is no alias."""
        return self.aliases().get(name, name)

    def identity(self, name: str) -> Any:
        """Return the collection that a name leads to; in a folder, the number of its file or folder."""
        if self.is_server and name not in self.names():
            return None
        if self.is_server:
            return self.collection_of(name)
        with suppress(OSError):
            return self.storage.stat().st_ino
        return None

    @property
    def server_names(self) -> AliasNames:
        """Collections and aliases."""
        return AliasNames(self)

    def refuse_switch(self, old: Any, new: Any) -> None:
        """Refuse collections of a server: their names cannot be traded in one step."""
        if not self.is_server:
            return
        aliases = self.aliases()
        for driver in (old.driver, new.driver):
            if driver.name not in aliases:
                raise UsageError(
                    f"{driver.location}: this is a collection, and only aliases of {self.traits.support.store} are "
                    "switched; give it an alias, let your programs ask that, and switch the alias"
                )


class AliasNames(ClientNames):
    """The collections of a server, to which aliases lead."""

    driver: AliasDriver

    def staging(self, token: str) -> str:
        """Return the collection's own name."""
        return f"{self.driver.name}{self.driver.joint}{token}"

    def token(self, name: str) -> str | None:
        """Return the end of the collection's own name."""
        match = re.fullmatch(f".*{self.driver.joint}([0-9a-f]{{32}})", self.driver.collection_of(name), re.DOTALL)
        return match[1] if match else None

    def publish(self, staging: str, content: Path) -> None:
        """Let the alias lead to the collection; drop the one that it led to."""
        # before the name leads to the collection, as whoever finds that looks for its files
        keep(content, staging[-32:])
        self.driver.lead({self.driver.name: staging})
        for name in self.leftovers():
            self.drop(name)

    def leftovers(self) -> list[str]:
        """Return collections NAME-TOKEN that no alias leads to."""
        pattern = re.compile(re.escape(f"{self.driver.name}{self.driver.joint}") + "[0-9a-f]{32}")
        used = self.driver.aliases().values()
        return [name for name in self.driver.collections() if pattern.fullmatch(name) and name not in used]

    def swap(self, targets: Mapping[str, Any]) -> None:
        """Let aliases lead to collections."""
        aliases = self.driver.aliases()
        if not {aliases.get(alias) for alias in targets} <= set(targets.values()):
            raise not_switched(self.driver.location)
        self.driver.lead(targets)


@contextmanager
def sqlite_database(path: Path, location: str) -> Iterator[sqlite3.Connection]:
    """Yield a database of SQLite in the folder at a location, to read."""
    try:
        with read_only(path) as connection:
            yield connection
    except sqlite3.Error as error:
        raise StoreError(
            f"{location}: SQLite cannot read {path.name} ({error}); stop what writes to it, or copy it again"
        ) from error


def _end_copy(end: Callable[[], object], copy: Path) -> None:
    end()
    shutil.rmtree(copy, ignore_errors=True)


def _hash(records: Iterable[Any]) -> list[Any]:
    """Return the number of records and a hash of them as JSON."""
    digest = hashlib.sha256()
    count = 0
    for record in records:
        # a client may give what JSON has no word for, such as moments
        digest.update(json.dumps(record, sort_keys=True, default=repr).encode(errors="surrogatepass"))
        count += 1
    return [count, digest.hexdigest()]
