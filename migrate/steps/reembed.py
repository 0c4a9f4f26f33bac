"""Reembed: a store with the new model, all of it or a share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from migrate.steps.base import FORCE, PRICE, QUERY_LOG, RESTART, SEED, PaidStep, argument, function, option
from migrate.steps.translate import OUTPUT, POLICY, RUNNER, SAVE_STITCH, Translate

if TYPE_CHECKING:
    from migrate.cost.spending import PlannedModel
    from migrate.embed import Embedding
    from migrate.embed.plan import EmbedPlan
    from migrate.steps.base import ModelLike, StoreLike
    from migrate.steps.translate.choice import Budget
    from migrate.steps.translate.job import Translation
    from migrate.stitch.fitted import FittedStitch
    from migrate.vectors import Query
    from migrate.work.runner import Runner

_SHARE = {"section": "A share"}


@dataclass(frozen=True, eq=False)
class Reembed(PaidStep["Embedding | Translation"]):
    """Embed a whole store with the target model into a new one of the same kind; or a share of it, as a translation.

    The output appears when it is complete; a run that broke off is continued. Every vector of a whole store is the
    model's own. Of a share, the documents that matter most get theirs, and a stitch translates the others.

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
    target: ModelLike = field(metadata=option("Model to move to, such as openai:NAME.", "text", metavar="SPEC"))
    output: str | Path = field(metadata=OUTPUT)
    _: KW_ONLY
    share: Budget | str | None = field(
        default=None,
        metadata=option(
            "Embed so much of the store, the sample of --stitch included, and let the stitch, fitted again on all of "
            "it, translate the rest.",
            "text",
            metavar="30%|5000|$20|300000tok",
            **_SHARE,
        ),
    )
    stitch: FittedStitch | str | Path | None = field(
        default=None, metadata=option("Stitch for the rest, fitted on STORE.", "stitch", metavar="STITCH", **_SHARE)
    )
    policy: str | None = field(default=None, metadata={**POLICY, **_SHARE})
    query_log: Path | str | Sequence[Query] | None = field(default=None, metadata={**QUERY_LOG, **_SHARE})
    save_stitch: Path | str | None = field(default=None, metadata={**SAVE_STITCH, **_SHARE})
    price: float | None = field(default=None, metadata=PRICE)
    runner: Runner | str | None = field(default=None, metadata=RUNNER)
    seed: int = field(default=0, metadata=SEED)
    force: bool = field(default=False, metadata=FORCE)
    restart: bool = field(default=False, metadata=RESTART)

    def check(self) -> None:
        """Make sure that a share has a stitch, and all that goes with it a share."""
        from migrate.errors import UsageError

        if self.share is not None and self.stitch is None:
            fit = f"lead-migrate fit {self.store} --target {self.target} -o STITCH"
            raise UsageError(f"`share={self.share}`: expected a `stitch=` for the rest, found none; fit one: {fit}")
        for name in ("policy", "query_log", "save_stitch"):
            if self.share is None and self.stitch is None and getattr(self, name) is not None:
                raise UsageError(f"`{name}=` goes with `share=`; add `share=10%`, or leave it out")
        if self.share is None and self.stitch is not None:
            raise UsageError("`stitch=` translates what `share=` leaves; add `share=30%`, or leave it out to embed all")

    @cached_property
    def part(self) -> Translate | None:
        """The translation of a store of which a share is embedded; None where all of it is."""
        if self.share is None or self.stitch is None:
            return None
        return Translate(
            self.store,
            self.stitch,
            self.output,
            reembed=self.share,
            policy=self.policy,
            query_log=self.query_log,
            save_stitch=self.save_stitch,
            target=self.target,
            price=self.price,
            runner=self.runner,
            seed=self.seed,
            force=self.force,
            restart=self.restart,
            max_cost=self.max_cost,
            progress=self.progress,
            cap=self.cap,
        )

    @cached_property
    def whole(self) -> EmbedPlan:
        """The full re-embed."""
        from migrate.embed import plan_reembed
        from migrate.embedders.elsewhere import elsewhere
        from migrate.steps.opening import model_at, runner_at, store_of

        return plan_reembed(
            store_of(self.store, verify=True),
            elsewhere(model_at(self.target), runner_at(self.runner)),
            self.output,
            price_usd_per_mtok=self.price,
            force=self.force,
            restart=self.restart,
            cap=self.cap,
        )

    @cached_property
    def models(self) -> tuple[PlannedModel, ...]:
        """The target, for the documents that are still to be embedded; the models of the stitch besides."""
        return self.whole.models if self.part is None else self.part.models

    def execute(self) -> Embedding | Translation:
        """Embed all, or the share, and translate the rest."""
        return self.whole.execute(self.progress) if self.part is None else self.part.execute()


reembed = function(Reembed)
