"""Trying a budget: choose its documents, take their true vectors from the reference, fit again, translate, judge."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from migrate.audit.audit import Keys, Questions
from migrate.audit.measures import Scores, ndcg, overlap
from migrate.audit.points import SAMPLE, Point
from migrate.audit.verdict import Verdict, decide
from migrate.cost import estimate_cost
from migrate.errors import StoreError
from migrate.reembed.budget import Budget
from migrate.reembed.plan import make_plan
from migrate.reembed.refit import extended, refit_same_kind
from migrate.reembed.survey import Survey
from migrate.search.runs import DEPTH, Run, search, without_self
from migrate.stitch.fitted import FittedStitch
from migrate.stores.base import Metric, Store
from migrate.translate import batch_rows, translated_batches
from migrate.vectors import Batch, Vectors


@dataclass(frozen=True, eq=False)
class Judge:
    """Holds vectors against the full re-embed, as an audit does.

    `asked` are the queries' vectors by the target model, (q, dim); `stay` the scores of staying, where they are known.
    """

    questions: Questions
    asked: Vectors
    metric: Metric
    keys: Keys
    reference: Store
    margin: float
    seed: int
    resamples: int
    stay: Scores | None = None

    @property
    def measure(self) -> str:
        """What retention is of."""
        return "overlap@10" if self.questions.qrels is None else "nDCG@10"

    def verdict(self, batches: Iterable[Batch]) -> Verdict:
        """The verdict on a store of these vectors."""
        return decide(
            self._scores(self._run(batches, self.metric)),
            self._full,
            None if self.questions.qrels is None else self.stay,
            margin=self.margin,
            seed=self.seed,
            resamples=self.resamples,
            provisional=self.questions.qrels is None,
        )

    def _run(self, batches: Iterable[Batch], metric: Metric) -> Run:
        depth = DEPTH + self.questions.exclude_self
        ids = self.questions.query_ids
        found = search(batches, ids, self.asked, metric=metric, key=self.keys.__getitem__, depth=depth)
        return without_self(found) if self.questions.exclude_self else found

    def _scores(self, run: Run) -> Scores:
        ids, qrels = self.questions.query_ids, self.questions.qrels
        return overlap(run, self._full_run, ids, 10) if qrels is None else ndcg(run, qrels, ids, 10)

    @cached_property
    def _full_run(self) -> Run:
        return self._run(self.reference.batches(), self.reference.info.metric)

    @cached_property
    def _full(self) -> Scores:
        return self._scores(self._full_run)


@dataclass(frozen=True, eq=False)
class Attempts:
    """Budgets to try on a store, with the stitch that it has and what a survey found."""

    store: Store
    fitted: FittedStitch
    reference: Store
    survey: Survey
    judge: Judge
    price_usd_per_mtok: float | None
    seed: int

    def sample(self) -> Point:
        """The store as the stitch translates it now."""
        return self._point(SAMPLE, self.survey.paid, self.fitted)

    def point(self, policy: str, share: float) -> Point:
        """The store with `share` of true vectors, chosen by `policy`."""
        budget = Budget(share, "share")
        plan = make_plan(
            self.store, self.survey, budget, policy, price_usd_per_mtok=self.price_usd_per_mtok, seed=self.seed
        )
        chosen = plan.sample.documents
        known = extended(self.store, self.fitted.sample, chosen, self._true_vectors([one.id for one in chosen]))
        paid = self.survey.paid.copy()
        paid[plan.sample.rows] = True
        again = refit_same_kind(self.store, self.fitted, known, np.flatnonzero(paid), seed=self.seed)
        return self._point(policy, paid, again)

    def _point(self, policy: str, paid: np.ndarray, fitted: FittedStitch) -> Point:
        rows = np.flatnonzero(paid)
        cost = estimate_cost(self.store.documents(rows), self.price_usd_per_mtok)
        verdict = self.judge.verdict(translated_batches(self.store, fitted, batch_rows(self._widest)))
        return Point(policy, len(rows) / self.store.info.count, len(rows), cost.tokens, cost.usd, verdict)

    @property
    def _widest(self) -> int:
        return max(self.store.info.dim, self.fitted.dim)

    def _true_vectors(self, ids: list[str]) -> Vectors:
        return self.reference.take(np.array([self._row_of[doc_id] for doc_id in ids], dtype=np.int64)).vectors

    @cached_property
    def _row_of(self) -> Mapping[str, int]:
        """The row of each document in the reference.

        Raises
        ------
        StoreError
            The reference does not hold the store's documents.
        """
        ids = (doc_id for batch in self.reference.batches() for doc_id in batch.ids)
        found = {doc_id: row for row, doc_id in enumerate(ids)}
        missing = [doc_id for batch in self.store.batches() for doc_id in batch.ids if doc_id not in found]
        if missing:
            raise StoreError(
                f"{self.reference.info.path}: expected the ids of {self.store.info.path}, found {len(missing)} "
                f"missing, such as {missing[0]!r}; re-embed that store for a reference"
            )
        return found
