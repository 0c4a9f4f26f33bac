"""Collections of Chroma, in the folder of a persistent client or on a server: `chroma:PATH#COLLECTION`.

Chroma writes to a folder whenever it opens one, and reads the vectors into memory: a folder is read from a copy of the
collection's files, which is removed at the end of the process.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shutil
import sqlite3
import tempfile
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import numpy as np

from migrate.errors import AuthenticationError, LeadMigrateError, RemoteError, StoreError, UsageError
from migrate.files import cache_folder, disk_errors, output_errors
from migrate.locations import Address, scrub, secrets_of
from migrate.manifest import MANIFEST_NAME, Manifest, find_manifest
from migrate.stores.base import FROM_THE_START, KindSupport, Resume, Store, StoreInfo, StoreWriter
from migrate.stores.kept import forget, keep, kept_folder, manifest_of, new_token, stamp, sync_tree, token_in
from migrate.stores.outputs import NamedFolderOutput, NamedServerOutput, Output
from migrate.stores.records import (
    Distance,
    SearchableRecordStore,
    WaitingWriter,
    check_options,
    import_client,
    read_metric,
)
from migrate.stores.sqlite_read import read_only
from migrate.stores.switching import ASIDE, BESIDE, Exchange, FolderExchange
from migrate.vectors import Batch, Document, Vectors

if TYPE_CHECKING:
    from migrate.stores.chroma.serve import ChromaServing

DATABASE: Final = "chroma.sqlite3"
_SEGMENT: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_TOKEN: Final = "lead-migrate"  # noqa: S105
"""In the metadata of a collection on a server: what its files on this machine are found by."""
NOTE: Final = "lead-migrate-switch"
"""In the metadata of two collections that have traded names."""
_OWN: Final = "lead-migrate"
"""The folder, in one of Chroma, of what belongs to single collections."""
_URI: Final = "chroma:uri"
_AT_ONCE: Final = 1_000
_TRIES: Final = 5
_IDS_AT_ONCE: Final = 10_000
_SAMPLE: Final = 64
_PAYLOAD: Final = 8 << 20
_BYTES_PER_NUMBER: Final = 24
_MOST: Final = (1 << 63) - 1
_TENANT: Final = {"tenant": "default_tenant", "database": "default_database"}


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

    def open(self, location: str) -> Store:
        """Open `PATH#COLLECTION`; a folder with one collection needs no name."""
        address = _address(location)
        place = _Folder(f"{self.name}:{location}", Path(address.place), address.options)
        return ChromaStore(location, place, address.name)

    def output(self, location: str) -> Output:
        """A folder that is not there yet, with one collection."""
        whole = f"{self.name}:{location}"
        address = _named(whole)
        check_options(whole, address.options, ())
        return NamedFolderOutput(whole, address, _FolderWriter)


class ChromaServerKind:
    """Servers of Chroma: `chroma+http://host:port#collection`."""

    def __init__(self, scheme: str) -> None:
        self.name = f"chroma+{scheme}"

    def recognises(self, path: Path) -> bool:
        """No path is one."""
        return False

    def open(self, location: str) -> Store:
        """Open `//HOST:PORT#COLLECTION`."""
        address = Address.parse(location)
        return ChromaStore(location, _Server(f"{self.name}:{location}", address), address.name)

    def exchange_left(self, location: str) -> Exchange | None:
        """The switch of a name, which no collection may have just then."""
        address = Address.parse(location)
        return _exchange_left(_Server(f"{self.name}:{location}", address), address.name)

    def output(self, location: str) -> Output:
        """A collection that is not there yet."""
        return _ChromaServerOutput(f"{self.name}:{location}", _named(f"{self.name}:{location}"))


def beside_collection(path: Path, collection: str) -> Path:
    """Where what belongs to one of several collections of a folder lies, by its id, once it was switched."""
    return path / _OWN / collection


def own_files(path: Path) -> list[str]:
    """What in a folder is Chroma's, or belongs to single collections."""
    names = [found.name for found in path.iterdir()]
    return [name for name in names if name.startswith(DATABASE) or _SEGMENT.fullmatch(name) or name == _OWN]


