"""The options of a sync."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING

from migrate.steps.base import PRICE, RESTART, PaidOptions, argument, option

if TYPE_CHECKING:
    from migrate.steps.base import ModelLike, StoreLike


@dataclass(frozen=True, eq=False)
class SyncOptions(PaidOptions):
    """The two stores, as they are named, and how the new one is brought up to date."""

    old: StoreLike = field(metadata=argument("The store that `new` was made from, as it is now, or its path.", "store"))
    new: StoreLike = field(
        metadata=argument("The store that was translated, or re-embedded, from it before, or its path.", "store")
    )
    _: KW_ONLY
    any_store: bool = field(
        default=False, metadata=option("Allow an OLD that has fewer than half of the documents of NEW.", is_seldom=True)
    )
    target: ModelLike | None = field(
        default=None, metadata=option("Model of NEW.  [default: the one that it names]", "text", metavar="SPEC")
    )
    price: float | None = field(default=None, metadata=PRICE)
    restart: bool = field(default=False, metadata=RESTART)
