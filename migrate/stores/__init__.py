"""Vector stores: every format that is read and written."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from migrate.stores.create import create_store
    from migrate.stores.faiss.store import index_recall
    from migrate.stores.registry import open_store

__all__ = ["create_store", "index_recall", "open_store"]

_MODULES = {"create_store": "create", "index_recall": "faiss.store", "open_store": "registry"}


def __getattr__(name: str) -> Any:
    """Import a name of `__all__` when it is first used: a process that only decodes an index starts without."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value
