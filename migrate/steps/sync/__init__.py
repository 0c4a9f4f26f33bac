"""Sync: a translated store, brought up to date with its old one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING

from migrate.steps.base import PaidStep, function
from migrate.steps.sync.options import SyncOptions

if TYPE_CHECKING:
    from migrate.cost.spending import PlannedModel
    from migrate.steps.sync.job import Synced, SyncInputs


@dataclass(frozen=True, eq=False)
class Sync(SyncOptions, PaidStep["Synced"]):
    """Bring a translated store up to date: true vectors for what was added to the old one or changed, the rest stays.

    Vectors of documents that did not change are kept to the bit. All else of a record is the old store's. The new store
    appears in the place of the one before in one step, where the kind has one. A run that broke off is continued.

    Raises
    ------
    StoreError
        A store does not match its manifest; `new` was not made from `old`, or by another command; only one of the two
        has texts; or one changed while it was read.
    InputError
        Fewer than half of the new one's documents are left; or a document that needs a true vector has no text.
    UsageError
        The stores were switched; or the new one cannot be written as it is, or names no model.
    VectorError
        The model's vectors are of another dimension.
    OutputError, LockedError, RemoteError, SpendingError
        The output cannot be written, or is being written; the model fails, or costs more than `max_cost`.

    Examples
    --------
    >>> import migrate
    >>> stitch = migrate.fit("my-store", "tfidf:24", kind="ridge", sample=100)
    >>> translation = migrate.translate("my-store", stitch, "new-store")
    >>> migrate.sync("my-store", "new-store")
    <Synced new-store: up to date, 150 vectors>
    """

    @cached_property
    def comparison(self) -> SyncInputs:
        """Both stores, and what became of each document. They are read for it, and nothing is embedded."""
        from migrate.steps.sync.job import compare

        return compare(self)

    @cached_property
    def models(self) -> tuple[PlannedModel, ...]:
        """The target model, for new and changed documents that an unfinished run has not embedded."""
        from migrate.cost.spending import PlannedModel
        from migrate.embed.corpus import AGAIN

        comparison = self.comparison
        documents_left = partial(comparison.documents, restart=self.restart)
        return (
            PlannedModel(
                comparison.embedder, self.cap, documents=documents_left, again=AGAIN, known=comparison.known_texts
            ),
        )

    def execute(self) -> Synced:
        """Embed what is new, and write the store anew, unless it is up to date."""
        from migrate.steps.sync.job import sync

        return sync(self, self.comparison)


sync = function(Sync)
