"""An assessment as an HTML page: the answers, the plans side by side, and what they cost drawn against what they do."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from migrate.cost import Assessment
from migrate.cost.answers import dollars
from migrate.cost.plans import TWO_STAGE, Plan
from migrate.cost.quality import SAFE
from migrate.report.assess import cost_cells, cost_head, need_cells, need_head, store_facts
from migrate.report.page import Section, html_page, html_table

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 640, 280, 70, 40, 15


def assess_page(found: Assessment) -> str:
    """The page as one HTML document."""
    safe = [place for place, plan in enumerate(found.plans) if plan.known is not None and plan.known.outcome == SAFE]
    costs = html_table([cost_head(found), *(cost_cells(plan, found) for plan in found.plans)], marked=safe)
    needs = [need_head(), *(need_cells(plan) for plan in found.plans)]
    sections = [
        Section("The plans", costs + _chart(found.plans)),
        Section("What they need", html_table(needs, marked=safe, text_columns=(4,))),
        Section("The store", html_table([["", ""], *([*fact] for fact in store_facts(found))], text_columns=(1,))),
        Section("How this is known", _list(found.notes)),
    ]
    lead = "".join(f"<p>{escape(answer)}</p>" for answer in found.answers)
    return html_page("Cost", f"Moving {found.store.path.name} to {found.target.spec}", lead, sections)


def _list(sentences: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(sentence)}</li>' for sentence in sentences)}</ul>"


def _chart(plans: Sequence[Plan]) -> str:
    """Dollars, or tokens where there is no price, against the share re-embedded; a dot for each plan."""
    drawn = sorted((plan for plan in plans if plan.kind != TWO_STAGE), key=lambda plan: plan.share)
    in_usd = all(plan.usd is not None for plan in drawn)
    values = [float(plan.usd or 0) if in_usd else float(plan.tokens) for plan in drawn]
    most = max(values, default=0)
    if not most:
        return ""
    right, floor = _WIDTH - 20, _HEIGHT - _BOTTOM
    places = [
        (_LEFT + plan.share * (right - _LEFT), floor - value / most * (floor - _TOP))
        for plan, value in zip(drawn, values, strict=True)
    ]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    dots = "".join(
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="currentColor"><title>{escape(_label(plan, in_usd))}</title>'
        "</circle>"
        for plan, (x, y) in zip(drawn, places, strict=True)
    )
    ticks = "".join(
        f'<text x="{_LEFT + share * (right - _LEFT):.1f}" y="{floor + 18}" text-anchor="middle">{share:.0%}</text>'
        for share in (0, 0.25, 0.5, 0.75, 1)
    )
    top = dollars(most) if in_usd else f"{most:,.0f}"
    unit = "dollars" if in_usd else "tokens"
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{unit} against the share re-embedded" '
        'font-size="12" fill="currentColor" style="max-width:100%">'
        f'<path d="M{_LEFT} {_TOP}V{floor}H{right}" fill="none" stroke="currentColor" stroke-opacity=".4"/>'
        f'<polyline points="{line}" fill="none" stroke="currentColor"/>{dots}{ticks}'
        f'<text x="{_LEFT - 6}" y="{_TOP + 5}" text-anchor="end">{top}</text>'
        f'<text x="{_LEFT - 6}" y="{floor}" text-anchor="end">0</text>'
        f'<text x="{(_LEFT + right) / 2:.0f}" y="{_HEIGHT - 5}" text-anchor="middle">'
        f"share of the store re-embedded ({unit} upwards)</text></svg>"
    )


def _label(plan: Plan, in_usd: bool) -> str:
    return f"{plan.name}: {dollars(plan.usd or 0) if in_usd else f'{plan.tokens:,} tokens'}"
