"""All that answers a query, opened together and never changed: an index, its documents, and the model of queries.

Whoever notices that another store answers at the location puts another generation in the place of this one, in a step.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from migrate.errors import LeadMigrateError, StoreError, VectorError
from migrate.files import FileStamp, sha256_json
from migrate.live.state import text_hash
from migrate.live.true_vectors import LiveVectors, Pause
from migrate.manifest import MANIFEST_NAME, ModelIdentity
from migrate.stores.base import Store, StoreSearcher
from migrate.stores.confidence import stored_confidence
from migrate.stores.faiss.search import IndexSearcher, open_search
from migrate.stores.file_store import as_files
from migrate.stores.registry import find_exchange, open_store, path_in
from migrate.stores.updates import UpdatableStore
from migrate.vectors import Batch, Document, Vectors

_log = logging.getLogger(__name__)

_CHANGED: Final = "another store came to its place while it was opened; try again"


def generation_of(store: Store) -> str:
    """Return a digest of what tells a store at a location from one that comes there later.

    Of a folder, what its files are; of a database, what its manifest says, which single vectors that are put into it
    do not change.
    """
    files = as_files(store)
    manifest = store.info.manifest
    identity: list[Any] = [store.info.dim, None if manifest is None else [manifest.created, dict(manifest.inputs)]]
    if manifest is not None and manifest.model is not None:
        identity.append([manifest.model.spec, manifest.model.revision])
    if files is not None:
        identity.append(sorted(stamp.signature for stamp in files.stamps))
    return sha256_json(identity)[:16]


def model_of(store: Store) -> ModelIdentity:
    """Return the model that a store's vectors are of."""
    manifest = store.info.manifest
    if manifest is None or manifest.model is None:
        raise StoreError(
            f"{store.info.location}: its model is not named; stamp the store, or give one that translate or embed made"
        )
    return manifest.model


class Texts:
    """The documents of a store by id, and the hashes of their texts, for several threads.

    For `valid_s` seconds a text of a database is taken for unchanged; those of files are as long as the files are.
    `turn` is held by who asks the store itself: its connection is not for several threads. `rows` has the row of each
    id, and is empty for a database. `index` is the search of the store.
    """

    def __init__(self, store: Store, index: StoreSearcher, *, valid_s: float) -> None:
        self._store = store
        self._index = index
        self.turn = threading.Lock()
        self._records = store.records if isinstance(store, UpdatableStore) else None
        self._pause = Pause()
        # Files that change are another generation
        self._valid_s = valid_s if self._records else float("inf")
        self._hashes: dict[str, tuple[bytes | None, float]] = {}
        self.rows: Mapping[str, int] = {}
        if self._records is None:
            self.rows = {doc_id: row for row, doc_id in enumerate(i for batch in store.scan() for i in batch.ids)}

    def find(self, ids: Sequence[str]) -> dict[str, Document]:
        """Return the documents of those ids that are there."""
        if not ids or not self._store.info.has_texts:
            return {}
        with self.turn:
            if self._records is not None:
                return self._records.documents(ids)
            present = [doc_id for doc_id in ids if doc_id in self.rows]
            rows = np.array([self.rows[doc_id] for doc_id in present], np.int64)
            documents = list(self._store.documents(rows))
        if [document.id for document in documents] != present:
            raise StoreError(f"{self._store.info.location}: {_CHANGED}")
        return dict(zip(present, documents, strict=True))

    def unchanged(self, hashes: Mapping[str, bytes]) -> dict[bytes, Document]:
        """Return those documents whose texts still have these hashes, by these; none while they cannot be read."""
        try:
            documents = self.find(list(hashes))
        except LeadMigrateError as error:  # another store has come to its place, which takes a while to open
            self._warn(error)
            return {}
        self._pause.end()
        return {
            hashes[doc_id]: document
            for doc_id, document in documents.items()
            if text_hash(document.text) == hashes[doc_id]
        }

    def _warn(self, error: LeadMigrateError) -> None:
        if self._pause.fail():
            _log.warning("documents are ranked by the vectors of the store: %s", error)

    def vectors_there(self, ids: Sequence[str]) -> Batch | None:
        """Return the vectors of those documents that are in the store; None where they cannot be read now."""
        try:
            if self._records is not None:
                with self.turn:
                    return self._records.vectors(ids)
            ids = [doc_id for doc_id in ids if doc_id in self.rows]
            rows = np.array([self.rows[doc_id] for doc_id in ids], np.int64)
            # The search has them in memory, where the store would read them from the disk
            held = self._index.held_vectors(rows) if isinstance(self._index, IndexSearcher) else None
            if held is not None:
                return Batch(ids, held)
            with self.turn:
                return self._store.get(rows)
        except LeadMigrateError:  # another store has come to its place
            return None

    def vectors(self, ids: Sequence[str]) -> Vectors | None:
        """Return the vectors of documents as they are in the store, (n, dim); None where they cannot be read now."""
        read = self.vectors_there(ids)
        if read is None or list(read.ids) != list(ids):
            return None
        return read.vectors

    def hashes(self, ids: Sequence[str]) -> list[bytes | None]:
        """Return the hash of the text that each document has now; None where it has none, or cannot be read now."""
        now = time.monotonic()
        oldest = now - self._valid_s
        hashes = self._hashes
        entries = list(map(hashes.get, ids))
        # Only what is not known is read: a query has some hundred documents, most of them seen before
        new = [doc_id for doc_id, entry in zip(ids, entries, strict=True) if entry is None or entry[1] < oldest]
        if new and self._pause.is_over:
            try:
                documents = self.find(new)
            except LeadMigrateError as error:
                self._warn(error)
            else:
                self._pause.end()
                for doc_id in new:
                    text = ""
                    if doc_id in documents:
                        text = documents[doc_id].text
                    hashes[doc_id] = text_hash(text) if text.strip() else None, now
                entries = list(map(hashes.get, ids))
        return [None if entry is None else entry[0] for entry in entries]


