"""The audit: every arm answers the same queries, the full re-embed is the standard, the verdict follows.

One pass: inputs are checked, each arm becomes a run, all runs are measured, and what they show becomes findings. The
verdict is by the measures and the findings alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from migrate.audit import findings as find
from migrate.audit.arms import family_of, measure_arm, select_arms
from migrate.audit.diagnostics import diagnose
from migrate.audit.held_out import audit_held_out, unexplained_documents
from migrate.audit.inputs import prepare_audit
from migrate.audit.judging import draw_unjudged
from migrate.audit.places import places_of
from migrate.audit.pool import grow_pool
from migrate.audit.report import AuditReport
from migrate.audit.results import FULL, STAY, TRANSLATED, TWO_STAGE, find_plan
from migrate.audit.slices import unused_fields
from migrate.audit.verdict import UNKNOWN, Finding, margin_remarks
from migrate.manifest import Manifest, ReportFacts
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

    arms, skipped = select_arms(retriever)
    alternatives = [arm.name for arm in arms if arm.is_alternative]
    plan = find_plan(audit.plan, (TRANSLATED, *alternatives), skipped)  # before anything is ranked
    answers = [(arm, arm.retrieve()) for arm in arms]
    results = {arm.name: measure_arm(arm, answer, retriever) for arm, answer in answers}
    scores = {name: result.scores[query_set.measure] for name, result in results.items()}
    measured = find.Measured(retriever, scores)

    missing = [f"{name} {need}" for name, need in skipped.items() if name.startswith(TWO_STAGE)]
    findings = [
        *(Finding("caveat", remark) for remark in margin_remarks(audit.margin, audit.margin_from)),
        *([Finding("caveat", f"left out: {'; '.join(missing)}")] if audit.stages and missing else []),
        *retriever.findings,
        *measured.oddities(results[FULL].mean("judged@10") or 0),
    ]
    unexplained = unexplained_documents(retriever, choosers)
    held_out = audit_held_out(retriever, findings, pool.outside if pool else None, unexplained)
    findings += find.of_true_vectors(retriever, choosers, unexplained, held_out)
    diagnostics = diagnose(measured)
    findings += find.drawn_queries(retriever)
    findings += [Finding("note", one.reranking.sentence) for one in results.values() if one.reranking]
    findings += unused_fields(diagnostics.slices, audit.slice)

    verdict = retriever.verdict(scores[TRANSLATED], scores[FULL], scores.get(STAY)).doubted(findings)
    comparisons = {
        arm.name: retriever.compare(results[arm.name], results[arm.standard])
        for arm in arms
        if arm.name != FULL and arm.standard in results
    }
    family = family_of(retriever, {name: scores[name] for name in alternatives})
    if not measured.has_standard:  # then no share of the full re-embed means anything
        verdict = verdict.without_standard().doubted(findings)
        comparisons = {
            name: replace(one, retention=UNKNOWN) if one.standard == FULL else one for name, one in comparisons.items()
        }
        family, held_out, diagnostics = dict.fromkeys(family, UNKNOWN), None, replace(diagnostics, slices=())
    left_to_judge = None if query_set.chances is None else query_set.ungraded
    stores = {"translated": audit.translated, "source": audit.source_store}
    return AuditReport(
        verdict=replace(verdict, remedy=pool.remedy if pool else None, left_to_judge=left_to_judge),
        arms=tuple(results.values()),
        comparisons=comparisons,
        measure=query_set.measure,
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
        unjudged=() if audit.judge_next is None else draw_unjudged(retriever),
        reference_at=None if reference is None else reference.info.location,
        is_kept=audit.embedder.keeps,
        stores={name: content_of(store) for name, store in stores.items() if store is not None},
        places=places_of(audit.translated, audit.source_store, audit.embedder),
    ).judging(plan)


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
