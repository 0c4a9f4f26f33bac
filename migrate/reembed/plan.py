"""What to re-embed, and what it will cost: decided before anything but the queries of a log is embedded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from migrate.cost import Cost, Tally, tally_of
from migrate.documents import Document, Query
from migrate.embedders.base import Embedder
from migrate.reembed.budget import Budget
from migrate.reembed.policies import QUERY_LOG, look_over, rank_rows
from migrate.reembed.survey import Survey
from migrate.sample import Sample
from migrate.sample.distinct import distinct_texts
from migrate.sample.query_log import MOST_QUERIES
from migrate.stitch.fitted import FittedStitch
from migrate.stores.base import Store
from migrate.vectors import Progress, Vectors, no_progress


@dataclass(frozen=True, eq=False)
class Plan:
    """The documents to embed, those of `sample`, beside `survey.paid`, at the `cost` that `counted_by` tells.

    `from_log` of them are hits of the query log.
    """

    budget: Budget
    policy: str
    sample: Sample
    survey: Survey
    cost: Cost
    from_log: int
    counted_by: str


def plan_reembedding(
    store: Store,
    fitted: FittedStitch,
    embedder: Embedder,
    budget: Budget,
    policy: str,
    log: Sequence[Query] = (),
    *,
    price_usd_per_mtok: float | None = None,
    seed: int = 0,
    progress: Progress = no_progress,
) -> Plan:
    """Choose documents by `policy` within `budget`. The price is by default that of the registry.

    Raises
    ------
    UsageError
        The budget is used up already, or is in dollars and the model has no price.
    RemoteError
        A query of the log could not be embedded.
    """
    queries: Vectors | None = None
    if policy == QUERY_LOG:
        queries = embedder.embed_queries(log[:MOST_QUERIES], progress=progress)
    survey = look_over(policy, store, fitted, queries, progress=progress)
    return make_plan(store, survey, budget, policy, tally=tally_of(embedder, price_usd_per_mtok), seed=seed)


def make_plan(store: Store, survey: Survey, budget: Budget, policy: str, *, tally: Tally, seed: int = 0) -> Plan:
    """Choose documents by what a survey found, `tally` counting and pricing them.

    Raises
    ------
    UsageError
        As `plan_reembedding`.
    """
    paid = tally.cost(store.documents(np.flatnonzero(survey.paid)))
    order = rank_rows(policy, survey, seed=seed)
    ranked = distinct_texts(store, order, len(order))
    found = sorted(budget.choose(ranked, paid, store.info.count, tally), key=lambda one: one.row)
    rows = np.array([one.row for one in found], dtype=np.int64)
    documents: tuple[Document, ...] = tuple(one.document for one in found)
    hit = np.unique(np.fromiter((row for hits in survey.hits for row in hits), dtype=np.int64))
    from_log = int(np.isin(rows, hit).sum()) if policy == QUERY_LOG else 0
    sample, counted_by = Sample(rows, documents), tally.target.counter.sentence
    return Plan(budget, policy, sample, survey, tally.cost(documents), from_log, counted_by)
