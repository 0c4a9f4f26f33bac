"""A chart and a table of what every option of an audit keeps and costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from migrate.audit_report.names import FULL, MEAN, RANDOM
from migrate.audit_report.records import Option, ReportedAudit, ReportedVerdict
from migrate.cost.estimate import token_count
from migrate.display import dollars
from migrate.outcome import Bounds, span
from migrate.report.svg.charts import Interval, Point, cost_chart
from migrate.report.svg.frame import Chart, Format, axis_percent, short


def decision_chart(audit: ReportedAudit) -> Chart | None:
    """Draw the quality of every option, arm and budget against its cost in all; None where too few costs are known.

    Left out are the controls, and arms that are held against another standard than the full re-embed.
    """
    options, is_priced = _with_costs(audit)
    # One point shows no choice
    if len(options) < 2:
        return None
    kinds = {True: "good", False: "muted"}
    points = []
    for option in options:
        cost = _cost(option.usd, option.tokens, is_priced=is_priced) or 0.0
        shown = interval(option.name, option.retention, audit.verdict)
        points.append(Point(shown, cost, kinds[option.is_safe]))
    points += _further_points(audit, {option.name for option in options}, is_priced=is_priced)
    unit = "million tokens"
    if is_priced:
        unit = "US dollars"
    return cost_chart(
        "what every option keeps, and what it costs",
        points,
        margin=audit.verdict.safe_from,
        x_label=f"total embedding cost in {unit}, what is already paid included",
        y_label=measure_label(audit),
        y_form=axis_form(audit.verdict),
    )


def _with_costs(audit: ReportedAudit) -> tuple[list[Option], bool]:
    """Return the options whose cost and quality are known, and whether all of them have a price."""
    # What has no cost or no quality has no place in a plane of both
    options = [option for option in audit.options if option.cost < float("inf") and option.retention.is_known]
    # One axis has no room for both dollars and tokens
    return options, all(option.usd is not None for option in options)


def _cost(usd: float | None, tokens: float | None, *, is_priced: bool) -> float | None:
    """Return a cost in dollars, or else in million tokens; None where it is not known."""
    if is_priced:
        return usd
    if tokens is None:
        return None
    return tokens / 1e6


def _further_points(audit: ReportedAudit, shown: set[str], *, is_priced: bool) -> Iterator[Point]:
    """Yield arms that are no options."""
    for arm in audit.arms:
        comparison = arm.against
        if comparison is None or comparison.standard != FULL or not comparison.retention.is_known:
            continue
        cost = _cost(arm.usd, arm.tokens, is_priced=is_priced)
        # The controls are no plan of anybody's, and lie far below all others
        if cost is not None and arm.name not in {*shown, MEAN, RANDOM}:
            yield Point(interval(arm.name, comparison.retention, audit.verdict), cost, "other")


def interval(name: str, bounds: Bounds, verdict: ReportedVerdict, *, marked: bool = False) -> Interval:
    """Return bounds as charts have them, in the words of the verdict."""
    return Interval(name, bounds.lower, bounds.estimate, bounds.upper, marked=marked, figure=verdict.figure)


def axis_form(verdict: ReportedVerdict) -> Format:
    """Return how an axis shows what the verdict rests on: retention in per cent, agreement as a number."""
    if verdict.provisional:
        return short
    return axis_percent


def measure_label(audit: ReportedAudit) -> str:
    """Return the name of an axis of what the verdict rests on."""
    if audit.verdict.provisional:
        return f"{audit.verdict.measured} with the full re-embed"
    return f"share of the full re-embed's {audit.verdict.measure} that is kept"


def decision_rows(audit: ReportedAudit) -> list[list[str]]:
    """Return a head, and one row an option: what it keeps, its cost in all, and what of that is still to be paid."""
    options, is_priced = _with_costs(audit)
    verdict = audit.verdict
    head = ["option", verdict.measured, "bounds", "total embedding cost", "still to pay", "SAFE"]
    return [head, *(_decision_row(option, verdict, is_priced=is_priced) for option in options)]


def _decision_row(option: Option, verdict: ReportedVerdict, *, is_priced: bool) -> list[str]:
    bounds = span(option.retention, provisional=verdict.provisional)
    if option.name == FULL:
        bounds = "by definition"
    cost = _price(option.tokens, token_count)
    cost_left = _price(option.tokens_left, token_count)
    if is_priced:
        cost = _price(option.usd, dollars)
        cost_left = _price(option.usd_left, dollars)
    safe = ""
    if option.is_safe:
        safe = "yes"
    return [option.name, verdict.figure(option.retention.estimate), bounds, cost, cost_left, safe]


def _price(amount: float | None, form: Callable[[float], str]) -> str:
    if amount is None:
        return "-"
    if not amount:
        return "0"
    return form(amount)
