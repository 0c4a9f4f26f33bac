"""Folders of LanceDB as a kind of stores, `lancedb:PATH#TABLE`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from migrate.errors import UsageError
from migrate.locations import Address
from migrate.stores.base import KindSupport, Store
from migrate.stores.lancedb.client import OPTIONS, tables_in
from migrate.stores.outputs import NamedFolderOutput, Output
from migrate.stores.records import check_options


class LanceKind:
    """Folders of LanceDB."""

    name = "lancedb"
    support = KindSupport(
        "LanceDB",
        ("lancedb:FOLDER#TABLE",),
        "lancedb",
        "all columns with types and nulls, order, schema metadata, float16 to float64, rows without a vector",
        "older versions, the schema's embedding function; the number of partitions of an index",
    )

    def recognises(self, path: Path) -> bool:
        """Whether a table is in it."""
        return path.is_dir() and bool(tables_in(path))

    def names(self, path: Path) -> Sequence[str]:
        """The tables of a folder."""
        return tables_in(path)

    def open(self, location: str) -> Store:
        """Open `PATH#TABLE`; where there is one table, it needs no name."""
        from migrate.stores.lancedb.store import LanceStore

        address = Address(location) if Path(location).is_dir() else Address.parse(location)
        whole = f"{self.name}:{location}"
        check_options(whole, address.options, OPTIONS)
        _refuse_servers(whole, address)
        return LanceStore(location, Path(address.place), address)

    def output(self, location: str) -> Output:
        """A folder that is not there yet, with one table."""
        from migrate.stores.lancedb.output import FolderWriter

        address, whole = Address.parse(location), f"{self.name}:{location}"
        check_options(whole, address.options, ())
        _refuse_servers(whole, address)
        if not address.name or not address.place:
            raise UsageError(f"{whole}: expected a table after the #, found none; name the new one")
        return NamedFolderOutput(whole, address, FolderWriter)


def _refuse_servers(location: str, address: Address) -> None:
    if "://" in address.place:
        raise UsageError(f"{location}: only folders of LanceDB are read; copy the table to one")
