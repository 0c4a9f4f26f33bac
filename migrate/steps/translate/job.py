"""From a store and a stitch to a translated store of the same kind: in shards, resumable, complete or absent."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from migrate.cost.meter import SpendingCap
from migrate.cost.spending import VIEW, PlannedModel
from migrate.display import notebook_html
from migrate.embed.rewrite import RewriteJob
from migrate.embedders.base import Embedder, other_dimension
from migrate.errors import StitchError, UsageError
from migrate.files import beside, real_path, refuse_overlap, refuse_unwritable, write_bytes
from migrate.manifest import Manifest, StoreFacts
from migrate.pace import keep_pace
from migrate.plugins import installed
from migrate.selection.choosers import choosers_of
from migrate.steps.base import Job, RunContext
from migrate.steps.opening import stitch_at, store_of
from migrate.steps.translate.options import TranslateOptions
from migrate.steps.translate.stitch import Refit, refit_of, target_of, with_metered_views
from migrate.stitch.fitted import DOCUMENT, FallbackUse, FittedStitch, require_direction
from migrate.stores import index_recall, open_store
from migrate.stores.base import Snapshot, Store, difference_from
from migrate.stores.confidence import (
    Uncovered,
    distrust_of,
    outside_of,
    read_confidence,
)
from migrate.stores.fields import field_of
from migrate.stores.file_store import check_files, state_of
from migrate.stores.outputs import Output
from migrate.stores.registry import output_of, path_in
from migrate.translate import translated_blocks
from migrate.vectors import Document, Progress
from migrate.work.jobs import OpenShards, Work
from migrate.work.outputs import rows_left, write_store
from migrate.work.shards import Block, Shard, shards_of
from migrate.work.writer import Arrays, Facts, make_shard

_FLOAT32_BYTES = 4
_PART_BYTES = 64 << 20
_LARGEST_WRITTEN = 4 << 30
"""Bytes of the largest part that is written where it is made: a minute's work, which is lost with the process."""

_FEWEST_READ = 32
"""Parts from which on many cores share them evenly, where texts are read."""

_LONGEST_READ = 1 << 17
"""Rows of the longest part whose texts are read where it is written: half a minute's work."""

_MANY_TEXTS = 20_000
"""Documents whose texts take longer to read than processes take to start."""


@dataclass(frozen=True, slots=True)
class Translation:
    """The result of a translation. `path` is the folder of the new store, or the location of one that lies in none.

    The recalls are recall@10 of the two indexes against exact search, None where search is exact; see
    `migrate.stores.index_recall`. `remarks` says what of the index could not be kept as it was;
    `outside` which documents the sample of the stitch does not cover; `distrust` why `confidence.npy` is not to be
    used, None where it is; `fallback` that the store has no texts, and what
    took the place of a stitch that reads them.
    """

    path: Path | str
    count: int
    source_dim: int
    target_dim: int
    n_true: int
    wall_s: float
    source_recall: float | None = None
    index_recall: float | None = None
    remarks: tuple[str, ...] = ()
    outside: Uncovered | None = None
    distrust: str | None = None
    fallback: FallbackUse | None = None

    def __repr__(self) -> str:
        summary = (
            f"{self.count:,} vectors, {self.source_dim} -> {self.target_dim} dimensions, {self.n_true:,} of them true"
        )
        return f"<Translation {self.path}: {summary}, in {self.wall_s:.1f} s>"

    def _repr_html_(self) -> str | None:
        return notebook_html(self)

    @property
    def vectors_per_s(self) -> float:
        """Rate over the whole translation."""
        # A coarse clock can measure nothing for a small store
        if not self.wall_s:
            return 0.0
        return self.count / self.wall_s


class StepEngine(Protocol):
    """A program that runs functions on many machines; see `migrate.engines`."""

    def check(self, job: TranslateJob) -> None:
        """Make sure that it can do the work."""
        ...

    def translate(self, job: TranslateJob) -> Translation:
        """Do the work."""
        ...


