"""Switches of many collections: each trades names by itself, or whole folders of a database trade places.

Collections of a database in a folder cannot be switched one by one, as its program opens the folder. Their new stores
are written into one folder first, with the empty ones, by the database's own client.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

from migrate.collections.auditing import JSON
from migrate.collections.members import Collection, Collections
from migrate.collections.translating import new_location
from migrate.errors import StoreError, UsageError
from migrate.files import atomic_folder
from migrate.locations import Address
from migrate.steps.switch import Switch
from migrate.steps.switch.job import Switched, compare_stores, location_of
from migrate.stores import open_store
from migrate.stores.base import Store
from migrate.stores.database import DatabaseStore
from migrate.stores.driver import Driver
from migrate.stores.kept import sync_tree
from migrate.stores.registry import find_exchange
from migrate.stores.switching import Folders

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
    for step in steps:
        _ = step.switched
    for step in steps:
        yield step.execute()


def _report_of(member: Collection, reports: Path | None) -> Path | None:
    path = None if reports is None else reports / member.file_name / JSON
    return path if path is not None and path.is_file() else None


def _switch_folder(collections: Collections, new: str, reports: Path | None, *, unproven: bool) -> Switched:
    """Write all new collections into one folder of the database, and let it trade places with the old one."""
    old_folder = _driver_of(collections.members[0].store).folder
    earlier = find_exchange(location_of(str(old_folder)))
    record = None if earlier is None else earlier.record()
    if earlier is not None and record is not None:
        earlier.switch(record)  # finishes what was killed
        return Switched.of(record, already=True)
    if collections.left_out:
        name = next(iter(collections.left_out))
        raise UsageError(
            f"{collections.pattern}: whole folders are switched, and {name} is left out; move it to another folder, or "
            "change in your programs where they look"
        )
    _refuse_unnamed(collections)
    pairs = [(member, open_store(new_location(new, member), verify=True)) for member in collections.members]
    compared = [
        compare_stores(member.store, store, proof=_report_of(member, reports), unproven=unproven)
        for member, store in pairs
    ]
    folder = Path(new) / WHOLE
    with atomic_folder(folder, force=True) as unfinished:
        for member, store in pairs:
            _write_into(unfinished, member, store, model_dim=store.info.dim)
        for member in collections.empty:
            _write_into(unfinished, member, member.store, model_dim=pairs[0][1].info.dim)
        sync_tree(unfinished)
    drivers = [_driver_of(it.store) for it in (*collections.members, *collections.empty)]
    files = {file for driver in drivers for file in driver.files()}
    exchange = Folders.exchange(old_folder, folder, excluded=files)

    def check() -> None:
        for member in collections.members:
            if not member.store.is_as_opened():
                raise StoreError(f"{member.location}: the store changed while it was compared; nothing was switched")

    def prepare() -> None:
        for driver in drivers:
            address = Address(str(folder), driver.name, driver.address.options)
            written = DatabaseStore(type(driver)(str(folder), address), str(folder)).driver
            with written.errors():
                written.prepare_switch(driver)

    exchange.check = check
    exchange.prepare = prepare
    location, new_folder = location_of(str(old_folder)), location_of(str(folder))
    proven = all(it.proven for it in compared)
    all_true = all(it.all_true for it in compared)
    done = replace(compared[0], old=location, new=new_folder, aside=new_folder, proven=proven, all_true=all_true)
    exchange.switch(asdict(done))
    return done


def _refuse_unnamed(collections: Collections) -> None:
    """Make sure that the folder has no collections but those of the pattern."""
    driver = _driver_of(collections.members[0].store)
    if driver.copies_place:  # what is not named is in the copy as well
        return
    named = {it.name for it in (*collections.members, *collections.empty)}
    with driver.errors():
        unnamed = sorted(set(driver.names()) - named)
    if unnamed:
        raise UsageError(
            f"{collections.pattern}: whole folders are switched, and {unnamed[0]} is not among these; write a * for all"
        )


def _driver_of(store: Store) -> Driver:
    if not isinstance(store, DatabaseStore):
        raise UsageError(f"{store.info.location}: this is no collection of a database; name one of the same kind")
    return store.driver


def _write_into(folder: Path, member: Collection, source: Store, *, model_dim: int) -> None:
    """Write a collection, with whole records, beside the others of a folder."""
    if not isinstance(source, DatabaseStore) or type(source.driver) is not type(_driver_of(member.store)):
        raise UsageError(f"{source.info.location}: this is another kind of store than {member.location}")
    like = source.driver
    driver = type(like)(str(folder), Address(str(folder), member.name))
    driver.shares_folder = True
    pages = (replace(page, vectors=source.get(rows).vectors) for page, rows in source.whole_pages())
    with driver.errors():
        driver.refuse_write(model_dim, like)
        driver.write(member.name, model_dim, source.info, like, pages)
    if source.info.manifest is not None and source is not member.store:
        written = DatabaseStore(type(like)(str(folder), Address(str(folder), member.name)), str(folder))
        with suppress(UsageError):  # most databases have room for the manifest of one collection in a folder
            written.keep_manifest(source.info.manifest)
