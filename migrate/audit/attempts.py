"""Trying a budget: choose its documents, take their true vectors from the reference, fit again, translate, judge."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from migrate.audit.arms import FULL, Arm, Comparison, compare_arm, deciding_measure, measure_arm
from migrate.audit.asking import Answered, Asking
from migrate.audit.measures import Scores
from migrate.audit.points import SAMPLE, Point, arm_name
from migrate.audit.questions import Keys, Questions
from migrate.audit.verdict import CONFIDENCE, Verdict, decide
from migrate.cost import Tally
from migrate.errors import StoreError
from migrate.reembed.budget import Budget
from migrate.reembed.plan import make_plan
from migrate.reembed.refit import extended, refit_same_kind
from migrate.reembed.survey import Survey
from migrate.stitch.fitted import FittedStitch
from migrate.stores.base import Metric, Store
from migrate.translate import batch_rows, translated_batches
from migrate.vectors import Batch, Vectors


@dataclass(frozen=True, eq=False)
class Judge:
    """Holds vectors against the full re-embed, as an audit does.

    `asked` are the queries' vectors by the target model, (q, dim); `stay` the scores of staying, (c,), where they are
    known; `doubts` what takes away every SAFE.
    """

    asking: Asking
    asked: Vectors
    metric: Metric
    keys: Keys
    reference: Store
    margin: float
    resamples: int
    confidence: float = CONFIDENCE
    stay: Scores | None = None
    doubts: tuple[str, ...] = ()

    @property
    def questions(self) -> Questions:
        """What is asked."""
        return self.asking.questions

    @property
    def measure(self) -> str:
        """What retention is of."""
        return deciding_measure(self.questions)

    def arm(self, name: str, batches: Iterable[Batch]) -> Arm:
        """What a store of these vectors scores."""
        return measure_arm(name, self._answered(batches, self.metric), self._full.run, self.questions)

    def verdict(self, arm: Arm) -> Verdict:
        """The verdict on an arm."""
        return decide(
            arm.scores[self.measure],
            self.full.scores[self.measure],
            None if self.questions.qrels is None else self.stay,
            margin=self.margin,
            seed=self.asking.seed,
            resamples=self.resamples,
            provisional=self.questions.qrels is None,
            confidence=self.confidence,
            n_documents=len(set(self.keys.values())),
        ).doubted(self.doubts)

    def comparison(self, arm: Arm) -> Comparison:
        """The arm against the full re-embed."""
        return compare_arm(arm, self.full, self.measure, seed=self.asking.seed, resamples=self.resamples)

    def _answered(self, batches: Iterable[Batch], metric: Metric) -> Answered:
        return self.asking.batches(batches, self.asked, self.keys, metric)

    @cached_property
    def full(self) -> Arm:
        """What the full re-embed scores."""
        return measure_arm(FULL, self._full, self._full.run, self.questions)

    @cached_property
    def _full(self) -> Answered:
        return self._answered(self.reference.batches(), self.reference.info.metric)


@dataclass(frozen=True, eq=False)
class Attempts:
    """Budgets to try on a store, with the stitch that it has and what a survey found."""

    store: Store
    fitted: FittedStitch
    reference: Store
    survey: Survey
    judge: Judge
    tally: Tally
    seed: int

    def sample(self) -> Point:
        """The store as the stitch translates it now."""
        return self._point(SAMPLE, self.survey.paid, self.fitted)

    def point(self, policy: str, share: float) -> Point:
        """The store with `share` of true vectors, chosen by `policy`."""
        budget = Budget(share, "share")
        plan = make_plan(self.store, self.survey, budget, policy, tally=self.tally, seed=self.seed)
        chosen = plan.sample.documents
        known = extended(self.store, self.fitted.sample, chosen, self._true_vectors([one.id for one in chosen]))
        paid = self.survey.paid.copy()
        paid[plan.sample.rows] = True
        again = refit_same_kind(self.store, self.fitted, known, np.flatnonzero(paid), seed=self.seed)
        return self._point(policy, paid, again)

    def _point(self, policy: str, paid: np.ndarray, fitted: FittedStitch) -> Point:
        rows = np.flatnonzero(paid)
        cost = self.tally.cost(self.store.documents(rows))
        share = len(rows) / self.store.info.count
        batches = translated_batches(self.store, fitted, batch_rows(self._widest))
        arm = replace(
            self.judge.arm(arm_name(share), batches),
            meaning=f"{share:.0%} of the documents embedded for real, chosen by {policy}, and the stitch fitted again",
            tokens=cost.tokens,
            usd=cost.usd,
        )
        verdict, comparison = self.judge.verdict(arm), self.judge.comparison(arm)
        return Point(policy, share, len(rows), cost.tokens, cost.usd, verdict, arm, comparison)

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
