"""A chart and a table of what every option of an audit keeps and costs."""

from __future__ import annotations

from collections.abc import Iterator

from migrate.audit.bounds import Bounds
from migrate.audit.recommendation import Option, options_of
from migrate.audit.report import AuditReport
from migrate.audit.results import FULL, MEAN, RANDOM
from migrate.audit.verdict import Verdict
from migrate.cost.estimate import dollars, token_count
from migrate.report.svg.charts import Interval, Point, cost_chart
from migrate.report.svg.frame import Chart, Format, axis_percent, short


def decision_chart(report: AuditReport) -> Chart | None:
    """Draw the quality of every option, arm and budget against its cost in all; None where too few costs are known.

    Left out are the controls, and arms that are held against another standard than the full re-embed.
    """
    options, is_priced = _with_costs(report)
    if len(options) < 2:
        return None
    points = []
    for option in options:
        cost = _cost(option.usd, option.tokens, is_priced=is_priced) or 0.0
        shown = interval(option.name, option.retention, report.verdict)
        points.append(Point(shown, cost, "good" if option.is_safe else "muted"))
    points += _further_points(report, {option.name for option in options}, is_priced=is_priced)
    unit = "US dollars" if is_priced else "million tokens"
    return cost_chart(
        "what every option keeps, and what it costs",
        points,
        margin=report.verdict.scale.safe,
        x_label=f"total embedding cost in {unit}, what is already paid included",
        y_label=measure_label(report),
        y_form=axis_form(report.verdict),
    )


def _with_costs(report: AuditReport) -> tuple[list[Option], bool]:
    """Return the options whose cost and quality are known, and whether all of them have a price."""
    options = [option for option in options_of(report) if option.cost < float("inf") and option.retention.is_known]
    return options, all(option.usd is not None for option in options)


def _cost(usd: float | None, tokens: float | None, *, is_priced: bool) -> float | None:
    """Return a cost in dollars, or else in million tokens; None where it is not known."""
    if is_priced:
        return usd
    return None if tokens is None else tokens / 1e6


def _further_points(report: AuditReport, shown: set[str], *, is_priced: bool) -> Iterator[Point]:
    """Yield arms that are no options."""
    for arm in report.arms:
        comparison = report.comparisons.get(arm.name)
        if comparison is None or comparison.standard != FULL or not comparison.retention.is_known:
            continue
        cost = _cost(arm.usd, arm.tokens, is_priced=is_priced)
        if cost is not None and arm.name not in {*shown, MEAN, RANDOM}:
            yield Point(interval(arm.name, comparison.retention, report.verdict), cost, "other")


def interval(name: str, bounds: Bounds, verdict: Verdict, *, marked: bool = False) -> Interval:
    """Return bounds as charts have them, in the words of the verdict."""
    return Interval(name, bounds.lower, bounds.estimate, bounds.upper, marked=marked, figure=verdict.scale.figure)


def axis_form(verdict: Verdict) -> Format:
    """Return how an axis shows what the verdict rests on: retention in per cent, agreement as a number."""
    return short if verdict.scale.provisional else axis_percent


def measure_label(report: AuditReport) -> str:
    """Return the name of an axis of what the verdict rests on."""
    if report.verdict.scale.provisional:
        return f"{report.verdict.scale.measured} with the full re-embed"
    return f"share of the full re-embed's {report.measure} that is kept"


def decision_rows(report: AuditReport) -> list[list[str]]:
    """Return a head, and one row an option: what it keeps, its cost in all, and what of that is still to be paid."""
    options, is_priced = _with_costs(report)
    verdict = report.verdict
    return [
        ["option", verdict.scale.measured, "bounds", "total embedding cost", "still to pay", "SAFE"],
        *(
            [
                option.name,
                verdict.scale.figure(option.retention.estimate),
                "by definition" if option.name == FULL else verdict.scale.span(option.retention),
                _price(option.usd if is_priced else option.tokens, is_priced=is_priced),
                _price(option.usd_left if is_priced else option.tokens_left, is_priced=is_priced),
                "yes" if option.is_safe else "",
            ]
            for option in options
        ),
    ]


def _price(amount: float | None, *, is_priced: bool) -> str:
    if not amount:
        return "-" if amount is None else "0"
    return dollars(amount) if is_priced else token_count(amount)
