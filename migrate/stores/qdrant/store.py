"""Collections of Qdrant, on a server and in the folder of the client's local mode: `qdrant:URL#COLLECTION`.

The local mode writes to its folder when it opens one, unpickles every point, and holds all in memory: a folder is read
from a copy, whose pickles are first held to be points and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import pickle
import re
import shutil
import sqlite3
import tempfile
import uuid
import warnings
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from migrate.errors import (
    AuthenticationError,
    LeadMigrateError,
    RemoteError,
    StoreError,
    UnsupportedStoreError,
    UsageError,
)
from migrate.files import atomic_file, cache_folder, disk_errors, output_errors, reach, state_folder, write_json
from migrate.locations import Address, scrub, secrets_of
from migrate.manifest import Manifest, find_manifest
from migrate.stores.base import FROM_THE_START, KindSupport, Resume, Store, StoreInfo, StoreWriter
from migrate.stores.kept import forget, keep, kept_folder, manifest_of, new_token, stamp, sync_tree, token_in
from migrate.stores.outputs import NamedFolderOutput, NamedServerOutput, Output
from migrate.stores.records import (
    Distance,
    SearchableRecordStore,
    WaitingWriter,
    check_options,
    choose_text,
    import_client,
    read_metric,
)
from migrate.stores.sqlite_read import read_only
from migrate.stores.switching import BESIDE, Exchange, FolderExchange, Record, only_one, others, unfinished
from migrate.vectors import Batch, Document

if TYPE_CHECKING:
    from migrate.stores.qdrant.serve import QdrantServing

_OWN: Final = "lead-migrate"
_OPTIONS: Final = ("id", "text", "vector")
_DISTANCES: Final[Mapping[str, Distance]] = {"Cosine": "cosine", "Dot": "ip", "Euclid": "l2"}
_NAMES: Final = {"l2": "Euclid", "ip": "Dot"}
_LAYOUT: Final = ("page_content", "metadata", "id")
"""Of the payload that is made of a document of another kind of store; LangChain finds its texts there."""
_AT_ONCE: Final = 1_000
_PAYLOAD: Final = 4 << 20
_BYTES_PER_NUMBER: Final = 24
_SAMPLE: Final = 64
_MOST_ID: Final = (1 << 64) - 1
_SPACE: Final = uuid.UUID("6f1c2a44-8a0e-4b6a-9d3c-0a5a4f8f2f11")
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,19}")
_POINTS: Final = "qdrant_client.http.models.models"
_PLAIN: Final = {("uuid", "UUID"), *(("datetime", name) for name in ("date", "datetime", "timedelta", "timezone"))}
"""What values in payloads may be, beside those of JSON."""
_SETTINGS: Final = ("shard_number", "replication_factor", "write_consistency_factor", "on_disk_payload")
_LOCAL: Final = ("collection", "meta.json", ".lock")
"""What the folder of a local mode has."""


class QdrantKind:
    """Collections of a server, and of folders of the local mode."""

    name = "qdrant"
    support = KindSupport(
        "Qdrant",
        ("qdrant:http://HOST:6333#COLLECTION", "qdrant:FOLDER#COLLECTION"),
        "qdrant",
        "ids, payload, other named and sparse vectors, points without the vector, HNSW and other settings",
        "quantization is made anew; several vectors to a point are refused; a server counts no changes",
        "bounded on a server; a folder in memory",
    )

    def recognises(self, path: Path) -> bool:
        """Whether the local mode has written there."""
        return (path / "meta.json").is_file() and (path / "collection").is_dir()

    def open(self, location: str) -> Store:
        """Open `URL#COLLECTION` or `PATH#COLLECTION`; where there is one collection, it needs no name."""
        address = Address(location) if Path(location).is_dir() else Address.parse(location)
        check_options(f"{self.name}:{location}", address.options, _OPTIONS)
        return QdrantStore(location, _place(f"{self.name}:{location}", address), address)

    def output(self, location: str) -> Output:
        """A collection that is not there yet."""
        address, whole = Address.parse(location), f"{self.name}:{location}"
        check_options(whole, address.options, ())
        if not address.name or not address.place:
            raise UsageError(f"{whole}: expected a collection after the #, found none; name the new one")
        if "://" in address.place:
            return _QdrantOutput(whole, address)
        return NamedFolderOutput(whole, address, _FolderWriter)


class _Place:
    """A server, or what behaves as one."""

    is_remote = True

    def __init__(self, location: str, client: Any) -> None:
        self.location = location
        self.client = client

    def names(self) -> list[str]:
        """Collections and aliases."""
        with _answers(self):
            collections = [collection.name for collection in self.client.get_collections().collections]
            return sorted({*collections, *self.aliases()})

    def aliases(self) -> dict[str, str]:
        """The collection of each alias."""
        with _answers(self):
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

    def folder(self, name: str) -> Path | None:
        """See `Store.folder`."""
        return kept_folder(_token_of(self.aliases().get(name, name)))


class _LocalPlace(_Place):
    """A copy of a folder of the local mode."""

    is_remote = False

    def __init__(self, location: str, path: Path) -> None:
        self._path = path
        super().__init__(location, None)
        if not QdrantKind().recognises(path):
            raise StoreError(f"{location}: expected a folder of Qdrant's local mode, found none; check the path")
        module = import_client("qdrant_client", "qdrant")
        copies = cache_folder() / "copies"
        with output_errors(copies):
            copies.mkdir(parents=True, exist_ok=True)
            folder = Path(tempfile.mkdtemp(prefix="qdrant-", dir=copies))
        try:
            with output_errors(folder):
                self._copy_to(folder)
            with _answers(self):
                self.client = _quiet(module.QdrantClient, path=str(folder))
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        weakref.finalize(self, _let_go, self.client, folder)

    def number_of(self, name: str) -> Any:
        """The number of the collection's file."""
        return self.version(name)[-1]

    def version(self, name: str) -> Any:
        """Size and time of the collection's file, and its number."""
        path = self._path / "collection" / self.aliases().get(name, name) / "storage.sqlite"
        try:
            status = path.stat()
        except OSError as error:
            raise StoreError(f"{self.location}: expected {path.name}, found it gone; run again") from error
        return [status.st_size, status.st_mtime_ns, status.st_ino]

    def folder(self, name: str) -> Path | None:
        """The folder itself."""
        return self._path

    def take_itself(self) -> None:
        """Use the folder in the place of its copy: nobody else can open it from then on."""
        module = import_client("qdrant_client", "qdrant")
        for storage in (self._path / "collection").glob("*/storage.sqlite"):
            with read_only(storage) as source:
                _check_points(storage, source)
        with _answers(self):
            self.client = _quiet(module.QdrantClient, path=str(self._path))
        weakref.finalize(self, self.client.close)

    def _copy_to(self, folder: Path) -> None:
        shutil.copyfile(self._path / "meta.json", folder / "meta.json")
        try:
            for storage in (self._path / "collection").glob("*/storage.sqlite"):
                target = folder / "collection" / storage.parent.name / storage.name
                target.parent.mkdir(parents=True)
                with read_only(storage) as source, closing(sqlite3.connect(target)) as copy:
                    source.backup(copy)
                    _check_points(storage, copy)
        except sqlite3.Error as error:
            raise StoreError(f"{self.location}: SQLite cannot read it ({error}); copy it again") from error


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


