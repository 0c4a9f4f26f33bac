"""Writers into a store that is being read: one by one into a database, by a new folder into files.

A folder is written anew beside the old one, from the embedding cache, and takes its place in one step. Whoever
has the old one open goes on reading it.
"""

from __future__ import annotations

import filecmp
import os
import shutil
import stat
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from migrate.embedders.base import Embedder
from migrate.errors import UsageError
from migrate.files import is_endless, mounts_in, output_errors, output_lock, real_path, rename_folder, sync_path
from migrate.live.generation import generation_of
from migrate.live.state import LiveState, text_hash
from migrate.steps.reembed.fill import backfill_store
from migrate.stores.base import Store
from migrate.stores.database import DatabaseStore
from migrate.stores.file_store import FileStore, as_files
from migrate.stores.joined.store import require_one
from migrate.stores.registry import open_store, path_in
from migrate.vectors import Document, Vectors


class VectorWriter(ABC):
    """A writer of true vectors into the store at a location, which notes in the state which documents have them.

    `waiting` are documents whose vectors are in the cache, but not in the store yet.
    """

    def __init__(self, location: str, state: LiveState) -> None:
        self.location, self.state = location, state
        self.waiting: dict[str, bytes] = {}

    @abstractmethod
    def put(self, store: Store, documents: Sequence[Document], vectors: Vectors) -> int:
        """Take the true vectors, (n, dim), of some documents; return for how many, as some may be gone."""

    def is_due(self, count: int) -> bool:
        """Tell if what waits is enough to be published, in a store of `count` documents."""
        return False

    def publish(self, embedder: Embedder, true: Mapping[str, bytes]) -> Store | None:
        """Bring what waits into the store; return the new store, None where nothing changed.

        `true` are the documents that had true vectors before, with the hashes of their texts.
        """
        return None


class RecordWriter(VectorWriter):
    """A writer into a database, whose records can be written one by one."""

    _written_to: weakref.ref[Store] | None = None  # a folder that its client locks is free with its store

    def put(self, store: Store, documents: Sequence[Document], vectors: Vectors) -> int:
        """Write them at once; first into the store, then into the state: a kill in between costs nothing."""
        hashes = {document.id: text_hash(document.text) for document in documents}
        ids = self.replace(store, hashes, vectors)
        self.state.mark_true({doc_id: hashes[doc_id] for doc_id in ids})
        self.state.count({"written_back": len(ids)})
        return len(ids)

    def replace(self, store: Store, hashes: Mapping[str, bytes], vectors: Vectors) -> list[str]:
        """Replace the vectors, (n, dim), of documents that still have texts of these `hashes`; return their ids."""
        assert isinstance(store, DatabaseStore)  # noqa: S101 - `writer_of` has seen to that
        is_own = self._written_to is not None and self._written_to() is store
        if store.is_copy and not is_own and not store.is_as_opened():
            return []  # what changed cannot be seen in it
        now = store.find_documents(list(hashes))
        rows = {doc_id: row for row, doc_id in enumerate(hashes) if doc_id in now}
        rows = {doc_id: row for doc_id, row in rows.items() if text_hash(now[doc_id].text) == hashes[doc_id]}
        ids = list(rows)
        store.put_vectors(ids, vectors[np.array(list(rows.values()), dtype=np.int64)])
        self._written_to = weakref.ref(store)
        return ids


