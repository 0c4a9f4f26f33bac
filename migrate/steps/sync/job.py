"""Brings a translated store up to date: true vectors for what was added or changed, the rest as it is."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from migrate.check.facts import require_model
from migrate.embed.corpus import Batches
from migrate.embed.reference import MADE_BY as REEMBEDDED
from migrate.embed.rewrite import TRUE_VECTOR, PatchJob
from migrate.embedders.base import Embedder
from migrate.errors import InputError, StoreError, UsageError
from migrate.manifest import Manifest, StoreFacts, creation_date
from migrate.selection.matches import claim_of_store, claim_of_true_rows, matches
from migrate.selection.sample import known_documents
from migrate.steps.opening import model_of, store_of
from migrate.steps.sync.changes import ChangeCounts, Changes, find_changes
from migrate.steps.sync.options import SyncOptions
from migrate.steps.sync.place import place_over, refuse_switched
from migrate.stores import open_store
from migrate.stores.added_fields import field_is_translated
from migrate.stores.all_true import TRUE, keeps_as_made, with_content
from migrate.stores.base import Snapshot, Store
from migrate.stores.file_store import source_hashes, state_of
from migrate.stores.outputs import Output
from migrate.vectors import Document, Progress, Text, Vectors
from migrate.work.jobs import Work
from migrate.work.outputs import rows_left, settle, write_store

_LEAST_KEPT: Final = 0.5
"""Of the new store's documents; of another corpus it has next to none."""


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
        summary = f"{counts.added:,} added, {counts.changed:,} changed, {counts.deleted:,} deleted"
        return f"<Synced {self.path}: {summary if self.written else 'up to date'}, {self.count:,} vectors>"


@dataclass(frozen=True, eq=False)
class SyncInputs:
    """Both stores of a sync as they were compared, and what the new one is written with."""

    old: Store
    new: Store
    embedder: Embedder
    output: Output
    manifest: Manifest
    changes: Changes
    before: tuple[Snapshot, Snapshot]

    @cached_property
    def is_current(self) -> bool:
        """True where nothing is to be written; also not for what the old store has that is not compared."""
        counts = self.changes.counts
        differences = (counts.added, counts.changed, counts.metadata, counts.deleted)
        return not any(differences) and self.manifest.store.source_state == state_of(self.old, self.before[0])

    @cached_property
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

    @property
    def all_true(self) -> bool:
        """Return whether the new store is a full re-embed."""
        return self.manifest.store.made_by == REEMBEDDED

    @property
    def true_rows(self) -> NDArray[np.int64] | None:
        """The rows of the new store that hold true vectors; None where what lies beside it says which."""
        return np.arange(self.new.info.count) if self.all_true else None

    def known_texts(self) -> Sequence[Text]:
        """Return texts whose vectors prove that the model is the one of the new store."""
        return claim_of_true_rows(self.new, self.true_rows).texts if self.changes.counts.to_embed else ()

    def documents(self, *, restart: bool) -> Iterator[Document]:
        """Return the documents to embed, without those that an unfinished run has embedded."""
        rows = np.flatnonzero(self.changes.rows == TRUE_VECTOR)
        if not restart:
            rows = np.intersect1d(rows, rows_left(self.output.path, _SyncJob.command, self.old.info.count))
        return known_documents(self.old, rows)


def compare(options: SyncOptions) -> SyncInputs:
    """Read both stores of a sync and find what became of each document. Nothing is embedded."""
    old, new = store_of(options.old, verify=True), store_of(options.new, verify=True)
    old.verify()
    new.verify()
    if old.is_beside(new):
        raise field_is_translated(old.info.location, new.info.location)
    refuse_switched(old, new)
    # one that is given is held against the store after the order of the two is known to be right
    target = options.target
    embedder = target if isinstance(target, Embedder) else model_of(new, target, "target")
    manifest = _check_made(old, new, embedder)
    embedder.expect_dim(new.info.dim, new.info.location)
    output = place_over(old, new, manifest)
    snapshots = old.snapshot(), new.snapshot()
    changes = find_changes(old, new, all_true=manifest.store.made_by == REEMBEDDED, progress=options.progress)
    if not options.any_store:
        _refuse_other_corpus(old, new, changes)
    _refuse_blank(old, embedder, changes)
    return SyncInputs(old, new, options.cap.meter(embedder, options.price), output, manifest, changes, snapshots)


