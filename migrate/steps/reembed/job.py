"""A full re-embed, and a store with what the embedding cache has of it, once store and model are open."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from migrate.cost.spending import PlannedModel
from migrate.embed import Embedding, is_reembedded, reembed_store
from migrate.embed.corpus import AGAIN
from migrate.embed.reference import documents_left, finish_reembedded
from migrate.embedders.base import Embedder
from migrate.embedders.cache import cache_of
from migrate.errors import UsageError
from migrate.steps.base import Job, Result, RunContext
from migrate.steps.opening import model_at, model_of, store_of
from migrate.steps.reembed.fill import Backfill, backfill_store
from migrate.steps.reembed.options import ReembedOptions
from migrate.stores.base import Store
from migrate.stores.registry import output_of
from migrate.vectors import Document


@dataclass(frozen=True, kw_only=True, eq=False)
class _RewriteJob(Job[Result]):
    """A store that is written anew with vectors of a model; both are open."""

    options: ReembedOptions
    source: Store
    embedder: Embedder

    def write(self, write_store: Callable[..., Result]) -> Result:
        """Write the output by `reembed_store` or `backfill_store`, which take the same."""
        options = self.options
        return write_store(
            self.source,
            self.embedder,
            options.output,
            force=options.force,
            restart=options.restart,
            progress=self.context.progress,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class ReembedJob(_RewriteJob[Embedding]):
    """A full re-embed whose store and model are open; the output `is_done` where it is that re-embed already."""

    is_done: bool

    def execute(self) -> Embedding:
        """Embed all that is not embedded yet."""
        if self.is_done:
            finish_reembedded(self.options.output)
            name = output_of(self.options.output).display_name
            return Embedding(name, self.source.info.count, self.embedder.identity.dim)
        return self.write(reembed_store)


def open_reembed(options: ReembedOptions, context: RunContext) -> ReembedJob:
    """Open what a full re-embed names, as it is by itself. Nothing is embedded."""
    if options.target is None:
        raise UsageError("no model is named to embed with; add --target SPEC (`target` in Python)")
    return reembed_job(options, store_of(options.store, verify=True), model_at(options.target), context)


def reembed_job(options: ReembedOptions, source: Store, target: Embedder, context: RunContext) -> ReembedJob:
    """Return the full re-embed of what is open, after making sure that nothing else has the name of the output."""
    # Before it is asked for its identity, which a model that is made from the texts has only then
    if source.info.has_texts:
        target.fit(source.documents())
    embedder = context.cap.meter(target, options.price)
    is_done = not options.force and not options.restart and is_reembedded(source, embedder, options.output)
    # The same command again finds its own output there, which is no error
    if not is_done:
        output_of(options.output).require_free(force=options.force)
    documents = partial(_documents_left, options, source, is_done=is_done)
    model = PlannedModel(embedder, context.cap, documents=documents, again=AGAIN)
    return ReembedJob(
        options=options, context=context, models=(model,), source=source, embedder=embedder, is_done=is_done
    )


def _documents_left(options: ReembedOptions, source: Store, *, is_done: bool) -> Iterable[Document]:
    """Return the documents that a full re-embed would still embed."""
    if is_done:
        return ()
    return documents_left(source, options.output, restart=options.restart)


@dataclass(frozen=True, kw_only=True, eq=False)
class FillJob(_RewriteJob[Backfill]):
    """A store, and the model whose cache has true vectors of it; nothing is planned to be embedded."""

    def execute(self) -> Backfill:
        """Fill in what the cache has."""
        if cache_of(self.embedder) is None:
            raise UsageError(
                f"{self.source.info.location}: the vectors of {self.embedder.identity.spec} are in no cache; load the "
                "model with one (`migrate.load_embedder(SPEC, cache=FILE)`), or embed again without `from_cache`"
            )
        return self.write(backfill_store)


def open_fill(options: ReembedOptions, context: RunContext) -> FillJob:
    """Open what is to be filled in, as it is by itself. Nothing is embedded."""
    source = store_of(options.store, verify=True)
    embedder = model_of(source, options.target, "target")
    # No model is planned: but for a few texts as a proof, nothing is embedded
    return FillJob(options=options, context=context, models=(), source=source, embedder=embedder)
