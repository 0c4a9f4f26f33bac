"""An audit in at most 25 lines: what to do first, then the verdict, and what every option keeps against the margin."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from migrate.audit.options import Option, options_of
from migrate.audit.recommendation import recommend
from migrate.audit.report import AuditReport
from migrate.audit.results import FULL, STAY, TRANSLATED
from migrate.audit.verdict import Outcome
from migrate.cost.estimate import dollars
from migrate.report.characters import printable
from migrate.report.downstream import downstream_sentence
from migrate.report.terminal import WIDTH, printed, wrap

if TYPE_CHECKING:
    from rich.console import RenderableType

_STYLES = {Outcome.SAFE: "bold green", Outcome.NOT_SAFE: "bold red", Outcome.INCONCLUSIVE: "bold yellow"}
_NAMES = {FULL: "full re-embed", STAY: "stay with the old", TRANSLATED: "translated"}
_MOST_OPTIONS, _MOST_CAVEATS = 7, 2
_NARROWEST_PLOT, _WIDEST_PLOT = 12, 40
_NARROW = 72
"""Columns below which a table has no room for costs."""

_MILLION = 1e6


def audit_summary(report: AuditReport, *, page: Path | None = None, width: int = WIDTH, in_colour: bool = False) -> str:
    """The recommendation, the verdict and the options, `width` columns wide; `page` is where the report is shown."""
    where = f"the whole report: {page}" if page is not None else "the whole report: --report FILE.html for a page"
    more = _lines(f"{where}; --verbose for all arms, slices and notes here", width)
    return printed([*_parts(report, width), more], width, in_colour=in_colour)


def audit_answer(report: AuditReport) -> str:
    """The same as `print` shows it, where there are no options to ask for more by."""
    return printed(_parts(report, WIDTH), WIDTH).rstrip("\n")


def _parts(report: AuditReport, width: int) -> Iterator[RenderableType]:
    from rich.text import Text

    headline = recommend(report).headline
    first = Text(_lines(headline, width), style="bold")
    if headline.startswith(Outcome.SAFE):
        first.stylize("green", 0, len(Outcome.SAFE))
    yield first
    of = "translated alone: " if report.plan == TRANSLATED else ""
    verdict = Text(_lines(f"{of}{report.sentence}", width))
    outcome = report.verdict.outcome if of else report.outcome
    verdict.stylize(_STYLES[outcome], len(of), len(of) + len(outcome))
    yield verdict
    yield from (_lines(f"caveat: {caveat}", width) for caveat in report.caveats[:_MOST_CAVEATS])
    yield ""
    yield _table(report, width)
    yield ""
    yield from (_lines(sentence, width) for sentence in _sentences(report))
    if report.downstream is not None:
        yield _lines(downstream_sentence(report.downstream), width)


def _sentences(report: AuditReport) -> Iterator[str]:
    """Yield how many queries are independent, and what was embedded for a pool."""
    if report.verdict.n_independent != report.verdict.n_queries:
        yield f"{report.verdict.counted}: bounds take each group for one observation"
    if report.pool is not None:
        yield report.pool.sentences[0]


def _lines(sentence: str, width: int) -> str:
    return wrap(printable(sentence), width)


def _table(report: AuditReport, width: int) -> RenderableType:
    from rich.table import Table

    options = _shown(options_of(report))
    has_costs = width >= _NARROW and any(option.left < float("inf") for option in options)
    rows = [_cells(option, has_costs=has_costs) for option in options]
    heads = [
        f"of {report.verdict.n_queries:,} queries",
        report.verdict.measured,
        "at least",
        *(["to pay"] if has_costs else []),
    ]
    taken = sum(2 + max(len(row[column]) for row in [heads, *rows]) for column in range(len(heads)))
    room = min(width - taken - len("SAFE") - 2, _WIDEST_PLOT)
    plots = _plots(report, options, room) if room >= _NARROWEST_PLOT else None
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for place, head in enumerate(heads):
        table.add_column(head, justify="right" if place else "left", no_wrap=bool(place))
    if plots is not None:
        table.add_column(plots[0], no_wrap=True)
    table.add_column("SAFE")
    for place, (option, row) in enumerate(zip(options, rows, strict=True)):
        is_safe = option.is_safe and not report.doubts
        drawn = [] if plots is None else [plots[place + 1]]
        table.add_row(*row, *drawn, "yes" if is_safe else "", style="green" if is_safe else None)
    return table


def _shown(options: Sequence[Option]) -> list[Option]:
    """All of them where they are few; else the store's own, staying, the full re-embed and the cheapest others."""
    needed = {TRANSLATED, STAY, FULL}
    others = [option for option in options if option.name not in needed]
    room = _MOST_OPTIONS - (len(options) - len(others))
    first = sorted(others, key=lambda option: not option.is_safe)[:room]
    return [option for option in options if option.name in needed or option in first]


def _cells(option: Option, *, has_costs: bool) -> list[str]:
    bounds = option.retention
    shares = [f"{bounds.estimate:.3f}", f"{bounds.lower:.3f}"] if bounds.is_known else ["-", "-"]
    cells = [_NAMES.get(option.name, option.name), *shares]
    return [*cells, _cost(option)] if has_costs else cells


def _cost(option: Option) -> str:
    if option.left == float("inf"):
        return "-"
    if not option.left:
        return "0"
    return dollars(option.usd_left) if option.usd_left is not None else f"{option.left / _MILLION:.2f}M tokens"


def _plots(report: AuditReport, options: Sequence[Option], columns: int) -> list[str]:
    """A head and a line an option: its bounds, its estimate, and the margin that it has to keep."""
    margin = report.verdict.margin
    known = [option.retention for option in options if option.retention.is_known]
    low = min(margin, *(bounds.lower for bounds in known), *(bounds.estimate for bounds in known))
    high = max(1.0, *(min(bounds.estimate, 1.5) for bounds in known))
    low = max(low - 0.1 * (high - low), 0.0)

    def place(value: float) -> int:
        return round((min(max(value, low), high) - low) / (high - low) * (columns - 1))

    left, right = f"{low:.2f}", f"{high:.2f}"
    head = [" "] * columns
    head[: len(left)], head[-len(right) :] = left, right
    name, at = f"{margin:.3g}", place(margin)
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
