"""The frontier: what re-embedding more of the store would keep, by policy and budget, before it is paid for.

The reference has every true vector, so each budget is tried for real: its documents are chosen, the stitch is fitted
again with their true vectors, the store is translated and searched. Nothing is embedded but queries. In memory are
the true vectors of one budget and the system that is solved for them (`MOST_PAIRS`); translated vectors are searched
as they come, and not kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from migrate.audit.arms import Arm, measure_arm
from migrate.audit.findings import choosers_in_other_words
from migrate.audit.keys import Names, document_keys, id_keys
from migrate.audit.measures import Scores
from migrate.audit.query_groups import with_groups
from migrate.audit.query_set import QuerySet
from migrate.audit.results import FULL, TRANSLATED, ArmCost, ArmResult, Comparison
from migrate.audit.retrieval import Retriever
from migrate.audit.rules import Rules
from migrate.audit.verdict import CONFIDENCE, Finding, Outcome, Verdict
from migrate.cost import Estimate, tally_of
from migrate.cost.estimate import dollars
from migrate.embedders.prefix import first_of
from migrate.errors import InputError, StitchError, StoreError, UsageError
from migrate.selection.sample import QUERY_LOG
from migrate.steps.translate.choice import CONFIDENCE as CONFIDENCE_POLICY
from migrate.steps.translate.choice import (
    POLICIES,
    Budget,
    Survey,
    choose_within,
    require_confidence,
    survey_store,
    why_unsure,
)
from migrate.steps.translate.refit import extended, refit_same_kind
from migrate.stitch.fitted import DOCUMENT, FittedStitch, require_direction
from migrate.stores.base import Store
from migrate.translate import batch_rows, translated_batches

if TYPE_CHECKING:
    from migrate.audit.step import Audit

SAMPLE = "sample"
"""Stands for the policy where nothing is re-embedded beyond what the stitch was fitted on."""


@dataclass(frozen=True, slots=True)
class FrontierPoint:
    """One policy under one budget.

    `documents` have true vectors, a `share` (0-1) of the store; all of them, the sample too, cost about `tokens`, a
    `share_of_tokens` (0-1) of what a full re-embed does, and `price_usd`, None where no price is known. First tokens
    that the stitch leans on are among these. The verdict is on the store that comes of it, `arm` what it scores,
    `comparison` how that compares with the full re-embed.
    """

    policy: str
    share: float
    documents: int
    tokens: int
    share_of_tokens: float
    price_usd: float | None
    verdict: Verdict
    arm: ArmResult
    comparison: Comparison


@dataclass(frozen=True, slots=True)
class Frontier:
    """The quality that every policy keeps at every budget of a store of `count` documents.

    `measure` is what retention is of; `notes` say what was left out.
    """

    points: tuple[FrontierPoint, ...]
    count: int
    measure: str
    notes: tuple[str, ...] = ()

    @property
    def arms(self) -> tuple[tuple[ArmResult, Comparison], ...]:
        """The budgets of the first policy that was tried, as arms of the audit."""
        policy = next((point.policy for point in self.points if point.policy != SAMPLE), SAMPLE)
        return tuple((point.arm, point.comparison) for point in self.points if point.policy == policy != SAMPLE)

    @property
    def cheapest_safe(self) -> FrontierPoint | None:
        """The SAFE point of the fewest tokens; None where no budget is SAFE.

        A budget counts only if every larger one of its policy is SAFE too: tests in a fixed order, up to the first
        that fails, need no correction for being many (Maurer, Hothorn & Lehmacher 1995). That the best of several
        policies is picked is made up for by the confidence of each verdict (Bonferroni).
        """
        safe = [point for policy in dict.fromkeys(p.policy for p in self.points) for point in self._safe_down(policy)]
        return min(safe, key=lambda point: point.tokens, default=None)

    def _safe_down(self, policy: str) -> Iterator[FrontierPoint]:
        of_policy = [point for point in self.points if point.policy in (policy, SAMPLE)]
        for point in sorted(of_policy, key=lambda point: -point.documents):
            if point.verdict.outcome is not Outcome.SAFE:
                return
            yield point

    @property
    def sentence(self) -> str:
        """The finding in words."""
        best = self.cheapest_safe
        if best is None:
            margin = self.points[0].verdict.asked_margin
            return f"no budget tried here is SAFE at the margin of {100 * margin:g} %; try larger ones, or more queries"
        safe = "SAFE (provisional)" if best.verdict.provisional else "SAFE"
        if best.policy == SAMPLE:
            return f"the sample alone is {safe}: nothing more needs to be re-embedded"
        price = "" if best.price_usd is None else f", {dollars(best.price_usd)}"
        return (
            f"the cheapest budget that is {safe}: {best.share:.0%} by {best.policy} ({best.documents:,} documents, "
            f"about {best.tokens:,} tokens{price}, the sample included); audit the store that you make with it"
        )


@dataclass(frozen=True, eq=False)
class BudgetTrials:
    """Budgets to try on a store, with the stitch that it has and what a survey says of its documents."""

    store: Store
    fitted: FittedStitch
    survey: Survey
    retriever: Retriever
    rules: Rules
    confidence: float
    stay: Scores | None
    findings: tuple[Finding, ...]

    def refitted(self, policy: str, share: float) -> FrontierPoint:
        """Return the point of `share` of true vectors, chosen by `policy`."""
        seed, tally = self.retriever.settings.seed, self.retriever.tally
        choice = choose_within(self.store, self.survey, Budget(share, "share"), policy, tally=tally, seed=seed)
        documents = choice.sample.documents
        rows = self._reference_ids.rows_of([document.id for document in documents])
        true = self.retriever.stores[FULL].get(rows).vectors
        pairs = extended(self.store, self.fitted.sample, documents, true)
        paid = self.survey.paid.copy()
        paid[choice.sample.rows] = True
        fitted = refit_same_kind(self.store, self.fitted, pairs, np.flatnonzero(paid), seed=seed)
        return self.point(policy, paid, fitted)

    def point(self, policy: str, paid: NDArray[np.bool_], fitted: FittedStitch) -> FrontierPoint:
        """Return the point of a stitch, where the `paid` rows, (n,), have true vectors."""
        rows, retriever = np.flatnonzero(paid), self.retriever
        cost = self._cost(rows, fitted)
        share, height = len(rows) / self.store.info.count, batch_rows(max(self.store.info.dim, self.fitted.dim))
        arm = Arm(
            f"translated + {share:.0%}",
            f"{share:.0%} of the documents re-embedded, chosen by {policy}, and the stitch fitted again",
            lambda: retriever.search_batches(TRANSLATED, translated_batches(self.store, fitted, height)),
            lambda: ArmCost(cost.tokens, cost.usd),
        )
        result = measure_arm(arm, arm.retrieve(), retriever)
        scores, full = (arm_result.scores[retriever.query_set.measure] for arm_result in (result, self._full))
        true = frozenset(retriever.keys[TRANSLATED].documents.take(rows))
        findings = (*self.findings, *choosers_in_other_words(retriever, true))
        verdict = self.rules.verdict(scores, full, self.stay, confidence=self.confidence).doubted(findings)
        comparison = self.rules.compare(result, self._full)
        of_whole = cost.tokens / max(self._whole.tokens, 1)
        return FrontierPoint(policy, share, len(rows), cost.tokens, of_whole, cost.usd, verdict, result, comparison)

    def _cost(self, rows: NDArray[np.int64], fitted: FittedStitch) -> Estimate:
        """Return what the documents in some rows cost, and the first tokens of all where the stitch leans on these."""
        tally, first_tokens = self.retriever.tally, fitted.first_tokens
        paid = self.store.documents(rows)
        if first_tokens is None:
            return tally.cost(paid)
        return tally.cost(chain(paid, first_of(self.store.documents(), tally.target.counter, first_tokens)))

    @cached_property
    def _whole(self) -> Estimate:
        """The cost of a full re-embed."""
        return self.retriever.tally.cost(self.store.documents())

    @cached_property
    def _full(self) -> ArmResult:
        search = partial(self.retriever.search, FULL)
        return measure_arm(Arm(FULL, "", search, partial(self.retriever.cost_of_share, 1)), search(), self.retriever)

    @cached_property
    def _reference_ids(self) -> Names:
        """The ids of the reference, all of the store's among them."""
        reference, ids = self.retriever.stores[FULL], self.retriever.keys[TRANSLATED].ids
        reference_ids = self.retriever.keys[FULL].ids
        missing = ids.lacking(reference_ids)
        if len(missing):
            raise StoreError(
                f"{reference.info.location} lacks {len(missing)} ids of {self.store.info.location}, such as "
                f"{ids.take(missing[:1])[0]!r}; re-embed that store for a reference"
            )
        return reference_ids


