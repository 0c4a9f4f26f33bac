"""Collections of Qdrant as a kind of stores, `qdrant:URL#COLLECTION` and `qdrant:PATH#COLLECTION`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from migrate.errors import UsageError
from migrate.locations import Address
from migrate.stores.base import KindSupport, Store
from migrate.stores.outputs import NamedFolderOutput, Output
from migrate.stores.qdrant.client import OPTIONS, is_local, place_of
from migrate.stores.records import check_options


class QdrantKind:
    """Collections of a server, and of folders of the local mode."""

    name = "qdrant"
    support = KindSupport(
        "Qdrant",
        ("qdrant:http://HOST:6333#COLLECTION", "qdrant:FOLDER#COLLECTION"),
        "qdrant",
        "ids, payload, other named and sparse vectors, points without the vector, HNSW and other settings",
        "quantization is made anew; several vectors to a point are refused; a server counts no changes",
        "bounded on a server; a folder in memory",
    )

    def recognises(self, path: Path) -> bool:
        """Whether the local mode has written there."""
        return is_local(path)

    def names(self, path: Path) -> Sequence[str]:
        """The collections of a folder."""
        return place_of(str(path), Address(str(path))).names()

    def open(self, location: str) -> Store:
        """Open `URL#COLLECTION` or `PATH#COLLECTION`; where there is one collection, it needs no name."""
        from migrate.stores.qdrant.store import QdrantStore

        address = Address(location) if Path(location).is_dir() else Address.parse(location)
        check_options(f"{self.name}:{location}", address.options, OPTIONS)
        return QdrantStore(location, place_of(f"{self.name}:{location}", address), address)

    def output(self, location: str) -> Output:
        """A collection that is not there yet."""
        from migrate.stores.qdrant.output import FolderWriter, QdrantOutput

        address, whole = Address.parse(location), f"{self.name}:{location}"
        check_options(whole, address.options, ())
        if not address.name or not address.place:
            raise UsageError(f"{whole}: expected a collection after the #, found none; name the new one")
        if "://" in address.place:
            return QdrantOutput(whole, address)
        return NamedFolderOutput(whole, address, FolderWriter)
