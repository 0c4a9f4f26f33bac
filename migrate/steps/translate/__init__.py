"""Translate: a store through a stitch, with or without a budget of true vectors before it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from migrate.steps.base import (
    FORCE,
    PRICE,
    QUERY_LOG,
    RESTART,
    RUNNER,
    SEED,
    PaidStep,
    argument,
    function,
    option,
    parameter,
)

if TYPE_CHECKING:
    from migrate.cost.spending import PlannedModel
    from migrate.steps.base import ModelLike, StoreLike
    from migrate.steps.translate.choice import Budget
    from migrate.steps.translate.job import Translation
    from migrate.steps.translate.stitch import Announce, Refit
    from migrate.stitch.fitted import FittedStitch
    from migrate.stores.base import Store
    from migrate.stores.outputs import Output
    from migrate.vectors import Document, Query
    from migrate.work.runner import Runner

REEMBEDDING = "Re-embedding"
"""Title of a section of the help text."""

OUTPUT = option("Folder to write, or KIND:LOCATION for a store of another kind.", "store", flags=("--output", "-o"))
POLICY = option(
    "Which documents are embedded first.  [default: query-log where there is one, else confidence, or random where "
    "that is not to be used]",
    choices=("query-log", "confidence", "random"),
    section=REEMBEDDING,
)
LOG = {**QUERY_LOG, "section": REEMBEDDING}
SAVE_STITCH = option("Folder for the stitch fitted again.  [default: OUTPUT.stitch]", "path", section=REEMBEDDING)


@dataclass(frozen=True, eq=False)
class Translate(PaidStep["Translation"]):
    """Write a store, translated by a stitch, to a new one; ids, order, texts, metric and format are kept.

    The output appears when it is complete. A run that broke off is continued: the shards that reached the disk stay,
    unless `restart` discards them, and the bytes are those of a run that did not break off, whoever made which shard.

    With `reembed`, the documents that matter most get their true vectors, and the stitch learns from them. Else only a
    stitch that reads the texts with a paid model costs anything; one with such models is applied in this process alone.

    With `any_store` the true vectors of the stitch's sample are left out, as equal ids need not mean equal texts. Of a
    store without texts the fallback of a stitch that reads them takes the old vectors alone; the manifest says so.

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
    SpendingError
        It costs more than `max_cost`.

    Examples
    --------
    >>> import migrate
    >>> stitch = migrate.fit("my-store", "tfidf:24", stitch="ridge", sample=100)
    >>> migrate.translate("my-store", stitch, "new-store")  # doctest: +ELLIPSIS
    <Translation new-store: 150 vectors, 32 -> 24 dimensions, 100 of them true, in ... s>
    """

    store: StoreLike = field(metadata=argument("The store that the stitch was fitted on, or its path.", "store"))
    stitch: FittedStitch | str | Path = field(
        metadata=argument("The stitch that `fit` returned, or the folder or URL that it was saved to.", "stitch")
    )
    output: str | Path = field(metadata=OUTPUT)
    _: KW_ONLY
    any_store: bool = field(
        default=False,
        metadata=option("Allow a store that the stitch was not fitted on, such as one that has grown."),
    )
    reembed: Budget | str | None = field(
        default=None,
        metadata=option(
            "Embed so much of the store for real, the sample included, and fit the stitch again on all of it.",
            "text",
            metavar="10%|5000|$20|300000tok",
            section=REEMBEDDING,
        ),
    )
    policy: str | None = field(default=None, metadata=POLICY)
    query_log: Path | str | Sequence[Query] | None = field(default=None, metadata=LOG)
    save_stitch: Path | str | None = field(default=None, metadata=SAVE_STITCH)
    target: ModelLike | None = field(
        default=None,
        metadata=option(
            "Model to re-embed with.  [default: the stitch's own]", "text", metavar="SPEC", section=REEMBEDDING
        ),
    )
    price: float | None = field(default=None, metadata=PRICE)
    runner: Runner | str | None = field(default=None, metadata=RUNNER)
    seed: int = field(default=0, metadata=SEED)
    force: bool = field(default=False, metadata=FORCE)
    restart: bool = field(default=False, metadata=RESTART)
    announce: Announce | None = field(
        default=None, repr=False, metadata=parameter("Called as a re-embedding goes on, before anything is paid for.")
    )

    def check(self) -> None:
        """Make sure that options go together, and that no output lies in what is read."""
        from migrate.errors import UsageError
        from migrate.files import refuse_overlap

        for name in ("policy", "query_log", "save_stitch"):
            if self.reembed is None and getattr(self, name) is not None:
                raise UsageError(f"`{name}=` goes with `reembed=`; add `reembed=10%`, or leave it out")
        if self.any_store and self.reembed is not None:
            raise UsageError(
                "`reembed=` needs the store that the stitch was fitted on; leave out `any_store`, or fit again"
            )
        refuse_overlap(self.place.path, *self._read)

    @property
    def _read(self) -> list[Path]:
        """The files and folders that are read."""
        from migrate.stitch.fitted import FittedStitch
        from migrate.stores.base import Store
        from migrate.stores.registry import path_in

        store, stitch = self.store, self.stitch
        named = [store.info.location if isinstance(store, Store) else store]
        named += [] if isinstance(stitch, FittedStitch) else [stitch]
        return [path for it in named if (path := path_in(it)) is not None]

    @cached_property
    def place(self) -> Output:
        """The new store, to be written."""
        from migrate.stores.registry import output_of

        return output_of(self.output)

    @cached_property
    def source(self) -> Store:
        """The store, opened."""
        from migrate.steps.opening import store_of

        return store_of(self.store)

    @cached_property
    def fitted(self) -> FittedStitch:
        """The stitch, whose models spend under the cap."""
        from migrate.steps.translate.stitch import with_metered_views
        from migrate.stitch.fitted import FittedStitch
        from migrate.stitch.persistence import load_stitch

        stitch = self.stitch if isinstance(self.stitch, FittedStitch) else load_stitch(self.stitch)
        return with_metered_views(stitch, self.cap, self.price)

    @cached_property
    def budget(self) -> Budget:
        """The share of the store that is re-embedded."""
        from migrate.steps.translate.choice import Budget

        return Budget.parse(str(self.reembed))

    @cached_property
    def log(self) -> Sequence[Query]:
        """The queries of the log, the most frequent first."""
        from migrate.steps.opening import log_of

        return log_of(self.query_log)

    @cached_property
    def refit_folder(self) -> Path:
        """The folder of the stitch that is fitted again."""
        return self.place.beside("stitch") if self.save_stitch is None else Path(self.save_stitch)

    @cached_property
    def refit(self) -> Refit | None:
        """The stitch that is to come of the budget; None where there is no budget."""
        from migrate.steps.translate.stitch import refit_of

        if self.reembed is None:
            return None
        self.refuse_outputs()
        return refit_of(self)

    def refuse_outputs(self) -> None:
        """Make sure, before anything is spent, that the stitch and the store can be written."""
        from migrate.files import refuse_output, refuse_overlap

        refuse_overlap(self.refit_folder, *self._read, self.place.path)
        refuse_output(self.place.path, *self._read, force=self.force)
        self.place.refuse_existing(force=self.force)

    @cached_property
    def models(self) -> tuple[PlannedModel, ...]:
        """The views, for the documents that are still to be translated; and what the budget is spent on."""
        from migrate.cost.spending import VIEW, PlannedModel

        spent = () if self.refit is None else self.refit.models
        reader = self.fitted.reader
        if reader is None or not self.fitted.reads_texts or not self.source.info.has_texts:
            return spent
        views = (PlannedModel(view, self.cap, VIEW, documents=self._documents) for view in reader.models.values())
        return (*views, *spent)

    def _documents(self) -> Iterator[Document]:
        from migrate.steps.translate.job import documents_left

        return documents_left(self.source, self.output, restart=self.restart)

    def execute(self) -> Translation:
        """Spend the budget where there is one, and translate."""
        from migrate.steps.translate.job import translate

        return translate(self, self.fitted if self.refit is None else self._with_views(self.refit.execute()))

    def _with_views(self, refitted: FittedStitch) -> FittedStitch:
        """The stitch as it was saved, with the views of this step instead of those that it has loaded by itself."""
        from migrate.steps.translate.stitch import with_metered_views

        if refitted.reader is None or self.fitted.reader is None:
            return with_metered_views(refitted, self.cap)
        models = {spec: self.fitted.reader.models.get(spec, view) for spec, view in refitted.reader.models.items()}
        return replace(refitted, reader=replace(refitted.reader, models=models))


translate = function(Translate)
