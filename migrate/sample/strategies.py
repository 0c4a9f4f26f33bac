"""The ways of choosing documents by name, and which one applies."""

from __future__ import annotations

from migrate.errors import UsageError

RANDOM, DIVERSE, QUERY_LOG = "random", "diverse", "query-log"

STRATEGIES = (RANDOM, DIVERSE, QUERY_LOG)
"""Names for `--strategy`. `benchmarks/sampling.py` compares them."""


def choose_strategy(strategy: str | None, *, has_log: bool) -> str:
    """The strategy that was asked for; by default `query-log` where there is a log, else `random`.

    Raises
    ------
    UsageError
        No such strategy; or `query-log` without a log; or a log that another strategy would not read.
    """
    chosen = strategy or (QUERY_LOG if has_log else RANDOM)
    if chosen not in STRATEGIES:
        raise UsageError(f"expected a strategy among {', '.join(STRATEGIES)}; found {chosen!r}")
    if chosen == QUERY_LOG and not has_log:
        raise UsageError("expected a query log for the strategy query-log, found none; name it with --query-log FILE")
    if chosen != QUERY_LOG and has_log:
        raise UsageError(
            f"expected no query log for the strategy {chosen}, found one; leave out --query-log or --strategy"
        )
    return chosen
