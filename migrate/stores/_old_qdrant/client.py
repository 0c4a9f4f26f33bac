"""Where collections of Qdrant are: a server, or the folder of the client's local mode, and how both are asked.

The local mode writes to its folder when it opens one, unpickles every point, and holds all in memory: a folder is read
from a copy, whose pickles are first held to be points and nothing else.
"""

from __future__ import annotations

import base64
import io
import os
import pickle
import re
import shutil
import sqlite3
import tempfile
import warnings
import weakref
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from migrate.errors import AuthenticationError, LeadMigrateError, RemoteError, StoreError, UsageError
from migrate.files import cache_folder, disk_errors, output_errors
from migrate.locations import Address, scrub, secrets_of
from migrate.stores.kept import kept_folder
from migrate.stores.records import import_client
from migrate.stores.sqlite_read import change_counter, read_only

OWN: Final = "lead-migrate"
"""In the metadata of a collection: what this tool keeps there."""
OPTIONS: Final = ("id", "text", "vector")
LAYOUT: Final = ("page_content", "metadata", "id")
"""Of the payload that is made of a document of another kind of store; LangChain finds its texts there."""
AT_ONCE: Final = 1_000
LOCAL: Final = ("collection", "meta.json", ".lock")
"""What the folder of a local mode has."""
_POINTS: Final = "qdrant_client.http.models.models"
_PLAIN: Final = {("uuid", "UUID"), *(("datetime", name) for name in ("date", "datetime", "timedelta", "timezone"))}
"""What values in payloads may be, beside those of JSON."""


def is_local(path: Path) -> bool:
    """Whether the local mode has written to a folder."""
    return (path / "meta.json").is_file() and (path / "collection").is_dir()


class Place:
    """A server, or what behaves as one."""

    is_remote = True

    def __init__(self, location: str, client: Any) -> None:
        self.location = location
        self.client = client

    def names(self) -> list[str]:
        """Collections and aliases."""
        with answers(self):
            collections = [collection.name for collection in self.client.get_collections().collections]
            return sorted({*collections, *self.aliases()})

    def aliases(self) -> dict[str, str]:
        """The collection of each alias."""
        with answers(self):
            return {alias.alias_name: alias.collection_name for alias in self.client.get_aliases().aliases}

    def choose(self, name: str) -> str:
        """A collection by its name, or the only one."""
        names = self.names()
        if name in names or (not name and len(names) == 1):
            return name or names[0]
        expected = f"a collection {name!r}" if name else "the name of a collection after a #"
        raise StoreError(f"{self.location}: expected {expected}, found {', '.join(names) or 'none'}; name one of these")

    def take_itself(self) -> None:
        """Use what is written to, where `client` reads a copy."""

    def number_of(self, name: str) -> Any:
        """What tells the collection that has a name at this moment from another: its own name."""
        return self.aliases().get(name, name)

    def version(self, name: str) -> Any:
        """What the place itself tells of changes; None where it tells nothing."""
        return None

    def version_read(self, name: str) -> Any:
        """The version of what `client` reads; None where the place tells nothing."""
        return self.version(name)

    def again(self) -> Place:
        """The same place as it is now."""
        return self

    def folder(self, name: str) -> Path | None:
        """See `Store.folder`."""
        return kept_folder(token_of(self.aliases().get(name, name)))


class Folder(Place):
    """A copy of a folder of the local mode."""

    is_remote = False

    def __init__(self, location: str, path: Path) -> None:
        self._path = path
        self._copied: dict[str, list[int]] = {}
        super().__init__(location, None)
        if not is_local(path):
            raise StoreError(f"{location}: expected a folder of Qdrant's local mode, found none; check the path")
        module = import_client("qdrant_client", "qdrant")
        copies = cache_folder() / "copies"
        with output_errors(copies):
            copies.mkdir(parents=True, exist_ok=True)
            folder = Path(tempfile.mkdtemp(prefix="qdrant-", dir=copies))
        try:
            with output_errors(folder):
                self._copy_to(folder)
            with answers(self):
                self.client = quiet(module.QdrantClient, path=str(folder))
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        weakref.finalize(self, _let_go, self.client, folder)

    def number_of(self, name: str) -> Any:
        """The number of the collection's file."""
        return self.version(name)[-1]

    def version(self, name: str) -> Any:
        """Size, time, and the count of changes of the collection's file, and its number."""
        path = self._path / "collection" / self.aliases().get(name, name) / "storage.sqlite"
        try:
            return _version_of(path)
        except OSError as error:
            raise StoreError(f"{self.location}: expected {path.name}, found it gone; run again") from error

    def version_read(self, name: str) -> Any:
        """As it was when the copy was made."""
        return self._copied[self.aliases().get(name, name)]

    def again(self) -> Place:
        """Another copy."""
        return Folder(self.location, self._path)

    def folder(self, name: str) -> Path | None:
        """The folder itself."""
        return self._path

    def take_itself(self) -> None:
        """Use the folder in the place of its copy: nobody else can open it from then on."""
        module = import_client("qdrant_client", "qdrant")
        for storage in (self._path / "collection").glob("*/storage.sqlite"):
            with read_only(storage) as source:
                _check_points(storage, source)
        with answers(self):
            self.client = quiet(module.QdrantClient, path=str(self._path))
        weakref.finalize(self, self.client.close)

    def _copy_to(self, folder: Path) -> None:
        shutil.copyfile(self._path / "meta.json", folder / "meta.json")
        try:
            for storage in (self._path / "collection").glob("*/storage.sqlite"):
                target = folder / "collection" / storage.parent.name / storage.name
                target.parent.mkdir(parents=True)
                with read_only(storage) as source, closing(sqlite3.connect(target)) as copy:
                    source.execute("BEGIN")
                    source.execute("SELECT 1 FROM sqlite_master").fetchone()  # from here on nobody else commits
                    self._copied[storage.parent.name] = _version_of(storage)
                    source.backup(copy)
                    _check_points(storage, copy)
        except sqlite3.Error as error:
            raise StoreError(f"{self.location}: SQLite cannot read it ({error}); copy it again") from error


