"""The audit: every arm answers the same queries, the full re-embed is the standard, the verdict follows.

One pass: inputs are checked, each arm becomes a run, all runs are measured, and what they show becomes findings. The
verdict is by the measures and the findings alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from migrate.audit.arms import family_of, measure_arm, select_arms
from migrate.audit.diagnostics import diagnose
from migrate.audit.drawn_queries import chances_of, greatest_change
from migrate.audit.held_out import (
    HeldOut,
    audit_held_out,
    origin_doubts,
    true_documents,
    unexplained_documents,
    unexplained_doubts,
)
from migrate.audit.inputs import prepare_audit, quotes
from migrate.audit.judging import (
    MOST,
    NEARLY_ALL,
    alike_grades,
    contradicted,
    draw_unjudged,
    one_sided,
    sampled,
    unrelated_grades,
)
from migrate.audit.measures import Scores
from migrate.audit.places import places_of
from migrate.audit.pool import grow_pool
from migrate.audit.query_set import QuerySet
from migrate.audit.reference import odd_scores, scores_more
from migrate.audit.report import AuditReport
from migrate.audit.results import FULL, RANDOM, STAY, TRANSLATED, TWO_STAGE, Evaluation
from migrate.audit.retrieval import Retriever
from migrate.audit.slices import unused_fields
from migrate.audit.verdict import UNKNOWN, Finding, Outcome, margin_remarks, retention_bounds
from migrate.manifest import Manifest, ReportFacts
from migrate.search.runs import Run
from migrate.stores.base import Store
from migrate.stores.content import content_of

if TYPE_CHECKING:
    from migrate.audit.step import Audit


def audit_store(audit: Audit, reference: Store | None, prefixes: Mapping[int, Store]) -> AuditReport:
    """Answer the queries with every arm that the inputs allow, and judge the translated store.

    The arms are those of `migrate.audit.arms.ARMS`; what the others need is in the report. `reference` is the full
    re-embed, None for a pool, and `prefixes` are stores of first tokens by how many there are.
    """
    choosers = audit.choosers
    retriever = prepare_audit(audit, reference, prefixes)
    pool = grow_pool(retriever) if audit.is_pooled else None
    retriever = pool.retriever if pool else retriever
    query_set = retriever.query_set
    floor = pool.floor if pool else None

    arms, skipped = select_arms(retriever)
    answers = {arm.name: arm.retrieve(retriever) for arm in arms}
    results = {arm.name: measure_arm(arm, answers[arm.name], retriever) for arm in arms}
    runs = {name: answer.run for name, answer in answers.items()}
    limited = _is_limited(query_set, runs[TRANSLATED], runs[FULL])
    evaluation = retriever.evaluation(floor, limited=limited)
    scores = {name: result.scores[evaluation.measure] for name, result in results.items()}
    measured = _Measured(retriever, evaluation, runs, scores)

    missing = [f"{name} {reason}" for name, reason in skipped.items() if name.startswith(TWO_STAGE)]
    findings = [
        *(Finding("caveat", remark) for remark in margin_remarks(audit.margin, audit.margin_from)),
        *([Finding("caveat", f"left out: {'; '.join(missing)}")] if audit.stages and missing else []),
        *retriever.findings,
        *measured.oddities(results[FULL].mean("judged@10") or 0),
    ]
    unexplained = unexplained_documents(retriever, choosers)
    held_out = audit_held_out(retriever, findings, pool.outside if pool else None, unexplained)
    findings += unexplained_doubts(unexplained, held_out)
    findings += origin_doubts(audit.translated)
    findings += measured.sampled(held_out, least=NEARLY_ALL if choosers.queries else MOST)
    diagnostics = diagnose(retriever, runs, scores, floor)
    findings += _drawn_notes(query_set, limited=limited)
    findings += [Finding("note", one.reranking.sentence) for one in results.values() if one.reranking]
    findings += unused_fields(diagnostics.slices, audit.slice)

    verdict = evaluation.verdict(scores[TRANSLATED], scores[FULL], scores.get(STAY)).doubted(findings)
    comparisons = {
        arm.name: evaluation.compare(results[arm.name], results[arm.standard])
        for arm in arms
        if arm.name != FULL and arm.standard in results
    }
    family = family_of(retriever, {arm.name: scores[arm.name] for arm in arms if arm.is_alternative}, floor)
    if not measured.has_standard():  # then no share of the full re-embed means anything
        verdict = verdict.without_standard().doubted(findings)
        comparisons = {
            name: replace(one, retention=UNKNOWN) if one.standard == FULL else one for name, one in comparisons.items()
        }
        family, held_out, diagnostics = dict.fromkeys(family, UNKNOWN), None, replace(diagnostics, slices=())
    stores = {"translated": audit.translated, "source": audit.source_store}
    return AuditReport(
        verdict=replace(
            verdict,
            remedy=pool.remedy if pool else None,
            left_to_judge=None if query_set.chances is None else query_set.ungraded,
        ),
        arms=tuple(results.values()),
        comparisons=comparisons,
        measure=evaluation.measure,
        query_ids=tuple(query.id for query in query_set.distinct),
        query_texts=tuple(query.text for query in query_set.distinct),
        n_documents=retriever.n_documents,
        dataset=query_set.name,
        findings=tuple(findings),
        manifest=_manifest(audit, len(query_set.distinct), retriever.n_documents),
        family=family,
        skipped_arms=skipped,
        held_out=held_out,
        diagnostics=diagnostics,
        reference=retriever.proof,
        pool=pool.summary if pool else None,
        made_from=query_set.made_from,
        unjudged=() if audit.judge_next is None else draw_unjudged(retriever, runs),
        reference_at=None if reference is None else reference.info.location,
        is_kept=audit.embedder.keeps,
        stores={name: content_of(store) for name, store in stores.items() if store is not None},
        places=places_of(audit.translated, audit.source_store, audit.embedder),
    ).judging(audit.plan)


@dataclass(frozen=True)
class _Measured:
    """The rankings of all arms, and their `scores` by the deciding measure, one for each distinct text, (c,)."""

    retriever: Retriever
    evaluation: Evaluation
    runs: Mapping[str, Run]
    scores: Mapping[str, Scores]

    def oddities(self, judged: float) -> Iterator[Finding]:
        """Yield doubts for what speaks against the reference or the judgements; `judged` is the full one's judged@10.

        Unjudged queries are measured against the reference itself, which says nothing of it.
        """
        runs, scores, evaluation, retriever = self.runs, self.scores, self.evaluation, self.retriever
        query_set, bootstrap = retriever.query_set, {"seed": evaluation.seed, "resamples": evaluation.resamples}
        if not evaluation.provisional:
            words = None
            if retriever.stores[TRANSLATED].info.has_texts:
                words = self.retriever.deciding_scores(self.retriever.bm25.run)
            yield from odd_scores(
                scores[TRANSLATED],
                self._full,
                words,
                scores.get(STAY),
                scores[RANDOM],
                weighting=query_set.weighting(),
                **bootstrap,
            )
        yield from quotes(retriever, runs[FULL])
        doubts = (
            *alike_grades(query_set, [runs[name] for name in (FULL, TRANSLATED, STAY) if name in runs]),
            *one_sided(query_set, runs[TRANSLATED], runs[FULL]),
        )
        yield from doubts
        if not doubts and (query_set.chances is not None or judged >= 0.9):  # what rankings found has been graded
            yield from unrelated_grades(query_set, scores[FULL], **bootstrap)
        found = evaluation.verdict(scores[TRANSLATED], scores[FULL], None)
        if not evaluation.provisional and found.outcome is Outcome.SAFE:
            agreement = retention_bounds(
                *(self.retriever.agreement(runs[name]) for name in (TRANSLATED, FULL)),
                seed=evaluation.seed,
                resamples=evaluation.resamples,
                weighting=query_set.weighting(limited=evaluation.limited),
            )
            yield from contradicted(found.retention, agreement)

    def sampled(self, held_out: HeldOut | None, *, least: float) -> tuple[Finding, ...]:
        """Return a doubt where the judgements may be of the true vectors alone, `least` of them, 0-1.

        Documents that other queries chose are those that users want, and many of the relevant ones may be among them;
        but where all are, the judges are the choosers in other words.
        """
        retriever = self.retriever
        keys = retriever.keys[TRANSLATED]
        return sampled(
            retriever.query_set,
            true_documents(retriever.stores[TRANSLATED], keys),
            frozenset(keys.values()),
            least=least,
            is_safe_without=held_out is not None and held_out.verdict.outcome is Outcome.SAFE,
        )

    def has_standard(self) -> bool:
        """Return whether the full re-embed scores more than documents drawn at random."""
        evaluation = self.evaluation
        return evaluation.provisional or scores_more(
            self.scores[RANDOM],
            self._full,
            seed=evaluation.seed,
            resamples=evaluation.resamples,
            weighting=evaluation.query_set.weighting(),
        )

    @property
    def _full(self) -> Scores:
        """The scores of the full re-embed, as they are expected where only a pool of it is there."""
        floor = self.evaluation.floor
        return self.scores[FULL] if floor is None else floor.expected


def _is_limited(query_set: QuerySet, translated: Run, full: Run) -> bool:
    """Return whether drawn queries have the chances that these two rankings give them."""
    if query_set.chances is None:
        return False
    ids = [query.id for query in query_set.distinct]
    recorded = [query_set.chances[query_id] for query_id in ids]
    return bool(np.allclose(chances_of(greatest_change(translated, full, ids)), recorded, rtol=0, atol=1e-6))


def _drawn_notes(query_set: QuerySet, *, limited: bool) -> list[Finding]:
    if query_set.chances is None:
        return []
    note = f"{len(query_set.distinct):,} queries were drawn by what judgements could change; means are of all queries"
    if not limited:
        note += (
            "; but they were drawn for other rankings than these, so bounds are wider than need be: draw again with "
            "--judge-next"
        )
    return [Finding("note", note)]


def _manifest(audit: Audit, n_queries: int, n_documents: int) -> Manifest:
    manifest = audit.translated.info.manifest
    return Manifest(
        kind="report",
        model=manifest.model if manifest else None,
        source_model=manifest.source_model if manifest else None,
        seed=audit.seed,
        counts={"queries": n_queries, "documents": n_documents},
        details=ReportFacts(dataset=audit.query_set.name, resamples=audit.resamples).as_details(),
    )
