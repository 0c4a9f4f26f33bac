"""Databases of SQLite with a table `vec0` as a kind of stores, `sqlite-vec:FILE#TABLE`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from migrate.errors import StoreError
from migrate.locations import Address
from migrate.stores.base import KindSupport
from migrate.stores.binary_reader import read_errors
from migrate.stores.outputs import FolderOutput
from migrate.stores.sqlite_vec.catalog import NAME, is_database, tables_in

if TYPE_CHECKING:
    from migrate.stores.sqlite_vec.store import SqliteVecStore


class SqliteVecKind:
    """Databases with a table of vectors, as the registry knows them."""

    name = NAME
    support = KindSupport(
        "SQLite with sqlite-vec",
        ("sqlite-vec:FILE#TABLE",),
        "sqlite-vec",
        "the whole database: partition, metadata and auxiliary columns, other tables, views, triggers",
        "columns of `int8` and `bit` are not translated",
    )

    def recognises(self, path: Path) -> bool:
        """Whether it is a database with a table of vectors, or a folder with exactly one."""
        try:
            return len(_databases(path)) == 1
        except StoreError:
            return False

    def names(self, path: Path) -> Sequence[str]:
        """The tables of vectors of a database."""
        return sorted(tables_in(_databases(path)[0]))

    def open(self, location: str) -> SqliteVecStore:
        """Open a table.

        Raises
        ------
        StoreError
            There is no such database or table, or several and none is named.
        UsageError
            apsw or sqlite-vec is not installed, or an option means nothing.
        """
        from migrate.stores.sqlite_vec.store import SqliteVecStore

        address = Address(location) if Path(location).exists() else Address.parse(location)
        path = Path(address.place)
        if not path.exists():
            raise StoreError(f"{location}: expected a SQLite database, found no file {path}; check the path")
        files = _databases(path)
        if len(files) != 1:
            names = ", ".join(file.name for file in files) or "none"
            raise StoreError(
                f"{location}: expected one database with a table of sqlite-vec, found {names}; name its file"
            )
        return SqliteVecStore(location, files[0], address)

    def output(self, location: str) -> FolderOutput:
        """A folder with a database: `FOLDER#TABLE`."""
        from migrate.stores.sqlite_vec.output import SqliteVecOutput

        return SqliteVecOutput(Address.parse(location))


def _databases(path: Path) -> list[Path]:
    """The databases with a table of vectors at a path."""
    if path.is_file():
        return [path] if is_database(path) and tables_in(path) else []
    with read_errors(path):
        files = sorted(file for file in path.iterdir() if not file.name.startswith("."))
    return [file for file in files if is_database(file) and tables_in(file)]
