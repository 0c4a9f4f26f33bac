"""Where collections of Chroma are: the folder of its persistent client, or its server, and how both are asked.

Chroma writes to a folder whenever it opens one, and reads the vectors into memory: a folder is read from a copy of the
collection's files, which is removed at the end of the process.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sqlite3
import tempfile
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from migrate.errors import AuthenticationError, LeadMigrateError, OutputError, RemoteError, StoreError, UsageError
from migrate.files import cache_folder, disk_errors, output_errors
from migrate.locations import Address, scrub, secrets_of
from migrate.stores.kept import kept_folder
from migrate.stores.records import check_options, import_client
from migrate.stores.sqlite_read import read_only

DATABASE: Final = "chroma.sqlite3"
SEGMENT: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
TOKEN: Final = "lead-migrate"  # noqa: S105
"""In the metadata of a collection on a server: what its files on this machine are found by."""
NOTE: Final = "lead-migrate-switch"
"""In the metadata of two collections that have traded names."""
_OWN: Final = "lead-migrate"
"""The folder, in one of Chroma, of what belongs to single collections."""
URI: Final = "chroma:uri"
"""In the metadata of a document: the URI of its record."""
AT_ONCE: Final = 1_000
_TRIES: Final = 5
_IDS_AT_ONCE: Final = 10_000
_UNWRITTEN: Final = "Failed to apply logs to the metadata segment"
"""All that Chroma says where SQLite found the disk full under an index of words."""
TENANT: Final = {"tenant": "default_tenant", "database": "default_database"}

_CLIENTS: Final[dict[tuple[Any, ...], Any]] = {}
"""One of each server: Chroma's own keeps its connections until the process ends, closed or not."""


def beside_collection(path: Path, collection: str) -> Path:
    """Where what belongs to one of several collections of a folder lies, by its id, once it was switched."""
    return path / _OWN / collection


def own_files(path: Path) -> list[str]:
    """What in a folder is Chroma's, or belongs to single collections."""
    names = [child.name for child in path.iterdir()]
    return [name for name in names if name.startswith(DATABASE) or SEGMENT.fullmatch(name) or name == _OWN]


class Place(ABC):
    """Where collections are."""

    is_remote = False

    def __init__(self, location: str, options: Mapping[str, str]) -> None:
        self.location = location
        check_options(location, options, TENANT)
        self.tenant = {key: options.get(key, default) for key, default in TENANT.items()}

    @abstractmethod
    def names(self) -> list[str]:
        """The collections."""

    @abstractmethod
    def collection(self, name: str) -> Any:
        """Chroma's own object for one of them."""

    def collection_itself(self, name: str) -> Any:
        """The one that is written to, where `collection` is a copy."""
        return self.collection(name)

    @abstractmethod
    def number_of(self, name: str) -> str:
        """The id of the collection that has a name at this moment; empty where none has."""

    @abstractmethod
    def version(self, collection: Any) -> Any:
        """See `RecordStore._version`."""

    def version_read(self, collection: Any) -> Any:
        """The version of what `collection` is read from."""
        return self.version(collection)

    def again(self) -> Place:
        """The same place, where a collection is read as it is now."""
        return self

    @abstractmethod
    def folder(self, collection: Any) -> Path | None:
        """See `Store.folder`."""


