"""The tables and the sentences of an audit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from math import floor, log10

from migrate.audit_report.names import AGREEMENT, BM25, FULL, HYBRID, HYBRID_FULL, TRANSLATED
from migrate.audit_report.records import (
    Comparison,
    Hubness,
    ReportedArm,
    ReportedAudit,
    ReportedVerdict,
    Slice,
    ThresholdTable,
)
from migrate.display import percent
from migrate.outcome import Bounds, span
from migrate.report.sections import Block, TextTable
from migrate.report.terminal import cut, figure_or_dash, filled_columns

_FEWEST_DECIMALS = 4
_MOST_DECIMALS = 9
"""More than float32 has."""

METRICS = {"ip": "inner product, at least", "l2": "squared distance, at most"}
"""What a score is, and how it passes a threshold."""


def audit_brief(audit: ReportedAudit) -> list[Block]:
    """Return what a notebook and a summary of CI have beside the verdict."""
    return [*audit.verdict.caveats, TextTable(quality_rows(audit))]


def slice_rows(audit: ReportedAudit) -> list[list[str]]:
    """Return a head, and the kinds of queries that keep least, among those with enough queries; empty without any."""
    measured = audit.verdict.measured
    # Of fewer than ten queries a share is chance
    enough = sorted(
        (group for group in informative_slices(audit.diagnostics.slices) if group.queries >= 10),
        key=lambda group: group.retention.estimate,
    )
    rows = [
        [
            cut(" ".join(f"{group.by}: {group.value}".split()), 60),
            f"{group.queries}",
            f"{group.full:.3f}",
            f"{group.translated:.3f}",
            audit.verdict.figure(group.retention.estimate),
        ]
        for group in enough[:3]
    ]
    if not rows:
        return []
    return [["kinds of queries that keep least", "queries", "full", "translated", measured], *rows]


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
    if spread <= 0:
        return _FEWEST_DECIMALS
    return min(max(_FEWEST_DECIMALS, 1 - floor(log10(spread))), _MOST_DECIMALS)


def calibration_rows(calibration: ThresholdTable) -> list[list[str]]:
    """Return one row a threshold: old, the share of hits that passes it, new for as many, new for as precise ones."""
    head = ["old", "hits that pass", "new", "new, for the same precision"]
    decimals = _decimals([threshold.old for threshold in calibration.thresholds])
    rows = [
        [
            f"{threshold.old:.{decimals}f}",
            f"{percent(threshold.pass_rate, 0)}",
            f"{threshold.same_pass_rate:.4f}",
            figure_or_dash(threshold.same_precision, ".4f"),
        ]
        for threshold in calibration.thresholds
    ]
    return filled_columns([head, *rows])


def hub_rows(hubness: Sequence[Hubness]) -> list[list[str]]:
    """Return a head, and for each arm how unevenly its documents are near others."""
    rows = [
        [hubs.arm, f"{hubs.documents:,}", f"{hubs.skewness:.2f}", f"{hubs.largest:,}", percent(hubs.orphans)]
        for hubs in hubness
    ]
    return [["arm", "documents", "skewness", "largest", "near none"], *rows]


_QUALITY = {"nDCG@10": "nDCG@10", "recall@100": "R@100", "MRR@10": "MRR@10"}


def sentences(audit: ReportedAudit) -> Iterator[str]:
    """Yield the remarks on the tables, then the caveats, and the verdict last."""
    verdict = audit.verdict
    together = ""
    if audit.family:
        together = f"; those of {', '.join(audit.family)} hold for all of these together"
    yield f"bounds are one-sided 95 % bounds{together}; the verdict is on `translated` alone"
    if audit.pool is not None:
        yield from audit.pool.sentences
        if not audit.pool.exact:
            absent = ["overlap and RBO", "topics"]
            if verdict.provisional:
                absent.append("the verdict without the documents that have true vectors")
            yield f"left out, as they need the full re-embed: {', '.join(absent)}; `--reference build` has them"
    if audit.missing:
        yield "skipped arms: " + "; ".join(f"{name} {need}" for name, need in audit.missing.items())
    yield from (f"note: {note}" for note in audit.notes)
    if audit.held_out is not None:
        yield audit.held_out.sentence
    gain = verdict.gain_over_stay
    if gain is not None:
        bounds = f"95 % bounds: {gain.lower:+.3f} to {gain.upper:+.3f}"
        yield f"against staying: {gain.estimate:+.3f} {verdict.measure} ({bounds}){_significance(verdict)}"
    yield f"recommendation: {audit.recommendation.headline}"
    yield from (f"caveat: {caveat}" for caveat in verdict.caveats)
    yield audit.plan.sentence


def _significance(verdict: ReportedVerdict) -> str:
    if verdict.better_than_stay:
        return ", significantly better"
    if verdict.worse_than_stay:
        return ", significantly worse"
    return ""


def quality_rows(audit: ReportedAudit) -> list[list[str]]:
    """Return one row an arm: measures, retention with its bounds, queries won, tied and lost, and costs if any."""
    head = ["arm", *_QUALITY.values(), audit.verdict.measured, "bounds", "win/tie/loss", "s", "Mtok", "usd"]
    rows = [
        [
            arm.name,
            *(figure_or_dash(arm.means.get(measure), ".3f") for measure in _QUALITY),
            *_compared(audit, arm),
            f"{arm.seconds:.1f}",
            _millions_or_dash(arm.tokens),
            figure_or_dash(arm.usd, ",.2f"),
        ]
        for arm in audit.arms
    ]
    return filled_columns([head, *rows], costs=("Mtok", "usd"))


def _millions_or_dash(tokens: float | None) -> str:
    if tokens is None:
        return "-"
    return f"{tokens / 1e6:.2f}"


def agreement_rows(audit: ReportedAudit) -> list[list[str]]:
    """Return one row an arm: the share of what the full re-embed finds that it finds too."""
    measures = ("overlap@1", "overlap@10", "overlap@100", "RBO", "judged@10")
    rows = [[arm.name, *(figure_or_dash(arm.means.get(measure), ".3f") for measure in measures)] for arm in audit.arms]
    # Without the full re-embed all of these columns are empty
    shown = filled_columns([["against the full re-embed", *measures], *rows])
    # `judged@10` alone tells nothing of the full re-embed
    if not set(shown[0][1:]) - {"judged@10"}:
        return []
    return shown


def legend(audit: ReportedAudit) -> str:
    """Return the meaning of the columns and arms that are there, where their names do not say it."""
    shown = {*quality_rows(audit)[0], *(name for row in agreement_rows(audit)[:1] for name in row)}
    shown |= {arm.name for arm in audit.arms}
    meanings = {
        "retention": f"retention: share of the full re-embed's {audit.verdict.measure}",
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


def retention_of(audit: ReportedAudit, name: str, comparison: Comparison) -> Bounds:
    """Return what an arm keeps; arms that could serve instead have bounds that hold for all of them together."""
    return audit.family.get(name, comparison.retention)


def _compared(audit: ReportedAudit, arm: ReportedArm) -> list[str]:
    if arm.against is None:
        return ["", "", ""]
    bounds = retention_of(audit, arm.name, arm.against)
    verdict = audit.verdict
    if not bounds.is_known:
        return ["-", "-", _record(arm.against)]
    retained = verdict.figure(bounds.estimate)
    return [retained, span(bounds, provisional=verdict.provisional), _record(arm.against)]


def _record(comparison: Comparison) -> str:
    """Return queries won, tied and lost; as percentages where the counts would not fit."""
    counts = (comparison.wins, comparison.ties, comparison.losses)
    # Five digits thrice are wider than the table has room for
    if sum(counts) < 10_000:
        return "/".join(map(str, counts))
    return "/".join(f"{100 * count / sum(counts):.0f}%" for count in counts)
