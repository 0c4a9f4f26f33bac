"""Move a vector store to another embedding model without re-embedding it all, and test whether it is safe.

import migrate

store = migrate.open_store("my-store")
stitch = migrate.fit(store, "openai:text-embedding-3-small")
migrate.translate(store, stitch, "new-store")
report = migrate.audit("new-store", judged="my-beir")
"""

import sys
from importlib import import_module
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from migrate.version import __version__ as __version__

if TYPE_CHECKING:
    from migrate.audit.bounds import Bounds as Bounds
    from migrate.audit.bounds import Outcome as Outcome
    from migrate.audit.bounds import decide as decide
    from migrate.audit.bounds import retention_bounds as retention_bounds
    from migrate.audit.check import check as check
    from migrate.audit.query_set import QuerySet as QuerySet
    from migrate.audit.step import audit as audit
    from migrate.audit_report.records import ReportedVerdict as ReportedVerdict
    from migrate.audit_report.report import AuditReport as AuditReport
    from migrate.audit_report.report import load_report as load_report
    from migrate.batch import batch as batch
    from migrate.check import Compatibility as Compatibility
    from migrate.check import Stamped as Stamped
    from migrate.check.guard import guard as guard
    from migrate.cost import Assessment as Assessment
    from migrate.embed import Embedding as Embedding
    from migrate.embedders import load_embedder as load_embedder
    from migrate.embedders.base import Embedder as Embedder
    from migrate.errors import LeadMigrateError as LeadMigrateError
    from migrate.inspect import inspect as inspect
    from migrate.lab.compare.compare import compare as compare
    from migrate.lab.compare.comparison import StoresComparison as StoresComparison
    from migrate.lab.embed.step import embed as embed
    from migrate.live.options import LiveLimits as LiveLimits
    from migrate.live.searcher import LiveSearcher as LiveSearcher
    from migrate.pipeline import run as run
    from migrate.pipeline.choose import choose as choose
    from migrate.pipeline.job import Migration as Migration
    from migrate.pipeline.shortlist import Shortlist as Shortlist
    from migrate.steps.assess import assess as assess
    from migrate.steps.fit import fit as fit
    from migrate.steps.reembed import reembed as reembed
    from migrate.steps.stamp import stamp as stamp
    from migrate.steps.switch import forget as forget
    from migrate.steps.switch import rollback as rollback
    from migrate.steps.switch import switch as switch
    from migrate.steps.switch.job import Switched as Switched
    from migrate.steps.sync import sync as sync
    from migrate.steps.sync.job import Synced as Synced
    from migrate.steps.translate import translate as translate
    from migrate.steps.translate.job import Translation as Translation
    from migrate.stitch.fitted import FittedStitch as FittedStitch
    from migrate.stitch.persistence import load_stitch as load_stitch
    from migrate.stores import open_store as open_store
    from migrate.stores.base import Store as Store
    from migrate.vectors import Document as Document
    from migrate.vectors import Query as Query

_MODULES = {
    "audit.bounds": "Bounds Outcome decide retention_bounds",
    "audit.check": "check",
    "audit.query_set": "QuerySet",
    "audit_report.records": "ReportedVerdict",
    "audit_report.report": "AuditReport load_report",
    "batch": "batch",
    "check": "Compatibility Stamped",
    "check.guard": "guard",
    "cost": "Assessment",
    "embed": "Embedding",
    "embedders": "load_embedder",
    "embedders.base": "Embedder",
    "errors": "LeadMigrateError",
    "inspect": "inspect",
    "lab.compare.compare": "compare",
    "lab.compare.comparison": "StoresComparison",
    "live.options": "LiveLimits",
    "live.searcher": "LiveSearcher",
    "pipeline": "run",
    "pipeline.job": "Migration",
    "pipeline.shortlist": "Shortlist",
    "pipeline.choose": "choose",
    "steps.assess": "assess",
    "audit.step": "audit",
    "steps.stamp": "stamp",
    "lab.embed.step": "embed",
    "steps.fit": "fit",
    "steps.reembed": "reembed",
    "steps.switch": "forget rollback switch",
    "steps.switch.job": "Switched",
    "steps.sync": "sync",
    "steps.sync.job": "Synced",
    "steps.translate": "translate",
    "steps.translate.job": "Translation",
    "stitch.fitted": "FittedStitch",
    "stitch.persistence": "load_stitch",
    "stores": "open_store",
    "stores.base": "Store",
    "vectors": "Document Query",
}
_MODULE_OF = {name: f"migrate.{module}" for module, names in _MODULES.items() for name in names.split()}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    """Import what `__all__` names when it is first used: `import migrate` alone loads no library."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import_module("migrate.report.notebook")  # how results look in a notebook
    value = getattr(import_module(_MODULE_OF[name]), name)
    submodule = sys.modules.get(f"{__name__}.{name}")
    if isinstance(value, FunctionType) and submodule is not None:
        vars(submodule).update(vars(value))
        value.__dict__ = vars(submodule)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _FrontDoor(ModuleType):
    """The module type of this package, for the names that are a function and a submodule: audit, check, fit, embed ...

    Importing a submodule binds it in its package, in whatever order and by whomever; here `migrate.audit` is the
    function all the same. What the submodule holds is to be had of the function as well, as both have one namespace:
    `import migrate.audit.verdict as v` and `migrate.audit.verdict.verdict_of` work as if there were no function.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in __all__ and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _FrontDoor