def _exchange_left(place: _Place, name: str) -> Exchange | None:
    from migrate.stores.chroma.switch import CollectionExchange

    whole = FolderExchange.at(str(place.path)) if isinstance(place, _Folder) else None
    return whole or CollectionExchange.left(place, name)


def _address(location: str) -> Address:
    return Address(location) if Path(location).is_dir() else Address.parse(location)


def _named(location: str) -> Address:
    address = Address.parse(location.partition(":")[2])
    if not address.name or not address.place:
        raise UsageError(f"{location}: expected a collection after the #, found none; name the new one")
    return address


class _Place(ABC):
    """Where collections are."""

    is_remote = False

    def __init__(self, location: str, options: Mapping[str, str]) -> None:
        self.location = location
        check_options(location, options, _TENANT)
        self.tenant = {key: options.get(key, default) for key, default in _TENANT.items()}

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

    @abstractmethod
    def folder(self, collection: Any) -> Path | None:
        """See `Store.folder`."""

    def choose(self, name: str) -> str:
        """A collection by its name, or the only one."""
        names = self.names()
        if name in names:
            return name
        names = [found for found in names if not found.endswith(ASIDE)]
        have = ", ".join(names) or "none"
        if not name and len(names) == 1:
            return names[0]
        if _exchange_left(self, name) is not None:
            raise StoreError(f"{self.location}: a switch was killed half-way; run switch or rollback again")
        asked = f"a collection {name!r}" if name else "the name of a collection after a #"
        raise StoreError(f"{self.location}: expected {asked}, found {have}; name one of these")


class _Folder(_Place):
    """The folder of a persistent client."""

    def __init__(self, location: str, path: Path, options: Mapping[str, str]) -> None:
        super().__init__(location, options)
        self.path = path
        if not (path / DATABASE).is_file():
            raise StoreError(f"{location}: expected a folder with {DATABASE}, found none; check the path")

    def names(self) -> list[str]:
        return sorted(name for (name,) in self._ask("SELECT name FROM collections"))

    def collection(self, name: str) -> Any:
        module = import_client("chromadb", "chroma")
        folder = self._copy(name)
        with _answers(self.location, remote=False):
            client = _persistent(module, folder, self.tenant)
            collection = client.get_collection(name, embedding_function=None)
            weakref.finalize(collection, _let_go, client, folder)
            return collection

    def collection_itself(self, name: str) -> Any:
        module = import_client("chromadb", "chroma")
        with _answers(self.location, remote=False):
            client = _persistent(module, self.path, self.tenant)
            collection = client.get_collection(name, embedding_function=None)
            weakref.finalize(collection, client.close)
            return collection

    def number_of(self, name: str) -> str:
        return "".join(str(found) for (found,) in self._ask("SELECT id FROM collections WHERE name = ?", [name])[:1])

    def version(self, collection: Any) -> Any:
        return self._number(str(collection.id))

    def folder(self, collection: Any) -> Path | None:
        own = beside_collection(self.path, str(collection.id))
        return own if own.is_dir() else self.path

    def _number(self, collection: str) -> list[Any]:
        """What Chroma counts up with each change of any record of a collection."""
        pending = "SELECT max(seq_id) FROM embeddings_queue WHERE topic LIKE '%' || ?"
        applied = "SELECT max(m.seq_id) FROM max_seq_id m JOIN segments s ON m.segment_id = s.id WHERE s.collection = ?"
        facts = "SELECT key, str_value, int_value, float_value FROM collection_metadata WHERE collection_id = ?"
        numbers = [self._ask(question, [collection])[0][0] or 0 for question in (pending, applied)]
        found = self._ask("SELECT name FROM collections WHERE id = ?", [collection])
        return [collection, max(map(int, numbers)), found, sorted(map(repr, self._ask(facts, [collection])))]

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
        segments = self._ask(question, [name])
        before = [self._number(collection) for _, collection in segments]
        for segment in {segment for segment, _ in segments if (self.path / segment).is_dir()}:
            shutil.copytree(self.path / segment, folder / segment)
        with self._connected() as source, closing(sqlite3.connect(folder / DATABASE)) as target:
            source.backup(target)
        if [self._number(collection) for _, collection in segments] != before:
            raise StoreError(f"{self.location}: changed while it was read; run again on a store at rest")

    def _ask(self, question: str, values: Sequence[str] = ()) -> list[tuple[Any, ...]]:
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


