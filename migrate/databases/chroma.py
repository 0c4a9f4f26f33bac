"""Collections of Chroma: `chroma:PATH#COLLECTION` in a folder, `chroma+http(s)://HOST:PORT#COLLECTION` on a server.

Chroma writes to a folder whenever it opens one, and reads the vectors into memory: of a folder, the collection's files
are copied.
"""

from __future__ import annotations

import json
import math
import os
import re
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from migrate.databases.clients import ClientDriver, ClientNames, ClientRows, FolderCopy, sqlite_database
from migrate.databases.driver import (
    READ_AT_ONCE,
    DatabaseCompanions,
    DatabaseSearch,
    Page,
    check_count,
    clear_folder,
    described,
    in_parts,
)
from migrate.databases.located import DatabaseTraits
from migrate.errors import AuthenticationError, LeadMigrateError, OutputError, RemoteError, StoreError, UsageError
from migrate.files import SQLITE_JOURNALS, output_errors
from migrate.locations import Address, options_text
from migrate.manifest import MANIFEST_NAME, Manifest, ModelIdentity
from migrate.stores.base import NO_TEXTS, KindSupport, SearchSetting, StoreInfo
from migrate.stores.documents.base import LOOKED_AT, longest_first
from migrate.stores.documents.names import TEXTS, first_of
from migrate.stores.kept import keep
from migrate.stores.parquet.old_chroma import refuse_old_chroma
from migrate.stores.records import as_document, choose_text, import_client
from migrate.stores.serving import Hits, as_hits
from migrate.stores.switching import ASIDE, not_switched
from migrate.vectors import Document, Vectors

_OWN: Final = "lead-migrate"
"""The key of the token in the metadata of a collection on a server; a folder in a folder for one of several."""
_DATABASE: Final = "chroma.sqlite3"
_TENANT: Final = {"tenant": "default_tenant", "database": "default_database"}
_URI: Final = "chroma:uri"
"""The key of the URI of a record in the metadata of its document."""
_TEXT: Final = "text"
"""The option of a location that names the field of metadata with the texts, of records without documents."""
_DOCUMENT: Final = "document"
"""The key of the document of a record in the metadata of one whose text is a field of metadata."""
_FIELDS: Final = ("documents", "metadatas", "uris")
_DEFAULT_INDEX: Final = {"space": "l2", "ef_construction": 100, "ef_search": 100, "max_neighbors": 16}
_EARLIER_NAMES: Final = {
    "hnsw:space": "space",
    "hnsw:construction_ef": "ef_construction",
    "hnsw:search_ef": "ef_search",
    "hnsw:M": "max_neighbors",
}
"""Keys of the metadata of a collection by which Chroma before 1.0 set up its index, and their names today."""
_LABELS: Final = {
    "space": "distance",
    "max_neighbors": "hnsw_m",
    "ef_construction": "ef_construction",
    "ef_search": "ef_search",
}
"""Settings of an index, and what they are called in the details of a store."""
_Ask = Callable[..., list[tuple[Any, ...]]]
"""Called with a question in SQL and its values; returns the rows of the answer."""
_PAGE: Final = 4_096
"""Records that are read at a time."""
_PAGE_BYTES: Final = 64 << 20
"""Bytes of vectors that are read at a time, as objects of Python's."""
_OBJECT_BYTES: Final = 32
"""Bytes of a number that is read, which is an object of Python's until it is in an array."""
_REQUEST_BYTES: Final = 8 << 20
"""Bytes of vectors in a request: a server refuses one of more than 40 MiB, and texts come on top of them."""
_NUMBER_BYTES: Final = 24
"""Bytes of a number of a vector in JSON, at most."""
_SAMPLE: Final = 64
"""Vectors that are looked at for their length."""
_NAMED: Final = 10
"""Keys of metadata that a remark names."""
_PORTS: Final = {"chroma+http": 8000, "chroma+https": 443}
"""Ports of servers whose URL names none."""
_MOST_INTEGER: Final = 1 << 63
"""Whole numbers in metadata are of 64 bits, with a sign."""

_Record = tuple[str, str | None, Mapping[str, Any] | None, str | None]
"""Id, document, metadata and URI."""