def _version_of(path: Path) -> list[int]:
    status = path.stat()
    return [status.st_size, status.st_mtime_ns, change_counter(path), status.st_ino]


def _check_points(storage: Path, connection: sqlite3.Connection) -> None:
    for key, point in connection.execute("SELECT id, point FROM points"):
        _check_pickles(storage, key, point)


class _Points(pickle.Unpickler):
    """Reads pickles of points alone: a class of any other kind could run whatever it likes."""

    def find_class(self, module: str, name: str) -> Any:
        is_point = module == _POINTS and re.fullmatch(r"[A-Z]\w*", name)
        if not is_point and (module, name) not in _PLAIN:
            raise pickle.UnpicklingError(f"it names {module}.{name}")
        return _Stub


class _Stub:
    """Stands for any class of points while their pickles are looked at."""

    def __init__(self, *arguments: object) -> None:
        """Nothing is kept."""

    def __setstate__(self, state: object) -> None:
        """Nothing is kept."""


def _check_pickles(path: Path, key: str, point: bytes) -> None:
    try:
        for content in (base64.b64decode(key), point):
            _Points(io.BytesIO(content)).load()
    except Exception as error:
        raise StoreError(
            f"{path}: expected pickles of points, found another ({error}), which may run a program when it is read; "
            "do not open it"
        ) from error


def _let_go(client: Any, folder: Path) -> None:
    client.close()
    shutil.rmtree(folder, ignore_errors=True)


def place_of(location: str, address: Address) -> Place:
    """The server or folder of an address."""
    if "://" not in address.place:
        return Folder(location, Path(address.place))
    return Place(location, connect(location, address.place))


def connect(location: str, url: str) -> Any:
    """A client of the server at a URL; the key is what was in the location, or in QDRANT_API_KEY."""
    module = import_client("qdrant_client", "qdrant")
    secrets = secrets_of(location)
    key = secrets.get("api_key") or secrets.get("token") or os.environ.get("QDRANT_API_KEY")
    try:
        return quiet(module.QdrantClient, url=url, api_key=key, timeout=60, check_compatibility=False)
    except Exception as error:
        raise UsageError(f"{location}: expected the URL of a server, found another ({scrub(str(error))})") from error


def token_of(name: str) -> str | None:
    """The token in the own name of a collection that this tool has made."""
    match = re.fullmatch(r".*-([0-9a-f]{32})", name, re.DOTALL)
    return match[1] if match else None


def models_of_client() -> Any:
    """The client's module of what it sends."""
    module: ModuleType = import_client("qdrant_client.models", "qdrant")
    return module


def quiet(call: Any, *arguments: Any, **options: Any) -> Any:
    """Call the client without its advice on other ways to use Qdrant."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return call(*arguments, **options)


@contextmanager
def answers(place: Place) -> Iterator[None]:
    """Turn whatever the client raises into one line."""
    try:
        with nullcontext() if place.is_remote else disk_errors(Path(place.location)):
            yield
    except LeadMigrateError:
        raise
    except Exception as error:
        words = " ".join(scrub(str(error)).split())[:300] or type(error).__name__
        status = getattr(error, "status_code", None)
        if not place.is_remote or status in (400, 404, 422):
            raise StoreError(f"{place.location}: Qdrant says: {words}; see to that, and run again") from error
        if status in (401, 403):
            raise AuthenticationError(f"{place.location}: the server refused; set QDRANT_API_KEY") from error
        raise RemoteError(f"{place.location}: the server of Qdrant failed: {words}; check that it is there") from error