def engine_called(name: str) -> StepEngine:
    """Return the engine of `NAME:ADDRESS`; raises a UsageError where there is none, or it has no such address."""
    kind, _, address = name.partition(":")
    engines = installed("lead_migrate.engines")
    if kind not in engines:
        raise UsageError(f"there is no engine {kind!r}; name one of {', '.join(engines)}")
    engine: StepEngine = engines[kind].load()(address)
    return engine


@dataclass(frozen=True, kw_only=True, eq=False)
class TranslateJob(Job[Translation]):
    """A translation whose store and stitch are open.

    Attributes
    ----------
    fitted
        The stitch, whose models spend under the cap.
    output
        The new store, to be written; or the field of the store.
    refit
        The stitch that is to come of the budget; None where there is no budget.
    engine
        Who does the work; None for this machine.
    """

    options: TranslateOptions
    source: Store
    fitted: FittedStitch
    output: Output
    refit: Refit | None
    engine: StepEngine | None

    def execute(self) -> Translation:
        """Spend the budget where there is one, and translate."""
        if self.engine is not None:
            return self.engine.translate(self)
        return self.translate()

    def translate(self) -> Translation:
        """Spend the budget where there is one, and write the store here, by the stitch that came of it.

        Of a store without texts the fallback of a stitch that reads them takes the old vectors alone; the manifest says
        so.
        """
        fitted = self.fitted
        if self.refit is not None:
            fitted = _with_views(self.refit.execute(), fitted, self.cap)
        with keep_pace(self.options.pace):
            return write_translation(self.options, self.source, fitted, self.output, progress=self.context.progress)

    def check_source(self) -> bool:
        """Make sure that the stitch is for the store; True if it was fitted on this very one. Raises as `execute`."""
        source = self.source
        is_same = _check_fits(source, source.snapshot(), self.fitted, any_store=self.options.any_store)
        if not source.info.has_texts:
            self.fitted.without_texts(source=source.info.location)
        return is_same


def open_translation(options: TranslateOptions, context: RunContext) -> TranslateJob:
    """Open what a translation names, as it is by itself. Nothing is embedded."""
    fitted = stitch_at(required_stitch(options))
    target = None
    if options.target is not None or options.reembed is not None:
        target = target_of(options, fitted)
    return translate_job(options, store_of(options.store), fitted, target, context)


def required_stitch(options: TranslateOptions) -> FittedStitch | str | Path:
    """Return the stitch as it is named; raises a UsageError where none is."""
    if options.stitch is None:
        raise UsageError("no stitch is named; fit one, or cut vectors by --dimensions N")
    return options.stitch


def translate_job(
    options: TranslateOptions,
    source: Store,
    stitch: FittedStitch,
    target: Embedder | None,
    context: RunContext,
) -> TranslateJob:
    """Return the translation of what is open, after making sure that it goes together. Nothing is embedded.

    `target` is the model to re-embed with, or the one that was named.
    """
    fitted = with_metered_views(stitch, context.cap)
    output = output_for(options, source, context.progress)
    refit = None
    if options.reembed is not None and target is not None:
        refuse_outputs(options, output)
        refit = refit_of(options, source, fitted, target, refit_folder(options, output), context)
    elif target is not None:
        _check_target(target, fitted)
    output.require_free(force=options.force)
    models: list[PlannedModel] = []
    if fitted.reader is not None and fitted.reads_texts and source.info.has_texts:
        documents = partial(_documents_left, options, source, output)
        views = fitted.reader.models.values()
        models += [PlannedModel(view, context.cap, VIEW, documents=documents) for view in views]
    if refit is not None:
        models += refit.models()
    engine = None
    if options.engine is not None:
        engine = engine_called(options.engine)
    job = TranslateJob(
        options=options,
        context=context,
        models=tuple(models),
        source=source,
        fitted=fitted,
        output=output,
        refit=refit,
        engine=engine,
    )
    if engine is not None:
        engine.check(job)
    return job


