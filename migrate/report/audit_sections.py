"""An audit in sections: the decision first, then where it hurts, then what it rests on."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from xml.etree.ElementTree import Element

import numpy as np
from numpy.typing import NDArray

from migrate.audit_report.names import FULL, MEAN, RANDOM, STAY, TRANSLATED, TWO_STAGE
from migrate.audit_report.records import (
    Hit,
    Hubness,
    Regression,
    ReportedAudit,
    ReportedPool,
    ReportedVerdict,
    ThresholdTable,
)
from migrate.audit_report.report import AuditReport
from migrate.display import percent
from migrate.outcome import Outcome, span
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
from migrate.report.migration import what_it_would_take, what_was_moved
from migrate.report.page import Content, content, element, items, note, sentence, stamp, with_code
from migrate.report.sections import Block, Either, Facts, Figures, Heading, Listed, Note, Report, TextTable
from migrate.report.svg.charts import (
    IntervalChart,
    difference_chart,
    histogram_chart,
    interval_chart,
)
from migrate.report.svg.frame import Chart
from migrate.report.terminal import cut, figure_or_dash, price_or_dash

COLOURS = {Outcome.SAFE: "good", Outcome.NOT_SAFE: "bad", Outcome.INCONCLUSIVE: "warn"}
"""Colours of the stamps of pages."""

_TITLES = {
    Outcome.SAFE: "The translated store can take over",
    Outcome.NOT_SAFE: "The translated store must not take over as it is",
    Outcome.INCONCLUSIVE: "There is too little evidence to use the translated store",
}
_PROVISIONAL = {
    Outcome.SAFE: "Provisional: the translated store answers nearly as a full re-embed does",
    Outcome.NOT_SAFE: "Provisional: the translated store answers too unlike a full re-embed",
    Outcome.INCONCLUSIVE: _TITLES[Outcome.INCONCLUSIVE],
}


def audit_sections(report: AuditReport) -> Report:
    """Return the whole report; a terminal has of the diagnostics only what is worst."""
    audit = report.audit
    verdict = audit.verdict
    *remarks, _ = sentences(audit)
    subject = f"{audit.dataset.name}: {verdict.counted}, {audit.dataset.documents:,} documents"
    titles = _TITLES
    if verdict.provisional:
        titles = _PROVISIONAL
    return Report(
        kind=_kind(audit),
        title=titles[verdict.outcome],
        lead=Either(list(_lead(audit)), [*_basis(verdict), Note(subject)]),
        sections={
            "What it would take": what_it_would_take(audit),
            "The migration": what_was_moved(audit),
            "Quality and cost": list(_quality_and_cost(audit)),
            "Where it hurts": list(_where_it_hurts(audit)),
            "Kinds of queries": _kinds_of_queries(audit),
            "The arms": list(_arms(audit)),
            "The pool": _pool(audit.pool),
            "Thresholds": list(_thresholds(audit.diagnostics.calibration)),
            "Hubs": _hubs(audit.diagnostics.hubness),
            "Provenance and remarks": [Listed(remarks), Facts(_provenance(audit))],
        },
        closing=report.sentence,
        footer=f"Every figure of this page is in the JSON report too. {audit.manifest.created}",
    )


def _kind(audit: ReportedAudit) -> str:
    if audit.migration is None:
        return f"lead-migrate audit of {audit.dataset.name}"
    return f"lead-migrate migration of {audit.migration.source}"


def _lead(audit: ReportedAudit) -> Iterator[Content]:
    """Yield the subject, the verdict with what belongs beside it, and the recommendation."""
    verdict = audit.verdict
    lines = (verdict.sentence, *verdict.caveats, *_basis(verdict))
    yield element("p", _subject(audit), class_="muted")
    yield element("p", _outcome_stamp(verdict), [[" ", sentence(line)] for line in lines], class_="lead")
    if audit.plan.name != TRANSLATED:
        yield element("p", sentence(audit.plan.sentence), class_="lead")
    yield element("div", list(_recommendation(audit)), class_="card")


def _outcome_stamp(verdict: ReportedVerdict) -> Element:
    """Return the outcome in a frame; a provisional SAFE is not green, as nothing was judged."""
    outcome = verdict.outcome.value
    colour = COLOURS[verdict.outcome]
    if verdict.provisional:
        outcome = f"{outcome}, provisional"
        if verdict.outcome is Outcome.SAFE:
            colour = "warn"
    return stamp(outcome, colour)


def _basis(verdict: ReportedVerdict) -> list[str]:
    """Return what a provisional verdict rests on; nothing for others."""
    if not verdict.basis:
        return []
    return [f"provisional: {verdict.basis}"]


def _recommendation(audit: ReportedAudit) -> Iterator[Content]:
    """Yield the plan in a sentence, its figures, and what to type."""
    recommended = audit.recommendation
    yield element("h2", "What to do next")
    yield element("p", sentence(recommended.headline), class_="decision")
    yield content(Figures(list(_key_figures(audit))))
    if recommended.remark:
        yield element("p", sentence(recommended.remark))
    if recommended.serving:
        yield _code("\n".join(recommended.serving))
    if recommended.command is not None:
        yield _command(["lead-migrate", *recommended.command])


def _code(text: str) -> Element:
    return element("pre", element("code", text))


def _command(words: Sequence[str]) -> Element:
    """Return a command that breaks between its words, and never behind the hyphens of an option."""
    shown: list[Content] = [[" ", element("span", shlex.quote(word), class_="word")] for word in words[1:]]
    return element("pre", element("code", words[0], shown))


def _key_figures(audit: ReportedAudit) -> Iterator[tuple[str, str]]:
    """Yield what the plan keeps, at least keeps, and still costs."""
    recommended = audit.recommendation
    verdict = audit.verdict
    if recommended.retention is None:
        return
    label = "keeps"
    if verdict.provisional:
        label = verdict.measured
    yield label, verdict.figure(recommended.retention.estimate)
    yield "at least", verdict.figure(recommended.retention.lower)
    yield "still to pay", recommended.remaining or "not known"


def _subject(audit: ReportedAudit) -> str:
    """Return the two models, documents and queries, and the day."""
    manifest = audit.manifest
    models = " to ".join(model.spec for model in (manifest.source_model, manifest.model) if model is not None)
    counts = f"{audit.dataset.documents:,} documents, {audit.verdict.counted}"
    return ", ".join(filter(None, [models, counts, manifest.created[:10]]))


def _quality_and_cost(audit: ReportedAudit) -> Iterator[Block]:
    chart = decision_chart(audit)
    if chart is None:
        yield _arms_chart(audit).figure()
    else:
        rows = decision_rows(audit)
        yield chart.figure()
        yield Either(TextTable(rows, marked=[number for number, row in enumerate(rows[1:]) if row[-1]]))
        counted = "the reference left aside"
        if audit.pool:
            counted = "with what was embedded to prove it"
        explanation = (
            "Each line runs from the lower to the upper bound, each a one-sided 95 % bound. The total embedding cost "
            f"is that of the target model for documents, from the first text on, {counted}; what is still to pay is "
            "left of it after this audit."
        )
        if any(row[0].startswith(TWO_STAGE) for row in rows):
            explanation += (
                f" A two-stage option costs more with every query: its figures are for {audit.verdict.queries:,} "
                "queries."
            )
        yield note(explanation)
    yield Figures(list(_figures(audit)))


def _figures(audit: ReportedAudit) -> Iterator[tuple[str, str]]:
    verdict = audit.verdict
    measure = verdict.measure
    label = f"retention of {measure}"
    if verdict.provisional:
        label = measure
    retained = None
    if verdict.retention.is_known:
        retained = verdict.retention.estimate
    yield label, _figure_or_unknown(verdict, retained)
    for search in audit.searches:
        yield f"{label}, {search.arm}, searched exactly", _figure_or_unknown(verdict, search.exactly)
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


def _figure_or_unknown(verdict: ReportedVerdict, value: float | None) -> str:
    if value is None:
        return "unknown"
    return verdict.figure(value)


def _where_it_hurts(audit: ReportedAudit) -> Iterator[Block]:
    counts = audit.arm(TRANSLATED).against
    rows = _query_rows(audit)
    has_changes = len(rows) > 1
    counted = ""
    if counts is not None:
        counted = (
            f"{counts.wins:,} queries gain, {counts.ties:,} stay as they are, {counts.losses:,} lose against the full "
            "re-embed"
        )
    explained = counted
    if has_changes:
        explained += ". Each bar is a query, from the greatest loss to the greatest gain"
    yield Either(explained, counted)
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
        lines.append(f"    {arm} finds {_first_hit(hits)}")
    return list(map(cut, lines))


def _first_hit(hits: Sequence[Hit]) -> str:
    if not hits:
        return "nothing"
    hit = hits[0]
    if hit.grade:
        return f"{hit.doc_id} (relevant) {hit.text}"
    return f"{hit.doc_id} {hit.text}"


def _hit(hit: Hit) -> Content:
    # A grade of 0 is a judgement too, and says that the document is of no use
    if not hit.grade:
        return [element("code", hit.doc_id), f" {hit.text}"]
    return [element("code", hit.doc_id), " ", element("span", "relevant", class_="good"), f" {hit.text}"]


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
    names = []
    for query_id, text in zip(audit.query_ids, texts, strict=True):
        name = query_id
        if text:
            name += f", {cut(' '.join(text.split()), 60)}"
        names.append(name)
    return names


def _query_rows(audit: ReportedAudit) -> list[list[str]]:
    """Return a head, and the queries whose score is furthest from that of the full re-embed."""
    full, translated = _scores(audit)
    # Of both kinds, gains too: judgements that favour the new store show there.
    # No more than a hundred: a page of ten thousand queries has to open as one of three hundred does
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
    slices = informative_slices(audit.diagnostics.slices)
    measured = audit.verdict.measured
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
        charts += [Heading(f"By {by}"), chart.figure(), _unfolded(f"Figures by {by}", _slice_table(audit, by))]
    worst = None
    if rows_of_worst := slice_rows(audit):
        worst = TextTable(rows_of_worst)
    return [Either([element("p", about), charts], worst)]


def _slice_table(audit: ReportedAudit, by: str) -> TextTable:
    """Return what a chart of kinds of queries shows as a table."""
    verdict = audit.verdict
    rows = [
        [
            group.value,
            f"{group.queries:,}",
            f"{group.full:.3f}",
            f"{group.translated:.3f}",
            verdict.figure(group.retention.estimate),
            span(group.retention, provisional=verdict.provisional),
        ]
        for group in informative_slices(audit.diagnostics.slices)
        if group.by == by
    ]
    return TextTable([[by, "queries", "full", "translated", verdict.measured, "bounds"], *rows], text_columns=[0])


def _unfolded(summary: str, table: TextTable) -> Element:
    """Return a table that is shown when its summary is clicked."""
    return element("details", element("summary", summary), content(table), class_="data")


def _arms(audit: ReportedAudit) -> Iterator[Block]:
    rows = quality_rows(audit)
    agreements = agreement_rows(audit)
    yield element("p", "Every arm answers the same queries.")
    if decision_chart(audit) is not None:
        yield _arms_chart(audit).figure()
    yield TextTable(rows, marked=[number for number, row in enumerate(rows[1:]) if row[0] == TRANSLATED])
    yield Note(legend(audit))
    yield Heading("How much of what the full re-embed finds each arm finds too")
    if agreements:
        yield TextTable(agreements)
    else:
        yield Either("not known, as only a pool of the full re-embed is there")
    meanings = items([element("b", arm.name), f": {arm.meaning}"] for arm in audit.arms)
    yield element("details", element("summary", "What the arms are"), meanings)
    if audit.missing:
        yield element("h3", "Skipped arms")
        yield items([element("b", name), " ", with_code(need)] for name, need in audit.missing.items())


def _arms_chart(audit: ReportedAudit) -> IntervalChart:
    rows = [
        interval(arm.name, retention_of(audit, arm.name, arm.against), audit.verdict, marked=arm.name == TRANSLATED)
        for arm in audit.arms
        # The controls keep next to nothing: the axis would begin at 0, and the other intervals lie on top of each other
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


def _pool(pool: ReportedPool | None) -> Block:
    if pool is None:
        return None
    rows = [
        [
            f"first {step.depth} for a query",
            f"{step.queries:,}",
            f"{step.documents:,}",
            f"{step.sampled:,}",
            figure_or_dash(step.tokens, ","),
            price_or_dash(step.usd),
        ]
        for step in pool.steps
    ]
    head = ["step", "queries", "documents embedded", "drawn at random", "tokens", "price"]
    return [Either(Listed(pool.sentences)), TextTable([head, *rows])]


def _thresholds(calibration: ThresholdTable | None) -> Iterator[Block]:
    if calibration is None:
        return
    old, new = calibration.metrics
    spread = [(name, histogram.edges, histogram.counts) for name, histogram in calibration.histograms.items()]
    yield element(
        "p",
        "A similarity threshold that was tuned on the old store must move. The table has the new one that lets as many "
        "hits pass, and the loosest one that is as precise.",
    )
    # Scores of two metrics have no axis in common
    if old == new:
        yield histogram_chart("scores of the first ten hits", spread, label=METRICS[old].split(",")[0]).figure()
    else:
        yield [histogram_chart(f"scores, {row[0]}", [row], label="score").figure() for row in spread]
    yield Either(_unfolded("Figures of the scores", _score_table(calibration)))
    yield Heading(calibration_title(calibration).capitalize())
    yield TextTable(calibration_rows(calibration))


def _score_table(calibration: ThresholdTable) -> TextTable:
    """Return what the chart of the scores shows as a table: the number of hits in each range."""
    rows = [
        [name, f"{low:.3f}", f"{high:.3f}", f"{count:,}"]
        for name, histogram in calibration.histograms.items()
        for low, high, count in zip(histogram.edges, histogram.edges[1:], histogram.counts, strict=False)
    ]
    return TextTable([["arm", "from", "to", "hits"], *rows])


def _hubs(hubness: Sequence[Hubness]) -> Block:
    if not hubness:
        return None
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
