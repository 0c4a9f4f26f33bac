"""A store that lies in files: its folder, its files, and the hashes that its manifest holds them against.

Not every store does. What needs files asks here, with `as_files` or one of the functions that rest on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from migrate.digests import BLAKE3, function_name, function_of, hash_bytes, hash_file, shown
from migrate.errors import OutputError, StoreError, UsageError
from migrate.files import FileStamp, atomic_file, canonical_json, output_errors, write_json
from migrate.manifest import MANIFEST_NAME, Manifest, StoreFacts, find_manifest
from migrate.stores.base import BATCH_SIZE, Companions, Snapshot, Store, StoreInfo, sampled_snapshot
from migrate.stores.binary_reader import RowFile, read_errors
from migrate.stores.documents.base import DocumentSource, LazyIds
from migrate.stores.documents.jsonl import DOCS_NAME
from migrate.stores.switching import BESIDE, Exchange, Folders, SwitchableStore, refuse_nested
from migrate.vectors import Batch, Document
from migrate.work.outputs import why_missing
from migrate.work.rows import Rows
from migrate.work.shards import ShardFolder
from migrate.work.writer import Complete, Written

INDEX_NAME = "index.faiss"
"""The index of a new store that has no predecessor in files; beside it is a `DOCS_NAME`."""

_STAMP = "stamp the store again (lead-migrate stamp --force)"


class FileStore(SwitchableStore):
    """A store in one folder: a file of vectors, and files of documents beside it or none.

    `index_path` is the file of vectors; the documents may lie in it too. `stamps` are of all files that the store is
    read from, as they were when it was opened.
    """

    stamps: tuple[FileStamp, ...] = ()
    named_fields: Mapping[str, str] = MappingProxyType({})
    """The fields of documents that its location names, which the manifest of a copy has to name."""
    mixes_vectors: bool = False
    """True if texts, metadata and vectors share files, so that a hash of the files does not tell which has changed."""

    def __init__(self, index_path: Path) -> None:
        self.index_path = index_path
        self._hashes: dict[tuple[FileStamp, str], str] = {}

    @property
    def folder(self) -> Path:
        """The folder that holds what is ours beside the store's files, such as its manifest."""
        return self.index_path.parent

    @property
    def added_column(self) -> str | None:
        """The column that its vectors are in, if it was added beside another; its manifest has no hash of files."""
        return None

    @property
    def document_files(self) -> tuple[str, ...]:
        """Paths within the folder of the files with the documents, the same in a translated store as in its source."""
        paths = (stamp.path.relative_to(self.index_path.parent).as_posix() for stamp in self.stamps)
        return tuple(path for path in dict.fromkeys(paths) if path != self.index_path.name)

    def document_hashes(self, function: str = BLAKE3) -> dict[str, str]:
        """Return the hash of each of `document_files`; of the file of vectors if the documents are in it."""
        names = self.document_files or ((self.index_path.name,) if self.info.has_texts else ())
        return {name: self.hash_of(name, function) for name in names}

    @property
    def companions(self) -> FileCompanions:
        """The manifest in the folder."""
        return FileCompanions(self)

    def exchange(self, new: Store) -> Exchange:
        """Return how the two folders trade places."""
        new_files = as_files(new)
        if new_files is None:
            raise UsageError(f"{new.info.location}: this store lies in no files; switch stores of one kind")
        refuse_nested(self.index_path.parent, new_files.index_path.parent)
        if new_files.index_path.name != self.index_path.name:
            raise UsageError(
                f"{new_files.index_path}: the file of the old store is called {self.index_path.name}, and programs "
                "that open it by that name would find none after the switch; rename this one"
            )
        return Folders.exchange(self.index_path.parent, new_files.index_path.parent)

    def strangers(self) -> list[str]:
        """Return files and folders that belong neither to the store nor to this tool."""
        expected = {self.index_path.name, *BESIDE, *(Path(name).parts[0] for name in self.document_files)}
        return sorted(path.name for path in self.index_path.parent.iterdir() if path.name not in expected)

    def is_as_opened(self) -> bool:
        """Return whether its files are those that were opened."""
        try:
            return all(FileStamp.of(stamp.path) == stamp for stamp in self.stamps)
        # A file that is gone is another one, too.
        except OutputError:
            return False

    def check_unchanged(self, earlier: Snapshot) -> None:
        """Make sure that files and content are still what they were when the snapshot was taken."""
        # First, as they name the file that changed, and nothing is read for them.
        for stamp in self.stamps:
            stamp.check()
        super().check_unchanged(earlier)

    def snapshot(self, function: str = BLAKE3) -> Snapshot:
        """Hash some rows, and by `function` the files with the texts."""
        return sampled_snapshot(self, document_files_hash(self, function), self.state())

    def state(self) -> tuple[Any, ...]:
        """Return names, sizes and times of its files, as they were when it was opened."""
        return tuple(sorted(stamp.signature for stamp in self.stamps))

    def hash_of(self, name: str, function: str) -> str:
        """Return the hash of a file in the folder, read again only if its stamp is another."""
        stamp = FileStamp.of(self.index_path.parent / name)
        if (stamp, function) not in self._hashes:
            with read_errors(stamp.path):
                self._hashes[stamp, function] = hash_file(stamp.path, function)
        return self._hashes[stamp, function]


