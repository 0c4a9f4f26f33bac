"""Switches of many collections: each trades names by itself, or whole folders of a database trade places.

Collections of a database in a folder cannot be switched one by one, as its program opens the folder. Their new stores
are written into one folder first, with all else that the old one holds as it is, by the database's own client.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

from migrate.collections.auditing import JSON
from migrate.collections.members import Collection, Collections
from migrate.collections.translating import new_location
from migrate.databases.driver import Driver
from migrate.databases.store import DatabaseStore
from migrate.errors import StoreError, UsageError
from migrate.files import atomic_folder
from migrate.locations import Address
from migrate.steps.switch import Switch
from migrate.steps.switch.job import Switched, compare_stores, location_of
from migrate.stores import open_store
from migrate.stores.base import Store
from migrate.stores.kept import sync_tree
from migrate.stores.registry import find_exchange
from migrate.stores.switching import Folders, moved

WHOLE = "whole-folder"
"""The folder beside the new stores that trades places with the old one."""


def switch_collections(
    collections: Collections, new: str, reports: Path | None, *, unproven: bool
) -> Iterator[Switched]:
    """Let the new stores answer for the old ones, and yield each switch that is done.

    Each needs its SAFE report in the folder `reports`, or to be all true, unless it is `unproven`. All are compared
    before the first is switched. Raises as `migrate.switch`.
    """
    first = collections.members[0].store
    if isinstance(first, DatabaseStore) and not first.driver.is_server:
        yield _switch_folder(collections, new, reports, unproven=unproven)
        return
    steps = [
        Switch(it.location, new_location(new, it), audit=_report_of(it, reports), unproven=unproven)
        for it in collections.members
    ]
    # All of them before the first is switched: one that is refused would leave half of a program's collections behind
    for step in steps:
        step.open()
    for step in steps:
        yield step.run()


def _report_of(member: Collection, reports: Path | None) -> Path | None:
    if reports is None:
        return None
    path = reports / member.file_name / JSON
    if not path.is_file():
        return None
    return path


def _switch_folder(collections: Collections, new: str, reports: Path | None, *, unproven: bool) -> Switched:
    """Write all new collections into one folder of the database, and let it trade places with the old one."""
    old_folder = _driver_of(collections.members[0].store).folder
    folder = Path(new) / WHOLE
    old_location = location_of(str(old_folder))
    whole_location = location_of(str(folder.absolute()))
    earlier = find_exchange(old_location)
    record = None if earlier is None else earlier.record()
    if earlier is not None and record is not None:
        if record["new"] != whole_location:
            raise moved(old_location, record["old"])
        # Finishes a switch that was killed
        earlier.switch(record)
        return Switched.of(record, already=True)
    pairs = [(member.store, open_store(new_location(new, member), verify=True)) for member in collections.members]
    compared = [
        compare_stores(member.store, store, proof=_report_of(member, reports), unproven=unproven)
        for member, (_, store) in zip(collections.members, pairs, strict=True)
    ]
    # The folder is switched as a whole, so the collections that were not moved come along as they are
    pairs += [(store, store) for store in _unmoved(collections)]
    new_dim = pairs[0][1].info.dim
    # `force`: a run that was killed before the switch may have left it
    with atomic_folder(folder, force=True) as unfinished:
        for old, store in pairs:
            # An empty collection may have no dimension of its own
            dim = store.info.dim if store.info.count else new_dim
            _write_into(unfinished, old, store, dim=dim)
        # On the disk before its name means anything to a program
        sync_tree(unfinished)
    drivers = [_driver_of(old) for old, _ in pairs]
    files = {file for driver in drivers for file in driver.files()}
    exchange = Folders.exchange(old_folder, folder, excluded=files)

    def check() -> None:
        for old, _ in pairs:
            # To write the whole folder takes long, and whatever is added to the old one meanwhile would be lost
            if not old.is_as_opened():
                raise StoreError(f"{old.info.location}: the store changed while it was compared; nothing was switched")

    def prepare() -> None:
        for old, store in pairs:
            # Those that were not moved keep the model that they have
            if store is not old or not old.info.count:
                written = _written(folder, _driver_of(old))
                with written.driver.errors():
                    written.driver.prepare_switch(_database(old).rows, written.rows)

    exchange.check = check
    exchange.prepare = prepare
    proven = all(it.proven for it in compared)
    all_true = all(it.all_true for it in compared)
    done = replace(
        compared[0], old=old_location, new=whole_location, aside=whole_location, proven=proven, all_true=all_true
    )
    exchange.switch(asdict(done))
    return done


def _unmoved(collections: Collections) -> list[Store]:
    """Open the collections of the folder that are not moved, and are written as they are beside those that are."""
    first = collections.members[0]
    driver = _driver_of(first.store)
    with driver.errors():
        names = set(driver.names()) - {member.name for member in collections.members}
    folder = first.location[: first.location.rindex(f"#{first.name}")]
    opened = [open_store(f"{folder}#{name}", verify=True) for name in sorted(names)]
    # A copy of a whole database has them already, but for the new dimension of an empty one
    return [store for store in opened if not (driver.traits.copies_place and store.info.count)]


def _driver_of(store: Store) -> Driver:
    return _database(store).driver


def _database(store: Store) -> DatabaseStore:
    if not isinstance(store, DatabaseStore):
        raise UsageError(f"{store.info.location}: this is no collection of a database; name one of the same kind")
    return store


def _written(folder: Path, like: Driver) -> DatabaseStore:
    """Open the collection in a folder that has the name of another."""
    return DatabaseStore(type(like)(str(folder), Address(str(folder), like.name, like.address.options)), str(folder))


def _write_into(folder: Path, old: Store, source: Store, *, dim: int) -> None:
    """Write a collection, with whole records, under the name of the old one beside the others of a folder."""
    if not isinstance(source, DatabaseStore) or type(source.driver) is not type(_driver_of(old)):
        raise UsageError(f"{source.info.location}: this is another kind of store than {old.info.location}")
    name = _driver_of(old).name
    driver = type(source.driver)(str(folder), Address(str(folder), name))
    driver.shares_folder = True
    pages = (replace(page, vectors=source.get(rows).vectors) for page, rows in source.export.whole_pages())
    with driver.errors():
        driver.refuse_write(dim, source.rows)
        driver.write_copy(name, dim, source.rows, pages)
    if source.info.manifest is not None:
        # Most databases have room for the manifest of one collection in a folder
        with suppress(UsageError):
            _written(folder, _driver_of(old)).companions.keep(source.info.manifest)