def output_for(options: TranslateOptions, source: Store, progress: Progress) -> Output:
    """Return the new store, to be written; or the field of the store."""
    if options.output is None:
        return field_of(source, str(options.into), progress)
    return output_of(options.output)


def refit_folder(options: TranslateOptions, output: Output) -> Path:
    """Return the folder of the stitch that is fitted again."""
    if options.save_stitch is None:
        return output.sibling("stitch")
    return Path(options.save_stitch)


def refuse_output_in(options: TranslateOptions, output: Path | str) -> None:
    """Make sure that the output does not lie in what is read; raises a UsageError."""
    refuse_overlap(output_of(output).path, *paths_read(options))


def refuse_outputs(options: TranslateOptions, output: Output) -> None:
    """Make sure, before anything is spent, that the stitch and the store can be written."""
    folder = refit_folder(options, output)
    refuse_overlap(folder, *paths_read(options), output.path)
    # The new store is put in its place as a whole, and would take the stitch that was saved in it away
    stitch_folder = real_path(folder)
    if real_path(output.path) in (stitch_folder, *stitch_folder.parents):
        raise UsageError(f"{folder} lies in the new store; choose another `save_stitch`")
    output.require_free(force=options.force)
    refuse_unwritable(output.path)
    refuse_unwritable(folder)


def paths_read(options: TranslateOptions) -> list[Path]:
    """Return the files and folders that are read."""
    store = options.store
    named = [store.info.location if isinstance(store, Store) else store]
    if options.stitch is not None and not isinstance(options.stitch, FittedStitch):
        named.append(options.stitch)
    return [path for location in named if (path := path_in(location)) is not None]


def _check_target(target: Embedder, fitted: FittedStitch) -> None:
    """Make sure that a model that is named has vectors like those of the stitch; raises a VectorError."""
    profile = target.profile
    if profile.dim not in (None, fitted.dim):
        advice = "name the model that it was fitted for, or leave out `target=`"
        raise other_dimension(profile.spec, profile.dim, fitted.dim, "the stitch", advice)


def _documents_left(options: TranslateOptions, source: Store, output: Output) -> Iterator[Document]:
    """Return the documents that are still to be read, without those that an earlier run did."""
    if options.restart:
        return source.documents()
    return source.documents(rows_left(output.path, StoreTranslation.command, source.info.count))


def _with_views(refitted: FittedStitch, fitted: FittedStitch, cap: SpendingCap) -> FittedStitch:
    """Return a stitch as it was saved, with the views of `fitted` for those that it has loaded by itself."""
    if refitted.reader is None or fitted.reader is None:
        return with_metered_views(refitted, cap)
    models = {spec: fitted.reader.models.get(spec, view) for spec, view in refitted.reader.models.items()}
    return replace(refitted, reader=replace(refitted.reader, models=models))


def _check_fits(store: Store, fingerprint: Snapshot, fitted: FittedStitch, *, any_store: bool) -> bool:
    """Make sure that the stitch is for this store; return whether it was fitted on this very one."""
    require_direction(fitted.manifest, DOCUMENT, source=store.info.location)
    expected = fitted.manifest.stitch.fitted_on
    if expected["dim"] != store.info.dim:
        raise StitchError(
            f"{store.info.location}: the stitch expects vectors of dimension {expected['dim']}, and the store has "
            f"{store.info.dim}; fit a stitch for this store"
        )
    difference = difference_from(store, expected, fingerprint)
    if difference is not None and not any_store:
        raise StitchError(
            f"{store.info.location}: the stitch was fitted on another store ({difference}); fit again, or allow it "
            "with `any_store=True` if the model is the same"
        )
    return difference is None


