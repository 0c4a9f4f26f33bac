"""Fit: a sample of a store, embedded with another model, to the stitch that leads there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from migrate.steps.base import JobStep, RunContext, function
from migrate.steps.fit.options import FitOptions

if TYPE_CHECKING:
    from migrate.steps.fit.job import FitJob
    from migrate.stitch.fitted import FittedStitch


@dataclass(frozen=True, eq=False)
class Fit(FitOptions, JobStep["FittedStitch"]):
    """Embed a sample of a store with the target model, and fit the stitch that does best on held-out documents.

    A store without texts can be fitted with an embedder that does without, which a file of vectors by id does. The
    stitch then reads the old vectors alone. With `direction="query"` it leads from the new vectors of the sample to the
    old ones, so that the store as it is can answer queries of the target model (`FittedStitch.map_queries`).

    Raises
    ------
    StoreError
        The store has no texts, and the model or the stitch reads them; or it is not the one of its manifest.
    UsageError
        No such stitch, or none for that direction; or a strategy that does not go with the log.
    StitchError
        The prior is for other models; or there are fewer than two documents.
    VectorError
        A vector of the store is not finite, or zero and to be translated.
    RemoteError, InputError, SpendingError
        The model fails, or costs more than `max_cost`.

    Examples
    --------
    >>> import migrate
    >>> migrate.fit("my-store", "tfidf:24", kind="ridge", sample=100)  # doctest: +ELLIPSIS
    <FittedStitch ridge: tfidf:32 -> tfidf:24, 32 -> 24 dimensions, 100 pairs, held-out overlap@10 0...>
    """

    def open(self, context: RunContext | None = None) -> FitJob:
        """Open the store and the models, and make sure that they go together. Nothing is embedded."""
        from migrate.steps.fit.job import open_fit

        return open_fit(self, context or RunContext())


fit = function(Fit)
