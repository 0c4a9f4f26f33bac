"""An audit report as one HTML file: the decision first, then where it hurts, then what it rests on."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

import numpy as np

from migrate.audit.diagnostics import Diagnostics, Spaces, ThresholdTable
from migrate.audit.frontier import SAMPLE, Frontier
from migrate.audit.recommendation import Recommendation, recommend
from migrate.audit.report import AuditReport
from migrate.audit.results import FULL, MEAN, RANDOM, STAY, TRANSLATED, TWO_STAGE
from migrate.audit.verdict import Outcome
from migrate.report.audit import (
    METRICS,
    agreement_rows,
    calibration_rows,
    calibration_title,
    informative_slices,
    legend,
    quality_rows,
    sentences,
)
from migrate.report.decision import decision_chart, decision_rows
from migrate.report.document import similarity_rows
from migrate.report.downstream import downstream_rows, downstream_sentences
from migrate.report.page import render_page
from migrate.report.svg.charts import (
    Interval,
    IntervalChart,
    Line,
    difference_chart,
    histogram_chart,
    interval_chart,
    line_chart,
    map_chart,
    spectra,
)
from migrate.report.svg.frame import Chart, percent

_MOST_QUERIES = 100
_CHARACTERS = 60
_COLOURS = {Outcome.SAFE: "good", Outcome.NOT_SAFE: "bad", Outcome.INCONCLUSIVE: "warn"}
_WORDS = {
    Outcome.SAFE: "The translated store can take over",
    Outcome.NOT_SAFE: "The translated store must not take over as it is",
    Outcome.INCONCLUSIVE: "There is too little evidence to use the translated store",
}
_PROVISIONAL = {
    Outcome.SAFE: "Provisional: the translated store answers nearly as a full re-embed does",
    Outcome.NOT_SAFE: "Provisional: the translated store answers too unlike a full re-embed",
    Outcome.INCONCLUSIVE: _WORDS[Outcome.INCONCLUSIVE],
}


def audit_page(report: AuditReport) -> str:
    """The whole report, for a browser; it needs no network."""
    verdict, diagnostics = report.verdict, report.diagnostics
    is_half = verdict.provisional and verdict.outcome is Outcome.SAFE
    options, arms, found = decision_rows(report), quality_rows(report), recommend(report)
    return render_page(
        "audit.html",
        report=report,
        FULL=FULL,
        TRANSLATED=TRANSLATED,
        title=(_PROVISIONAL if verdict.provisional else _WORDS)[verdict.outcome],
        colour="warn" if is_half else _COLOURS[verdict.outcome],
        stamp=f"{verdict.outcome}, provisional" if verdict.provisional else verdict.outcome.value,
        measured=verdict.measured,
        chart=decision_chart(report),
        recommendation=found,
        command=None if found.command is None else shlex.join(["lead-migrate", *found.command]),
        key_figures=list(_key_figures(found, report)),
        subject=_subject(report),
        decision_rows=options,
        has_two_stage=any(row[0].startswith(TWO_STAGE) for row in options),
        marked_options=[place for place, row in enumerate(options[1:]) if row[-1]],
        figures=list(_figures(report)),
        diagnostics=diagnostics,
        differences=_differences(report),
        query_rows=_query_rows(report),
        slices=list(_slices(report)),
        arms_chart=_arms_chart(report),
        quality_rows=arms,
        marked_arms=[place for place, row in enumerate(arms[1:]) if row[0] == TRANSLATED],
        legend=legend(report),
        agreement_rows=agreement_rows(report),
        frontier_chart=_frontier_chart(report.frontier) if report.frontier else None,
        pool_rows=_pool_rows(report),
        downstream_rows=None if report.downstream is None else downstream_rows(report.downstream),
        downstream_sentences=[] if report.downstream is None else list(downstream_sentences(report.downstream)),
        remarks=list(sentences(report))[:-1],
        provenance=_provenance(report),
        **_calibration(diagnostics.calibration),
        **_similarities(diagnostics),
        **_spaces(diagnostics),
    )


def _key_figures(found: Recommendation, report: AuditReport) -> Iterator[tuple[str, str]]:
    """What the plan keeps, at least keeps, and still costs."""
    if found.retention is None:
        return
    bounds, is_share = found.retention, not report.verdict.provisional
    for name, value in (
        ("keeps" if is_share else report.verdict.measured, bounds.estimate),
        ("at least", bounds.lower),
    ):
        yield name, f"{100 * value:.1f} %" if is_share else f"{value:.3f}"
    yield "still to pay", found.left or "not known"


def _subject(report: AuditReport) -> str:
    """The two models, documents and queries, and the day."""
    old, new = report.manifest.source_model, report.manifest.model
    models = " to ".join(model.spec for model in (old, new) if model is not None)
    counts = f"{report.n_documents:,} documents, {report.verdict.counted}"
    return ", ".join(filter(None, [models, counts, str(report.manifest.created)[:10]]))


def _figures(report: AuditReport) -> Iterator[tuple[str, str]]:
    kept, bounds = "" if report.verdict.provisional else "retention of ", report.verdict.retention
    yield f"{kept}{report.measure}", f"{bounds.estimate:.3f}" if bounds.is_known else "unknown"
    for name in (TRANSLATED, FULL, STAY):
        mean = next((arm.mean(report.measure) for arm in report.arms if arm.name == name), None)
        if mean is not None:
            yield f"{report.measure}, {name}", f"{mean:.3f}"
    yield "queries", f"{report.verdict.n_queries:,}"
    if report.verdict.n_independent < report.verdict.n_queries:
        yield "independent groups of queries", f"{report.verdict.n_independent:,}"
    yield "documents", f"{report.n_documents:,}"
    if report.pool is not None:
        yield "documents embedded", f"{report.pool.documents:,} ({report.pool.share:.1%})"


def _differences(report: AuditReport) -> Chart:
    values = report.arm(TRANSLATED).scores[report.measure] - report.arm(FULL).scores[report.measure]
    label = f"{report.measure}, translated less full"
    return difference_chart("difference of every query", values, _query_names(report), label=label)


def _query_names(report: AuditReport) -> list[str]:
    texts = report.query_texts or [""] * len(report.query_ids)
    return [
        f"{query_id}, {_cut(text)}" if text else query_id
        for query_id, text in zip(report.query_ids, texts, strict=True)
    ]


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _CHARACTERS else line[: _CHARACTERS - 1].rstrip() + "…"


def _query_rows(report: AuditReport) -> list[list[str]]:
    """A head, and the queries whose score is furthest from that of the full re-embed."""
    full, translated = (report.arm(name).scores[report.measure] for name in (FULL, TRANSLATED))
    order = np.argsort(-np.abs(translated - full), kind="stable")[:_MOST_QUERIES]
    names = _query_names(report)
    return [
        ["query", FULL, TRANSLATED, "difference"],
        *(
            [names[row], f"{full[row]:.3f}", f"{translated[row]:.3f}", f"{translated[row] - full[row]:+.3f}"]
            for row in order
            if translated[row] != full[row]
        ),
    ]


def _slices(report: AuditReport) -> Iterator[tuple[str, IntervalChart]]:
    slices, measured = informative_slices(report.diagnostics.slices), report.verdict.measured
    for by in dict.fromkeys(part.by for part in slices):
        rows = [
            Interval(
                f"{part.value} ({part.queries:,})", part.retention.lower, part.retention.estimate, part.retention.upper
            )
            for part in slices
            if part.by == by
        ]
        yield by, interval_chart(f"{measured} by {by}", rows, margin=report.verdict.margin, label=measured)


def _arms_chart(report: AuditReport) -> IntervalChart:
    rows = [
        Interval(name, bounds.lower, bounds.estimate, bounds.upper, marked=name == TRANSLATED)
        for name in report.comparisons
        if name not in (MEAN, RANDOM)
        for bounds in [report.comparisons[name].retention]
        if bounds.is_known
    ]
    label = f"share of the full re-embed's {report.measure} that is kept"
    return interval_chart(f"{report.verdict.measured} of every arm", rows, margin=report.verdict.margin, label=label)


def _frontier_chart(frontier: Frontier) -> Chart:
    start = [point for point in frontier.points if point.policy == SAMPLE]
    measured, margin = frontier.points[0].verdict.measured, frontier.points[0].verdict.margin
    policies = dict.fromkeys(point.policy for point in frontier.points if point.policy != SAMPLE)
    lines = []
    for policy in policies or {SAMPLE: None}:
        own = [*start, *(point for point in frontier.points if point.policy == policy and policy != SAMPLE)]
        kept = [point.verdict.retention for point in own]
        points = [(point.share_of_tokens, bounds.estimate) for point, bounds in zip(own, kept, strict=True)]
        lines.append(Line(policy, points, [(bounds.lower, bounds.upper) for bounds in kept]))
    return line_chart(
        f"{measured} against the tokens embedded",
        lines,
        x_label="tokens, as a share of a full re-embed's",
        y_label=measured,
        level=margin,
        level_label=f"SAFE from {margin:.3g}",
        x_form=percent,
    )


def _pool_rows(report: AuditReport) -> list[list[str]]:
    steps = report.pool.steps if report.pool is not None else ()
    return [
        ["step", "queries", "documents embedded", "drawn at random", "tokens", "usd"],
        *(
            [
                f"first {step.depth} for a query",
                f"{step.queries:,}",
                f"{step.documents:,}",
                f"{step.sampled:,}",
                "-" if step.tokens is None else f"{step.tokens:,}",
                "-" if step.usd is None else f"{step.usd:,.4f}",
            ]
            for step in steps
        ),
    ]


def _calibration(calibration: ThresholdTable | None) -> dict[str, Any]:
    if calibration is None:
        return {}
    old, new = calibration.metrics
    spread = [(name, histogram.edges, histogram.counts) for name, histogram in calibration.histograms.items()]
    return {
        "histograms": [histogram_chart("scores of the first ten hits", spread, label=METRICS[old].split(",")[0])]
        if old == new
        else [histogram_chart(f"scores, {row[0]}", [row], label="score") for row in spread],
        "calibration_title": calibration_title(calibration),
        "calibration_rows": calibration_rows(calibration),
    }


def _similarities(diagnostics: Diagnostics) -> dict[str, Any]:
    similarities = diagnostics.similarities
    if not similarities:
        return {}
    values = {
        f"{name} to full": similarity.forth.singular_values
        for name, similarity in similarities.items()
        if similarity.forth.singular_values
    }
    return {
        "similar_documents": next(iter(similarities.values())).documents,
        "similarity_rows": similarity_rows(similarities),
        "spectra": spectra(values),
    }


def _spaces(diagnostics: Diagnostics) -> dict[str, Any]:
    spaces = diagnostics.spaces
    if spaces is None:
        return {}
    arrows = [(f"{mover.doc_id}: cosine {mover.cosine:.3f}", mover.true, mover.translated) for mover in spaces.movers]
    return {
        "map": map_chart("map of both spaces", [("true", spaces.true), ("translated", spaces.translated)], arrows),
        "variances": _variances(spaces),
        "mover_rows": [
            ["document", "cosine with the true vector"],
            *([mover.doc_id, f"{mover.cosine:.3f}"] for mover in spaces.movers),
        ],
        "hub_rows": [
            ["arm", "documents", "skewness", "largest", "near none"],
            *(
                [hubs.arm, f"{hubs.documents:,}", f"{hubs.skewness:.2f}", f"{hubs.largest}", f"{hubs.orphans:.1%}"]
                for hubs in diagnostics.hubness
            ),
        ],
    }


def _variances(spaces: Spaces) -> Chart:
    lines = [
        Line(name, [(place + 1.0, share) for place, share in enumerate(shares)])
        for name, shares in zip(("true", "translated"), spaces.spectra, strict=True)
    ]
    return line_chart("variance by direction", lines, x_label="principal direction", y_label="share of variance")


def _provenance(report: AuditReport) -> list[tuple[str, str]]:
    manifest = report.manifest
    models = {"target model": manifest.model, "source model": manifest.source_model}
    return [
        *((name, f"{model.spec}, {model.dim} dimensions") for name, model in models.items() if model),
        ("queries and judgements", report.dataset),
        ("seed", str(manifest.seed)),
        ("bootstrap resamples", f"{manifest.report.resamples or 0:,}"),
        ("made", f"{manifest.created}, lead-migrate {manifest.tool_version}"),
    ]
