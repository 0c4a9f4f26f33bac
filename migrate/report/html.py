"""An audit report as one HTML file: the verdict first, then what it rests on, then where it hurts."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from migrate.audit.arms import FULL, MEAN, RANDOM, STAY, TRANSLATED
from migrate.audit.model import AuditReport
from migrate.audit.points import SAMPLE
from migrate.audit.verdict import Outcome
from migrate.report.advice import advice
from migrate.report.audit import agreement_rows, quality_rows, sentences
from migrate.report.html_hurt import hurt_sections
from migrate.report.page import Section, html_page, html_sentence, html_table, html_words
from migrate.report.svg.charts import Interval, Line, difference_chart, interval_chart, line_chart
from migrate.report.svg.frame import percent

_COLOURS = {Outcome.SAFE: "good", Outcome.NOT_SAFE: "bad", Outcome.INCONCLUSIVE: "warn"}
_WORDS = {
    Outcome.SAFE: "The translated store can take over",
    Outcome.NOT_SAFE: "The translated store must not take over as it is",
    Outcome.INCONCLUSIVE: "Too little is known to let the translated store take over",
}


def audit_page(report: AuditReport) -> str:
    """The whole report, for a browser; it needs no network."""
    parts = [_arms(report), *_frontier(report), _differences(report), *hurt_sections(report), _provenance(report)]
    title = _WORDS[report.verdict.outcome]
    return html_page(f"lead-migrate audit of {report.dataset}", title, _lead(report), parts, footer=_footer(report))


def _lead(report: AuditReport) -> str:
    verdict = report.verdict
    stamp = f'<span class="stamp {_COLOURS[verdict.outcome]}">{escape(verdict.outcome.value)}</span>'
    provisional = " This is provisional: nothing is judged." if verdict.provisional else ""
    return (
        f'<p class="lead">{stamp}{html_sentence(verdict.sentence)}{provisional}</p>'
        f"{_steps(report)}"
        f'<dl class="figures">{"".join(_figure(name, value) for name, value in _figures(report))}</dl>'
    )


def _steps(report: AuditReport) -> str:
    steps = "".join(f"<li>{html_sentence(step)}</li>" for step in advice(report))
    return f"<p>What to do next:</p><ul>{steps}</ul>" if steps else ""


def _figure(name: str, value: str) -> str:
    return f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>"


def _figures(report: AuditReport) -> Iterator[tuple[str, str]]:
    yield f"retention of {report.measure}", f"{report.verdict.retention.estimate:.3f}"
    for name in (TRANSLATED, FULL, STAY):
        found = next((arm.mean(report.measure) for arm in report.arms if arm.name == name), None)
        if found is not None:
            yield f"{report.measure}, {name}", f"{found:.3f}"
    yield "queries", f"{report.verdict.n_queries:,}"
    yield "documents", f"{report.n_documents:,}"


def _arms(report: AuditReport) -> Section:
    shown = [name for name in report.comparisons if name not in (MEAN, RANDOM)]
    rows = [
        Interval(name, bounds.lower, bounds.estimate, bounds.upper, marked=name == TRANSLATED)
        for name in shown
        for bounds in [report.comparisons[name].retention]
    ]
    label = f"share of the full re-embed's {report.measure} that is kept"
    chart = interval_chart("retention of every arm", rows, margin=report.verdict.margin, label=label)
    head, *body = quality_rows(report)
    marked = [place for place, row in enumerate(body) if row[0] == TRANSLATED]
    meanings = "".join(f"<li><b>{escape(arm.name)}</b>: {escape(arm.meaning)}</li>" for arm in report.arms)
    needs = "".join(f"<li><b>{escape(name)}</b> {html_words(need)}</li>" for name, need in report.missing.items())
    absent = f"<h3>Not in the table</h3><ul>{needs}</ul>" if needs else ""
    return Section(
        "The arms",
        f"<p>Every arm answers the same queries. Intervals are one-sided 95 % bounds either way.</p>{chart}"
        f"{html_table([head, *body], marked=marked)}"
        f"<h3>How much of what the full re-embed finds each arm finds too</h3>{html_table(agreement_rows(report))}"
        f"<details><summary>What the arms are</summary><ul>{meanings}</ul></details>{absent}",
    )


def _frontier(report: AuditReport) -> Iterator[Section]:
    found = report.frontier
    if found is None:
        return
    start = [point for point in found.points if point.policy == SAMPLE]
    policies = dict.fromkeys(point.policy for point in found.points if point.policy != SAMPLE)
    lines = []
    for policy in policies or {SAMPLE: None}:
        own = [*start, *(point for point in found.points if point.policy == policy and policy != SAMPLE)]
        kept = [point.verdict.retention for point in own]
        points = [(point.share, bounds.estimate) for point, bounds in zip(own, kept, strict=True)]
        lines.append(Line(policy, points, [(bounds.lower, bounds.upper) for bounds in kept]))
    chart = line_chart(
        "retention against the share re-embedded",
        lines,
        x_label="share of the documents that is embedded for real",
        y_label="retention",
        level=report.verdict.margin,
        level_label="margin",
        x_form=percent,
    )
    yield Section("What re-embedding would buy", f"<p>{html_sentence(found.sentence)}</p>{chart}")


def _differences(report: AuditReport) -> Section:
    values = report.arm(TRANSLATED).scores[report.measure] - report.arm(FULL).scores[report.measure]
    counts = report.comparisons[TRANSLATED]
    return Section(
        "Query by query",
        f"<p>{counts.wins:,} queries gain, {counts.ties:,} stay as they are, {counts.losses:,} lose against the full "
        f"re-embed. Each bar is a query, from the greatest loss to the greatest gain.</p>"
        f"{difference_chart('difference of every query', values, label=f'{report.measure}, translated less full')}",
    )


def _provenance(report: AuditReport) -> Section:
    notes = "".join(f"<li>{html_words(one)}</li>" for one in list(sentences(report))[:-1])
    known = report.manifest
    models = {"target model": known.model, "source model": known.source_model}
    facts = [
        ["", ""],
        *([name, f"{model.spec}, {model.dim} dimensions"] for name, model in models.items() if model),
        ["queries and judgements", report.dataset],
        ["seed", str(known.seed)],
        ["bootstrap resamples", f"{known.details.get('resamples', 0):,}"],
        ["made", f"{known.created}, lead-migrate {known.tool_version}"],
    ]
    return Section("Provenance and remarks", f"<ul>{notes}</ul>{html_table(facts, text_columns=[1])}")


def _footer(report: AuditReport) -> str:
    return f"<p>Every figure of this page is in the JSON report too. {escape(report.manifest.created)}</p>"
