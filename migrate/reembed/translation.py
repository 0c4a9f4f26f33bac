"""A translation that is planned first, with or without a budget of true vectors before it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from migrate.cost.meter import SpendingCap
from migrate.cost.spending import VIEW, PlannedModel, SpendingPlan
from migrate.reembed.stitch import RefitPlan, with_metered_views
from migrate.stitch.fitted import FittedStitch
from migrate.stores.base import Store
from migrate.translate import Translation, documents_left, translate_store
from migrate.vectors import Document, Progress
from migrate.work.runner import LOCAL, Runner


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class TranslatePlan(SpendingPlan[Translation]):
    """A translation that is still to be done, through `fitted` or the stitch that comes of `refit`."""

    store: Store
    fitted: FittedStitch
    output: Path | str
    refit: RefitPlan | None
    any_store: bool
    runner: Runner
    force: bool
    restart: bool

    @cached_property
    def models(self) -> tuple[PlannedModel, ...]:
        """The views, for the documents that are still to be translated; and what the budget is spent on."""
        return (*self.views, *(() if self.refit is None else self.refit.models))

    @cached_property
    def views(self) -> tuple[PlannedModel, ...]:
        """The models that the stitch reads texts with."""
        reader = self.fitted.reader
        if reader is None or not self.fitted.reads_texts or not self.store.info.has_texts:
            return ()
        return tuple(PlannedModel(view, self.cap, VIEW, documents=self._documents) for view in reader.models.values())

    def _documents(self) -> Iterator[Document]:
        return documents_left(self.store, self.output, restart=self.restart)

    def execute(self, progress: Progress) -> Translation:
        """Spend the budget where there is one, and translate."""
        fitted = self.fitted if self.refit is None else self._with_views(self.refit.execute(progress))
        return translate_store(
            self.store,
            fitted,
            self.output,
            any_store=self.any_store,
            runner=self.runner,
            force=self.force,
            restart=self.restart,
            progress=progress,
        )

    def _with_views(self, refitted: FittedStitch) -> FittedStitch:
        """The stitch as it was saved, with the views of the plan instead of those that it has loaded by itself."""
        if refitted.reader is None or self.fitted.reader is None:
            return with_metered_views(refitted, self.cap)
        models = {spec: self.fitted.reader.models.get(spec, view) for spec, view in refitted.reader.models.items()}
        return replace(refitted, reader=replace(refitted.reader, models=models))


def plan_translate(
    store: Store,
    fitted: FittedStitch,
    output: Path | str,
    *,
    refit: RefitPlan | None = None,
    price_usd_per_mtok: float | None = None,
    any_store: bool = False,
    runner: Runner = LOCAL,
    force: bool = False,
    restart: bool = False,
) -> TranslatePlan:
    """Plan a translation into the folder `output`, as `translate_store` does it. Nothing is embedded.

    Only views of the stitch that cost money make it cost any, or a `refit` (`plan_refit` for the same store and
    stitch), which is done first, under the same cap. Documents that an unfinished run has translated are not counted.
    `price_usd_per_mtok`, of the target, is by default the registry's.
    A stitch with views is applied in this process alone, whatever `runner` says, so that their meters count everything.
    """
    cap = SpendingCap() if refit is None else refit.cap
    return TranslatePlan(
        store=store,
        fitted=with_metered_views(fitted, cap, price_usd_per_mtok),
        output=output,
        refit=refit,
        any_store=any_store,
        runner=runner,
        force=force,
        restart=restart,
        cap=cap,
    )
