"""Collections of Qdrant: `qdrant:URL#COLLECTION` on a server, `qdrant:PATH#COLLECTION` in a folder of the local mode.

The client's local mode writes to its folder when it opens one, unpickles every point, and holds all in memory: a folder
is read from a copy, whose pickles are first held to be points and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import io
import pickle
import re
import sqlite3
import uuid
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
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
from migrate.stores.added_fields import FIELDS, FieldFolders, VectorFields, main_fields
from migrate.stores.base import KindSupport, SearchSetting, StoreInfo
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
"""Bytes of vectors in a request."""
_NUMBER_BYTES: Final = 24
"""Bytes of a number of a vector in JSON, at most."""
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
        module, key = import_client("qdrant_client", "qdrant"), self.secret("QDRANT_API_KEY")
        try:
            return quiet(
                module.QdrantClient, url=self.address.place, api_key=key, timeout=60, check_compatibility=False
            )
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
        self._write_points(name, dim, settings, map(_points_of_documents, pages), {})
        return []

    def write_copy(self, name: str, dim: int, old: QdrantRows, pages: Iterator[Page]) -> Iterable[str]:
        """Write the settings, points and payload indexes of another collection."""
        settings, remarks = old.settings(dim)
        self._write_points(name, dim, settings, map(old.points, pages), old.payload_schema)
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
        steps: list[Any] = []
        for alias, collection in targets.items():
            if alias in aliases:
                deletion = models.DeleteAlias(alias_name=alias)
                steps.append(models.DeleteAliasOperation(delete_alias=deletion))
            creation = models.CreateAlias(collection_name=collection, alias_name=alias)
            steps.append(models.CreateAliasOperation(create_alias=creation))
        self.client.update_collection_aliases(steps)


class QdrantRows(ClientRows):
    """The points of a collection, read by one of their dense vectors."""

    driver: QdrantDriver

    def __init__(self, driver: QdrantDriver) -> None:
        super().__init__(driver)
        description = driver.client.get_collection(self.name)
        self.config = description.config
        self.payload_schema = dict(description.payload_schema or {})
        self._user_metadata = dict(self.config.metadata or {})
        self._stored_options = self._user_metadata.pop(_OWN, None) or {}
        options = driver.address.options
        self._options = {**{k: v for k, v in self._stored_options.items() if k in driver.traits.options}, **options}
        if "vector" not in options and self._options.get("vector") not in self.dense:
            self._options.pop("vector", None)  # one that was dropped since
        self.vector, self.params = self._choose_vector(self._options.get("vector"))
        self.dim = self.params.size
        self.id_field = self._options.get("id")
        self.distance = _DISTANCES[self.params.distance.value]
        has = _models().HasVectorCondition(has_vector=self.vector)
        self._with_vector = _models().Filter(must=[has])
        self._lacks_vector = _models().Filter(must_not=[has])
        self.without_vector = driver.client.count(self.name, self._lacks_vector, exact=True).count

    def describe(self) -> StoreInfo:
        """Describe the collection; a sample shows where texts are."""
        count = self.driver.client.count(self.name, self._with_vector, exact=True).count
        sample, _ = self.driver.client.scroll(
            self.name, self._with_vector, 64, with_payload=True, with_vectors=self._vector_names
        )
        self.text, why = self._choose_text([point.payload or {} for point in sample])
        notes = [why]
        if self._other_vectors:
            notes.append(f"points have other vectors too, which stay as they are: {', '.join(self._other_vectors)}")
        if self._quantization:
            notes.append(f"searched by {self._quantization} quantization, which is lossy; those read here are whole")
        details: dict[str, str | int | None] = {"collection": self.name, "distance": self.params.distance.value}
        for key, label in (("m", "hnsw_m"), ("ef_construct", "ef_construction")):
            special = getattr(self.params.hnsw_config, key, None)
            details[label] = getattr(self.config.hnsw_config, key) if special is None else special
        details |= {"vector": self.vector, "text": self.text, "id": self.id_field, "quantization": self._quantization}
        return described(self, "HNSW", count, [*map(self._vector_of, sample)], details=details, notes=notes)

    @property
    def key(self) -> str:
        """Server or folder, collection, vector and id field."""
        return f"{self.driver.whole_place}#{self.name}?vector={self.vector}&id={self.id_field or ''}"

    def records(self) -> Iterator[Any]:
        """Read ids and payload."""
        return ([str(point.id), point.payload] for point in self._scroll(self._with_vector, payload=True))

    def _scroll(self, chosen: Any, *, payload: bool | list[str], vectors: bool | list[str] = False) -> Iterator[Any]:
        at_once = self.at_once if self.driver.is_server else 4 * self.at_once  # the local mode looks at all each time
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
        payload: bool | list[str] = True if records else [self.id_field] if self.id_field else False
        read = bool(self._other_vectors) if records else self._vector_names if vectors else False
        points = self._scroll(self._with_vector, payload=payload, vectors=read)
        while chunk := list(islice(points, self.at_once)):
            rows = [self._vector_of(point) for point in chunk] if vectors else []
            yield Page([self.id_of(point) for point in chunk], rows, chunk)
        if records:
            points = self._scroll(self._lacks_vector, payload=True, vectors=bool(self._other_vectors))
            while chunk := list(islice(points, self.at_once)):
                yield Page([], [], chunk)

    def _retrieve(self, ids: Sequence[str], **read: Any) -> Iterator[tuple[str, Any]]:
        """Yield points by the ids that their documents have here."""
        return ((self.id_of(point), point) for point in self._find(ids, **read))

    def _find(self, ids: Sequence[str], **read: Any) -> list[Any]:
        if self.id_field is None:
            return list(
                self.driver.client.retrieve(self.name, [p for p in map(_point_id, ids) if p is not None], **read)
            )
        points: list[Any] = []
        if self._stored_options.get(
            "made"
        ):  # the ids of its points were made of ids, but for what others have added since
            points = list(self.driver.client.retrieve(self.name, [_made_point_id(doc_id) for doc_id in ids], **read))
            present = {self.id_of(point) for point in points}
            ids = [doc_id for doc_id in ids if doc_id not in present]
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
        nested = _LAYOUT[1] if self.text == _LAYOUT[0] else None
        for doc_id, point in self._retrieve(ids, with_payload=True, with_vectors=False):
            yield as_document(self.location, doc_id, dict(point.payload or {}), self.id_field, self.text, nested)

    def vectors(self, ids: Sequence[str], at: NDArray[np.int64] | None = None) -> Page:
        """Return vectors by the ids of points, or by the payload field of ids."""
        payload = False if self.id_field is None else [self.id_field]
        read = self._retrieve(ids, with_payload=payload, with_vectors=self._vector_names)
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
    def _other_vectors(self) -> list[str]:
        """Names of the other vectors of points."""
        vectors = self.config.params.vectors
        dense = [name for name in vectors if name != self.vector] if isinstance(vectors, dict) else []
        return [*dense, *(self.config.params.sparse_vectors or {})]

    @property
    def _quantization(self) -> str | None:
        settings = self.params.quantization_config or self.config.quantization_config
        return None if settings is None else next(iter(type(settings).model_fields))

    @property
    def dense(self) -> dict[str, Any]:
        """The settings of the dense vectors by name; one without a name has an empty one."""
        vectors = self.config.params.vectors
        return vectors if isinstance(vectors, dict) else {"": vectors} if vectors is not None else {}

    def _choose_vector(self, requested: str | None) -> tuple[str, Any]:
        names = [*self.dense]
        names = names if requested in names else main_fields(names, self.fields.added())
        name = choose(self.location, "vector", names, requested, "say #COLLECTION?vector=NAME for one")
        params = self.dense[name]
        if params.multivector_config is not None:
            raise UnsupportedStoreError(f"{self.location}: points have several vectors under {name!r}; name another")
        if params.distance.value not in _DISTANCES:
            raise UnsupportedStoreError(
                f"{self.location}: vectors {name!r} are compared by {params.distance.value}, which is not supported; "
                "name another"
            )
        return name, params

    def _choose_text(self, payloads: Sequence[Mapping[str, Any]]) -> tuple[str | None, str]:
        requested = self._options.get("text")
        if not payloads:
            return requested or _LAYOUT[0], "the collection is empty"
        columns = dict.fromkeys(key for fields in payloads for key, value in fields.items() if isinstance(value, str))
        columns.pop(self.id_field or "", None)
        return choose_text(self.location, list(columns), requested)

    def update(self, new: Mapping[str, Vectors]) -> int:
        """Replace vectors; a folder is in use by this process alone from then on."""
        if (kind := self.params.datatype) is not None and kind.value not in ("float32", "float16"):
            raise StoreError(f"{self.location}: vectors are kept as {kind.value}, which cannot hold new ones")
        count, read = 0, {"with_payload": self.id_field is not None, "with_vectors": self._vector_names}
        with self.driver.turn:
            self.driver.leave_copy()
            for names in in_parts(list(new)):
                numbers = {
                    point.id: new[doc_id].tolist()
                    for doc_id, point in self._retrieve(names, **read)
                    if self._vector_of(point) is not None
                }
                points = [
                    _models().PointVectors(id=key, vector={self.vector: vector} if self.vector else vector)
                    for key, vector in numbers.items()
                ]
                if points:
                    self.driver.client.update_vectors(self.driver.collection_name, points, wait=True)
                count += len(points)
        return count

    def points_alone(self, ids: Sequence[str]) -> Iterator[tuple[str, Any]]:
        """Return the points of some ids, with no more of each than says which id it is."""
        payload = False if self.id_field is None else [self.id_field]
        return self._retrieve(ids, with_payload=payload, with_vectors=False)

    @property
    def search(self) -> QdrantSearch:
        """The search of the points."""
        return QdrantSearch(self)

    @property
    def fields(self) -> QdrantFields:
        """The named vectors."""
        return QdrantFields(self)

    def settings(self, dim: int) -> tuple[dict[str, Any], list[str]]:
        """Return how to create a collection as this one, for vectors of another dimension, with remarks."""
        models = _models()
        config = self.config
        params = config.params
        remarks = []
        changed: dict[str, Any] = {"size": dim}
        if params.sharding_method is not None and params.sharding_method.value == "custom":
            raise UnsupportedStoreError(f"{self.location}: points are in shards of your own keys, which are not kept")
        if self.params.datatype is not None and self.params.datatype.value != "float32":
            remarks.append(f"vectors were kept as {self.params.datatype.value}, and now are as float32")
            changed["datatype"] = None
        if self._quantization is not None:
            remarks.append(
                f"{self._quantization} quantization was rebuilt and is lossy: check its recall against exact search"
            )
        vector = self.params.model_copy(update=changed)
        is_named = isinstance(params.vectors, dict)
        options = {**self._stored_options, **self._options, **({"vector": self.vector} if len(self.dense) > 1 else {})}
        same = ("shard_number", "replication_factor", "write_consistency_factor", "on_disk_payload")
        settings = {
            "vectors_config": {**params.vectors, self.vector: vector} if is_named else vector,
            "sparse_vectors_config": params.sparse_vectors,
            **{key: getattr(params, key) for key in same},
            "hnsw_config": _as(models.HnswConfigDiff, config.hnsw_config),
            "optimizers_config": _as(models.OptimizersConfigDiff, config.optimizer_config),
            "quantization_config": config.quantization_config,
            "strict_mode_config": _as(models.StrictModeConfig, config.strict_mode_config),
            "metadata": {**self._user_metadata, **({_OWN: options} if options else {})} or None,
        }
        return settings, remarks

    def points(self, page: Page) -> list[Any]:
        """Return the points of a page with its new vectors; those without one keep what they have."""
        make = _models().PointStruct
        points = []
        is_plain = not isinstance(self.config.params.vectors, dict) and not self._other_vectors
        for number, point in enumerate(page.raw):
            vector = point.vector or {}
            if page.ids:
                new = page.vectors[number].tolist()
                vector = new if is_plain else {**(vector if isinstance(vector, dict) else {}), self.vector: new}
            points.append(make(id=point.id, payload=point.payload, vector=vector))
        return points


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
        special = self.rows.params.hnsw_config
        value = (special and special.ef_construct) or self.rows.config.hnsw_config.ef_construct
        return SearchSetting("hnsw_ef", value, max(value, 4_096), "search_params=SearchParams(hnsw_ef={})")

    def search_index(self, queries: Vectors, k: int, effort: int | None) -> list[Hits]:
        """DatabaseSearch, with another number of candidates where one is given."""
        return self._search(queries, k, params=effort and _models().SearchParams(hnsw_ef=effort))

    def _search(self, queries: Vectors, k: int, **options: Any) -> list[Hits]:
        fields = False if self.rows.id_field is None else [self.rows.id_field]
        common = {"using": self.rows.vector or None, "limit": k, "with_payload": fields, **options}
        requests = [_models().QueryRequest(query=query.tolist(), **common) for query in queries]
        with self.rows.driver.turn:
            responses = self.rows.driver.client.query_batch_points(self.rows.name, requests)
        hits = []
        for response in responses:
            scores = np.array([point.score for point in response.points], np.float64)
            scores = scores**2 if self.rows.distance == "l2" else scores  # squares are wanted
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
        owner = driver.collection_name  # whatever alias leads to it
        folder = driver.folder / FIELDS / quote(owner, safe="")
        if driver.is_server:
            digest = hashlib.sha256(f"{driver.server}#{owner}".encode()).hexdigest()[:32]
            folder = state_folder() / "fields" / digest
        super().__init__(folder)

    def names(self) -> Collection[str]:
        """Return the names of all vectors."""
        return {*self._rows.dense, *(self._rows.config.params.sparse_vectors or {})}

    def refuse(self, name: str, dim: int | None) -> None:
        """Refuse a client that cannot add one."""
        if not hasattr(self._rows.driver.client, "create_vector_name"):
            raise UsageError(f"{self._rows.location}: this qdrant-client adds no vector to a collection; update it, "
                             "or translate to a new store (-o) instead")  # fmt: skip

    @property
    def rounding(self) -> float:
        """Return what the rounding of unit vectors may take."""
        return 1e-6 if self._rows.distance == "cosine" else 0.0

    def as_kept(self, vectors: Vectors) -> Vectors:
        """Return unit vectors where they are compared by cosine."""
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
                doc_ids = {point.id: doc_id for doc_id, point in self._rows.points_alone(ids)}
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
    return [
        _models().PointStruct(
            id=_made_point_id(document.id),
            vector=vector.tolist(),
            payload=dict(zip(_LAYOUT, (document.text, dict(document.metadata), document.id), strict=True)),
        )
        for document, vector in zip(page.documents, page.vectors, strict=True)
    ]


def quiet(call: Any, *arguments: Any, **options: Any) -> Any:
    """Call the client without its advice on other ways to use Qdrant."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return call(*arguments, **options)


def _wait_for_no_disk(client: Any, name: str) -> None:
    """Keep the local mode from waiting for the disk at each point: the folder is made durable at the end."""
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
    return point_id if point_id is not None and str(point_id) == doc_id else str(uuid.uuid5(_ID_SPACE, doc_id))


class _Points(pickle.Unpickler):
    """Reads pickles of points alone: a class of any other kind could run whatever it likes."""

    def find_class(self, module: str, name: str) -> Any:
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
