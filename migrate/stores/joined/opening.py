"""Opens the collections that a pattern names as one store, without those that differ from most."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from migrate.errors import StoreError
from migrate.files import output_errors
from migrate.locations import Address, fits, meant_by
from migrate.manifest import Manifest, find_manifest
from migrate.stores.base import Store
from migrate.stores.database import DatabaseKind, DatabaseStore
from migrate.stores.driver import Driver
from migrate.stores.joined.store import JoinedStore, LeftOut, Pattern
from migrate.stores.records import differing
from migrate.stores.switching import BESIDE

_OPEN_WEBUI: Final = "embedding_config"
"""The field of metadata in which Open WebUI notes the model of a chunk, as JSON."""


def _noted_address(manifest: Manifest) -> Address:
    """Return name and options of the store that a manifest is of."""
    return Address.parse(f"#{manifest.store.index or ''}")


def open_pattern(kind: DatabaseKind, location: str) -> JoinedStore | None:
    """Open the collections that a location of a database means by a pattern, or that its folder was written with.

    None where it means a single one.
    """
    driver = kind.driver_of(location)
    if driver.address.name in ("", "*") and not driver.is_server and driver.folder.is_dir():
        manifest = find_manifest(driver.folder, "store")
        if manifest is not None and manifest.store.pattern and _all_fit(driver, manifest.store.pattern):
            recorded = _noted_address(manifest)
            address = replace(
                driver.address, name=recorded.name, options={**recorded.options, **driver.address.options}
            )
            driver = type(driver)(driver.location, address)
    if not driver.is_pattern:
        return None
    with driver.errors():
        drivers = driver.expand()
        if not drivers:
            raise _nothing_matches(driver.location, driver.collection, driver.address.name, driver.names())
    folder = None if driver.is_server else driver.folder
    address = driver.address
    noun, text = driver.collection, address.name
    pattern = Pattern(driver.location, noun, text, driver.expand, driver.meant, folder, address.options)
    return join(pattern, {name: DatabaseStore(one_driver, one_driver.location) for name, one_driver in drivers.items()})


def _all_fit(driver: Driver, pattern: str) -> bool:
    """Return whether all collections of a folder are those that it was written with."""
    with driver.errors():
        return driver.address.name == "" or all(fits(name, pattern) for name in driver.names())


def _nothing_matches(location: str, noun: str, pattern: str, names: Iterable[str]) -> StoreError:
    have = ", ".join(names) or "none"
    return StoreError(f"{location}: no {noun} matches {pattern!r}; there are {have}: write a pattern that some match")


def open_folder(
    folder: Path, pattern: str, location: str, open_path: Callable[[Path], Store], is_store: Callable[[Path], bool]
) -> JoinedStore:
    """Open the stores in a folder whose names match a pattern."""

    def paths() -> dict[str, Path]:
        with output_errors(folder):
            inside = sorted(folder.iterdir())
        listed = (path for path in inside if not path.name.startswith(".") and path.name not in BESIDE)
        return {path.name: path for path in listed if (path.is_file() or path.is_dir()) and is_store(path)}

    def matching() -> dict[str, Path]:
        return {name: path for name, path in paths().items() if fits(name, pattern)}

    stores = {name: open_path(path) for name, path in matching().items()}
    if not stores:
        raise _nothing_matches(location, "store", pattern, paths())
    return join(Pattern(location, "store", pattern, matching, partial(meant_by, pattern=pattern), folder), stores)


def join(pattern: Pattern, stores: Mapping[str, Store]) -> JoinedStore:
    """Join those of some collections that agree with most, in the order of their names, whatever lists them."""
    stores = dict(sorted(stores.items()))
    filled = {name: store for name, store in stores.items() if store.info.count}
    translated = [name for name, store in stores.items() if pattern.folder is None and _is_translation(store)]
    left_out: dict[str, LeftOut] = {}
    if not {*translated} >= (filled.keys() or stores.keys()):  # a server has the old ones beside the new ones
        left_out = {name: LeftOut(stores[name].info, "made of an older store by lead-migrate") for name in translated}
        filled = {name: store for name, store in filled.items() if name not in left_out}
    whole = None if pattern.folder is None else find_manifest(pattern.folder, "store")
    # what was translated together is of one model, whatever its records say
    is_translated = whole is not None and bool(whole.store.pattern)
    for trait in (*_TRAITS, *(() if is_translated else (_Trait(recorded_model, "of {}"),))):
        values = {name: value for name, store in filled.items() if (value := trait.of(store)) is not None}
        sizes = {name: store.info.count for name, store in filled.items()}
        for name, reason in differing(pattern.location, trait.template, values, sizes).items():
            left_out[name] = LeftOut(stores[name].info, reason)
        filled = {name: store for name, store in filled.items() if name not in left_out}
    return JoinedStore(pattern, {name: store for name, store in stores.items() if name not in left_out}, left_out)


@dataclass(frozen=True, slots=True)
class _Trait:
    """A trait in which collections have to agree; None is not known, and goes with any."""

    of: Callable[[Store], Any]
    template: str


def recorded_model(store: Store) -> str | None:
    """Return the model that a collection says its vectors are of: by a manifest, or as Open WebUI notes it."""
    if store.info.manifest is not None and store.info.manifest.model is not None:
        return store.info.manifest.model.spec
    if not store.info.has_texts:
        return None
    metadata = next(iter(store.documents(np.zeros(1, np.int64)))).metadata
    with suppress(ValueError, TypeError, KeyError):
        config = json.loads(metadata[_OPEN_WEBUI])
        return ":".join(filter(None, (config["engine"], config["model"])))
    return None


def _is_translation(store: Store) -> bool:
    return store.info.manifest is not None and "source rows" in store.info.manifest.inputs


_TRAITS: Final = (
    _Trait(lambda store: store.info.dim, "of {:,} dimensions"),
    _Trait(lambda store: store.info.metric, "compared by {}"),
)
