"""Vector stores: every format that is read and written."""

from migrate.stores.create import create_store
from migrate.stores.open import open_store
from migrate.stores.recall import index_recall

__all__ = ["create_store", "index_recall", "open_store"]
