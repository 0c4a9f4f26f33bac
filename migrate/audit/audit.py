"""The audit: every arm answers the same queries, the full re-embed is the standard, the verdict follows.

One pass: inputs are checked, each arm becomes a run, all runs are measured, and what they show becomes findings. The
verdict is by the measures and the findings alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from migrate.audit import findings as find
from migrate.audit.arms import Measures, measure_arms
from migrate.audit.bounds import RESAMPLES
from migrate.audit.diagnostics import diagnose
from migrate.audit.document import report_of
from migrate.audit.evidence import Evidence
from migrate.audit.experiment import rules_of
from migrate.audit.held_out import audit_held_out, true_documents, unexplained_documents
from migrate.audit.inclusion import draw_queries, look_for_relevant
from migrate.audit.inputs import (
    AuditInputs,
    ModelOf,
    Prepared,
    open_inputs,
    planned_models,
    prepare_audit,
    refuse_documents_found,
)
from migrate.audit.locations import locations_of
from migrate.audit.options import AuditOptions
from migrate.audit.own_search import findings_of, own_searches, searched_exactly
from migrate.audit.pool import GrownPool, PoolSummary, grow_pool
from migrate.audit.reference_proof import prove_target
from migrate.audit.result import AuditedData, AuditResult, Examination
from migrate.audit.results import FULL, STAY, TOGETHER, TRANSLATED, TWO_STAGE
from migrate.audit.retrieval import search_stores
from migrate.audit.rules import Settings
from migrate.audit.slices import unused_fields
from migrate.audit.verdict import Finding, Verdict, margin_remarks
from migrate.audit_report.report import AuditReport
from migrate.embed import reembed_store
from migrate.embedders.base import Embedder
from migrate.embedders.cache import is_kept
from migrate.manifest import Manifest, ReportFacts
from migrate.selection.choosers import Choosers
from migrate.steps.base import Job, RunContext
from migrate.steps.opening import model_of
from migrate.stores import open_store
from migrate.stores.base import Store
from migrate.stores.content import content_of
from migrate.vectors import Progress


@dataclass(frozen=True, kw_only=True, eq=False)
class AuditJob(Job["AuditReport"]):
    """An audit whose stores, models and queries are open."""

    inputs: AuditInputs

    def execute(self) -> AuditReport:
        """Build the reference where that is asked for, and audit."""
        return report_of(run_audit(self.inputs))


def open_audit(options: AuditOptions, context: RunContext, load: ModelOf = model_of) -> AuditJob:
    """Open what an audit reads, and make sure that it goes together; models that are named are loaded by `load`."""
    inputs = open_inputs(options, context, load)
    models = planned_models(context.cap, inputs)
    return AuditJob(options=options, context=context, models=models, inputs=inputs)


def run_audit(inputs: AuditInputs) -> AuditResult:
    """Build the reference where that is asked for, and audit."""
    if not inputs.builds_reference:
        return audit_store(inputs, inputs.full)
    # Before every text is paid for; what is embedded then has to prove itself once more
    prove_target(inputs.translated, inputs.embedder, seed=inputs.settings.seed)
    refuse_documents_found(inputs)
    with _embedded(inputs.translated, inputs.embedder, inputs.progress) as reference:
        return audit_store(inputs, reference)


@contextmanager
def _embedded(store: Store, embedder: Embedder, progress: Progress) -> Iterator[Store]:
    """Embed a store into one that goes away with the audit; the cache keeps the vectors."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "store"
        try:
            reembed_store(store, embedder, path, progress=progress)
        except KeyboardInterrupt as error:
            # The notes tell how to go on with the parts that are done, in a folder that goes away now
            error.__notes__ = []
            raise
        yield open_store(path)


def audit_store(inputs: AuditInputs, reference: Store | None) -> AuditResult:
    """Answer the queries with every arm that the inputs allow, and judge the translated store.

    The arms are those of `migrate.audit.arms.ARMS`; what the others need is in the report. `reference` is the full
    re-embed, None for a pool.
    """
    prepared = prepare_audit(inputs, reference)
    every = prepared.experiment
    if prepared.proof is None:
        prepared = replace(prepared, experiment=draw_queries(every))
    runs = search_stores(prepared.experiment, for_pool=prepared.proof is None)
    pool = None
    summary = None
    inclusion = None
    if prepared.proof is None:
        pool = grow_pool(prepared.experiment, runs, prepared.costs, inputs.embedder, announce=inputs.announce)
        if prepared.experiment is not every:
            pool, inclusion = look_for_relevant(pool, every)
        summary = pool.summary
        evidence = pool.evidence
    else:
        evidence = Evidence(prepared.experiment, runs, rules_of(prepared.experiment), prepared.proof)
    measures = measure_arms(evidence.experiment, evidence.runs, evidence.rules, prepared.costs)
    if inclusion is not None:
        measures = inclusion.narrow(measures)
        prepared = replace(prepared, findings=(*prepared.findings, *inclusion.findings))
    believed = evidence
    if inclusion is not None:
        # What a full re-embed is expected to score rests on more queries than are ranked; in the pool is the most
        believed = replace(evidence, rules=replace(evidence.rules, floor=None))
    examination = examine(prepared, believed, measures, inputs.choosers)
    verdict = judge(evidence, measures, examination.findings, pool)
    if inclusion is not None:
        verdict = inclusion.without_others(verdict)
    result = result_of(inputs, evidence, measures, examination, verdict, summary)
    if find.has_standard(believed.rules, measures.scores):
        return result
    return result.without_standard()


