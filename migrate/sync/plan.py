"""Brings a translated store up to date: true vectors for what was added or changed, the rest as it is."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from migrate.check.again import proof_documents, prove_model
from migrate.cost.meter import SpendingCap
from migrate.cost.spending import PlannedModel, SpendingPlan
from migrate.embed.corpus import AGAIN, Batches
from migrate.embed.reference import MADE_BY as REEMBEDDED
from migrate.embedders.base import Embedder
from migrate.embedders.prefix import whole_embedder, whole_model
from migrate.errors import InputError, StoreError, UsageError
from migrate.manifest import Manifest, StoreFacts, creation_date
from migrate.selection.sample import known_documents
from migrate.stores import open_store
from migrate.stores.all_true import note_content, with_content
from migrate.stores.base import Snapshot, Store
from migrate.stores.database import DatabaseStore
from migrate.stores.file_store import source_hashes, state_of, verify_files
from migrate.stores.outputs import Output
from migrate.stores.sources import check_all_vectors
from migrate.sync.changes import TRUE_VECTOR, ChangeCounts, Changes, find_changes
from migrate.sync.place import place_over, refuse_switched
from migrate.translate import batch_rows
from migrate.vectors import Document, Progress, Vectors, no_progress
from migrate.work.jobs import Configuration, StoreJob, Work
from migrate.work.outputs import rows_left, settle, write_store
from migrate.work.shards import Block, Shard, shards_of
from migrate.work.writer import StoreWriter

COMMAND: Final = "sync"
_MADE_BY: Final = ("translate", REEMBEDDED)
_LEAST_KEPT: Final = 0.5
"""Of the new store's documents; of another corpus it has next to none."""

_CODES: Final = (
    "the index keeps codes in the place of vectors: those that stay are coded again, from what the codes give; "
    "translate again once in a while"
)
_BY_TEXTS: Final = (
    "nothing beside the new store says which old vectors it was made from: documents whose text is the same count as "
    "unchanged, whatever became of their old vectors; from now on they are noted"
)


@dataclass(frozen=True, slots=True)
class Synced:
    """What a sync did: `counts` of what became of the old store, `n_true` of the `count` vectors are true ones.

    `written` says whether anything had to be written; `remarks` what could not be kept as it was, or not be compared.
    """

    path: Path | str
    counts: ChangeCounts
    count: int
    n_true: int
    written: bool
    wall_s: float
    remarks: tuple[str, ...] = ()

    def __repr__(self) -> str:
        counts = self.counts
        what = f"{counts.added:,} added, {counts.changed:,} changed, {counts.deleted:,} deleted"
        return f"<Synced {self.path}: {what if self.written else 'up to date'}, {self.count:,} vectors>"


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class SyncPlan(SpendingPlan[Synced]):
    """A sync that is still to be done. `changes` are those that it found; `is_current` says that there are none."""

    old: Store
    new: Store
    embedder: Embedder
    output: Output
    manifest: Manifest
    changes: Changes
    before: tuple[Snapshot, Snapshot]
    any_store: bool
    restart: bool

    @property
    def counts(self) -> ChangeCounts:
        """How many documents were added, changed and deleted."""
        return self.changes.counts

    @cached_property
    def is_current(self) -> bool:
        """Whether nothing is to be written; also not for what the old store has that is not compared."""
        counts = self.counts
        told = (counts.added, counts.changed, counts.metadata, counts.deleted)
        return not any(told) and self.manifest.store.source_state == state_of(self.old, self.before[0])

    @cached_property
    def remarks(self) -> tuple[str, ...]:
        """What could not be compared, and what a person might not expect."""
        found = [_BY_TEXTS] if self.changes.by_texts else []
        return (*found, *([] if self.new.info.exact else [_CODES]))

    @cached_property
    def models(self) -> tuple[PlannedModel, ...]:
        """The target model, for new and changed documents that an unfinished run has not embedded."""
        model = PlannedModel(self.embedder, self.cap, documents=self._documents, again=AGAIN, known=self._known)
        return (model,)

    def _known(self) -> list[Document]:
        return proof_documents(self.new, all_true=self._all_true) if self.counts.to_embed else []

    @property
    def _all_true(self) -> bool:
        return self.manifest.store.made_by == REEMBEDDED

    def _documents(self) -> Iterator[Document]:
        rows = np.flatnonzero(self.changes.rows == TRUE_VECTOR)
        if not self.restart:
            rows = np.intersect1d(rows, rows_left(self.output.path, COMMAND, self.old.info.count))
        return known_documents(self.old, rows)

    def execute(self, progress: Progress) -> Synced:
        """Embed what is new, and write the store anew, unless it is up to date."""
        started, plan = time.perf_counter(), self
        if not self.restart and settle(self.output.published, COMMAND, force=True):
            plan = self._again(progress)
        written = plan is not self
        if not plan.is_current:
            written = True
            if plan.counts.to_embed:
                prove_model(plan.new, plan.embedder, all_true=plan._all_true)
            job = _SyncJob(plan, progress)
            facts = write_store(plan.output.published, job, force=True, restart=plan.restart, progress=progress)
            if facts["true"] == job.total:
                note_content(plan.output.location)
            return plan._done(facts["true"], started, written, tuple(facts["remarks"]))
        n_true = (plan.changes.confidence == 1).sum()
        return replace(plan._done(int(n_true), started, written), counts=self.counts)

    def _again(self, progress: Progress) -> SyncPlan:
        """The same plan, after an earlier run was brought to its end."""
        new = open_store(self.new.info.location, verify=True)
        again = plan_sync(self.old, new, self.embedder, any_store=self.any_store, progress=progress)
        return replace(again, cap=self.cap, embedder=self.embedder)

    def _done(self, n_true: int, started: float, written: bool, remarks: tuple[str, ...] = ()) -> Synced:
        wall_s = time.perf_counter() - started
        remarks = (*self.remarks, *remarks) if written else ()
        return Synced(self.output.where, self.counts, self.old.info.count, n_true, written, wall_s, remarks)


