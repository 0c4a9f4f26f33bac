"""Run: the whole path, from a store and a target model to a translated store and a verdict. Start reading here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from migrate.audit.judged import JudgedStep
from migrate.errors import UsageError
from migrate.files import refuse_unwritable
from migrate.manifest import refuse_artefact
from migrate.pipeline.options import RunOptions
from migrate.steps.base import RunContext, function

if TYPE_CHECKING:
    from migrate.embed import Embedding
    from migrate.pipeline.job import Migration, RunJob
    from migrate.steps.reembed.job import ReembedJob


@dataclass(frozen=True, eq=False)
class Run(RunOptions, JudgedStep["Migration | Embedding"]):
    """Fit a stitch, translate a store and audit the result: the whole path, left in one folder.

    The folder has `stitch`, `store`, `report.json` and `report.html`, and `reference` if one is built; each complete or
    absent. The same call continues a run that broke off, and audits again what is finished. Queries of the log, which
    choose documents, do not judge.

    Of a store of which fit and audit would embed every document, or too small for any to be SAFE, there is nothing to
    judge: it is embedded in full, which leaves `store` alone, and its `Embedding` is returned. A `reference` that is
    named judges all the same.

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
    >>> done = migrate.run("my-store", "tfidf:24", "migration", judged="my-beir", reference="pool", kind="ridge",
    ...     sample=100)
    >>> done.translation  # doctest: +ELLIPSIS
    <Translation migration/store: 150 vectors, 32 -> 24 dimensions, 100 of them true, in ... s>
    >>> done.report.outcome in set(migrate.Outcome)
    True
    """

    def check(self) -> None:
        """Make sure that there is such a reference, and queries; a small store, known once it is open, needs none."""
        refuse_artefact(self.folder)
        refuse_unwritable(self.folder / "stitch")
        if self.reference not in ("auto", "build", "pool"):
            raise UsageError(f'`reference={self.reference!r}` is not "auto", "pool" or "build"; name one of these')
        is_pooled = self.reference != "build"
        self.check_queries(is_pooled=is_pooled, are_needed=self.reference != "auto")
        self.check_ranked(self.ranked_queries, is_pooled=is_pooled)

    def open(self, context: RunContext | None = None) -> RunJob | ReembedJob:
        """Open the store and the models, and make sure that they go together. Nothing is embedded."""
        from migrate.pipeline.job import open_run

        return open_run(self, context or RunContext())


run = function(Run)
