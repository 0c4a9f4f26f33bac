"""Brings a translated store up to date: true vectors for what was added or changed, the rest as it is."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from migrate.check.facts import require_model
from migrate.cost.spending import PlannedModel
from migrate.embed.corpus import AGAIN
from migrate.embed.patch import EmbeddingJob
from migrate.embed.reference import MADE_BY as REEMBEDDED
from migrate.embed.rewrite import TRUE_VECTOR
from migrate.embedders.abilities import needs_texts
from migrate.embedders.base import Embedder
from migrate.errors import InputError, StoreError, UsageError
from migrate.manifest import Manifest, StoreFacts, creation_date
from migrate.selection.model_match import claim_of_store, claim_of_true_rows, matches
from migrate.selection.sample import known_documents
from migrate.steps.base import Job, RunContext
from migrate.steps.opening import model_of, store_of
from migrate.steps.sync.changes import ChangeCounts, Changes, find_changes
from migrate.steps.sync.options import SyncOptions
from migrate.steps.sync.place import place_over, refuse_switched
from migrate.stores import open_store
from migrate.stores.added_fields import are_of_same_records, field_is_translated
from migrate.stores.all_true import TRUE, keeps_as_made, with_content
from migrate.stores.base import Snapshot, Store
from migrate.stores.file_store import check_files, is_state_of, source_hashes, state_of
from migrate.stores.outputs import Output
from migrate.vectors import Document, Text
from migrate.work.jobs import Work
from migrate.work.outputs import rows_left, settle, write_store

COMMAND: Final = "sync"

_LEAST_KEPT: Final = 0.5
"""Share of the new store's documents, 0-1, that the old one must still have; of another corpus it has next to none."""


