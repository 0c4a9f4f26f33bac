"""The audit: every arm answers the same queries, the full re-embed is the standard, the verdict follows.

One pass: inputs are checked, each arm becomes a run, all runs are measured, and what they show becomes findings. The
verdict is by the measures and the findings alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from migrate.audit import findings as find
from migrate.audit.arms import measure_arms
from migrate.audit.diagnostics import diagnose
from migrate.audit.held_out import audit_held_out, true_documents, unexplained_documents
from migrate.audit.inputs import prepare_audit
from migrate.audit.locations import locations_of
from migrate.audit.own_search import findings_of, own_searches, searched_exactly
from migrate.audit.pool import grow_pool
from migrate.audit.report import AuditReport
from migrate.audit.results import FULL, STAY, TOGETHER, TRANSLATED, TWO_STAGE
from migrate.audit.slices import unused_fields
from migrate.audit.verdict import Finding, margin_remarks
from migrate.manifest import Manifest, ReportFacts
from migrate.stores.base import Store
from migrate.stores.content import content_of

if TYPE_CHECKING:
    from migrate.audit.step import Audit


def audit_store(audit: Audit, reference: Store | None) -> AuditReport:
    """Answer the queries with every arm that the inputs allow, and judge the translated store.

    The arms are those of `migrate.audit.arms.ARMS`; what the others need is in the report. `reference` is the full
    re-embed, None for a pool.
    """
    choosers = audit.choosers  # before anything is embedded
    retriever = prepare_audit(audit, reference)
    pool = None
    if audit.is_pooled:
        pool = grow_pool(retriever, audit.most_deep, announce=audit.announce)
        retriever = pool.retriever
    rules = retriever.rules() if pool is None else pool.rules
    query_set, measures = retriever.query_set, measure_arms(retriever, rules)
    results, scores = measures.results, measures.scores

    searches = own_searches(retriever, rules)
    findings = [
        *findings_of(searches),
        *_remarks(audit, measures.skipped),
        *retriever.findings,
        *find.oddities(retriever, rules, scores, results[FULL].mean("judged@10") or 0),
    ]
    unexplained = unexplained_documents(retriever, choosers)
    true = true_documents(audit.translated, retriever.keys[TRANSLATED])
    held_out = audit_held_out(retriever, true | unexplained, findings, pool.outside if pool else None)
    findings += find.of_true_vectors(retriever, choosers, true, unexplained, held_out)
    diagnostics = diagnose(retriever, rules, scores)
    findings += [Finding("note", result.reranking.sentence) for result in results.values() if result.reranking]
    findings += unused_fields(diagnostics.slices, audit.slice)
    findings += searched_exactly(retriever)

    verdict = rules.verdict(scores[TRANSLATED], scores[FULL], scores.get(STAY)).doubted(findings)
    stores = {"translated": audit.translated, "source": audit.source_store}
    report = AuditReport(
        verdict=replace(verdict, remedy=pool.remedy if pool else None),
        arms=tuple(results.values()),
        comparisons=measures.comparisons,
        measure=query_set.measure,
        query_ids=tuple(query.id for query in query_set.distinct),
        query_texts=tuple(query.text for query in query_set.distinct),
        n_documents=retriever.n_documents,
        dataset=query_set.name,
        findings=tuple(findings),
        manifest=_manifest(audit, len(query_set.distinct), retriever.n_documents),
        family=measures.family,
        plan=measures.plan,
        skipped_arms=measures.skipped,
        held_out=held_out,
        diagnostics=diagnostics,
        reference=retriever.proof,
        pool=pool.summary if pool else None,
        made_from=query_set.made_from,
        reference_at=None if audit.full is None else audit.full.info.location,
        is_kept=audit.embedder.keeps,
        stores={name: content_of(store) for name, store in stores.items() if store is not None},
        locations=locations_of(audit.translated, audit.source_store, audit.embedder, audit.source_embedder),
        rules=rules,
        searches=searches,
    )
    return report if find.has_standard(rules, scores) else report.without_standard()


def _remarks(audit: Audit, skipped: Mapping[str, str]) -> Iterator[Finding]:
    """Yield caveats on the margin, and on arms with depths that were asked for and are left out."""
    yield from (Finding("caveat", remark) for remark in margin_remarks(audit.margin, audit.margin_from))
    missing = [f"{name} {need}" for name, need in skipped.items() if name.startswith((TWO_STAGE, f"{TOGETHER} "))]
    if audit.stages and missing:
        yield Finding("caveat", f"left out: {'; '.join(missing)}")


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