def sync(options: SyncOptions, comparison: SyncInputs) -> Synced:
    """Embed what is new, and write the store anew, unless it is up to date."""
    started = time.perf_counter()
    written = False
    counts = comparison.changes.counts
    if not options.restart and settle(comparison.output, _SyncJob.command, force=True):
        # an earlier run was brought to its end, and its store is compared anew
        new = open_store(comparison.new.info.location, verify=True)
        comparison = compare(replace(options, new=new, target=comparison.embedder))
        written = True
    remarks = tuple[str, ...]()
    if not comparison.is_current:
        counts, written = comparison.changes.counts, True
        if counts.to_embed:
            claim = claim_of_store(comparison.new, comparison.embedder, comparison.true_rows)
            matches(claim, comparison.embedder, past_cache=True).require(comparison.new.info.location)
        kept_rows, n_true = comparison.changes.rows, comparison.changes.n_true
        is_kept = bool((kept_rows != TRUE_VECTOR).any())
        job = _SyncJob(
            comparison.old,
            comparison.output,
            comparison.before[0],
            comparison.embedder,
            comparison.new,
            kept_rows,
            comparison.changes.confidence,
            comparison.changes.checksums,
            _manifest(comparison),
            n_true == len(kept_rows) and keeps_as_made(comparison.new, is_kept=is_kept),
            comparison.before[1],
            options.progress,
        )
        details = write_store(comparison.output, job, force=True, restart=options.restart, progress=options.progress)
        remarks = tuple(details["remarks"])
    remarks = (*comparison.remarks, *remarks) if written else ()
    wall_s = time.perf_counter() - started
    return Synced(
        comparison.output.display_name,
        counts,
        comparison.old.info.count,
        comparison.changes.n_true,
        written,
        wall_s,
        remarks,
    )


def _check_made(old: Store, new: Store, embedder: Embedder) -> Manifest:
    """Return the new store's manifest, after making sure that the store was made from one like the old one."""
    location, manifest = new.info.location, new.info.manifest
    if location == old.info.location:
        raise UsageError(f"{location}: this is the old store itself; name the one that was translated from it")
    if manifest is None or manifest.store.made_by not in ("translate", REEMBEDDED):
        made_by = "" if manifest is None else f" but by {manifest.store.made_by or 'another hand'}"
        raise StoreError(
            f"{location}: the store was not made by translate from {old.info.location}{made_by}; is the order right? "
            "the old store comes first"
        )
    if manifest.model is None:
        raise StoreError(f"{location}: the store does not name its model; translate again")
    require_model(location, manifest.model, embedder.identity)
    recorded, source = old.info.manifest, manifest.source_model
    old_model = None if recorded is None else recorded.model
    if old_model is None:
        return manifest
    if old_model.spec == manifest.model.spec or (source is not None and old_model.spec != source.spec):
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


@dataclass(eq=False)
class _SyncJob(PatchJob):
    """The documents of the old store, with vectors of the new one, which was as in `kept_before`, or true ones."""

    kept_before: Snapshot
    progress: Progress

    stage = command = "sync"
    waits = True

    def options(self) -> dict[str, Any]:
        rows = hashlib.sha256(self.kept_rows.astype("<i8").tobytes()).hexdigest()
        return {"model": self.embedder.cache_scope("document"), "rows": rows, "rows per batch": self.rows}

    def source(self) -> dict[str, Any]:
        return {"old": self.store.snapshot().as_json(), "new": self.kept.snapshot().as_json()}

    def begin(self, work: Work) -> None:
        is_left = np.zeros(self.total, bool)
        for shard in work.lacking(self.shards(work)):
            is_left[shard.start : shard.stop] = True
        self._embedded = self._embed(np.flatnonzero(is_left & (self.kept_rows == TRUE_VECTOR)))

    def _embed(self, rows: NDArray[np.int64]) -> Iterator[tuple[str, Vectors]]:
        """Yield the ids of some rows with their true vectors, (dim,), embedded some at a time as they are asked for."""

        def report(done: int) -> None:
            self.progress("embed", done, len(rows))

        documents = known_documents(self.store, rows)
        batches = Batches(self.embedder, documents, report, source=self.kept.info.location)
        for _ in batches.shards(0):
            batch, vectors = batches.next()
            yield from zip((document.id for document in batch), vectors, strict=True)

    def true_vectors(self, rows: NDArray[np.int64]) -> list[Vectors]:
        """Take the next embedded vectors, which go on from one shard to the next."""
        embedded = list(islice(self._embedded, len(rows)))
        if [doc_id for doc_id, _ in embedded] != self.store.ids(rows):
            raise StoreError(
                f"{self.store.info.location}: the documents changed after they were compared; nothing was written, "
                "stop what writes to it, and run again"
            )
        return [vector for _, vector in embedded]

    def check_sources(self, work: Work) -> None:
        self.check_vectors(work)
        super().check_sources(work)
        self.kept.check_unchanged(self.kept_before)


def _manifest(sync_inputs: SyncInputs) -> Manifest:
    """Return the manifest of the store as it will be, without hashes."""
    was, old, n_true = with_content(sync_inputs.manifest, None), sync_inputs.old, sync_inputs.changes.n_true
    synced = {"at": creation_date(), **asdict(sync_inputs.changes.counts)}
    details = StoreFacts(source_state=state_of(old, sync_inputs.before[0]), synced=synced)
    inputs = (
        source_hashes(old) if sync_inputs.all_true else {**was.inputs, "source rows": sync_inputs.before[0].rows_sha256}
    )
    return replace(
        was,
        model=sync_inputs.embedder.identity if n_true == old.info.count else was.model,
        inputs=inputs,
        counts={**was.counts, "documents": old.info.count, TRUE: n_true},
        details={**was.details, **details.as_details()},
        created=creation_date(),
    )
