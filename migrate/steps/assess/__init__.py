"""Assess: the ways to move a store side by side, with what they cost and keep."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from migrate.progress import Progress, no_progress
from migrate.steps.assess.options import AssessOptions
from migrate.steps.base import Step, function

if TYPE_CHECKING:
    from migrate.cost import Assessment
    from migrate.cost.count import CacheLookup


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

    def run(self, *, progress: Progress = no_progress, cached: CacheLookup | None = None) -> Assessment:
        """Count the store's texts, and set the plans side by side.

        Parameters
        ----------
        progress
            Called with a step, how much of it is done, and how much there is.
        cached
            Tells which texts are in the embedding cache, and paid for.
        """
        from migrate.steps.assess.job import open_assess

        self.check()
        return open_assess(self, progress, cached).execute()


assess = function(Assess)
