"""Vector stores: every format that is read and written."""

from migrate.stores.create import create_store
from migrate.stores.recall import index_recall
from migrate.stores.registry import open_store

__all__ = ["create_store", "index_recall", "open_store"]