class ChromaDriver(ClientDriver):
    """Collections in a folder or on a server."""

    traits = DatabaseTraits(
        kind="chroma",
        support=KindSupport(
            "Chroma",
            ("chroma:FOLDER#COLLECTION", "chroma+http://HOST:8000#COLLECTION"),
            "chroma",
            "ids, documents, metadata with types, URIs, collection metadata, HNSW parameters, embedding function's "
            "name",
            "sparse indexes and schemas of one's own; a server counts no changes",
            "bounded on a server; a folder as its client holds it",
        ),
        name_rule=(
            "[a-zA-Z0-9][a-zA-Z0-9._-]{1,510}[a-zA-Z0-9]",
            "3 to 512 of a-z, A-Z, 0-9, '.', '_' and '-', of which the first and the last are letters or digits",
        ),
        options=(*_TENANT, _TEXT),
        write_options=tuple(_TENANT),
    )

    @classmethod
    def recognises(cls, path: Path) -> bool:
        """Return whether Chroma's database is in a folder."""
        return (path / _DATABASE).is_file()

    @property
    def server(self) -> str:
        """The location without the name, but with tenant and database."""
        return super().server + options_text(_named_tenant(self.address))

    def connect(self) -> Any:
        """Return a client of the server; its key is that of the location, or CHROMA_API_KEY."""
        tenant = _tenant(self.address)
        # by process, as a fork must not share connections
        return _connect(os.getpid(), self.address.place, self.secret("CHROMA_API_KEY"), *tenant.values())

    def names(self) -> list[str]:
        """Return the collections of the server or folder."""
        if self.is_server:
            return sorted(collection.name for collection in _listed(self.client))
        return ChromaFolder.of(self).names()

    def explain(self, error: BaseException, message: str) -> LeadMigrateError:
        """Tell a full disk, a deleted collection, and a server that refused or failed."""
        location = self.location
        # all that Chroma says if the disk is full below an index of words or of vectors
        if not self.is_server and "Failed to apply logs to the " in message:
            cause = f"cannot write {location}: Chroma says: {message}"
            return OutputError(f"{cause}; free some space and run the same command again")
        if not self.is_server:
            return super().explain(error, message)
        if type(error).__name__ == "NotFoundError":
            return StoreError(f"{location}: the collection was deleted while it was open ({message}); run again")
        if any(word in message.lower() for word in ("unauthorized", "forbidden", "401", "403")):
            return AuthenticationError(f"{location}: the server refused ({message}); set CHROMA_API_KEY")
        return RemoteError(f"{location}: the server of Chroma failed: {message}; check that it runs")

    def require_folder(self) -> None:
        """Make sure that the folder is one of Chroma 0.4 or later; of an earlier one, say what can be read."""
        refuse_old_chroma(self.folder)
        super().require_folder()

    def open(self) -> ChromaRows:
        """Find the collection; a folder is copied."""
        names = self.names()
        is_missing = self.is_server and self.name not in names
        # between the two renames of a switch nothing has the old name
        if is_missing and self.server_names.switched_with(self.name) is not None:
            raise StoreError(f"{self.location}: a switch was interrupted; run `switch` or `rollback` to finish it")
        self.name = self.choose_name(names)
        self.collection_name = self.name
        return ChromaRows(self)

    @property
    def server_names(self) -> ChromaNames:
        """The collections."""
        return ChromaNames(self)

    @property
    def opened_as(self) -> str:
        """The name, with the field of the texts if one is named."""
        named = {key: value for key, value in self.address.options.items() if key == _TEXT}
        return self.name + options_text(named)

    def identity(self, name: str) -> Any:
        """Return the id of the collection."""
        if not self.is_server:
            return ChromaFolder.of(self).identity(name)
        collection = _find(self.client, name)
        if collection is None:
            return None
        return str(collection.id)

    def files(self) -> Collection[str]:
        """Return what Chroma writes, and the folder of manifests of single collections."""
        names = [path.name for path in self.folder.iterdir()]
        pattern = re.compile(rf"{re.escape(_DATABASE)}.*|{_OWN}|[0-9a-f]{{8}}(-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}")
        # one may come after the names were listed
        journals = (f"{_DATABASE}{ending}" for ending in SQLITE_JOURNALS)
        return {*filter(pattern.fullmatch, names), *journals}

    def versions(self) -> dict[str, Any]:
        """Return what Chroma counts up with each write to the collection."""
        version = ChromaFolder.of(self).version(self.name)
        if version is None:
            return {}
        return {self.name: version}

    def is_in(self, copy: FolderCopy) -> bool:
        """Return whether the collection is in a copy as it is now; its segments are copied, which another has not."""
        stored = ChromaFolder.of(self)
        version = stored.version(self.name)
        if version is None or version != stored.at(copy.folder).version(self.name):
            return False
        # a file may have been merged into another meanwhile
        with suppress(FileNotFoundError):
            self.copy_to(copy.folder, stored.segments(self.name))
            copy.versions[self.name] = version
            return stored.version(self.name) == version
        return False

    def stored(self) -> Iterable[Path]:
        """Return the database, and the segments of the collection."""
        return [*ChromaFolder.of(self).segments(self.name), self.folder / _DATABASE]

    def open_folder(self, folder: Path) -> tuple[Any, Callable[[], object]]:
        """Return Chroma's client of a folder, which writes to it, and what ends it."""
        module = import_client("chromadb", "chroma")
        settings = module.config.Settings(anonymized_telemetry=False)
        tenant = _tenant(self.address)
        stored = ChromaFolder(folder, self.location, tenant)
        migrations = stored.migrations()
        client = module.PersistentClient(str(folder), settings=settings, **tenant)
        # a connection that was open while the client migrated the tables may panic: it still knows the earlier columns
        if stored.migrations() != migrations:
            client.close()
            client = module.PersistentClient(str(folder), settings=settings, **tenant)
        return client, client.close

    def write_new(self, name: str, dim: int, source: StoreInfo, pages: Iterator[Page]) -> Iterable[str]:
        """Write records of documents."""
        absent: set[str] = set()
        as_json: set[str] = set()
        batches = (
            ([_as_record(it, absent, as_json, has_text=source.has_texts) for it in page.documents], page.vectors)
            for page in pages
        )
        configuration = {"hnsw": {"space": source.metric}}
        _write_records(self, name, dim, configuration, metadata={}, batches=batches)
        return _remarks(absent, as_json)

    def write_copy(self, name: str, dim: int, old: ChromaRows, pages: Iterator[Page]) -> Iterable[str]:
        """Write the configuration and records of another collection."""
        batches = ((page.raw, page.vectors) for page in pages)
        _write_records(self, name, dim, old.settings(), old.metadata, batches)
        function = old.function.get("name")
        if not function:
            return []
        remark = f"the collection still names the embedding function {function}: queries given to Chroma as texts are"
        return [f"{remark} embedded by it; give it vectors of the new model, or name its function"]

    def delete(self, name: str) -> None:
        """Delete a collection; the records with lists go before, as Chroma would leave these to new records."""
        collection = _find(self.client, name)
        offset = 0
        while (page := collection.get(limit=_PAGE, offset=offset, include=["metadatas"]))["ids"]:
            pairs = zip(page["ids"], page["metadatas"], strict=True)
            ids = [doc_id for doc_id, fields in pairs if _has_list(fields or {})]
            if ids:
                collection.delete(ids=ids)
            # those that stay are passed over, and those behind the deleted ones have moved up
            offset += len(page["ids"]) - len(ids)
        self.client.delete_collection(name)

    def prepare_switch(self, old: ChromaRows, new: ChromaRows) -> None:
        """Let the new collection name a function of its own model, or none, if it names that of the old one."""
        registered = new.function
        if registered.get("type") != "known" or registered != old.function:
            return
        manifest = new.companions.manifest()
        model = None if manifest is None else manifest.model
        function = _named_function(_function_of(model, registered))
        with self.written_client() as client, _known_functions():
            # `Collection.modify` would refuse, after it was done, a function of another name
            client.get_collection(self.name, embedding_function=None)._client._modify(
                id=new.handle.id, new_configuration={"embedding_function": function}, **_tenant(self.address)
            )