@dataclass(frozen=True, slots=True)
class Synced:
    """The result of a sync: `counts` of what became of the old store; `n_true` of the `count` vectors are true ones.

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
        summary = "up to date"
        if self.written:
            summary = f"{counts.added:,} added, {counts.changed:,} changed, {counts.deleted:,} deleted"
        return f"<Synced {self.path}: {summary}, {self.count:,} vectors>"


@dataclass(frozen=True, kw_only=True, eq=False)
class SyncJob(Job[Synced]):
    """Both stores of a sync as they were compared, and what the new one is written with.

    Attributes
    ----------
    embedder
        The model of the new store, with a meter in it where it may cost money.
    snapshots
        The old store and the new one as they were read.
    is_current
        True where nothing is to be written; also not for what the old store has that is not compared.
    """

    options: SyncOptions
    old: Store
    new: Store
    embedder: Embedder
    output: Output
    manifest: Manifest
    changes: Changes
    snapshots: tuple[Snapshot, Snapshot]
    is_current: bool

    @property
    def remarks(self) -> tuple[str, ...]:
        """Notes of what could not be compared, and what a person might not expect."""
        remarks = []
        if self.changes.by_texts:
            remarks.append(
                "nothing beside the new store says which old vectors it was made from: documents whose text is the "
                "same count as unchanged, whatever became of their old vectors; from now on they are noted"
            )
        if not self.new.info.exact:
            remarks.append(
                "the index keeps codes instead of vectors: those that stay are coded again, from what the codes "
                "give; translate again once in a while"
            )
        return tuple(remarks)

    def execute(self) -> Synced:
        """Embed what is new, and write the store anew, unless it is up to date."""
        started = time.perf_counter()
        if not self.options.restart and settle(self.output, COMMAND, force=True):
            # An earlier run was brought to its end, and its store is compared anew
            new = open_store(self.new.info.location, verify=True)
            check_pair(self.old, new)
            compared = sync_job(self.options, self.old, new, self.embedder, self.context)
            if compared.is_current:
                # The changes that a person asked for are those that the earlier run has written
                return _synced(compared, self.changes.counts, compared.remarks, started, written=True)
            return _synced(compared, compared.changes.counts, _write(compared), started, written=True)
        if self.is_current:
            return _synced(self, self.changes.counts, (), started, written=False)
        return _synced(self, self.changes.counts, _write(self), started, written=True)


def open_sync(options: SyncOptions, context: RunContext) -> SyncJob:
    """Open what a sync names, as it is by itself, and compare the stores. Nothing is embedded."""
    old = store_of(options.old, verify=True)
    new = store_of(options.new, verify=True)
    # An old store in the place of the new one need not name a model, and is told to be in the wrong place
    check_pair(old, new)
    target = options.target
    # One that is given is held against the store after the order of the two is known to be right
    embedder = target if isinstance(target, Embedder) else model_of(new, target, "target")
    return sync_job(options, old, new, embedder, context)


def check_pair(old: Store, new: Store) -> None:
    """Make sure that both stores are as their manifests say, and neither beside the other nor in its place.

    Raises StoreError, UsageError: they are not.
    """
    check_files(old)
    check_files(new)
    if are_of_same_records(old, new):
        raise field_is_translated(old.info.location, new.info.location)
    refuse_switched(old, new)


def sync_job(options: SyncOptions, old: Store, new: Store, embedder: Embedder, context: RunContext) -> SyncJob:
    """Find what became of each document of the old store, after `check_pair`. Nothing is embedded."""
    manifest = _check_made(old, new, embedder)
    embedder.expect_dim(new.info.dim, new.info.location)
    output = place_over(old, new, manifest)
    snapshots = (old.snapshot(), new.snapshot())
    is_all_true = manifest.store.made_by == REEMBEDDED
    changes = find_changes(old, new, all_true=is_all_true, progress=context.progress)
    if not options.any_store:
        _refuse_other_corpus(old, new, changes)
    _refuse_blank(old, embedder, changes)
    metered = context.cap.meter(embedder, options.price)
    rows = np.flatnonzero(changes.rows == TRUE_VECTOR)

    def documents() -> Iterator[Document]:
        """Read what is to be embedded, without what an unfinished run has embedded."""
        if options.restart:
            return known_documents(old, rows)
        left = rows_left(output.path, COMMAND, old.info.count)
        return known_documents(old, np.intersect1d(rows, left))

    def proof() -> Sequence[Text]:
        """Draw texts whose vectors show that the model is the one of the new store."""
        if not changes.counts.to_embed:
            return ()
        return claim_of_true_rows(new, _true_rows(manifest, new)).texts

    counts = changes.counts
    differs = any((counts.added, counts.changed, counts.metadata, counts.deleted))
    return SyncJob(
        options=options,
        context=context,
        models=(PlannedModel(metered, context.cap, documents=documents, again=AGAIN, known=proof),),
        old=old,
        new=new,
        embedder=metered,
        output=output,
        manifest=manifest,
        changes=changes,
        snapshots=snapshots,
        is_current=not differs and is_state_of(manifest.store.source_state, old, snapshots[0]),
    )


def _true_rows(manifest: Manifest, new: Store) -> NDArray[np.int64] | None:
    """Return all rows of a full re-embed; None of another store, where what lies beside it says which are true."""
    if manifest.store.made_by != REEMBEDDED:
        return None
    return np.arange(new.info.count)


def _write(job: SyncJob) -> tuple[str, ...]:
    """Embed what is new, and write the store anew; return remarks on it."""
    changes = job.changes
    if changes.counts.to_embed:
        claim = claim_of_store(job.new, job.embedder, _true_rows(job.manifest, job.new))
        matches(claim, job.embedder, past_cache=True).require(job.new.info.location)
    is_kept = bool((changes.rows != TRUE_VECTOR).any())
    rewriting = _SyncedStore(
        job.old,
        job.output,
        job.snapshots[0],
        job.embedder,
        job.new,
        changes.rows,
        changes.confidence,
        changes.checksums,
        _manifest(job),
        changes.n_true == len(changes.rows) and keeps_as_made(job.new, is_kept=is_kept),
        job.context.progress,
        job.snapshots[1],
    )
    # `force`: the output is the new store itself, which is there
    details = write_store(job.output, rewriting, force=True, restart=job.options.restart, progress=job.context.progress)
    return (*job.remarks, *details["remarks"])


def _synced(job: SyncJob, counts: ChangeCounts, remarks: tuple[str, ...], started: float, *, written: bool) -> Synced:
    return Synced(
        job.output.display_name,
        counts,
        job.old.info.count,
        job.changes.n_true,
        written,
        time.perf_counter() - started,
        remarks,
    )


def _check_made(old: Store, new: Store, embedder: Embedder) -> Manifest:
    """Return the new store's manifest, after making sure that the store was made from one like the old one."""
    location = new.info.location
    manifest = new.info.manifest
    if location == old.info.location:
        raise UsageError(f"{location}: this is the old store itself; name the one that was translated from it")
    if manifest is None or manifest.store.made_by not in ("translate", REEMBEDDED):
        made_by = ""
        if manifest is not None:
            made_by = f" but by {manifest.store.made_by or 'another hand'}"
        raise StoreError(
            f"{location}: the store was not made by translate from {old.info.location}{made_by}; is the order right? "
            "the old store comes first"
        )
    if manifest.model is None:
        raise StoreError(f"{location}: the store does not name its model; translate again")
    require_model(location, manifest.model, embedder.identity)
    source = manifest.source_model
    old_model = old.info.recorded_model
    if old_model is None:
        return manifest
    is_same = (old_model.spec, old_model.dim) == (manifest.model.spec, manifest.model.dim)
    if is_same or (source is not None and old_model.spec != source.spec):
        made_from = "a store of another model" if source is None else f"one of {source.spec}"
        raise StoreError(
            f"{old.info.location}: the store is of {old_model.spec}, and {location} was made from {made_from}; is the "
            "order right? the old store comes first"
        )
    return manifest


