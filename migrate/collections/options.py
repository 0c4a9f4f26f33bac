"""The options of `collections fit`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING

from migrate.steps.base import PRICE, SEED, PaidOptions, argument
from migrate.steps.fit.options import KIND, SAMPLE, TARGET

if TYPE_CHECKING:
    from migrate.steps.base import ModelLike


@dataclass(frozen=True, eq=False)
class CollectionsOptions(PaidOptions):
    """The collections and the model, as they are named, the sample, and the stitches to choose among."""

    store: str = field(metadata=argument("Collections: a location with a *.", "store"))
    target: ModelLike = field(metadata=TARGET)
    _: KW_ONLY
    kind: str | Sequence[str] = field(default=("auto",), metadata=KIND)
    sample: int = field(default=1_000, metadata=SAMPLE)
    price: float | None = field(default=None, metadata=PRICE)
    seed: int = field(default=0, metadata=SEED)