@dataclass(frozen=True)
class Generation:
    """A store as it was opened.

    `is_translated` says whether there are vectors in it that are not the model's own; `made_true` are documents with
    true vectors from the beginning, as far as their texts are still those of then, which those in files are.
    `true_in_store` has the hash of the text of each document that was noted as true since, `marker` is what `_marker`
    says of it.
    """

    key: str
    store: Store
    index: StoreSearcher
    vectors: LiveVectors
    texts: Texts
    is_translated: bool
    confidence: Vectors | None
    made_true: frozenset[str]
    marker: Any
    true_in_store: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def is_in_memory(self) -> bool:
        """True if it answers alike whatever happens to the files."""
        return is_in_memory(self.store)

    def is_behind(self) -> bool:
        """Tell if it answers from a copy of a database that was written to since."""
        try:
            return self.store.info.is_copy and not self.store.is_as_opened()
        except (LeadMigrateError, OSError):
            return True

    def is_stale(self) -> bool:
        """Tell if something else may be at the location by now."""
        try:
            with self.texts.turn:
                return bool(_marker(self.store) != self.marker)
        except (LeadMigrateError, OSError):
            return True

    def untrue(self, ids: Sequence[str], hashes: Sequence[bytes | None]) -> NDArray[np.intp]:
        """Return the places of documents whose vector in the store is not the true one of the text they have now."""
        if not self.is_translated:
            return np.empty(0, np.intp)
        if not self.store.info.exact:  # an index that keeps codes ranks by something near the true vector
            return np.arange(len(ids))
        untrue = []
        for row, (doc_id, now) in enumerate(zip(ids, hashes, strict=True)):
            true = self.true_in_store.get(doc_id)
            if (true is None or true != now) and doc_id not in self.made_true:
                untrue.append(row)
        return np.array(untrue, np.intp)

    def uncertainties(self, ids: Collection[str]) -> list[float]:
        """Return 1 - confidence of each document; 1 where nothing is known of it."""
        confidence = np.full(len(ids), np.nan)
        if self.confidence is not None and self.texts.rows:
            rows = np.array([self.texts.rows.get(doc_id, -1) for doc_id in ids], np.int64)
            confidence[rows >= 0] = self.confidence[rows[rows >= 0]]
        uncertain: list[float] = np.clip(1.0 - np.nan_to_num(confidence, nan=0.0), 0.0, 1.0).tolist()
        return uncertain


