"""An audit report as one HTML file: the verdict first, then what it rests on, then the diagnostics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape

from migrate.audit.diagnostics import Calibration, Hit, Hubness, Regression, Spaces
from migrate.audit.frontier import SAMPLE
from migrate.audit.report import AuditReport
from migrate.audit.results import FULL, MEAN, RANDOM, STAY, TRANSLATED
from migrate.audit.slices import Slice
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
from migrate.report.compare import spectra
from migrate.report.decision import advice, decision_section
from migrate.report.document import similarity_rows
from migrate.report.page import Section, html_page, html_sentence, html_table, html_words
from migrate.report.svg.charts import (
    Interval,
    Line,
    difference_chart,
    histogram_chart,
    interval_chart,
    line_chart,
    map_chart,
)
from migrate.report.svg.frame import percent
from migrate.similarity import Similarity


def diagnostics_sections(report: AuditReport) -> Iterator[Section]:
    """A section for each thing that was looked at."""
    diagnostics = report.diagnostics
    if diagnostics.regressions:
        yield Section("Queries that lose most", "".join(map(_regression, diagnostics.regressions)))
    if slices := informative_slices(diagnostics.slices):
        yield Section("Kinds of queries", _slices(slices, report))
    if diagnostics.calibration:
        yield Section("Thresholds", _calibration(diagnostics.calibration))
    if diagnostics.similarities:
        yield Section("How alike the spaces are", _similarities(diagnostics.similarities))
    if diagnostics.spaces:
        yield Section("The two spaces", _spaces(diagnostics.spaces, diagnostics.hubness))


def _regression(regression: Regression) -> str:
    before, now = regression.scores[FULL], regression.scores[TRANSLATED]
    shown = "".join(
        f"<h3>{escape(name)} finds</h3><ol>{''.join(map(_hit, hits))}</ol>" for name, hits in regression.hits.items()
    )
    return (
        f"<details><summary><b>{escape(regression.text)}</b> <span class=muted>({escape(regression.query_id)})</span> "
        f'<span class="bad">{before:.3f} → {now:.3f}</span></summary>{shown}</details>'
    )


def _hit(hit: Hit) -> str:
    relevant = ' <span class="good">relevant</span>' if hit.grade else ""
    return f"<li><code>{escape(hit.doc_id)}</code>{relevant} {escape(hit.text)}</li>"


def _slices(slices: Sequence[Slice], report: AuditReport) -> str:
    measured = report.verdict.measured
    parts = [
        f"<p>{measured[0].upper()}{measured[1:]} of each kind of query. Few queries make wide intervals, and of many "
        "kinds some cross a bound by chance.</p>"
    ]
    for by in dict.fromkeys(part.by for part in slices):
        rows = [
            Interval(
                f"{part.value} ({part.queries:,})", part.retention.lower, part.retention.estimate, part.retention.upper
            )
            for part in slices
            if part.by == by
        ]
        chart = interval_chart(f"{measured} by {by}", rows, margin=report.verdict.margin, label=measured)
        parts.append(f"<h3>By {escape(by)}</h3>{chart}")
    return "".join(parts)


def _calibration(calibration: Calibration) -> str:
    old, new = calibration.metrics
    spread = [(name, histogram.edges, histogram.counts) for name, histogram in calibration.histograms.items()]
    charts = (
        histogram_chart("scores of the first ten hits", spread, label=METRICS[old].split(",")[0])
        if old == new
        else "".join(histogram_chart(f"scores, {row[0]}", [row], label="score") for row in spread)
    )
    return (
        "<p>A similarity threshold that was tuned on the old store must move. The table has the new one that lets as "
        "many hits pass, and the loosest one that is as precise.</p>"
        f"{charts}<h3>{escape(calibration_title(calibration).capitalize())}</h3>{html_table(calibration_rows(calibration))}"
    )


def _similarities(similarities: Mapping[str, Similarity]) -> str:
    values = {
        f"{name} to full": similarity.forth.singular_values
        for name, similarity in similarities.items()
        if similarity.forth.singular_values
    }
    documents = next(iter(similarities.values())).documents
    return (
        f"<p>Each space against that of the full re-embed, on {documents:,} documents. A stitch is a ridge, fitted on "
        f"one half of them and judged on the other.</p>{html_table(similarity_rows(similarities), text_columns=[1])}"
        f"<h3>Singular values of the stitches, in units of the greatest</h3>{spectra(values) if values else ''}"
    )


def _spaces(spaces: Spaces, hubs: tuple[Hubness, ...]) -> str:
    arrows = [(f"{mover.doc_id}: cosine {mover.cosine:.3f}", mover.true, mover.translated) for mover in spaces.movers]
    picture = map_chart("map of both spaces", [("true", spaces.true), ("translated", spaces.translated)], arrows)
    names = ("true", "translated")
    spectra = [
        Line(name, [(place + 1.0, share) for place, share in enumerate(shares)])
        for name, shares in zip(names, spaces.spectra, strict=True)
    ]
    spectrum = line_chart("variance by direction", spectra, x_label="principal direction", y_label="share of variance")
    head = ["hubs", "documents", "skewness", "largest", "near none"]
    rows = [[h.arm, f"{h.documents:,}", f"{h.skewness:.2f}", f"{h.largest}", f"{h.orphans:.1%}"] for h in hubs]
    movers = [["moved most", "cosine with the true vector"], *([m.doc_id, f"{m.cosine:.3f}"] for m in spaces.movers)]
    return (
        f"<p>{spaces.documents:,} documents, in the two directions in which their true vectors vary most "
        f"({spaces.explained:.0%} of the variance).{_cosines(spaces)}</p>{picture}"
        f"<h3>Variance by direction, as shares of the true vectors' variance</h3>{spectrum}"
        f'<div class="pair"><div>{html_table(movers)}</div><div>{html_table([head, *rows])}'
        '<p class="note">How often a document is among the ten nearest of others. Hubs crowd out answers.</p>'
        "</div></div>"
    )


def _cosines(spaces: Spaces) -> str:
    if not spaces.cosines:
        return ""
    low, middle = spaces.cosines[5], spaces.cosines[50]
    return (
        f" Half of the translated vectors have a cosine of at least {middle:.3f} with the true one, 95 % of {low:.3f}."
    )


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
    first = decision_section(report)
    parts = [
        *([] if first is None else [first]),
        *_pool(report),
        _arms(report),
        *_frontier(report),
        _differences(report),
        *diagnostics_sections(report),
        _provenance(report),
    ]
    title = (_PROVISIONAL if report.verdict.provisional else _WORDS)[report.verdict.outcome]
    return html_page(f"lead-migrate audit of {report.dataset}", title, _lead(report), parts, footer=_footer(report))


def _lead(report: AuditReport) -> str:
    verdict = report.verdict
    is_half = verdict.provisional and verdict.outcome is Outcome.SAFE
    colour = "warn" if is_half else _COLOURS[verdict.outcome]
    words = f"{verdict.outcome}, provisional" if verdict.provisional else verdict.outcome.value
    basis = f" {html_sentence(f'provisional: {report.basis}')}" if report.basis else ""
    caveats = "".join(f" {html_sentence(caveat)}" for caveat in report.caveats)
    stamp = f'<span class="stamp {colour}">{escape(words)}</span>'
    return (
        f'<p class="lead">{stamp}{html_sentence(verdict.sentence)}{caveats}{basis}</p>'
        f"{_steps(report)}"
        f'<dl class="figures">{"".join(_figure(name, value) for name, value in _figures(report))}</dl>'
    )


def _steps(report: AuditReport) -> str:
    steps = "".join(f"<li>{html_sentence(step)}</li>" for step in advice(report))
    return f"<p>What to do next:</p><ul>{steps}</ul>" if steps else ""


def _figure(name: str, value: str) -> str:
    return f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>"


def _figures(report: AuditReport) -> Iterator[tuple[str, str]]:
    kept = "" if report.verdict.provisional else "retention of "
    yield f"{kept}{report.measure}", f"{report.verdict.retention.estimate:.3f}"
    for name in (TRANSLATED, FULL, STAY):
        mean = next((arm.mean(report.measure) for arm in report.arms if arm.name == name), None)
        if mean is not None:
            yield f"{report.measure}, {name}", f"{mean:.3f}"
    yield "queries", f"{report.verdict.n_queries:,}"
    yield "documents", f"{report.n_documents:,}"
    if report.pool is not None:
        yield "documents embedded", f"{report.pool.documents:,} ({report.pool.share:.1%})"


def _pool(report: AuditReport) -> Iterator[Section]:
    if report.pool is None:
        return
    sentences = "".join(f"<li>{html_words(sentence)}</li>" for sentence in report.pool.sentences)
    rows = [
        [
            f"first {step.depth} for a query",
            f"{step.queries:,}",
            f"{step.documents:,}",
            f"{step.sampled:,}",
            "-" if step.tokens is None else f"{step.tokens:,}",
            "-" if step.usd is None else f"{step.usd:,.4f}",
        ]
        for step in report.pool.steps
    ]
    head = ["step", "queries", "documents embedded", "drawn at random", "tokens", "usd"]
    yield Section("The pool", f"<ul>{sentences}</ul>{html_table([head, *rows])}")


def _arms(report: AuditReport) -> Section:
    shown = [name for name in report.comparisons if name not in (MEAN, RANDOM)]
    rows = [
        Interval(name, bounds.lower, bounds.estimate, bounds.upper, marked=name == TRANSLATED)
        for name in shown
        for bounds in [report.comparisons[name].retention]
    ]
    label = f"share of the full re-embed's {report.measure} that is kept"
    chart = interval_chart(f"{report.verdict.measured} of every arm", rows, margin=report.verdict.margin, label=label)
    head, *body = quality_rows(report)
    marked = [place for place, row in enumerate(body) if row[0] == TRANSLATED]
    meanings = "".join(f"<li><b>{escape(arm.name)}</b>: {escape(arm.meaning)}</li>" for arm in report.arms)
    needs = "".join(f"<li><b>{escape(name)}</b> {html_words(need)}</li>" for name, need in report.skipped_arms.items())
    agreement = agreement_rows(report)
    agreed = html_table(agreement) if agreement else "<p>Not known, as only a pool of the full re-embed is there.</p>"
    absent = f"<h3>Skipped arms</h3><ul>{needs}</ul>" if needs else ""
    return Section(
        "The arms",
        f"<p>Every arm answers the same queries. Intervals are one-sided 95 % bounds either way.</p>{chart}"
        f"{html_table([head, *body], marked=marked)}"
        f'<p class="note">{html_sentence(legend(report))}</p>'
        f"<h3>How much of what the full re-embed finds each arm finds too</h3>{agreed}"
        f"<details><summary>What the arms are</summary><ul>{meanings}</ul></details>{absent}",
    )


def _frontier(report: AuditReport) -> Iterator[Section]:
    frontier = report.frontier
    if frontier is None:
        return
    start = [point for point in frontier.points if point.policy == SAMPLE]
    measured = report.verdict.measured
    policies = dict.fromkeys(point.policy for point in frontier.points if point.policy != SAMPLE)
    lines = []
    for policy in policies or {SAMPLE: None}:
        own = [*start, *(point for point in frontier.points if point.policy == policy and policy != SAMPLE)]
        kept = [point.verdict.retention for point in own]
        points = [(point.share_of_tokens, bounds.estimate) for point, bounds in zip(own, kept, strict=True)]
        lines.append(Line(policy, points, [(bounds.lower, bounds.upper) for bounds in kept]))
    chart = line_chart(
        f"{measured} against the tokens embedded",
        lines,
        x_label="tokens, as a share of a full re-embed's",
        y_label=measured,
        level=report.verdict.margin,
        level_label="SAFE from",
        x_form=percent,
    )
    yield Section("What re-embedding would buy", f"<p>{html_sentence(frontier.sentence)}</p>{chart}")


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
    notes = "".join(f"<li>{html_words(sentence)}</li>" for sentence in list(sentences(report))[:-1])
    manifest = report.manifest
    models = {"target model": manifest.model, "source model": manifest.source_model}
    facts = [
        ["", ""],
        *([name, f"{model.spec}, {model.dim} dimensions"] for name, model in models.items() if model),
        ["queries and judgements", report.dataset],
        ["seed", str(manifest.seed)],
        ["bootstrap resamples", f"{manifest.report.resamples or 0:,}"],
        ["made", f"{manifest.created}, lead-migrate {manifest.tool_version}"],
    ]
    return Section("Provenance and remarks", f"<ul>{notes}</ul>{html_table(facts, text_columns=[1])}")


def _footer(report: AuditReport) -> str:
    return f"<p>Every figure of this page is in the JSON report too. {escape(report.manifest.created)}</p>"