class ChromaFolder:
    """A folder of Chroma by its database alone, which no client opens; `location` is for messages."""

    def __init__(self, folder: Path, location: str, tenant: Mapping[str, str]) -> None:
        self._folder = folder
        self._location = location
        self._tenant = tenant

    @classmethod
    def of(cls, driver: ChromaDriver) -> ChromaFolder:
        """Return the folder of a driver as it lies on the disk."""
        driver.require_folder()
        return cls(driver.folder, driver.location, _tenant(driver.address))

    def at(self, folder: Path) -> ChromaFolder:
        """Return a copy of the folder, which lies elsewhere."""
        return ChromaFolder(folder, self._location, self._tenant)

    @contextmanager
    def _asking(self) -> Iterator[_Ask]:
        """Yield what answers questions to the database, which is opened once for all of them."""
        with sqlite_database(self._folder / _DATABASE, self._location) as connection:
            yield lambda question, *values: connection.execute(question, values).fetchall()

    def names(self) -> list[str]:
        """Return the names of all collections, sorted."""
        with self._asking() as ask:
            return sorted(name for (name,) in ask("SELECT name FROM collections"))

    def identity(self, name: str) -> str | None:
        """Return the id of a collection; None if there is none."""
        with self._asking() as ask:
            return self._identity(ask, name)

    def _identity(self, ask: _Ask, name: str) -> str | None:
        question = "SELECT id FROM collections WHERE name = ?"
        values = [name]
        # Chroma before 0.4.15 has no databases
        if ask("SELECT 1 FROM sqlite_master WHERE name = 'databases'"):
            question = (
                "SELECT c.id FROM collections c JOIN databases d ON d.id = c.database_id "
                "WHERE c.name = ? AND d.tenant_id = ? AND d.name = ?"
            )
            values += self._tenant.values()
        return next((collection_id for (collection_id,) in ask(question, *values)), None)

    def version(self, name: str) -> list[Any] | None:
        """Return what changes with each write to a collection; None if there is none."""
        # writes wait in a queue, which is cleared once they are applied
        pending = "SELECT max(seq_id) FROM embeddings_queue WHERE topic LIKE '%' || ?"
        # not the largest by SQLite, to which any blob is larger than any number
        applied = "SELECT m.seq_id FROM max_seq_id m JOIN segments s ON m.segment_id = s.id WHERE s.collection = ?"
        # a change of name or metadata is no write to the records
        metadata = "SELECT key, str_value, int_value, float_value FROM collection_metadata WHERE collection_id = ?"
        with self._asking() as ask:
            collection = self._identity(ask, name)
            if collection is None:
                return None
            rows = [*ask(pending, collection), *ask(applied, collection)]
            names = ask("SELECT name FROM collections WHERE id = ?", collection)
            fields = ask(metadata, collection)
        numbers = [_sequence_number(number) for (number,) in rows if number is not None]
        return [collection, max(numbers, default=0), repr(names), sorted(map(repr, fields))]

    def segments(self, name: str) -> list[Path]:
        """Return the files of the segments of a collection."""
        with self._asking() as ask:
            segments = ask("SELECT id FROM segments WHERE collection = ?", self._identity(ask, name) or "")
        return [path for (segment,) in segments for path in (self._folder / segment).rglob("*") if not path.is_dir()]

    def migrations(self) -> int:
        """Return how many changes of its tables the database has been through; 0 if it is new."""
        if not (self._folder / _DATABASE).exists():
            return 0
        with self._asking() as ask:
            ((count,),) = ask("SELECT count(*) FROM migrations")
        return int(count)


