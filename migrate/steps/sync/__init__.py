"""Sync: a translated store, brought up to date with its old one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from migrate.steps.base import JobStep, RunContext, function
from migrate.steps.sync.options import SyncOptions

if TYPE_CHECKING:
    from migrate.steps.sync.job import Synced, SyncJob


@dataclass(frozen=True, eq=False)
class Sync(SyncOptions, JobStep["Synced"]):
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

    def open(self, context: RunContext | None = None) -> SyncJob:
        """Read both stores, and find what became of each document. Nothing is embedded."""
        from migrate.steps.sync.job import open_sync

        return open_sync(self, context or RunContext())


sync = function(Sync)
