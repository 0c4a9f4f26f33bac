"""Writes new collections of Qdrant, into a folder of the local mode or on a server."""

from __future__ import annotations

import re
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from migrate.errors import StoreError, UnsupportedStoreError
from migrate.files import output_errors
from migrate.stores.base import Resume, Store, StoreWriter
from migrate.stores.kept import forget, keep, new_token, sync_tree, token_in
from migrate.stores.outputs import NamedServerOutput
from migrate.stores.qdrant.client import (
    AT_ONCE,
    LAYOUT,
    OWN,
    Place,
    answers,
    models_of_client,
    place_of,
    quiet,
    token_of,
)
from migrate.stores.qdrant.store import QdrantStore, made_point_id
from migrate.stores.qdrant.switch import switched_with
from migrate.stores.records import WaitingWriter, import_client
from migrate.stores.switching import moved

_NAMES: Final = {"l2": "Euclid", "ip": "Dot"}
_PAYLOAD: Final = 4 << 20
_BYTES_PER_NUMBER: Final = 24
_SETTINGS: Final = ("shard_number", "replication_factor", "write_consistency_factor", "on_disk_payload")


class _Writer(WaitingWriter):
    """Fills a new collection."""

    def fill(self, place: Place, name: str) -> None:
        """Make a collection with all points."""
        source = self.source if isinstance(self.source, QdrantStore) else None
        with answers(place):
            if place.client.collection_exists(name):
                place.client.delete_collection(name)
            place.client.create_collection(name, **(self._same(source) if source else self._new()))
        self.prepare(place, name)
        most = max(min(_PAYLOAD // (self.rows.dim * _BYTES_PER_NUMBER), AT_ONCE), 1)
        written = 0
        for points in self._copied(source, most) if source else self._made(most):
            with answers(place):
                quiet(place.client.upsert, name, points, wait=True)
            written += len(points)
        if source is not None:
            self._index_payload(place, name, source)
        with answers(place):
            count = place.client.count(name, exact=True).count
        if count != written:
            raise StoreError(f"{place.location}: expected {written} points once written, found {count}; run again")

    def prepare(self, place: Place, name: str) -> None:
        """What is to be done before points come."""

    def _same(self, source: QdrantStore) -> dict[str, Any]:
        """How to make a collection as `source` is."""
        models, config, params = source.models, source.config, source.config.params
        changed: dict[str, Any] = {"size": self.rows.dim}
        if params.sharding_method is not None and params.sharding_method.value == "custom":
            raise UnsupportedStoreError(
                f"{source.info.location}: points are in shards of the user's own keys, which are not kept"
            )
        if source.params.datatype is not None and source.params.datatype.value != "float32":
            self.remarks += (f"vectors were kept as {source.params.datatype.value}, and now are as float32",)
            changed["datatype"] = None
        if source.quantization is not None:
            self.remarks += (
                f"{source.quantization} quantization is made anew, and is lossy: hold its recall against exact search",
            )
        vector = source.params.model_copy(update=changed)
        named = isinstance(params.vectors, dict)
        own_facts = {**source.own, **source.asked}
        metadata = {**source.kept_metadata, **({OWN: own_facts} if own_facts else {})}
        return {
            "vectors_config": {**params.vectors, source.vector: vector} if named else vector,
            "sparse_vectors_config": params.sparse_vectors,
            **{key: getattr(params, key) for key in _SETTINGS},
            "hnsw_config": _as(models.HnswConfigDiff, config.hnsw_config),
            "optimizers_config": _as(models.OptimizersConfigDiff, config.optimizer_config),
            "quantization_config": config.quantization_config,
            "strict_mode_config": _as(models.StrictModeConfig, config.strict_mode_config),
            "metadata": metadata or None,
        }

    def _new(self) -> dict[str, Any]:
        models = models_of_client()
        vectors = models.VectorParams(size=self.rows.dim, distance=_NAMES[self.source.info.metric])
        return {"vectors_config": vectors, "metadata": {OWN: {"text": LAYOUT[0], "id": LAYOUT[2], "made": True}}}

    def _copied(self, source: QdrantStore, at_once: int) -> Iterator[list[Any]]:
        make = source.models.PointStruct
        has_others = bool(source.others())
        for first, vectors in self.vectors(at_once):
            ids = source.ids(range(first, first + len(vectors)))
            read = dict(source.retrieve(ids, payload=True, vectors=has_others))
            source._refuse_gone(ids, read)
            yield [
                make(id=point.id, payload=point.payload, vector=self._with(source, point, vector.tolist()))
                for point, vector in zip((read[doc_id] for doc_id in ids), vectors, strict=True)
            ]
        without_vector: list[Any] = []
        for point in source.all_points(source.without_filter, payload=True, vectors=has_others):
            without_vector.append(make(id=point.id, payload=point.payload, vector=point.vector or {}))
            if len(without_vector) >= at_once:
                yield without_vector
                without_vector = []
        if without_vector:
            yield without_vector

    @staticmethod
    def _with(source: QdrantStore, point: Any, vector: list[float]) -> Any:
        if not isinstance(source.config.params.vectors, dict) and not source.others():
            return vector
        vectors = point.vector if isinstance(point.vector, dict) else {}
        return {**vectors, source.vector: vector}

    def _made(self, at_once: int) -> Iterator[list[Any]]:
        make = models_of_client().PointStruct
        for documents, vectors in self.records(at_once):
            yield [
                make(
                    id=made_point_id(document.id),
                    vector=vector.tolist(),
                    payload=dict(zip(LAYOUT, (document.text, dict(document.metadata), document.id), strict=True)),
                )
                for document, vector in zip(documents, vectors, strict=True)
            ]

    def _index_payload(self, place: Place, name: str, source: QdrantStore) -> None:
        for field, index in source.schema.items():
            with answers(place):
                place.client.create_payload_index(name, field, index.params or index.data_type.value, wait=True)


class FolderWriter(_Writer):
    """A folder of the local mode."""

    def __init__(self, source: Store, folder: Path, dim: int, resume: Resume, name: str) -> None:
        super().__init__(source, folder, dim, resume)
        self._name = name

    def load(self) -> None:
        """Write the folder anew."""
        module = import_client("qdrant_client", "qdrant")
        with output_errors(self.folder):
            shutil.rmtree(self.folder / "collection", ignore_errors=True)
            for name in ("meta.json", ".lock"):
                (self.folder / name).unlink(missing_ok=True)
            place = Place(str(self.folder), quiet(module.QdrantClient, path=str(self.folder)))
            place.is_remote = False
            try:
                self.fill(place, self._name)
            finally:
                place.client.close()
            (self.folder / ".lock").unlink(missing_ok=True)
        sync_tree(self.folder)

    def prepare(self, place: Place, name: str) -> None:
        """The client waits for the disk at each point; here all is made durable at the end."""
        storage = getattr(place.client._client.collections[name].storage, "storage", None)
        if isinstance(storage, sqlite3.Connection):
            storage.execute("PRAGMA synchronous = OFF")
            storage.execute("PRAGMA journal_mode = MEMORY")


class _ServerWriter(_Writer):
    """A collection of a server, under a name that nobody uses."""

    def __init__(self, source: Store, folder: Path, dim: int, resume: Resume, output: QdrantOutput) -> None:
        super().__init__(source, folder, dim, resume)
        self._output = output

    def load(self) -> None:
        """Fill the collection anew."""
        output, token = self._output, token_in(self.folder) or new_token(self.folder)
        self.fill(output.place(), output.collection(token))


class QdrantOutput(NamedServerOutput):
    """A collection of a server with a name of its own, which an alias leads to: that is changed in one step."""

    def place(self) -> Place:
        """The server."""
        return place_of(self.location, self.address)

    def collection(self, token: str) -> str:
        """The collection's own name."""
        return f"{self.final}-{token}"

    def writer(self, source: Store, content: Path, dim: int, resume: Resume) -> StoreWriter:
        """A writer of the collection that no alias leads to yet."""
        return _ServerWriter(source, content, dim, resume, self)

    def made_here(self) -> bool | None:
        """Whether the alias leads to a name with a token."""
        place = self.place()
        return None if self.final not in place.names() else token_of(place.aliases().get(self.final, "")) is not None

    def refuse_existing(self, *, force: bool) -> None:
        """As `NamedServerOutput.refuse_existing`; nor is one replaced that was switched."""
        super().refuse_existing(force=force)
        if (old := switched_with(self.place(), self.final)) is not None:
            raise moved(self.location, old)

    def is_published(self, content: Path) -> bool:
        """Whether the alias leads to it."""
        leads_to = self.place().aliases().get(self.final)
        token = token_in(content)
        return leads_to is not None if token is None else leads_to == self.collection(token)

    def publish(self, content: Path, *, force: bool) -> None:
        """Let the alias lead to it; what it led to before is removed."""
        place, token, models = self.place(), str(token_in(content)), models_of_client()
        keep(content, token)
        if self.final in place.names():
            self.refuse_existing(force=force)
        before = place.aliases().get(self.final)
        name = models.CreateAlias(collection_name=self.collection(token), alias_name=self.final)
        steps: list[Any] = [models.CreateAliasOperation(create_alias=name)]
        if before is not None:
            gone = models.DeleteAlias(alias_name=self.final)
            steps.insert(0, models.DeleteAliasOperation(delete_alias=gone))
        with answers(place):
            place.client.update_collection_aliases(steps)
        self._remove(place, keep_only=self.collection(token))

    def discard(self) -> None:
        """Remove all collections of this name that no alias leads to."""
        self._remove(self.place(), keep_only=None)

    def _remove(self, place: Place, keep_only: str | None) -> None:
        used = {*place.aliases().values(), keep_only}
        own_name = re.compile(re.escape(self.final) + r"-[0-9a-f]{32}")
        for name in place.names():
            if own_name.fullmatch(name) and name not in used:
                with answers(place):
                    place.client.delete_collection(name)
                forget(token_of(name))


def _as(kind: Any, config: Any) -> Any:
    """The settings of a collection, as those of a new one are given."""
    if config is None:
        return None
    facts = config.model_dump(exclude_none=True)
    return kind(**{key: value for key, value in facts.items() if key in kind.model_fields})
