"""What every vector store offers, whatever its format: facts, vectors in batches, texts, a writer of the same kind."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from migrate.errors import StoreError
from migrate.files import FileStamp, sha256_file
from migrate.manifest import Manifest
from migrate.stores.binary_reader import read_errors
from migrate.stores.row_file import RowFile
from migrate.vectors import Batch, Document, Vectors

Metric = Literal["l2", "ip"]
"""How the index compares: squared Euclidean distance (less is nearer) or inner product (more is nearer)."""

BATCH_SIZE = 16_384
"""Rows per batch. Fixed boundaries keep float32 products bit-identical from run to run."""

INDEX_HASH = "index_sha256"
"""Detail of a store's manifest: the SHA-256 of its index."""

DOCUMENT_HASHES = "documents_sha256"
"""Detail of a store's manifest: the SHA-256 of each file that its documents are read from, by its path beside it."""

_FINGERPRINT_ROWS = 64
_TEXTS = "texts_sha256"
_STAMP = "stamp the store anew (lead-migrate stamp --force)"


@dataclass(frozen=True, slots=True)
class StoreInfo:
    """The facts of a store that can be told without reading its vectors.

    `index_type` is FAISS's class name, inner ones in brackets (`IndexIDMap2(IndexFlatL2)`); `exact` says whether the
    vectors read back are the ones that were added; `notes` are sentences for a person; `details` are the facts
    of the format (file names and sizes, `factory`, `nlist`, `hnsw_m` ...).
    """

    path: Path
    format: str
    index_type: str
    count: int
    dim: int
    metric: Metric
    exact: bool
    has_texts: bool
    manifest: Manifest | None = None
    notes: tuple[str, ...] = ()
    details: Mapping[str, str | int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Tells one store from another: shape, a SHA-256 over ids and vectors of rows spread over it, one over its texts.

    `texts_sha256` is over the whole files that the texts are read from; None for a store without texts.
    """

    count: int
    dim: int
    metric: Metric
    rows_sha256: str
    texts_sha256: str | None = None

    def difference(self, noted: Mapping[str, Any]) -> str | None:
        """What tells the store from the one that a manifest has noted, None where nothing does.

        Texts are compared where both have some: a stitch of before they were noted, or a store without, says nothing.
        """
        own = asdict(self)
        if any(own[name] != noted.get(name) for name in own if name != _TEXTS):
            return f"{noted.get('count')} vectors there, {self.count} here"
        texts = noted.get(_TEXTS)
        if None not in (texts, self.texts_sha256) and texts != self.texts_sha256:
            return "the same vectors, other texts"
        return None


@dataclass(frozen=True, slots=True)
class Resume:
    """Where a writer goes on that an earlier one, of the same store and dimension, has begun.

    `rows` rows are in their place already. `scratch` is a folder for what is needed only until the store is complete;
    what is in it stays. Without one it stands in the store's folder, and is gone at the end.
    """

    rows: int = 0
    scratch: Path | None = None


FROM_THE_START = Resume()


class StoreWriter(ABC):
    """Writes a store into a folder that exists and is nobody else's yet; rows are appended in order.

    `rows` is the file that they go to. `remarks` says what could not be kept as it was, and why. `recall` is, once
    finished, the recall@10 of an index that may keep less than the vectors it was given, against exact search over
    these; None for other indexes, which can be asked later.
    """

    rows: RowFile
    remarks: tuple[str, ...] = ()
    recall: float | None = None

    @abstractmethod
    def append(self, batch: Batch) -> None:
        """Add the next rows. The vectors are float32 of the writer's dimension."""

    @abstractmethod
    def finish(self) -> None:
        """Complete the store, durably.

        Raises
        ------
        StoreError
            Fewer or more rows were appended than the store has documents.
        """


class Store(ABC):
    """A vector store on disk, read without loss. Nothing here writes to the source."""

    info: StoreInfo
    stamps: tuple[FileStamp, ...] = ()
    """Of the files that it is read from, when it was opened."""

    def __repr__(self) -> str:
        info = self.info
        made = f", {info.manifest.model.spec}" if info.manifest and info.manifest.model else ""
        shape = f"{info.count:,} x {info.dim}"
        return f"<{type(self).__name__} {info.path}: {info.index_type}, {shape}, {info.metric}{made}>"

    @abstractmethod
    def batches(self, batch_size: int = BATCH_SIZE, *, start: int = 0) -> Iterator[Batch]:
        """All vectors from row `start` on with their ids, in the store's order, in bounded memory.

        Each batch's vectors are float32, C-contiguous, (n, dim), and valid until the next batch is asked for.
        Values are as stored: NaN, Inf and zero rows are the caller's to check (`migrate.vectors.check_vectors`).
        """

    @abstractmethod
    def take(self, rows: NDArray[np.int64]) -> Batch:
        """The vectors and ids of some rows, in the order of `rows` (positions in the order of `batches`)."""

    @abstractmethod
    def documents(self, rows: NDArray[np.int64] | None = None) -> Iterator[Document]:
        """The documents of some rows in the order of `rows`, or of all rows.

        Raises
        ------
        StoreError
            The store holds no texts.
        """

    @abstractmethod
    def writer(self, folder: Path, dim: int, resume: Resume = FROM_THE_START) -> StoreWriter:
        """A writer of a store of the same kind, with the same ids, texts and metric and vectors of dimension `dim`."""

    @property
    def folder(self) -> Path:
        """The folder that holds the store's files, and its manifest if there is one."""
        return self.info.path if self.info.path.is_dir() else self.info.path.parent

    def fingerprint(self) -> Fingerprint:
        """Hash up to 64 rows, evenly spread from the first to the last, and the texts."""
        info = self.info
        rows = np.unique(np.linspace(0, max(info.count - 1, 0), min(_FINGERPRINT_ROWS, info.count)).astype(np.int64))
        batch = self.take(rows)
        digest = hashlib.sha256()
        for doc_id, vector in zip(batch.ids, batch.vectors, strict=True):
            digest.update(f"{len(doc_id.encode())}:{doc_id}".encode())
            digest.update(vector.astype("<f4", copy=False).tobytes())
        hashes = "".join(self.document_hashes().values()) if info.has_texts else None
        texts = None if hashes is None else hashlib.sha256(hashes.encode()).hexdigest()
        return Fingerprint(info.count, info.dim, info.metric, digest.hexdigest(), texts)

    @property
    def document_files(self) -> tuple[str, ...]:
        """Where the documents are read from: paths within the folder, of a translated store as of its source."""
        paths = (stamp.path.relative_to(self.folder).as_posix() for stamp in self.stamps)
        return tuple(path for path in dict.fromkeys(paths) if path != self.info.details["index"])

    def document_hashes(self) -> dict[str, str]:
        """SHA-256 of each of `document_files`."""
        return {name: self._sha256(name) for name in self.document_files}

    def verify(self) -> tuple[str, ...]:
        """Hold index and documents against the hashes in the manifest; the names of the files that it has one of.

        FAISS keeps no checksum: a bit that flipped among the vectors shows in nothing else. Reads the files whole, once
        for each store that is opened.

        Raises
        ------
        StoreError
            The bytes of a file are others, or it is not there any more.
        OutputError
            A file cannot be read.
        """
        expected = _expected_hashes(self.info)
        gone = expected.keys() - {str(self.info.details["index"]), *self.document_files}
        if gone:
            raise StoreError(
                f"{self.folder / min(gone)}: expected the documents that the manifest has the hash of, found no such "
                f"file; copy it again, or, if that is meant, {_STAMP}"
            )
        for name, digest in expected.items():
            if (found := self._sha256(name)) != digest:
                what = "index was" if name == self.info.details["index"] else "documents were"
                raise StoreError(
                    f"{self.folder / name}: expected the SHA-256 of the manifest, {str(digest)[:12]}..., found "
                    f"{found[:12]}...; the {what} damaged or replaced: copy the file again, make the store again, or, "
                    f"if that is meant, {_STAMP}"
                )
        return tuple(expected)

    def _sha256(self, name: str) -> str:
        """The hash of a file in the folder, read again only if its stamp is another."""
        stamp = FileStamp.of(self.folder / name)
        if stamp not in self._hashes:
            with read_errors(stamp.path):
                self._hashes[stamp] = sha256_file(stamp.path)
        return self._hashes[stamp]

    @cached_property
    def _hashes(self) -> dict[FileStamp, str]:
        return {}

    def identity(self) -> dict[str, Any]:
        """What a later run can hold the store against, as JSON holds it: fingerprint, names, sizes and times."""
        return {"fingerprint": asdict(self.fingerprint()), "files": sorted(stamp.facts for stamp in self.stamps)}

    def check_unchanged(self, before: Fingerprint) -> None:
        """Make sure that the store is still what it was when it was opened and fingerprinted.

        Raises
        ------
        StoreError
            It is not.
        OutputError
            A file of it vanished.
        """
        for stamp in self.stamps:
            stamp.check()
        if self.fingerprint() != before:
            raise StoreError(f"{self.info.path}: the store changed while it was read; nothing was written, run again")


def hash_files(folder: Path, index: str, documents: Iterable[str]) -> dict[str, Any]:
    """What the manifest of a complete store says of its files, so that `Store.verify` knows them again."""
    hashes = {name: sha256_file(folder / name) for name in documents}
    return {"index": index, INDEX_HASH: sha256_file(folder / index), DOCUMENT_HASHES: hashes}


def _expected_hashes(info: StoreInfo) -> dict[str, str]:
    """The hashes in a store's manifest by file; none where it is older than they are."""
    details = info.manifest.details if info.manifest else {}
    documents = details.get(DOCUMENT_HASHES)
    index = {str(info.details["index"]): details[INDEX_HASH]} if INDEX_HASH in details else {}
    return {**index, **(documents if isinstance(documents, dict) else {})}


class NewStoreWriter(ABC):
    """Writes a store that has no predecessor: documents and vectors together. `rows` is the file of the vectors."""

    rows: RowFile

    @abstractmethod
    def keep(self, documents: Sequence[Document]) -> None:
        """Add the next documents of those whose vectors an earlier writer has left in their place."""

    @abstractmethod
    def append(self, documents: Sequence[Document], vectors: Vectors) -> None:
        """Add the next documents with their vectors, (len(documents), dim)."""

    @abstractmethod
    def finish(self) -> None:
        """Complete the store, durably.

        Raises
        ------
        StoreError
            Nothing was appended, or two documents share an id.
        """


def read_all(batches: Iterable[Batch]) -> Batch:
    """All batches as one; for stores known to fit into memory."""
    parts = [(list(batch.ids), batch.vectors.copy()) for batch in batches]
    ids = [doc_id for part, _ in parts for doc_id in part]
    return Batch(ids, np.concatenate([vectors for _, vectors in parts]))
