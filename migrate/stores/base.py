"""Vector stores, wherever they lie: facts, vectors in batches, texts, and a writer of another store of the kind."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from pathlib import Path, PurePath
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from migrate.digests import BLAKE3, function_of, new_hasher, noted, update_texts
from migrate.errors import StoreError, UsageError
from migrate.manifest import Manifest, ModelIdentity
from migrate.vectors import Batch, Document, Vectors
from migrate.work.writer import StoreWriter as StoreWriter

Metric = Literal["l2", "ip"]
"""The way that an index compares: squared Euclidean distance (less is nearer) or inner product (more is nearer)."""

BATCH_SIZE = 16_384
"""Rows per batch. Fixed boundaries keep float32 products bit-identical from run to run."""

NO_TEXTS = "no texts: "
"""The beginning of a note that says why a store has no texts, and what to do."""

WAY_TO_TEXTS = 'put a docs.jsonl ({"id", "text"} a line) beside the vectors'


@dataclass(frozen=True, slots=True)
class StoreInfo:
    """The facts of a store that can be told without reading its vectors.

    `location` is a path, or a URI that names the store's kind (`kind:...`), and `open_store` opens the same store by it
    again; what needs a path asks `migrate.stores.file_store`. `kind` is how ids and texts are kept
    (faiss, langchain, arrays ...), `index_type` how the vectors are: FAISS's class name, inner ones in brackets
    (`IndexIDMap2(IndexFlatL2)`), or the element type of an array. `exact` says whether the vectors read back are the
    ones that were added; `notes` are sentences for a person; `details` are the facts of the kind (file names and
    sizes, `factory`, `nlist`, `hnsw_m` ...).

    `records` names the place of its records, where they can have several fields of vectors: it is the same for stores
    of other vectors of the same records, and `vector` is the field of this one.

    `opened_as` are the table and options that the manifest of a copy has, so that it is opened as this store was.
    `without_vector` counts records that have no vector, and so are no documents here. `unread_by_row` are the names of
    files beside it with an entry for each row, which are not read; a store of its kind gets copies. `is_copy` is True
    if a copy is read and searched that was made when it was opened: nothing of later is found in it.
    """

    location: str
    kind: str
    index_type: str
    count: int
    dim: int
    metric: Metric
    exact: bool
    has_texts: bool
    manifest: Manifest | None = None
    notes: tuple[str, ...] = ()
    details: Mapping[str, str | int] = field(default_factory=dict)
    records: str | None = None
    vector: str = ""
    opened_as: str | None = None
    without_vector: int = 0
    unread_by_row: tuple[str, ...] = ()
    is_copy: bool = False

    @property
    def name(self) -> str:
        """The last part of the location, for a person."""
        return PurePath(self.location).name or self.location

    @property
    def recorded_model(self) -> ModelIdentity | None:
        """The model that the manifest names; None where it names none, or there is no manifest."""
        if self.manifest is None:
            return None
        return self.manifest.model

    @property
    def way_to_texts(self) -> str:
        """The way in which a store without texts gets some: as its notes say, or by a file to write."""
        return next((note.removeprefix(NO_TEXTS) for note in self.notes if note.startswith(NO_TEXTS)), WAY_TO_TEXTS)


@dataclass(frozen=True, slots=True)
class KindSupport:
    """The abilities of a kind of store, in words for a table.

    `locations` are examples; `extra` is what to install, empty where nothing is; `kept` goes through exactly,
    `not_kept` is changed, left out with a remark, or refused by name; `memory` says what is held at once.
    """

    store: str
    locations: tuple[str, ...]
    extra: str
    kept: str
    not_kept: str
    memory: str = "bounded"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of a store, for a later run or a stitch to compare with.

    Shape, a SHA-256 over ids and vectors of rows spread over the store, one over its texts, and what else shows a
    change at once. `texts_hash` is None for a store without texts. `versions` are facts that change whenever the
    store is written to (names, sizes and times of files, for a store that lies in files), each as JSON holds it.
    """

    count: int
    dim: int
    metric: Metric
    rows_sha256: str
    texts_hash: str | None = None
    versions: tuple[Any, ...] = ()

    @property
    def fingerprint(self) -> dict[str, Any]:
        """The content of the store, wherever and since whenever it lies, for the manifest of a stitch."""
        return {name: value for name, value in asdict(self).items() if name != "versions"}

    def as_json(self) -> dict[str, Any]:
        """Return it for the journal of unfinished work."""
        return {"fingerprint": self.fingerprint, "files": list(self.versions)}

    def difference(self, recorded: Mapping[str, Any]) -> str | None:
        """Return what tells the store from the one whose fingerprint a manifest has, None if nothing does.

        Texts are compared where both have some: a stitch of before they were noted, or a store without, says nothing.
        """
        return what_differs(recorded, self.fingerprint)