def plan_sync(
    old: Store,
    new: Store,
    embedder: Embedder,
    *,
    price_usd_per_mtok: float | None = None,
    any_store: bool = False,
    restart: bool = False,
    progress: Progress = no_progress,
) -> SyncPlan:
    """Plan to bring `new`, which was translated from `old`, up to date with it. Both are read, nothing is embedded.

    Parameters
    ----------
    old
        The store as it is now.
    new
        What was translated, or re-embedded in full, from it as it was.
    embedder
        The model of the new store.
    price_usd_per_mtok
        Dollars for a million tokens; by default what is known of the model.
    any_store
        Allow an old store that has fewer than half of the new one's documents.
    restart
        Discard what an unfinished run has left.
    progress
        Called with a step, how much of it is done, and how much there is.

    Raises
    ------
    StoreError
        A store does not match its manifest; `new` was not made from `old`, or by another command; or only one of the
        two has texts.
    InputError
        Fewer than half of the new one's documents are left; or a document that needs a true vector has no text.
    UsageError
        The stores were switched; or the new one cannot be written as it is.
    VectorError
        The model's vectors are of another dimension.
    """
    verify_files(old)
    verify_files(new)
    refuse_switched(old, new)
    embedder = whole_embedder(embedder)
    manifest = _check_made(old, new, embedder)
    embedder.expect_dim(new.info.dim, new.info.location)
    output = place_over(old, new, manifest)
    before = old.snapshot(), new.snapshot()
    changes = find_changes(old, new, all_true=manifest.store.made_by == REEMBEDDED, progress=progress)
    if not any_store:
        _refuse_other_corpus(old, new, changes)
    _refuse_blank(old, embedder, changes)
    cap = SpendingCap()
    return SyncPlan(
        old=old,
        new=new,
        embedder=cap.meter(embedder, price_usd_per_mtok),
        output=output,
        manifest=manifest,
        changes=changes,
        before=before,
        any_store=any_store,
        restart=restart,
        cap=cap,
    )


def sync_store(
    old: Store,
    new: Store,
    embedder: Embedder,
    *,
    any_store: bool = False,
    restart: bool = False,
    progress: Progress = no_progress,
) -> Synced:
    """Bring `new` up to date with `old`, which it was translated from: as `plan_sync`, and run.

    Vectors of documents that did not change are kept to the bit; of those that were added or changed they are true
    ones. All else of a record is the old store's. The new store appears in the place of the one before in one step,
    where the kind has one. A run that broke off is continued.

    Raises
    ------
    OutputError, LockedError, RemoteError
        As `migrate.translate.translate_store`, and as the embedder.
    StoreError, InputError, UsageError, VectorError
        As `plan_sync`; or a store changed while it was read.
    """
    plan = plan_sync(old, new, embedder, any_store=any_store, restart=restart, progress=progress)
    return plan.run(progress=progress)