class FileCompanions(Companions):
    """The manifest of a store in files, and their hashes in it; the folder `own` is made for it."""

    def __init__(self, store: FileStore, own: Path | None = None) -> None:
        self._store = store
        self._own = own

    def keep(self, manifest: Manifest) -> Path:
        """Write a manifest into the folder, over one that is there."""
        if self._own is not None:
            with output_errors(self._own):
                self._own.mkdir(exist_ok=True)
        path = self._store.folder / MANIFEST_NAME
        with atomic_file(path, force=True) as temporary:
            write_json(temporary, manifest.as_json())
        return path

    def verify(self) -> tuple[str, ...]:
        """Hold index and documents against the hashes in the manifest; the names of the files that it has one of.

        FAISS keeps no checksum: a bit that flipped among the vectors shows in nothing else. Reads the files whole, once
        for each store that is opened.

        Raises a StoreError where the bytes of a file are others or it is gone, an OutputError where one cannot be read.
        """
        store = self._store
        index = store.index_path.name
        files = {index, *store.document_files}
        expected = expected_hashes(store.info, index)
        return check_hashes(
            store.index_path.parent,
            expected,
            lambda name, function: store.hash_of(name, function) if name in files else None,
        )


class RowFileStore(FileStore):
    """A store whose vectors are the rows of one file, and whose documents are in it or beside it."""

    source: DocumentSource
    _file: RowFile

    def scan(self, start: int = 0, stop: int | None = None, *, batch_size: int = BATCH_SIZE) -> Iterator[Batch]:
        """Yield the vectors of rows `start` to `stop` with their ids; valid until the next batch is asked for."""
        for first, vectors in self._file.batches(batch_size, start, stop):
            rows = range(first, first + len(vectors))
            yield Batch(LazyIds(len(rows), partial(self.source.ids, rows)), vectors)

    def get(self, rows: NDArray[np.int64]) -> Batch:
        """Return the vectors and ids of some rows."""
        rows = np.asarray(rows, np.int64)
        return Batch(LazyIds(len(rows), partial(self.source.ids, rows)), self._file.take(rows))

    def ids(self, rows: range | NDArray[np.int64]) -> list[str]:
        """Return the ids of some rows."""
        return self.source.ids(rows)

    def documents(self, rows: NDArray[np.int64] | None = None) -> Iterator[Document]:
        """Return the documents of some rows, or of all."""
        return self.source.documents(range(self.info.count) if rows is None else np.asarray(rows, np.int64))


def only_file(folder: Path, files_in: Callable[[Path], Sequence[Path]], noun: str) -> Path:
    """Return the one file of a store in a folder; raises a StoreError where there is none, or more than one."""
    if not folder.is_dir():
        raise StoreError(f"{folder}: {why_missing(folder)}")
    files = files_in(folder)
    if len(files) != 1:
        names = ""
        if files:
            names = f" ({', '.join(file.name for file in files[:8])})"
        raise StoreError(f"{folder}: has {len(files)} {noun}{names}; give the file itself")
    return files[0]


def with_documents(documents: DocumentSource, folder: Path, remarks: tuple[str, ...] = ()) -> Complete:
    """Return what completes a store whose vectors are in `folder`, by writing the documents beside them."""

    def complete(_rows: Rows, _shards: ShardFolder) -> Written:
        documents.write(folder)
        return Written(remarks=remarks)

    return complete


def own_manifest(index: Path) -> tuple[Manifest | None, tuple[str, ...]]:
    """Return the manifest of an index, and a note where the one in the folder is of another."""
    manifest = find_manifest(index.parent, "store")
    # A folder has one manifest, and may have several indexes.
    if manifest is None or manifest.store.index == index.name:
        return manifest, ()
    return None, (f"the manifest in the folder is not of {index.name}; it is ignored",)


def as_files(store: Store) -> FileStore | None:
    """Return the store if it is in files, else None."""
    if not isinstance(store, FileStore):
        return None
    return store


