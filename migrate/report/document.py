"""An audit report as one JSON document: the source of truth for every other form."""

from __future__ import annotations

from typing import Any

from migrate.audit.held_out import HeldOut
from migrate.audit.pool import PoolSummary
from migrate.audit.recommendation import options_of, recommend
from migrate.audit.report import AuditReport
from migrate.audit.results import ArmResult
from migrate.audit.verdict import Verdict
from migrate.display import AUDIT_SCHEMA
from migrate.report.facts import as_plain, document


def audit_document(report: AuditReport) -> dict[str, Any]:
    """Return everything the report knows, per query too, as values that JSON holds; a bound without limit is null.

    What the full re-embed's quality is kept of goes by what was measured: `retention`, or `agreement@10`.
    """
    diagnostics, measured = report.diagnostics, report.verdict.scale.measured
    content = {
        "verdict": {
            **_verdict(report.verdict),
            "measure": report.measure,
            "basis": report.basis or None,
            "caveats": report.caveats,
        },
        "dataset": {"name": report.dataset, "queries": len(report.query_ids), "documents": report.n_documents},
        "arms": [_arm(arm, report) for arm in report.arms],
        "family": report.family,
        "plan": {"name": report.plan, "outcome": report.outcome},
        "recommendation": recommendation_document(report),
        "options": [_by_measure(option, measured) for option in options_of(report)],
        "missing": report.skipped_arms,
        "reference": None if report.reference is None else _reference(report),
        "held_out": None if report.held_out is None else _held_out(report.held_out),
        "regressions": diagnostics.regressions,
        "slices": [_by_measure(group, measured) for group in diagnostics.slices],
        "calibration": diagnostics.calibration,
        "hubness": diagnostics.hubness,
        "query_ids": report.query_ids,
        "notes": report.notes,
        "searches": report.searches,
        "manifest": report.manifest,
        "stores": report.stores,
        **({} if report.pool is None else {"pool": _pool(report.pool)}),
    }
    return document("audit", content, version=AUDIT_SCHEMA)


def recommendation_document(report: AuditReport) -> dict[str, Any]:
    """Return the recommendation: `command` are words to type after the program's name, None where none does it."""
    return _by_measure(recommend(report), report.verdict.scale.measured)


def _by_measure(result: Any, measured: str) -> dict[str, Any]:
    """Return a dataclass with a field `retention`, which goes by the name of what was measured."""
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


def _reference(report: AuditReport) -> dict[str, Any]:
    proof = report.reference
    evidence = () if proof is None else proof.evidence
    return {"proven": proof is not None and proof.proven, "evidence": evidence, "doubts": report.doubts}


def _pool(pool: PoolSummary) -> dict[str, Any]:
    return {**as_plain(pool), "share": pool.share, "exact": pool.is_exact, "sentences": pool.sentences}


def _held_out(held_out: HeldOut) -> dict[str, Any]:
    content = {"documents": held_out.documents, "relevant": held_out.relevant, "sentence": held_out.sentence}
    return {**content, "verdict": _verdict(held_out.verdict)}


def _arm(arm: ArmResult, report: AuditReport) -> dict[str, Any]:
    reranking = {} if arm.reranking is None else {"reranking": arm.reranking}
    comparison = report.comparisons.get(arm.name)
    return {
        **reranking,
        "name": arm.name,
        "meaning": arm.meaning,
        "means": {measure: arm.mean(measure) for measure in arm.scores},
        "against": None if comparison is None else _by_measure(comparison, report.verdict.scale.measured),
        "seconds": arm.seconds,
        "tokens": arm.tokens,
        "usd": arm.usd,
        "per_query": arm.scores,
    }