def _place(location: str, address: Address) -> _Place:
    if "://" not in address.place:
        return _LocalPlace(location, Path(address.place))
    return _Place(location, connect(location, address.place))


def connect(location: str, url: str) -> Any:
    """A client of the server at a URL; the key is what was in the location, or in QDRANT_API_KEY."""
    module = import_client("qdrant_client", "qdrant")
    secrets = secrets_of(location)
    key = secrets.get("api_key") or secrets.get("token") or os.environ.get("QDRANT_API_KEY")
    try:
        return _quiet(module.QdrantClient, url=url, api_key=key, timeout=60, check_compatibility=False)
    except Exception as error:
        raise UsageError(f"{location}: expected the URL of a server, found another ({scrub(str(error))})") from error


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

    def __init__(self, location: str, place: _Place, address: Address) -> None:
        self.place = place
        self.name = place.choose(address.name)
        self.number, self.collection = place.number_of(self.name), place.aliases().get(self.name, self.name)
        with _answers(place):
            facts = place.client.get_collection(self.name)
        self.schema = dict(facts.payload_schema or {})
        self.config = facts.config
        metadata = dict(self.config.metadata or {})
        self.own = metadata.pop(_OWN, None) or {}
        self.kept_metadata = metadata
        asked = {**{key: value for key, value in self.own.items() if key in _OPTIONS}, **address.options}
        self.asked = asked
        self.vector, self.params = self._choose_vector(asked.get("vector"))
        self.id_field = asked.get("id")
        self.models = _models()
        has = self.models.HasVectorCondition(has_vector=self.vector)
        self.with_filter, self.without_filter = self.models.Filter(must=[has]), self.models.Filter(must_not=[has])
        server = place.location.partition("#")[0]
        count = self._open_index(f"{server}#{self.name}?vector={self.vector}&id={self.id_field or ''}").count
        sample = self.points(limit=_SAMPLE, vectors=[self.vector])
        vectors = np.array([self.vector_of(point) for point in sample], np.float32).reshape(-1, self.params.size)
        metric, notes = read_metric(_DISTANCES[self.params.distance.value], vectors)
        self.text_field, why = self._choose_text([point.payload or {} for point in sample], asked.get("text"))
        self.opened_as = self.name
        with _answers(place):
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
            return AliasExchange.of(self, new)
        for store in (self, new):
            only_one(store.info.location, store.place.names(), self.name)
        mine, theirs = (store._beside() for store in (self, new))
        assert mine is not None and theirs is not None  # noqa: S101 - the local mode has a folder
        return FolderExchange.of(mine, theirs, own=_LOCAL)

    @property
    def notices_vectors(self) -> bool:  # type: ignore[override]
        """Whether changes are counted: in a folder they are, a server does not."""
        return not self.place.is_remote

    def strangers(self) -> list[str]:
        """Other collections of the folder, and whatever the client has not made."""
        folder = None if self.place.is_remote else self._beside()
        if folder is None:
            return []
        own = {*_LOCAL, *BESIDE}
        others = [name for name in self.place.names() if name != self.name]
        return sorted([*others, *(path.name for path in folder.iterdir() if path.name not in own)])

    def exchanged(self) -> Exchange | None:
        """See `Switchable`."""
        if self.place.is_remote:
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
        return _FolderWriter(self, location, dim, resume, self.name)

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
        with _answers(self.place):
            points, _ = self.place.client.scroll(
                self.name, self.with_filter, limit, with_payload=True, with_vectors=_with_vectors(vectors)
            )
        return list(points)

    def all_points(self, chosen: Any, *, payload: bool | list[str], vectors: bool = False) -> Iterator[Any]:
        """All points that a filter lets through, in bounded memory."""
        offset = None
        while True:
            with _answers(self.place):
                points, offset = self.place.client.scroll(
                    self.name, chosen, _AT_ONCE, offset=offset, with_payload=payload, with_vectors=vectors
                )
            yield from points
            if offset is None:
                return

    def retrieve(self, ids: Sequence[str], *, payload: bool, vectors: bool) -> Iterator[tuple[str, Any]]:
        """Points with the ids that the store gives them."""
        for first in range(0, len(ids), _AT_ONCE):
            part = ids[first : first + _AT_ONCE]
            names: bool | list[str] = _with_vectors([self.vector]) if vectors and not payload else vectors
            with _answers(self.place):
                points = self._find(part, payload=payload or self.id_field is not None, vectors=names)
            yield from ((self.id_of(point), point) for point in points)

    def _find(self, ids: Sequence[str], *, payload: bool, vectors: bool | list[str]) -> Iterable[Any]:
        client, models = self.place.client, self.models
        if self.id_field is None:
            point_ids = [point for point in map(as_point_id, ids) if point is not None]
            return list(client.retrieve(self.name, point_ids, with_payload=payload, with_vectors=vectors))
        found = []
        if self.own.get("made"):  # its ids were made of the documents', but for those that another program has added
            point_ids = [made_point_id(doc_id) for doc_id in ids]
            found = list(client.retrieve(self.name, point_ids, with_payload=payload, with_vectors=vectors))
            known = {self.id_of(point) for point in found}
            ids = [doc_id for doc_id in ids if doc_id not in known]
            if not ids:
                return found
        values: list[Any] = [*ids, *(int(doc_id) for doc_id in ids if _NUMBER.fullmatch(doc_id))]
        fields = [
            models.FieldCondition(key=self.id_field, match=models.MatchAny(any=part))
            for part in (values[: len(ids)], values[len(ids) :])
            if part
        ]
        chosen = models.Filter(must=[*self.with_filter.must, models.Filter(should=fields)])
        points, _ = client.scroll(self.name, chosen, 2 * len(ids), with_payload=payload, with_vectors=vectors)
        return found + list(points)

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
            if self.text_field == _LAYOUT[0] and set(fields) == {_LAYOUT[1]} and isinstance(fields[_LAYOUT[1]], dict):
                fields = fields[_LAYOUT[1]]
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
            return _LAYOUT[0], "the collection is empty"
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


