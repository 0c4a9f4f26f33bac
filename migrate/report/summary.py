"""An audit in at most 25 lines: what to do first, then the verdict, and what every option keeps against the margin."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from migrate.audit_report.names import FULL, STAY, TRANSLATED
from migrate.audit_report.records import Option, ReportedAudit
from migrate.audit_report.report import AuditReport
from migrate.cost.estimate import duration, token_count
from migrate.display import dollars
from migrate.report.decision import axis_form
from migrate.report.sections import Block, TextTable
from migrate.report.terminal import WIDTH, as_text

_ROWS = 7
"""Options at most, so that the whole stays within 25 lines, the height of a small terminal."""

_WITH_COSTS = 72
"""Columns from which on there is room for costs."""

_NARROWEST_PLOT = 12
_WIDEST_PLOT = 40
"""Columns of a plot: with fewer nothing can be told apart, and more say no more."""

_CROSSINGS = {" ": "│", "─": "┼"}
"""How the line of the margin is drawn on what lies below it."""

_MOST_SHOWN = 1.5
"""Retention at which a plot ends: one without limit would flatten everything else."""


def audit_summary(report: AuditReport, *, page: Path | None = None, width: int = WIDTH) -> str:
    """Return the recommendation, the verdict and the options, `width` columns wide; `page` shows the whole report."""
    where_to_look = "--report FILE.html for a page"
    if page is not None:
        where_to_look = str(page)
    more = f"the whole report: {where_to_look}; --verbose for all arms, slices and notes here"
    return as_text(*_blocks(report.audit, width), more, width=width)


def audit_answer(report: AuditReport) -> str:
    """Return the same as `print` shows it, where there are no options to ask for more by."""
    return as_text(*_blocks(report.audit, WIDTH))


def _blocks(audit: ReportedAudit, width: int) -> Iterator[Block]:
    yield audit.recommendation.headline
    if audit.plan.name == TRANSLATED:
        yield f"translated alone: {audit.plan.sentence}"
    else:
        yield audit.plan.sentence
    # No more, as all has to fit 25 lines
    yield from (f"caveat: {caveat}" for caveat in audit.verdict.caveats[:2])
    yield _table(audit, width)
    if audit.verdict.groups != audit.verdict.queries:
        yield f"{audit.verdict.counted}: the bounds count each group as one observation"
    if audit.pool is not None:
        yield audit.pool.sentences[0]


def _table(audit: ReportedAudit, width: int) -> TextTable:
    options = _shown(audit.options)
    has_costs = width >= _WITH_COSTS and any(option.remaining < float("inf") for option in options)
    head = [f"of {audit.verdict.queries:,} queries", audit.verdict.measured, "at least"]
    if has_costs:
        head.append("to pay")
    figures = [head, *(_cells(option, audit, has_costs=has_costs) for option in options)]
    width_used = sum(2 + max(map(len, column)) for column in zip(*figures, strict=True))
    room = min(width - width_used - len("SAFE") - 2, _WIDEST_PLOT)
    plots: list[list[str]] = [[] for _ in figures]
    if room >= _NARROWEST_PLOT:
        plots = [[plot] for plot in _plots(audit, options, room)]
    safe = ["SAFE", *(_safe(option, audit) for option in options)]
    rows = [[*cells, *plot, last] for cells, plot, last in zip(figures, plots, safe, strict=True)]
    return TextTable(rows, text_columns=[0, *range(len(figures[0]), len(rows[0]))])


def _safe(option: Option, audit: ReportedAudit) -> str:
    # A doubt is of the audit as a whole, by which no option is SAFE then
    if option.is_safe and not audit.verdict.doubts:
        return "yes"
    return ""


def _shown(options: Sequence[Option]) -> list[Option]:
    """Return all where they are few; else the store's own, staying, the full re-embed and the cheapest others."""
    needed = {TRANSLATED, STAY, FULL}
    remaining = [option for option in options if option.name not in needed]
    room = _ROWS - (len(options) - len(remaining))
    # SAFE ones first, else in the order of their costs: sorting is stable
    first = sorted(remaining, key=lambda option: not option.is_safe)[:room]
    return [option for option in options if option.name in needed or option in first]


def _cells(option: Option, audit: ReportedAudit, *, has_costs: bool) -> list[str]:
    bounds = option.retention
    cells = [option.name, "-", "-"]
    if option.name == STAY:
        cells[0] = "stay with the old"
    if bounds.is_known:
        cells[1:] = [audit.verdict.figure(bounds.estimate), audit.verdict.figure(bounds.lower)]
    if has_costs:
        cells.append(still_to_pay(option))
    return cells


def still_to_pay(option: Option) -> str:
    """Return what an option still costs: dollars, the time of a model that costs none, or tokens."""
    if option.remaining == float("inf"):
        return "-"
    if not option.remaining:
        return "0"
    if option.usd_left is not None:
        return dollars(option.usd_left)
    if option.seconds_left is not None:
        return duration(option.seconds_left / 60)
    return token_count(option.remaining)


def _plots(audit: ReportedAudit, options: Sequence[Option], columns: int) -> list[str]:
    """Return a head and a line an option: its bounds, its estimate, and the margin that it has to keep."""
    margin = audit.verdict.safe_from
    retained = [option.retention for option in options if option.retention.is_known]
    low = min(margin, *(bounds.lower for bounds in retained), *(bounds.estimate for bounds in retained))
    # Of estimates, not of upper bounds, which may have no limit
    high = max(1.0, *(min(bounds.estimate, _MOST_SHOWN) for bounds in retained))
    # A little room, so that what is lowest is seen to be a point and not the edge
    low = max(low - 0.1 * (high - low), 0.0)

    def column_of(value: float) -> int:
        share = (min(max(value, low), high) - low) / (high - low)
        return round(share * (columns - 1))

    form = axis_form(audit.verdict)
    low_name = form(round(low, 2))
    high_name = form(round(high, 2))
    margin_name = form(round(margin, 3))
    margin_column = column_of(margin)
    head = [" "] * columns
    head[: len(low_name)] = low_name
    head[-len(high_name) :] = high_name
    # Below its line, but clear of the ends of the axis
    last_start = columns - len(high_name) - len(margin_name) - 1
    start = min(max(margin_column - len(margin_name) // 2, len(low_name) + 1), last_start)
    head[start : start + len(margin_name)] = margin_name
    lines = []
    for option in options:
        line = [" "] * columns
        bounds = option.retention
        if bounds.is_known:
            first = column_of(bounds.lower)
            last = column_of(bounds.upper)
            line[first : last + 1] = "─" * (last + 1 - first)
        line[margin_column] = _CROSSINGS[line[margin_column]]
        if bounds.is_known:
            line[column_of(bounds.estimate)] = "●"
        lines.append("".join(line))
    return ["".join(head), *lines]
