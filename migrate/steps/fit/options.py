"""The options of a fit, some of which `run` and others have too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from migrate.steps.base import LEARNING, PRICE, QUERY_LOG, SEED, PaidOptions, argument, option, parameter

if TYPE_CHECKING:
    from migrate.embedders.base import Embedder
    from migrate.steps.base import ModelLike, StoreLike
    from migrate.stitch.fitted import Direction, FittedStitch
    from migrate.vectors import Query

TARGET = option("Model to move to, such as openai:NAME or openai:NAME,dimensions=256.", "text", metavar="SPEC")
_STITCHES = (
    "auto, or one of identity, mean, procrustes, ridge and ridge+near; ridge+text and text read the documents too; "
    "docs/lab.md has further ones"
)
KIND = option(
    f"Kind of stitch: {_STITCHES}. If repeated, the best of these is used.",
    "text",
    multiple=True,
    metavar="KIND",
    section=LEARNING,
)
SAMPLE = option("Documents to embed again and learn from.", "pairs", section=LEARNING)
WORDS = option(
    "Words of the store that a target behind an API embeds too, the most frequent ones, to read texts by; 0 for none. "
    "They are embedded for samples of 500 and more, cost no more than a fifth of the sample, and are used if held-out "
    "documents find more by them than by more documents for as many tokens.",
    "number",
    is_seldom=True,
    section=LEARNING,
)
STRATEGY = parameter(
    "Which documents are embedded: random, diverse or query-log; None is for query-log where there is one, else random."
)
LOG = {**QUERY_LOG, "section": LEARNING}
SOURCE_MODEL = option("Model that the source store was built with.", "text", metavar="SPEC", section=LEARNING)


@dataclass(frozen=True, eq=False)
class FitOptions(PaidOptions):
    """The store and the models, as they are named, the sample, and the stitches to choose among."""

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
            "Stitch of the same two models from another corpus as a starting point for `ridge`; helps a small sample "
            "most.",
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
            "help": f"Kind of stitch: {_STITCHES}; for queries adjoint. If repeated, the best of these is used.",
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
    words: int = field(default=20_000, metadata=WORDS)
    price: float | None = field(default=None, metadata=PRICE)
    seed: int = field(default=0, metadata=SEED)

    @property
    def specs(self) -> tuple[str, ...]:
        """The stitches to choose among; a prior is for one of them."""
        kinds = (self.kind,) if isinstance(self.kind, str) else tuple(self.kind)
        # The ridge alone takes a prior
        if self.prior is not None and set(kinds) <= {"auto"}:
            return ("ridge",)
        return kinds
