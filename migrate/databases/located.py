"""Location of a collection in a database: the place, its database, and words for what a client raises."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from migrate.errors import LeadMigrateError
from migrate.files import disk_errors
from migrate.locations import Address, scrub, secrets_of
from migrate.stores.base import KindSupport
from migrate.stores.records import choose
from migrate.stores.serving import ClientError


@dataclass(frozen=True, slots=True)
class DatabaseTraits:
    """Traits of a database: its name, and which locations and options it takes.

    Parameters
    ----------
    kind
        The name of the kind.
    support
        What is kept of a store, in words.
    collection
        The database's word for what has a name.
    name_rule
        The pattern of names that the database takes, and that in words.
    options
        Options of a location that is read.
    write_options
        Options of a location on a server that is written, which the manifest records.
    has_servers
        False of a database that lies in files and folders alone.
    urls
        Beginnings of the places of a database that has servers alone.
    copies_place
        True if a copy is one of the whole place, with the other collections in it.
    """

    kind: str
    support: KindSupport
    collection: str = "collection"
    name_rule: tuple[str, str] = ("(?s:.+)", "any")
    options: tuple[str, ...] = ()
    write_options: tuple[str, ...] = ()
    has_servers: bool = True
    urls: tuple[str, ...] = ()
    copies_place: bool = False


class Located:
    """A collection by its location, open or not, there or not.

    Parameters
    ----------
    location
        For messages, with the kind and without secrets.
    address
        Its parts. `name` is the one in it, empty for the only collection of a place until that is opened.
    """

    traits: ClassVar[DatabaseTraits]

    def __init__(self, location: str, address: Address) -> None:
        self.location = location
        self.address = address
        self.name = address.name
        self.shares_folder = False
        """True if a new collection comes beside others in the folder; whoever writes there waits for the disk."""

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
        store = self.traits.support.store
        return ClientError(f"{self.location}: {store} says: {message}; see to that, and run again")

    def secret(self, variable: str) -> str | None:
        """Return the token or key of the server: that of the location, or of a variable of the environment."""
        secrets = secrets_of(self.location)
        return secrets.get("token") or secrets.get("api_key") or os.environ.get(variable)

    def choose_name(self, names: Sequence[str]) -> str:
        """Return the name that is asked for, or the only one; raises StoreError if there is neither."""
        return choose(self.location, self.traits.collection, names, self.address.name, "name one after a #")

    def identity(self, name: str) -> Any:
        """Return what a name leads to, as a JSON value; changes after a switch. None if it leads nowhere."""
        return ""