def check_frontier(audit: Audit, store: Store, fitted: FittedStitch) -> None:
    """Make sure, before anything is embedded, that budgets can be tried on the source store by this stitch."""
    if not audit.query_set.queries:
        raise InputError(f"{audit.query_set.name} has no queries to judge by; give some")
    require_direction(fitted.manifest, DOCUMENT, source=store.info.location)
    difference = store.snapshot().difference(fitted.manifest.stitch.fitted_on)
    if difference is not None:
        raise StitchError(
            f"{store.info.location} is not the store that the stitch was fitted on ({difference}); name that one with "
            "--source"
        )
    if not store.info.has_texts:
        raise StoreError(f"{store.info.location} has no texts, which are what is re-embedded; give it some")
    wrong = [share for share in audit.shares if not 0 < share <= 1]
    if wrong or not audit.shares:
        raise UsageError(f"--frontier: {wrong or 'nothing'} is no share of the store; give some above 0 and up to 1")
    if CONFIDENCE_POLICY in audit.policy:
        require_confidence(fitted)
    _usable_policies(audit, fitted)


def _usable_policies(audit: Audit, fitted: FittedStitch) -> list[str]:
    """Return the policies to try: of those that were asked for, or of all, the ones that have what they need."""
    unsure = why_unsure(fitted)
    usable = [
        policy
        for policy in audit.policy or POLICIES
        if (audit.log or policy != QUERY_LOG) and (not unsure or policy != CONFIDENCE_POLICY)
    ]
    if not usable:
        raise UsageError(f"the policy {QUERY_LOG} needs a query log, and there is none; give one, or another policy")
    return usable


