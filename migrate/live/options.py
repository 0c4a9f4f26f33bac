"""Options of a worker, of the library and of `live run`, and limits of a searcher. No library is imported here."""

from __future__ import annotations

from dataclasses import dataclass, field

from migrate.errors import UsageError
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
    from_queue: bool = field(default=False, metadata=option("Embed only documents that queries found.", is_seldom=True))
    once: bool = field(
        default=False,
        metadata=option("End when nothing is left to write, instead of waiting for more.", is_seldom=True),
    )
    price: float | None = field(default=None, metadata=PRICE)
    seed: int = field(default=0, metadata=SEED)
    margin: float = 0.95
    margin_from: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveLimits:
    """Limits of what a searcher does for a query.

    Attributes
    ----------
    depth : documents of the store that are ranked again; at most these are ever wanted
    max_documents : documents that a query may have embedded; 0 leaves all of them to the worker
    budget : documents that queries may have embedded in all, by all searchers of the store; None for no end. They hear
        of each other every `refresh_s` seconds, and what is under way comes to its end. The worker has its own budget
    max_ms : milliseconds that a query may wait for them; what is late serves the next one
    search_ms : milliseconds that the search of an old store may take; then the new one answers alone
    sampled : the share of queries that is kept for the monitor
    refresh_s : seconds between looks for another store at the location or a changed text of a database, and between
        writes of what was counted
    memory_bytes : true vectors that may be held in memory
    """

    depth: int = 50
    max_documents: int = 8
    budget: int | None = None
    max_ms: float = 200.0
    search_ms: float = 2_000.0
    sampled: float = 0.1
    refresh_s: float = 1.0
    memory_bytes: int = 512 << 20

    def __post_init__(self) -> None:
        least = {"depth": 1, "max_documents": 0, "memory_bytes": 0} | ({} if self.budget is None else {"budget": 0})
        for name, smallest in least.items():
            number = getattr(self, name)
            if not isinstance(number, int) or number < smallest:
                raise UsageError(f"LiveLimits: {name} is {number!r}; give a whole number from {smallest} on")
        is_above_0 = self.refresh_s > 0 and self.search_ms > 0
        if not (self.max_ms >= 0 and is_above_0 and 0 <= self.sampled <= 1):  # also where one is not a number
            raise UsageError(
                f"LiveLimits: max_ms {self.max_ms}, search_ms {self.search_ms}, refresh_s {self.refresh_s} or sampled "
                f"{self.sampled} is out of its range; give max_ms from 0 on, search_ms and refresh_s above 0, and "
                "sampled from 0 to 1"
            )
