"""A collection of Chroma, in the folder of a persistent client or on a server, read as it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from migrate.errors import StoreError
from migrate.files import output_errors
from migrate.manifest import MANIFEST_NAME, Manifest, find_manifest
from migrate.stores.base import Store, StoreInfo, StoreWriter
from migrate.stores.chroma.client import (
    AT_ONCE,
    DATABASE,
    NOTE,
    SEGMENT,
    TOKEN,
    URI,
    Folder,
    Place,
    answers,
    beside_collection,
    pages,
)
from migrate.stores.kept import manifest_of, stamp
from migrate.stores.records import Distance, SearchableRecordStore, read_metric
from migrate.stores.switching import ASIDE, BESIDE, Exchange
from migrate.vectors import Batch, Document, Vectors

if TYPE_CHECKING:
    from migrate.stores.chroma.serve import ChromaServing

_SAMPLE: Final = 64


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

    def __init__(self, location: str, place: Place, name: str) -> None:
        self._place = place
        self.name = _choose(place, name)
        self.collection = place.collection(self.name)
        model = self.collection._model
        self.configuration = dict(model.configuration_json)
        self.kept_metadata = {key: value for key, value in (model.metadata or {}).items() if key not in (TOKEN, NOTE)}
        index = self.configuration.get("hnsw") or self.configuration.get("spann") or {}
        self.space: Distance = index.get("space") or "l2"
        index_name = f"{place.location.partition('#')[0]}#{self.name}{sorted(place.tenant.items())}"
        count = self._open_index(index_name, place.version_read(self.collection)).count
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
        if isinstance(self._place, Folder) and (self._place.path / MANIFEST_NAME).exists() and self._manifest() is None:
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
        collections = [name for name in self._place.names() if name != self.name]
        chroma_files = {DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm", f"{DATABASE}-journal", *BESIDE}
        files = [
            path.name for path in folder.iterdir() if path.name not in chroma_files and not SEGMENT.fullmatch(path.name)
        ]
        return sorted([*collections, *files])

    def exchanged(self) -> Exchange | None:
        """See `Switchable`."""
        from migrate.stores.chroma.switch import exchange_left

        return exchange_left(self._place, self.name)

    @property
    def place(self) -> Place:
        """Where the collection is."""
        return self._place

    def _beside(self) -> Path | None:
        return self._place.folder(self.collection)

    def _manifest(self) -> Manifest | None:
        folder = self._beside()
        is_own = folder is not None and not (folder / DATABASE).is_file()  # else it may be of another collection
        return find_manifest(folder, "store") if folder is not None and is_own else manifest_of(folder, self.name)

    def destination(self, location: Path, dim: int) -> StoreWriter:
        """A folder of a persistent client with a collection of the same name, configuration and metadata."""
        from migrate.stores.chroma.output import FolderWriter

        return FolderWriter(self, location, dim, self.name)

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
        for first in range(0, len(ids), AT_ONCE):
            with answers(self._place.location, remote=self._place.is_remote):
                yield self.collection.get(ids=list(ids[first : first + AT_ONCE]), include=list(include))

    def _version(self) -> Any:
        return self._place.version(self.collection)

    def _read_ids(self) -> Iterable[str]:
        for page in pages(self._place.location, self.collection, []):
            yield from page["ids"]

    def _as_now(self) -> ChromaStore:
        return ChromaStore(self.info.location, self._place.again(), self.name)

    def _read_vectors(self, ids: Sequence[str]) -> Batch:
        parts = [(part["ids"], part["embeddings"]) for part in self.read(ids, ["embeddings"])]
        vectors = [np.asarray(part, np.float32).reshape(len(ids_read), -1) for ids_read, part in parts if len(ids_read)]
        read = [doc_id for ids_read, _ in parts for doc_id in ids_read]
        return Batch(read, np.concatenate(vectors) if vectors else np.empty((0, self.info.dim), np.float32))

    def _read_documents(self, ids: Sequence[str]) -> Iterable[Document]:
        for part in self.read(ids, ["documents", "metadatas", "uris"]):
            for doc_id, text, fields, uri in zip(
                part["ids"], part["documents"], part["metadatas"], part["uris"], strict=True
            ):
                extra = {} if uri is None else {URI: uri}
                yield Document(doc_id, text or "", {**(fields or {}), **extra})

    def _sample(self, count: int) -> Vectors:
        rows = np.unique(np.linspace(0, max(count - 1, 0), min(_SAMPLE, count)).astype(np.int64))
        parts = [part["embeddings"] for part in self.read(self.ids(rows), ["embeddings"])]
        return np.concatenate([np.asarray(part, np.float32) for part in parts]) if parts else np.empty((0, 0), "f4")

    def _has_texts(self, count: int) -> bool:
        text_pages = pages(self._place.location, self.collection, ["documents"], AT_ONCE)
        return not count or any(text is not None for page in text_pages for text in page["documents"])

    def _remarks(self) -> Iterator[str]:
        if self.function is not None:
            yield f"the collection names the embedding function {self.function}, which stays as it is in a new store"

    def _details(self, index: Mapping[str, Any]) -> dict[str, str | int]:
        names = {"space": "distance", "max_neighbors": "hnsw_m", "ef_construction": "ef_construction"}
        facts: dict[str, str | int] = {"collection": self.name}
        facts.update({label: index[key] for key, label in (*names.items(), ("ef_search", "ef_search")) if key in index})
        return facts if self.function is None else {**facts, "embedding_function": self.function}


def _choose(place: Place, name: str) -> str:
    """A collection by its name, or the only one."""
    names = place.names()
    if name in names:
        return name
    names = [label for label in names if not label.endswith(ASIDE)]
    have = ", ".join(names) or "none"
    if not name and len(names) == 1:
        return names[0]
    from migrate.stores.chroma.switch import exchange_left

    if exchange_left(place, name) is not None:
        raise StoreError(f"{place.location}: a switch was killed half-way; run switch or rollback again")
    expected = f"a collection {name!r}" if name else "the name of a collection after a #"
    raise StoreError(f"{place.location}: expected {expected}, found {have}; name one of these")