def examine(prepared: Prepared, evidence: Evidence, measures: Measures, choosers: Choosers) -> Examination:
    """Look at what speaks for and against the scores, and at their causes."""
    experiment = evidence.experiment
    settings = experiment.settings
    results = measures.results
    searches = own_searches(evidence)
    findings = [*findings_of(searches), *_remarks(settings, measures.skipped), *prepared.findings]
    # The proof of a pool came with it
    if prepared.proof is None:
        findings += evidence.proof.findings
    findings += find.oddities(evidence, measures.scores, results[FULL].mean("judged@10") or 0)
    subjects = find.subjects_of(evidence)
    # True vectors that nothing accounts for may have been chosen by these very queries
    unexplained = unexplained_documents(experiment, choosers)
    true = true_documents(experiment.stores[TRANSLATED])
    # What the stitch alone keeps: documents that were embedded for real flatter a translation
    held_out = audit_held_out(evidence, true | unexplained, findings)
    diagnostics = diagnose(evidence, subjects, measures.scores)
    findings += find.of_true_vectors(evidence, subjects, choosers, true, unexplained, held_out)
    findings += [Finding("note", result.reranking.sentence) for result in results.values() if result.reranking]
    findings += unused_fields(diagnostics.slices, settings.slices)
    findings += searched_exactly(experiment)
    return Examination(tuple(findings), searches, held_out, diagnostics, evidence.proof)


def judge(evidence: Evidence, measures: Measures, findings: Sequence[Finding], pool: GrownPool | None) -> Verdict:
    """Return the verdict on the translated store, by the scores and the findings alone."""
    scores = measures.scores
    verdict = evidence.rules.verdict(scores[TRANSLATED], scores[FULL], scores.get(STAY)).doubted(findings)
    remedy = None
    if pool is not None:
        remedy = pool.remedy
    return replace(verdict, remedy=remedy)


def result_of(
    inputs: AuditInputs,
    evidence: Evidence,
    measures: Measures,
    examination: Examination,
    verdict: Verdict,
    pool: PoolSummary | None,
) -> AuditResult:
    """Put together what was measured and found."""
    experiment = evidence.experiment
    query_set = experiment.query_set
    stores = {"translated": inputs.translated, "source": inputs.source}
    reference_at = None
    if inputs.full is not None:
        reference_at = inputs.full.info.location
    return AuditResult(
        verdict=verdict,
        arms=tuple(measures.results.values()),
        comparisons=measures.comparisons,
        data=AuditedData(
            name=query_set.name,
            n_documents=experiment.n_documents,
            measure=query_set.measure,
            query_ids=tuple(query.id for query in query_set.distinct),
            query_texts=tuple(query.text for query in query_set.distinct),
            made_from=query_set.made_from,
        ),
        manifest=_manifest(inputs, len(query_set.distinct), experiment.n_documents),
        examination=examination,
        family=measures.family,
        plan=measures.plan,
        skipped_arms=measures.skipped,
        pool=pool,
        reference_at=reference_at,
        is_kept=is_kept(inputs.embedder),
        stores={name: content_of(store) for name, store in stores.items() if store is not None},
        locations=locations_of(inputs.translated, inputs.source, inputs.embedder, inputs.source_embedder),
        rules=evidence.rules,
    )


def _remarks(settings: Settings, skipped: Mapping[str, str]) -> Iterator[Finding]:
    """Yield caveats on the margin, and on arms with depths that were asked for and are left out."""
    yield from (Finding("caveat", remark) for remark in margin_remarks(settings.margin, settings.margin_from))
    missing = [f"{name} {need}" for name, need in skipped.items() if name.startswith((TWO_STAGE, f"{TOGETHER} "))]
    if settings.stages and missing:
        yield Finding("caveat", f"left out: {'; '.join(missing)}")


def _manifest(inputs: AuditInputs, n_queries: int, n_documents: int) -> Manifest:
    translated = inputs.translated.info.manifest or Manifest(kind="store")
    return Manifest(
        kind="report",
        model=translated.model,
        source_model=translated.source_model,
        seed=inputs.settings.seed,
        counts={"queries": n_queries, "documents": n_documents},
        details=ReportFacts(dataset=inputs.query_set.name, resamples=RESAMPLES).as_details(),
    )
