"""The options of an audit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from migrate.audit.judged import JudgedOptions
from migrate.errors import UsageError
from migrate.steps.base import FORCE_REPORTS, RANKED_QUERIES, argument, option

if TYPE_CHECKING:
    from migrate.steps.base import ModelLike, StoreLike
    from migrate.stitch.fitted import FittedStitch

BUILD = "build"
"""The reference that embeds every text now."""

POOL = "pool"
"""The reference that embeds no more than the verdict needs; `pool:N` has at most N documents for a query."""

_LARGEST_DEPTH = 200
"""Documents that a pool has for a query at most where nothing is said."""

_SMALLEST_DEPTH = 10
"""A pool of fewer lacks documents of the first ten, by which the stores are compared."""

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
            "verdict needs, at most N documents of STORE for a query.",
            "text",
            metavar="STORE|build|pool[:N]",
        ),
    )
    _: KW_ONLY
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
    ranked_queries: int | None = field(default=None, metadata={**RANKED_QUERIES, **_ARMS})
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

    def depths(self) -> Sequence[int] | None:
        """Return the depths of the two-stage arms, with that of the plan; none for `none`, None for the usual ones."""
        from migrate.audit.results import rerank_depths

        depths = _numbers(self.two_stage, "--two-stage", "documents such as 50,200, or none")
        planned = rerank_depths(self.plan)
        return (*(depths or ()), *planned) if planned else depths

    @property
    def is_pooled(self) -> bool:
        """True where a pool stands for the full re-embed."""
        return is_pool(self.reference)

    def pool_depth(self) -> int | None:
        """Return the documents of the translated store that a pool has for a query at most; None without a pool."""
        if not self.is_pooled:
            return None
        _, has_depth, depth = str(self.reference).partition(":")
        if not has_depth:
            return _LARGEST_DEPTH
        if not _is_count(depth) or int(depth) < _SMALLEST_DEPTH:
            raise UsageError(
                f"--reference {self.reference}: {depth!r} is not a number of documents for a query, from "
                f"{_SMALLEST_DEPTH} on; give one such as {POOL}:500"
            )
        return int(depth)


def is_pool(reference: StoreLike) -> bool:
    """Return True if `pool` or `pool:N` is named, rather than a store."""
    return isinstance(reference, str) and reference.partition(":")[0] == POOL


def names_store(reference: StoreLike) -> bool:
    """Return True if a reference is a store, rather than to be embedded."""
    return reference != BUILD and not is_pool(reference)


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
    if not all(_is_count(number) and int(number) for number in numbers):
        raise UsageError(f"{flag}: {value!r} is not a list of numbers of {expectation}")
    return tuple(int(number) for number in numbers)


def _is_count(word: str) -> bool:
    # isdigit() alone is True of superscripts, which int() refuses, and nothing here counts to a billion
    return word.isascii() and word.isdigit() and len(word) < 10