class ChromaRows(ClientRows):
    """The records of a collection; `handle` is Chroma's own object for it."""

    driver: ChromaDriver

    def __init__(self, driver: ChromaDriver) -> None:
        super().__init__(driver)
        self.handle = _find(driver.client, self.name)
        self.id = str(self.handle.id)
        self.configuration = dict(self.handle._model.configuration_json)
        self.metadata = {key: value for key, value in (self.handle.metadata or {}).items() if key != _OWN}
        if self.configuration.get("hnsw") is not None:
            self.configuration["hnsw"] = _index_in_use(self.configuration["hnsw"], self.metadata)
        self.index = self.configuration.get("hnsw") or self.configuration.get("spann") or {}
        manifest = self.companions.manifest()
        opened_as = "" if manifest is None else manifest.store.index or ""
        recorded = Address.parse(f"#{opened_as}").options
        if _TEXT in recorded:
            driver.address = replace(driver.address, options={_TEXT: recorded[_TEXT], **driver.address.options})

    def describe(self) -> StoreInfo:
        """Describe the collection; a sample shows the length of vectors that are compared by cosine."""
        self.distance = self.index.get("space") or "l2"
        sample = np.asarray(self.handle.get(limit=_SAMPLE, include=["embeddings"])["embeddings"], np.float32)
        # a collection has no dimension before its first record
        self.dim = self.handle._model.dimension or 0
        if not self.dim and len(sample):
            self.dim = sample.shape[1]
        count = self.handle.count()
        function = self.function.get("name")
        has_texts, notes = self._find_texts(count)
        if function is not None:
            remark = f"the collection names the embedding function {function}, which stays as it is in a new store"
            notes = (remark, *notes)
        details: dict[str, str | int | None] = {
            "collection": self.name,
            **{label: self.index.get(key) for key, label in _LABELS.items()},
            "embedding_function": function,
            "text": self.text,
        }
        kind = "SPANN" if self.configuration.get("spann") else "HNSW"
        return described(self, kind, count, sample, details=details, notes=notes, has_texts=has_texts)

    def _find_texts(self, count: int) -> tuple[bool, tuple[str, ...]]:
        """Find where the texts are: in the field that is named, in the documents, else in a field with a usual name.

        Sets `text`, and returns whether there are texts, with notes.
        """
        requested = self.driver.address.options.get(_TEXT)
        texts = (text for page in self._pages(["documents"]) for text in page["documents"])
        if requested is None and (not count or any(text is not None for text in texts)):
            return True, ()
        sample = self.handle.get(limit=LOOKED_AT, include=["metadatas"])["metadatas"]
        metadatas = [fields or {} for fields in sample]
        names = {name: None for fields in metadatas for name, value in fields.items() if isinstance(value, str)}
        strings = longest_first(names, metadatas)
        if requested is None and first_of(TEXTS, strings) is None:
            way = "add documents to it"
            if strings:
                way = f"it could be {', '.join(strings)}; say ?text=FIELD for one"
            return False, (f"{NO_TEXTS}the records of the collection have no documents; {way}",)
        if requested is not None and not count:
            self.text = requested
            return True, ()
        self.text, why = choose_text(self.location, strings, requested)
        return True, (why,)

    @property
    def function(self) -> Mapping[str, Any]:
        """The collection's own record of its embedding function."""
        return self.configuration.get("embedding_function") or {}

    @property
    def key(self) -> str:
        """Place, name, tenant and database."""
        return f"{self.driver.whole_place}#{self.name}{options_text(_tenant(self.driver.address))}"

    def records(self) -> Iterator[Any]:
        """Read all but the vectors."""
        return (record for page in self._pages(_FIELDS) for record in _records(page))

    def _pages(self, include: Sequence[str], at_once: int = _PAGE) -> Iterator[Mapping[str, Any]]:
        """Read all records as Chroma gives them, in bounded memory."""
        offset = 0
        while (page := self.handle.get(limit=at_once, offset=offset, include=[*include]))["ids"]:
            yield page
            offset += len(page["ids"])

    def pages(self, *, vectors: bool = True, records: bool = False) -> Iterator[Page]:
        """Read the records in Chroma's order."""
        include: list[str] = []
        at_once = _PAGE
        if records:
            include += _FIELDS
        if vectors:
            include.append("embeddings")
            most = _PAGE_BYTES // (_OBJECT_BYTES * max(self.dim, 1))
            at_once = max(min(_PAGE, most), 1)
        for page in self._pages(include, at_once):
            yield Page(page["ids"], page["embeddings"], _records(page) if records else None)

    def documents(self, ids: Sequence[str], at: NDArray[np.int64] | None = None) -> Iterator[Document]:
        """Return documents by their ids."""
        for doc_id, text, fields, uri in _records(self.handle.get(ids=[*ids], include=[*_FIELDS])):
            metadata = dict(fields or {})
            if uri is not None:
                metadata[_URI] = uri
            if self.text is None:
                yield Document(doc_id, text or "", metadata)
                continue
            if text is not None:
                metadata.setdefault(_DOCUMENT, text)
            yield as_document(self.location, doc_id, metadata, None, self.text)

    def vectors(self, ids: Sequence[str], at: NDArray[np.int64] | None = None) -> Page:
        """Return vectors by their ids."""
        records = self.handle.get(ids=[*ids], include=["embeddings"])
        return Page(records["ids"], records["embeddings"])

    def update(self, new: Mapping[str, Vectors]) -> int:
        """Replace vectors; of a folder, which this process has for itself from then on."""
        with self.driver.turn:
            copy = self.driver.leave_copy()
            if copy is not None:
                # kept until the last of the queries has ended that several threads ask of it
                weakref.finalize(self.handle, id, copy)
                self.handle = _find(self.driver.client, self.name)
        count = 0
        for names in in_parts(list(new)):
            # Chroma says nothing of ids that are not there
            ids = self.handle.get(ids=names, include=[])["ids"]
            if ids:
                self.handle.update(ids=ids, embeddings=np.stack([new[doc_id] for doc_id in ids]))
            count += len(ids)
        return count

    @property
    def search(self) -> ChromaSearch:
        """The search of the collection."""
        return ChromaSearch(self)

    @property
    def companions(self) -> ChromaCompanions:
        """Its companions."""
        return ChromaCompanions(self)

    def settings(self) -> dict[str, Any]:
        """Return the configuration of a new collection as this one is."""
        kinds = ("hnsw", "spann")
        settings = {kind: dict(self.configuration[kind]) for kind in kinds if self.configuration.get(kind)}
        if self.function.get("type") == "known":
            settings["embedding_function"] = _named_function(self.function)
        return settings


