"""Collections of Qdrant: `qdrant:URL#COLLECTION` on a server, `qdrant:PATH#COLLECTION` in a folder of the local mode.

The client's local mode writes to its folder when it opens one, unpickles every point, and holds all in memory: a folder
is read from a copy, whose pickles are first held to be points and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import io
import os
import pickle
import re
import sqlite3
import uuid
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from migrate.databases.clients import AliasDriver, ClientRows
from migrate.databases.driver import READ_AT_ONCE, DatabaseSearch, Page, check_count, clear_folder, described, in_parts
from migrate.databases.located import DatabaseTraits
from migrate.databases.sqlite_read import change_counter, read_only
from migrate.errors import (
    AuthenticationError,
    LeadMigrateError,
    RemoteError,
    StoreError,
    UnsupportedStoreError,
    UsageError,
)
from migrate.files import state_folder
from migrate.locations import scrub
from migrate.reading import MalformedError
from migrate.stores.added_fields import FIELDS, AddedField, FieldFolders, VectorFields, main_fields
from migrate.stores.base import KindSupport, SearchSetting, StoreInfo
from migrate.stores.documents.llamaindex import NODE, node_text
from migrate.stores.documents.names import TEXTS, first_of
from migrate.stores.records import Distance, as_document, choose, choose_text, import_client
from migrate.stores.serving import Hits, as_hits
from migrate.vectors import Document, Vectors, unit_rows

_OWN: Final = "lead-migrate"
"""The key in a collection's metadata of the options to open it with, and `made` if its ids are made of documents'."""
_LAYOUT: Final = ("page_content", "metadata", "id")
"""Payload of documents of other kinds; LangChain finds texts there."""
_DISTANCES: Final[Mapping[str, Distance]] = {"Cosine": "cosine", "Dot": "ip", "Euclid": "l2"}
_ID_SPACE: Final = uuid.UUID("6f1c2a44-8a0e-4b6a-9d3c-0a5a4f8f2f11")
_REQUEST_BYTES: Final = 4 << 20
"""Bytes of vectors in a request: a server refuses one of more than 32 MiB, and payload comes on top of them."""
_NUMBER_BYTES: Final = 24
"""Bytes of a number of a vector in JSON, at most."""
_LOCAL_PAGE: Final = 4 * READ_AT_ONCE
"""Points that are read at a time in the local mode."""
_SAMPLE: Final = 64
"""Points that are looked at for where the texts are, and for the length of vectors."""
_TIMEOUT_S: Final = 60
"""Seconds for an answer of the server; the client gives up after 5, which a request of 4 MiB may take."""
_MOST_CLIENTS: Final = 8
"""Clients of servers that are kept: a new one reads certificates and copies schemas for 80 ms, and is needed often."""
_MOST_EF: Final = 4_096
"""Candidates of the graph that are tried at most, unless the collection was built with more."""
_COSINE_ROUNDING: Final = 1e-6
"""Length that a unit vector of float32 may be off 1 by, once the server has divided it by its length."""
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,19}")


class QdrantDriver(AliasDriver):
    """Collections on a server, or in a folder of the local mode."""

    traits = DatabaseTraits(
        kind="qdrant",
        support=KindSupport(
            "Qdrant",
            ("qdrant:http://HOST:6333#COLLECTION", "qdrant:FOLDER#COLLECTION"),
            "qdrant",
            "ids, payload, other named and sparse vectors, points without the vector, HNSW and other settings",
            "quantization is made anew; several vectors to a point are refused; a server counts no changes",
            "bounded on a server; a folder in memory",
        ),
        options=("id", "text", "vector"),
    )
    lock = ".lock"

    @classmethod
    def recognises(cls, path: Path) -> bool:
        """Return whether the local mode has written there."""
        return (path / "meta.json").is_file() and (path / "collection").is_dir()

    def connect(self) -> Any:
        """Return a client of the server; its key is that of the location, or QDRANT_API_KEY."""
        key = self.secret("QDRANT_API_KEY")
        try:
            return _server_client(self.address.place, key, os.getpid())
        except Exception as error:
            message = f"this is not the URL of a server ({scrub(str(error))})"
            raise UsageError(f"{self.location}: {message}; correct it") from error

    def collections(self) -> list[str]:
        """Return the collections."""
        return [collection.name for collection in self.client.get_collections().collections]

    def aliases(self) -> dict[str, str]:
        """Return the collection that each alias leads to."""
        return {alias.alias_name: alias.collection_name for alias in self.client.get_aliases().aliases}

    def explain(self, error: BaseException, message: str) -> LeadMigrateError:
        """Tell what a server refused from a server that failed."""
        status = getattr(error, "status_code", None)
        if not self.is_server or status in (400, 404, 422):
            return super().explain(error, message)
        if status in (401, 403):
            return AuthenticationError(f"{self.location}: the server refused; set QDRANT_API_KEY")
        return RemoteError(f"{self.location}: the server of Qdrant failed: {message}; check that it runs")

    def open(self) -> QdrantRows:
        """Find the collection or alias."""
        self.name = self.choose_name(self.names())
        self.collection_name = self.collection_of(self.name)
        return QdrantRows(self)

    @property
    def storage(self) -> Path:
        """The database of the local mode."""
        return self.folder / "collection" / self.collection_name / "storage.sqlite"

    def versions(self) -> dict[str, Any]:
        """Return size, time, number of changes and number of each file."""
        states = {}
        for storage in self.folder.glob("collection/*/storage.sqlite"):
            status = storage.stat()
            # size and time alone do not tell two writes within a tick of the clock apart
            states[storage.parent.name] = [status.st_size, status.st_mtime_ns, change_counter(storage), status.st_ino]
        return states

    def files(self) -> Collection[str]:
        """Return what the local mode writes."""
        return ("collection", "meta.json", ".lock")

    def open_folder(self, folder: Path) -> tuple[Any, Callable[[], object]]:
        """Return a client of a folder, whose points are looked at before anybody unpickles them."""
        for storage in folder.glob("collection/*/storage.sqlite"):
            with read_only(storage) as connection:
                self._check_points(connection)
        client = quiet(import_client("qdrant_client", "qdrant").QdrantClient, path=str(folder))
        return client, client.close

    def _check_points(self, connection: sqlite3.Connection) -> None:
        # the ids are pickles, too
        for key, point in connection.execute("SELECT id, point FROM points"):
            try:
                for content in (base64.b64decode(key), point):
                    _Points(io.BytesIO(content)).load()
            except Exception as error:
                raise StoreError(
                    f"{self.location}: this holds a pickle that is not a point ({error}), and may run a program when "
                    "it is read; do not open it"
                ) from error

    def stored(self) -> Iterable[Path]:
        """Return the files of every collection."""
        return [self.folder / "meta.json", *self.folder.glob("collection/*/storage.sqlite")]

    def write_new(self, name: str, dim: int, source: StoreInfo, pages: Iterator[Page]) -> Iterable[str]:
        """Write points of documents."""
        distance = {"l2": "Euclid", "ip": "Dot"}[source.metric]
        options = {"text": _LAYOUT[0], "id": _LAYOUT[2], "made": True}
        vectors = _models().VectorParams(size=dim, distance=distance)
        settings = {"vectors_config": vectors, "metadata": {_OWN: options}}
        batches = map(_points_of_documents, pages)
        self._write_points(name, dim, settings, batches, indexes={})
        return []

    def write_copy(self, name: str, dim: int, old: QdrantRows, pages: Iterator[Page]) -> Iterable[str]:
        """Write the settings, points and payload indexes of another collection."""
        options = dict(old.options)
        if len(old.settings.dense) > 1:
            options["vector"] = old.vector
        settings, remarks = old.settings.of_new(old.vector, dim, options)
        batches = (_copied_points(page, old.settings, old.vector) for page in pages)
        self._write_points(name, dim, settings, batches, old.payload_schema)
        return remarks

    def _write_points(
        self,
        name: str,
        dim: int,
        settings: Mapping[str, Any],
        batches: Iterator[list[Any]],
        indexes: Mapping[str, Any],
    ) -> None:
        """Make a collection anew, with points and payload indexes."""
        clear_folder(self)
        written = 0
        with self.written_client() as client:
            if client.collection_exists(name):
                client.delete_collection(name)
            client.create_collection(name, **settings)
            if not self.is_server:
                _wait_for_no_disk(client, name)
            for points in batches:
                for chunk in in_parts(points, _points_at_once(dim)):
                    quiet(client.upsert, name, chunk, wait=True)
                written += len(points)
            # after the points, as the server would index each of them while it writes
            for field, index in indexes.items():
                client.create_payload_index(name, field, index.params or index.data_type.value, wait=True)
            count = client.count(name, exact=True).count
        check_count(self.location, written, count)

    def delete(self, name: str) -> None:
        """Delete a collection; its aliases go with it."""
        self.client.delete_collection(self.collection_of(name))

    def lead(self, targets: Mapping[str, str]) -> None:
        """Let aliases lead to collections, all in one call."""
        models = _models()
        aliases = self.aliases()
        # an alias that exists is deleted first: the server refuses to create it anew
        steps: list[Any] = []
        for alias, collection in targets.items():
            if alias in aliases:
                deletion = models.DeleteAlias(alias_name=alias)
                steps.append(models.DeleteAliasOperation(delete_alias=deletion))
            creation = models.CreateAlias(collection_name=collection, alias_name=alias)
            steps.append(models.CreateAliasOperation(create_alias=creation))
        self.client.update_collection_aliases(steps)


class QdrantSettings:
    """The settings of a collection: which vectors its points have, and how another one is created like it.

    `options` are those to open the collection with, which its metadata may name.
    """

    def __init__(self, location: str, config: Any) -> None:
        self._location = location
        self.config = config
        self._user_metadata = dict(config.metadata or {})
        self.options: Mapping[str, Any] = self._user_metadata.pop(_OWN, None) or {}

    @property
    def dense(self) -> dict[str, Any]:
        """The settings of the dense vectors by name; one without a name has an empty one."""
        vectors = self.config.params.vectors
        # a collection may have sparse vectors alone
        if vectors is None:
            return {}
        return vectors if isinstance(vectors, dict) else {"": vectors}

    @property
    def names(self) -> list[str]:
        """The names of all vectors, dense and sparse."""
        return [*self.dense, *(self.config.params.sparse_vectors or {})]

    def other_vectors(self, vector: str) -> list[str]:
        """Return the names of all vectors but one."""
        return [name for name in self.names if name != vector]

    def quantization(self, vector: str) -> str | None:
        """Return the kind of quantization that a vector is searched by."""
        settings = self.dense[vector].quantization_config or self.config.quantization_config
        if settings is None:
            return None
        # a model with one field, which is called by the kind
        return str(next(iter(type(settings).model_fields)))

    def index_details(self, vector: str) -> dict[str, Any]:
        """Return the parameters of the graph; those of the vector come before those of the collection."""
        special = self.dense[vector].hnsw_config
        details = {}
        for key, label in (("m", "hnsw_m"), ("ef_construct", "ef_construction")):
            value = getattr(special, key, None)
            if value is None:
                value = getattr(self.config.hnsw_config, key)
            details[label] = value
        return details

    def choose_vector(self, requested: str | None, added: Mapping[str, AddedField]) -> str:
        """Return the name of the vector that is asked for, or of the only one that was not `added` beside another."""
        names = [*self.dense]
        if requested not in names:
            names = main_fields(names, added)
        name = choose(self._location, "vector", names, requested, "say #COLLECTION?vector=NAME for one")
        params = self.dense[name]
        if params.multivector_config is not None:
            raise UnsupportedStoreError(f"{self._location}: points have several vectors under {name!r}; name another")
        distance = params.distance.value
        if distance not in _DISTANCES:
            raise UnsupportedStoreError(
                f"{self._location}: vectors {name!r} are compared by {distance}, which is not supported; name another"
            )
        return name

    def of_new(self, vector: str, dim: int, options: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
        """Return how to create a collection like this one, but for `dim` of a vector, with remarks."""
        models = _models()
        config = self.config
        params = config.params
        remarks = []
        changed: dict[str, Any] = {"size": dim}
        if params.sharding_method is not None and params.sharding_method.value == "custom":
            raise UnsupportedStoreError(f"{self._location}: points are in shards of your own keys, which are not kept")
        datatype = self.dense[vector].datatype
        if datatype is not None and datatype.value != "float32":
            remarks.append(f"vectors were kept as {datatype.value}, and now are as float32")
            changed["datatype"] = None
        quantization = self.quantization(vector)
        if quantization is not None:
            remarks.append(
                f"{quantization} quantization was rebuilt and is lossy: check its recall against exact search"
            )
        vectors = self.dense[vector].model_copy(update=changed)
        if isinstance(params.vectors, dict):
            vectors = {**params.vectors, vector: vectors}
        metadata = dict(self._user_metadata)
        if options := {**self.options, **options}:
            metadata[_OWN] = options
        same = ("shard_number", "replication_factor", "write_consistency_factor", "on_disk_payload")
        settings = {
            "vectors_config": vectors,
            "sparse_vectors_config": params.sparse_vectors,
            **{key: getattr(params, key) for key in same},
            "hnsw_config": _as(models.HnswConfigDiff, config.hnsw_config),
            "optimizers_config": _as(models.OptimizersConfigDiff, config.optimizer_config),
            "quantization_config": config.quantization_config,
            "strict_mode_config": _as(models.StrictModeConfig, config.strict_mode_config),
            "metadata": metadata or None,
        }
        return settings, remarks


class QdrantRows(ClientRows):
    """The points of a collection, read by one of their dense vectors."""

    driver: QdrantDriver

    def __init__(self, driver: QdrantDriver) -> None:
        super().__init__(driver)
        description = driver.client.get_collection(self.name)
        self.payload_schema = dict(description.payload_schema or {})
        self.settings = QdrantSettings(self.location, description.config)
        requested = driver.address.options
        stored = {key: value for key, value in self.settings.options.items() if key in driver.traits.options}
        self.options = {**stored, **requested}
        # the metadata may name a vector that was dropped since
        if "vector" not in requested and self.options.get("vector") not in self.settings.dense:
            self.options.pop("vector", None)
        self.vector = self.settings.choose_vector(self.options.get("vector"), self.fields.added())
        self.params = self.settings.dense[self.vector]
        self.dim = self.params.size
        self.id_field = self.options.get("id")
        self.distance = _DISTANCES[self.params.distance.value]
        has = _models().HasVectorCondition(has_vector=self.vector)
        self._with_vector = _models().Filter(must=[has])
        self._lacks_vector = _models().Filter(must_not=[has])
        self.without_vector = driver.client.count(self.name, self._lacks_vector, exact=True).count

    def describe(self) -> StoreInfo:
        """Describe the collection; a sample shows where texts are."""
        count = self.driver.client.count(self.name, self._with_vector, exact=True).count
        sample, _ = self.driver.client.scroll(
            self.name, self._with_vector, _SAMPLE, with_payload=True, with_vectors=self._vector_names
        )
        self.text, why = self._choose_text([point.payload or {} for point in sample])
        notes = [why]
        if other_vectors := self.settings.other_vectors(self.vector):
            notes.append(f"points have other vectors too, which stay as they are: {', '.join(other_vectors)}")
        quantization = self.settings.quantization(self.vector)
        if quantization:
            notes.append(f"searched by {quantization} quantization, which is lossy; those read here are whole")
        details: dict[str, str | int | None] = {
            "collection": self.name,
            "distance": self.params.distance.value,
            **self.settings.index_details(self.vector),
            "vector": self.vector,
            "text": self.text,
            "id": self.id_field,
            "quantization": quantization,
        }
        return described(self, "HNSW", count, [*map(self._vector_of, sample)], details=details, notes=notes)

    @property
    def key(self) -> str:
        """Server or folder, collection, vector and id field."""
        return f"{self.driver.whole_place}#{self.name}?vector={self.vector}&id={self.id_field or ''}"

    def records(self) -> Iterator[Any]:
        """Read ids and payload."""
        return ([str(point.id), point.payload] for point in self._scroll(self._with_vector, payload=True))

    def _scroll(self, chosen: Any, *, payload: bool | list[str], vectors: bool | list[str] = False) -> Iterator[Any]:
        """Read the points that pass a filter, with as much of each as is asked for."""
        at_once = self.at_once
        if not self.driver.is_server:
            # the local mode sorts and filters all its points for every page, so these are larger
            at_once = _LOCAL_PAGE
        offset = None
        while True:
            points, offset = self.driver.client.scroll(
                self.name, chosen, at_once, offset=offset, with_payload=payload, with_vectors=vectors
            )
            yield from points
            if offset is None:
                return

    def pages(self, *, vectors: bool = True, records: bool = False) -> Iterator[Page]:
        """Read points as the client orders them; those without the vector come last. `raw` is a list of points."""
        payload = self.id_payload
        read: bool | list[str] = False
        if records:
            payload = True
            # the one that is translated is replaced, so vectors are read only for the others
            read = bool(self.settings.other_vectors(self.vector))
        elif vectors:
            read = self._vector_names
        points = self._scroll(self._with_vector, payload=payload, vectors=read)
        while chunk := list(islice(points, self.at_once)):
            rows = [self._vector_of(point) for point in chunk] if vectors else []
            yield Page([self.id_of(point) for point in chunk], rows, chunk)
        if records:
            points = self._scroll(self._lacks_vector, payload=True, vectors=read)
            while chunk := list(islice(points, self.at_once)):
                yield Page([], [], chunk)

    def points_of(self, ids: Sequence[str], **read: Any) -> Iterator[tuple[str, Any]]:
        """Yield points by the ids that their documents have here; without `read`, no more than says which id it is."""
        read = {"with_payload": self.id_payload, "with_vectors": False, **read}
        return ((self.id_of(point), point) for point in self._find(ids, **read))

    def _retrieve(self, keys: Iterable[int | str | None], **read: Any) -> list[Any]:
        return list(self.driver.client.retrieve(self.name, [key for key in keys if key is not None], **read))

    def _find(self, ids: Sequence[str], **read: Any) -> list[Any]:
        if self.id_field is None:
            return self._retrieve(map(_point_id, ids), **read)
        points: list[Any] = []
        # the ids of points that this tool made can be computed, so no filter looks through the payload; others may
        # have added points since, with ids of their own
        if self.settings.options.get("made"):
            points = self._retrieve(map(_made_point_id, ids), **read)
            present = {self.id_of(point) for point in points}
            ids = [doc_id for doc_id in ids if doc_id not in present]
        # a payload holds 7 and "7" as different values, and here both are the id 7
        numbers = [int(doc_id) for doc_id in ids if _NUMBER.fullmatch(doc_id)]
        fields = [
            _models().FieldCondition(key=self.id_field, match=_models().MatchAny(any=values))
            for values in (list(ids), numbers)
            if values
        ]
        if fields:
            chosen = _models().Filter(must=[*self._with_vector.must, _models().Filter(should=fields)])
            points += self.driver.client.scroll(self.name, chosen, 2 * len(ids), **read)[0]
        return points

    def documents(self, ids: Sequence[str], at: NDArray[np.int64] | None = None) -> Iterator[Document]:
        """Return payloads as documents."""
        text, metadata, _ = _LAYOUT
        nested = metadata if self.text == text else None
        for doc_id, point in self.points_of(ids, with_payload=True):
            document = as_document(self.location, doc_id, dict(point.payload or {}), self.id_field, self.text, nested)
            yield self._as_embedded(document) if self.text == NODE else document

    def _as_embedded(self, document: Document) -> Document:
        """Return a document whose text is a node of LlamaIndex with what LlamaIndex embeds of that."""
        try:
            return replace(document, text=node_text(document.text))
        except MalformedError as error:
            raise StoreError(
                f"{self.location}: {NODE!r} of point {document.id} is no node of LlamaIndex ({error}); say ?text=FIELD "
                "for another"
            ) from error

    def vectors(self, ids: Sequence[str], at: NDArray[np.int64] | None = None) -> Page:
        """Return vectors by the ids of points, or by the payload field of ids."""
        read = self.points_of(ids, with_vectors=self._vector_names)
        vector_of = {doc_id: vector for doc_id, point in read if (vector := self._vector_of(point)) is not None}
        return Page([*vector_of], [*vector_of.values()])

    def id_of(self, point: Any) -> str:
        """Return the id of the document that a point is."""
        if self.id_field is None:
            return str(point.id)
        value = (point.payload or {}).get(self.id_field)
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise StoreError(
                f"{self.location}: {self.id_field!r} of point {point.id} is {type(value).__name__}, not an id; say "
                "?id=FIELD for another, or leave it out"
            )
        return str(value)

    def _vector_of(self, point: Any) -> list[float] | None:
        return point.vector.get(self.vector) if isinstance(point.vector, dict) else point.vector

    @property
    def _vector_names(self) -> bool | list[str]:
        """The names by which the client is asked for the vector; True for one without a name."""
        return [self.vector] if self.vector else True

    @property
    def id_payload(self) -> bool | list[str]:
        """The part of the payload that says which id a point has."""
        return False if self.id_field is None else [self.id_field]

    def _choose_text(self, payloads: Sequence[Mapping[str, Any]]) -> tuple[str | None, str]:
        requested = self.options.get("text")
        if not payloads:
            return requested or _LAYOUT[0], "the collection is empty"
        columns = dict.fromkeys(key for fields in payloads for key, value in fields.items() if isinstance(value, str))
        columns.pop(self.id_field or "", None)
        if requested is None and NODE in columns and first_of(TEXTS, columns) is None:
            return NODE, f"the texts are what LlamaIndex embeds of the nodes in {NODE}"
        return choose_text(self.location, list(columns), requested)

    def update(self, new: Mapping[str, Vectors]) -> int:
        """Replace vectors; a folder is in use by this process alone from then on."""
        kind = self.params.datatype
        if kind is not None and kind.value not in ("float32", "float16"):
            raise StoreError(f"{self.location}: vectors are kept as {kind.value}, which cannot hold new ones")
        count = 0
        with self.driver.turn:
            self.driver.leave_copy()
            for names in in_parts(list(new)):
                points = []
                for doc_id, point in self.points_of(names, with_vectors=self._vector_names):
                    # a point without the vector is no document here, and stays without
                    if self._vector_of(point) is None:
                        continue
                    vector = new[doc_id].tolist()
                    if self.vector:
                        vector = {self.vector: vector}
                    points.append(_models().PointVectors(id=point.id, vector=vector))
                if points:
                    self.driver.client.update_vectors(self.driver.collection_name, points, wait=True)
                count += len(points)
        return count

    @property
    def search(self) -> QdrantSearch:
        """The search of the points."""
        return QdrantSearch(self)

    @property
    def fields(self) -> QdrantFields:
        """The named vectors."""
        return QdrantFields(self)


class QdrantSearch(DatabaseSearch):
    """The search of points."""

    rows: QdrantRows

    def search(self, queries: Vectors, k: int, where: Any) -> list[Hits]:
        """DatabaseSearch; `where` is a `Filter` of qdrant-client, or what makes one, `{"must": [...]}`."""
        return self._search(queries, k, filter=self._filter(where))

    @property
    def setting(self) -> SearchSetting | None:
        """The candidates of the graph; the client compares all vectors of a folder."""
        if not self.rows.driver.is_server:
            return None
        # a search that names no number of candidates has as many as the graph was built with
        value = self.rows.settings.index_details(self.rows.vector)["ef_construction"]
        return SearchSetting("hnsw_ef", value, max(value, _MOST_EF), "search_params=SearchParams(hnsw_ef={})")

    def search_index(self, queries: Vectors, k: int, effort: int | None) -> list[Hits]:
        """DatabaseSearch, with another number of candidates where one is given."""
        if effort is None:
            return self._search(queries, k)
        return self._search(queries, k, params=_models().SearchParams(hnsw_ef=effort))

    def _search(self, queries: Vectors, k: int, **options: Any) -> list[Hits]:
        common = {"using": self.rows.vector or None, "limit": k, "with_payload": self.rows.id_payload, **options}
        requests = [_models().QueryRequest(query=query.tolist(), **common) for query in queries]
        with self.rows.driver.turn:
            responses = self.rows.driver.client.query_batch_points(self.rows.name, requests)
        hits = []
        for response in responses:
            scores = np.array([point.score for point in response.points], np.float64)
            # Qdrant gives distances, and squares are wanted, as FAISS has them
            if self.rows.distance == "l2":
                scores = scores**2
            hits.append(as_hits([self.rows.id_of(point) for point in response.points], scores))
        return hits

    def _filter(self, where: Any) -> Any:
        if where is None or isinstance(where, _models().Filter):
            return where
        try:
            return _models().Filter(**where)
        except (TypeError, ValueError) as error:
            raise UsageError(
                f"{self.rows.location}: the filter is {type(where).__name__}, not a Filter of Qdrant; import it from "
                "qdrant_client.models"
            ) from error


class QdrantFields(FieldFolders, VectorFields):
    """The named vectors of a collection."""

    def __init__(self, rows: QdrantRows) -> None:
        self._rows = rows
        driver = rows.driver
        # the collection's own name, as an alias may lead to another one tomorrow
        owner = driver.collection_name
        folder = driver.folder / FIELDS / quote(owner, safe="")
        if driver.is_server:
            # a server has no place for files; those of all servers are beside each other on this machine
            digest = hashlib.sha256(f"{driver.server}#{owner}".encode()).hexdigest()[:32]
            folder = state_folder() / "fields" / digest
        super().__init__(folder)

    def names(self) -> Collection[str]:
        """Return the names of all vectors."""
        return {*self._rows.settings.names}

    def refuse(self, name: str, dim: int | None) -> None:
        """Refuse a client that cannot add one."""
        if not hasattr(self._rows.driver.client, "create_vector_name"):
            raise UsageError(f"{self._rows.location}: this qdrant-client adds no vector to a collection; update it, "
                             "or translate to a new store (-o) instead")  # fmt: skip

    @property
    def rounding(self) -> float:
        """Return what the rounding of unit vectors may take."""
        return _COSINE_ROUNDING if self._rows.distance == "cosine" else 0.0

    def as_kept(self, vectors: Vectors) -> Vectors:
        """Return unit vectors where they are compared by cosine: Qdrant keeps no others."""
        return unit_rows(vectors) if self._rows.distance == "cosine" else vectors

    def write(self, name: str, dim: int, batches: Iterator[tuple[list[str], Vectors]]) -> Iterable[str]:
        """Add a named vector, and fill it a batch a call."""
        driver = self._rows.driver
        models = _models()
        with driver.written_client() as client:
            if name not in self.names():
                self._add_vector(client, name, dim)
            for ids, vectors in batches:
                new = dict(zip(ids, vectors, strict=True))
                doc_ids = {point.id: doc_id for doc_id, point in self._rows.points_of(ids)}
                # a server refuses the whole request if one of its points was deleted meanwhile
                present = client.retrieve(driver.collection_name, [*doc_ids], with_payload=False, with_vectors=False)
                points = [
                    models.PointVectors(id=point.id, vector={name: new[doc_ids[point.id]].tolist()})
                    for point in present
                ]
                for chunk in in_parts(points, _points_at_once(dim)):
                    client.update_vectors(driver.collection_name, chunk, wait=True)
        return []

    def _add_vector(self, client: Any, name: str, dim: int) -> None:
        driver = self._rows.driver
        models = _models()
        settings = models.DenseVectorConfig(size=dim, distance=self._rows.params.distance)
        config = models.DenseVectorNameConfig(dense=settings)
        try:
            client.create_vector_name(driver.collection_name, name, config, wait=True)
        except Exception as error:
            # a server before named vectors could be added has no such address
            if getattr(error, "status_code", None) not in (404, 405):
                raise
            raise UsageError(
                f"{driver.location}: this server of Qdrant adds no vector to a collection; update it, and run again, "
                "or translate to a new store (-o)"
            ) from error

    def refuse_drop(self, name: str) -> None:
        """Refuse the vector without a name."""
        if not name:
            raise UsageError(f"{self._rows.location}: Qdrant drops no vector that has no name, so the old one stays; "
                             "leave it, or translate to a new store")  # fmt: skip

    def drop(self, name: str) -> None:
        """Drop a named vector."""
        with self._rows.driver.written_client() as client:
            if name in self.names():
                client.delete_vector_name(self._rows.driver.collection_name, name, wait=True)
        self.forget(name)


def _models() -> Any:
    """Return the client's module of what it sends."""
    return import_client("qdrant_client.models", "qdrant")


