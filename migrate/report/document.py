"""An audit report as one JSON document: the source of truth for every other form."""

from __future__ import annotations

from dataclasses import asdict
from math import isfinite
from typing import Any

from migrate.audit.model import Arm, AuditReport
from migrate.audit.verdict import Bounds

SCHEMA_VERSION = 1


def audit_document(report: AuditReport) -> dict[str, Any]:
    """Everything the report knows, per query too, as values that JSON holds; a bound without limit is null."""
    verdict = report.verdict
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": "audit",
        "verdict": {
            "outcome": verdict.outcome.value,
            "sentence": verdict.sentence,
            "provisional": verdict.provisional,
            "measure": report.measure,
            "margin": verdict.margin,
            "retention": bounds_document(verdict.retention),
            "gain_over_stay": None if verdict.gain_over_stay is None else bounds_document(verdict.gain_over_stay),
            "worse_than_stay": verdict.worse_than_stay,
            "queries": verdict.n_queries,
            "queries_needed": verdict.queries_needed,
        },
        "dataset": {"name": report.dataset, "queries": len(report.query_ids), "documents": report.n_documents},
        "arms": [_arm_document(arm, report) for arm in report.arms],
        "query_ids": list(report.query_ids),
        "notes": list(report.notes),
        "manifest": asdict(report.manifest),
    }


def bounds_document(bounds: Bounds) -> dict[str, float | None]:
    """An estimate with its bounds."""
    return {name: value if isfinite(value) else None for name, value in asdict(bounds).items()}


def _arm_document(arm: Arm, report: AuditReport) -> dict[str, Any]:
    comparison = report.comparisons.get(arm.name)
    against = None if comparison is None else {**asdict(comparison), "retention": bounds_document(comparison.retention)}
    reranking = {} if arm.reranking is None else {"reranking": asdict(arm.reranking)}
    return {
        **reranking,
        "name": arm.name,
        "meaning": arm.meaning,
        "means": {measure: arm.mean(measure) for measure in arm.scores},
        "against_full": against,
        "seconds": arm.seconds,
        "per_query": {measure: values.tolist() for measure, values in arm.scores.items()},
    }
