"""Policies: in which order the documents of a store are worth their true vectors.

query-log    the first hit of every query that was asked, then every second hit ...: what users will meet
confidence   the least sure translations first
random       each with equal chance: the next ones of the order that a random sample is drawn in

A policy says nothing of how many: that is the budget's.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from migrate.errors import StitchError, UsageError
from migrate.reembed.survey import Survey, paid_rows, survey_store
from migrate.sample.query_log import rank_by_rank
from migrate.stitch.fitted import FittedStitch
from migrate.stores.base import Store
from migrate.stores.confidence import unreliable
from migrate.vectors import Progress, Vectors, no_progress

QUERY_LOG, CONFIDENCE, RANDOM = "query-log", "confidence", "random"

POLICIES = (QUERY_LOG, CONFIDENCE, RANDOM)


def why_unsure(fitted: FittedStitch) -> str | None:
    """Why the policy `confidence` is not to be used with a stitch, None where it is."""
    confidence = fitted.selection.confidence
    if confidence is None:
        return "the stitch does not say how sure it is"
    return None if confidence.is_usable else unreliable(confidence.spearman)


def require_confidence(fitted: FittedStitch) -> None:
    """Make sure that the policy `confidence` is to be used with a stitch.

    Raises
    ------
    UsageError
        It is not.
    """
    why = why_unsure(fitted)
    if why is not None:
        raise UsageError(
            f"--policy {CONFIDENCE}: {why}; take --policy {QUERY_LOG} with a --query-log, or --policy {RANDOM}"
        )


def choose_policy(policy: str | None, fitted: FittedStitch, *, has_log: bool) -> str:
    """The policy that was asked for; by default `query-log` where there is a log, else `confidence`.

    Where the confidence of `fitted` is not to be used, the default is `random`.

    Raises
    ------
    UsageError
        There is no such policy, it does not go with the presence of a log, or it is `confidence` and that is not to be
        used.
    """
    chosen = policy or (QUERY_LOG if has_log else RANDOM if why_unsure(fitted) else CONFIDENCE)
    if chosen not in POLICIES:
        raise UsageError(f"expected a policy of {', '.join(POLICIES)}, found {chosen!r}; choose one of them")
    if chosen == QUERY_LOG and not has_log:
        raise UsageError(
            "expected a query log for the policy query-log, found none; name one with --query-log, or choose another "
            "policy"
        )
    if chosen != QUERY_LOG and has_log:
        raise UsageError(
            f"expected no query log, as the policy {chosen} does not read one; leave it out, or choose query-log"
        )
    if chosen == CONFIDENCE:
        require_confidence(fitted)
    return chosen


def look_over(
    policy: str, store: Store, fitted: FittedStitch, queries: Vectors | None, *, progress: Progress = no_progress
) -> Survey:
    """As much of a survey as the policy needs; chance needs no look at the vectors."""
    if policy == RANDOM:
        return Survey(paid_rows(store, fitted), np.full(store.info.count, np.nan, dtype=np.float32))
    return survey_store(store, fitted, queries if policy == QUERY_LOG else None, progress=progress)


def rank_rows(policy: str, survey: Survey, *, seed: int = 0) -> NDArray[np.int64]:
    """The rows that are not paid for, those worth most first, (m,).

    A log touches some documents only; after them the others follow at random.

    Raises
    ------
    StitchError
        The policy is `confidence`, and the stitch knows none.
    """
    order = np.random.default_rng(seed).permutation(len(survey.paid))
    if policy == CONFIDENCE:
        if np.isnan(survey.confidence).any():
            raise StitchError(
                "expected a stitch that says how sure it is, found one that does not; fit it again, or choose another "
                "policy"
            )
        order = np.argsort(survey.confidence, kind="stable")
    elif policy == QUERY_LOG:
        first = np.fromiter(rank_by_rank(survey.hits), dtype=np.int64)
        order = np.concatenate([first, order[~np.isin(order, first)]])
    return order[~survey.paid[order]]