class ChromaSearch(DatabaseSearch):
    """The search of a collection."""

    rows: ChromaRows

    def search(self, queries: Vectors, k: int, where: Any) -> list[Hits]:
        """DatabaseSearch; `where` is one of Chroma's, such as `{"page": {"$lt": 3}}`."""
        try:
            # Chroma takes no filter that is empty
            condition = dict(where) if where else None
            response = self.rows.handle.query(
                query_embeddings=queries, n_results=k, where=condition, include=["distances"]
            )
        except (TypeError, ValueError) as error:
            if where is None:
                raise
            raise UsageError(f"{self.rows.location}: {error}; is the filter right, as {{'source': 'a'}} is?") from error
        hits = []
        for ids, distances in zip(response["ids"], response["distances"], strict=True):
            scores = np.array(distances, np.float64)
            # what Chroma calls a distance is one less the cosine or the inner product; l2 comes squared
            if self.rows.distance != "l2":
                scores = 1 - scores
            hits.append(as_hits(ids, scores))
        return hits

    @property
    def setting(self) -> SearchSetting | None:
        """The candidates of the graph, which are a part of the collection: no search says how many."""
        value = self.rows.configuration.get("hnsw", {}).get("ef_search")
        if value is None:
            return None
        code = 'collection.modify(configuration={"hnsw": {"ef_search": {}}})'
        return SearchSetting("ef_search", value, max(value, self.rows.handle.count()), code, is_stored=True)


