"""The options of a worker, of the library and of `live run`. No library is imported here, as `--help` reads them."""

from __future__ import annotations

from dataclasses import dataclass, field

from migrate.steps.base import PRICE, SEED, option


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """The ways of a worker. A budget is of what it sends itself, in all runs; what is embedded is written anyway.

    `margin_from` is where the margin is from, empty where it was named.
    """

    budget: str | None = field(
        default=None,
        metadata=option(
            "Most that this worker may send to the model in all its runs: 10% of the documents, 5000 documents, $20 "
            "or 300000tok.  [default: the whole store]",
            "text",
            metavar="BUDGET",
        ),
    )
    pace: str | None = field(
        default=None,
        metadata=option(
            "Highest pace: documents as 20/s, or tokens as 90000tok/min.  [default: no limit]",
            "text",
            metavar="N/UNIT",
        ),
    )
    from_queue: bool = field(default=False, metadata=option("Embed only documents that queries found.", is_seldom=True))
    once: bool = field(
        default=False,
        metadata=option("End when nothing is left to write, instead of waiting for more.", is_seldom=True),
    )
    on_unsafe: str | None = field(
        default=None,
        metadata=option(
            "Shell command to run when the verdict becomes NOT SAFE; it gets the verdict as JSON on its standard "
            "input.",
            "text",
            metavar="COMMAND",
        ),
    )
    price: float | None = field(default=None, metadata=PRICE)
    seed: int = field(default=0, metadata=SEED)
    margin: float = 0.95
    margin_from: str = ""
