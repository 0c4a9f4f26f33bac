"""What `audit` reads for its further arms: the depths of two-stage, and what a frontier is tried with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from migrate.audit.questions import Questions
    from migrate.documents import Query
    from migrate.stitch.fitted import FittedStitch


@dataclass(frozen=True, slots=True)
class Trial:
    """Shares (0-1) and policies to try, the stitch to start from, and the queries of a log that choose documents.

    No policies stand for all that can be used.
    """

    shares: Sequence[float]
    fitted: FittedStitch
    log: Sequence[Query]
    policies: Sequence[str]

    @property
    def choosers(self) -> frozenset[str]:
        """The queries that chose documents, or are going to, as `migrate.sample.choosers` has them."""
        from migrate.sample.choosers import choosers_of, digests_of

        return choosers_of(self.fitted.manifest) | digests_of(self.log)


def read_depths(text: str) -> tuple[int, ...]:
    """The depths of the two-stage arms; none for `none`.

    Raises
    ------
    UsageError
        They are not numbers above 0.
    """
    from migrate.errors import UsageError

    if text.strip().lower() == "none":
        return ()
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and int(part) for part in parts):
        raise UsageError(f"--two-stage: expected numbers of documents such as 50,200, or none, found {text!r}")
    return tuple(int(part) for part in parts)


def read_trial(
    shares: str | None, source: Path | None, stitch: Path | None, query_log: Path | None, policies: Sequence[str]
) -> Trial | None:
    """What a frontier is tried with; None where it is not asked for.

    Raises
    ------
    UsageError
        A share is none, an option is missing or means nothing without the others, or the stitch's confidence is not
        to be used and the policy of that name is asked for.
    StitchError, ManifestError, DatasetError, OutputError
        The stitch or the log cannot be read.
    """
    from migrate.datasets.query_log import read_query_log
    from migrate.errors import UsageError
    from migrate.reembed import Budget, require_confidence
    from migrate.reembed.policies import QUERY_LOG
    from migrate.sample.query_log import MOST_QUERIES
    from migrate.stitch.loading import load_stitch

    if shares is None:
        for flag, value in (("--stitch", stitch), ("--query-log", query_log), ("--policy", policies)):
            if value:
                raise UsageError(f"{flag} goes with --frontier; add --frontier, or leave it out")
        return None
    if source is None or stitch is None:
        raise UsageError("--frontier: expected --source STORE and the --stitch fitted on it, found fewer; name both")
    budgets = [Budget.parse(part) for part in shares.split(",")]
    if any(budget.unit != "share" for budget in budgets):
        raise UsageError(f"--frontier: expected shares of the store such as 10%,30%, found {shares!r}")
    fitted = load_stitch(stitch)
    if "confidence" in policies:
        require_confidence(fitted)  # told before anything is spent
    log: Sequence[Query] = ()
    if query_log is not None and (not policies or QUERY_LOG in policies):
        log = read_query_log(query_log)[:MOST_QUERIES]
    return Trial([budget.amount for budget in budgets], fitted, log, policies)


def asked_queries(questions: Questions, trial: Trial | None) -> Sequence[Query]:
    """The queries that the target model is asked for; what is asked for again is in the cache by then."""
    return [*questions.queries, *(() if trial is None else trial.log)]
