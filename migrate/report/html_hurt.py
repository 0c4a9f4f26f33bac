"""Where a migration hurts, as sections of an HTML page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape

from migrate.audit.arms import FULL, TRANSLATED
from migrate.audit.calibration import Calibration
from migrate.audit.hubness import Hubness
from migrate.audit.model import AuditReport
from migrate.audit.regressions import Hit, Regression
from migrate.audit.slices import Slice
from migrate.audit.spaces import Spaces
from migrate.report.hurt import METRICS, calibration_rows, calibration_title, telling_slices
from migrate.report.likeness import likeness_rows
from migrate.report.page import Section, html_table
from migrate.report.spectra import spectra
from migrate.report.svg.charts import Interval, Line, histogram_chart, interval_chart, line_chart, map_chart
from migrate.similarity import Similarity


def hurt_sections(report: AuditReport) -> Iterator[Section]:
    """A section for each thing that was looked at."""
    hurt = report.hurt
    if hurt.regressions:
        yield Section("Queries that lose most", "".join(map(_regression, hurt.regressions)))
    if slices := telling_slices(hurt.slices):
        yield Section("Kinds of queries", _slices(slices, report))
    if hurt.calibration:
        yield Section("Thresholds", _calibration(hurt.calibration))
    if hurt.likeness:
        yield Section("How alike the spaces are", _likeness(hurt.likeness))
    if hurt.spaces:
        yield Section("The two spaces", _spaces(hurt.spaces, hurt.hubness))


def _regression(one: Regression) -> str:
    before, now = one.scores[FULL], one.scores[TRANSLATED]
    found = "".join(
        f"<h3>{escape(name)} finds</h3><ol>{''.join(map(_hit, hits))}</ol>" for name, hits in one.hits.items()
    )
    return (
        f"<details><summary><b>{escape(one.text)}</b> <span class=muted>({escape(one.query_id)})</span> "
        f'<span class="bad">{before:.3f} → {now:.3f}</span></summary>{found}</details>'
    )


def _hit(hit: Hit) -> str:
    relevant = ' <span class="good">relevant</span>' if hit.grade else ""
    return f"<li><code>{escape(hit.doc_id)}</code>{relevant} {escape(hit.text)}</li>"


def _slices(slices: Sequence[Slice], report: AuditReport) -> str:
    parts = [
        "<p>Retention of each kind of query. Few queries make wide intervals, and of many kinds some cross a bound by "
        "chance.</p>"
    ]
    for by in dict.fromkeys(one.by for one in slices):
        rows = [
            Interval(f"{one.value} ({one.queries:,})", one.retention.lower, one.retention.estimate, one.retention.upper)
            for one in slices
            if one.by == by
        ]
        chart = interval_chart(f"retention by {by}", rows, margin=report.verdict.margin, label="retention")
        parts.append(f"<h3>By {escape(by)}</h3>{chart}")
    return "".join(parts)


def _calibration(found: Calibration) -> str:
    old, new = found.metrics
    spread = [(name, one.edges, one.counts) for name, one in found.histograms.items()]
    charts = (
        histogram_chart("scores of the first ten hits", spread, label=METRICS[old].split(",")[0])
        if old == new
        else "".join(histogram_chart(f"scores, {row[0]}", [row], label="score") for row in spread)
    )
    return (
        "<p>A similarity threshold that was tuned on the old store must move. The table has the new one that lets as "
        "many hits pass, and the loosest one that is as precise.</p>"
        f"{charts}<h3>{escape(calibration_title(found).capitalize())}</h3>{html_table(calibration_rows(found))}"
    )


def _likeness(found: Mapping[str, Similarity]) -> str:
    values = {f"{name} to full": one.forth.singular_values for name, one in found.items() if one.forth.singular_values}
    documents = next(iter(found.values())).documents
    return (
        f"<p>Each space against that of the full re-embed, on {documents:,} documents. A stitch is a ridge, fitted on "
        f"one half of them and judged on the other.</p>{html_table(likeness_rows(found), text_columns=[1])}"
        f"<h3>Singular values of the stitches, in units of the greatest</h3>{spectra(values) if values else ''}"
    )


def _spaces(found: Spaces, hubs: tuple[Hubness, ...]) -> str:
    arrows = [(f"{one.doc_id}: cosine {one.cosine:.3f}", one.true, one.translated) for one in found.movers]
    picture = map_chart("map of both spaces", [("true", found.true), ("translated", found.translated)], arrows)
    names = ("true", "translated")
    spectra = [
        Line(name, [(place + 1.0, share) for place, share in enumerate(shares)])
        for name, shares in zip(names, found.spectra, strict=True)
    ]
    spectrum = line_chart("variance by direction", spectra, x_label="principal direction", y_label="share of variance")
    head = ["hubs", "documents", "skewness", "largest", "near none"]
    rows = [[h.arm, f"{h.documents:,}", f"{h.skewness:.2f}", f"{h.largest}", f"{h.orphans:.1%}"] for h in hubs]
    movers = [["moved most", "cosine with the true vector"], *([m.doc_id, f"{m.cosine:.3f}"] for m in found.movers)]
    return (
        f"<p>{found.documents:,} documents, in the two directions in which their true vectors vary most "
        f"({found.explained:.0%} of the variance).{_cosines(found)}</p>{picture}"
        f"<h3>Variance by direction, as shares of the true vectors' variance</h3>{spectrum}"
        f'<div class="pair"><div>{html_table(movers)}</div><div>{html_table([head, *rows])}'
        '<p class="note">How often a document is among the ten nearest of others. Hubs crowd out answers.</p>'
        "</div></div>"
    )


def _cosines(found: Spaces) -> str:
    if not found.cosines:
        return ""
    low, middle = found.cosines[5], found.cosines[50]
    return (
        f" Half of the translated vectors have a cosine of at least {middle:.3f} with the true one, 95 % of {low:.3f}."
    )
