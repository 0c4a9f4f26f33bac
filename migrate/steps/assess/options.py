"""The options of an assessment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from migrate.steps.base import PRICE, SEED, argument, option, parameter

if TYPE_CHECKING:
    from migrate.steps.base import ModelLike, StoreLike

_SPEED: Mapping[str, Any] = {"section": "Speed"}


@dataclass(frozen=True, eq=False)
class AssessOptions:
    """The store and the target, as they are named, and how fast texts are embedded."""

    store: StoreLike = field(metadata=argument("A store with texts, or its path.", "store"))
    target: ModelLike = field(
        metadata=option(
            "Model to move to, such as openai:NAME. Repeat it to choose among models, with --judged or --queries.",
            "spec",
            multiple=True,
            metavar="SPEC",
        )
    )
    _: KW_ONLY
    tier: str = field(
        default="1",
        metadata=option(
            "OpenAI's usage tier of the account.", choices=("free", "1", "2", "3", "4", "5"), is_seldom=True, **_SPEED
        ),
    )
    calibrate: bool | None = field(
        default=None,
        metadata=option(
            "Time a local model on 32 documents.  [default: where it is on this machine]",
            flags=("--calibrate/--no-calibrate",),
            is_seldom=True,
            **_SPEED,
        ),
    )
    audit: str | Path | None = field(
        default=None,
        metadata=option(
            "JSON report of an audit of this move: shows what each plan keeps.",
            "path",
            metavar="FILE.json",
            section="Quality",
        ),
    )
    price: float | None = field(default=None, metadata=PRICE)
    seed: int = field(default=0, metadata=SEED)
    rate: str | None = field(
        default=None,
        metadata=parameter("How fast texts are embedded, such as 3000/min or 1000000tok/min, in the place of `tier`."),
    )
    is_own_server: bool = field(
        default=False, metadata=parameter("The target runs on a server of yours, which has no tiers.")
    )
    batch_size: int | None = field(
        default=None,
        metadata=parameter("Texts of a request; by default the model's own."),
    )
