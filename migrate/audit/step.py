"""Audit: the verdict on a translated store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from migrate.audit.judged import JudgedStep
from migrate.audit.options import AuditOptions
from migrate.steps.base import RunContext, function

if TYPE_CHECKING:
    from migrate.audit.audit import AuditJob
    from migrate.audit_report.report import AuditReport


@dataclass(frozen=True, eq=False)
class Audit(AuditOptions, JudgedStep["AuditReport"]):
    """Judge a translated store against a full re-embed: SAFE, NOT SAFE or INCONCLUSIVE, with the numbers behind it.

    The verdict is on the translated store alone, and never SAFE where the reference is not shown to be a full re-embed.
    The translated and the old store answer by their own index, as users ask them, and the full re-embed is searched
    exactly; the report says what exact search would keep. Queries that chose documents of the translated store or of
    the bridge do not judge; those of one text count once.

    Raises
    ------
    UsageError
        Parameters do not go together; or there is no arm of the name of the plan.
    StitchError
        The bridge is a stitch for documents, or not fitted on the source for this model.
    InputError
        There are no queries, or none of the relevant documents is in the stores.
    StoreError
        The stores do not hold the same documents, the reference is not a full re-embed of them by this model, or a
        store is not the one of its manifest.
    VectorError
        A store is not of its model's dimension, or a vector is zero or not finite.
    InconclusiveError
        Too few queries are left for a verdict, without those that chose documents.
    RemoteError, SpendingError
        A text could not be embedded; or it costs more than `max_cost`.

    Examples
    --------
    >>> import migrate
    >>> stitch = migrate.fit("my-store", "tfidf:24", kind="ridge", sample=100)
    >>> _ = migrate.translate("my-store", stitch, "new-store")
    >>> report = migrate.audit("new-store", judged="my-beir", source="my-store")
    >>> report.verdict.outcome in set(migrate.Outcome)
    True
    """

    def check(self) -> None:
        """Make sure that options go together, and that there is the device that is to compute."""
        self.check_queries(is_pooled=self.is_pooled)
        self.pool_depth()
        self.depths()
        self.check_ranked(self.ranked_queries, is_pooled=self.is_pooled)

    def open(self, context: RunContext | None = None) -> AuditJob:
        """Open the stores, the models and the queries, and make sure that they go together. Nothing is embedded."""
        from migrate.audit.audit import open_audit

        return open_audit(self, context or RunContext())


audit = function(Audit)
