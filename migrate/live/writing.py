"""Writers into a store that is being read: one by one into a database, by a new folder into files.

They write true vectors, and where the stitch was fitted again on these, the translations that are left. A folder is
written anew beside the old one, from the embedding cache, and takes its place in one step. Whoever has the old one open
goes on reading it.
"""

from __future__ import annotations

import filecmp
import os
import shutil
import stat
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from migrate.embedders.again import ASKED_AGAIN, needs_proof
from migrate.embedders.base import Embedder
from migrate.errors import StitchError, StoreError, UsageError
from migrate.files import is_endless, mounts_in, output_errors, output_lock, real_path, rename_folder, sync_path
from migrate.live.generation import generation_of, model_of
from migrate.live.options import WorkerOptions
from migrate.live.state import LiveState, text_hash
from migrate.manifest import StitchFacts
from migrate.selection.choosers import choosers_of
from migrate.selection.sample import MOST_PAIRS
from migrate.steps.reembed.fill import backfill_store
from migrate.steps.translate import Translate
from migrate.steps.translate.choice import Budget
from migrate.steps.translate.refit import extended, refit
from migrate.stitch.fitted import DOCUMENT, FittedStitch, input_dim, require_direction
from migrate.stitch.persistence import load_stitch
from migrate.stores.base import Store
from migrate.stores.database import DatabaseStore
from migrate.stores.file_store import FileStore, as_files
from migrate.stores.registry import absolute_location, open_store, path_in
from migrate.translate import batch_rows, translated_batches
from migrate.vectors import Document, Vectors


@dataclass(frozen=True)
class Renewal:
    """The source and the stitch of a translated store; at which `shares` of true vectors, 0-1, that is done again."""

    source: Store
    fitted: FittedStitch
    shares: tuple[float, ...]

    @classmethod
    def of(cls, options: WorkerOptions) -> Renewal | None:
        """Open the source and the stitch that the options name; None where they name none."""
        if options.stitch is None and options.source is None:
            return None
        if options.stitch is None or options.source is None:
            raise UsageError("--stitch and --source belong together: the stitch, and the store that it was fitted on")
        budgets = [Budget.parse(share_text) for share_text in options.refit_at.split(",")]
        if not all(budget.unit == "share" and 0 < budget.amount < 1 for budget in budgets):
            raise UsageError(
                f"--refit-at {options.refit_at}: these are not shares of the store between 0 and 100 %; write them "
                "such as 10%,30%"
            )
        source, stitch = open_store(absolute_location(options.source)), str(options.stitch)
        fitted = load_stitch(stitch)
        if fitted.reader is not None and any(
            view.profile.is_paid is not False for view in fitted.reader.models.values()
        ):
            raise UsageError(
                f"{stitch}: it reads vectors of a model that may cost money; `translate --reembed` fits it"
            )
        if not source.info.has_texts:
            raise StitchError(f"{source.info.location}: the source has no texts; name one with texts")
        return cls(source, fitted, tuple(sorted(budget.amount for budget in budgets)))

    def due(self, share: float, done: tuple[float, ...]) -> tuple[float, ...]:
        """Return the shares that are reached and were not acted on."""
        return tuple(share_due for share_due in self.shares if share_due <= share and share_due not in done)

    def require_of(self, store: Store) -> None:
        """Make sure, before anything is embedded, that the stitch leads from the source to the model of a store."""
        source, manifest, model = self.source.info, self.fitted.manifest, model_of(store)
        if source.location == store.info.location:
            raise UsageError(f"{source.location}: this is the translated store itself; name the one it was made from")
        require_direction(manifest, DOCUMENT, source=source.location)
        if manifest.model is None or manifest.model != model:
            target = "a model without a name" if manifest.model is None else manifest.model.spec
            raise StitchError(
                f"{store.info.location}: the stitch leads to {target}, the store is of {model.spec}; name the stitch "
                "that it was translated by"
            )
        if input_dim(manifest) != source.dim:
            raise StitchError(
                f"{source.location}: its vectors have {source.dim} dimensions, and the stitch takes "
                f"{input_dim(manifest)}; name the store that the stitch was fitted on"
            )

    def require_documents(self, store: Store, embedder: Embedder, texts: Mapping[str, bytes]) -> None:
        """Make sure, before any document is written, that source and stitch are of a store's documents and its model.

        `embedder` is the model of the store behind its cache, `texts` are as for `check`.
        """
        location, sample = self.source.info.location, self.fitted.sample
        if self._shared(texts) < len(self.texts) / 2:
            raise StitchError(
                f"{location}: its documents are not those of {store.info.location}; name the store that it was "
                "translated from, and its stitch"
            )
        documents = list(self.source.documents(_rows_of(self.source, sample.row_of)[:64]))
        true = dict(embedder.find(documents, "document"))
        if not true and needs_proof(embedder):
            true = dict(enumerate(embedder.embed_again(documents[:ASKED_AGAIN], "document")))
        same = [
            np.allclose(vector, sample.vectors[sample.row_of[documents[position].id]], atol=1e-3)
            for position, vector in true.items()
        ]
        if not documents or sum(same) < len(same) / 2:
            raise StitchError(
                f"{location}: the stitch was fitted on other documents; name the one that {store.info.location} was "
                "translated by"
            )

    def check(self, store: Store, texts: Mapping[str, bytes]) -> None:
        """Make sure that a store has the documents of the source: all of them in files, most of them in a database.

        `texts` are the hashes of the texts of its documents, by id.
        """
        count, is_in_files = len(self.texts), as_files(store) is not None
        if self._shared(texts) < (count if is_in_files else count / 2) or (is_in_files and len(texts) != count):
            raise StoreError(
                f"{store.info.location}: its documents are not those of {self.source.info.location} any more; the "
                "translations stay as they are"
            )

    def _shared(self, texts: Mapping[str, bytes]) -> int:
        return len(self.texts.items() & texts.items())

    @cached_property
    def texts(self) -> dict[str, bytes]:
        """The hashes of the texts of the source, by id."""
        return {document.id: text_hash(document.text) for document in self.source.documents()}

    def refitted(self, embedder: Embedder, *, seed: int) -> FittedStitch:
        """Return the stitch of all pairs that the cache has, up to as many as a fit takes."""
        sample, new_rows, documents_of = self.fitted.sample, list[int](), self.source.documents()
        for start in range(0, self.source.info.count, batch_rows(self.source.info.dim)):
            block = list(islice(documents_of, batch_rows(self.source.info.dim)))
            cached = embedder.find(block, "document")
            new_rows += [start + row for row in cached if block[row].id not in sample.row_of]
        chosen = np.sort(np.random.default_rng(seed).permutation(np.array(new_rows, dtype=np.int64))[:MOST_PAIRS])
        documents = list(self.source.documents(chosen))
        vectors: Vectors = embedder.embed_documents(documents)  # all of them from the cache
        pairs = extended(self.source, sample, documents, vectors)
        fitted = refit(self.source, self.fitted, pairs, _rows_of(self.source, pairs.row_of), seed=seed)
        choices = [choice for choice in embedder.choices(documents, "document") if choice is not None]
        chosen_by = choosers_of(fitted.manifest, self.fitted.manifest) | embedder.choosers(set(choices))
        stitch_facts = StitchFacts(chosen_by=tuple(sorted(chosen_by)))
        details = {**fitted.manifest.details, **stitch_facts.as_details()}
        return replace(fitted, manifest=replace(fitted.manifest, details=details))


