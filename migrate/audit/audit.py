"""The audit: every arm answers the same queries, the full re-embed is the standard, the verdict follows.

One pass: inputs are checked, each arm becomes a run, all runs are measured, and what they show becomes findings. The
verdict is by the measures and the findings alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

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
from migrate.audit.inputs import AuditRequest, prepare_audit, quotes
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
from migrate.audit.query_set import QuerySet, independent
from migrate.audit.reference import odd_scores, scores_more
from migrate.audit.report import AuditReport
from migrate.audit.results import FULL, RANDOM, STAY, TRANSLATED, TWO_STAGE, Evaluation
from migrate.audit.retrieval import Retriever
from migrate.audit.slices import unused_fields
from migrate.audit.verdict import UNKNOWN, Finding, Outcome, margin_remarks, retention_bounds
from migrate.manifest import Manifest, ReportFacts
from migrate.search.runs import Run
from migrate.selection.choosers import choosers_in, choosers_of
from migrate.stores.content import content_of
from migrate.vectors import Progress, no_progress


def audit_store(request: AuditRequest, *, progress: Progress = no_progress) -> AuditReport:
    """Answer the queries with every arm that the request allows, and judge the translated store.

    The reference, and stores of first tokens where there are some, have to be there: `plan_audit` makes them.

    The arms are those of `migrate.audit.arms.ARMS`; what the others need is in the report. The verdict is on the
    translated store alone, and never SAFE where the reference is not shown to be a full re-embed
    (`migrate.audit.reference`). Vectors are searched exactly, whatever the index, so that no arm is blamed for its
    index. Queries that chose documents of the translated store or of the bridge do not judge; those of one text count
    once.

    Raises
    ------
    UsageError
        There is a bridge, but no source; or no arm of the name of the plan.
    StitchError
        The bridge is a stitch for documents, or not fitted on the source for this embedder.
    InputError
        There are no queries, or none of the relevant documents is in the stores.
    SpendingError
        The first documents of a pool cost more than may be spent.
    StoreError
        The stores do not hold the same documents, the reference is not a full re-embed of them by this model, or a
        store is not the one of its manifest.
    VectorError
        A store is not of its embedder's dimension, or a vector is zero or not finite.
    RemoteError
        A query could not be embedded.
    InconclusiveError
        Too few queries are left for a verdict, without those that chose documents.
    """
    options, bridge = request.options, request.bridge
    choosers = request.choosers or choosers_in(request.translated, request.embedder)
    others = choosers.queries | choosers_of(bridge.manifest if bridge else None)
    request = replace(request, query_set=independent(request.query_set, others))
    retriever = Retriever(prepare_audit(request, progress=progress), progress)
    pool = None if request.pool is None else grow_pool(retriever)
    retriever = pool.retriever if pool else retriever
    prepared, query_set = retriever.inputs, retriever.inputs.query_set
    floor = pool.floor if pool else None

    arms, skipped = select_arms(prepared)
    answers = {arm.name: arm.retrieve(retriever) for arm in arms}
    results = {arm.name: measure_arm(arm, answers[arm.name], retriever) for arm in arms}
    runs = {name: answer.run for name, answer in answers.items()}
    limited = _is_limited(query_set, runs[TRANSLATED], runs[FULL])
    evaluation = retriever.evaluation(floor, limited=limited)
    scores = {name: result.scores[evaluation.measure] for name, result in results.items()}
    measured = _Measured(retriever, evaluation, runs, scores)

    missing = [f"{name} {reason}" for name, reason in skipped.items() if name.startswith(TWO_STAGE)]
    findings = [
        *(Finding("caveat", remark) for remark in margin_remarks(options.margin, options.margin_from)),
        *([Finding("caveat", f"left out: {'; '.join(missing)}")] if options.two_stage and missing else []),
        *prepared.findings,
        *measured.oddities(results[FULL].mean("judged@10") or 0),
    ]
    unexplained = unexplained_documents(prepared, choosers)
    held_out = audit_held_out(retriever, evaluation, findings, pool.outside if pool else None, unexplained)
    findings += unexplained_doubts(unexplained, held_out)
    findings += origin_doubts(request.translated)
    findings += measured.sampled(held_out, least=NEARLY_ALL if choosers.queries else MOST)
    diagnostics = diagnose(prepared, runs, scores, floor)
    findings += _drawn_notes(query_set, limited=limited)
    findings += [Finding("note", one.reranking.sentence) for one in results.values() if one.reranking]
    findings += unused_fields(diagnostics.slices, options.slice_fields)

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
    stores = {"translated": request.translated, "source": request.source}
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
        n_documents=prepared.n_documents,
        dataset=query_set.name,
        findings=tuple(findings),
        manifest=_manifest(request, len(query_set.distinct), prepared.n_documents),
        family=family,
        skipped_arms=skipped,
        held_out=held_out,
        diagnostics=diagnostics,
        reference=prepared.proof,
        pool=pool.summary if pool else None,
        made_from=query_set.made_from,
        unjudged=draw_unjudged(prepared, runs, options.judge_next) if options.judge_next else (),
        reference_at=None if request.store is None else request.store.info.location,
        is_kept=request.embedder.keeps,
        stores={name: content_of(store) for name, store in stores.items() if store is not None},
        places=places_of(request.translated, request.source, request.embedder),
    ).judging(options.plan)


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
        runs, scores, evaluation, inputs = self.runs, self.scores, self.evaluation, self.retriever.inputs
        query_set, bootstrap = inputs.query_set, {"seed": evaluation.seed, "resamples": evaluation.resamples}
        if not evaluation.provisional:
            words = None
            if inputs.stores[TRANSLATED].info.has_texts:
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
        yield from quotes(inputs, runs[FULL])
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
        inputs = self.retriever.inputs
        keys = inputs.keys[TRANSLATED]
        return sampled(
            inputs.query_set,
            true_documents(inputs.stores[TRANSLATED], keys),
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


def _manifest(request: AuditRequest, n_queries: int, n_documents: int) -> Manifest:
    manifest, options = request.translated.info.manifest, request.options
    return Manifest(
        kind="report",
        model=manifest.model if manifest else None,
        source_model=manifest.source_model if manifest else None,
        seed=options.seed,
        counts={"queries": n_queries, "documents": n_documents},
        details=ReportFacts(dataset=request.query_set.name, resamples=options.resamples).as_details(),
    )