def open_generation(location: str, vectors: LiveVectors, *, valid_s: float) -> Generation:
    """Open the store at a location, which is of the model that embeds queries."""
    for _ in range(5):
        generation = _opened(location, vectors, valid_s)
        # All that was read is of one store: it was there before the first file was opened, and is after the last.
        if not generation.is_stale():
            return generation
    raise StoreError(f"{location}: {_CHANGED}")


def _opened(location: str, vectors: LiveVectors, valid_s: float) -> Generation:
    marker = marker_at_rest(location)  # from before anything is read that is kept
    store = open_store(location, verify=True)
    model = model_of(store)
    manifest = store.info.manifest
    identity = vectors.embedder.identity
    if model != identity:
        state = ""
        if model.spec == identity.spec:
            state = " in another state"
        raise StoreError(
            f"{location}: the store is of {model.spec}{state}, and queries are embedded by {identity.spec}; name the "
            "store's model, or another store"
        )
    if model.dim != store.info.dim:
        raise VectorError(f"{location}: its model has {model.dim} dimensions, its vectors {store.info.dim}; stamp it")
    index = open_search(store)
    index.search(np.ones((1, store.info.dim), np.float32), 1)  # what is read at the first search is read now
    # The old model may be unknown: nothing says it of a store that lead-migrate has not made
    translated = manifest is not None and (manifest.store.made_by == "translate" or manifest.source_model is not None)
    n_true = manifest.counts.get("true vectors", 0) if manifest is not None else 0
    texts = Texts(store, index, valid_s=valid_s)
    confidence = confidence_of(store)
    made_true: frozenset[str] = frozenset()
    if confidence is not None and as_files(store) is not None and (is_true := confidence >= 1).any():
        made_true = frozenset(doc_id for doc_id, row in texts.rows.items() if is_true[row])
    return Generation(
        generation_of(store),
        store,
        index,
        vectors,
        texts,
        translated and (as_files(store) is None or n_true < store.info.count),
        confidence,
        made_true,
        marker,
    )


def is_in_memory(store: Store) -> bool:
    """Return whether an opened store answers alike whatever comes to its location."""
    return as_files(store) is not None or store.info.is_copy


def confidence_of(store: Store) -> Vectors | None:
    """Return the confidence of each document, (count,); None where there is none, or documents came or went since."""
    try:
        return stored_confidence(store)
    except StoreError:
        return None


def marker_at_rest(location: str) -> Any:
    """Wait for the end of a switch, in which tables have traded names and what lies beside them has not."""
    # A switch takes moments; five seconds are enough for one that is not interrupted
    for _ in range(100):
        if (marker := _marker(open_store(location))) is not None:
            return marker
        time.sleep(0.05)
    raise StoreError(f"{location}: a switch is under way, or was interrupted; run it again, or `rollback`")


def _marker(store: Store) -> Any:
    """Return a mark that is another when another store comes to the location; None while a database is switched.

    Of files their stamps; of a database what has the name, and the folder or file that is there.
    """
    files = as_files(store)
    if files is not None:
        paths = dict.fromkeys((files.index_path, *(s.path for s in files.stamps), files.folder / MANIFEST_NAME))
        return tuple(FileStamp.of(path) for path in paths if path.exists())
    # Its rows may change at any time: only another store under its name is another generation
    if isinstance(store, UpdatableStore):
        answering = store.records.answering()
        if answering is None:
            return None
    else:
        exchange = find_exchange(store.info.location)
        answering = {} if exchange is None else exchange.record() or {}
    folder = path_in(store.info.location)
    # Names of tables stay where a whole folder is exchanged, and only its inode tells
    status = None
    if folder is not None:
        status = folder.stat()
    return answering, status and (status.st_dev, status.st_ino)