class ChromaCompanions(DatabaseCompanions):
    """Manifest and others beside a store: in the folder, or in one inside it for one of several collections."""

    rows: ChromaRows

    def folder(self) -> Path | None:
        """Return the folder, or the one in it that belongs to this of several collections."""
        folder = self._own_folder()
        if folder is not None and folder.is_dir():
            return folder
        return super().folder()

    def write(self, manifest: Manifest) -> Path | str:
        """Write the manifest into the folder; if another collection's is there, into one inside."""
        folder = self._own_folder()
        is_taken = (self.rows.driver.folder / MANIFEST_NAME).exists() and self.manifest() is None
        if folder is not None and is_taken:
            with output_errors(folder):
                folder.mkdir(parents=True, exist_ok=True)
        return super().write(manifest)

    def _own_folder(self) -> Path | None:
        driver = self.rows.driver
        if driver.is_server:
            return None
        return driver.folder / _OWN / self.rows.id


class ChromaNames(ClientNames):
    """The collections of a server: a new one has the token in its metadata, and is renamed."""

    driver: ChromaDriver

    def successor(self, ending: str) -> str:
        """Return a location on the same server, with its tenant and database."""
        # tenant and database come behind the name in a location
        server = self.driver.location.partition("#")[0]
        return f"{server}#{self.driver.name}-{ending}{options_text(_named_tenant(self.driver.address))}"

    def token(self, name: str) -> str | None:
        """Return the token in the metadata."""
        collection = _find(self.driver.client, name)
        if collection is None:
            return None
        return (collection.metadata or {}).get(_OWN)

    def is_published(self, content: Path) -> bool:
        """Return whether the collection has its final name, and the one that it replaces is gone."""
        return super().is_published(content) and not self.leftovers()

    def publish(self, staging: str, content: Path) -> None:
        """Give the collection the final name by a rename; one that has it is renamed before, and dropped after."""
        token = staging[-32:]
        listed = {collection.name: collection for collection in _listed(self.driver.client)}
        keep(content, token)
        if staging in listed:
            if self.driver.name in listed:
                listed[self.driver.name].modify(name=f"{staging}-old")
            listed[staging].modify(name=self.driver.name)
        if self.token(self.driver.name) != token:
            raise StoreError(
                f"{self.driver.location}: the collection just written was deleted; --restart writes it again"
            )
        for name in self.leftovers():
            self.drop(name)

    def leftovers(self) -> list[str]:
        """Return collections NAME-TOKEN and NAME-TOKEN-old; one of the latter gets back a name that nothing has."""
        pattern = re.compile(re.escape(self.driver.name) + "-[0-9a-f]{32}(-old)?")
        listed = _listed(self.driver.client)
        unfinished = [
            collection
            for collection in listed
            if pattern.fullmatch(collection.name) and _OWN in (collection.metadata or {})
        ]
        # a run was killed between the two renames of `publish`
        replaced = next((collection for collection in unfinished if collection.name.endswith("-old")), None)
        if replaced is not None and all(collection.name != self.driver.name for collection in listed):
            replaced.modify(name=self.driver.name)
        return [collection.name for collection in unfinished if collection.name != self.driver.name]

    def swap(self, targets: Mapping[str, Any]) -> None:
        """Rename collections, one that is in the way first; between two renames nothing has the old name."""
        by_id = {str(collection.id): collection for collection in _listed(self.driver.client)}
        goals = {key: name for name, key in targets.items()}
        strangers = [key for key, collection in by_id.items() if collection.name in targets and key not in goals]
        if strangers or not by_id.keys() >= goals.keys():
            raise not_switched(self.driver.location)
        for name, key in targets.items():
            holder = next((collection for collection in by_id.values() if collection.name == name), None)
            if holder is by_id[key]:
                continue
            if holder is not None:
                goal = goals[str(holder.id)]
                # Chroma gives no name to two collections, so one of them is called something else between
                if any(collection.name == goal for collection in by_id.values()):
                    goal = f"{name}{ASIDE}"
                holder.modify(name=goal)
            by_id[key].modify(name=name)


def _named_tenant(address: Address) -> dict[str, str]:
    """Return tenant and database as far as a location names them."""
    return {name: value for name, value in address.options.items() if name in _TENANT}


def _tenant(address: Address) -> dict[str, str]:
    """Return tenant and database, as the client takes them."""
    return {**_TENANT, **_named_tenant(address)}


