"""The audit: every arm answers the same queries, the full re-embed is the standard, the verdict follows.

One pass: inputs are checked, each arm becomes a run, all runs are measured, and what they show becomes findings. The
verdict is by the measures and the findings alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from migrate.audit import findings as find
from migrate.audit.arms import measure_arms
from migrate.audit.diagnostics import diagnose
from migrate.audit.held_out import audit_held_out, true_documents, unexplained_documents
from migrate.audit.inputs import AuditInputs, prepare_audit, refuse_documents_found
from migrate.audit.locations import locations_of
from migrate.audit.options import BUILD, AuditOptions
from migrate.audit.own_search import findings_of, own_searches, searched_exactly
from migrate.audit.pool import grow_pool
from migrate.audit.result import AuditResult
from migrate.audit.results import FULL, STAY, TOGETHER, TRANSLATED, TWO_STAGE
from migrate.audit.slices import unused_fields
from migrate.audit.verdict import Finding, margin_remarks
from migrate.check.again import prove_model
from migrate.embed import reembed_store
from migrate.embedders.base import Embedder
from migrate.manifest import Manifest, ReportFacts
from migrate.stores import open_store
from migrate.stores.base import Store
from migrate.stores.content import content_of
from migrate.vectors import Progress


def run_audit(options: AuditOptions, inputs: AuditInputs) -> AuditResult:
    """Build the reference where that is asked for, and audit."""
    reference = inputs.full
    with ExitStack() as stack:
        if options.reference == BUILD:
            prove_model(inputs.translated, inputs.embedder, seed=options.seed)  # before every text is paid for
            refuse_documents_found(options, inputs)
            reference = stack.enter_context(_embedded(inputs.translated, inputs.embedder, options.progress))
        return audit_store(options, inputs, reference)


@contextmanager
def _embedded(store: Store, embedder: Embedder, progress: Progress) -> Iterator[Store]:
    """Embed a store into one that goes away with the audit; the cache keeps the vectors."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "store"
        try:
            reembed_store(store, embedder, path, progress=progress)
        except KeyboardInterrupt as error:
            error.__notes__ = []  # of parts that are done, in a folder that goes away now
            raise
        yield open_store(path)


def audit_store(options: AuditOptions, inputs: AuditInputs, reference: Store | None) -> AuditResult:
    """Answer the queries with every arm that the inputs allow, and judge the translated store.

    The arms are those of `migrate.audit.arms.ARMS`; what the others need is in the report. `reference` is the full
    re-embed, None for a pool.
    """
    choosers = inputs.choosers
    retriever = prepare_audit(options, inputs, reference)
    pool = None
    if options.is_pooled:
        pool = grow_pool(retriever, options.most_deep, announce=options.announce)
        retriever = pool.retriever
    rules = retriever.rules() if pool is None else pool.rules
    query_set, measures = retriever.query_set, measure_arms(retriever, rules)
    results, scores = measures.results, measures.scores

    searches = own_searches(retriever, rules)
    findings = [
        *findings_of(searches),
        *_remarks(options, measures.skipped),
        *retriever.findings,
        *find.oddities(retriever, rules, scores, results[FULL].mean("judged@10") or 0),
    ]
    unexplained = unexplained_documents(retriever, choosers)
    true = true_documents(inputs.translated, retriever.keys[TRANSLATED])
    held_out = audit_held_out(retriever, true | unexplained, findings, pool.outside if pool else None)
    findings += find.of_true_vectors(retriever, choosers, true, unexplained, held_out)
    diagnostics = diagnose(retriever, rules, scores)
    findings += [Finding("note", result.reranking.sentence) for result in results.values() if result.reranking]
    findings += unused_fields(diagnostics.slices, options.slice)
    findings += searched_exactly(retriever)

    verdict = rules.verdict(scores[TRANSLATED], scores[FULL], scores.get(STAY)).doubted(findings)
    stores = {"translated": inputs.translated, "source": inputs.source}
    result = AuditResult(
        verdict=replace(verdict, remedy=pool.remedy if pool else None),
        arms=tuple(results.values()),
        comparisons=measures.comparisons,
        measure=query_set.measure,
        query_ids=tuple(query.id for query in query_set.distinct),
        query_texts=tuple(query.text for query in query_set.distinct),
        n_documents=retriever.n_documents,
        dataset=query_set.name,
        findings=tuple(findings),
        manifest=_manifest(options, inputs, len(query_set.distinct), retriever.n_documents),
        family=measures.family,
        plan=measures.plan,
        skipped_arms=measures.skipped,
        held_out=held_out,
        diagnostics=diagnostics,
        reference=retriever.proof,
        pool=pool.summary if pool else None,
        made_from=query_set.made_from,
        reference_at=None if inputs.full is None else inputs.full.info.location,
        is_kept=inputs.embedder.keeps,
        stores={name: content_of(store) for name, store in stores.items() if store is not None},
        locations=locations_of(inputs.translated, inputs.source, inputs.embedder, inputs.source_embedder),
        rules=rules,
        searches=searches,
    )
    return result if find.has_standard(rules, scores) else result.without_standard()


def _remarks(options: AuditOptions, skipped: Mapping[str, str]) -> Iterator[Finding]:
    """Yield caveats on the margin, and on arms with depths that were asked for and are left out."""
    yield from (Finding("caveat", remark) for remark in margin_remarks(options.margin, options.margin_from))
    missing = [f"{name} {need}" for name, need in skipped.items() if name.startswith((TWO_STAGE, f"{TOGETHER} "))]
    if options.stages and missing:
        yield Finding("caveat", f"left out: {'; '.join(missing)}")


def _manifest(options: AuditOptions, inputs: AuditInputs, n_queries: int, n_documents: int) -> Manifest:
    manifest = inputs.translated.info.manifest
    return Manifest(
        kind="report",
        model=manifest.model if manifest else None,
        source_model=manifest.source_model if manifest else None,
        seed=options.seed,
        counts={"queries": n_queries, "documents": n_documents},
        details=ReportFacts(dataset=inputs.query_set.name, resamples=options.resamples).as_details(),
    )
