"""From a store and a stitch to a translated store of the same kind: streaming, continued, complete or absent."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from migrate.checkpoint.folder import Configuration, Work, make_folder, rows_done
from migrate.display import notebook_html
from migrate.errors import StitchError
from migrate.files import write_bytes
from migrate.manifest import Manifest
from migrate.selection.query_log import choosers_of, chosen_by
from migrate.stitch.fitted import DOCUMENT, FallbackUse, FittedStitch, TranslatedBatch, require_direction
from migrate.stores import index_recall, open_store
from migrate.stores.base import Resume, Snapshot, Store, StoreWriter
from migrate.stores.confidence import LOWEST, SPEARMAN, ConfidenceFile, Outside, distrust, find_outside
from migrate.stores.file_store import hash_written, verify_files
from migrate.vectors import Document, Progress, no_progress

COMMAND = "translate"
_BATCH_BYTES = 16 << 20
_PART_BYTES = 64 << 20
_FEWEST_ROWS = 256


@dataclass(frozen=True, slots=True)
class Translation:
    """What a translation did.

    The recalls are recall@10 of the two indexes against exact search, None where search is exact; see
    `migrate.stores.index_recall`. `remarks` says what of the index could not be kept as it was;
    `outside` which documents the sample of the stitch does not cover; `distrust` why `confidence.npy` is not to be
    used, None where it is; `fallback` that the store has no texts, and what
    took the place of a stitch that reads them.
    """

    path: Path
    count: int
    source_dim: int
    target_dim: int
    n_true: int
    wall_s: float
    source_recall: float | None = None
    index_recall: float | None = None
    remarks: tuple[str, ...] = ()
    outside: Outside | None = None
    distrust: str | None = None
    fallback: FallbackUse | None = None

    def __repr__(self) -> str:
        facts = (
            f"{self.count:,} vectors, {self.source_dim} -> {self.target_dim} dimensions, {self.n_true:,} of them true"
        )
        return f"<Translation {self.path}: {facts}, in {self.wall_s:.1f} s>"

    def _repr_html_(self) -> str | None:
        return notebook_html(self)

    @property
    def vectors_per_s(self) -> float:
        """Rate over the whole translation."""
        return self.count / self.wall_s if self.wall_s else 0.0


def batch_rows(dim: int) -> int:
    """Rows per batch of about 16 MiB, a power of two, so that memory is bounded whatever the dimension."""
    rows = max(_BATCH_BYTES // (4 * dim), _FEWEST_ROWS)
    return 1 << (rows.bit_length() - 1)


def documents_left(store: Store, output: Path, *, restart: bool = False) -> Iterator[Document]:
    """The documents that `translate_store` would still read into `output`, without those that an earlier run did."""
    done = 0 if restart else rows_done(output, COMMAND)
    return store.documents(np.arange(min(done, store.info.count), store.info.count))


def translate_store(
    store: Store,
    fitted: FittedStitch,
    output: Path,
    *,
    any_store: bool = False,
    force: bool = False,
    restart: bool = False,
    progress: Progress = no_progress,
) -> Translation:
    """Write `store`, translated, to the folder `output`; ids, order, texts, metric and format are kept.

    A run that broke off is continued after the last part that reached the disk, unless `restart` discards it; the
    bytes are those of a run that did not break off.

    With `any_store` the stitch may be used for a store that it was not fitted on (one that has grown, say, or whose
    texts have changed); the true vectors of its sample are then left out, as equal ids need not mean equal texts.

    Of a store without texts the fallback of a stitch that reads them takes the old vectors alone; the manifest says so.

    Raises
    ------
    StitchError
        The stitch was fitted for another store, for another dimension, or for queries; or it reads texts, has no
        fallback, and the store has none.
    VectorError
        A vector is zero or not finite, before or after.
    StoreError
        The store is unreadable, not the one of its manifest, changed while it was read, or is not the one that
        unfinished work was begun with.
    UsageError, OutputError, LockedError
        The output exists, cannot be written, or is being written by another run; or unfinished work was begun with
        other options.
    """
    started = time.perf_counter()
    verify_files(store)
    before = store.snapshot()
    same_store = _check_fits(store, before, fitted, any_store=any_store)
    fallback = fitted.fallback_use() if not store.info.has_texts else None
    fitted = fitted if store.info.has_texts else fitted.without_texts(source=str(store.info.location))
    rows = batch_rows(max(store.info.dim, fitted.dim))

    def configure() -> Configuration:
        options = {"stitch": fitted.digest(), "patch": same_store, "rows per batch": rows}
        return Configuration(COMMAND, store.snapshot().as_json(), options)

    def fill(work: Work) -> dict[str, Any]:
        work.total = store.info.count
        writer = store.destination(work.content, fitted.dim, Resume(work.rows, work.scratch))
        n_true = _translate_rows(store, fitted, work, writer, rows, patch=same_store, progress=progress)
        store.check_unchanged(before)
        for name, payload in fitted.state.items():
            write_bytes(work.content / name, payload)
        _manifest(store, before, fitted, fallback, n_true, work.content).write(work.content)
        return {"true": n_true, "recall": writer.recall, "remarks": list(writer.remarks)}

    facts = make_folder(output, configure, fill, force=force, restart=restart)
    wall_s = time.perf_counter() - started
    old_recall, recall = index_recall(store), facts["recall"]
    if recall is None and old_recall is not None:
        recall = index_recall(open_store(output))
    new = open_store(output)
    return Translation(
        output,
        store.info.count,
        store.info.dim,
        fitted.dim,
        facts["true"],
        wall_s,
        source_recall=old_recall,
        index_recall=recall,
        remarks=tuple(facts["remarks"]),
        outside=find_outside(new),
        distrust=distrust(new),
        fallback=fallback,
    )


def _check_fits(store: Store, fingerprint: Snapshot, fitted: FittedStitch, *, any_store: bool) -> bool:
    """Whether the stitch was fitted on this very store."""
    require_direction(fitted.manifest, DOCUMENT, source=str(store.info.location))
    expected = fitted.manifest.details["fingerprint"]
    if expected["dim"] != store.info.dim:
        raise StitchError(
            f"{store.info.location}: the stitch expects vectors of dimension {expected['dim']}, found "
            f"{store.info.dim}; fit a stitch for this store"
        )
    difference = fingerprint.difference(expected)
    if difference is not None and not any_store:
        raise StitchError(
            f"{store.info.location}: the stitch was fitted on another store ({difference}); fit again, or allow it "
            "with --any-store if the model is the same"
        )
    return difference is None


def _translate_rows(
    store: Store,
    fitted: FittedStitch,
    work: Work,
    writer: StoreWriter,
    rows: int,
    *,
    patch: bool,
    progress: Progress,
) -> int:
    """Stream the rows that are not there yet; returns how many of all got their true vectors.

    Parts are whole batches: a matrix product of other rows together may differ in the last digit.
    """
    part_batches = max(_PART_BYTES // (4 * fitted.dim * rows), 1)
    n_true: int = work.facts.get("true", 0)
    with work.recorder() as recorder, ConfidenceFile(work.content, store.info.count) as confidence:
        for number, done in enumerate(translated_batches(store, fitted, rows, start=work.rows, patch=patch), 1):
            progress("translate", writer.rows.rows, store.info.count)
            confidence.put(writer.rows.rows, done.confidence)
            writer.append(done)
            n_true += sum(doc_id in fitted.sample.row_of for doc_id in done.ids) if patch else 0
            if number % part_batches == 0:
                confidence.sync()
                recorder.record(writer.rows, {"true": n_true})
        confidence.sync()
        recorder.record(writer.rows, {"true": n_true})
    writer.finish()
    progress("translate", store.info.count, store.info.count)
    return n_true


def translated_batches(
    store: Store, fitted: FittedStitch, rows: int, *, start: int = 0, patch: bool = True
) -> Iterator[TranslatedBatch]:
    """The store's vectors from row `start` on after the stitch, `rows` at a time, each batch with its confidence.

    Raises
    ------
    VectorError
        A vector is zero or not finite, before or after.
    """
    texts = _texts(store, start) if fitted.reads_texts else None
    for batch in store.scan(start, batch_size=rows):
        words = list(islice(texts, len(batch))) if texts is not None else None
        yield fitted.translate(batch, words, source=str(store.info.location), patch=patch)


def _texts(store: Store, start: int) -> Iterator[str]:
    """The texts from a row on, in the store's order."""
    rows = None if start == 0 else np.arange(start, store.info.count)
    return (document.text for document in store.documents(rows))


def _manifest(
    store: Store,
    fingerprint: Snapshot,
    fitted: FittedStitch,
    fallback: FallbackUse | None,
    n_true: int,
    folder: Path,
) -> Manifest:
    stitch = fitted.manifest
    facts: dict[str, Any] = {"made by": "translate", "stitch": fitted.stitch.spec}
    if fitted.selection.confidence is not None:
        facts[LOWEST] = fitted.selection.confidence.lowest
        facts[SPEARMAN] = fitted.selection.confidence.spearman
    if fallback is not None:
        facts["fallback"] = asdict(fallback)
    # What a store that was itself translated got by a log is better translated again.
    facts |= chosen_by(choosers_of(stitch, store.info.manifest))
    return Manifest(
        kind="store",
        model=stitch.model,
        source_model=stitch.source_model,
        seed=stitch.seed,
        inputs={"source rows": fingerprint.rows_sha256, **stitch.details.get("files", {})},
        counts={"documents": store.info.count, "true vectors": n_true},
        details={**facts, **hash_written(store, folder)},
    )