@cache
def _connect(process: int, url: str, token: str | None, tenant: str, database: str) -> Any:  # noqa: ARG001
    """Return one client of each server: Chroma's own keeps its connections until the process ends, closed or not."""
    host = None
    # a port that is no number is found out when it is asked for
    with suppress(ValueError):
        address = urlsplit(url)
        port = address.port or _PORTS[address.scheme]
        host = address.hostname
    if not host:
        raise UsageError(f"{url}: this is not the URL of a server; write chroma+http://HOST:PORT#COLLECTION")
    module = import_client("chromadb", "chroma")
    settings = module.config.Settings(anonymized_telemetry=False)
    is_safe = address.scheme == "chroma+https"
    # nothing to verify: loading certificates takes longer than everything else
    if not is_safe:
        settings.chroma_server_ssl_verify = False
    headers = None
    # Chroma's own service reads the first, servers with a token of their own either, as they are set up
    if token:
        headers = {"x-chroma-token": token, "Authorization": f"Bearer {token}"}
    return module.HttpClient(host, port, is_safe, headers, settings, tenant, database)


def _listed(client: Any) -> list[Any]:
    """Return the collections of a server, as Chroma's own objects."""
    collections: list[Any] = []
    # by itself, a server lists a hundred
    while page := client.list_collections(limit=READ_AT_ONCE, offset=len(collections)):
        collections += page
    return collections


def _find(client: Any, name: str) -> Any:
    """Return the collection that has a name; None if there is none."""
    absent = import_client("chromadb.errors", "chroma").NotFoundError
    try:
        return client.get_collection(name, embedding_function=None)
    except absent:
        return None


def _has_list(fields: Mapping[str, Any]) -> bool:
    return any(isinstance(value, list) for value in fields.values())


