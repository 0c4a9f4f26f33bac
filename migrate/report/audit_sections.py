"""An audit in sections: the decision first, then where it hurts, then what it rests on."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from xml.etree.ElementTree import Element

import numpy as np
from numpy.typing import NDArray

from migrate.audited.names import FULL, MEAN, RANDOM, STAY, TRANSLATED, TWO_STAGE
from migrate.audited.records import Hit, Hubness, Regression, ReportedAudit, ReportedPool, ThresholdTable
from migrate.audited.report import AuditReport
from migrate.cost.estimate import dollars
from migrate.display import percent
from migrate.outcome import Outcome
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
    audit = report.audit
    verdict = audit.verdict
    pool = audit.pool
    calibration = audit.diagnostics.calibration
    hubness = audit.diagnostics.hubness
    *remarks, _ = sentences(audit)
    subject = f"{audit.dataset.name}: {verdict.counted}, {audit.dataset.documents:,} documents"
    return Report(
        kind=f"lead-migrate audit of {audit.dataset.name}",
        title=(_PROVISIONAL if verdict.provisional else _WORDS)[verdict.outcome],
        lead=Either(list(_lead(audit)), [[f"provisional: {verdict.basis}"] if verdict.basis else [], Note(subject)]),
        sections={
            "Quality and cost": list(_quality_and_cost(audit)),
            "Where it hurts": list(_where_it_hurts(audit)),
            "Kinds of queries": _kinds_of_queries(audit),
            "The arms": list(_arms(audit)),
            "The pool": None if pool is None else [Either(Listed(pool.sentences)), _pool(pool)],
            "Thresholds": None if calibration is None else list(_thresholds(calibration)),
            "Hubs": _hubs(hubness) if hubness else None,
            "Provenance and remarks": [Listed(remarks), Facts(_provenance(audit))],
        },
        closing=report.sentence,
        footer=f"Every figure of this page is in the JSON report too. {audit.manifest.created}",
    )


def _lead(audit: ReportedAudit) -> Iterator[Content]:
    """Yield the subject, the verdict with what belongs beside it, and the recommendation."""
    verdict, recommended = audit.verdict, audit.recommendation
    is_half = verdict.provisional and verdict.outcome is Outcome.SAFE
    outcome = f"{verdict.outcome}, provisional" if verdict.provisional else verdict.outcome.value
    remarks = [*verdict.caveats, *([f"provisional: {verdict.basis}"] if verdict.basis else [])]
    yield element("p", _subject(audit), class_="muted")
    yield element(
        "p",
        stamp(outcome, "warn" if is_half else COLOURS[verdict.outcome]),
        [[" ", sentence(line)] for line in (verdict.sentence, *remarks)],
        class_="lead",
    )
    if audit.plan.name != TRANSLATED:
        yield element("p", sentence(audit.plan.sentence), class_="lead")
    command = [] if recommended.command is None else [shlex.join(["lead-migrate", *recommended.command])]
    yield element(
        "div",
        element("p", sentence(recommended.headline), class_="decision"),
        content(Figures(list(_key_figures(audit)))),
        element("p", sentence(recommended.remark)) if recommended.remark else None,
        [element("pre", element("code", code)) for code in ("\n".join(recommended.serving), *command) if code],
        class_="card",
    )


def _key_figures(audit: ReportedAudit) -> Iterator[tuple[str, str]]:
    """Yield what the plan keeps, at least keeps, and still costs."""
    recommended, verdict = audit.recommendation, audit.verdict
    if recommended.retention is None:
        return
    yield verdict.measured if verdict.provisional else "keeps", verdict.figure(recommended.retention.estimate)
    yield "at least", verdict.figure(recommended.retention.lower)
    yield "still to pay", recommended.remaining or "not known"


def _subject(audit: ReportedAudit) -> str:
    """Return the two models, documents and queries, and the day."""
    old, new = audit.manifest.source_model, audit.manifest.model
    models = " to ".join(model.spec for model in (old, new) if model is not None)
    counts = f"{audit.dataset.documents:,} documents, {audit.verdict.counted}"
    return ", ".join(filter(None, [models, counts, audit.manifest.created[:10]]))


def _quality_and_cost(audit: ReportedAudit) -> Iterator[Block]:
    chart = decision_chart(audit)
    if chart is None:
        yield _arms_chart(audit).figure()
    else:
        rows = decision_rows(audit)
        yield chart.figure()
        yield Either(TextTable(rows, marked=[number for number, row in enumerate(rows[1:]) if row[-1]]))
        counted = "with what was embedded to prove it" if audit.pool else "the reference left aside"
        has_two_stage = any(row[0].startswith(TWO_STAGE) for row in rows)
        yield note(
            "Each line runs from the lower to the upper bound, each a one-sided 95 % bound. The total embedding cost "
            f"is that of the target model for documents, from the first text on, {counted}; what is still to pay is "
            "left of it after this audit.",
            f" A two-stage option costs more with every query: its figures are for {audit.verdict.queries:,} queries."
            if has_two_stage
            else None,
        )
    yield Figures(list(_figures(audit)))


def _figures(audit: ReportedAudit) -> Iterator[tuple[str, str]]:
    verdict = audit.verdict
    measure, bounds = verdict.measure, verdict.retention
    label = "" if verdict.provisional else "retention of "
    yield f"{label}{measure}", verdict.figure(bounds.estimate) if bounds.is_known else "unknown"
    for search in audit.searches:
        exactly = "unknown" if search.exactly is None else verdict.figure(search.exactly)
        yield f"{label}{measure}, {search.arm}, searched exactly", exactly
    for name in (TRANSLATED, FULL, STAY):
        mean = next((arm.means.get(measure) for arm in audit.arms if arm.name == name), None)
        if mean is not None:
            yield f"{measure}, {name}", f"{mean:.3f}"
    yield "queries", f"{verdict.queries:,}"
    if verdict.groups < verdict.queries:
        yield "independent groups of queries", f"{verdict.groups:,}"
    yield "documents", f"{audit.dataset.documents:,}"
    if audit.pool is not None:
        yield "documents embedded", f"{audit.pool.documents:,} ({percent(audit.pool.share)})"


def _where_it_hurts(audit: ReportedAudit) -> Iterator[Block]:
    counts, rows = audit.arm(TRANSLATED).against, _query_rows(audit)
    has_changes = len(rows) > 1
    counted = (
        ""
        if counts is None
        else (
            f"{counts.wins:,} queries gain, {counts.ties:,} stay as they are, {counts.losses:,} lose against the full "
            "re-embed"
        )
    )
    bars = ". Each bar is a query, from the greatest loss to the greatest gain" if has_changes else ""
    yield Either(counted + bars, counted)
    if has_changes:
        yield _differences(audit).figure()
    if worst := audit.diagnostics.regressions:
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


def _differences(audit: ReportedAudit) -> Chart:
    full, translated = _scores(audit)
    label = f"{audit.verdict.measure}, translated minus full re-embed"
    return difference_chart("difference of every query", translated - full, _query_names(audit), label=label)


def _scores(audit: ReportedAudit) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the deciding scores of the full re-embed and of the translated store, (n,) each."""
    measure = audit.verdict.measure
    return np.array(audit.arm(FULL).per_query[measure]), np.array(audit.arm(TRANSLATED).per_query[measure])


