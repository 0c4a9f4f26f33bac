"""The report of an audit, made from its result: one JSON document, which is the source of every other form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from migrate.audit.bounds import Outcome
from migrate.audit.held_out import HeldOut
from migrate.audit.pool import PoolSummary
from migrate.audit.recommendation import options_of, recommend
from migrate.audit.reference_proof import ReferenceProof
from migrate.audit.result import AuditResult
from migrate.audit.results import TRANSLATED, ArmResult
from migrate.audit.verdict import Verdict
from migrate.audit_report.report import AuditReport
from migrate.display import AUDIT_SCHEMA
from migrate.facts import as_plain, document


def report_of(result: AuditResult) -> AuditReport:
    """Return the report of an audit, with its recommendation.

    All that the audit knows is in it, per query too, as values that JSON holds; a bound without limit is null. What the
    full re-embed's quality is kept of goes by what was measured: `retention`, or `agreement@10`.
    """
    data = result.data
    examination = result.examination
    diagnostics = examination.diagnostics
    measured = result.verdict.scale.measured
    reference = None
    if examination.reference is not None:
        reference = _reference(examination.reference, examination.doubts)
    held_out = None
    if examination.held_out is not None:
        held_out = _held_out(examination.held_out)
    content = {
        "store": result.locations.translated,
        "verdict": {
            **_verdict(result.verdict),
            "better_than_stay": result.verdict.better_than_stay,
            "counted": result.verdict.observations.counted,
            "measure": data.measure,
            "basis": basis_of(result) or None,
            "caveats": examination.caveats,
            "doubts": examination.doubts,
        },
        "dataset": {"name": data.name, "queries": len(data.query_ids), "documents": data.n_documents},
        "arms": [_arm(arm, result) for arm in result.arms],
        "family": result.family,
        "plan": {"name": result.plan, "outcome": result.outcome, "sentence": sentence_of(result)},
        "recommendation": _by_measure(recommend(result), measured),
        "options": [_by_measure(option, measured) for option in options_of(result)],
        "missing": result.skipped_arms,
        # JSON tables have no order, and the arms that are missing have one
        "skipped_arms": list(result.skipped_arms),
        "reference": reference,
        "held_out": held_out,
        "regressions": diagnostics.regressions,
        "slices": [_by_measure(group, measured) for group in diagnostics.slices],
        "calibration": diagnostics.calibration,
        "hubness": diagnostics.hubness,
        "query_ids": data.query_ids,
        "query_texts": data.query_texts,
        "notes": examination.notes,
        "searches": examination.searches,
        "manifest": result.manifest,
        "stores": result.stores,
    }
    if result.pool is not None:
        content["pool"] = _pool(result.pool)
    return AuditReport.of(document("audit", content, version=AUDIT_SCHEMA))


def basis_of(result: AuditResult) -> str:
    """Return the basis of a provisional verdict; empty where queries are judged."""
    if not result.verdict.scale.provisional:
        return ""
    basis = f"nothing is judged, so this rests on {result.data.measure} with the full re-embed"
    if result.data.made_from:
        basis += f", by synthetic queries ({result.data.made_from})"
    return basis


def sentence_of(result: AuditResult) -> str:
    """Return the outcome and what it is of: the translated store, or before that the plan that is judged."""
    verdict = result.verdict
    alone = f"{_with_basis(verdict.outcome, result)}: {verdict.sentence}"
    if result.plan == TRANSLATED:
        return alone
    bounds = result.family[result.plan]
    judged = f"{verdict.scale.measured} {verdict.scale.figure(bounds.estimate)} (bounds: {verdict.scale.span(bounds)})"
    return f"{_with_basis(result.outcome, result)}: {result.plan}, {judged}; translated alone: {alone}"


def _with_basis(outcome: Outcome, result: AuditResult) -> str:
    basis = basis_of(result)
    if basis:
        return f"{outcome} (provisional: {basis})"
    return f"{outcome}"


def _by_measure(result: Any, measured: str) -> dict[str, Any]:
    """Return a dataclass with a field `retention`, which goes by the name of what was measured."""
    # Agreement is no retention: a field of that name would be read as one
    return {measured if name == "retention" else name: value for name, value in as_plain(result).items()}


def _verdict(verdict: Verdict) -> dict[str, Any]:
    return {
        "outcome": verdict.outcome,
        "sentence": verdict.sentence,
        "provisional": verdict.scale.provisional,
        "measured": verdict.scale.measured,
        verdict.scale.measured: verdict.retention,
        "safe_from": verdict.scale.safe,
        "not_safe_below": verdict.scale.harmful,
        "margin": verdict.scale.margin,
        "gain_over_stay": verdict.gain_over_stay,
        "worse_than_stay": verdict.worse_than_stay,
        "queries": verdict.observations.queries,
        "groups": verdict.observations.independent,
        "queries_needed": verdict.queries_needed,
    }


def _reference(proof: ReferenceProof, doubts: Sequence[str]) -> dict[str, Any]:
    return {"proven": proof.proven, "evidence": proof.evidence, "doubts": doubts}


def _pool(pool: PoolSummary) -> dict[str, Any]:
    return {**as_plain(pool), "share": pool.share, "exact": pool.is_exact, "sentences": pool.sentences}


def _held_out(held_out: HeldOut) -> dict[str, Any]:
    content = {"documents": held_out.documents, "relevant": held_out.relevant, "sentence": held_out.sentence}
    return {**content, "verdict": _verdict(held_out.verdict)}


def _arm(arm: ArmResult, result: AuditResult) -> dict[str, Any]:
    against = None
    if arm.name in result.comparisons:
        against = _by_measure(result.comparisons[arm.name], result.verdict.scale.measured)
    content: dict[str, Any] = {}
    if arm.reranking is not None:
        content["reranking"] = arm.reranking
    return {
        **content,
        "name": arm.name,
        "meaning": arm.meaning,
        "means": {measure: arm.mean(measure) for measure in arm.scores},
        "against": against,
        "seconds": arm.seconds,
        "tokens": arm.tokens,
        "usd": arm.usd,
        "per_query": arm.scores,
    }