def _check_made(old: Store, new: Store, embedder: Embedder) -> Manifest:
    """The new store's manifest, after making sure that it says that the store was made from one like the old one."""
    location, manifest = new.info.location, new.info.manifest
    if location == old.info.location:
        raise UsageError(f"{location}: this is the old store itself; name the one that was translated from it")
    if manifest is None or manifest.store.made_by not in _MADE_BY:
        found = "one without a manifest" if manifest is None else f"one of {manifest.store.made_by or 'another hand'}"
        raise StoreError(
            f"{location}: expected a store that translate made from {old.info.location}, found {found}; is the order "
            "right? the old store comes first"
        )
    if manifest.model is None:
        raise StoreError(f"{location}: expected a store that names its model, found none; translate again")
    if whole_model(manifest.model) != embedder.identity:
        raise StoreError(
            f"{location}: the store was translated for {manifest.model.spec}, found {embedder.identity.spec} to embed "
            "with; name the store's own model, or translate again"
        )
    known, source = old.info.manifest, manifest.source_model
    old_model = None if known is None else known.model
    if old_model is None:
        return manifest
    if old_model.spec == manifest.model.spec or (source is not None and old_model.spec != source.spec):
        made_from = "a store of another model" if source is None else f"one of {source.spec}"
        raise StoreError(
            f"{old.info.location}: expected the store that {location} was made from, {made_from}, found one of "
            f"{old_model.spec}; is the order right? the old store comes first"
        )
    return manifest


def _refuse_other_corpus(old: Store, new: Store, changes: Changes) -> None:
    if changes.kept < _LEAST_KEPT * new.info.count:
        raise InputError(
            f"{old.info.location}: expected most of the {new.info.count:,} documents of {new.info.location}, found "
            f"{changes.kept:,} of them; name the store that it was translated from, or allow it with `any_store=True`"
        )


def _refuse_blank(old: Store, embedder: Embedder, changes: Changes) -> None:
    """Make sure, before anything is spent, that what needs a true vector can have one."""
    if not embedder.needs_texts or not changes.counts.to_embed:
        return
    if not old.info.has_texts:
        raise InputError(
            f"{old.info.location}: {changes.counts.to_embed:,} documents are new or changed, and the store holds no "
            "texts to embed; name their column, if it has one, or translate the store again"
        )
    blank = np.flatnonzero(changes.blank & (changes.rows == TRUE_VECTOR))
    if len(blank):
        (doc_id,) = old.ids(blank[:1])
        raise InputError(
            f"{old.info.location}: {len(blank):,} new or changed documents have no text, such as {doc_id!r}, and so no "
            "true vector; give them one, or translate the store again"
        )


