"""The audit: every arm answers the same queries, the full re-embed is the standard, the verdict follows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

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
from migrate.audit.inputs import AuditInputs, AuditOptions, PoolReference, PreparedAudit, prepare_audit, quotes
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
from migrate.audit.results import FULL, RANDOM, STAY, TRANSLATED, TWO_STAGE, ArmResult, Evaluation
from migrate.audit.retrieval import Retriever
from migrate.audit.slices import unused_fields
from migrate.audit.verdict import UNKNOWN, Outcome, margin_remarks, retention_bounds
from migrate.manifest import Manifest, ReportFacts
from migrate.search.runs import Run
from migrate.selection.choosers import choosers_in, choosers_of
from migrate.stores.content import content_of
from migrate.vectors import Progress, no_progress

_JUDGED = 0.9
"""Share, 0-1, of the full re-embed's first 10 that are judged where whoever judged has graded what rankings found."""


def audit_store(
    inputs: AuditInputs, options: AuditOptions | None = None, *, progress: Progress = no_progress
) -> AuditReport:
    """Answer the queries with every arm that the inputs allow, and judge the translated store.

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
    options, bridge = options or AuditOptions(), inputs.bridge
    choosers = inputs.choosers or choosers_in(inputs.translated, inputs.embedder)
    others = choosers.queries | choosers_of(bridge.manifest if bridge else None)
    prepared = prepare_audit(
        replace(inputs, query_set=independent(inputs.query_set, others)), options, progress=progress
    )
    retriever, query_set = Retriever(prepared, progress), prepared.query_set
    pool = None
    if isinstance(inputs.reference, PoolReference):
        pool = grow_pool(retriever, inputs.reference, inputs.embedder)
        retriever, prepared = pool.retriever, pool.retriever.inputs
    floor = pool.floor if pool else None
    arms, skipped = select_arms(prepared)
    answers = {arm.name: arm.retrieve(retriever) for arm in arms}
    results = {arm.name: measure_arm(arm, answers[arm.name], retriever) for arm in arms}
    runs = {name: answer.run for name, answer in answers.items()}
    limited = _is_limited(query_set, runs[TRANSLATED], runs[FULL])
    evaluation = Evaluation(
        query_set, options.margin, options.seed, options.resamples, prepared.n_documents, floor=floor, limited=limited
    )
    oddities = (
        *_oddities(results, evaluation, _words(retriever)),
        *quotes(prepared, answers[FULL].run),
        *_judgement_doubts(runs, results[FULL], evaluation),
        *_contradictions(retriever, runs, results, evaluation),
    )
    evaluation = replace(evaluation, doubts=(*prepared.doubts, *oddities))
    unexplained = unexplained_documents(prepared, choosers)
    held_out = audit_held_out(retriever, evaluation, pool.outside if pool else None, unexplained)
    on_true = (
        *unexplained_doubts(unexplained, held_out),
        *origin_doubts(inputs.translated),
        *_sample_doubts(prepared, held_out, are_chosen=bool(choosers.queries)),
    )
    evaluation = replace(evaluation, doubts=(*evaluation.doubts, *on_true))
    stay = results[STAY].scores[evaluation.measure] if STAY in results else None
    deciding = {name: result.scores[evaluation.measure] for name, result in results.items()}
    diagnostics = diagnose(prepared, runs, deciding, floor)
    verdict = evaluation.verdict(results[TRANSLATED], results[FULL], stay)
    if query_set.chances is not None:
        verdict = replace(verdict, left_to_judge=query_set.ungraded)
    report = AuditReport(
        verdict=replace(verdict, remedy=pool.remedy) if pool else verdict,
        arms=tuple(results.values()),
        comparisons={
            arm.name: evaluation.compare(results[arm.name], results[arm.standard])
            for arm in arms
            if arm.name != FULL and arm.standard in results
        },
        measure=evaluation.measure,
        query_ids=tuple(query.id for query in query_set.distinct),
        query_texts=tuple(query.text for query in query_set.distinct),
        n_documents=prepared.n_documents,
        dataset=query_set.name,
        notes=(
            *prepared.notes,
            *_drawn_notes(query_set, limited=limited),
            *(result.reranking.sentence for result in results.values() if result.reranking),
            *unused_fields(diagnostics.slices, options.slice_fields),
        ),
        caveats=(
            *margin_remarks(options.margin, options.margin_from),
            *_missing_arms(prepared, skipped),
            *prepared.caveats,
        ),
        manifest=_manifest(prepared),
        family=family_of(retriever, {arm.name: deciding[arm.name] for arm in arms if arm.is_alternative}, floor),
        skipped_arms=skipped,
        held_out=held_out,
        diagnostics=diagnostics,
        reference=prepared.proof,
        doubts=evaluation.doubts,
        pool=pool.summary if pool else None,
        made_from=query_set.made_from,
        unjudged=draw_unjudged(prepared, runs, options.judge_next) if options.judge_next else (),
        reference_at=None if isinstance(inputs.reference, PoolReference) else inputs.reference.info.location,
        is_kept=inputs.embedder.keeps,
        stores={
            name: content_of(store)
            for name, store in (("translated", inputs.translated), ("source", inputs.source))
            if store is not None
        },
        places=places_of(inputs.translated, inputs.source, inputs.embedder),
    )
    return (report if _has_standard(results, evaluation) else _without_standard(report)).judging(options.plan)


def _has_standard(results: Mapping[str, ArmResult], evaluation: Evaluation) -> bool:
    """Return whether shares of the full re-embed mean anything: it scores more than documents drawn at random."""
    if evaluation.provisional:
        return True
    full, chance = (results[name].scores[evaluation.measure] for name in (FULL, RANDOM))
    full = full if evaluation.floor is None else evaluation.floor.expected
    return scores_more(
        chance,
        full,
        seed=evaluation.seed,
        resamples=evaluation.resamples,
        weighting=evaluation.query_set.weighting(),
    )


def _without_standard(report: AuditReport) -> AuditReport:
    """Return the report without any share of the full re-embed."""
    comparisons = {
        name: replace(found, retention=UNKNOWN) if found.standard == FULL else found
        for name, found in report.comparisons.items()
    }
    return replace(
        report,
        verdict=report.verdict.without_standard().doubted(report.doubts),
        comparisons=comparisons,
        family=dict.fromkeys(report.family, UNKNOWN),
        held_out=None,
        diagnostics=replace(report.diagnostics, slices=()),
    )


def _words(retriever: Retriever) -> Scores | None:
    """What BM25 scores, in the report or not; None where nothing is judged or there are no texts."""
    inputs = retriever.inputs
    if inputs.query_set.qrels is None or not inputs.stores[TRANSLATED].info.has_texts:
        return None
    return retriever.deciding_scores(retriever.bm25().run)


def _oddities(results: Mapping[str, ArmResult], evaluation: Evaluation, words: Scores | None) -> tuple[str, ...]:
    """Scores that speak against the reference; without judgements it is the measure of itself."""
    if evaluation.provisional:
        return ()
    arm, full = (results[name].scores[evaluation.measure] for name in (TRANSLATED, FULL))
    full = full if evaluation.floor is None else evaluation.floor.expected
    stay = results[STAY].scores[evaluation.measure] if STAY in results else None
    chance = results[RANDOM].scores[evaluation.measure]
    weighting = evaluation.query_set.weighting()
    return odd_scores(
        arm, full, words, stay, chance, seed=evaluation.seed, resamples=evaluation.resamples, weighting=weighting
    )


def _judgement_doubts(runs: Mapping[str, Run], full: ArmResult, evaluation: Evaluation) -> tuple[str, ...]:
    """Why the judgements cannot tell a good store from a bad one."""
    query_set = evaluation.query_set
    doubts = (
        *alike_grades(query_set, [runs[name] for name in (FULL, TRANSLATED, STAY) if name in runs]),
        *one_sided(query_set, runs[TRANSLATED], runs[FULL]),
    )
    if doubts or (query_set.chances is None and (full.mean("judged@10") or 0) < _JUDGED):
        return doubts
    scores = full.scores[evaluation.measure]
    return unrelated_grades(query_set, scores, seed=evaluation.seed, resamples=evaluation.resamples)


def _contradictions(
    retriever: Retriever, runs: Mapping[str, Run], results: Mapping[str, ArmResult], evaluation: Evaluation
) -> tuple[str, ...]:
    """Return a doubt where the judgements call SAFE what the target model's own scores speak against."""
    if evaluation.provisional:
        return ()
    judged = evaluation.verdict(results[TRANSLATED], results[FULL], None)
    if judged.outcome is not Outcome.SAFE:
        return ()
    bounds = retention_bounds(
        *(retriever.agreement(runs[name]) for name in (TRANSLATED, FULL)),
        seed=evaluation.seed,
        resamples=evaluation.resamples,
        weighting=evaluation.query_set.weighting(limited=evaluation.limited),
    )
    return contradicted(judged.retention, bounds)