@dataclass(eq=False)
class StoreTranslation(RewriteJob):
    """A store and the stitch that it is translated by; `patch` puts in the true vectors of the stitch's sample."""

    fitted: FittedStitch
    fallback: FallbackUse | None
    patch: bool

    stage = command = "translate"

    @property
    def dim(self) -> int:
        """The dimension of the target."""
        return self.fitted.dim

    @property
    def spreads(self) -> bool:
        """True where many texts are read, which NumPy cannot spread over cores."""
        return self.fitted.reads_texts and self.total >= _MANY_TEXTS

    def options(self) -> dict[str, Any]:
        """Return the stitch, whether its true vectors are put in, and the rows of a batch."""
        return {"stitch": self.fitted.digest(), "patch": self.patch, "rows per batch": self.rows}

    def shards(self, work: Work) -> Iterable[Shard]:
        """The parts of the new store; else of 64 MiB, or of one batch where texts are read, which takes seconds.

        Smaller shards begin anew with each part: batches of other rows differ in the last digits of their products.
        """
        batches = 1
        if not self.fitted.reads_texts:
            batch_bytes = _FLOAT32_BYTES * self.dim * self.rows
            batches = max(_PART_BYTES // batch_bytes, 1)
        rows = batches * self.rows
        parts = work.writer(self.dim).shards()
        if parts is None or not self._goes_by_parts(work, parts):
            return shards_of(self.total, rows)
        if self._takes_parts(work, parts):
            return parts
        return [shard for part in parts for shard in shards_of(len(part), rows, part.start)]

    def _goes_by_parts(self, work: Work, parts: Sequence[Shard]) -> bool:
        """Return whether batches are within parts; not where texts are read and that is slower."""
        if not self.fitted.reads_texts or not work.writer(self.dim).takes_room:
            return True
        is_paid = self.fitted.reader is not None and bool(self.fitted.reader.models)
        is_even = len(parts) >= _FEWEST_READ and max(map(len, parts)) <= _LONGEST_READ
        # Parts of less than a batch are slower
        fill_a_batch = len(parts) * self.rows <= self.total
        return is_even and not is_paid and fill_a_batch

    def _takes_parts(self, work: Work, parts: Sequence[Shard]) -> bool:
        """Return whether each part is a shard, which saves writing its vectors twice: as an earlier run has begun."""
        if len(work.shards):
            return set(work.shards) <= set(parts)
        largest_bytes = max(map(len, parts), default=0) * _FLOAT32_BYTES * self.dim
        return largest_bytes <= _LARGEST_WRITTEN

    def blocks(self, shard: Shard) -> Iterator[Block]:
        """Translate a shard."""
        return translated_blocks(self.store, self.fitted, self.rows, self.patch, shard)

    def opener(self, work: Work) -> OpenShards | None:
        """Return what translates shards in another process; None where that needs a further model in each."""
        fitted = self.fitted
        if fitted.reads_texts and fitted.reader is not None and fitted.reader.models:
            return None
        location = self.store.info.location
        # Each process opens the store for itself, by its location: open files and indexes are of one process
        return partial(_open_shards, location, fitted, self.rows, self.patch, self.output, work.content)

    def check_sources(self, work: Work) -> None:
        """Make sure that what was read is as it was, the vectors too; raises a StoreError."""
        self.check_vectors(work)
        super().check_sources(work)

    def conclude(self, work: Work, order: NDArray[np.int64] | None) -> tuple[Manifest, dict[str, Any]]:
        """Write the state of the model; return the manifest, and facts on the confidence."""
        for name, payload in self.fitted.state.items():
            write_bytes(beside(work.content) / name, payload)
        # Predictions never have a confidence of exactly 1
        true = (np.count_nonzero(work.shards.array(shard, "confidence") == 1) for shard in work.shards)
        n_true = int(sum(true))
        manifest = _manifest(self.store, self.before, self.fitted, self.fallback, n_true)
        return manifest, {"true": n_true, **self._confidence_facts(work, order)}

    def _confidence_facts(self, work: Work, order: NDArray[np.int64] | None) -> dict[str, Any]:
        """Return what `find_outside` and `distrust` find in the new store, before anybody opens it."""
        estimator = self.fitted.selection.confidence
        if estimator is None:
            return {"outside": None, "distrust": None}
        reason = distrust_of(estimator.spearman)
        if estimator.lowest is None or reason is not None:
            return {"outside": None, "distrust": reason}
        values = read_confidence(beside(work.content), self.total)
        if values is None:
            return {"outside": None, "distrust": None}

        def ids_of(rows: NDArray[np.int64]) -> Sequence[str]:
            # The confidence lies in the order of the new store, and ids are read from the source
            return self.store.get(rows if order is None else order[rows]).ids

        outside = outside_of(values, estimator.lowest, ids_of)
        return {"outside": asdict(outside), "distrust": None}


MakeJob: TypeAlias = Callable[[Store, Output, Snapshot, FittedStitch, "FallbackUse | None", bool], StoreTranslation]
"""Makes the job that writes a store; the last argument is whether the stitch was fitted on this very one."""


def write_translation(
    options: TranslateOptions,
    store: Store,
    fitted: FittedStitch,
    output: Output,
    make_job: MakeJob = StoreTranslation,
    *,
    progress: Progress,
) -> Translation:
    """Write a store as the stitch translates it."""
    started = time.perf_counter()
    check_files(store)
    snapshot = store.snapshot()
    begun = None
    if not options.restart:
        begun = output.begun_with(StoreTranslation.command)
    if begun is None:
        same_store = _check_fits(store, snapshot, fitted, any_store=options.any_store)
    else:
        # The vectors are made already, of the store as it was then
        same_store = bool(begun["options"]["patch"])
    fallback = None
    if not store.info.has_texts:
        fallback = fitted.fallback_use()
        fitted = fitted.without_texts(source=store.info.location)
    processes = options.workers
    if options.pace is not None:
        # Several would work in each other's rests
        processes = 1
    details = write_store(
        output,
        make_job(store, output, snapshot, fitted, fallback, same_store),
        processes=processes,
        force=options.force,
        restart=options.restart,
        progress=progress,
    )
    wall_s = time.perf_counter() - started
    outside = None
    if details["outside"] is not None:
        # JSON, in which the facts of a finished run lie, has no tuples
        outside = Uncovered(**{**details["outside"], "examples": tuple(details["outside"]["examples"])})
    return Translation(
        output.display_name,
        store.info.count,
        store.info.dim,
        fitted.dim,
        details["true"],
        wall_s,
        source_recall=index_recall(store),
        index_recall=details["recall"],
        remarks=(*details["remarks"], *output.remarks),
        outside=outside,
        distrust=details["distrust"],
        fallback=fallback,
    )


def _open_shards(
    location: str, fitted: FittedStitch, rows: int, patch: bool, output: Output, content: Path
) -> Callable[[Shard], tuple[Arrays, Facts]]:
    """Open the store and the writer, and return the function that makes a shard."""
    store = open_store(location)
    # A process opens the writer with its first shard, and keeps it for the others
    open_writer = lru_cache(1)(partial(output.writer, store, content))

    def make(shard: Shard) -> tuple[Arrays, Facts]:
        return make_shard(shard, translated_blocks(store, fitted, rows, patch, shard), open_writer)()

    return make


def _manifest(
    store: Store,
    fingerprint: Snapshot,
    fitted: FittedStitch,
    fallback: FallbackUse | None,
    n_true: int,
) -> Manifest:
    stitch = fitted.manifest
    lowest = None
    spearman = None
    confidence = fitted.selection.confidence
    if confidence is not None:
        lowest = confidence.lowest
        spearman = confidence.spearman
    details = StoreFacts(
        made_by="translate",
        stitch=fitted.stitch.spec,
        confidence_lowest=lowest,
        confidence_spearman=spearman,
        fallback=None if fallback is None else asdict(fallback),
        # What a store that was itself translated got by a log is better translated again.
        chosen_by=tuple(sorted(choosers_of(stitch, store.info.manifest))),
        source_state=state_of(store, fingerprint),
    )
    return Manifest(
        kind="store",
        model=stitch.model,
        source_model=stitch.source_model,
        seed=stitch.seed,
        inputs={"source rows": fingerprint.rows_sha256, **(stitch.stitch.files or {})},
        counts={"documents": store.info.count, "true vectors": n_true},
        details=details.as_details(),
    )
