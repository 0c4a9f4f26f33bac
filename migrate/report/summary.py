"""An audit in at most 25 lines: what to do first, then the verdict, and what every option keeps against the margin."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from migrate.audited.names import FULL, STAY, TRANSLATED
from migrate.audited.records import Option, ReportedAudit
from migrate.audited.report import AuditReport
from migrate.cost.estimate import dollars, duration, token_count
from migrate.report.decision import axis_form
from migrate.report.sections import Block, TextTable
from migrate.report.terminal import WIDTH, as_text


def audit_summary(report: AuditReport, *, page: Path | None = None, width: int = WIDTH) -> str:
    """Return the recommendation, the verdict and the options, `width` columns wide; `page` shows the whole report."""
    shown = "--report FILE.html for a page" if page is None else page
    more = f"the whole report: {shown}; --verbose for all arms, slices and notes here"
    return as_text(*_blocks(report.audit, width), more, width=width)


def audit_answer(report: AuditReport) -> str:
    """Return the same as `print` shows it, where there are no options to ask for more by."""
    return as_text(*_blocks(report.audit, WIDTH))


def _blocks(audit: ReportedAudit, width: int) -> Iterator[Block]:
    yield audit.recommendation.headline
    yield f"{'translated alone: ' if audit.plan.name == TRANSLATED else ''}{audit.plan.sentence}"
    yield from (f"caveat: {caveat}" for caveat in audit.verdict.caveats[:2])
    yield _table(audit, width)
    if audit.verdict.groups != audit.verdict.queries:
        yield f"{audit.verdict.counted}: the bounds count each group as one observation"
    if audit.pool is not None:
        yield audit.pool.sentences[0]


def _table(audit: ReportedAudit, width: int) -> TextTable:
    options = _shown(audit.options)
    # narrower tables have no room for costs
    has_costs = width >= 72 and any(option.remaining < float("inf") for option in options)
    head = [f"of {audit.verdict.queries:,} queries", audit.verdict.measured, "at least"]
    columns = [
        [*head, "to pay"] if has_costs else head,
        *(_cells(option, audit, has_costs=has_costs) for option in options),
    ]
    width_used = sum(2 + max(map(len, column)) for column in zip(*columns, strict=True))
    room = min(width - width_used - len("SAFE") - 2, 40)
    plots = [[plot] for plot in _plots(audit, options, room)] if room >= 12 else [[]] * len(columns)
    safe = ["SAFE", *("yes" if option.is_safe and not audit.verdict.doubts else "" for option in options)]
    rows = [[*cells, *plot, last] for cells, plot, last in zip(columns, plots, safe, strict=True)]
    return TextTable(rows, text_columns=[0, *range(len(columns[0]), len(rows[0]))])


def _shown(options: Sequence[Option]) -> list[Option]:
    """Return all where they are few; else the store's own, staying, the full re-embed and the cheapest others."""
    needed = {TRANSLATED, STAY, FULL}
    remaining = [option for option in options if option.name not in needed]
    room = 7 - (len(options) - len(remaining))  # of seven rows in all
    first = sorted(remaining, key=lambda option: not option.is_safe)[:room]
    return [option for option in options if option.name in needed or option in first]


def _cells(option: Option, audit: ReportedAudit, *, has_costs: bool) -> list[str]:
    bounds, verdict = option.retention, audit.verdict
    shares = [verdict.figure(value) for value in (bounds.estimate, bounds.lower)] if bounds.is_known else ["-", "-"]
    cells = ["stay with the old" if option.name == STAY else option.name, *shares]
    return [*cells, _cost(option)] if has_costs else cells


def _cost(option: Option) -> str:
    """Return what is still to be paid: dollars, the time of a model that costs none, or tokens."""
    if option.remaining == float("inf"):
        return "-"
    if not option.remaining:
        return "0"
    if option.usd_left is not None:
        return dollars(option.usd_left)
    return token_count(option.remaining) if option.seconds_left is None else duration(option.seconds_left / 60)


def _plots(audit: ReportedAudit, options: Sequence[Option], columns: int) -> list[str]:
    """Return a head and a line an option: its bounds, its estimate, and the margin that it has to keep."""
    margin = audit.verdict.safe_from
    retained = [option.retention for option in options if option.retention.is_known]
    low = min(margin, *(bounds.lower for bounds in retained), *(bounds.estimate for bounds in retained))
    high = max(1.0, *(min(bounds.estimate, 1.5) for bounds in retained))
    low = max(low - 0.1 * (high - low), 0.0)

    def place(value: float) -> int:
        return round((min(max(value, low), high) - low) / (high - low) * (columns - 1))

    form = axis_form(audit.verdict)
    left, right = (form(round(end, 2)) for end in (low, high))
    head = [" "] * columns
    head[: len(left)], head[-len(right) :] = left, right
    name, at = form(round(margin, 3)), place(margin)
    start = min(max(at - len(name) // 2, len(left) + 1), columns - len(right) - len(name) - 1)
    head[start : start + len(name)] = name
    lines = []
    for option in options:
        line = [" "] * columns
        line[at] = "│"
        if option.retention.is_known:
            for cell in range(place(option.retention.lower), place(option.retention.upper) + 1):
                line[cell] = "┼" if cell == at else "─"
            line[place(option.retention.estimate)] = "●"
        lines.append("".join(line))
    return ["".join(head), *lines]