def _sample_doubts(prepared: PreparedAudit, held_out: HeldOut | None, *, are_chosen: bool) -> tuple[str, ...]:
    """Return why the judgements may be of the true vectors alone; `are_chosen` says that queries chose some of these.

    Documents that other queries chose are those that users want, and many of the relevant ones may be among them; but
    where all are, the judges are the choosers in other words.
    """
    translated, keys = prepared.stores[TRANSLATED], prepared.keys[TRANSLATED]
    is_safe = held_out is not None and held_out.verdict.outcome is Outcome.SAFE
    return sampled(
        prepared.query_set,
        true_documents(translated, keys),
        frozenset(keys.values()),
        least=NEARLY_ALL if are_chosen else MOST,
        is_safe_without=is_safe,
    )


def _missing_arms(prepared: PreparedAudit, skipped: Mapping[str, str]) -> tuple[str, ...]:
    """That two-stage arms are left out, where they were asked for."""
    if not prepared.options.two_stage:
        return ()
    found = [f"{name} {reason}" for name, reason in skipped.items() if name.startswith(TWO_STAGE)]
    return (f"left out: {'; '.join(found)}",) if found else ()


def _is_limited(query_set: QuerySet, translated: Run, full: Run) -> bool:
    """Whether drawn queries have the chances that these two rankings give them."""
    if query_set.chances is None:
        return False
    ids = [query.id for query in query_set.distinct]
    recorded = [query_set.chances[query_id] for query_id in ids]
    return bool(np.allclose(chances_of(greatest_change(translated, full, ids)), recorded, rtol=0, atol=1e-6))


def _drawn_notes(query_set: QuerySet, *, limited: bool) -> tuple[str, ...]:
    if query_set.chances is None:
        return ()
    note = f"{len(query_set.distinct):,} queries were drawn by what judgements could change; means are of all queries"
    if not limited:
        note += (
            "; but they were drawn for other rankings than these, so bounds are wider than need be: draw again with "
            "--judge-next"
        )
    return (note,)


def _manifest(prepared: PreparedAudit) -> Manifest:
    manifest, options = prepared.stores[TRANSLATED].info.manifest, prepared.options
    return Manifest(
        kind="report",
        model=manifest.model if manifest else None,
        source_model=manifest.source_model if manifest else None,
        seed=options.seed,
        counts={"queries": len(prepared.query_set.distinct), "documents": prepared.n_documents},
        details=ReportFacts(dataset=prepared.query_set.name, resamples=options.resamples).as_details(),
    )
