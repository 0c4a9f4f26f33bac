"""The frontier: what re-embedding more of the store would buy, by policy, before it is bought.

The reference has every true vector, so each budget is tried for real: its documents are chosen, the stitch is fitted
again with their true vectors, the store is translated and searched. Nothing is embedded but queries. In memory are
the true vectors of one budget and the system that is solved for them (`MOST_PAIRS`); translated
vectors are searched as they come, and not kept.

What a frontier finds: points of policy and budget, each with a verdict, and the cheapest budget that is SAFE.

Trying a budget: choose its documents, take their true vectors from the reference, fit again, translate, judge.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from migrate.audit.arms import FULL, Arm, Comparison, compare_arm, deciding_measure, measure_arm
from migrate.audit.measures import Scores
from migrate.audit.query_set import PARENT_FIELD, Keys, Questions, document_keys, independent
from migrate.audit.retrieval import Answered, Asking
from migrate.audit.verdict import CONFIDENCE, MARGIN, RESAMPLES, Outcome, Verdict, decide
from migrate.cost import Tally, tally_of
from migrate.embedders.base import Embedder
from migrate.errors import InputError, StitchError, StoreError, UsageError
from migrate.reembed.plan import CONFIDENCE as CONFIDENCE_POLICY
from migrate.reembed.plan import (
    POLICIES,
    QUERY_LOG,
    Budget,
    Survey,
    make_plan,
    require_confidence,
    survey_store,
    why_unsure,
)
from migrate.reembed.refit import extended, refit_same_kind
from migrate.selection.query_log import MOST_QUERIES, choosers_of, digest_of, digests_of
from migrate.stitch.fitted import DOCUMENT, FittedStitch, require_direction
from migrate.stores.base import Metric, Store
from migrate.translate import batch_rows, translated_batches
from migrate.vectors import Batch, Progress, Query, Vectors, no_progress

SAMPLE = "sample"
"""Stands for the policy where nothing is re-embedded beyond what the stitch was fitted on."""


def arm_name(share: float) -> str:
    """The name of a budget's arm.

    >>> arm_name(0.3)
    'translated + 30%'
    """
    return f"translated + {share:.0%}"


@dataclass(frozen=True, slots=True)
class Point:
    """One policy under one budget.

    `documents` have true vectors, a `share` (0-1) of the store; all of them, the sample too, cost about `tokens` and
    `price_usd`, None where no price is known. The verdict is on the store that comes of it, `arm` what it scores,
    `comparison` how that compares with the full re-embed.
    """

    policy: str
    share: float
    documents: int
    tokens: int
    price_usd: float | None
    verdict: Verdict
    arm: Arm
    comparison: Comparison


@dataclass(frozen=True, slots=True)
class Frontier:
    """What every policy keeps at every budget of a store of `count` documents.

    `measure` is what retention is of; `notes` say which queries did not judge, where the audit has not said so, and
    what was left out.
    """

    points: tuple[Point, ...]
    count: int
    measure: str
    notes: tuple[str, ...] = ()

    @property
    def arms(self) -> tuple[tuple[Arm, Comparison], ...]:
        """The budgets of the first policy that was tried, as arms of the audit."""
        policy = next((point.policy for point in self.points if point.policy != SAMPLE), SAMPLE)
        return tuple((point.arm, point.comparison) for point in self.points if point.policy == policy != SAMPLE)

    @property
    def cheapest_safe(self) -> Point | None:
        """The SAFE point of the fewest tokens; None where no budget is SAFE.

        A budget counts only if every larger one of its policy is SAFE too: tests in a fixed order, up to the first
        that fails, need no correction for being many (Maurer, Hothorn & Lehmacher 1995). That the best of several
        policies is picked is made up for by the confidence of each verdict (Bonferroni).
        """
        safe = [point for policy in dict.fromkeys(p.policy for p in self.points) for point in self._safe_down(policy)]
        return min(safe, key=lambda point: point.tokens, default=None)

    def _safe_down(self, policy: str) -> Iterator[Point]:
        own = [point for point in self.points if point.policy in (policy, SAMPLE)]
        for point in sorted(own, key=lambda point: -point.documents):
            if point.verdict.outcome is not Outcome.SAFE:
                return
            yield point

    @property
    def sentence(self) -> str:
        """The finding in words."""
        best = self.cheapest_safe
        if best is None:
            margin = self.points[0].verdict.margin
            return f"no budget tried here is SAFE at the margin of {margin:g}; try larger ones, or more queries"
        if best.policy == SAMPLE:
            return "the sample alone is SAFE: nothing need be re-embedded"
        price = "" if best.price_usd is None else f", ${best.price_usd:,.4f}"
        return (
            f"the cheapest budget that is SAFE: {best.share:.0%} by {best.policy} ({best.documents:,} documents, about "
            f"{best.tokens:,} tokens{price}, the sample included); audit the store that comes of it"
        )


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
        return self._answered(self.reference.scan(), self.reference.info.metric)


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
        return self.reference.get(np.array([self._row_of[doc_id] for doc_id in ids], dtype=np.int64)).vectors

    @cached_property
    def _row_of(self) -> Mapping[str, int]:
        """The row of each document in the reference.

        Raises
        ------
        StoreError
            The reference does not hold the store's documents.
        """
        ids = (doc_id for batch in self.reference.scan() for doc_id in batch.ids)
        found = {doc_id: row for row, doc_id in enumerate(ids)}
        missing = [doc_id for batch in self.store.scan() for doc_id in batch.ids if doc_id not in found]
        if missing:
            raise StoreError(
                f"{self.reference.info.location}: expected the ids of {self.store.info.location}, found {len(missing)} "
                f"missing, such as {missing[0]!r}; re-embed that store for a reference"
            )
        return found


SHARES = (0.1, 0.2, 0.3, 0.5)
"""Shares of the store to try, unless told otherwise."""


def frontier(
    store: Store,
    fitted: FittedStitch,
    reference: Store,
    questions: Questions,
    embedder: Embedder,
    *,
    log: Sequence[Query] = (),
    shares: Sequence[float] = SHARES,
    policies: Sequence[str] = (),
    stay: Scores | None = None,
    doubts: tuple[str, ...] = (),
    parent_field: str = PARENT_FIELD,
    price_usd_per_mtok: float | None = None,
    margin: float = MARGIN,
    seed: int = 0,
    resamples: int = RESAMPLES,
    progress: Progress = no_progress,
) -> Frontier:
    """Try every policy at every share of `store`, which `fitted` was fitted on.

    The first point is the store as it is translated now; shares that the sample has already reached are left out.
    Without `policies` all that can be used are tried: `query-log` where there is a log, and `confidence` where that of
    the stitch tells good translations from bad ones. Queries of the log do not judge then, whatever the policy, nor do
    those that chose documents for `fitted`. `stay` are the scores of staying for the questions' distinct texts, (c,).
    Each stitch is of the kind that `fitted` is, where `translate --reembed` may find a better one. With k policies,
    each verdict has bounds of confidence 1 - 0.05 / k, so that the cheapest of them all is SAFE by mistake in 5 % of
    audits at most. `doubts` are those of the audit by the same reference: with any of them no budget is SAFE.

    Raises
    ------
    UsageError
        A share is not within 0 and 1, the only policy needs a log and has none, or the policy is `confidence` and that
        of the stitch is not to be used.
    InconclusiveError
        Too few queries are left to judge by.
    StitchError
        The stitch was fitted on another store, or is one for queries.
    StoreError
        The store has no texts, or the reference does not hold its documents.
    InputError
        There are no queries.
    RemoteError
        A query could not be embedded.
    """
    _check(store, fitted, questions, shares)
    unsure = why_unsure(fitted)
    if CONFIDENCE_POLICY in policies:
        require_confidence(fitted)
    tried = [policy for policy in policies or POLICIES if log or policy != QUERY_LOG]
    tried = [policy for policy in tried if not unsure or policy != CONFIDENCE_POLICY]
    if not tried:
        raise UsageError(f"expected a query log for the policy {QUERY_LOG}, found none; give one, or another policy")
    choosing = log[:MOST_QUERIES] if QUERY_LOG in tried else ()
    choosers = choosers_of(fitted.manifest, store.info.manifest) | digests_of(choosing)
    if stay is not None:
        stay = stay[[digest_of(query) not in choosers for query in questions.distinct]]
    notes, questions = questions.notes, independent(questions, choosers)
    asked = embedder.embed_queries(questions.queries, progress=progress)
    logged = embedder.embed_queries(choosing, progress=progress) if choosing else None
    keys = document_keys(store, parent_field)
    judge = Judge(
        Asking(questions, no_progress, seed),
        asked,
        store.info.metric,
        keys,
        reference,
        margin,
        resamples,
        # The cheapest budget is picked out of several policies, each of which may look safe by chance.
        1 - (1 - CONFIDENCE) / len(tried),
        stay,
        doubts,
    )
    survey = survey_store(store, fitted, logged, progress=progress)
    attempts = Attempts(store, fitted, reference, survey, judge, tally_of(embedder, price_usd_per_mtok), seed)
    further = [share for share in sorted(shares) if round(share * store.info.count) > survey.paid.sum()]
    wanted = [(policy, share) for policy in tried for share in further]
    points = [attempts.sample()]
    for policy, share in wanted:
        progress("try budgets", len(points) - 1, len(wanted))
        points.append(attempts.point(policy, share))
    left_out = (f"{unsure}; the policy {CONFIDENCE_POLICY} is left out",) if unsure and not policies else ()
    return Frontier(tuple(points), store.info.count, judge.measure, (*left_out, *questions.notes[len(notes) :]))


def _check(store: Store, fitted: FittedStitch, questions: Questions, shares: Sequence[float]) -> None:
    if not questions.queries:
        raise InputError(f"{questions.name}: expected queries to judge by, found none")
    require_direction(fitted.manifest, DOCUMENT, source=str(store.info.location))
    difference = store.snapshot().difference(fitted.manifest.details["fingerprint"])
    if difference is not None:
        raise StitchError(
            f"{store.info.location}: expected the store that the stitch was fitted on, found another ({difference}); "
            "name that one with --source"
        )
    if not store.info.has_texts:
        raise StoreError(f"{store.info.location}: expected texts, which are what is re-embedded, found vectors only")
    wrong = [share for share in shares if not 0 < share <= 1]
    if wrong or not shares:
        raise UsageError(f"expected shares of the store above 0 and up to 1, found {wrong or 'none'}; give others")
