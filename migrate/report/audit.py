"""The tables and the sentences of an audit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from math import floor, log10

from migrate.audit.bounds import Bounds
from migrate.audit.diagnostics import Diagnostics, ThresholdTable
from migrate.audit.recommendation import recommend
from migrate.audit.report import AuditReport
from migrate.audit.results import (
    AGREEMENT,
    BM25,
    FULL,
    HYBRID,
    HYBRID_FULL,
    TRANSLATED,
    Comparison,
)
from migrate.audit.slices import Slice
from migrate.audit.verdict import Verdict
from migrate.display import percent
from migrate.report.sections import Block, TextTable
from migrate.report.terminal import cut, figure_or_dash, filled_columns

METRICS = {"ip": "inner product, at least", "l2": "squared distance, at most"}
"""What a score is, and how it passes a threshold."""


def audit_brief(report: AuditReport) -> list[Block]:
    """Return what a notebook and a summary of CI have beside the verdict."""
    return [*report.caveats, TextTable(quality_rows(report))]


def slice_rows(report: AuditReport) -> list[list[str]]:
    """Return a head, and the kinds of queries that keep least, among those with enough queries; empty without any."""
    measured = report.verdict.scale.measured
    enough = sorted(
        (group for group in informative_slices(report.diagnostics.slices) if group.queries >= 10),
        key=lambda group: group.retention.estimate,
    )
    rows = [
        [
            cut(" ".join(f"{group.by}: {group.value}".split()), 60),
            f"{group.queries}",
            f"{group.full:.3f}",
            f"{group.translated:.3f}",
            report.verdict.scale.figure(group.retention.estimate),
        ]
        for group in enough[:3]
    ]
    return [["kinds of queries that keep least", "queries", "full", "translated", measured], *rows] if rows else []


def informative_slices(slices: Sequence[Slice]) -> list[Slice]:
    """Return slices of kinds with several values; a single value would repeat the verdict."""
    times = Counter(group.by for group in slices)
    return [group for group in slices if times[group.by] > 1]


def calibration_title(calibration: ThresholdTable) -> str:
    """Return the title of a table of thresholds."""
    old, new = (METRICS[metric] for metric in calibration.metrics)
    return f"similarity thresholds, old ({old}) and new ({new})"


def _decimals(values: list[float]) -> int:
    """Return as many decimals as tell values apart that lie close together, four at least.

    >>> _decimals([0.2, 0.7]), _decimals([0.999991, 0.999998])
    (4, 7)
    """
    spread = max(values) - min(values)
    return 4 if spread <= 0 else min(max(4, 1 - floor(log10(spread))), 9)


def calibration_rows(calibration: ThresholdTable) -> list[list[str]]:
    """Return one row a threshold: old, the share of hits that passes it, new for as many, new for as precise ones."""
    head = ["old", "hits that pass", "new", "new, for the same precision"]
    rows = [
        [
            f"{threshold.old:.{_decimals([other.old for other in calibration.thresholds])}f}",
            f"{percent(threshold.pass_rate, 0)}",
            f"{threshold.same_pass_rate:.4f}",
            figure_or_dash(threshold.same_precision, ".4f"),
        ]
        for threshold in calibration.thresholds
    ]
    return filled_columns([head, *rows])


def hub_rows(diagnostics: Diagnostics) -> list[list[str]]:
    """Return a head, and for each arm how unevenly its documents are near others."""
    rows = [
        [hubs.arm, f"{hubs.documents:,}", f"{hubs.skewness:.2f}", f"{hubs.largest:,}", percent(hubs.orphans)]
        for hubs in diagnostics.hubness
    ]
    return [["arm", "documents", "skewness", "largest", "near none"], *rows]


_QUALITY = {"nDCG@10": "nDCG@10", "recall@100": "R@100", "MRR@10": "MRR@10"}


def sentences(report: AuditReport) -> Iterator[str]:
    """Yield the remarks on the tables, then the caveats, and the verdict last."""
    verdict = report.verdict
    together = f"; those of {', '.join(report.family)} hold for all of these together" if report.family else ""
    yield f"bounds are one-sided 95 % bounds{together}; the verdict is on `translated` alone"
    if report.pool is not None:
        yield from report.pool.sentences
        if not report.pool.is_exact:
            absent = ["overlap and RBO", "topics"]
            if verdict.scale.provisional:
                absent.append("the verdict without the documents that have true vectors")
            yield f"left out, as they need the full re-embed: {', '.join(absent)}; `--reference build` has them"
    if report.skipped_arms:
        yield "skipped arms: " + "; ".join(f"{name} {need}" for name, need in report.skipped_arms.items())
    yield from (f"note: {note}" for note in report.notes)
    if report.held_out is not None:
        yield report.held_out.sentence
    gain = verdict.gain_over_stay
    if gain is not None:
        bounds = f"95 % bounds: {gain.lower:+.3f} to {gain.upper:+.3f}"
        yield f"against staying: {gain.estimate:+.3f} {report.measure} ({bounds}){_significance(verdict)}"
    yield f"recommendation: {recommend(report).headline}"
    yield from (f"caveat: {caveat}" for caveat in report.caveats)
    yield report.sentence


def _significance(verdict: Verdict) -> str:
    if verdict.better_than_stay:
        return ", significantly better"
    return ", significantly worse" if verdict.worse_than_stay else ""


def quality_rows(report: AuditReport) -> list[list[str]]:
    """Return one row an arm: measures, retention with its bounds, queries won, tied and lost, and costs if any."""
    head = ["arm", *_QUALITY.values(), report.verdict.scale.measured, "bounds", "win/tie/loss", "s", "Mtok", "usd"]
    rows = [
        [
            arm.name,
            *(figure_or_dash(arm.mean(measure), ".3f") for measure in _QUALITY),
            *_compared(report, arm.name),
            f"{arm.seconds:.1f}",
            figure_or_dash(None if arm.tokens is None else arm.tokens / 1e6, ".2f"),
            figure_or_dash(arm.usd, ",.2f"),
        ]
        for arm in report.arms
    ]
    return filled_columns([head, *rows], costs=("Mtok", "usd"))


def agreement_rows(report: AuditReport) -> list[list[str]]:
    """Return one row an arm: the share of what the full re-embed finds that it finds too."""
    measures = ("overlap@1", "overlap@10", "overlap@100", "RBO", "judged@10")
    rows = [[arm.name, *(figure_or_dash(arm.mean(measure), ".3f") for measure in measures)] for arm in report.arms]
    shown = filled_columns([["against the full re-embed", *measures], *rows])
    return shown if set(shown[0][1:]) - {"judged@10"} else []


def legend(report: AuditReport) -> str:
    """Return the meaning of the columns and arms that are there, where their names do not say it."""
    shown = {*quality_rows(report)[0], *(name for row in agreement_rows(report)[:1] for name in row)}
    shown |= {arm.name for arm in report.arms}
    meanings = {
        "retention": f"retention: share of the full re-embed's {report.measure}",
        AGREEMENT: f"{AGREEMENT}: nDCG@10 by the target model's own scores",
        "s": "s: seconds to rank",
        "Mtok": "Mtok: million tokens of documents for the target model",
        "overlap@10": "overlap@k: share of the full re-embed's first k",
        "RBO": "RBO: rank-biased overlap, which counts the top most",
        "judged@10": "judged@10: share of the first 10 with a judgement",
        HYBRID: f"{HYBRID}: {TRANSLATED} and {BM25}, ranks fused",
        HYBRID_FULL: f"{HYBRID_FULL}: {FULL} and {BM25}",
    }
    return "; ".join(meaning for name, meaning in meanings.items() if name in shown)


def retention_of(report: AuditReport, name: str) -> Bounds:
    """Return what an arm keeps; arms that could serve instead have bounds that hold for all of them together."""
    return report.family.get(name, report.comparisons[name].retention)


def _compared(report: AuditReport, name: str) -> list[str]:
    if name not in report.comparisons:
        return ["", "", ""]
    bounds, verdict = retention_of(report, name), report.verdict
    shares = [verdict.scale.figure(bounds.estimate), verdict.scale.span(bounds)] if bounds.is_known else ["-", "-"]
    return [*shares, _record(report.comparisons[name])]


def _record(comparison: Comparison) -> str:
    """Return queries won, tied and lost; as percentages where the counts would not fit."""
    counts = (comparison.wins, comparison.ties, comparison.losses)
    if sum(counts) < 10_000:
        return "/".join(map(str, counts))
    return "/".join(f"{100 * count / sum(counts):.0f}%" for count in counts)
