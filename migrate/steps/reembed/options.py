"""The options of a full re-embed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from migrate.steps.base import FORCE, PRICE, RESTART, SEED, PaidOptions, argument, option, parameter
from migrate.steps.fit.options import TARGET
from migrate.steps.translate.options import LOG, OUTPUT, POLICY, SAVE_STITCH

if TYPE_CHECKING:
    from migrate.steps.base import ModelLike, StoreLike
    from migrate.steps.translate.choice import Budget
    from migrate.stitch.fitted import FittedStitch
    from migrate.vectors import Query

_SHARE: Mapping[str, Any] = {"section": "A share"}


@dataclass(frozen=True, eq=False)
class ReembedOptions(PaidOptions):
    """The store, the model and the output, as they are named, and which documents are embedded."""

    store: StoreLike = field(metadata=argument("A store, or its path. It may be a translated one.", "store"))
    target: ModelLike | None = field(metadata={**TARGET, "required": False})
    output: str | Path = field(metadata=OUTPUT)
    _: KW_ONLY
    from_cache: bool = field(
        default=False,
        metadata=option(
            "Take the true vectors in the embedding cache, and embed nothing; the default of --target is STORE's model."
        ),
    )
    rows: Path | str | None = field(
        default=None,
        metadata=option(
            "Embed only the documents in FILE, which `check --rows` wrote, with the model that STORE is of; the others "
            "keep their vectors.",
            "path",
            metavar="FILE",
        ),
    )
    share: Budget | str | None = field(
        default=None,
        metadata=option(
            "Part of the store to embed, the sample of --stitch included; the stitch, fitted again on all of it, "
            "translates the rest.",
            "text",
            metavar="30%|5000|$20|300000tok",
            **_SHARE,
        ),
    )
    stitch: FittedStitch | str | Path | None = field(
        default=None, metadata=option("Stitch for the rest, fitted on STORE.", "stitch", metavar="STITCH", **_SHARE)
    )
    policy: str | None = field(default=None, metadata={**POLICY, **_SHARE})
    query_log: Path | str | Sequence[Query] | None = field(default=None, metadata={**LOG, **_SHARE})
    save_stitch: Path | str | None = field(default=None, metadata=parameter(SAVE_STITCH["help"]))
    price: float | None = field(default=None, metadata=PRICE)
    seed: int = field(default=0, metadata=SEED)
    force: bool = field(default=False, metadata=FORCE)
    restart: bool = field(default=False, metadata=RESTART)