class AliasExchange(Exchange):
    """Two aliases of a server that trade collections, in one call.

    A server has no place for a record: it is kept in a folder of this machine.

    Parameters
    ----------
    place
        The server.
    old, new
        The aliases.
    """

    def __init__(self, place: _Place, old: str, new: str) -> None:
        self.place, self.old, self.new = place, old, new
        server = place.location.partition("#")[0]
        digest = hashlib.sha256(f"{server}#{old}".encode()).hexdigest()[:32]
        self.notes = state_folder() / "switches" / f"{digest}.json"

    @classmethod
    def of(cls, old: QdrantStore, new: QdrantStore) -> AliasExchange:
        """The exchange of two names that are aliases.

        Raises
        ------
        UsageError
            One of them is a collection, which Qdrant cannot rename; or they are on two servers.
        """
        places = [store.place.location.partition("#")[0] for store in (old, new)]
        if places[0] != places[1]:
            raise UsageError(f"{new.info.location}: expected a collection of {places[0]}, found another server")
        aliases = old.place.aliases()
        for store in (old, new):
            if store.name not in aliases:
                raise UsageError(
                    f"{store.info.location}: expected an alias, found a collection, which Qdrant cannot rename; give "
                    "it an alias, let your programs ask that, and switch the alias"
                )
        return cls(old.place, old.name, new.name)

    @classmethod
    def at(cls, store: QdrantStore) -> AliasExchange | None:
        """The exchange that this machine has noted of an alias."""
        made = cls(store.place, store.name, "")
        noted = made._noted()
        if noted is None:
            return None
        made.new = noted["aliases"][1]
        return made

    def record(self) -> Record | None:
        """What this machine has noted."""
        noted = self._noted()
        return None if noted is None else noted["record"]

    def switch(self, record: Record) -> None:
        """Note which collection is which, and change both aliases in one call."""
        aliases = self.place.aliases()
        noted = self._noted() or {
            "aliases": [self.old, self.new], "old": aliases[self.old], "new": aliases[self.new]
        }  # fmt: skip
        with output_errors(self.notes):
            self.notes.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(self.notes, force=True) as aside:
            write_json(aside, {**noted, "record": dict(record)})
        reach("noted")
        self._lead({self.old: noted["new"], self.new: noted["old"]})
        reach("exchanged")

    def rollback(self) -> None:
        """Change both aliases back."""
        noted = self._noted()
        if noted is not None:
            self._lead({self.old: noted["old"], self.new: noted["new"]})
            reach("exchanged")
            self.notes.unlink(missing_ok=True)

    def forget(self) -> None:
        """Delete the collection that stepped aside, with its alias."""
        noted = self._noted()
        aliases = self.place.aliases()
        if noted is None or aliases.get(self.old) != noted["new"]:
            raise unfinished(self.place.location)
        if self.new in aliases:
            if aliases[self.new] != noted["old"]:
                raise others(self.place.location)
            with _answers(self.place):
                self.place.client.delete_collection(noted["old"])
            reach("exchanged")
        self.notes.unlink(missing_ok=True)

    def _lead(self, wanted: Mapping[str, str]) -> None:
        models, aliases = _models(), self.place.aliases()
        if {aliases.get(alias) for alias in wanted} != set(wanted.values()):
            raise others(self.place.location)
        steps: list[Any] = []
        for alias, collection in wanted.items():
            gone = models.DeleteAlias(alias_name=alias)
            made = models.CreateAlias(collection_name=collection, alias_name=alias)
            steps += [models.DeleteAliasOperation(delete_alias=gone), models.CreateAliasOperation(create_alias=made)]
        with _answers(self.place):
            self.place.client.update_collection_aliases(steps)

    def _noted(self) -> dict[str, Any] | None:
        return dict(json.loads(self.notes.read_bytes())) if self.notes.is_file() else None