class _Server(_Place):
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
        settings = _settings(module)
        if not is_safe:  # nothing to verify: loading certificates takes longer than everything else
            settings.chroma_server_ssl_verify = False
        with _answers(location, remote=True):
            self.client = module.HttpClient(
                host=host, port=port, ssl=is_safe, headers=headers, settings=settings, **self.tenant
            )

    def names(self) -> list[str]:
        with _answers(self.location, remote=True):
            found: list[str] = []
            while page := self.client.list_collections(limit=_AT_ONCE, offset=len(found)):
                found += [collection.name for collection in page]
            return sorted(found)

    def collection(self, name: str) -> Any:
        with _answers(self.location, remote=True):
            return self.client.get_collection(name, embedding_function=None)

    def number_of(self, name: str) -> str:
        return str(self.collection(name).id) if name in self.names() else ""

    def version(self, collection: Any) -> Any:
        """The server counts no changes: ids, texts and metadata are read for it, vectors are not."""
        digest, count = hashlib.sha256(), 0
        for page in _pages(self.location, collection, ["documents", "metadatas", "uris"]):
            for record in zip(page["ids"], page["documents"], page["metadatas"], page["uris"], strict=True):
                digest.update(json.dumps(record, sort_keys=True, default=repr).encode(errors="surrogatepass"))
                count += 1
        return [str(collection.id), count, digest.hexdigest()]

    def folder(self, collection: Any) -> Path | None:
        return kept_folder((collection.metadata or {}).get(_TOKEN))


