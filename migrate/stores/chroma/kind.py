"""Collections of Chroma as kinds of stores, `chroma:PATH#COLLECTION` and `chroma+http://HOST:PORT#COLLECTION`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from migrate.errors import UsageError
from migrate.locations import Address
from migrate.stores.base import KindSupport, Store
from migrate.stores.chroma.client import DATABASE, Folder, Server
from migrate.stores.outputs import NamedFolderOutput, Output
from migrate.stores.records import check_options
from migrate.stores.switching import Exchange


class ChromaKind:
    """Folders of Chroma's persistent client."""

    name = "chroma"
    support = KindSupport(
        "Chroma",
        ("chroma:FOLDER#COLLECTION", "chroma+http://HOST:8000#COLLECTION"),
        "chroma",
        "ids, documents, metadata with types, URIs, collection metadata, HNSW parameters, embedding function's name",
        "sparse indexes and schemas of one's own; a server counts no changes",
        "bounded on a server; a folder as its client holds it",
    )

    def recognises(self, path: Path) -> bool:
        """Whether Chroma's database is in it."""
        return (path / DATABASE).is_file()

    def names(self, path: Path) -> Sequence[str]:
        """The collections of a folder."""
        return Folder(str(path), path, {}).names()

    def open(self, location: str) -> Store:
        """Open `PATH#COLLECTION`; a folder with one collection needs no name."""
        from migrate.stores.chroma.store import ChromaStore

        address = _address(location)
        place = Folder(f"{self.name}:{location}", Path(address.place), address.options)
        return ChromaStore(location, place, address.name)

    def output(self, location: str) -> Output:
        """A folder that is not there yet, with one collection."""
        from migrate.stores.chroma.output import FolderWriter

        whole = f"{self.name}:{location}"
        address = _named(whole)
        check_options(whole, address.options, ())
        return NamedFolderOutput(whole, address, FolderWriter)


class ChromaServerKind:
    """Servers of Chroma: `chroma+http://host:port#collection`."""

    def __init__(self, scheme: str) -> None:
        self.name = f"chroma+{scheme}"

    def recognises(self, path: Path) -> bool:
        """No path is one."""
        return False

    def open(self, location: str) -> Store:
        """Open `//HOST:PORT#COLLECTION`."""
        from migrate.stores.chroma.store import ChromaStore

        address = Address.parse(location)
        return ChromaStore(location, Server(f"{self.name}:{location}", address), address.name)

    def exchange_left(self, location: str) -> Exchange | None:
        """The switch of a name, which no collection may have just then."""
        from migrate.stores.chroma.switch import exchange_left

        address = Address.parse(location)
        return exchange_left(Server(f"{self.name}:{location}", address), address.name)

    def output(self, location: str) -> Output:
        """A collection that is not there yet."""
        from migrate.stores.chroma.output import ChromaServerOutput

        return ChromaServerOutput(f"{self.name}:{location}", _named(f"{self.name}:{location}"))


def _address(location: str) -> Address:
    return Address(location) if Path(location).is_dir() else Address.parse(location)


def _named(location: str) -> Address:
    address = Address.parse(location.partition(":")[2])
    if not address.name or not address.place:
        raise UsageError(f"{location}: expected a collection after the #, found none; name the new one")
    return address
