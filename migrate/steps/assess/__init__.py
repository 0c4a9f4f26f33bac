"""Assess: the ways to move a store side by side, with what they cost and keep."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from migrate.steps.assess.options import AssessOptions
from migrate.steps.base import Step, function

if TYPE_CHECKING:
    from migrate.cost import Assessment


@dataclass(frozen=True, eq=False)
class Assess(AssessOptions, Step["Assessment"]):
    """Tell what moving a store would cost and keep. Spends nothing, and asks no server.

    Raises
    ------
    StoreError
        The store has no texts, or none that is not blank.
    UsageError
        A rate cannot be read, or options exclude each other.
    InputError
        The report is none of an audit.

    Examples
    --------
    >>> import migrate
    >>> migrate.assess("my-store", "openai:text-embedding-3-small")  # doctest: +ELLIPSIS
    <Assessment of my-store -> openai:text-embedding-3-small: ... tokens, $0.00... for a full re-embed, ... plans>
    """

    def execute(self) -> Assessment:
        """Count the store's texts, and set the plans side by side."""
        from migrate.steps.assess.job import open_assess

        return open_assess(self).execute()


assess = function(Assess)
