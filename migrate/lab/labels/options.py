"""The options of `labels`."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path

from migrate.steps.base import FORCE_REPORTS, MARGIN, PRICE, SEED, PaidOptions, argument, option


@dataclass(frozen=True, eq=False)
class LabelOptions(PaidOptions):
    """The stores, the model and the files of labels, and what must be retained."""

    store: str = field(metadata=argument("The store that `translate` wrote, or its path.", "store"))
    _: KW_ONLY
    reference: str = field(
        metadata=option("Full re-embed to train on, such as `reembed` writes.", "text", metavar="STORE")
    )
    labels: Path = field(
        metadata=option("Labels of documents: JSONL with id and label, or two columns.", "path", metavar="FILE")
    )
    outside: Path | None = field(
        default=None,
        metadata=option(
            "File of ids, one per line, of documents unlike those with --labels, which a detector should find.",
            "path",
            metavar="FILE",
        ),
    )
    target: str | None = field(
        default=None,
        metadata=option("Model to prove the reference with.  [default: the store's own]", "text", metavar="SPEC"),
    )
    margin: float = field(default=0.95, metadata={**MARGIN, "help": "Share of right answers that must be retained."})
    price: float | None = field(default=None, metadata=PRICE)
    seed: int = field(default=0, metadata=SEED)
    force: bool = field(default=False, metadata=FORCE_REPORTS)
