"""Vector stores: every format that is read and written."""

from migrate.stores.create import create_store
from migrate.stores.open import open_store

__all__ = ["create_store", "open_store"]
