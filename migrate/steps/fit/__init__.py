"""Fit: a sample of a store, embedded with another model, to the stitch that leads there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from migrate.steps.base import LEARNING, PRICE, QUERY_LOG, SEED, PaidStep, argument, function, option, parameter

if TYPE_CHECKING:
    from migrate.cost.spending import PlannedModel
    from migrate.embedders.base import Embedder
    from migrate.selection import Sample
    from migrate.steps.base import ModelLike, StoreLike
    from migrate.steps.fit.inputs import FitInputs
    from migrate.stitch.fitted import Direction, FittedStitch
    from migrate.vectors import Document, Query

TARGET = option("Model to move to, such as openai:NAME or openai:NAME,dimensions=256.", "text", metavar="SPEC")
_STITCHES = (
    "auto, or one of identity, mean, procrustes, ridge and ridge+near; ridge+text and text read the documents too; "
    "docs/lab.md has further ones"
)
KIND = option(
    f"Kind of stitch: {_STITCHES}. Repeated: the best of these.",
    "text",
    multiple=True,
    metavar="KIND",
    section=LEARNING,
)
SAMPLE = option("Documents to embed again and learn from.", "pairs", section=LEARNING)
STRATEGY = parameter(
    "Which documents are embedded: random, diverse or query-log; None is for query-log where there is one, else random."
)
LOG = {**QUERY_LOG, "section": LEARNING}
SOURCE_MODEL = option("Model that the source store was built with.", "text", metavar="SPEC", section=LEARNING)


@dataclass(frozen=True, eq=False)
class Fit(PaidStep["FittedStitch"]):
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

    store: StoreLike = field(metadata=argument("A store, or its path.", "store"))
    target: ModelLike = field(metadata=TARGET)
    _: KW_ONLY
    direction: Direction = field(
        default="document",
        metadata=option(
            "What the stitch maps: the store's documents into the new space, or new queries into the old one.",
            choices=("document", "query"),
            is_seldom=True,
        ),
    )
    prior: FittedStitch | str | Path | None = field(
        default=None,
        metadata=option(
            "Stitch of the same two models from another corpus for a `ridge` to lean on; helps a small sample most.",
            "stitch",
            metavar="STITCH",
            is_seldom=True,
        ),
    )
    grown_from: FittedStitch | str | Path | None = field(
        default=None,
        metadata=option(
            "Stitch fitted before STORE grew, whose sample is taken again from the cache and counts in --sample.",
            "stitch",
            metavar="STITCH",
            is_seldom=True,
        ),
    )
    kind: str | Sequence[str] = field(
        default=("auto",),
        metadata={
            **KIND,
            "help": f"Kind of stitch: {_STITCHES}; for queries adjoint.  Repeated: the best of these.",
        },
    )
    sample: int = field(default=1_000, metadata=SAMPLE)
    strategy: str | None = field(default=None, metadata=STRATEGY)
    query_log: Path | str | Sequence[Query] | None = field(default=None, metadata=LOG)
    source_model: ModelLike | None = field(default=None, metadata=SOURCE_MODEL)
    view: Mapping[str, Embedder] | Sequence[str] | None = field(
        default=None,
        metadata=option(
            "Further model to read the texts with, or `none`; can be repeated.  [default: a free local one, if "
            "there is one and the target may cost money]",
            "text",
            is_seldom=True,
            multiple=True,
            metavar="SPEC",
            section=LEARNING,
        ),
    )
    price: float | None = field(default=None, metadata=PRICE)
    seed: int = field(default=0, metadata=SEED)

    @property
    def specs(self) -> tuple[str, ...]:
        """The stitches to choose among; a prior is for one of them."""
        kinds = (self.kind,) if isinstance(self.kind, str) else tuple(self.kind)
        return ("ridge",) if self.prior is not None and set(kinds) <= {"auto"} else kinds

    @cached_property
    def inputs(self) -> FitInputs:
        """The store and the models, opened and checked, with meters in those that may cost money."""
        from migrate.steps.fit.inputs import open_inputs

        return open_inputs(self)

    @cached_property
    def models(self) -> tuple[PlannedModel, ...]:
        """The target and the views, for the sample; the source model, for the query log."""
        from migrate.cost.spending import SOURCE_MODEL, VIEW, PlannedModel
        from migrate.embedders.again import ASKED_AGAIN

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

        return draw(self)

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
        from migrate.steps.fit.job import fit

        return fit(self)


fit = function(Fit)
