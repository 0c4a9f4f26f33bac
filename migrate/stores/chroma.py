"""Collections of Chroma: `chroma:PATH#COLLECTION` in a folder, `chroma+http(s)://HOST:PORT#COLLECTION` on a server.

Chroma writes to a folder whenever it opens one, and reads the vectors into memory: a folder is read from a copy of the
collection's files, which is removed with the last reference to it.
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
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import cache, cached_property
from pathlib import Path
from threading import Lock
from types import SimpleNamespace
from typing import Any, Final
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from migrate.errors import AuthenticationError, LeadMigrateError, OutputError, RemoteError, StoreError, UsageError
from migrate.files import output_errors, reach, work_folder
from migrate.locations import options_text, secrets_of
from migrate.manifest import MANIFEST_NAME, Manifest, ModelIdentity, find_manifest
from migrate.stores.base import KindSupport, StoreInfo
from migrate.stores.driver import Driver, Page
from migrate.stores.kept import forget, keep, kept_folder, stamp, sync_tree
from migrate.stores.names import switched_with
from migrate.stores.records import import_client, read_metric
from migrate.stores.serving import Hits, as_hits
from migrate.stores.sqlite_read import read_only
from migrate.stores.switching import ASIDE, others
from migrate.vectors import Batch, Document, Vectors

_OWN: Final = "lead-migrate"
"""In the metadata of a collection on a server: its token. In a folder: a folder of what belongs to one collection."""
_DATABASE: Final = "chroma.sqlite3"
_SEGMENT: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_TENANT: Final = {"tenant": "default_tenant", "database": "default_database"}
_URI: Final = "chroma:uri"
"""In the metadata of a document: the URI of its record."""
_FIELDS: Final = ("documents", "metadatas", "uris")
_AT_ONCE: Final = 1_000
_PAGE: Final = 4_096
_PAGE_BYTES: Final = 64 << 20
_TRIES: Final = 5

_Record = tuple[str, str | None, Mapping[str, Any] | None, str | None]
"""Id, document, metadata and URI."""


class ChromaDriver(Driver):
    """A collection; `handle` is Chroma's own object for it."""

    kind = "chroma"
    support = KindSupport(
        "Chroma",
        ("chroma:FOLDER#COLLECTION", "chroma+http://HOST:8000#COLLECTION"),
        "chroma",
        "ids, documents, metadata with types, URIs, collection metadata, HNSW parameters, embedding function's name",
        "sparse indexes and schemas of one's own; a server counts no changes",
        "bounded on a server; a folder as its client holds it",
    )
    options = tuple(_TENANT)
    write_options = tuple(_TENANT)
    swaps = True

    @classmethod
    def recognises(cls, path: Path) -> bool:
        """Return whether Chroma's database is in a folder."""
        return (path / _DATABASE).is_file()

    @property
    def is_copy(self) -> bool:
        """True for folders."""
        return not self.is_server

    @property
    def notices_vectors(self) -> bool:
        """True for folders: a server counts no changes."""
        return not self.is_server

    @property
    def server(self) -> str:
        """The location without the name, but with tenant and database."""
        return super().server + options_text(self.address.options)

    @property
    def tenant(self) -> dict[str, str]:
        """Tenant and database, as the client takes them."""
        return {**_TENANT, **self.address.options}

    @cached_property
    def client(self) -> Any:
        """The client of the server."""
        url, is_safe = urlsplit(self.address.place), self.address.place.startswith("chroma+https:")
        secrets = secrets_of(self.location)
        token = secrets.get("token") or secrets.get("api_key") or os.environ.get("CHROMA_API_KEY")
        try:
            host, port = url.hostname, url.port or (443 if is_safe else 8000)
        except ValueError:
            host = None
        if not host:
            raise UsageError(f"{self.location}: the URL has no host or no port; write chroma+http://HOST:PORT#COLLECTION")
        return _connect(os.getpid(), host, port, is_safe, token, *self.tenant.values())

    def names(self) -> list[str]:
        """Return the collections of the server or folder."""
        if not self.is_server:
            return sorted(name for (name,) in self._ask("SELECT name FROM collections"))
        names: list[str] = []
        while page := self.client.list_collections(limit=_AT_ONCE, offset=len(names)):
            names += [collection.name for collection in page]
        return sorted(names)

    def explain(self, error: Exception, words: str) -> LeadMigrateError:
        """Tell a full disk, a deleted collection, and a server that refused or failed."""
        where = self.location
        if not self.is_server:
            # all that Chroma says if SQLite found the disk full below an index of words
            if "Failed to apply logs to the metadata segment" in words:
                cause = f"cannot write {where}: Chroma says: {words}"
                return OutputError(f"{cause}; free some space and run the same command again")
            return super().explain(error, words)
        if type(error).__name__ == "NotFoundError":
            return StoreError(f"{where}: the collection was deleted while it was open ({words}); run again")
        if any(word in words.lower() for word in ("unauthorized", "forbidden", "401", "403")):
            return AuthenticationError(f"{where}: the server refused ({words}); set CHROMA_API_KEY")
        return RemoteError(f"{where}: the server of Chroma failed: {words}; check that it runs")

    # Reading.

    def open(self) -> None:
        """Find the collection; a folder is copied."""
        names = self.names()
        if self.is_server and self.name not in names and switched_with(self, self.name) is not None:
            raise StoreError(f"{self.location}: a switch was killed half-way; run switch or rollback again")
        self.name = self.choose_name(names)
        self.handle = self._find(self.name) if self.is_server else self._open_copy()
        if self.handle is None:
            raise StoreError(f"{self.location}: the collection was deleted just now; run again")
        self.id = str(self.handle.id)
        self.configuration = dict(self.handle._model.configuration_json)
        self.index = self.configuration.get("hnsw") or self.configuration.get("spann") or {}
        self.metadata = {key: value for key, value in (self.handle.metadata or {}).items() if key != _OWN}

    def describe(self) -> StoreInfo:
        """Describe the collection; a sample shows the length of vectors that are compared by cosine."""
        self.space = self.index.get("space") or "l2"
        sample = _as_matrix(self.handle.get(limit=64, include=["embeddings"]))
        metric, notes = read_metric(self.space, sample)
        self.dim = self.handle._model.dimension or sample.shape[1]
        count, function = self.handle.count(), self._function.get("name")
        details: dict[str, str | int] = {"collection": self.name}
        labels = {"space": "distance", "max_neighbors": "hnsw_m", "ef_construction": "ef_construction",
                  "ef_search": "ef_search"}  # fmt: skip
        details |= {label: self.index[key] for key, label in labels.items() if key in self.index}
        if function is not None:
            details["embedding_function"] = function
            notes += (f"the collection names the embedding function {function}, which stays as it is in a new store",)
        index = "SPANN" if self.configuration.get("spann") else "HNSW"
        texts = (text for page in self._pages(["documents"]) for text in page["documents"])
        has_texts = not count or any(text is not None for text in texts)
        return StoreInfo(self.location, self.kind, index, count, self.dim, metric, True, has_texts,
                         notes=notes, details=details)  # fmt: skip

    @property
    def _function(self) -> Mapping[str, Any]:
        """What the collection says of its embedding function."""
        return self.configuration.get("embedding_function") or {}

    @property
    def key(self) -> str:
        """Place, name, tenant and database."""
        place = self.address.place if self.is_server else str(self.folder.absolute())
        return f"{place}#{self.name}{options_text(self.tenant)}"

    def version(self) -> Any:
        """Return what Chroma counts up with each write. On a server, a hash of all but vectors."""
        if not self.is_server:
            return self._folder_version()
        digest, count = hashlib.sha256(), 0
        for page in self._pages(_FIELDS):
            for record in _records(page):
                digest.update(json.dumps(record, sort_keys=True, default=repr).encode(errors="surrogatepass"))
                count += 1
        return [self.id, count, digest.hexdigest()]

    def read_version(self) -> Any:
        """Return the version when the copy was made."""
        return self.version() if self.is_server else self._copied

    def identity(self, name: str) -> Any:
        """Return the id of the collection."""
        if self.is_server:
            found = self._find(name)
            return None if found is None else str(found.id)
        question = (
            "SELECT c.id FROM collections c JOIN databases d ON d.id = c.database_id "
            "WHERE c.name = ? AND d.tenant_id = ? AND d.name = ?"
        )
        return next((found for (found,) in self._ask(question, name, *self.tenant.values())), None)

    def _find(self, name: str) -> Any:
        """The collection of the server that has a name; None if there is none."""
        from chromadb.errors import NotFoundError

        try:
            return self.client.get_collection(name, embedding_function=None)
        except NotFoundError:
            return None

    def _pages(self, include: Sequence[str], at_once: int = _PAGE) -> Iterator[Mapping[str, Any]]:
        """All records as Chroma gives them, in bounded memory."""
        offset = 0
        while (page := self.handle.get(limit=at_once, offset=offset, include=[*include]))["ids"]:
            yield page
            offset += len(page["ids"])

    def pages(self, *, vectors: bool = True, records: bool = False) -> Iterator[Page]:
        """Read the records in Chroma's order."""
        include = [*(_FIELDS if records else ()), *(["embeddings"] if vectors else [])]
        # a number is an object of Python's until it is in an array
        at_once = min(_PAGE, max(_PAGE_BYTES // (32 * max(self.dim, 1)), 1)) if vectors else _PAGE
        empty = np.empty((0, self.dim), np.float32)
        for page in self._pages(include, at_once):
            yield Page(page["ids"], _as_matrix(page) if vectors else empty, _records(page) if records else None)

    def _read(self, ids: Sequence[str], include: Sequence[str]) -> Iterator[Mapping[str, Any]]:
        for first in range(0, len(ids), _AT_ONCE):
            yield self.handle.get(ids=list(ids[first : first + _AT_ONCE]), include=[*include])

    def documents(self, ids: Sequence[str], at: NDArray[np.int64] | None = None) -> Iterator[Document]:
        """Return documents by their ids."""
        for page in self._read(ids, _FIELDS):
            for doc_id, text, fields, uri in _records(page):
                yield Document(doc_id, text or "", {**(fields or {}), **({} if uri is None else {_URI: uri})})

    def vectors(self, ids: Sequence[str], at: NDArray[np.int64] | None = None) -> Batch:
        """Return vectors by their ids."""
        pages = [page for page in self._read(ids, ["embeddings"]) if page["ids"]]
        parts = [np.empty((0, self.dim), np.float32), *map(_as_matrix, pages)]
        return Batch([doc_id for page in pages for doc_id in page["ids"]], np.concatenate(parts))

    def successor(self, ending: str) -> str | None:
        """Return a location on the same server, with its tenant and database."""
        options = options_text(self.address.options)
        return f"{super().server}#{self.name}-{ending}{options}" if self.is_server else None

    # Serving.

    @cached_property
    def _turn(self) -> Lock:
        """Keeps threads apart that leave the copy."""
        return Lock()

    def search(self, queries: Vectors, k: int, where: Any) -> list[Hits]:
        """Search; `where` is one of Chroma's, such as `{"page": {"$lt": 3}}`."""
        if where is not None and not isinstance(where, Mapping):
            example, found = {"source": "a"}, type(where).__name__
            raise UsageError(f"{self.location}: the filter is none of Chroma's, such as {example}, but {found}")
        condition = dict(where) if where else None
        try:
            response = self.handle.query(
                query_embeddings=queries, n_results=k, where=condition, include=["distances"]
            )
        except ValueError as error:
            if where is None:
                raise
            raise UsageError(f"{self.location}: Chroma says: {error}; is the filter right?") from error
        return [
            as_hits(ids, distances if self.space == "l2" else 1 - np.array(distances, np.float64))
            for ids, distances in zip(response["ids"], response["distances"], strict=True)
        ]

    def update(self, new: Mapping[str, Vectors]) -> int:
        """Replace vectors; of a folder, which this process has for itself from then on."""
        with self._turn:
            if not self.is_server and self._is_on_copy:
                client = _persistent(self.folder, self.tenant)
                handle = client.get_collection(self.name, embedding_function=None)
                weakref.finalize(handle, client.close)
                self.handle, self._is_on_copy = handle, False  # the copy goes with its last query
        names, count = list(new), 0
        for first in range(0, len(names), _AT_ONCE):
            ids = self.handle.get(ids=names[first : first + _AT_ONCE], include=[])["ids"]
            if ids:
                self.handle.update(ids=ids, embeddings=np.stack([new[doc_id] for doc_id in ids]))
            count += len(ids)
        return count

    # Folders.

    def files(self) -> Collection[str]:
        """Return what Chroma writes, and the folder of manifests of single collections."""
        names = [path.name for path in self.folder.iterdir()]
        return [name for name in names if name.startswith(_DATABASE) or _SEGMENT.fullmatch(name) or name == _OWN]

    def beside(self) -> Path | None:
        """Return the folder, or the one in it that belongs to this of several collections."""
        if self.is_server:
            return kept_folder(self.token(self.name))
        return self._own_folder if self._own_folder.is_dir() else self.folder

    @property
    def _own_folder(self) -> Path:
        return self.folder / _OWN / self.id

    def manifest(self) -> Manifest | None:
        """Return the manifest; one in the folder may be of another collection."""
        if not self.is_server and self._own_folder.is_dir():
            return find_manifest(self._own_folder, "store")
        return super().manifest()

    def keep_manifest(self, manifest: Manifest) -> Path | str:
        """Write the manifest into the folder; if another collection's is there, into one inside."""
        if not self.is_server and (self.folder / MANIFEST_NAME).exists() and self.manifest() is None:
            with output_errors(self._own_folder):
                self._own_folder.mkdir(parents=True, exist_ok=True)
            return stamp(self._own_folder, self.name, self.location, manifest)
        return super().keep_manifest(manifest)

    def _ask(self, question: str, *values: str) -> list[tuple[Any, ...]]:
        with self._database() as connection:
            return connection.execute(question, values).fetchall()

    @contextmanager
    def _database(self) -> Iterator[sqlite3.Connection]:
        """Chroma's database, to read."""
        if not self.recognises(self.folder):
            raise StoreError(f"{self.location}: this is no folder of Chroma, as it has no {_DATABASE}; check the path")
        try:
            with read_only(self.folder / _DATABASE) as connection:
                yield connection
        except sqlite3.Error as error:
            raise StoreError(
                f"{self.location}: SQLite cannot read {_DATABASE} ({error}); stop what writes to it, or copy it again"
            ) from error

    def _folder_version(self) -> list[Any]:
        collection = self._copied[0] if self._copied else self.identity(self.name)
        pending = "SELECT max(seq_id) FROM embeddings_queue WHERE topic LIKE '%' || ?"
        applied = "SELECT max(m.seq_id) FROM max_seq_id m JOIN segments s ON m.segment_id = s.id WHERE s.collection = ?"
        numbers = [int(self._ask(question, collection)[0][0] or 0) for question in (pending, applied)]
        named = self._ask("SELECT name FROM collections WHERE id = ?", collection)
        facts = self._ask(
            "SELECT key, str_value, int_value, float_value FROM collection_metadata WHERE collection_id = ?", collection
        )
        return [collection, max(numbers), [list(row) for row in named], sorted(map(repr, facts))]

    _copied: Sequence[Any] = ()
    _is_on_copy = False

    def _open_copy(self) -> Any:
        copies = work_folder() / "copies"
        with output_errors(copies):
            copies.mkdir(parents=True, exist_ok=True)
            copy = Path(tempfile.mkdtemp(prefix="chroma-", dir=copies))
        try:
            with output_errors(copy):
                self._copied = self._copy_to(copy)
            client = _persistent(copy, self.tenant)
            handle = client.get_collection(self.name, embedding_function=None)
        except BaseException:
            shutil.rmtree(copy, ignore_errors=True)
            raise
        weakref.finalize(handle, _let_go, client, copy)
        self._is_on_copy = True
        return handle

    def _copy_to(self, copy: Path) -> list[Any]:
        """Copy all that belongs to the collection as it is at one moment; return its version."""
        for _ in range(_TRIES):
            before = self._folder_version()
            for (segment,) in self._ask("SELECT id FROM segments WHERE collection = ?", before[0]):
                if (self.folder / segment).is_dir():
                    shutil.copytree(self.folder / segment, copy / segment, dirs_exist_ok=True)
            with self._database() as source, closing(sqlite3.connect(copy / _DATABASE)) as target:
                source.backup(target)
            if self._folder_version() == before:
                return before
        raise StoreError(f"{self.location}: changed while it was read; run again on a store at rest")

    # Writing.

    def write(
        self, name: str, dim: int, source: StoreInfo, like: Driver | None, pages: Iterator[Page]
    ) -> Iterable[str]:
        """Write a collection with the configuration and records of the old one, or records of documents."""
        old = like if isinstance(like, ChromaDriver) else None
        configuration = {"hnsw": {"space": source.metric}} if old is None else old._settings()
        metadata = {**(old.metadata if old else {}), **({_OWN: name[-32:]} if self.is_server else {})}
        absent: set[str] = set()
        as_json: set[str] = set()
        written = 0
        with self._written_client() as client:
            if self.is_server and self.identity(name) is not None:
                client.delete_collection(name)
            with _known_functions():
                collection = client.create_collection(
                    name, configuration=configuration, metadata=metadata or None, embedding_function=None
                )
            # a request has no more than 8 MiB of vectors, of 24 bytes a number as JSON
            most = min(client.get_max_batch_size(), max((8 << 20) // (24 * dim), 1), _AT_ONCE)
            for page in pages:
                records = page.raw if old else [
                    _as_record(document, absent, as_json, has_text=source.has_texts) for document in page.documents
                ]  # fmt: skip
                for first in range(0, len(records), most):
                    _add(collection, records[first : first + most], page.vectors[first : first + most])
                written += len(records)
            count = collection.count()
        if count != written:
            raise StoreError(f"{self.location}: {written} records were written, but it holds {count}; run again")
        return _remarks(absent, as_json) if old is None else old._function_remarks()

    @contextmanager
    def _written_client(self) -> Iterator[Any]:
        """The server's client, or one of an empty folder that is durable at the end."""
        if self.is_server:
            yield self.client
            return
        with output_errors(self.folder):
            for path in self.folder.iterdir():
                if path.name.startswith(_DATABASE):
                    path.unlink()
                elif _SEGMENT.fullmatch(path.name):
                    shutil.rmtree(path)
            with closing(_persistent(self.folder, self.tenant)) as client:
                yield client
        sync_tree(self.folder)

    def _settings(self) -> dict[str, Any]:
        """The configuration of a new collection as this one is."""
        settings = {key: dict(self.configuration[key]) for key in ("hnsw", "spann") if self.configuration.get(key)}
        if self._function.get("type") == "known":
            settings["embedding_function"] = _named_function(self._function)
        return settings

    def _function_remarks(self) -> list[str]:
        name = self._function.get("name")
        return [] if name is None else [
            f"the collection still names the embedding function {name}: queries given to Chroma as texts are embedded "
            "by it; give it vectors of the new model, or name its function"
        ]  # fmt: skip

    # Servers: a new collection is called NAME-TOKEN, has the token in its metadata, and is renamed to NAME.

    def token(self, name: str) -> str | None:
        """Return the token in the metadata."""
        found = self._find(name)
        return None if found is None else (found.metadata or {}).get(_OWN)

    def is_published(self, content: Path) -> bool:
        """Return whether the collection has its final name, and the one that it replaces is gone."""
        return super().is_published(content) and not self.leftovers()

    def publish(self, staging: str, content: Path) -> None:
        """Give the collection the final name by a rename; one that has it is renamed before, and dropped after."""
        token, names = staging[-32:], self.names()
        keep(content, token)
        if staging in names:
            if self.name in names:
                self._rename(self.name, f"{staging}-old")
            self._rename(staging, self.name)
        if self.token(self.name) != token:
            raise StoreError(f"{self.location}: the collection just written is gone; --restart writes it again")
        for name in self.leftovers():
            self.drop(name)

    def drop(self, name: str) -> None:
        """Delete a collection."""
        token = self.token(name)
        self.client.delete_collection(name)
        forget(token)

    def leftovers(self) -> list[str]:
        """Return collections NAME-TOKEN and NAME-TOKEN-old; one of the latter gets back a name that nothing has."""
        made = re.compile(re.escape(self.name) + "-[0-9a-f]{32}(-old)?")
        names = self.names()
        found = [name for name in names if made.fullmatch(name) and self.token(name) is not None]
        replaced = [name for name in found if name.endswith("-old")]
        if replaced and self.name not in names:
            self._rename(replaced[0], self.name)
            found.remove(replaced[0])
        return found

    def _rename(self, name: str, new: str) -> None:
        self.client.get_collection(name, embedding_function=None).modify(name=new)

    # Switching.

    def prepare_switch(self, old: Driver) -> None:
        """Let the new collection name a function of its own model, if it names that of the old one.

        It would embed queries by the old model. If Chroma has no function for the new one, it is to name none.
        """
        assert isinstance(old, ChromaDriver)  # noqa: S101 - stores of two kinds are refused before
        if self._function.get("type") != "known" or self._function != old._function:
            return
        manifest = self.manifest()
        function = None if manifest is None else _function_of(manifest.model, self._function)
        named = SimpleNamespace(is_legacy=lambda: True) if function is None else _named_function(function)
        client = self.client if self.is_server else _persistent(self.folder, self.tenant)
        try:
            with _known_functions():
                # `Collection.modify` would refuse, after it was done, a function of another name
                client.get_collection(self.name, embedding_function=None)._client._modify(
                    id=self.handle.id, new_configuration={"embedding_function": named}, **self.tenant
                )
        finally:
            if not self.is_server:
                client.close()

    def refuse_swap(self, new: Driver) -> None:
        """Refuse a name of the same collection."""
        if self.identity(self.name) == self.identity(new.name):
            raise UsageError(f"{new.location}: this is the old collection itself; name the new one")

    def swap(self, wanted: Mapping[str, Any]) -> None:
        """Rename collections, one that is in the way first; between two renames nothing has the old name."""
        names = self.names()
        ids = {name: self.identity(name) for name in names if name in wanted or name.endswith(ASIDE)}
        if not set(wanted.values()) <= set(ids.values()):
            raise others(self.location)
        if any(name in ids and ids[name] not in wanted.values() for name in wanted):
            raise others(self.location)
        for name, collection in wanted.items():
            if ids.get(name) == collection:
                continue
            if name in ids:
                ids[f"{name}{ASIDE}"] = ids.pop(name)
                self._rename(name, f"{name}{ASIDE}")
                reach("moved")
            (now,) = [other for other, found in ids.items() if found == collection]
            ids[name] = ids.pop(now)
            self._rename(now, name)
            reach("moved")


@cache
def _connect(process: int, host: str, port: int, is_safe: bool, token: str | None, tenant: str, database: str) -> Any:  # noqa: ARG001, FBT001
    """One client of each server: Chroma's own keeps its connections until the process ends, closed or not."""
    module = import_client("chromadb", "chroma")
    settings = module.config.Settings(anonymized_telemetry=False)
    if not is_safe:  # nothing to verify: loading certificates takes longer than everything else
        settings.chroma_server_ssl_verify = False
    headers = {"x-chroma-token": token, "Authorization": f"Bearer {token}"} if token else None
    return module.HttpClient(
        host=host, port=port, ssl=is_safe, headers=headers, settings=settings, tenant=tenant, database=database
    )


def _persistent(folder: Path, tenant: Mapping[str, str]) -> Any:
    """Chroma's client of a folder, which writes to it."""
    module = import_client("chromadb", "chroma")
    return module.PersistentClient(str(folder), settings=module.config.Settings(anonymized_telemetry=False), **tenant)


def _let_go(client: Any, folder: Path) -> None:
    client.close()
    shutil.rmtree(folder, ignore_errors=True)


def _records(page: Mapping[str, Any]) -> list[_Record]:
    return list(zip(page["ids"], *(page[field] for field in _FIELDS), strict=True))


def _as_matrix(page: Mapping[str, Any]) -> Vectors:
    return np.asarray(page["embeddings"], np.float32).reshape(len(page["ids"]), -1) if page["ids"] else np.empty((0, 0), "f4")


def _add(collection: Any, records: Sequence[_Record], vectors: Vectors) -> None:
    """Add records; Chroma takes those at once that have the same parts."""
    groups: dict[tuple[bool, ...], list[int]] = {}
    for row, (_, text, fields, uri) in enumerate(records):
        groups.setdefault((text is not None, bool(fields), uri is not None), []).append(row)
    for has, rows in groups.items():
        ids, *parts = (list(part) for part in zip(*(records[row] for row in rows), strict=True))
        fields = {field: part for field, part, there in zip(_FIELDS, parts, has, strict=True) if there}
        collection.add(ids=ids, embeddings=vectors[rows], **fields)


def _as_record(document: Document, absent: set[str], as_json: set[str], *, has_text: bool) -> _Record:
    """Return a record of another kind's document; keys that Chroma cannot hold as they are go into the two sets."""
    if not document.id:
        raise StoreError("a document has an empty id, which Chroma does not take; give it another")
    fields = dict(document.metadata)
    uri = fields.pop(_URI) if isinstance(fields.get(_URI), str) else None
    record: dict[str, Any] = {}
    for key, value in ((str(key), value) for key, value in fields.items()):
        if value is None:
            absent.add(key)
        elif key in record:
            raise StoreError(f"document {document.id!r}: two keys of its metadata are {key!r}; rename one")
        elif not key or key.startswith(("chroma:", "$", "#")):
            raise StoreError(f"document {document.id!r}: Chroma keeps the key {key!r} to itself; rename it")
        elif _is_plain(value):
            record[key] = value
        elif isinstance(value, list | tuple) and value and all(map(_is_plain, value)) and len(set(map(type, value))) == 1:
            record[key] = list(value)
        else:
            as_json.add(key)
            record[key] = _as_json(document.id, key, value)
    return document.id, document.text if has_text else None, record or None, uri


def _is_plain(value: Any) -> bool:
    """True if Chroma holds it as it is; of a number that is not finite it drops the key without a word."""
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, str | bool) or (isinstance(value, int) and abs(value) < 1 << 63)


def _as_json(doc_id: str, key: str, value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise StoreError(f"document {doc_id!r}: JSON cannot hold the value under {key!r} ({error})") from error


def _remarks(absent: Collection[str], as_json: Collection[str]) -> Iterator[str]:
    """Say which keys are not as they were."""
    for keys, words in (
        (absent, "Chroma has no null: where they are null, these keys are absent"),
        (as_json, "Chroma holds no nested values, whole numbers beyond 64 bits, NaN or infinity: these keys have them "
         "as JSON texts"),
    ):  # fmt: skip
        if keys:
            more = f" and {len(keys) - 10} more" if len(keys) > 10 else ""
            yield f"{words}: {', '.join(sorted(keys)[:10])}{more}"


def _function_of(model: ModelIdentity | None, stored: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return what a collection says of Chroma's function for a model, with the settings of the stored one."""
    if model is None or model.query_prefix or model.document_prefix:
        return None
    kind, _, name = model.spec.partition(":")
    if kind == "openai":
        config = dict(stored["config"]) if stored["name"] == "openai" else {"api_key_env_var": "OPENAI_API_KEY"}
        # these models are asked for a dimension
        dim = model.dim if name.startswith("text-embedding-3") else None
        return {"name": "openai", "config": {**config, "model_name": name, "dimensions": dim}}
    if kind == "sentence-transformers":
        config = {"model_name": name, "device": "cpu", "normalize_embeddings": model.normalized, "kwargs": {}}
        return {"name": "sentence_transformer", "config": config}
    return None


def _named_function(stored: Mapping[str, Any]) -> Any:
    """Return an embedding function that says what a collection says of its own, and embeds nothing."""
    from chromadb.api.types import EmbeddingFunction

    class Named(EmbeddingFunction[Any]):
        def __init__(self) -> None:
            """Load nothing."""

        def __call__(self, input: Any) -> Any:  # noqa: A002
            raise TypeError("this has the name of a function alone")

        @staticmethod
        def name() -> str:
            return str(stored["name"])

        def get_config(self) -> dict[str, Any]:
            return dict(stored.get("config") or {})

        @staticmethod
        def build_from_config(config: Mapping[str, Any]) -> Any:  # noqa: ARG004
            return Named()

        def supported_spaces(self) -> list[Any]:
            return ["cosine", "l2", "ip"]

    return Named()


@contextmanager
def _known_functions() -> Iterator[None]:
    """Undo that Chroma registers the function of a new collection in the place of its own of that name."""
    from chromadb.utils.embedding_functions import known_embedding_functions as functions

    before = dict(functions)
    try:
        yield
    finally:
        functions.clear()
        functions.update(before)
