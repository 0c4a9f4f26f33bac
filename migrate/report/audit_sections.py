"""An audit in sections: the decision first, then where it hurts, then what it rests on."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from xml.etree.ElementTree import Element

import numpy as np

from migrate.audit.bounds import Outcome
from migrate.audit.diagnostics import Diagnostics, Hit, Regression, ThresholdTable
from migrate.audit.pool import PoolSummary
from migrate.audit.recommendation import Recommendation, recommend
from migrate.audit.report import AuditReport
from migrate.audit.results import FULL, MEAN, RANDOM, STAY, TRANSLATED, TWO_STAGE
from migrate.cost.estimate import dollars
from migrate.display import percent
from migrate.report.audit import (
    METRICS,
    agreement_rows,
    calibration_rows,
    calibration_title,
    hub_rows,
    informative_slices,
    legend,
    quality_rows,
    retention_of,
    sentences,
    slice_rows,
)
from migrate.report.decision import axis_form, decision_chart, decision_rows, interval, measure_label
from migrate.report.page import Content, content, element, items, note, sentence, stamp, with_code
from migrate.report.sections import Block, Either, Facts, Figures, Heading, Listed, Note, Report, TextTable
from migrate.report.svg.charts import (
    IntervalChart,
    difference_chart,
    histogram_chart,
    interval_chart,
)
from migrate.report.svg.frame import Chart
from migrate.report.terminal import cut, figure_or_dash

COLOURS = {Outcome.SAFE: "good", Outcome.NOT_SAFE: "bad", Outcome.INCONCLUSIVE: "warn"}
"""Of the stamps of pages."""

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


def audit_sections(report: AuditReport) -> Report:
    """Return the whole report; a terminal has of the diagnostics only what is worst."""
    diagnostics = report.diagnostics
    *remarks, _ = sentences(report)
    subject = f"{report.dataset}: {report.verdict.observations.counted}, {report.n_documents:,} documents"
    return Report(
        kind=f"lead-migrate audit of {report.dataset}",
        title=(_PROVISIONAL if report.verdict.scale.provisional else _WORDS)[report.verdict.outcome],
        lead=Either(list(_lead(report)), [[f"provisional: {report.basis}"] if report.basis else [], Note(subject)]),
        sections={
            "Quality and cost": list(_quality_and_cost(report)),
            "Where it hurts": list(_where_it_hurts(report)),
            "Kinds of queries": _kinds_of_queries(report),
            "The arms": list(_arms(report)),
            "The pool": None if report.pool is None else [Either(Listed(report.pool.sentences)), _pool(report.pool)],
            "Thresholds": None if diagnostics.calibration is None else list(_thresholds(diagnostics.calibration)),
            "Hubs": _hubs(diagnostics) if diagnostics.hubness else None,
            "Provenance and remarks": [Listed(remarks), Facts(_provenance(report))],
        },
        closing=report.sentence,
        footer=f"Every figure of this page is in the JSON report too. {report.manifest.created}",
    )


def _lead(report: AuditReport) -> Iterator[Content]:
    """Yield the subject, the verdict with what belongs beside it, and the recommendation."""
    verdict, recommended = report.verdict, recommend(report)
    is_half = verdict.scale.provisional and verdict.outcome is Outcome.SAFE
    outcome = f"{verdict.outcome}, provisional" if verdict.scale.provisional else verdict.outcome.value
    remarks = [*report.caveats, *([f"provisional: {report.basis}"] if report.basis else [])]
    yield element("p", _subject(report), class_="muted")
    yield element(
        "p",
        stamp(outcome, "warn" if is_half else COLOURS[verdict.outcome]),
        [[" ", sentence(line)] for line in (verdict.sentence, *remarks)],
        class_="lead",
    )
    if report.plan != TRANSLATED:
        yield element("p", sentence(report.sentence), class_="lead")
    command = [] if recommended.command is None else [shlex.join(["lead-migrate", *recommended.command])]
    yield element(
        "div",
        element("p", sentence(recommended.headline), class_="decision"),
        content(Figures(list(_key_figures(recommended, report)))),
        element("p", sentence(recommended.remark)) if recommended.remark else None,
        [element("pre", element("code", code)) for code in ("\n".join(recommended.serving), *command) if code],
        class_="card",
    )


def _key_figures(recommended: Recommendation, report: AuditReport) -> Iterator[tuple[str, str]]:
    """Yield what the plan keeps, at least keeps, and still costs."""
    if recommended.retention is None:
        return
    bounds, is_share = recommended.retention, not report.verdict.scale.provisional
    for name, value in (
        ("keeps" if is_share else report.verdict.scale.measured, bounds.estimate),
        ("at least", bounds.lower),
    ):
        yield name, report.verdict.scale.figure(value)
    yield "still to pay", recommended.remaining or "not known"


def _subject(report: AuditReport) -> str:
    """Return the two models, documents and queries, and the day."""
    old, new = report.manifest.source_model, report.manifest.model
    models = " to ".join(model.spec for model in (old, new) if model is not None)
    counts = f"{report.n_documents:,} documents, {report.verdict.observations.counted}"
    return ", ".join(filter(None, [models, counts, str(report.manifest.created)[:10]]))


def _quality_and_cost(report: AuditReport) -> Iterator[Block]:
    chart = decision_chart(report)
    if chart is None:
        yield _arms_chart(report).figure()
    else:
        rows = decision_rows(report)
        yield chart.figure()
        yield Either(TextTable(rows, marked=[number for number, row in enumerate(rows[1:]) if row[-1]]))
        counted = "with what was embedded to prove it" if report.pool else "the reference left aside"
        has_two_stage = any(row[0].startswith(TWO_STAGE) for row in rows)
        yield note(
            "Each line runs from the lower to the upper bound, each a one-sided 95 % bound. The total embedding cost "
            f"is that of the target model for documents, from the first text on, {counted}; what is still to pay is "
            "left of it after this audit.",
            " A two-stage option costs more with every query: its figures are for "
            f"{report.verdict.observations.queries:,} queries."
            if has_two_stage
            else None,
        )
    yield Figures(list(_figures(report)))


def _figures(report: AuditReport) -> Iterator[tuple[str, str]]:
    label, bounds = "" if report.verdict.scale.provisional else "retention of ", report.verdict.retention
    yield f"{label}{report.measure}", report.verdict.scale.figure(bounds.estimate) if bounds.is_known else "unknown"
    for search in report.searches:
        yield f"{label}{report.measure}, {search.arm}, searched exactly", report.verdict.scale.figure(search.exactly)
    for name in (TRANSLATED, FULL, STAY):
        mean = next((arm.mean(report.measure) for arm in report.arms if arm.name == name), None)
        if mean is not None:
            yield f"{report.measure}, {name}", f"{mean:.3f}"
    yield "queries", f"{report.verdict.observations.queries:,}"
    if report.verdict.observations.independent < report.verdict.observations.queries:
        yield "independent groups of queries", f"{report.verdict.observations.independent:,}"
    yield "documents", f"{report.n_documents:,}"
    if report.pool is not None:
        yield "documents embedded", f"{report.pool.documents:,} ({percent(report.pool.share)})"


def _where_it_hurts(report: AuditReport) -> Iterator[Block]:
    counts, rows = report.comparisons[TRANSLATED], _query_rows(report)
    has_changes = len(rows) > 1
    counted = (
        f"{counts.wins:,} queries gain, {counts.ties:,} stay as they are, {counts.losses:,} lose against the full "
        "re-embed"
    )
    bars = ". Each bar is a query, from the greatest loss to the greatest gain" if has_changes else ""
    yield Either(counted + bars, counted)
    if has_changes:
        yield _differences(report).figure()
    if worst := report.diagnostics.regressions:
        yield Heading("Queries that lose most")
        yield Either(list(map(_regression, worst)), [_regression_lines(query) for query in worst[:3]])
    if has_changes:
        yield Either([Heading("Queries that change most"), TextTable(rows, text_columns=[0])])


def _regression(query: Regression) -> Element:
    summary = element(
        "summary",
        element("b", query.text),
        " ",
        element("span", f"({query.query_id})", class_="muted"),
        " ",
        element("span", f"{query.scores[FULL]:.3f} → {query.scores[TRANSLATED]:.3f}", class_="bad"),
    )
    lists = [(element("h4", f"{arm} finds"), items(map(_hit, hits), "ol")) for arm, hits in query.hits.items()]
    return element("details", summary, lists)


def _regression_lines(query: Regression) -> list[Block]:
    """Return the query, its scores, and the first document that each arm finds."""
    lines = [f"  {query.query_id}: {query.text}", f"    {query.scores[FULL]:.3f} -> {query.scores[TRANSLATED]:.3f}"]
    for arm, hits in query.hits.items():
        shown = "; ".join(f"{hit.doc_id}{'' if not hit.grade else ' (relevant)'} {hit.text}" for hit in hits[:1])
        lines.append(f"    {arm} finds {shown or 'nothing'}")
    return list(map(cut, lines))


def _hit(hit: Hit) -> Content:
    relevant = (" ", element("span", "relevant", class_="good")) if hit.grade else None
    return [element("code", hit.doc_id), relevant, f" {hit.text}"]


def _differences(report: AuditReport) -> Chart:
    values = report.arm(TRANSLATED).scores[report.measure] - report.arm(FULL).scores[report.measure]
    label = f"{report.measure}, translated minus full re-embed"
    return difference_chart("difference of every query", values, _query_names(report), label=label)


def _query_names(report: AuditReport) -> list[str]:
    texts = report.query_texts or [""] * len(report.query_ids)
    return [
        f"{query_id}, {cut(' '.join(text.split()), 60)}" if text else query_id
        for query_id, text in zip(report.query_ids, texts, strict=True)
    ]


def _query_rows(report: AuditReport) -> list[list[str]]:
    """Return a head, and the queries whose score is furthest from that of the full re-embed."""
    full, translated = (report.arm(name).scores[report.measure] for name in (FULL, TRANSLATED))
    order = np.argsort(-np.abs(translated - full), kind="stable")[:100]
    names = _query_names(report)
    return [
        ["query", FULL, TRANSLATED, "difference"],
        *(
            [names[row], f"{full[row]:.3f}", f"{translated[row]:.3f}", f"{translated[row] - full[row]:+.3f}"]
            for row in order
            if translated[row] != full[row]
        ),
    ]


def _kinds_of_queries(report: AuditReport) -> Block:
    slices, measured = informative_slices(report.diagnostics.slices), report.verdict.scale.measured
    if not slices:
        return None
    about = (
        f"{measured.capitalize()} of each kind of query. Few queries make wide intervals, and of many kinds some cross "
        "a bound by chance."
    )
    charts: list[Block] = []
    for by in dict.fromkeys(group.by for group in slices):
        rows = [
            interval(f"{group.value} ({group.queries:,})", group.retention, report.verdict)
            for group in slices
            if group.by == by
        ]
        form = axis_form(report.verdict)
        chart = interval_chart(f"{measured} by {by}", rows, margin=report.verdict.scale.safe, label=measured, form=form)
        charts += [Heading(f"By {by}"), chart.figure()]
    worst = slice_rows(report)
    return [Either([element("p", about), charts], TextTable(worst) if worst else None)]


def _arms(report: AuditReport) -> Iterator[Block]:
    rows, agreements = quality_rows(report), agreement_rows(report)
    yield element("p", "Every arm answers the same queries.")
    if decision_chart(report) is not None:
        yield _arms_chart(report).figure()
    yield TextTable(rows, marked=[number for number, row in enumerate(rows[1:]) if row[0] == TRANSLATED])
    yield Note(legend(report))
    yield Heading("How much of what the full re-embed finds each arm finds too")
    yield TextTable(agreements) if agreements else Either("not known, as only a pool of the full re-embed is there")
    meanings = items([element("b", arm.name), f": {arm.meaning}"] for arm in report.arms)
    yield element("details", element("summary", "What the arms are"), meanings)
    if report.skipped_arms:
        yield element("h3", "Skipped arms")
        yield items([element("b", name), " ", with_code(need)] for name, need in report.skipped_arms.items())


def _arms_chart(report: AuditReport) -> IntervalChart:
    rows = [
        interval(name, retention_of(report, name), report.verdict, marked=name == TRANSLATED)
        for name, comparison in report.comparisons.items()
        if name not in (MEAN, RANDOM) and comparison.retention.is_known
    ]
    verdict = report.verdict
    return interval_chart(
        f"{verdict.scale.measured} of every arm",
        rows,
        margin=verdict.scale.safe,
        label=measure_label(report),
        form=axis_form(verdict),
    )


def _pool(pool: PoolSummary) -> TextTable:
    rows = [
        [
            f"first {step.depth} for a query",
            f"{step.queries:,}",
            f"{step.documents:,}",
            f"{step.sampled:,}",
            figure_or_dash(step.tokens, ","),
            "-" if step.usd is None else dollars(step.usd),
        ]
        for step in pool.steps
    ]
    return TextTable([["step", "queries", "documents embedded", "drawn at random", "tokens", "price"], *rows])


def _thresholds(calibration: ThresholdTable) -> Iterator[Block]:
    old, new = calibration.metrics
    spread = [(name, histogram.edges, histogram.counts) for name, histogram in calibration.histograms.items()]
    yield element(
        "p",
        "A similarity threshold that was tuned on the old store must move. The table has the new one that lets as many "
        "hits pass, and the loosest one that is as precise.",
    )
    if old == new:
        yield histogram_chart("scores of the first ten hits", spread, label=METRICS[old].split(",")[0]).figure()
    else:
        yield [histogram_chart(f"scores, {row[0]}", [row], label="score").figure() for row in spread]
    yield Heading(calibration_title(calibration).capitalize())
    yield TextTable(calibration_rows(calibration))


def _hubs(diagnostics: Diagnostics) -> list[Block]:
    return [
        Note("how often a document is among the ten nearest of others; hubs crowd out answers"),
        TextTable(hub_rows(diagnostics)),
    ]


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
