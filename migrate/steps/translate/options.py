"""The options of a translation, some of which `reembed` has too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from migrate.steps.base import (
    FORCE,
    PRICE,
    QUERY_LOG,
    RESTART,
    SEED,
    PaidOptions,
    argument,
    option,
)

if TYPE_CHECKING:
    from migrate.steps.base import ModelLike, StoreLike
    from migrate.steps.translate.choice import Budget
    from migrate.stitch.fitted import FittedStitch
    from migrate.vectors import Query

REEMBEDDING = "Re-embedding"
"""Title of a section of the help text."""

OUTPUT = option("Folder to write, or KIND:LOCATION for a store of another kind.", "store", flags=("--output", "-o"))
POLICY = option(
    "Documents to embed first.  [default: query-log where there is one, else confidence, or random where "
    "that cannot be used]",
    choices=("query-log", "confidence", "random"),
    section=REEMBEDDING,
    is_seldom=True,
)
LOG = {**QUERY_LOG, "section": REEMBEDDING}
SAVE_STITCH = option(
    "Folder for the stitch fitted again.  [default: OUTPUT.stitch]", "path", section=REEMBEDDING, is_seldom=True
)


@dataclass(frozen=True, eq=False)
class TranslateOptions(PaidOptions):
    """The store, the stitch and the output, as they are named, and what is embedded before."""

    store: StoreLike = field(metadata=argument("The store that the stitch was fitted on, or its path.", "store"))
    stitch: FittedStitch | str | Path | None = field(
        default=None,
        metadata=argument(
            "The stitch that `fit` returned, or the folder or URL that it was saved to.", "stitch", required=False
        ),
    )
    output: str | Path | None = field(default=None, metadata=OUTPUT)
    _: KW_ONLY
    into: str | None = field(
        default=None,
        metadata=option(
            "Name of a new field or column of vectors in the records of STORE, instead of --output.",
            "text",
            metavar="FIELD",
        ),
    )
    to_dimensions: int | None = field(
        default=None,
        metadata=option(
            "Keep the first N dimensions of each vector, at unit length, instead of a STITCH: for models that were "
            "trained for shorter vectors (Matryoshka).",
            "count",
            metavar="N",
            flags=("--dimensions",),
        ),
    )
    any_store: bool = field(
        default=False,
        metadata=option("Allow a store that the stitch was not fitted on, such as one that has grown.", is_seldom=True),
    )
    reembed: Budget | str | None = field(
        default=None,
        metadata=option(
            "Part of the store to embed for real, the sample included, before the stitch is fitted again on all of it.",
            "text",
            metavar="10%|5000|$20|300000tok",
            section=REEMBEDDING,
        ),
    )
    policy: str | None = field(default=None, metadata=POLICY)
    query_log: Path | str | Sequence[Query] | None = field(default=None, metadata=LOG)
    save_stitch: Path | str | None = field(default=None, metadata=SAVE_STITCH)
    target: ModelLike | None = field(
        default=None,
        metadata=option(
            "Model to re-embed with.  [default: the stitch's own]", "text", metavar="SPEC", section=REEMBEDDING
        ),
    )
    price: float | None = field(default=None, metadata=PRICE)
    pace: float | None = field(
        default=None,
        metadata=option(
            "Share of the time to work, with a rest after each piece of work, so that the store can serve meanwhile: "
            "0.25 takes about four times as long.",
            "pace",
            metavar="SHARE",
        ),
    )
    workers: int | None = field(
        default=None,
        metadata=option(
            "Processes, at most, for a stitch that reads texts.  [default: one per core]",
            "count",
            metavar="N",
            is_seldom=True,
        ),
    )
    engine: str | None = field(
        default=None,
        metadata=option(
            "Program whose machines translate STORE, files of Parquet, into an output parquet:LOCATION, such as ray, "
            "daft or spark:spark://HOST:7077.",
            "text",
            metavar="NAME[:ADDRESS]",
            is_seldom=True,
        ),
    )
    seed: int = field(default=0, metadata=SEED)
    force: bool = field(default=False, metadata=FORCE)
    restart: bool = field(default=False, metadata=RESTART)