def _query_names(audit: ReportedAudit) -> list[str]:
    texts = audit.query_texts or [""] * len(audit.query_ids)
    return [
        f"{query_id}, {cut(' '.join(text.split()), 60)}" if text else query_id
        for query_id, text in zip(audit.query_ids, texts, strict=True)
    ]


def _query_rows(audit: ReportedAudit) -> list[list[str]]:
    """Return a head, and the queries whose score is furthest from that of the full re-embed."""
    full, translated = _scores(audit)
    order = np.argsort(-np.abs(translated - full), kind="stable")[:100]
    names = _query_names(audit)
    return [
        ["query", FULL, TRANSLATED, "difference"],
        *(
            [names[row], f"{full[row]:.3f}", f"{translated[row]:.3f}", f"{translated[row] - full[row]:+.3f}"]
            for row in order
            if translated[row] != full[row]
        ),
    ]


def _kinds_of_queries(audit: ReportedAudit) -> Block:
    slices, measured = informative_slices(audit.diagnostics.slices), audit.verdict.measured
    if not slices:
        return None
    about = (
        f"{measured.capitalize()} of each kind of query. Few queries make wide intervals, and of many kinds some cross "
        "a bound by chance."
    )
    charts: list[Block] = []
    for by in dict.fromkeys(group.by for group in slices):
        rows = [
            interval(f"{group.value} ({group.queries:,})", group.retention, audit.verdict)
            for group in slices
            if group.by == by
        ]
        form = axis_form(audit.verdict)
        chart = interval_chart(f"{measured} by {by}", rows, margin=audit.verdict.safe_from, label=measured, form=form)
        charts += [Heading(f"By {by}"), chart.figure()]
    worst = slice_rows(audit)
    return [Either([element("p", about), charts], TextTable(worst) if worst else None)]


def _arms(audit: ReportedAudit) -> Iterator[Block]:
    rows, agreements = quality_rows(audit), agreement_rows(audit)
    yield element("p", "Every arm answers the same queries.")
    if decision_chart(audit) is not None:
        yield _arms_chart(audit).figure()
    yield TextTable(rows, marked=[number for number, row in enumerate(rows[1:]) if row[0] == TRANSLATED])
    yield Note(legend(audit))
    yield Heading("How much of what the full re-embed finds each arm finds too")
    yield TextTable(agreements) if agreements else Either("not known, as only a pool of the full re-embed is there")
    meanings = items([element("b", arm.name), f": {arm.meaning}"] for arm in audit.arms)
    yield element("details", element("summary", "What the arms are"), meanings)
    if audit.missing:
        yield element("h3", "Skipped arms")
        yield items([element("b", name), " ", with_code(need)] for name, need in audit.missing.items())


def _arms_chart(audit: ReportedAudit) -> IntervalChart:
    rows = [
        interval(arm.name, retention_of(audit, arm.name, arm.against), audit.verdict, marked=arm.name == TRANSLATED)
        for arm in audit.arms
        if arm.name not in (MEAN, RANDOM) and arm.against is not None and arm.against.retention.is_known
    ]
    verdict = audit.verdict
    return interval_chart(
        f"{verdict.measured} of every arm",
        rows,
        margin=verdict.safe_from,
        label=measure_label(audit),
        form=axis_form(verdict),
    )


def _pool(pool: ReportedPool) -> TextTable:
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


def _hubs(hubness: Sequence[Hubness]) -> list[Block]:
    return [
        Note("how often a document is among the ten nearest of others; hubs crowd out answers"),
        TextTable(hub_rows(hubness)),
    ]


def _provenance(audit: ReportedAudit) -> list[tuple[str, str]]:
    manifest = audit.manifest
    models = {"target model": manifest.model, "source model": manifest.source_model}
    return [
        *((name, f"{model.spec}, {model.dim} dimensions") for name, model in models.items() if model),
        ("queries and judgements", audit.dataset.name),
        ("seed", str(manifest.seed)),
        ("bootstrap resamples", f"{manifest.details.get('resamples') or 0:,}"),
        ("made", f"{manifest.created}, lead-migrate {manifest.tool_version}"),
    ]
