"""Reembed: a store with the new model, all of it, a share, or what the embedding cache has of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from migrate.errors import UsageError
from migrate.steps.base import (
    FORCE,
    PRICE,
    RESTART,
    SEED,
    PaidStep,
    argument,
    function,
    option,
    parameter,
    step_like,
)
from migrate.steps.fit.options import TARGET
from migrate.steps.translate import Translate
from migrate.steps.translate.options import LOG, OUTPUT, POLICY, SAVE_STITCH

if TYPE_CHECKING:
    from migrate.cost.spending import PlannedModel
    from migrate.embed import Embedding
    from migrate.embedders.base import Embedder
    from migrate.steps.base import ModelLike, StoreLike
    from migrate.steps.reembed.fill import Backfill
    from migrate.steps.translate.choice import Budget
    from migrate.steps.translate.job import Translation
    from migrate.stitch.fitted import FittedStitch
    from migrate.stores.base import Store
    from migrate.vectors import Document, Query

_SHARE: Mapping[str, Any] = {"section": "A share"}


@dataclass(frozen=True, eq=False)
class Reembed(PaidStep["Embedding | Translation | Backfill"]):
    """Embed a whole store with the target model into a new one of the same kind; or a share of it, as a translation.

    The output appears when it is complete; a run that broke off is continued. Every vector of a whole store is the
    model's own. Of a share, the documents that matter most get theirs, and a stitch translates the others. With
    `from_cache` a translated store gets those that the embedding cache has, and keeps its other vectors.

    Raises
    ------
    StoreError
        The store has no texts, and the model reads them; or it is not the one of its manifest.
    UsageError
        A share without a stitch, or a stitch without a share; or the output exists.
    OutputError, LockedError, RemoteError, InputError, SpendingError
        The output cannot be written, or is being written; the model fails, or costs more than `max_cost`.

    Examples
    --------
    >>> import migrate
    >>> migrate.reembed("my-store", "tfidf:24", "new-store")
    <Embedding new-store: 150 vectors of dimension 24>
    """

    store: StoreLike = field(metadata=argument("A store, or its path. It may be a translated one.", "store"))
    target: ModelLike | None = field(metadata={**TARGET, "required": False})
    output: str | Path = field(metadata=OUTPUT)
    _: KW_ONLY
    from_cache: bool = field(
        default=False,
        metadata=option(
            "Take what the embedding cache has of the texts, and embed nothing; --target is by default STORE's own."
        ),
    )
    share: Budget | str | None = field(
        default=None,
        metadata=option(
            "Part of the store to embed, the sample of --stitch included; the stitch, fitted again on all of it, "
            "translates the rest.",
            "text",
            metavar="30%|5000|$20|300000tok",
            **_SHARE,
        ),
    )
    stitch: FittedStitch | str | Path | None = field(
        default=None, metadata=option("Stitch for the rest, fitted on STORE.", "stitch", metavar="STITCH", **_SHARE)
    )
    policy: str | None = field(default=None, metadata={**POLICY, **_SHARE})
    query_log: Path | str | Sequence[Query] | None = field(default=None, metadata={**LOG, **_SHARE})
    save_stitch: Path | str | None = field(default=None, metadata=parameter(SAVE_STITCH["help"]))
    price: float | None = field(default=None, metadata=PRICE)
    seed: int = field(default=0, metadata=SEED)
    force: bool = field(default=False, metadata=FORCE)
    restart: bool = field(default=False, metadata=RESTART)

    def check(self) -> None:
        """Make sure that there is a model, that a share has a stitch, and all that goes with it a share."""
        if self.target is None and not self.from_cache:
            raise UsageError("no model is named to embed with; add --target SPEC (`target` in Python)")
        if self.share is not None and self.from_cache:
            raise UsageError("`share=` embeds documents, `from_cache` none; leave one of them out")
        if self.share is not None and self.stitch is None:
            fit = f"lead-migrate fit {self.store} --target {self.target} -o STITCH"
            raise UsageError(f"`share={self.share}` leaves a rest, which needs a `stitch=`; fit one: {fit}")
        for name in ("policy", "query_log", "save_stitch"):
            if self.share is None and self.stitch is None and getattr(self, name) is not None:
                raise UsageError(f"`{name}=` goes with `share=`; add `share=10%`, or leave it out")
        if self.share is None and self.stitch is not None:
            raise UsageError("`stitch=` translates what `share=` leaves; add `share=30%`, or leave it out to embed all")

    @cached_property
    def partial(self) -> Translate | None:
        """The translation of a store of which a share is embedded; None where all of it is."""
        if self.share is None or self.stitch is None:
            return None
        return step_like(Translate, self, reembed=self.share)

    @cached_property
    def source(self) -> Store:
        """The store, opened."""
        from migrate.steps.opening import store_of

        return store_of(self.store, verify=True)

    @cached_property
    def embedder(self) -> Embedder:
        """The model: the target, which spends under the cap, or the store's own for what is in its cache."""
        from migrate.steps.opening import model_at, model_of

        if self.from_cache or self.target is None:
            return model_of(self.source, self.target, "target")
        embedder = model_at(self.target)
        if self.source.info.has_texts:
            embedder.fit(self.source.documents())
        return self.cap.meter(embedder, self.price)

    @cached_property
    def is_done(self) -> bool:
        """True where the output is that re-embed already."""
        from migrate.embed import is_reembedded

        return not self.force and not self.restart and is_reembedded(self.source, self.embedder, self.output)

    @cached_property
    def models(self) -> tuple[PlannedModel, ...]:
        """The target, for the documents that are still to be embedded; the models of the stitch besides."""
        from migrate.cost.spending import PlannedModel
        from migrate.embed.corpus import AGAIN

        if self.partial is not None or self.from_cache:
            return () if self.partial is None else self.partial.open().models
        self.refuse_existing()
        return (PlannedModel(self.embedder, self.cap, documents=self.documents_left, again=AGAIN),)

    def refuse_existing(self) -> None:
        """Make sure, before anything is counted, that nothing else has the name of the output."""
        from migrate.stores.registry import output_of

        if not self.is_done:
            output_of(self.output).require_free(force=self.force)

    def documents_left(self) -> Iterable[Document]:
        """Return the documents that a full re-embed would still embed."""
        from migrate.embed.reference import documents_left

        return () if self.is_done else documents_left(self.source, self.output, restart=self.restart)

    def execute(self) -> Embedding | Translation | Backfill:
        """Embed all, or the share, and translate the rest; or fill in what the cache has."""
        from migrate.embed import Embedding, reembed_store
        from migrate.embed.reference import finish_reembedded
        from migrate.embedders.cache import cache_of
        from migrate.steps.reembed.fill import backfill_store
        from migrate.stores.registry import output_of

        if self.partial is not None:
            return self.partial.execute()
        if not self.from_cache and self.is_done:
            finish_reembedded(self.output)
            return Embedding(output_of(self.output).display_name, self.source.info.count, self.embedder.identity.dim)
        if self.from_cache and cache_of(self.embedder) is None:
            raise UsageError(
                f"{self.source.info.location}: the vectors of {self.embedder.identity.spec} are in no cache; load the "
                "model with one (`migrate.load_embedder(SPEC, cache=FILE)`), or embed again without `from_cache`"
            )
        work = backfill_store if self.from_cache else reembed_store
        return work(
            self.source,
            self.embedder,
            self.output,
            force=self.force,
            restart=self.restart,
            progress=self.progress,
        )


reembed = function(Reembed)
