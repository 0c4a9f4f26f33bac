"""Databases as kinds of stores: how locations are read, and where new collections go."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from migrate.databases.driver import Driver
from migrate.databases.server_names import ServerNames, TradedNames
from migrate.databases.store import DatabaseStore, database_writer, is_of
from migrate.errors import UsageError
from migrate.files import already_exists
from migrate.locations import Address, options_text
from migrate.manifest import StoreFacts
from migrate.stores.base import Store
from migrate.stores.file_store import HashFile
from migrate.stores.kept import token_in
from migrate.stores.outputs import Form, Output, file_name, state_path
from migrate.stores.records import check_options, means_several
from migrate.stores.switching import Exchange, moved
from migrate.work.writer import StoreWriter


def _folder_output(driver: type[Driver], location: str, address: Address) -> Output:
    """Return a new folder with one collection, for documents of any kind."""
    form = Form(
        name=driver.traits.kind,
        open_writer=partial(_folder_writer, driver, address.name),
        facts=partial(_folder_facts, driver, address.name),
    )
    return Output(Path(address.place), location, form)


def _folder_writer(driver: type[Driver], name: str, source: Store, content: Path, dim: int) -> StoreWriter:
    return database_writer(driver(str(content), Address(str(content), name)), source, content, dim)


def _folder_facts(
    driver: type[Driver], name: str, source: Store, content: Path, _hash_of: HashFile
) -> Mapping[str, Any]:
    """Return how a collection is opened; the files have no hashes, as the database changes them by itself."""
    options = source.driver.address.options if is_of(source, driver) else {}
    return StoreFacts(index=driver(str(content), Address(str(content), name, options)).opened_as).as_details()


class CollectionOutput(Output):
    """A new collection of a server. It is written under a name with a token, and gets the final one last."""

    def __init__(self, driver: type[Driver], location: str, address: Address) -> None:
        name = file_name(address.name)
        form = Form(
            name=driver.traits.kind,
            open_writer=partial(_server_writer, driver, location, address),
            facts=partial(_server_facts, driver, address),
        )
        super().__init__(state_path(name, location), location, form, name=name)
        self._class = driver
        self._address = address

    @contextmanager
    def _names(self) -> Iterator[tuple[Driver, ServerNames]]:
        driver = self._class(self.location, self._address)
        names = driver.server_names
        if names is None:
            raise ValueError(f"{driver.traits.kind} has no servers")
        with driver.errors():
            yield driver, names

    def refuse_existing(self, *, force: bool) -> None:
        """Make sure that the name is free, or leads to a collection that this tool made and nobody switched."""
        with self._names() as (driver, names):
            exists = driver.identity(driver.name) is not None
            if exists and not force:
                raise already_exists(self.location)
            old = names.switched_with(driver.name) if isinstance(names, TradedNames) else None
            if old is not None:
                raise moved(self.location, old)
            if exists and names.token(driver.name) is None:
                raise UsageError(
                    f"{self.location} exists and was not made by this tool; delete it yourself, or choose another "
                    "output"
                )

    def drop(self) -> None:
        """Drop the collection, unless it was switched."""
        self.refuse_existing(force=True)
        with self._names() as (driver, names):
            names.drop(driver.name)

    def is_published(self, content: Path) -> bool:
        """See `ServerNames.is_published`."""
        with self._names() as (_, names):
            return names.is_published(content)

    def publish(self, content: Path, *, force: bool) -> None:
        """Give the collection its final name."""
        with self._names() as (driver, names):
            if driver.identity(driver.name) is not None:
                self.refuse_existing(force=force)
            names.publish(names.staging(str(token_in(content))), content)

    def discard(self) -> None:
        """Drop what killed runs left."""
        with self._names() as (_, names):
            for name in names.leftovers():
                names.drop(name)


def _server_writer(
    driver: type[Driver], location: str, address: Address, source: Store, content: Path, dim: int
) -> StoreWriter:
    """Return a writer of a collection under its unpublished name."""
    return database_writer(driver(location, address), source, content, dim)


def _server_facts(
    driver: type[Driver], address: Address, source: Store, _content: Path, _hash_of: HashFile
) -> Mapping[str, Any]:
    """Return the name, with the options that the source of a copy is opened with, and those of the location."""
    opened_as = source.info.opened_as or "" if is_of(source, driver) else ""
    index = f"{address.name}{''.join(opened_as.partition('?')[1:])}"
    return StoreFacts(index=index, written_as=dict(address.options) or None).as_details()


class DatabaseKind:
    """A database as a kind of stores, by its driver; `scheme` begins locations, if not the driver's kind."""

    def __init__(self, driver: type[Driver], scheme: str | None = None) -> None:
        self.driver = driver
        self.traits = driver.traits
        self.name = scheme or self.traits.kind
        self.support = self.traits.support
        self._before_place = f"{scheme}:" if scheme else ""

    def recognises(self, path: Path) -> bool:
        """See `Driver.recognises`."""
        return self.driver.recognises(path)

    def names(self, path: Path) -> Sequence[str]:
        """Return the collections at a path."""
        driver = self.driver(str(path), Address(str(path)))
        with driver.errors():
            return driver.names()

    def open(self, location: str) -> Store:
        """Open `PLACE#NAME?OPTION=VALUE`; the only collection of a place needs no name."""
        driver = self.driver_of(location)
        if "*" in driver.address.name:
            raise means_several(driver.location)
        return DatabaseStore(driver, location)

    def driver_of(self, location: str) -> Driver:
        """Return the driver of a location; nothing is opened yet."""
        address = Address(location) if Path(location).exists() else self.address_of(location)
        return self.driver(self._check(location, address, self.traits.options), address)

    def output(self, location: str) -> Output:
        """Return where a new collection goes; nothing is asked of a server yet."""
        opens, address = self.checked_output(location)
        if "://" in address.place:
            return CollectionOutput(self.driver, opens, address)
        return _folder_output(self.driver, opens, address)

    def checked_output(self, location: str) -> tuple[str, Address]:
        """Return how a new collection is opened, and its parts, if it has a name and its options mean something."""
        address = self.address_of(location)
        is_server = "://" in address.place
        whole = self._check(location, address, self.traits.write_options if is_server else ())
        if "*" in address.name:
            raise means_several(whole)
        if not address.name or not address.place:
            raise UsageError(f"{whole}: the new {self.traits.collection} has no name; add one after a #")
        pattern, in_words = self.traits.name_rule
        if not re.fullmatch(pattern, address.name):
            raise UsageError(
                f"{whole}: {self.traits.support.store} takes no {self.traits.collection} of the name {address.name!r}; "
                f"write one {in_words}"
            )
        read = {name: value for name, value in address.options.items() if name in self.traits.options}
        opens = f"{whole[: whole.rindex('#')]}#{address.name}{options_text(read)}"  # without those of writing alone
        return opens, address

    def find_exchange(self, location: str) -> Exchange | None:
        """Return the switch that is recorded of a name on a server, which nothing may answer to."""
        driver = self.driver_of(location)
        names = driver.server_names
        is_named = driver.is_server and driver.address.name
        return Exchange.at(names, driver.name) if isinstance(names, TradedNames) and is_named else None

    def address_of(self, location: str) -> Address:
        """Return the parts of a location; a scheme of its own is that of its URL too."""
        return Address.parse(f"{self._before_place}{location}")

    def _check(self, location: str, address: Address, options: Sequence[str]) -> str:
        """Return the whole location, if its options mean something and its place can be used."""
        whole = f"{self.name}:{location}"
        traits = self.traits
        # The location is left out, as it may have a password in it
        if traits.urls and not address.place.startswith(traits.urls):
            have = traits.support.locations[0]
            raise UsageError(f"this is not a location of {traits.support.store}; write {have}")
        check_options(whole, address.options, options)
        if "://" in address.place and not traits.has_servers:
            refusal = f"only folders of {traits.support.store} are read"
            raise UsageError(f"{whole}: {refusal}; copy the {traits.collection} to one")
        return whole