def what_differs(recorded: Mapping[str, Any], current: Mapping[str, Any]) -> str | None:
    """Return the first thing in words that tells what is noted of a store from what it holds now; None if nothing does.

    Texts, and hashes of all ids and of all vectors, are compared where both have some.
    """
    for name, noun in (("count", "vectors"), ("dim", "dimensions")):
        if recorded.get(name) != current[name]:
            return f"{recorded.get(name)} {noun} there, {current[name]} here"
    if recorded.get("metric") != current["metric"]:
        return f"compared by {recorded.get('metric')} there, by {current['metric']} here"
    # Other ids or vectors change `rows_sha256` too: what tells most is compared first.
    hashes = {
        "ids_hash": "as many documents, other ids or another order of them",
        "vectors_hash": "the same ids, other vectors",
        "rows_sha256": "as many documents, other ids or vectors",
        "texts_hash": "the same vectors, other texts",
    }
    for name, difference in hashes.items():
        earlier_hash = recorded.get(name)
        current_hash = current.get(name)
        # Every fingerprint has this one. The others came with later versions, or only to what reads a store whole.
        is_compared = name == "rows_sha256" or None not in (earlier_hash, current_hash)
        if is_compared and earlier_hash != current_hash:
            return difference
    return None


@dataclass(frozen=True, slots=True)
class SearchSetting:
    """Setting of how far an index looks for each query: its `name`, and its `value` as it is stored.

    A greater value, up to `most`, finds more and takes longer. `code` is how a user of the kind's own client sets
    another one, with `{}` in its place; where it `is_stored`, no search can try one.
    """

    name: str
    value: int
    most: int
    code: str
    is_stored: bool = False


@dataclass(frozen=True, slots=True)
class Hits:
    """The nearest documents of one query, best first: `ids`, and `scores`, (n,), float32, by the metric of the store.

    Inner products, which fall, or squared distances, which grow. A store that compares by cosine gives the cosine of
    query and document, which is the inner product where both are of unit length; `serving.is_cosine` tells such a
    store.
    """

    ids: tuple[str, ...]
    scores: NDArray[Any]


class StoreSearcher(ABC):
    """The search of a store, of which `info` are the facts; several threads may search at once."""

    info: StoreInfo
    has_own_index: bool = True
    """True if it may find other documents than exact search does."""

    @abstractmethod
    def search(self, queries: Vectors, k: int, where: Any = None) -> list[Hits]:
        """Return the nearest `k` documents of each query, or as many as there are.

        The queries, (q, dim), float32, are of the model that the store's vectors are of. `where` says which documents
        may be among them: as the kind's own client says it, or, for SQL, FAISS or none, as a mapping of metadata to the
        values that they must have; None for any.

        Raises a UsageError where the kind does not know the filter, a VectorError for queries of another dimension, and
        a StoreError or a RemoteError where the store or its server is gone.
        """

    @property
    def setting(self) -> SearchSetting | None:
        """The setting of how far the index looks for each query; None for one that has no such setting."""
        return None

    def search_index(self, queries: Vectors, k: int, effort: int | None = None) -> list[Hits]:
        """Search as any client of the store does: by its index as it is stored, whatever that misses.

        `effort` takes the place of the value of the `setting`. Where `search` makes up for an index that finds too
        few, this does not; otherwise it is the same.
        """
        return self.search(queries, k)


class Companions(ABC):
    """The manifest beside a store, maybe with hashes that the store is held against."""

    @abstractmethod
    def keep(self, manifest: Manifest) -> Path | str:
        """Keep a manifest beside the store, which stays as it is; return where.

        Raises a UsageError where there is no place.
        """

    def verify(self) -> tuple[str, ...]:
        """Hold what the manifest has a hash of against it; return the names of these, none where it has no hashes."""
        return ()


