"""Stores of records that are found by id, as databases keep them; and writers whose rows wait until all are there.

A kind of database is an `IndexedStore`, which says how ids, vectors and documents are read, and a `WaitingWriter`,
which says how they are written.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from itertools import islice, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from migrate.errors import StoreError, UsageError
from migrate.files import cache_folder, canonical_json, require_room
from migrate.stores.base import (
    BATCH_SIZE,
    FROM_THE_START,
    NO_TEXTS,
    Metric,
    RecordStore,
    Resume,
    Snapshot,
    Store,
    StoreWriter,
)
from migrate.stores.binary_reader import read_errors, read_exactly
from migrate.stores.id_index import IdIndex, id_changes, kept_index
from migrate.stores.row_file import RowFile
from migrate.vectors import UNIT_TOLERANCE, Batch, Document, Vectors, squared_norms

if TYPE_CHECKING:
    from migrate.stores.serving import Hits, Serving

_FLOAT_BYTES: Final = 4
_DOCUMENTS_AT_ONCE: Final = 1_000
_PART_BYTES: Final = 16 << 20
TEXT_NAMES: Final = ("text", "content", "contents", "document", "page_content", "body", "chunk", "chunk_text")
"""Names of a column of texts, the likeliest first; only these are taken without being named."""

Distance = Literal["l2", "ip", "cosine"]
"""How databases compare; `read_metric` says what becomes of it here."""

_NO_DISTANCE: Final = (
    "nothing says how vectors are compared: inner product is assumed; say ?distance=l2 or cosine if not"
)
_COSINE: Final = (
    "compared by cosine, but the vectors are not of unit length: here they are searched by inner product, which ranks "
    "them differently"
)


class IndexedStore(RecordStore):
    """A store whose records are found by id alone.

    Rows are positions in the sorted list of ids, which is read when the store is first opened at a version and kept in
    the user's cache folder. What is abstract here is all that a kind has to say; `_open_index` is called once it can.
    """

    _index: IdIndex
    _opened_at: Any
    _texts: tuple[str, str] | None = None

    def _open_index(self, location: str, version: Any = None) -> IdIndex:
        """Read the ids, or find them in the cache; `version` is what is read, where it may be older than the newest."""
        version = self._version() if version is None else version
        self._index = kept_index(cache_folder() / "ids", location, version, self._read_ids)
        self._opened_at = version
        return self._index

    def rows_as_read(self) -> NDArray[np.int64] | None:
        """The row of each record that has a vector, in the order in which `_read_ids` gives them; None after changes.

        For stores that give records in the same order each time, until they are written to.
        """
        if not self.is_as_opened():
            return None
        return np.argsort(self._index.order(0, self._index.count))

    def is_as_opened(self) -> bool:
        """Whether no record came, went or changed since it was opened."""
        return canonical_json(self._version()) == canonical_json(self._opened_at)

    @abstractmethod
    def _version(self) -> Any:
        """Asked of the database each time: what changes whenever a record comes, goes or changes, as JSON holds it."""

    @abstractmethod
    def _read_ids(self) -> Iterable[str]:
        """The ids of all records that have a vector, in any order, as a stream."""

    @abstractmethod
    def _read_vectors(self, ids: Sequence[str]) -> Batch:
        """The vectors of some ids, which are all different, in any order; of those that are gone, none."""

    @abstractmethod
    def _read_documents(self, ids: Sequence[str]) -> Iterable[Document]:
        """The documents of some ids, which are all different, in any order; of those that are gone, none."""

    def scan(self, start: int = 0, stop: int | None = None, *, batch_size: int = BATCH_SIZE) -> Iterator[Batch]:
        """The vectors of rows `start` to `stop` with their ids."""
        stop = self.info.count if stop is None else min(stop, self.info.count)
        for first in range(start, stop, batch_size):
            yield self._batch(self.ids(range(first, min(first + batch_size, stop))))

    def get(self, rows: NDArray[np.int64]) -> Batch:
        """The vectors and ids of some rows."""
        return self._batch(self.ids(np.asarray(rows, np.int64)))

    def documents(self, rows: NDArray[np.int64] | None = None) -> Iterator[Document]:
        """The documents of some rows, or of all."""
        if not self.info.has_texts:
            raise StoreError(f"{self.info.location}: the store holds no texts; {self.info.way_to_texts}")
        return self._documents(range(self.info.count) if rows is None else np.asarray(rows, np.int64))

    def find_documents(self, ids: Sequence[str]) -> dict[str, Document]:
        """The documents of some ids as they are now; of those that are gone, none."""
        return {document.id: document for document in self._read_documents(list(dict.fromkeys(ids)))}

    def find_vectors(self, ids: Sequence[str]) -> Batch:
        """The vectors of some ids, as they are now, in their order; raises `StoreError` where one is gone."""
        return self._batch(ids)

    def ids(self, rows: range | NDArray[np.int64]) -> list[str]:
        """The ids of some rows; nothing is asked of the database."""
        return self._index.ids(rows)

    def _documents(self, rows: range | NDArray[np.int64]) -> Iterator[Document]:
        for first in range(0, len(rows), _DOCUMENTS_AT_ONCE):
            ids = self.ids(rows[first : first + _DOCUMENTS_AT_ONCE])
            known = {document.id: document for document in self._read_documents(list(dict.fromkeys(ids)))}
            self._refuse_gone(ids, known)
            yield from (known[doc_id] for doc_id in ids)

    def _batch(self, ids: Sequence[str]) -> Batch:
        if not ids:
            return Batch([], np.empty((0, self.info.dim), np.float32))
        read = self._read_vectors(list(dict.fromkeys(ids)))
        if list(read.ids) == list(ids):
            return Batch(ids, np.ascontiguousarray(read.vectors, np.float32))
        places = {doc_id: place for place, doc_id in enumerate(read.ids)}
        self._refuse_gone(ids, places)
        return Batch(ids, np.ascontiguousarray(read.vectors[[places[doc_id] for doc_id in ids]], np.float32))

    def _refuse_gone(self, ids: Iterable[str], known: Collection[str]) -> None:
        gone = next((doc_id for doc_id in ids if doc_id not in known), None)
        if gone is not None:
            raise StoreError(
                f"{self.info.location}: expected document {gone!r}, found it gone; run again on a store at rest"
            )

    def check_unchanged(self, before: Snapshot) -> None:
        """Make sure that the store is still what it was; what came and went is told."""
        if self.is_as_opened() and self.snapshot() == before:
            return
        now = self._as_now()
        with TemporaryDirectory() as folder:
            index = IdIndex.build(Path(folder, "now.ids"), now._read_ids(), source=self.info.location)
            what = id_changes(self._index, index).sentence
        raise StoreError(
            f"{self.info.location}: the store changed while it was read ({what}); nothing was written, run again"
        )

    def _as_now(self) -> IndexedStore:
        """The store with what was written to it since it was opened: itself, but for one that reads a copy."""
        return self

    def _texts_sha256(self) -> str:
        """Read once a version: texts may be most of a database."""
        version = canonical_json(self._version())
        if self._texts is None or self._texts[0] != version:
            self._texts = version, super()._texts_sha256()
        return self._texts[1]

    def _versions(self) -> tuple[Any, ...]:
        return (self._index.sha256, self._opened_at)  # the ids are of then, and a copy is whole


class SearchableRecordStore(IndexedStore):
    """One whose database searches and replaces single vectors by itself: it is `Searchable` and `Updatable`."""

    @abstractmethod
    def _serve(self) -> Serving:
        """What searches the store and replaces vectors in it, by the kind's own client; asked for once, when needed."""

    @cached_property
    def _serving(self) -> Serving:
        return self._serve()

    def search(self, queries: Vectors, k: int, where: Any = None) -> list[Hits]:
        """See `Searchable`; `where` is as what `_serve` gives takes it."""
        return self._serving.search(queries, k, where)

    def put_vectors(self, ids: Sequence[str], vectors: Vectors) -> int:
        """See `Updatable`; a folder of Chroma or Qdrant is then in use by this process alone."""
        return self._serving.put_vectors(ids, vectors)


