"""Move a vector store to another embedding model without re-embedding it all, and prove that it is safe.

import migrate

store = migrate.open_store("my-store")
stitch = migrate.fit(store, "openai:text-embedding-3-small")
migrate.translate(store, stitch, "new-store")
report = migrate.audit("new-store", beir="my-beir")
"""

import sys
from importlib import import_module
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from migrate.api import (
        Assessment,
        AuditReport,
        Compatibility,
        Document,
        Embedder,
        Embedding,
        FittedStitch,
        LeadMigrateError,
        Migration,
        Outcome,
        Query,
        QuerySet,
        Stamp,
        Store,
        Switch,
        Synced,
        Translation,
        Verdict,
        assess,
        audit,
        check,
        embed,
        fit,
        forget,
        inspect,
        load_embedder,
        load_stitch,
        open_store,
        reembed,
        rollback,
        run,
        stamp,
        switch,
        sync,
        translate,
    )
    from migrate.lab.api import compare
    from migrate.lab.compare.comparison import StoresComparison
    from migrate.live.searcher import LiveLimits, LiveSearcher

__version__ = "0.1.0"

__all__ = [
    "Assessment",
    "AuditReport",
    "Compatibility",
    "Document",
    "Embedder",
    "Embedding",
    "FittedStitch",
    "LeadMigrateError",
    "LiveLimits",
    "LiveSearcher",
    "Migration",
    "Outcome",
    "Query",
    "QuerySet",
    "Stamp",
    "Store",
    "StoresComparison",
    "Switch",
    "Synced",
    "Translation",
    "Verdict",
    "assess",
    "audit",
    "check",
    "compare",
    "embed",
    "fit",
    "forget",
    "inspect",
    "load_embedder",
    "load_stitch",
    "open_store",
    "reembed",
    "rollback",
    "run",
    "stamp",
    "switch",
    "sync",
    "translate",
]


_ROOMS = {
    "LiveLimits": "migrate.live.searcher",
    "LiveSearcher": "migrate.live.searcher",
    "StoresComparison": "migrate.lab.compare.comparison",
    "compare": "migrate.lab.api",
}
"""Where names are from that are not of `migrate.api`, which knows nothing of these rooms."""


def __getattr__(name: str) -> Any:
    """What `__all__` names, imported when it is first used: `import migrate` alone loads no library."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_ROOMS.get(name, "migrate.api")), name)
    submodule = sys.modules.get(f"{__name__}.{name}")
    if isinstance(value, FunctionType) and submodule is not None:
        vars(submodule).update(vars(value))
        value.__dict__ = vars(submodule)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _FrontDoor(ModuleType):
    """The module type of this package, for the names that are a function and a submodule: audit, check, fit, sync ...

    Importing a submodule binds it in its package, in whatever order and by whomever; here `migrate.audit` is the
    function all the same. What the submodule holds is to be had of the function as well, as both have one namespace:
    `import migrate.audit.verdict as v` and `migrate.audit.verdict.decide` work as if there were no function.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in __all__ and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _FrontDoor
