"""An assessment as plain text that fits 100 columns, as one JSON document, and in the cells that both tables share.

An assessment as an HTML page: the answers, the plans side by side, and what they cost drawn against what they do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from migrate.cost import Assessment
from migrate.cost.estimate import dollars, duration
from migrate.cost.plans import TWO_STAGE, Plan
from migrate.cost.quality import SAFE
from migrate.report import page
from migrate.report.facts import as_plain, document
from migrate.report.page import Page, element, items, sentence, words
from migrate.report.page import table as html_table
from migrate.report.svg.charts import Line, line_chart
from migrate.report.svg.frame import Chart, percent
from migrate.report.terminal import WIDTH, paragraphs, table, wrapped

UNKNOWN = "-"
_UNITS = ("B", "kB", "MB", "GB", "TB")


def assess_text(assessment: Assessment) -> str:
    """Return the store, what the plans cost, what they need and what is known of them, and the answers last."""
    known, needs = _store_facts(assessment), _need_rows(assessment.plans)
    width = max(len(name) for name, _ in known)
    needed = table(needs, left=[4])
    if max(map(len, needed.split("\n"))) > WIDTH:  # what an audit's frontier found needs a table of its own
        needed = paragraphs(table([row[:-1] for row in needs]), table([[row[0], row[-1]] for row in needs], left=[1]))
    return paragraphs(
        "\n".join(f"{name:{width}}  {value}" for name, value in known),
        table(cost_rows(assessment)),
        needed,
        wrapped(f"note: {note}" for note in assessment.notes),
        wrapped(assessment.answers),
    )


def _store_facts(assessment: Assessment) -> list[tuple[str, str]]:
    """What is in the store, name by name."""
    count, size = assessment.count, assessment.size
    about = "" if assessment.target.counter.exact else f"about (within {assessment.target.counter.error:.0%}) "
    limit = assessment.target.max_tokens
    over = "no limit is known" if limit is None else f"{count.over_limit:,} over the limit of {limit:,}"
    facts = [
        ("store", f"{assessment.store.location} ({assessment.store.kind}, {assessment.store.index_type})"),
        (
            "target",
            f"{assessment.target.spec}, dimension {assessment.target.dim or 'not known'} (now {assessment.store.dim})",
        ),
        ("documents", f"{count.documents:,}: {count.duplicates:,} duplicates, {count.blank:,} blank, {over}"),
        ("tokens", f"{about}{count.tokens_read:,} to embed each text once; the longest text has {count.longest:,}"),
    ]
    if count.cached:
        facts.append(("cached", f"{count.cached:,} documents of {count.cached_tokens:,} tokens are paid for already"))
    if size is not None:
        about = "" if size.is_exact else "about "
        facts.append(("bytes", f"{size_text(size.now)} now, {about}{size_text(size.after)} after"))
    return facts


def cost_rows(assessment: Assessment) -> list[list[str]]:
    """Return a head, and what each plan costs."""
    target = assessment.target
    is_priced, has_batches = target.price_usd_per_mtok is not None, target.batch_price_usd_per_mtok is not None
    head = ["plan", "documents", "tokens", *(["requests"] if target.is_api else [])]
    head += [*(["usd"] if is_priced else []), *(["batch usd"] if has_batches else []), "time"]
    rows = [
        [
            plan.name,
            f"{plan.documents:,}",
            f"{plan.tokens:,}",
            *([] if plan.requests is None else [f"{plan.requests:,}"]),
            *([_amount(plan.usd)] if is_priced else []),
            *([_amount(plan.batch_usd)] if has_batches else []),
            UNKNOWN if plan.minutes is None else duration(plan.minutes),
        ]
        for plan in assessment.plans
    ]
    return [head, *rows]


def _need_rows(plans: Sequence[Plan]) -> list[list[str]]:
    """Return a head, and what each plan needs and what is known of it."""
    rows = [
        [plan.name, size_text(plan.disk_bytes), size_text(plan.memory_bytes), plan.downtime, plan.quality]
        for plan in plans
    ]
    return [["plan", "disk", "memory", "downtime", "quality known"], *rows]


def _amount(usd: float | None) -> str:
    return UNKNOWN if usd is None else dollars(usd)


def size_text(count: int | None) -> str:
    """Bytes in the unit that suits them.

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
    """Everything an assessment knows, as values that JSON holds."""
    count, target, info = assessment.count, assessment.target, assessment.store
    counted = {name: value for name, value in as_plain(count).items() if name != "long_documents"}
    facts = {
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
        "texts": {**counted, "distinct": count.distinct, "to_embed": count.to_embed},
        "chunking": assessment.chunking,
        "bytes": None if assessment.size is None else {**as_plain(assessment.size), "after": assessment.size.after},
        "rate": assessment.rate,
        "plans": assessment.plans,
        "answers": assessment.answers,
        "notes": assessment.notes,
    }
    return document("assess", facts)


def assess_page(assessment: Assessment) -> str:
    """Return the page: the answers, the plans side by side, and what they cost drawn against what they do."""
    plans = assessment.plans
    safe = [place for place, plan in enumerate(plans) if plan.known is not None and plan.known.outcome == SAFE]
    chart = _chart(plans)
    return Page(
        kind="Cost",
        title=f"Moving {assessment.store.name} to {assessment.target.spec}",
        lead=[element("p", sentence(answer)) for answer in assessment.answers],
        sections={
            "The plans": [None if chart is None else chart.figure(), html_table(cost_rows(assessment), marked=safe)],
            "What they need": html_table(_need_rows(plans), marked=safe, text_columns=[4]),
            "The store": page.facts(_store_facts(assessment)),
            "How this is known": items(map(words, assessment.notes)),
        },
    ).html()


def _chart(plans: Sequence[Plan]) -> Chart | None:
    """Dollars, or tokens where there is no price, against the share re-embedded; a dot for each plan."""
    drawn = sorted((plan for plan in plans if plan.kind != TWO_STAGE), key=lambda plan: plan.share)
    in_usd = all(plan.usd is not None for plan in drawn)
    points = [(plan.share, float(plan.usd or 0) if in_usd else float(plan.tokens)) for plan in drawn]
    if not any(value for _, value in points):
        return None
    unit = "dollars" if in_usd else "tokens"
    title = f"{unit} against the share re-embedded"
    return line_chart(
        title, [Line(unit, points)], x_label="share of the store re-embedded", y_label=unit, x_form=percent
    )
