"""File of SQLite with tables of vectors: where it lies, copies of it, its versions."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable
from pathlib import Path

from migrate.databases.driver import DatabaseRows, Driver
from migrate.errors import StoreError, UsageError
from migrate.files import SQLITE_JOURNALS
from migrate.locations import Address, options_text, path_remedy
from migrate.manifest import find_manifest
from migrate.stores.binary_reader import read_errors


class SqliteFile(Driver):
    """A database, which is a file, or the only one with tables of vectors in a folder."""

    def __init__(self, location: str, address: Address) -> None:
        super().__init__(location, address)
        self._file: Path | None = None

    @classmethod
    @abstractmethod
    def holds_vectors(cls, path: Path) -> bool:
        """Return whether a file is a database with a table of vectors of this kind."""

    @classmethod
    def recognises(cls, path: Path) -> bool:
        """Return whether it is a database with a table of vectors, or a folder with one such database."""
        try:
            return len(cls._databases(path)) == 1
        # a damaged file, which another kind may know
        except Exception:
            return False

    @classmethod
    def _databases(cls, path: Path) -> list[Path]:
        """Return the databases with a table of vectors at a path."""
        inside = [path]
        with read_errors(path):
            if path.is_dir():
                inside = sorted(file for file in path.iterdir() if not file.name.startswith("."))
        # a journal may be gone in the next moment
        files = [file for file in inside if not file.name.endswith(SQLITE_JOURNALS) and file.is_file()]
        return [file for file in files if cls.holds_vectors(file)]

    @property
    def folder(self) -> Path:
        """The folder of the database."""
        path = Path(self.address.place)
        if path.is_dir():
            return path
        return path.parent

    @property
    def file(self) -> Path:
        """The database."""
        if self._file is None:
            self._file = self.find_file()
        return self._file

    def find_file(self) -> Path:
        """Return the file at the place, which has tables of vectors, or the only such file in the folder."""
        path = Path(self.address.place)
        if not path.exists():
            raise StoreError(f"{self.location}: there is no file {path}; {path_remedy(str(path))}")
        files = self._databases(path)
        if len(files) == 1:
            return files[0]
        have = "none"
        if files:
            have = f"several, {', '.join(file.name for file in files)}"
        raise StoreError(f"{self.location}: of databases with vectors there are {have}; name the file of one")

    def files(self) -> Collection[str]:
        """Return the database and what SQLite keeps beside it."""
        return [f"{self.file.name}{ending}" for ending in ("", *SQLITE_JOURNALS)]

    def completed(self) -> Address:
        """Return the address with table and options that the manifest beside the database names."""
        manifest = find_manifest(self.folder, "store")
        index = "" if manifest is None else manifest.store.index or ""
        beginning = f"{self.file.name}#"
        named = Address.parse(f"#{index.removeprefix(beginning)}")
        if not index.startswith(beginning) or self.name not in ("", named.name):
            return self.address
        return Address(self.address.place, named.name, {**named.options, **self.address.options})

    @property
    def opened_as(self) -> str:
        """Database, table and options."""
        return f"{self.file.name}#{self.name}{options_text(self.address.options)}"

    def state(self) -> list[list[int]]:
        """Return size, time and number of the database, and of its log of writes."""
        with read_errors(self.file):
            files = (self.file, self.file.with_name(f"{self.file.name}-wal"))
            stats = [file.stat() for file in files if file.exists()]
        # a log that is empty comes and goes with the programs that have the database open
        return [[status.st_size, status.st_mtime_ns, status.st_ino] for status in stats if status.st_size]

    def refuse_write(self, dim: int, old: DatabaseRows | None) -> None:
        """Refuse another name for a copy: views and triggers of the database name the table."""
        if old is not None and self.name != old.name:
            raise UsageError(f"{self.location}: a copy of a database has its tables; call this one {old.name}")

    def make_room(self, path: Path) -> bool:
        """Delete what a killed run left at the path of a new database; True if another collection is in it already."""
        if self.shares_folder and path.exists():
            return True
        for ending in ("", *SQLITE_JOURNALS):
            path.with_name(f"{path.name}{ending}").unlink(missing_ok=True)
        return False

    def differs(self, location: str, table: str) -> UsageError:
        """Return the error of a database whose copy has another table beside that of the vectors."""
        return UsageError(
            f"{location}: its table {table} differs from that of {self.location}, as one was written to since it was "
            "copied; sync the new database with the old, audit it, and switch again"
        )


def quoted(name: str) -> str:
    """Return a name as SQL takes it."""
    return '"' + name.replace('"', '""') + '"'


def listed_columns(columns: Iterable[str]) -> str:
    """Return names as SQL takes them, one after the other."""
    return ", ".join(map(quoted, columns))
