"""An assessment in sections and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from migrate.cost import Assessment
from migrate.cost.estimate import dollars, duration
from migrate.cost.plans import TWO_STAGE, Plan
from migrate.display import percent
from migrate.report.facts import as_plain, document
from migrate.report.sections import Either, Facts, Listed, Report, TextTable
from migrate.report.svg.charts import Line, line_chart
from migrate.report.svg.frame import Chart, axis_percent
from migrate.report.terminal import figure_or_dash, filled_columns

UNKNOWN = "-"
_UNITS = ("B", "kB", "MB", "GB", "TB")


def assess_sections(assessment: Assessment) -> Report:
    """Return the answers, the plans side by side, what they cost drawn against what they do, and what they need."""
    plans, sentences = assessment.plans, list(assessment.answers)
    chart = _chart(plans)
    return Report(
        kind="Cost",
        title=f"Moving {assessment.store.name} to {assessment.target.spec}",
        lead=Either(sentences),
        sections={
            "The plans": [None if chart is None else chart.figure(), TextTable(cost_rows(assessment))],
            "What they need": TextTable(_need_rows(plans), text_columns=[4]),
            "The store": Facts(_store_facts(assessment)),
            "How this is known": Listed(assessment.notes),
        },
        closing=sentences,
    )


def _store_facts(assessment: Assessment) -> list[tuple[str, str]]:
    """Return the facts of the store, name by name."""
    count, size = assessment.count, assessment.size
    about = "" if assessment.target.counter.exact else f"about (within {percent(assessment.target.counter.error, 0)}) "
    limit = assessment.target.max_tokens
    over = "no limit is known" if limit is None else f"{count.over_limit:,} over the limit of {limit:,}"
    rows = [
        ("store", f"{assessment.store.location} ({assessment.store.kind}, {assessment.store.index_type})"),
        (
            "target",
            f"{assessment.target.spec}, dimension {assessment.target.dim or 'not known'} (now {assessment.store.dim})",
        ),
        ("documents", f"{count.documents:,}: {count.duplicates:,} duplicates, {count.blank:,} blank, {over}"),
        ("tokens", f"{about}{count.tokens_read:,} to embed each text once; the longest text has {count.longest:,}"),
    ]
    if count.cached:
        rows.append(("cached", f"{count.cached:,} documents of {count.cached_tokens:,} tokens are paid for already"))
    if size is not None:
        about = "" if size.is_exact else "about "
        rows.append(("bytes", f"{size_text(size.now)} now, {about}{size_text(size.total_after)} after"))
    return rows


def cost_rows(assessment: Assessment) -> list[list[str]]:
    """Return a head, and what each plan costs."""
    rows = [
        [
            plan.name,
            f"{plan.documents:,}",
            f"{plan.tokens:,}",
            figure_or_dash(plan.requests, ","),
            UNKNOWN if plan.usd is None else dollars(plan.usd),
            UNKNOWN if plan.batch_usd is None else dollars(plan.batch_usd),
            UNKNOWN if plan.minutes is None else duration(plan.minutes),
        ]
        for plan in assessment.plans
    ]
    return filled_columns([["plan", "documents", "tokens", "requests", "price", "batch price", "time"], *rows])


def _need_rows(plans: Sequence[Plan]) -> list[list[str]]:
    """Return a head, and what each plan needs and what is known of it."""
    rows = [
        [plan.name, size_text(plan.disk_bytes), size_text(plan.memory_bytes), plan.downtime, plan.quality]
        for plan in plans
    ]
    return [["plan", "disk", "memory", "downtime", "quality known"], *rows]


def size_text(count: int | None) -> str:
    """Return bytes in the unit that suits them.

    >>> size_text(230445), size_text(None)
    ('230 kB', '-')
    """
    if count is None:
        return UNKNOWN
    size, unit = float(count), 0
    while size >= 1000 and unit < len(_UNITS) - 1:
        size, unit = size / 1000, unit + 1
    return f"{size:.0f} {_UNITS[unit]}" if size >= 100 or not unit else f"{size:.1f} {_UNITS[unit]}"


def assess_document(assessment: Assessment) -> dict[str, Any]:
    """Return everything an assessment knows, as values that JSON holds."""
    count, target, info = assessment.count, assessment.target, assessment.store
    content = {
        "store": {"path": info.location, "format": info.kind, "index_type": info.index_type, "dim": info.dim},
        "target": {
            "spec": target.spec,
            "dim": target.dim,
            "prefix": target.prefix,
            "max_tokens": target.max_tokens,
            "price_usd_per_mtok": target.price_usd_per_mtok,
            "batch_price_usd_per_mtok": target.batch_price_usd_per_mtok,
        },
        "tokens": {"source": target.counter.source, "exact": target.counter.exact, "error": target.counter.error},
        "texts": {**as_plain(count), "distinct": count.distinct, "to_embed": count.to_embed},
        "bytes": None
        if assessment.size is None
        else {**as_plain(assessment.size), "after": assessment.size.total_after},
        "rate": assessment.rate,
        "plans": assessment.plans,
        "answers": assessment.answers,
        "notes": assessment.notes,
    }
    return document("assess", content)


def _chart(plans: Sequence[Plan]) -> Chart | None:
    """Return dollars, or tokens where there is no price, against the share re-embedded; a dot for each plan."""
    drawn = sorted((plan for plan in plans if plan.kind != TWO_STAGE), key=lambda plan: plan.share)
    in_usd = all(plan.usd is not None for plan in drawn)
    points = [(plan.share, float(plan.usd or 0) if in_usd else float(plan.tokens)) for plan in drawn]
    if not any(value for _, value in points):
        return None
    unit = "dollars" if in_usd else "tokens"
    title = f"{unit} against the share re-embedded"
    return line_chart(
        title,
        [Line(unit, points)],
        x_label="share of the store re-embedded",
        y_label=f"embedding cost in {unit}",
        x_form=axis_percent,
    )
