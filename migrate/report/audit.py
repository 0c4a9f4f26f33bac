"""An audit report as plain text that fits 100 columns: the verdict last, where a terminal leaves it in sight."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from migrate.audit.arms import Arm, Comparison
from migrate.audit.model import AuditReport
from migrate.audit.verdict import Bounds, Verdict
from migrate.report.advice import advice
from migrate.report.frontier import frontier_text
from migrate.report.hurt import hurt_text
from migrate.report.terminal import folded, table, telling

_MANY_QUERIES = 10_000
_QUALITY = {"nDCG@10": "nDCG@10", "recall@100": "R@100", "MRR@10": "MRR@10"}
_LIKENESS = {
    "overlap@1": "ov@1",
    "overlap@10": "ov@10",
    "overlap@100": "ov@100",
    "RBO": "RBO",
    "judged@10": "judged@10",
}
_COSTS = ("Mtok", "usd")
_MILLION = 1e6


def audit_text(report: AuditReport) -> str:
    """The arms, what they were asked, where it hurts, what was tried, and the verdict."""
    verdict = report.verdict
    asked = f"{report.dataset}: {verdict.n_queries:,} queries, {report.n_documents:,} documents"
    tables = [quality_table(report), agreement_table(report)]
    parts = [asked, *tables, hurt_text(report.hurt, report.measure)]
    parts += [frontier_text(report.frontier)] if report.frontier else []
    return "\n\n".join([*filter(None, parts), "\n".join(map(folded, sentences(report)))])


def sentences(report: AuditReport) -> Iterator[str]:
    """What the tables do not say, the verdict last."""
    verdict = report.verdict
    yield "bounds are one-sided 95 % bounds of each arm alone; the verdict is on `translated`, and on nothing else"
    if report.missing:
        yield "not there: " + "; ".join(f"{name} {need}" for name, need in report.missing.items())
    yield from (f"note: {note}" for note in report.notes)
    if report.held_out is not None:
        yield report.held_out.sentence
    gain = verdict.gain_over_stay
    if gain is not None:
        span = f"95 % bounds {gain.lower:+.3f} to {gain.upper:+.3f}"
        yield f"against staying: {gain.estimate:+.3f} {report.measure}, {span}{_significance(verdict)}"
    yield from (f"next: {step}" for step in advice(report))
    stars = " (provisional: nothing is judged, so this rests on overlap@10)" if verdict.provisional else ""
    yield f"{verdict.outcome}{stars}: {verdict.sentence}"


def _significance(verdict: Verdict) -> str:
    if verdict.better_than_stay:
        return ", significantly better"
    return ", significantly worse" if verdict.worse_than_stay else ""


def quality_table(report: AuditReport) -> str:
    """The rows of `quality_rows`, aligned."""
    return table(quality_rows(report))


def quality_rows(report: AuditReport) -> list[list[str]]:
    """One row an arm: measures, retention with its bounds, queries won, tied and lost; what it costs where any does."""
    shown = _shown(_QUALITY, report)
    priced = any(arm.usd for arm in report.arms)
    head = ["arm", *shown.values(), "retention", "bounds", "win/tie/loss", "s", "Mtok", *(["usd"] if priced else [])]
    rows = [
        [
            arm.name,
            *_means(arm, shown),
            *_compared(report.comparisons.get(arm.name)),
            f"{arm.seconds:.1f}",
            "-" if arm.tokens is None else f"{arm.tokens / _MILLION:.2f}",
            *(["-" if arm.usd is None else f"{arm.usd:,.2f}"] if priced else []),
        ]
        for arm in report.arms
    ]
    return telling([head, *rows], costs=_COSTS)


def agreement_table(report: AuditReport) -> str:
    """The rows of `agreement_rows`, aligned."""
    return table(agreement_rows(report))


def agreement_rows(report: AuditReport) -> list[list[str]]:
    """One row an arm: how much of what the full re-embed finds it finds too."""
    shown = _shown(_LIKENESS, report)
    rows = [[arm.name, *_means(arm, shown)] for arm in report.arms]
    return telling([["against the full re-embed", *shown.values()], *rows])


def _shown(heads: dict[str, str], report: AuditReport) -> dict[str, str]:
    return {name: head for name, head in heads.items() if any(name in arm.scores for arm in report.arms)}


def _means(arm: Arm, measures: Sequence[str] | dict[str, str]) -> list[str]:
    means = [arm.mean(measure) for measure in measures]
    return ["-" if mean is None else f"{mean:.3f}" for mean in means]


def _compared(comparison: Comparison | None) -> list[str]:
    if comparison is None:
        return ["", "", ""]
    return [f"{comparison.retention.estimate:.3f}", span(comparison.retention), _record(comparison)]


def _record(comparison: Comparison) -> str:
    """Queries won, tied and lost; as percentages where the counts would not fit."""
    counts = (comparison.wins, comparison.ties, comparison.losses)
    if sum(counts) < _MANY_QUERIES:
        return "/".join(map(str, counts))
    return "/".join(f"{100 * count / sum(counts):.0f}%" for count in counts)


def span(bounds: Bounds) -> str:
    """Lower and upper bound.

    >>> span(Bounds(0.9, 0.85, 0.95))
    '0.850..0.950'
    """
    return f"{bounds.lower:.3f}..{bounds.upper:.3f}"
