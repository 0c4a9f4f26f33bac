"""A chart and a table of what every option of an audit keeps and costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from migrate.audit.recommendation import Option
from migrate.audit.report import AuditReport
from migrate.audit.results import FULL, MEAN, RANDOM
from migrate.audit.verdict import Bounds
from migrate.report.audit import span
from migrate.report.svg.charts import Interval, Point, cost_chart
from migrate.report.svg.frame import Chart


def decision_chart(report: AuditReport) -> Chart | None:
    """Draw the quality of every option, arm and budget against its cost in all; None where too few costs are known.

    Left out are the controls, and arms that are held against another standard than the full re-embed.
    """
    options = _with_costs(report)
    if len(options) < 2:
        return None
    is_priced = _is_priced(options)
    points = [
        Point(interval(option.name, option.retention), _amount(option.usd, option.tokens, is_priced=is_priced),
              "good" if option.is_safe else "muted")
        for option in options
    ]  # fmt: skip
    points += _further_points(report, {option.name for option in options}, is_priced=is_priced)
    unit = "US dollars" if is_priced else "million tokens"
    return cost_chart(
        "what every option keeps, and what it costs",
        points,
        margin=report.verdict.margin,
        x_label=f"cost in all, what is paid already included, {unit}",
        y_label=report.verdict.measured,
    )


def _with_costs(report: AuditReport) -> list[Option]:
    return [option for option in report.options if option.cost < float("inf") and option.retention.is_known]


def _is_priced(options: Sequence[Option]) -> bool:
    return all(option.usd is not None for option in options)


def _further_points(report: AuditReport, shown: set[str], *, is_priced: bool) -> Iterator[Point]:
    """Yield arms that are no options, and the budgets of the frontier."""
    for arm in report.arms:
        comparison = report.comparisons.get(arm.name)
        if comparison is None or comparison.standard != FULL or arm.name in {*shown, MEAN, RANDOM}:
            continue
        if not comparison.retention.is_known:
            continue
        if (arm.usd if is_priced else arm.tokens) is not None:
            cost = _amount(arm.usd, arm.tokens, is_priced=is_priced)
            yield Point(interval(arm.name, comparison.retention), cost, "other")
    for budget in report.frontier.points if report.frontier is not None else ():
        if not is_priced or budget.price_usd is not None:
            name = f"{budget.share:.0%} re-embedded, chosen by {budget.policy}"
            cost = _amount(budget.price_usd, budget.tokens, is_priced=is_priced)
            yield Point(interval(name, budget.verdict.retention), cost, "minor")


def interval(name: str, bounds: Bounds, *, marked: bool = False) -> Interval:
    """Return bounds as charts have them."""
    return Interval(name, bounds.lower, bounds.estimate, bounds.upper, marked=marked)


def decision_rows(report: AuditReport) -> list[list[str]]:
    """Return a head, and one row an option: what it keeps, its cost in all, and what of that is still to be paid."""
    options = _with_costs(report)
    is_priced = _is_priced(options)
    unit = "usd" if is_priced else "Mtok"
    return [
        ["option", report.verdict.measured, "bounds", f"{unit} in all", f"{unit} still to pay", "SAFE"],
        *(
            [
                option.name,
                f"{option.retention.estimate:.3f}",
                span(option.retention),
                f"{_amount(option.usd, option.tokens, is_priced=is_priced):,.4f}",
                _amount_left(option, is_priced=is_priced),
                "yes" if option.is_safe else "",
            ]
            for option in options
        ),
    ]


def _amount_left(option: Option, *, is_priced: bool) -> str:
    amount = option.usd_left if is_priced else option.tokens_left
    return "-" if amount is None else f"{amount if is_priced else amount / 1e6:,.4f}"


def _amount(usd: float | None, tokens: float | None, *, is_priced: bool) -> float:
    return (usd or 0.0) if is_priced else (tokens or 0.0) / 1e6