def check_files(store: Store) -> tuple[str, ...]:
    """Hold a store against the hashes in its manifest, see `Companions.verify`; nothing where there is no manifest."""
    companions = store.companions
    if companions is None:
        return ()
    return companions.verify()


def index_is_verified(store: Store) -> bool:
    """Return whether the manifest has a hash of the store's vectors, and they have it; raises as `check_files`."""
    files = as_files(store)
    return files is not None and files.index_path.name in check_files(files)


def check_stamps(store: Store) -> None:
    """Make sure that no file of the store was written to since it was opened; raises as `FileStamp.check`."""
    files = as_files(store)
    for stamp in () if files is None else files.stamps:
        stamp.check()


def document_files_hash(files: FileStore, function: str) -> str | None:
    """Return a hash of the files with the documents, None if there are no texts."""
    if not files.info.has_texts:
        return None
    return hash_bytes("".join(files.document_hashes(function).values()).encode(), function=function)


def state_of(store: Store, snapshot: Snapshot, function: str = BLAKE3) -> str:
    """Return a hash that changes whenever anything but the vectors of a store may have changed.

    It is of the files of documents; for a database, or files that hold vectors too, it may change without a reason.
    """
    files = as_files(store)
    versions: list[Any] = list(snapshot.versions)
    if files is not None and not files.mixes_vectors:
        # Their content, as a folder that was copied has other times.
        versions = [document_files_hash(files, function)]
    return hash_bytes(canonical_json(versions).encode(errors="surrogatepass"), function=function)


def is_state_of(recorded: str | None, store: Store, snapshot: Snapshot) -> bool:
    """Return whether a store is in the state that a manifest recorded of it."""
    if recorded is None:
        return False
    return recorded == state_of(store, snapshot, function_of(recorded, f"{store.info.location}: the manifest"))


def source_hashes(store: Store) -> dict[str, str]:
    """Return the hashes of the files that documents were read from, and of the vectors beside them, for a manifest."""
    files = as_files(store)
    if files is None:
        documents = {}
    else:
        documents = files.document_hashes()
    return {"source rows": store.snapshot().rows_sha256, **documents}


HashFile = Callable[[Path], str]
"""The hash of a file: read from its beginning, or known because it was written a moment ago."""


def hash_written(store: Store, folder: Path, hash_of: HashFile = hash_file) -> dict[str, Any]:
    """Return the facts of a complete store in `folder`, of the kind of `store`, for its manifest."""
    files = as_files(store)
    if files is not None:
        hashes = hash_files(folder, files.index_path.name, files.document_files, hash_of)
        return {**hashes, **StoreFacts(fields=dict(files.named_fields) or None).as_details()}
    if not (folder / INDEX_NAME).is_file():
        return StoreFacts(index=store.info.opened_as).as_details()
    return hash_files(folder, INDEX_NAME, (DOCS_NAME,), hash_of)


def hash_files(folder: Path, index: str, documents: Iterable[str], hash_of: HashFile = hash_file) -> dict[str, Any]:
    """Return the hashes of the files of a complete store for its manifest, see `FileCompanions.verify`."""
    hashes = {name: hash_of(folder / name) for name in documents}
    return StoreFacts(index=index, index_hash=hash_of(folder / index), documents_hashes=hashes).as_details()


def check_hashes(
    folder: Path | str, expected: Mapping[str, str], hash_of: Callable[[str, str], str | None]
) -> tuple[str, ...]:
    """Hold files of a store against their hashes by name; returns the names. A StoreError where they differ.

    `hash_of` returns that of a file by a function, None where there is no such file.
    """
    for name, recorded in expected.items():
        actual = hash_of(name, function_of(recorded, f"{folder}/{name}: the manifest"))
        if actual is None:
            raise StoreError(
                f"{folder}/{name}: the manifest has the hash of this file, which is missing; copy it again, or, if "
                f"you removed it, {_STAMP}"
            )
        if actual != recorded:
            raise StoreError(
                f"{folder}/{name}: its {function_name(actual)} {shown(actual)} is not that of the manifest, "
                f"{shown(recorded)}; the file was damaged or replaced: copy it again, make the store again, "
                f"or, if you changed it, {_STAMP}"
            )
    return tuple(expected)


def expected_hashes(info: StoreInfo, index: str) -> dict[str, str]:
    """Return the hashes in a store's manifest by file; none if it is older than they are."""
    if info.manifest:
        recorded = info.manifest.store
    else:
        recorded = StoreFacts()
    if recorded.index_hash is None:
        hashes = {}
    else:
        hashes = {index: recorded.index_hash}
    return {**hashes, **(recorded.documents_hashes or {})}
