"""An audit report as plain text that fits 100 columns: the verdict last, where a terminal leaves it in sight.

Of the diagnostics only the worst is shown; all of them are in JSON and HTML. A frontier is here as JSON too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from math import floor, log10
from typing import Any

from migrate.audit.diagnostics import Diagnostics, Hubness, Regression, ThresholdTable
from migrate.audit.frontier import Frontier, FrontierPoint
from migrate.audit.report import AuditReport
from migrate.audit.results import (
    AGREEMENT,
    BM25,
    FULL,
    HYBRID,
    HYBRID_FULL,
    TRANSLATED,
    ArmResult,
    Comparison,
)
from migrate.audit.slices import Slice
from migrate.audit.verdict import Bounds, Verdict
from migrate.report.downstream import downstream_text
from migrate.report.facts import as_plain
from migrate.report.terminal import cut, filled_columns, paragraphs, table, wrap, wrapped

_QUERIES, _SLICES = 3, 3
_FEWEST = 10
METRICS = {"ip": "inner product, at least", "l2": "squared distance, at most"}
"""What a score is, and how it passes a threshold."""


def diagnostics_text(diagnostics: Diagnostics, measure: str) -> str:
    """Return the queries and the kinds of queries that lose most, how thresholds move, how hubs grow."""
    calibration = diagnostics.calibration
    regressions = [line for worst in diagnostics.regressions[:_QUERIES] for line in _regression(worst)]
    return paragraphs(
        "\n".join([f"queries that lose most {measure}", *map(cut, regressions)]) if regressions else "",
        _slices(diagnostics.slices, measure),
        f"{calibration_title(calibration)}\n{table(calibration_rows(calibration))}" if calibration else "",
        "\n".join(map(_hubs, diagnostics.hubness)),
    )


def _regression(regression: Regression) -> Iterator[str]:
    yield f"  {regression.query_id}: {regression.text}"
    yield f"    {regression.scores[FULL]:.3f} -> {regression.scores[TRANSLATED]:.3f}"
    for name, hits in regression.hits.items():
        shown = "; ".join(f"{hit.doc_id}{'' if not hit.grade else ' (relevant)'} {hit.text}" for hit in hits[:1])
        yield f"    {name} finds {shown or 'nothing'}"


def _slices(slices: tuple[Slice, ...], measure: str) -> str:
    """The kinds of queries that keep least, among those with enough queries."""
    measured = AGREEMENT if measure == AGREEMENT else "retention"
    enough = sorted(
        (part for part in informative_slices(slices) if part.queries >= _FEWEST),
        key=lambda part: part.retention.estimate,
    )
    if not enough:
        return ""
    rows = [
        [
            cut(" ".join(f"{part.by}: {part.value}".split()), 60),
            f"{part.queries}",
            f"{part.full:.3f}",
            f"{part.translated:.3f}",
            f"{part.retention.estimate:.3f}",
        ]
        for part in enough[:_SLICES]
    ]
    return table([["kinds of queries that keep least", "queries", "full", "translated", measured], *rows])


def informative_slices(slices: Sequence[Slice]) -> list[Slice]:
    """Slices of kinds with several values; a single value would repeat the verdict."""
    times = Counter(part.by for part in slices)
    return [part for part in slices if times[part.by] > 1]


def calibration_title(calibration: ThresholdTable) -> str:
    """What the thresholds are."""
    old, new = (METRICS[metric] for metric in calibration.metrics)
    return f"similarity thresholds, old ({old}) and new ({new})"


def _decimals(values: list[float]) -> int:
    """As many as tell values apart that lie close together, four at least.

    >>> _decimals([0.2, 0.7]), _decimals([0.999991, 0.999998])
    (4, 7)
    """
    spread = max(values) - min(values)
    return 4 if spread <= 0 else min(max(4, 1 - floor(log10(spread))), 9)


def calibration_rows(calibration: ThresholdTable) -> list[list[str]]:
    """One row a threshold: old, the share of hits that passes it, new for as many, new for as precise ones."""
    head = ["old", "hits that pass", "new", "new, for the same precision"]
    rows = [
        [
            f"{threshold.old:.{_decimals([other.old for other in calibration.thresholds])}f}",
            f"{threshold.pass_rate:.0%}",
            f"{threshold.same_pass_rate:.4f}",
            "-" if threshold.same_precision is None else f"{threshold.same_precision:.4f}",
        ]
        for threshold in calibration.thresholds
    ]
    return filled_columns([head, *rows])


def _hubs(hubness: Hubness) -> str:
    return (
        f"hubs, {hubness.arm}: skewness {hubness.skewness:.2f}, one document is near {hubness.largest} of "
        f"{hubness.documents:,}, {hubness.orphans:.0%} are near none"
    )


def frontier_text(frontier: Frontier) -> str:
    """One line a budget: policy, share, documents, money, retention with its bounds, verdict; the cheapest last."""
    priced = any(point.price_usd is not None for point in frontier.points)
    head = ["re-embed by", "documents", "share", "tokens", "share", *(["usd"] if priced else [])]
    rows = [_row(point, priced=priced) for point in frontier.points]
    notes = [f"note: {note}" for note in frontier.notes]
    measured = frontier.points[0].verdict.measured
    of = "" if measured == frontier.measure else f" of {frontier.measure}"
    measure = f"{measured}{of} with a part of the {frontier.count:,} documents re-embedded"
    points = table([[*head, measured, f"{100 * frontier.points[0].verdict.confidence:.3g} % bounds", "verdict"], *rows])
    return paragraphs(measure, points, wrapped([*notes, frontier.sentence]))


def _row(point: FrontierPoint, *, priced: bool) -> list[str]:
    bounds = point.verdict.retention
    price = "-" if point.price_usd is None else f"{point.price_usd:,.4f}"
    return [
        point.policy,
        f"{point.documents:,}",
        f"{point.share:.1%}",
        f"{point.tokens:,}",
        f"{point.share_of_tokens:.1%}",
        *([price] if priced else []),
        f"{bounds.estimate:.3f}",
        f"{bounds.lower:.3f}..{bounds.upper:.3f}",
        point.verdict.outcome.value,
    ]


def frontier_document(frontier: Frontier) -> dict[str, Any]:
    """Every point, and the cheapest that is SAFE."""
    best = frontier.cheapest_safe
    return {
        "measure": frontier.measure,
        "measured": frontier.points[0].verdict.measured,
        "documents": frontier.count,
        "points": [_point_document(point) for point in frontier.points],
        "cheapest_safe": None if best is None else _point_document(best),
        "sentence": frontier.sentence,
        "notes": list(frontier.notes),
    }


def _point_document(point: FrontierPoint) -> dict[str, Any]:
    return {
        "policy": point.policy,
        "share": point.share,
        "share_of_tokens": point.share_of_tokens,
        "documents": point.documents,
        "tokens": point.tokens,
        "price_usd": point.price_usd,
        "outcome": point.verdict.outcome.value,
        point.verdict.measured: as_plain(point.verdict.retention),
        "worse_than_stay": point.verdict.worse_than_stay,
    }


_MANY_QUERIES = 10_000
_QUALITY = {"nDCG@10": "nDCG@10", "recall@100": "R@100", "MRR@10": "MRR@10"}
_AGREEMENT = {
    "overlap@1": "overlap@1",
    "overlap@10": "overlap@10",
    "overlap@100": "overlap@100",
    "RBO": "RBO",
    "judged@10": "judged@10",
}
_COSTS = ("Mtok", "usd")
_NOT_IN_POOL = ("overlap and RBO", "topics", "the map of the spaces and how alike they are")
_SAMPLE_LEFT_OUT = "the verdict without the documents that have true vectors"
_MILLION = 1e6


def audit_text(report: AuditReport) -> str:
    """The arms, the diagnostics, the frontier, and the verdict."""
    verdict = report.verdict
    subject = f"{report.dataset}: {verdict.counted}, {report.n_documents:,} documents"
    agreements = agreement_rows(report)
    return paragraphs(
        wrap(f"provisional: {report.basis}") if report.basis else "",
        subject,
        table(quality_rows(report)),
        table(agreements) if agreements else "",
        wrap(legend(report)),
        diagnostics_text(report.diagnostics, report.measure),
        frontier_text(report.frontier) if report.frontier else "",
        downstream_text(report.downstream) if report.downstream else "",
        wrapped(sentences(report)),
    )


def sentences(report: AuditReport) -> Iterator[str]:
    """What the tables do not say, the verdict last, and what belongs beside it before it."""
    verdict = report.verdict
    yield "bounds are one-sided 95 % bounds of each arm alone; the verdict is on `translated` alone"
    if report.pool is not None:
        yield from report.pool.sentences
        if not report.pool.is_exact:
            absent = [*_NOT_IN_POOL, *([_SAMPLE_LEFT_OUT] if verdict.provisional else [])]
            yield f"left out, as they need the full re-embed: {', '.join(absent)}; `--reference build` has them"
    if report.skipped_arms:
        yield "skipped arms: " + "; ".join(f"{name} {need}" for name, need in report.skipped_arms.items())
    yield from (f"note: {note}" for note in report.notes)
    if report.held_out is not None:
        yield report.held_out.sentence
    gain = verdict.gain_over_stay
    if gain is not None:
        span = f"95 % bounds {gain.lower:+.3f} to {gain.upper:+.3f}"
        yield f"against staying: {gain.estimate:+.3f} {report.measure}, {span}{_significance(verdict)}"
    yield f"recommendation: {report.recommendation.headline}"
    yield from (f"caveat: {caveat}" for caveat in report.caveats)
    yield report.sentence


def _significance(verdict: Verdict) -> str:
    if verdict.better_than_stay:
        return ", significantly better"
    return ", significantly worse" if verdict.worse_than_stay else ""


def quality_rows(report: AuditReport) -> list[list[str]]:
    """One row an arm: measures, retention with its bounds, queries won, tied and lost; what it costs where any does."""
    shown = _shown(_QUALITY, report)
    priced = any(arm.usd for arm in report.arms)
    head = [
        "arm",
        *shown.values(),
        report.verdict.measured,
        "bounds",
        "win/tie/loss",
        "s",
        "Mtok",
        *(["usd"] if priced else []),
    ]
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
    return filled_columns([head, *rows], costs=_COSTS)


def agreement_rows(report: AuditReport) -> list[list[str]]:
    """One row an arm: how much of what the full re-embed finds it finds too."""
    shown = _shown(_AGREEMENT, report)
    if not shown.keys() - {"judged@10"}:
        return []
    rows = [[arm.name, *_means(arm, shown)] for arm in report.arms]
    return filled_columns([["against the full re-embed", *shown.values()], *rows])


def legend(report: AuditReport) -> str:
    """What the columns and arms mean that are there, and that their names do not say."""
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


def _shown(heads: dict[str, str], report: AuditReport) -> dict[str, str]:
    return {name: head for name, head in heads.items() if any(name in arm.scores for arm in report.arms)}


def _means(arm: ArmResult, measures: Sequence[str] | dict[str, str]) -> list[str]:
    means = [arm.mean(measure) for measure in measures]
    return ["-" if mean is None else f"{mean:.3f}" for mean in means]


def _compared(comparison: Comparison | None) -> list[str]:
    if comparison is None:
        return ["", "", ""]
    bounds = comparison.retention
    shares = [f"{bounds.estimate:.3f}", span(bounds)] if bounds.is_known else ["-", "-"]
    return [*shares, _record(comparison)]


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
