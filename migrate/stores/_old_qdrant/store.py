"""A collection of Qdrant, on a server or in the folder of the client's local mode, read as it is."""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from migrate.errors import StoreError, UnsupportedStoreError, UsageError
from migrate.locations import Address
from migrate.manifest import Manifest, find_manifest
from migrate.stores.base import FROM_THE_START, Resume, Store, StoreInfo, StoreWriter
from migrate.stores.kept import manifest_of, stamp
from migrate.stores.qdrant.client import AT_ONCE, LAYOUT, LOCAL, OPTIONS, OWN, Place, answers, models_of_client
from migrate.stores.records import Distance, SearchableRecordStore, choose_text, read_metric
from migrate.stores.switching import BESIDE, Exchange, FolderExchange, only_one
from migrate.vectors import Batch, Document

if TYPE_CHECKING:
    from migrate.stores.qdrant.serve import QdrantServing

_DISTANCES: Final[Mapping[str, Distance]] = {"Cosine": "cosine", "Dot": "ip", "Euclid": "l2"}
_SAMPLE: Final = 64
_MOST_ID: Final = (1 << 64) - 1
_SPACE: Final = uuid.UUID("6f1c2a44-8a0e-4b6a-9d3c-0a5a4f8f2f11")
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,19}")


class QdrantStore(SearchableRecordStore):
    """A collection, read by one of its dense vectors.

    Parameters
    ----------
    location
        What opens it again.
    place
        Where it is.
    address
        Its name, empty for the only one; the name of the vector, the fields of texts and ids in the payload.
    """

    def __init__(self, location: str, place: Place, address: Address) -> None:
        self.place, self._address = place, address
        self.name = place.choose(address.name)
        self.number, self.collection = place.number_of(self.name), place.aliases().get(self.name, self.name)
        with answers(place):
            facts = place.client.get_collection(self.name)
        self.schema = dict(facts.payload_schema or {})
        self.config = facts.config
        metadata = dict(self.config.metadata or {})
        self.own = metadata.pop(OWN, None) or {}
        self.kept_metadata = metadata
        asked = {**{key: value for key, value in self.own.items() if key in OPTIONS}, **address.options}
        self.asked = asked
        self.vector, self.params = self._choose_vector(asked.get("vector"))
        self.id_field = asked.get("id")
        self.models = models_of_client()
        has = self.models.HasVectorCondition(has_vector=self.vector)
        self.with_filter, self.without_filter = self.models.Filter(must=[has]), self.models.Filter(must_not=[has])
        server = place.location.partition("#")[0]
        index_name = f"{server}#{self.name}?vector={self.vector}&id={self.id_field or ''}"
        count = self._open_index(index_name, place.version_read(self.name)).count
        sample = self.points(limit=_SAMPLE, vectors=[self.vector])
        vectors = np.array([self.vector_of(point) for point in sample], np.float32).reshape(-1, self.params.size)
        metric, notes = read_metric(_DISTANCES[self.params.distance.value], vectors)
        self.text_field, why = self._choose_text([point.payload or {} for point in sample], asked.get("text"))
        self.opened_as = self.name
        with answers(place):
            self.without_vector = place.client.count(self.name, self.without_filter, exact=True).count
        self.info = StoreInfo(
            location,
            "qdrant",
            "HNSW",
            count,
            self.params.size,
            metric,
            True,
            self.text_field is not None,
            self._manifest(),
            (*notes, why, *self._notes()),
            self._details(),
        )

    @property
    def folder(self) -> Path | None:
        """The folder of the local mode; of a collection on a server that this tool has made here, its own."""
        return self._beside() if self.info.manifest else None

    def keep_manifest(self, manifest: Manifest) -> Path:
        """Write it into the folder."""
        return stamp(self._beside(), self.name, self.info.location, manifest)

    def successor(self, ending: str) -> str | None:
        """Of a server, another collection."""
        return f"{self.place.location.partition('#')[0]}#{self.name}-{ending}" if self.place.is_remote else None

    def exchange(self, new: Store) -> Exchange:
        """See `Switchable`: aliases trade collections; in the local mode, two folders with this one alone places."""
        if not isinstance(new, QdrantStore) or new.place.is_remote != self.place.is_remote:
            raise UsageError(f"{new.info.location}: expected a collection beside the old one, found another kind")
        if self.place.is_remote:
            from migrate.stores.qdrant.switch import AliasExchange

            return AliasExchange.of(self, new)
        for store in (self, new):
            only_one(store.info.location, store.place.names(), self.name)
        own_folder, theirs = (store._beside() for store in (self, new))
        assert own_folder is not None and theirs is not None  # noqa: S101 - the local mode has a folder
        return FolderExchange.of(own_folder, theirs, own=LOCAL)

    @property
    def notices_vectors(self) -> bool:  # type: ignore[override]
        """Whether changes are counted: in a folder they are, a server does not."""
        return not self.place.is_remote

    def strangers(self) -> list[str]:
        """Other collections of the folder, and whatever the client has not made."""
        folder = None if self.place.is_remote else self._beside()
        if folder is None:
            return []
        local_files = {*LOCAL, *BESIDE}
        collections = [name for name in self.place.names() if name != self.name]
        return sorted([*collections, *(path.name for path in folder.iterdir() if path.name not in local_files)])

    def exchanged(self) -> Exchange | None:
        """See `Switchable`."""
        if self.place.is_remote:
            from migrate.stores.qdrant.switch import AliasExchange

            return AliasExchange.at(self)
        return FolderExchange.at(str(self._beside()))

    def _beside(self) -> Path | None:
        return self.place.folder(self.name)

    def _manifest(self) -> Manifest | None:
        folder = self._beside()
        if self.place.is_remote:  # the folder is found by the collection's own name, whatever alias leads there
            return None if folder is None else find_manifest(folder, "store")
        return manifest_of(folder, self.name)

    def destination(self, location: Path, dim: int, resume: Resume = FROM_THE_START) -> StoreWriter:
        """A folder of the local mode with a collection of the same name."""
        from migrate.stores.qdrant.output import FolderWriter

        return FolderWriter(self, location, dim, resume, self.name)

    def answering(self) -> Any:
        """See `Named`: the collection of an alias."""
        return self.place.aliases().get(self.name, self.name)

    @property
    def is_copy(self) -> bool:  # type: ignore[override]
        """Of a folder."""
        return not self.place.is_remote

    def _serve(self) -> QdrantServing:
        from migrate.stores.qdrant.serve import QdrantServing

        return QdrantServing(self)

    def points(self, *, limit: int, vectors: Sequence[str] | bool = False) -> list[Any]:
        """Some points that have the vector."""
        with answers(self.place):
            points, _ = self.place.client.scroll(
                self.name, self.with_filter, limit, with_payload=True, with_vectors=_with_vectors(vectors)
            )
        return list(points)

    def all_points(self, chosen: Any, *, payload: bool | list[str], vectors: bool = False) -> Iterator[Any]:
        """All points that a filter lets through, in bounded memory."""
        offset = None
        while True:
            with answers(self.place):
                points, offset = self.place.client.scroll(
                    self.name, chosen, AT_ONCE, offset=offset, with_payload=payload, with_vectors=vectors
                )
            yield from points
            if offset is None:
                return

    def retrieve(self, ids: Sequence[str], *, payload: bool, vectors: bool) -> Iterator[tuple[str, Any]]:
        """Points with the ids that the store gives them."""
        for first in range(0, len(ids), AT_ONCE):
            part = ids[first : first + AT_ONCE]
            names: bool | list[str] = _with_vectors([self.vector]) if vectors and not payload else vectors
            with answers(self.place):
                points = self._find(part, payload=payload or self.id_field is not None, vectors=names)
            yield from ((self.id_of(point), point) for point in points)

    def _find(self, ids: Sequence[str], *, payload: bool, vectors: bool | list[str]) -> Iterable[Any]:
        client, models = self.place.client, self.models
        if self.id_field is None:
            point_ids = [point for point in map(as_point_id, ids) if point is not None]
            return list(client.retrieve(self.name, point_ids, with_payload=payload, with_vectors=vectors))
        points_found = []
        if self.own.get("made"):  # its ids were made of the documents', but for those that another program has added
            point_ids = [made_point_id(doc_id) for doc_id in ids]
            points_found = list(client.retrieve(self.name, point_ids, with_payload=payload, with_vectors=vectors))
            ids_found = {self.id_of(point) for point in points_found}
            ids = [doc_id for doc_id in ids if doc_id not in ids_found]
            if not ids:
                return points_found
        values: list[Any] = [*ids, *(int(doc_id) for doc_id in ids if _NUMBER.fullmatch(doc_id))]
        fields = [
            models.FieldCondition(key=self.id_field, match=models.MatchAny(any=part))
            for part in (values[: len(ids)], values[len(ids) :])
            if part
        ]
        chosen = models.Filter(must=[*self.with_filter.must, models.Filter(should=fields)])
        points, _ = client.scroll(self.name, chosen, 2 * len(ids), with_payload=payload, with_vectors=vectors)
        return points_found + list(points)

    def _version(self) -> Any:
        """A server counts no changes: ids and payload are read for it, vectors are not."""
        version = self.place.version(self.name)
        if version is not None:
            return version
        digest, count = hashlib.sha256(), 0
        for point in self.all_points(self.with_filter, payload=True):
            record = json.dumps([str(point.id), point.payload], sort_keys=True, default=repr)
            digest.update(record.encode(errors="surrogatepass"))
            count += 1
        return [self.place.aliases().get(self.name, self.name), count, digest.hexdigest()]

    def _read_ids(self) -> Iterable[str]:
        payload = False if self.id_field is None else [self.id_field]
        return (self.id_of(point) for point in self.all_points(self.with_filter, payload=payload))

    def _as_now(self) -> QdrantStore:
        return QdrantStore(self.info.location, self.place.again(), self._address)

    def _read_vectors(self, ids: Sequence[str]) -> Batch:
        read = [(doc_id, self.vector_of(point)) for doc_id, point in self.retrieve(ids, payload=False, vectors=True)]
        kept = [(doc_id, vector) for doc_id, vector in read if vector is not None]
        vectors = np.array([vector for _, vector in kept], np.float32).reshape(len(kept), self.info.dim)
        return Batch([doc_id for doc_id, _ in kept], vectors)

    def _read_documents(self, ids: Sequence[str]) -> Iterable[Document]:
        for doc_id, point in self.retrieve(ids, payload=True, vectors=False):
            fields = dict(point.payload or {})
            if self.id_field is not None and isinstance(fields.get(self.id_field), str):
                del fields[self.id_field]
            text = fields.pop(self.text_field, None) if self.text_field else None
            if text is not None and not isinstance(text, str):
                raise StoreError(
                    f"{self.info.location}: expected a text under {self.text_field!r} of point {doc_id}, found "
                    f"{type(text).__name__}; say ?text=FIELD for another"
                )
            if self.text_field == LAYOUT[0] and set(fields) == {LAYOUT[1]} and isinstance(fields[LAYOUT[1]], dict):
                fields = fields[LAYOUT[1]]
            yield Document(doc_id, text or "", fields)

    def id_of(self, point: Any) -> str:
        """The id of a point here."""
        if self.id_field is None:
            return str(point.id)
        value = (point.payload or {}).get(self.id_field)
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise StoreError(
                f"{self.place.location}: expected an id under {self.id_field!r} of point {point.id}, found "
                f"{type(value).__name__}; say ?id=FIELD for another, or leave it out"
            )
        return str(value)

    def vector_of(self, point: Any) -> list[float] | None:
        """The vector of a point, as far as it was asked for."""
        vector = point.vector
        return vector.get(self.vector) if isinstance(vector, dict) else vector

    def _choose_vector(self, asked: str | None) -> tuple[str, Any]:
        vectors = self.config.params.vectors
        dense = vectors if isinstance(vectors, dict) else {"": vectors} if vectors is not None else {}
        name = asked if asked is not None else next(iter(dense)) if len(dense) == 1 else None
        if name is None or name not in dense:
            have = ", ".join(f"{label or '(without name)'}" for label in sorted(dense)) or "none"
            raise StoreError(
                f"{self.place.location}: expected the name of a dense vector, found {have}; say #COLLECTION?vector=NAME"
            )
        params = dense[name]
        if params.multivector_config is not None:
            raise UnsupportedStoreError(
                f"{self.place.location}: points have several vectors under {name!r}, which is not read; name another"
            )
        if params.distance.value not in _DISTANCES:
            raise UnsupportedStoreError(
                f"{self.place.location}: vectors {name!r} are compared by {params.distance.value}, which is not "
                "supported; name another"
            )
        return name, params

    def _choose_text(self, payloads: Sequence[Mapping[str, Any]], asked: str | None) -> tuple[str | None, str]:
        if not payloads and asked is None:
            return LAYOUT[0], "the collection is empty"
        columns = dict.fromkeys(key for fields in payloads for key, value in fields.items() if isinstance(value, str))
        columns.pop(self.id_field or "", None)
        return choose_text(self.place.location, list(columns), asked)

    def others(self) -> list[str]:
        """The names of the other vectors of points."""
        vectors = self.config.params.vectors
        dense = [name for name in vectors if name != self.vector] if isinstance(vectors, dict) else []
        return [*dense, *(self.config.params.sparse_vectors or {})]

    def _notes(self) -> Iterator[str]:
        if self.others():
            yield f"points have other vectors too, which stay as they are: {', '.join(self.others())}"
        if self.quantization is not None:
            yield f"searched by {self.quantization} quantization, which is lossy; what is read here are whole vectors"

    @property
    def quantization(self) -> str | None:
        """The kind of quantization."""
        settings = self.params.quantization_config or self.config.quantization_config
        return None if settings is None else next(iter(type(settings).model_fields))

    def _details(self) -> dict[str, str | int]:
        general, special = self.config.hnsw_config, self.params.hnsw_config
        facts: dict[str, str | int] = {"collection": self.name, "distance": self.params.distance.value}
        for key, label in (("m", "hnsw_m"), ("ef_construct", "ef_construction")):
            value = getattr(special, key, None)
            value = getattr(general, key) if value is None else value
            if value is not None:
                facts[label] = value
        extra = {"vector": self.vector, "text": self.text_field, "id": self.id_field, "quantization": self.quantization}
        facts.update({key: value for key, value in extra.items() if value})
        return facts


def as_point_id(doc_id: str) -> int | str | None:
    """The point's id that a text stands for; None where there can be no such point."""
    if _NUMBER.fullmatch(doc_id) and int(doc_id) <= _MOST_ID:
        return int(doc_id)
    try:
        return str(uuid.UUID(doc_id))
    except ValueError:
        return None


def made_point_id(doc_id: str) -> int | str:
    """The id of a new point for a document: its own where Qdrant can have it, else a UUID that is made of it."""
    point_id = as_point_id(doc_id)
    return point_id if point_id is not None and str(point_id) == doc_id else str(uuid.uuid5(_SPACE, doc_id))


def _with_vectors(vectors: Sequence[str] | bool) -> bool | list[str]:
    """The vector without a name is asked for by none."""
    return vectors if isinstance(vectors, bool) else list(vectors) if any(vectors) else True