def _write_records(
    driver: ChromaDriver,
    name: str,
    dim: int,
    configuration: Mapping[str, Any],
    metadata: Mapping[str, Any],
    batches: Iterable[tuple[Sequence[_Record], Vectors]],
) -> None:
    """Make a collection anew, with records and their vectors."""
    metadata = dict(metadata)
    if driver.is_server:
        metadata[_OWN] = name[-32:]
    written = 0
    clear_folder(driver)
    with driver.written_client() as client:
        if driver.is_server and driver.identity(name) is not None:
            driver.delete(name)
        with _known_functions():
            # Chroma takes no metadata that is empty
            collection = client.create_collection(
                name, configuration=configuration, metadata=metadata or None, embedding_function=None
            )
        fitting = max(_REQUEST_BYTES // (_NUMBER_BYTES * dim), 1)
        at_once = min(client.get_max_batch_size(), fitting, READ_AT_ONCE)
        for records, new in batches:
            for chunk, vectors in zip(in_parts(records, at_once), in_parts(new, at_once), strict=True):
                _add(collection, chunk, vectors)
                if driver.is_server:
                    _remove_inherited(collection, chunk)
            written += len(records)
        count = collection.count()
    check_count(driver.location, written, count)


def _index_in_use(index: Mapping[str, Any], metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that an index is searched with.

    Of a collection that Chroma before 1.0 made, its client names the defaults whatever the metadata says, and yet goes
    by the metadata.
    """
    if any(index.get(name) != value for name, value in _DEFAULT_INDEX.items()):
        return dict(index)
    return {**index, **{name: metadata[key] for key, name in _EARLIER_NAMES.items() if key in metadata}}


def _sequence_number(stored: int | bytes) -> int:
    """Return the number of a write, which Chroma before 1.0 stores as big-endian bytes."""
    if isinstance(stored, bytes):
        return int.from_bytes(stored, "big")
    return int(stored)


def _records(page: Mapping[str, Any]) -> list[_Record]:
    return list(zip(page["ids"], *(page[field] for field in _FIELDS), strict=True))


def _add(collection: Any, records: Sequence[_Record], vectors: Vectors) -> None:
    """Add records; Chroma takes those at once that have the same parts."""
    groups: dict[tuple[bool, ...], list[int]] = {}
    for row, (_, text, fields, uri) in enumerate(records):
        groups.setdefault((text is not None, bool(fields), uri is not None), []).append(row)
    for has, rows in groups.items():
        ids, *columns = (list(column) for column in zip(*(records[row] for row in rows), strict=True))
        fields = {field: column for field, column, present in zip(_FIELDS, columns, has, strict=True) if present}
        collection.add(ids=ids, embeddings=vectors[rows], **fields)


def _remove_inherited(collection: Any, records: Sequence[_Record]) -> None:
    """Remove metadata that was not given to some new records.

    Deleting a collection, Chroma 1.5 leaves the lists in its metadata behind, and new records with the numbers of the
    deleted ones have them.
    """
    metadata_of = {doc_id: fields or {} for doc_id, _, fields, _ in records}
    stored = collection.get(ids=[*metadata_of], include=["metadatas"])
    keys = {
        doc_id: dict.fromkeys(fields.keys() - metadata_of[doc_id].keys())
        for doc_id, fields in zip(stored["ids"], stored["metadatas"], strict=True)
        if fields and fields.keys() - metadata_of[doc_id].keys()
    }
    if keys:
        collection.update(ids=[*keys], metadatas=[*keys.values()])


def _as_record(document: Document, absent: set[str], as_json: set[str], *, has_text: bool) -> _Record:
    """Return a record of another kind's document; keys that Chroma cannot hold as they are go into the two sets."""
    if not document.id:
        raise StoreError("a document has an empty id, which Chroma does not take; give it another")
    fields = dict(document.metadata)
    uri = None
    if isinstance(fields.get(_URI), str):
        uri = fields.pop(_URI)
    record: dict[str, Any] = {}
    # keys of JSON are texts, and those of other stores may be numbers
    for key, value in ((str(key), value) for key, value in fields.items()):
        if value is None:
            absent.add(key)
        elif key in record:
            raise StoreError(f"document {document.id!r}: two keys of its metadata are {key!r}; rename one")
        elif not key or key.startswith(("chroma:", "$", "#")):
            raise StoreError(f"document {document.id!r}: Chroma keeps the key {key!r} to itself; rename it")
        elif _is_plain(value):
            record[key] = value
            if isinstance(value, tuple):
                record[key] = list(value)
        else:
            as_json.add(key)
            try:
                record[key] = json.dumps(value, ensure_ascii=False)
            except (TypeError, ValueError) as error:
                reason = f"JSON cannot hold the value under {key!r} ({error})"
                raise StoreError(f"document {document.id!r}: {reason}; change it") from error
    return document.id, document.text if has_text else None, record or None, uri


def _is_plain(value: Any) -> bool:
    """Return whether Chroma holds it as it is; of a number that is not finite it drops the key without a word."""
    # lists are of one type, and not empty
    if isinstance(value, list | tuple):
        return len(set(map(type, value))) == 1 and not isinstance(value[0], list | tuple) and all(map(_is_plain, value))
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, str | bool) or (isinstance(value, int) and abs(value) < _MOST_INTEGER)


def _remarks(absent: set[str], as_json: set[str]) -> Iterator[str]:
    """Say which keys are not as they were."""
    no_json = "Chroma holds no nested values, whole numbers beyond 64 bits, NaN or infinity"
    changed = {
        "Chroma has no null: where they are null, these keys are absent": sorted(absent),
        f"{no_json}: these keys have them as JSON texts": sorted(as_json),
    }
    for change, keys in changed.items():
        named = ", ".join(keys[:_NAMED])
        if len(keys) > _NAMED:
            named += f" and {len(keys) - _NAMED} more"
        if keys:
            yield f"{change}: {named}"


def _function_of(model: ModelIdentity | None, stored: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a collection says of Chroma's function for a model, with the settings of the stored one."""
    if model is None or model.query_prefix or model.document_prefix:
        return {"type": "legacy"}
    kind, _, name = model.spec.partition(":")
    if kind == "openai":
        config = {"api_key_env_var": "OPENAI_API_KEY"}
        # addresses and keys of the old model are those of the new one, too
        if stored["name"] == "openai":
            config = dict(stored["config"])
        # only these models are asked for a dimension
        dim = model.dim if name.startswith("text-embedding-3") else None
        return {"type": "known", "name": "openai", "config": {**config, "model_name": name, "dimensions": dim}}
    if kind == "sentence-transformers":
        settings = {"model_name": name, "device": "cpu", "normalize_embeddings": model.normalized, "kwargs": {}}
        return {"type": "known", "name": "sentence_transformer", "config": settings}
    return {"type": "legacy"}


def _named_function(stored: Mapping[str, Any]) -> Any:
    """Return an embedding function that says what a collection says of its own, and embeds nothing."""
    methods: dict[str, Any] = {
        "is_legacy": lambda: stored["type"] == "legacy",
        "name": lambda: str(stored["name"]),
        "get_config": lambda: dict(stored.get("config") or {}),
        "validate_config": lambda config: None,  # noqa: ARG005
        "supported_spaces": lambda: ["cosine", "l2", "ip"],
    }
    return type("Named", (), {name: staticmethod(method) for name, method in methods.items()})()


@contextmanager
def _known_functions() -> Iterator[None]:
    """Undo that Chroma registers the function of a new collection in the place of its own of that name."""
    from chromadb.utils.embedding_functions import known_embedding_functions as functions

    registered = dict(functions)
    try:
        yield
    finally:
        functions.clear()
        functions.update(registered)