def _rows_of(store: Store, ids: Container[str]) -> NDArray[np.int64]:
    """Return the rows of a store whose ids are among some, (n,)."""
    everyone = (doc_id for batch in store.scan() for doc_id in batch.ids)
    return np.array([row for row, doc_id in enumerate(everyone) if doc_id in ids], dtype=np.int64)


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

    @abstractmethod
    def renew(self, store: Store, renewal: Renewal, fitted: FittedStitch, texts: Mapping[str, bytes]) -> None:
        """Write the translations of documents, given by the hashes of their texts by id, that a stitch gives now."""


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

    def renew(self, store: Store, renewal: Renewal, fitted: FittedStitch, texts: Mapping[str, bytes]) -> None:
        """Write those whose texts are still the source's."""
        source = renewal.source
        for batch in translated_batches(source, fitted, batch_rows(source.info.dim), patch=False):
            rows = [row for row, doc_id in enumerate(batch.ids) if texts.get(doc_id) == renewal.texts[doc_id]]
            self.replace(store, {batch.ids[row]: texts[batch.ids[row]] for row in rows}, batch.vectors[rows])


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
        self._renewed: Path | None = None  # translated anew: what the next folder is made of
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
        if not self.waiting and self._renewed is None:
            return None
        with output_lock(self.folder):
            shutil.rmtree(self._next, ignore_errors=True)
            location = self.location if self._renewed is None else str(self._renewed)
            backfill_store(open_store(location), embedder, self._next, force=True, restart=True, prove=False)
            with output_errors(self.folder):
                _complete(self.folder, self._next)
                _keep_equal(self.folder, self._next)
                sync_path(self._next)
                shutil.rmtree(self._old, ignore_errors=True)
                rename_folder(self._next, self.folder, self._old, force=True)
                shutil.rmtree(self._old, ignore_errors=True)
            store = open_store(self.location)
            if self._renewed is not None:
                shutil.rmtree(self._renewed, ignore_errors=True)
                self._renewed = None
        new = {**true, **self.waiting}
        self.state.mark_true(new, generation=generation_of(store))
        self.state.count({"written_back": len(self.waiting)})
        self.waiting = {}
        self._published_at = time.monotonic()
        return store

    def renew(self, store: Store, renewal: Renewal, fitted: FittedStitch, texts: Mapping[str, bytes]) -> None:
        """Translate the whole source, which is published with what waits."""
        folder = self.state.path.parent / "renewed"
        shutil.rmtree(folder, ignore_errors=True)
        Translate(renewal.source, fitted, folder, force=True, restart=True).execute()
        self._renewed = folder


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
