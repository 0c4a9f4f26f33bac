"""Embedding that is planned first: a corpus into a new store, or a store in full."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from migrate.cost.meter import SpendingCap
from migrate.cost.spending import PlannedModel, SpendingPlan
from migrate.embed.corpus import AGAIN, Embedding, embed_corpus
from migrate.embed.corpus import documents_left as corpus_left
from migrate.embed.reference import documents_left as store_left
from migrate.embed.reference import is_reembedded, reembed_store
from migrate.embedders.base import Embedder
from migrate.stores.base import Store
from migrate.stores.registry import output_of
from migrate.vectors import Document, Progress


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class EmbedPlan(SpendingPlan[Embedding]):
    """Documents that are still to be embedded, `left`, and `embed`, which does it."""

    embedder: Embedder
    left: Callable[[], Iterable[Document]]
    embed: Callable[[Progress], Embedding]

    @cached_property
    def models(self) -> tuple[PlannedModel, ...]:
        """The model, for the documents that an unfinished run has not embedded."""
        return (PlannedModel(self.embedder, self.cap, documents=self.left, again=AGAIN),)

    def execute(self, progress: Progress) -> Embedding:
        """Embed them."""
        return self.embed(progress)


def plan_embed(
    read_documents: Callable[[], Iterable[Document]],
    embedder: Embedder,
    output: Path,
    *,
    price_usd_per_mtok: float | None = None,
    restart: bool = False,
    **options: Any,
) -> EmbedPlan:
    """Plan to build a new store from documents; `options` are those of `embed_corpus`. Nothing is embedded."""
    cap = SpendingCap()
    metered = cap.meter(embedder, price_usd_per_mtok)
    return EmbedPlan(
        embedder=metered,
        left=lambda: corpus_left(read_documents, output, restart=restart),
        embed=lambda progress: embed_corpus(
            read_documents, metered, output, restart=restart, progress=progress, **options
        ),
        cap=cap,
    )


def plan_reembed(
    store: Store,
    embedder: Embedder,
    output: Path | str,
    *,
    price_usd_per_mtok: float | None = None,
    force: bool = False,
    restart: bool = False,
    cap: SpendingCap | None = None,
) -> EmbedPlan:
    """Plan a full re-embed of a store into `output`, as `reembed_store` does it. Nothing is embedded.

    Where `output` is that re-embed already, nothing is left to do, unless `force` or `restart` says otherwise. `cap`
    is shared with other plans.
    """
    cap = cap or SpendingCap()
    if store.info.has_texts:
        embedder.fit(store.documents())
    metered = cap.meter(embedder, price_usd_per_mtok)
    is_done = not force and not restart and is_reembedded(store, embedder, output)

    def embed(progress: Progress) -> Embedding:
        if is_done:
            return Embedding(output_of(output).where, store.info.count, embedder.identity.dim)
        return reembed_store(store, metered, output, force=force, restart=restart, progress=progress)

    return EmbedPlan(
        embedder=metered,
        left=tuple if is_done else lambda: store_left(store, output, restart=restart),
        embed=embed,
        cap=cap,
    )
