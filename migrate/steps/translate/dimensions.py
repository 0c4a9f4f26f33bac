"""From a store to one of fewer dimensions of the same model: cut to the first ones, without a stitch or a model.

A model that was trained for it (Matryoshka, Kusupati et al. 2022) gives shorter vectors that are the first dimensions
of its own, scaled to unit length. So what is written are the model's own vectors, if those of the store are.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from migrate.check.facts import sampled_norms
from migrate.embed.rewrite import RewriteJob
from migrate.embedders import facts_of
from migrate.embedders.kinds import shortened, takes_dimensions
from migrate.errors import UsageError, VectorError
from migrate.manifest import Manifest, ModelIdentity, StoreFacts
from migrate.pace import keep_pace, with_rests
from migrate.selection.choosers import choosers_of
from migrate.steps.base import Job, RunContext
from migrate.steps.opening import store_of
from migrate.steps.translate.job import Translation, output_for
from migrate.steps.translate.options import TranslateOptions
from migrate.stores import index_recall
from migrate.stores.all_true import TRUE, note_content
from migrate.stores.base import Store
from migrate.stores.confidence import stored_confidence
from migrate.stores.file_store import check_files, state_of
from migrate.stores.old_checksums import vector_checksums
from migrate.stores.outputs import Output
from migrate.stores.serving import is_cosine
from migrate.vectors import UNIT_TOLERANCE, Batch, Vectors, check_vectors, first_dimensions
from migrate.work.jobs import Work
from migrate.work.outputs import write_store
from migrate.work.shards import Block, Shard


@dataclass(frozen=True, kw_only=True, eq=False)
class ShortenJob(Job[Translation]):
    """A store that is open, and the model of the new one.

    Attributes
    ----------
    is_unit
        Whether the new vectors are scaled to unit length.
    """

    options: TranslateOptions
    source: Store
    output: Output
    model: ModelIdentity
    is_unit: bool

    @property
    def remarks(self) -> tuple[str, ...]:
        """Notes of what is done to the vectors, and what is known of the model."""
        scaled = "as they are, which no cosine notices"
        if self.is_unit:
            scaled = "and scaled to unit length"
        cut = f"cut to the first {self.model.dim:,} of {self.source.info.dim:,} dimensions, {scaled}; nothing is fitted"
        return (cut, _training(self.model))

    def check_source(self) -> None:
        """Make sure that the store is the one of its manifest; raises a StoreError."""
        check_files(self.source)

    def execute(self) -> Translation:
        """Write the new store."""
        started = time.perf_counter()
        source = self.source
        check_files(source)
        job = _ShortenedStore(source, self.output, source.snapshot(), self.model, self.is_unit)
        with keep_pace(self.options.pace):
            details = write_store(
                self.output,
                job,
                processes=1,
                force=self.options.force,
                restart=self.options.restart,
                progress=self.context.progress,
            )
        return Translation(
            self.output.display_name,
            source.info.count,
            source.info.dim,
            self.model.dim,
            details["true"],
            time.perf_counter() - started,
            source_recall=index_recall(source),
            index_recall=details["recall"],
            remarks=(*self.remarks, *details["remarks"], *self.output.remarks),
        )


def open_shortening(options: TranslateOptions, context: RunContext) -> ShortenJob:
    """Open the store that is to be cut."""
    return shorten_job(options, store_of(options.store, verify=True), context)


def shorten_job(options: TranslateOptions, source: Store, context: RunContext) -> ShortenJob:
    """Return the cut of an open store, after making sure that its vectors can be cut and the output is free.

    Raises UsageError, StoreError, VectorError: they cannot be, or it is not.
    """
    dimensions = int(options.to_dimensions or 0)
    info = source.info
    model = info.recorded_model
    if model is None:
        raise UsageError(
            f"{info.location} does not say which model it was built with, and shorter vectors need the name of theirs; "
            f"record it with `lead-migrate stamp {info.location} --model SPEC`"
        )
    if not takes_dimensions(model.spec):
        raise UsageError(
            f"{info.location}: {model.spec} takes no dimensions=N, so that nothing would embed the queries of a "
            "shorter store; fit a stitch to another model"
        )
    if dimensions >= info.dim:
        raise UsageError(
            f"{info.location}: the store has {info.dim:,} dimensions, and {dimensions:,} are not fewer; give a number "
            f"from 1 to {info.dim - 1:,}"
        )
    norms = sampled_norms(source, options.seed)
    # Of codes only the model tells how long vectors were
    is_scaled = model.normalized and (not info.exact or is_cosine(info))
    is_unit = norms.is_unit or is_scaled
    if not is_unit and not is_cosine(info):
        raise VectorError(
            f"{info.location}: its vectors are {norms.minimum:.3g} to {norms.maximum:.3g} long, which counts in the "
            f"metric {info.metric}, and cutting them changes their lengths; embed again with "
            f"{model.spec},dimensions={dimensions}"
        )
    output = output_for(options, source, context.progress)
    output.require_free(force=options.force)
    return ShortenJob(
        options=options,
        context=context,
        models=(),
        source=source,
        output=output,
        model=shortened(model, dimensions),
        is_unit=is_unit,
    )


def _training(model: ModelIdentity) -> str:
    """Say whether the model was trained for such vectors, as far as the registry knows."""
    known = facts_of(model.spec, model.revision)
    if known is None:
        fact = f"whether {model.spec} was trained for shorter vectors is not known here"
    elif model.dim in known.shorter:
        return f"{known.name} was trained for {model.dim:,} dimensions; the audit tells what they cost"
    elif known.shorter:
        lengths = " or ".join(f"{length:,}" for length in known.shorter)
        fact = f"{known.name} was trained for shorter vectors, and is known to be used with {lengths} dimensions"
    else:
        fact = f"the registry lists no shorter vectors of {known.name}, which was probably not trained for them"
    return f"{fact}; the audit tells what {model.dim:,} dimensions cost"


@dataclass(eq=False)
class _ShortenedStore(RewriteJob):
    """A store, and its model with fewer dimensions; `is_unit` scales vectors to unit length."""

    model: ModelIdentity
    is_unit: bool

    stage = command = "translate"

    @property
    def dim(self) -> int:
        """The dimension of the new vectors."""
        return self.model.dim

    def options(self) -> Mapping[str, Any]:
        """Return the dimension, the lengths, and the rows of a batch."""
        return {"dimensions": self.dim, "unit length": self.is_unit, "rows per batch": self.rows}

    def begin(self, work: Work) -> None:
        """Read which vectors are the model's own."""
        self._confidence = _confidence_of(self.store)

    def blocks(self, shard: Shard) -> Iterator[Block]:
        """Cut the vectors of a shard."""
        return with_rests(self._blocks(shard))

    def _blocks(self, shard: Shard) -> Iterator[Block]:
        start = shard.start
        for batch in self.store.scan(shard.start, shard.stop, batch_size=self.rows):
            vectors = self._cut(batch)
            confidence = self._confidence[start : start + len(batch)]
            yield Block({"vectors": vectors, "confidence": confidence, "sources": vector_checksums(batch.vectors)})
            start += len(batch)

    def _cut(self, batch: Batch) -> Vectors:
        location = self.store.info.location
        squares = check_vectors(batch.ids, batch.vectors, source=location)
        if self.is_unit and self.store.info.exact and not is_cosine(self.store.info):
            # The lengths of a sample said that lengths tell nothing
            longest_error = np.abs(np.sqrt(squares.astype(np.float64)) - 1)
            worst = int(longest_error.argmax())
            if longest_error[worst] >= UNIT_TOLERANCE:
                raise VectorError(
                    f"{location}: the vector of {batch.ids[worst]!r} is {np.sqrt(squares[worst]):.3g} long among "
                    "others of unit length, and scaling it would change what it finds; embed it again"
                )
        vectors = first_dimensions(batch.vectors, self.dim, is_unit=self.is_unit)
        check_vectors(batch.ids, vectors, source=f"{location}, cut to {self.dim:,} dimensions")
        return vectors

    def check_sources(self, work: Work) -> None:
        """Make sure that what was read is as it was, the vectors too; raises a StoreError."""
        self.check_vectors(work)
        super().check_sources(work)

    def conclude(self, work: Work, _order: NDArray[np.int64] | None) -> tuple[Manifest, dict[str, Any]]:
        """Return the manifest, and how many vectors are the model's own."""
        store = self.store
        n_true = int(np.count_nonzero(_confidence_of(store) == 1))
        details = StoreFacts(
            made_by="translate",
            chosen_by=tuple(sorted(choosers_of(store.info.manifest))),
            source_state=state_of(store, self.before),
        )
        manifest = Manifest(
            "store",
            model=self.model,
            source_model=store.info.recorded_model,
            inputs={"source rows": self.before.rows_sha256},
            counts={"documents": store.info.count, TRUE: n_true},
            details=details.as_details(),
        )
        return manifest, {"true": n_true}

    def note_published(self) -> None:
        """Note what the store holds, which `switch` compares with its report."""
        note_content(self.output.location)


def _confidence_of(store: Store) -> Vectors:
    """Return the confidence of each new vector, (count,): that of the old one, 1 for a model's own."""
    recorded = stored_confidence(store)
    if recorded is not None:
        return recorded
    manifest = store.info.manifest
    is_translated = manifest is not None and manifest.store.made_by == "translate"
    if is_translated or not store.info.exact:
        return np.full(store.info.count, np.nan, np.float32)
    return np.ones(store.info.count, np.float32)