def _points_at_once(dim: int) -> int:
    """Return how many points a request may have."""
    return max(min(_REQUEST_BYTES // (_NUMBER_BYTES * dim), READ_AT_ONCE), 1)


def _points_of_documents(page: Page) -> list[Any]:
    points = []
    for document, vector in zip(page.documents, page.vectors, strict=True):
        values = (document.text, dict(document.metadata), document.id)
        payload = dict(zip(_LAYOUT, values, strict=True))
        points.append(_models().PointStruct(id=_made_point_id(document.id), vector=vector.tolist(), payload=payload))
    return points


def _copied_points(page: Page, settings: QdrantSettings, name: str) -> list[Any]:
    """Return the points of a page with new vectors under a name; those without that vector keep what they have."""
    # named vectors are one dictionary, in which the other ones stay
    is_plain = not isinstance(settings.config.params.vectors, dict) and not settings.other_vectors(name)
    points = []
    for row, point in enumerate(page.raw):
        vector = point.vector or {}
        if page.ids:
            new = page.vectors[row].tolist()
            if is_plain:
                vector = new
            elif isinstance(vector, dict):
                vector = {**vector, name: new}
            else:
                vector = {name: new}
        points.append(_models().PointStruct(id=point.id, payload=point.payload, vector=vector))
    return points


def quiet(call: Any, *arguments: Any, **options: Any) -> Any:
    """Call the client without its advice on other ways to use Qdrant."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return call(*arguments, **options)


@lru_cache(maxsize=_MOST_CLIENTS)
def _server_client(url: str, key: str | None, _process: int) -> Any:
    """Return the client of a server, of which each process has its own, as it does not live through a fork."""
    module = import_client("qdrant_client", "qdrant")
    # compatibility is a request to the server, and a warning where that is not answered
    return quiet(module.QdrantClient, url=url, api_key=key, timeout=_TIMEOUT_S, check_compatibility=False)


def _wait_for_no_disk(client: Any, name: str) -> None:
    """Keep the local mode from waiting for the disk at each point: the folder is made durable at the end."""
    # the local mode commits each point by itself, and that is a sync of the disk
    storage = getattr(client._client.collections[name].storage, "storage", None)
    if isinstance(storage, sqlite3.Connection):
        storage.execute("PRAGMA synchronous = OFF")
        storage.execute("PRAGMA journal_mode = MEMORY")


def _as(kind: Any, config: Any) -> Any:
    """Return the settings of a collection as those of a new one are given."""
    if config is None:
        return None
    settings = config.model_dump(exclude_none=True)
    return kind(**{key: value for key, value in settings.items() if key in kind.model_fields})


def _point_id(doc_id: str) -> int | str | None:
    """Return the point's id that a text stands for; None if there can be no such point."""
    if _NUMBER.fullmatch(doc_id) and int(doc_id) < 1 << 64:
        return int(doc_id)
    try:
        return str(uuid.UUID(doc_id))
    except ValueError:
        return None


def _made_point_id(doc_id: str) -> int | str:
    """Return the id of a new point for a document: its own if Qdrant can have it, else a UUID made of it."""
    point_id = _point_id(doc_id)
    # a UUID has several spellings, and two ids may differ in nothing else
    if point_id is not None and str(point_id) == doc_id:
        return point_id
    return str(uuid.uuid5(_ID_SPACE, doc_id))


class _Points(pickle.Unpickler):
    """Reads pickles of points alone: a class of any other kind could run whatever it likes."""

    def find_class(self, module: str, name: str) -> Any:
        # a stub is made in the place of each class, so that nothing of the client runs either
        is_point = module == "qdrant_client.http.models.models" and re.fullmatch(r"[A-Z]\w*", name)
        is_plain = (module, name) == ("uuid", "UUID") or (
            module == "datetime" and name in ("date", "datetime", "timedelta", "timezone")
        )
        if not is_point and not is_plain:
            raise pickle.UnpicklingError(f"it names {module}.{name}")
        return _Stub


class _Stub:
    """Stands for any class of points while their pickles are looked at; keeps nothing."""

    def __init__(self, *arguments: object) -> None: ...

    def __setstate__(self, state: object) -> None: ...