class _SyncJob(StoreJob):
    """The documents of the old store, with vectors of the new one or true ones."""

    stage = COMMAND
    waits = True

    def __init__(self, plan: SyncPlan, progress: Progress) -> None:
        self.plan = plan
        self._progress = progress

    @property
    def total(self) -> int:
        """Documents of the old store."""
        return self.plan.old.info.count

    def configuration(self) -> Configuration:
        plan = self.plan
        rows = hashlib.sha256(plan.changes.rows.astype("<i8").tobytes()).hexdigest()
        options = {"model": plan.embedder.cache_scope("document"), "rows": rows, "rows per batch": self._rows}
        now = plan.old.snapshot(), plan.new.snapshot()
        source = {"old": now[0].as_json(), "new": now[1].as_json()}
        return Configuration(COMMAND, source, {**options, **plan.output.work_options})

    @property
    def _rows(self) -> int:
        return batch_rows(max(self.plan.old.info.dim, self.plan.new.info.dim))

    @property
    def dim(self) -> int:
        """That of the new store."""
        return self.plan.new.info.dim

    def writer(self, work: Work, dim: int) -> StoreWriter:
        return self.plan.output.writer(self.plan.old, work.content, dim)

    def begin(self, work: Work) -> None:
        left = np.zeros(self.total, bool)
        for shard in work.lacking(self.shards(work)):
            left[shard.start : shard.stop] = True
        rows = np.flatnonzero(left & (self.plan.changes.rows == TRUE_VECTOR))
        self._embedded = _embedded(self.plan, rows, self._progress)

    def shards(self, work: Work) -> Iterator[Shard]:
        return shards_of(self.total, self._rows)

    def blocks(self, shard: Shard) -> Iterator[Block]:
        """Shards come in order, as the embedded vectors do, which go on from one to the next."""
        changes, rows = self.plan.changes, slice(shard.start, shard.stop)
        vectors = self._vectors(shard.start, changes.rows[rows])
        yield Block({"vectors": vectors, "confidence": changes.confidence[rows], "sources": changes.checksums[rows]})

    def finish(self, work: Work, writer: StoreWriter) -> dict[str, Any]:
        plan = self.plan
        writer.finish(work.all_rows(self.dim))
        check_all_vectors(plan.old, partial(work.shards.all_values, "sources"))
        plan.old.check_unchanged(plan.before[0])
        plan.new.check_unchanged(plan.before[1])
        beside = StoreFacts(beside_sha256=work.write_values(writer.order)).as_details()
        plan.embedder.save_state(work.content)
        n_true = int((plan.changes.confidence == 1).sum())
        hashes = {**plan.output.facts(plan.old, work.content, writer.sha256), **beside}
        self._manifest(n_true, hashes).write(work.content)
        return {"true": n_true, "remarks": list(writer.remarks)}

    def _manifest(self, n_true: int, hashes: dict[str, Any]) -> Manifest:
        plan, was = self.plan, self.plan.manifest
        synced = {"at": creation_date(), **asdict(plan.counts)}
        facts = StoreFacts(source_state=state_of(plan.old, plan.before[0]), synced=synced)
        if was.store.made_by == REEMBEDDED:
            inputs = source_hashes(plan.old)
        else:
            inputs = {**was.inputs, "source rows": plan.before[0].rows_sha256}
        was = with_content(was, None)
        return replace(
            was,
            model=plan.embedder.identity if n_true == self.total else was.model,
            inputs=inputs,
            counts={**was.counts, "documents": self.total, "true vectors": n_true},
            details={**was.details, **facts.as_details(), **hashes},
            created=creation_date(),
        )

    def _vectors(self, start: int, rows: NDArray[np.int64]) -> Vectors:
        """What the new store has, and true vectors where that is nothing or no longer theirs, (n, dim)."""
        vectors = np.empty((len(rows), self.plan.new.info.dim), np.float32)
        is_kept = rows != TRUE_VECTOR
        if is_kept.any():
            vectors[is_kept] = _vectors_of(self.plan.new, rows[is_kept])
        places = np.flatnonzero(~is_kept)
        found = list(islice(self._embedded, len(places)))
        if [doc_id for doc_id, _ in found] != (self.plan.old.ids(places + start) if len(places) else []):
            raise StoreError(
                f"{self.plan.old.info.location}: expected the documents as they were compared, found others; nothing "
                "was written, run again on a store at rest"
            )
        for place, (_, vector) in zip(places, found, strict=True):
            vectors[place] = vector
        return vectors


def _embedded(plan: SyncPlan, rows: NDArray[np.int64], progress: Progress) -> Iterator[tuple[str, Vectors]]:
    """The ids of some rows with their true vectors, (dim,), embedded some at a time as they are asked for."""
    batches = Batches(
        plan.embedder,
        known_documents(plan.old, rows),
        _reporter(progress, len(rows)),
        source=plan.new.info.location,
    )
    for _ in batches.shards(0):
        documents, vectors = batches.next()
        yield from zip((document.id for document in documents), vectors, strict=True)


def _reporter(progress: Progress, total: int) -> Callable[[int], None]:
    return lambda done: progress("embed", done, total)


def _vectors_of(store: Store, rows: NDArray[np.int64]) -> Vectors:
    """The vectors of some rows; those of files that are near each other in one go, which leaves their ids unread."""
    first, count = int(rows.min()), int(np.ptp(rows)) + 1
    if isinstance(store, DatabaseStore) or count > 2 * len(rows):
        return store.get(rows).vectors
    batch = next(iter(store.scan(first, first + count, batch_size=count)))
    near: Vectors = batch.vectors[rows - first]
    return near