class WaitingWriter(StoreWriter):
    """Rows wait in a file until all are there; `load` then writes the store.

    Parameters
    ----------
    source
        The documents that the rows belong to.
    folder
        What becomes the output, or what lies beside it.
    """

    sorts: bool = True
    """Whether the new store is a `RecordStore`, whose rows are in the order of their ids."""

    def __init__(self, source: Store, folder: Path, dim: int, resume: Resume = FROM_THE_START) -> None:
        self.source = source
        self.folder = folder
        self._stays = resume.scratch is not None
        path = (resume.scratch or folder) / ".rows"
        require_room(path, (source.info.count - resume.rows) * dim * _FLOAT_BYTES)
        self.rows = RowFile(path, b"", dim, source.info.count, resume.finished)

    def finish(self) -> None:
        """Load the store with the rows."""
        self.rows.finish()
        self.load()
        if not self._stays:
            self.rows.path.unlink()

    @property
    def order(self) -> NDArray[np.int64] | None:
        """Of a source in another order than that of its ids, where the new store has that."""
        if not self.sorts or isinstance(self.source, RecordStore):
            return None
        keys = [doc_id.encode() for batch in self.batches() for doc_id in batch.ids]
        return np.array(sorted(range(len(keys)), key=keys.__getitem__), np.int64)

    @abstractmethod
    def load(self) -> None:
        """Write the store, durably, in the place of whatever an earlier call has left."""

    def vectors(self, rows: int | None = None) -> Iterator[tuple[int, Vectors]]:
        """All rows in order, some at a time, each part with its first row; memory is bounded."""
        at_once = rows or max(_PART_BYTES // self.rows.row_bytes, 1)
        with read_errors(self.rows.path), self.rows.path.open("rb") as file:
            for first in range(0, self.source.info.count, at_once):
                content = file.read(at_once * self.rows.row_bytes)
                yield first, np.frombuffer(content, "<f4").astype(np.float32, copy=False).reshape(-1, self.rows.dim)

    def vectors_at(self, rows: NDArray[np.int64]) -> Vectors:
        """Some rows, in any order, (len(rows), dim)."""
        path, size, order = self.rows.path, self.rows.row_bytes, np.argsort(rows)
        vectors, in_file = np.empty((len(rows), self.rows.dim), "<f4"), rows[order]
        starts = np.flatnonzero(np.diff(in_file, prepend=-2) != 1).tolist()
        with read_errors(path), path.open("rb") as file:
            for start, stop in pairwise([*starts, len(rows)]):  # a mapped file would count as memory
                part = np.empty((stop - start) * size, np.uint8)
                read_exactly(path, file.fileno(), part.data, int(in_file[start]) * size)
                vectors[order[start:stop]] = part.view("<f4").reshape(stop - start, -1)
        return vectors.astype(np.float32, copy=False)

    def batches(self) -> Iterator[Batch]:
        """All ids with their rows; of a source that is a `RecordStore`, no vector is read for that."""
        for first, vectors in self.vectors():
            rows = range(first, first + len(vectors))
            if isinstance(self.source, RecordStore):
                yield Batch(self.source.ids(rows), vectors)
            else:
                yield Batch(self.source.get(np.arange(rows.start, rows.stop)).ids, vectors)

    def records(self, at_once: int = _DOCUMENTS_AT_ONCE) -> Iterator[tuple[list[Document], Vectors]]:
        """All documents with their rows; the texts are empty where the source has none."""
        if isinstance(self.source, RecordStore) and self.source.without_vector:
            lacking = f"{self.source.without_vector:,} rows of the source have no vector: they are not in the new store"
            self.remarks = (*self.remarks, lacking)
        documents = self.source.documents() if self.source.info.has_texts else self._ids_alone()
        for _, vectors in self.vectors(at_once):
            yield list(islice(documents, len(vectors))), vectors

    def _ids_alone(self) -> Iterator[Document]:
        return (Document(doc_id, "") for batch in self.source.scan() for doc_id in batch.ids)


def read_metric(distance: Distance | None, sample: Vectors) -> tuple[Metric, tuple[str, ...]]:
    """How a store is searched that compares by `distance`, with a note where that is not the same.

    Cosine ranks vectors of unit length as the inner product does; `sample` are some of them, (n, dim).
    """
    if distance is None:
        return "ip", (_NO_DISTANCE,)
    if distance != "cosine":
        return distance, ()
    with np.errstate(over="ignore", invalid="ignore"):
        norms = np.sqrt(squared_norms(sample)) if len(sample) else np.ones(1, np.float32)
    is_unit = bool((np.abs(norms - 1) < UNIT_TOLERANCE).all())
    return "ip", () if is_unit else (_COSINE,)


def choose_text(location: str, columns: Sequence[str], asked: str | None) -> tuple[str | None, str]:
    """The column of texts among those that could be, and a note that says why.

    The one that is asked for; else the only one; else the only one with a usual name, see `TEXT_NAMES`.

    Raises
    ------
    StoreError
        The one that is asked for is not there.
    """
    if asked is not None:
        if asked not in columns:
            have = ", ".join(columns) or "none"
            raise StoreError(f"{location}: expected a column of texts {asked!r}, found {have}; name one of these")
        return asked, f"the texts are those of column {asked}, as the location says"
    usual = [name for name in TEXT_NAMES if name in columns]
    if usual:
        return usual[0], f"the texts are those of column {usual[0]}, by its name; say ?text=COLUMN for another"
    if len(columns) == 1:
        return columns[0], f"the texts are those of column {columns[0]}, the only one; say ?text=COLUMN for another"
    have = f"it could be {', '.join(columns)}" if columns else "no column holds texts"
    return None, f"{NO_TEXTS}{have}; say ?text=COLUMN for one"


def import_client(module: str, extra: str) -> ModuleType:
    """The client library of a kind.

    Raises
    ------
    UsageError
        It is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise UsageError(
            f"stores of the kind {extra} need the Python package {module}, which is not installed: "
            f"pip install 'lead-migrate[{extra}]'"
        ) from error


def check_options(location: str, options: Mapping[str, str], known: Collection[str]) -> None:
    """Make sure that a location has no option that means nothing; without `known` ones, that of a new store, none.

    Raises
    ------
    UsageError
        It has.
    """
    unknown = ", ".join(sorted(options.keys() - set(known)))
    if unknown and not known:
        raise UsageError(
            f"{location}: expected no options, as a new store of this kind takes none, found {unknown}; leave out what "
            "follows the ?"
        )
    if unknown:
        raise UsageError(
            f"{location}: expected options among {', '.join(sorted(known))}, found {unknown}; leave out what is not "
            "among these"
        )


def metadata_as_json(document: Document) -> str:
    """The metadata of a document as a JSON text; raises StoreError where it holds something else."""
    try:
        return json.dumps(dict(document.metadata), ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise StoreError(
            f"document {document.id!r}: expected metadata that JSON can hold, found other ({error})"
        ) from error
