"""Run: the whole path, from a store and a target model to a translated store and a verdict. Start reading here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from migrate.audit.judged import JudgedStep
from migrate.steps.base import RESTART, argument, function, option, parameter
from migrate.steps.fit import LOG, PREFIX, SAMPLE, SOURCE_MODEL, STITCH, STRATEGY, TARGET, Fit

if TYPE_CHECKING:
    from migrate.audit.places import Places
    from migrate.audit.query_set import QuerySet
    from migrate.cost.spending import PlannedModel
    from migrate.embedders.base import Embedder
    from migrate.finished import Finished, Kept, RunConfiguration
    from migrate.pipeline.job import Migration
    from migrate.steps.base import ModelLike, StoreLike
    from migrate.stores.base import Store
    from migrate.vectors import Query


@dataclass(frozen=True, eq=False)
class Run(JudgedStep["Migration"]):
    """Fit a stitch, translate a store and audit the result: the whole path, left in one folder.

    The folder has `stitch`, `store`, `report.json` and `report.html`, and `reference` if one is built; each complete or
    absent. The same call continues a run that broke off, and audits again what is finished. Queries of the log, which
    choose documents, do not judge.

    Raises
    ------
    InconclusiveError
        Too few queries would be left for a verdict, without those of the query log.
    UsageError
        A run of another store or with another stitch has come to its end in this folder.
    LeadMigrateError
        As `fit`, `translate`, `reembed` and `audit`.

    Examples
    --------
    >>> import migrate
    >>> done = migrate.run("my-store", "tfidf:24", "migration", beir="my-beir", stitch="ridge", sample=100)
    >>> done.translation  # doctest: +ELLIPSIS
    <Translation migration/store: 150 vectors, 32 -> 24 dimensions, 100 of them true, in ... s>
    >>> done.report.outcome in set(migrate.Outcome)
    True
    """

    store: StoreLike = field(metadata=argument("A store with texts, or its path.", "store"))
    target: ModelLike = field(metadata=TARGET)
    output: str | Path = field(metadata=option("Folder to write.", "path", flags=("--output", "-o")))
    _: KW_ONLY
    reference: str = field(
        default="pool",
        metadata=option(
            "What to compare with: a `pool` of documents that are embedded now, or every document (`build`).",
            choices=("pool", "build"),
        ),
    )
    stitch: str | Sequence[str] = field(default=("auto",), metadata=STITCH)
    sample: int = field(default=1_000, metadata=SAMPLE)
    strategy: str | None = field(default=None, metadata=STRATEGY)
    query_log: Path | str | Sequence[Query] | None = field(default=None, metadata=parameter(LOG["help"]))
    source_model: ModelLike | None = field(default=None, metadata=SOURCE_MODEL)
    prefix: int | None = field(default=None, metadata=parameter(PREFIX["help"]))
    restart: bool = field(default=False, metadata=RESTART)
    places: Places | None = field(
        default=None, repr=False, metadata=parameter("How the next command names the target model, and this run.")
    )

    def check(self) -> None:
        """Make sure that there is such a reference, and queries."""
        from migrate.errors import UsageError

        if self.reference not in ("build", "pool"):
            raise UsageError(f'`reference={self.reference!r}` is neither "pool" nor "build"; name one of these')
        self.check_queries(is_pooled=self.is_pooled)

    @property
    def folder(self) -> Path:
        """The folder that everything is left in."""
        return Path(self.output)

    @cached_property
    def source(self) -> Store:
        """The store, opened."""
        from migrate.steps.opening import store_of

        return store_of(self.store, verify=True)

    @cached_property
    def embedder(self) -> Embedder:
        """The target model, which spends under the cap."""
        from migrate.steps.opening import model_at

        return self.cap.meter(model_at(self.target), self.price)

    @cached_property
    def source_embedder(self) -> Embedder | None:
        """The model of the store, for the arm `stay`: the one that is named, or the store's own if it is at hand."""
        from migrate.pipeline.job import source_embedder

        return source_embedder(self)

    @cached_property
    def questions(self) -> QuerySet:
        """The queries that judge: without those that choose documents, or that chose documents of the store before."""
        from migrate.pipeline.job import questions

        return questions(self)

    @property
    def is_pooled(self) -> bool:
        """True where the translated store is audited by a pool; else every document is embedded for a reference."""
        return self.reference == "pool"

    @cached_property
    def fit(self) -> Fit:
        """The fit that it begins with."""
        return Fit(
            self.source,
            self.embedder,
            stitch=self.stitch,
            sample=self.sample,
            strategy=self.strategy,
            query_log=self.query_log,
            source_model=self.source_embedder,
            prefix=self.prefix,
            price=self.price,
            seed=self.seed,
            progress=self.progress,
            cap=self.cap,
        )

    @cached_property
    def made_from(self) -> RunConfiguration:
        """What stitch and store depend on, and the audit besides; costs no embedding."""
        from migrate.pipeline.job import configuration

        return configuration(self)

    @cached_property
    def finished(self) -> Finished | None:
        """What the same run said before; None where it has not come to its end, or is to be done again."""
        from migrate.pipeline.job import find_finished_run

        return None if self.force or self.restart else find_finished_run(self)

    @cached_property
    def kept(self) -> Kept:
        """Stitch and stores of a finished run in the same folder, which only another audit is made of."""
        from migrate.pipeline.job import find_kept_outputs

        return find_kept_outputs(self)

    @cached_property
    def models(self) -> tuple[PlannedModel, ...]:
        """The target, for the sample, all documents and the queries; the source model, for the query log and these."""
        from migrate.pipeline.job import models

        return models(self)

    def execute(self, documents_per_s: float | None = None) -> Migration:
        """Do all that is not done yet; `documents_per_s` is how fast the target embeds, for the report."""
        from migrate.pipeline.job import run

        return run(self, documents_per_s)


run = function(Run)