class ChromaStore(SearchableRecordStore):
    """A collection.

    Parameters
    ----------
    location
        What opens it again.
    place
        Where it is.
    name
        Its name; empty for the only one.
    """

    def __init__(self, location: str, place: _Place, name: str) -> None:
        self._place = place
        self.name = place.choose(name)
        self.collection = place.collection(self.name)
        model = self.collection._model
        self.configuration = dict(model.configuration_json)
        self.kept_metadata = {key: value for key, value in (model.metadata or {}).items() if key not in (_TOKEN, NOTE)}
        index = self.configuration.get("hnsw") or self.configuration.get("spann") or {}
        self.space: Distance = index.get("space") or "l2"
        count = self._open_index(f"{place.location.partition('#')[0]}#{self.name}{sorted(place.tenant.items())}").count
        sample = self._sample(count)
        metric, notes = read_metric(self.space, sample)
        dim = model.dimension or sample.shape[1]
        self.opened_as = self.name
        self.info = StoreInfo(
            location,
            "chroma",
            "SPANN" if self.configuration.get("spann") else "HNSW",
            count,
            dim,
            metric,
            True,
            self._has_texts(count),
            self._manifest(),
            (*notes, *self._remarks()),
            self._details(index),
        )

    @property
    def folder(self) -> Path | None:
        """The folder of the client; of a collection on a server that this tool has made here, its own."""
        return self._beside() if self.info.manifest else None

    def keep_manifest(self, manifest: Manifest) -> Path:
        """Write it into the folder; where that has the manifest of another collection, into one of its own."""
        folder = self._beside()
        if (
            isinstance(self._place, _Folder)
            and (self._place.path / MANIFEST_NAME).exists()
            and self._manifest() is None
        ):
            folder = beside_collection(self._place.path, str(self.collection.id))
            with output_errors(folder):
                folder.mkdir(parents=True, exist_ok=True)
        return stamp(folder, self.name, self.info.location, manifest)

    def successor(self, ending: str) -> str | None:
        """Of a server, another collection."""
        return f"{self._place.location.partition('#')[0]}#{self.name}-{ending}" if self._place.is_remote else None

    def exchange(self, new: Store) -> Exchange:
        """See `Switchable`: names of collections, or folders with this one alone, change places."""
        from migrate.stores.chroma.switch import exchange_of

        return exchange_of(self, new)

    @property
    def notices_vectors(self) -> bool:  # type: ignore[override]
        """Whether Chroma counts changes: a folder does, a server does not."""
        return not self._place.is_remote

    def strangers(self) -> list[str]:
        """Other collections of the folder, and whatever Chroma has not made."""
        folder = None if self._place.is_remote else self._beside()
        if folder is None:
            return []
        others = [name for name in self._place.names() if name != self.name]
        own = {DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm", f"{DATABASE}-journal", *BESIDE}
        files = [path.name for path in folder.iterdir() if path.name not in own and not _SEGMENT.fullmatch(path.name)]
        return sorted([*others, *files])

    def exchanged(self) -> Exchange | None:
        """See `Switchable`."""
        return _exchange_left(self._place, self.name)

    @property
    def place(self) -> _Place:
        """Where the collection is."""
        return self._place

    def _beside(self) -> Path | None:
        return self._place.folder(self.collection)

    def _manifest(self) -> Manifest | None:
        folder = self._beside()
        is_own = folder is not None and not (folder / DATABASE).is_file()  # else it may be of another collection
        return find_manifest(folder, "store") if folder is not None and is_own else manifest_of(folder, self.name)

    def destination(self, location: Path, dim: int, resume: Resume = FROM_THE_START) -> StoreWriter:
        """A folder of a persistent client with a collection of the same name, configuration and metadata."""
        return _FolderWriter(self, location, dim, resume, self.name)

    @property
    def is_copy(self) -> bool:  # type: ignore[override]
        """Of a folder."""
        return not self._place.is_remote

    def _serve(self) -> ChromaServing:
        from migrate.stores.chroma.serve import ChromaServing

        return ChromaServing(self)

    @property
    def function(self) -> str | None:
        """The name of the embedding function that the collection notes."""
        return (self.configuration.get("embedding_function") or {}).get("name")

    def read(self, ids: Sequence[str], include: Sequence[str]) -> Iterator[Mapping[str, Any]]:
        """Some records as Chroma gives them, in parts."""
        for first in range(0, len(ids), _AT_ONCE):
            with _answers(self._place.location, remote=self._place.is_remote):
                yield self.collection.get(ids=list(ids[first : first + _AT_ONCE]), include=list(include))

    def _version(self) -> Any:
        return self._place.version(self.collection)

    def _read_ids(self) -> Iterable[str]:
        for page in _pages(self._place.location, self.collection, []):
            yield from page["ids"]

    def _read_vectors(self, ids: Sequence[str]) -> Batch:
        parts = [(part["ids"], part["embeddings"]) for part in self.read(ids, ["embeddings"])]
        vectors = [np.asarray(part, np.float32).reshape(len(found), -1) for found, part in parts if len(found)]
        read = [doc_id for found, _ in parts for doc_id in found]
        return Batch(read, np.concatenate(vectors) if vectors else np.empty((0, self.info.dim), np.float32))

    def _read_documents(self, ids: Sequence[str]) -> Iterable[Document]:
        for part in self.read(ids, ["documents", "metadatas", "uris"]):
            for doc_id, text, fields, uri in zip(
                part["ids"], part["documents"], part["metadatas"], part["uris"], strict=True
            ):
                extra = {} if uri is None else {_URI: uri}
                yield Document(doc_id, text or "", {**(fields or {}), **extra})

    def _sample(self, count: int) -> Vectors:
        rows = np.unique(np.linspace(0, max(count - 1, 0), min(_SAMPLE, count)).astype(np.int64))
        parts = [part["embeddings"] for part in self.read(self.ids(rows), ["embeddings"])]
        return np.concatenate([np.asarray(part, np.float32) for part in parts]) if parts else np.empty((0, 0), "f4")

    def _has_texts(self, count: int) -> bool:
        pages = _pages(self._place.location, self.collection, ["documents"], _AT_ONCE)
        return not count or any(text is not None for page in pages for text in page["documents"])

    def _remarks(self) -> Iterator[str]:
        if self.function is not None:
            yield f"the collection names the embedding function {self.function}, which stays as it is in a new store"

    def _details(self, index: Mapping[str, Any]) -> dict[str, str | int]:
        names = {"space": "distance", "max_neighbors": "hnsw_m", "ef_construction": "ef_construction"}
        facts: dict[str, str | int] = {"collection": self.name}
        facts.update({label: index[key] for key, label in (*names.items(), ("ef_search", "ef_search")) if key in index})
        return facts if self.function is None else {**facts, "embedding_function": self.function}


class _Writer(WaitingWriter):
    """Fills a new collection."""

    def fill(self, client: Any, name: str, token: Mapping[str, str]) -> None:
        """Make a collection with all records; `token` goes into its metadata."""
        source = self.source if isinstance(self.source, ChromaStore) else None
        configuration = {"hnsw": {"space": self.source.info.metric}} if source is None else _configuration(source)
        metadata = {**(source.kept_metadata if source else {}), **token} or None
        with _same_functions():
            collection = client.create_collection(
                name, configuration=configuration, metadata=metadata, embedding_function=None
            )
        most = min(client.get_max_batch_size(), max(_PAYLOAD // (self.rows.dim * _BYTES_PER_NUMBER), 1), _AT_ONCE)
        for records, vectors in self._copied(source, most) if source else self._made(most):
            _add(collection, records, vectors)
        self._check(collection)
        if source is not None and source.function is not None:
            self.remarks += (
                f"the collection still names the embedding function {source.function}: queries given to Chroma as "
                "texts are embedded by it; give it vectors of the new model, or name its function",
            )

    def _check(self, collection: Any) -> None:
        """Hold what Chroma has against what it was given."""
        count, found = self.source.info.count, collection.count()
        if found != count:
            raise StoreError(f"{collection.name}: expected {count} records once written, found {found}; run again")

    def _copied(self, source: ChromaStore, at_once: int) -> Iterator[tuple[list[_Record], Vectors]]:
        for first, vectors in self.vectors(at_once):
            ids, found = source.ids(range(first, first + len(vectors))), {}
            for part in source.read(ids, ["documents", "metadatas", "uris"]):
                records = zip(part["ids"], part["documents"], part["metadatas"], part["uris"], strict=True)
                found.update({record[0]: record for record in records})
            source._refuse_gone(ids, found)
            yield [found[doc_id] for doc_id in ids], vectors

    def _made(self, at_once: int) -> Iterator[tuple[list[_Record], Vectors]]:
        has_texts, changes = self.source.info.has_texts, _Changes()
        for documents, vectors in self.records(at_once):
            yield [changes.record(document, has_text=has_texts) for document in documents], vectors
        self.remarks += changes.remarks()


_Record = tuple[str, str | None, Mapping[str, Any] | None, str | None]
"""Id, document, metadata and URI."""


class _Changes:
    """Turns metadata of other kinds of stores into what Chroma can hold, and remembers what it changed."""

    def __init__(self) -> None:
        self._absent: set[str] = set()
        self._as_json: set[str] = set()

    def record(self, document: Document, *, has_text: bool) -> _Record:
        fields, uri = dict(document.metadata), None
        if isinstance(fields.get(_URI), str):
            uri = fields.pop(_URI)
        kept = {str(key): self._value(document.id, str(key), value) for key, value in fields.items()}
        kept = {key: value for key, value in kept.items() if value is not None}
        if len(kept) + len([value for value in fields.values() if value is None]) < len(fields):
            raise StoreError(f"document {document.id!r}: expected metadata with different keys, found two alike")
        reserved = next((key for key in kept if key.startswith("chroma:")), None)
        if reserved is not None:
            raise StoreError(f"document {document.id!r}: Chroma keeps the key {reserved!r} to itself; rename it")
        return document.id, document.text if has_text else None, kept or None, uri

    def remarks(self) -> tuple[str, ...]:
        """What a person is told."""
        found = []
        if self._absent:
            found.append(f"Chroma has no null: where they are null, these keys are absent: {_listed(self._absent)}")
        if self._as_json:
            found.append(
                "Chroma holds no nested values, whole numbers beyond 64 bits, NaN or infinity: these keys have them as "
                f"JSON texts: {_listed(self._as_json)}"
            )
        return tuple(found)

    def _value(self, doc_id: str, key: str, value: Any) -> Any:
        if value is None:
            self._absent.add(key)
            return None
        if _is_plain(value) or (isinstance(value, list | tuple) and _is_plain_list(list(value))):
            return list(value) if isinstance(value, tuple) else value
        try:
            text = json.dumps(value, ensure_ascii=False)
        except (TypeError, ValueError) as error:
            raise StoreError(
                f"document {doc_id!r}: expected a value under {key!r} that JSON can hold, found another ({error})"
            ) from error
        self._as_json.add(key)
        return text


def _is_plain(value: Any) -> bool:
    """Whether Chroma holds it as it is; of a number that is not finite it drops the key without a word."""
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, str | bool) or (isinstance(value, int) and -_MOST <= value <= _MOST)


def _is_plain_list(values: list[Any]) -> bool:
    """Whether Chroma holds it as a list: of one type, and not empty."""
    return bool(values) and all(map(_is_plain, values)) and len({type(value) for value in values}) == 1


def _listed(keys: Iterable[str]) -> str:
    found = sorted(keys)
    return ", ".join(found[:10]) + (f" and {len(found) - 10} more" if len(found) > 10 else "")


def _add(collection: Any, records: Sequence[_Record], vectors: Vectors) -> None:
    """Add records; Chroma takes those at once that have the same parts."""
    groups: dict[tuple[bool, ...], list[int]] = {}
    for place, (_, *parts) in enumerate(records):
        groups.setdefault((parts[0] is not None, bool(parts[1]), parts[2] is not None), []).append(place)
    for (has_text, has_fields, has_uri), places in groups.items():
        ids, texts, fields, uris = zip(*(records[place] for place in places), strict=True)
        collection.add(
            ids=list(ids),
            embeddings=vectors[places],
            documents=list(texts) if has_text else None,
            metadatas=list(fields) if has_fields else None,
            uris=list(uris) if has_uri else None,
        )


class _FolderWriter(_Writer):
    """A folder of a persistent client."""

    def __init__(self, source: Store, folder: Path, dim: int, resume: Resume, name: str) -> None:
        super().__init__(source, folder, dim, resume)
        self._name = name

    def load(self) -> None:
        """Write the folder anew."""
        module = import_client("chromadb", "chroma")
        _clear(self.folder)
        with output_errors(self.folder), _answers(str(self.folder), remote=False):
            client = _persistent(module, self.folder, _TENANT)
            try:
                self.fill(client, self._name, {})
            finally:
                client.close()
        sync_tree(self.folder)


class _ServerWriter(_Writer):
    """A collection of a server, under a name that nobody uses."""

    def __init__(self, source: Store, folder: Path, dim: int, resume: Resume, output: _ChromaServerOutput) -> None:
        super().__init__(source, folder, dim, resume)
        self._output = output

    def load(self) -> None:
        """Fill the collection anew."""
        output, place = self._output, self._output.place()
        if output.unfinished in place.names():
            place.client.delete_collection(output.unfinished)
        token = new_token(self.folder)
        with _answers(output.location, remote=True):
            self.fill(place.client, output.unfinished, {_TOKEN: token})


class _ChromaServerOutput(NamedServerOutput):
    """A collection of a server. Two renames make it the final one; what it replaces is removed after them."""

    def __init__(self, location: str, address: Address) -> None:
        super().__init__(location, address)
        self.unfinished, self._old = (f"lead-migrate-{self.digest}-{what}" for what in ("unfinished", "old"))

    def place(self) -> _Server:
        """The server."""
        return _Server(self.location, self.address)

    def writer(self, source: Store, content: Path, dim: int, resume: Resume) -> StoreWriter:
        """A writer of the unfinished collection."""
        return _ServerWriter(source, content, dim, resume, self)

    def made_here(self) -> bool | None:
        """Whether it has a token."""
        place = self.place()
        return None if self.final not in place.names() else self._token(place, self.final) is not None

    def is_published(self, content: Path) -> bool:
        """Whether the collection has its final name, and nothing is left of what it replaces."""
        place = self.place()
        names = place.names()
        if self.final not in names or self._old in names:
            return False
        return not content.is_dir() or token_in(content) == self._token(place, self.final)

    def publish(self, content: Path, *, force: bool) -> None:
        """Rename it."""
        place, token = self.place(), token_in(content)
        keep(content, str(token))
        with _answers(self.location, remote=True):
            if self.unfinished in place.names():
                if self.final in place.names():
                    self.refuse_existing(force=force)
                    place.collection(self.final).modify(name=self._old)
                place.collection(self.unfinished).modify(name=self.final)
            elif self.final not in place.names():
                raise StoreError(f"{self.location}: the collection just written is gone; --restart writes it anew")
            if self._token(place, self.final) != token:
                raise StoreError(f"{self.location}: expected the collection just written, found another; run again")
            self._remove(place, self._old)

    def discard(self) -> None:
        """Remove the unfinished collection; one that stepped aside goes back."""
        place = self.place()
        with _answers(self.location, remote=True):
            self._remove(place, self.unfinished)
            if self._old in place.names() and self.final not in place.names():
                place.collection(self._old).modify(name=self.final)
            self._remove(place, self._old)

    def _token(self, place: _Server, name: str) -> str | None:
        return (place.collection(name).metadata or {}).get(_TOKEN)

    def _remove(self, place: _Server, name: str) -> None:
        if name in place.names():
            token = self._token(place, name)
            place.client.delete_collection(name)
            forget(token)


def _settings(module: Any) -> Any:
    return module.config.Settings(anonymized_telemetry=False)


def _persistent(module: Any, folder: Path, tenant: Mapping[str, str]) -> Any:
    return module.PersistentClient(str(folder), settings=_settings(module), **tenant)


def _let_go(client: Any, folder: Path) -> None:
    """Close a copy, and remove it."""
    client.close()
    shutil.rmtree(folder, ignore_errors=True)


def _clear(folder: Path) -> None:
    """Remove what an earlier call has left of Chroma's."""
    with output_errors(folder):
        for path in folder.iterdir():
            if path.name.startswith(DATABASE):
                path.unlink()
            elif path.is_dir() and (path / "header.bin").exists():
                shutil.rmtree(path)


def _configuration(source: ChromaStore) -> dict[str, Any]:
    """What `create_collection` takes for a collection as `source` is."""
    found = {key: dict(source.configuration[key]) for key in ("hnsw", "spann") if source.configuration.get(key)}
    function = source.configuration.get("embedding_function") or {}
    if function.get("type") == "known":
        found["embedding_function"] = _kept_function(function)
    return found


def _kept_function(stored: Mapping[str, Any]) -> Any:
    """An embedding function that says what a collection has noted, and embeds nothing."""
    from chromadb.api.types import EmbeddingFunction

    class Kept(EmbeddingFunction[Any]):
        def __init__(self) -> None:
            """Nothing is loaded."""

        def __call__(self, input: Any) -> Any:  # noqa: A002
            raise TypeError("only its name is kept")

        @staticmethod
        def name() -> str:
            return str(stored["name"])

        def get_config(self) -> dict[str, Any]:
            return dict(stored.get("config") or {})

        @staticmethod
        def build_from_config(config: Mapping[str, Any]) -> Any:  # noqa: ARG004
            return Kept()

        def supported_spaces(self) -> list[Any]:
            return ["cosine", "l2", "ip"]

    return Kept()


@contextmanager
def _same_functions() -> Iterator[None]:
    """Chroma registers the function of a new collection by its name: the one that it had before has it again."""
    from chromadb.utils.embedding_functions import known_embedding_functions as known

    before = dict(known)
    try:
        yield
    finally:
        known.clear()
        known.update(before)


def _pages(location: str, collection: Any, include: list[str], size: int = _IDS_AT_ONCE) -> Iterator[Mapping[str, Any]]:
    """All records, in bounded memory."""
    offset = 0
    while True:
        with _answers(location, remote="+http" in location):
            page = collection.get(limit=size, offset=offset, include=include)
        if not page["ids"]:
            return
        yield page
        offset += len(page["ids"])


@contextmanager
def _answers(location: str, *, remote: bool) -> Iterator[None]:
    """Turn whatever the client raises into one line."""
    try:
        with nullcontext() if remote else disk_errors(Path(location)):
            yield
    except LeadMigrateError:
        raise
    except Exception as error:
        said = (scrub(str(error)).strip().splitlines() or [type(error).__name__])[0][:300]
        if not remote:
            raise StoreError(f"{location}: Chroma says: {said}; see to that, and run again") from error
        if type(error).__name__ == "NotFoundError":
            raise StoreError(f"{location}: expected the collection as it was opened, found it gone ({said})") from error
        if any(word in said.lower() for word in ("unauthorized", "forbidden", "401", "403")):
            raise AuthenticationError(f"{location}: the server refused ({said}); set CHROMA_API_KEY") from error
        raise RemoteError(f"{location}: the server of Chroma failed: {said}; check that it is there") from error