class Folder(Place):
    """The folder of a persistent client."""

    def __init__(self, location: str, path: Path, options: Mapping[str, str]) -> None:
        super().__init__(location, options)
        self.path, self._options = path, options
        self._copied: dict[str, list[Any]] = {}
        if not (path / DATABASE).is_file():
            raise StoreError(f"{location}: expected a folder with {DATABASE}, found none; check the path")

    def names(self) -> list[str]:
        """See `Place`."""
        return sorted(name for (name,) in self.ask("SELECT name FROM collections"))

    def collection(self, name: str) -> Any:
        """See `Place`."""
        module = import_client("chromadb", "chroma")
        folder = self._copy(name)
        with answers(self.location, remote=False):
            client = persistent(module, folder, self.tenant)
            collection = client.get_collection(name, embedding_function=None)
            weakref.finalize(collection, _let_go, client, folder)
            return collection

    def collection_itself(self, name: str) -> Any:
        """See `Place`."""
        module = import_client("chromadb", "chroma")
        with answers(self.location, remote=False):
            client = persistent(module, self.path, self.tenant)
            collection = client.get_collection(name, embedding_function=None)
            weakref.finalize(collection, client.close)
            return collection

    def number_of(self, name: str) -> str:
        """See `Place`."""
        return "".join(str(found) for (found,) in self.ask("SELECT id FROM collections WHERE name = ?", [name])[:1])

    def version(self, collection: Any) -> Any:
        """See `Place`."""
        return self._number(str(collection.id))

    def version_read(self, collection: Any) -> Any:
        """As it was when the copy was made."""
        return self._copied[str(collection.id)]

    def again(self) -> Place:
        """One that makes another copy."""
        return Folder(self.location, self.path, self._options)

    def folder(self, collection: Any) -> Path | None:
        """See `Place`."""
        subfolder = beside_collection(self.path, str(collection.id))
        return subfolder if subfolder.is_dir() else self.path

    def _number(self, collection: str) -> list[Any]:
        """What Chroma counts up with each change of any record of a collection."""
        pending = "SELECT max(seq_id) FROM embeddings_queue WHERE topic LIKE '%' || ?"
        applied = "SELECT max(m.seq_id) FROM max_seq_id m JOIN segments s ON m.segment_id = s.id WHERE s.collection = ?"
        facts = "SELECT key, str_value, int_value, float_value FROM collection_metadata WHERE collection_id = ?"
        numbers = [self.ask(question, [collection])[0][0] or 0 for question in (pending, applied)]
        named = self.ask("SELECT name FROM collections WHERE id = ?", [collection])
        return [collection, max(map(int, numbers)), named, sorted(map(repr, self.ask(facts, [collection])))]

    def _copy(self, name: str) -> Path:
        """A copy of all that belongs to a collection, in a folder that nobody else knows."""
        for _ in range(_TRIES - 1):
            with suppress(StoreError):  # another program may write to it meanwhile
                return self._copy_once(name)
        return self._copy_once(name)

    def _copy_once(self, name: str) -> Path:
        copies = cache_folder() / "copies"
        with output_errors(copies):
            copies.mkdir(parents=True, exist_ok=True)
            folder = Path(tempfile.mkdtemp(prefix="chroma-", dir=copies))
        try:
            with output_errors(folder):
                self._copy_to(folder, name)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return folder

    def _copy_to(self, folder: Path, name: str) -> None:
        question = "SELECT s.id, c.id FROM segments s JOIN collections c ON s.collection = c.id WHERE c.name = ?"
        segments = self.ask(question, [name])
        before = {collection: self._number(collection) for _, collection in segments}
        for segment in {segment for segment, _ in segments if (self.path / segment).is_dir()}:
            shutil.copytree(self.path / segment, folder / segment)
        with self._connected() as source, closing(sqlite3.connect(folder / DATABASE)) as target:
            source.backup(target)
        if any(self._number(collection) != number for collection, number in before.items()):
            raise StoreError(f"{self.location}: changed while it was read; run again on a store at rest")
        self._copied = before

    def ask(self, question: str, values: Sequence[str] = ()) -> list[tuple[Any, ...]]:
        """See `Place`."""
        with self._connected() as connection:
            return connection.execute(question, values).fetchall()

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        try:
            with read_only(self.path / DATABASE) as connection:
                yield connection
        except sqlite3.Error as error:
            raise StoreError(
                f"{self.location}: expected a database of Chroma, found one that SQLite cannot read ({error}); "
                "stop what writes to it, or copy it again"
            ) from error


