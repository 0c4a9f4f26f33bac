"""Databases such as Qdrant and Milvus: their folders are read from copies, and aliases lead to collections of a server.

A collection that this tool makes on a server is called NAME-TOKEN, and an alias NAME leads to it.
"""

from __future__ import annotations

import re
import weakref
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar

from migrate.errors import StoreError, UsageError
from migrate.files import output_errors
from migrate.stores.driver import Driver, hash_records, new_copy, remove_copy
from migrate.stores.kept import forget, keep, sync_tree
from migrate.stores.switching import others


class AliasDriver(Driver):
    """A collection, which an alias may lead to; `collection_name` is its own name."""

    swaps = True
    copies_folders = True
    joint: ClassVar[str] = "-"
    """Stands between the name of a new collection and its token."""
    lock: ClassVar[str]
    """The file by which the client keeps others out of a folder."""

    collection_name: str
    _end: Callable[[], object]
    _is_on_copy = True

    @abstractmethod
    def connect(self) -> Any:
        """Return a client of the server."""

    @abstractmethod
    def open_folder(self, folder: Path) -> tuple[Any, Callable[[], object]]:
        """Return a client of a folder, which writes to it, and what ends the client."""

    @abstractmethod
    def copy_to(self, copy: Path) -> Mapping[str, Any]:
        """Copy what all collections of the folder were at one moment; return the version of each."""

    @property
    @abstractmethod
    def storage(self) -> Path:
        """The file or folder with the collection's records."""

    @abstractmethod
    def storage_version(self, storage: Path) -> Any:
        """Return facts of a file or folder that change with each write."""

    @abstractmethod
    def records(self) -> Iterable[Any]:
        """Read all but the vectors of a collection on a server."""

    @abstractmethod
    def collections(self) -> list[str]:
        """Return the collections of the place."""

    @abstractmethod
    def aliases(self) -> dict[str, str]:
        """Return the collection that each alias leads to."""

    @abstractmethod
    def lead(self, wanted: Mapping[str, str]) -> None:
        """Let aliases, new or not, lead to collections."""

    @abstractmethod
    def delete(self, collection: str) -> None:
        """Delete a collection and its aliases."""

    @cached_property
    def client(self) -> Any:
        """The client of the server, or of a copy of the folder."""
        if self.is_server:
            return self.connect()
        with new_copy(self.kind) as copy:
            self._copied = self.copy_to(copy)
            client, end = self.open_folder(copy)
        self._end = weakref.finalize(self, remove_copy, end, copy)
        return client

    @cached_property
    def turn(self) -> Any:
        """Keeps threads apart that use a folder, whose clients know none, and searches from a copy that is left."""
        return nullcontext() if self.is_server else Lock()

    def leave_copy(self) -> None:
        """Use the folder itself from now on; nobody else can open it until the store is gone."""
        if self.is_server or not self._is_on_copy:
            return
        end_copy = self._end
        self.client, end = self.open_folder(self.folder)
        self._is_on_copy, self._end = False, weakref.finalize(self, end)
        end_copy()

    @contextmanager
    def written_client(self) -> Iterator[Any]:
        """Yield the client of the server, or of the folder, which is emptied first and durable at the end."""
        if self.is_server:
            yield self.client
            return
        self.clear()
        with output_errors(self.folder):
            client, end = self.open_folder(self.folder)
            try:
                yield client
            finally:
                end()
            (self.folder / self.lock).unlink(missing_ok=True)
        sync_tree(self.folder)

    def names(self) -> list[str]:
        """Return collections and aliases."""
        return sorted({*self.collections(), *self.aliases()})

    def collection_of(self, name: str) -> str:
        """Return the collection that a name leads to: its own, if it is no alias."""
        return self.aliases().get(name, name)

    def version(self) -> Any:
        """Return facts of the files that change with each write. On a server, a hash of all but vectors."""
        if self.is_server:
            return [self.collection_of(self.name), *hash_records(self.records())]
        if not self.storage.exists():
            raise StoreError(f"{self.location}: the collection was deleted; run again")
        return self.storage_version(self.storage)

    def read_version(self) -> Any:
        """Return the version when the copy was made."""
        return self.version() if self.is_server else self._copied[self.collection_name]

    def identity(self, name: str) -> Any:
        """Return the collection that a name leads to; in a folder, the number of its file or folder."""
        if self.is_server:
            return self.collection_of(name) if name in self.names() else None
        with suppress(OSError):
            return self.storage.stat().st_ino
        return None

    # Servers.

    def staging(self, token: str) -> str:
        """Return the collection's own name."""
        return f"{self.name}{self.joint}{token}"

    def token(self, name: str) -> str | None:
        """Return the end of the collection's own name."""
        return self._token_in(self.collection_of(name))

    def _token_in(self, collection: str) -> str | None:
        match = re.fullmatch(f".*{self.joint}([0-9a-f]{{32}})", collection, re.DOTALL)
        return match[1] if match else None

    def publish(self, staging: str, content: Path) -> None:
        """Let the alias lead to the collection; drop the one that it led to."""
        keep(content, str(self._token_in(staging)))
        self.lead({self.name: staging})
        for name in self.leftovers():
            self.drop(name)

    def drop(self, name: str) -> None:
        """Delete a collection with its aliases."""
        collection = self.collection_of(name)
        self.delete(collection)
        forget(self._token_in(collection))

    def leftovers(self) -> list[str]:
        """Return collections NAME-TOKEN that no alias leads to."""
        made = re.compile(re.escape(f"{self.name}{self.joint}") + "[0-9a-f]{32}")
        used = self.aliases().values()
        return [name for name in self.collections() if made.fullmatch(name) and name not in used]

    def refuse_swap(self, new: Driver) -> None:
        """Refuse collections: their names cannot be traded in one step."""
        aliases = self.aliases()
        for driver in (self, new):
            if driver.name not in aliases:
                raise UsageError(
                    f"{driver.location}: this is a collection, and only aliases of {self.support.store} are switched; "
                    "give it an alias, let your programs ask that, and switch the alias"
                )

    def swap(self, wanted: Mapping[str, Any]) -> None:
        """Let aliases lead to collections."""
        aliases = self.aliases()
        if not {aliases.get(alias) for alias in wanted} <= set(wanted.values()):
            raise others(self.location)
        self.lead(wanted)
