"""Two names of a database's server that trade what they lead to, in one call of the driver."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from migrate.files import reach
from migrate.stores.driver import Driver
from migrate.stores.switching import Exchange, Record, moved, others, unfinished


class NameExchange(Exchange):
    """Two names of a server that trade what they lead to; the driver records it.

    Parameters
    ----------
    driver
        Of the old store, or of any location on its server.
    old, new
        The names.
    """

    def __init__(self, driver: Driver, old: str, new: str) -> None:
        self.driver, self.old, self.new = driver, old, new

    @classmethod
    def at(cls, driver: Driver) -> NameExchange | None:
        """Return the exchange that is recorded of a name."""
        with driver.errors():
            noted = driver.noted(driver.name)
        return None if noted is None else cls(driver, *noted["aliases"])

    def record(self) -> Record | None:
        """See `Exchange.record`."""
        with self.driver.errors():
            noted = self.driver.noted(self.old)
        return None if noted is None else noted["record"]

    def switch(self, record: Record) -> None:
        """Record which is which, and let the names trade."""
        driver = self.driver
        with self._alone():
            noted = driver.noted(self.old)
            if noted is None:
                for name in (self.old, self.new):
                    if (old := driver.switched_with(name)) is not None:
                        raise moved(f"{driver.server}#{name}", old)
                self.check()
                self.prepare()
                identities = {"old": driver.identity(self.old), "new": driver.identity(self.new)}
                noted = {"aliases": [self.old, self.new], **identities}
            driver.note(self.old, {**noted, "record": dict(record)})
            reach("noted")
            driver.swap({self.old: noted["new"], self.new: noted["old"]})
        reach("exchanged")

    def rollback(self) -> None:
        """Let the names trade back."""
        with self._alone():
            noted = self.driver.noted(self.old)
            if noted is not None:
                self.driver.swap({self.old: noted["old"], self.new: noted["new"]})
                reach("exchanged")
                self.driver.note(self.old, None)

    def forget(self) -> None:
        """Drop the store that stepped aside, with its name."""
        driver = self.driver
        with self._alone():
            noted = driver.noted(self.old)
            if noted is None or driver.identity(self.old) != noted["new"]:
                raise unfinished(driver.location)
            found = driver.identity(self.new)
            if found not in (None, noted["old"]):
                raise others(driver.location)
            if found is not None:
                driver.drop(self.new)
                reach("exchanged")
            driver.note(self.old, None)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with self.driver.errors(), self.driver.alone((self.old, self.new)):
            yield
