"""An assessment as an HTML page: the answers, the plans side by side, and what they cost drawn against what they do."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from migrate.cost import Assessment
from migrate.cost.plans import TWO_STAGE, Plan
from migrate.cost.quality import SAFE
from migrate.report.assess import cost_cells, cost_head, need_cells, need_head, store_facts
from migrate.report.page import Section, html_page, html_sentence, html_table
from migrate.report.svg.charts import Line, line_chart
from migrate.report.svg.frame import percent


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
    lead = "".join(f"<p>{html_sentence(answer)}</p>" for answer in found.answers)
    return html_page("Cost", f"Moving {found.store.path.name} to {found.target.spec}", lead, sections)


def _list(sentences: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(sentence)}</li>' for sentence in sentences)}</ul>"


def _chart(plans: Sequence[Plan]) -> str:
    """Dollars, or tokens where there is no price, against the share re-embedded; a dot for each plan."""
    drawn = sorted((plan for plan in plans if plan.kind != TWO_STAGE), key=lambda plan: plan.share)
    in_usd = all(plan.usd is not None for plan in drawn)
    points = [(plan.share, float(plan.usd or 0) if in_usd else float(plan.tokens)) for plan in drawn]
    if not any(value for _, value in points):
        return ""
    unit = "dollars" if in_usd else "tokens"
    title = f"{unit} against the share re-embedded"
    return line_chart(
        title, [Line(unit, points)], x_label="share of the store re-embedded", y_label=unit, x_form=percent
    )