def _refuse_other_corpus(old: Store, new: Store, changes: Changes) -> None:
    if changes.kept < _LEAST_KEPT * new.info.count:
        raise InputError(
            f"{old.info.location}: the store has {changes.kept:,} of the {new.info.count:,} documents of "
            f"{new.info.location}; name the store that it was translated from, or allow it with `any_store=True`"
        )


def _refuse_blank(old: Store, embedder: Embedder, changes: Changes) -> None:
    """Make sure, before anything is spent, that what needs a true vector can have one."""
    if not needs_texts(embedder) or not changes.counts.to_embed:
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


@dataclass(eq=False)
class _SyncedStore(EmbeddingJob):
    """The documents of the old store, with vectors of the new one, which was as in `kept_before`, or true ones."""

    kept_before: Snapshot

    stage = command = COMMAND

    def source(self) -> dict[str, Any]:
        return {"old": self.store.snapshot().as_json(), "new": self.kept.snapshot().as_json()}

    def check_sources(self, work: Work) -> None:
        self.check_vectors(work)
        super().check_sources(work)
        # Vectors were read from it until now, so it must not have changed either
        self.kept.check_unchanged(self.kept_before)


def _manifest(job: SyncJob) -> Manifest:
    """Return the manifest of the store as it will be, without hashes."""
    was = with_content(job.manifest, None)
    old = job.old
    n_true = job.changes.n_true
    synced = {"at": creation_date(), **asdict(job.changes.counts)}
    details = StoreFacts(source_state=state_of(old, job.snapshots[0]), synced=synced)
    if job.manifest.store.made_by == REEMBEDDED:
        inputs = source_hashes(old)
    else:
        inputs = {**was.inputs, "source rows": job.snapshots[0].rows_sha256}
    # With a last translated vector gone, the store is of the model as it is today
    model = job.embedder.identity if n_true == old.info.count else was.model
    return replace(
        was,
        model=model,
        inputs=inputs,
        counts={**was.counts, "documents": old.info.count, TRUE: n_true},
        details={**was.details, **details.as_details()},
        created=creation_date(),
    )