class _Writer(WaitingWriter):
    """Fills a new collection."""

    def fill(self, place: _Place, name: str) -> None:
        """Make a collection with all points."""
        source = self.source if isinstance(self.source, QdrantStore) else None
        with _answers(place):
            if place.client.collection_exists(name):
                place.client.delete_collection(name)
            place.client.create_collection(name, **(self._same(source) if source else self._new()))
        self.prepare(place, name)
        most = max(min(_PAYLOAD // (self.rows.dim * _BYTES_PER_NUMBER), _AT_ONCE), 1)
        written = 0
        for points in self._copied(source, most) if source else self._made(most):
            with _answers(place):
                _quiet(place.client.upsert, name, points, wait=True)
            written += len(points)
        if source is not None:
            self._index_payload(place, name, source)
        with _answers(place):
            count = place.client.count(name, exact=True).count
        if count != written:
            raise StoreError(f"{place.location}: expected {written} points once written, found {count}; run again")

    def prepare(self, place: _Place, name: str) -> None:
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
        metadata = {**source.kept_metadata, **({_OWN: own_facts} if own_facts else {})}
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
        models = _models()
        vectors = models.VectorParams(size=self.rows.dim, distance=_NAMES[self.source.info.metric])
        return {"vectors_config": vectors, "metadata": {_OWN: {"text": _LAYOUT[0], "id": _LAYOUT[2], "made": True}}}

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
        others: list[Any] = []
        for point in source.all_points(source.without_filter, payload=True, vectors=has_others):
            others.append(make(id=point.id, payload=point.payload, vector=point.vector or {}))
            if len(others) >= at_once:
                yield others
                others = []
        if others:
            yield others

    @staticmethod
    def _with(source: QdrantStore, point: Any, vector: list[float]) -> Any:
        if not isinstance(source.config.params.vectors, dict) and not source.others():
            return vector
        others = point.vector if isinstance(point.vector, dict) else {}
        return {**others, source.vector: vector}

    def _made(self, at_once: int) -> Iterator[list[Any]]:
        make = _models().PointStruct
        for documents, vectors in self.records(at_once):
            yield [
                make(
                    id=made_point_id(document.id),
                    vector=vector.tolist(),
                    payload=dict(zip(_LAYOUT, (document.text, dict(document.metadata), document.id), strict=True)),
                )
                for document, vector in zip(documents, vectors, strict=True)
            ]

    def _index_payload(self, place: _Place, name: str, source: QdrantStore) -> None:
        for field, index in source.schema.items():
            with _answers(place):
                place.client.create_payload_index(name, field, index.params or index.data_type.value, wait=True)


class _FolderWriter(_Writer):
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
            place = _Place(str(self.folder), _quiet(module.QdrantClient, path=str(self.folder)))
            place.is_remote = False
            try:
                self.fill(place, self._name)
            finally:
                place.client.close()
            (self.folder / ".lock").unlink(missing_ok=True)
        sync_tree(self.folder)

    def prepare(self, place: _Place, name: str) -> None:
        """The client waits for the disk at each point; here all is made durable at the end."""
        storage = getattr(place.client._client.collections[name].storage, "storage", None)
        if isinstance(storage, sqlite3.Connection):
            storage.execute("PRAGMA synchronous = OFF")
            storage.execute("PRAGMA journal_mode = MEMORY")


class _ServerWriter(_Writer):
    """A collection of a server, under a name that nobody uses."""

    def __init__(self, source: Store, folder: Path, dim: int, resume: Resume, output: _QdrantOutput) -> None:
        super().__init__(source, folder, dim, resume)
        self._output = output

    def load(self) -> None:
        """Fill the collection anew."""
        output, token = self._output, token_in(self.folder) or new_token(self.folder)
        self.fill(output.place(), output.collection(token))


class _QdrantOutput(NamedServerOutput):
    """A collection of a server with a name of its own, which an alias leads to: that is changed in one step."""

    def place(self) -> _Place:
        """The server."""
        return _Place(self.location, connect(self.location, self.address.place))

    def collection(self, token: str) -> str:
        """The collection's own name."""
        return f"{self.final}-{token}"

    def writer(self, source: Store, content: Path, dim: int, resume: Resume) -> StoreWriter:
        """A writer of the collection that no alias leads to yet."""
        return _ServerWriter(source, content, dim, resume, self)

    def made_here(self) -> bool | None:
        """Whether the alias leads to a name with a token."""
        place = self.place()
        return None if self.final not in place.names() else _token_of(place.aliases().get(self.final, "")) is not None

    def is_published(self, content: Path) -> bool:
        """Whether the alias leads to it."""
        leads_to = self.place().aliases().get(self.final)
        token = token_in(content)
        return leads_to is not None if token is None else leads_to == self.collection(token)

    def publish(self, content: Path, *, force: bool) -> None:
        """Let the alias lead to it; what it led to before is removed."""
        place, token, models = self.place(), str(token_in(content)), _models()
        keep(content, token)
        if self.final in place.names():
            self.refuse_existing(force=force)
        before = place.aliases().get(self.final)
        name = models.CreateAlias(collection_name=self.collection(token), alias_name=self.final)
        steps: list[Any] = [models.CreateAliasOperation(create_alias=name)]
        if before is not None:
            gone = models.DeleteAlias(alias_name=self.final)
            steps.insert(0, models.DeleteAliasOperation(delete_alias=gone))
        with _answers(place):
            place.client.update_collection_aliases(steps)
        self._remove(place, keep_only=self.collection(token))

    def discard(self) -> None:
        """Remove all collections of this name that no alias leads to."""
        self._remove(self.place(), keep_only=None)

    def _remove(self, place: _Place, keep_only: str | None) -> None:
        used = {*place.aliases().values(), keep_only}
        own = re.compile(re.escape(self.final) + r"-[0-9a-f]{32}")
        for name in place.names():
            if own.fullmatch(name) and name not in used:
                with _answers(place):
                    place.client.delete_collection(name)
                forget(_token_of(name))


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


def _token_of(name: str) -> str | None:
    match = re.fullmatch(r".*-([0-9a-f]{32})", name, re.DOTALL)
    return match[1] if match else None


def _with_vectors(vectors: Sequence[str] | bool) -> bool | list[str]:
    """The vector without a name is asked for by none."""
    return vectors if isinstance(vectors, bool) else list(vectors) if any(vectors) else True


def _as(kind: Any, config: Any) -> Any:
    """The settings of a collection, as those of a new one are given."""
    if config is None:
        return None
    facts = config.model_dump(exclude_none=True)
    return kind(**{key: value for key, value in facts.items() if key in kind.model_fields})


def _models() -> Any:
    module: ModuleType = import_client("qdrant_client.models", "qdrant")
    return module


def _quiet(call: Any, *arguments: Any, **options: Any) -> Any:
    """Call the client without its advice on other ways to use Qdrant."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return call(*arguments, **options)


@contextmanager
def _answers(place: _Place) -> Iterator[None]:
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