class Store(ABC):
    """A place that holds vectors with ids, and maybe texts; it is read without loss, and never written to.

    Rows are positions in the order of `scan`, which stays the same as long as the snapshot does. What only a store
    that lies in files has is in `migrate.stores.file_store`.
    """

    info: StoreInfo

    def __repr__(self) -> str:
        info = self.info
        model = ""
        if info.manifest and info.manifest.model:
            model = f", {info.manifest.model.spec}"
        shape = f"{info.count:,} x {info.dim}"
        return f"<{type(self).__name__} {info.location}: {info.index_type}, {shape}, {info.metric}{model}>"

    @abstractmethod
    def scan(self, start: int = 0, stop: int | None = None, *, batch_size: int = BATCH_SIZE) -> Iterator[Batch]:
        """Read the vectors of rows `start` to `stop` (not included; the end) with their ids, in bounded memory.

        Each batch's vectors are float32, C-contiguous, (n, dim), and valid until the next batch is asked for.
        Values are as stored: NaN, Inf and zero rows are the caller's to check (`migrate.vectors.check_vectors`).
        """

    @abstractmethod
    def get(self, rows: NDArray[np.int64]) -> Batch:
        """Return the vectors and ids of some rows, in the order of `rows`."""

    def ids(self, rows: range | NDArray[np.int64]) -> list[str]:
        """Return the ids of some rows; kinds that can do so read no vector."""
        return list(self.get(np.asarray(rows, np.int64)).ids)

    @abstractmethod
    def documents(self, rows: NDArray[np.int64] | None = None) -> Iterator[Document]:
        """Read the documents of some rows, in their order, or of all rows; a StoreError where there are no texts."""

    @property
    def folder(self) -> Path | None:
        """The folder with what lies beside the store (manifest, confidence, state of the model); None without one."""
        return None

    @property
    def companions(self) -> Companions | None:
        """The place for a manifest beside the store; None without one."""
        return None

    @abstractmethod
    def destination(self, location: Path, dim: int) -> StoreWriter:
        """Return a writer of a store of the same kind, with the same ids, texts and metric, for vectors of `dim`.

        A kind that lies in no folder returns `migrate.stores.create.flat_writer`.
        """

    def searcher(self) -> StoreSearcher | None:
        """Return the search of the store's own, which holds what its first search reads; None where it has none.

        `migrate.stores.faiss.search.open_search` searches any store.
        """
        return None

    def snapshot(self, function: str = BLAKE3) -> Snapshot:
        """Hash up to 64 rows, evenly spread from the first to the last, and by `function` the texts."""
        return sampled_snapshot(self, documents_hash(self, function))

    def state(self) -> Any:
        """Return what changes whenever the store is written to, as JSON holds it; None where it takes reading to tell.

        Nothing of its content is read.
        """
        return None

    def is_as_opened(self) -> bool:
        """Return whether nothing came, went or changed since it was opened, if that is told without reading it."""
        return True

    def check_unchanged(self, earlier: Snapshot) -> None:
        """Make sure that the store is still what it was when the snapshot was taken.

        Raises a StoreError where it is not, and an OutputError where a file of it vanished.
        """
        if self.snapshot() != earlier:
            raise StoreError(
                f"{self.info.location}: the store changed while it was read; nothing was written, run again"
            )


def sampled_snapshot(store: Store, texts_hash: str | None, versions: tuple[Any, ...] = ()) -> Snapshot:
    """Return the snapshot of a store, of up to 64 of its rows, with the hash of its texts; see `Snapshot`."""
    info = store.info
    # 64 is arbitrary: enough to know other content by, few enough to be read anywhere in a moment. A change of single
    # vectors is for `versions`, or for `content_of`, to tell.
    rows = np.unique(np.linspace(0, max(info.count - 1, 0), min(64, info.count)).astype(np.int64))
    batch = store.get(rows)
    digest = hashlib.sha256()
    for doc_id, vector in zip(batch.ids, batch.vectors, strict=True):
        # The length says where an id ends, so that no other ids and vectors give the same bytes.
        digest.update(f"{len(doc_id.encode())}:{doc_id}".encode())
        digest.update(vector.astype("<f4", copy=False).tobytes())
    return Snapshot(info.count, info.dim, info.metric, digest.hexdigest(), texts_hash, versions)


def difference_from(store: Store, recorded: Mapping[str, Any], current: Snapshot) -> str | None:
    """Return what tells a store, as it is now, from the one whose fingerprint a manifest has.

    Texts that an earlier version hashed by another function are hashed by that again.
    """
    return snapshot_as(store, recorded, current).difference(recorded)


def snapshot_as(store: Store, recorded: Mapping[str, Any], current: Snapshot) -> Snapshot:
    """Return the snapshot of now with texts hashed as in the fingerprint that a file has."""
    texts_hash = recorded.get("texts_hash")
    if not isinstance(texts_hash, str) or current.texts_hash is None:
        return current
    function = function_of(texts_hash, f"{store.info.location}: the fingerprint")
    if function == BLAKE3:
        return current
    return replace(current, texts_hash=store.snapshot(function).texts_hash)


def documents_hash(store: Store, function: str = BLAKE3) -> str | None:
    """Return a hash of all documents of a store, None if it has no texts; reads them."""
    if not store.info.has_texts:
        return None
    return hash_texts(((document.id, document.text) for document in store.documents()), function)


def hash_texts(documents: Iterable[tuple[str, str]], function: str = BLAKE3) -> str:
    """Return a hash of documents: of the id and the text of each."""
    hasher = new_hasher(function)
    update_texts(hasher, chain.from_iterable(documents))
    return noted(hasher)


def no_place(location: str) -> UsageError:
    """Return the error of a manifest that can be kept nowhere."""
    return UsageError(f"{location}: there is no place beside the store for a stamp; name its model with every command")


def all_ids(store: Store) -> Iterator[str]:
    """Yield the ids of all rows, in their order; reads the store once."""
    return (doc_id for batch in store.scan() for doc_id in batch.ids)


def read_all(batches: Iterable[Batch]) -> Batch:
    """Return all batches as one; for stores known to fit into memory."""
    # The vectors of a batch are valid only until the next one is asked for.
    batches_read = [(list(batch.ids), batch.vectors.copy()) for batch in batches]
    ids = [doc_id for batch_ids, _ in batches_read for doc_id in batch_ids]
    return Batch(ids, np.concatenate([vectors for _, vectors in batches_read]))
