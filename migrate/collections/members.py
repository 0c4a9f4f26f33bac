"""The collections that a location with a `*` means, and which of them are left out.

In `KIND:PLACE#PATTERN` and `FOLDER/PATTERN`, a `*` stands for any characters. Each collection is a store of its own
with a location of its own; nothing here reads several as one.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import numpy as np

from migrate.databases.driver import Driver
from migrate.databases.kind import DatabaseKind
from migrate.databases.pgvector import PgvectorDriver
from migrate.databases.pgvector_server import join_names, split_names
from migrate.databases.server_names import TradedNames
from migrate.databases.store import DatabaseStore
from migrate.errors import StoreError, UsageError
from migrate.files import allow_open_files
from migrate.locations import hide_secrets, options_text
from migrate.stores import open_store
from migrate.stores.base import Store
from migrate.stores.registry import kind_called, names_kind, stores_in
from migrate.stores.switching import BESIDE

_UNPUBLISHED: Final = re.compile(r"(?s).+[-_][0-9a-f]{32}(-old)?")
"""Names on a server that a killed run has left."""

_FILES_EACH: Final = 50
"""Files that a database may open for a collection: Chroma finds nothing again of one that had to be closed."""

_OPEN_WEBUI: Final = "embedding_config"
"""The field of metadata in which Open WebUI notes the model of a chunk, as JSON."""


@dataclass(frozen=True, slots=True)
class Collection:
    """One of many collections: its name, what the `*` stands for in it, and its store."""

    name: str
    meant: str
    store: Store

    @property
    def location(self) -> str:
        """The location of the store by itself."""
        return self.store.info.location

    @property
    def file_name(self) -> str:
        """The name of its files, in which no path has a slash."""
        return quote(self.name, safe=" +()@,")


@dataclass(frozen=True, slots=True)
class Collections:
    """The collections of a pattern that agree with most, in the order of their names.

    `left_out` says of the others, by name, why they are not moved.
    """

    pattern: str
    members: tuple[Collection, ...]
    left_out: Mapping[str, str]

    @property
    def count(self) -> int:
        """The number of all their vectors."""
        return sum(member.store.info.count for member in self.members)


def find_collections(pattern: str) -> Collections:
    """Open the collections that a location means; those of another dimension, metric or model are left out.

    Raises StoreError: none matches, or two kinds of them have as many documents. UsageError: there is no `*`.
    """
    if "*" not in pattern:
        raise UsageError(f"{pattern}: no * says which collections are meant; write one, such as 'chroma:FOLDER#*'")
    locations = _locations(hide_secrets(pattern))
    allow_open_files(_FILES_EACH * len(locations), _FILES_EACH * len(locations) // 2, pattern)
    opened = [
        Collection(name, meant_by(name, _name_pattern(pattern)), open_store(location, verify=True))
        for name, location in sorted(locations.items())
    ]
    left_out = {it.name: "empty" for it in opened if not it.store.info.count}
    left_out |= {it.name: "switched, and kept for `rollback`" for it in opened if _is_aside(it.store)}
    members = [it for it in opened if it.name not in left_out]
    if not _is_in_database_folder(opened[0].store) and not all(_is_translation(it.store) for it in members):
        # a server has the new ones beside the old ones, and of stores of their own some may be switched
        left_out |= {it.name: "made of an older store by lead-migrate" for it in members if _is_translation(it.store)}
        members = [it for it in members if it.name not in left_out]
    for value_of, template in _TRAITS:
        values = {it.name: value for it in members if (value := value_of(it.store)) is not None}
        sizes = {it.name: it.store.info.count for it in members}
        left_out |= differing(pattern, template, values, sizes)
        members = [it for it in members if it.name not in left_out]
    if not members:
        raise StoreError(f"{pattern}: all collections that match are empty, so there is nothing to move")
    return Collections(pattern, tuple(members), left_out)


def _name_pattern(pattern: str) -> str:
    """Return the part of a location that the names of collections match."""
    if names_kind(pattern):
        return _driver_of(pattern).address.name
    return Path(pattern).name


def _locations(pattern: str) -> dict[str, str]:
    """Return the location of each collection that a pattern means, by name."""
    if names_kind(pattern):
        return _database_locations(pattern)
    path = Path(pattern)
    if not path.parent.is_dir() or "#" in path.name:
        raise StoreError(f"{pattern}: there is no folder {path.parent}, and no kind is named; write KIND:PLACE#PATTERN")
    present = {Path(location).name: location for location in stores_in(path.parent)}
    inside = {name: location for name, location in present.items() if name not in BESIDE}
    return _matching(pattern, "store", path.name, inside)


def output_beside(pattern: str) -> str | None:
    """Return where the new collections of a server can lie, each beside its old one; None for what lies in files."""
    if not names_kind(pattern):
        return None
    driver = _driver_of(pattern)
    if not driver.is_server:
        return None
    options = {name: value for name, value in driver.address.options.items() if name in driver.traits.write_options}
    return f"{_place_of(pattern, driver)}#{driver.address.name}_new{options_text(options)}"


def _driver_of(pattern: str) -> Driver:
    """Return the driver of the place of a pattern; nothing is opened yet."""
    scheme, _, address = pattern.partition(":")
    kind = kind_called(scheme)
    if not isinstance(kind, DatabaseKind) or "#" not in address:
        raise UsageError(f"{pattern}: a * stands in the names of a database's collections; write KIND:PLACE#PATTERN")
    driver = kind.driver_of(address)
    if "*" not in driver.address.name:
        raise UsageError(f"{pattern}: the * is not in the name after the #, which says what collections are meant")
    return driver


def _place_of(pattern: str, driver: Driver) -> str:
    """Return the part of a pattern before the name, as it was typed."""
    return pattern[: pattern.rindex(f"#{driver.address.name}")]


def _database_locations(pattern: str) -> dict[str, str]:
    driver = _driver_of(pattern)
    with driver.errors():
        fitting = _matching(pattern, driver.traits.collection, driver.address.name, _names_of(driver))
        aliased = _aliased(driver, fitting.values())
    place = _place_of(pattern, driver)
    locations = {}
    for shown, name in fitting.items():
        meant = meant_by(shown, driver.address.name)
        options = {key: value.replace("*", meant) for key, value in driver.address.options.items()}
        if name not in aliased:
            locations[shown] = f"{place}#{name}{options_text(options)}"
    return locations


def _names_of(driver: Driver) -> dict[str, str]:
    """Return the names of a place, as they are and as locations have them.

    Of tables they have as many parts as the pattern: their schema or not. Those that a killed run left are not there.
    """
    names = [name for name in driver.names() if not (driver.is_server and _UNPUBLISHED.fullmatch(name))]
    if driver.traits.kind != PgvectorDriver.traits.kind:
        return dict(zip(names, names, strict=True))
    count = len(split_names(driver.address.name))
    part_of = {1: slice(1, 2), 2: slice(0, 2), 3: slice(0, 3)}[count]
    paths = [split_names(name) for name in names]
    tables = [path[part_of] for path in paths if not _UNPUBLISHED.fullmatch(path[1])]
    return {".".join(path): join_names(path) for path in tables}


def _aliased(driver: Driver, names: Iterable[str]) -> set[str]:
    """Return the collections of a server that an alias among some names leads to as well."""
    if not driver.is_server:
        return set()
    identities = {name: driver.identity(name) for name in names}
    # Under its own name and under the alias a collection would be moved twice
    return {identity for name, identity in identities.items() if identity != name}


def _matching(pattern: str, noun: str, text: str, present: Mapping[str, str]) -> dict[str, str]:
    """Return those of some names that fit a text with a `*`, with what they are the names of."""
    matching = {name: value for name, value in present.items() if fits(name, text)}
    if not matching:
        have = ", ".join(present) or "none"
        raise StoreError(f"{pattern}: no {noun} matches {text!r}; there are {have}: write a pattern that some match")
    return matching


def fits(name: str, pattern: str) -> bool:
    """Return whether a name is what a pattern means, in which a `*` stands for any characters.

    >>> fits("rag_docs", "rag_*"), fits("docs", "rag_*")
    (True, False)
    """
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name, re.DOTALL) is not None


def meant_by(name: str, pattern: str) -> str:
    """Return what the `*` of a pattern stands for in a name that fits it.

    >>> meant_by("rag_docs", "rag_*")
    'docs'
    """
    return name[pattern.index("*") : len(name) - (len(pattern) - 1 - pattern.rindex("*"))]


def differing(location: str, template: str, values: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, str]:
    """Return which of several collections have another value than most documents, and what it is.

    `template` tells of a value, `sizes` are the documents of each. Raises a StoreError where two values have as many.
    """
    counts: Counter[Any] = Counter()
    for name, value in values.items():
        counts[value] += sizes[name]
    common = [value for value, _ in counts.most_common(2)]
    # Neither is the rule that the other is an exception to
    if len(common) == 2 and counts[common[0]] == counts[common[1]]:
        named = {value: next(name for name in values if values[name] == value) for value in common}
        described = " and ".join(f"{name} is {template.format(value)}" for value, name in named.items())
        raise StoreError(f"{location}: these are no one store: {described}; write a pattern that means one kind")
    return {
        name: f"{template.format(value)}, and most are {template.format(common[0])}"
        for name, value in values.items()
        if value != common[0]
    }


def _is_in_database_folder(store: Store) -> bool:
    return isinstance(store, DatabaseStore) and not store.driver.is_server


def _is_translation(store: Store) -> bool:
    return store.info.manifest is not None and "source rows" in store.info.manifest.inputs


def _is_aside(store: Store) -> bool:
    """Return whether a collection of a server is the old one of a switch, which has the name of the new one now."""
    if not isinstance(store, DatabaseStore) or not store.driver.is_server:
        return False
    names = store.driver.server_names
    return isinstance(names, TradedNames) and names.switched_with(names.driver.name) not in (None, names.driver.name)


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


_TRAITS: Final[tuple[tuple[Callable[[Store], Any], str], ...]] = (
    (lambda store: store.info.dim, "of {:,} dimensions"),
    (lambda store: store.info.metric, "compared by {}"),
    (recorded_model, "of {}"),
)
"""What collections have to agree in, and how it is told; None is not known, and goes with any."""
