"""The report of an audit, made from its result: one JSON document, which is the source of every other form."""

from __future__ import annotations

from typing import Any

from migrate.audit.bounds import Outcome
from migrate.audit.held_out import HeldOut
from migrate.audit.pool import PoolSummary
from migrate.audit.recommendation import options_of, recommend
from migrate.audit.result import AuditResult
from migrate.audit.results import TRANSLATED, ArmResult
from migrate.audit.verdict import Verdict
from migrate.audited.report import AuditReport
from migrate.display import AUDIT_SCHEMA
from migrate.facts import as_plain, document


def report_of(result: AuditResult) -> AuditReport:
    """Return the report of an audit, with its recommendation.

    All that the audit knows is in it, per query too, as values that JSON holds; a bound without limit is null. What the
    full re-embed's quality is kept of goes by what was measured: `retention`, or `agreement@10`.
    """
    diagnostics, measured = result.diagnostics, result.verdict.scale.measured
    content = {
        "store": result.locations.translated,
        "verdict": {
            **_verdict(result.verdict),
            "better_than_stay": result.verdict.better_than_stay,
            "counted": result.verdict.observations.counted,
            "measure": result.measure,
            "basis": basis_of(result) or None,
            "caveats": result.caveats,
            "doubts": result.doubts,
        },
        "dataset": {"name": result.dataset, "queries": len(result.query_ids), "documents": result.n_documents},
        "arms": [_arm(arm, result) for arm in result.arms],
        "family": result.family,
        "plan": {"name": result.plan, "outcome": result.outcome, "sentence": sentence_of(result)},
        "recommendation": _by_measure(recommend(result), measured),
        "options": [_by_measure(option, measured) for option in options_of(result)],
        "missing": result.skipped_arms,
        "skipped_arms": list(result.skipped_arms),
        "reference": None if result.reference is None else _reference(result),
        "held_out": None if result.held_out is None else _held_out(result.held_out),
        "regressions": diagnostics.regressions,
        "slices": [_by_measure(group, measured) for group in diagnostics.slices],
        "calibration": diagnostics.calibration,
        "hubness": diagnostics.hubness,
        "query_ids": result.query_ids,
        "query_texts": result.query_texts,
        "notes": result.notes,
        "searches": result.searches,
        "manifest": result.manifest,
        "stores": result.stores,
        **({} if result.pool is None else {"pool": _pool(result.pool)}),
    }
    return AuditReport.of(document("audit", content, version=AUDIT_SCHEMA))


def basis_of(result: AuditResult) -> str:
    """Return the basis of a provisional verdict; empty where queries are judged."""
    if not result.verdict.scale.provisional:
        return ""
    queries = f", by synthetic queries ({result.made_from})" if result.made_from else ""
    return f"nothing is judged, so this rests on {result.measure} with the full re-embed{queries}"


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
    return f"{outcome} (provisional: {basis})" if basis else f"{outcome}"


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


def _reference(result: AuditResult) -> dict[str, Any]:
    proof = result.reference
    evidence = () if proof is None else proof.evidence
    return {"proven": proof is not None and proof.proven, "evidence": evidence, "doubts": result.doubts}


def _pool(pool: PoolSummary) -> dict[str, Any]:
    return {**as_plain(pool), "share": pool.share, "exact": pool.is_exact, "sentences": pool.sentences}


def _held_out(held_out: HeldOut) -> dict[str, Any]:
    content = {"documents": held_out.documents, "relevant": held_out.relevant, "sentence": held_out.sentence}
    return {**content, "verdict": _verdict(held_out.verdict)}


def _arm(arm: ArmResult, result: AuditResult) -> dict[str, Any]:
    reranking = {} if arm.reranking is None else {"reranking": arm.reranking}
    comparison = result.comparisons.get(arm.name)
    return {
        **reranking,
        "name": arm.name,
        "meaning": arm.meaning,
        "means": {measure: arm.mean(measure) for measure in arm.scores},
        "against": None if comparison is None else _by_measure(comparison, result.verdict.scale.measured),
        "seconds": arm.seconds,
        "tokens": arm.tokens,
        "usd": arm.usd,
        "per_query": arm.scores,
    }
