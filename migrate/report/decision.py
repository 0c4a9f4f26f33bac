"""The decision that an audit supports, in one sentence and on one chart: what every option keeps, and what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from migrate.audit.options import Option, options_of
from migrate.audit.report import AuditReport
from migrate.audit.results import FULL, STAY
from migrate.audit.verdict import Outcome
from migrate.cost.estimate import dollars
from migrate.report.page import Section, html_sentence, html_table
from migrate.report.svg.frame import Frame, short, text

_MILLION = 1e6
_HIGHEST = 1.5
"""Retention above is drawn at the edge: a bound without limit would flatten everything else."""

_LINE = 15.0


def decision(report: AuditReport) -> str:
    """The cheapest option that is SAFE, or that staying or a full re-embed is better; empty where nothing is sure."""
    if report.doubts or report.verdict.lacks_documents:
        return ""
    options = options_of(report)
    full = next(option for option in options if option.name == FULL)
    stay = next((option for option in options if option.name == STAY), None)
    if stay is not None and stay.retention.lower >= 1:
        return f"stay: the old model answers better than the new one would ({_kept(stay, report)}), and costs nothing"
    safe = next((option for option in options if option.is_safe and option is not full), None)
    proof = ", the proof included" if report.pool is not None else ""
    provisional = " (provisional)" if report.verdict.provisional else ""
    if safe is not None and safe.cost < full.cost:
        against = _cost(full)
        return (
            f"the cheapest option that is SAFE{provisional}: `{safe.name}` ({_kept(safe, report)}"
            f"{_paid(safe, proof)}){f'; a full re-embed costs {against}' if against else ''}"
        )
    if safe is not None:
        other = f"`{safe.name}`, which is SAFE{provisional} too{_paid(safe, proof)}"
        return f"embed the whole store again: that costs no more than {other}"
    shown = "no other option is shown to be" if report.verdict.outcome is Outcome.INCONCLUSIVE else "no other option is"
    staying = f", or stay ({_kept(stay, report)})" if stay is not None and report.verdict.worse_than_stay else ""
    return f"embed the whole store again{_paid(full, '')}{staying}: {shown} SAFE"


def _kept(option: Option, report: AuditReport) -> str:
    bounds = option.retention
    return f"{report.verdict.measured} {bounds.estimate:.3f}, at least {bounds.lower:.3f}"


def _paid(option: Option, proof: str) -> str:
    cost = _cost(option)
    return f", {cost}{proof}" if cost else ""


def _cost(option: Option) -> str:
    if option.usd is not None:
        return dollars(option.usd)
    return "" if option.tokens is None else f"{option.tokens / _MILLION:.2f} Mtok"


def decision_section(report: AuditReport) -> Section | None:
    """The chart of all options, and their figures; None where no cost is known."""
    options = [option for option in options_of(report) if option.cost < float("inf")]
    if len(options) < 2:
        return None
    is_priced = all(option.usd is not None for option in options)
    head = ["option", report.verdict.measured, "bounds", "usd" if is_priced else "Mtok", "SAFE"]
    rows = [
        [
            option.name,
            f"{option.retention.estimate:.3f}",
            f"{option.retention.lower:.3f}..{option.retention.upper:.3f}",
            f"{_amount(option, is_priced=is_priced):,.4f}",
            "yes" if option.is_safe else "",
        ]
        for option in options
    ]
    sentence = decision(report)
    proof = (
        "Costs are those of the target model for documents, with what was embedded to prove it."
        if report.pool is not None
        else "Costs are those of the target model for documents; the reference was there."
    )
    return Section(
        "Quality and cost",
        f"{f'<p>{html_sentence(sentence)}</p>' if sentence else ''}{_chart(report, options, is_priced=is_priced)}"
        f"<p>{proof} A two-stage option costs more with every query: its figure is for these "
        f"{report.verdict.n_queries:,}.</p>{html_table([head, *rows])}",
    )


def _amount(option: Option, *, is_priced: bool) -> float:
    return (option.usd or 0.0) if is_priced else (option.tokens or 0.0) / _MILLION


def _chart(report: AuditReport, options: Sequence[Option], *, is_priced: bool) -> str:
    costs = [_amount(option, is_priced=is_priced) for option in options]
    edges = [min(edge, _HIGHEST) for option in options for edge in (option.retention.lower, option.retention.upper)]
    edges.append(report.verdict.margin)
    pad = 0.06 * (max(edges) - min(edges) or 1.0)
    frame = Frame((0.0, max(costs) or 1.0), (min(edges) - pad, max(edges) + pad), height=380, top=30, right=150)
    unit = "US dollars" if is_priced else "million tokens"
    names = _label_heights(frame, options, costs)
    return frame.drawing(
        "what every option keeps, and what it costs",
        frame.x_axis(f"cost in all, {unit}", short),
        frame.y_axis(report.verdict.measured),
        frame.level(report.verdict.margin, f"margin {report.verdict.margin:.3g}"),
        *(_point(frame, option, cost, y) for option, cost, y in zip(options, costs, names, strict=True)),
    )


def _label_heights(frame: Frame, options: Sequence[Option], costs: Sequence[float]) -> list[float]:
    """Where each name stands, so that those of options of about one cost do not cover each other."""
    heights: list[float] = [0.0] * len(options)
    order = sorted(range(len(options)), key=lambda place: -options[place].retention.estimate)
    placed: list[tuple[float, float]] = []
    for place in order:
        x, y = frame.at_x(costs[place]), frame.at_y(min(options[place].retention.estimate, _HIGHEST)) + 4
        while any(abs(x - other) < 150 and abs(y - height) < _LINE for other, height in placed):
            y += 1
        heights[place] = y
        placed.append((x, y))
    return heights


def _point(frame: Frame, option: Option, cost: float, name_y: float) -> str:
    colour = "var(--good)" if option.is_safe else "var(--muted)"
    low, middle, high = (
        frame.at_y(min(value, _HIGHEST))
        for value in (option.retention.lower, option.retention.estimate, option.retention.upper)
    )
    x = frame.at_x(cost)
    words = f"{option.name}: {option.retention.estimate:.3f}"
    return (
        f"<g><title>{escape(words)}</title>"
        f'<line x1="{x:g}" x2="{x:g}" y1="{low:g}" y2="{high:g}" style="stroke:{colour}" stroke-width="2"/>'
        f'<circle cx="{x:g}" cy="{middle:g}" r="4.5" style="fill:{colour}"/>'
        f"{text(x + 9, name_y, option.name, bold=option.is_safe)}</g>"
    )