class FolderWriter(VectorWriter):
    """A writer into files: all that waits comes by one new folder.

    It is due when a `share` of the documents, 0-1, waits, or something for so many `seconds`.
    """

    def __init__(self, files: FileStore, state: LiveState, *, share: float, seconds: float) -> None:
        location, folder = files.info.location, real_path(files.folder)
        super().__init__(location, state)
        self._share, self._seconds = share, seconds
        self._published_at = time.monotonic()
        named = path_in(location)
        if named is None or real_path(named) != folder:
            raise UsageError(
                f"{location}: this is a file, and true vectors come by a new folder; give the store a folder of its "
                "own, and name that"
            )
        _require_replaceable(folder)
        self.folder = folder
        self._next, self._old = (state.path.parent / name for name in ("next", "old"))

    def put(self, store: Store, documents: Sequence[Document], vectors: Vectors) -> int:
        """Let them wait; the cache has them."""
        self.waiting.update({document.id: text_hash(document.text) for document in documents})
        return len(documents)

    def is_due(self, count: int) -> bool:
        """Tell if so many wait, or for so long."""
        if not self.waiting:
            return False
        waited = time.monotonic() - self._published_at
        return len(self.waiting) >= max(self._share * count, 1) or waited >= self._seconds

    def publish(self, embedder: Embedder, true: Mapping[str, bytes]) -> Store | None:
        """Write the store with all that the cache has, and let it take the place of the old one."""
        if not self.waiting:
            return None
        with output_lock(self.folder):
            shutil.rmtree(self._next, ignore_errors=True)
            backfill_store(open_store(self.location), embedder, self._next, force=True, restart=True, prove=False)
            with output_errors(self.folder):
                _complete(self.folder, self._next)
                _keep_equal(self.folder, self._next)
                sync_path(self._next)
                shutil.rmtree(self._old, ignore_errors=True)
                rename_folder(self._next, self.folder, self._old, force=True)
                shutil.rmtree(self._old, ignore_errors=True)
            store = open_store(self.location)
        new = {**true, **self.waiting}
        self.state.mark_true(new, generation=generation_of(store))
        self.state.count({"written_back": len(self.waiting)})
        self.waiting = {}
        self._published_at = time.monotonic()
        return store


def _complete(old: Path, new: Path) -> None:
    """Copy what else lies in the old folder, such as files of the user's and the token of a switch.

    All that is in the new one then may be read by the same users as before; its texts need not be for everyone.
    """

    def passed_over(folder: str, names: list[str]) -> set[str]:
        target = new / Path(folder).relative_to(old)
        written = {name for name in names if os.path.lexists(target / name) and not (target / name).is_dir()}
        return written | {name for name in names if is_endless(Path(folder, name))}

    shutil.copytree(old, new, symlinks=True, ignore=passed_over, dirs_exist_ok=True)
    for path in sorted([new, *new.rglob("*")], reverse=True):  # what is in a folder first: it may be one to read alone
        replaced = old / path.relative_to(new)
        if path.is_symlink():
            continue
        if not replaced.exists():  # the store had no such file
            path.chmod(old.stat().st_mode & 0o666)
            continue
        status = replaced.stat()
        for owner in ((-1, status.st_gid), (status.st_uid, -1)):
            with suppress(PermissionError):  # only root may give files away
                os.chown(path, *owner)
        path.chmod(stat.S_IMODE(status.st_mode))


def _keep_equal(old: Path, new: Path) -> None:
    """Let files of the new folder be the very ones of the old folder, by a hard link, where they are equal.

    Texts are. Whoever has the old store open reads them through its path, and would not go on with those of a new file.
    """
    link = new / ".equal"
    for path in new.rglob("*"):
        old_path = old / path.relative_to(new)
        is_pair = path.is_file() and old_path.is_file() and not (path.is_symlink() or old_path.is_symlink())
        if is_pair and not path.samefile(old_path) and filecmp.cmp(path, old_path, shallow=False):
            with suppress(OSError):  # not every file system has links
                link.unlink(missing_ok=True)
                os.link(old_path, link)
                link.replace(path)


def _require_replaceable(folder: Path) -> None:
    """Make sure, before anything is paid for, that a new folder can have all that is in one, and take its place."""
    if mounts := mounts_in(folder):
        raise UsageError(
            f"{folder}: no new folder can come in the place of a mount point ({mounts[0]}); move the store into a "
            "folder of its own inside or beside it"
        )
    endless = next((path for path in sorted(folder.rglob("*")) if not path.is_symlink() and is_endless(path)), None)
    if endless is not None:
        raise UsageError(
            f"{folder}: {endless.relative_to(folder)} is a pipe, a socket or a device, which no new folder can have; "
            "move it away"
        )


def writer_of(store: Store, state: LiveState, *, share: float, seconds: float) -> VectorWriter:
    """Return the writer of a store's kind."""
    store = require_one(store)
    files = as_files(store)
    is_column = files is not None and files.added_column is not None
    if files is not None and not is_column:
        return FolderWriter(files, state, share=share, seconds=seconds)
    if isinstance(store, DatabaseStore):
        return RecordWriter(store.info.location, state)
    raise UsageError(
        f"{store.info.location}: {'added columns' if is_column else 'stores'} of the kind {store.info.kind} cannot be "
        "written to while they serve; use "
        "two-stage search and `backfill`"
    )
