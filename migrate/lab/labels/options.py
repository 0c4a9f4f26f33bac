"""The options of `labels`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from migrate.steps.base import FORCE_REPORTS, MARGIN, PRICE, SEED, PaidOptions, argument, option, parameter

if TYPE_CHECKING:
    from migrate.steps.base import ModelLike, StoreLike


@dataclass(frozen=True, eq=False)
class LabelOptions(PaidOptions):
    """The stores, the model and the labels, as they are named, and what must be retained."""

    store: StoreLike = field(metadata=argument("The store that `translate` wrote, or its path.", "store"))
    _: KW_ONLY
    reference: StoreLike = field(
        metadata=option("Full re-embed to train on, such as `reembed` writes.", "text", metavar="STORE")
    )
    labels: Mapping[str, str] | Path | str = field(
        metadata=option("Labels of documents: JSONL with id and label, or two columns.", "path", metavar="FILE")
    )
    outside: Sequence[str] | Path | str | None = field(
        default=None,
        metadata=option(
            "File of ids, one a line, of documents unlike those with --labels, which a detector is to find.",
            "path",
            metavar="FILE",
        ),
    )
    target: ModelLike | None = field(
        default=None,
        metadata=option("Model to prove the reference with.  [default: the store's own]", "text", metavar="SPEC"),
    )
    margin: float = field(default=0.95, metadata={**MARGIN, "help": "Share of right answers that must be retained."})
    price: float | None = field(default=None, metadata=PRICE)
    seed: int = field(default=0, metadata=SEED)
    force: bool = field(default=False, metadata=FORCE_REPORTS)
    margin_from: str = field(
        default="", metadata=parameter("Origin of the margin, such as the name of a file, for the report.")
    )
