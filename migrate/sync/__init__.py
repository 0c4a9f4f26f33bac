"""A translated store, brought up to date with what its old store has become since."""

from migrate.sync.changes import ChangeCounts, Changes
from migrate.sync.plan import Synced, SyncPlan, plan_sync, sync_store

__all__ = ["ChangeCounts", "Changes", "SyncPlan", "Synced", "plan_sync", "sync_store"]
