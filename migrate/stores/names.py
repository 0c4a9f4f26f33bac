"""Two names of a database's server that trade what they lead to, in one call of the driver."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from migrate.files import atomic_file, output_errors, reach, state_folder, write_json
from migrate.stores.driver import Driver
from migrate.stores.switching import RECORD_SHAPE, Exchange, Record, moved, others, read_notes, unfinished

_SWITCH_SHAPE: Final = {"aliases": tuple[str, str], "old": Any, "new": Any, "server": str, "record": RECORD_SHAPE}


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
        digest = hashlib.sha256(f"{driver.server}#{old}".encode()).hexdigest()[:32]
        self._notes = _switches() / f"{digest}.json"

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
                    raise moved(f"{self.driver.server}#{name}", old)
            self.check()
            self.prepare()
            old, new = self._identity(self.old), self._identity(self.new)
            noted = {"aliases": [self.old, self.new], "old": old, "new": new}
        with output_errors(self._notes):
            self._notes.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(self._notes, force=True) as aside:
            write_json(aside, {**noted, "server": self.driver.server, "record": dict(record)})
        reach("noted")
        self._swap({self.old: noted["new"], self.new: noted["old"]})

    def rollback(self) -> None:
        """Let the names trade back."""
        noted = self._read()
        if noted is not None:
            self._swap({self.old: noted["old"], self.new: noted["new"]})
            self._notes.unlink(missing_ok=True)

    def forget(self) -> None:
        """Drop the store that stepped aside, with its name."""
        noted = self._read()
        if noted is None or self._identity(self.old) != noted["new"]:
            raise unfinished(self.driver.location)
        found = self._identity(self.new)
        if found not in (None, noted["old"]):
            raise others(self.driver.location)
        if found is not None:
            with self.driver.errors():
                self.driver.drop(self.new)
            reach("exchanged")
        self._notes.unlink(missing_ok=True)

    def _identity(self, name: str) -> Any:
        with self.driver.errors():
            return self.driver.identity(name)

    def _swap(self, wanted: Mapping[str, Any]) -> None:
        with self.driver.errors():
            self.driver.swap(wanted)
        reach("exchanged")

    def _read(self) -> dict[str, Any] | None:
        return read_notes(self._notes, _SWITCH_SHAPE) if self._notes.is_file() else None


def switched_with(driver: Driver, name: str) -> str | None:
    """Return the old name of the switch that this machine has recorded a name of; None if there is none."""
    for path in sorted(_switches().glob("*.json")):
        noted = read_notes(path, _SWITCH_SHAPE)
        if noted["server"] == driver.server and name in noted["aliases"]:
            return str(noted["aliases"][0])
    return None


def _switches() -> Path:
    return state_folder() / "switches"
