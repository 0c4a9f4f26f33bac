"""The options of an audit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from migrate.audit.judged import JudgedOptions
from migrate.errors import UsageError
from migrate.steps.base import FORCE_REPORTS, argument, option, parameter

if TYPE_CHECKING:
    from migrate.steps.base import ModelLike, StoreLike
    from migrate.stitch.fitted import FittedStitch

BUILD, POOL = "build", "pool"
"""References that are no stores: every text is embedded now, or those of a pool."""

_BEFORE: Mapping[str, Any] = {"section": "Before the migration"}
_ARMS: Mapping[str, Any] = {"section": "Arms and verdict"}

PARENT_FIELD = option(
    "Metadata field in which a chunk names the document it was cut from.",
    "text",
    metavar="FIELD",
    is_seldom=True,
    **_ARMS,
)
SOURCE_MODEL = option("Model that the source store was built with.", "text", metavar="SPEC", **_BEFORE)


@dataclass(frozen=True, eq=False)
class AuditOptions(JudgedOptions):
    """The stores, the models and the queries, as they are named, and how the arms are judged."""

    store: StoreLike = field(metadata=argument("The store that `translate` wrote, or its path.", "store"))
    reference: StoreLike = field(
        default=POOL,
        metadata=option(
            "Full re-embed to compare with, `build` to embed every text now, or `pool` to embed no more than the "
            "verdict needs.",
            "text",
            metavar="STORE|build|pool",
        ),
    )
    _: KW_ONLY
    pool_depth: int | None = field(
        default=None,
        metadata=parameter("Documents of STORE that a pool embeds for a query at most, from 10 on; None is for 200."),
    )
    search_effort: int | None = field(
        default=None,
        metadata=option(
            "Value of the setting of STORE's search (nprobe, efSearch ...) that your program sets, where another is "
            "stored.",
            "count",
            metavar="N",
            is_seldom=True,
            **_ARMS,
        ),
    )
    target: ModelLike | None = field(
        default=None,
        metadata=option("Model to embed the queries with.  [default: the store's own]", "text", metavar="SPEC"),
    )
    source: StoreLike | None = field(
        default=None, metadata=option("Store before the migration: adds the arm `stay`.", "store", **_BEFORE)
    )
    source_model: ModelLike | None = field(default=None, metadata=SOURCE_MODEL)
    bridge: FittedStitch | Path | str | None = field(
        default=None,
        metadata=option(
            "Stitch of `fit --direction query`: adds the arm `bridge`, which asks --source with the new model's "
            "queries.",
            "path",
            metavar="STITCH",
            is_seldom=True,
            **_BEFORE,
        ),
    )
    two_stage: Sequence[int] | str | None = field(
        default=None,
        metadata=option(
            "Depths of arms that embed the store's first N documents for a query and rank them again; a pool goes "
            "as deep.  [default: 20, 50 and 200, as far as a pool goes by itself]",
            "text",
            metavar="N,N|none",
            is_seldom=True,
            **_ARMS,
        ),
    )
    no_bm25: bool = field(
        default=False,
        metadata=parameter(
            "Leave the arms of words out of the report. That the full re-embed is not worse than BM25 is checked even "
            "so."
        ),
    )
    parent_field: str = field(default="parent_id", metadata=PARENT_FIELD)
    slice: Sequence[str] = field(
        default=(),
        metadata=option(
            "Metadata field of the documents to look at queries by, each value apart; can be repeated.",
            "text",
            metavar="FIELD",
            multiple=True,
            is_seldom=True,
            **_ARMS,
        ),
    )
    force: bool = field(
        default=False,
        metadata=FORCE_REPORTS,
    )
    resamples: int = field(default=10_000, metadata=parameter("Resamples of the bootstrap."))

    def depths(self) -> Sequence[int] | None:
        """Return the depths of the two-stage arms, with that of the plan; none for `none`, None for the usual ones."""
        from migrate.audit.results import rerank_depths

        depths = _numbers(self.two_stage, "--two-stage", "documents such as 50,200, or none")
        planned = rerank_depths(self.plan)
        return (*(depths or ()), *planned) if planned else depths

    @property
    def is_pooled(self) -> bool:
        """True where a pool stands for the full re-embed."""
        return self.reference == POOL

    @property
    def most_deep(self) -> int:
        """The documents of the translated store that a pool has for a query at most."""
        return 200 if self.pool_depth is None else self.pool_depth


def _numbers(value: Any, flag: str, expectation: str) -> tuple[int, ...] | None:
    """Return numbers as they were typed or given; none for `none`, and None where nothing is said."""
    if value is None:
        return None
    if isinstance(value, int):
        return (value,)
    if not isinstance(value, str):
        return tuple(value)
    if value.strip().lower() == "none" and "none" in expectation:
        return ()
    numbers = [number.strip() for number in value.split(",")]
    if not all(number.isascii() and number.isdigit() and len(number) < 10 and int(number) for number in numbers):
        raise UsageError(f"{flag}: {value!r} is not a list of numbers of {expectation}")
    return tuple(int(number) for number in numbers)
