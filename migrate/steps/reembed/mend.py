"""A store that is of two models, with the documents of the other one embedded anew: a file lists them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from migrate.check.rows import OtherRows, read_rows
from migrate.cost.spending import PlannedModel
from migrate.embed import Embedding
from migrate.embed.corpus import AGAIN
from migrate.embed.patch import EmbeddingJob
from migrate.embed.reference import MADE_BY
from migrate.embed.rewrite import TRUE_VECTOR
from migrate.embedders import load_known
from migrate.embedders.base import Embedder
from migrate.embedders.kinds import runs_code
from migrate.errors import UsageError
from migrate.files import refuse_overlap
from migrate.manifest import Manifest, StoreFacts
from migrate.selection.sample import known_documents
from migrate.steps.base import Job, RunContext
from migrate.steps.opening import store_of
from migrate.steps.reembed.options import ReembedOptions
from migrate.stores.all_true import TRUE
from migrate.stores.base import Store
from migrate.stores.file_store import check_files, source_hashes, state_of
from migrate.stores.registry import output_of, path_in
from migrate.vectors import Document
from migrate.work.jobs import Work
from migrate.work.outputs import rows_left, write_store

COMMAND = "reembed rows"


@dataclass(frozen=True, kw_only=True, eq=False)
class MendJob(Job[Embedding]):
    """A store, the documents to embed anew and their model, all open."""

    options: ReembedOptions
    source: Store
    embedder: Embedder
    others: OtherRows

    def execute(self) -> Embedding:
        """Embed the documents, and write the store anew."""
        source = self.source
        check_files(source)
        output = output_of(self.options.output)
        kept_rows = np.arange(source.info.count)
        kept_rows[self.others.rows] = TRUE_VECTOR
        confidence = np.ones(source.info.count, np.float32)
        manifest = Manifest(
            "store",
            model=self.embedder.identity,
            inputs=source_hashes(source),
            counts={"documents": source.info.count, TRUE: source.info.count - self.others.blank},
            # Every vector is the model's own by now, as after a full re-embed
            details=StoreFacts(made_by=MADE_BY, source_state=state_of(source, source.snapshot())).as_details(),
        )
        job = _MendedStore(
            source,
            output,
            source.snapshot(),
            self.embedder,
            source,
            kept_rows,
            confidence,
            None,
            manifest,
            not self.others.blank,
            self.context.progress,
        )
        details = write_store(
            output, job, force=self.options.force, restart=self.options.restart, progress=self.context.progress
        )
        return Embedding(
            output.display_name, source.info.count, source.info.dim, remarks=(*details["remarks"], *output.remarks)
        )


def open_mend(options: ReembedOptions, context: RunContext) -> MendJob:
    """Open the store, and the model that its file of rows names. Nothing is embedded."""
    source = store_of(options.store, verify=True)
    others = read_rows(Path(str(options.rows)))
    target = options.target
    if target is None and runs_code(others.model.spec):
        raise UsageError(
            f"{options.rows}: its model is {others.model.spec}, whose code is not run; name it with `target`"
        )
    if not isinstance(target, Embedder):
        target = load_known(target, others.model, state=source.folder)
    return mend_job(options, source, others, target, context)


def mend_job(
    options: ReembedOptions, source: Store, others: OtherRows, target: Embedder, context: RunContext
) -> MendJob:
    """Return the work of what is open, after making sure that it goes together. Nothing is embedded.

    Raises UsageError, StoreError: it does not, or nothing is to be done.
    """
    listed = str(options.rows)
    output = output_of(options.output)
    paths = [path for path in (path_in(source.info.location), Path(listed)) if path is not None]
    refuse_overlap(output.path, *paths)
    others.require(source, target.identity, source=listed)
    if not len(others.rows):
        raise UsageError(f"{listed}: lists no document, so {source.info.location} has nothing to mend")
    output.require_free(force=options.force)
    embedder = context.cap.meter(target, options.price)

    def documents() -> Iterator[Document]:
        rows = others.rows
        if not options.restart:
            rows = np.intersect1d(rows, rows_left(output.path, COMMAND, source.info.count))
        return known_documents(source, rows)

    return MendJob(
        options=options,
        context=context,
        models=(PlannedModel(embedder, context.cap, documents=documents, again=AGAIN),),
        source=source,
        embedder=embedder,
        others=others,
    )


class _MendedStore(EmbeddingJob):
    """A store with true vectors in the place of those of another model."""

    stage = command = COMMAND

    def check_sources(self, work: Work) -> None:
        # The vectors that were kept were read until now
        self.store.check_unchanged(self.before)
