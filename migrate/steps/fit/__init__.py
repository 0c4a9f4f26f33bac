"""Fit: a sample of a store, embedded with another model, to the stitch that leads there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from migrate.steps.base import PaidStep, function
from migrate.steps.fit.options import FitOptions

if TYPE_CHECKING:
    from migrate.cost.spending import PlannedModel
    from migrate.selection import Sample
    from migrate.steps.fit.inputs import FitInputs
    from migrate.stitch.fitted import FittedStitch
    from migrate.vectors import Document


@dataclass(frozen=True, eq=False)
class Fit(FitOptions, PaidStep["FittedStitch"]):
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

    @cached_property
    def inputs(self) -> FitInputs:
        """The store and the models, opened and checked, with meters in those that may cost money."""
        from migrate.steps.fit.inputs import open_inputs

        return open_inputs(self)

    @cached_property
    def models(self) -> tuple[PlannedModel, ...]:
        """The target and the views, for the sample; the source model, for the query log."""
        from migrate.cost.spending import SOURCE_MODEL, VIEW, PlannedModel
        from migrate.selection.matches import ASKED_AGAIN

        inputs = self.inputs
        log, views = inputs.log, inputs.views.values()
        searched = [] if log is None or log.embedder is None else [(log.embedder, log.looked_up)]
        return (
            PlannedModel(inputs.embedder, self.cap, documents=self.expected_documents, again=ASKED_AGAIN),
            *(PlannedModel(model, self.cap, SOURCE_MODEL, queries=queries) for model, queries in searched),
            *(PlannedModel(view, self.cap, VIEW, documents=self.expected_documents) for view in views),
        )

    @cached_property
    def drawn(self) -> Sample:
        """The documents to fit on; drawing them by a log may ask the source model."""
        from migrate.steps.fit.job import draw

        return draw(self, self.inputs)

    def expected_documents(self) -> Sequence[Document]:
        """The documents of the sample, or as many others where drawing it would ask a model."""
        from migrate.selection import draw_sample

        log = self.inputs.log
        if log is not None and log.embedder is not None and "drawn" not in vars(self):
            # A second sample, for the estimate alone: what changes `drawn` has to change this too
            return draw_sample(self.inputs.store, self.sample, seed=self.seed).documents
        return self.drawn.documents

    def execute(self) -> FittedStitch:
        """Embed the sample, judge the candidates on it, and fit the chosen one on all."""
        from migrate.steps.fit.job import check_stored_vectors, fit

        check_stored_vectors(self, self.inputs)  # before a log is embedded to draw the sample
        return fit(self, self.inputs, self.drawn)


fit = function(Fit)
