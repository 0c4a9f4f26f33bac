"""Inspect: the facts of a store or a stitch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from migrate.steps.base import Step, argument, function

if TYPE_CHECKING:
    from migrate.steps.base import StoreLike


@dataclass(frozen=True, eq=False)
class Inspect(Step[dict[str, Any]]):
    """Tell what is in a store or a stitch, as `lead-migrate inspect --json` does.

    Raises
    ------
    LeadMigrateError
        As `open_store`, or `load_stitch`.

    Examples
    --------
    >>> import migrate
    >>> facts = migrate.inspect("my-store")
    >>> facts["vectors"], facts["dimension"], facts["model"]
    (150, 32, 'tfidf:32')
    """

    store: StoreLike = field(
        metadata=argument(
            "A store, or its path, or that of a stitch. Of a folder or a database with several stores, `stores` lists "
            "them.",
            "store",
            metavar="STORE|STITCH",
        )
    )

    def run(self) -> dict[str, Any]:
        """Open it, and read its facts."""
        from migrate.report.inspect import inspect_document

        return inspect_document(self.store)


inspect = function(Inspect)