class Server(Place):
    """A server of Chroma."""

    is_remote = True

    def __init__(self, location: str, address: Address) -> None:
        super().__init__(location, address.options)
        module = import_client("chromadb", "chroma")
        url = urlsplit(address.place)
        secrets = secrets_of(location)
        token = secrets.get("token") or secrets.get("api_key") or os.environ.get("CHROMA_API_KEY")
        headers = {"x-chroma-token": token, "Authorization": f"Bearer {token}"} if token else None
        is_safe = location.startswith("chroma+https:")
        try:
            host, port = url.hostname, url.port or (443 if is_safe else 8000)
        except ValueError:
            host = None
        if not host:
            raise UsageError(f"{location}: expected chroma+http://HOST:PORT#COLLECTION, found no host; name it")
        key = (os.getpid(), host, port, is_safe, token, *self.tenant.items())
        if key not in _CLIENTS:
            settings = _settings(module)
            if not is_safe:  # nothing to verify: loading certificates takes longer than everything else
                settings.chroma_server_ssl_verify = False
            with answers(location, remote=True):
                _CLIENTS[key] = module.HttpClient(
                    host=host, port=port, ssl=is_safe, headers=headers, settings=settings, **self.tenant
                )
        self.client = _CLIENTS[key]

    def names(self) -> list[str]:
        """See `Place`."""
        with answers(self.location, remote=True):
            names: list[str] = []
            while page := self.client.list_collections(limit=AT_ONCE, offset=len(names)):
                names += [collection.name for collection in page]
            return sorted(names)

    def collection(self, name: str) -> Any:
        """See `Place`."""
        with answers(self.location, remote=True):
            return self.client.get_collection(name, embedding_function=None)

    def number_of(self, name: str) -> str:
        """See `Place`."""
        return str(self.collection(name).id) if name in self.names() else ""

    def version(self, collection: Any) -> Any:
        """The server counts no changes: ids, texts and metadata are read for it, vectors are not."""
        digest, count = hashlib.sha256(), 0
        for page in pages(self.location, collection, ["documents", "metadatas", "uris"]):
            for record in zip(page["ids"], page["documents"], page["metadatas"], page["uris"], strict=True):
                digest.update(json.dumps(record, sort_keys=True, default=repr).encode(errors="surrogatepass"))
                count += 1
        return [str(collection.id), count, digest.hexdigest()]

    def folder(self, collection: Any) -> Path | None:
        """See `Place`."""
        return kept_folder((collection.metadata or {}).get(TOKEN))


def _settings(module: Any) -> Any:
    return module.config.Settings(anonymized_telemetry=False)


def persistent(module: Any, folder: Path, tenant: Mapping[str, str]) -> Any:
    """Chroma's client of a folder, which writes to it."""
    return module.PersistentClient(str(folder), settings=_settings(module), **tenant)


def _let_go(client: Any, folder: Path) -> None:
    """Close a copy, and remove it."""
    client.close()
    shutil.rmtree(folder, ignore_errors=True)


def pages(location: str, collection: Any, include: list[str], size: int = _IDS_AT_ONCE) -> Iterator[Mapping[str, Any]]:
    """All records, in bounded memory."""
    offset = 0
    while True:
        with answers(location, remote="+http" in location):
            page = collection.get(limit=size, offset=offset, include=include)
        if not page["ids"]:
            return
        yield page
        offset += len(page["ids"])


@contextmanager
def answers(location: str, *, remote: bool) -> Iterator[None]:
    """Turn whatever the client raises into one line."""
    try:
        with nullcontext() if remote else disk_errors(Path(location)):
            yield
    except LeadMigrateError:
        raise
    except Exception as error:
        message = (scrub(str(error)).strip().splitlines() or [type(error).__name__])[0][:300]
        if not remote and _UNWRITTEN in message:
            raise OutputError(
                f"cannot write {location}: Chroma says: {message}; free some space and run the same command again"
            ) from error
        if not remote:
            raise StoreError(f"{location}: Chroma says: {message}; see to that, and run again") from error
        if type(error).__name__ == "NotFoundError":
            raise StoreError(
                f"{location}: expected the collection as it was opened, found it gone ({message})"
            ) from error
        if any(word in message.lower() for word in ("unauthorized", "forbidden", "401", "403")):
            raise AuthenticationError(f"{location}: the server refused ({message}); set CHROMA_API_KEY") from error
        raise RemoteError(f"{location}: the server of Chroma failed: {message}; check that it is there") from error