def find_frontier(
    audit: Audit,
    reference: Store,
    stay: Scores | None = None,
    findings: tuple[Finding, ...] = (),
    judges: QuerySet | None = None,
) -> Frontier:
    """Try every policy at every share of the store.

    The source of the `audit` is translated by the stitch, and the `reference` has all true vectors. `stay` are the
    nDCG@10 of staying for the distinct texts of its queries, (c,), and `findings` those of the audit by the same
    reference: with a doubt among them no budget is SAFE. `judges` are the queries that judged there, those of the audit
    unless they are given.

    The first point is the store as it is translated now; shares that the sample has already reached are left out.
    Without `policies` all that can be used are tried: `query-log` where there is a log, and `confidence` where that of
    the stitch tells good translations from bad ones. Queries of the log do not judge then, whatever the policy, nor do
    those that chose documents for the stitch. Each stitch is of the kind that the first one is, where `reembed --share`
    may find a better one. With k policies, each verdict has bounds of confidence 1 - 0.05 / k, so that the cheapest of
    them all is SAFE by mistake in 5 % of audits at most.
    """
    store, fitted = audit.source_store, audit.frontier_stitch
    assert store is not None and fitted is not None  # noqa: S101 - `Audit.check` has seen to it
    query_set, log, usable = judges or audit.judging, audit.log, _usable_policies(audit, fitted)
    vectors = audit.embedder.embed_queries(query_set.queries)
    query_set = with_groups(query_set, vectors)
    keys, names = document_keys(store, audit.parent_field), (TRANSLATED, FULL)
    retriever = Retriever(
        audit.settings,
        query_set,
        audit.embedder,
        tally_of(audit.embedder, audit.price),
        {TRANSLATED: store, FULL: reference},
        {TRANSLATED: keys, FULL: keys.at(id_keys(reference).ids)},
        dict.fromkeys(names, vectors),
        progress=audit.progress,
    )
    log_vectors = audit.embedder.embed_queries(log, progress=audit.progress) if log else None
    # The cheapest budget is picked out of several policies, each of which may look safe by chance.
    confidence = 1 - (1 - CONFIDENCE) / len(usable)
    survey = survey_store(store, fitted, log_vectors, progress=audit.progress)
    trials = BudgetTrials(store, fitted, survey, retriever, retriever.rules(), confidence, stay, findings)
    further = [share for share in sorted(audit.shares) if round(share * store.info.count) > survey.paid.sum()]
    budgets = [(policy, share) for policy in usable for share in further]
    points = [trials.point(SAMPLE, survey.paid, fitted)]
    for policy, share in budgets:
        audit.progress("try budgets", len(points) - 1, len(budgets))
        points.append(trials.refitted(policy, share))
    unsure = why_unsure(fitted)
    notes = [f"{unsure}; the policy {CONFIDENCE_POLICY} is left out"] if unsure and not audit.policy else []
    return Frontier(tuple(points), store.info.count, query_set.measure, tuple(notes))
