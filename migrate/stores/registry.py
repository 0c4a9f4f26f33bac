"""The kinds of stores, and which of them a location is: built-in ones, and those of other packages.

A package adds a kind with an entry point in the group `lead_migrate.stores` whose name is the kind's and whose object
is a `StoreKind`; `migrate.testing.stores.StoreTests` says what its stores must do.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from importlib.metadata import EntryPoint
from itertools import chain
from pathlib import Path
from typing import Final, Protocol, runtime_checkable

from migrate.errors import UnsupportedStoreError, UsageError
from migrate.locations import Address, hide_secrets
from migrate.manifest import artefact_kind, find_manifest, read_manifest
from migrate.plugins import installed, load_plugin
from migrate.removed import removal
from migrate.stores.arrays import ArraysKind
from migrate.stores.base import KindSupport, Store
from migrate.stores.binary_reader import read_errors
from migrate.stores.faiss.store import FaissKind
from migrate.stores.file_store import check_files
from migrate.stores.foreign import refuse_foreign
from migrate.stores.llamaindex import LlamaIndexSimpleKind
from migrate.stores.outputs import Output
from migrate.stores.parquet.kind import ParquetKind
from migrate.stores.record_file.store import RecordFileKind
from migrate.stores.records import means_several
from migrate.stores.switching import Exchange, Folders

ENTRY_POINTS: Final = "lead_migrate.stores"
_SCHEME: Final = re.compile(r"([a-z][a-z0-9+._-]*):(.*)", re.DOTALL)
_MEANT: Final = {
    **dict.fromkeys(("postgresql", "postgres"), "pgvector:postgresql://..."),
    **{name: f"qdrant:{name}://... or chroma+{name}://..., whichever the server is" for name in ("http", "https")},
}
"""The location to write in the place of a URL without a kind."""


@runtime_checkable
class StoreKind(Protocol):
    """One kind of store. `name` is also the scheme of its locations, `name:...`."""

    @property
    def name(self) -> str:
        """Lower case, without a colon."""

    def recognises(self, path: Path) -> bool:
        """Return whether a file or folder that exists is a store of this kind; looks at as little as that needs."""

    def open(self, location: str) -> Store:
        """Open a store; of a location with a scheme, what comes after the colon."""


@runtime_checkable
class WritableKind(StoreKind, Protocol):
    """A kind whose locations may be named as outputs, for the documents of a store of any kind."""

    def output(self, location: str) -> Output:
        """Return the place of `location`, which comes after the colon; nothing is asked of a server yet."""


@runtime_checkable
class CollectionKind(WritableKind, Protocol):
    """A kind of which one place has several stores, by name: a database."""

    @property
    def support(self) -> KindSupport:
        """Its abilities in words."""

    def names(self, path: Path) -> Sequence[str]:
        """Return the names of the stores at a path that the kind recognises."""

    def find_exchange(self, location: str) -> Exchange | None:
        """Return the switch that is recorded of a name on a server, which nothing may answer to."""


_FAISS: Final = FaissKind()
_FILE_KINDS: Final[tuple[StoreKind, ...]] = (
    _FAISS,
    ParquetKind(),
    ArraysKind(),
    LlamaIndexSimpleKind(),
    RecordFileKind(),
)
_DATABASES: Final = "migrate.databases"
"""The room of the databases, loaded by this name alone; `KINDS` are its kinds."""


def built_in_kinds() -> Iterator[StoreKind]:
    """Yield the kinds of this package, in the order in which they are asked whether a path is theirs."""
    yield from _FILE_KINDS
    # No sooner than they are asked for, as they take 50 ms to load; and by the name of the room, as the databases are
    # built on this room: an import of theirs here would close a circle.
    yield from import_module(_DATABASES).KINDS


def open_store(location: Path | str, *, verify: bool = False) -> Store:
    """Open a store for reading.

    The location is `KIND:...`, or a path, which the first kind that recognises it opens: FAISS, Parquet, arrays,
    databases, then kinds of other packages by name. With `verify` the files are held against the hashes in the
    manifest, where it has them; see `FileCompanions.verify`.

    Raises
    ------
    StoreError
        There is no store, or it is malformed, of a kind that is not read, or not the one of its manifest.
    ManifestError
        The store has a manifest that is not one of a store.
    UsageError
        No such kind is installed, or it cannot be loaded.
    OutputError
        The operating system refused.
    """
    store = _open(str(location))
    if verify:
        check_files(store)
    return store


def stores_in(path: Path) -> list[str]:
    """Return the locations of several stores: tables or collections at a path, else files and folders in it."""
    for kind in built_in_kinds():
        if isinstance(kind, CollectionKind) and kind.recognises(path) and len(names := kind.names(path)) > 1:
            return [f"{kind.name}:{path}#{name}" for name in names]
    with read_errors(path):
        if path.is_dir():
            inside = sorted(path.iterdir())
        else:
            inside = []
    # to open a pipe would wait for its other end
    return [
        str(entry) for entry in inside if not entry.name.startswith(".") and _is_place(entry) and is_recognised(entry)
    ]


def kind_names() -> list[str]:
    """Return the names of the kinds that are installed, built-in ones first."""
    return [kind.name for kind in built_in_kinds()] + [entry.name for entry in _installed()]


def names_kind(location: str) -> bool:
    """Return whether a location begins with the name of a kind, or of one of `_MEANT`: then it is of a store."""
    scheme = _SCHEME.fullmatch(location)
    return scheme is not None and scheme[1] in {*kind_names(), *_MEANT}


def path_in(location: Path | str) -> Path | None:
    """Return the file or folder that a location names, with a scheme before it or without; None if there is none."""
    return next((Path(root) for _, root, _ in _split(str(location)) if _is_place(Path(root))), None)


def absolute_location(location: Path | str) -> str:
    """Return the location with its path in full, for a process whose working directory may become another.

    One without a path that leads somewhere stays as it is.
    """
    for scheme, root, name in _split(str(location)):
        if _is_place(Path(root)):
            return f"{scheme}{os.path.abspath(root)}{name}"  # noqa: PTH100 - Path.resolve would follow a link
    return str(location)


def _split(location: str) -> Iterator[tuple[str, str, str]]:
    """Yield the ways to take a location apart: before a path, the path, and behind it."""
    candidates = [("", location)]
    if scheme := _SCHEME.fullmatch(location):
        candidates.append((f"{scheme[1]}:", scheme[2]))
    for kind, remainder in candidates:
        root = Address.parse(remainder).place
        yield kind, remainder, ""
        yield kind, root, remainder.removeprefix(root)


def output_of(location: Path | str) -> Output:
    """Return the place of a new store: a folder for a path, a place of a kind for `KIND:...`.

    Raises a UsageError where there is no such kind, or it cannot be written to by name.
    """
    if isinstance(location, Path):
        scheme = None
    else:
        scheme = _scheme_of(location)
    if scheme is None:
        if "#?index=" in str(location):
            raise UsageError(f"{location}: a path alone is a store like the source; write faiss:{location}")
        return Output(Path(location))
    kind = kind_called(scheme[1])
    if not isinstance(kind, WritableKind):
        raise UsageError(f"{location}: stores of the kind {kind.name} are written to a folder; name its path alone")
    hidden = _SCHEME.fullmatch(hide_secrets(str(location)))
    # From here on the location is printed and noted, so it goes without its password.
    target = hidden[2] if hidden else scheme[2]
    return kind.output(target)


def find_exchange(location: str) -> Exchange | None:
    """Return the exchange by which the store at a location came there; the store itself may be between two places."""
    is_place = _is_place(Path(location))
    if (exchange := Folders.exchange_at(location)) is not None:
        return exchange
    if is_place:
        kind = next((kind for kind in built_in_kinds() if kind.recognises(Path(location))), None)
        if not isinstance(kind, CollectionKind):
            return None
        return kind.find_exchange(location)
    scheme = _SCHEME.fullmatch(location)
    if scheme is None:
        named = None
    else:
        named = kind_called(scheme[1])
    if scheme and isinstance(named, CollectionKind):
        return named.find_exchange(scheme[2])
    return None


def _open(location: str) -> Store:
    path = Path(location)
    exists = _is_place(path)
    if exists:
        scheme = None
    else:
        scheme = _scheme_of(location)
    if scheme is not None:
        location = hide_secrets(location)
        scheme = _SCHEME.fullmatch(location) or scheme
        store = kind_called(scheme[1]).open(scheme[2])
        # without the scheme another kind might open it
        store.info = replace(store.info, location=location)
        return store
    if not exists and "*" in path.name and _is_place(path.parent):
        raise means_several(location)
    _refuse_written_as_one(path)
    kinds = built_in_kinds()
    if exists and not is_recognised(path):
        kinds = chain(kinds, map(_load, _installed()))
    # what stands behind a # comes with any kind
    if exists:
        root = path
    else:
        root = Path(Address.parse(location).place)
    # what nobody recognises is told as what it is instead of the FAISS index that it most likely was meant to be
    kind = next((kind for kind in kinds if _is_place(root) and kind.recognises(root)), _FAISS)
    if exists and artefact_kind(path) not in (None, "store"):
        # which says what it is
        read_manifest(path, "store")
    # Both take a file by its looks, and other programs write some that look alike.
    if isinstance(kind, FaissKind | RecordFileKind) and _is_place(root):
        refuse_foreign(root)
    return kind.open(location)


def _refuse_written_as_one(path: Path) -> None:
    """Refuse a folder of stores that an earlier version wrote as one: its manifest names a pattern."""
    if not path.is_dir() or artefact_kind(path) != "store" or is_recognised(path):
        return
    manifest = find_manifest(path, "store")
    if manifest is not None and "*" in (manifest.store.index or ""):
        raise UnsupportedStoreError(removal(f"{path}: the store of many collections"))


def _scheme_of(location: str) -> re.Match[str] | None:
    """Return kind and rest of a location with a kind; a slip is refused before a folder gets such a name."""
    scheme = _SCHEME.fullmatch(location)
    if scheme is not None and scheme[2].startswith("~"):
        raise UsageError(f"{location}: no shell expands the ~ there; write the path in full")
    kind, colon, _ = location.partition(":")
    if scheme is None and colon and kind.lower() in kind_names():
        raise UsageError(f"{location}: kinds are in lower case; write {kind.lower()}:...")
    return scheme


def is_recognised(path: Path) -> bool:
    """Return whether a built-in kind recognises the path, so that no other package need be loaded."""
    return any(kind.recognises(path) for kind in built_in_kinds())


def _is_place(path: Path) -> bool:
    try:
        return path.is_file() or path.is_dir()
    # A text that is no location of a file may be too long for a name, or hold a zero byte.
    except (OSError, ValueError):
        return False


def kind_called(name: str) -> StoreKind:
    """Return the kind of a name, built-in or installed; UsageError where there is none."""
    for kind in built_in_kinds():
        if kind.name == name:
            return kind
    for entry in _installed():
        if entry.name == name:
            return _load(entry)
    meant = _MEANT.get(name)
    hint = f"; write {meant}" if meant else ""
    raise UsageError(f"no store kind called {name!r} is installed; known kinds are {', '.join(kind_names())}{hint}")


def kind_in_words(name: str) -> str:
    """Return what a kind of stores is called in sentences."""
    kind = kind_called(name)
    if isinstance(kind, CollectionKind):
        return kind.support.store
    return f"kind {name}"


def _installed() -> list[EntryPoint]:
    """Return kinds of other packages by name; they cannot take the place of built-in ones."""
    built_in = {kind.name for kind in built_in_kinds()}
    return [entry for name, entry in installed(ENTRY_POINTS).items() if name not in built_in]


def _load(entry: EntryPoint) -> StoreKind:
    kind: StoreKind = load_plugin(entry, StoreKind)
    return kind
