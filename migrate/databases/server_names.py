"""Collections of a server: new ones that are published last, and names that trade what they lead to.

A new collection has a name with a token until it is published. `TradedNames` are those of databases in which two names
can trade what they lead to in one step, or in steps that are safe to repeat.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Final

from migrate.databases.located import Located
from migrate.files import atomic_file, output_errors, state_folder, write_json
from migrate.stores.kept import token_in
from migrate.stores.switching import RECORD_SHAPE, Places, read_noted

_SWITCH_SHAPE: Final = {"aliases": tuple[str, str], "old": Any, "new": Any, "server": str, "record": RECORD_SHAPE}


class ServerNames(ABC):
    """The collections of a server, for the driver of one location there."""

    def __init__(self, driver: Located) -> None:
        self.driver = driver

    @abstractmethod
    def token(self, name: str) -> str | None:
        """Return the token of the collection that a name leads to; None if this tool has not made it."""

    def staging(self, token: str) -> str:
        """Return the name that a new collection has until it is published."""
        return f"{self.driver.name}-{token}"

    def is_published(self, content: Path) -> bool:
        """Return whether the store with the files in `content`, or any if they are gone, has the final name."""
        name = self.driver.name
        token = self.token(name) if self.driver.identity(name) is not None else None
        return token is not None and token_in(content) in (None, token)

    @abstractmethod
    def publish(self, staging: str, content: Path) -> None:
        """Give a collection the final name, in one step if the database can, and drop the one that had it.

        The files in `content` are kept beside it, by `kept.keep` or in the database.
        """

    @abstractmethod
    def drop(self, name: str) -> None:
        """Delete the collection that a name leads to, the name, and what was kept for it on this machine."""

    @abstractmethod
    def leftovers(self) -> list[str]:
        """Return unpublished collections of the final name, which killed runs left."""

    def successor(self, ending: str) -> str:
        """Return a location for a new store like this one on the same server."""
        return f"{self.driver.server}#{self.driver.name}-{ending}"


class TradedNames(ServerNames, Places):
    """Collections of a server of which two can trade names; a switch is recorded on this machine."""

    def errors(self) -> AbstractContextManager[None]:
        """Turn what the server refuses into one line."""
        return self.driver.errors()

    @contextmanager
    def alone(self, names: Collection[str]) -> Iterator[None]:
        """Keep others from writing to some collections meanwhile, if the database can."""
        yield

    def location_of(self, name: str) -> str:
        """Return the location of a name on the server."""
        return f"{self.driver.server}#{name}"

    def identity(self, name: str) -> Any:
        """Return what a name leads to."""
        return self.driver.identity(name)

    def switch_record(self, name: str) -> Mapping[str, Any] | None:
        """Return what `note` has recorded of the switch of an old name."""
        path = self._notes(name)
        return read_noted(path, path, _SWITCH_SHAPE) if path.is_file() else None

    def note(self, name: str, record: Mapping[str, Any] | None) -> None:
        """Record the switch of an old name; None removes the record."""
        path = self._notes(name)
        if record is None:
            path.unlink(missing_ok=True)
            return
        with output_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(path, force=True) as temporary:
            write_json(temporary, {**record, "server": self.driver.server})

    def switched_with(self, name: str) -> str | None:
        """Return the old name of the recorded switch that a name is part of; None if there is none."""
        for path in sorted(self._notes(name).parent.glob("*.json")):
            record = read_noted(path, path, _SWITCH_SHAPE)
            if record["server"] == self.driver.server and name in record["aliases"]:
                return str(record["aliases"][0])
        return None

    def _notes(self, name: str) -> Path:
        digest = hashlib.sha256(self.location_of(name).encode()).hexdigest()[:32]
        return state_folder() / "switches" / f"{digest}.json"
